"""The numbers of a benchmark, each as a mean of items: overall, sections, domains, subsets, levels, cells."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab.benchmarks.benchmark import Benchmark
from rmlab.benchmarks.registry import benchmark_of
from rmlab.items.grid import Codes, Items, Mask, common_items
from rmlab.items.weighting import Average, Number, Weighting, by_domain, number_of
from rmlab.tables import LEVEL, LEVELS, STYLES

__all__ = ["Reading", "numbers", "one_domain", "overall", "read", "style_level"]


class Reading(NamedTuple):
    """A table as its benchmark reads it: the benchmark, the items of every model, how their parts combine."""

    benchmark: Benchmark
    items: Items
    weighting: Weighting

    def number(self, counted: Mask, need: Codes | None = None) -> Number:
        """The mean of the counted items; `need` as in `number_of`."""
        return number_of(self.items, self.weighting, counted, need)


def read(
    table: pd.DataFrame,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    options: Mapping[str, str] | None = None,
    *,
    whole: bool = True,
) -> Reading:
    """Items and weights of scores or pairs of one benchmark, with the options that all statistics share.

    `average`: "benchmark" (its own), "domains" (all that there are alike), "prompts" (all alike) or weights of domains.
    `ties`: what a tie earns (default: the benchmark's rule). `common`: only the items that every model has. With
    `whole` prompts must have all their items; accuracies take any selection.
    """
    benchmark = benchmark_of(table)
    items = benchmark.items(table, ties)
    if whole:
        benchmark.check_whole(items)
    items = common_items(items) if common else items
    return Reading(benchmark, items, benchmark.weighting(items, average, options or {}))


def one_domain(reading: Reading) -> Reading:
    """The reading of a table that holds one domain (or subset) only, as that domain by itself.

    Accuracies, matrices and gaps of a selection such as `pairs[pairs.domain == "chat"]` are numbers of that domain.
    Summaries and rankings are not: their overall score needs every part.
    """
    names = {c: list(dict.fromkeys(reading.items.cells[c])) for c in ("subset", "domain")}
    alone = next((found[0] for found in names.values() if len(found) == 1), None)
    if alone is None or reading.weighting.label in ("domains", "prompts", "given weights"):
        return reading
    if len(reading.weighting.names) == 1:
        return reading
    return reading._replace(weighting=by_domain(reading.items, f"{alone} alone"))


def overall(reading: Reading) -> Number:
    """The overall score: all items, and every part is needed."""
    everything = np.arange(len(reading.weighting.names))
    return number_of(reading.items, reading.weighting, need=everything)


def numbers(reading: Reading) -> Iterator[tuple[str, str, Number]]:
    """Every number: quantity (overall, section, domain, subset, level, cell), name, and what it is the mean of."""
    yield "overall", "overall", overall(reading)
    benchmark, items = reading.benchmark, reading.items
    yield from _sections(reading)
    domains = list(dict.fromkeys(benchmark.subsets.values())) or list(dict.fromkeys(items.frame["domain"]))
    # What a row is called must not depend on which rows there are: chat alone is still a domain of RM-Bench.
    one_to_one = bool(benchmark.subsets) and all(s == d for s, d in benchmark.subsets.items())
    quantity = "subset" if one_to_one else "domain"
    for domain in domains:
        members = {domain, *(s for s, d in benchmark.subsets.items() if d == domain)}
        yield quantity, benchmark.subset_names.get(domain, domain), _part(reading, "domain", {domain}, members)
    if not one_to_one:
        for subset in dict.fromkeys(items.cells.loc[items.cells["domain"] != items.cells["subset"], "subset"]):
            yield "subset", subset, _part(reading, "subset", {subset}, {subset})
    if items.styled:
        yield from _styled(reading)


def style_level(items: Items) -> Codes:
    """Level of each item as a code of `LEVELS`; -1 where it has none."""
    codes: Codes = pd.Categorical(items.frame["level"], dtype=LEVEL).codes.astype(np.intp)
    return codes


def _sections(reading: Reading) -> Iterator[tuple[str, str, Number]]:
    for name, subsets in reading.benchmark.sections.items():
        yield "section", name, _part(reading, "subset", set(subsets), set(subsets))


def _part(reading: Reading, column: str, values: set[str], members: set[str]) -> Number:
    """The mean of some domains or subsets; `members` are the names that their parts may have."""
    items, weighting = reading.items, reading.weighting
    inside = np.isin(items.cells[column].to_numpy(object), [*values])
    named = [i for i, name in enumerate(weighting.names) if name in members]
    need = np.union1d(weighting.part[inside], np.array(named, np.intp)).astype(np.intp)
    return number_of(items, weighting, inside[items.cell], need)


def _styled(reading: Reading) -> Iterator[tuple[str, str, Number]]:
    items, everything = reading.items, np.arange(len(reading.weighting.names))
    level, styles = style_level(items), items.cells["styles"].to_numpy()[items.cell]
    for code, name in enumerate(LEVELS):
        yield "level", name, number_of(items, reading.weighting, level == code, everything)
    for chosen, first in enumerate(STYLES):
        for rejected, second in enumerate(STYLES):
            counted = styles == len(STYLES) * chosen + rejected
            yield "cell", f"{first} > {second}", number_of(items, reading.weighting, counted, everything)
