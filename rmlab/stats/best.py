"""Every model against the best, when the best is chosen by the data."""

import numpy as np
import pandas as pd

from rmlab.baselines import is_baseline
from rmlab.items.grid import Codes, Floats
from rmlab.items.weighting import Average
from rmlab.metrics.estimate import Estimate, estimate
from rmlab.metrics.numbers import overall
from rmlab.stats.comparing import read_models, with_way_out
from rmlab.stats.difference import differences
from rmlab.stats.simultaneous import Chance, best_p, chance_of, lead_quantile, signed_z

__all__ = ["compare_best"]


def compare_best(
    table: pd.DataFrame,
    *,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    confidence: float = 0.95,
    **options: str,
) -> pd.DataFrame:
    """Each model against the best there is: one row per model, best first; baselines are left out.

    Columns: model, value, behind (how far below the highest value), at_least, at_most (bounds of how far the model is
    below the truly best one, each right with the confidence), p, best, n_prompts, n_ties, missing, average, reason.
    The model that looks best was chosen by the data, and testing the others against it alone would forget that. So
    each model is held against all others at once: p is the chance that the largest lead over it is so large if nobody
    is better (max-t, one-sided; never below the p of `compare`), and `best` says that this is not ruled out,
    p >= 1 - confidence. What holds: the truly best model is among those with `best` with the confidence, wherever it
    stands in the table, and so does any one of several that are equally good. What does not: that all of `best` are
    equal (`equivalence` shows that), or that the first row is the best. `at_least` is above 0 only where `best` is
    False. Ranks by the same rule: `rank`; Mogstad, Romano, Shaikh and Wilhelm (2024), section 3; Hsu (1981).
    """
    reading = read_models(table, average, ties, common, options)
    one = estimate(reading.items, overall(reading), confidence=confidence)
    names = reading.items.models
    ranked = np.array([not is_baseline(name) for name in names])
    # Without an error (too few prompts, a part that is missing) a model can neither be held against others nor be a
    # candidate for the best: its columns stay missing.
    sure = np.flatnonzero(ranked & ~np.isnan(one.se))
    size = len(names)
    at_least, at_most, p = (np.full(size, np.nan) for _ in range(3))
    if len(sure):
        at_least[sure], at_most[sure], p[sure] = _against_all(one, sure, confidence)
    frame = pd.DataFrame(
        {
            "model": pd.Series(names, dtype="str"),
            "value": one.value,
            # `initial` only serves a table of baselines alone, whose rows are all left out below.
            "behind": np.max(one.value[ranked], initial=-np.inf, where=~np.isnan(one.value[ranked])) - one.value,
            "at_least": at_least,
            "at_most": at_most,
            "p": p,
            # Missing, not False, where there is no p.
            "best": pd.Series(p >= 1 - confidence).astype("boolean").where(~np.isnan(p)),
            "n_prompts": one.n_prompts,
            "n_ties": one.n_ties,
            "missing": one.missing,
            "average": pd.Series([reading.weighting.label] * size, dtype="str"),
            "reason": pd.Series(with_way_out(one.reason, one.value), dtype="str"),
        }
    )
    return frame[ranked].sort_values("value", ascending=False, na_position="last", kind="stable", ignore_index=True)


def _against_all(one: Estimate, models: Codes, confidence: float) -> tuple[Floats, Floats, Floats]:
    """Bounds of how far each model is behind the best, and p of "nobody is better"."""
    size, chance = len(models), chance_of(one.influence[models])
    # Each of the four comes out as (models, models): the row is led, the column leads.
    found = [_leads(one, models, model, chance, confidence) for model in range(size)]
    leads, raw, low, high = (np.stack(part) for part in zip(*found, strict=True))  # rows: the model that is led
    # Transposed: `best_p` has the model that is ahead in the row.
    p = best_p(chance, raw, signed_z(leads, raw).T)
    out = p < 1 - confidence
    # Above zero exactly where somebody is clearly better: the bound and the p come from one quantile.
    at_least = np.where(out, np.maximum(low.max(axis=1), 0.0), 0.0)
    # The best is whoever leads most, so the farthest of the upper bounds bounds the distance; nobody is ahead of the
    # best.
    return at_least, np.maximum(high.max(axis=1), 0.0), p


def _leads(
    one: Estimate, models: Codes, model: int, chance: Chance, confidence: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Lead of every model over one: difference, unadjusted p, lower bound for all at once, upper bound of each."""
    from scipy.special import ndtr

    size = len(models)
    first, second = models, np.full(size, models[model])
    # `differences` is two-sided: at 2 level - 1 each of its limits holds by itself with `level`.
    # The quantile of the largest lead, a z, as the level of a single interval: exact and t tests then turn it into
    # limits each in their own way.
    level = float(ndtr(lead_quantile(chance, model, level=confidence))) if size > 1 else confidence
    # The truly best model is one of them: its own upper bound is enough, so this side needs no adjustment.
    own = differences(one, first, second, confidence=2 * confidence - 1)
    least = differences(one, first, second, confidence=2 * level - 1)
    # Against itself there is no difference to test: never apart, zero behind.
    own.p[model], least.low[model], own.high[model] = 1.0, 0.0, 0.0
    return own.value, own.p, least.low, own.high
