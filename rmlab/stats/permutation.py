"""Tests of paired differences: sign flips by prompt, and McNemar's where a prompt has one comparison."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rmlab import intervals
from rmlab.stats.grid import Codes, Floats

__all__ = ["holm", "mcnemar", "sign_flip"]

_FEW = 10  # below so many exceedances the resampled p is too coarse and Student's tail takes over
_CHUNK = 5000  # flips held in memory at once
_FLAT = 1e-5  # a variance below this share of its largest value is rounding noise
_LARGE = 1e9  # stands for an infinite statistic: every prompt differs by the same
_TOLERANCE = 1e-4  # relative: flips that give the same statistic must not lose to float32 rounding


def sign_flip(contribution: Floats, strata: Codes, *, resamples: int = 10_000, seed: int = 0) -> Floats:
    """Two-sided p of each row of `contribution` (rows, prompts): what each prompt adds to a paired difference.

    If two models are exchangeable, the sign of each prompt's difference is a coin toss. The statistic is the
    difference over its error clustered by prompt and stratified, so that the test also holds where only the means
    are equal (Janssen 1997; Chung and Romano 2013). p = (1 + exceedances) / (1 + flips). Where fewer than 10 flips
    exceed, p is taken from the tail of Student's t, but never below 2^(1 - n), the smallest p that n prompts with a
    difference can give; so Holm over many pairs of models can still tell them apart. All rows share the flips.
    """
    from scipy.special import stdtr

    if resamples < 1:
        raise ValueError(f"resamples: {resamples!r}; allowed: a whole number from 1, for example 10_000")
    present = ~np.isnan(contribution)
    filled = np.nan_to_num(contribution)
    member = (strata[:, None] == np.arange(strata.max(initial=-1) + 1)).astype(np.float64)
    n = present.astype(np.float64) @ member
    scale = np.divide(n, n - 1, out=np.zeros_like(n), where=n > 1)
    squares = filled**2 @ member
    known, drift = (scale * squares).sum(axis=1), scale / np.maximum(n, 1)  # variance = known - sum(drift * sums^2)
    sums = filled @ member
    variance = known - (drift * sums**2).sum(axis=1)
    variance = np.where(variance > _FLAT * known, variance, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        observed = np.where(sums.sum(axis=1) == 0, 0.0, np.abs(sums.sum(axis=1)) / np.sqrt(variance))
    exceed = np.zeros(len(filled))
    for total, correction in _flips(filled, strata, drift, resamples, seed):
        spread = known.astype(np.float32) - correction
        spread[spread < _FLAT * known] = 0
        bar = np.minimum(observed * (1 - _TOLERANCE), _LARGE).astype(np.float32) ** 2
        exceed += (total**2 >= bar * spread).sum(axis=0)
    p = (1 + exceed) / (1 + resamples)
    freedom = intervals.stratified_error(contribution, strata)[1]
    tail = 2 * stdtr(np.maximum(np.nan_to_num(freedom, nan=1.0), 1), -observed)
    floor = 2.0 ** (1 - (filled != 0).sum(axis=1))
    p = np.where(exceed < _FEW, np.maximum(np.minimum(tail, _FEW / (1 + resamples)), floor), p)
    return np.where((squares.sum(axis=1) == 0), np.where(present.any(axis=1), 1.0, np.nan), np.minimum(p, 1.0))


def mcnemar(only_a: NDArray[np.intp], only_b: NDArray[np.intp]) -> Floats:
    """Exact two-sided p of McNemar's test from the comparisons that only one of two models wins.

    Twice the binomial tail of the smaller count at one half, at most 1 (as statsmodels' `mcnemar(exact=True)`).

    >>> mcnemar(np.array([1, 5, 0]), np.array([9, 5, 0])).round(4).tolist()
    [0.0215, 1.0, 1.0]
    """
    from scipy.stats import binom

    p: Floats = np.minimum(2 * binom.cdf(np.minimum(only_a, only_b), only_a + only_b, 0.5), 1.0)
    return p


def holm(p: Floats) -> Floats:
    """Holm's step-down adjustment of a family of p values; NaN stays NaN and does not count.

    >>> holm(np.array([0.01, np.nan, 0.04, 0.03])).tolist()
    [0.03, nan, 0.06, 0.06]
    """
    adjusted = np.full(len(p), np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    steps = np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1))
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def _flips(
    filled: Floats, strata: Codes, drift: Floats, resamples: int, seed: int
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Blocks (flips, rows) of the differences with random signs, and of what their strata take off the variance."""
    rng = np.random.default_rng(seed)
    order = np.argsort(strata, kind="stable")  # a stratum is then a slice, which needs no copy
    columns = np.ascontiguousarray(filled.T[order], dtype=np.float32)
    weight = drift.T.astype(np.float32)
    ends = np.concatenate([[0], np.cumsum(np.bincount(strata, minlength=len(weight)))])
    for start in range(0, resamples, _CHUNK):
        size = min(_CHUNK, resamples - start)
        bits = np.unpackbits(rng.integers(0, 256, (size, -(-len(strata) // 8)), np.uint8), axis=1, count=len(strata))
        signs = bits.astype(np.float32) * 2 - 1
        total, correction = np.zeros((2, size, len(filled)), np.float32)
        for left, right, own in zip(ends[:-1], ends[1:], weight, strict=True):
            part = signs[:, left:right] @ columns[left:right]
            total += part
            np.square(part, out=part)
            part *= own
            correction += part
        yield total, correction
