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
        (1 or models, pools): weight of each pool's mean. A pool with a weight and
        without items leaves no number.
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
    names, values = list(weight), np.array([[*weight.values()]], np.float64)
    of_cell = np.array([names.index(name) for name in part_of_cell], np.intp)
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
    without = [domain for domain in domains if domain not in average]
    if without:
        allowed = tables.nearest(without[0], list(average))
        raise DataError(
            f"average: no weight for domain {without[0]!r}; {allowed}. Weigh every domain, if only with 0."
        )
    if not (min(average.values()) >= 0 and 0 < sum(average.values()) < np.inf):
        raise ValueError(
            f"average: weights {dict(average)}; none may be negative, and not all zero"
        )
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
    cells = (
        np.arange(len(items.cells)) if selected is None else np.flatnonzero(selected)
    )
    style_codes = items.cells["style_code"].to_numpy()[cells]
    pools, pool_of_cell = np.unique(
        parts.of_cell[cells] * N_STYLE_CODES + style_codes, return_inverse=True
    )
    part_of_pool = pools // N_STYLE_CODES
    required = np.unique(part_of_pool) if required is None else required
    total = parts.weight[:, required].sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(
            total > 0, parts.weight[:, required] / total, 1 / max(len(required), 1)
        )
    n_pools = np.bincount(part_of_pool, minlength=len(parts.names))
    # A required part without items is an empty pool: the estimate then gives the
    # reason.
    empty = required[n_pools[required] == 0]
    column_of_part = np.full(len(parts.names), -1)
    column_of_part[required] = np.arange(len(required))
    columns = column_of_part[np.concatenate([part_of_pool, empty])]
    n_sharing = np.concatenate([n_pools[part_of_pool], np.ones(len(empty))])
    weight = np.where(columns >= 0, share[:, columns], 0.0) / n_sharing
    names = [parts.names[part] for part in (*part_of_pool, *empty)]
    needed = set(required.tolist())
    reasons: dict[int, str] = {}
    for (model, part), reason in parts.reasons.items():
        if (
            part in needed
            and share[min(model, len(share) - 1), column_of_part[part]] > 0
        ):
            reasons[model] = (
                f"{reasons[model]}; {reason}" if model in reasons else reason
            )
    return WeightedMean(cells, pool_of_cell, weight, names, reasons)


def contrast(means: Sequence[WeightedMean], factors: Sequence[float]) -> WeightedMean:
    """The sum of the means times their factors as one number, such as a mean less
    another.
    """
    n_pools = np.array([len(mean.parts) for mean in means])
    first_pool = np.cumsum(n_pools) - n_pools
    parts: list[str] = []
    reasons: dict[int, str] = {}
    for mean in means:
        parts += mean.parts
        reasons |= mean.reasons
    return WeightedMean(
        cells=np.hstack([mean.cells for mean in means]),
        pool=np.hstack(
            [mean.pool + start for mean, start in zip(means, first_pool, strict=True)]
        ),
        weight=np.hstack(
            [factor * mean.weight for mean, factor in zip(means, factors, strict=True)]
        ),
        parts=parts,
        reasons=reasons,
    )


def overall_weights(items: Items, parts: Parts) -> Weights:
    """The overall score alone: all items, and every part is required."""
    mean = weighted_mean(items, parts, required=np.arange(len(parts.names)))
    return Weights(pd.DataFrame(index=range(1)), [mean], parts.label)
