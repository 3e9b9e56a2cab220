"""What every figure starts from: axes, panels, legends, names fit to be drawn,
refusals.
"""

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

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
_COLOURS = (
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
_FIRST_WORD = 10  # letters that a shortened name keeps of its first word
NAME_LETTERS = 40  # of a name in a figure
_LABEL_LETTERS = 40  # of a line below an axis, which a printed column holds
_LEGEND_LETTERS = 46  # that fit into a row of a legend, beside its marks


class MarkStyle(NamedTuple):
    """How the marks of a series look."""

    colour: str
    marker: str
    line: str = "-"


# Light, middle and dark, and of three shapes, so that they are told apart without
# colour.
LEVEL_STYLES = {
    "easy": MarkStyle("#67a9cf", "o"),
    "normal": MarkStyle("#777777", "s", "--"),
    "hard": MarkStyle("#b2182b", "D", "-."),
}


def series_styles(names: Iterable[str]) -> dict[str, MarkStyle]:
    """The look of each series by its name; DataError for more than can be told
    apart.
    """
    styles = {}
    for i, name in enumerate(dict.fromkeys(names)):
        if i == len(_COLOURS):
            problem = f"table: more than {i} series: {name!r}"
            raise DataError(problem, f"keep {i}, which can be told apart")
        styles[name] = MarkStyle(_COLOURS[i], _MARKERS[i], _LINES[i % len(_LINES)])
    return styles


def new_axes(
    ax: "Axes | None", size: tuple[float, float], layout: str = "constrained"
) -> "Axes":
    """Return `ax`, or the Axes of a new figure of `size` inches; never the current
    Axes, which may hold a plot.
    """
    import matplotlib.pyplot as plt

    if ax is None:
        ax = plt.figure(figsize=size, layout=layout).add_subplot()
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def new_panels(
    n_panels: int, columns: int, size: tuple[float, float], layout: str = "constrained"
) -> "tuple[Figure, list[Axes]]":
    """A figure of panels of `size` inches with the same scales, `columns` in a row."""
    import matplotlib.pyplot as plt

    columns = min(columns, n_panels)
    panel_width, panel_height = size
    width = max(panel_width * columns + 0.6, 4.4)
    height = panel_height * math.ceil(n_panels / columns) + 0.9
    figure = plt.figure(figsize=(width, height), layout=layout)

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


def add_legend(ax: "Axes", figure: "Figure | None" = None) -> None:
    """A legend over the axes, growing to the left; or one panel's over its figure."""
    handles, names = ax.get_legend_handles_labels()
    longest = max(map(len, names), default=1)
    fitting = _LEGEND_LETTERS // (5 + longest)
    options = {"ncols": max(1, min(4, fitting)), "frameon": False, "fontsize": "small"}
    if figure is not None:
        figure.legend(handles, names, loc="outside upper center", **options)
        return
    ax.legend(
        handles,
        names,
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        borderaxespad=0.2,
        handletextpad=0.3,
        **options,
    )


def is_items(table: object) -> bool:
    """Whether a table holds scores or pairs, of which the numbers to draw are still to
    be made.
    """
    if not isinstance(table, pd.DataFrame):
        return False
    columns = set(table.columns)
    has_keys = {"model", *PROMPT} <= columns
    return has_keys and not columns.isdisjoint({"score", "margin", "outcome"})


def table_to_draw(
    table: pd.DataFrame,
    make: TableMaker,
    columns: list[str],
    number: str = "",
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
            raise DataError(f"table: no column {column!r}", remedy)
    if number:
        refuse_blank(table, number, hint)
    return table


def refuse_blank(table: pd.DataFrame, column: str, hint: str = AVERAGE_HINT) -> None:
    """Raise DataError with the table's own reason and the hint where no row has the
    number to draw.
    """
    if table.empty:
        problem = "table: no rows, so there is nothing to draw"
        raise DataError(problem, "look at how the rows were selected")
    if table[column].isna().all():
        problem = f"table: {column} is missing in all {len(table)} rows"
        if "reason" in table and table["reason"].iloc[0]:
            reason = textwrap.shorten(table["reason"].iloc[0], 150, placeholder="…")
            problem += f" ({reason})"
        raise DataError(problem, hint)


def columns_before(table: pd.DataFrame, column: str) -> list[str]:
    """The columns that stand left of one, which say what a row is about."""
    return list(table.columns[: table.columns.get_loc(column)])


def join_names(table: pd.DataFrame, columns: list[str]) -> pd.Series:
    """A name for each row, of several columns; without one its number."""
    if not columns:
        return table.index.astype(str).to_series(table.index)
    return table[columns].astype(str).agg(" · ".join, axis=1)


def describe_values(
    label: str, n_left_out: int = 0, why: str = "", noun: str = "model"
) -> str:
    """The label of an axis in lines that a printed column holds; the last says how many
    models are not drawn, if any.
    """
    lines = label.split("\n")
    if n_left_out:
        plural = "" if n_left_out == 1 else "s"
        lines.append(f"({n_left_out} {noun}{plural} {why})")
    return "\n".join(textwrap.fill(part, _LABEL_LETTERS) for part in lines)


def escape_name(name: object) -> str:
    r"""A name on one line, in which dollar signs are not formulas.

    >>> escape_name("a$b$")
    'a\\$b\\$'
    """
    return line(name).replace("$", r"\$")


def shorten_names(names: Sequence[str], letters: int = NAME_LETTERS) -> list[str]:
    """Names of at most so many letters where they still differ: all without owners,
    then without their middles.

    >>> llama = "Skywork/Skywork-Reward-V2-Llama-3.1-8B-40M"
    >>> shorten_names(["nvidia/Nemotron-4-340B-Reward", llama], 26)
    ['Nemotron-4-340B-Reward', 'Skywork…Llama-3.1-8B-40M']
    """
    full_names = list(names)
    longest = max(map(len, full_names), default=0)
    if longest <= letters:
        return full_names

    n_different = len(set(names))
    bare_names = [name.split("/", 1)[-1] for name in names]
    if len(set(bare_names)) == n_different:
        full_names = bare_names
    for length in range(letters, longest):
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
