"""A table as its benchmark counts it: items with their parts, and its numbers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.benchmarks.benchmark import Benchmark
from rmlab.benchmarks.registry import benchmark_of
from rmlab.estimation.items import Items, Parts
from rmlab.estimation.weights import Average, Number, domain_parts, weighted_mean
from rmlab.metrics.pairing import as_pairs
from rmlab.tables import DataError, IntArray

_Selected = tuple[str, str, IntArray, Sequence[str]]
"""Quantity and name of a number, the items that count, and the required parts."""

_MAX_DOMAINS = 8  # of data without columns of their own in a summary


def prepare(
    table: pd.DataFrame,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool | None = False,
    options: Mapping[str, str] | None = None,
    *,
    by: Sequence[str] = (),
    cluster: str | Sequence[str] | None = None,
    require_complete: bool = True,
    min_models: int = 0,
) -> tuple[Benchmark, Items]:
    """The benchmark of scores or pairs, and their items with its parts.

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
        Whether to keep only the items that every model has answered; None: each model
        keeps what it has, and rows that it lacks are no error.
    options : mapping, optional
        The benchmark's further choices.
    by : sequence of str
        Further columns of the items.
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
    """
    benchmark = benchmark_of(table)
    if benchmark.needs == "pairs":
        table = as_pairs(table)
    items = benchmark.items(table, ties, by=by, cluster=cluster)
    if require_complete:
        benchmark.check_complete(items)
    if common:
        items = items.common()
    parts = benchmark.parts(items, average, options)
    if not require_complete and average == "benchmark" and len(parts.names) > 1:
        parts = _parts_of_one_domain(items) or parts
    items = replace(items, parts=parts)

    if len(items.models) < min_models:
        problem = f"table: only the model {items.models}; a comparison needs 2"
        raise DataError(problem, "add another with pd.concat")
    if min_models and common is not None:
        items.require_same()
    return benchmark, items


def _parts_of_one_domain(items: Items) -> Parts | None:
    """The parts of a table of one subset or one domain; None for other tables."""
    for column in ("subset", "domain"):
        names = items.frame[column].unique()
        if len(names) == 1:
            parts = domain_parts(items.frame, "domains")
            return replace(parts, label=f"{names[0]} alone")
    return None


def list_numbers(
    benchmark: Benchmark, items: Items, *, of_summary: bool = False
) -> tuple[pd.DataFrame, list[Number]]:
    """Every number of a benchmark, or those of a summary alone.

    The frame names them by quantity (overall, section, domain, subset, level, cell) and
    name. The overall score is the first.
    """
    selected = [*_select_parts(benchmark, items), *_select_styles(items)]
    if of_summary:
        selected = _pick_columns(benchmark, selected)
    place_of_part = {name: place for place, name in enumerate(items.parts.names)}
    names = {"quantity": ["overall"], "name": ["overall"]}
    numbers = [overall_number(items)]
    for quantity, name, rows, parts in selected:
        named = [place_of_part[part] for part in parts if part in place_of_part]
        required = np.union1d(items.parts.of_item[rows], named).astype(np.intp)
        names["quantity"].append(quantity)
        names["name"].append(name)
        numbers.append(weighted_mean(items, rows, required))
    return pd.DataFrame(names, dtype="str"), numbers


def overall_number(items: Items) -> Number:
    """The overall score: all items, and every part is required."""
    return weighted_mean(items, required=np.arange(len(items.parts.names)))


def _select_parts(benchmark: Benchmark, items: Items) -> Iterator[_Selected]:
    """Sections, domains, and the subsets that are not domains themselves.

    A row's name must not depend on which rows there are: chat alone is still a domain
    of RM-Bench.
    """
    domain = items.frame["domain"].to_numpy(object)
    subset = items.frame["subset"].to_numpy(object)
    for name, subsets in benchmark.sections.items():
        rows = np.flatnonzero(np.isin(subset, subsets))
        yield "section", name, rows, subsets

    domain_of = benchmark.subsets
    are_domains = bool(domain_of) and list(domain_of) == list(domain_of.values())
    quantity = "subset" if are_domains else "domain"
    for name in dict.fromkeys(domain_of.values() if domain_of else domain):
        members = [member for member, of in domain_of.items() if of == name]
        title = benchmark.subset_names.get(name, name)
        yield quantity, title, np.flatnonzero(domain == name), [name, *members]
    if not are_domains:
        for name in dict.fromkeys(subset[domain != subset]):
            yield "subset", name, np.flatnonzero(subset == name), [name]


def _select_styles(items: Items) -> Iterator[_Selected]:
    """Levels, and pairs of styles, where all comparisons have them."""
    if not items.has_levels:
        return
    level = items.frame["level"].to_numpy(object)
    for name in tables.LEVELS:
        yield "level", name, np.flatnonzero(level == name), items.parts.names
    for code, styles in enumerate(product(tables.STYLES, repeat=2)):
        rows = np.flatnonzero(items.style_code == code)
        yield "cell", " > ".join(styles), rows, items.parts.names


def _pick_columns(
    benchmark: Benchmark, selected: Sequence[_Selected]
) -> list[_Selected]:
    """The benchmark's columns of a summary; without any, the domains and levels."""
    if benchmark.columns:
        by_name: dict[str, _Selected] = {}
        for number in selected:
            if number[0] != "cell":
                by_name.setdefault(number[1], number)
        return [by_name[name] for name in benchmark.columns if name in by_name]

    picked = []
    for quantity in ("domain", "level"):
        group = [number for number in selected if number[0] == quantity]
        if 1 < len(group) <= _MAX_DOMAINS:
            picked += group
    return picked


def chance_of_numbers(
    benchmark: Benchmark, items: Items, numbers: Sequence[Number]
) -> list[float]:
    """What random scores earn, for each number; NaN where it is not known."""
    chance = items.frame["subset"].map(benchmark.chance_of).to_numpy(float)
    means = []
    for number in numbers:
        # The first item of each pool stands for it: a pool has one subset, or subsets
        # of one chance.
        pools, first_items = np.unique(number.pool, return_index=True)
        weight = number.weight[0, pools]
        of_pool = chance[number.rows[first_items]]
        counts = weight > 0
        total = weight[counts].sum()
        mean = weight[counts] @ of_pool[counts] / total if total > 0 else np.nan
        means.append(float(mean))
    return means
