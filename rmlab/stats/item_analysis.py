"""Difficulty of comparisons, and correlation of the errors of models."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri, owens_t

from rmlab.estimation.clustered import t_quantile
from rmlab.estimation.items import (
    CREDIT_OF_TIE,
    Items,
    Ties,
    as_pairs,
    cluster_columns,
    comparison_items,
)
from rmlab.tables import ITEM, PROMPT, BoolArray, FloatArray, IntArray, check_option

MIN_COMPARISONS = 400
"""Comparisons below which a tetrachoric correlation says too little."""

_NEVER_SEEN = "an outcome was never seen: a correlation has an interval only"

_HALVINGS = 20  # of the interval from -1 to 1: to 2e-6
_LIMIT = 0.9999  # where the likelihood is still finite
# An outcome that independent models would show as often is telling where it was never
# seen: exp(-3) = 0.05.
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
        One row per item, in the order of the table, with the columns

        - benchmark, domain, id, and chosen_slot, rejected_slot, level where the unit is
          a comparison;
        - subset;
        - n_models: models that answered, and missing;
        - difficulty: share of credit that the models fail to earn;
        - discrimination: correlation over models between the credit on this item and
          the mean credit on the others; below 0 good models tend to fail; NaN where all
          earn the same;
        - none_right, all_right.
    """
    check_option("unit", unit, ("comparison", "prompt"))
    check_option("ties", ties, tuple(CREDIT_OF_TIE))
    items = _shared_comparisons(table, ties, common)
    if unit == "prompt":
        first_rows = np.unique(items.prompt, return_index=True)[1]
        frame = items.frame[[*PROMPT, "subset"]].iloc[first_rows]
        frame = frame.reset_index(drop=True)
        by_prompt = pd.DataFrame(items.credit.T).groupby(items.prompt)
        credit = by_prompt.mean().to_numpy().T
    else:
        frame = items.frame[[*ITEM, "level", "subset"]]
        credit = items.credit

    n_models = (~np.isnan(credit)).sum(axis=0)
    with np.errstate(invalid="ignore"):
        easiness = np.nansum(credit, axis=0) / n_models
    return frame.assign(
        n_models=n_models,
        missing=len(items.models) - n_models,
        difficulty=1 - easiness,
        discrimination=_item_rest_correlation(credit),
        # Sums of 0, 1/2 and 1 are exact, so these need no tolerance.
        none_right=easiness == 0,
        all_right=easiness == 1,
    )


def _shared_comparisons(
    table: pd.DataFrame, ties: str, common: bool, cluster: str | None = None
) -> Items:
    """Comparisons, which must be the same for all models."""
    rows = as_pairs(table)
    items = comparison_items(rows, ties, cluster=cluster_columns(rows, cluster))
    if common:
        items = items.common()
    items.require_same()
    return items


def _item_rest_correlation(credit: FloatArray) -> FloatArray:
    """Correlation over models of an item's credit with the mean credit on the others.

    With the item itself among them, even noise would correlate with the total.
    """
    answered = ~np.isnan(credit)
    earned = np.where(answered, credit, 0.0)
    rest_total = earned.sum(axis=1, keepdims=True) - earned
    n_rest = answered.sum(axis=1, keepdims=True) - answered
    with np.errstate(invalid="ignore", divide="ignore"):
        rest_mean = np.where(answered, rest_total / n_rest, np.nan)

    x = _center(credit)
    y = _center(rest_mean)
    covariance = (x * y).sum(axis=0)
    squares_x = (x**2).sum(axis=0)
    squares_y = (y**2).sum(axis=0)
    spread = np.sqrt(squares_x * squares_y)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(spread > 1e-12, covariance / spread, np.nan)


def _center(values: FloatArray) -> FloatArray:
    """Deviations from the mean of each column; 0 where a value is NaN."""
    frame = pd.DataFrame(values)
    return frame.sub(frame.mean()).fillna(0.0).to_numpy()


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
    on_diagonal = {
        "correlation": diagonal,
        "se": 0.0 * diagonal,
        "low": diagonal,
        "high": diagonal,
        "n_pairs": n_observed.astype(float),
    }
    squares = {}
    for column, model_values in on_diagonal.items():
        square = np.diag(model_values)
        square[first, second] = pairs[column]
        square[second, first] = pairs[column]
        squares[column] = pd.DataFrame(square, index=names, columns=names)
    frame = squares.pop("correlation")
    reasons = pairs.loc[pairs["reason"] != "", "reason"].unique()
    frame.attrs = squares | {"reason": "; ".join(reasons)}
    return frame


def _correlate_pairs(
    items: Items, first: IntArray, second: IntArray, confidence: float
) -> pd.DataFrame:
    """One row per pair of models: correlation, se, low, high, n_pairs, reason.

    Section "Shared errors" of docs/statistics.md.
    """
    counts = _count_outcomes(items, first, second)
    n = counts.sum(axis=0)
    n_right = np.stack([counts[0] + counts[1], counts[0] + counts[2]])
    has_spread = np.all((n_right > 0) & (n_right < n), axis=0)
    reason = np.full(len(n), "", object)
    reason[~has_spread] = "a model wins all or nothing"
    reason[n < MIN_COMPARISONS] = f"fewer than {MIN_COMPARISONS} comparisons"

    known = np.flatnonzero(reason == "")
    counts = counts[:, known]
    cuts = ndtri(n_right[:, known] / n[known])
    never_seen = np.any(counts <= 0, axis=0)
    correlation = _tetrachoric(counts)

    spreads = []
    for place, pair in enumerate(known):
        answers = _common_answers(items, first[pair], second[pair])
        if never_seen[place]:
            spread = _unknown_spread(answers)
        else:
            spread = _clustered_spread(answers, correlation[place], cuts[:, place])
        spreads.append(spread)
    se = np.array([spread.se for spread in spreads])
    design_effect = np.array([spread.design_effect for spread in spreads])
    df = np.array([spread.df for spread in spreads])
    reason[known[never_seen]] = _NEVER_SEEN

    deviance = t_quantile(df, confidence) ** 2 * design_effect
    low, high = _likelihood_limits(counts, cuts, correlation, deviance)

    frame = pd.DataFrame(
        {"correlation": correlation, "se": se, "low": low, "high": high}
    )
    frame = frame.set_axis(known).reindex(range(len(n)))
    frame["n_pairs"] = n
    frame["reason"] = reason
    return frame


def _count_outcomes(items: Items, first: IntArray, second: IntArray) -> FloatArray:
    """Counts of both right, only the first, only the second, both wrong (4, pairs)."""
    observed = (~np.isnan(items.credit)).astype(float)
    credit = np.nan_to_num(items.credit)
    both_right = (credit @ credit.T)[first, second]
    only_a = (credit @ observed.T)[first, second] - both_right
    only_b = (observed @ credit.T)[first, second] - both_right
    n = (observed @ observed.T)[first, second]
    both_wrong = n - both_right - only_a - only_b
    return np.stack([both_right, only_a, only_b, both_wrong])


def normal_below(h: FloatArray, k: FloatArray, correlation: FloatArray) -> FloatArray:
    """P(x <= h, y <= k) of two standard normal variables, by Owen's T (Owen 1956)."""
    # At zero the slopes are infinite; a step that no digit shows avoids 0 / 0.
    h = np.where(np.abs(h) < 1e-12, 1e-12, h)
    k = np.where(np.abs(k) < 1e-12, 1e-12, k)
    root = np.sqrt(1 - correlation**2)
    slope_h = (k / h - correlation) / root
    slope_k = (h / k - correlation) / root
    triangles = owens_t(h, slope_h) + owens_t(k, slope_k)
    opposite = np.where(h * k < 0, 0.5, 0.0)
    return np.asarray((ndtr(h) + ndtr(k)) / 2 - triangles - opposite)


def _tetrachoric(counts: FloatArray) -> FloatArray:
    """Correlation of each pair of models.

    `counts` are those of both right, only the first, only the second, both wrong.
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

    def is_below(middle: FloatArray) -> BoolArray:
        return np.asarray(normal_below(cut_a, cut_b, middle) < shares[0])

    end = np.full(len(cut_a), _LIMIT)
    correlation = _bisect(is_below, -end, end)
    no_both_right, no_only_a, no_only_b, no_both_wrong = is_telling
    correlation = np.where(no_only_a | no_only_b, 1.0, correlation)
    return np.where(no_both_right | no_both_wrong, -1.0, correlation)


def _likelihood_limits(
    counts: FloatArray, cuts: FloatArray, correlation: FloatArray, deviance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Ends of the correlations whose deviance from the best is at most `deviance`."""
    end = np.full(len(correlation), _LIMIT)
    best = np.clip(correlation, -end, end)
    largest = _log_likelihood(counts, cuts, best)

    def is_outside(middle: FloatArray) -> BoolArray:
        distance = largest - _log_likelihood(counts, cuts, middle)
        return np.asarray(2 * distance > deviance)

    def is_inside(middle: FloatArray) -> BoolArray:
        return ~is_outside(middle)

    low = _bisect(is_outside, -end, best)
    high = _bisect(is_inside, best, end)
    # Where no value next to 1 or -1 is outside, the end is the limit itself.
    low = np.where(is_outside(-end), low, -1.0)
    high = np.where(is_outside(end), high, 1.0)
    return low, high


def _log_likelihood(
    counts: FloatArray, cuts: FloatArray, correlation: FloatArray
) -> FloatArray:
    """Of the four outcomes, at the accuracies seen."""
    right_a, right_b = ndtr(cuts)
    both_right = normal_below(cuts[0], cuts[1], correlation)
    only_a = right_a - both_right
    only_b = right_b - both_right
    both_wrong = 1 - right_a - right_b + both_right
    shares = np.stack([both_right, only_a, only_b, both_wrong])
    # An outcome next to the impossible may come out below zero.
    log_shares = np.log(np.maximum(shares, 1e-300))
    return np.asarray((counts * log_shares).sum(axis=0))


def _bisect(
    is_below: Callable[[FloatArray], BoolArray], low: FloatArray, high: FloatArray
) -> FloatArray:
    """Where `is_below` turns from true to false, for all pairs at once.

    From SciPy 1.15 on, `scipy.optimize.elementwise.find_root` does the same.
    """
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = is_below(middle)
        low = np.where(below, middle, low)
        high = np.where(below, high, middle)
    return (low + high) / 2


class _Answers(NamedTuple):
    """The comparisons that both models answered.

    `credit` is (2, comparisons); `cluster` numbers the cluster of each comparison.
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
    mean_size = (sizes**2).sum() / sizes.sum()  # of a comparison's cluster
    return _Spread(se=np.nan, design_effect=float(mean_size), df=len(sizes) - 1.0)


def _clustered_spread(
    answers: _Answers, correlation: float, cuts: FloatArray
) -> _Spread:
    """By the delta method (Plackett 1954): influences of comparisons, by cluster."""
    root = np.sqrt(1 - correlation**2)
    slopes = ndtr((cuts[::-1] - correlation * cuts) / root)
    # The bivariate normal density at the cuts.
    distance = cuts @ cuts - 2 * correlation * cuts.prod()
    density = np.exp(-distance / (2 * root**2)) / (2 * np.pi * root)

    both_right = answers.credit.prod(axis=0)
    deviation = answers.credit - answers.credit.mean(axis=1, keepdims=True)
    residual = both_right - both_right.mean() - slopes @ deviation

    sums = np.bincount(answers.cluster, residual)
    n_clusters = len(sums)
    total = (sums**2).sum()
    variance = total * n_clusters / max(n_clusters - 1, 1)
    design_effect = max(variance / (residual**2).sum(), 1.0)
    # Clusters that deviate much are few where most comparisons are won: they are the
    # ones that count.
    df = total**2 / (sums**4).sum()
    se = np.sqrt(variance) / (len(residual) * density)
    return _Spread(float(se), float(design_effect), float(df))
