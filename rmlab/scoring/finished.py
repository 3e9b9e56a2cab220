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

# Names that stay as they are: lower case, and no hyphens beside the two that stand for a slash.
_PLAIN = re.compile(r"[a-z0-9_]+([.-][a-z0-9_]+)*(/[a-z0-9_]+([.-][a-z0-9_]+)*)*")
# Names of devices on Windows, whatever stands behind the first dot.
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)")
_LONGEST = 80


def file_name(model: str, benchmark: str, *, pairs: bool = False) -> str:
    """File of a model's finished table; different for different names, also where a system ignores case.

    >>> file_name("owner/name-v1.5", "rm-bench"), file_name("GPT:4", "mini", pairs=True)
    ('owner--name-v1.5.rm-bench.csv', 'GPT-4~e1d35f0a.mini.pairs.csv')
    """
    # Dots are the model's: the last one ends it. "pairs" would say that the table holds comparisons.
    is_plain = "." not in benchmark and benchmark != PAIRS[1:]
    ending = _slug(benchmark) if is_plain else _slug_with_hash(benchmark).replace(".", "-")
    return f"{_slug(model)}.{ending}{PAIRS if pairs else ''}.csv"


def check_tables(
    store: Store, scorers: Mapping[str, Scorer | Judge], benchmarks: Iterable[str], *, pairs: bool = False
) -> None:
    """Raise DataError, before a long run, where a table would replace that of another model of the same name."""
    for benchmark in benchmarks:
        for name, scorer in scorers.items():
            file = file_name(name, benchmark, pairs=pairs)
            table, sidecar = store.read_table(file), store.read_table(file + SIDECAR)
            if table is None or sidecar is None:
                continue
            stored_weights, weights = _read_weights(sidecar, name), _weights(scorer.provenance())
            if stored_weights is not None and stored_weights != weights:
                raise DataError(
                    f"store: {store}/{file} holds the table of another model named {name!r}, with other weights. Give "
                    "this one a name of its own (name=, on the command line --name), or delete that file: its scores "
                    "stay in the store."
                )


def write_tables(table: pd.DataFrame, store: Store) -> None:
    """Write each model's scores or pairs of each benchmark into the store, replacing those of an earlier run."""
    pairs = "score" not in table.columns
    write = write_pairs if pairs else write_scores
    provenance = table.attrs.get("provenance", {})
    for key, part in table.groupby(["model", "benchmark"], sort=False):
        model, benchmark = map(str, key)
        part.attrs = {"provenance": {model: provenance[model]}} if model in provenance else {}
        file = file_name(model, benchmark, pairs=pairs)
        if store.is_local:
            write(part, Path(store.root) / file)
            continue
        with TemporaryDirectory() as folder:
            path = write(part, Path(folder) / file)
            # The provenance tells the table's checksum, and so comes after it.
            for file_path in (path, path.with_name(path.name + SIDECAR)):
                if file_path.exists():
                    store.write_table(file_path.name, file_path.read_bytes())


def _slug(name: str) -> str:
    is_plain = _PLAIN.fullmatch(name) and not _RESERVED.match(name) and len(name) <= _LONGEST
    return name.replace("/", "--") if is_plain else _slug_with_hash(name)


def _slug_with_hash(name: str) -> str:
    """What can be read of a name, and a hash of it."""
    readable = re.sub(r"[^A-Za-z0-9_.-]+", "-", name.replace("/", "--"))[:_LONGEST].strip("-.")
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{'x' if _RESERVED.match(readable.lower()) else ''}{readable}~{digest}"


def _read_weights(sidecar: bytes, name: str) -> object:
    try:
        return _weights(loads(sidecar)["provenance"][name])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _weights(provenance: Mapping[str, object]) -> object:
    """The hash of a model's own weights in a provenance: of a policy and its reference, the policy's."""
    content = provenance.get("content") if isinstance(provenance, dict) else None
    return content[0] if isinstance(content, list) and content else content
