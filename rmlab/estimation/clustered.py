"""Values that come in clusters: weighted sums of means, their errors and intervals.

Values of one cluster are not independent, so errors are those of clusters. The
influence of a cluster is its contribution to the error of a number, with the
small-sample factor of CR2 (Bell and McCaffrey 2002); a number's variance is the sum of
the squared influences. Values whose mean counts are a pool (a cell in
docs/statistics.md). Clusters that share pools, directly or through others, form a
stratum.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import stdtrit

from rmlab.tables import BoolArray, FloatArray, IntArray

MIN_PROMPTS = 5
"""Clusters below which a part gives no error and no interval."""

TOO_FEW = f"fewer than {MIN_PROMPTS} prompts"
ROUNDING = 1e-12  # an error below this is rounding noise
_DECIMALS = 14  # of the least and the most that a number can be


class Strata(NamedTuple):
    """What the strata contribute to numbers, (rows, strata) each.

    `value` and its `variance`; `df`, degrees of freedom of the variance; `n_effective`,
    as how many equal clusters the stratum's clusters count (Kish); `low` and `high`,
    the least and the most that the stratum can contribute.
    """

    value: FloatArray
    variance: FloatArray
    df: FloatArray
    n_effective: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True)
class ClusterSums:
    """How much each cluster adds to one number, for contrasts of rows.

    Attributes
    ----------
    influence, contribution, share : ndarray
        (rows, clusters): contribution to the error (with the factor of CR2), to the
        value, and the cluster's weight.
    stratum : ndarray
        (clusters,): number of the stratum.
    strata : Strata
        The sums of each stratum.
    """

    influence: FloatArray
    contribution: FloatArray
    share: FloatArray
    stratum: IntArray
    strata: Strata


class Adjusted(NamedTuple):
    """Numbers after adding two clusters, (rows,) each: center, error, degrees of
    freedom and limits.
    """

    center: FloatArray
    se: FloatArray
    df: FloatArray
    low: FloatArray
    high: FloatArray


class Interval(NamedTuple):
    """Error, degrees of freedom and limits of numbers, (rows,) each."""

    se: FloatArray
    df: FloatArray
    low: FloatArray
    high: FloatArray


class WeightedSum(NamedTuple):
    """A weighted sum of the means of pools, one for each row of values.

    `value` and `interval` are (rows,); `n_values` and `n_clusters` count what was
    observed of each pool, (rows, pools), or (1, pools) where all rows are alike.
    """

    value: FloatArray
    interval: Interval
    n_values: IntArray
    n_clusters: IntArray
    sums: ClusterSums


@dataclass(frozen=True)
class Measured:
    """Numbers with errors and intervals, in arrays of one shape.

    Attributes
    ----------
    value, se, df, low, high : ndarray
        The number, its clustered error, degrees of freedom and limits.
    n_clusters, n_values, missing : ndarray
        Clusters and values that were counted, and values that are missing.
    reason : ndarray
        Why there is no value or no interval, else "".
    """

    value: FloatArray
    se: FloatArray
    df: FloatArray
    low: FloatArray
    high: FloatArray
    n_clusters: IntArray
    n_values: IntArray
    missing: IntArray
    reason: NDArray[np.object_]


class _Blocks(NamedTuple):
    """Values of one cluster and one pool, summed.

    `total` and the number `n` are (rows, blocks), or (1, blocks) where all rows are
    alike.
    """

    cluster: IntArray
    pool: IntArray
    total: FloatArray
    n: FloatArray


def sum_weighted_means(
    value: FloatArray,
    pool: IntArray,
    cluster: IntArray,
    weight: FloatArray,
    bounds: FloatArray,
    confidence: float = 0.95,
) -> WeightedSum:
    """Sum the means of pools with weights, for each row of values.

    See "The error of a number" and "The interval of a number" in docs/statistics.md.

    Parameters
    ----------
    value : ndarray
        (rows, values): NaN values count nowhere.
    pool, cluster : ndarray
        (values,): number of each value's pool and of its cluster.
    weight : ndarray
        (1 or rows, pools): a pool that weighs nothing for a row does not count.
    bounds : ndarray
        (pools, 2): the least and the most that a value can be; with infinite bounds the
        interval is a plain clustered t.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    WeightedSum
        A value is NaN where a pool with a weight is empty.
    """
    n_pools = weight.shape[1]
    has_weight = weight != 0
    blocks = _sum_blocks(value, has_weight, pool, cluster)
    in_pool = indicator(blocks.pool, n_pools)
    n_values = blocks.n @ in_pool
    n_clusters = (blocks.n > 0) @ in_pool
    # In the order of rows, so that a sum does not depend on how many rows there are.
    total = np.ascontiguousarray(blocks.total @ in_pool)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = total / n_values
    weighted_sum = np.where(has_weight, weight * mean, 0.0).sum(axis=1)

    sums = _sum_clusters(blocks, weight, mean, n_values, bounds)
    strata = sums.strata
    se = np.sqrt(strata.variance.sum(axis=1))
    df = satterthwaite(strata.variance, strata.df)
    if np.isfinite(bounds).all():
        adjusted = adjust(weighted_sum, strata, confidence)
        # Nine times a ninth is 1 + 2e-16: no value may lie above the bound.
        lowest = np.round(strata.low.sum(axis=1), _DECIMALS)
        highest = np.round(strata.high.sum(axis=1), _DECIMALS)
        weighted_sum = np.clip(weighted_sum, lowest, highest)
        low = np.clip(adjusted.low, lowest, highest)
        high = np.clip(adjusted.high, lowest, highest)
    else:
        half = t_quantile(df, confidence) * se
        low = weighted_sum - half
        high = weighted_sum + half
    return WeightedSum(
        value=weighted_sum,
        interval=Interval(se, df, low, high),
        n_values=n_values.astype(np.intp),
        n_clusters=n_clusters.astype(np.intp),
        sums=sums,
    )


def group_means(
    value: FloatArray,
    group: IntArray,
    cluster: IntArray,
    n_groups: int,
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    confidence: float = 0.95,
) -> Measured:
    """Means of groups of values that come in clusters.

    Parameters
    ----------
    value : ndarray
        (values,): NaN values count nowhere.
    group, cluster : ndarray
        (values,): number of the value's group and of its cluster.
    n_groups : int
        Number of groups.
    bounds : tuple of float
        The least and the most that a value can be; infinite bounds give a plain
        clustered t.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    Measured
        value, se, df, low, high, n_clusters, n_values, missing and reason, (groups,)
        each.

    Examples
    --------
    >>> value = np.array([1.0, 1, 1, 0, 0, 0, 1, 0, 1, 1])
    >>> pairs_of_values = np.repeat(np.arange(5), 2)
    >>> means = group_means(value, np.zeros(10, int), pairs_of_values, 1)
    >>> means.value.item(), round(means.se.item(), 4), means.df.round(6).item()
    (0.6, 0.1871, 4.0)
    """
    means = []
    for rows in rows_by_code(group, n_groups):
        mean = sum_weighted_means(
            value[None, rows],
            pool=np.zeros(len(rows), np.intp),
            cluster=cluster[rows],
            weight=np.ones((1, 1)),
            bounds=np.array([bounds]),
            confidence=confidence,
        )
        means.append(mean)

    n_values = np.concatenate([mean.n_values[:, 0] for mean in means])
    n_clusters = np.concatenate([mean.n_clusters[:, 0] for mean in means])
    interval = Interval(*np.hstack([mean.interval for mean in means]))
    reason = np.where(n_clusters < MIN_PROMPTS, TOO_FEW, "").astype(object)
    reason[n_values == 0] = "nothing in group"
    withheld = np.where(reason == "", 0.0, np.nan)
    return Measured(
        value=np.concatenate([mean.value for mean in means]),
        se=interval.se + withheld,
        df=interval.df,
        low=interval.low + withheld,
        high=interval.high + withheld,
        n_clusters=n_clusters,
        n_values=n_values,
        missing=np.bincount(group, minlength=n_groups) - n_values,
        reason=reason,
    )


def t_quantile(df: FloatArray, confidence: float) -> FloatArray:
    """Student's t for a two-sided interval; NaN without degrees of freedom."""
    if not isinstance(confidence, int | float | np.floating) or not 0 < confidence < 1:
        allowed = "between 0 and 1, for example 0.95"
        raise ValueError(f"confidence: {confidence!r}; allowed: {allowed}")
    quantile = stdtrit(np.maximum(df, 1e-3), 0.5 + confidence / 2)
    return np.where(df > 0, quantile, np.nan)


def satterthwaite(variance: FloatArray, df: FloatArray) -> FloatArray:
    """Degrees of freedom of a sum of variances (..., strata); without variance the sum
    of theirs.
    """
    total = variance.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Not their squares: those of large variances are beyond the floats.
        share = variance / total
        inverse = np.where(variance > 0, share**2 / df, 0.0)
        combined = 1 / inverse.sum(axis=-1)
    has_variance = total[..., 0] > ROUNDING**2
    return np.asarray(np.where(has_variance, combined, df.sum(axis=-1)))


def indicator(codes: IntArray, size: int) -> sparse.csr_array:
    """(values, groups): 1 where a value is in the group."""
    n_values = len(codes)
    row_starts = np.arange(n_values + 1)  # one entry in each row
    entries = (np.ones(n_values), codes, row_starts)
    return sparse.csr_array(entries, shape=(n_values, size))


def rows_by_code(codes: IntArray, size: int) -> list[IntArray]:
    """The rows of each code from 0 to size - 1, in their order."""
    order = np.argsort(codes, kind="stable")
    first_rows = np.searchsorted(codes[order], np.arange(1, size))
    return np.split(order, first_rows)


def _sum_blocks(
    value: FloatArray, has_weight: BoolArray, pool: IntArray, cluster: IntArray
) -> _Blocks:
    """Sum the observed values of each cluster and pool."""
    n_pools = has_weight.shape[1]
    observed = ~np.isnan(value) & has_weight[:, pool]
    if observed.all():
        observed = observed[:1]  # all rows are alike, so one row does

    cluster = pd.factorize(cluster, sort=True)[0]
    block, codes = pd.factorize(cluster * n_pools + pool, sort=True)
    in_block = indicator(block, len(codes))
    return _Blocks(
        cluster=codes // n_pools,
        pool=codes % n_pools,
        total=np.where(observed, value, 0.0) @ in_block,
        n=observed.astype(float) @ in_block,
    )


def _sum_clusters(
    blocks: _Blocks,
    weight: FloatArray,
    mean: FloatArray,
    n_values: FloatArray,
    bounds: FloatArray,
) -> ClusterSums:
    """Sum the blocks of each cluster: u_g, and what else contrasts of rows need."""
    n_clusters = int(blocks.cluster.max(initial=-1)) + 1
    in_cluster = indicator(blocks.cluster, n_clusters)
    with np.errstate(divide="ignore", invalid="ignore"):
        value_weight = np.where(n_values > 0, weight / n_values, 0.0)[:, blocks.pool]
        h = np.where(n_values > 0, 1 / n_values, 0.0)[:, blocks.pool] * blocks.n
        # CR2; a cluster that is its whole pool has no residual to scale.
        factor = np.where(h < 1, 1 / np.sqrt(1 - h), 0.0)
        cluster_weight = (np.abs(value_weight) * blocks.n) @ in_cluster
        share = cluster_weight / cluster_weight.sum(axis=1, keepdims=True)
    share = np.nan_to_num(share)
    residual = blocks.total - blocks.n * np.nan_to_num(mean)[:, blocks.pool]
    influence = (value_weight * residual * factor) @ in_cluster
    contribution = (value_weight * blocks.total) @ in_cluster

    stratum_of_pool = _number_strata(blocks, n_pools=weight.shape[1])
    n_strata = int(stratum_of_pool.max(initial=-1)) + 1
    stratum = np.zeros(n_clusters, np.intp)
    stratum[blocks.cluster] = stratum_of_pool[blocks.pool]
    in_stratum = indicator(stratum, n_strata)
    df, n_effective = _count_freedom(share, stratum, in_stratum)

    at_lowest = weight * bounds[:, 0]
    at_highest = weight * bounds[:, 1]
    pool_in_stratum = indicator(stratum_of_pool, n_strata).toarray()
    # A negative weight turns the bounds over.
    low = np.minimum(at_lowest, at_highest) @ pool_in_stratum
    high = np.maximum(at_lowest, at_highest) @ pool_in_stratum

    value = contribution @ in_stratum
    variance = influence**2 @ in_stratum
    by_stratum = np.broadcast_arrays(value, variance, df, n_effective, low, high)
    return ClusterSums(
        influence=influence,
        contribution=contribution,
        share=np.broadcast_to(share, influence.shape),
        stratum=stratum,
        strata=Strata(*by_stratum),
    )


def _number_strata(blocks: _Blocks, n_pools: int) -> IntArray:
    """Number the stratum of each pool: pools that share a cluster are connected."""
    same_cluster = np.diff(blocks.cluster) == 0  # blocks are in the order of clusters
    pool = blocks.pool[:-1][same_cluster]
    next_pool = blocks.pool[1:][same_cluster]
    links = np.ones(len(pool))
    graph = sparse.coo_array((links, (pool, next_pool)), shape=(n_pools, n_pools))
    _, stratum = sparse.csgraph.connected_components(graph, directed=False)
    return stratum.astype(np.intp)


def _count_freedom(
    share: FloatArray, stratum: IntArray, in_stratum: sparse.csr_array
) -> tuple[FloatArray, FloatArray]:
    """Degrees of freedom and effective number of clusters of each stratum.

    With h a cluster's share of the stratum, Bell and McCaffrey (2002) under working
    independence have 1 / (sum of h^2 + sum over pairs of h^2 h'^2 / ((1 - h)(1 - h'))).
    Equal clusters give their number less one.
    """
    share_of_stratum = share @ in_stratum
    with np.errstate(divide="ignore", invalid="ignore"):
        h = np.nan_to_num(share / share_of_stratum[:, stratum])
        squares = h**2 @ in_stratum
        q = np.where(h < 1, h**2 / (1 - h), np.inf)
        pairs = (q @ in_stratum) ** 2 - q**2 @ in_stratum
        df = 1 / (squares + pairs)
        n_effective = 1 / squares  # Kish
    return np.where(np.isfinite(df), df, 0.0), n_effective


def adjust(value: FloatArray, strata: Strata, confidence: float) -> Adjusted:
    """Add a won and a lost cluster to numbers (rows,), and to the variance of each of
    their strata.

    The center moves as if the two were added to all clusters at once: many small strata
    would otherwise pull it to the middle of the scale. See "The interval of a number"
    in docs/statistics.md.
    """
    k = strata.n_effective
    w = strata.high - strata.low
    low = strata.low.sum(axis=1)
    width = w.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = (strata.value - strata.low) / w
        p_adjusted = (k * p + 1) / (k + 2)
        own_variance = (k / (k + 2)) ** 2 * strata.variance
        added_variance = (p_adjusted**2 + (1 - p_adjusted) ** 2) / (k + 2) ** 2
        variance = np.where(w > 0, own_variance + w**2 * added_variance, 0.0)

        share = w / width[:, None]
        k_of_all = 1 / (share**2 / k).sum(axis=1)
        p_of_all = (value - low) / width
        p_of_all_adjusted = (k_of_all * p_of_all + 1) / (k_of_all + 2)

    center = low + width * p_of_all_adjusted
    se = np.sqrt(variance.sum(axis=1))
    df = satterthwaite(variance, strata.df)
    half = t_quantile(df, confidence) * se
    # At low confidence the limits reach as far as the value, which may lie beside the
    # center.
    return Adjusted(
        center=center,
        se=se,
        df=df,
        low=np.minimum(center - half, value),
        high=np.maximum(center + half, value),
    )
