"""The usual layouts of people's own files: which column is what, and every row as a
pair with its scores.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rmlab.benchmarks.rows import Record
from rmlab.records import Row
from rmlab.tables import LABELS, DataError, nearest
from rmlab.text import short

Columns = Mapping[str, str | Sequence[str] | None]
"""Our names to the columns of a file."""
Matched = dict[str, list[str]]
_Spellings = dict[str, tuple[str, ...]]

SCORES = ("chosen_score", "rejected_score")
_SIDES = {
    side: tuple(
        f"{word}{side}"
        for word in (
            "",
            "response_",
            "answer_",
            "completion_",
            "output_",
            "conversation_",
        )
    )
    for side in "ab"
}
_SHARED = {
    "model": ("model",),
    "benchmark": ("benchmark",),
    "family": ("family",),
    "prompt": ("prompt", "question", "input", "messages", "instruction"),
    "id": ("id", "item_id", "prompt_id"),
    "domain": ("domain", "subset", "category"),
    "subset": ("subset",),
}
_SCORE_NAMES = ("{}_score", "score_{}", "{}_reward", "reward_{}", "{}_rewards")
_PAIR: _Spellings = {label: (label,) for label in LABELS} | {
    "scores": ("scores", "rewards")
}
_PAIR |= {
    f"{label}_score": tuple(name.format(label) for name in _SCORE_NAMES)
    for label in LABELS
}
_WINNER: _Spellings = _SIDES | {"winner": ("winner",)}
_WINNER |= {
    f"score_{side}": tuple(name.format(side) for name in _SCORE_NAMES)
    for side in _SIDES
}
_ANSWER = {
    "label": ("label", "is_chosen", "is_correct", "preferred"),
    "response": ("response", "answer", "completion", "output"),
    "score": ("score", "reward"),
}
_LISTS = {
    "responses": ("responses", "answers", "completions"),
    "labels": ("labels",),
    "scores": ("scores", "rewards"),
}
_SCORED = ("chosen_score", "score_a", "score", "scores")
NAMES = [*dict.fromkeys([*_SHARED, *_PAIR, *_WINNER, *_ANSWER, *_LISTS])]
"""Our names, which `columns` may map."""
SCORE_COLUMNS = {
    spelling
    for layout in (_PAIR, _WINNER, _ANSWER, _LISTS)
    for ours in (*_SCORED, "rejected_score")
    for spelling in layout.get(ours, ())
}
"""Usual names of columns with scores."""
_TIES = (
    "tie",
    "tie (bothbad)",
    "bothbad",
    "both_bad",
    "both bad",
    "both",
    "draw",
    "equal",
    "same",
    "a=b",
    "b=a",
)
_LABEL_WORDS = dict.fromkeys(("chosen", "1", "1.0", "true"), "chosen") | dict.fromkeys(
    ("rejected", "0", "0.0", "false"), "rejected"
)

_log = logging.getLogger(__name__)


def name_column(ours: str, column: str = "<column>") -> str:
    """How a column is named, in Python and in the shell, for messages."""
    return f"columns={{{ours!r}: {column!r}}} (in the shell: --column {ours}={column})"


def read_layout(
    place: Path, rows: list[Record], mapping: Columns
) -> tuple[list[Record], Matched, dict[str, object]]:
    """Bring rows of any layout to `chosen`, `rejected`, `chosen_score` and
    `rejected_score`, as far as a file has them.

    Parameters
    ----------
    place
        The file, for messages.
    rows
        A pair a row; two answers and a `winner`; a response and its label; or lists of
        responses and labels.
    mapping
        Our names to columns of the file, where these are not the usual ones.

    Returns
    -------
    The rows, our names to the columns that hold them, and what was left out for want of
    a winner.
    """
    names = list(dict.fromkeys(name for record in rows for name in record.row))
    mapped: Matched = {}
    for ours, theirs in mapping.items():
        if ours not in NAMES:
            raise DataError(
                f"columns: unknown name {short(ours)}; {nearest(ours, NAMES)}"
            )
        mapped[ours] = [theirs] if isinstance(theirs, str) else [*(theirs or ())]
        if unknown := [column for column in mapped[ours] if column not in names]:
            raise DataError(
                f"{place}: columns[{ours!r}]: no column {short(unknown[0])}; {nearest(unknown[0], names)}"
            )
    # Capitals and spaces around a name do not matter where no other column has the
    # usual spelling.
    spelled = {name.strip().lower(): name for name in names} | {
        name: name for name in names
    }
    layout, convert = _find_layout(mapped, spelled)
    columns = {
        ours: [spelled[name] for name in usual if name in spelled][:1]
        for ours, usual in _SHARED.items()
    }
    if (
        "prompt" not in mapping
        and columns["prompt"] == [spelled.get("input")]
        and "instruction" in spelled
    ):
        problem = "the prompt may be 'instruction', 'input', or both"
        raise DataError(
            f"{place}: {problem}; name one: {name_column('prompt')}, or join them in a column first"
        )
    columns |= {
        ours: mapped.get(ours) or _find_column(place, spelled, ours, usual)
        for ours, usual in layout.items()
    }
    if "id" not in mapped and mapped.get("family") == columns["id"]:
        columns["id"] = []
    if "model" not in mapped and not any(columns.get(name) for name in _SCORED):
        columns["model"] = []  # without scores it may be the writer of the answers
    pairs, left_out = convert(place, rows, columns | mapped)
    return pairs, columns | mapped, left_out


_Convert = Callable[
    [Path, list[Record], Matched], tuple[list[Record], dict[str, object]]
]


def _find_layout(
    mapped: Matched, names: Mapping[str, str]
) -> tuple[_Spellings, _Convert]:
    """The layout that a name in `columns` belongs to, or the first whose columns are
    there; else a pair a row.
    """
    layouts: list[tuple[set[str], _Spellings, _Convert]] = [
        ({*LABELS}, _PAIR, _read_pairs),
        ({*_SIDES, "winner"}, _WINNER, _choose_sides),
        ({"label", "response"}, _ANSWER, _group_answers),
        ({"label", "score"}, _ANSWER, _group_answers),
        ({"responses", "labels"}, _LISTS, _split_lists),
    ]
    named = [layout for layout in layouts if layout[0] & mapped.keys()]
    present = [
        layout
        for layout in layouts
        if all({*layout[1][ours]} & names.keys() for ours in layout[0])
    ]
    return next((layout[1:] for layout in [*named, *present]), (_PAIR, _read_pairs))


def _find_column(
    place: Path, names: Mapping[str, str], ours: str, usual: Sequence[str]
) -> list[str]:
    """The one of the usual names that a file has; DataError where it has two."""
    present = [names[name] for name in usual if name in names]
    if len(present) > 1:
        problem = f"{' and '.join(map(repr, present))} may both be {ours!r}"
        raise DataError(
            f"{place}: {problem}; choose one, such as {name_column(ours, present[0])}"
        )
    return present


def _read_pairs(
    place: Path, rows: list[Record], columns: Matched
) -> tuple[list[Record], dict[str, object]]:
    """A pair a row: the answers of several columns as a list, `scores` (an object, or a
    list) by label.
    """
    pairs = []
    for record in rows:
        row: Row = {}
        for name in (*LABELS, *SCORES):
            if columns[name]:
                cells = [record.row.get(column) for column in columns[name]]
                filled = [cell for cell in cells if cell not in (None, "")]
                row[name] = filled if len(cells) > 1 and filled else cells[0]
        scores = record.row.get(columns["scores"][0]) if columns["scores"] else None
        if isinstance(scores, dict) and {*LABELS} <= scores.keys():
            row |= {
                name: scores[label] for name, label in zip(SCORES, LABELS, strict=True)
            }
        elif isinstance(scores, list) and "chosen_score" not in row:
            n_chosen = len(_as_list(row["chosen"])) if "chosen" in row else 1
            row |= {
                "chosen_score": scores[:n_chosen],
                "rejected_score": scores[n_chosen:],
            }
        pairs.append(replace(record, row=record.row | row))
    return pairs, {}


def _require_columns(
    place: Path, rows: list[Record], columns: Matched, needed: Sequence[str]
) -> None:
    """Raise DataError where a layout lacks a column that it needs."""
    if missing := [ours for ours in needed if not columns[ours]]:
        problem = f"no column for {' and '.join(missing)}; found: {short([*rows[0].row], 400)}"
        raise DataError(f"{place}: {problem}; pass {name_column(missing[0])}")


def _group_answers(
    place: Path, rows: list[Record], columns: Matched
) -> tuple[list[Record], dict[str, object]]:
    """One row per prompt from one row per response."""
    _require_columns(place, rows, columns, ["label"])
    group, label = columns["id"] or columns["prompt"], columns["label"][0]
    if not group:
        raise DataError(
            f"{place}: single responses need a column for their prompt; pass {name_column('id')}"
        )
    key_columns = [*columns["model"], *columns["benchmark"], group[0]]
    keys = [
        tuple(str(record.read_cell(name)) for name in key_columns) for record in rows
    ]
    prompts: dict[tuple[str, ...], Row] = {key: {} for key in keys}
    keyed_rows = [*zip(keys, rows, strict=True)]
    if columns[
        "model"
    ]:  # one text has one slot, in whatever order the rows of a model are
        keyed_rows.sort(
            key=lambda keyed: [
                str(keyed[1].read_cell(name)) for name in columns["response"]
            ]
        )
    for key, record in keyed_rows:
        side = _LABEL_WORDS.get(str(record.row.get(label)).strip().lower())
        if side is None:
            record.refuse(
                label,
                "chosen or rejected, 1 or 0, true or false",
                f"or pass {name_column('label')}",
            )
        shared = {
            name: value
            for name, value in record.row.items()
            if name not in (*LABELS, *SCORES)
        }
        prompt = prompts[key]
        prompt |= shared | prompt
        for ours, suffix in (("response", ""), ("score", "_score")):
            for column in columns[ours]:
                answers = prompt.setdefault(side + suffix, [])
                assert isinstance(answers, list)
                answers.append(record.read_cell(column))
    return [
        Record(place, number, row) for number, row in enumerate(prompts.values())
    ], {}


def _split_lists(
    place: Path, rows: list[Record], columns: Matched
) -> tuple[list[Record], dict[str, object]]:
    """Lists of responses, and of scores, by the label of each."""
    pairs = []
    for record in rows:
        labels = [
            _LABEL_WORDS.get(str(label).lower())
            for label in _as_list(record.read_cell(columns["labels"][0]))
        ]
        row: Row = {}
        for ours, suffix in (("responses", ""), ("scores", "_score")):
            for column in columns[ours]:
                values = _as_list(record.read_cell(column))
                if None in labels or len(values) != len(labels):
                    record.refuse(
                        columns["labels"][0],
                        f"1 or 0 for each of the {len(values)} {ours}",
                    )
                for label in LABELS:
                    row[label + suffix] = [
                        value
                        for value, side in zip(values, labels, strict=True)
                        if side == label
                    ]
        pairs.append(replace(record, row=record.row | row))
    return pairs, {}


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _choose_sides(
    place: Path, rows: list[Record], columns: Matched
) -> tuple[list[Record], dict[str, object]]:
    """The rows with a winner as pairs; of the others, the number of ties and of each
    value that names no side.
    """
    _require_columns(place, rows, columns, [*_SIDES, "winner"])
    winner = columns["winner"][0]
    cells = [_normalise_winner(record.row.get(winner)) for record in rows]
    words = dict.fromkeys(_TIES, "tie")
    for side, loser in ("ab", "ba"):
        names = [
            *_SIDES[side],
            f"model_{side}",
            f"{side}>{loser}",
            f"{loser}<{side}",
            columns[side][0].lower(),
        ]
        words |= dict.fromkeys(names, side)
    words |= _number_words(place, winner, {*cells}, columns["a"][0] + columns["b"][0])
    decided: list[Record] = []
    undecided: Counter[str] = Counter()
    for record, cell in zip(rows, cells, strict=True):
        models = {str(record.row.get(f"model_{side}")).lower(): side for side in _SIDES}
        side = (
            words.get(cell)
            or models.get(cell)
            or (short(record.row[winner], 40) if cell else "empty")
        )
        if side not in _SIDES:
            undecided[side] += 1
            continue
        row: Row = {}
        for label, letter in zip(LABELS, "ab" if side == "a" else "ba", strict=True):
            row[label] = record.row.get(columns[letter][0])
            row |= {
                f"{label}_score": record.row.get(column)
                for column in columns[f"score_{letter}"]
            }
        decided.append(replace(record, row=record.row | row))
    n_ties = undecided.pop("tie", 0)
    message = (
        f"ties: {n_ties}; neither side in {winner!r}: {dict(undecided.most_common(5))}"
    )
    if not decided:
        raise DataError(
            f"{place}: no row names a winner ({message}); allowed in {winner!r}: a, b, tie, 1, 2, A>B, B>A"
        )
    if n_lost := len(rows) - len(decided):
        _log.warning(
            "%s: %d of %d rows are left out, as they name no winner (%s)",
            place,
            n_lost,
            len(rows),
            message,
        )
    return decided, {"ties": n_ties, "unknown": dict(undecided)}


def _normalise_winner(value: object) -> str:
    """A winner's cell as text: 1, 1.0 and "1" are alike, and so are "A >> B" and "a>b"."""
    text = "" if value is None else str(value).strip().lower().removesuffix(".0")
    return re.sub(r"\s*([<>=])\1*\s*", r"\1", text)


def _number_words(
    place: Path, winner: str, cells: set[str], side_columns: str
) -> dict[str, str]:
    """The sides that the numbers in a winner's column mean."""
    numbers = cells & {"0", "1", "2", "true", "false"}
    if "2" in numbers:
        return {"1": "a", "2": "b"}
    if winner.lower() in ("label", "labels") and not re.search(r"\d", side_columns):
        return {
            "1": "a",
            "true": "a",
            "0": "b",
            "false": "b",
            "0.5": "tie",
        }  # as in SHP: whether the first is better
    if numbers:
        raise DataError(
            f"{place}: winner: column {winner!r}: 0 and 1 may number the answers, or say whether the first one won; "
            "replace them by 'a' and 'b'"
        )
    return {}
