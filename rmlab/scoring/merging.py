"""Several stores to one."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from rmlab.store import Store
from rmlab.tables import DataError

RECORDS_PER_FILE = 100_000


def merge(folders: str | Path | Sequence[str | Path], into: str | Path) -> pd.DataFrame:
    """Copy the scores of several stores into one, for example those of shards scored on different machines.

    The many small objects of a store on object storage become few large ones. Finished tables are copied where `into`
    has none of that name. Merging again adds nothing, and nothing is written to a source.

    Parameters
    ----------
    folders : str, Path or sequence of these
        Stores to copy from: folders or URLs.
    into : str or Path
        The store to copy to.

    Returns
    -------
    DataFrame
        One row per source and fingerprint: fingerprint, model, source, texts (records read), added (new in `into`),
        conflicts (records that differ from the one already there, which stays) and max_difference (of such scores).

    Raises
    ------
    DataError
        If a source is not there or holds neither scores nor tables, or holds a link, a pipe or a device.
    """
    target = Store(into)
    sources = [Store(folder) for folder in ([folders] if isinstance(folders, str | Path) else folders)]
    for source in sources:
        if not source.fingerprints() and not source.tables():
            raise DataError(
                f"merge: {source} is not there or holds no scores. Give folders that rmlab.score(..., store=...) wrote."
            )
    rows = []
    for source in sources:
        if Path(source.root).resolve() != Path(target.root).resolve():
            rows += [_merge_fingerprint(source, target, fingerprint) for fingerprint in source.fingerprints()]
            for name in set(source.tables()) - set(target.tables()):
                target.write_table(name, source.read_table(name))
    columns = ["fingerprint", "model", "source", "texts", "added", "conflicts", "max_difference"]
    return pd.DataFrame(rows, columns=columns)


def _merge_fingerprint(source: Store, target: Store, fingerprint: str) -> tuple[object, ...]:
    """Copy what the target lacks, writer by writer, so that runs and the order of belief stay."""
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
        keys = list(records)
        for start in range(0, len(keys), RECORDS_PER_FILE):
            part = {key: records[key] for key in keys[start : start + RECORDS_PER_FILE]}
            target.adopt(fingerprint, writer, part, runs[writer])
    differing = [k for k, value in source_values.items() if k in target_values and target_values[k] != value]
    gaps = [
        np.abs(np.asarray(source_values[key], float) - np.asarray(target_values[key], float)).max()
        for key in differing
        if not isinstance(source_values[key], dict)  # an answer of a judge
    ]
    model = next((str(run["name"]) for run in runs.values() if "name" in run), "")
    largest = float(max(gaps, default=np.nan))
    n_added = sum(map(len, fresh.values()))
    return fingerprint, model, str(source), len(source_values), n_added, len(differing), largest
