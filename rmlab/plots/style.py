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
from rmlab.plots.canvas import BASELINE, COLOURS, MARKERS
from rmlab.tables import LABELS, LEVELS, DataError, check_responses, require_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Light, middle and dark, and of three shapes, so that they are told apart without
# colour.
LEVEL_STYLES = {
    "easy": ("#67a9cf", "o"),
    "normal": ("#777777", "s"),
    "hard": ("#b2182b", "D"),
}
_LABEL_STYLES = {"chosen": ("#2166ac", "o"), "rejected": ("#d6604d", "D")}
_LETTERS = 26  # of a name beside its point
_LINES = 20  # of small text, one above the other, that the axes have room for


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
        As in `rmlab.summary`, where `table` holds scores or pairs.
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
        level that is mostly ties is hollow. Models without any of these numbers are
        left out, and counted below the axis.

    Raises
    ------
    DataError
        For another table, and where no model has a number, with the reason.

    Examples
    --------
    >>> import rmlab
    >>> ax = rmlab.plot_style_gap(rmlab.score(rmlab.load("mini"), ["longest", "shortest"]))
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['longest', 'shortest']
    """
    if canvas.is_items(table):
        table = metrics.accuracy(table, by=["model", "level"], average=average)
    levels, n_ties = _read_levels(table)
    canvas.refuse_blank(levels, "accuracy")
    wide = levels.pivot(index="name", columns="level", values="accuracy").reindex(
        levels["name"].unique()
    )
    n_models, wide = (
        len(wide),
        wide.dropna(how="all")[[level for level in LEVELS if level in wide]],
    )
    if sort:
        wide = wide.sort_values("hard", na_position="first", kind="stable")
    ax = canvas.new_rows(ax, list(wide.index), n_series=len(wide.columns))
    rows, is_blind = np.arange(len(wide)), wide.index.map(is_baseline)
    ax.hlines(rows, wide.min(axis=1), wide.max(axis=1), color="#dddddd", lw=4, zorder=1)
    for i, level in enumerate(wide.columns):
        values = levels[levels["level"] == level].set_index("name").reindex(wide.index)
        y, hollow = (
            rows + canvas.row_offset(i, len(wide.columns)),
            values["n_ties"] > values["n_pairs"] / 2,
        )
        colour, marker = LEVEL_STYLES[level]
        style = (np.where(is_blind, BASELINE, colour).tolist(), marker)
        canvas.draw_dots(ax, values.assign(y=y, hollow=hollow), "accuracy", style)
        ax.scatter([], [], color=colour, marker=marker, s=26, label=level)
    canvas.mark_line(ax, chance, f"chance ({chance:g})")
    ax.set_xlim(-0.02, 1.02)
    canvas.label_values(
        ax,
        "share of comparisons won",
        n_models - len(wide),
        "without these numbers left out",
    )
    canvas.list_ties(ax, n_ties.reindex(wide.index))
    canvas.add_legend(ax, above=1.6)
    return ax


def _read_levels(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series]:
    """One row per name and level with its accuracy, limits and counts, and the number
    of ties per name.
    """
    if {"model", "level", "accuracy"} <= set(table.columns):
        levels = table.assign(
            name=table["model"].astype(str), level=table["level"].astype(str)
        )
        levels = levels.reindex(
            columns=levels.columns.union(
                ["low", "high", "n_ties", "n_pairs"], sort=False
            )
        )
        return levels, levels.groupby("name")["n_ties"].sum()
    is_gap = {"easy", "hard", "gap"} <= set(table.columns)
    keys = list(table.columns[: table.columns.get_loc("easy")]) if is_gap else ["model"]
    present = ["easy", "hard"] if is_gap else list(LEVELS)
    table = canvas.read_table(table, metrics.summary, [*keys, *present])
    rows = table[present].assign(
        name=table[keys].astype(str).agg(" · ".join, axis=1),
        reason=table.get("reason", ""),
    )
    levels = rows.melt(
        ["name", "reason"], var_name="level", value_name="accuracy"
    ).assign(n_ties=0.0, n_pairs=np.nan)
    return levels, pd.Series(table.get("n_ties", 0), index=table.index).set_axis(
        rows["name"]
    )


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
        Means in characters with their 95 % intervals, as `lengths` returns them.

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
    table = lengths(responses, by=by).iloc[::-1]
    names = [
        " ".join(map(str, key)) if isinstance(key, tuple) else str(key)
        for key in table.index
    ]
    ax = canvas.new_rows(ax, names, n_series=2)
    rows = np.arange(len(names))
    ax.hlines(rows, table["chosen"], table["rejected"], color="#cccccc", lw=2, zorder=1)
    for i, (label, style) in enumerate(_LABEL_STYLES.items()):
        mean, half = table[label], 1.96 * table[f"{label}_se"].fillna(0)
        dots = pd.DataFrame({"mean": mean, "low": mean - half, "high": mean + half})
        canvas.draw_dots(
            ax, dots.assign(y=rows + canvas.row_offset(i, 2)), "mean", style, label
        )
    for row in rows[1:][np.diff(pd.factorize(table.index.get_level_values(0))[0]) != 0]:
        ax.axhline(row - 0.5, color="#dddddd", lw=0.8, zorder=0)
    canvas.label_values(ax, "mean length (characters)")
    ax.set_xlim(left=0)
    canvas.add_legend(ax)
    return ax


def lengths(responses: pd.DataFrame, *, by: str = "subset") -> pd.DataFrame:
    """Mean length of chosen and rejected answers: the numbers of `plot_lengths`.

    Parameters
    ----------
    responses : DataFrame
        Responses, with their texts.
    by : str
        The column whose values, with the styles, are the rows.

    Returns
    -------
    DataFrame
        Indexed by `by`, and by style where answers have one: chosen, rejected (mean
        characters), chosen_se, rejected_se, n (chosen answers).

    Raises
    ------
    DataError
        For another table or column, or without rows.

    Examples
    --------
    >>> import rmlab
    >>> table = rmlab.plots.lengths(rmlab.load("mini"), by="domain")
    >>> table.loc[("chat", "concise"), "n"].item()
    16
    """
    responses = check_responses(responses)
    require_columns(responses, [by], "responses")
    canvas.refuse_blank(responses, "response", "responses")
    keys = [by] if responses["style"].isna().all() else [by, "style"]
    characters = responses.assign(characters=responses["response"].str.len())
    order = pd.CategoricalDtype(list(dict.fromkeys(responses[by])), ordered=True)
    groups = characters.astype({by: order}).groupby([*keys, "label"], observed=True)[
        "characters"
    ]
    wide = groups.agg(["mean", "sem", "size"]).unstack("label")
    table: pd.DataFrame = wide["mean"][[*LABELS]].join(
        wide["sem"][[*LABELS]].add_suffix("_se")
    )
    return table.assign(n=wide[("size", "chosen")]).rename_axis(columns=None)


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
        How many models are named: those of `outliers`.
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
    >>> ax = rmlab.plots.plot_scatter(rmlab.papers.published("rm-bench"), "easy", "hard", named=1)
    >>> len(ax.texts)
    1
    """
    table = canvas.read_table(
        table, metrics.summary, ["model", x, y, *([] if group is None else [group])]
    )
    points = table.dropna(subset=[x, y])
    if points.empty:
        raise DataError(
            f"table: none of {len(table)} rows has both {x} and {y}. {canvas.WAY_OUT}"
        )
    groups = [("", points)] if group is None else [*points.groupby(group, sort=False)]
    if len(groups) > len(COLOURS):
        raise DataError(
            f"group: {group!r} has {len(groups)} values; at most {len(COLOURS)} can be told apart."
        )
    ax = canvas.new_axes(ax, (4.6, 4.0))
    for (value, part), colour, marker in zip(groups, COLOURS, MARKERS, strict=False):
        label = canvas.plain(value)
        ax.scatter(
            part[x],
            part[y],
            s=26,
            color=colour,
            marker=marker,
            alpha=0.7,
            lw=0,
            label=label,
            zorder=2,
        )
    _name_points(ax, outliers(table, x, y, most=named).sort_values(y), x, y, points)
    canvas.label_values(
        ax, canvas.plain(x), len(table) - len(points), "without both numbers left out"
    )
    ax.set(xlabel=ax.get_xlabel(), ylabel=canvas.plain(y))  # in the middle
    if group is not None:
        canvas.add_legend(ax)
    return ax


def _name_points(
    ax: "Axes", named: pd.DataFrame, x: str, y: str, points: pd.DataFrame
) -> None:
    """Names beside points, from the lowest up, towards the middle, each a line above
    the last where they would meet.
    """
    from matplotlib.patheffects import withStroke

    middle, bottom = points[x].median(), -np.inf
    line_height = max(float(np.ptp(points[y])), 1e-9) / _LINES
    # Lines that callers draw may run through a name, which stays readable so.
    outline = [
        withStroke(linewidth=2, foreground=ax.get_facecolor(), alpha=0.6)
    ]  # points shine through
    names = canvas.shorten_names(
        [name.split("/")[-1] for name in named["model"]], _LETTERS
    )
    for name, (across, up) in zip(
        names, named[[x, y]].itertuples(index=False), strict=True
    ):
        bottom = max(up, bottom + line_height)
        side, sign = ("left", 1) if across < middle else ("right", -1)
        text = ax.annotate(
            canvas.plain(name),
            (across, bottom),
            (0.7 * sign, 0),
            "data",
            "offset fontsize",
            ha=side,
        )
        text.set(
            va="center", fontsize="x-small", annotation_clip=False, path_effects=outline
        )


def outliers(table: pd.DataFrame, x: str, y: str, *, most: int = 4) -> pd.DataFrame:
    """Find the models whose `y` is farthest from a robust line through all (Theil and
    Sen's).

    Parameters
    ----------
    table : DataFrame
        Any table with the column model.
    x, y : str
        Columns with numbers.
    most : int
        How many rows.

    Returns
    -------
    DataFrame
        The rows of `table`, farthest first, and residual (y minus the line).

    Raises
    ------
    DataError
        For a column that is not there.

    Examples
    --------
    >>> table = pd.DataFrame({"model": list("abcd"), "x": [0, 1, 2, 3], "y": [0, 1, 9, 3]})
    >>> outliers(table, "x", "y", most=1)["model"].item()
    'c'
    """
    from scipy.stats import theilslopes

    points = canvas.read_table(table, metrics.summary, ["model", x, y]).dropna(
        subset=[x, y]
    )
    across, up = points[x].to_numpy(float), points[y].to_numpy(float)
    if len(points) < 3 or np.ptp(across) == 0:
        return points.head(0).assign(residual=0.0)
    sloping = theilslopes(up, across).slope * across
    # The median of what the slope leaves is the line's height; medians of x and y apart
    # would let a far point shift it.
    residual = up - np.median(up - sloping) - sloping
    order = np.argsort(-np.abs(residual), kind="stable")[:most]
    ordered: pd.DataFrame = points.assign(residual=residual).iloc[order]
    return ordered
