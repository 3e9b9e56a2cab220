"""Values that come in clusters: weighted sums of means, their errors and intervals.

Values of one cluster are not independent, so errors are those of clusters. The
influence of a cluster is its contribution to the error of a number, with the
small-sample factor of CR2 (Bell and McCaffrey 2002); a number's variance is the sum of
the squared influences. Values whose mean counts are a pool (a cell in
docs/statistics.md). Clusters that share pools, directly or through others, form a
stratum.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from rmlab.tables import BoolArray, FloatArray, IntArray

MIN_PROMPTS = 5
"""Clusters below which a part gives no error and no interval."""

TOO_FEW = f"fewer than {MIN_PROMPTS} prompts"
ROUNDING = 1e-12  # an error below this is rounding noise
_DECIMALS = 14  # of the least and the most that a number can be


class ClusterSums(NamedTuple):
    """A weighted sum of the means of pools, for each row of values, by its clusters and
    its strata.

    Attributes
    ----------
    value : ndarray
        (rows,): NaN where a pool with a weight is empty.
    n_values, n_clusters : ndarray
        (rows, pools): what was observed; (1, pools) where all rows are alike.
    influence, contribution, share : ndarray
        (rows, clusters): a cluster's contribution to the error (with the factor of
        CR2), to the value, and its weight.
    stratum : ndarray
        (clusters,): number of the stratum.
    part, variance, df : ndarray
        (rows, strata): what a stratum contributes to the value, the variance of this,
        and its degrees of freedom.
    n_effective : ndarray
        (rows, strata): as how many equal clusters its clusters count (Kish).
    low, high : ndarray
        (rows, strata): the least and the most that it can contribute.
    """

    value: FloatArray
    n_values: IntArray
    n_clusters: IntArray
    influence: FloatArray
    contribution: FloatArray
    share: FloatArray
    stratum: IntArray
    part: FloatArray
    variance: FloatArray
    df: FloatArray
    n_effective: FloatArray
    low: FloatArray
    high: FloatArray

    def limits(self) -> tuple[FloatArray, FloatArray]:
        """The least and the most that each number can be, (rows,) each."""
        # Nine times a ninth is 1 + 2e-16: no value may lie above the bound.
        lowest = np.round(self.low.sum(axis=1), _DECIMALS)
        highest = np.round(self.high.sum(axis=1), _DECIMALS)
        return lowest, highest


class Estimate(NamedTuple):
    """Numbers with errors and intervals, in arrays of one shape.

    Attributes
    ----------
    value, se, df, low, high : ndarray
        The number, its clustered error, degrees of freedom and limits.
    p : ndarray
        Two-sided test of zero, of a difference or a number without bounds: below
        1 - confidence exactly where the limits exclude zero. NaN for other numbers.
    n_prompts, n_pairs, n_ties, missing : ndarray
        Prompts and values that were counted, ties among these, and values that are
        missing.
    reason : ndarray
        Why there is no value or no interval, else "".
    """

    value: FloatArray
    se: FloatArray
    df: FloatArray
    low: FloatArray
    high: FloatArray
    p: FloatArray
    n_prompts: IntArray
    n_pairs: IntArray
    n_ties: IntArray
    missing: IntArray
    reason: NDArray[np.object_]


def estimate_mean(
    value: FloatArray,
    cluster: IntArray,
    confidence: float,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Estimate:
    """Mean of values that come in clusters.

    Parameters
    ----------
    value : ndarray
        (values,): NaN values count nowhere.
    cluster : ndarray
        (values,): number of the value's cluster.
    confidence : float
        Coverage of the interval.
    bounds : tuple of float
        The least and the most that a value can be; infinite bounds give a plain
        clustered t.

    Returns
    -------
    Estimate
        (1,): `n_prompts` counts clusters; no ties are counted.

    Examples
    --------
    >>> value = np.array([1.0, 1, 1, 0, 0, 0, 1, 0, 1, 1])
    >>> mean = estimate_mean(value, np.repeat(np.arange(5), 2), 0.95)
    >>> mean.value.item(), round(mean.se.item(), 4), mean.df.round(6).item()
    (0.6, 0.1871, 4.0)
    """
    sums = sum_clusters(
        value[None],
        pool=np.zeros(len(value), np.intp),
        cluster=cluster,
        weight=np.ones((1, 1)),
        bounds=np.array([bounds]),
    )
    n_clusters = sums.n_clusters[:, 0]
    reason = TOO_FEW if n_clusters < MIN_PROMPTS else ""
    return make_estimate(
        sums,
        confidence,
        n_prompts=n_clusters,
        n_ties=np.zeros(1, np.intp),
        missing=len(value) - sums.n_values[:, 0],
        reason=np.array([reason if n_clusters else "nothing in group"], object),
    )


def group_means(
    value: FloatArray,
    group: IntArray,
    cluster: IntArray,
    n_groups: int,
    confidence: float,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Estimate:
    """Means of groups of values, (groups,), as `estimate_mean` has each."""
    means = []
    for rows in rows_by_code(group, n_groups):
        means.append(estimate_mean(value[rows], cluster[rows], confidence, bounds))
    columns = [np.concatenate(parts) for parts in zip(*means, strict=True)]
    return Estimate(*columns)


def make_estimate(
    sums: ClusterSums,
    confidence: float,
    *,
    n_prompts: IntArray,
    n_ties: IntArray,
    missing: IntArray,
    reason: NDArray[np.object_],
) -> Estimate:
    """Numbers with errors and intervals, (rows,); without these where there is a
    reason.
    """
    se, df, low, high, p = interval(sums, confidence)
    withheld = np.where(reason == "", 0.0, np.nan)
    n_pairs = sums.n_values.sum(axis=1)
    return Estimate(
        value=sums.value,
        se=se + withheld,
        df=df,
        low=low + withheld,
        high=high + withheld,
        p=p + withheld,
        n_prompts=n_prompts,
        n_pairs=np.broadcast_to(n_pairs, sums.value.shape),
        n_ties=n_ties,
        missing=missing,
        reason=reason,
    )


def sum_clusters(
    value: FloatArray,
    pool: IntArray,
    cluster: IntArray,
    weight: FloatArray,
    bounds: FloatArray,
) -> ClusterSums:
    """Sum the means of pools with weights, for each row of values.

    See "The error of a number" in docs/statistics.md.

    Parameters
    ----------
    value : ndarray
        (rows, values): NaN values count nowhere.
    pool, cluster : ndarray
        (values,): number of each value's pool and of its cluster.
    weight : ndarray
        (1 or rows, pools): a pool that weighs nothing for a row does not count.
    bounds : ndarray
        (pools, 2): the least and the most that a value can be.

    Returns
    -------
    ClusterSums
    """
    n_pools = weight.shape[1]
    has_weight = weight != 0
    block_cluster, block_pool, total, n = _sum_blocks(value, has_weight, pool, cluster)
    n_clusters = int(block_cluster.max(initial=-1)) + 1
    in_pool = indicator(block_pool, n_pools)
    in_cluster = indicator(block_cluster, n_clusters)
    n_values = n @ in_pool
    # In the order of rows, so that a sum does not depend on how many rows there are.
    total_of_pool = np.ascontiguousarray(total @ in_pool)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = total_of_pool / n_values
        inverse = np.where(n_values > 0, 1 / n_values, 0.0)
        value_weight = (weight * inverse)[:, block_pool]
        h = inverse[:, block_pool] * n
        # CR2; a cluster that is its whole pool has no residual to scale.
        factor = np.where(h < 1, 1 / np.sqrt(1 - h), 0.0)
        cluster_weight = (np.abs(value_weight) * n) @ in_cluster
        share = cluster_weight / cluster_weight.sum(axis=1, keepdims=True)
    share = np.nan_to_num(share)
    residual = total - n * np.nan_to_num(mean)[:, block_pool]
    influence = (value_weight * residual * factor) @ in_cluster
    contribution = (value_weight * total) @ in_cluster

    stratum_of_pool = _number_strata(block_cluster, block_pool, n_pools)
    stratum = np.zeros(n_clusters, np.intp)
    stratum[block_cluster] = stratum_of_pool[block_pool]
    n_strata = int(stratum_of_pool.max(initial=-1)) + 1
    in_stratum = indicator(stratum, n_strata)
    df, n_effective = _count_freedom(share, stratum, in_stratum)
    pool_in_stratum = indicator(stratum_of_pool, n_strata).toarray()
    at_lowest = weight * bounds[:, 0]
    at_highest = weight * bounds[:, 1]
    by_stratum = np.broadcast_arrays(
        contribution @ in_stratum,
        influence**2 @ in_stratum,
        df,
        n_effective,
        # A negative weight turns the bounds over.
        np.minimum(at_lowest, at_highest) @ pool_in_stratum,
        np.maximum(at_lowest, at_highest) @ pool_in_stratum,
    )
    sums = ClusterSums(
        np.where(has_weight, weight * mean, 0.0).sum(axis=1),
        n_values.astype(np.intp),
        ((n > 0) @ in_pool).astype(np.intp),
        influence,
        contribution,
        np.broadcast_to(share, influence.shape),
        stratum,
        *by_stratum,
    )
    return sums._replace(value=np.clip(sums.value, *sums.limits()))


def subtract_rows(sums: ClusterSums, first: IntArray, second: IntArray) -> ClusterSums:
    """Rows less others that observe the same values with the same weights, by stratum;
    what belongs to a cluster stays as it is.
    """
    variance = np.zeros((len(first), sums.variance.shape[1]))
    for stratum in range(variance.shape[1]):
        influence = sums.influence[:, sums.stratum == stratum]
        # One product serves all pairs, where pairs by clusters would not fit.
        product = influence @ influence.T
        squares = np.diag(product)
        separate = squares[first] + squares[second]
        paired = separate - 2 * product[first, second]
        is_noise = paired <= ROUNDING * separate
        variance[:, stratum] = np.where(is_noise, 0.0, paired)
    return sums._replace(
        value=sums.value[first] - sums.value[second],
        part=sums.part[first] - sums.part[second],
        variance=variance,
        df=sums.df[second],
        n_effective=sums.n_effective[second],
        low=sums.low[first] - sums.high[second],
        high=sums.high[first] - sums.low[second],
    )


def interval(
    sums: ClusterSums, confidence: float
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Error, degrees of freedom, the two limits and p of numbers, (rows,) each.

    A number has a p where it is a difference or has no bounds. See "The interval of a
    number" and "Two models" in docs/statistics.md.
    """
    se = np.sqrt(sums.variance.sum(axis=1))
    df = satterthwaite(sums.variance, sums.df)
    lowest, highest = sums.limits()
    if not np.isfinite([lowest, highest]).all():
        half = t_quantile(df, confidence) * se
        p = two_sided_p(sums.value, se, df)
        return se, df, sums.value - half, sums.value + half, p

    center, adjusted_se, adjusted_df = add_clusters(sums)
    half = t_quantile(adjusted_df, confidence) * adjusted_se
    # At low confidence the limits reach as far as the value, which may lie beside the
    # center.
    low = np.clip(np.minimum(center - half, sums.value), lowest, highest)
    high = np.clip(np.maximum(center + half, sums.value), lowest, highest)
    p = np.full(len(se), np.nan)
    if is_difference(sums):
        p = two_sided_p(center, adjusted_se, adjusted_df)
    return se, df, low, high, p


def two_sided_p(value: FloatArray, se: FloatArray, df: FloatArray) -> FloatArray:
    """Two-sided p of Student's t for a value of zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * scipy.special.stdtr(df, -np.abs(value) / se)
    return np.where(value == 0, 1.0, p)


def is_difference(sums: ClusterSums) -> bool:
    """Whether the numbers lie between minus and plus the same limit."""
    lowest, highest = sums.limits()
    return bool((lowest == -highest).all())


def add_clusters(sums: ClusterSums) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Center, error and degrees of freedom of numbers, (rows,) each, after a won and a
    lost cluster were added: to each stratum, but to a difference only in the stratum
    where they weigh most.

    The center moves as if the two were added to all clusters at once: many small strata
    would otherwise pull it to the middle of the scale.
    """
    k = sums.n_effective
    k_of_all = count_effective(sums)
    low = sums.low.sum(axis=1)
    width = sums.high - sums.low
    width_of_all = sums.high.sum(axis=1) - low
    with np.errstate(divide="ignore", invalid="ignore"):
        p = (k * (sums.part - sums.low) / width + 1) / (k + 2)
        added = width**2 * (p**2 + (1 - p) ** 2) / (k + 2) ** 2
        share = (k_of_all * (sums.value - low) / width_of_all + 1) / (k_of_all + 2)
        center = low + width_of_all * share
        variance = (k / (k + 2)) ** 2 * sums.variance + added
        own_variance = (k_of_all / (k_of_all + 2)) ** 2 * sums.variance.sum(axis=1)

    if is_difference(sums):
        largest = np.where(width > 0, added, 0.0).max(axis=1, initial=0.0)
        df = satterthwaite(sums.variance, sums.df)
        return center, np.sqrt(own_variance + largest), df
    variance = np.where(width > 0, variance, 0.0)
    return center, np.sqrt(variance.sum(axis=1)), satterthwaite(variance, sums.df)


def count_effective(sums: ClusterSums) -> FloatArray:
    """As how many equal clusters the clusters of all strata count, (rows,)."""
    width = sums.high - sums.low
    with np.errstate(divide="ignore", invalid="ignore"):
        share = width / width.sum(axis=1, keepdims=True)
        return np.asarray(1 / (share**2 / sums.n_effective).sum(axis=1))


def t_quantile(df: FloatArray, confidence: float) -> FloatArray:
    """Student's t for a two-sided interval; NaN without degrees of freedom."""
    if not isinstance(confidence, int | float | np.floating) or not 0 < confidence < 1:
        allowed = "between 0 and 1, for example 0.95"
        raise ValueError(f"confidence: {confidence!r}; allowed: {allowed}")
    quantile = scipy.special.stdtrit(np.maximum(df, 1e-3), 0.5 + confidence / 2)
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


def indicator(codes: IntArray, size: int) -> "scipy.sparse.csr_array":
    """(values, groups): 1 where a value is in the group."""
    n_values = len(codes)
    row_starts = np.arange(n_values + 1)  # one entry in each row
    entries = (np.ones(n_values), codes, row_starts)
    return scipy.sparse.csr_array(entries, shape=(n_values, size))


def rows_by_code(codes: IntArray, size: int) -> list[IntArray]:
    """The rows of each code from 0 to size - 1, in their order."""
    order = np.argsort(codes, kind="stable")
    first_rows = np.searchsorted(codes[order], np.arange(1, size))
    return np.split(order, first_rows)


def _sum_blocks(
    value: FloatArray, has_weight: BoolArray, pool: IntArray, cluster: IntArray
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Cluster and pool of each block, the values of one cluster and one pool, and the
    sum and the number of those observed, (rows, blocks) each.
    """
    n_pools = has_weight.shape[1]
    observed = ~np.isnan(value) & has_weight[:, pool]
    if observed.all():
        observed = observed[:1]  # all rows are alike, so one row does

    cluster = pd.factorize(cluster, sort=True)[0]
    block, codes = pd.factorize(cluster * n_pools + pool, sort=True)
    in_block = indicator(block, len(codes))
    total = np.where(observed, value, 0.0) @ in_block
    n = observed.astype(float) @ in_block
    return codes // n_pools, codes % n_pools, total, n


def _number_strata(cluster: IntArray, pool: IntArray, n_pools: int) -> IntArray:
    """Number the stratum of each pool: pools that share a cluster are connected.

    `cluster` and `pool` are those of the blocks, in the order of clusters.
    """
    same_cluster = np.diff(cluster) == 0
    first = pool[:-1][same_cluster]
    second = pool[1:][same_cluster]
    links = (np.ones(len(first)), (first, second))
    graph = scipy.sparse.coo_array(links, shape=(n_pools, n_pools))
    _, stratum = scipy.sparse.csgraph.connected_components(graph, directed=False)
    return stratum.astype(np.intp)


def _count_freedom(
    share: FloatArray, stratum: IntArray, in_stratum: "scipy.sparse.csr_array"
) -> tuple[FloatArray, FloatArray]:
    """Degrees of freedom and effective number of clusters by stratum.

    With h a cluster's share of the stratum, Bell and McCaffrey (2002) under working
    independence have 1 / (sum of h^2 + sum over pairs of h^2 h'^2 / ((1 - h)(1 - h')))
    degrees of freedom. Equal clusters give their number less one.
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
