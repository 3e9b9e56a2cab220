"""What every figure starts from: axes, panels, lists of rows, names fit to be drawn, and refusals of empty tables."""

import re
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab.baselines import is_baseline
from rmlab.tables import PROMPT, DataError
from rmlab.text import line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINT, BASELINE = "#2166ac", "#888888"
# Okabe and Ito's colours without yellow and black: told apart with any colour vision; in grey the markers tell.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f7f7f", "#5b3a8e")
MARKERS = "osD^vPX*"
LINES = ("-", "--", "-.", ":")
WAY_OUT = 'Draw a table made with average="domains", which counts the domains that are there.'
_MARGIN = 0.012  # of the width of a figure, left free at both sides
_NAMES_SHARE = 0.46  # of a figure's width: the names of its rows take no more
_FIRST_WORD = 10  # letters that a shortened name keeps of its first word
_LEGEND_LETTERS = 46  # that fit into a row of a legend, beside its marks


def new_axes(ax: "Axes | None", size: tuple[float, float], *, squares: bool = False) -> "Axes":
    """Return `ax`, or the Axes of a new figure of `size` inches; never the current Axes, which may hold a plot."""
    return ax if ax is not None else _new_figure(size, squares).add_subplot()


def _new_figure(size: tuple[float, float], squares: bool) -> "Figure":
    import matplotlib.pyplot as plt
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    page = (_MARGIN, 0.0, 1 - 2 * _MARGIN, 1.0)
    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.08, rect=page, compress=squares)
    return plt.figure(figsize=size, layout=layout)


def new_panels(
    n_panels: int, columns: int, size: tuple[float, float], *, squares: bool = False
) -> "tuple[Figure, list[Axes]]":
    """A figure of `n_panels` panels of `size` inches with the same scales, `columns` in a row."""
    columns = min(columns, n_panels)
    rows = -(-n_panels // columns)
    figure = _new_figure((max(size[0] * columns + 0.6, 4.4), size[1] * rows + 0.9), squares)
    first = figure.add_subplot()
    axes = [first, *(figure.add_subplot(sharex=first, sharey=first) for _ in range(n_panels - 1))]
    arrange_panels(axes, columns)
    return figure, axes


def arrange_panels(axes: "Sequence[Axes]", columns: int) -> None:
    """Set panels in rows of `columns`; those of one scale are numbered and labelled at the left and the bottom only."""
    from matplotlib.gridspec import GridSpec

    grid = GridSpec(-(-len(axes) // columns), columns, figure=axes[0].get_figure(root=True))
    for i, ax in enumerate(axes):
        ax.set_subplotspec(grid[divmod(i, columns)])
        if len(ax.get_shared_y_axes().get_siblings(ax)) > 1:
            at_left, at_bottom = i % columns == 0, i + columns >= len(axes)
            ax.tick_params(labelleft=at_left, labelbottom=at_bottom)
            ax.yaxis.label.set_visible(at_left)
            ax.xaxis.label.set_visible(at_bottom)


def new_rows(ax: "Axes | None", names: Sequence[object], *, n_series: int = 1) -> "Axes":
    """Axes for a list of named rows, the last name on top, with room for `n_series` marks in a row."""
    ax = new_axes(ax, (6.4, (0.16 + 0.1 * n_series) * max(len(names), 2) + 1.1))
    ax.set_yticks(range(len(names)))
    set_row_names(ax, list(map(str, names)))
    for label, name in zip(ax.get_yticklabels(), names, strict=True):
        if is_baseline(str(name)):
            label.set(color=BASELINE, style="italic")
    remove_frame(ax)
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(-0.6, len(names) - 0.4)
    return ax


def set_row_names(ax: "Axes", names: list[str], endings: Sequence[str] | None = None) -> None:
    """Name the rows, each with its ending, shortened and thinned out to what the size of the figure allows."""

    ax.yaxis.set_major_formatter(partial(_format_row_name, ax, names, endings))


# The axes are an argument, so that a copy of a figure measures its own.
def _format_row_name(
    ax: "Axes", names: list[str], endings: Sequence[str] | None, _: float, position: float | None
) -> str:
    i = position or 0  # none under the mouse
    spec = ax.get_subplotspec()
    width = 72 * ax.figure.bbox.width / ax.figure.dpi / (spec.get_gridspec().ncols if spec is not None else 1)
    letters = int(_NAMES_SHARE * width / (0.55 * _type_size(ax)))
    step = 0.8 * _type_size(ax) * len(names) / (72 * ax.get_window_extent().height / ax.figure.dpi)
    name = plain(shorten_names(names, letters)[int(i)]) + (endings[int(i)] if endings is not None else "")
    return name if i % int(np.ceil(step)) == 0 else ""


def set_column_names(ax: "Axes", names: list[str], letters: int) -> None:
    """Name the ticks below, `letters` wide, and only every second, third ... where there is no room for all."""

    ax.xaxis.set_major_formatter(partial(_format_column_name, ax, names, letters))


def _format_column_name(ax: "Axes", names: list[str], letters: int, _: float, position: float | None) -> str:
    step = 0.6 * letters * _type_size(ax) * len(names) / (72 * ax.get_window_extent().width / ax.figure.dpi)
    i = int(position or 0)
    return names[i] if i % int(np.ceil(step)) == 0 else ""


def _type_size(ax: "Axes") -> float:
    return float(ax.yaxis.label.get_fontsize())


def remove_frame(ax: "Axes") -> None:
    """Take the frame away at the top and at the right."""
    ax.spines[["top", "right"]].set_visible(False)


def row_offset(i: int, n_series: int) -> float:
    """Rows by which the mark of the series `i` stands above the middle of its row."""
    return ((n_series - 1) / 2 - i) * 0.8 / max(n_series, 2)


def draw_dots(
    ax: "Axes",
    y: np.ndarray,
    table: pd.DataFrame,
    value: str,
    *,
    style: tuple[str, str] = (POINT, "o"),
    hollow: np.ndarray | bool = False,
    label: str | None = None,
) -> None:
    """A dot (colour and marker: `style`) for each row of a table, with its interval where it has low and high."""
    colour, marker = style
    if {"low", "high"} <= set(table.columns):
        ax.hlines(y, table["low"], table["high"], color=colour, lw=1.4, zorder=2)
    faces = np.where(np.broadcast_to(hollow, len(table)), "white", colour).tolist()
    x = table[value].to_numpy(float)
    ax.scatter(x, y, facecolors=faces, edgecolors=colour, marker=marker, s=26, lw=1.2, zorder=3, clip_on=False)
    if label is not None:
        ax.scatter([], [], color=colour, marker=marker, s=26, label=label)


def margin_column(ax: "Axes", heading: str, y: Sequence[float] | np.ndarray, texts: Sequence[str], at: float) -> None:
    """Texts at the right of a list of rows, under a heading; `at` is how many of their heights beside the axes."""
    annotations = [ax.annotate(heading, (1, 1), (at, 0), "axes fraction", "offset fontsize", style="italic")]
    for height, text in zip(y, texts, strict=True):
        place = (1, float(height))
        annotations.append(ax.annotate(text, place, (at, 0), ("axes fraction", "data"), "offset fontsize", va="center"))
    for annotation in annotations:
        annotation.set(fontsize="small", annotation_clip=False)


def mark_line(ax: "Axes", value: float, name: str) -> None:
    """A dotted vertical line with its name above the frame."""
    ax.axvline(value, color="black", lw=0.8, ls=":", zorder=0)
    above = ("data", "axes fraction")
    ax.annotate(name, (value, 1), (0, 0.15), above, "offset fontsize", ha="center", fontsize="small")


def add_legend(ax: "Axes", figure: "Figure | None" = None, *, above: float = 0.2) -> None:
    """A legend over the axes, by so many heights of its text, growing to the left; or one panel's over its figure."""
    handles, names = ax.get_legend_handles_labels()
    draw = partial((figure or ax).legend, handles, names, ncols=legend_columns(names), frameon=False, fontsize="small")
    if figure is not None:
        draw(loc="outside upper center")
    else:
        draw(loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=above, handletextpad=0.3)


def legend_columns(names: Sequence[str]) -> int:
    """Columns of a legend, few enough for its names and so that no name stands alone in the last row."""
    longest = max(map(len, names), default=1)
    columns = range(1, max(1, min(4, len(names), _LEGEND_LETTERS // (5 + longest))) + 1)
    return min(columns, key=lambda width: (-(-len(names) // width), -len(names) % width))


def is_items(table: pd.DataFrame) -> bool:
    """Whether a table holds scores or pairs, of which the numbers to draw are still to be made."""
    columns = set(table.columns) if isinstance(table, pd.DataFrame) else set()
    return {"model", *PROMPT} <= columns and bool({"score", "margin", "outcome"} & columns)


def read_table(
    table: pd.DataFrame,
    make: Callable[[pd.DataFrame], pd.DataFrame],
    columns: Sequence[str],
    number: str | None = None,
    *,
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
            raise DataError(f"{argument}: no column {column!r}. Pass scores, pairs or the result of {source}.")
    if number is not None:
        refuse_blank(table, number, argument, hint)
    return table


def refuse_blank(table: pd.DataFrame, column: str, argument: str = "table", hint: str = WAY_OUT) -> None:
    """Raise DataError where no row has the number to draw, with the table's own reason and the way out."""
    if table.empty:
        raise DataError(f"{argument}: no rows, so there is nothing to draw. Look at how the rows were selected.")
    if table[column].isna().all():
        reasons = [str(reason) for reason in table.get("reason", []) if isinstance(reason, str) and reason]
        reason = f" ({textwrap.shorten(reasons[0], 150, placeholder='…')})" if reasons else ""
        raise DataError(f"{argument}: {column} is missing in all {len(table)} rows{reason}. {hint}")


def count_left_out(n: int, why: str, noun: str = "model") -> str:
    """A line below the axis that says how many models are not drawn; nothing for none."""
    return f"\n({n} {noun}{'' if n == 1 else 's'} {why})" if n else ""


def plain(name: object) -> str:
    r"""A name on one line, in which dollar signs are not formulas.

    >>> plain("a$b$")
    'a\\$b\\$'
    """
    return line(name).replace("$", r"\$")


def shorten_names(names: Sequence[str], letters: int) -> list[str]:
    """Names of at most so many letters where they still differ: all without owners, then without their middles.

    >>> shorten_names(["nvidia/Nemotron-4-340B-Reward", "Skywork/Skywork-Reward-V2-Llama-3.1-8B-40M"], 26)
    ['Nemotron-4-340B-Reward', 'Skywork…Llama-3.1-8B-40M']
    """
    if all(len(name) <= letters for name in names):
        return list(names)
    bare = [name.split("/", 1)[-1] for name in names]
    full = bare if len(set(bare)) == len(set(names)) else names
    lengths = range(letters, max(map(len, full)) + 1)
    cuts = ([_cut_middle(name, length) for name in full] for length in lengths)
    return next((texts for texts in cuts if len(set(texts)) == len(set(full))), list(full))


def _cut_middle(name: str, letters: int) -> str:
    """The first word says whose model it is, the end how the models of a family differ."""
    if len(name) <= letters:
        return name
    first = re.split(r"[-_ …]", name)[0][:_FIRST_WORD]
    ending = name[1 + len(first) - max(letters, len(first) + 9) :]
    boundary = re.search(r"[-_ ](?=.{8})", ending)  # a word's begin, where enough is left of the name
    return f"{first}…{ending[boundary.end() :] if boundary else ending}"
