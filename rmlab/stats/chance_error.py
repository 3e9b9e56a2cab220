"""The expected calibration error without the part that chance makes, and its interval."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["BinnedError", "binned_error"]

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

_DRAWS = 2000  # a tail of 2.5 % is then right to 0.35 points
_HALVINGS = 40  # of the bracket: to 1e-12 of its length


class BinnedError(NamedTuple):
    """Mean over bins of |accuracy - predicted|: as it is, without chance, and its interval."""

    plain: float
    debiased: float
    low: float
    high: float


def binned_error(residual: Floats, bins: Codes, prompt: Codes, n_bins: int, *, confidence: float = 0.95) -> BinnedError:
    """Of residuals (outcome minus predicted probability) in bins, clustered by prompt.

    Plain: sum over bins of |mean residual| * share of the comparisons (Guo and others 2017). The absolute value turns
    noise into error, so a calibrated model shows some, more with few comparisons and many bins (Kumar, Liang and Ma
    2019, section 4).
    Debiased: every prompt's residuals are added with the sign of the bin's sum over all *other* prompts. Where a bin is
    off this is the same sum; where it is not, the sign says nothing about the prompt and the expectation is zero,
    whatever the number of bins. So it may come out below zero, and lies a little below the truth where a bin is off by
    no more than its error. It is a jackknife of the sign; Kumar and others take the same cross products of squares.
    Interval: all errors at which the plain error seen would be neither too large nor too small a draw (a test at each
    end, inverted). Draws are the bins' errors with every prompt's residuals multiplied by a random normal number, and
    the pattern over bins is the one that was seen; for the upper end each bin of it is made larger by its own noise.
    Zero is in the interval unless calibration is rejected.
    """
    size = int(prompt.max(initial=-1)) + 1
    # (prompts, bins): residuals over the number of comparisons, so that a column adds up to the bin's share times its
    # mean residual.
    own = np.bincount(prompt * n_bins + bins, residual, size * n_bins).reshape(size, n_bins) / max(len(residual), 1)
    total = own.sum(axis=0)
    plain = float(np.abs(total).sum())
    debiased = float((own * np.sign(total - own)).sum())  # total - own: the bin without this prompt
    if size < 2:  # no other prompt to tell the sign, and no spread
        return BinnedError(plain, np.nan, np.nan, np.nan)
    # Normal numbers times residuals, summed over prompts, are normal: their covariance is all it takes to draw them.
    values, axes = np.linalg.eigh(own.T @ own)
    # (draws, bins). The seed is fixed: one table, one interval. Eigenvalues that are zero may come out just below it.
    noise = (np.random.default_rng(0).standard_normal((_DRAWS, n_bins)) * np.sqrt(np.maximum(values, 0.0))) @ axes.T
    # The sum of squares is a bin's variance: one that looks calibrated may be off by about one error, either way.
    filled = np.copysign(np.sqrt(total**2 + (own**2).sum(axis=0)), total)
    tail = (1 - confidence) / 2
    return BinnedError(
        plain, debiased, _end(total, noise, plain, tail, lower=True), _end(filled, noise, plain, tail, lower=False)
    )  # fmt: skip


def _end(pattern: Floats, noise: Floats, seen: float, tail: float, *, lower: bool) -> float:
    """The error along the pattern at which a share `tail` of draws is as large as the one seen, or as small."""

    def short_of_end(scale: float) -> bool:
        # As `plain` is made, of a model whose bins are off by `scale` times the pattern.
        drawn = np.abs(scale * pattern + noise).sum(axis=1)
        return bool((drawn >= seen).mean() < tail if lower else (drawn <= seen).mean() >= tail)

    length = float(np.abs(pattern).sum())
    # No error at all already explains what was seen, so the end is at zero.
    if not length or not short_of_end(0.0):
        return 0.0
    low, high = 0.0, 1.0
    # Draws grow with the scale, so doubling brackets the end and halving closes in on it.
    while short_of_end(high):
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if short_of_end(middle) else (low, middle)
    return high * length
