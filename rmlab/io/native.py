"""rmlab's own files of scores and pairs: CSV, Parquet or JSON lines, with a file of
provenance beside them.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path

import pandas as pd

from rmlab import records, tables
from rmlab.tables import DataError
from rmlab.text import guard_formula, remove_guard

SIDECAR = ".provenance.json"
PAIRS = ".pairs"
"""Stands before the suffix of a store's tables of comparisons:
model.benchmark.pairs.csv.
"""

_NAMES = ["model", "benchmark", "domain", "id", "subset"]
# As Python and pandas write numbers: "007" is a text.
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|-?inf"


def read_frame(
    path: Path, rows: list[records.Row], sidecar: Mapping[str, object]
) -> pd.DataFrame:
    """The columns of one of rmlab's files, not checked yet; names, ids and what the
    sidecar names are text.
    """
    if path.suffix.lower() == ".parquet":
        return records.read_parquet(
            path, lambda file: pd.DataFrame(file.read().to_pandas(ignore_metadata=True))
        )
    if path.suffix.lower() not in records.CSV:
        return pd.DataFrame(rows or records.read_rows(path))
    header, lines = records.read_table(path)
    header = list(map(remove_guard, header))
    frame = pd.DataFrame(lines, columns=header, dtype="str")
    extra = sidecar.get("columns")
    kinds: dict[str, str] = dict(extra) if isinstance(extra, dict) else {}
    kinds |= dict.fromkeys(_NAMES, "text") | dict.fromkeys(
        tables.CLOSED, "text or missing"
    )
    return frame.assign(
        **{name: _parse_column(frame[name], kinds.get(name)) for name in header}
    )


def read_sidecar(path: Path) -> dict[str, object]:
    """What the file beside `path` says of it: provenance, and which extra columns are
    text; empty without one.
    """
    sidecar = path.with_name(path.name + SIDECAR)
    if not sidecar.is_file() or not path.is_file():
        return {}
    content = records.read_json(sidecar)
    if (
        not isinstance(content, dict)
        or "sha256" not in content
        or not records.is_shallow(content)
    ):
        raise DataError(
            f"{sidecar}: expected an object with 'sha256'; delete the file, or write {path.name} again"
        )
    if content["sha256"] != sha256(path):
        warnings.warn(
            f"{path}: changed since {sidecar.name} was written; its provenance is left out",
            stacklevel=4,
        )
        return {}
    return content


def holds_pairs(path: Path) -> bool:
    """Whether a table in a folder says by its name that it holds comparisons, not
    scores.
    """
    return path.stem.endswith(PAIRS)


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
        raise DataError(
            f"{path}: cannot tell the file type from {suffix!r}; use .csv, .parquet or .jsonl"
        )


def write_frame(frame: pd.DataFrame, path: Path) -> Path:
    """Write a checked table, and beside it what a reader needs to know; floats read
    back to the same bits.
    """
    check_target(path)
    sidecar = _describe(frame, path)
    content: str | bytes
    if path.suffix.lower() == ".parquet":
        content = frame.to_parquet(
            None, index=False, engine="pyarrow", write_page_checksum=True
        )
    elif path.suffix.lower() == ".csv":
        texts = {
            str(name): _map_texts(frame[name], guard_formula)
            for name in frame
            if frame[name].dtype == "str"
        }
        guarded = frame.assign(**texts).rename(columns=guard_formula)
        content = guarded.to_csv(index=False, lineterminator="\n")
    else:
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
        content = "".join(
            json.dumps(row, ensure_ascii=False, allow_nan=False, default=str) + "\n"
            for row in rows
        )
    records.write_file(path, content)
    sidecar_path = path.with_name(path.name + SIDECAR)
    sidecar_path.unlink(missing_ok=True)  # of an earlier table
    if sidecar:
        sidecar |= {"rows": len(frame), "sha256": sha256(path)}
        records.write_file(
            sidecar_path,
            json.dumps(sidecar, indent=1, ensure_ascii=False, sort_keys=True) + "\n",
        )
    return path


def sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _describe(frame: pd.DataFrame, path: Path) -> dict[str, object]:
    """What stands in the file beside a table: its provenance, and which extra columns
    of CSV are text.
    """
    content = {
        name: value for name, value in frame.attrs.items() if name == "provenance"
    }
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise DataError(
            f"attrs['provenance']: {error}; use plain dicts, lists, strings and numbers"
        ) from None
    extra = frame.drop(columns=[*tables.SCORES, *tables.PAIRS], errors="ignore")
    texts = [
        name
        for name in extra
        if pd.api.types.infer_dtype(extra[name].astype(object), skipna=True) == "string"
    ]
    if texts and path.suffix.lower() == ".csv":
        content["columns"] = {
            name: "text or missing" if extra[name].hasnans else "text" for name in texts
        }
    return content


def _map_texts(texts: pd.Series, change: Callable[[str], str]) -> pd.Series:
    """Each distinct text of a column changed once."""
    return texts.map({text: change(text) for text in texts.dropna().unique()})


def _parse_column(texts: pd.Series, kind: str | None) -> pd.Series:
    """A column of CSV as what it holds: text, missing where empty; numbers or truth
    values where all texts are.
    """
    if texts.str.startswith("'").any():
        texts = _map_texts(texts, remove_guard)
    present = texts[texts != ""]
    values = texts if kind == "text" else texts.where(texts != "")
    if kind is not None:
        return values
    is_complete = len(present) == len(texts)
    if present.str.fullmatch(_NUMBER).all():
        is_whole = is_complete and not present.str.contains("[.eEf]").any()
        return pd.to_numeric(values) if is_whole else values.astype("float64")
    return (
        texts == "True"
        if is_complete and present.isin(["True", "False"]).all()
        else values
    )
