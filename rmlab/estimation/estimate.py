"""Every number of every model, with an error clustered by prompt and an interval."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.estimation.clustered import (
    MIN_PROMPTS,
    TOO_FEW,
    ClusterSums,
    Estimate,
    indicator,
    make_estimate,
    sum_clusters,
)
from rmlab.estimation.items import MISSING, TIE, Items
from rmlab.estimation.weights import Number
from rmlab.tables import BoolArray


def estimate(
    items: Items,
    numbers: Sequence[Number],
    confidence: float = 0.95,
) -> Estimate:
    """Estimate numbers of every model with clustered errors and intervals.

    Parameters
    ----------
    items : Items
        Credit of every model on every item.
    numbers : sequence of Number
        Weighted sums of means.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    Estimate
        (models, numbers): a value is NaN where a pool with a weight is empty. Where a
        part has fewer than five prompts there is no error and no interval.

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
    measured = [_measure(items, number, confidence) for number in numbers]
    return Estimate(
        *(np.stack(column, axis=1) for column in zip(*measured, strict=True))
    )


def sum_number(items: Items, number: Number) -> ClusterSums:
    """Sum a number by cluster, for each model."""
    bounds = np.zeros((len(number.parts), 2))
    bounds[number.pool] = items.bounds[number.rows]
    cluster = items.cluster[number.rows]
    credit = items.credit[:, number.rows]
    return sum_clusters(credit, number.pool, cluster, number.weight, bounds)


def _measure(items: Items, number: Number, confidence: float) -> Estimate:
    """A number of every model, (models,)."""
    sums = sum_number(items, number)
    no_value, reason = _explain(number, sums, len(items.models))
    # A prior set may weigh nothing for a model.
    counts = (number.weight != 0)[:, number.pool]
    outcome = items.outcome[:, number.rows]
    if items.cluster is items.prompt:  # every cluster with a share is a prompt
        n_prompts = np.count_nonzero(sums.share, axis=1)
    else:
        is_observed = ~np.isnan(items.credit[:, number.rows]) & counts
        code, prompts = pd.factorize(items.prompt[number.rows])
        n_observed = is_observed @ indicator(code, len(prompts))
        n_prompts = np.count_nonzero(n_observed, axis=1)
    result = make_estimate(
        sums,
        confidence,
        n_prompts=n_prompts,
        n_ties=((outcome == TIE) & counts).sum(axis=1),
        missing=((outcome == MISSING) & counts).sum(axis=1),
        reason=reason,
    )
    return result._replace(value=np.where(no_value == "", sums.value, np.nan))


def _explain(
    number: Number, sums: ClusterSums, n_models: int
) -> tuple[NDArray[np.object_], NDArray[np.object_]]:
    """Why each model has no value, and why it has no interval, else ""."""
    has_weight = np.broadcast_to(number.weight != 0, (n_models, len(number.parts)))
    no_value = np.full(n_models, "" if number.parts else "nothing there", object)
    for model, names in _list_parts(number, has_weight & (sums.n_values == 0)):
        no_value[model] = f"nothing in {names}"
    for model, text in number.reasons.items():
        earlier = no_value[model]
        no_value[model] = f"{earlier}; {text}" if earlier else text

    no_interval = no_value.copy()
    has_parts = len(set(number.parts)) > 1
    is_small = has_weight & (sums.n_clusters < MIN_PROMPTS)
    for model, names in _list_parts(number, is_small):
        if not no_value[model]:
            no_interval[model] = f"{names}: {TOO_FEW}" if has_parts else TOO_FEW
    return no_value, no_interval


def _list_parts(number: Number, selected: BoolArray) -> Iterator[tuple[int, str]]:
    """Models with the names of their selected parts, each once."""
    for model in np.flatnonzero(selected.any(axis=1)).tolist():
        pools = np.flatnonzero(selected[model])
        names = dict.fromkeys(number.parts[pool] for pool in pools)
        yield model, ", ".join(names)
