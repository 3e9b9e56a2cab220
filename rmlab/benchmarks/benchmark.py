"""A benchmark as data: what an item earns, and how its parts make a score."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np
import pandas as pd

from rmlab.benchmarks.layout import Layout
from rmlab.estimation.items import MISSING, Items, Parts, comparison_items
from rmlab.estimation.weights import Average, domain_parts, weighted_parts
from rmlab.tables import (
    FAMILY,
    PROMPT,
    BoolArray,
    DataError,
    check_option,
    nearest,
)

# Options of `summary` that every benchmark has.
_COMMON_OPTIONS = ("average", "ties", "common", "cluster", "confidence")


class _MakeItems(Protocol):
    """Items of a table of pairs (or scores, where these are needed), under a rule for
    ties; `by` names further columns of items, `cluster` those that define a cluster.
    """

    def __call__(
        self,
        table: pd.DataFrame,
        ties: str,
        *,
        by: Sequence[str],
        cluster: Sequence[str],
    ) -> Items: ...


def refuse_strange(
    column: str, values: Iterable[str], allowed: Iterable[str], title: str
) -> None:
    """Raise DataError for a domain or a subset that a benchmark does not have."""
    strange = sorted(set(values) - set(allowed))
    if strange:
        names = sorted(set(allowed))
        problem = f"table: {column} {strange[0]!r} is not one of {title}'s {names}"
        remedy = "give custom data another name in the column benchmark"
        raise DataError(problem, remedy)


def own_domains(names: Iterable[str]) -> dict[str, str]:
    """Subsets that are domains of their own."""
    return {name: name for name in names}


def has_answers(items: Items, subsets: Sequence[str]) -> BoolArray:
    """(subsets, models): whether a model has an answer in a subset."""
    subset_of_item = items.frame["subset"].to_numpy(object)
    is_answered = items.outcome > MISSING
    answered = []
    for subset in subsets:
        answered.append(is_answered[:, subset_of_item == subset].any(axis=1))
    return np.array(answered)


def name_absent_subsets(
    items: Items, parts: Parts, pools: Mapping[str, Sequence[str]]
) -> Parts:
    """The parts, and why one is incomplete: a pool of subsets of which a model has only
    some.
    """
    reasons = {}
    for part, subsets in pools.items():
        has_subset = has_answers(items, subsets)
        is_partial = has_subset.any(axis=0) & ~has_subset.all(axis=0)
        for model in np.flatnonzero(is_partial):
            absent = np.array(subsets)[~has_subset[:, model]]
            reason = f"nothing in {', '.join(absent)}"
            reasons[int(model), parts.names.index(part)] = reason
    return replace(parts, reasons=reasons)


def accept_incomplete(items: Items) -> None:
    """Prompts may have any number of comparisons."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One benchmark: what an item earns, and how its parts make a score.

    A new benchmark needs a name, a title, its `subsets` and a `layout`; the defaults
    are those of preference data in which all prompts count alike.
    `docs/add_a_benchmark.md` walks through an example.

    Parameters
    ----------
    name, title, source : str
        Name in tables, name in print, and where the rules come from.
    needs : {"pairs", "scores"}
        "pairs" where an item is a comparison (scores will do too), "scores" where it
        takes all answers at once.
    layout : Layout, optional
        How its files look; a benchmark without one cannot be loaded.
    cluster : sequence of str
        Columns that define a cluster; default: the column family where a table has it,
        else the prompt.
    subsets : mapping
        Subset to its domain; other names are refused.
    weights : mapping
        Domain to its weight in the overall score; default: all prompts count alike.
    sections : mapping
        Column of the summary to the subsets that it is made of.
    columns : sequence of str
        Columns of the summary before overall: names of domains, sections, subsets or
        levels. Empty: the domains of the data, if they are few, and the levels.
    subset_names : mapping
        Subset to its name in columns, where that differs.
    ties : sequence of str
        What a tie may earn, the benchmark's own rule first.
    options : mapping
        Further choices with their values, the benchmark's own rule first.
    chance : float or mapping
        What random scores earn, by subset where that differs (NaN: not known).
    styles : sequence of str
        The styles that its answers come in.
    make_items : callable
        Table to items, where these are not comparisons.
    make_parts : callable, optional
        Items and options to parts with their weights, where `weights` do not say them.
    check_complete : callable
        Raises DataError where a prompt has only some of its items: an overall score
        would not be one.
    """

    name: str
    title: str
    source: str = ""
    needs: Literal["pairs", "scores"] = "pairs"
    layout: Layout | None = None
    cluster: Sequence[str] = tuple(PROMPT)
    subsets: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    sections: Mapping[str, Sequence[str]] = field(default_factory=dict)
    columns: Sequence[str] = ()
    subset_names: Mapping[str, str] = field(default_factory=dict)
    ties: Sequence[str] = ("loss", "half", "drop")
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    chance: float | Mapping[str, float] = 0.5
    styles: Sequence[str] = ()
    make_items: _MakeItems = comparison_items
    make_parts: Callable[[Items, Mapping[str, str]], Parts] | None = None
    check_complete: Callable[[Items], None] = accept_incomplete

    def items(
        self,
        table: pd.DataFrame,
        ties: str | None = None,
        *,
        by: Sequence[str] = (),
        cluster: str | Sequence[str] | None = None,
    ) -> Items:
        """Credit of each model on each item.

        Parameters
        ----------
        table : DataFrame
            Pairs, or scores where the benchmark `needs` them.
        ties : str, optional
            What a tie earns; default: the benchmark's rule.
        by : sequence of str
            Further columns of the items.
        cluster : str or sequence of str, optional
            Columns that define a cluster; default: the benchmark's.

        Returns
        -------
        Items
        """
        if ties is None:
            ties = self.ties[0]
        else:
            check_option("ties", ties, self.ties)
        if cluster is None:
            cluster = self.cluster
            if FAMILY in table and list(cluster) == PROMPT:
                cluster = FAMILY
        clusters_by = [cluster] if isinstance(cluster, str) else list(cluster)
        items = self.make_items(table, ties, by=by, cluster=clusters_by)
        if self.subsets:
            domains = items.frame["domain"].unique()
            refuse_strange("domain", domains, self.subsets.values(), self.title)
            # A table without subsets has the domains in their place.
            known = {*self.subsets, *self.subsets.values()}
            subsets = items.frame["subset"].unique()
            refuse_strange("subset", subsets, known, self.title)
        if clusters_by == [FAMILY]:
            # Prompts with one text are one prompt.
            return replace(items, prompt=items.cluster)
        return items

    def parts(
        self,
        items: Items,
        average: Average = "benchmark",
        options: Mapping[str, str] | None = None,
    ) -> Parts:
        """The parts and their weights in the overall score.

        Parameters
        ----------
        items : Items
            The items of a table.
        average : {"benchmark", "domains", "prompts"} or mapping
            The benchmark's own way, all domains alike, all prompts alike, or weights of
            domains.
        options : mapping, optional
            The benchmark's further choices.

        Returns
        -------
        Parts
        """
        given = options or {}
        for name, value in given.items():
            if name not in self.options:
                similar = nearest(name, [*_COMMON_OPTIONS, *self.options])
                problem = f"{name}={value!r}: no option of {self.title}"
                raise TypeError(f"{problem}; {similar}")
            check_option(name, value, self.options[name])
        if average != "benchmark":
            return domain_parts(items.frame, average)

        own_rules = {name: values[0] for name, values in self.options.items()}
        chosen = {**own_rules, **given}
        changes = ["benchmark"]
        for name, value in chosen.items():
            if value != own_rules[name]:
                changes.append(f"{name}={value}")
        return replace(self._own_parts(items, chosen), label=", ".join(changes))

    def _own_parts(self, items: Items, options: Mapping[str, str]) -> Parts:
        if self.make_parts is not None:
            return self.make_parts(items, options)
        if self.weights:
            return weighted_parts(items.frame["domain"], self.weights)
        return domain_parts(items.frame, "prompts")

    def only(self, domains: str | Sequence[str]) -> "Benchmark":
        """The benchmark of some of its domains, with the weights that they have in the
        whole: no number needs another one.

        Its name says which, for example "rm-bench (chat, code)", in its own order.
        """
        known = list(dict.fromkeys(self.subsets.values()))
        asked = [domains] if isinstance(domains, str) else list(domains)
        for domain in asked or [""]:
            if domain not in known:
                problem = f"domains: {domain!r} is not a domain of {self.title}"
                raise DataError(problem, nearest(domain, known))
        names = [domain for domain in known if domain in asked]
        subsets = {name: of for name, of in self.subsets.items() if of in names}
        sections = {}
        for section, members in self.sections.items():
            kept = [name for name in members if name in subsets]
            if kept:
                sections[section] = kept
        left_out = {*known, *self.subsets, *self.sections}
        left_out -= {*subsets, *names, *sections}

        def make_parts(items: Items, options: Mapping[str, str]) -> Parts:
            parts = self._own_parts(items, options)
            has_part = [name not in left_out for name in parts.names]
            return replace(parts, weight=np.where(has_part, parts.weight, 0.0))

        part = ", ".join(names)
        return replace(
            self,
            name=f"{self.name} ({part})",
            title=f"{self.title} ({part})",
            subsets=subsets,
            sections=sections,
            columns=[name for name in self.columns if name not in left_out],
            make_parts=make_parts,
        )

    def spell_subset(self, name: object) -> str | None:
        """A subset as the benchmark spells it, whatever the case; None for another."""
        if not self.subsets:
            return None if name is None else str(name)
        spellings = {subset.lower(): subset for subset in self.subsets}
        return spellings.get(str(name).lower())

    def chance_of(self, subset: str) -> float:
        """What random scores earn in a subset."""
        if isinstance(self.chance, Mapping):
            return self.chance.get(subset, math.nan)
        return self.chance

    @property
    def lowest_chance(self) -> float:
        """What random scores earn in the subset where they earn least."""
        if isinstance(self.chance, Mapping):
            return float(np.nanmin(list(self.chance.values())))
        return self.chance
