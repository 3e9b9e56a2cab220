"""A figure at the width of a column or of the text of a paper, or as a slide: laid out anew, every text readable."""

import re
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from rmlab.plots.canvas import arrange, short
from rmlab.tables import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["SMALLEST", "WIDTHS", "Width", "printed"]

Width = Literal["column", "text", "slide"]

WIDTHS = {"column": 3.25, "text": 6.75}  # inches, as in the two-column styles of the field's conferences
SLIDE = (6.4, 3.6)  # inches, sixteen by nine: texts of 10 points are of 21 on a slide of 13.3 inches
SMALLEST = 6.0  # points; smaller print is not read
_SCALE = 0.75  # a text of 10 points on the screen is one of 7.5 points in print
_PANEL, _SHARED_PANEL = 2.0, 1.3  # inches that a panel needs: with numbers of its own on both axes, and without
_PAD = 0.12  # inches left around squares
_LONGEST = 26  # letters of a name beside a column
_LINE = 44  # letters of an axis label below a column


@contextmanager
def printed(figure: "Figure", width: Width) -> "Iterator[Figure]":
    """The figure at a printed `width`, as long as the block lasts; after it, it is what it was.

    Texts shrink to three quarters, but not below 6 points, and the height with them. A grid gets as many panels in a
    row as have room. Beside a column, names of more than 26 letters lose their owner, then their middle, where they
    still differ; numbers that no longer fit into the cells of a heatmap are left out. "slide": nothing shrinks; the
    page is the smallest one of sixteen by nine that holds the figure, and at least 6.4 in wide. Raises DataError for
    another width.
    """
    if width not in (*WIDTHS, "slide"):
        inches = ", ".join(f"{name!r} ({size} in)" for name, size in WIDTHS.items())
        raise DataError(f"width: {width!r}; allowed: {inches}, 'slide' (16:9)")
    with ExitStack() as undo:
        if width == "slide":
            _fill_slide(figure, undo)
        else:
            _lay_out(figure, width, undo)
        yield figure


def _fill_slide(figure: "Figure", undo: ExitStack) -> None:
    before = tuple(figure.get_size_inches())
    undo.callback(figure.set_size_inches, *before)
    wide = max(SLIDE[0], before[0], before[1] * SLIDE[0] / SLIDE[1])
    figure.set_size_inches(wide, wide * SLIDE[1] / SLIDE[0])


def _lay_out(figure: "Figure", width: Width, undo: ExitStack) -> None:
    _shrink_texts(figure, undo)
    _shrink_marks(figure, undo)
    if width == "column":
        _shorten_names(figure, undo)
    _resize(figure, WIDTHS[width], undo)
    _join_squares(figure, undo)
    figure.draw_without_rendering()
    for ax in figure.axes:
        _keep_label_inside(ax, undo)
        _stagger_names(ax, undo)
        _thin_pieces(ax, undo)
        _thin_cells(ax, undo)
    figure.draw_without_rendering()
    for ax in figure.axes:
        _keep_ticks(ax, undo)


def _shrink_texts(figure: "Figure", undo: ExitStack) -> None:
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties
    from matplotlib.text import Text

    texts = [(text, float(text.get_fontsize())) for text in figure.findobj(Text)]
    for text, size in texts:
        undo.callback(text.set_fontsize, size)
    for ax in figure.axes:
        for axis, usual in ((ax.xaxis, rcParams["xtick.labelsize"]), (ax.yaxis, rcParams["ytick.labelsize"])):
            # Another width may bring other ticks, which take their size from here.
            before = axis.get_tick_params().get("labelsize", usual)
            undo.callback(axis.set_tick_params, labelsize=before)
            axis.set_tick_params(labelsize=max(_SCALE * FontProperties(size=before).get_size_in_points(), SMALLEST))
    for text, size in texts:
        text.set_fontsize(max(_SCALE * size, SMALLEST))


def _shrink_marks(figure: "Figure", undo: ExitStack) -> None:
    from matplotlib.collections import PathCollection
    from matplotlib.lines import Line2D

    for line in figure.findobj(Line2D):
        undo.callback(line.set_markersize, line.get_markersize())
        line.set_markersize(_SCALE * line.get_markersize())
    for marks in figure.findobj(PathCollection):
        undo.callback(marks.set_sizes, marks.get_sizes())
        marks.set_sizes(marks.get_sizes() * _SCALE**2)


def _shorten_names(figure: "Figure", undo: ExitStack) -> None:
    for ax in figure.axes:
        names = [label.get_text() for label in ax.get_yticklabels()]
        if any(len(name) > _LONGEST for name in names):
            undo.callback(ax.set_yticklabels, names)
            ax.set_yticklabels(_shortened(names))
        label = ax.get_xlabel()
        undo.callback(ax.set_xlabel, label)
        lines = [
            textwrap.wrap(line, _LINE, break_on_hyphens=False, break_long_words=False) for line in label.split("\n")
        ]
        ax.set_xlabel("\n".join(part for line in lines for part in line))


def _shortened(names: list[str]) -> list[str]:
    """Names without their owner, then without their middle, as far as they still differ."""
    without = [name.split("/", 1)[-1] if len(name) > _LONGEST else name for name in names]
    cut = [short(name, most=_LONGEST) for name in without]
    return next(made for made in (cut, without, names) if len(set(made)) == len(set(names)))


def _join_squares(figure: "Figure", undo: ExitStack) -> None:
    """Squares keep together in the middle: what a wider page adds is not between them, nor on one side."""
    engine = figure.get_layout_engine()
    if engine is not None and any(ax.get_aspect() != "auto" for ax in figure.axes):
        undo.callback(figure.set_layout_engine, engine)
        figure.set_layout_engine("compressed")


def _resize(figure: "Figure", width: float, undo: ExitStack) -> None:
    before = tuple(figure.get_size_inches())
    undo.callback(figure.set_size_inches, *before)
    axes = [ax for ax in figure.axes if ax.get_subplotspec() is not None]
    rows, across = _shape(axes)
    shared = len(axes) > 1 and axes[0] in axes[1].get_shared_y_axes().get_siblings(axes[1])
    fitting = max(1, min(across, int((width - 0.4) // (_SHARED_PANEL if shared else _PANEL))))
    if fitting < across:
        _rearrange(axes, across, fitting, undo)
    down = -(-len(axes) // fitting) if fitting < across else rows
    squares = any(ax.get_aspect() != "auto" for ax in axes)
    scale = 1.0 if squares and len(axes) > 1 else _SCALE  # panels of a grid of squares fill the width; see below
    figure.set_size_inches(width, scale * before[1] * down / rows)
    if squares:
        figure.draw_without_rendering()
        figure.set_size_inches(width, figure.get_size_inches()[1] - down * _room_above_squares(axes[0]) + _PAD)


def _room_above_squares(ax: "Axes") -> float:
    """Inches of its height that a heatmap leaves empty, as its cells are squares and its width is the limit."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    height = figure.get_size_inches()[1]
    beside = ax.get_position(original=True).height - ax.get_position().height
    return float(max(beside * height, height - figure.get_tightbbox().height))


def _rearrange(axes: "list[Axes]", across: int, fitting: int, undo: ExitStack) -> None:
    for ax in axes:
        if (spec := ax.get_subplotspec()) is not None:
            undo.callback(ax.set_subplotspec, spec)
    undo.callback(arrange, axes, across)
    arrange(axes, fitting)


def _shape(axes: "list[Axes]") -> tuple[int, int]:
    """Rows and columns of the panels of a figure."""
    specs = [spec for ax in axes if (spec := ax.get_subplotspec()) is not None]
    return max(len({s.rowspan.start for s in specs}), 1), max(len({s.colspan.start for s in specs}), 1)


def _keep_label_inside(ax: "Axes", undo: ExitStack) -> None:
    """Set a label about as wide as its axis to the right, so that it runs below the names at the left."""
    label = ax.xaxis.label
    if label.get_window_extent().width > 0.85 * ax.bbox.width:
        undo.callback(label.set, x=label.get_position()[0], ha=label.get_horizontalalignment())
        label.set(x=1.0, ha="right")


def _stagger_names(ax: "Axes", undo: ExitStack) -> None:
    """Set every second name below the axis a line lower, where neighbours would run into each other."""
    labels = [label for label in ax.get_xticklabels() if label.get_text()]
    if any(label.get_rotation() for label in labels):
        return  # a line lower would be beside: on the next name
    boxes = [label.get_window_extent() for label in labels]
    named = not all(re.fullmatch(r"[\d.,−-]+", label.get_text()) for label in labels)
    if named and any(one.x1 + 2 > other.x0 for one, other in pairwise(boxes)):
        names = [label.get_text() for label in ax.get_xticklabels()]
        undo.callback(ax.set_xticklabels, names)
        ax.set_xticklabels(["\n" * (place % 2) + name for place, name in enumerate(names)])


def _keep_ticks(ax: "Axes", undo: ExitStack) -> None:
    """Keep the numbers below the axis: with other ones the axis would need other room, and so again other numbers."""
    from matplotlib.ticker import AutoLocator, FixedLocator

    locator = ax.xaxis.get_major_locator()
    if isinstance(locator, AutoLocator):
        undo.callback(ax.xaxis.set_major_locator, locator)
        ax.xaxis.set_major_locator(FixedLocator(ax.get_xticks().tolist()))


def _thin_pieces(ax: "Axes", undo: ExitStack) -> None:
    """Name every second or third piece of an answer, where upright names below the axis run into each other."""
    labels = ax.get_xticklabels()
    if len(labels) < 2 or any(label.get_rotation() != 90 for label in labels):
        return
    one, other = (label.get_window_extent() for label in labels[:2])
    wide = float(labels[0].get_fontsize()) * ax.figure.dpi / 72
    step = int(np.ceil(wide / max((other.x0 + other.x1 - one.x0 - one.x1) / 2, 1)))
    names = [label.get_text() for label in labels]
    undo.callback(ax.set_xticklabels, names)
    ax.set_xticklabels([name if place % step == 0 else "" for place, name in enumerate(names)])


def _thin_cells(ax: "Axes", undo: ExitStack) -> None:
    """In a heatmap, leave out numbers that are wider than a cell, and names where there is no room for each."""
    from matplotlib.collections import QuadMesh

    if not ax.texts or not any(isinstance(mesh, QuadMesh) for mesh in ax.collections):
        return
    (left, bottom), (right, top) = ax.transData.transform([(0, 0), (1, 1)])
    numbers = [text for text in ax.texts if text.get_gid() == "cell"]
    if any(text.get_window_extent().width > right - left for text in numbers):
        for text in numbers:
            undo.callback(text.set_visible, True)
            text.set_visible(False)
    high = max((text.get_window_extent().height for text in ax.get_yticklabels()), default=0)
    step = int(high // abs(top - bottom)) + 1
    if step > 1:
        for labels, change in ((ax.get_xticklabels(), ax.set_xticklabels), (ax.get_yticklabels(), ax.set_yticklabels)):
            names = [label.get_text() for label in labels]
            undo.callback(change, names)
            change([name if place % step == 0 else "" for place, name in enumerate(names)])
