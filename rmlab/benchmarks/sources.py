"""People's own data as columns, from a frame, a list of rows, a file or the hub."""

import ast
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import NoReturn

import numpy as np
import pandas as pd

from rmlab import records
from rmlab.benchmarks import hub
from rmlab.records import Row
from rmlab.tables import DataError, is_broken
from rmlab.text import short

Cells = list[object]
"""The values of a column, None where one is missing."""

IN_MEMORY = Path("frame")


@dataclass(frozen=True)
class Source:
    """The columns of a file, a frame or a list of rows, and where they come from.

    `comma` is the decimal separator: a comma in a CSV file with semicolons.
    """

    place: Path
    columns: Mapping[str, Cells]
    comma: str = "."

    def __len__(self) -> int:
        return max(map(len, self.columns.values()), default=0)

    def refuse(
        self, row: int, column: str, allowed: str, remedy: str = "repair the row"
    ) -> NoReturn:
        """Raise DataError naming file, row, column, value, what is allowed and the next
        step.
        """
        cells = {
            name: self.columns[name][row]
            for name in ("id", column)
            if name in self.columns
        }
        records.fail(self.place, row, cells, column, allowed, remedy)


def read_source(
    source: object, split: str | None = None, revision: str | None = None
) -> Source:
    """The columns of people's own data.

    Parameters
    ----------
    source
        A DataFrame or another table with `to_pandas()`, a split of a `DatasetDict`, an
        iterable of dicts, a file, or a hub dataset "owner/name".
    split, revision
        Part and version of a dataset.
    """
    if isinstance(source, str | PathLike):
        place = records.expand_path(source)
        columns = _read_path(place, str(source), split, revision)
        comma = "," if records.has_decimal_commas(place) else "."
        table = Source(place, columns, comma)
    else:
        table = Source(IN_MEMORY, _read_memory(source, split))
    if not len(table):
        raise DataError(f"{table.place}: no rows", "pass data with rows")
    return table


def columns_of_rows(rows: Iterable[Row]) -> dict[str, Cells]:
    """Rows as columns; a field that a row lacks is missing."""
    rows = list(rows)
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    return {name: [row.get(name) for row in rows] for name in names}


def open_paths(source: Source, paths: Iterable[str]) -> Source:
    """The data with a column for each dotted path into nested objects.

    Where the data are one object, its rows may lie inside: in a list under a name that
    all paths begin with, or as lists side by side.
    """
    paths = [path for path in paths if path not in source.columns]
    if len(source) == 1:
        source = _unfold_object(source, paths)
    columns = dict(source.columns)
    for path in paths:
        head, _, rest = path.partition(".")
        if path not in columns and rest and head in columns:
            cells = [_walk(cell, rest) for cell in columns[head]]
            if any(cell is not None for cell in cells):
                columns[path] = cells
    return Source(source.place, columns, source.comma)


def select_columns(source: Source, columns: Mapping[str, str]) -> Source:
    """The data with all columns that a user names, or DataError for one without."""
    opened = open_paths(source, columns.values())
    for ours, theirs in columns.items():
        if theirs not in opened.columns:
            fields = short(list(source.columns), 200)
            problem = (
                f"{source.place}: no field {theirs!r} for {ours!r}; found: {fields}"
            )
            raise DataError(problem, "nested ones are named 'output.reward'")
    return opened


def _walk(cell: object, path: str) -> object:
    for name in path.split("."):
        if not isinstance(cell, dict):
            return None
        cell = cell.get(name)
    return cell


def _unfold_object(source: Source, paths: Iterable[str]) -> Source:
    """The rows inside a single object, where it holds such."""
    heads = {path.split(".")[0] for path in paths if "." in path}
    if len(heads) != 1:
        return source
    head = heads.pop()
    (cell,) = source.columns.get(head, [None])
    if isinstance(cell, list) and all(isinstance(row, dict) for row in cell):
        rows = [
            {f"{head}.{name}": value for name, value in row.items()} for row in cell
        ]
        return Source(source.place, columns_of_rows(rows))
    if isinstance(cell, dict):
        columns = {f"{head}.{name}": [value] for name, value in cell.items()}
        named = {path: columns[path] for path in paths if path in columns}
        return unfold_lists(Source(source.place, named))
    return source


def unfold_lists(source: Source) -> Source:
    """The rows of one object of lists side by side; other values are the same in each
    row.
    """
    lists = {
        name: cells[0]
        for name, cells in source.columns.items()
        if isinstance(cells[0], list)
    }
    lengths = {len(cells) for cells in lists.values()}
    if len(lengths) > 1:
        problem = f"{source.place}: the lists {short(list(lists))} differ in length"
        raise DataError(problem, "the file may be cut off")
    if not lengths:
        return source
    n_rows = lengths.pop()
    columns = {
        name: lists.get(name, cells * n_rows) for name, cells in source.columns.items()
    }
    return Source(source.place, columns)


def unpack_texts(cells: Cells) -> Cells:
    """Lists and objects that a column holds as JSON or as Python prints them; the
    column as it is where a cell is something else.
    """
    unpacked: Cells = []
    for cell in cells:
        value = _parse_text(cell) if isinstance(cell, str) else cell
        if value is not None and not isinstance(value, list | dict):
            return cells
        unpacked.append(value)
    return unpacked


def _parse_text(text: str) -> object:
    """The list or object that a text spells, None for an empty one, else the text."""
    text = text.strip()
    if not text:
        return None
    if text[0] not in "[{":
        return text
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return text


def _read_path(
    place: Path, name: str, split: str | None, revision: str | None
) -> Mapping[str, Cells]:
    """The columns of a file, or of a hub dataset where there is no such file."""
    files = [place]
    is_file = place.exists() or records.file_suffix(place) in records.SUFFIXES
    if not is_file and re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        files = hub.fetch_pairs(name, split, revision)
    if len(files) == 1 and records.file_suffix(files[0]) == ".parquet":
        columns = records.read_parquet(files[0], records.list_parquet_columns)
        return {name: _list_plain(cells) for name, cells in columns.items()}
    rows: list[Row] = []
    for file in files:
        rows += records.read_rows(file)
    return columns_of_rows(rows)


def _read_memory(source: object, split: str | None) -> dict[str, Cells]:
    """The columns of a table or of rows in memory."""
    if isinstance(source, Mapping):
        source = source[hub.choose_split(IN_MEMORY, list(source), split)]
    if hasattr(source, "collect"):
        raise TypeError("source: a lazy frame has no rows yet; call collect() first")
    if hasattr(source, "to_pandas"):
        source = source.to_pandas()
    if isinstance(source, pd.DataFrame):
        columns = _list_frame(source)
    elif isinstance(source, Iterable):
        columns = columns_of_rows(_list_rows(source))
    else:
        allowed = "a table, rows or a path"
        raise TypeError(f"source: expected {allowed}, got {type(source).__name__}")
    try:
        plain = {name: _list_plain(cells) for name, cells in columns.items()}
    except RecursionError:
        problem = f"{IN_MEMORY}: lists are nested too deeply"
        raise DataError(problem, "pass texts, messages and numbers") from None
    table = Source(IN_MEMORY, plain)
    for name, cells in plain.items():
        if is_broken([name, *cells]):
            row = next((row for row, cell in enumerate(cells) if is_broken(cell)), 0)
            table.refuse(row, name, "text that UTF-8 can hold", "repair the text")
    return plain


def _list_rows(rows: Iterable[object]) -> list[Row]:
    listed = []
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            problem = f"{IN_MEMORY}: row {number} is {short(row)}"
            raise DataError(problem, "pass dicts with named fields")
        listed.append({str(name): cell for name, cell in row.items()})
    return listed


def _list_frame(frame: pd.DataFrame) -> dict[str, Cells]:
    """The columns of a frame, and its index where that has a name."""
    if frame.index.name is not None and frame.index.name not in frame:
        frame = frame.reset_index()
    frame = frame.rename(columns=str)
    if not frame.columns.is_unique:
        repeated = frame.columns[frame.columns.duplicated()][0]
        problem = f"{IN_MEMORY}: two columns are called {short(repeated)}"
        raise DataError(problem, "keep one of them")
    return {str(name): values.tolist() for name, values in frame.items()}


def _list_plain(cells: Iterable[object]) -> Cells:
    return [_strip(cell) for cell in cells]


def _strip(cell: object) -> object:
    """A cell without NumPy and pandas around it; None where it is missing."""
    if isinstance(cell, str) or cell is None:
        return cell
    if isinstance(cell, np.ndarray | np.generic):
        cell = cell.tolist()
    if isinstance(cell, list | tuple):
        return _list_plain(cell)
    if isinstance(cell, dict):
        return {str(name): _strip(value) for name, value in cell.items()}
    if cell is pd.NA or cell is pd.NaT or cell != cell:
        return None
    return cell
