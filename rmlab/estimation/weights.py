"""Parts with weights, and numbers as weighted sums of means."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.estimation.items import N_STYLE_CODES, Items, Parts
from rmlab.tables import DataError, FloatArray, IntArray

Average = Literal["benchmark", "domains", "prompts"] | Mapping[str, float]


@dataclass(frozen=True)
class Number:
    """A number: items are pooled, and the means of the pools are summed with weights.

    Attributes
    ----------
    rows, pool : ndarray
        The items that count, and the pool of each.
    weight : ndarray
        (1 or models, pools): weight of each pool's mean. An empty pool with a
        weight gives NaN.
    parts : list of str
        Name of the part that each pool belongs to.
    reasons : dict
        Model to the reason why its number does not exist.
    """

    rows: IntArray
    pool: IntArray
    weight: FloatArray
    parts: list[str]
    reasons: Mapping[int, str] = field(default_factory=dict)


def weighted_parts(
    part_of_item: Sequence[str] | pd.Series,
    weight: Mapping[str, float],
    *,
    label: str = "benchmark",
) -> Parts:
    """Parts of a benchmark from the name of each item's part.

    Parameters
    ----------
    part_of_item : sequence of str
        One name per item.
    weight : mapping
        Weight by name, of any scale.
    label : str
        What the column `average` of a table says.
    """
    names = list(weight)
    of_item = pd.Index(names).get_indexer(pd.Index(part_of_item))
    values = np.array([list(weight.values())], np.float64)
    return Parts(names, of_item, values, label)


def domain_parts(frame: pd.DataFrame, average: Average) -> Parts:
    """Parts that any data has: all domains alike, all prompts alike, or domains with
    given weights.

    Raises DataError where a domain has no weight, and ValueError for weights that are
    negative or all zero. `frame` describes the items.
    """
    domains = frame["domain"]
    names = domains.unique().tolist()
    if not isinstance(average, Mapping):
        tables.check_option("average", average, ("benchmark", "domains", "prompts"))
        if average == "prompts":
            of_item = np.zeros(len(frame), np.intp)
            return Parts(["all prompts"], of_item, np.ones((1, 1)), average)
        return weighted_parts(domains, dict.fromkeys(names, 1.0), label=average)
    for domain in names:
        if domain not in average:
            similar = tables.nearest(domain, list(average))
            problem = f"average: no weight for domain {domain!r}; {similar}"
            raise DataError(problem, "weigh every domain, if only with 0")
    if not (min(average.values()) >= 0 and 0 < sum(average.values()) < np.inf):
        problem = f"average: weights {dict(average)}"
        raise ValueError(f"{problem}; none may be negative, and not all zero")
    return weighted_parts(domains, average, label="given weights")


def weighted_mean(
    items: Items, rows: IntArray | None = None, required: IntArray | None = None
) -> Number:
    """The mean of some items, by default of all, with the weights of their parts.

    Inside a part every pair of styles counts alike, and its items are pooled. Without a
    `required` part the number does not exist; by default these are the parts of the
    items. If all of a model's weights are zero, the parts count equally.
    """
    parts = items.parts
    if rows is None:
        rows = np.arange(len(items.frame))
    code = parts.of_item[rows] * N_STYLE_CODES + items.style_code[rows]
    pools, pool = np.unique(code, return_inverse=True)
    part_of_pool = pools // N_STYLE_CODES
    n_pools = np.bincount(part_of_pool, minlength=len(parts.names))
    if required is None:
        required = np.unique(part_of_pool)

    # A required part without items is an empty pool: the estimate then gives the
    # reason.
    empty_parts = required[n_pools[required] == 0]
    part_of_pool = np.concatenate([part_of_pool, empty_parts])

    weight = parts.weight[:, required]
    is_unweighted = ~(weight.sum(axis=1, keepdims=True) > 0)
    weight = np.where(is_unweighted, 1.0, weight)
    share = np.zeros(parts.weight.shape)
    share[:, required] = weight / weight.sum(axis=1, keepdims=True)
    n_sharing = np.maximum(n_pools[part_of_pool], 1)
    return Number(
        rows=rows,
        pool=pool,
        weight=share[:, part_of_pool] / n_sharing,
        parts=[parts.names[part] for part in part_of_pool],
        reasons=_reasons_of_models(parts, share),
    )


def _reasons_of_models(parts: Parts, share: FloatArray) -> dict[int, str]:
    """Why a part that counts for a model is incomplete."""
    reasons: dict[int, str] = {}
    for (model, part), reason in parts.reasons.items():
        row = min(model, len(share) - 1)  # one row serves all models
        if share[row, part] > 0:
            earlier = reasons.get(model)
            reasons[model] = f"{earlier}; {reason}" if earlier else reason
    return reasons


def subtract(first: Number, second: Number) -> Number:
    """A number less another one; missing where one of them has no items."""
    for side in (first, second):
        if not side.parts:
            return side
    return Number(
        rows=np.concatenate([first.rows, second.rows]),
        pool=np.concatenate([first.pool, second.pool + len(first.parts)]),
        weight=np.hstack([first.weight, -second.weight]),
        parts=first.parts + second.parts,
        reasons={**first.reasons, **second.reasons},
    )
