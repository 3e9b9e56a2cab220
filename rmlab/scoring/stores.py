"""What a store holds for people: the finished tables, one CSV per model and benchmark;
and several stores as one.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from rmlab.io.files import read_pairs, read_scores
from rmlab.io.native import PAIRS_INFIX, SIDECAR, encode_frame
from rmlab.scorers.base import Provenance, Scorer
from rmlab.store import Store
from rmlab.tables import KEY, PAIR_KEY, DataError

# Names that stay as they are: lower case, which every file system tells apart, and no
# hyphens beside the two that stand for a slash.
_WORD = r"[a-z0-9_]+(-[a-z0-9_]+)*"
_MODEL = re.compile(rf"{_WORD}([./]{_WORD})*")
# A benchmark called "pairs" would say that the table holds comparisons.
_BENCHMARK = re.compile(rf"(?!{PAIRS_INFIX[1:]}$){_WORD}")
_LONGEST = 80

READING = ("fingerprint", "reader", "scale")
"""Entries of the provenance that two runs share where their rows may stand together: a
judge's fingerprint does not say how replies are read.
"""

_MERGED = [
    "fingerprint",
    "model",
    "source",
    "texts",
    "added",
    "conflicts",
    "max_difference",
]


def file_name(model: str, benchmark: str, *, pairs: bool = False) -> str:
    """File of a model's finished table; different for different names, also where a
    system ignores case.

    >>> file_name("owner/name-v1.5", "rm-bench"), file_name("GPT:4", "mini", pairs=True)
    ('owner--name-v1.5.rm-bench.csv', 'GPT-4~e1d35f0a.mini.pairs.csv')
    """
    # Dots are the model's: the last one ends it.
    model_slug = _slug(model, _MODEL)
    benchmark_slug = _slug(benchmark, _BENCHMARK)
    ending = PAIRS_INFIX if pairs else ""
    return f"{model_slug}.{benchmark_slug}{ending}.csv"


def _slug(name: str, plain: re.Pattern[str]) -> str:
    """The name where a file can be called so, else its letters and a hash."""
    slug = name.replace("/", "--")
    if plain.fullmatch(name) and len(name) <= _LONGEST:
        return slug
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", slug)[:_LONGEST].strip("-")
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4)
    return f"{readable}~{digest.hexdigest()}"


def check_tables(
    store: Store,
    models: Mapping[str, Scorer],
    benchmarks: Iterable[str],
    *,
    pairs: bool,
) -> None:
    """Raise DataError, before a long run, where a table would replace that of another
    model of the same name.
    """
    stored_files = store.tables()
    for benchmark in benchmarks:
        for name, scorer in models.items():
            file = file_name(name, benchmark, pairs=pairs)
            if file not in stored_files:
                continue
            weights = _model_weights(_read_provenance(store, file, name))
            if weights in (None, _model_weights(scorer.provenance())):
                continue
            table = f"the table of another model named {name!r}, with other weights"
            remedy = "give this one another name (name=, --name), or delete that file"
            raise DataError(f"store: {store}/{file} holds {table}", remedy)


def _read_provenance(store: Store, file: str, model: str) -> Provenance:
    """The provenance of a model in a finished table; empty where there is none."""
    with suppress(FileNotFoundError, ValueError, LookupError, TypeError):
        provenance = json.loads(store.read_table(file + SIDECAR))["provenance"]
        return dict(provenance[model])
    return {}


def _model_weights(provenance: Provenance) -> object:
    """The hash of a model's own weights in a provenance: of a policy and its reference,
    the policy's.
    """
    content = provenance.get("content")
    return content[0] if isinstance(content, list) and content else content


def write_tables(table: pd.DataFrame, store: Store) -> None:
    """Write each model's scores or pairs of each benchmark into the store, beside the
    rows that it has of earlier runs of the same scorer.
    """
    is_pairs = "score" not in table.columns
    for key, rows in table.groupby(["model", "benchmark"], sort=False):
        model, benchmark = map(str, key)
        provenance = table.attrs["provenance"][model]
        name = file_name(model, benchmark, pairs=is_pairs)
        earlier = _read_provenance(store, name, model)
        entries = (*READING, "subsets")
        described = [earlier.get(entry) for entry in entries]
        is_like = described == [provenance.get(entry) for entry in entries]
        rows.attrs = {"provenance": {model: provenance}}
        contents = encode_frame(rows, ".csv")
        with suppress(FileNotFoundError):
            # A rerun makes the table that is there, and need not read its rows.
            if earlier and is_like and store.read_table(name) != contents.table:
                contents = encode_frame(_add_earlier_rows(rows, store, name), ".csv")
        store.write_table(name, contents.table)
        # The provenance tells the table's checksum, and so comes after it.
        store.write_table(name + SIDECAR, contents.sidecar)


def _add_earlier_rows(rows: pd.DataFrame, store: Store, name: str) -> pd.DataFrame:
    """The rows, and those of the store's table that this run has not made again."""
    is_pairs = "score" not in rows.columns
    with TemporaryDirectory() as folder, suppress(FileNotFoundError, DataError):
        path = Path(folder, name)
        for file in (name, name + SIDECAR):
            Path(folder, file).write_bytes(store.read_table(file))
        if is_pairs:
            earlier = read_pairs(path)
        else:
            earlier = read_scores(path, allow_missing=True)
        all_rows = pd.concat([rows, earlier], ignore_index=True)
        all_rows = all_rows.drop_duplicates(PAIR_KEY if is_pairs else KEY)
        all_rows.attrs = rows.attrs
        return all_rows
    return rows


def merge_stores(
    folders: str | Path | Sequence[str | Path], into: str | Path
) -> pd.DataFrame:
    """Copy the scores of several stores into one, for example those of shards scored on
    different machines.

    The many small objects of a store on object storage become few large ones. Finished
    tables are copied where `into` has none of that name. Merging again adds nothing,
    and nothing is written to a source.

    Parameters
    ----------
    folders : str, Path or sequence of these
        Stores to copy from: folders or URLs.
    into : str or Path
        The store to copy to.

    Returns
    -------
    DataFrame
        One row per source and fingerprint: fingerprint, model, source, texts (records
        read), added (new in `into`), conflicts (records that differ from the one
        already there, which stays) and max_difference (of such scores).

    Raises
    ------
    DataError
        If a source is not there or holds neither scores nor tables, or where records
        of one scorer have other numbers of values.
    """
    if isinstance(folders, str | Path):
        folders = [folders]
    sources = [Store(folder) for folder in folders]
    target = Store(into)
    for source in sources:
        if not source.fingerprints() and not source.tables():
            problem = f"merge_stores: {source} is not there or holds no scores"
            raise DataError(problem, "give folders that store= wrote")

    rows = []
    for source in sources:
        for fingerprint in source.fingerprints():
            rows.append(_merge_fingerprint(source, target, fingerprint))
        target_tables = target.tables()
        for name in source.tables():
            # Provenance of another table would be that of the wrong scores.
            if name.removesuffix(SIDECAR) not in target_tables:
                target.write_table(name, source.read_table(name))
    return pd.DataFrame(rows, columns=_MERGED)


def _merge_fingerprint(
    source: Store, target: Store, fingerprint: str
) -> dict[str, object]:
    """Copy the records that the target lacks, writer by writer, so that the writers'
    provenance and the order of their files stay.
    """
    target_values = target.read(fingerprint)
    source_keys: set[str] = set()
    new_records: defaultdict[str, dict[str, object]] = defaultdict(dict)
    differences: list[float] = []
    for writer, key, value in source.records(fingerprint):
        if key in source_keys:
            continue
        source_keys.add(key)
        if key not in target_values:
            new_records[writer][key] = value
        elif target_values[key] != value:
            difference = _score_difference(value, target_values[key], fingerprint)
            differences.append(difference)

    runs = source.runs(fingerprint)
    for writer, records in new_records.items():
        target.adopt(fingerprint, writer, records, runs[writer])
    names = [str(run["name"]) for run in runs.values() if "name" in run] or [""]
    return {
        "fingerprint": fingerprint,
        "model": names[0],
        "source": str(source),
        "texts": len(source_keys),
        "added": sum(len(records) for records in new_records.values()),
        "conflicts": len(differences),
        "max_difference": np.fmax.reduce([np.nan, *differences]),
    }


def list_values(record: Any) -> list[Any]:
    """The score of a record, and the further values behind it."""
    return record if isinstance(record, list) else [record]


def _score_difference(value: Any, other: Any, fingerprint: str) -> float:
    """How far the scores of two records are apart; NaN where one has none."""
    first = list_values(value)
    second = list_values(other)
    if len(first) != len(second):
        counts = f"{len(first)} values in one store, {len(second)} in the other"
        problem = f"merge_stores: records of {fingerprint!r} have {counts}"
        raise DataError(problem, "change the scorer's fingerprint with its columns")
    if first[0] is None or second[0] is None:
        return np.nan
    return abs(float(first[0]) - float(second[0]))
