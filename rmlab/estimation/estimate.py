"""Every number of every model, with an error clustered by prompt and an interval."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.estimation.clustered import (
    MIN_PROMPTS,
    TOO_FEW,
    ClusterSums,
    Estimate,
    indicator,
    interval,
    sum_clusters,
)
from rmlab.estimation.items import MISSING, TIE, Items
from rmlab.estimation.weights import Number
from rmlab.tables import BoolArray, IntArray

_COLUMNS = [
    *("value", "se", "df", "low", "high", "p"),
    *("n_prompts", "n_pairs", "n_ties", "missing", "reason"),
]


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
    shape = (len(numbers), len(items.models))
    columns = {}
    for name in _COLUMNS:
        values = np.array([number[name] for number in measured])
        columns[name] = values.reshape(shape).T
    return Estimate(**columns)


def sum_number(items: Items, number: Number) -> ClusterSums:
    """Sum a number by cluster, for each model."""
    bounds = np.zeros((len(number.parts), 2))
    bounds[number.pool] = items.bounds[number.rows]
    cluster = items.cluster[number.rows]
    credit = items.credit[:, number.rows]
    return sum_clusters(credit, number.pool, cluster, number.weight, bounds)


def _measure(
    items: Items, number: Number, confidence: float
) -> dict[str, NDArray[np.generic]]:
    """The columns of a number, (models,) each."""
    sums = sum_number(items, number)
    no_value, reason = _explain(number, sums, len(items.models))
    withheld = np.where(reason == "", 0.0, np.nan)
    se, df, low, high, p = interval(sums, confidence)

    rows = number.rows
    # A prior set may weigh nothing for a model.
    counts = (number.weight != 0)[:, number.pool]
    outcome = items.outcome[:, rows]
    if items.cluster is items.prompt:  # every cluster with a share is a prompt
        n_prompts = np.count_nonzero(sums.share, axis=1)
    else:
        is_observed = ~np.isnan(items.credit[:, rows]) & counts
        n_prompts = _count_prompts(is_observed, items.prompt[rows])
    return {
        "value": np.where(no_value == "", sums.value, np.nan),
        "se": se + withheld,
        "df": df,
        "low": low + withheld,
        "high": high + withheld,
        "p": p + withheld,
        "n_prompts": np.asarray(n_prompts, np.intp),
        "n_pairs": np.broadcast_to(sums.n_values.sum(axis=1), len(items.models)),
        "n_ties": ((outcome == TIE) & counts).sum(axis=1),
        "missing": ((outcome == MISSING) & counts).sum(axis=1),
        "reason": reason,
    }


def _count_prompts(observed: BoolArray, prompt: IntArray) -> IntArray:
    codes, prompts = pd.factorize(prompt)
    n_observed = observed @ indicator(codes, len(prompts))
    return np.asarray((n_observed > 0).sum(axis=1), np.intp)


def _explain(
    number: Number, sums: ClusterSums, n_models: int
) -> tuple[NDArray[np.object_], NDArray[np.object_]]:
    """Why each model has no value, and why it has no interval, else ""."""
    by_model = (n_models, len(number.parts))
    is_empty = (number.weight != 0) & (sums.n_values == 0)
    is_empty = np.broadcast_to(is_empty, by_model)
    is_small = (number.weight != 0) & (sums.n_clusters < MIN_PROMPTS)
    lacks_prompts = np.broadcast_to(is_small, by_model)

    no_value = np.full(n_models, "" if number.parts else "nothing there", object)
    for model in np.flatnonzero(is_empty.any(axis=1)):
        no_value[model] = f"nothing in {_name_parts(number, is_empty[model])}"
    for row, text in number.reasons.items():
        earlier = no_value[row]
        no_value[row] = f"{earlier}; {text}" if earlier else text

    no_interval = no_value.copy()
    has_parts = len(set(number.parts)) > 1
    for model in np.flatnonzero(lacks_prompts.any(axis=1) & (no_value == "")):
        no_interval[model] = TOO_FEW
        if has_parts:
            names = _name_parts(number, lacks_prompts[model])
            no_interval[model] = f"{names}: {TOO_FEW}"
    return no_value, no_interval


def _name_parts(number: Number, selected: BoolArray) -> str:
    """Names of the parts of the selected pools, each once."""
    names = [number.parts[pool] for pool in np.flatnonzero(selected)]
    return ", ".join(dict.fromkeys(names))
