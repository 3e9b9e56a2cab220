"""A table as its benchmark counts it: items, parts, and every number as weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.benchmarks.benchmark import Benchmark
from rmlab.benchmarks.registry import benchmark_of
from rmlab.estimation.items import Items
from rmlab.estimation.weights import (
    Average,
    Parts,
    Weights,
    domain_parts,
    weighted_mean,
)
from rmlab.tables import DataError


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
