"""Parts with weights, and numbers as weighted sums of means of cells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.estimation.items import N_STYLE_CODES, Items
from rmlab.tables import BoolArray, DataError, FloatArray, IntArray

Average = Literal["benchmark", "domains", "prompts"] | Mapping[str, float]


@dataclass(frozen=True)
class Parts:
    """The parts of a benchmark and their weights in its overall score.

    Attributes
    ----------
    names : list of str
        Names of the parts.
    of_cell : ndarray
        (cells,): the part that the items of a cell belong to.
    weight : ndarray
        (1 or models, parts): of any scale, as `weighted_mean` scales the weights of the
        parts that a number requires.
    label : str
        What the column `average` of a table says.
    reasons : dict
        (model, part) to the reason why the part is incomplete for the model.
    """

    names: list[str]
    of_cell: IntArray
    weight: FloatArray
    label: str = "benchmark"
    reasons: Mapping[tuple[int, int], str] = field(default_factory=dict)


@dataclass(frozen=True)
class WeightedMean:
    """A number: cells are pooled, and the means of the pools are summed with weights.

    Attributes
    ----------
    cells, pool : ndarray
        The cells that count, and the pool of each.
    weight : ndarray
        (1 or models, pools): weight of each pool's mean. An empty pool with a
        weight gives NaN.
    parts : list of str
        Name of the part that each pool belongs to.
    reasons : dict
        Model to the reason why its number does not exist.
    """

    cells: IntArray
    pool: IntArray
    weight: FloatArray
    parts: list[str]
    reasons: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Weights:
    """Numbers as weighted means of cells.

    Attributes
    ----------
    numbers : DataFrame
        One row per number, with the columns that name it.
    means : list of WeightedMean
        The numbers, in the order of the rows.
    label : str
        What the column `average` of a table says.
    """

    numbers: pd.DataFrame
    means: list[WeightedMean]
    label: str


def weighted_parts(
    items: Items,
    part_of_cell: Sequence[str],
    weight: Mapping[str, float],
    *,
    label: str = "benchmark",
) -> Parts:
    """Parts of a benchmark from the name of each cell's part.

    Parameters
    ----------
    items : Items
        The items of a table.
    part_of_cell : sequence of str
        One name per row of `items.cells`.
    weight : mapping
        Weight by name, of any scale.
    label : str
        What the column `average` of a table says.
    """
    names = list(weight)
    place_of_name = {name: place for place, name in enumerate(names)}
    of_cell = np.array([place_of_name[name] for name in part_of_cell], np.intp)
    values = np.array([list(weight.values())], np.float64)
    return Parts(names, of_cell, values, label)


def domain_parts(items: Items, average: Average) -> Parts:
    """Parts that any data has: all domains alike, all prompts alike, or domains with
    given weights.

    Raises DataError where a domain has no weight, and ValueError for weights that are
    negative or all zero.
    """
    domains = items.cells["domain"].tolist()
    if not isinstance(average, Mapping):
        tables.check_option("average", average, ("benchmark", "domains", "prompts"))
        names = ["all prompts"] * len(domains) if average == "prompts" else domains
        return weighted_parts(items, names, dict.fromkeys(names, 1.0), label=average)
    for domain in domains:
        if domain not in average:
            similar = tables.nearest(domain, list(average))
            problem = f"average: no weight for domain {domain!r}; {similar}"
            raise DataError(problem, "weigh every domain, if only with 0")
    if not (min(average.values()) >= 0 and 0 < sum(average.values()) < np.inf):
        problem = f"average: weights {dict(average)}"
        raise ValueError(f"{problem}; none may be negative, and not all zero")
    return weighted_parts(items, domains, average, label="given weights")


def weighted_mean(
    items: Items,
    parts: Parts,
    selected: BoolArray | None = None,
    required: IntArray | None = None,
) -> WeightedMean:
    """The mean of the selected cells (cells,), with the weights of their parts.

    Inside a part every pair of styles counts alike, and its items are pooled. Without a
    `required` part the number does not exist; by default these are the parts of the
    selected cells. If all of a model's weights are zero, the parts count equally.
    """
    if selected is None:
        cells = np.arange(len(items.cells))
    else:
        cells = np.flatnonzero(selected)
    style_code = items.cells["style_code"].to_numpy()[cells]
    pool_codes = parts.of_cell[cells] * N_STYLE_CODES + style_code
    pools, pool_of_cell = np.unique(pool_codes, return_inverse=True)
    part_of_pool = pools // N_STYLE_CODES
    if required is None:
        required = np.unique(part_of_pool)

    # A required part without items is an empty pool: the estimate then gives the
    # reason.
    n_pools = np.bincount(part_of_pool, minlength=len(parts.names))
    empty_parts = required[n_pools[required] == 0]
    part_of_pool = np.concatenate([part_of_pool, empty_parts])

    weight = parts.weight[:, required]
    is_unweighted = ~(weight.sum(axis=1, keepdims=True) > 0)
    weight = np.where(is_unweighted, 1.0, weight)
    share = np.zeros(parts.weight.shape)
    share[:, required] = weight / weight.sum(axis=1, keepdims=True)
    n_sharing = np.maximum(n_pools[part_of_pool], 1)
    return WeightedMean(
        cells=cells,
        pool=pool_of_cell,
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


def contrast(means: Sequence[WeightedMean], factors: Sequence[float]) -> WeightedMean:
    """The sum of the means times their factors as one number, such as a mean less
    another.
    """
    first_pool = 0
    pools = []
    weights = []
    parts: list[str] = []
    reasons: dict[int, str] = {}
    for mean, factor in zip(means, factors, strict=True):
        pools.append(mean.pool + first_pool)
        weights.append(factor * mean.weight)
        first_pool += len(mean.parts)
        parts += mean.parts
        reasons |= mean.reasons
    return WeightedMean(
        cells=np.hstack([mean.cells for mean in means]),
        pool=np.hstack(pools),
        weight=np.hstack(weights),
        parts=parts,
        reasons=reasons,
    )


def overall_weights(items: Items, parts: Parts) -> Weights:
    """The overall score alone: all items, and every part is required."""
    mean = weighted_mean(items, parts, required=np.arange(len(parts.names)))
    return Weights(pd.DataFrame(index=range(1)), [mean], parts.label)
