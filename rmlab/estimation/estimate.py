"""Every number of every model, with an error clustered by prompt and an interval."""

from collections.abc import Container
from dataclasses import dataclass, field, fields

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.estimation.clustered import (
    MIN_PROMPTS,
    TOO_FEW,
    ClusterSums,
    WeightedSum,
    indicator,
    rows_by_code,
    sum_weighted_means,
)
from rmlab.estimation.items import MISSING, TIE, Items
from rmlab.estimation.weights import WeightedMean, Weights
from rmlab.tables import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class _Number:
    """One number of every model; the arrays are (models,)."""

    value: FloatArray
    se: FloatArray
    df: FloatArray
    low: FloatArray
    high: FloatArray
    n_prompts: IntArray
    n_items: IntArray
    n_ties: IntArray
    missing: IntArray
    reason: NDArray[np.object_]


@dataclass(frozen=True)
class Estimate(_Number):
    """Numbers of every model; the arrays are (models, numbers).

    Attributes
    ----------
    value, se, df, low, high : ndarray
        The number, its clustered error, degrees of freedom and limits.
    n_prompts, n_items, n_ties, missing : ndarray
        Prompts and items that were counted, ties among these, and items without an
        answer.
    reason : ndarray
        Why there is no value or no interval, else "".
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
    Miller (arXiv 2411.00640) for the clusters; `performance/coverage.py` for the
    coverage.
    """
    rows_of_cell = rows_by_code(items.cell, len(items.cells))
    numbers = []
    clusters = {}
    for place, mean in enumerate(weights.means):
        number, sums = _estimate_number(items, rows_of_cell, mean, confidence)
        numbers.append(number)
        if place in contrasts:
            clusters[place] = sums

    shape = (len(numbers), len(items.models))
    columns = {}
    for column in fields(_Number):
        values = np.array([getattr(number, column.name) for number in numbers])
        columns[column.name] = values.reshape(shape).T
    return Estimate(
        **columns,
        models=items.models,
        numbers=weights.numbers,
        label=weights.label,
        clusters=clusters,
    )


def _estimate_number(
    items: Items, rows_of_cell: list[IntArray], mean: WeightedMean, confidence: float
) -> tuple[_Number, ClusterSums]:
    counted = [rows_of_cell[cell] for cell in mean.cells]
    rows = np.concatenate([np.zeros(0, np.intp), *counted])
    pool = np.repeat(mean.pool, [len(rows) for rows in counted])
    credit = items.credit[:, rows]
    bounds = np.zeros((len(mean.parts), 2))
    bounds[mean.pool] = items.bounds[mean.cells]
    result = sum_weighted_means(
        credit, pool, items.cluster[rows], mean.weight, bounds, confidence
    )

    no_value, no_interval = _explain(mean, result, len(items.models))
    value = np.where(no_value == "", result.value, np.nan)
    withheld = np.where(no_interval == "", 0.0, np.nan)

    counts = (mean.weight != 0)[:, pool]  # a prior set may weigh nothing for a model
    if items.cluster is items.prompt:  # every cluster with a share is a prompt
        n_prompts = np.count_nonzero(result.sums.share, axis=1)
    else:
        n_prompts = _count_prompts(~np.isnan(credit) & counts, items.prompt[rows])
    n_items = result.n_values.sum(axis=1)
    outcome = items.outcome[:, rows]
    number = _Number(
        value=value,
        se=result.interval.se + withheld,
        df=result.interval.df,
        low=result.interval.low + withheld,
        high=result.interval.high + withheld,
        n_prompts=np.asarray(n_prompts, np.intp),
        n_items=np.broadcast_to(n_items, value.shape),
        n_ties=((outcome == TIE) & counts).sum(axis=1),
        missing=((outcome == MISSING) & counts).sum(axis=1),
        reason=no_interval,
    )
    return number, result.sums


def _count_prompts(observed: BoolArray, prompt: IntArray) -> IntArray:
    codes, prompts = pd.factorize(prompt)
    n_observed = observed @ indicator(codes, len(prompts))
    return np.asarray((n_observed > 0).sum(axis=1), np.intp)


def _explain(
    mean: WeightedMean, result: WeightedSum, n_models: int
) -> tuple[NDArray[np.object_], NDArray[np.object_]]:
    """Why each model has no value, and why it has no interval, else ""."""
    by_model = (n_models, len(mean.parts))
    has_weight = mean.weight != 0
    is_empty = np.broadcast_to(has_weight & (result.n_values == 0), by_model)
    is_small = has_weight & (result.n_clusters < MIN_PROMPTS)
    is_small = np.broadcast_to(is_small, by_model)

    no_value = np.full(n_models, "" if mean.parts else "nothing there", object)
    for model in np.flatnonzero(is_empty.any(axis=1)):
        no_value[model] = f"nothing in {_name_parts(mean, is_empty[model])}"
    for row, text in mean.reasons.items():
        earlier = no_value[row]
        no_value[row] = f"{earlier}; {text}" if earlier else text

    no_interval = no_value.copy()
    has_parts = len(set(mean.parts)) > 1
    for model in np.flatnonzero(is_small.any(axis=1) & (no_value == "")):
        no_interval[model] = TOO_FEW
        if has_parts:
            no_interval[model] = f"{_name_parts(mean, is_small[model])}: {TOO_FEW}"
    return no_value, no_interval


def _name_parts(mean: WeightedMean, selected: BoolArray) -> str:
    """Names of the parts of the selected pools, each once."""
    names = [mean.parts[pool] for pool in np.flatnonzero(selected)]
    return ", ".join(dict.fromkeys(names))
