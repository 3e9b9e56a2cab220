"""Ranks with intervals, and groups of models that the data cannot tell apart."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import metrics
from rmlab.stats.comparing import compare_all
from rmlab.stats.grid import Floats, credit, grid
from rmlab.stats.reported import estimate
from rmlab.stats.targets import Average, target_of
from rmlab.tables import DataError

__all__ = ["letters", "rank", "rank_columns"]

_DECIMALS = 7  # scores that differ by less are equal: far below the worth of one comparison
_SHARE = 0.8  # of the half-width of a difference's interval: see `rank` and benchmarks/rank_rules.py
_SYMBOLS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def rank(
    pairs: pd.DataFrame,
    *,
    average: Average = "benchmark",
    ties: metrics.Ties = "loss",
    confidence: float = 0.95,
    alpha: float = 0.05,
    resamples: int = 10_000,
    seed: int = 0,
    common: bool = False,
) -> pd.DataFrame:
    """Rank the models by their overall score: one row per model, best first.

    Columns: model, value (overall as `average` says, see `intervals`; pairs of one domain only are ranked on that
    domain), se, low, high (of the value), rank (1 is best; equal values share the better rank), rank_low, rank_high,
    group, n_prompts, ties, missing, reason.
    The interval of the rank leaves out every place that the paired comparisons rule out (Mogstad and others 2024):
    rank_low is 1 + the number of models that are clearly better, rank_high the number of models without those that
    are clearly worse. Clearly: the difference is more than four fifths of the half-width of its interval in
    `compare_all`. With the whole half-width 98 to 99 % of the ranks would be covered, as most false findings are made
    up for by missed ones; four fifths cover 93 to 98 % on average over the models (`benchmarks/coverage.py`), and more
    only where models lie so far apart that nearly every interval is one rank. Equal models share all their places.
    `group`: two models share a letter unless `compare_all` finds them different at `alpha` after Holm.
    A model without an overall score (a domain is blank) stands last, without rank or group. With all prompts alike
    a model that left comparisons blank is scored on those it answered: see `missing`; pairs of models are
    always compared on the comparisons that both answered. Compact letters: Piepho (2004), Gramm et al. (2007).
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha: {alpha!r}; allowed: a probability between 0 and 1, for example 0.05")
    table = grid(pairs, common=common, fewest_models=2)
    target = target_of(table, [], average)
    one = estimate(credit(table.outcome, ties), table, target, confidence=confidence)
    if np.isnan(one.value).all():
        raise DataError("pairs: no model has an overall score, every one left a domain blank; use average='prompts'")
    contests = compare_all(
        pairs, average=average, ties=ties, confidence=confidence, resamples=resamples, seed=seed, common=common
    )
    difference = _square(table.models, contests, contests["difference"], -contests["difference"])
    least = _square(table.models, contests, contests["low"], -contests["high"])
    frame = pd.DataFrame({"model": pd.Series(table.models, dtype="str")}).assign(
        value=one.value,
        se=one.se,
        low=one.low,
        high=one.high,
        **rank_columns(one.value, difference, least, ~np.isnan(one.se)),
        group=_groups(table.models, one.value, contests, alpha),
        n_prompts=one.n_prompts,
        ties=(table.outcome == 1).sum(axis=1),
        missing=(table.outcome == -1).sum(axis=1),
        reason=pd.Series(one.reason, dtype="str"),
    )
    return frame.sort_values("value", ascending=False, na_position="last", kind="stable").reset_index(drop=True)


def letters(names: Sequence[str], differ: NDArray[np.bool_]) -> list[str]:
    """Compact letters: two names share a letter exactly if they do not `differ` (a symmetric square).

    Groups are grown greedily, in the order of the names, until every pair that does not differ stands in one.
    After 52 letters a number follows the letter.

    >>> letters(["x", "y", "z"], np.array([[0, 0, 1], [0, 0, 0], [1, 0, 0]], dtype=bool))
    ['a', 'ab', 'b']
    """
    alike = ~np.asarray(differ, bool) & ~np.eye(len(names), dtype=bool)
    open_ = np.triu(alike)
    shown = [""] * len(names)
    made = 0
    for i in range(len(names)):
        while not shown[i] or open_[i].any():
            clique = _grow(i, open_, alike)
            open_[np.ix_(clique, clique)] = False
            symbol = _SYMBOLS[made % len(_SYMBOLS)] + (str(made // len(_SYMBOLS) + 1) if made >= len(_SYMBOLS) else "")
            for member in clique:
                shown[member] += symbol
            made += 1
    return shown


def _grow(start: int, open_: NDArray[np.bool_], alike: NDArray[np.bool_]) -> list[int]:
    """A largest-as-can-be group of names that do not differ, around the next uncovered pair of `start`."""
    uncovered = np.flatnonzero(open_[start])
    clique = [start, *uncovered[-1:]] if len(uncovered) else [start]
    fits = alike[clique].all(axis=0)
    while fits.any():
        nearest = int(np.flatnonzero(fits)[np.abs(np.flatnonzero(fits) - start).argmin()])
        clique.append(nearest)
        fits &= alike[nearest]
    return sorted(clique)


def _square(models: list[str], contests: pd.DataFrame, of: pd.Series, mirrored: pd.Series) -> Floats:
    """A number of each pair of models as a square, rows against columns; NaN on the diagonal."""
    place = {name: i for i, name in enumerate(models)}
    a, b = (contests[side].map(place).to_numpy() for side in ("model_a", "model_b"))
    square = np.full((len(models), len(models)), np.nan)
    square[a, b], square[b, a] = of, mirrored
    return square


def _groups(models: list[str], value: Floats, contests: pd.DataFrame, alpha: float) -> list[str]:
    differ = _square(models, contests, contests["p_holm"], contests["p_holm"]) < alpha
    order = [i for i in np.argsort(-value, kind="stable") if not np.isnan(value[i])]
    shown = letters([models[i] for i in order], differ[np.ix_(order, order)])
    by_model = dict(zip(order, shown, strict=True))
    return [by_model.get(i, "") for i in range(len(models))]


def rank_columns(value: Floats, difference: Floats, least: Floats, known: NDArray[np.bool_]) -> dict[str, pd.Series]:
    """Rank and the limits of its interval: rank, rank_low, rank_high, missing for models without a value.

    `value` (models,); `difference` and `least`, its lower limit, (models, models), row minus column, NaN where two
    models were not compared: then neither is better. `known`: the models whose value has an interval; the others
    have a rank without one.
    """
    from scipy.stats import rankdata

    scored = ~np.isnan(value)
    with np.errstate(invalid="ignore"):
        better = difference + _SHARE * (least - difference) > 0
    better &= scored & scored[:, None]
    own = np.zeros(len(value), int)
    own[scored] = rankdata(-np.round(value[scored], _DECIMALS), method="min")
    low = np.minimum(1 + better.sum(axis=0), own)  # a blank in one of two models can turn their difference round
    high = np.maximum(scored.sum() - better.sum(axis=1), own)
    shown = {"rank": (own, scored), "rank_low": (low, scored & known), "rank_high": (high, scored & known)}
    return {name: pd.Series(ranks).astype("Int64").where(mask) for name, (ranks, mask) in shown.items()}
