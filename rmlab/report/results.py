"""Files of scores and pairs as tables of one benchmark each, with the provenance of
their models.
"""

import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from glob import glob
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from rmlab import io
from rmlab.benchmarks import benchmarks_by_name
from rmlab.benchmarks.layouts import Columns
from rmlab.benchmarks.own_pairs import load_pairs, load_scores
from rmlab.benchmarks.registry import adopt_name
from rmlab.estimation.items import as_pairs
from rmlab.io.native import SIDECAR
from rmlab.records import SUFFIXES
from rmlab.scorers.base import Provenance
from rmlab.tables import KEY, PROMPT, DataError, check_pairs, check_scores
from rmlab.text import short

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]

_PROVENANCE = ["model", "reference", "revision", "dtype", "device"]
_PROVENANCE += [
    "convention",
    "template",
    "head",
    "mode",
    "form",
    "started",
    "rmlab",
    "versions",
]
_LONGEST = 200  # letters of a value in the table of provenance


class Results(NamedTuple):
    """Scores (pairs, where a file has no scores) by benchmark, and the files read.

    A table's attrs hold the provenance of its models. `texts`: responses by benchmark,
    where a file of pairs of one's own holds them beside its scores.
    """

    tables: dict[str, pd.DataFrame]
    files: list[Path]
    texts: dict[str, pd.DataFrame]


def read_results(
    source: Paths | pd.DataFrame, columns: Columns | None = None
) -> Results:
    """All results in `source`: a folder, a glob, a list of files, or a table of scores
    or pairs.

    `columns`: our names to those of files of pairs, as in `rmlab.load_pairs`.
    """
    if isinstance(source, pd.DataFrame):
        is_scores = "score" in source.columns
        paths, frames = (
            [],
            [
                check_scores(source, allow_missing=True)
                if is_scores
                else check_pairs(source)
            ],
        )
    else:
        paths = _result_files(source)
        frames = [_read_table(path, columns) for path in paths]
    parts: dict[str, list[pd.DataFrame]] = {}
    for frame in frames:
        for name, part in frame.groupby("benchmark", sort=False):
            parts.setdefault(str(name), []).append(part)
    tables = {name: _join_tables(frames) for name, frames in parts.items()}
    texts = []
    for path, frame in zip(paths, frames, strict=False):
        if {*frame["benchmark"]} - benchmarks_by_name().keys():
            with suppress(DataError):  # a file of scores alone has no texts
                texts.append(load_pairs(path, columns=columns))
    joined = pd.concat(texts, ignore_index=True).drop_duplicates(KEY) if texts else None
    return Results(tables, paths, match_texts(joined, tables))


def match_texts(
    responses: pd.DataFrame | None, tables: Mapping[str, pd.DataFrame]
) -> dict[str, pd.DataFrame]:
    """Responses by the benchmark in `tables` that they are of: by its name, for custom
    data by their keys.

    Raises DataError where there are responses of no table.
    """
    texts: dict[str, pd.DataFrame] = {}
    for name, part in (
        () if responses is None else responses.groupby("benchmark", sort=False)
    ):
        fitting = [
            key
            for key, table in tables.items()
            if key == name or _has_texts(table, part)
        ]
        if not fitting:
            raise DataError(
                f"responses: no scores of {name!r}; scores: {short([*tables])}. Pass the texts that were scored."
            )
        texts |= {key: adopt_name(part, tables[key]) for key in fitting}
    return texts


def _has_texts(table: pd.DataFrame, responses: pd.DataFrame) -> bool:
    """Whether every prompt of a table is in the responses."""
    prompts = [
        pd.MultiIndex.from_frame(frame[PROMPT])
        for frame in (table, adopt_name(responses, table))
    ]
    return bool(prompts[0].isin(prompts[1]).all())


def provenance_table(provenance: Mapping[str, Provenance]) -> pd.DataFrame:
    """How the models were scored, one row each: revision, template, number type, date,
    versions.
    """
    rows = [
        {"name": name}
        | {
            field: _format_value(entry[field])
            for field in _PROVENANCE
            if entry.get(field)
        }
        for name, entry in provenance.items()
    ]
    return (
        pd.DataFrame(rows)
        .reindex(columns=["name", *_PROVENANCE])
        .dropna(axis="columns", how="all")
        .fillna("")
    )


def _result_files(source: Paths) -> list[Path]:
    if not isinstance(source, str | PathLike):
        return [path for entry in source for path in _result_files(entry)]
    path = Path(source).expanduser()
    if path.is_file():
        return [path]
    candidates = (
        path.rglob("*") if path.is_dir() else map(Path, glob(str(path), recursive=True))
    )
    paths = sorted(filter(_is_result, candidates))
    if not paths:
        raise DataError(
            f"{path}: no result files ({', '.join(SUFFIXES)}). Write them with rmlab score -o."
        )
    return paths


def _is_result(path: Path) -> bool:
    is_table = (
        path.suffix.lower() in SUFFIXES
        and not path.name.startswith(".")
        and not path.name.endswith(SIDECAR)
    )
    return is_table and path.is_file() and not any(path.parent.glob("*.records"))


def _read_table(path: Path, columns: Columns | None) -> pd.DataFrame:
    if columns:
        return check_scores(load_scores(path, path.stem, columns), allow_missing=True)
    try:
        return io.read_scores(path, allow_missing=True)
    except DataError as error:
        with suppress(DataError):
            return io.read_pairs(path)
        raise error from None


def _join_tables(parts: list[pd.DataFrame]) -> pd.DataFrame:
    provenance: dict[str, Provenance] = {}
    for part in parts:
        by_model = part.attrs.get("provenance", {})
        provenance |= {
            model: by_model[model]
            for model in part["model"].unique()
            if model in by_model
        }
        part.attrs = {}
    if len({"score" in part for part in parts}) > 1:
        parts = [as_pairs(part) for part in parts]
    table = pd.concat(parts, ignore_index=True)
    table.attrs["provenance"] = provenance
    return table


def _format_value(value: object) -> str:
    text = (
        ", ".join(f"{name} {version}" for name, version in value.items())
        if isinstance(value, dict)
        else str(value)
    )
    return textwrap.shorten(text, _LONGEST, placeholder="…")
