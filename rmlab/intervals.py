"""Standard errors and intervals of means whose terms come in clusters: a prompt's comparisons are not independent."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "FEWEST",
    "WeightedMean",
    "bootstrap",
    "cell_means",
    "clustered_se",
    "difference_interval",
    "normal_interval",
    "resample_counts",
    "share_interval",
    "stratified_error",
    "stratified_interval",
    "weighted_mean",
]

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]
FEWEST = 5
"""Clusters (prompts) below which a table gives no error and no interval: from so few, none means anything."""

_ROUNDING = 1e-12  # below this a variance is rounding noise
_BLOCK = 1000  # resamples held in memory at once


class WeightedMean(NamedTuple):
    """A weighted sum of cell means, one entry per row of values, and what each cluster does to it.

    `value` (rows,). `contribution` (rows, clusters) adds up to the value; `influence` is the same around the cell
    means, so it adds up to zero and its spread is the error of the value; `share` is the weight of the cluster, what
    it would contribute if all its items were 1. NaN (share: 0) where a cluster has nothing to count.
    """

    value: Floats
    contribution: Floats
    influence: Floats
    share: Floats


def weighted_mean(values: Floats, cells: Codes, weights: Floats, clusters: Codes, n_clusters: int) -> WeightedMean:
    """Weighted sum of the means of cells, for many rows (models) that share their items.

    `values` (rows, items), NaN where missing; `cells` and `clusters` (items,) say to which cell and which cluster
    (a prompt) an item belongs; `weights` (n_cells,). A benchmark's overall score is such a sum: its cells are its
    domains or subsets. The value is NaN where a cell of non-zero weight is empty.

    >>> credit = np.array([[1.0, 0.0, 0.0, 0.0, 0.0, 1.0]])  # two prompts in the first domain, four in the second
    >>> domain = np.array([0, 0, 1, 1, 1, 1])
    >>> mean = weighted_mean(credit, domain, np.array([0.5, 0.5]), np.arange(6), 6)
    >>> se, freedom = stratified_error(mean.influence, domain)
    >>> mean.value.item(), round(se.item(), 3)
    (0.375, 0.28)
    """
    used = weights != 0
    present = ~np.isnan(values)
    filled = np.where(present, values, 0.0)
    mean, count = cell_means(values, cells, len(weights))
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.where(used & (count > 0), weights / count, 0.0)
    value = mean[:, used] @ weights[used]
    weight = np.where(present, scale[:, cells], 0.0)
    share = _by_cluster(weight, clusters, n_clusters)
    contribution = _by_cluster(filled * weight, clusters, n_clusters)
    expected = _by_cluster(np.nan_to_num(mean)[:, cells] * weight, clusters, n_clusters)
    blank = np.where(share > 0, 0.0, np.nan)
    return WeightedMean(value, contribution + blank, contribution - expected + blank, share)


def cell_means(values: Floats, cells: Codes, n_cells: int) -> tuple[Floats, Floats]:
    """Mean and number of the known values of each cell: two arrays (rows, n_cells), NaN and 0 where it is empty."""
    member = (cells[:, None] == np.arange(n_cells)).astype(np.float64)
    present = ~np.isnan(values)
    count = present.astype(np.float64) @ member
    with np.errstate(divide="ignore", invalid="ignore"):
        mean: Floats = (np.where(present, values, 0.0) @ member) / count
    return mean, count


def stratified_error(influence: Floats, strata: Codes) -> tuple[Floats, Floats]:
    """Standard error and degrees of freedom of each row of `influence` (rows, clusters); clusters lie in `strata`.

    variance = sum over strata of n/(n-1) * sum(influence^2), Satterthwaite's degrees of freedom. NaN where a
    stratum that counts has one cluster only.
    """
    member = (strata[:, None] == np.arange(strata.max(initial=-1) + 1)).astype(np.float64)
    present = ~np.isnan(influence)
    n = present.astype(np.float64) @ member
    squares = np.where(present, influence, 0.0) ** 2 @ member
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.where(n == 0, 0.0, np.where(n == 1, np.nan, squares * n / (n - 1)))
        total = variance.sum(axis=1)
        spent = np.where(n < 2, 0.0, variance**2 / (n - 1)).sum(axis=1)
        plain = (n - (n > 0)).sum(axis=1)
        freedom = np.where(total > _ROUNDING**2, total**2 / spent, plain)
    return np.sqrt(total), freedom


def stratified_interval(mean: WeightedMean, strata: Codes, *, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Interval of each row of a weighted mean of shares (values from 0 to 1), from the intervals of its strata.

    Every stratum has its own clustered Wilson interval (`share_interval`); their distances from the estimate are
    combined as independent errors are, upwards and downwards apart: MOVER, Zou and Donner (2008). With one stratum
    this is its Wilson interval. It stays honest where some strata are nearly all right, where the normal
    interval is too short. NaN where a stratum that counts has one cluster only.
    """
    member = (strata[:, None] == np.arange(strata.max(initial=-1) + 1)).astype(np.float64)
    present = ~np.isnan(mean.influence)
    n = present.astype(np.float64) @ member
    weight = mean.share @ member
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (np.nan_to_num(mean.contribution) @ member) / weight
        se = np.sqrt((np.nan_to_num(mean.influence) ** 2 @ member) * n / (n - 1)) / weight
    low, high = share_interval(share, np.where(n > 1, se, np.nan), n, confidence=confidence)
    below, above = (np.where(n == 0, 0.0, weight * (end - share)) ** 2 for end in (low, high))
    down, up = np.sqrt(below.sum(axis=1)), np.sqrt(above.sum(axis=1))
    return np.clip(mean.value - down, 0, 1), np.clip(mean.value + up, 0, 1)


def resample_counts(
    strata: Codes, *, resamples: int = 10_000, seed: int = 0, block: int = _BLOCK
) -> Iterator[NDArray[np.float32]]:
    """How often each cluster is drawn in each resample: blocks of shape (resamples, clusters).

    Clusters are drawn with replacement inside their stratum, as many as it has. The same seed gives the same draws,
    so several tables can share them.
    """
    if resamples < 1:
        raise ValueError(f"resamples: {resamples!r}; allowed: a whole number from 1, for example 10_000")
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(strata == s) for s in np.unique(strata)]
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        counts = np.empty((size, len(strata)), np.float32)
        row = np.arange(size)[:, None]
        for where in members:
            n = len(where)
            drawn = rng.integers(0, n, (size, n), dtype=np.int32) + row * n
            counts[:, where] = np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n)
        yield counts


def bootstrap(
    mean: WeightedMean, strata: Codes, *, resamples: int = 10_000, seed: int = 0, block: int = _BLOCK
) -> NDArray[np.float32]:
    """Cluster bootstrap of every row of `mean`: an array (resamples, rows) of resampled values.

    Clusters are resampled with replacement inside their stratum; all rows share the resamples, so differences
    between rows are paired. Where every cluster of a cell has as many items as the next the resampled value is
    exact; otherwise it is linear in the resample (the usual first-order bootstrap of a ratio).

    >>> credit = np.array([[1.0, 0.0, 1.0, 1.0]])
    >>> one = np.zeros(4, np.intp)
    >>> drawn = bootstrap(weighted_mean(credit, one, np.ones(1), np.arange(4), 4), one, resamples=2000)
    >>> drawn.shape, round(drawn.mean().item(), 1)
    ((2000, 1), 0.8)
    """
    effect = np.ascontiguousarray(np.nan_to_num(mean.influence).T, dtype=np.float32)
    value = mean.value.astype(np.float32)
    drawn = resample_counts(strata, resamples=resamples, seed=seed, block=block)
    return np.concatenate([counts @ effect + value for counts in drawn])


def clustered_se(
    sums: Floats, counts: Floats, groups: NDArray[np.intp], n_groups: int
) -> tuple[Floats, Floats, Floats]:
    """Mean, clustered standard error and number of clusters of each group.

    `sums` and `counts` hold one entry per cluster (a prompt): the sum of its terms and how many there are; `groups`
    says to which group each cluster belongs. A ratio estimator: mean = sum of sums / sum of counts,
    variance = C/(C-1) * sum((sums - mean * counts)^2) / (sum of counts)^2 (Miller, arXiv 2411.00640, section 2.2).
    NaN where a group is empty; the error is NaN with fewer than two clusters.

    >>> mean, se, n = clustered_se(np.array([3.0, 0.0]), np.array([3.0, 3.0]), np.array([0, 0]), 1)
    >>> mean.item(), se.item(), n.item()
    (0.5, 0.5, 2.0)
    """
    total = np.bincount(groups, counts, n_groups).astype(np.float64)
    clusters = np.bincount(groups, counts > 0, n_groups).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.bincount(groups, sums, n_groups) / total
        residual = sums - mean[groups] * counts
        scale = clusters / (clusters - 1)
        se = np.sqrt(scale * np.bincount(groups, residual**2, n_groups)) / total
    se[clusters < 2] = np.nan
    return mean, se, clusters


def share_interval(mean: Floats, se: Floats, clusters: Floats, *, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Wilson interval of a share, with the effective sample size that its clustered standard error implies.

    n_eff = mean (1 - mean) / se^2. Where the error is zero (all right or all wrong) n_eff is the number of
    clusters, so the interval never has zero width. Student's t with clusters - 1 degrees of freedom.
    Wilson (1927); effective sample size as in Korn and Graubard (1998). NaN below two clusters.
    """
    t = _quantile(clusters, confidence)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = mean * (1 - mean)
        n_eff = np.where((se > _ROUNDING) & (spread > _ROUNDING), spread / se**2, clusters)
        centre = (mean + t**2 / (2 * n_eff)) / (1 + t**2 / n_eff)
        half = t / (1 + t**2 / n_eff) * np.sqrt(np.maximum(spread, 0) / n_eff + t**2 / (4 * n_eff**2))
    blank = np.where(np.isnan(se), np.nan, 0.0)
    return np.clip(np.minimum(centre - half, mean), 0, 1) + blank, np.clip(
        np.maximum(centre + half, mean), 0, 1
    ) + blank


def normal_interval(mean: Floats, se: Floats, clusters: Floats, *, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Symmetric interval mean +- t * se, for differences and effects. NaN below two clusters."""
    t = _quantile(clusters, confidence)
    return mean - t * se, mean + t * se


def difference_interval(
    mean: Floats, se: Floats, clusters: Floats, *, confidence: float = 0.95
) -> tuple[Floats, Floats]:
    """Symmetric interval of a difference of two shares, inside -1 to 1.

    Where every prompt has the same difference the error is zero; the half-width is then t^2 / (n + t^2), the upper
    Wilson limit of a share of which none was seen in n prompts. NaN below two clusters.
    """
    t = _quantile(clusters, confidence)
    half = np.where(se <= _ROUNDING, t**2 / (clusters + t**2), t * se)
    return np.clip(mean - half, -1, 1), np.clip(mean + half, -1, 1)


def _by_cluster(values: NDArray[np.generic], clusters: Codes, n_clusters: int) -> Floats:
    """Sums over the items of each cluster: (rows, items) to (rows, n_clusters)."""
    sums = np.zeros((len(values), n_clusters))
    order = np.argsort(clusters, kind="stable")
    found, start = np.unique(clusters[order], return_index=True)
    if len(found):
        sums[:, found] = np.add.reduceat(values[:, order], start, axis=1, dtype=np.float64)
    return sums


def _quantile(clusters: Floats, confidence: float) -> Floats:
    from scipy.special import stdtrit

    if not 0 < confidence < 1:
        raise ValueError(f"confidence: {confidence!r}; allowed: between 0 and 1, for example 0.95")
    freedom = np.asarray(clusters, float) - 1
    return np.where(freedom > 0, stdtrit(np.maximum(freedom, 1), 0.5 + confidence / 2), np.nan)
