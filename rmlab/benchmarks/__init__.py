"""Benchmarks to responses: from the hub, from files on disk, the bundled one, or preference pairs of one's own."""

import logging
from pathlib import Path

import pandas as pd

from rmlab import records
from rmlab.benchmarks import hub, reward_bench, rm_bench
from rmlab.benchmarks.own import load_pairs
from rmlab.tables import DataError, nearest

__all__ = ["load", "load_pairs"]

_log = logging.getLogger(__name__)

NAMES = ("rm-bench", "mini", "reward-bench", "reward-bench-2")


def load(name: str, *, path: str | Path | None = None) -> pd.DataFrame:
    """Load a benchmark as a responses table: one row per answer text.

    Names: "rm-bench", "reward-bench", "reward-bench-2" (downloaded from the hub at a pinned revision and verified,
    or read from `path`, a file or a folder) and "mini" (ships with rmlab, in RM-Bench's file format).
    Columns: benchmark, domain, id, label, slot, subset, style, prompt, response, and for RM-Bench `source` (where the
    prompt comes from; missing where the file does not say), then those of `note`, `error` and `error_key` that the
    files have (what is wrong with the rejected answer; mini has `note`).
    RM-Bench domains that are not there are named in `attrs["missing_domains"]` and in a log message.
    Raises DataError for an unknown name and for bad files, naming file, row, field, value and remedy.

    >>> load("mini")["style"].cat.categories.tolist()
    ['concise', 'plain', 'markdown']
    """
    if name not in NAMES:
        raise DataError(
            f"load: no benchmark {name!r}; {nearest(str(name), NAMES)}; for data of your own use load_pairs(path)"
        )
    if name == "mini" and path is None:
        path = _bundled()
    responses = _from_hub(name) if path is None else _from_path(name, Path(path).expanduser())
    missing = responses.attrs.get("missing_domains")
    if missing:
        _log.warning("%s: no rows for %s; summaries over all domains will be missing", name, ", ".join(missing))
    return responses


def _from_path(name: str, path: Path) -> pd.DataFrame:
    if name in ("rm-bench", "mini"):
        return rm_bench.load_path(path, benchmark=name)
    return reward_bench.load_path(path, name)


def _from_hub(name: str) -> pd.DataFrame:
    files = [(file, records.read_rows(file)) for file in hub.fetch(name)]
    responses = rm_bench.from_rows(files) if name == "rm-bench" else reward_bench.from_rows(*files[0], name)
    prompts = responses.drop_duplicates(["subset", "id"])["subset"].value_counts()
    hub.check_rows(name, {str(subset): int(n) for subset, n in prompts.items()})
    return responses


def _bundled() -> Path:
    package = Path(__file__).parents[1]
    for folder in (package / "data" / "mini", package.parent / "data" / "mini"):
        if folder.is_dir():
            return folder
    raise DataError(f"load('mini'): the bundled data is not in {package / 'data' / 'mini'}; install rmlab again")
