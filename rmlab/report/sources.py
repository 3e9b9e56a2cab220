"""Files of scores and pairs as one table for each benchmark, with their provenance."""

import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from glob import escape, glob
from os import PathLike
from pathlib import Path
from typing import NamedTuple, TypeAlias, cast

import pandas as pd

from rmlab import io
from rmlab.benchmarks.own_files import load_preferences
from rmlab.benchmarks.registry import adopt_name, benchmarks_by_name
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
Entry: TypeAlias = str | PathLike[str] | pd.DataFrame
Source: TypeAlias = Entry | Sequence[Entry]
"""Where results are: files, a table, or several tables."""


class Results(NamedTuple):
    """Scores (pairs, where a file has no scores) by benchmark, and the files read.

    A table's attrs hold the provenance of its models. `texts`: responses by benchmark,
    where a file of custom pairs holds them beside its scores.
    """

    tables: dict[str, pd.DataFrame]
    files: list[Path]
    texts: dict[str, pd.DataFrame]


def read_results(source: Source) -> Results:
    """All results in folders, globs, files, or tables of scores or pairs."""
    is_entry = isinstance(source, str | PathLike | pd.DataFrame)
    entries = cast("Sequence[Entry]", [source] if is_entry else source)
    frames: list[pd.DataFrame] = []
    paths: list[Path] = []
    texts: list[pd.DataFrame] = []
    for entry in entries:
        if isinstance(entry, pd.DataFrame):
            frames.append(check_table(entry))
            continue
        for path in _result_files(entry):
            frame = _read_results_file(path)
            frames.append(frame)
            paths.append(path)
            if not {*frame["benchmark"]} <= benchmarks_by_name().keys():
                with suppress(DataError):  # a file of scores alone has no texts
                    texts.append(load_preferences(path))

    tables = _tables_by_benchmark(frames)
    if not texts:
        return Results(tables, paths, {})
    responses = pd.concat(texts, ignore_index=True).drop_duplicates(KEY)
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


def match_texts(
    responses: pd.DataFrame, tables: Mapping[str, pd.DataFrame]
) -> dict[str, pd.DataFrame]:
    """Responses by their benchmark in `tables`, those of custom data by their keys.

    Raises DataError where there are responses of no table.
    """
    texts: dict[str, pd.DataFrame] = {}
    for name, part in responses.groupby("benchmark", sort=False):
        matches = [
            benchmark
            for benchmark, table in tables.items()
            if benchmark == name or _has_texts(table, part)
        ]
        for benchmark in matches:
            texts[benchmark] = adopt_name(part, tables[benchmark])
        if not matches:
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
    entries = pd.DataFrame.from_dict(dict(provenance), orient="index")
    fields = entries.reindex(columns=_PROVENANCE).map(_shorten)
    fields = fields.loc[:, (fields != "").any()]
    return fields.rename_axis("name").reset_index()


def _shorten(value: object) -> str:
    """A value of provenance as a cell; what is missing or None is empty."""
    is_blank = not value or value != value
    text = "" if is_blank else str(value).strip("{}")
    return textwrap.shorten(text, _LONGEST, placeholder="…")


def _result_files(source: str | PathLike[str]) -> list[Path]:
    """The file, or the result files of a folder or a glob."""
    path = expand_path(source)
    if path.is_file():
        return [path]
    pattern = f"{escape(str(path))}/**/*" if path.is_dir() else str(path)
    candidates = [Path(name) for name in sorted(glob(pattern, recursive=True))]
    files = [file for file in candidates if _is_result(file)]
    if not files:
        problem = f"{path}: no such file, or no result files ({', '.join(SUFFIXES)})"
        raise DataError(problem, "check the path, or write one with rmlab score -o")
    return files


def _is_result(path: Path) -> bool:
    """Whether a file may hold scores; those in a store are its records."""
    if path.suffix.lower() not in SUFFIXES or path.name.endswith(SIDECAR):
        return False
    return path.is_file() and not any(path.parent.glob("*.records"))


def _read_results_file(path: Path) -> pd.DataFrame:
    try:
        return io.read_scores(path, allow_missing=True)
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

    forms = {"score" in part for part in parts}
    if len(forms) > 1:
        parts = [as_pairs(part) for part in parts]
    table = pd.concat(parts, ignore_index=True)
    table.attrs["provenance"] = provenance
    return table
