"""The sizes of figures in print: as wide as a column or the text of a paper, or a slide."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Literal

from rmlab.plots.canvas import arrange_panels
from rmlab.tables import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Width = Literal["column", "text", "slide"]

WIDTHS = {"column": 3.25, "text": 6.75}  # inches, as in the two-column styles of the field's conferences
SLIDE = (6.4, 3.6)  # inches, sixteen by nine: texts of 10 points are of 21 on a slide of 13.3 inches
SMALLEST = 6.0  # points; smaller print is not read
_SCALE = 0.75  # a text of 10 points on the screen is one of 7.5 points in print
_PANEL = 1.3  # inches that a panel needs


@contextmanager
def sized(figure: "Figure", width: Width) -> "Iterator[Figure]":
    """The figure at a printed `width` as long as the block lasts: its page, its type, and the panels that fit in a row.

    A slide is the smallest page of sixteen by nine that holds the figure, and at least 6.4 inches wide.
    """
    if width not in (*WIDTHS, "slide"):
        raise DataError(f"width: {width!r}. Allowed are 'column' (3.25 in), 'text' (6.75 in) and 'slide' (16:9).")
    with ExitStack() as undo:
        wide, high = figure.get_size_inches()
        undo.callback(figure.set_size_inches, wide, high)
        if width == "slide":
            page = max(SLIDE[0], wide, high * SLIDE[0] / SLIDE[1])
            figure.set_size_inches(page, page * SLIDE[1] / SLIDE[0])
        else:
            _scale_type(figure, undo)
            more_rows = _fit_panels([ax for ax in figure.axes if ax.get_subplotspec()], WIDTHS[width], undo)
            figure.set_size_inches(WIDTHS[width], _SCALE * high * more_rows)
            figure.draw_without_rendering()
            if any(ax.get_aspect() != "auto" for ax in figure.axes):  # squares leave room above or below them
                figure.set_size_inches(WIDTHS[width], figure.get_tightbbox().height + 0.1)
                figure.draw_without_rendering()
            _hide_wide_numbers(figure, undo)
        yield figure


def _scale_type(figure: "Figure", undo: ExitStack) -> None:
    from matplotlib.text import Text

    sizes = [(text, float(text.get_fontsize())) for text in figure.findobj(Text)]
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            # Another width may bring other ticks, which take their size from here.
            size = max((float(label.get_fontsize()) for label in axis.get_ticklabels()), default=10.0)
            undo.callback(axis.set_tick_params, labelsize=size)
            axis.set_tick_params(labelsize=max(_SCALE * size, SMALLEST))
    for text, size in sizes:
        undo.callback(text.set_fontsize, size)
        text.set_fontsize(max(_SCALE * size, SMALLEST))


def _fit_panels(axes: "list[Axes]", width: float, undo: ExitStack) -> float:
    """Set as many panels in a row as have room, and return how many times the rows they then are."""
    specs = [spec for ax in axes if (spec := ax.get_subplotspec()) is not None]
    n_rows, n_columns = (len({spec.rowspan.start for spec in specs}), len({spec.colspan.start for spec in specs}))
    fitting = max(1, int((width - 0.4) // _PANEL))
    if fitting >= n_columns:
        return 1.0
    for ax, spec in zip(axes, specs, strict=True):
        undo.callback(ax.set_subplotspec, spec)
    undo.callback(arrange_panels, axes, n_columns)
    arrange_panels(axes, fitting)
    return -(-len(axes) // fitting) / n_rows


def _hide_wide_numbers(figure: "Figure", undo: ExitStack) -> None:
    """Leave the numbers of a heatmap out where one of them is wider than its cell."""
    for ax in figure.axes:
        cell = ax.transData.transform((1, 0))[0] - ax.transData.transform((0, 0))[0]
        numbers = [text for text in ax.texts if text.get_gid() == "cell"]
        if any(text.get_window_extent().width > cell for text in numbers):
            for text in numbers:
                undo.callback(text.set_visible, True)
                text.set_visible(False)
