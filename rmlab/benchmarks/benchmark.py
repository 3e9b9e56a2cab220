"""A benchmark as data: what an item earns, and how its parts make a score."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import pandas as pd

from rmlab.benchmarks.layout import Layout
from rmlab.estimation.items import MISSING, NO_ROW, Items, Parts, comparison_items
from rmlab.estimation.weights import Average, domain_parts, weighted_parts
from rmlab.tables import (
    FAMILY,
    PROMPT,
    BoolArray,
    DataError,
    check_option,
    default_cluster,
    nearest,
)

# Options of `summary` that every benchmark has.
_COMMON_OPTIONS = ("average", "ties", "common", "cluster", "confidence")

HALF = 0.5
"""What random scores earn in a comparison of two answers."""

Weights = Mapping[str, float]
"""Parts (subsets, domains or sections) to their weights, of any scale."""


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
    layout : Layout
        How its files look; default: fields with our names.
    cluster : sequence of str
        Columns that define a cluster; default: the column family where a table has it,
        else the prompt.
    subsets : mapping
        Subset to its domain; other names are refused.
    weights : mapping or callable
        Parts of the overall score (subsets, domains or sections) to their weights; or a
        function of the options that returns them. Default: all prompts count alike. A
        model that lacks one of a part's subsets lacks the part.
    optional : sequence of str
        Subsets that count only for models with answers in all of them.
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
    chance : mapping
        What random scores earn in a subset, where that is not 0.5 (NaN: not known).
    styles : sequence of str
        The styles of a prompt's chosen answers and of its rejected ones, in this order.
    make_items : callable
        Table, ties, `by` and `cluster` to items, where these are not comparisons.
    """

    name: str
    title: str
    source: str = ""
    needs: Literal["pairs", "scores"] = "pairs"
    layout: Layout = field(default_factory=Layout)
    cluster: Sequence[str] = tuple(PROMPT)
    subsets: Mapping[str, str] = field(default_factory=dict)
    weights: Weights | Callable[[Mapping[str, str]], Weights] = field(
        default_factory=dict
    )
    optional: Sequence[str] = ()
    sections: Mapping[str, Sequence[str]] = field(default_factory=dict)
    columns: Sequence[str] = ()
    subset_names: Mapping[str, str] = field(default_factory=dict)
    ties: Sequence[str] = ("loss", "half", "drop")
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    chance: Mapping[str, float] = field(default_factory=dict)
    styles: Sequence[str] = ()
    make_items: Callable[..., Items] = comparison_items

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
        check_option("ties", ties, self.ties)
        if cluster is None:
            cluster = self.cluster
            if list(cluster) == PROMPT:
                cluster = default_cluster(table)
        clusters_by = [cluster] if isinstance(cluster, str) else list(cluster)
        items = self.make_items(table, ties, by=by, cluster=clusters_by)
        if self.subsets:
            domains = items.frame["domain"].unique()
            refuse_strange("domain", domains, self.subsets.values(), self.title)
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
        chosen = {}
        label = "benchmark"
        for name, values in self.options.items():
            chosen[name] = given.get(name, values[0])
            check_option(name, chosen[name], values)
            if chosen[name] != values[0]:
                label += f", {name}={chosen[name]}"
        if average != "benchmark":
            return domain_parts(items.frame, average)
        weight = self._weigh(chosen)
        if not weight:
            return replace(domain_parts(items.frame, "prompts"), label=label)

        part_of = self._assign_subsets(weight)
        subset = items.frame["subset"]
        refuse_strange("subset", subset.unique(), part_of, self.title)
        parts = weighted_parts(subset.map(part_of), weight)
        has_optional = _has_answers(items, self.optional).all(axis=0)
        is_optional = np.isin(parts.names, self.optional)
        is_left_out = np.outer(~has_optional, is_optional)
        return replace(
            parts,
            label=label,
            weight=np.where(is_left_out, 0.0, parts.weight),
            reasons=_name_absent_subsets(items, parts, part_of),
        )

    def _weigh(self, options: Mapping[str, str]) -> Weights:
        return self.weights(options) if callable(self.weights) else self.weights

    def _assign_subsets(self, weight: Weights) -> dict[str, str]:
        """Subset to the part that it counts in: itself, its domain or its section."""
        part_of = own_domains(weight)
        for subset, domain in self.subsets.items():
            if domain in weight:
                part_of.setdefault(subset, domain)
        for section, subsets in self.sections.items():
            if section in weight:
                part_of = dict.fromkeys(subsets, section) | part_of
        return part_of

    def check_complete(self, items: Items) -> None:
        """Raise DataError for a prompt with only some of its comparisons: an answer
        without a row would count in nothing.
        """
        if not self.styles:
            return
        n_expected = len(self.styles) ** 2
        has_row = items.outcome != NO_ROW
        n_rows = np.stack([np.bincount(items.prompt, weights=row) for row in has_row])
        incomplete = (n_rows > 0) & (n_rows != n_expected)
        if not incomplete.any():
            return
        model, prompt = np.argwhere(incomplete)[0]
        first = items.frame.loc[items.prompt == prompt, PROMPT].iloc[0].to_dict()
        expected = f"the {n_expected} comparisons of {self.title}"
        problem = f"pairs: {incomplete.sum()} prompts are not {expected}"
        place = f"first {first} of {items.models[model]!r}"
        remedy = "score all answers of a prompt, or use accuracy(pairs, by=...)"
        raise DataError(f"{problem}, {place}", remedy)

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
        parts = {*subsets, *names, *sections}

        def weigh(options: Mapping[str, str]) -> Weights:
            weight = self._weigh(options)
            return {name: weight[name] for name in weight if name in parts}

        part = ", ".join(names)
        return replace(
            self,
            name=f"{self.name} ({part})",
            title=f"{self.title} ({part})",
            subsets=subsets,
            sections=sections,
            weights=weigh,
        )

    def chance_of(self, subset: str) -> float:
        """What random scores earn in a subset."""
        return self.chance.get(subset, HALF)

    @property
    def lowest_chance(self) -> float:
        """What random scores earn in the subset where they earn least."""
        return float(np.nanmin([HALF, *self.chance.values()]))


def _has_answers(items: Items, subsets: Sequence[str]) -> BoolArray:
    """(subsets, models): whether a model has an answer in a subset."""
    is_answered = pd.DataFrame(items.outcome.T > MISSING)
    by_subset = is_answered.groupby(items.frame["subset"].to_numpy(object)).any()
    return by_subset.reindex([*subsets], fill_value=False).to_numpy()


def _name_absent_subsets(
    items: Items, parts: Parts, part_of: Mapping[str, str]
) -> dict[tuple[int, int], str]:
    """Why a part is incomplete: a model has only some of its subsets."""
    reasons = {}
    for place, part in enumerate(parts.names):
        subsets = [name for name in part_of if part_of[name] == part != name]
        has_subset = _has_answers(items, subsets)
        is_partial = has_subset.any(axis=0) & ~has_subset.all(axis=0)
        for model in np.flatnonzero(is_partial):
            absent = np.array(subsets)[~has_subset[:, model]]
            reasons[int(model), place] = f"nothing in {', '.join(absent)}"
    return reasons
