"""People's own data as columns, from a frame, a list of rows, a file or the hub."""

import ast
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import pandas as pd

from rmlab import records
from rmlab.tables import DataError, is_broken, nearest
from rmlab.text import short

Cells = list[object]
"""The values of a column, None where one is missing."""

IN_MEMORY = Path("frame")


@dataclass(frozen=True)
class Source:
    """The columns of a file, a frame or a list of rows, and where they come from."""

    place: Path
    columns: dict[str, Cells]

    def __len__(self) -> int:
        return max(map(len, self.columns.values()), default=0)

    def find(self, name: str, role: str) -> Cells:
        """The cells of a column, or of a dotted path into objects; DataError for a name
        that is not there.
        """
        if name in self.columns:
            return self.columns[name]
        head, _, path = name.partition(".")
        cells = [_walk(cell, path) for cell in self.columns.get(head, [])]
        if any(cell is not None for cell in cells):
            return cells
        problem = f"{self.place}: columns[{role!r}]: no column {short(name)}"
        raise DataError(problem, nearest(name, list(self.columns)))


def _walk(cell: object, path: str) -> object:
    for name in path.split("."):
        if not isinstance(cell, dict):
            return None
        cell = cell.get(name)
    return cell


def read_source(source: object) -> Source:
    """The columns of people's own data: a DataFrame or another table with
    `to_pandas()`, an iterable of dicts, or a file.
    """
    if isinstance(source, str | PathLike):
        place = records.expand_path(source)
        data = Source(place, _read_path(place))
    else:
        data = Source(IN_MEMORY, _read_memory(source))
    if not len(data):
        raise DataError(f"{data.place}: no rows", "pass data with rows")
    return data


def _read_path(place: Path) -> dict[str, Cells]:
    """The columns of a file."""
    return _list_columns(records.read_rows(place))


def _read_memory(source: object) -> dict[str, Cells]:
    """The columns of a table or of rows in memory."""
    if isinstance(source, Mapping):
        problem = f"source: a mapping with the keys {short(list(source), 200)}"
        raise DataError(problem, "pass one of them, such as source['train']")
    if hasattr(source, "to_pandas"):
        source = source.to_pandas()
    if isinstance(source, pd.DataFrame):
        columns = _list_frame(source)
    elif isinstance(source, Iterable):
        columns = _list_columns(list(source))
    else:
        allowed = "a table, rows or a path"
        raise TypeError(f"source: expected {allowed}, got {type(source).__name__}")
    try:
        plain = {str(name): _list_plain(cells) for name, cells in columns.items()}
    except RecursionError:
        problem = f"{IN_MEMORY}: lists are nested too deeply"
        raise DataError(problem, "pass texts, messages and numbers") from None
    for name, cells in plain.items():
        if is_broken([name, *cells]):
            row = next((row for row, cell in enumerate(cells) if is_broken(cell)), 0)
            allowed = "text that UTF-8 can hold"
            cell = {name: cells[row]}
            records.fail(IN_MEMORY, row, cell, name, allowed, "repair the text")
    return plain


def _list_columns(rows: Sequence[object]) -> dict[str, Cells]:
    """Rows as columns; a field that a row lacks is missing."""
    columns: dict[str, Cells] = {}
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            problem = f"{IN_MEMORY}: row {number} is {short(row)}"
            raise DataError(problem, "pass dicts with named fields")
        for name, cell in row.items():
            columns.setdefault(name, [None] * len(rows))[number] = cell
    return columns


def _list_frame(frame: pd.DataFrame) -> dict[str, Cells]:
    """The columns of a frame, and its index where that has a name."""
    if frame.index.name is not None and frame.index.name not in frame:
        frame = frame.reset_index()
    frame = frame.rename(columns=str)
    if not frame.columns.is_unique:
        repeated = frame.columns[frame.columns.duplicated()][0]
        problem = f"{IN_MEMORY}: two columns are called {short(repeated)}"
        raise DataError(problem, "keep one of them")
    return {str(name): cells.tolist() for name, cells in frame.items()}


def _list_plain(cells: Iterable[object]) -> Cells:
    """A column's cells without NumPy, torch and pandas around them."""
    cells = list(cells)
    if {*map(type, cells)} <= {str, int, bool, type(None)}:
        return cells
    return [_strip(cell) for cell in cells]


def _strip(cell: object) -> object:
    """A cell without NumPy, torch and pandas around it; None where it is missing."""
    if isinstance(cell, str) or cell is None:
        return cell
    if hasattr(cell, "tolist"):  # An array, a tensor or one of their numbers.
        cell = cell.tolist()
    if isinstance(cell, list | tuple):
        return _list_plain(cell)
    if isinstance(cell, dict):
        return {str(name): _strip(value) for name, value in cell.items()}
    if cell is pd.NA or cell is pd.NaT or cell != cell:
        return None
    return cell


def unpack_texts(cells: Cells) -> Cells:
    """Lists and objects that a column holds as JSON or as Python prints them; the
    column as it is where a cell is something else.
    """
    unpacked = [_parse_text(cell) for cell in cells]
    if all(value is None or isinstance(value, list | dict) for value in unpacked):
        return unpacked
    return cells


def _parse_text(text: object) -> object:
    """The list or object that a text spells, None for an empty one; anything else as it
    is.
    """
    if not isinstance(text, str):
        return text
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
