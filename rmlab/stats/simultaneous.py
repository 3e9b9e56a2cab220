"""Many differences at once: how large the largest one gets by chance (max-t), by Gaussian multipliers.

Draw one standard normal per prompt, weigh the influences with it, and every model's value moves as it would from one
sample of prompts to the next; the largest standardised difference of a draw is what chance alone can do.
Chernozhukov, Chetverikov and Kato (2013); Romano and Wolf (2005) for the step-down; for ranks Mogstad, Romano, Shaikh
and Wilhelm (2024).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["DRAWS", "Critical", "adjusted_p", "critical_values", "signed_z"]

Codes = NDArray[np.intp]
Floats = NDArray[np.float64]

DRAWS = 2000
_BLOCK = 500  # draws held in memory at once
_PAIRS = 40_000_000  # numbers held in memory at once
_SEED = 0


class Critical(NamedTuple):
    """Critical values of z, (models,): of a model against any other in either direction, and of any other above it."""

    both: Floats
    above: Floats


def signed_z(value: Floats, p: Floats) -> Floats:
    """z of each difference from its own p, with the sign of the difference: exact tests keep their exactness."""
    from scipy.special import ndtri

    z: Floats = np.sign(value) * -ndtri(np.maximum(p, 1e-300) / 2)
    return np.where(p >= 1, 0.0, z)


def adjusted_p(influence: Floats, p: Floats, value: Floats, first: Codes, second: Codes) -> Floats:
    """p of each difference adjusted over all of them, step-down: the chance of a statistic so large among the rest.

    Never below the unadjusted p; NaN stays NaN and does not count.
    """
    known = np.flatnonzero(~np.isnan(p))
    result = np.full(len(p), np.nan)
    if not len(known):
        return result
    size = np.abs(signed_z(value[known], p[known]))
    order = np.argsort(size, kind="stable")  # the smallest first: the running maximum is then that of the rest
    a, b = first[known][order], second[known][order]
    se = _errors(influence, a, b)
    exceed = np.zeros(len(known))
    for drawn in _draws(influence, max(1, min(_BLOCK, _PAIRS // max(len(known), 1)))):
        largest = np.maximum.accumulate(np.abs(drawn[:, a] - drawn[:, b]) / se, axis=1)
        exceed += (largest >= size[order].astype(np.float32)).sum(axis=0)
    share = (1 + exceed) / (1 + DRAWS)
    stepped = np.maximum.accumulate(share[::-1])[::-1]  # a smaller statistic never has the smaller p
    result[known[order]] = np.maximum(stepped, p[known][order])
    return result


def critical_values(influence: Floats, *, confidence: float = 0.95) -> Critical:
    """For each model the largest standardised difference with any other that chance reaches in `confidence` of draws.

    At least the quantile of the unadjusted test, so that what is clear here is significant in `compare`.
    """
    from scipy.special import ndtri

    size = len(influence)
    both, above = (np.zeros((DRAWS, size), np.float32) for _ in range(2))
    everyone = np.indices((size, size)).reshape(2, -1)
    se = _errors(influence, *everyone).reshape(size, size)
    start = 0
    for drawn in _draws(influence, _BLOCK):
        rows = slice(start, start + len(drawn))
        for model in range(size):
            gap = (drawn - drawn[:, [model]]) / se[model]
            both[rows, model] = np.abs(gap).max(axis=1, initial=0)
            above[rows, model] = gap.max(axis=1, initial=0)
        start += len(drawn)
    least = float(ndtri(0.5 + confidence / 2))
    found = (np.quantile(x, confidence, axis=0, method="higher").astype(np.float64) for x in (both, above))
    return Critical(*(np.maximum(x, least) for x in found))


def _draws(influence: Floats, block: int) -> Iterator[NDArray[np.float32]]:
    """Blocks (draws, models) of what the values do by chance; the seed is fixed, so equal tables give equal answers."""
    rng = np.random.default_rng(_SEED)
    effect = np.ascontiguousarray(influence.T, dtype=np.float32)
    for start in range(0, DRAWS, block):
        size = min(block, DRAWS - start)
        yield rng.standard_normal((size, len(effect)), dtype=np.float32) @ effect


def _errors(influence: Floats, a: Codes, b: Codes) -> NDArray[np.float32]:
    """Error of each difference under the draws; infinite where two models are the same, which are never apart."""
    product = influence @ influence.T
    own = np.diag(product)
    variance = own[a] + own[b] - 2 * product[a, b]
    flat = variance <= 1e-10 * (own[a] + own[b])
    return np.where(flat, np.inf, np.sqrt(np.where(flat, 1.0, variance))).astype(np.float32)
