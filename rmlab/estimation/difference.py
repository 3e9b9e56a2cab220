"""Differences of two models' numbers: what a test of them finds, and within which
margin they show two models to be equal.
"""

import numpy as np
import scipy

from rmlab.estimation.clustered import (
    ClusterSums,
    add_clusters,
    count_effective,
    t_quantile,
)
from rmlab.tables import FloatArray

_ROUNDS = 40  # each leaves about a quarter of the error with 30 prompts, less with more


def detectable_differences(sums: ClusterSums, level: float, power: float) -> FloatArray:
    """The differences that the test of `compare` finds with a probability.

    The two models keep the number of prompts on which they differ, and the difference
    is alike in every stratum. See "Power" in docs/statistics.md.

    Parameters
    ----------
    sums : ClusterSums
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
    width = sums.high - sums.low
    share = width / width.sum(axis=1, keepdims=True)
    k_of_all = count_effective(sums)
    shrinkage = k_of_all / (k_of_all + 2)  # of the center towards zero

    difference = np.zeros(len(k_of_all))
    for _ in range(_ROUNDS):
        expected = _suppose(sums, difference[:, None] * share)
        _, se, df = add_clusters(expected)
        spread = np.sqrt(expected.variance.sum(axis=1))
        t = scipy.special.stdtrit(df, 1 - level / 2)
        difference = t * se / shrinkage + scipy.special.ndtri(power) * spread
    return difference


def _suppose(sums: ClusterSums, part: FloatArray) -> ClusterSums:
    """The sums of models that differ on as many clusters, with other values of the
    strata.
    """
    k = sums.n_effective
    second_moment = sums.variance + sums.part**2 / k
    variance = np.maximum(second_moment - part**2 / k, 0.0)
    return sums._replace(value=part.sum(axis=1), part=part, variance=variance)


def equivalence_power(
    sums: ClusterSums, margin: float, confidence: float
) -> FloatArray:
    """How often the interval of two equal models lies within a margin, (rows,)."""
    equal = _suppose(sums, np.zeros_like(sums.part))
    _, se, df = add_clusters(equal)
    room = margin - t_quantile(df, confidence) * se
    k = count_effective(sums)
    spread = np.sqrt(equal.variance.sum(axis=1)) * k / (k + 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        power = 2 * scipy.special.ndtr(room / spread) - 1
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
    # below an earlier one (Holm 1979). Not statsmodels' multipletests, which collects
    # garbage in every call: 0.1 s.
    steps = np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1))
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def smallest_margins(sums: ClusterSums, confidence: float) -> FloatArray:
    """The least margin within which two one-sided tests show each difference to lie.

    Both the interval and a score test have to reject a difference of the margin.
    """
    center, se, df = add_clusters(sums)
    t = t_quantile(df, confidence)
    interval_margin = np.abs(center) + t * se

    size = np.abs(sums.value)
    score_margin = size + _score_half(sums, t, confidence)
    margin = np.maximum(score_margin, interval_margin)
    _, largest = sums.limits()
    return np.minimum(margin, largest)


def _score_half(sums: ClusterSums, t: FloatArray, confidence: float) -> FloatArray:
    """How far beyond a difference a score test rejects, (rows,) (Tango 1998).

    A true difference L implies that prompts differ: with s the variance of the clusters
    and u the largest that one of them contributes, the variance at L is
    (s + sqrt(s^2 + 4 u^2 L (L - value))) / 2. So x = L - value, which is t errors, is
    the largest root of x^3 - t^2 (s + t^2 u^2) x - t^4 u^2 value.
    """
    s = sums.variance.sum(axis=1)
    half_scale = (sums.high - sums.low) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        u = (half_scale / sums.n_effective).max(axis=1)
    linear = t**2 * (s + t**2 * u**2)
    constant = t**4 * u**2 * np.abs(sums.value)

    # Viete's root of a cubic without a square.
    radius = np.sqrt(linear / 3)
    with np.errstate(divide="ignore", invalid="ignore"):
        angle = np.emath.arccos(constant / (2 * radius**3)) / 3
    root = 2 * radius * np.cos(angle).real

    # Rule of three: fewer than 3 expected prompts are all unseen in more than 5 %.
    least = -np.log((1 - confidence) / 2) * u
    return np.asarray(np.maximum(root, least))
