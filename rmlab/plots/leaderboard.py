"""A leaderboard as a figure: overall scores with intervals, groups, and the baselines among the models."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab.benchmarks.registry import with_columns
from rmlab.plots.canvas import bare, canvas, margin_column, mark_chance, short
from rmlab.tables import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_leaderboard"]

MODEL, BASELINE = "#2166ac", "#888888"
_DEFAULTS: dict[str, str | float] = {"kind": "model", "low": np.nan, "high": np.nan, "group": ""}


def plot_leaderboard(
    board: pd.DataFrame, *, most: int = 40, chance: float | None = None, ax: "Axes | None" = None
) -> "Axes":
    """Overall scores with 95 % intervals, best on top; returns the Axes.

    `board`: what `leaderboard` returns, or any table with model and overall, such as `summary(table)` or
    `published("rm-bench")`; intervals and groups are drawn where it has them. Baselines are grey diamonds. The letters
    at the right are the groups: models that share one are not significantly different. `most`: the best models shown
    (baselines always are); the axis says how many were left out. `chance` draws a dotted line (default: 1/2, where
    every number of the table is a share of pairs won). Raises DataError for a table without these two columns.
    """
    missing = [c for c in ("model", "overall") if c not in board.columns]
    if missing:
        raise DataError(f"board: no column {missing[0]!r}; pass what rmlab.leaderboard(table) returns")
    board = board.assign(**{c: v for c, v in _DEFAULTS.items() if c not in board.columns})
    scored = board.dropna(subset=["overall"]).sort_values("overall", ascending=False, kind="stable")
    best = (scored["kind"] == "baseline") | ((scored["kind"] != "baseline").cumsum() <= most)
    rows = scored[best].iloc[::-1]
    ax = canvas(ax, (6.8, 0.27 * max(len(rows), 2) + 1.1))
    place, blind = np.arange(len(rows)), (rows["kind"] == "baseline").to_numpy()
    for mask, colour, marker in ((~blind, MODEL, "o"), (blind, BASELINE, "D")):
        part = rows[mask]
        ax.hlines(place[mask], part["low"], part["high"], color=colour, lw=1.6, zorder=1)
        ax.scatter(part["overall"], place[mask], color=colour, marker=marker, s=26, zorder=2)
    if chance is None and isinstance(with_columns(board.columns).chance, float):
        chance = with_columns(board.columns).lowest_chance
    bare(ax, len(rows))
    if chance is not None:
        mark_chance(ax, chance)
    if (rows["group"] != "").any():
        letters = [text if len(text) <= 8 else text[:7] + "…" for text in rows["group"]]
        margin_column(ax, "group", place, letters)
    ax.set_yticks(place, [short(name) for name in rows["model"]])
    for label, is_blind in zip(ax.get_yticklabels(), blind, strict=True):
        label.set(color=BASELINE if is_blind else "black", style="italic" if is_blind else "normal")
    left_out = len(scored) - len(rows)
    ax.set_xlabel("overall score" + (f"\n({left_out} models further down are not shown)" if left_out else ""))
    return ax
