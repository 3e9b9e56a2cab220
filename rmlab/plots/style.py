"""Figures of style: easy against hard per model, lengths per style and label."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab import metrics
from rmlab.baselines import is_baseline
from rmlab.metrics.weights import Average
from rmlab.plots import canvas
from rmlab.plots.canvas import BASELINE
from rmlab.tables import LABELS, LEVELS, DataError, check_responses, nearest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Light, middle and dark, and of three shapes, so that they are told apart without colour.
LEVEL_STYLES = {"easy": ("#67a9cf", "o"), "normal": ("#777777", "s"), "hard": ("#b2182b", "D")}
_LABEL_STYLES = {"chosen": ("#2166ac", "o"), "rejected": ("#d6604d", "D")}


def plot_style_gap(
    table: pd.DataFrame,
    *,
    average: Average = "benchmark",
    chance: float = 0.5,
    sort: bool = True,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw easy, normal and hard accuracy of every model: the longer the bar, the more style decides.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs; `rmlab.accuracy(table, by=["model", "level"])`, the table beside the figure; one row per model
        with easy, normal and hard (`rmlab.summary`, `rmlab.papers.published`), which has no intervals; or the result of
        `rmlab.style_gap`.
    average
        As in `rmlab.summary`, where `table` holds scores or pairs.
    chance : float
        Where the dotted line stands. A hard point left of it means that style beats substance.
    sort : bool
        Whether the model with the highest hard accuracy stands on top.
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        A row per model, baselines grey. The number of ties stands at the right, and a level that is mostly ties is
        hollow. Models without any of these numbers are left out, and counted below the axis.

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
    wide = levels.pivot(index="name", columns="level", values="accuracy").reindex(levels["name"].unique())
    n_unknown = int(wide.isna().all(axis=1).sum())
    wide = wide.dropna(how="all")[[level for level in LEVELS if level in wide]]
    if sort:
        wide = wide.sort_values("hard", na_position="first", kind="stable")
    names = list(wide.index)
    ax = canvas.new_rows(ax, names, n_series=len(wide.columns))
    rows = np.arange(len(names))
    ax.hlines(rows, wide.min(axis=1), wide.max(axis=1), color="#dddddd", lw=4, zorder=1)
    is_blind = np.array([is_baseline(name) for name in names])
    for i, level in enumerate(wide.columns):
        values = levels[levels["level"] == level].set_index("name").reindex(names)
        y = rows + canvas.row_offset(i, len(wide.columns))
        hollow = (values["n_ties"] > values["n_pairs"] / 2).to_numpy()
        colour, marker = LEVEL_STYLES[level]
        for mask, shade in ((~is_blind, colour), (is_blind, BASELINE)):
            canvas.draw_dots(ax, y[mask], values[mask], "accuracy", style=(shade, marker), hollow=hollow[mask])
        ax.scatter([], [], color=colour, marker=marker, s=26, label=level)
    canvas.mark_line(ax, chance, f"chance ({chance:g})")
    left_out = canvas.count_left_out(n_unknown, "without these numbers left out")
    ax.set_xlim(-0.02, 1.02)
    ax.set_xlabel("share of comparisons won" + left_out, loc="right")
    ties = n_ties.reindex(names).fillna(0)
    if ties.any():
        canvas.margin_column(ax, "ties", rows, [f"{n:,.0f}" if n > 0 else "" for n in ties], 0.6)
    canvas.add_legend(ax, above=1.6)
    return ax


def _read_levels(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series]:
    """One row per name and level with its accuracy, limits and counts, and the number of ties per name."""
    if {"model", "level", "accuracy"} <= set(table.columns):
        levels = table.assign(name=table["model"].astype(str), level=table["level"].astype(str))
        levels = levels.reindex(columns=list(dict.fromkeys([*levels.columns, "low", "high", "n_ties", "n_pairs"])))
        return levels, levels.groupby("name")["n_ties"].sum()
    is_gap = {"easy", "hard", "gap"} <= set(table.columns)
    keys = list(table.columns[: table.columns.get_loc("easy")]) if is_gap else ["model"]
    present = ["easy", "hard"] if is_gap else list(LEVELS)
    table = canvas.read_table(table, metrics.summary, [*keys, *present])
    rows = table[present].assign(name=table[keys].astype(str).agg(" · ".join, axis=1), reason=table.get("reason", ""))
    levels = rows.melt(["name", "reason"], var_name="level", value_name="accuracy").assign(n_ties=0.0, n_pairs=np.nan)
    return levels, pd.Series(table.get("n_ties", 0), index=table.index).set_axis(rows["name"])


def plot_lengths(responses: pd.DataFrame, *, by: str = "subset", ax: "Axes | None" = None) -> "Axes":
    """Draw the mean length of chosen and rejected answers: a long line means that length gives the label away.

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
    names = [" ".join(map(str, key)) if isinstance(key, tuple) else str(key) for key in table.index]
    ax = canvas.new_rows(ax, names, n_series=2)
    rows = np.arange(len(names))
    ax.hlines(rows, table["chosen"], table["rejected"], color="#cccccc", lw=2, zorder=1)
    for i, (label, style) in enumerate(_LABEL_STYLES.items()):
        half = 1.96 * table[f"{label}_se"].fillna(0)
        intervals = table.assign(low=table[label] - half, high=table[label] + half)
        canvas.draw_dots(ax, rows + canvas.row_offset(i, 2), intervals, label, style=style, label=label)
    for row in rows[1:][np.diff(pd.factorize(table.index.get_level_values(0))[0]) != 0]:
        ax.axhline(row - 0.5, color="#dddddd", lw=0.8, zorder=0)
    ax.set_xlabel("mean length (characters)", loc="right")
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
        Indexed by `by`, and by style where answers have one: chosen, rejected (mean characters), chosen_se,
        rejected_se, n (chosen answers).

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
    if by not in responses.columns:
        raise DataError(f"by: {by!r} is not a column of responses; {nearest(by, list(responses.columns))}")
    canvas.refuse_blank(responses, "response", "responses")
    keys = [by] if responses["style"].isna().all() else [by, "style"]
    characters = responses.assign(characters=responses["response"].str.len())
    order = pd.CategoricalDtype(list(dict.fromkeys(responses[by])), ordered=True)
    groups = characters.astype({by: order}).groupby([*keys, "label"], observed=True)["characters"]
    wide = groups.agg(["mean", "sem", "size"]).unstack("label")
    table = pd.DataFrame({label: wide[("mean", label)] for label in LABELS})
    standard_errors = {f"{label}_se": wide[("sem", label)] for label in LABELS}
    return table.assign(**standard_errors, n=wide[("size", "chosen")])
