"""Differences of two models' numbers: one error, one test, and the interval that goes
with it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from rmlab.estimation.clustered import (
    MIN_PROMPTS,
    TOO_FEW,
    ClusterSums,
    Estimate,
    Strata,
    add_pair,
    count_effective,
    limits_of,
    sum_clusters,
    t_quantile,
)
from rmlab.estimation.estimate import is_small, sum_number
from rmlab.estimation.items import Items
from rmlab.estimation.weights import Number
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
    items: Items,
    numbers: Sequence[Number],
    result: Estimate,
    first: IntArray,
    second: IntArray,
    *,
    place: int = 0,
    confidence: float = 0.95,
) -> Difference:
    """Difference of a number between pairs of models, on what both have answered.

    Parameters
    ----------
    items : Items
        What the models have answered.
    numbers : sequence of Number
        The numbers.
    result : Estimate
        The numbers of each model, with the sums by cluster of the one at `place`.
    first, second : ndarray
        (pairs,): places of the models; `first` in ascending order.
    place : int
        Place of the number.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    Difference
    """
    number = numbers[place]
    reason_of_first = result.reason[first, place]
    reason_of_second = result.reason[second, place]
    reason = np.where(reason_of_first == "", reason_of_second, reason_of_first)
    value = result.value[first, place] - result.value[second, place]
    strata = pair_strata(result.sums[place], first, second)
    # Models with the same gaps are compared on what they have.
    lacks = items.lacks[:, number.rows]
    pattern = np.unique(lacks, axis=0, return_inverse=True)[1].ravel()
    differ = np.flatnonzero(pattern[first] != pattern[second])
    if len(differ):
        answered, has_few = _strata_of_answered(
            items, number, first[differ], second[differ]
        )
        for of_all, of_answered in zip(strata, answered, strict=True):
            of_all[differ] = of_answered
        value[differ] = answered.value.sum(axis=1)
        reason[differ[has_few & (reason[differ] == "")]] = TOO_FEW
    return paired_test(value, strata, reason, confidence)


def paired_test(
    value: FloatArray,
    strata: Strata,
    reason: NDArray[np.object_],
    confidence: float = 0.95,
) -> Difference:
    """Test paired differences, and take their limits; none where there is a reason.

    Student's t of the paired clusters, after a cluster that only the first model wins
    and one that only the second wins are added: where no cluster differs, some may lie
    unseen. The interval excludes zero exactly where p < 1 - confidence; `se` is that of
    the clusters alone.
    """
    center, adjusted_se, df = add_pair(value, strata)
    half = t_quantile(df, confidence) * adjusted_se
    lowest, highest = limits_of(strata)
    withheld = np.where(reason == "", 0.0, np.nan)
    return Difference(
        value=value,
        se=np.sqrt(strata.variance.sum(axis=1)) + withheld,
        low=np.maximum(np.minimum(center - half, value), lowest) + withheld,
        high=np.minimum(np.maximum(center + half, value), highest) + withheld,
        p=2 * stdtr(df, -np.abs(center) / adjusted_se) + withheld,
        reason=reason,
        strata=strata,
    )


def pair_strata(sums: ClusterSums, first: IntArray, second: IntArray) -> Strata:
    """What each stratum contributes to differences of rows, each pair on its own
    values.
    """
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
        # With ties dropped each model has its own clusters: the fewer decide.
        df=np.minimum(strata.df[first], strata.df[second]),
        n_effective=np.minimum(strata.n_effective[first], strata.n_effective[second]),
        low=strata.low[first] - strata.high[second],
        high=strata.high[first] - strata.low[second],
    )


def _strata_of_answered(
    items: Items, number: Number, first: IntArray, second: IntArray
) -> tuple[Strata, NDArray[np.bool_]]:
    """What each stratum contributes to differences of models on what both answered, and
    whether a part has too few prompts of these.

    """
    lacks = items.lacks
    strata = []
    has_few = []
    for model in np.unique(first):
        others = second[first == model]
        of_model = np.where(lacks[others], np.nan, items.credit[model])
        of_others = np.where(lacks[model], np.nan, items.credit[others])
        n = len(others)
        rows = np.concatenate([np.full(n, model), others])
        credit = np.concatenate([of_model, of_others])
        of_rows = number
        if len(number.weight) > 1:
            of_rows = replace(number, weight=number.weight[rows])
        sums = sum_number(items, of_rows, credit)
        places = np.arange(n)
        strata.append(pair_strata(sums, places, places + n))
        is_few = is_small(of_rows, sums).any(axis=1)
        is_few = np.broadcast_to(is_few, 2 * n)
        has_few.append(is_few[:n] | is_few[n:])
    together = [np.concatenate(parts) for parts in zip(*strata, strict=True)]
    return Strata(*together), np.concatenate(has_few)


def mean_difference(
    difference: FloatArray, cluster: IntArray, confidence: float = 0.95
) -> Difference:
    """Mean of paired differences from -1 to 1, with the test of `paired_test`.

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
    sums = sum_clusters(
        difference[None],
        pool=np.zeros(len(difference), np.intp),
        cluster=cluster,
        weight=np.ones((1, 1)),
        bounds=np.array([[-1.0, 1.0]]),
    )
    reason = np.where(sums.n_clusters[:, 0] < MIN_PROMPTS, TOO_FEW, "").astype(object)
    return paired_test(sums.value, sums.strata, reason, confidence)


def detectable_differences(strata: Strata, level: float, power: float) -> FloatArray:
    """The differences that `paired_test` finds with a probability.

    The two models keep the number of prompts on which they differ, and the difference
    is alike in every stratum. See "Power" in docs/statistics.md.

    Parameters
    ----------
    strata : Strata
        Differences of pairs of models.
    level : float
        Level of the two-sided test.
    power : float
        Probability that the difference is found.

    Returns
    -------
    ndarray
        (pairs,), above zero; NaN without degrees of freedom.
    """
    width = strata.high - strata.low
    share = width / width.sum(axis=1, keepdims=True)
    k_of_all = count_effective(strata)
    shrinkage = k_of_all / (k_of_all + 2)  # of the center towards zero

    difference = np.zeros(len(k_of_all))
    for _ in range(_ROUNDS):
        expected = _suppose(strata, difference[:, None] * share)
        _, se, df = add_pair(difference, expected)
        spread = np.sqrt(expected.variance.sum(axis=1))
        t = stdtrit(df, 1 - level / 2)
        difference = t * se / shrinkage + ndtri(power) * spread
    return difference


def _suppose(strata: Strata, value: FloatArray) -> Strata:
    """The strata of models that differ on as many clusters, by other values."""
    k = strata.n_effective
    second_moment = strata.variance + strata.value**2 / k
    variance = np.maximum(second_moment - value**2 / k, 0.0)
    return strata._replace(value=value, variance=variance)


def equivalence_power(strata: Strata, margin: float, confidence: float) -> FloatArray:
    """How often the interval of two equal models lies within a margin, (rows,)."""
    equal = _suppose(strata, np.zeros_like(strata.value))
    _, se, df = add_pair(np.zeros(len(equal.value)), equal)
    room = margin - t_quantile(df, confidence) * se
    k = count_effective(strata)
    spread = np.sqrt(equal.variance.sum(axis=1)) * k / (k + 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        power = 2 * ndtr(room / spread) - 1
    return np.where(spread > 0, np.maximum(power, 0.0), (room > 0).astype(float))


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


def smallest_margins(difference: Difference, confidence: float) -> FloatArray:
    """The least margin within which two one-sided tests show each difference to lie.

    Both the interval and a score test have to reject a difference of the margin.
    """
    strata = difference.strata
    center, se, df = add_pair(difference.value, strata)
    t = t_quantile(df, confidence)
    interval_margin = np.abs(center) + t * se

    size = np.abs(difference.value)
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
