"""One function from items and weights to a value, its error and interval, and what each prompt does to it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmlab.items.columns import group_sums
from rmlab.items.grid import MISSING, NO_ROW, TIE, Codes, Floats, Items
from rmlab.items.weighting import Number
from rmlab.metrics import errors

__all__ = ["Estimate", "estimate", "values"]


_HIDDEN = 0.5  # of one more cluster at the far end of its range, unseen; chosen by benchmarks/coverage.py


class Estimate(NamedTuple):
    """One number of every model, and all that its error and that of any difference follow from.

    (models,): `value`, `se`, `freedom`, `low`, `high`, `n_prompts`, `n_pairs` (items counted), `n_ties`, `missing`
    (items without a score or verdict), `reason` (why there is no value or no interval, else ""). (models, clusters):
    `influence`, which sums to about zero, with the CR2 factor; `contribution`, which sums to the value; `share`, the
    weight of a cluster.
    `stratum` (clusters,) numbers the sets of clusters that share cells; `variance` and `stratum_freedom` are (models,
    strata). `single` says whether every cluster is one item of one pool: then a difference of credits 0 and 1 is
    McNemar's.
    """

    value: Floats
    se: Floats
    freedom: Floats
    low: Floats
    high: Floats
    influence: Floats
    contribution: Floats
    share: Floats
    stratum: Codes
    variance: Floats
    stratum_freedom: Floats
    single: bool
    range: float
    n_prompts: Codes
    n_pairs: Codes
    n_ties: Codes
    missing: Codes
    reason: list[str]


class _Blocks(NamedTuple):
    """Items of one cluster and one pool, summed: (models, blocks)."""

    cluster: Codes  # cluster of each block, in ascending order
    pool: Codes
    total: Floats
    n: Floats


def estimate(items: Items, number: Number, *, confidence: float = 0.95) -> Estimate:
    """Estimate a number for every model.

    value = sum over pools of weight * mean of the credits in the pool, NaN where a pool of some weight is empty. Where
    a part has fewer than 5 prompts there is no error and no interval. The interval joins the mid-p intervals of the
    strata (MOVER), so it has width where all is right, and lies inside the range of the credits.
    """
    errors.check_confidence(confidence)
    counted, used, size = number.pool >= 0, number.weight != 0, len(number.names)
    blocks, n, mean, value, reason = _means(items, number)
    influence, contribution, share = _by_cluster(blocks, number.weight, mean, n, items.n_clusters)
    stratum, n_strata = _strata(blocks, size, items.n_clusters)
    variance = group_sums(influence**2, stratum, n_strata)
    freedom = errors.freedom_of_strata(share, stratum, n_strata)
    few = _few(blocks, number, used)
    reason = [r or f for r, f in zip(reason, few, strict=True)]
    withheld = np.where([r == "" for r in reason], 0.0, np.nan)  # added to what a reason withholds
    low, high, width = _limits(
        items, number, blocks, value, influence, contribution, share, stratum, variance, freedom, confidence
    )
    counts = used[:, number.pool[counted]]
    outcome = np.where(counts, items.outcome[:, counted], NO_ROW)
    known = ~np.isnan(items.credit[:, counted]) & counts
    return Estimate(
        value=value,
        se=np.sqrt(variance.sum(axis=1)) + withheld,
        freedom=errors.total_freedom(variance, freedom),
        low=low + withheld,
        high=high + withheld,
        influence=influence,
        contribution=contribution,
        share=share,
        stratum=stratum,
        variance=variance,
        stratum_freedom=freedom,
        single=size == 1 and len(blocks.cluster) == int(counted.sum()),
        range=width,
        n_prompts=_n_prompts(items.prompt[counted], known),
        n_pairs=known.sum(axis=1),
        n_ties=(outcome == TIE).sum(axis=1),
        missing=(outcome == MISSING).sum(axis=1),
        reason=reason,
    )


def values(items: Items, number: Number) -> tuple[Floats, list[str]]:
    """The value of every model and why there is none, as `estimate` has them: what a table without intervals needs."""
    found = _means(items, number)
    return found.value, found.reason


class _Means(NamedTuple):
    """Items summed, how many there are in each pool and their mean, (models, pools); value and reason of each model."""

    blocks: _Blocks
    n: Floats
    mean: Floats
    value: Floats
    reason: list[str]


def _means(items: Items, number: Number) -> _Means:
    blocks = _blocks(items, number.pool, number.pool >= 0)
    used, size = number.weight != 0, len(number.names)
    weighs = used[:, blocks.pool]  # a prior set may weigh nothing for a model: then it has no items
    blocks = blocks._replace(total=blocks.total * weighs, n=blocks.n * weighs)
    n = group_sums(blocks.n, blocks.pool, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = group_sums(blocks.total, blocks.pool, size) / n
    value = np.where(used, number.weight * mean, 0.0).sum(axis=1)
    reason = [said or _empty(number.names, row) for said, row in zip(number.reason, used & (n == 0), strict=True)]
    return _Means(blocks, n, mean, np.where([bool(r) for r in reason], np.nan, value), reason)


def _blocks(items: Items, pool: Codes, counted: NDArray[np.bool_]) -> _Blocks:
    where = np.flatnonzero(counted)
    where = where[np.lexsort((pool[where], items.cluster[where]))]
    cluster, pools = items.cluster[where], pool[where]
    start = np.flatnonzero((np.diff(cluster, prepend=-1) != 0) | (np.diff(pools, prepend=-1) != 0))
    credit = items.credit[:, where]
    known = ~np.isnan(credit)
    if not len(start):
        empty = np.zeros((len(credit), 0))
        return _Blocks(cluster, pools, empty, empty)
    if len(start) == len(where):  # one item a block: nothing to sum
        return _Blocks(cluster, pools, np.where(known, credit, 0.0), known.astype(np.float64))
    total = np.add.reduceat(np.where(known, credit, 0.0), start, axis=1)
    return _Blocks(cluster[start], pools[start], total, np.add.reduceat(known.astype(np.float64), start, axis=1))


def _by_cluster(
    blocks: _Blocks, weight: Floats, mean: Floats, n: Floats, n_clusters: int
) -> tuple[Floats, Floats, Floats]:
    """Influence, contribution and share of every cluster: three arrays (models, clusters), 0 where it has no items."""
    pool = blocks.pool
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(n > 0, weight / n, 0.0)[:, pool]
        h = np.where(n > 0, 1 / n, 0.0)[:, pool] * blocks.n
        lever = np.where(h < 1, 1 / np.sqrt(1 - h), 0.0)  # a cluster alone in its pool has no residual to weigh
    residual = each * (blocks.total - blocks.n * np.nan_to_num(mean)[:, pool]) * lever
    sums = [group_sums(x, blocks.cluster, n_clusters) for x in (residual, each * blocks.total, np.abs(each) * blocks.n)]
    return sums[0], sums[1], sums[2]


def _strata(blocks: _Blocks, n_pools: int, n_clusters: int) -> tuple[Codes, int]:
    """Stratum of each cluster: clusters that share a pool, directly or through others, are one stratum."""
    if n_pools <= 1:
        return np.zeros(n_clusters, np.intp), 1
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    # Pools are linked where one cluster has items in both; that square is small, whatever the number of prompts.
    same = np.diff(blocks.cluster) == 0
    links = coo_array((np.ones(same.sum()), (blocks.pool[:-1][same], blocks.pool[1:][same])), shape=(n_pools, n_pools))
    n_strata, of_pool = connected_components(links, directed=False)
    stratum = np.zeros(n_clusters, np.intp)
    stratum[blocks.cluster] = of_pool[blocks.pool]
    return stratum, int(n_strata)


def _limits(
    items: Items, number: Number, blocks: _Blocks, value: Floats, influence: Floats, contribution: Floats, share:
    Floats, stratum: Codes, variance: Floats, freedom: Floats, confidence: float,
) -> tuple[Floats, Floats, float]:  # fmt: skip
    """Interval of every value from those of its strata, and the widest range of an item's credit.

    The wider of two ways to join strata. MOVER adds the distances of their limits as independent errors are; but where
    each of several small strata expects less than one failure, their failures add up and their limits do not, and the
    limits of one share on all strata's effective size hold (benchmarks/coverage.py, near the ceiling).
    """
    n_strata = variance.shape[1]
    bounds = _pool_bounds(items, number)
    of_pool = np.zeros(len(number.names), np.intp)
    of_pool[blocks.pool] = stratum[blocks.cluster]
    weight = np.abs(number.weight)
    total = group_sums(weight, of_pool, n_strata)
    with np.errstate(divide="ignore", invalid="ignore"):
        least, most = (group_sums(weight * bounds[:, end], of_pool, n_strata) / total for end in (0, 1))
    floor, ceiling = (np.nansum(total * end, axis=1, keepdims=True) for end in (least, most))
    fourths = group_sums(influence**4, stratum, n_strata)
    seen = errors.seen_clusters(variance, fourths)
    n_clusters = _kish(share, stratum, n_strata)
    n_items = group_sums(blocks.n, stratum[blocks.cluster], n_strata)
    n_items = n_items * _comparisons_per_item(items, number, stratum, n_clusters)
    whole = errors.total_freedom(variance, freedom)[:, None]  # the strata's errors add up, so their freedom does too
    parts = group_sums(contribution, stratum, n_strata)
    own = _share_limits(
        parts, total * least, total * most, variance, n_items, n_clusters,
        seen, np.broadcast_to(whole, variance.shape), confidence,
    )  # fmt: skip
    low, high = errors.mover(value, np.ones_like(total), parts, *own)
    if n_strata > 1:
        sums = [x.sum(axis=1, keepdims=True) for x in (variance, fourths, n_items)]
        one = _share_limits(
            value[:, None], floor, ceiling, sums[0], sums[2], _kish(share, np.zeros_like(stratum), 1),
            errors.seen_clusters(sums[0], sums[1]), whole, confidence,
        )  # fmt: skip
        low, high = np.minimum(low, one[0][:, 0]), np.maximum(high, one[1][:, 0])
    width = float((bounds[:, 1] - bounds[:, 0]).max(initial=0.0))
    return np.maximum(low, floor[:, 0]), np.minimum(high, ceiling[:, 0]), width


def _comparisons_per_item(items: Items, number: Number, stratum: Codes, n_clusters: Floats) -> Floats | float:
    """How many comparisons of 0 or 1 an item counts as, (models, strata): 1, and more where credits lie in between.

    The effective size is at most the number of items, but fractions vary less than zeros and ones do: without this the
    interval of RewardBench 2's Ties would hold 99 %. How much less is the variance of zeros and ones over that of the
    credits, with half of one more cluster at the far end of the range: where no prompt fails, the hundredths of Ties'
    margins vary hardly at all, and would hide the failure that is to come.
    """
    counted = number.pool >= 0
    credit, (least, most) = items.credit[:, counted], items.bounds[items.cell[counted]].T
    if not ((credit > least) & (credit < most)).any():
        return 1.0
    known = ~np.isnan(credit)
    unit = np.where(known, (credit - least) / (most - least), 0.0)
    n, total, squares = (
        np.stack([np.bincount(stratum[items.cluster[counted]], row, n_clusters.shape[1]) for row in x])
        for x in (known.astype(np.float64), unit, unit**2)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        share = total / n
        hidden = _HIDDEN * np.maximum(share, 1 - share) ** 2 / n_clusters
        found: Floats = np.maximum((share - share**2) / (squares / n - share**2 + hidden), 1.0)
    return np.where(np.isfinite(found), found, 1.0)


def _kish(share: Floats, stratum: Codes, n_strata: int) -> Floats:
    """Number of equal clusters that would be as unsure: where a few clusters weigh most, there are few of them."""
    with np.errstate(divide="ignore"):
        return 1 / group_sums(errors.stratum_share(share, stratum, n_strata) ** 2, stratum, n_strata)


def _share_limits(
    part: Floats, least: Floats, most: Floats, variance: Floats, n_items: Floats, n_clusters: Floats,
    seen: Floats, freedom: Floats, confidence: float,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Limits of parts of a value that may reach from `least` to `most`, as those of a share."""
    width = most - least
    with np.errstate(divide="ignore", invalid="ignore"):
        share, se = (part - least) / width, np.sqrt(variance) / width
    limits = errors.midp_limits(share, se, n_items, n_clusters, seen, freedom, confidence=confidence)
    low, high = (least + width * limit for limit in limits)
    empty = ~(width > 0)  # a stratum that weighs nothing
    return np.where(empty, part, low), np.where(empty, part, high)


def _pool_bounds(items: Items, number: Number) -> Floats:
    """Least and most that an item of each pool can earn."""
    counted = number.pool >= 0
    bounds = np.zeros((len(number.names), 2))
    bounds[number.pool[counted]] = items.bounds[items.cell[counted]]
    return bounds


def _few(blocks: _Blocks, number: Number, used: NDArray[np.bool_]) -> list[str]:
    """For each model the parts that count with fewer than 5 clusters, as a reason; else empty."""
    n = group_sums((blocks.n > 0).astype(float), blocks.pool, len(number.names))
    short = used & (n < errors.MIN_PROMPTS)
    if len(set(number.names)) == 1:
        return [errors.TOO_FEW if row.any() else "" for row in short]
    return [
        f"{', '.join(dict.fromkeys(np.array(number.names, object)[row]))}: {errors.TOO_FEW}" if row.any() else ""
        for row in short
    ]


def _empty(names: list[str], empty: NDArray[np.bool_]) -> str:
    if not empty.any():
        return ""
    return f"nothing in {', '.join(dict.fromkeys(np.array(names, object)[empty]))}"


def _n_prompts(prompt: Codes, known: NDArray[np.bool_]) -> Codes:
    """Number of prompts with an item that counts, for each model."""
    if known.all():
        return np.full(len(known), len(np.unique(prompt)), np.intp)
    return np.array([len(np.unique(prompt[row])) for row in known], np.intp)
