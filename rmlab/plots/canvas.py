"""What every figure starts from: axes, panels, lists of rows, names fit to be drawn,
refusals, sizes of print.
"""

import copy
import math
import re
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from rmlab.baselines import is_baseline
from rmlab.tables import PROMPT, DataError
from rmlab.text import line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Maker = Callable[
    [pd.DataFrame], pd.DataFrame
]  # of a table to draw, from scores or pairs

POINT, BASELINE = "#2166ac", "#888888"
# Okabe and Ito's colours without yellow and black: told apart with any colour vision;
# in grey the markers tell.
COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#e69f00",
    "#7f7f7f",
    "#5b3a8e",
)
MARKERS = "osD^vPX*"
LINES = ("-", "--", "-.", ":")
WAY_OUT = (
    'Draw a table made with average="domains", which counts the domains that are there.'
)
_MARGIN = 0.012  # of the width of a figure, left free at both sides
_NAMES_SHARE = 0.46  # of a figure's width: the names of its rows take no more
_FIRST_WORD = 10  # letters that a shortened name keeps of its first word
_LEGEND_LETTERS = 46  # that fit into a row of a legend, beside its marks

Width = Literal["column", "text", "slide"]

WIDTHS = {
    "column": 3.25,
    "text": 6.75,
}  # inches, as in the two-column styles of the field's conferences
SLIDE = (
    6.4,
    3.6,
)  # inches, sixteen by nine: texts of 10 points are of 21 on a slide of 13.3 inches
SMALLEST = 6.0  # points; smaller print is not read
_SCALE = 0.75  # a text of 10 points on the screen is one of 7.5 points in print
_PANEL = 1.3  # inches that a panel needs


def new_axes(
    ax: "Axes | None", size: tuple[float, float], *, squares: bool = False
) -> "Axes":
    """Return `ax`, or the Axes of a new figure of `size` inches; never the current
    Axes, which may hold a plot.
    """
    ax = ax if ax is not None else _new_figure(size, squares).add_subplot()
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _new_figure(size: tuple[float, float], squares: bool) -> "Figure":
    import matplotlib.pyplot as plt
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    page = (_MARGIN, 0.0, 1 - 2 * _MARGIN, 1.0)
    return plt.figure(
        figsize=size,
        layout=ConstrainedLayoutEngine(
            w_pad=0.06, h_pad=0.08, rect=page, compress=squares
        ),
    )


def new_panels(
    n_panels: int, columns: int, size: tuple[float, float], *, squares: bool = False
) -> "tuple[Figure, list[Axes]]":
    """A figure of `n_panels` panels of `size` inches with the same scales, `columns` in
    a row.
    """
    columns = min(columns, n_panels)
    rows = -(-n_panels // columns)
    figure = _new_figure(
        (max(size[0] * columns + 0.6, 4.4), size[1] * rows + 0.9), squares
    )
    first = new_axes(figure.add_subplot(), size)
    axes = [
        first,
        *(
            new_axes(figure.add_subplot(sharex=first, sharey=first), size)
            for _ in range(n_panels - 1)
        ),
    ]
    arrange_panels(axes, columns)
    return figure, axes


def arrange_panels(axes: "Sequence[Axes]", columns: int) -> None:
    """Set panels in rows of `columns`; those of one scale are numbered and labelled at
    the left and the bottom only.
    """
    from matplotlib.gridspec import GridSpec

    grid = GridSpec(
        -(-len(axes) // columns), columns, figure=axes[0].get_figure(root=True)
    )
    for i, ax in enumerate(axes):
        ax.set_subplotspec(grid[divmod(i, columns)])
        if len(ax.get_shared_y_axes().get_siblings(ax)) > 1:
            at_left, at_bottom = i % columns == 0, i + columns >= len(axes)
            ax.tick_params(labelleft=at_left, labelbottom=at_bottom)
            ax.yaxis.label.set_visible(at_left)
            ax.xaxis.label.set_visible(at_bottom)


def new_rows(
    ax: "Axes | None", names: Sequence[object], *, n_series: int = 1
) -> "Axes":
    """Axes for a list of named rows, the last name on top, with room for `n_series`
    marks in a row.
    """
    ax = new_axes(ax, (6.4, (0.16 + 0.1 * n_series) * max(len(names), 2) + 1.1))
    ax.set_yticks(range(len(names)))
    set_row_names(ax, list(map(str, names)))
    for label, name in zip(ax.get_yticklabels(), names, strict=True):
        if is_baseline(str(name)):
            label.set(color=BASELINE, style="italic")
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(-0.6, len(names) - 0.4)
    return ax


def set_row_names(ax: "Axes", names: list[str], endings: Sequence[str] = ()) -> None:
    """Name the rows, each with its ending, shortened and thinned out to what the size
    of the figure allows.
    """
    ax.yaxis.set_major_formatter(
        partial(_format_row_name, ax, names, endings or [""] * len(names))
    )


def set_column_names(ax: "Axes", names: list[str], letters: int) -> None:
    """Name the ticks below, `letters` wide, and only every second, third ... where
    there is no room for all.
    """
    ax.xaxis.set_major_formatter(partial(_format_column_name, ax, names, letters))


# The axes are an argument, so that a copy of a figure measures its own. There is no
# position under the mouse.
def _format_row_name(
    ax: "Axes", names: list[str], endings: Sequence[str], _: float, position: int | None
) -> str:
    i, spec, size = (
        position or 0,
        ax.get_subplotspec(),
        float(ax.yaxis.label.get_fontsize()),
    )
    width = (
        72
        * ax.figure.bbox.width
        / ax.figure.dpi
        / (spec.get_gridspec().ncols if spec is not None else 1)
    )
    short_names = shorten_names(names, int(_NAMES_SHARE * width / (0.55 * size)))
    return _thin_out(
        plain(short_names[i]) + endings[i],
        i,
        0.8 * size * len(names),
        ax,
        ax.get_window_extent().height,
    )


def _format_column_name(
    ax: "Axes", names: list[str], letters: int, _: float, position: int | None
) -> str:
    i, size = position or 0, float(ax.yaxis.label.get_fontsize())
    return _thin_out(
        names[i], i, 0.6 * letters * size * len(names), ax, ax.get_window_extent().width
    )


def _thin_out(name: str, i: int, points: float, ax: "Axes", room: float) -> str:
    """The name; nothing where all together need more `points` than there is room for
    and it is not this one's turn.
    """
    return name if i % math.ceil(points * ax.figure.dpi / (72 * room)) == 0 else ""


def row_offset(i: int, n_series: int) -> float:
    """Rows by which the mark of the series `i` stands above the middle of its row."""
    return ((n_series - 1) / 2 - i) * 0.8 / max(n_series, 2)


def draw_dots(
    ax: "Axes",
    dots: pd.DataFrame,
    value: str,
    style: tuple[str | list[str], str],
    label: str | None = None,
) -> None:
    """A dot for each row of a table, at its height `y`, with its interval where it has
    low and high.

    `style`: the colour of all, or one for each, and the marker. A row that is `hollow`
    is drawn so.
    """
    colour, marker = style
    if {"low", "high"} <= set(dots.columns):
        ax.hlines(dots["y"], dots["low"], dots["high"], color=colour, lw=1.4, zorder=2)
    faces = np.where(
        dots.get("hollow", False), "white", np.broadcast_to(colour, len(dots))
    ).tolist()
    x = dots[value].to_numpy(float)
    ax.scatter(
        x,
        dots["y"],
        facecolors=faces,
        edgecolors=colour,
        marker=marker,
        s=26,
        lw=1.2,
        zorder=3,
        clip_on=False,
    )
    if label is not None:  # a legend shows it filled
        ax.scatter([], [], color=colour, marker=marker, s=26, label=label)


def margin_column(ax: "Axes", heading: str, texts: Sequence[str], at: float) -> None:
    """Texts at the right of the rows, under a heading; `at` is how many of their
    heights beside the axes.
    """
    ax.annotate(
        heading,
        (1, 1),
        (at, 0),
        "axes fraction",
        "offset fontsize",
        fontsize="small",
        style="italic",
    )
    for row, text in enumerate(texts):
        write_beside(ax, row, text, at, size="small", color="black")


def list_ties(ax: "Axes", n_ties: pd.Series) -> None:
    """The number of ties of each row at its right, where there are any."""
    if n_ties.gt(0).any():
        margin_column(ax, "ties", [f"{n:,.0f}" if n > 0 else "" for n in n_ties], 0.6)


def write_beside(
    ax: "Axes",
    y: float,
    text: str,
    at: float = 0.6,
    size: str = "x-small",
    color: str = "#666",
) -> None:
    """A text at the right of the axes."""
    note = ax.annotate(
        plain(text),
        (1, float(y)),
        (at, 0),
        ("axes fraction", "data"),
        "offset fontsize",
        va="center",
    )
    note.set(fontsize=size, color=color, annotation_clip=False)


def mark_line(ax: "Axes", value: float, name: str) -> None:
    """A dotted vertical line with its name above the frame."""
    ax.axvline(value, color="black", lw=0.8, ls=":", zorder=0)
    ax.annotate(
        name,
        (value, 1),
        (0, 0.15),
        ("data", "axes fraction"),
        "offset fontsize",
        ha="center",
        fontsize="small",
    )


def add_legend(
    ax: "Axes", figure: "Figure | None" = None, *, above: float = 0.2
) -> None:
    """A legend over the axes, by so many heights of its text, growing to the left; or
    one panel's over its figure.
    """
    handles, names = ax.get_legend_handles_labels()
    most = max(
        1, min(4, len(names), _LEGEND_LETTERS // (5 + max(map(len, names), default=1)))
    )
    # Few rows, and no name alone in the last one.
    n_columns = min(
        range(1, most + 1), key=lambda n: (-(-len(names) // n), -len(names) % n)
    )
    over_axes = {
        "loc": "lower right",
        "bbox_to_anchor": (1.0, 1.0),
        "borderaxespad": above,
        "handletextpad": 0.3,
    }
    place = over_axes if figure is None else {"loc": "outside upper center"}
    (figure or ax).legend(
        handles, names, ncols=n_columns, frameon=False, fontsize="small", **place
    )


def is_items(table: pd.DataFrame) -> bool:
    """Whether a table holds scores or pairs, of which the numbers to draw are still to
    be made.
    """
    columns = set(table.columns) if isinstance(table, pd.DataFrame) else set()
    return {"model", *PROMPT} <= columns and bool(
        {"score", "margin", "outcome"} & columns
    )


def read_table(
    table: pd.DataFrame,
    make: Maker,
    columns: list[str],
    number: str = "",
    argument: str = "table",
    hint: str = WAY_OUT,
) -> pd.DataFrame:
    """The table to draw, made of scores or pairs where these are given.

    DataError for a column that it lacks, and where no row has the `number` to draw.
    """
    table = make(table) if is_items(table) else table
    for column in columns:
        if column not in table.columns:
            source = f"{make.__module__.rsplit('.', 1)[0]}.{make.__name__}"
            raise DataError(
                f"{argument}: no column {column!r}. Pass scores, pairs or the result of {source}."
            )
    if number:
        refuse_blank(table, number, argument, hint)
    return table


def refuse_blank(
    table: pd.DataFrame, column: str, argument: str = "table", hint: str = WAY_OUT
) -> None:
    """Raise DataError where no row has the number to draw, with the table's own reason
    and the way out.
    """
    if table.empty:
        raise DataError(
            f"{argument}: no rows, so there is nothing to draw. Look at how the rows were selected."
        )
    if table[column].isna().all():
        reasons = [
            str(reason)
            for reason in table.get("reason", [])
            if isinstance(reason, str) and reason
        ]
        reason = (
            f" ({textwrap.shorten(reasons[0], 150, placeholder='…')})"
            if reasons
            else ""
        )
        raise DataError(
            f"{argument}: {column} is missing in all {len(table)} rows{reason}. {hint}"
        )


def label_values(
    ax: "Axes", label: str, n_left_out: int = 0, why: str = "", noun: str = "model"
) -> None:
    """The label below the rows, with a line that says how many models are not drawn, if
    any.
    """
    left_out = (
        f"\n({n_left_out} {noun}{'' if n_left_out == 1 else 's'} {why})"
        if n_left_out
        else ""
    )
    ax.set_xlabel((label + left_out).lstrip(), loc="right")


def plain(name: object) -> str:
    r"""A name on one line, in which dollar signs are not formulas.

    >>> plain("a$b$")
    'a\\$b\\$'
    """
    return line(name).replace("$", r"\$")


def shorten_names(names: Sequence[str], letters: int) -> list[str]:
    """Names of at most so many letters where they still differ: all without owners,
    then without their middles.

    >>> shorten_names(["nvidia/Nemotron-4-340B-Reward", "Skywork/Skywork-Reward-V2-Llama-3.1-8B-40M"], 26)
    ['Nemotron-4-340B-Reward', 'Skywork…Llama-3.1-8B-40M']
    """
    if all(len(name) <= letters for name in names):
        return list(names)
    bare = [name.split("/", 1)[-1] for name in names]
    full = bare if len(set(bare)) == len(set(names)) else names
    cuts = (
        [_cut_middle(name, length) for name in full]
        for length in range(letters, max(map(len, full)) + 1)
    )
    return next(
        (texts for texts in cuts if len(set(texts)) == len(set(full))), list(full)
    )


def _cut_middle(name: str, letters: int) -> str:
    """The first word says whose model it is, the end how the models of a family differ."""
    if len(name) <= letters:
        return name
    first = re.split(r"[-_ …]", name)[0][:_FIRST_WORD]
    ending = name[1 + len(first) - max(letters, len(first) + 9) :]
    boundary = re.search(
        r"[-_ ](?=.{8})", ending
    )  # a word's begin, where enough is left of the name
    return f"{first}…{ending[boundary.end() :] if boundary else ending}"


def resize(figure: "Figure", width: Width) -> "Figure":
    """A copy of the figure at a printed `width`: its page, its type and marks, and the
    panels that fit in a row.

    A slide is the smallest page of sixteen by nine that holds the figure, and at least
    6.4 inches wide.
    """
    import matplotlib.pyplot as plt

    if width not in (*WIDTHS, "slide"):
        raise DataError(
            f"width: {width!r}. Allowed are 'column' (3.25 in), 'text' (6.75 in) and 'slide' (16:9)."
        )
    page = copy.deepcopy(figure)
    plt.close(page)  # pyplot would show it as a figure of its own
    wide, high = page.get_size_inches()
    if width == "slide":
        inches = max(SLIDE[0], wide, high * SLIDE[0] / SLIDE[1])
        page.set_size_inches(inches, inches * SLIDE[1] / SLIDE[0])
        return page
    _scale_type_and_marks(page)
    page.set_size_inches(
        WIDTHS[width], _SCALE * high * _fit_panels(page, WIDTHS[width])
    )
    page.draw_without_rendering()
    if any(
        ax.get_aspect() != "auto" for ax in page.axes
    ):  # squares leave room above or below them
        page.set_size_inches(WIDTHS[width], page.get_tightbbox().height + 0.1)
        page.draw_without_rendering()
    for ax in page.axes:
        cell = ax.transData.transform((1, 0))[0] - ax.transData.transform((0, 0))[0]
        numbers = [text for text in ax.texts if text.get_gid() == "cell"]
        # One that is wider than its cell would hide its neighbours.
        plt.setp(
            numbers,
            visible=all(text.get_window_extent().width <= cell for text in numbers),
        )
    return page


def _scale_type_and_marks(figure: "Figure") -> None:
    from matplotlib.collections import PathCollection
    from matplotlib.text import Text

    for marks in figure.findobj(
        PathCollection
    ):  # rows that come closer would bring them to overlap
        marks.set(
            sizes=_SCALE**2 * marks.get_sizes(),
            linewidths=_SCALE * np.asarray(marks.get_linewidth()),
        )
    sizes = [(text, float(text.get_fontsize())) for text in figure.findobj(Text)]
    for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
        # Another width may bring other ticks, which take their size from here.
        size = max(
            (float(label.get_fontsize()) for label in axis.get_ticklabels()),
            default=10.0,
        )
        axis.set_tick_params(labelsize=max(_SCALE * size, SMALLEST))
    for text, size in sizes:
        text.set_fontsize(max(_SCALE * size, SMALLEST))


def _fit_panels(figure: "Figure", width: float) -> float:
    """Set as many panels in a row as have room, and return how many times the rows they
    then are.
    """
    axes = {
        ax: spec for ax in figure.axes if (spec := ax.get_subplotspec()) is not None
    }
    n_rows, n_columns = (
        len({getattr(spec, span).start for spec in axes.values()})
        for span in ("rowspan", "colspan")
    )
    # Beside its text, which is scaled too, a panel keeps at least half of its width.
    panel = max(_PANEL, _SCALE / 2 * figure.get_size_inches()[0] / n_columns)
    fitting = max(1, int((width - 0.4) // panel))
    if fitting >= n_columns:
        return 1.0
    arrange_panels([*axes], fitting)
    return -(-len(axes) // fitting) / n_rows
