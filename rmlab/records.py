"""Rows of a data file (JSON, JSON lines, CSV, TSV, Parquet), and errors that name the
file and the row.
"""

import csv
import errno
import io
import json
import os
import re
import secrets
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import pandas as pd

from rmlab.tables import DataError, require_text
from rmlab.text import short

if TYPE_CHECKING:
    import pyarrow

CSV = (".csv", ".tsv")
PACKED = (".gz", ".zst")
SUFFIXES = (".json", ".jsonl", ".ndjson", *CSV, ".parquet")

Row = dict[str, object]
T = TypeVar("T")


def read_rows(path: Path) -> list[Row]:
    """All rows of one file, in file order: a JSON array of objects, JSON lines, CSV
    with a header, or Parquet.

    JSON and JSON lines are told apart by content. CSV may be separated by commas,
    semicolons or tabs; its cells are strings, empty ones are None. Raises DataError for
    a missing, empty, truncated or otherwise unreadable file.
    """
    suffix = file_suffix(path)
    content: object
    if suffix == ".parquet":
        content = read_parquet(path, _list_parquet_rows)
    elif suffix in CSV:
        content = _list_csv_rows(path)
    else:
        content = read_json(path)
    rows = [content] if isinstance(content, dict) else content
    if not isinstance(rows, list) or not rows:
        content_name = "no rows" if rows == [] else f"{short(rows)} instead of rows"
        remedy = "write a list of objects with named fields, or rows under a header"
        raise DataError(f"{path}: {content_name}", remedy)
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            problem = f"{path}: row {number} is {short(row)}"
            raise DataError(problem, "write an object with named fields")
    return rows


def _list_parquet_rows(file: "pyarrow.parquet.ParquetFile") -> list[Row]:
    """The rows of an open Parquet file; an index without a name is left out."""
    names = [name for name in file.schema_arrow.names if "__index_level_" not in name]
    rows: list[Row] = file.read().select(names).to_pylist()
    return rows


def file_suffix(path: Path) -> str:
    """The suffix that says a file's format: of x.jsonl.gz, .jsonl."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix in PACKED else suffix


def file_stem(path: Path) -> str:
    """A file's name without its suffixes: of x.jsonl.gz, x."""
    return Path(path.stem).stem if path.suffix.lower() in PACKED else path.stem


def _list_csv_rows(path: Path) -> list[Row]:
    header, lines = read_csv_lines(path)
    rows: list[Row] = []
    for line in lines:
        row = dict(zip(header, line, strict=True))
        rows.append({name: cell or None for name, cell in row.items()})
    return rows


def read_json(path: Path) -> object:
    """Content of a JSON file, or the list of a JSON-lines file's values."""
    text = _read_text(path)
    # Not str.splitlines: it also breaks at U+2028 and U+0085, which JSON strings may
    # hold unescaped.
    lines = text.strip().split("\n")
    try:
        json.loads(lines[0])
    except (RecursionError, ValueError):
        lines = [text]
    is_lines = len(lines) > 1
    values: list[object] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            values.append(json.loads(line, object_pairs_hook=unique_fields))
        except (RecursionError, ValueError) as error:
            place = f"{path}: line {number}" if is_lines else str(path)
            formats = ", ".join(SUFFIXES)
            remedy = f"write the file again, or name it by its format: {formats}"
            raise DataError(f"{place}: not JSON ({error})", remedy) from None

    content = values if is_lines else values[0]
    if re.search(r"\\u[dD][89a-fA-F]", text):
        rows = content if isinstance(content, list) else [content]
        for number, row in enumerate(rows):
            require_text(f"{path}: row {number}", row)
    return content


def unique_fields(fields: list[tuple[str, object]]) -> Row:
    """An object of JSON; ValueError where it names a field twice."""
    row = dict(fields)
    if len(row) < len(fields):
        names = [name for name, _ in fields]
        repeated = max(names, key=names.count)
        raise ValueError(f"an object names the field {short(repeated)} twice")
    return row


def read_header(path: Path) -> list[str]:
    """The names of a CSV file's columns."""
    return next(_read_lines(path))


def read_csv_lines(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a CSV file, separated by commas, semicolons or tabs; every row
    is as long as the header. Numbers such as 0,5 beside semicolons have a point.
    """
    header, *lines = _read_lines(path)
    _refuse_repeated(path, header)
    for number, line in enumerate(lines):
        if len(line) != len(header):
            cells = f"{len(line)} cells, the header has {len(header)}"
            raise DataError(f"{path}: row {number} has {cells}", "repair the row")
    if _find_delimiter(_read_text(path)) == ";":
        lines = _read_decimal_commas(lines)
    return header, lines


def _read_decimal_commas(lines: list[list[str]]) -> list[list[str]]:
    """The rows with a decimal point in columns of numbers such as 0,5: Excel writes
    semicolons where the comma is in the numbers.
    """
    columns = []
    for cells in zip(*lines, strict=True):
        if all(re.fullmatch(r"(-?\d+(,\d+)?(E-?\d+)?)?", cell) for cell in cells):
            cells = tuple(cell.replace(",", ".") for cell in cells)
        columns.append(cells)
    return [list(line) for line in zip(*columns, strict=True)]


def _find_delimiter(text: str) -> str:
    first_line = text.lstrip().split("\n", 1)[0]
    return max(",;\t", key=first_line.count)


def _read_lines(path: Path) -> Iterator[list[str]]:
    text = _read_text(path)
    csv.field_size_limit(2**31 - 1)
    delimiter = _find_delimiter(text)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
    try:
        for line in reader:
            if line:
                yield line
    except csv.Error as error:
        problem = f"{path}: line {reader.line_num} is not CSV ({error})"
        raise DataError(problem, "the file may be cut off") from None


def _refuse_repeated(path: Path, names: list[str]) -> None:
    """Raise DataError where a file names a column twice."""
    for name, count in Counter(names).items():
        if count > 1:
            problem = f"{path}: two columns are called {short(name)}"
            raise DataError(problem, "keep one of them")


def read_parquet(
    path: Path, convert: "Callable[[pyarrow.parquet.ParquetFile], T]"
) -> T:
    """The result of `convert` for an open Parquet file."""
    _require_file(path)
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
            names = file.schema_arrow.names
            result = convert(file)
    # A damaged file raises errors of Arrow, of Unicode and of JSON.
    except Exception as error:
        problem = f"{path}: cannot be read as Parquet ({short(str(error))})"
        raise DataError(problem, "write it again") from None
    _refuse_repeated(path, names)
    return result


def _read_text(path: Path) -> str:
    try:
        text = _read_bytes(path).decode("utf-8-sig")
    except OSError as error:
        _require_file(path)
        if path.suffix.lower() not in PACKED:
            raise
        problem = f"{path}: cannot be unpacked ({short(str(error))})"
        raise DataError(problem, "download or write it again") from None
    except UnicodeDecodeError as error:
        problem = f"{path}: not UTF-8 text (byte {error.start})"
        raise DataError(problem, "unpack it, or save it as UTF-8") from None
    if not text.strip():
        raise DataError(f"{path}: the file is empty", "download or write it again")
    return text


def _read_bytes(path: Path) -> bytes:
    """The bytes of a file, unpacked."""
    if path.suffix.lower() not in PACKED:
        return path.read_bytes()
    import pyarrow

    with pyarrow.input_stream(str(path), compression="detect") as stream:
        return bytes(stream.read())


def _require_file(path: Path) -> None:
    if path.is_dir():
        suffixes = ", ".join(SUFFIXES)
        raise DataError(f"{path}: is a folder", f"name a file with one of {suffixes}")
    if not path.exists():
        names = [file.name for file in path.parent.glob("*")]
        remedy = f"check the path from {Path.cwd()}"
        if close := get_close_matches(path.name, names, n=1):
            remedy = f"did you mean {close[0]}?"
        raise DataError(f"{path}: no such file", remedy)


def expand_path(path: str | os.PathLike[str]) -> Path:
    """The path with the home folder in place of `~`."""
    return Path(os.path.expanduser(path))


def fail(
    path: object, number: int, row: Row, column: str, allowed: str, remedy: str
) -> NoReturn:
    """Raise DataError naming file, row, id, column and value, what is allowed and the
    next step.
    """
    place = f"row {number}"
    item = row.get("id", row.get("item_id"))
    if item is not None:
        place = f"{place} (id {short(item)})"
    if column in row:
        value = f"has {short(row[column])}"
    else:
        value = f"is missing; fields: {short(list(row), 200)}"
    problem = f"{path}: {place}: {column!r} must be {allowed}; it {value}"
    raise DataError(problem, remedy)


def refuse_rows(
    path: Path, values: pd.Series, is_wrong: pd.Series, allowed: str
) -> None:
    """Raise DataError naming the first row whose value is wrong, unless none is."""
    if is_wrong.any():
        number = int(is_wrong.argmax())
        column = str(values.name)
        row: Row = {column: values.astype(object).iloc[number]}
        fail(path, number, row, column, allowed, "repair the row")


def write_file(path: Path, content: str | bytes) -> Path:
    """Write a whole file, or leave the existing one unchanged; folders are made as
    needed.
    """
    if isinstance(content, str):
        content = content.encode()
    partial = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError as error:
        raise write_error(error, path) from error
    finally:
        with suppress(OSError):
            partial.unlink()
    return path


def write_error(error: OSError, path: Path) -> OSError:
    """The same error, with the place and the remedy; what was written before stays."""
    remedy = "free the disk or choose another folder"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT):
        remedy = "choose a folder that you may write to"
    message = f"cannot write ({error.strerror}); {remedy}, and run the same again"
    return OSError(error.errno, message, str(path))


def check_writable(path: Path) -> None:
    """Raise OSError where no file could be written beside `path`, whose folder is made
    as needed.
    """
    path = expand_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise write_error(error, path) from error


def shipped(name: str) -> Path:
    """A file or folder of the data that ships: inside the installed package, or at the
    top of the repository.
    """
    package = Path(__file__).parent
    for place in (package / "data" / name, package.parent / "data" / name):
        if place.exists():
            return place
    problem = f"{name}: not in {package / 'data'}, where rmlab keeps it"
    raise DataError(problem, "install reward-model-lab again")


def install_command(extra: str) -> str:
    """The command that adds an extra: to a clone, or to an installed wheel."""
    if (Path(__file__).parents[1] / "pyproject.toml").is_file():
        return f"pip install -e '.[{extra}]' in the clone"
    return f"pip install 'reward-model-lab[{extra}]'"
