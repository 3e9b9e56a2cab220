"""Comparisons and the models that fail them: how hard each is, and which models err
alike.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri, owens_t

from rmlab.estimation.clustered import t_quantile
from rmlab.estimation.items import (
    Items,
    Ties,
    as_pairs,
    cluster_columns,
    comparison_items,
)
from rmlab.tables import ITEM, PROMPT, BoolArray, FloatArray, IntArray, check_option

MIN_COMPARISONS = 400
"""Comparisons below which a tetrachoric correlation says too little."""

_HALVINGS = 20  # of the interval from -1 to 1: to 2e-6
_LIMIT = 0.9999  # where the likelihood is still finite
# of independent models; from there on an outcome that was never seen is telling:
# exp(-3) = 0.05
_EXPECTED = 3.0


def item_difficulty(
    table: pd.DataFrame,
    *,
    unit: Literal["comparison", "prompt"] = "comparison",
    ties: Ties = "loss",
    common: bool = False,
) -> pd.DataFrame:
    """Difficulty and discrimination of every item.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs.
    unit : {"comparison", "prompt"}
        What an item is; a prompt's credit is the mean over its comparisons.
    ties : {"loss", "half", "drop"}
        What a tie earns.
    common : bool
        Whether to keep only the comparisons that all models have.

    Returns
    -------
    DataFrame
        One row per item, in the order of the table: benchmark, domain, id (and
        chosen_slot, rejected_slot, level where the unit is a comparison), subset,
        n_models (that answered), missing, difficulty (share of credit that the models
        fail to earn), discrimination (correlation over models between the credit on
        this item and the mean credit on the others: below 0 good models tend to fail;
        NaN where all earn the same), none_right, all_right.
    """
    check_option("unit", unit, ("comparison", "prompt"))
    items = _shared_comparisons(table, ties, common)
    frame, credit = items.frame[[*ITEM, "level", "subset"]], items.credit
    if unit == "prompt":
        first_rows = np.unique(items.prompt, return_index=True)[1]
        frame = frame.iloc[first_rows][[*PROMPT, "subset"]].reset_index(drop=True)
        credit = pd.DataFrame(credit.T).groupby(items.prompt).mean().to_numpy().T
    n_models = (~np.isnan(credit)).sum(axis=0)
    with np.errstate(invalid="ignore"):
        easiness = np.nansum(credit, axis=0) / n_models
    frame = frame.assign(
        n_models=n_models, missing=len(items.models) - n_models, difficulty=1 - easiness
    )
    frame = frame.assign(discrimination=_item_rest_correlation(credit))
    # Sums of 0, 1/2 and 1 are exact, so these need no tolerance.
    return frame.assign(none_right=easiness == 0, all_right=easiness == 1)


def _shared_comparisons(
    table: pd.DataFrame, ties: str, common: bool, cluster: str | None = None
) -> Items:
    """Comparisons, which must be the same for all models."""
    rows = as_pairs(table)
    items = comparison_items(rows, ties, cluster=cluster_columns(rows, cluster))
    items = items.common() if common else items
    items.require_same()
    return items


def _item_rest_correlation(credit: FloatArray) -> FloatArray:
    """Correlation over models (rows) of each item's credit with the mean credit on the
    other items.
    """
    answered = ~np.isnan(credit)
    filled = np.where(answered, credit, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        # Of the other items: with the item itself among them, even noise would
        # correlate with the total.
        rest_mean = (filled.sum(axis=1)[:, None] - filled) / (
            answered.sum(axis=1)[:, None] - answered
        )
        sides = [
            pd.DataFrame(np.where(answered, side, np.nan))
            for side in (credit, rest_mean)
        ]
        x, y = (side.sub(side.mean()).fillna(0.0).to_numpy() for side in sides)
        spread = np.sqrt((x**2).sum(axis=0) * (y**2).sum(axis=0))
        return np.where(spread > 1e-12, (x * y).sum(axis=0) / spread, np.nan)


def error_correlation(
    table: pd.DataFrame,
    *,
    ties: Ties = "loss",
    common: bool = False,
    cluster: str | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Tetrachoric correlation of the errors of every two models.

    The correlation of two normal variables that, cut where the two models' accuracies
    are, give the wins and losses seen. Unlike the plain (phi) correlation it is not
    capped where accuracies differ. It holds the difficulty of comparisons, which all
    models share.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs.
    ties : {"loss", "half", "drop"}
        What a tie earns; half a win counts as half in each outcome.
    common : bool
        Whether to keep only the comparisons that all models have.
    cluster : str, optional
        Column whose values the comparisons of a cluster share; default: the prompt.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    DataFrame
        A square, models by models, on comparisons that both models answered. Its
        `attrs` hold

        - `low`, `high`: squares of the same shape, the interval of each correlation;
        - `se`: a square of standard errors, clustered;
        - `n_pairs`: a square of comparisons;
        - `reason`: why numbers are missing.

        With fewer than 400 comparisons, or where a model wins all or nothing, the
        correlation is missing. Where an outcome (both right, only the first, only the
        second, both wrong) was never seen, the correlation is at its limit, 1 or -1,
        and has no standard error: read the interval.

    Notes
    -----
    The interval holds the correlations whose log-likelihood, at the accuracies seen, is
    near the largest; clusters widen it by their design effect.

    References
    ----------
    Pearson (1900); Plackett (1954) for the derivatives behind the standard error.
    """
    items = _shared_comparisons(table, ties, common, cluster)
    first, second = np.triu_indices(len(items.models), 1)
    pairs = _correlate_pairs(items, first, second, confidence)
    observed = ~np.isnan(items.credit)
    n_right = np.nansum(items.credit, axis=1)
    n_observed = observed.sum(axis=1)
    is_known = (n_observed >= MIN_COMPARISONS) & (n_right > 0) & (n_right < n_observed)
    diagonal = np.where(is_known, 1.0, np.nan)

    names = pd.Index(items.models, name="model")
    squares = {}
    for column, model_values in {
        "correlation": diagonal,
        "se": 0.0 * diagonal,
        "low": diagonal,
        "high": diagonal,
        "n_pairs": n_observed.astype(float),
    }.items():
        square = np.diag(model_values)
        square[first, second] = pairs[column]
        square[second, first] = pairs[column]
        squares[column] = pd.DataFrame(square, index=names, columns=names)
    reasons = dict.fromkeys(filter(None, pairs["reason"]))
    frame = squares.pop("correlation")
    frame.attrs = squares | {"reason": "; ".join(reasons)}
    return frame


def _correlate_pairs(
    items: Items, first: IntArray, second: IntArray, confidence: float
) -> pd.DataFrame:
    """One row per pair of models: correlation, se, low, high, n_pairs, reason."""
    observed = (~np.isnan(items.credit)).astype(float)
    credit = np.nan_to_num(items.credit)
    both_right = (credit @ credit.T)[first, second]
    right_a = (credit @ observed.T)[first, second]
    right_b = (observed @ credit.T)[first, second]
    n = (observed @ observed.T)[first, second]

    has_spread = (right_a > 0) & (right_a < n) & (right_b > 0) & (right_b < n)
    reason = np.full(len(n), "", object)
    reason[~has_spread] = "a model wins all or nothing"
    reason[n < MIN_COMPARISONS] = f"fewer than {MIN_COMPARISONS} comparisons"
    known = np.flatnonzero(reason == "")
    only_a = (right_a - both_right)[known]
    only_b = (right_b - both_right)[known]
    counts = np.stack(
        [
            both_right[known],
            only_a,
            only_b,
            n[known] - both_right[known] - only_a - only_b,
        ]
    )
    cuts = ndtri(np.stack([counts[0] + counts[1], counts[0] + counts[2]]) / n[known])
    never_seen = np.any(counts <= 0, axis=0)
    correlation = _tetrachoric(counts)

    spreads = []
    for place, pair in enumerate(known):
        answers = _common_answers(items, first[pair], second[pair])
        if never_seen[place]:
            spreads.append(_unknown_spread(answers))
        else:
            spreads.append(
                _clustered_spread(answers, correlation[place], cuts[:, place])
            )
    se = np.array([spread.se for spread in spreads])
    design_effect = np.array([spread.design_effect for spread in spreads])
    df = np.array([spread.df for spread in spreads])
    deviance = t_quantile(df, confidence) ** 2 * design_effect
    low, high = _likelihood_limits(counts, cuts, correlation, deviance)
    reason[known[never_seen]] = (
        "an outcome was never seen: a correlation has an interval only"
    )

    columns = np.full((4, len(n)), np.nan)
    columns[:, known] = correlation, se, low, high
    frame = pd.DataFrame(
        dict(zip(("correlation", "se", "low", "high"), columns, strict=True))
    )
    return frame.assign(n_pairs=n, reason=reason)


def normal_below(h: FloatArray, k: FloatArray, correlation: FloatArray) -> FloatArray:
    """P(x <= h, y <= k) of two standard normal variables, by Owen's T function (Owen
    1956).
    """
    # At zero the slopes are infinite; a step that no digit shows avoids 0 / 0.
    h, k = (np.where(np.abs(cut) < 1e-12, 1e-12, cut) for cut in (h, k))
    root = np.sqrt(1 - correlation**2)
    triangles = owens_t(h, (k / h - correlation) / root) + owens_t(
        k, (h / k - correlation) / root
    )
    return np.asarray(
        (ndtr(h) + ndtr(k)) / 2 - triangles - np.where(h * k < 0, 0.5, 0.0)
    )


def _tetrachoric(counts: FloatArray) -> FloatArray:
    """Correlation of each pair of models, from counts of both right, only the first,
    only the second, both wrong.
    """
    both_right, only_a, only_b, both_wrong = counts
    right_a = both_right + only_a
    right_b = both_right + only_b
    wrong_a = only_b + both_wrong
    wrong_b = only_a + both_wrong
    independent = np.stack(
        [right_a * right_b, right_a * wrong_b, wrong_a * right_b, wrong_a * wrong_b]
    )
    is_empty = counts <= 0
    is_telling = is_empty & (independent / counts.sum(axis=0) >= _EXPECTED)

    shares = counts + 0.5 * is_empty
    shares = shares / shares.sum(axis=0)
    cut_a = ndtri(shares[0] + shares[1])
    cut_b = ndtri(shares[0] + shares[2])
    end = np.full(len(cut_a), _LIMIT)
    correlation = _bisect(
        lambda middle: normal_below(cut_a, cut_b, middle) < shares[0], -end, end
    )
    correlation = np.where(is_telling[1] | is_telling[2], 1.0, correlation)
    return np.where(is_telling[0] | is_telling[3], -1.0, correlation)


def _likelihood_limits(
    counts: FloatArray, cuts: FloatArray, correlation: FloatArray, deviance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Ends of the correlations whose deviance from the best is at most `deviance`."""
    end = np.full(len(correlation), _LIMIT)
    best = np.clip(correlation, -end, end)
    largest = _log_likelihood(counts, cuts, best)

    def is_outside(middle: FloatArray) -> BoolArray:
        return np.asarray(
            2 * (largest - _log_likelihood(counts, cuts, middle)) > deviance
        )

    low = _bisect(is_outside, -end, best)
    high = _bisect(lambda middle: ~is_outside(middle), best, end)
    # Where no value next to 1 or -1 is outside, the end is the limit itself.
    low = np.where(is_outside(-end), low, -1.0)
    high = np.where(is_outside(end), high, 1.0)
    return low, high


def _log_likelihood(
    counts: FloatArray, cuts: FloatArray, correlation: FloatArray
) -> FloatArray:
    """Of the four outcomes, at the accuracies seen."""
    both_right = normal_below(cuts[0], cuts[1], correlation)
    right_a, right_b = ndtr(cuts)
    shares = np.stack(
        [
            both_right,
            right_a - both_right,
            right_b - both_right,
            1 - right_a - right_b + both_right,
        ]
    )
    # An outcome next to the impossible may come out below zero.
    return np.asarray((counts * np.log(np.maximum(shares, 1e-300))).sum(axis=0))


def _bisect(
    is_below: Callable[[FloatArray], BoolArray], low: FloatArray, high: FloatArray
) -> FloatArray:
    """Where `is_below` turns from true to false, for all pairs at once."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = is_below(middle)
        low = np.where(below, middle, low)
        high = np.where(below, high, middle)
    return (low + high) / 2


class _Answers(NamedTuple):
    """Credit of two models (2, comparisons) on the comparisons that both answered, and
    the cluster of each.
    """

    credit: FloatArray
    cluster: IntArray


class _Spread(NamedTuple):
    """Spread of one correlation over clusters of comparisons.

    `design_effect` is how many times the variance is that of independent comparisons.
    """

    se: float
    design_effect: float
    df: float


def _common_answers(items: Items, first: int, second: int) -> _Answers:
    credit = items.credit[[first, second]]
    answered = ~np.isnan(credit).any(axis=0)
    cluster = np.unique(items.cluster[answered], return_inverse=True)[1]
    return _Answers(credit[:, answered], cluster)


def _unknown_spread(answers: _Answers) -> _Spread:
    """Where no outcome deviates: the comparisons of a cluster count as one."""
    sizes = np.bincount(answers.cluster)
    return _Spread(np.nan, float((sizes**2).sum() / sizes.sum()), len(sizes) - 1.0)


def _clustered_spread(
    answers: _Answers, correlation: float, cuts: FloatArray
) -> _Spread:
    """By the delta method (Plackett 1954): the influence of each comparison, summed by
    cluster.
    """
    root = np.sqrt(1 - correlation**2)
    slopes = ndtr((cuts[::-1] - correlation * cuts) / root)
    density = np.exp(-(cuts @ cuts - 2 * correlation * cuts.prod()) / (2 * root**2)) / (
        2 * np.pi * root
    )
    product = answers.credit.prod(axis=0)
    deviation = answers.credit - answers.credit.mean(axis=1, keepdims=True)
    residual = product - product.mean() - slopes @ deviation

    sums = np.bincount(answers.cluster, residual)
    variance = (sums**2).sum() * len(sums) / max(len(sums) - 1, 1)
    design_effect = max(variance / (residual**2).sum(), 1.0)
    # Clusters that deviate much are few where most comparisons are won: they are the
    # ones that count.
    df = (sums**2).sum() ** 2 / (sums**4).sum()
    return _Spread(
        float(np.sqrt(variance) / (len(product) * density)),
        float(design_effect),
        float(df),
    )
