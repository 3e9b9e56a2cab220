"""Benchmarks: one file each says how it is read and counted. Loading gives responses."""

import logging
from pathlib import Path

import pandas as pd

from rmlab import records
from rmlab.benchmarks import hub
from rmlab.benchmarks.benchmark import Benchmark
from rmlab.benchmarks.mini import bundled
from rmlab.benchmarks.own_pairs import load_pairs
from rmlab.benchmarks.registry import benchmark_of, known, named, refuse_other

__all__ = ["Benchmark", "benchmark_of", "known", "load", "load_pairs", "named"]

_log = logging.getLogger(__name__)


def load(name: str, *, path: str | Path | None = None) -> pd.DataFrame:
    """Load a benchmark as a responses table: one row per answer text.

    Names: "rm-bench", "reward-bench", "reward-bench-2" (downloaded from the hub at a pinned revision and verified,
    or read from `path`, a file or a folder), "mini" (ships with rmlab, in RM-Bench's file format) and those of
    installed packages.
    Columns: benchmark, domain, id, label, slot, subset, style, prompt, response, and for RM-Bench `source` (where the
    prompt comes from; missing where the file does not say), then those of `note`, `error` and `error_key` that the
    files have (what is wrong with the rejected answer; mini has `note`).
    RM-Bench domains that are not there are named in `attrs["missing_domains"]` and in a log message.
    Raises DataError for an unknown name and for bad files, naming file, row, field, value and remedy.

    >>> load("mini")["style"].cat.categories.tolist()
    ['concise', 'plain', 'markdown']
    """
    benchmark = named(name)
    if benchmark.name == "mini" and path is None:
        path = bundled()
    if path is None and benchmark.hub is None:
        raise TypeError(f"load: {name!r} is not on the hub; pass path='<file or folder>'")
    responses = _from_hub(benchmark) if path is None else _read(benchmark, _files(benchmark, Path(path).expanduser()))
    missing = responses.attrs.get("missing_domains")
    if missing:
        _log.warning("%s: no rows for %s; summaries over all domains will be missing", name, ", ".join(missing))
    return responses


def _files(benchmark: Benchmark, path: Path) -> list[Path]:
    return benchmark.folder_files(path)


def _read(benchmark: Benchmark, files: list[Path]) -> pd.DataFrame:
    if benchmark.read is None:
        raise TypeError(f"load: {benchmark.name!r} has no reader; load its texts with load_pairs(path)")
    content = [(file, records.read_rows(file)) for file in files]
    for file, rows in content:
        for row in rows:
            refuse_other(file, row, benchmark)
    return benchmark.read(content)


def _from_hub(benchmark: Benchmark) -> pd.DataFrame:
    assert benchmark.hub is not None
    responses = _read(benchmark, hub.fetch(benchmark.hub, f"load({benchmark.name!r}, path='<folder>')"))
    prompts = responses.drop_duplicates(["subset", "id"])["subset"].value_counts()
    hub.check_rows(benchmark.name, benchmark.hub, {str(subset): int(n) for subset, n in prompts.items()})
    return responses
