"""Figures of style: easy against hard per model, lengths per style and label."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab import metrics, tables
from rmlab.plots.canvas import canvas, is_pairs
from rmlab.plots.names import plain, short
from rmlab.tables import LEVELS, DataError, check_responses, nearest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["lengths", "plot_lengths", "plot_style_gap"]

LEVEL_COLOURS = {"easy": "#4393c3", "normal": "#808080", "hard": "#d6604d"}
LABEL_COLOURS = {"chosen": "#2166ac", "rejected": "#b2182b"}


def plot_style_gap(table: pd.DataFrame, *, chance: float = 0.5, sort: bool = True, ax: "Axes | None" = None) -> "Axes":
    """Dumbbell of easy, normal and hard accuracy per model; returns the Axes.

    `table`: one row per model with columns easy, normal, hard (`summary`, `published`), or one row per model and
    level with accuracy, low and high (`accuracy(pairs, by=["model", "level"])`, made from pairs if these are given),
    which adds intervals, or what `style_gap` returned (easy and hard only). The longer the bar, the more style decides;
    a hard point left of `chance` means that style beats substance. Sorted by hard.
    """
    if is_pairs(table):
        table = metrics.accuracy(tables.check_pairs(table), by=["model", "level"])
    if table.empty:
        raise DataError("table: no rows, so there is nothing to draw; look at what the rows were selected by")
    wide = _wide(table)
    if sort:
        wide = wide.sort_values("hard", na_position="first", kind="stable")
    ax = canvas(ax, (6.4, 0.42 * len(wide) + 1.3))
    rows = np.arange(len(wide))
    levels = [level for level in LEVELS if level in wide]
    ax.hlines(rows, wide[levels].min(axis=1), wide[levels].max(axis=1), color="#cccccc", lw=3, zorder=1)
    for level in levels:
        if f"{level}_low" in wide:
            ax.hlines(rows, wide[f"{level}_low"], wide[f"{level}_high"], color=LEVEL_COLOURS[level], lw=1, zorder=2)
        ax.scatter(wide[level], rows, color=LEVEL_COLOURS[level], s=45, label=level, zorder=3)
    ax.axvline(chance, color="black", lw=0.8, ls=":", zorder=0)
    ax.set(
        yticks=rows,
        yticklabels=[short(name) for name in wide.index],
        xlim=(-0.02, 1.02),
        xlabel="share of comparisons won",
    )
    ax.set_ylim(-0.6, len(wide) - 0.4)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return ax


def plot_lengths(responses: pd.DataFrame, *, by: str = "subset", ax: "Axes | None" = None) -> "Axes":
    """Mean length (characters) of chosen and rejected answers per `by` and style; returns the Axes.

    One row per subset and style, a dot for each label with a 95 % interval of the mean, joined by a line: a long line
    means that length gives the label away. Benchmarks without styles get one row per subset.
    """
    table = lengths(responses, by=by)
    names = [plain(" ".join(map(str, key)) if isinstance(key, tuple) else key) for key in table.index]
    ax = canvas(ax, (6.4, 0.3 * len(names) + 1.4))
    rows = np.arange(len(names))[::-1]
    ax.hlines(rows, table["chosen"], table["rejected"], color="#cccccc", lw=2, zorder=1)
    for label, colour in LABEL_COLOURS.items():
        spread = 1.96 * table[f"{label}_se"].fillna(0)
        ax.errorbar(table[label], rows, xerr=spread, fmt="o", color=colour, ms=6, lw=1, label=label, zorder=3)
    group = pd.factorize(table.index.get_level_values(0))[0]
    for row in rows[:-1][np.diff(group) != 0]:
        ax.axhline(row - 0.5, color="#dddddd", lw=0.8, zorder=0)
    ax.set(yticks=rows, yticklabels=names, xlabel="mean length (characters)")
    ax.set_xlim(left=0)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return ax


def lengths(responses: pd.DataFrame, *, by: str = "subset") -> pd.DataFrame:
    """The numbers of `plot_lengths`: one row per `by` and style; chosen, rejected (mean characters), their se, n."""
    responses = check_responses(responses)
    if by not in responses.columns:
        raise DataError(f"by: {by!r} is not a column of responses; {nearest(by, list(responses.columns))}")
    if responses.empty:
        raise DataError("responses: no rows, so there is nothing to draw; look at what the rows were selected by")
    keys = [by] if responses["style"].isna().all() else [by, "style"]
    sized = responses[[*keys, "label"]].assign(characters=responses["response"].str.len())
    found = sized.groupby([*keys, "label"], sort=False, observed=True)["characters"].agg(["mean", "sem", "size"])
    wide = found.unstack("label")
    order = wide.sort_index(level=keys[1:]) if len(keys) > 1 else wide
    table = pd.DataFrame({label: order[("mean", label)] for label in LABEL_COLOURS})
    table = table.assign(
        **{f"{label}_se": order[("sem", label)] for label in LABEL_COLOURS}, n=order[("size", "chosen")]
    )
    first = list(dict.fromkeys(responses[by]))
    return table.loc[sorted(table.index, key=lambda key: first.index(key[0] if isinstance(key, tuple) else key))]


def _wide(table: pd.DataFrame) -> pd.DataFrame:
    """One row per model with easy, normal, hard and, where known, their limits."""
    if {"model", "level", "accuracy"} <= set(table.columns):
        wide = table.pivot(index="model", columns="level", values=["accuracy", "low", "high"])
        columns = {level: wide[("accuracy", level)] for level in LEVELS}
        limits = {f"{level}_{end}": wide[(end, level)] for level in LEVELS for end in ("low", "high")}
        return pd.DataFrame(columns | limits).loc[list(dict.fromkeys(table["model"]))]
    if {"easy", "hard", "gap"} <= set(table.columns):
        keys = list(table.columns[: table.columns.get_loc("easy")])
        names = table[keys].astype(str).agg(" · ".join, axis=1)
        return table.set_index(pd.Index(names))[["easy", "hard"]]
    absent = [c for c in ("model", *LEVELS) if c not in table.columns]
    if absent:
        raise DataError(
            f"table: no column {absent[0]!r}; pass rmlab.summary(table) or rmlab.accuracy(table, by=['model', 'level'])"
        )
    return table.set_index("model")[list(LEVELS)]
