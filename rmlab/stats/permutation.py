"""Tests of paired differences: sign flips by prompt, and McNemar's where a prompt has one comparison."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rmlab import intervals
from rmlab.stats.grid import Codes, Floats

__all__ = ["holm", "mcnemar", "sign_flip"]

_FEW = 10  # below so many exceedances the resampled p is too coarse and Student's tail takes over
_CHUNK = 2000  # flips held in memory at once
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

    present = ~np.isnan(contribution)
    filled = np.nan_to_num(contribution)
    member = (strata[:, None] == np.arange(strata.max(initial=-1) + 1)).astype(np.float64)
    n = present.astype(np.float64) @ member
    scale = np.divide(n, n - 1, out=np.zeros_like(n), where=n > 1)
    squares = filled**2 @ member
    observed = _student(filled @ member, squares, n, scale)
    exceed = np.zeros(len(filled))
    for flipped in _flips(filled, strata, resamples, seed):
        exceed += (_student(flipped, squares, n, scale) >= observed * (1 - _TOLERANCE)).sum(axis=0)
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


def _flips(filled: Floats, strata: Codes, resamples: int, seed: int) -> Iterator[NDArray[np.float32]]:
    """Blocks (strata, flips, rows) of each stratum's sum of contributions with random signs."""
    rng = np.random.default_rng(seed)
    columns = np.ascontiguousarray(filled.T, dtype=np.float32)
    where = [np.flatnonzero(strata == s) for s in range(strata.max(initial=-1) + 1)]
    for start in range(0, resamples, _CHUNK):
        size = min(_CHUNK, resamples - start)
        bits = np.unpackbits(rng.integers(0, 256, (size, -(-len(strata) // 8)), np.uint8), axis=1, count=len(strata))
        signs = bits.astype(np.float32) * 2 - 1
        yield np.stack([signs[:, found] @ columns[found] for found in where])


def _student(sums: NDArray[np.floating], squares: Floats, n: Floats, scale: Floats) -> NDArray[np.floating]:
    """Absolute difference over its stratified error, from the sums (rows, strata) or (strata, flips, rows)."""
    if sums.ndim == 3:
        total, variance = np.zeros(sums.shape[1:], np.float32), np.zeros(sums.shape[1:], np.float32)
        for s, part in enumerate(sums):
            total += part
            variance += scale[:, s].astype(np.float32) * (
                squares[:, s].astype(np.float32) - part**2 / np.maximum(n[:, s], 1).astype(np.float32)
            )
    else:
        total, variance = sums.sum(axis=1), (scale * (squares - sums**2 / np.maximum(n, 1))).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.abs(total) / np.sqrt(np.maximum(variance, 0))
    return np.where(np.abs(total) > 0, ratio, 0.0)
