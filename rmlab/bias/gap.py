"""Easy minus hard: how much of a model's accuracy is style."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rmlab.items.grid import Floats
from rmlab.items.weighting import Average
from rmlab.metrics.comparisons import accuracy_reading, grouped, in_order, typed
from rmlab.metrics.estimate import Estimate, estimate
from rmlab.metrics.numbers import Reading, style_level
from rmlab.metrics.summaries import Part, stacked
from rmlab.tables import LEVELS, DataError

__all__ = ["style_gap"]

_FLAT = 1e-12


def style_gap(
    table: pd.DataFrame,
    by: str | Sequence[str] = "model",
    *,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    confidence: float = 0.95,
    **options: str,
) -> pd.DataFrame:
    """Accuracy on easy minus accuracy on hard comparisons, one row per combination of the `by` columns.

    Columns after those of `by`: easy, hard (those of `summary`), gap (-1 to 1), se, low, high, n_prompts, n_ties,
    missing (of the easy and hard comparisons), average, reason. A model that style does not move has a gap of 0; one
    that only looks at style a gap of 1. Easy and hard come from the same prompts, so the error is of the difference,
    clustered by prompt. The interval joins the mid-p limits of both sides and their correlation (Zou and Donner 2008,
    "MOVER"), so it has width at 1 and 0 too. `se` is 0 beside limits that are apart where every prompt has the same
    gap: the spread seen is none, and the limits say how much may lie unseen. It is missing exactly where the limits
    are: with fewer than 5 prompts in a part that counts, and `reason` says so. The same options as `summary`; `by` as
    in `rmlab.accuracy`. Raises DataError where comparisons have no level.
    """
    by = [by] if isinstance(by, str) else list(dict.fromkeys(by))
    columns = [c for c in by if c != "model"]
    reading = accuracy_reading(table, columns, average, ties, common, options)
    if not reading.items.styled:
        raise DataError("table: level is missing; this benchmark has no styles, so it has no easy and hard")
    level = style_level(reading.items)
    parts: list[Part] = []
    for key, counted, need in grouped(reading, columns):
        sides = [reading.number(counted & (level == LEVELS.index(name)), need) for name in ("easy", "hard")]
        easy, hard = (estimate(reading.items, number, confidence=confidence) for number in sides)
        own = {"model": reading.items.models, **key, "easy": easy.value, "hard": hard.value}
        parts.append({**own, **_gap(reading, easy, hard)})
    return in_order([typed(stacked(parts, len(reading.items.models)), reading, columns)], by)


def _gap(reading: Reading, easy: Estimate, hard: Estimate) -> Part:
    gap = easy.value - hard.value
    # By prompt, each with both its sides: what makes a whole prompt hard moves easy and hard alike, and drops out here.
    variance = ((easy.influence - hard.influence) ** 2).sum(axis=1)
    reason = [one or other for one, other in zip(easy.reason, hard.reason, strict=True)]
    withheld = np.where([r == "" for r in reason], 0.0, np.nan)
    low, high = _mover(gap, easy, hard)
    return {
        "gap": gap,
        "se": np.sqrt(variance) + withheld,
        "low": low + withheld,
        "high": high + withheld,
        "n_prompts": np.minimum(easy.n_prompts, hard.n_prompts),
        "n_ties": easy.n_ties + hard.n_ties,
        "missing": easy.missing + hard.missing,
        "average": reading.weighting.label,
        "reason": np.array(reason, dtype=object),
    }


def _mover(gap: Floats, easy: Estimate, hard: Estimate) -> tuple[Floats, Floats]:
    """Limits of easy - hard from the limits of each, and the correlation of their errors."""
    scale = np.sqrt((easy.influence**2).sum(axis=1) * (hard.influence**2).sum(axis=1))
    together = (easy.influence * hard.influence).sum(axis=1)
    # Without spread on one side (all right, all wrong) there is no correlation to allow for.
    correlation = np.divide(together, scale, out=np.zeros_like(scale), where=scale > _FLAT)

    def reach(a: Floats, b: Floats) -> Floats:
        # Their equation for dependent estimates; with equal reaches and a correlation of 1 only rounding is below zero.
        half: Floats = np.sqrt(np.maximum(a**2 + b**2 - 2 * correlation * a * b, 0))
        return half

    # The gap is low where easy is as low as it may be and hard as high, so each side lends the limit on that side.
    low = gap - reach(easy.value - easy.low, hard.high - hard.value)
    high = gap + reach(easy.high - easy.value, hard.value - hard.low)
    return np.maximum(low, -1), np.minimum(high, 1)
