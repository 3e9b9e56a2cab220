"""Ranks with confidence sets, the models that may be the best, and groups that the data cannot tell apart."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.baselines import is_baseline
from rmlab.items.columns import allowed
from rmlab.items.grid import Codes, Floats
from rmlab.items.weighting import Average
from rmlab.metrics.estimate import Estimate, estimate
from rmlab.metrics.numbers import Reading, overall
from rmlab.metrics.summaries import counts
from rmlab.stats.comparing import read_models, with_way_out
from rmlab.stats.difference import differences
from rmlab.stats.simultaneous import adjusted_p, best_p, chance_of, marginal_p, signed_z
from rmlab.tables import made_from

__all__ = ["Family", "letters", "rank", "rank_columns"]

Family = Literal["all pairs", "model"]
Mask = NDArray[np.bool_]

_DECIMALS = 12  # values that differ by less are equal: sums in another order
_SYMBOLS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def rank(
    table: pd.DataFrame,
    *,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    confidence: float = 0.95,
    family: Family = "all pairs",
    **options: str,
) -> pd.DataFrame:
    """Rank the models by their overall score: one row per model, best first, in the order of `summary`'s overall.

    Columns: model, value (overall, see `summary`), se, low, high (of the value), rank (1 is best; equal values share
    the better rank), rank_low, rank_high, best (False where some model is clearly better, so this one is not the best),
    group, family, n_prompts, n_ties, missing, average, reason.
    [rank_low, rank_high] leaves out the places that paired comparisons rule out: rank_low is 1 + the number of models
    clearly better, rank_high the number of models without those clearly worse (Mogstad, Romano, Shaikh and Wilhelm
    2024). What is clear is decided by the largest of all statistics (max-t; see `rmlab.stats.simultaneous`):

    - `family="all pairs"`: all sets hold at once with the confidence; `group` letters follow the same decisions: two
      models share a letter exactly unless they are clearly different (`compare_all`'s p_adjusted);
    - `family="model"`: the set of any one model holds with the confidence. Narrower, and without letters.

    In either, a clear difference is significant in `compare`. Models that are equal in truth share all their places.
    `best` holds for the best model with the confidence. Content-blind baselines have a value but no rank. A model
    without an overall score stands last, without rank or group, and `reason` names the way out. Compact letters:
    Piepho (2004).
    """
    allowed("family", family, ("all pairs", "model"))
    reading = read_models(table, average, ties, common, options)
    one = estimate(reading.items, overall(reading), confidence=confidence)
    frame = pd.DataFrame({"model": pd.Series(reading.items.models, dtype="str")}).assign(
        value=one.value, **counts(one, reading), **rank_columns(reading, one, confidence=confidence, family=family)
    )
    frame["reason"] = with_way_out(frame["reason"], one.value)
    order = ["model", "value", "se", "low", "high", "rank", "rank_low", "rank_high", "best", "group", "family"]
    frame = frame.sort_values("value", ascending=False, na_position="last", kind="stable").reset_index(drop=True)
    return made_from(table, frame[[*order, "n_prompts", "n_ties", "missing", "average", "reason"]])


def rank_columns(
    reading: Reading, one: Estimate, *, confidence: float = 0.95, family: Family = "all pairs"
) -> dict[str, pd.Series]:
    """rank, rank_low, rank_high, best, group and family of every model of a reading; missing for baselines."""
    from scipy.stats import rankdata

    names = reading.items.models
    scored = ~np.isnan(one.value) & ~np.array([is_baseline(name) for name in names])
    sure = scored & ~np.isnan(one.se)
    places = np.full(len(names), 0)
    # "min": equal values share the better place.
    places[scored] = rankdata(-np.round(one.value[scored], _DECIMALS), method="min")
    low, high, best, group = (
        np.zeros(len(names), int),
        np.zeros(len(names), int),
        np.zeros(len(names), bool),
        [""] * len(names),
    )
    models = np.flatnonzero(sure)
    if len(models):
        found = _decisions(one, models, confidence, family)
        # The set always holds the rank that is printed, also where values that are equal but for rounding share a
        # place.
        low[models] = np.minimum(1 + found.better, places[models])
        # A model without an error can be clearly worse than nobody, so it counts among the possible places of others.
        high[models] = np.maximum(scored.sum() - found.worse, places[models])
        best[models] = found.best
        for model, shown in zip(models, _letters(one.value[models], found.apart), strict=True):
            group[model] = shown if family == "all pairs" else ""
    ranks = {"rank": (places, scored), "rank_low": (low, sure), "rank_high": (high, sure)}
    return {
        **{name: pd.Series(found).astype("Int64").where(mask) for name, (found, mask) in ranks.items()},
        "best": pd.Series(best).astype("boolean").where(sure),
        "group": pd.Series(group, dtype="str"),
        "family": pd.Series([family] * len(names), dtype="str"),
    }


def letters(names: Sequence[str], differ: Mask) -> list[str]:
    """Compact letters: two names share a letter exactly if they do not `differ` (a symmetric square).

    Groups are grown greedily, in the order of the names, until every pair that does not differ stands in one.
    After 52 letters a number follows the letter.

    >>> letters(["x", "y", "z"], np.array([[0, 0, 1], [0, 0, 0], [1, 0, 0]], dtype=bool))
    ['a', 'ab', 'b']
    """
    alike = ~np.asarray(differ, bool) & ~np.eye(len(names), dtype=bool)
    open_ = np.triu(alike)  # pairs that no letter joins yet
    shown = [""] * len(names)
    made = 0
    for i in range(len(names)):
        while not shown[i] or open_[i].any():
            clique = _grow(i, open_, alike)
            # All pairs of the group are joined now. A name that differs from all others gets a letter alone.
            open_[np.ix_(clique, clique)] = False
            symbol = _SYMBOLS[made % len(_SYMBOLS)] + (str(made // len(_SYMBOLS) + 1) if made >= len(_SYMBOLS) else "")
            for member in clique:
                shown[member] += symbol
            made += 1
    return shown


class _Decisions(NamedTuple):
    """What is clear: how many models are better and worse than each, which may be the best, which pairs are apart."""

    better: Codes
    worse: Codes
    best: Mask
    apart: Mask


def _decisions(one: Estimate, models: Codes, confidence: float, family: Family) -> _Decisions:
    size, alpha = len(models), 1 - confidence
    a, b = np.triu_indices(size, 1)
    # Only p is wanted here; the limits of thousands of exact tests take most of the time.
    found = differences(one, models[a], models[b], confidence=confidence, limits=False)
    chance = chance_of(one.influence[models])
    z = _square(size, a, b, signed_z(found.value, found.p))  # above 0: the row's model is ahead of the column's
    # p is the same both ways round, and 1 of a model against itself.
    p = np.abs(_square(size, a, b, found.p)) + np.eye(size)
    best = best_p(chance, p, z) >= alpha
    apart = np.zeros((size, size), bool)
    if family == "model":  # every model has a family of its own, so there are no pairs to speak of
        clear = marginal_p(chance, p, z) < alpha
    else:
        apart[a, b] = apart[b, a] = adjusted_p(chance, found.p, found.value, a, b) < alpha
        clear = apart
    # z < 0: the row's model is behind, so that one is clearly better.
    return _Decisions((clear & (z < 0)).sum(axis=1), (clear & (z > 0)).sum(axis=1), best, apart)


def _square(size: int, a: np.ndarray, b: np.ndarray, of: Floats) -> Floats:
    """A number of each pair of models as an antisymmetric square, rows against columns."""
    square = np.zeros((size, size))
    square[a, b], square[b, a] = of, -of
    return square


def _letters(value: Floats, apart: Mask) -> list[str]:
    order = np.argsort(-value, kind="stable")  # from the best down, so that its letter is "a"
    shown = letters([str(i) for i in order], apart[np.ix_(order, order)])
    found = [""] * len(value)
    for place, symbol in zip(order, shown, strict=True):
        found[place] = symbol
    return found


def _grow(start: int, open_: Mask, alike: Mask) -> list[int]:
    """A group of names that do not differ and that no further name fits into, around an uncovered pair of `start`."""
    uncovered = np.flatnonzero(open_[start])
    # The farthest name that is still to be joined, then whatever lies between, the nearest first: long groups, few
    # letters.
    clique = [start, *uncovered[-1:]] if len(uncovered) else [start]
    fits = alike[clique].all(axis=0)
    while fits.any():
        nearest = int(np.flatnonzero(fits)[np.abs(np.flatnonzero(fits) - start).argmin()])
        clique.append(nearest)
        fits &= alike[nearest]
    return sorted(clique)
