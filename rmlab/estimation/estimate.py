"""Every number of every model, with an error clustered by prompt and an interval."""

from collections.abc import Container, Iterator
from dataclasses import dataclass, field, fields

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.estimation.clustered import (
    MIN_PROMPTS,
    TOO_FEW,
    ClusterSums,
    Measured,
    WeightedSum,
    indicator,
    sum_weighted_means,
)
from rmlab.estimation.items import MISSING, TIE, Items
from rmlab.estimation.weights import WeightedMean, Weights
from rmlab.tables import BoolArray, IntArray


@dataclass(frozen=True)
class _Number(Measured):
    """One number of every model; the arrays are (models,)."""

    n_ties: IntArray


@dataclass(frozen=True)
class Estimate(_Number):
    """Numbers of every model; the arrays are (models, numbers).

    Attributes
    ----------
    n_ties : ndarray
        Ties among the items.
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
    numbers = []
    clusters = {}
    for place, mean in enumerate(weights.means):
        number, sums = _estimate_number(items, mean, confidence)
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
    items: Items, mean: WeightedMean, confidence: float
) -> tuple[_Number, ClusterSums]:
    rows_of_cell = [items.rows_of_cell[cell] for cell in mean.cells]
    rows = np.concatenate([np.zeros(0, np.intp), *rows_of_cell])
    pool = np.repeat(mean.pool, [len(rows) for rows in rows_of_cell])
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
    n_pairs = result.n_values.sum(axis=1)
    outcome = items.outcome[:, rows]
    number = _Number(
        value=value,
        se=result.interval.se + withheld,
        df=result.interval.df,
        low=result.interval.low + withheld,
        high=result.interval.high + withheld,
        n_prompts=np.asarray(n_prompts, np.intp),
        n_pairs=np.broadcast_to(n_pairs, value.shape),
        missing=((outcome == MISSING) & counts).sum(axis=1),
        reason=no_interval,
        n_ties=((outcome == TIE) & counts).sum(axis=1),
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
    has_weight = mean.weight != 0
    no_value = np.full(n_models, "" if mean.parts else "nothing there", object)
    for model, names in _parts_of_pools(
        mean, has_weight & (result.n_values == 0), n_models
    ):
        no_value[model] = f"nothing in {names}"
    for model, text in mean.reasons.items():
        no_value[model] = f"{no_value[model]}; {text}" if no_value[model] else text

    no_interval = no_value.copy()
    is_small = has_weight & (result.n_clusters < MIN_PROMPTS)
    has_parts = len(set(mean.parts)) > 1
    for model, names in _parts_of_pools(mean, is_small, n_models):
        if no_value[model] == "":
            no_interval[model] = f"{names}: {TOO_FEW}" if has_parts else TOO_FEW
    return no_value, no_interval


def _parts_of_pools(
    mean: WeightedMean, selected: BoolArray, n_models: int
) -> Iterator[tuple[int, str]]:
    """Each model with selected pools, and the names of their parts."""
    names = np.array(mean.parts, object)
    by_model = np.broadcast_to(selected, (n_models, len(names)))
    for model in np.flatnonzero(by_model.any(axis=1)):
        yield int(model), ", ".join(dict.fromkeys(names[by_model[model]]))
