"""Differences of two models' numbers: one error, one test, and the interval that goes with it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmlab.metrics import errors
from rmlab.metrics.estimate import Estimate
from rmlab.stats.mcnemar import mcnemar, melded_interval

__all__ = ["FLAT", "Difference", "differences", "holm", "is_exact"]

Codes = NDArray[np.intp]
Floats = NDArray[np.float64]

FLAT = 1e-10  # a variance below this share of the two models' own is rounding noise
_ROUNDING = 1e-12  # contributions that differ by less are equal: sums in another order


class Difference(NamedTuple):
    """Differences of pairs of models, all (pairs,): a minus b, its error, interval, p, and which test gave them."""

    value: Floats
    se: Floats
    low: Floats
    high: Floats
    p: Floats
    exact: NDArray[np.bool_]
    reason: list[str]


def differences(
    one: Estimate, first: Codes, second: Codes, *, confidence: float = 0.95, limits: bool = True
) -> Difference:
    """Difference of a number between pairs of models, each on its own items: never pairwise deletion.

    Where every prompt has one item in one pool, earning 0 or 1, and both models answered all: McNemar's exact test with
    the melded interval that agrees with it (Fay and Lumbard 2021). Else Student's t of the difference over its CR2
    error. Its degrees of freedom come from the strata and are at most one less than the clusters whose contributions
    differ: a thousand prompts without a difference say nothing of the error of a few that have one. Without any spread
    p and interval reckon with what may lie unseen. Both come from one error and one df, so the interval excludes zero
    exactly where p < 1 - confidence. `limits=False` leaves out the intervals of exact tests, which take most of the
    time where there are thousands.
    """
    value = one.value[first] - one.value[second]
    differing = _differing(one, first, second)
    variance, freedom = _variance(one, first, second, differing)
    n_differing = differing.sum(axis=1)
    # Four equal steps among a thousand prompts that agree: a plain t calls that p = 0.046, with three degrees of
    # freedom it is 0.14, and sign flips of four give 0.125.
    freedom = np.minimum(freedom, n_differing - 1)
    still = (n_differing <= 1) | (variance == 0)  # no spread to divide by
    se = np.sqrt(variance)
    half, p = errors.t_quantile(freedom, confidence) * se, _tail(value, se, freedom)
    half[still], p[still] = _unseen(one, first[still], second[still], value[still], n_differing[still], confidence)
    low, high = value - half, value + half
    exact = is_exact(one, first, second)
    if exact.any():
        p[exact], low[exact], high[exact] = _exact(one, first[exact], second[exact], confidence, limits)
    reason = [one.reason[a] or one.reason[b] for a, b in zip(first, second, strict=True)]
    # Added to what the reason withholds; the difference itself is missing where one of the two values is.
    withheld = np.where([r == "" for r in reason], 0.0, np.nan)
    # No difference is larger than the range of a credit: 1, and 1.02 in RewardBench 2's Ties.
    low, high = np.maximum(low, -one.range), np.minimum(high, one.range)
    return Difference(value, se + withheld, low + withheld, high + withheld, p + withheld, exact, reason)


def holm(p: Floats) -> Floats:
    """Holm's step-down adjustment of a family of p values; NaN stays NaN and does not count.

    >>> holm(np.array([0.01, np.nan, 0.04, 0.03])).tolist()
    [0.03, nan, 0.06, 0.06]
    """
    adjusted = np.full(len(p), np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    # The smallest p times m, the next times m - 1 ...; a later one is never below an earlier one (Holm 1979).
    steps = np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1))
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def _variance(one: Estimate, first: Codes, second: Codes, differing: Codes) -> tuple[Floats, Floats]:
    """Variance of each difference and its degrees of freedom: sums over strata, from the models' covariances."""
    total, spent, plain = np.zeros(len(first)), np.zeros(len(first)), np.zeros(len(first))
    # Only the models that occur: one product of all of them serves every pair, where pairs by clusters would not fit.
    models, place = np.unique(np.concatenate([first, second]), return_inverse=True)
    a, b = place[: len(first)], place[len(first) :]
    influence = one.influence[models]
    for stratum, members in enumerate(_members(one)):
        part = influence[:, members]
        product = part @ part.T  # (models, models): covariances, as influences sum to about zero
        own = np.diag(product)
        both = own[a] + own[b]
        variance = both - 2 * product[a, b]  # var(a) + var(b) - 2 cov(a, b)
        variance = np.where(variance > FLAT * both, variance, 0.0)
        # With answers missing each model has its own clusters; the fewer decide. One degree is left, or the sum below
        # would divide by zero; where it is not true, `still` takes over.
        freedom = np.minimum(*(one.stratum_freedom[side, stratum] for side in (first, second)))
        freedom = np.minimum(freedom, np.maximum(differing[:, stratum] - 1, 1))
        total += variance
        plain += freedom
        spent += np.divide(variance**2, freedom, out=np.zeros_like(variance), where=(variance > 0) & (freedom > 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        # Satterthwaite's for a sum of variances; without any spread the plain sum, so that there is a number.
        return total, np.where(spent > 0, total**2 / spent, plain)


def _members(one: Estimate) -> list[Codes]:
    """Clusters of each stratum."""
    order = np.argsort(one.stratum, kind="stable")
    return np.split(order, np.searchsorted(one.stratum[order], np.arange(1, one.variance.shape[1])))


def _differing(one: Estimate, first: Codes, second: Codes) -> Codes:
    """Number of clusters in each stratum that give two models something different: (pairs, strata)."""
    members = _members(one)
    found = np.zeros((len(first), len(members)), np.intp)
    # One model at a time: all pairs by all clusters at once would be hundreds of megabytes for 150 models.
    pieces = [np.ascontiguousarray(one.contribution[:, columns]) for columns in members]
    for model in np.unique(first):
        rows = np.flatnonzero(first == model)
        for stratum, piece in enumerate(pieces):
            found[rows, stratum] = (np.abs(piece[second[rows]] - piece[model]) > _ROUNDING).sum(axis=1)
    return found


def _unseen(
    one: Estimate, first: Codes, second: Codes, value: Floats, differing: Codes, confidence: float
) -> tuple[Floats, Floats]:
    """Half-width and p where the clusters show no spread: all give the same difference, or all but one give none.

    Clusters that behave otherwise may lie unseen, at a rate up to the upper limit of "none of n", each by as much as a
    cluster can change. Where all n prompts go one way that is McNemar's p, 2 / 2^n; and p is never below what flipping
    the signs of the clusters that differ could give.
    """
    # Clusters of a model, and the weight of its largest; of both models the choice that claims least.
    n, step = (one.share > 0).sum(axis=1).astype(float), one.share.max(axis=1, initial=0.0)
    n, step = np.minimum(n[first], n[second]), np.maximum(step[first], step[second])
    # All clusters at once, each from the difference seen to the other end of its range.
    most = n * step * (one.range + np.abs(value))
    half = errors.unseen_rate(n, confidence) * most
    with np.errstate(divide="ignore", invalid="ignore"):
        # `unseen_rate` solved for its tail: the p at which the half-width is just the difference seen.
        p = 2 * np.maximum(1 - np.abs(value) / most, 0) ** n
    # k clusters have 2^k patterns of signs, of which the two extreme ones are as far from zero.
    p = np.minimum(np.maximum(p, 2.0 ** (1 - np.minimum(differing, 1000))), 1.0)  # 2^-1000 is still a float
    # Where sign flips raised p to the level or above, the interval must hold zero as well.
    return np.where(p < 1 - confidence, half, np.maximum(half, np.abs(value))), p


def _tail(value: Floats, se: Floats, freedom: Floats) -> Floats:
    from scipy.special import stdtr

    with np.errstate(divide="ignore", invalid="ignore"):  # without freedom or error: `_unseen` gives these p
        # Any positive number serves as df there.
        found: Floats = 2 * stdtr(np.maximum(freedom, 1e-3), -np.abs(value) / se)
    return found


def is_exact(one: Estimate, first: Codes, second: Codes) -> NDArray[np.bool_]:
    """Whether a difference is McNemar's: one item a cluster in one pool, earning 0 or 1, all answered by both."""
    if not one.single:
        return np.zeros(len(first), np.bool_)
    # A single item contributes its credit times the cluster's share: nothing or all of it.
    own = (one.contribution == 0) | (np.abs(one.contribution - one.share) < _ROUNDING)
    # Answered every prompt that any model answered; with a gap the two differ in n, and the t test compares means.
    whole = (one.n_pairs == (one.share > 0).any(axis=0).sum()) & own.all(axis=1)
    return np.asarray(whole[first] & whole[second])


def _exact(
    one: Estimate, first: Codes, second: Codes, confidence: float, limits: bool
) -> tuple[Floats, Floats, Floats]:
    won = (one.contribution > 0).astype(np.float32)  # single precision counts exactly up to 16 million prompts
    both = won @ won.T
    wins = np.diag(both)  # `both` (models, models): prompts that both win
    only_a, only_b = (np.rint(wins[side] - both[first, second]).astype(np.intp) for side in (first, second))
    p = mcnemar(only_a, only_b)
    if not limits:
        return p, np.full(len(p), np.nan), np.full(len(p), np.nan)
    return p, *melded_interval(only_a, only_b, one.n_pairs[first], confidence=confidence)
