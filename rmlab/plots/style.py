"""Figures of style: easy against hard per model, lengths per style and label."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import metrics, tables
from rmlab.baselines import is_baseline
from rmlab.plots.canvas import bare, canvas, is_pairs, margin_column, mark_chance, plain, short
from rmlab.tables import LEVELS, DataError, check_responses, nearest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["lengths", "plot_lengths", "plot_style_gap"]

# Light, middle and dark, and of three shapes, so that they are told apart without colour.
LEVEL_COLOURS = {"easy": "#67a9cf", "normal": "#777777", "hard": "#b2182b"}
LEVEL_MARKERS = {"easy": "o", "normal": "s", "hard": "D"}
LABEL_COLOURS = {"chosen": "#2166ac", "rejected": "#d6604d"}
LABEL_MARKERS = {"chosen": "o", "rejected": "D"}
BASELINE = "#888888"
_APART = 0.24  # rows between the marks of one row


def plot_style_gap(table: pd.DataFrame, *, chance: float = 0.5, sort: bool = True, ax: "Axes | None" = None) -> "Axes":
    """Easy, normal and hard accuracy of every model, one below the other; returns the Axes.

    `table`: one row per model with columns easy, normal, hard (`summary`, `published`), or one row per model and
    level with accuracy, low and high (`accuracy(pairs, by=["model", "level"])`, made from pairs if these are given),
    which adds intervals, or what `style_gap` returned (easy and hard only). The longer the bar, the more style decides;
    a hard point left of `chance` means that style beats substance. Sorted by hard. Baselines are grey. Where a model
    has ties their number stands at the right, and a level that is mostly ties is drawn hollow. Models without any of
    these numbers are left out, and counted below the axis.
    """
    if is_pairs(table):
        table = metrics.accuracy(tables.check_pairs(table), by=["model", "level"])
    if table.empty:
        raise DataError("table: no rows, so there is nothing to draw; look at what the rows were selected by")
    wide = _wide(table)
    levels = [level for level in LEVELS if level in wide]
    unknown = int(wide[levels].isna().all(axis=1).sum())
    wide = wide.dropna(subset=levels, how="all")
    if sort:
        wide = wide.sort_values("hard", na_position="first", kind="stable")
    ax = canvas(ax, (6.4, 0.42 * len(wide) + 1.3))
    rows = np.arange(len(wide), dtype=float)
    ax.hlines(rows, wide[levels].min(axis=1), wide[levels].max(axis=1), color="#dddddd", lw=4, zorder=1)
    for place, level in enumerate(levels):
        _draw_level(ax, wide, rows + _APART * ((len(levels) - 1) / 2 - place), level)
    mark_chance(ax, chance)
    ax.set(xlim=(-0.02, 1.02), xlabel="share of comparisons won" + _left_out(unknown))
    ax.set_yticks(rows, [short(name) for name in wide.index])
    for label, name in zip(ax.get_yticklabels(), wide.index, strict=True):
        if is_baseline(name):
            label.set(color=BASELINE, style="italic")
    bare(ax, len(wide))
    if wide["n_ties"].any():
        margin_column(ax, "ties", rows, [f"{n:,.0f}" if n > 0 else "" for n in wide["n_ties"]])
    ax.legend(
        loc="lower right", bbox_to_anchor=(1.05, 1.04), ncols=3, frameon=False, fontsize="small", handletextpad=0.2
    )
    return ax


def _left_out(count: int) -> str:
    return f"\n({count} {'model' if count == 1 else 'models'} without these numbers left out)" if count else ""


def _draw_level(ax: "Axes", wide: pd.DataFrame, rows: NDArray[np.float64], level: str) -> None:
    """The points and intervals of one level: baselines grey, hollow where most comparisons are ties."""
    value = wide[level].to_numpy(float)
    blind = np.array([is_baseline(name) for name in wide.index])
    colours = np.where(blind, BASELINE, LEVEL_COLOURS[level])
    if f"{level}_low" in wide:
        ax.hlines(rows, wide[f"{level}_low"], wide[f"{level}_high"], color=colours, lw=1, zorder=2)
    tied = wide.get(f"{level}_tied", pd.Series(np.nan, index=wide.index)).to_numpy(float) > 0.5
    faces, mark = np.where(tied, "white", colours).tolist(), LEVEL_MARKERS[level]
    edges = colours.tolist()
    ax.scatter(value, rows, facecolors=faces, edgecolors=edges, marker=mark, s=30, lw=1.2, zorder=3, clip_on=False)
    ax.scatter([], [], color=LEVEL_COLOURS[level], marker=mark, s=30, label=level)


def plot_lengths(responses: pd.DataFrame, *, by: str = "subset", ax: "Axes | None" = None) -> "Axes":
    """Mean length (characters) of chosen and rejected answers per `by` and style; returns the Axes.

    One row per subset and style, a dot for each label with a 95 % interval of the mean, joined by a line: a long line
    means that length gives the label away. Benchmarks without styles get one row per subset.
    """
    table = lengths(responses, by=by)
    names = [plain(" ".join(map(str, key)) if isinstance(key, tuple) else key) for key in table.index]
    ax = canvas(ax, (6.4, 0.3 * len(names) + 1.4))
    rows = np.arange(len(names), dtype=float)[::-1]
    ax.hlines(rows, table["chosen"], table["rejected"], color="#cccccc", lw=2, zorder=1)
    for (label, colour), up in zip(LABEL_COLOURS.items(), (_APART / 2, -_APART / 2), strict=True):
        spread = 1.96 * table[f"{label}_se"].fillna(0)
        mark = LABEL_MARKERS[label]
        ax.errorbar(table[label], rows + up, xerr=spread, fmt=mark, color=colour, ms=5, lw=1, label=label, zorder=3)
    group = pd.factorize(table.index.get_level_values(0))[0]
    for row in rows[:-1][np.diff(group) != 0]:
        ax.axhline(row - 0.5, color="#dddddd", lw=0.8, zorder=0)
    ax.set(yticks=rows, yticklabels=names, xlabel="mean length (characters)")
    ax.set_xlim(left=0)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    bare(ax, len(names))
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
    """One row per model with easy, normal, hard and, where known, their limits, the share of ties, and n_ties."""
    if {"model", "level", "accuracy"} <= set(table.columns):
        counted = table.assign(**{c: table.get(c, np.nan) for c in ("n_ties", "n_pairs")})
        wide = counted.pivot(index="model", columns="level", values=["accuracy", "low", "high", "n_ties", "n_pairs"])
        columns = {level: wide[("accuracy", level)] for level in LEVELS}
        limits = {f"{level}_{end}": wide[(end, level)] for level in LEVELS for end in ("low", "high")}
        tied = {f"{level}_tied": wide[("n_ties", level)] / wide[("n_pairs", level)] for level in LEVELS}
        ties = {"n_ties": wide[[("n_ties", level) for level in LEVELS]].sum(axis=1)}
        return pd.DataFrame(columns | limits | tied | ties).loc[list(dict.fromkeys(table["model"]))]
    n_ties = table.get("n_ties", pd.Series(0, index=table.index)).to_numpy()
    if {"easy", "hard", "gap"} <= set(table.columns):
        keys = list(table.columns[: table.columns.get_loc("easy")])
        names = table[keys].astype(str).agg(" · ".join, axis=1)
        return table.set_index(pd.Index(names))[["easy", "hard"]].assign(n_ties=n_ties)
    missing = [c for c in ("model", *LEVELS) if c not in table.columns]
    if missing:
        raise DataError(
            f"table: no column {missing[0]!r}; pass rmlab.summary(table), or rmlab.accuracy(table, by=['model', "
            "'level'])"
        )
    return table.set_index("model")[list(LEVELS)].assign(n_ties=n_ties)
