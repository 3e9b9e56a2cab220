"""Values of weighted means, their errors clustered by prompt, and their intervals.

A prompt's comparisons are not independent, so errors are those of clusters. The
influence of a cluster is its contribution to the error of a number, with the
small-sample factor of CR2 (Bell and McCaffrey 2002); a number's variance is the sum of
the squared influences. Clusters that share cells, directly or through others, form a
stratum.
"""

from collections.abc import Container
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import stdtrit

from rmlab.metrics.items import MISSING, TIE, WIN, BoolArray, FloatArray, Items
from rmlab.metrics.weights import WeightedMean, Weights
from rmlab.tables import IntArray

MIN_PROMPTS = 5
"""Clusters below which a part gives no error and no interval."""

TOO_FEW = f"fewer than {MIN_PROMPTS} prompts"
_ROUNDING = 1e-12  # an error below this is rounding noise
_DECIMALS = 14  # of the least and the most that a number can be


@dataclass(frozen=True)
class ClusterSums:
    """How much each cluster adds to one number, for contrasts of models.

    Attributes
    ----------
    influence, contribution, share : ndarray
        (models, clusters): contribution to the error (with the factor of CR2), to the
        value, and the cluster's weight.
    stratum : ndarray
        (clusters,): number of the stratum.
    df, n_effective : ndarray
        (models, strata): degrees of freedom of each stratum's variance, and as how many
        equal clusters its clusters count (Kish).
    low, high : ndarray
        (models, strata): the least and the most that a stratum can contribute.
    """

    influence: FloatArray
    contribution: FloatArray
    share: FloatArray
    stratum: IntArray
    df: FloatArray
    n_effective: FloatArray
    low: FloatArray
    high: FloatArray

    @property
    def is_bounded(self) -> bool:
        """Whether there is a least and a most that the number can be."""
        return bool(np.isfinite(self.high - self.low).all())


class Strata(NamedTuple):
    """What the strata contribute to numbers, (rows, strata) each.

    `value` and its `variance`; `df`, `n_effective`, `low` and `high` as in
    `ClusterSums`.
    """

    value: FloatArray
    variance: FloatArray
    df: FloatArray
    n_effective: FloatArray
    low: FloatArray
    high: FloatArray


class Adjusted(NamedTuple):
    """Numbers after adding a won and a lost cluster, (rows,): center, error, degrees of
    freedom.
    """

    center: FloatArray
    se: FloatArray
    df: FloatArray


@dataclass(frozen=True)
class Measured:
    """Numbers with errors and intervals, in arrays of one shape.

    Attributes
    ----------
    value, se, df, low, high : ndarray
        The number, its clustered error, degrees of freedom and limits.
    n_prompts, n_pairs, n_ties, missing : ndarray
        Prompts and items counted, ties, and items without a score or verdict.
    reason : ndarray
        Why there is no value or no interval, else "".
    """

    value: FloatArray
    se: FloatArray
    df: FloatArray
    low: FloatArray
    high: FloatArray
    n_prompts: IntArray
    n_pairs: IntArray
    n_ties: IntArray
    missing: IntArray
    reason: NDArray[np.object_]


@dataclass(frozen=True)
class Estimate(Measured):
    """Numbers of every model; the arrays are (models, numbers).

    Attributes
    ----------
    models : list of str
    numbers : DataFrame
        One row per number, with the columns that name it.
    label : str
        How the parts were averaged.
    clusters : dict
        Place of a number to its ClusterSums, where asked for.
    """

    models: list[str]
    numbers: pd.DataFrame
    label: str
    clusters: dict[int, ClusterSums] = field(default_factory=dict)


class _Blocks(NamedTuple):
    """Items of one cluster and one pool, summed; (models, blocks) and (1, blocks) where
    all models are alike.
    """

    cluster: IntArray
    pool: IntArray
    total: FloatArray
    n: FloatArray


def estimate(
    items: Items,
    weights: Weights,
    confidence: float = 0.95,
    *,
    contrasts: Container[int] = (),
) -> Estimate:
    """Estimate numbers of every model with clustered errors and intervals.

    Parameters
    ----------
    items : Items
        Credit of every model on every item.
    weights : Weights
        The numbers as weighted means of cells.
    confidence : float
        Coverage of the intervals.
    contrasts : container of int
        Places of the numbers whose sums by cluster are kept, which comparisons of
        models need.

    Returns
    -------
    Estimate
        A value is NaN where a pool with a weight is empty. Where a part has fewer than
        five clusters there is no error and no interval.

    Notes
    -----
    The interval adds one cluster that wins everything and one that loses everything, in
    each stratum, then takes a clustered t (Agresti and Coull 1998; Agresti and Caffo
    2000). It is conservative where prompts are few or nearly all are won.

    References
    ----------
    Miller (arXiv 2411.00640) for the clusters; `benchmarks/coverage.py` for the
    coverage.
    """
    numbers, clusters = [], {}
    for place, mean in enumerate(weights.means):
        number, sums = _estimate_number(items, mean, confidence)
        numbers.append(number)
        if place in contrasts:
            clusters[place] = sums
    columns = {
        name: np.array([getattr(number, name) for number in numbers])
        .reshape(len(numbers), len(items.models))
        .T
        for name in (column.name for column in fields(Measured))
    }
    return Estimate(
        **columns,
        models=items.models,
        numbers=weights.numbers,
        label=weights.label,
        clusters=clusters,
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
    """Means of groups of values that come in clusters, for numbers that no benchmark
    defines.

    Parameters
    ----------
    value : ndarray
        (items,): NaN values count nowhere.
    group, cluster : ndarray
        (items,): number of the item's group and of its cluster.
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
        value, se, df, low, high, n_prompts (clusters), n_pairs (values), reason and so
        on, (groups,) each.

    Examples
    --------
    >>> value, pairs_of_values = np.array([1.0, 1, 1, 0, 0, 0, 1, 0, 1, 1]), np.repeat(np.arange(5), 2)
    >>> means = group_means(value, np.zeros(10, int), pairs_of_values, 1)
    >>> means.value.item(), round(means.se.item(), 4), means.df.round(6).item()
    (0.6, 0.1871, 4.0)
    """
    outcome = np.where(np.isnan(value), MISSING, WIN).astype(np.int8)
    cells = pd.DataFrame(index=range(n_groups))
    frame, limits = (
        pd.DataFrame(index=range(len(value))),
        np.tile(np.array(bounds), (n_groups, 1)),
    )
    items = Items(
        ["all"],
        frame,
        value[None],
        outcome[None],
        cluster,
        cluster,
        group,
        cells,
        limits,
    )
    first = np.zeros(1, np.intp)
    means = [
        WeightedMean(np.array([place]), first, np.ones((1, 1)), ["group"])
        for place in range(n_groups)
    ]
    result = estimate(items, Weights(cells, means, ""), confidence)
    return Measured(
        **{column.name: getattr(result, column.name)[0] for column in fields(Measured)}
    )


def t_quantile(df: FloatArray, confidence: float) -> FloatArray:
    """Student's t for a two-sided interval; NaN without degrees of freedom."""
    if not isinstance(confidence, int | float | np.floating) or not 0 < confidence < 1:
        raise ValueError(
            f"confidence: {confidence!r}; allowed: between 0 and 1, for example 0.95"
        )
    return np.where(df > 0, stdtrit(np.maximum(df, 1e-3), 0.5 + confidence / 2), np.nan)


def satterthwaite(variance: FloatArray, df: FloatArray) -> FloatArray:
    """Degrees of freedom of a sum of variances (..., strata); without variance the sum
    of theirs.
    """
    total = variance.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Shares of the total, since the square of a large variance is beyond the
        # floats.
        inverse = np.where(variance > 0, (variance / total) ** 2 / df, 0.0).sum(axis=-1)
        return np.asarray(
            np.where(total[..., 0] > _ROUNDING**2, 1 / inverse, df.sum(axis=-1))
        )


def indicator(codes: IntArray, size: int) -> sparse.csr_array:
    """(items, groups): 1 where an item is in the group."""
    return sparse.csr_array(
        (np.ones(len(codes)), codes, np.arange(len(codes) + 1)),
        shape=(len(codes), size),
    )


def _estimate_number(
    items: Items, mean: WeightedMean, confidence: float
) -> tuple[Measured, ClusterSums]:
    rows = np.concatenate(
        [items.rows_of_cell[cell] for cell in mean.cells] or [np.zeros(0, np.intp)]
    )
    pool = np.repeat(mean.pool, [len(items.rows_of_cell[cell]) for cell in mean.cells])
    counts = mean.weight != 0  # a prior set may weigh nothing for a model
    observed = ~np.isnan(items.credit[:, rows]) & counts[:, pool]
    prompt, cluster = (
        pd.factorize(codes[rows], sort=True)[0]
        for codes in (items.prompt, items.cluster)
    )
    n_prompts = np.count_nonzero(
        observed @ indicator(prompt, int(prompt.max(initial=-1)) + 1), axis=1
    )
    n_pairs, outcome = observed.sum(axis=1), items.outcome[:, rows]
    n_ties, missing = (
        ((outcome == code) & counts[:, pool]).sum(axis=1) for code in (TIE, MISSING)
    )
    if observed.all():
        observed = observed[:1]  # all models are alike, so one row does
    block, codes = pd.factorize(cluster * len(mean.parts) + pool, sort=True)
    in_block, (block_cluster, block_pool) = (
        indicator(block, len(codes)),
        np.divmod(codes, len(mean.parts)),
    )
    total = np.where(observed, items.credit[:, rows], 0.0) @ in_block
    blocks = _Blocks(
        block_cluster, block_pool, total, observed.astype(float) @ in_block
    )
    in_pool = indicator(blocks.pool, len(mean.parts))
    n = blocks.n @ in_pool
    with np.errstate(divide="ignore", invalid="ignore"):
        pool_mean = np.ascontiguousarray(blocks.total @ in_pool) / n
    reason = np.full(len(items.models), "" if mean.parts else "nothing there", object)
    _add_reasons(reason, mean, counts & (n == 0), "nothing in {}", "nothing in {}")
    for model, text in mean.reasons.items():
        reason[model] = "; ".join(filter(None, (reason[model], text)))
    value = np.where(counts, mean.weight * pool_mean, 0.0).sum(axis=1) + np.where(
        reason == "", 0.0, np.nan
    )
    _add_reasons(
        reason,
        mean,
        counts & ((blocks.n > 0) @ in_pool < MIN_PROMPTS),
        TOO_FEW,
        f"{{}}: {TOO_FEW}",
    )
    pool_bounds = np.zeros((len(mean.parts), 2))
    pool_bounds[mean.pool] = items.bounds[mean.cells]
    sums = _cluster_sums(blocks, mean.weight, pool_mean, n, pool_bounds)
    se, df, low, high = _interval(value, sums, confidence)
    if sums.is_bounded:
        # Nine times a ninth is 1 + 2e-16: no value may lie above what can be earned.
        lowest = np.round(sums.low.sum(axis=1), _DECIMALS)
        highest = np.round(sums.high.sum(axis=1), _DECIMALS)
        value, low, high = (
            np.clip(number, lowest, highest) for number in (value, low, high)
        )
    se, low, high = (
        np.where(reason == "", number, np.nan) for number in (se, low, high)
    )
    return Measured(
        value, se, df, low, high, n_prompts, n_pairs, n_ties, missing, reason
    ), sums


def _add_reasons(
    reason: NDArray[np.object_],
    mean: WeightedMean,
    in_pool: BoolArray,
    text: str,
    text_of_parts: str,
) -> None:
    """Name the parts whose pools give a reason, for each model that has none yet;
    `text` is for a single part.
    """
    text = text_of_parts if len(set(mean.parts)) > 1 else text
    names = np.array(mean.parts, object)
    for model, pools in enumerate(
        np.broadcast_to(in_pool, (len(reason), in_pool.shape[1]))
    ):
        if reason[model] == "" and pools.any():
            reason[model] = text.format(", ".join(dict.fromkeys(names[pools])))


def _cluster_sums(
    blocks: _Blocks,
    weight: FloatArray,
    pool_mean: FloatArray,
    n: FloatArray,
    pool_bounds: FloatArray,
) -> ClusterSums:
    n_clusters = int(blocks.cluster.max(initial=-1)) + 1
    in_cluster = indicator(blocks.cluster, n_clusters)
    with np.errstate(divide="ignore", invalid="ignore"):
        item_weight = np.where(n > 0, weight / n, 0.0)[:, blocks.pool]
        pool_share = np.where(n > 0, 1 / n, 0.0)[:, blocks.pool] * blocks.n
        # CR2; a cluster that is its whole pool has no residual to scale.
        factor = np.where(pool_share < 1, 1 / np.sqrt(1 - pool_share), 0.0)
    residual = blocks.total - blocks.n * np.nan_to_num(pool_mean)[:, blocks.pool]
    share = (np.abs(item_weight) * blocks.n) @ in_cluster
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.nan_to_num(share / share.sum(axis=1, keepdims=True))
    # Pools that share a cluster are connected, and form a stratum.
    same_cluster = np.diff(blocks.cluster) == 0
    links = (
        np.ones(same_cluster.sum()),
        (blocks.pool[:-1][same_cluster], blocks.pool[1:][same_cluster]),
    )
    graph = sparse.coo_array(links, shape=(weight.shape[1], weight.shape[1]))
    n_strata, stratum_of_pool = sparse.csgraph.connected_components(
        graph, directed=False
    )
    stratum = np.zeros(n_clusters, np.intp)
    stratum[blocks.cluster] = stratum_of_pool[blocks.pool]
    in_stratum = indicator(stratum, n_strata)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Bell and McCaffrey (2002), working independence: 1 / (sum h^2 + sum over pairs
        # of h^2 h'^2 / ((1 - h)(1 - h'))) with h the share of the stratum; equal
        # clusters give their number less one.
        h = np.nan_to_num(share / (share @ in_stratum)[:, stratum])
        n_effective = 1 / (h**2 @ in_stratum)
        q = np.where(h < 1, h**2 / (1 - h), np.inf)
        df = 1 / (h**2 @ in_stratum + (q @ in_stratum) ** 2 - q**2 @ in_stratum)
    # A negative weight turns the bounds over.
    ends = np.sort([weight * pool_bounds[:, 0], weight * pool_bounds[:, 1]], axis=0)
    limits = ends @ indicator(stratum_of_pool.astype(np.intp), n_strata).toarray()
    n_models = len(blocks.total)
    by_model = (n_models, n_strata)
    return ClusterSums(
        influence=(item_weight * residual * factor) @ in_cluster,
        contribution=(item_weight * blocks.total) @ in_cluster,
        share=np.broadcast_to(share, (n_models, n_clusters)),
        stratum=stratum,
        df=np.broadcast_to(np.where(np.isfinite(df), df, 0.0), by_model),
        n_effective=np.broadcast_to(n_effective, by_model),
        low=np.broadcast_to(limits[0], by_model),
        high=np.broadcast_to(limits[1], by_model),
    )


def _interval(
    value: FloatArray, sums: ClusterSums, confidence: float
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Error, degrees of freedom and limits of each model's value."""
    in_stratum = indicator(sums.stratum, sums.df.shape[1])
    variance = sums.influence**2 @ in_stratum
    se, df = np.sqrt(variance.sum(axis=1)), satterthwaite(variance, sums.df)
    if not sums.is_bounded:
        half = t_quantile(df, confidence) * se
        return se, df, value - half, value + half
    strata = Strata(
        value=sums.contribution @ in_stratum,
        variance=variance,
        df=sums.df,
        n_effective=sums.n_effective,
        low=sums.low,
        high=sums.high,
    )
    low, high = limits_around(value, adjust(value, strata), confidence)
    return se, df, low, high


def adjust(value: FloatArray, strata: Strata) -> Adjusted:
    """Add a won and a lost cluster to numbers (rows,), and to the variance of each of
    their strata.

    The center moves as if the two were added to all clusters at once: many small strata
    would otherwise pull it to the middle of the scale. See "The interval of a number"
    in docs/statistics.md.
    """
    span = strata.high - strata.low
    low = strata.low.sum(axis=1)
    width = span.sum(axis=1)
    n = strata.n_effective
    with np.errstate(divide="ignore", invalid="ignore"):
        _, added_variance = add_two_clusters((strata.value - strata.low) / span, n)
        variance = (n / (n + 2)) ** 2 * strata.variance + span**2 * added_variance
        variance = np.where(span > 0, variance, 0.0)

        n_in_all = 1 / ((span / width[:, None]) ** 2 / n).sum(axis=1)
        center, _ = add_two_clusters((value - low) / width, n_in_all)
    se = np.sqrt(variance.sum(axis=1))
    return Adjusted(low + width * center, se, satterthwaite(variance, strata.df))


def limits_around(
    value: FloatArray, adjusted: Adjusted, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Lower and upper limits; at low confidence they reach as far as the value, which
    may lie beside the center.
    """
    half = t_quantile(adjusted.df, confidence) * adjusted.se
    return np.minimum(adjusted.center - half, value), np.maximum(
        adjusted.center + half, value
    )


def add_two_clusters(share: FloatArray, n: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Center of n clusters with one that wins and one that loses, and the variance that
    the two add.
    """
    center = (n * share + 1) / (n + 2)
    return center, (center**2 + (1 - center) ** 2) / (n + 2) ** 2
