"""What every figure starts from: axes, panels, lists of rows, names fit to be drawn,
refusals.
"""

import math
import re
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from rmlab.baselines import is_baseline
from rmlab.tables import PROMPT, DataError
from rmlab.text import line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Makes the table to draw from scores or pairs.
TableMaker = Callable[[pd.DataFrame], pd.DataFrame]

POINT = "#2166ac"
BASELINE = "#888888"
# Okabe and Ito's colours without yellow and black: told apart with any colour vision;
# in grey the markers tell.
SERIES_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#e69f00",
    "#7f7f7f",
    "#5b3a8e",
)
_MARKERS = "osD^vPX*"
_LINES = ("-", "--", "-.", ":")
AVERAGE_HINT = (
    'draw a table made with average="domains", which counts the domains that are there'
)
_MARGIN = 0.012  # of the width of a figure, left free at both sides
_NAMES_SHARE = 0.46  # of a figure's width: the names of its rows take no more
_FIRST_WORD = 10  # letters that a shortened name keeps of its first word
_LEGEND_LETTERS = 46  # that fit into a row of a legend, beside its marks
_MARK_AREA = 26  # square points


class MarkStyle(NamedTuple):
    """How the marks of a series look: one colour, or one for each mark."""

    colour: str | list[str]
    marker: str
    line: str = "-"


def series_style(i: int) -> MarkStyle:
    """The look of the series `i` of a figure."""
    return MarkStyle(
        colour=SERIES_COLOURS[i % len(SERIES_COLOURS)],
        marker=_MARKERS[i % len(_MARKERS)],
        line=_LINES[i % len(_LINES)],
    )


def new_axes(
    ax: "Axes | None", size: tuple[float, float], *, squares: bool = False
) -> "Axes":
    """Return `ax`, or the Axes of a new figure of `size` inches; never the current
    Axes, which may hold a plot.
    """
    if ax is None:
        ax = _new_figure(size, squares).add_subplot()
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _new_figure(size: tuple[float, float], squares: bool) -> "Figure":
    import matplotlib.pyplot as plt
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    page = (_MARGIN, 0.0, 1 - 2 * _MARGIN, 1.0)
    layout = ConstrainedLayoutEngine(
        w_pad=0.06, h_pad=0.08, rect=page, compress=squares
    )
    return plt.figure(figsize=size, layout=layout)


def new_panels(
    n_panels: int, columns: int, size: tuple[float, float], *, squares: bool = False
) -> "tuple[Figure, list[Axes]]":
    """A figure of panels of `size` inches with the same scales, `columns` in a row."""
    columns = min(columns, n_panels)
    rows = math.ceil(n_panels / columns)
    panel_width, panel_height = size
    width = max(panel_width * columns + 0.6, 4.4)
    height = panel_height * rows + 0.9
    if squares:
        # Titles and names stand above and below each row, and leave less for squares.
        height += 0.7 * rows
    figure = _new_figure((width, height), squares)

    first = new_axes(figure.add_subplot(), size)
    axes = [first]
    for _ in range(n_panels - 1):
        panel = figure.add_subplot(sharex=first, sharey=first)
        axes.append(new_axes(panel, size))
    arrange_panels(axes, columns)
    return figure, axes


def arrange_panels(axes: "Sequence[Axes]", columns: int) -> None:
    """Set panels in rows of `columns`; those of one scale are numbered and labelled at
    the left and the bottom only.
    """
    from matplotlib.gridspec import GridSpec

    figure = axes[0].get_figure(root=True)
    n_rows = math.ceil(len(axes) / columns)
    grid = GridSpec(n_rows, columns, figure=figure)

    for i, ax in enumerate(axes):
        ax.set_subplotspec(grid[divmod(i, columns)])

        same_scale = ax.get_shared_y_axes().get_siblings(ax)
        if len(same_scale) > 1:
            at_left = i % columns == 0
            at_bottom = i + columns >= len(axes)
            ax.tick_params(labelleft=at_left, labelbottom=at_bottom)
            ax.yaxis.label.set_visible(at_left)
            ax.xaxis.label.set_visible(at_bottom)


def new_rows(
    ax: "Axes | None", names: Sequence[object], *, n_series: int = 1
) -> "Axes":
    """Axes for a list of named rows, the last name on top, with room for `n_series`
    marks in a row.
    """
    row_names = [str(name) for name in names]
    row_height = 0.16 + 0.1 * n_series
    height = row_height * max(len(row_names), 2) + 1.1
    ax = new_axes(ax, (6.4, height))

    ax.set_yticks(range(len(row_names)))
    set_row_names(ax, row_names)
    for label, name in zip(ax.get_yticklabels(), row_names, strict=True):
        if is_baseline(name):
            label.set(color=BASELINE, style="italic")

    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(-0.6, len(row_names) - 0.4)
    if n_series > 1:
        _separate_rows(ax, len(row_names))
    return ax


def _separate_rows(ax: "Axes", n_rows: int) -> None:
    """A faint line between rows of several marks, so that each mark has its row."""
    ax.hlines(
        np.arange(1, n_rows) - 0.5,
        0,
        1,
        transform=ax.get_yaxis_transform(),
        color="#dddddd",
        lw=0.8,
        zorder=0,
    )


def set_row_names(ax: "Axes", names: list[str], endings: Sequence[str] = ()) -> None:
    """Name the rows, each with its ending, shortened and thinned out to what the size
    of the figure allows.
    """
    if not endings:
        endings = [""] * len(names)
    # The axes are an argument, so that a copy of a figure measures its own.
    ax.yaxis.set_major_formatter(partial(_format_row_name, ax, names, endings))


def set_column_names(ax: "Axes", names: list[str], letters: int) -> None:
    """Name the ticks below, `letters` wide, and only every second, third ... where
    there is no room for all.
    """
    ax.xaxis.set_major_formatter(partial(_format_column_name, ax, names, letters))


def _format_row_name(
    ax: "Axes", names: list[str], endings: Sequence[str], _: float, position: int | None
) -> str:
    i = position or 0  # there is none under the mouse
    font_size = float(ax.yaxis.label.get_fontsize())

    letters = _NAMES_SHARE * _panel_width(ax) / (0.55 * font_size)
    short_names = shorten_names(names, int(letters))
    name = escape_name(short_names[i]) + endings[i]

    all_rows = 0.8 * font_size * len(names)
    return _thin_out(name, i, all_rows, ax, ax.get_window_extent().height)


def _panel_width(ax: "Axes") -> float:
    """Points that a panel and the names of its rows have together."""
    width = 72 * ax.figure.bbox.width / ax.figure.dpi
    spec = ax.get_subplotspec()
    if spec is None:
        return width
    return width / spec.get_gridspec().ncols


def _format_column_name(
    ax: "Axes", names: list[str], letters: int, _: float, position: int | None
) -> str:
    i = position or 0
    font_size = float(ax.yaxis.label.get_fontsize())
    all_columns = 0.6 * letters * font_size * len(names)
    return _thin_out(names[i], i, all_columns, ax, ax.get_window_extent().width)


def _thin_out(name: str, i: int, points: float, ax: "Axes", room: float) -> str:
    """The name; nothing where all together need more `points` than there is room for
    and it is not this one's turn.
    """
    step = math.ceil(points * ax.figure.dpi / (72 * room))
    if i % step:
        return ""
    return name


def row_offset(i: int, n_series: int) -> float:
    """Rows by which the mark of the series `i` stands above the middle of its row."""
    steps_above_middle = (n_series - 1) / 2 - i
    return steps_above_middle * 0.8 / max(n_series, 2)


def draw_dots(
    ax: "Axes",
    dots: pd.DataFrame,
    value: str,
    style: MarkStyle,
    label: str | None = None,
) -> None:
    """A dot for each row of a table, at its height `y`, with its interval where it has
    low and high.

    A row that is `hollow` is drawn so.
    """
    colour = style.colour
    if {"low", "high"} <= set(dots.columns):
        ax.hlines(dots["y"], dots["low"], dots["high"], color=colour, lw=1.4, zorder=2)

    filled = np.broadcast_to(colour, len(dots))
    faces = np.where(dots.get("hollow", False), "white", filled)
    ax.scatter(
        dots[value].to_numpy(float),
        dots["y"],
        facecolors=faces.tolist(),
        edgecolors=colour,
        marker=style.marker,
        s=_MARK_AREA,
        lw=1.2,
        zorder=3,
        clip_on=False,
    )
    if label is not None:
        name_series(ax, style, label)


def name_series(ax: "Axes", style: MarkStyle, label: str) -> None:
    """A filled mark for the legend, also of a series whose dots are hollow."""
    ax.scatter(
        [], [], color=style.colour, marker=style.marker, s=_MARK_AREA, label=label
    )


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
    if not n_ties.gt(0).any():
        return
    texts = []
    for n in n_ties:
        texts.append(f"{n:,.0f}" if n > 0 else "")
    margin_column(ax, "ties", texts, 0.6)


def format_ties(n_ties: float) -> str:
    """The number of ties in words.

    >>> format_ties(1), format_ties(1200)
    ('1 tie', '1,200 ties')
    """
    if n_ties == 1:
        return "1 tie"
    return f"{n_ties:,.0f} ties"


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
        escape_name(text),
        (1, float(y)),
        (at, 0),
        ("axes fraction", "data"),
        "offset fontsize",
        va="center",
    )
    note.set(fontsize=size, color=color, annotation_clip=False)


def mark_line(ax: "Axes", value: float, name: str = "") -> None:
    """A dotted vertical line, its name above the frame."""
    ax.axvline(value, color="black", lw=0.8, ls=":", zorder=0)
    if not name:
        return
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
    options = {"ncols": _legend_columns(names), "frameon": False, "fontsize": "small"}
    if figure is not None:
        figure.legend(handles, names, loc="outside upper center", **options)
        return
    ax.legend(
        handles,
        names,
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        borderaxespad=above,
        handletextpad=0.3,
        **options,
    )


def _legend_columns(names: Sequence[str]) -> int:
    """Columns that make few rows, and then leave few places of the last row empty."""
    longest = max(map(len, names), default=1)
    fitting = _LEGEND_LETTERS // (5 + longest)
    most = max(1, min(4, len(names), fitting))

    def rows_and_empty_places(n_columns: int) -> tuple[int, int]:
        n_rows = math.ceil(len(names) / n_columns)
        return n_rows, n_rows * n_columns - len(names)

    return min(range(1, most + 1), key=rows_and_empty_places)


def is_items(table: object) -> bool:
    """Whether a table holds scores or pairs, of which the numbers to draw are still to
    be made.
    """
    if not isinstance(table, pd.DataFrame):
        return False
    columns = set(table.columns)
    has_keys = {"model", *PROMPT} <= columns
    has_results = not columns.isdisjoint({"score", "margin", "outcome"})
    return has_keys and has_results


def table_to_draw(
    table: pd.DataFrame,
    make: TableMaker,
    columns: list[str],
    number: str = "",
    argument: str = "table",
    hint: str = AVERAGE_HINT,
) -> pd.DataFrame:
    """The table to draw, made of scores or pairs where these are given.

    DataError for a column that it lacks, and where no row has the `number` to draw.
    """
    if is_items(table):
        table = make(table)
    for column in columns:
        if column not in table.columns:
            module = make.__module__.rsplit(".", 1)[0]
            remedy = f"pass scores, pairs or the result of {module}.{make.__name__}"
            raise DataError(f"{argument}: no column {column!r}", remedy)
    if number:
        refuse_blank(table, number, argument, hint)
    return table


def columns_before(table: pd.DataFrame, column: str) -> list[str]:
    """The columns that stand left of one, which say what a row is about."""
    return list(table.columns[: table.columns.get_loc(column)])


def join_names(table: pd.DataFrame, columns: list[str], between: str) -> pd.Series:
    """A name for each row, of several columns."""
    return table[columns].astype(str).agg(between.join, axis=1)


def refuse_blank(
    table: pd.DataFrame,
    column: str,
    argument: str = "table",
    hint: str = AVERAGE_HINT,
) -> None:
    """Raise DataError with the table's own reason and the hint where no row has the
    number to draw.
    """
    if table.empty:
        problem = f"{argument}: no rows, so there is nothing to draw"
        raise DataError(problem, "look at how the rows were selected")
    if table[column].isna().all():
        problem = f"{argument}: {column} is missing in all {len(table)} rows"
        raise DataError(f"{problem}{_first_reason(table)}", hint)


def _first_reason(table: pd.DataFrame) -> str:
    for reason in table.get("reason", []):
        if isinstance(reason, str) and reason:
            return f" ({textwrap.shorten(reason, 150, placeholder='…')})"
    return ""


def label_values(
    ax: "Axes", label: str, n_left_out: int = 0, why: str = "", noun: str = "model"
) -> None:
    """The label below the rows, with a line that says how many models are not drawn, if
    any.
    """
    if n_left_out:
        plural = "" if n_left_out == 1 else "s"
        label += f"\n({n_left_out} {noun}{plural} {why})"
    ax.set_xlabel(label.lstrip(), loc="right")


def escape_name(name: object) -> str:
    r"""A name on one line, in which dollar signs are not formulas.

    >>> escape_name("a$b$")
    'a\\$b\\$'
    """
    return line(name).replace("$", r"\$")


def shorten_names(names: Sequence[str], letters: int) -> list[str]:
    """Names of at most so many letters where they still differ: all without owners,
    then without their middles.

    >>> llama = "Skywork/Skywork-Reward-V2-Llama-3.1-8B-40M"
    >>> shorten_names(["nvidia/Nemotron-4-340B-Reward", llama], 26)
    ['Nemotron-4-340B-Reward', 'Skywork…Llama-3.1-8B-40M']
    """
    full_names = list(names)
    if all(len(name) <= letters for name in names):
        return full_names

    n_different = len(set(names))
    bare_names = [name.split("/", 1)[-1] for name in names]
    if len(set(bare_names)) == n_different:
        full_names = bare_names

    longest = max(map(len, full_names))
    for length in range(letters, longest + 1):
        cut_names = [_cut_middle(name, length) for name in full_names]
        if len(set(cut_names)) == n_different:
            return cut_names
    return full_names


def _cut_middle(name: str, letters: int) -> str:
    """The first word says whose model it is, the end how a family's models differ."""
    if len(name) <= letters:
        return name
    first_word = re.split(r"[-_ …]", name)[0][:_FIRST_WORD]
    n_ending = max(letters - len(first_word), 9) - 1
    ending = name[-n_ending:]

    # The ending begins with a word, where enough is left of the name.
    boundary = re.search(r"[-_ ](?=.{8})", ending)
    if boundary:
        ending = ending[boundary.end() :]
    return f"{first_word}…{ending}"
