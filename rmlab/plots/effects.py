"""Figures of what style is worth: effects, exchange rates and preferences as dots with intervals."""

import textwrap
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab.plots.canvas import bare, canvas, margin_column, mark_line, plain, short
from rmlab.tables import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_effects", "plot_preference"]

_TERMS = {
    "correct": "right instead of wrong",
    "step": "one step of style",
    "step_plain": "plain instead of concise",
    "step_markdown": "Markdown instead of plain",
    "markdown": "Markdown marks doubled",
}
_AXES = {
    "effect": "effect on the score\n(standard deviations within a prompt)",
    "rate": "worth in units of correctness\n(1 = being right)",
    "preference": "share of comparisons\nthat the fancier answer wins",
}
_COLOURS = ("#2166ac", "#b2182b", "#1b7837", "#762a83", "#b35806", "#4d4d4d")  # one per group of rows, repeated
_WIDEST_RATE = 4.0  # beyond this a model looks at style alone, and its number would squeeze all others


def plot_effects(table: pd.DataFrame, *, ax: "Axes | None" = None) -> "Axes":
    """Effects with intervals, grouped by term, one row per model; returns the Axes.

    `table`: what `style_effects` or `exchange_rate` returned. The line at 0 is "does not move the score"; the line at 1
    of an exchange rate is "worth as much as being right". An unbounded interval is a dashed line across the figure (its
    rate a dot only where it lies inside), another rate beyond 4 an arrow with its number, and a row without an estimate
    says why.
    """
    value = next((column for column in ("effect", "rate") if column in table.columns), None)
    if value is None or "term" not in table.columns:
        raise DataError("table: no columns 'term' and 'effect' or 'rate'; pass rmlab.style_effects(scores, features)")
    names = [_TERMS.get(term, f"{term} doubled") for term in table["term"]]
    ax = _rows(table.assign(_group=names), value, list(table.columns[: table.columns.get_loc("term")]), ax)
    for line in (0.0, 1.0) if value == "rate" else (0.0,):
        ax.axvline(line, color="black", lw=0.8, ls="-" if line == 0 else ":", zorder=0)
    return ax


def plot_preference(table: pd.DataFrame, *, ax: "Axes | None" = None) -> "Axes":
    """How often the fancier telling of the same answer wins, grouped by style pair, one row per model; the Axes.

    `table`: what `style_preference` returned. The line at 0.5 is a model that does not care. A row with ties has their
    number at the right, and is hollow where most of its comparisons are ties.
    """
    if "preference" not in table.columns:
        raise DataError("table: no column 'preference'; pass rmlab.bias.style_preference(scores)")
    keys = list(table.columns[: table.columns.get_loc("preference")])
    paired = {"plainer", "fancier"} <= set(keys)
    names = [f"{b} over {a}" for a, b in zip(table["plainer"], table["fancier"], strict=True)] if paired else ""
    keys = [key for key in keys if key not in ("plainer", "fancier")]
    ax = _rows(table.assign(_group=names), "preference", keys, ax)
    mark_line(ax, 0.5, "no preference (0.5)")
    ax.set_xlim(-0.02, 1.02)
    return ax


def _mostly_ties(row: pd.Series) -> bool:
    return bool(row.get("n_ties", 0) > row.get("n_pairs", 0) / 2)


def _rows(table: pd.DataFrame, value: str, keys: list[str], ax: "Axes | None") -> "Axes":
    """Dots and intervals from top to bottom: a bold line per group, below it a row per combination of the keys."""
    text = pd.DataFrame({key: table[key].map(short if key == "model" else plain) for key in keys}, index=table.index)
    names = text.agg(" · ".join, axis=1) if keys else pd.Series("", index=table.index)
    single = len(set(names)) == 1
    groups = list(dict.fromkeys(table["_group"]))
    drawn: list[tuple[int, int, str]] = []
    ticks: list[tuple[int, str, str]] = []
    for group, colour in zip(groups, [_COLOURS[i % len(_COLOURS)] for i in range(len(groups))], strict=True):
        if group and not single:
            ticks.append((len(ticks), plain(group), "bold"))
        for row in [i for i, own in enumerate(table["_group"]) if own == group]:
            drawn.append((len(ticks), row, colour))
            ticks.append((len(ticks), plain(group) if single and group else names.iloc[row], "normal"))
    ax = canvas(ax, (7.0, 0.27 * len(ticks) + 1.0))
    ax.set_xlim(*_limits(table, value))
    for place, number, shade in drawn:
        _draw(ax, place, table.iloc[number], value, shade)
    ax.set_yticks([y for y, _, _ in ticks], [name for _, name, _ in ticks])
    for label, (_, _, weight) in zip(ax.get_yticklabels(), ticks, strict=True):
        label.set_fontweight(weight)
    bare(ax, len(ticks))
    ax.invert_yaxis()
    tied = [
        (place, f"{table['n_ties'].iloc[row]:,}") for place, row, _ in drawn if table.iloc[row].get("n_ties", 0) > 0
    ]
    if value == "preference" and tied:
        margin_column(ax, "ties", np.array([y for y, _ in tied]), [text for _, text in tied])
    ax.set_xlabel(_AXES[value])
    ax.set_title(names.iloc[0] if single and len(names) else "", fontsize="medium")
    return ax


def _draw(ax: "Axes", y: int, row: pd.Series, value: str, colour: str) -> None:
    at, low, high = float(row[value]), float(row["low"]), float(row["high"])
    if np.isnan(at):
        reason = textwrap.fill(plain(row["reason"]), 22)
        ax.annotate(
            reason, (0, y), (0.6, 0), xycoords=("axes fraction", "data"), textcoords="offset fontsize", va="center",
            fontsize="x-small", color="#666666", linespacing=0.9,
        )  # fmt: skip
        return
    left, right = ax.get_xlim()
    if np.isinf(low) or np.isinf(high):
        ax.axhline(y, color=colour, lw=1.2, ls="--", alpha=0.6, zorder=1)
        ax.text(right, y, " unbounded", va="center", ha="left", fontsize="x-small", color="#666666")
        if not left <= at <= right:
            return
    elif not np.isnan(low):
        ax.hlines(y, low, high, color=colour, lw=1.8, zorder=2)
    if left <= at <= right:
        face = "white" if value == "preference" and _mostly_ties(row) else colour
        ax.plot(at, y, "o", color=colour, markerfacecolor=face, ms=5.5, zorder=3, clip_on=False)
        return
    edge, marker, side = (left, "<", "left") if at < left else (right, ">", "right")
    ax.plot(edge, y, marker, color=colour, ms=6, zorder=3, clip_on=False)
    # Above the line: the interval may reach under it.
    ax.annotate(f"{at:.3g}", (edge, y), (0, 0.25), textcoords="offset fontsize", va="bottom", ha=side,
                fontsize="x-small", color=colour)  # fmt: skip


def _limits(table: pd.DataFrame, value: str) -> tuple[float, float]:
    """All finite numbers and the reference lines, with a margin; ratios end at 4, and unbounded ones do not count."""
    bounded = table[~np.isinf(table["low"].to_numpy(dtype=float))]
    values = bounded[[value, "low", "high"]].to_numpy(dtype=float)
    seen = np.append(values[np.isfinite(values)], [0.0, 1.0] if value == "rate" else [0.0])
    seen = np.clip(seen, -_WIDEST_RATE, _WIDEST_RATE) if value == "rate" else seen
    margin = 0.06 * max(float(np.ptp(seen)), 0.1)
    return float(seen.min()) - margin, float(seen.max()) + margin
