"""rmlab's own files of scores and pairs: CSV, Parquet or JSON lines, with a file of
provenance beside them.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Hashable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from rmlab import records, tables
from rmlab.tables import DataError
from rmlab.text import guard_formula, remove_guard

if TYPE_CHECKING:
    import pyarrow

SIDECAR = ".provenance.json"
PAIRS_INFIX = ".pairs"
"""Stands before the suffix of a store's tables of comparisons:
model.benchmark.pairs.csv.
"""

_NAMES = ["model", "benchmark", "domain", "id", "subset"]
# As Python and pandas write numbers: "007" is a text.
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|-?inf"


def read_header(path: Path) -> list[str]:
    """The names of a file's columns."""
    suffix = records.file_suffix(path)
    if suffix == ".parquet":
        return records.read_parquet(path, lambda file: file.schema_arrow.names)
    if suffix in records.CSV:
        return [remove_guard(name) for name in records.read_header(path)]
    return list(records.read_rows(path)[0])


def read_frame(path: Path, sidecar: Mapping[str, object]) -> pd.DataFrame:
    """The columns of one of rmlab's files, not checked yet; names, ids and what the
    sidecar names are text.
    """
    suffix = records.file_suffix(path)
    if suffix == ".parquet":
        return records.read_parquet(path, _read_parquet_frame)
    if suffix not in records.CSV:
        return pd.DataFrame(records.read_rows(path))
    header, lines = records.read_csv_lines(path)
    header = [remove_guard(name) for name in header]
    texts = pd.DataFrame(lines, columns=header, dtype="str")

    kinds = dict.fromkeys(_NAMES, "text")
    kinds |= dict.fromkeys(tables.CLOSED, "text or missing")
    extra = sidecar.get("columns")
    if isinstance(extra, dict):
        kinds = extra | kinds
    columns = {name: _parse_column(texts[name], kinds.get(name)) for name in header}
    return texts.assign(**columns)


def _read_parquet_frame(file: "pyarrow.parquet.ParquetFile") -> pd.DataFrame:
    return pd.DataFrame(file.read().to_pandas(ignore_metadata=True))


def read_sidecar(path: Path) -> dict[str, object]:
    """The content of the file beside `path`: provenance, and which extra columns are
    text; empty without one.
    """
    sidecar = path.with_name(path.name + SIDECAR)
    if not sidecar.is_file() or not path.is_file():
        return {}
    content = records.read_json(sidecar)
    if not isinstance(content, dict) or "sha256" not in content:
        problem = f"{sidecar}: expected an object with 'sha256'"
        raise DataError(problem, f"delete the file, or write {path.name} again")
    if content["sha256"] != sha256(path):
        change = f"{path}: changed since {sidecar.name} was written"
        warnings.warn(f"{change}; its provenance is left out", stacklevel=4)
        return {}
    return content


def holds_pairs(path: Path) -> bool:
    """Whether a table in a folder says by its name that it holds comparisons, not
    scores.
    """
    return path.stem.endswith(PAIRS_INFIX)


def check_target(path: str | PathLike[str]) -> None:
    """Raise DataError where `write_scores` and `write_pairs` cannot write to this path;
    ask before a long run.

    Parameters
    ----------
    path
        The file to write later.
    """
    suffix = Path(path).suffix
    if suffix.lower() not in (".csv", ".parquet", ".jsonl", ".ndjson"):
        problem = f"{path}: cannot tell the file type from {suffix!r}"
        raise DataError(problem, "use .csv, .parquet or .jsonl")


def write_frame(frame: pd.DataFrame, path: Path) -> Path:
    """Write a checked table, and beside it what a reader needs to know."""
    check_target(path)
    table, sidecar = encode_frame(frame, path.suffix.lower())
    records.write_file(path, table)

    sidecar_path = path.with_name(path.name + SIDECAR)
    # The file of an earlier table.
    sidecar_path.unlink(missing_ok=True)
    if sidecar:
        records.write_file(sidecar_path, sidecar)
    return path


class FileContents(NamedTuple):
    """The bytes of a table's file, and of the file beside it, empty without one."""

    table: bytes
    sidecar: bytes


def encode_frame(frame: pd.DataFrame, suffix: str) -> FileContents:
    """A checked table as a file of this type; floats read back to the same bits."""
    sidecar = _describe(frame, suffix)
    if suffix == ".parquet":
        table = frame.to_parquet(
            None, index=False, engine="pyarrow", write_page_checksum=True
        )
    elif suffix == ".csv":
        table = _format_csv(frame).encode()
    else:
        table = _format_json_lines(frame).encode()
    if not sidecar:
        return FileContents(table, b"")

    digest = hashlib.sha256(table).hexdigest()
    sidecar |= {"rows": len(frame), "sha256": digest}
    text = json.dumps(sidecar, indent=1, ensure_ascii=False, sort_keys=True)
    return FileContents(table, f"{text}\n".encode())


def _format_csv(frame: pd.DataFrame) -> str:
    guarded = frame.rename(columns=guard_formula)
    for name, guarded_name in zip(frame, guarded, strict=True):
        if pd.api.types.infer_dtype(frame[name], skipna=True) == "string":
            guarded[guarded_name] = _map_texts(frame[name], guard_formula)
    return guarded.to_csv(index=False, lineterminator="\n")


def _format_json_lines(frame: pd.DataFrame) -> str:
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    lines = []
    for row in rows:
        line = json.dumps(row, ensure_ascii=False, allow_nan=False, default=str)
        lines.append(f"{line}\n")
    return "".join(lines)


def sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _describe(frame: pd.DataFrame, suffix: str) -> dict[str, object]:
    """The content of the file beside a table: its provenance, and which extra columns
    of CSV are text.
    """
    content = {}
    if "provenance" in frame.attrs:
        content["provenance"] = frame.attrs["provenance"]
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        remedy = "use plain dicts, lists, strings and numbers"
        raise DataError(f"attrs['provenance']: {error}", remedy) from None
    if suffix != ".csv":
        return content

    extra = frame.drop(columns=[*tables.SCORES, *tables.PAIRS], errors="ignore")
    kinds: dict[Hashable, str] = {}
    for name, values in extra.items():
        kind = pd.api.types.infer_dtype(values.astype(object), skipna=True)
        if kind == "mixed" and name == "steps":
            kinds["steps"] = "lists"
        if kind == "string":
            kinds[name] = "text or missing" if values.hasnans else "text"
    if kinds:
        content["columns"] = kinds
    return content


def _map_texts(texts: pd.Series, change: Callable[[str], str]) -> pd.Series:
    """Each distinct text of a column changed once."""
    return texts.map({text: change(text) for text in texts.dropna().unique()})


def _parse_column(texts: pd.Series, kind: str | None) -> pd.Series:
    """A column of CSV as its values: text, missing where empty; numbers or truth values
    where all texts are.
    """
    if texts.str.startswith("'").any():
        texts = _map_texts(texts, remove_guard)
    if kind == "text":
        return texts
    is_present = texts != ""
    values = texts.where(is_present)
    if kind == "lists":
        return values.map(json.loads, na_action="ignore")
    if kind is not None:
        return values

    present = texts[is_present]
    is_complete = len(present) == len(texts)
    if present.str.fullmatch(_NUMBER).all():
        if is_complete and not present.str.contains("[.eEf]").any():
            return pd.to_numeric(values)
        return values.astype("float64")
    if is_complete and present.isin(["True", "False"]).all():
        return texts == "True"
    return values
