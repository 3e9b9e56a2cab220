"""What a benchmark is: how its files are read, what one item earns, and how its parts make one score."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pandas as pd

from rmlab.benchmarks.hub import Source
from rmlab.items.columns import allowed
from rmlab.items.comparisons import comparison_items
from rmlab.items.grid import Items
from rmlab.items.weighting import Average, Weighting, by_domain, by_mapping, pooled
from rmlab.records import SUFFIXES, Row
from rmlab.tables import DataError, nearest

__all__ = ["Benchmark", "Files", "MakeItems", "MakeWeighting", "one_file", "published_options"]

Files = Sequence[tuple[Path, list[Row]]]
"""Files that were read: the path, for messages, and the rows."""

MakeItems = Callable[[pd.DataFrame, str], Items]
MakeWeighting = Callable[[Items, Mapping[str, str]], Weighting]


def one_file(path: Path) -> list[Path]:
    """The file itself, or the only data file of a folder."""
    if not path.is_dir():
        return [path]
    found = sorted(p for p in path.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())
    if len(found) != 1:
        names = ", ".join(p.name for p in found[:10]) or "none"
        raise DataError(
            f"{path}: expected one data file ({', '.join(SUFFIXES)}) in this folder, found {len(found)}: "
            f"{names}; pass path='{path / '<file>'}'"
        )
    return found


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One benchmark. All that rmlab knows of it stands in its file; others ask.

    Every score in this field is a weighted sum of means of items: `items` says what each model earns on each item, and
    `weighting` how the parts combine. A benchmark of one's own needs a name, a title and `read`; the other fields have
    the meaning of preference data in which all prompts count alike. `docs/add_a_benchmark.md` walks through one.

    - `needs`: "pairs" where an item is a comparison (scores will do too), "scores" where it takes all answers at once.
    - `subsets`: subset -> its domain. `sections`: a column of the summary -> the subsets that it is made of.
    - `columns`: the columns of the summary before overall, as the names of domains, sections, subsets or levels.
      Empty: the domains that there are, if they are few, and the levels.
    - `subset_names`: subset -> its name in columns, where that is another.
    - `ties`: what a tie may earn, the benchmark's own rule first. `options`: its further choices, its own rule first.
    - `chance`: what random scores earn, by subset where that differs (NaN: not known).
    - `styles`: the styles that its answers come in.
    - `folder_files`, `read`, `hub`: which files of a folder are its own; rows of files to responses; its place on the
      hub.
    - `is_row`: whether a row of a file looks like one of this benchmark.
    - `check_whole`: raises DataError where a prompt has some of its items only: an overall score would not be one.
    - `published`: tables of printed numbers: name -> (file in data/published, columns printed in per cent).
    - `variants`: other rules by which its numbers are counted: words -> options of `summary`.
    """

    name: str
    title: str
    source: str = ""
    needs: Literal["pairs", "scores"] = "pairs"
    subsets: Mapping[str, str] = field(default_factory=dict)
    sections: Mapping[str, Sequence[str]] = field(default_factory=dict)
    columns: Sequence[str] = ()
    subset_names: Mapping[str, str] = field(default_factory=dict)
    ties: Sequence[str] = ("loss", "half", "drop")
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    chance: float | Mapping[str, float] = 0.5
    styles: Sequence[str] = ()
    folder_files: Callable[[Path], list[Path]] = one_file
    read: Callable[[Files], pd.DataFrame] | None = None
    hub: Source | None = None
    is_row: Callable[[Row], bool] = lambda row: False
    make_items: MakeItems = comparison_items
    check_whole: Callable[[Items], None] = lambda items: None
    make_weighting: MakeWeighting = lambda items, options: pooled(items, "benchmark")
    published: Mapping[str, tuple[str, Sequence[str]]] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def items(self, table: pd.DataFrame, credit: str | None = None) -> Items:
        """The credit of each model on each item of scores or pairs; `credit` is the rule for ties (default: own)."""
        return self.make_items(table, allowed("ties", self.ties[0] if credit is None else credit, tuple(self.ties)))

    def weighting(self, items: Items, average: Average = "benchmark", options: Mapping[str, str] = {}) -> Weighting:
        """How the parts combine: the benchmark's own way, all domains alike, all prompts alike, or given weights."""
        chosen = published_options(self, options)
        if isinstance(average, Mapping):
            return by_mapping(items, average)
        allowed("average", average, ("benchmark", "domains", "prompts"))
        if average != "benchmark":
            return by_domain(items) if average == "domains" else pooled(items)
        other = [f"{name}={value}" for name, value in chosen.items() if value != self.options[name][0]]
        weighting = self.make_weighting(items, chosen)
        return weighting._replace(label=", ".join([weighting.label, *other]))

    @property
    def lowest_chance(self) -> float:
        """What random scores earn where they earn least, of the subsets where that is known."""
        known = self.chance.values() if isinstance(self.chance, Mapping) else [self.chance]
        return min(value for value in known if value == value)

    def chance_of(self, subset: str) -> float:
        """What random scores earn in a subset."""
        return self.chance.get(subset, float("nan")) if isinstance(self.chance, Mapping) else self.chance


def published_options(benchmark: Benchmark, options: Mapping[str, str]) -> dict[str, str]:
    """All options of a benchmark with the values asked for; TypeError for one that it does not have."""
    for name, value in options.items():
        if name not in benchmark.options:
            known = f"; {nearest(name, list(benchmark.options))}" if benchmark.options else " and has none"
            raise TypeError(f"{name}={value!r}: no option of {benchmark.title}{known}")
        allowed(name, value, tuple(benchmark.options[name]))
    return {name: values[0] for name, values in benchmark.options.items()} | dict(options)
