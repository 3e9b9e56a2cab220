"""How the parts of a benchmark combine: which items are pooled, and what each pool weighs in a number."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmlab import tables
from rmlab.items.grid import STYLE_CODES, Codes, Floats, Items, Mask
from rmlab.tables import DataError

__all__ = [
    "Average",
    "Number",
    "Weighting",
    "by_domain",
    "by_mapping",
    "number_of",
    "pooled",
    "weighs",
    "weighted_parts",
]

Average = Literal["benchmark", "domains", "prompts"] | Mapping[str, float]


class Weighting(NamedTuple):
    """The parts of a benchmark and what each weighs in the overall score.

    `part` (cells,) is the part that the items of a cell are pooled into; `weight` (models, parts) has rows that sum to
    one. `lacking` says why a part is not all there for a model although it has items ("" where it is). `label` is what
    the column `average` of a table says.
    """

    part: Codes
    weight: Floats
    names: list[str]
    lacking: NDArray[np.object_]
    label: str


def weighs(items: Items, weighting: Weighting) -> Mask:
    """Which items count in the overall score of which model: (models, items)."""
    counted: Mask = (weighting.weight != 0)[:, weighting.part[items.cell]]
    return counted


class Number(NamedTuple):
    """A number to estimate: items are pooled, and the means of the pools are averaged with weights.

    `pool` (items,) is -1 for items that do not count; `weight` (models, pools); `names` are the parts that the pools
    belong to. `reason` (models,) says why the number does not exist for a model, as far as that is known beforehand.
    """

    pool: Codes
    weight: Floats
    names: list[str]
    reason: list[str]


def weighted_parts(
    items: Items,
    label: Sequence[str],
    weight: Mapping[str, float] | Floats,
    names: Sequence[str] = (),
    *,
    words: str,
) -> Weighting:
    """Parts from a label of each cell; `weight` by name, or (models, parts) in the order of `names`."""
    names = list(weight) if isinstance(weight, Mapping) else list(names)
    place = {name: i for i, name in enumerate(names)}
    part = np.array([place[name] for name in label], np.intp)
    if isinstance(weight, Mapping):
        row = np.array([float(weight[name]) for name in names])
        weight = np.tile(row / row.sum(), (len(items.models), 1))
    lacking = np.full((len(items.models), len(names)), "", object)
    return Weighting(part, weight, names, lacking, words)


def pooled(items: Items, words: str = "prompts") -> Weighting:
    """All prompts alike: one part."""
    return weighted_parts(items, ["all prompts"] * len(items.cells), {"all prompts": 1.0}, words=words)


def by_domain(items: Items, words: str = "domains") -> Weighting:
    """All domains alike that the items have."""
    domains = dict.fromkeys(items.cells["domain"], 1.0)
    return weighted_parts(items, items.cells["domain"].tolist(), domains, words=words)


def by_mapping(items: Items, weights: Mapping[str, float]) -> Weighting:
    """Domains with given weights; DataError where a domain has none, ValueError for weights that are not."""
    strange = [d for d in dict.fromkeys(items.cells["domain"]) if d not in weights]
    if strange:
        raise DataError(
            f"average: no weight for domain {strange[0]!r}; {tables.nearest(strange[0], list(weights))}; "
            "give every domain a weight (0 leaves it out), or use average='domains' or 'prompts'"
        )
    if min(weights.values()) < 0 or sum(weights.values()) <= 0:
        raise ValueError(f"average: weights {dict(weights)}; they must not be negative and not all zero")
    return weighted_parts(items, items.cells["domain"].tolist(), weights, words="given weights")


def number_of(items: Items, weighting: Weighting, counted: Mask | None = None, need: Codes | None = None) -> Number:
    """The mean of the counted items (items,), with the weights of their parts.

    Inside a part every pair of styles weighs alike. `need` are the parts without which the number does not exist: by
    default those that the counted items come from. A model for which they all weigh nothing has them all alike.
    """
    counted = np.ones(len(items.cell), bool) if counted is None else counted
    cell, inverse = np.unique(items.cell[counted], return_inverse=True)
    part, styles = weighting.part[cell], items.cells["styles"].to_numpy()[cell]
    found, pool_of_cell = np.unique(part * STYLE_CODES + styles, return_inverse=True)
    parts = found // STYLE_CODES
    need = np.unique(parts) if need is None else need
    share = _alike_where_nothing(weighting.weight[:, need])
    of_part = np.zeros_like(weighting.weight)
    of_part[:, need] = share
    weight = of_part[:, parts] / np.bincount(parts, minlength=len(weighting.names))[parts]
    pool = np.full(len(items.cell), -1, np.intp)
    pool[counted] = pool_of_cell[inverse]
    return Number(pool, weight, [weighting.names[p] for p in parts], _reasons(weighting, of_part, parts))


def _alike_where_nothing(weight: Floats) -> Floats:
    total = weight.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        share: Floats = np.where(total > 0, weight / total, 1 / max(weight.shape[1], 1))
    return share


def _reasons(weighting: Weighting, of_part: Floats, parts: Codes) -> list[str]:
    """Why the number does not exist for each model: a part without items, or one that is not all there."""
    if not len(parts) and not of_part.any():
        return ["nothing there"] * len(of_part)
    empty = np.setdiff1d(np.arange(len(weighting.names)), parts)
    reasons = []
    for weight, lacking in zip(of_part, weighting.lacking, strict=True):
        missing = [weighting.names[p] for p in empty if weight[p] > 0]
        said = [f"nothing in {', '.join(missing)}"] if missing else []
        said += [lacking[p] for p in np.flatnonzero(weight > 0) if lacking[p]]
        reasons.append("; ".join(said))
    return reasons
