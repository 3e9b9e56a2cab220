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

# Not in `rmlab/__init__.py`: modules that it imports write the version into files, and
# would import it in a circle.
__version__ = "0.1.0"

CSV = (".csv", ".tsv")
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
    suffix = path.suffix.lower()
    content: object
    if suffix == ".parquet":
        content = read_parquet(path, lambda file: file.read().to_pylist())
    elif suffix in CSV:
        header, lines = read_table(path)
        content = [
            dict(zip(header, (cell or None for cell in line), strict=True))
            for line in lines
        ]
    else:
        content = read_json(path)
    rows = [content] if isinstance(content, dict) else content
    if not isinstance(rows, list) or not rows:
        content_name = "no rows" if rows == [] else f"{short(rows)} instead of rows"
        raise DataError(
            f"{path}: {content_name}; write a list of objects with named fields, or rows under a header"
        )
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise DataError(
                f"{path}: row {number} is {short(row)}; write an object with named fields"
            )
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
    values = []
    for number, line in enumerate(lines, start=1):
        try:
            values += (
                [json.loads(line, object_pairs_hook=_unique_fields)]
                if line.strip()
                else []
            )
        except (RecursionError, ValueError) as error:
            place = f"{path}: line {number}" if len(lines) > 1 else path
            raise DataError(
                f"{place}: not JSON ({error}); write the file again, or name it by its format: {', '.join(SUFFIXES)}"
            ) from None
    content = values if len(lines) > 1 else values[0]
    if re.search(r"\\u[dD][89a-fA-F]", text):
        for number, row in enumerate(
            content if isinstance(content, list) else [content]
        ):
            require_text(f"{path}: row {number}", row)
    return content


def is_shallow(value: object, levels: int = 50) -> bool:
    """Whether lists and objects of JSON lie in each other so few times that frames can
    copy them as attributes.
    """
    parts = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list)
        else ()
    )
    return levels > 0 and all(is_shallow(part, levels - 1) for part in parts)


def _unique_fields(fields: list[tuple[str, object]]) -> Row:
    """An object of JSON; ValueError where it names a field twice."""
    row = dict(fields)
    if len(row) < len(fields):
        counts = Counter(name for name, _ in fields)
        raise ValueError(
            f"an object names the field {short(counts.most_common(1)[0][0])} twice"
        )
    return row


def read_header(path: Path) -> list[str]:
    """The names of a CSV file's columns."""
    return next(_read_lines(path))


def read_table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a CSV file, separated by commas, semicolons or tabs; every row
    is as long as the header.
    """
    header, *lines = _read_lines(path)
    if repeated := [name for name, count in Counter(header).items() if count > 1]:
        raise DataError(
            f"{path}: the header names the column {short(repeated[0])} twice; keep one of them"
        )
    for number, line in enumerate(lines):
        if len(line) != len(header):
            raise DataError(
                f"{path}: row {number} has {len(line)} cells, the header has {len(header)}; repair the row"
            )
    return header, lines


def has_decimal_commas(path: Path) -> bool:
    """Whether numbers may be written 0,5: in a CSV file with semicolons, as Excel saves
    it where the comma is usual.
    """
    return path.suffix.lower() in CSV and _find_delimiter(_read_text(path)) == ";"


def _find_delimiter(text: str) -> str:
    first_line = text.lstrip().split("\n", 1)[0]
    return max(",;\t", key=first_line.count)


def _read_lines(path: Path) -> Iterator[list[str]]:
    text = _read_text(path)
    csv.field_size_limit(2**31 - 1)
    delimiter = _find_delimiter(text)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
    try:
        yield from (line for line in reader if line)
    except csv.Error as error:
        raise DataError(
            f"{path}: line {reader.line_num} is not CSV ({error}); the file may be cut off"
        ) from None


def read_parquet(
    path: Path, convert: "Callable[[pyarrow.parquet.ParquetFile], T]"
) -> T:
    """What `convert` makes of an open Parquet file."""
    _require_file(path)
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
            return convert(file)
    except (
        Exception
    ) as error:  # a damaged file raises errors of Arrow, of Unicode and of JSON
        raise DataError(
            f"{path}: cannot be read as Parquet ({short(str(error))}); write it again"
        ) from None


def _read_text(path: Path) -> str:
    _require_file(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: not UTF-8 text (byte {error.start}); unpack it, or save it as UTF-8"
        ) from None
    if not text.strip():
        raise DataError(f"{path}: the file is empty; download or write it again")
    return text


def _require_file(path: Path) -> None:
    if path.is_dir():
        raise DataError(
            f"{path}: is a folder; name a file with one of {', '.join(SUFFIXES)}"
        )
    if not path.exists():
        names = (
            sorted(p.name for p in path.parent.iterdir())
            if path.parent.is_dir()
            else []
        )
        close = get_close_matches(path.name, names, n=1)
        hint = (
            f"did you mean {str(path.with_name(close[0]))!r}?"
            if close
            else f"check the path from {Path.cwd()}"
        )
        raise DataError(f"{path}: no such file; {hint}")


def expand_path(path: str | os.PathLike[str]) -> Path:
    """The path with the home folder in place of `~`; DataError where no file can be
    called so.
    """
    try:
        place = Path(path).expanduser()
    except RuntimeError:
        raise DataError(
            f"{path}: no such user has a home folder; write ./{path}"
        ) from None
    if "\0" in str(place):
        raise DataError(f"{str(place)!r}: a path holds no NUL character; leave it out")
    return place


def fail(
    path: object, number: int, row: Row, column: str, allowed: str, remedy: str
) -> NoReturn:
    """Raise DataError naming file, row, id, column and value, what is allowed and the
    next step.
    """
    name = row.get("id", row.get("item_id"))
    place = f"row {number}" + (f" (id {short(name)})" if name is not None else "")
    value = (
        f"has {short(row[column])}"
        if column in row
        else f"is missing; fields: {short(list(row), 200)}"
    )
    raise DataError(
        f"{path}: {place}: {column!r} must be {allowed}; it {value}; {remedy}"
    )


def refuse_rows(path: Path, values: pd.Series, wrong: pd.Series, allowed: str) -> None:
    """Raise DataError naming the first row whose value is wrong, unless none is."""
    if wrong.any():
        row, column = int(wrong.argmax()), str(values.name)
        fail(
            path,
            row,
            {column: values.astype(object).iloc[row]},
            column,
            allowed,
            "repair the row",
        )


def write_file(path: Path, content: str | bytes) -> Path:
    """Write a whole file, or leave the existing one unchanged; folders are made as
    needed.
    """
    partial = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(partial, path)
    except OSError as error:
        raise OSError(
            error.errno,
            f"cannot write ({error.strerror}); {write_remedy(error)}",
            str(path),
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink()
    return path


def write_remedy(error: OSError) -> str:
    """What to do where a file cannot be written."""
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT):
        return "choose a folder that you may write to"
    return "free the disk or choose another folder"


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
        raise OSError(
            error.errno,
            f"cannot write ({error.strerror}); {write_remedy(error)}",
            str(path),
        ) from error


def shipped(name: str) -> Path:
    """A file or folder of the data that ships: inside the installed package, or at the
    top of the repository.
    """
    package = Path(__file__).parent
    for place in (package / "data" / name, package.parent / "data" / name):
        if place.exists():
            return place
    raise DataError(
        f"{name}: not in {package / 'data'}, where rmlab keeps it. Install reward-model-lab again."
    )


def is_clone() -> bool:
    """Whether rmlab runs from its repository, and not from an installed wheel."""
    return (Path(__file__).parents[1] / "pyproject.toml").is_file()


def install_command(extra: str) -> str:
    """The command that adds an extra: to a clone, or to an installed wheel."""
    if is_clone():
        return f"pip install -e '.[{extra}]' in the clone"
    return f"pip install 'reward-model-lab[{extra}]'"
