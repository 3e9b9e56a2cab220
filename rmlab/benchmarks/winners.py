"""Side-by-side data: two answers and a winner, as arenas and annotation tools write them."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from rmlab import records
from rmlab.tables import DataError, nearest

__all__ = ["Columns", "Undecided", "by_winner", "ignored", "side_by_side"]

_SIDES = {
    "a": ("a", "response_a", "answer_a", "completion_a", "output_a", "conversation_a"),
    "b": ("b", "response_b", "answer_b", "completion_b", "output_b", "conversation_b"),
}
_TIES = ("tie", "tie (bothbad)", "bothbad", "both_bad", "both bad", "both", "draw", "equal", "same")
_WORDS = {"a": ("a", "model_a", "response_a", "answer_a"), "b": ("b", "model_b", "response_b", "answer_b")}

_log = logging.getLogger(__name__)

Columns = Mapping[str, str | Sequence[str] | None]
"""Our names to those of the data."""


class Undecided(TypedDict):
    """Rows without a right answer: how many ties, and how often each value that names neither side."""

    ties: int
    unknown: dict[str, int]


def by_winner(
    place: Path, rows: list[records.Row], winner: str, columns: Columns
) -> tuple[list[records.Row], Columns, Undecided]:
    """Rows with `chosen` and `rejected` instead of two sides; the columns left to map; and what was left out.

    Each row keeps its number as `id` where the data have none. Ties and winners that are neither side have no right
    answer: they are counted, and said in a warning.
    """
    there = records.columns_of(rows)
    if winner not in there:
        raise DataError(f"{place}: winner: no column {winner!r}; {nearest(winner, there)}")
    sides = {side: _column(place, side, there, columns) for side in _SIDES}
    kept, left = [], Counter[str]()
    for number, row in enumerate(rows):
        side = _won(row.get(winner), sides)
        if side in sides:
            other = "b" if side == "a" else "a"
            kept.append({"id": str(number), **row, "chosen": row.get(sides[side]), "rejected": row.get(sides[other])})
        else:
            left["tie" if side == "tie" else _named(row.get(winner))] += 1
    about: Undecided = {"ties": left.pop("tie", 0), "unknown": dict(left)}
    _say(place, winner, about, len(rows), bool(kept))
    rest = {name: value for name, value in columns.items() if name not in _SIDES}
    return kept, rest, about


def ignored(columns: Columns) -> None:
    """Raise DataError where two sides are named and no column that says which of them won."""
    named = [name for name in _SIDES if name in columns]
    if named:
        raise DataError(f"columns: {named[0]!r} is a side of a comparison: name the winner's column: winner=...")


def side_by_side(there: Sequence[str]) -> bool:
    """Whether the columns hold two answers by their places, and not by which of them is right."""
    return all(any(name in there for name in names) for names in _SIDES.values())


def _column(place: Path, side: str, there: Sequence[str], columns: Columns) -> str:
    given = columns.get(side)
    if given is not None:
        if not isinstance(given, str) or given not in there:
            raise DataError(f"{place}: columns[{side!r}]: no column {given!r}; {nearest(str(given), there)}")
        return given
    found = next((name for name in _SIDES[side] if name in there), None)
    if found is None:
        raise DataError(f"{place}: no column for the answer {side!r}; found: {', '.join(there[:12])}; say which: "
                        f"columns={{'a': ..., 'b': ...}}")  # fmt: skip
    return found


def _won(value: object, sides: Mapping[str, str]) -> str | None:
    """Which side a cell names: "a", "b", "tie", or None where it names none of them."""
    if not isinstance(value, str):
        return None
    text = value.strip()
    by_name = next((side for side, column in sides.items() if text == column), None)
    if by_name is not None:
        return by_name
    word = text.lower()
    return "tie" if word in _TIES else next((side for side, words in _WORDS.items() if word in words), None)


def _named(value: object) -> str:
    empty = value is None or value == "" or value != value
    return "empty" if empty else records.short(value, 40)


def _say(place: Path, winner: str, about: Undecided, total: int, some: bool) -> None:
    unknown = sum(about["unknown"].values())
    named = ", ".join(f"{value} ({n})" for value, n in list(about["unknown"].items())[:5])
    said = f"{about['ties']} ties and {unknown} rows whose {winner!r} is neither side" + (f": {named}" if named else "")
    if not some:
        raise DataError(
            f"{place}: no row of {total} has a winner: {said}; allowed: {', '.join(_WORDS['a'])}, the same of b, a "
            f"side's column name, or {_TIES[0]}"
        )
    if about["ties"] or unknown:
        _log.warning("%s: of %d rows %s are left out: they have no right answer", place, total, said)
