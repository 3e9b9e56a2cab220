"""A table as its benchmark counts it: items, parts, and every number as weights."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.benchmarks.benchmark import Benchmark
from rmlab.benchmarks.registry import benchmark_of
from rmlab.estimation.items import NO_STYLE, Items
from rmlab.estimation.weights import (
    Average,
    Parts,
    WeightedMean,
    Weights,
    domain_parts,
    weighted_mean,
)
from rmlab.tables import BoolArray, DataError, FloatArray

_MAX_DOMAINS = 8  # of data without columns of their own in a summary


class _Selection(NamedTuple):
    """A number: its name, the cells that count, and the parts that must be there."""

    quantity: str
    name: str
    cells: BoolArray
    parts: Collection[str]


@dataclass(frozen=True)
class Prepared:
    """Items of a table and the parts of its benchmark.

    Attributes
    ----------
    benchmark : Benchmark
    items : Items
    parts : Parts
    """

    benchmark: Benchmark
    items: Items
    parts: Parts

    def weights(self, *, of_summary: bool = False) -> Weights:
        """Every number, or those of a summary alone, named by quantity (overall,
        section, domain, subset, level, cell) and name. The overall score is the first.
        """
        everything = np.ones(len(self.items.cells), bool)
        overall = _Selection("overall", "overall", everything, self.parts.names)
        selections = [overall, *self._select_parts(), *self._select_styles()]
        if of_summary:
            selections = [overall, *self._pick_columns(selections)]

        place_of_part = {name: place for place, name in enumerate(self.parts.names)}
        means = []
        for selection in selections:
            named = [
                place_of_part[name] for name in selection.parts if name in place_of_part
            ]
            present = self.parts.of_cell[selection.cells]
            required = np.union1d(present, named).astype(np.intp)
            mean = weighted_mean(self.items, self.parts, selection.cells, required)
            means.append(mean)
        numbers = pd.DataFrame(
            {
                "quantity": [selection.quantity for selection in selections],
                "name": [selection.name for selection in selections],
            },
            dtype="str",
        )
        return Weights(numbers, means, self.parts.label)

    def _select_parts(self) -> Iterator[_Selection]:
        """Sections, domains, and the subsets that are not domains themselves.

        A row's name must not depend on which rows there are: chat alone is still a
        domain of RM-Bench.
        """
        domain = self.items.cells["domain"].to_numpy(object)
        subset = self.items.cells["subset"].to_numpy(object)
        for name, subsets in self.benchmark.sections.items():
            yield _Selection("section", name, np.isin(subset, subsets), subsets)

        domain_of = self.benchmark.subsets
        subsets_of: dict[str, list[str]] = {}
        for member, name in domain_of.items():
            subsets_of.setdefault(name, []).append(member)
        are_domains = bool(domain_of) and list(domain_of) == list(domain_of.values())

        quantity = "subset" if are_domains else "domain"
        for name in subsets_of or dict.fromkeys(domain):
            title = self.benchmark.subset_names.get(name, name)
            members = [name, *subsets_of.get(name, [])]
            yield _Selection(quantity, title, domain == name, members)
        if not are_domains:
            for name in dict.fromkeys(subset[domain != subset]):
                yield _Selection("subset", name, subset == name, [name])

    def _select_styles(self) -> Iterator[_Selection]:
        """Levels, and pairs of styles, where all comparisons have them."""
        style_code = self.items.cells["style_code"].to_numpy()
        if (style_code == NO_STYLE).any():
            return
        level = self.items.cells["level"].to_numpy(object)
        for name in tables.LEVELS:
            yield _Selection("level", name, level == name, self.parts.names)
        for code, styles in enumerate(product(tables.STYLES, repeat=2)):
            name = " > ".join(styles)
            yield _Selection("cell", name, style_code == code, self.parts.names)

    def _pick_columns(self, selections: Sequence[_Selection]) -> list[_Selection]:
        """The benchmark's columns; without any, the domains and levels."""
        if self.benchmark.columns:
            by_name: dict[str, _Selection] = {}
            for selection in selections:
                if selection.quantity not in ("overall", "cell"):
                    by_name.setdefault(selection.name, selection)
            columns = self.benchmark.columns
            return [by_name[name] for name in columns if name in by_name]

        picked = []
        for quantity in ("domain", "level"):
            group = [number for number in selections if number.quantity == quantity]
            if 1 < len(group) <= _MAX_DOMAINS:
                picked += group
        return picked

    def chance(self, weights: Weights) -> list[float]:
        """What random scores earn, for each number; NaN where it is not known."""
        subsets = self.items.cells["subset"]
        chance = np.array([self.benchmark.chance_of(subset) for subset in subsets])
        return [_mean_chance(mean, chance) for mean in weights.means]


def _mean_chance(mean: WeightedMean, chance: FloatArray) -> float:
    """The chance of a number from the chance of each cell."""
    # The first cell of each pool stands for it: a pool has one subset, or subsets of
    # one chance.
    pools, first_cells = np.unique(mean.pool, return_index=True)
    weight = mean.weight[0, pools]
    pool_chance = chance[mean.cells[first_cells]]
    counts = weight > 0
    total = weight[counts].sum()
    if not total > 0:
        return float("nan")
    return float(weight[counts] @ pool_chance[counts] / total)


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
        Columns that define a cluster; default: the benchmark's.
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
    benchmark = benchmark_of(table)
    items = benchmark.items(table, ties, by=by, cluster=cluster)
    if require_complete:
        benchmark.check_complete(items)
    if common:
        items = items.common()
    parts = benchmark.parts(items, average, options)
    if not require_complete and average == "benchmark" and len(parts.names) > 1:
        alone = _parts_of_one_domain(items)
        parts = parts if alone is None else alone

    if len(items.models) < min_models:
        problem = f"table: only the model {items.models}; a comparison needs 2"
        raise DataError(problem, "add another with pd.concat")
    if min_models:
        has_weight = parts.weight != 0
        items.require_same(has_weight[:, parts.of_cell[items.cell]])
    return Prepared(benchmark, items, parts)


def _parts_of_one_domain(items: Items) -> Parts | None:
    """The parts of a table of one subset or one domain; None for other tables."""
    for column in ("subset", "domain"):
        names = items.cells[column].unique()
        if len(names) == 1:
            parts = domain_parts(items, "domains")
            return replace(parts, label=f"{names[0]} alone")
    return None
