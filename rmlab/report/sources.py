"""Files of scores and pairs as one table for each benchmark, with their provenance."""

import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from glob import glob, has_magic
from os import PathLike
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pandas as pd

from rmlab import io
from rmlab.benchmarks import benchmarks_by_name
from rmlab.benchmarks.own_files import load_preferences
from rmlab.benchmarks.registry import adopt_name
from rmlab.benchmarks.roles import OwnColumns
from rmlab.io.files import Paths
from rmlab.io.native import SIDECAR
from rmlab.metrics.pairing import as_pairs
from rmlab.records import SUFFIXES, expand_path
from rmlab.scorers.base import Provenance
from rmlab.tables import KEY, PROMPT, DataError, check_pairs, check_scores
from rmlab.text import short

_PROVENANCE = [
    "model",
    "reference",
    "revision",
    "dtype",
    "device",
    "convention",
    "template",
    "head",
    "mode",
    "form",
    "started",
    "rmlab",
    "versions",
]
# Letters of a value in the table of provenance.
_LONGEST = 200
Source: TypeAlias = Paths | pd.DataFrame | Sequence[pd.DataFrame]
"""Where results are: files, a table, or several tables."""


class Results(NamedTuple):
    """Scores (pairs, where a file has no scores) by benchmark, and the files read.

    A table's attrs hold the provenance of its models. `texts`: responses by benchmark,
    where a file of custom pairs holds them beside its scores.
    """

    tables: dict[str, pd.DataFrame]
    files: list[Path]
    texts: dict[str, pd.DataFrame]


def read_results(source: Source, columns: OwnColumns | None = None) -> Results:
    """All results in a folder, a glob, a list of files, or tables of scores or pairs.

    `columns`: our names to those of files of pairs, as in `rmlab.load_preferences`.
    """
    if isinstance(source, pd.DataFrame):
        source = [source]
    entries = [source] if isinstance(source, str | PathLike) else list(source)
    tables_given = [entry for entry in entries if isinstance(entry, pd.DataFrame)]
    if tables_given:
        checked = [check_table(table) for table in tables_given]
        return Results(_tables_by_benchmark(checked), [], {})

    paths = _result_files(
        [entry for entry in entries if not isinstance(entry, pd.DataFrame)]
    )
    frames = [_read_results_file(path, columns) for path in paths]
    tables = _tables_by_benchmark(frames)
    responses = _read_texts(paths, frames, columns)
    return Results(tables, paths, match_texts(responses, tables))


def check_table(table: pd.DataFrame) -> pd.DataFrame:
    """A checked table of scores or pairs."""
    if "score" in table.columns:
        return check_scores(table, allow_missing=True)
    return check_pairs(table)


def _tables_by_benchmark(frames: Sequence[pd.DataFrame]) -> dict[str, pd.DataFrame]:
    parts: dict[str, list[pd.DataFrame]] = {}
    for frame in frames:
        for name, part in frame.groupby("benchmark", sort=False):
            parts.setdefault(str(name), []).append(part)
    return {name: join_tables(tables) for name, tables in parts.items()}


def _read_texts(
    paths: Sequence[Path], frames: Sequence[pd.DataFrame], columns: OwnColumns | None
) -> pd.DataFrame | None:
    """The texts in files of custom pairs; None where there are none."""
    texts = []
    for path, frame in zip(paths, frames, strict=True):
        is_custom = not {*frame["benchmark"]} <= benchmarks_by_name().keys()
        if is_custom:
            with suppress(DataError):  # a file of scores alone has no texts
                texts.append(load_preferences(path, columns=columns))
    if not texts:
        return None
    return pd.concat(texts, ignore_index=True).drop_duplicates(KEY)


def match_texts(
    responses: pd.DataFrame | None, tables: Mapping[str, pd.DataFrame]
) -> dict[str, pd.DataFrame]:
    """Responses by their benchmark in `tables`, those of custom data by their keys.

    Raises DataError where there are responses of no table.
    """
    texts: dict[str, pd.DataFrame] = {}
    if responses is None:
        return texts
    for name, part in responses.groupby("benchmark", sort=False):
        is_matched = False
        for benchmark, table in tables.items():
            if benchmark == name or _has_texts(table, part):
                texts[benchmark] = adopt_name(part, table)
                is_matched = True
        if not is_matched:
            problem = f"responses: no scores of {name!r}; scores: {short([*tables])}"
            raise DataError(problem, "pass the texts that were scored")
    return texts


def _has_texts(table: pd.DataFrame, responses: pd.DataFrame) -> bool:
    """Whether every prompt of a table is in the responses."""
    responses = adopt_name(responses, table)
    scored = pd.MultiIndex.from_frame(table[PROMPT])
    with_text = pd.MultiIndex.from_frame(responses[PROMPT])
    return bool(scored.isin(with_text).all())


def provenance_table(provenance: Mapping[str, Provenance]) -> pd.DataFrame:
    """How the models were scored, one row each, without empty columns."""
    rows = []
    for name, entry in provenance.items():
        row = {"name": name}
        for field in _PROVENANCE:
            if entry.get(field):
                row[field] = _format_entry(entry[field])
        rows.append(row)
    frame = pd.DataFrame(rows).reindex(columns=["name", *_PROVENANCE])
    return frame.dropna(axis="columns", how="all").fillna("")


def _result_files(source: Paths) -> list[Path]:
    if not isinstance(source, str | PathLike):
        files = []
        for entry in source:
            files += _result_files(entry)
        return files

    path = expand_path(source)
    if path.is_file():
        return [path]
    if path.is_dir():
        candidates = [*path.rglob("*")]
    elif not has_magic(str(path)):
        raise DataError(f"{path}: no such file or folder", "check the path")
    else:
        candidates = [Path(name) for name in glob(str(path), recursive=True)]
    files = sorted(candidate for candidate in candidates if _is_result(candidate))
    if not files:
        problem = f"{path}: no result files ({', '.join(SUFFIXES)})"
        raise DataError(problem, "write them with rmlab score -o")
    return files


def _is_result(path: Path) -> bool:
    if path.suffix.lower() not in SUFFIXES or not path.is_file():
        return False
    if path.name.startswith(".") or path.name.endswith(SIDECAR):
        return False
    is_in_store = any(path.parent.glob("*.records"))
    return not is_in_store


def _read_results_file(path: Path, columns: OwnColumns | None) -> pd.DataFrame:
    try:
        return io.read_scores(path, columns=columns or None, allow_missing=True)
    except DataError as error:
        with suppress(DataError):
            return io.read_pairs(path)
        raise error from None


def join_tables(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """One table, with the provenance of its models in attrs; pairs if any part is."""
    provenance: dict[str, Provenance] = {}
    for part in parts:
        by_model = part.attrs.get("provenance", {})
        for model in part["model"].unique():
            if model in by_model:
                provenance[model] = by_model[model]
        part.attrs = {}

    forms = {"score" in part for part in parts}
    if len(forms) > 1:
        parts = [as_pairs(part) for part in parts]
    table = pd.concat(parts, ignore_index=True)
    table.attrs["provenance"] = provenance
    return table


def _format_entry(value: object) -> str:
    text = str(value)
    if isinstance(value, dict):
        versions = [f"{name} {version}" for name, version in value.items()]
        text = ", ".join(versions)
    return textwrap.shorten(text, _LONGEST, placeholder="…")
