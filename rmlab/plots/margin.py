"""Figures of margins: how they spread per level, and whether they mean what the Bradley-Terry model says."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab import stats, tables
from rmlab.plots.canvas import canvas, is_pairs
from rmlab.plots.names import plain, short
from rmlab.plots.style import LEVEL_COLOURS
from rmlab.tables import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_calibration", "plot_margins"]

_COLOURS = ("#2166ac", "#b2182b", "#4d9221", "#762a83", "#b35806", "#35978f", "#666666", "#c51b7d")
_MARKS = "osD^vP*X"
_ERROR = ("ece_debiased", "ece_low", "ece_high")


def plot_margins(pairs: pd.DataFrame, *, by: str = "level", bins: int = 60, ax: "Axes | None" = None) -> "Axes":
    """Distribution of one model's margins, one outline per value of `by`; returns the Axes.

    Right of the dotted line the chosen answer wins; the legend says how often. The outermost 0.5 % on each side lie
    outside the frame. The table beside it: `margins(pairs, by=by)`. Raises DataError with several models (their
    scores have different units), without margins, or with a `by` that is missing.
    """
    values = _margins_of(pairs, by)
    ax = canvas(ax, (6.4, 3.6))
    pooled = np.concatenate(list(values.values()))
    left, right = np.quantile(pooled, [0.005, 0.995])
    left, right = (left, right) if left < right else (left - 0.5, right + 0.5)
    edges = np.linspace(min(left, 0), max(right, 0), bins + 1)
    for number, (name, margin) in enumerate(values.items()):
        colour = LEVEL_COLOURS.get(name, _COLOURS[number % len(_COLOURS)])
        share = np.histogram(margin, edges)[0] / len(margin) / np.diff(edges)
        label = f"{plain(name)}: {(margin > 0).mean():.0%} won of {len(margin):,}"
        ax.stairs(share, edges, color=colour, fill=True, alpha=0.12)
        ax.stairs(share, edges, color=colour, lw=1.6, label=label)
        ax.plot(np.median(margin), 0, marker="^", color=colour, ms=7, clip_on=False, zorder=3)
    ax.axvline(0, color="black", lw=0.8, ls=":")
    ax.set(xlabel="margin: score of the chosen minus score of the rejected (triangle: median)", ylabel="density")
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_calibration(table: pd.DataFrame, *, ax: "Axes | None" = None) -> "Axes":
    """Predicted Bradley-Terry probability against accuracy, one line per model.

    `table`: what `calibration` returned, or pairs, of which it is then made. On the diagonal a model is as often right
    as its margins promise; below it, it is too sure. Points are as large as their bin is full, whiskers are intervals
    clustered by prompt. The legend has the expected calibration error without the part that chance makes, and its
    interval. Returns the Axes.
    """
    table = stats.calibration(table) if is_pairs(table) else table
    absent = [
        c for c in ("model", "predicted", "accuracy", "low", "high", "n_pairs", *_ERROR) if c not in table.columns
    ]
    if absent:
        raise DataError(f"table: no column {absent[0]!r}; pass the table of rmlab.stats.calibration(pairs)")
    ax = canvas(ax, (4.8, 4.6))
    ax.plot([0.5, 1], [0.5, 1], color="black", lw=0.8, ls=":", zorder=0)
    for number, (name, part) in enumerate(table.groupby("model", sort=False)):
        part = part[part["n_pairs"] > 0]
        colour = _COLOURS[number % len(_COLOURS)]
        x, y = part["predicted"], part["accuracy"]
        ax.vlines(x, part["low"], part["high"], color=colour, lw=1, alpha=0.6, zorder=1)
        ax.plot(x, y, color=colour, lw=1, zorder=2)
        size = 10 + 110 * part["n_pairs"] / part["n_pairs"].sum()
        mark = _MARKS[number % len(_MARKS)]
        ax.scatter(x, y, s=size, color=colour, marker=mark, zorder=3, label=f"{short(name)}  ({_error(part)})")
    ax.set(xlabel="predicted probability of the preferred answer", ylabel="share of comparisons where it is right")
    ax.set_xlim(0.49, 1.01)
    ax.set_ylim(top=1.02)
    ax.legend(frameon=False, fontsize="small", loc="lower left", bbox_to_anchor=(0.0, 1.0))
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _error(part: pd.DataFrame) -> str:
    """The model's calibration error for the legend; an estimate below zero is nothing but chance, so 0."""
    if part.empty:
        return "no margins"
    value, low, high = part[list(_ERROR)].iloc[0]
    limits = "" if np.isnan(low) else f", {low:.3f} to {high:.3f}"
    return f"ECE {max(value, 0.0):.3f}{limits}" if not np.isnan(value) else "one prompt"


def _margins_of(pairs: pd.DataFrame, by: str) -> dict[str, np.ndarray]:
    pairs = tables.check_pairs(pairs)
    if by not in pairs.columns:
        raise DataError(f"by: {by!r} is not a column of pairs; {tables.nearest(by, list(pairs.columns))}")
    models = list(pairs["model"].unique())
    if len(models) != 1:
        raise DataError(
            f"pairs: margins of one model share a unit, got {len(models)} models {models[:5]}; keep one: "
            "pairs[pairs.model == ...]"
        )
    known = pairs[pairs["margin"].notna() & pairs[by].notna()]
    if known.empty:
        raise DataError(
            f"pairs: no row has both a margin and a {by}; judges give no margins, and benchmarks without styles no "
            "levels: use a reward model's scores and by='domain'"
        )
    ordered = isinstance(known[by].dtype, pd.CategoricalDtype)
    values = known[by].cat.categories if ordered else known[by].unique()
    found = {str(v): known.loc[known[by] == v, "margin"].to_numpy() for v in values}
    return {name: margin for name, margin in found.items() if len(margin)}
