"""Which benchmarks there are, and which one a table or a row of a file belongs to."""

import logging
from collections.abc import Iterable
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import pandas as pd

from rmlab.benchmarks.benchmark import Benchmark
from rmlab.benchmarks.mini import MINI
from rmlab.benchmarks.reward_bench import REWARD_BENCH
from rmlab.benchmarks.reward_bench_2 import REWARD_BENCH_2
from rmlab.benchmarks.rm_bench import RM_BENCH
from rmlab.records import Row
from rmlab.tables import DataError, nearest

__all__ = ["GROUP", "OWN", "benchmark_of", "known", "likeness", "looks_like", "named", "refuse_other", "with_columns"]

GROUP = "rmlab.benchmarks"
"""Entry points of this group are benchmarks from other packages: objects of type `Benchmark`."""

OWN = Benchmark(name="own", title="data of your own", source="rmlab.load_pairs")
"""Any domains, with or without styles; all prompts count alike."""

_log = logging.getLogger(__name__)
_SCORES = ("score_chosen", "score_rejected", "scores_chosen", "scores_rejected", "scores", "text_chosen")


@cache
def known() -> dict[str, Benchmark]:
    """Every benchmark by name: rmlab's own, then those of installed packages."""
    found = {b.name: b for b in (RM_BENCH, MINI, REWARD_BENCH, REWARD_BENCH_2)}
    for entry in entry_points(group=GROUP):
        try:
            benchmark = entry.load()
        except Exception as error:  # another package's fault must not take rmlab down
            _log.warning("benchmark %r of %s cannot be loaded: %s", entry.name, entry.value, error)
            continue
        if not isinstance(benchmark, Benchmark) or benchmark.name in found:
            _log.warning("benchmark %r of %s is left out: no Benchmark, or its name is taken", entry.name, entry.value)
            continue
        found[benchmark.name] = benchmark
    return found


def named(name: str) -> Benchmark:
    """The benchmark of a name; DataError names the nearest."""
    if name not in known():
        names = list(known())
        raise DataError(
            f"load: unknown benchmark {name!r}; {nearest(str(name), names)}; for data of your own use load_pairs(path)"
        )
    return known()[name]


def benchmark_of(table: pd.DataFrame) -> Benchmark:
    """The benchmark of a table of responses, scores or pairs: by its column `benchmark`, else by subsets and styles.

    A table of no known benchmark is data of one's own. Raises DataError for several benchmarks in one table.
    """
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"table: expected scores or pairs, a pandas DataFrame, got {type(table).__name__}")
    missing = int(table["benchmark"].isna().sum()) if "benchmark" in table.columns else 0
    if missing:
        raise DataError(f"table: benchmark is missing in {missing} of {len(table)} rows; fill it in")
    names = sorted(map(str, table["benchmark"].unique())) if "benchmark" in table.columns else []
    if len(names) > 1:
        raise DataError(f"table: {len(names)} benchmarks {names}; keep one: table[table.benchmark == ...]")
    if names and names[0] in known():
        return known()[names[0]]
    column = "subset" if "subset" in table.columns else "domain"
    subsets = set(table[column].unique()) if column in table.columns else set()
    styles = table.get("style", table.get("chosen_style"))
    styled = styles is not None and bool(styles.notna().all())
    for benchmark in known().values():
        if (
            subsets
            and subsets <= {*benchmark.subsets, *benchmark.subsets.values()}
            and (styled or not benchmark.styles)
        ):
            return benchmark
    return OWN


def with_columns(columns: Iterable[str]) -> Benchmark:
    """The benchmark whose summary has these columns, such as a leaderboard's; data of one's own if none has.

    >>> with_columns(["model", "chat", "math", "code", "safety", "easy", "normal", "hard", "overall"]).name
    'rm-bench'
    """
    there = set(columns) | {"prior_sets"}  # left out of leaderboards where nobody has them
    return next((b for b in known().values() if b.columns and set(b.columns) <= there), OWN)


def looks_like(row: Row) -> str | None:
    """Kind of file that a row comes from: a benchmark's name, "scores", "pairs", or None where it is like none.

    >>> looks_like({"id": "ref:1", "subset": "Ties", "chosen": ["a"], "rejected": ["b"], "num_correct": 1})
    'reward-bench-2'
    """
    if any(name in row for name in _SCORES) or {"model", "score"} <= row.keys() or {"model", "0"} <= row.keys():
        return "scores"
    if not {"chosen", "rejected"} <= row.keys():
        return None
    order = sorted(known().values(), key=lambda benchmark: bool(benchmark.styles))  # RM-Bench has no mark of its own
    return next((benchmark.name for benchmark in order if benchmark.is_row(row)), "pairs")


def likeness(kind: str) -> str:
    """What a kind of file is, and how to read it, for messages."""
    if kind == "scores":
        return "a file of scores: read_scores(...)"
    if kind == "pairs":
        return "preference pairs of your own: load_pairs(...)"
    return f'{"an" if kind == "rm-bench" else "a"} {known()[kind].title} file: load("{kind}", path=...)'


def refuse_other(file: Path, row: Row, wanted: Benchmark) -> None:
    """Raise DataError where a row clearly comes from another kind of file than the one asked for."""
    kind = looks_like(row)
    if kind is None or kind == "pairs" or wanted.is_row(row) or (wanted.styles and kind == "rm-bench"):
        return
    if kind == "scores" and {"chosen", "rejected"} <= row.keys():
        return
    raise DataError(f"{file}: not a file of {wanted.name}; it looks like {likeness(kind)}")
