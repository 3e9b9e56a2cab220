"""Differences of two models' numbers: one error, one test, and the interval that goes
with it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit

from rmlab.estimation.clustered import (
    MIN_PROMPTS,
    TOO_FEW,
    ClusterSums,
    Strata,
    adjust,
    sum_weighted_means,
    t_quantile,
)
from rmlab.estimation.estimate import Estimate
from rmlab.tables import FloatArray, IntArray

FLAT = 1e-10  # a variance below this share of the two models' own is rounding noise
_ROUNDS = 40  # each leaves about a quarter of the error with 30 prompts, less with more


class Difference(NamedTuple):
    """Differences of pairs of models, all (pairs,): a minus b, its error, limits and p,
    and why there are none; and what each stratum contributes.
    """

    value: FloatArray
    se: FloatArray
    low: FloatArray
    high: FloatArray
    p: FloatArray
    reason: NDArray[np.object_]
    strata: Strata


def paired_differences(
    estimate: Estimate,
    first: IntArray,
    second: IntArray,
    *,
    number: int = 0,
    confidence: float = 0.95,
) -> Difference:
    """Difference of a number between pairs of models, each on its own items.

    Student's t of the paired clusters, after a cluster that only the first model wins
    and one that only the second wins are added to each stratum: where no cluster
    differs, some may lie unseen. The interval excludes zero exactly where p < 1 -
    confidence; `se` is that of the clusters alone.

    Parameters
    ----------
    estimate : Estimate
        Numbers with their sums by cluster (`contrasts=True`).
    first, second : ndarray
        (pairs,): places of the models.
    number : int
        Place of the number.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    Difference
    """
    value = estimate.value[first, number] - estimate.value[second, number]
    strata = _difference_by_stratum(estimate.clusters[number], first, second)
    reason_of_first = estimate.reason[first, number]
    reason_of_second = estimate.reason[second, number]
    reason = np.where(reason_of_first == "", reason_of_second, reason_of_first)
    return _test_difference(value, strata, reason, confidence)


def mean_difference(
    difference: FloatArray, cluster: IntArray, confidence: float = 0.95
) -> Difference:
    """Mean of paired differences from -1 to 1, with the test of `differences`.

    Parameters
    ----------
    difference, cluster : ndarray
        (values,): the differences, NaN where missing, and the number of their cluster.
    confidence : float
        Coverage of the interval.

    Returns
    -------
    Difference
        (1,): one mean.
    """
    mean = sum_weighted_means(
        difference[None],
        pool=np.zeros(len(difference), np.intp),
        cluster=cluster,
        weight=np.ones((1, 1)),
        bounds=np.array([[-1.0, 1.0]]),
        confidence=confidence,
    )
    reason = np.where(mean.n_clusters[:, 0] < MIN_PROMPTS, TOO_FEW, "").astype(object)
    return _test_difference(mean.value, mean.sums.strata, reason, confidence)


def detectable_differences(
    estimate: Estimate,
    first: IntArray,
    second: IntArray,
    *,
    level: FloatArray,
    power: float,
) -> FloatArray:
    """The difference that the test of `paired_differences` finds with a probability.

    The two models keep the number of prompts on which they differ, and the difference
    is alike in every stratum. See "Power" in docs/statistics.md.

    Parameters
    ----------
    estimate : Estimate
        One number with its sums by cluster (`contrasts=[0]`).
    first, second : ndarray
        (pairs,): places of the models.
    level : ndarray
        (pairs,): level of each two-sided test.
    power : float
        Probability that the difference is found.

    Returns
    -------
    ndarray
        (pairs,), above zero; NaN without degrees of freedom.
    """
    strata = _difference_by_stratum(estimate.clusters[0], first, second)
    width = strata.high - strata.low
    share = width / width.sum(axis=1, keepdims=True)
    k = strata.n_effective
    k_of_all = 1 / (share**2 / k).sum(axis=1)
    shrinkage = k_of_all / (k_of_all + 2)  # of the center towards zero
    second_moment = strata.variance + strata.value**2 / k

    difference = np.zeros(len(first))
    for _ in range(_ROUNDS):
        value = difference[:, None] * share
        variance = np.maximum(second_moment - value**2 / k, 0.0)
        expected = strata._replace(value=value, variance=variance)
        tested = adjust(difference, expected, confidence=0.95)
        t = stdtrit(tested.df, 1 - level / 2)
        spread = np.sqrt(variance.sum(axis=1))
        difference = t * tested.se / shrinkage + ndtri(power) * spread
    return difference


def holm(p: FloatArray) -> FloatArray:
    """Adjust p values by Holm's step-down method; NaN stays NaN and does not count.

    >>> holm(np.array([0.01, np.nan, 0.04, 0.03])).tolist()
    [0.03, nan, 0.06, 0.06]
    """
    adjusted = np.full(len(p), np.nan)
    with_p = np.flatnonzero(~np.isnan(p))
    order = with_p[np.argsort(p[with_p], kind="stable")]
    # The smallest p times m, the next times m - 1, and so on; a later one is never
    # below an earlier one (Holm 1979).
    steps = np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1))
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def _difference_by_stratum(
    sums: ClusterSums, first: IntArray, second: IntArray
) -> Strata:
    """What each stratum contributes to the differences."""
    strata = sums.strata
    n_strata = strata.df.shape[1]
    variance = np.zeros((len(first), n_strata))
    # Only the models that occur: one product of all of them serves every pair, where
    # pairs by clusters would not fit.
    models, places = np.unique(np.concatenate([first, second]), return_inverse=True)
    a = places[: len(first)]
    b = places[len(first) :]
    for stratum in range(n_strata):
        influence = sums.influence[models][:, sums.stratum == stratum]
        covariance = influence @ influence.T
        own_variance = np.diag(covariance)
        separate_variance = own_variance[a] + own_variance[b]
        paired_variance = separate_variance - 2 * covariance[a, b]
        is_noise = paired_variance <= FLAT * separate_variance
        variance[:, stratum] = np.where(is_noise, 0.0, paired_variance)

    return Strata(
        value=strata.value[first] - strata.value[second],
        variance=variance,
        # With answers missing each model has its own clusters: the fewer decide.
        df=np.minimum(strata.df[first], strata.df[second]),
        n_effective=np.minimum(strata.n_effective[first], strata.n_effective[second]),
        low=strata.low[first] - strata.high[second],
        high=strata.high[first] - strata.low[second],
    )


def _test_difference(
    value: FloatArray, strata: Strata, reason: NDArray[np.object_], confidence: float
) -> Difference:
    """Test each difference, and take its limits; none where there is a reason."""
    adjusted = adjust(value, strata, confidence)
    low = np.maximum(adjusted.low, strata.low.sum(axis=1))
    high = np.minimum(adjusted.high, strata.high.sum(axis=1))
    p = 2 * stdtr(adjusted.df, -np.abs(adjusted.center) / adjusted.se)
    se = np.sqrt(strata.variance.sum(axis=1))

    withheld = np.where(reason == "", 0.0, np.nan)
    return Difference(
        value=value,
        se=se + withheld,
        low=low + withheld,
        high=high + withheld,
        p=p + withheld,
        reason=reason,
        strata=strata,
    )


def smallest_margins(difference: Difference, confidence: float) -> FloatArray:
    """The least margin within which two one-sided tests show each difference to lie.

    Both the interval and a score test have to reject a difference of the margin.
    """
    strata = difference.strata
    adjusted = adjust(difference.value, strata, confidence)
    interval_margin = np.maximum(-adjusted.low, adjusted.high)

    size = np.abs(difference.value)
    t = t_quantile(adjusted.df, confidence)
    score_margin = size + _score_half(size, strata, t, confidence)

    margin = np.maximum(score_margin, interval_margin)
    lowest = strata.low.sum(axis=1)
    highest = strata.high.sum(axis=1)
    largest = np.maximum(-lowest, highest)
    withheld = np.where(difference.reason == "", 0.0, np.nan)
    return np.asarray(np.minimum(margin, largest) + withheld)


def _score_half(
    value: FloatArray, strata: Strata, t: FloatArray, confidence: float
) -> FloatArray:
    """How far beyond a value (rows,) a score test rejects (Tango 1998).

    A true difference L implies that prompts differ: with s the variance of the clusters
    and u the largest that one of them contributes, the variance at L is
    (s + sqrt(s^2 + 4 u^2 L (L - value))) / 2. So x = L - value, which is t errors, is
    the largest root of x^3 - t^2 (s + t^2 u^2) x - t^4 u^2 value.
    """
    s = strata.variance.sum(axis=1)
    half_scale = (strata.high - strata.low) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        u = (half_scale / strata.n_effective).max(axis=1)
    linear = t**2 * (s + t**2 * u**2)
    constant = t**4 * u**2 * value

    # Viete's root of a cubic without a square.
    radius = np.sqrt(linear / 3)
    with np.errstate(divide="ignore", invalid="ignore"):
        angle = np.emath.arccos(constant / (2 * radius**3)) / 3
    root = 2 * radius * np.cos(angle).real

    # Rule of three: fewer than 3 expected prompts are all unseen in more than 5 %.
    least = -np.log((1 - confidence) / 2) * u
    return np.asarray(np.maximum(root, least))
