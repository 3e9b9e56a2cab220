"""Differences of two models' numbers: one error, one test, and the interval that goes with it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from rmlab.metrics.estimate import ClusterSums, Estimate, indicator, satterthwaite, t_quantile
from rmlab.metrics.items import FloatArray
from rmlab.tables import IntArray

FLAT = 1e-10  # a variance below this share of the two models' own is rounding noise
_ROUNDING = 1e-12  # contributions that differ by less are equal: sums in another order


class Difference(NamedTuple):
    """Differences of pairs of models, all (pairs,): a minus b, its error, limits and p, and why there are none."""

    value: FloatArray
    se: FloatArray
    low: FloatArray
    high: FloatArray
    p: FloatArray
    reason: NDArray[np.object_]


def differences(
    estimate: Estimate, first: IntArray, second: IntArray, *, number: int = 0, confidence: float = 0.95
) -> Difference:
    """Difference of a number between pairs of models, each on its own items.

    Student's t of the paired clusters. The degrees of freedom are Satterthwaite's over the strata, at most the number
    of clusters that differ less one: a thousand prompts without a difference say nothing of the error of a few that
    have one. Without any spread, p and interval reckon with differences that may lie unseen. The interval excludes zero
    exactly where p < 1 - confidence.

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
    sums, value = estimate.clusters[number], estimate.value[first, number] - estimate.value[second, number]
    variance, df, n_differing = _paired_variance(sums, first, second)
    # Four equal steps among a thousand prompts that agree: a plain t calls that p = 0.046, with three degrees of
    # freedom it is 0.14, and sign flips of four give 0.125.
    df, se = np.minimum(df, n_differing - 1), np.sqrt(variance)
    half = t_quantile(df, confidence) * se
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * stdtr(np.maximum(df, 1e-3), -np.abs(value) / se)
    flat = (n_differing <= 1) | (variance == 0)
    if flat.any():
        half[flat], p[flat] = _unseen(sums, first[flat], second[flat], value[flat], n_differing[flat], confidence)
    reason = estimate.reason[first, number]
    reason = np.where(reason == "", estimate.reason[second, number], reason)
    withheld = np.where(reason == "", 0.0, np.nan)
    low, high = np.maximum(value - half, -sums.width), np.minimum(value + half, sums.width)
    return Difference(value, se + withheld, low + withheld, high + withheld, p + withheld, reason)


def holm(p: FloatArray) -> FloatArray:
    """Adjust p values by Holm's step-down method; NaN stays NaN and does not count.

    >>> holm(np.array([0.01, np.nan, 0.04, 0.03])).tolist()
    [0.03, nan, 0.06, 0.06]
    """
    adjusted = np.full(len(p), np.nan)
    with_p = np.flatnonzero(~np.isnan(p))
    order = with_p[np.argsort(p[with_p], kind="stable")]
    # The smallest p times m, the next times m - 1, and so on; a later one is never below an earlier one (Holm 1979).
    steps = np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1))
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def _paired_variance(sums: ClusterSums, first: IntArray, second: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Variance of each difference, its degrees of freedom, and the number of clusters that differ."""
    variances, dfs, differing = np.zeros((3, len(first), sums.df.shape[1]))
    in_stratum = indicator(sums.stratum, sums.df.shape[1])
    # One model at a time: all pairs by all clusters at once would be hundreds of megabytes for 150 models.
    for model in np.unique(first):
        rows = np.flatnonzero(first == model)
        differing[rows] = (np.abs(sums.contribution[second[rows]] - sums.contribution[model]) > _ROUNDING) @ in_stratum
    # Only the models that occur: one product of all of them serves every pair, where pairs by clusters would not fit.
    models, places = np.unique(np.concatenate([first, second]), return_inverse=True)
    a, b = places[: len(first)], places[len(first) :]
    for stratum in range(sums.df.shape[1]):
        influence = sums.influence[models][:, sums.stratum == stratum]
        covariance = influence @ influence.T
        separate_variance = np.diag(covariance)[a] + np.diag(covariance)[b]
        variance = separate_variance - 2 * covariance[a, b]
        variances[:, stratum] = np.where(variance > FLAT * separate_variance, variance, 0.0)
        df = np.broadcast_to(sums.df[:, stratum], len(sums.influence))
        # With answers missing each model has its own clusters: the fewer decide.
        dfs[:, stratum] = np.minimum(np.minimum(df[first], df[second]), np.maximum(differing[:, stratum] - 1, 1))
    return variances.sum(axis=1), satterthwaite(variances, dfs), differing.sum(axis=1).astype(np.intp)


def _unseen(
    sums: ClusterSums, first: IntArray, second: IntArray, value: FloatArray, n_differing: IntArray, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Half-width and p where the clusters show no spread: all give the same difference, or all but one give none.

    Clusters that behave otherwise may lie unseen, at a rate up to the upper limit of "none of n", each by as much as a
    cluster can change. Where all n prompts go one way that is McNemar's p, 2 / 2^n; and p is never below what flipping
    the signs of the clusters that differ could give.
    """
    # Clusters of a model, and the weight of its largest; of two models the choice that claims least.
    n, step = (sums.share > 0).sum(axis=1).astype(float), sums.share.max(axis=1, initial=0.0)
    n, step = np.minimum(n[first], n[second]), np.maximum(step[first], step[second])
    # All clusters at once, each from the difference seen to the other end of its range.
    reach = n * step * (sums.width + np.abs(value))
    with np.errstate(divide="ignore", invalid="ignore"):
        half = (1 - ((1 - confidence) / 2) ** (1 / n)) * reach
        p = 2 * np.maximum(1 - np.abs(value) / reach, 0) ** n
    # k clusters have 2^k patterns of signs, of which the two extreme ones are as far from zero.
    p = np.minimum(np.maximum(p, 2.0 ** (1 - np.minimum(n_differing, 1000))), 1.0)  # 2^-1000 is still a float
    # Where sign flips raised p to the level or above, the interval must hold zero as well.
    return np.where(p < 1 - confidence, half, np.maximum(half, np.abs(value))), p
