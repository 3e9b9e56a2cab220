"""Benchmarks: one file each says how it is read and counted. Loading gives responses."""

import logging
from pathlib import Path

import pandas as pd

from rmlab import records
from rmlab.benchmarks import hub
from rmlab.benchmarks.benchmark import Benchmark
from rmlab.benchmarks.own_pairs import load_pairs
from rmlab.benchmarks.registry import benchmark_of, known, named

__all__ = ["Benchmark", "benchmark_of", "known", "load", "load_pairs", "named"]

_log = logging.getLogger(__name__)


def load(name: str, *, path: str | Path | None = None) -> pd.DataFrame:
    """Load a benchmark as a responses table.

    Parameters
    ----------
    name : str
        "rm-bench", "reward-bench" or "reward-bench-2" (downloaded from the hub at a pinned revision and verified),
        "judgebench" (from the hub, not verified), "rmb" (needs `path`), "mini" and "evalbiasbench" (ship with rmlab),
        or a benchmark of an installed package.
    path : str or Path, optional
        A file or folder to read in place of the hub.

    Returns
    -------
    DataFrame
        One row per answer: benchmark, domain, id, label, slot, subset, style, prompt, response. RM-Bench also has
        `source` (where the prompt comes from) and, where its files have them, `note`, `error` and `error_key` (what is
        wrong with the rejected answer). RM-Bench's domains without rows are named in `attrs["missing_domains"]` and in
        a warning.

    Raises
    ------
    DataError
        If the name is unknown, a file is bad or the hub cannot be reached.

    Examples
    --------
    >>> load("mini")["style"].cat.categories.tolist()
    ['concise', 'plain', 'markdown']
    """
    benchmark = named(name)
    if benchmark.read is None:
        raise TypeError(f"load: {name!r} has no reader; load its texts with load_pairs(path)")
    if path is None and benchmark.hub is not None:
        files = hub.fetch_benchmark(benchmark.hub, f"load({name!r}, path='<folder>')")
    elif path is None and benchmark.shipped is None:
        raise TypeError(f"load: {name!r} is not on the hub; pass path='<file or folder>'")
    else:
        files = benchmark.folder_files(Path(path).expanduser() if path else records.shipped(benchmark.shipped or ""))
    responses = benchmark.read([(file, records.read_rows(file)) for file in files])
    if path is None and benchmark.hub is not None:
        hub.check_row_counts(name, benchmark.hub, responses)
        if benchmark.hub.revision == "main":
            _log.warning("%s: the hub's files are not verified: no revision of them is known to be right", name)
    if missing := responses.attrs.get("missing_domains"):
        _log.warning("%s: no rows for %s; summaries over all domains will be missing", name, ", ".join(missing))
    return responses
