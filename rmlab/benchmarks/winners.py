"""Side-by-side data: two answers and a column that says which of them won, as arenas write them."""

import logging
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

from rmlab.benchmarks.rows import Record
from rmlab.tables import LABELS, DataError
from rmlab.text import short

SIDES = {
    side: tuple(f"{word}{side}" for word in ("", "response_", "answer_", "completion_", "output_", "conversation_"))
    for side in ("a", "b")
}
_TIES = ("tie", "tie (bothbad)", "bothbad", "both_bad", "both bad", "both", "draw", "equal", "same", "a=b", "b=a")
_WORDS = (
    dict.fromkeys([*SIDES["a"], "model_a", "a>b", "a>>b", "b<a", "b<<a"], "a")
    | dict.fromkeys([*SIDES["b"], "model_b", "b>a", "b>>a", "a<b", "a<<b"], "b")
    | dict.fromkeys(_TIES, "tie")
)

_log = logging.getLogger(__name__)


def choose_sides(
    place: Path, rows: list[Record], columns: dict[str, list[str]]
) -> tuple[list[Record], dict[str, object]]:
    """Give each row that has a winner `chosen` and `rejected`.

    Parameters
    ----------
    columns
        The columns of "winner" and of the answers "a" and "b".

    Returns
    -------
    The rows with a winner, and the number of the others: ties, and each value that names no side.
    """
    a, b, winner = (columns[ours][0] for ours in ("a", "b", "winner"))
    cells = [_cell_text(record.row.get(winner)) for record in rows]
    words = _WORDS | {a.lower(): "a", b.lower(): "b"} | _number_words(place, winner, set(cells), a + b)
    sides = {"a": (a, b), "b": (b, a)}
    decided: list[Record] = []
    undecided: Counter[str] = Counter()
    for record, cell in zip(rows, cells, strict=True):
        models = {str(record.row.get(f"model_{side}")).lower(): side for side in SIDES}
        side = words.get(cell) or models.get(cell) or (short(record.row[winner], 40) if cell else "empty")
        if side in sides:
            row = dict(zip(LABELS, (record.row.get(column) for column in sides[side]), strict=True))
            if {"score_a", "score_b"} <= record.row.keys():
                scores = (record.row[f"score_{name}"] for name in (side, "ba"["ab".index(side)]))
                row |= dict(zip(("chosen_score", "rejected_score"), scores, strict=True))
            decided.append(replace(record, row=record.row | row))
        else:
            undecided[side] += 1
    n_ties = undecided.pop("tie", 0)
    message = f"{n_ties} ties and {undecided.total()} rows whose {winner!r} is neither side"
    message += f" ({', '.join(value for value, _ in undecided.most_common(5))})" if undecided else ""
    if not decided:
        raise DataError(f"{place}: no row names a winner ({message}); allowed in {winner!r}: a, b, tie, 1, 2, A>B, B>A")
    if len(decided) < len(rows):
        _log.warning("%s: of %d rows %s are left out: they have no right answer", place, len(rows), message)
    return decided, {"ties": n_ties, "unknown": dict(undecided)}


def _cell_text(value: object) -> str:
    """A winner's cell as text: 1, 1.0 and "1" are alike, and so are "A > B" and "a>b"."""
    text = "" if value is None else str(value).strip().lower().removesuffix(".0")
    return re.sub(r"\s*([<>=]+)\s*", r"\1", text)


def _number_words(place: Path, winner: str, cells: set[str], side_columns: str) -> dict[str, str]:
    """The sides that the numbers in a winner's column mean."""
    numbers = cells & {"0", "1", "2", "true", "false"}
    if "2" in numbers:
        return {"1": "a", "2": "b"}
    if winner.lower() in ("label", "labels") and not re.search(r"\d", side_columns):
        return {"1": "a", "true": "a", "0": "b", "false": "b", "0.5": "tie"}  # as in SHP: whether the first is better
    if numbers:
        raise DataError(
            f"{place}: winner: column {winner!r}: 0 and 1 may number the answers, or say whether the first one won; "
            "replace them by 'a' and 'b'"
        )
    return {}
