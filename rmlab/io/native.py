"""rmlab's own files of scores and pairs: CSV, Parquet or JSON lines, with a provenance file beside."""

import hashlib
import io
import json
from pathlib import Path
from typing import Literal

import pandas as pd

from rmlab import escapes, files, records, tables
from rmlab.tables import DataError

__all__ = [
    "PAIRS",
    "SIDECAR",
    "check_provenance",
    "check_suffix",
    "holds_pairs",
    "read",
    "sha256",
    "write",
    "write_sidecar",
]

SIDECAR = ".provenance.json"
PAIRS = ".pairs"
"""Stands before the suffix of a store's tables of comparisons: model.benchmark.pairs.csv."""

_TEXT = {"scores": ["model", *tables.KEY, "subset", "style"]}
_TEXT["scores"].remove("slot")
_TEXT["pairs"] = ["model", *tables.PROMPT, "subset", "chosen_style", "rejected_style", "level", "outcome"]
_EMPTY_IS_MISSING = ("style", "chosen_style", "rejected_style", "level", "outcome")


def read(path: Path, table: Literal["scores", "pairs"]) -> pd.DataFrame:
    """The columns of one file, names and ids as text, numbers exactly as written. Not checked yet.

    What `rmlab.escapes.cell` did to the texts of a CSV is undone.
    """
    suffix = path.suffix.lower()
    if suffix in records.CSV:
        return _read_csv(path, table)
    if suffix == ".parquet":
        return _read_parquet(path)
    return pd.DataFrame(records.read_rows(path))


def holds_pairs(path: Path) -> bool:
    """Whether a table in a folder says by its name that it holds comparisons, not scores."""
    return path.stem.endswith(PAIRS)


def write(frame: pd.DataFrame, path: Path) -> None:
    """Write a checked table; floats are written so that they read back to the same bits."""
    check_suffix(path)
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        files.write(path, frame.to_parquet(None, index=False, engine="pyarrow", write_page_checksum=True))
    elif suffix == ".csv":
        files.write(path, escapes.csv(frame))
    else:
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
        lines = "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
        files.write(path, lines)


def check_suffix(path: Path) -> None:
    """Raise DataError unless the file's name says which type it is, ImportError where that type cannot be written."""
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".parquet", ".jsonl", ".ndjson"):
        raise DataError(f"{path}: cannot tell the file type from {path.suffix!r}; use .csv, .parquet or .jsonl")
    if suffix == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise ImportError(f"writing {path} needs pyarrow: install it, or write a .csv file") from error


def check_provenance(frame: pd.DataFrame) -> None:
    """Raise DataError where `attrs["provenance"]` cannot be written as JSON."""
    try:
        json.dumps(frame.attrs.get("provenance"), ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise DataError(
            f"attrs['provenance']: {error}; use plain dicts, lists, strings, numbers, True, False and None"
        ) from None


def write_sidecar(frame: pd.DataFrame, path: Path) -> None:
    """Write `attrs["provenance"]` beside the file, with the file's checksum; remove a stale one where there is none."""
    beside = path.with_name(path.name + SIDECAR)
    if "provenance" not in frame.attrs:
        beside.unlink(missing_ok=True)
        return
    content = {"provenance": frame.attrs["provenance"], "rows": len(frame), "sha256": sha256(path)}
    text = json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    files.write(beside, text)


def sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_csv(path: Path, table: Literal["scores", "pairs"]) -> pd.DataFrame:
    header, _ = records.read_table(path)  # pandas would take rows that are too long for an index, and fill short ones
    names = [name for name in _TEXT[table] if name in header]
    numbers = [name for name in ("score", "margin", "slot", "chosen_slot", "rejected_slot") if name in header]
    empty = [name for name in header if name not in names or name in _EMPTY_IS_MISSING]
    text = records.read_text(path)
    try:
        frame = pd.read_csv(
            io.StringIO(text),
            sep=records.separator(path, text),
            dtype=dict.fromkeys([*names, *numbers], "str"),
            keep_default_na=False,
            na_values={name: [""] for name in empty},
            index_col=False,
        )
        return escapes.uncells(frame)
    except DataError:
        raise
    except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError, OverflowError) as error:
        raise DataError(f"{path}: not a readable CSV file ({records.short(str(error))}); write it again") from None


def _read_parquet(path: Path) -> pd.DataFrame:
    records.require_file(path)
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"reading {path} needs pyarrow: install it, or convert the file to CSV") from error
    try:
        table = pyarrow.parquet.read_table(path, page_checksum_verification=True)
        names, frame = table.column_names, table.to_pandas(ignore_metadata=True)
    except MemoryError:
        raise
    except Exception as error:  # a damaged file can raise anything in there: of Arrow, of Unicode, of JSON
        detail = records.short(str(error))
        raise DataError(f"{path}: not a readable Parquet file ({detail}); write it again") from None
    records.refuse_double(path, names)
    return pd.DataFrame(frame)
