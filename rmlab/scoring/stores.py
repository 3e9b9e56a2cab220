"""What a store holds for people: the finished tables, one CSV per model and benchmark;
and several stores as one.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from json import loads
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from rmlab.io import write_pairs, write_scores
from rmlab.io.native import PAIRS_INFIX, SIDECAR
from rmlab.scorers.base import Judge, Scorer
from rmlab.store import Store
from rmlab.tables import DataError

# Names that stay as they are: lower case, which every file system tells apart, and no
# hyphens beside the two that stand for a slash.
_WORD = r"[a-z0-9_]+(-[a-z0-9_]+)*"
_MODEL = re.compile(rf"{_WORD}([./]{_WORD})*")
_BENCHMARK = re.compile(rf"(?!{PAIRS_INFIX[1:]}$){_WORD}")
_LONGEST = 80


def file_name(model: str, benchmark: str, *, pairs: bool = False) -> str:
    """File of a model's finished table; different for different names, also where a
    system ignores case.

    >>> file_name("owner/name-v1.5", "rm-bench"), file_name("GPT:4", "mini", pairs=True)
    ('owner--name-v1.5.rm-bench.csv', 'GPT-4~e1d35f0a.mini.pairs.csv')
    """
    slugs = []
    # Dots are the model's: the last one ends it. "pairs" would say that the table holds
    # comparisons.
    for name, plain in ((model, _MODEL), (benchmark, _BENCHMARK)):
        slug = name.replace("/", "--")
        if not plain.fullmatch(name) or len(name) > _LONGEST:
            readable = re.sub(r"[^A-Za-z0-9_-]+", "-", slug)[:_LONGEST].strip("-")
            slug = f"{readable}~{blake2b(name.encode('utf-8', 'surrogatepass'), digest_size=4).hexdigest()}"
        slugs.append(slug)
    return f"{slugs[0]}.{slugs[1]}{PAIRS_INFIX if pairs else ''}.csv"


def check_tables(
    store: Store,
    models: Mapping[str, Scorer | Judge],
    benchmarks: Iterable[str],
    *,
    pairs: bool,
) -> None:
    """Raise DataError, before a long run, where a table would replace that of another
    model of the same name.
    """
    files = store.tables()
    for file, name in (
        (file_name(name, benchmark, pairs=pairs), name)
        for benchmark in benchmarks
        for name in models
    ):
        if not {file, file + SIDECAR} <= set(files):
            continue
        try:
            weights = _model_weights(
                loads(store.read_table(file + SIDECAR))["provenance"][name]
            )
        except (FileNotFoundError, ValueError, LookupError, TypeError, AttributeError):
            continue
        if weights is not None and weights != _model_weights(models[name].provenance()):
            where = f"store: {store}/{file} holds the table of another model named {name!r}, with other weights"
            raise DataError(
                f"{where}. Give this one a name of its own (name=, --name), or delete that file."
            )


def _model_weights(provenance: Mapping[str, object]) -> object:
    """The hash of a model's own weights in a provenance: of a policy and its reference,
    the policy's.
    """
    content = provenance.get("content")
    return content[0] if isinstance(content, list) and content else content


def write_tables(table: pd.DataFrame, store: Store) -> None:
    """Write each model's scores or pairs of each benchmark into the store, replacing
    those of an earlier run.
    """
    pairs = "score" not in table.columns
    write = write_pairs if pairs else write_scores
    for key, part in table.groupby(["model", "benchmark"], sort=False):
        model, benchmark = map(str, key)
        part.attrs = {"provenance": {model: table.attrs["provenance"][model]}}
        name = file_name(model, benchmark, pairs=pairs)
        with TemporaryDirectory() as folder:
            path = write(part, Path(folder) / name)
            # The provenance tells the table's checksum, and so comes after it.
            for file in (path, path.with_name(path.name + SIDECAR)):
                store.write_table(file.name, file.read_bytes())


def merge(folders: str | Path | Sequence[str | Path], into: str | Path) -> pd.DataFrame:
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
        If a source is not there or holds neither scores nor tables, or holds a link, a
        pipe or a device.
    """
    target = Store(into)
    sources = [
        Store(folder)
        for folder in ([folders] if isinstance(folders, str | Path) else folders)
    ]
    for source in sources:
        if not source.fingerprints() and not source.tables():
            raise DataError(
                f"merge: {source} is not there or holds no scores. Give folders that store= wrote."
            )
    rows = []
    for source in sources:
        if Path(source.root).resolve() != Path(target.root).resolve():
            rows += [
                _merge_fingerprint(source, target, fingerprint)
                for fingerprint in source.fingerprints()
            ]
            for name in set(source.tables()) - set(target.tables()):
                target.write_table(name, source.read_table(name))
    columns = [
        "fingerprint",
        "model",
        "source",
        "texts",
        "added",
        "conflicts",
        "max_difference",
    ]
    return pd.DataFrame(rows, columns=columns)


def _merge_fingerprint(
    source: Store, target: Store, fingerprint: str
) -> tuple[object, ...]:
    """Copy what the target lacks, writer by writer, so that runs and the order of
    belief stay.
    """
    target_values = target.read(fingerprint)
    source_values: dict[str, object] = {}
    fresh: dict[str, dict[str, object]] = {}
    for record in source.records(fingerprint):
        if record.key not in source_values:
            source_values[record.key] = record.value
            if record.key not in target_values:
                fresh.setdefault(record.writer, {})[record.key] = record.value
    runs = source.runs(fingerprint)
    for writer, records in fresh.items():
        target.adopt(fingerprint, writer, records, runs[writer])
    differing = [
        k
        for k, value in source_values.items()
        if k in target_values and target_values[k] != value
    ]
    gaps = [
        np.abs(
            np.asarray(source_values[key], float)
            - np.asarray(target_values[key], float)
        ).max()
        for key in differing
        if not isinstance(source_values[key], dict)  # an answer of a judge
    ]
    model = next((str(run["name"]) for run in runs.values() if "name" in run), "")
    largest = float(max(gaps, default=np.nan))
    n_added = sum(map(len, fresh.values()))
    return (
        fingerprint,
        model,
        str(source),
        len(source_values),
        n_added,
        len(differing),
        largest,
    )
