"""Result files of other projects: what their fields are called, and how deep they lie, is said by `columns`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from rmlab import records, tables
from rmlab.tables import DataError, nearest

__all__ = ["Columns", "read_mapped_pairs", "read_mapped_scores", "renamed"]

Columns = Mapping[str, str]
"""Our names to theirs; a dot leads into a nested object: {"score": "output.reward"}."""

_SHARED = ("model", "benchmark", "domain", "id", "subset")
_LAYOUTS = {
    "score": ("label", "slot", "style"),
    "chosen_score": ("rejected_score",),
    "scores": ("num_correct",),
}
"""The field that tells the layout of a file of scores, and the further ones of that layout."""

_SCORES = (*_SHARED, *(name for field, further in _LAYOUTS.items() for name in (field, *further)))
_ABSENT: object = object()


def read_mapped_scores(path: Path, columns: Columns, model: str | None) -> pd.DataFrame:
    """Scores of a file whose fields have other names, not checked yet; see `read_scores` for the three layouts."""
    _check_names(columns, _SCORES)
    layouts = [name for name in _LAYOUTS if name in columns]
    if len(layouts) != 1:
        raise DataError(
            f"columns: name one of 'score' (a row per answer), 'chosen_score' with 'rejected_score' (a row per pair) "
            f"or 'scores' (a row per prompt); got {sorted(columns)}"
        )
    strange = [name for name in columns if name not in (*_SHARED, layouts[0], *_LAYOUTS[layouts[0]])]
    if strange:
        raise DataError(f"columns: {strange[0]!r} does not go with {layouts[0]!r}")
    if layouts[0] == "chosen_score" and "rejected_score" not in columns:
        raise DataError("columns: 'chosen_score' needs 'rejected_score' beside it")
    answers = {"score": _one, "chosen_score": _two, "scores": _many}[layouts[0]]
    rows = _rows(path, columns)
    made = [answer for number, row in enumerate(rows) for answer in answers(path, number, row, columns)]
    return _completed(path, pd.DataFrame(made), model)


def read_mapped_pairs(path: Path, columns: Columns) -> pd.DataFrame:
    """Comparisons of a file whose fields have other names, not checked yet."""
    _check_names(columns, tables.PAIRS)
    rows = _rows(path, columns)
    made = [_fields(path, number, row, columns) for number, row in enumerate(rows)]
    frame = pd.DataFrame(made)
    slots = {name: 0 for name in ("chosen_slot", "rejected_slot") if name not in frame}
    return _completed(path, frame.assign(**slots), None)


def renamed(frame: pd.DataFrame, columns: Columns, allowed: Sequence[str]) -> pd.DataFrame:
    """A frame with our names for its columns."""
    _check_names(columns, allowed)
    for ours, theirs in columns.items():
        if theirs not in frame.columns:
            raise DataError(f"columns[{ours!r}]: no column {theirs!r}; {nearest(theirs, [*map(str, frame.columns)])}")
    return pd.DataFrame({ours: frame[theirs] for ours, theirs in columns.items()}) if columns else frame


def _check_names(columns: Columns, allowed: Sequence[str]) -> None:
    if not isinstance(columns, Mapping) or not all(isinstance(value, str) for value in columns.values()):
        raise TypeError(f"columns: expected a mapping of our names to yours, got {columns!r:.80}")
    for name in columns:
        if name not in allowed:
            raise DataError(f"columns: {name!r} is not a name of rmlab; {nearest(name, allowed)}")


def _rows(path: Path, columns: Columns) -> list[records.Row]:
    """The rows: those of the file, or those inside one object that holds a list of rows, or lists as columns."""
    rows = records.read_rows(path)
    if len(rows) > 1:
        return rows
    (whole,) = rows
    values = {theirs: _get(whole, theirs) for theirs in columns.values()}
    lists = {theirs: value for theirs, value in values.items() if isinstance(value, list)}
    sizes = {len(value) for value in lists.values()}
    if len(lists) == len(values) and len(sizes) == 1 and (sizes != {1} or "id" in columns):
        return [dict(zip(lists, entries, strict=True)) for entries in zip(*lists.values(), strict=True)]
    heads = {theirs.split(".", 1)[0] for theirs in columns.values()}
    inside = whole.get(next(iter(heads))) if len(heads) == 1 else None
    if isinstance(inside, list) and inside and all(isinstance(row, dict) for row in inside):
        head = next(iter(heads))
        return [{head: row} for row in inside]
    return rows


def _get(row: object, name: str) -> object:
    """A field by its name, or by a path with dots."""
    if isinstance(row, dict) and name in row:
        return row[name]
    first, dot, rest = name.partition(".")
    return _get(row[first], rest) if dot and isinstance(row, dict) and first in row else _ABSENT


def _fields(path: Path, number: int, row: records.Row, columns: Columns) -> dict[str, object]:
    found = {ours: _get(row, theirs) for ours, theirs in columns.items()}
    for ours, value in found.items():
        if value is _ABSENT:
            there = ", ".join(map(str, row))
            raise DataError(
                f"{path}: row {number}: columns[{ours!r}]: no field {columns[ours]!r}; found: {there[:200]}; "
                "a dot leads into a nested object, as in 'output.reward'"
            )
    if "id" in found:
        value = found["id"]
        if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
            records.fail(path, number, {columns["id"]: value}, columns["id"], "a whole number or a text", "repair it")
    found.setdefault("id", str(number))
    return found


def _number(path: Path, number: int, columns: Columns, name: str, value: object) -> object:
    """One score: lists around a single number are taken off; a text stays, for the check to read or to name."""
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, str):
        return value
    return records.number(path, number, {columns[name]: value}, columns[name])


def _one(path: Path, number: int, row: records.Row, columns: Columns) -> list[dict[str, object]]:
    found = _fields(path, number, row, columns)
    return [found | {"score": _number(path, number, columns, "score", found["score"])}]


def _two(path: Path, number: int, row: records.Row, columns: Columns) -> list[dict[str, object]]:
    found = _fields(path, number, row, columns)
    sides = {label: found.pop(f"{label}_score") for label in tables.LABELS}
    return [
        found | {"label": label, "slot": slot, "score": _number(path, number, columns, f"{label}_score", value)}
        for label, side in sides.items()
        for slot, value in enumerate(_flat(side))
    ]


def _many(path: Path, number: int, row: records.Row, columns: Columns) -> list[dict[str, object]]:
    found = _fields(path, number, row, columns)
    values, correct = _flat(found.pop("scores")), found.pop("num_correct", 1)
    correct = int(correct) if isinstance(correct, str) and correct.isascii() and correct.isdigit() else correct
    if len(values) < 2:
        records.fail(path, number, {columns["scores"]: values}, columns["scores"], "two numbers or more", "repair it")
    if isinstance(correct, bool) or not isinstance(correct, int) or not 0 < correct < len(values):
        field = columns.get("num_correct", "num_correct")
        allowed = f"a whole number from 1 to {len(values) - 1} (chosen answers come first)"
        records.fail(path, number, {field: correct}, field, allowed, "repair the row")
    return [
        found
        | {"label": "chosen" if place < correct else "rejected", "slot": place if place < correct else place - correct}
        | {"score": _number(path, number, columns, "scores", value)}
        for place, value in enumerate(values)
    ]


def _flat(value: object) -> list[object]:
    """Scores of several answers as a list; a list around such a list is taken off."""
    while isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    return value if isinstance(value, list) else [value]


def _completed(path: Path, frame: pd.DataFrame, model: str | None) -> pd.DataFrame:
    """With the columns that a file about one model and one data set leaves out: both are named after the file."""
    if model is not None or "model" not in frame:
        frame = frame.assign(model=path.stem if model is None else model)
    if "benchmark" not in frame:
        frame = frame.assign(benchmark=path.stem)
    if "domain" not in frame:
        frame = frame.assign(domain=frame["subset"] if "subset" in frame else frame["benchmark"])
    if "slot" not in frame and "label" in frame:
        key = [c for c in ("model", *tables.PROMPT, "label") if c in frame]
        frame = frame.assign(slot=frame.groupby(key, dropna=False).cumcount())
    return frame
