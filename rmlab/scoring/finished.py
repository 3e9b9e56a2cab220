"""Finished tables in the store, for people and for reports: one CSV per model and benchmark."""

import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from json import loads
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from rmlab.io import write_pairs, write_scores
from rmlab.io.native import PAIRS, SIDECAR
from rmlab.scorers.base import Judge, Scorer
from rmlab.store import Store
from rmlab.tables import DataError

# Names that stay as they are: lower case, which every file system tells apart, and no hyphens beside the two that stand
# for a slash.
_WORD = r"[a-z0-9_]+(-[a-z0-9_]+)*"
_MODEL = re.compile(rf"{_WORD}([./]{_WORD})*")
_BENCHMARK = re.compile(rf"(?!{PAIRS[1:]}$){_WORD}")
_LONGEST = 80


def file_name(model: str, benchmark: str, *, pairs: bool = False) -> str:
    """File of a model's finished table; different for different names, also where a system ignores case.

    >>> file_name("owner/name-v1.5", "rm-bench"), file_name("GPT:4", "mini", pairs=True)
    ('owner--name-v1.5.rm-bench.csv', 'GPT-4~e1d35f0a.mini.pairs.csv')
    """
    # Dots are the model's: the last one ends it. "pairs" would say that the table holds comparisons.
    return f"{_slug(model, _MODEL)}.{_slug(benchmark, _BENCHMARK)}{PAIRS if pairs else ''}.csv"


def _slug(name: str, plain: re.Pattern[str]) -> str:
    """The name where it is plain; else what can be read of it, and a hash."""
    if plain.fullmatch(name) and len(name) <= _LONGEST:
        return name.replace("/", "--")
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", name.replace("/", "--"))[:_LONGEST].strip("-")
    return f"{readable}~{blake2b(name.encode('utf-8', 'surrogatepass'), digest_size=4).hexdigest()}"


def check_tables(
    store: Store | None, scorers: Mapping[str, Scorer | Judge], benchmarks: Iterable[str], *, pairs: bool
) -> None:
    """Raise DataError, before a long run, where a table would replace that of another model of the same name."""
    if store is None:
        return
    files = store.tables()
    for benchmark in benchmarks:
        for name, scorer in scorers.items():
            file = file_name(name, benchmark, pairs=pairs)
            if not {file, file + SIDECAR} <= set(files):
                continue
            weights = _read_weights(store, file + SIDECAR, name)
            if weights is not None and weights != _own_weights(scorer.provenance()):
                raise DataError(
                    f"store: {store}/{file} holds the table of another model named {name!r}, with other weights. Give "
                    "this one a name of its own (name=, on the command line --name), or delete that file: its scores "
                    "stay in the store."
                )


def _read_weights(store: Store, sidecar: str, name: str) -> object:
    try:
        return _own_weights(loads(store.read_table(sidecar))["provenance"][name])
    except (FileNotFoundError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _own_weights(provenance: Mapping[str, object]) -> object:
    """The hash of a model's own weights in a provenance: of a policy and its reference, the policy's."""
    content = provenance.get("content")
    return content[0] if isinstance(content, list) and content else content


def write_tables(table: pd.DataFrame, store: Store | None) -> None:
    """Write each model's scores or pairs of each benchmark into the store, replacing those of an earlier run."""
    if store is None:
        return
    pairs = "score" not in table.columns
    write = write_pairs if pairs else write_scores
    for key, part in table.groupby(["model", "benchmark"], sort=False):
        model, benchmark = map(str, key)
        part.attrs = {"provenance": {model: table.attrs["provenance"][model]}}
        name = file_name(model, benchmark, pairs=pairs)
        if store.is_local:
            write(part, Path(store.root) / name)
            continue
        with TemporaryDirectory() as folder:
            path = write(part, Path(folder) / name)
            # The provenance tells the table's checksum, and so comes after it.
            for file in (path, path.with_name(path.name + SIDECAR)):
                store.write_table(file.name, file.read_bytes())
