"""A table as its benchmark counts it: items, parts with weights, and numbers as
weighted sums of means of cells.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.metrics.items import N_STYLE_CODES, BoolArray, FloatArray, Items
from rmlab.tables import DataError, IntArray

if TYPE_CHECKING:  # benchmarks build on this package
    from rmlab.benchmarks.benchmark import Benchmark

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


@dataclass(frozen=True)
class Prepared:
    """Items of a table and the parts of its benchmark.

    Attributes
    ----------
    benchmark : Benchmark
    items : Items
    parts : Parts
    """

    benchmark: "Benchmark"
    items: Items
    parts: Parts

    def weights(self) -> Weights:
        """Every number, named by quantity (overall, section, domain, subset, level,
        cell) and name.
        """
        benchmark, items, parts = self.benchmark, self.items, self.parts
        domain, subset = (
            items.cells[column].to_numpy(object) for column in ("domain", "subset")
        )
        # Quantity, name, the cells that count, and the names of the parts that must be
        # there.
        rows = [("overall", "overall", np.ones(len(domain), bool), parts.names)]
        rows += [
            ("section", name, np.isin(subset, names), [*names])
            for name, names in benchmark.sections.items()
        ]
        # A row's name must not depend on which rows there are: chat alone is still a
        # domain of RM-Bench.
        domain_of = benchmark.subsets
        one_to_one = bool(domain_of) and all(
            name == domain_of[name] for name in domain_of
        )
        for name in dict.fromkeys(domain_of.values() if domain_of else domain):
            members = [
                name,
                *(member for member in domain_of if domain_of[member] == name),
            ]
            quantity = "subset" if one_to_one else "domain"
            rows.append(
                (
                    quantity,
                    benchmark.subset_names.get(name, name),
                    domain == name,
                    members,
                )
            )
        if not one_to_one:
            rows += [
                ("subset", name, subset == name, [name])
                for name in dict.fromkeys(subset[domain != subset])
            ]
        if items.has_levels:
            level, style_code = (
                items.cells["level"].to_numpy(object),
                items.cells["style_code"].to_numpy(),
            )
            rows += [
                ("level", name, level == name, parts.names) for name in tables.LEVELS
            ]
            for code, styles in enumerate(product(tables.STYLES, repeat=2)):
                rows.append(
                    ("cell", " > ".join(styles), style_code == code, parts.names)
                )
        means = []
        for _, _, is_counted, members in rows:
            places = [
                place for place, name in enumerate(parts.names) if name in members
            ]
            required = np.union1d(parts.of_cell[is_counted], places).astype(np.intp)
            means.append(weighted_mean(items, parts, is_counted, required))
        numbers = pd.DataFrame(
            [row[:2] for row in rows], columns=["quantity", "name"], dtype="str"
        )
        return Weights(numbers, means, parts.label)

    def chance(self, weights: Weights) -> list[float]:
        """Expected value of random scores, for each number; NaN where it is not known."""
        chance = np.array(
            [self.benchmark.chance_of(name) for name in self.items.cells["subset"]]
        )
        chances = []
        for mean in weights.means:
            # The first cell of each pool stands for it: a pool has one subset, or
            # subsets of one chance.
            pools, first_cells = np.unique(mean.pool, return_index=True)
            weight, pool_chance = mean.weight[0, pools], chance[mean.cells[first_cells]]
            is_counted = weight > 0
            total = weight[is_counted].sum()
            chances.append(
                float(weight[is_counted] @ pool_chance[is_counted] / total)
                if total > 0
                else float("nan")
            )
        return chances


def prepare(
    table: pd.DataFrame,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    options: Mapping[str, str] | None = None,
    *,
    by: Sequence[str] = (),
    cluster: str | Sequence[str] | None = None,
    require_complete: bool = True,
    min_models: int = 0,
) -> Prepared:
    """Items and parts of scores or pairs of one benchmark.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs.
    average : {"benchmark", "domains", "prompts"} or mapping
        The benchmark's own way, all domains alike, all prompts alike, or weights of
        domains.
    ties : str, optional
        What a tie earns; default: the benchmark's rule.
    common : bool
        Whether to keep only the items that every model has.
    options : mapping, optional
        The benchmark's further choices.
    by : sequence of str
        Further columns that split the cells.
    cluster : str or sequence of str, optional
        Columns that name what stands or falls together; default: the benchmark's.
    require_complete : bool
        Whether prompts must have all their items, and the overall score every part of
        the benchmark. If not, a table of one domain (or subset), such as
        `pairs[pairs.domain == "chat"]`, is that domain by itself.
    min_models : int
        How many models a comparison needs, each with all items; items that weigh
        nothing for a model, such as prior sets that it was not run on, may be absent.
        0: no comparison.

    Returns
    -------
    Prepared
    """
    from rmlab.benchmarks.registry import benchmark_of

    benchmark = benchmark_of(table)
    items = benchmark.items(table, ties, by=by, cluster=cluster)
    if require_complete:
        benchmark.check_complete(items)
    items = items.common() if common else items
    parts = benchmark.parts(items, average, options)
    if not require_complete and average == "benchmark" and len(parts.names) > 1:
        alone = [
            values[0]
            for c in ("subset", "domain")
            if len(values := items.cells[c].unique()) == 1
        ]
        parts = (
            replace(domain_parts(items, "domains"), label=f"{alone[0]} alone")
            if alone
            else parts
        )
    if len(items.models) < min_models:
        raise DataError(
            f"table: only the model {items.models}; a comparison needs 2. Add another with pd.concat."
        )
    if min_models:
        items.require_same((parts.weight != 0)[:, parts.of_cell[items.cell]])
    return Prepared(benchmark, items, parts)


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
