"""Many differences at once: how large the largest one gets by chance (max-t), by Gaussian multipliers.

Draw one standard normal per prompt, weigh the influences with it, and every model's value moves as it would from one
sample of prompts to the next; the largest standardised difference of a draw is what chance alone can do.
Chernozhukov, Chetverikov and Kato (2013); Romano and Wolf (2005) for the step-down; for ranks Mogstad, Romano, Shaikh
and Wilhelm (2024).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmlab.stats.difference import FLAT

__all__ = [
    "DRAWS",
    "Chance",
    "adjusted_p",
    "best_p",
    "chance_of",
    "largest_quantile",
    "lead_quantile",
    "marginal_p",
    "signed_z",
]

Codes = NDArray[np.intp]
Floats = NDArray[np.float64]

# A p near 0.05 then has a Monte-Carlo error of half a point.
DRAWS = 2000
_BLOCK = 500  # draws whose normals, or whose pairs, are held in memory at once
_PAIRS = 40_000_000  # numbers held in memory at once
_SEED = 0


class Chance(NamedTuple):
    """What the models' values do by chance: `drawn` (draws, models) and the error of each difference under the draws,
    `se` (models, models), infinite where two models are the same: those are never apart."""

    drawn: NDArray[np.float32]
    se: NDArray[np.float32]


def chance_of(influence: Floats) -> Chance:
    """Draw once for all families; the seed is fixed, so equal tables give equal answers."""
    rng = np.random.default_rng(_SEED)
    effect = np.ascontiguousarray(influence.T, dtype=np.float32)  # (clusters, models)
    block = max(1, min(_BLOCK, _PAIRS // max(len(effect), 1)))
    # Single precision: a draw needs three digits, and the products are the whole cost.
    parts = [
        rng.standard_normal((min(block, DRAWS - start), len(effect)), dtype=np.float32) @ effect
        for start in range(0, DRAWS, block)
    ]
    # The errors in double precision: a small difference of large covariances would be lost in single.
    product = influence @ influence.T
    own = np.diag(product)
    both = own[:, None] + own
    variance = both - 2 * product
    flat = variance <= FLAT * both
    se = np.where(flat, np.inf, np.sqrt(np.where(flat, 1.0, variance)))
    return Chance(np.concatenate(parts), se.astype(np.float32))


def signed_z(value: Floats, p: Floats) -> Floats:
    """z of each difference from its own p, with the sign of the difference: exact tests keep their exactness."""
    from scipy.special import ndtri

    # Not value / se: small samples and exact tests have fatter tails than the normal, and their p already knows.
    z: Floats = np.sign(value) * -ndtri(np.maximum(p, 1e-300) / 2)  # a p of 0 would be infinitely far
    return np.where(p >= 1, 0.0, z)


def adjusted_p(chance: Chance, p: Floats, value: Floats, first: Codes, second: Codes) -> Floats:
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
    se, reached = chance.se[a, b], size[order].astype(np.float32)
    exceed = np.zeros(len(known))
    block = max(1, min(_BLOCK, _PAIRS // len(known)))
    for start in range(0, DRAWS, block):
        drawn = chance.drawn[start : start + block]
        # (draws, pairs), pairs in ascending order.
        largest = np.maximum.accumulate(np.abs(drawn[:, a] - drawn[:, b]) / se, axis=1)
        exceed += (largest >= reached).sum(axis=0)
    result[known[order]] = _stepped(exceed, p[known][order])
    return result


def marginal_p(chance: Chance, p: Floats, z: Floats) -> Floats:
    """p of each model (rows) against every other (columns), adjusted over the pairs of the row's model alone.

    `p` and `z` are squares. With the draws and the order of `adjusted_p`, but fewer pairs to be the largest of, so it
    is never above that: what is clear over all pairs is clear for each model.
    """
    size = len(p)
    result = np.ones((size, size))
    for model in range(size):
        others = np.delete(np.arange(size), model)
        order = others[np.argsort(np.abs(z[model, others]), kind="stable")]
        gap = np.abs(chance.drawn[:, order] - chance.drawn[:, [model]]) / chance.se[model, order]
        reached = np.abs(z[model, order]).astype(np.float32)
        exceed = (np.maximum.accumulate(gap, axis=1) >= reached).sum(axis=0)
        result[model, order] = _stepped(exceed.astype(np.float64), p[model, order])
    return result


def best_p(chance: Chance, p: Floats, z: Floats) -> Floats:
    """p of "no model is better than this one" for each: chance of so large a lead (one-sided) of any other over it.

    `z` (models, models) is above 0 where the row's model is ahead of the column's. Never below the two-sided p of the
    largest lead, so that nobody is out who is not significantly behind somebody in `compare`.
    """
    size = len(p)
    result = np.ones(size)
    for model in range(size) if size > 1 else ():
        others = np.delete(np.arange(size), model)
        leader = others[z[others, model].argmax()]
        if z[leader, model] <= 0:
            continue
        lead = _largest_lead(chance, model, others)
        share = (1 + (lead >= np.float32(z[leader, model])).sum()) / (1 + DRAWS)
        result[model] = max(share, p[leader, model])
    return result


def lead_quantile(chance: Chance, model: int, *, level: float) -> float:
    """z that the largest lead of any model over this one stays below in `level` of draws, if all are equal."""
    from scipy.special import ndtri

    others = np.delete(np.arange(len(chance.se)), model)
    lead = _largest_lead(chance, model, others)
    # "higher": a quantile that a draw has, on the safe side. At least that of one comparison alone, so that what is
    # clear here is significant in `compare`.
    return max(float(np.quantile(lead, level, method="higher")), float(ndtri(level)))


def _largest_lead(chance: Chance, model: int, others: Codes) -> NDArray[np.float32]:
    """The largest standardised lead of any of the others over the model, in each draw: (draws,)."""
    # Signed, not absolute: only a lead over this model speaks against its being the best.
    leads = (chance.drawn[:, others] - chance.drawn[:, [model]]) / chance.se[model, others]
    largest: NDArray[np.float32] = leads.max(axis=1)
    return largest


def largest_quantile(chance: Chance, level: float) -> float:
    """|z| that the largest difference of all pairs stays below in `level` of draws, if all models are equal."""
    a, b = np.triu_indices(len(chance.se), 1)
    block = max(1, min(_BLOCK, _PAIRS // max(len(a), 1)))
    largest = [
        (np.abs(chance.drawn[s : s + block, a] - chance.drawn[s : s + block, b]) / chance.se[a, b]).max(
            axis=1, initial=0
        )
        for s in range(0, DRAWS, block)
    ]
    return float(np.quantile(np.concatenate(largest), level, method="higher"))


def _stepped(exceed: Floats, p: Floats) -> Floats:
    """Adjusted p of statistics in ascending order, from how many draws exceed each among it and the smaller ones."""
    share = (1 + exceed) / (1 + DRAWS)  # the table is one more draw, so no p is zero
    stepped = np.maximum.accumulate(share[::-1])[::-1]  # a smaller statistic never has the smaller p
    return np.maximum(stepped, p)
