"""Figures of style: easy against hard per model, lengths per style and label, any
number against another.
"""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab import metrics
from rmlab.baselines import is_baseline
from rmlab.estimation.weights import Average
from rmlab.plots import canvas
from rmlab.plots.canvas import BASELINE, SERIES_COLOURS, MarkStyle
from rmlab.tables import LABELS, LEVELS, DataError, check_responses, require_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Light, middle and dark, and of three shapes, so that they are told apart without
# colour.
LEVEL_STYLES = {
    "easy": MarkStyle("#67a9cf", "o"),
    "normal": MarkStyle("#777777", "s"),
    "hard": MarkStyle("#b2182b", "D"),
}
_LABEL_STYLES = {
    "chosen": MarkStyle("#2166ac", "o"),
    "rejected": MarkStyle("#d6604d", "D"),
}
_LEVEL_NUMBERS = ["accuracy", "low", "high", "n_ties", "n_pairs", "reason"]
_LETTERS = 40  # of a name in the list below the axes


def plot_style_gap(
    table: pd.DataFrame,
    *,
    average: Average = "benchmark",
    chance: float = 0.5,
    sort: bool = True,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw easy, normal and hard accuracy of every model: the longer the bar, the more
    style decides.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs; `rmlab.accuracy(table, by=["model", "level"])`, the table
        beside the figure; one row per model with easy, normal and hard
        (`rmlab.summary`, `rmlab.papers.published`), which has no intervals; or the
        result of `rmlab.style_gap`.
    average
        As in `rmlab.summary`. Used where `table` holds scores or pairs.
    chance : float
        Where the dotted line stands. A hard point left of it means that style beats
        substance.
    sort : bool
        Whether the model with the highest hard accuracy stands on top.
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        A row per model, baselines grey. The number of ties stands at the right, and a
        level that is mostly ties is hollow; a line below the axis explains lines and
        hollow marks. Models without any of these numbers are left out, and counted
        below the axis.

    Raises
    ------
    DataError
        For another table, and where no model has a number, with the reason.

    Examples
    --------
    >>> import rmlab
    >>> scores = rmlab.score(rmlab.load("mini"), ["longest", "shortest"])
    >>> ax = rmlab.plot_style_gap(scores)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['longest', 'shortest']
    """
    if canvas.is_items(table):
        table = metrics.accuracy(table, by=["model", "level"], average=average)
    levels, n_ties = _read_levels(table)
    canvas.refuse_blank(levels, "accuracy")

    wide = levels.pivot(index="name", columns="level", values="accuracy")
    wide = wide.reindex(levels["name"].unique())
    n_models = len(wide)
    drawn_levels = [level for level in LEVELS if level in wide]
    wide = wide.dropna(how="all")[drawn_levels]
    if sort:
        wide = wide.sort_values("hard", na_position="first", kind="stable")

    ax = canvas.new_rows(ax, list(wide.index), n_series=len(drawn_levels))
    rows = np.arange(len(wide))
    lowest = wide.min(axis=1)
    highest = wide.max(axis=1)
    ax.hlines(rows, lowest, highest, color="#dddddd", lw=4, zorder=1)
    levels["hollow"] = levels["n_ties"] > levels["n_pairs"] / 2
    for i, level in enumerate(drawn_levels):
        dots = levels[levels["level"] == level].set_index("name")
        dots = dots.reindex(wide.index)
        dots["y"] = rows + canvas.row_offset(i, len(drawn_levels))
        _draw_level(ax, dots, LEVEL_STYLES[level], level)

    canvas.mark_line(ax, chance, f"chance ({chance:g})")
    ax.set_xlim(-0.02, 1.02)
    label = f"share of comparisons won\n{_explain_marks(levels)}"
    n_left_out = n_models - len(wide)
    canvas.label_values(ax, label, n_left_out, "without these numbers left out")
    canvas.list_ties(ax, n_ties.reindex(wide.index))
    canvas.add_legend(ax, above=1.6)
    return ax


def _explain_marks(levels: pd.DataFrame) -> str:
    """What the lines and the hollow marks of the figure are, of those that it has."""
    meanings = "grey bar: lowest to highest"
    if levels["low"].notna().any():
        meanings += ", line: 95 % interval"
    if levels["hollow"].any():
        meanings += "\nhollow: mostly ties"
    return meanings


def _draw_level(ax: "Axes", dots: pd.DataFrame, style: MarkStyle, level: str) -> None:
    """A mark for each name, grey for baselines."""
    is_blind = dots.index.map(is_baseline)
    colours = np.where(is_blind, BASELINE, style.colour).tolist()
    canvas.draw_dots(ax, dots, "accuracy", style._replace(colour=colours))
    canvas.name_series(ax, style, level)


def _read_levels(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series]:
    """One row per name and level with its accuracy, limits and counts, and the number
    of ties per name.
    """
    columns = set(table.columns)
    if {"model", "level", "accuracy"} <= columns:
        levels = table.reindex(columns=_LEVEL_NUMBERS)
        levels["name"] = table["model"].astype(str)
        levels["level"] = table["level"].astype(str)
        return levels, levels.groupby("name")["n_ties"].sum()

    keys = ["model"]
    present_levels = list(LEVELS)
    if {"easy", "hard", "gap"} <= columns:  # of `style_gap`
        keys = canvas.columns_before(table, "easy")
        present_levels = ["easy", "hard"]
    table = canvas.table_to_draw(table, metrics.summary, [*keys, *present_levels])
    names = canvas.join_names(table, keys, " · ")

    wide = table[present_levels].assign(name=names, reason=table.get("reason", ""))
    levels = wide.melt(["name", "reason"], var_name="level", value_name="accuracy")
    levels[["low", "high"]] = np.nan
    levels["n_ties"] = 0.0
    levels["n_pairs"] = np.nan
    n_ties = pd.Series(table.get("n_ties", 0), index=table.index)
    return levels, n_ties.set_axis(names)


def plot_lengths(
    responses: pd.DataFrame, *, by: str = "subset", ax: "Axes | None" = None
) -> "Axes":
    """Draw the mean length of chosen and rejected answers: a long line means that
    length gives the label away.

    Parameters
    ----------
    responses : DataFrame
        Responses, with their texts.
    by : str
        The column whose values, with the styles, are the rows.
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        Means in characters with their 95 % intervals.

    Raises
    ------
    DataError
        For another table or column, or without rows.

    Examples
    --------
    >>> import rmlab
    >>> ax = rmlab.plots.plot_lengths(rmlab.load("mini"))
    >>> ax.get_yticklabels()[-1].get_text()
    'chat concise'
    """
    table = _mean_lengths(responses, by).iloc[::-1]
    keys = table.index.to_frame()
    names = canvas.join_names(keys, list(keys.columns), " ")
    ax = canvas.new_rows(ax, list(names), n_series=2)
    rows = np.arange(len(table))
    ax.hlines(rows, table["chosen"], table["rejected"], color="#cccccc", lw=2, zorder=1)

    for i, (label, style) in enumerate(_LABEL_STYLES.items()):
        mean = table[label]
        half = 1.96 * table[f"{label}_se"].fillna(0)
        dots = pd.DataFrame(
            {
                "y": rows + canvas.row_offset(i, 2),
                "mean": mean,
                "low": mean - half,
                "high": mean + half,
            }
        )
        canvas.draw_dots(ax, dots, "mean", style, label)

    groups, _ = pd.factorize(table.index.get_level_values(0))
    first_rows = rows[1:][np.diff(groups) != 0]
    for row in first_rows:
        ax.axhline(row - 0.5, color="#dddddd", lw=0.8, zorder=0)
    canvas.label_values(ax, "mean length (characters)")
    ax.set_xlim(left=0)
    canvas.add_legend(ax)
    return ax


def _mean_lengths(responses: pd.DataFrame, by: str) -> pd.DataFrame:
    """Mean characters of chosen and rejected answers with their standard errors.

    Indexed by `by`, and by style where answers have one.
    """
    responses = check_responses(responses)
    require_columns(responses, [by], "responses")
    canvas.refuse_blank(responses, "response", "responses")
    keys = [by]
    if responses["style"].notna().any():
        keys.append("style")
    order = pd.CategoricalDtype(list(dict.fromkeys(responses[by])), ordered=True)
    characters = responses.assign(characters=responses["response"].str.len())
    characters = characters.astype({by: order})

    groups = characters.groupby([*keys, "label"], observed=True)["characters"]
    wide = groups.agg(["mean", "sem"]).unstack("label")
    means = wide["mean"][[*LABELS]]
    errors = wide["sem"][[*LABELS]].add_suffix("_se")
    table: pd.DataFrame = means.join(errors)
    return table.rename_axis(columns=None)


def plot_scatter(
    table: pd.DataFrame,
    x: str,
    y: str,
    *,
    group: str | None = None,
    named: int = 4,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw two columns of a table with a row per model against each other.

    Parameters
    ----------
    table : DataFrame
        Any table with the column model; of scores or pairs, the summary is drawn.
    x, y : str
        Columns with numbers.
    group : str, optional
        A column with at most eight values, which give points their colour and mark.
    named : int
        How many models are named, by numbers: those farthest from a robust line
        through all (Theil and Sen's).
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        A point per model. Rows that lack a number are left out, and counted below the
        axis.

    Raises
    ------
    DataError
        For a column that is not there, too many groups, or where no row has both
        numbers.

    Examples
    --------
    >>> import rmlab
    >>> board = rmlab.papers.published("rm-bench")
    >>> ax = rmlab.plots.plot_scatter(board, "easy", "hard", named=1)
    >>> [text.get_text() for text in ax.texts]
    ['1', '1  RM-Mistral-7B']
    """
    columns = ["model", x, y]
    if group is not None:
        columns.append(group)
    table = canvas.table_to_draw(table, metrics.summary, columns)
    points = table.dropna(subset=[x, y])
    if points.empty:
        problem = f"table: none of {len(table)} rows has both {x} and {y}"
        raise DataError(problem, canvas.AVERAGE_HINT)

    groups = _group_points(points, group)

    ax = canvas.new_axes(ax, (4.6, 4.0))
    for i, (value, part) in enumerate(groups):
        colour, marker, _ = canvas.series_style(i)
        ax.scatter(
            part[x],
            part[y],
            s=26,
            color=colour,
            marker=marker,
            alpha=0.7,
            lw=0,
            label=canvas.escape_name(value),
            zorder=2,
        )
    n_left_out = len(table) - len(points)
    x_label = canvas.escape_name(x)
    canvas.label_values(ax, x_label, n_left_out, "without both numbers left out")
    ax.set(xlabel=ax.get_xlabel(), ylabel=canvas.escape_name(y))  # in the middle
    named_points = _find_outliers(points, x, y, named).sort_values(y)
    _name_points(ax, named_points, x, y)
    if group is not None:
        canvas.add_legend(ax)
    return ax


def _group_points(
    points: pd.DataFrame, group: str | None
) -> list[tuple[object, pd.DataFrame]]:
    if group is None:
        return [("", points)]
    n_groups = points[group].nunique()
    most = len(SERIES_COLOURS)
    if n_groups > most:
        problem = f"group: {group!r} has {n_groups} values"
        raise DataError(problem, f"at most {most} can be told apart")
    return list(points.groupby(group, sort=False))


def _name_points(ax: "Axes", named: pd.DataFrame, x: str, y: str) -> None:
    """A number beside each named point, and below the axes what they stand for."""
    from matplotlib.patheffects import withStroke

    if named.empty:
        return
    # Other points and lines that callers draw may run through a number.
    outline = withStroke(linewidth=2, foreground=ax.get_facecolor())
    bare_names = [name.split("/")[-1] for name in named["model"]]
    names = canvas.shorten_names(bare_names, _LETTERS)

    lines = []
    positions = zip(names, named[x], named[y], strict=True)
    for number, (name, across, up) in enumerate(positions, start=1):
        mark = ax.annotate(
            str(number),
            (across, up),
            (0.45, 0.45),
            "data",
            "offset fontsize",
            annotation_clip=False,
        )
        mark.set(fontsize="small", path_effects=[outline], zorder=4)
        lines.append(f"{number}  {canvas.escape_name(name)}")
    n_label_lines = 1 + ax.get_xlabel().count("\n")
    ax.annotate(
        "\n".join(lines),
        (0, 0),
        (0, -2.9 - 1.5 * n_label_lines),
        "axes fraction",
        "offset fontsize",
        va="top",
        fontsize="small",
        annotation_clip=False,
    )


def _find_outliers(points: pd.DataFrame, x: str, y: str, most: int) -> pd.DataFrame:
    """The rows farthest from a robust line through all (Theil and Sen's)."""
    from scipy.stats import theilslopes

    across = points[x].to_numpy(float)
    up = points[y].to_numpy(float)
    if len(points) < 3 or np.ptp(across) == 0:
        return points.head(0)

    sloping = theilslopes(up, across).slope * across
    # The median of what the slope leaves is the line's height; medians of x and y apart
    # would let a far point shift it.
    height = np.median(up - sloping)
    residual = up - height - sloping
    farthest = np.argsort(-np.abs(residual), kind="stable")[:most]
    return points.iloc[farthest]
