"""The columns of people's own files: which is what, and every row as a pair with its
scores.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rmlab.benchmarks.rows import FileRow, as_list
from rmlab.records import Row
from rmlab.tables import LABELS, DataError, nearest
from rmlab.text import short

OwnColumns = Mapping[str, str | Sequence[str] | None]
"""Our names to the columns of a file."""
Matched = dict[str, list[str]]
"""Our names to the columns of a file that hold them: none, one or several."""
_Spellings = dict[str, tuple[str, ...]]

SCORES_OF_LABELS = ("chosen_score", "rejected_score")

_SIDE_WORDS = ("", "response_", "answer_", "completion_", "output_", "conversation_")
_SIDES = {side: tuple(word + side for word in _SIDE_WORDS) for side in "ab"}
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


def _score_spellings(name: str) -> tuple[str, ...]:
    return tuple(spelling.format(name) for spelling in _SCORE_NAMES)


_PAIR: _Spellings = {
    "chosen": ("chosen",),
    "rejected": ("rejected",),
    "scores": ("scores", "rewards"),
    "chosen_score": _score_spellings("chosen"),
    "rejected_score": _score_spellings("rejected"),
}
_WINNER: _Spellings = {
    **_SIDES,
    "winner": ("winner",),
    "score_a": _score_spellings("a"),
    "score_b": _score_spellings("b"),
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
NAMES = list(dict.fromkeys([*_SHARED, *_PAIR, *_WINNER, *_ANSWER, *_LISTS]))
"""Our names, which `columns` may map."""


def _list_score_columns() -> set[str]:
    columns: set[str] = set()
    for spellings in (_PAIR, _WINNER, _ANSWER, _LISTS):
        for ours in (*_SCORED, "rejected_score"):
            columns.update(spellings.get(ours, ()))
    return columns


SCORE_COLUMNS = _list_score_columns()
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
_LABEL_WORDS = {
    **dict.fromkeys(("chosen", "1", "1.0", "true"), "chosen"),
    **dict.fromkeys(("rejected", "0", "0.0", "false"), "rejected"),
}
# As in SHP, where the label says whether the first answer is better.
_FIRST_WINS = {"1": "a", "true": "a", "0": "b", "false": "b", "0.5": "tie"}
_RIVAL = {"a": "b", "b": "a"}

_log = logging.getLogger(__name__)


def name_column(ours: str, column: str = "<column>") -> str:
    """How a column is named, in Python and in the shell, for messages."""
    return f"columns={{{ours!r}: {column!r}}} (in the shell: --column {ours}={column})"


class PairRows(NamedTuple):
    """Rows as pairs, and the rows that name no winner, counted by what they say."""

    rows: list[FileRow]
    without_winner: dict[str, object]


class OwnPairs(NamedTuple):
    """Rows as pairs, the columns that were matched, and rows that name no winner."""

    rows: list[FileRow]
    columns: Matched
    without_winner: dict[str, object]


class _RowForm(NamedTuple):
    """What a row can be: the names that tell, their usual spellings, and how such rows
    become pairs.
    """

    names: set[str]
    spellings: _Spellings
    convert: Callable[[Path, list[FileRow], Matched], PairRows]


def match_columns(place: Path, rows: list[FileRow], mapping: OwnColumns) -> OwnPairs:
    """Bring rows of any form to `chosen`, `rejected`, `chosen_score` and
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
    """
    names = column_names(rows)
    mapped = _check_mapping(place, mapping, names)
    # Capitals and spaces around a name do not matter where no other column has the
    # usual spelling.
    spelled = {name.strip().lower(): name for name in names}
    spelled |= {name: name for name in names}

    form = _find_form(mapped, spelled)
    columns = _match_shared_columns(place, spelled, mapping)
    for ours, usual in form.spellings.items():
        columns[ours] = mapped.get(ours) or _find_column(place, spelled, ours, usual)
    if "id" not in mapped and mapped.get("family") == columns["id"]:
        columns["id"] = []
    has_scores = any(columns.get(name) for name in _SCORED)
    if "model" not in mapped and not has_scores:
        # Without scores it may be the writer of the answers.
        columns["model"] = []

    columns |= mapped
    pairs = form.convert(place, rows, columns)
    return OwnPairs(pairs.rows, columns, pairs.without_winner)


def column_names(rows: list[FileRow]) -> list[str]:
    """The columns of the rows, in the order in which they come."""
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row.cells))
    return list(names)


def _check_mapping(place: Path, mapping: OwnColumns, names: list[str]) -> Matched:
    """The columns that a user names; DataError for a name or a column that is not
    there.
    """
    mapped: Matched = {}
    for ours, theirs in mapping.items():
        if ours not in NAMES:
            problem = f"columns: unknown name {short(ours)}"
            raise DataError(problem, nearest(ours, NAMES))
        columns = [theirs] if isinstance(theirs, str) else list(theirs or ())
        for column in columns:
            if column not in names:
                problem = f"{place}: columns[{ours!r}]: no column {short(column)}"
                raise DataError(problem, nearest(column, names))
        mapped[ours] = columns
    return mapped


def _match_shared_columns(
    place: Path, spelled: Mapping[str, str], mapping: OwnColumns
) -> Matched:
    """The first column of each name that all forms of rows have."""
    columns: Matched = {}
    for ours, usual in _SHARED.items():
        present = [spelled[name] for name in usual if name in spelled]
        columns[ours] = present[:1]
    is_input = columns["prompt"] == [spelled.get("input")]
    if "prompt" not in mapping and is_input and "instruction" in spelled:
        problem = f"{place}: the prompt may be 'instruction', 'input', or both"
        remedy = f"name one: {name_column('prompt')}, or join them in a column first"
        raise DataError(problem, remedy)
    return columns


def _find_form(mapped: Matched, names: Mapping[str, str]) -> _RowForm:
    """The form that a name in `columns` belongs to, or the first whose columns are
    there; else a pair a row.
    """
    pair_a_row = _RowForm(set(LABELS), _PAIR, _read_pairs)
    forms = [
        pair_a_row,
        _RowForm({*_SIDES, "winner"}, _WINNER, _choose_sides),
        _RowForm({"label", "response"}, _ANSWER, _group_answers),
        _RowForm({"label", "score"}, _ANSWER, _group_answers),
        _RowForm({"responses", "labels"}, _LISTS, _split_lists),
    ]
    for form in forms:
        if form.names & mapped.keys():
            return form
    for form in forms:
        spellings = [set(form.spellings[ours]) for ours in form.names]
        if all(spelling & names.keys() for spelling in spellings):
            return form
    return pair_a_row


def _find_column(
    place: Path, names: Mapping[str, str], ours: str, usual: Sequence[str]
) -> list[str]:
    """The one of the usual names that a file has; DataError where it has two."""
    present = [names[name] for name in usual if name in names]
    if len(present) > 1:
        listed = " and ".join(repr(name) for name in present)
        problem = f"{place}: {listed} may both be {ours!r}"
        raise DataError(problem, f"choose one, such as {name_column(ours, present[0])}")
    return present


def _read_pairs(place: Path, rows: list[FileRow], columns: Matched) -> PairRows:
    """A pair a row: the answers of several columns as a list, `scores` (an object, or a
    list) by label.
    """
    pairs = []
    for row in rows:
        pair: Row = {}
        for name in (*LABELS, *SCORES_OF_LABELS):
            if columns[name]:
                pair[name] = _join_cells(row, columns[name])
        scores = None
        if columns["scores"]:
            scores = row.cells.get(columns["scores"][0])
        if isinstance(scores, dict) and set(LABELS) <= scores.keys():
            pair["chosen_score"] = scores["chosen"]
            pair["rejected_score"] = scores["rejected"]
        elif isinstance(scores, list) and "chosen_score" not in pair:
            n_chosen = len(as_list(pair.get("chosen")))
            pair["chosen_score"] = scores[:n_chosen]
            pair["rejected_score"] = scores[n_chosen:]
        pairs.append(row.fill(pair))
    return PairRows(pairs, {})


def _join_cells(row: FileRow, columns: list[str]) -> object:
    """The cell of one column, or the filled cells of several."""
    cells = [row.cells.get(column) for column in columns]
    filled = [cell for cell in cells if cell not in (None, "")]
    if len(cells) > 1 and filled:
        return filled
    return cells[0]


def _require_columns(
    place: Path, rows: list[FileRow], columns: Matched, needed: Sequence[str]
) -> None:
    """Raise DataError where a form of rows lacks a column that it needs."""
    missing = [ours for ours in needed if not columns[ours]]
    if missing:
        problem = f"{place}: no column for {' and '.join(missing)}"
        present = short(list(rows[0].cells), 400)
        raise DataError(
            f"{problem}; found: {present}", f"pass {name_column(missing[0])}"
        )


def _group_answers(place: Path, rows: list[FileRow], columns: Matched) -> PairRows:
    """One row per prompt from one row per response."""
    _require_columns(place, rows, columns, ["label"])
    label_column = columns["label"][0]
    group = columns["id"] or columns["prompt"]
    if not group:
        problem = f"{place}: single responses need a column for their prompt"
        raise DataError(problem, f"pass {name_column('id')}")

    key_columns = [*columns["model"], *columns["benchmark"], group[0]]
    prompts: dict[tuple[str, ...], Row] = {}
    for row in rows:
        prompts[_read_key(row, key_columns)] = {}
    if columns["model"]:
        # One text has one slot, in whatever order the rows of a model are.
        rows = sorted(rows, key=partial(_read_key, columns=columns["response"]))
    for row in rows:
        label = _read_label(row, label_column)
        shared = dict(row.cells)
        for name in (*LABELS, *SCORES_OF_LABELS):
            shared.pop(name, None)
        prompt = prompts[_read_key(row, key_columns)]
        prompt |= shared | prompt
        for column in columns["response"]:
            _append_cell(prompt, label, row.read_cell(column))
        for column in columns["score"]:
            _append_cell(prompt, f"{label}_score", row.read_cell(column))
    numbered = enumerate(prompts.values())
    return PairRows([FileRow(place, number, cells) for number, cells in numbered], {})


def _read_key(row: FileRow, columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(row.read_cell(name)) for name in columns)


def _read_label(row: FileRow, column: str) -> str:
    word = str(row.cells.get(column)).strip().lower()
    if word not in _LABEL_WORDS:
        allowed = "chosen or rejected, 1 or 0, true or false"
        row.refuse(column, allowed, f"or pass {name_column('label')}")
    return _LABEL_WORDS[word]


def _append_cell(prompt: Row, name: str, cell: object) -> None:
    cells = prompt.setdefault(name, [])
    assert isinstance(cells, list)
    cells.append(cell)


def _split_lists(place: Path, rows: list[FileRow], columns: Matched) -> PairRows:
    """Lists of responses, and of scores, by the label of each."""
    label_column = columns["labels"][0]
    pairs = []
    for row in rows:
        words = as_list(row.read_cell(label_column))
        labels = [_LABEL_WORDS.get(str(word).lower()) for word in words]
        pair: Row = {}
        for ours, suffix in (("responses", ""), ("scores", "_score")):
            for column in columns[ours]:
                cells = as_list(row.read_cell(column))
                if None in labels or len(cells) != len(labels):
                    allowed = f"1 or 0 for each of the {len(cells)} {ours}"
                    row.refuse(label_column, allowed)
                for label in LABELS:
                    pair[label + suffix] = _select_cells(cells, labels, label)
        pairs.append(row.fill(pair))
    return PairRows(pairs, {})


def _select_cells(
    cells: list[object], labels: list[str | None], label: str
) -> list[object]:
    labelled = zip(cells, labels, strict=True)
    return [cell for cell, cell_label in labelled if cell_label == label]


def _choose_sides(place: Path, rows: list[FileRow], columns: Matched) -> PairRows:
    """The rows with a winner as pairs; of the others, the number of ties and of each
    value that names no side.
    """
    _require_columns(place, rows, columns, [*_SIDES, "winner"])
    winner = columns["winner"][0]
    words = _winner_words(place, rows, columns)
    decided: list[FileRow] = []
    undecided: Counter[str] = Counter()
    for row in rows:
        side = _read_side(row, winner, words)
        if side in _SIDES:
            decided.append(_order_sides(row, side, columns))
        else:
            undecided[side] += 1

    n_ties = undecided.pop("tie", 0)
    commonest = dict(undecided.most_common(5))
    counts = f"ties: {n_ties}; neither side in {winner!r}: {commonest}"
    if not decided:
        problem = f"{place}: no row names a winner ({counts})"
        allowed = f"allowed in {winner!r}: a, b, tie, 1, 2, A>B, B>A"
        raise DataError(problem, allowed)
    if len(decided) < len(rows):
        _log.warning(
            "%s: %d of %d rows are left out, as they name no winner (%s)",
            place,
            len(rows) - len(decided),
            len(rows),
            counts,
        )
    return PairRows(decided, {"ties": n_ties, "unknown": dict(undecided)})


def _winner_words(place: Path, rows: list[FileRow], columns: Matched) -> dict[str, str]:
    """The side that each word in a winner's column means."""
    winner = columns["winner"][0]
    words = dict.fromkeys(_TIES, "tie")
    for side, rival in _RIVAL.items():
        for name in _SIDES[side]:
            words[name] = side
        words[f"model_{side}"] = side
        words[f"{side}>{rival}"] = side
        words[f"{rival}<{side}"] = side
        words[columns[side][0].lower()] = side
    cells = {_normalise_winner(row.cells.get(winner)) for row in rows}
    side_columns = columns["a"][0] + columns["b"][0]
    return words | _number_words(place, winner, cells, side_columns)


def _read_side(row: FileRow, winner: str, words: Mapping[str, str]) -> str:
    """The side that won, "tie", or the cell that names neither."""
    cell = _normalise_winner(row.cells.get(winner))
    if cell in words:
        return words[cell]
    for side in ("b", "a"):
        if cell == str(row.cells.get(f"model_{side}")).lower():
            return side
    if not cell:
        return "empty"
    return short(row.cells[winner], 40)


def _order_sides(row: FileRow, side: str, columns: Matched) -> FileRow:
    """The row as a pair whose better answer is that of a side."""
    pair: Row = {}
    for label, letter in (("chosen", side), ("rejected", _RIVAL[side])):
        pair[label] = row.cells.get(columns[letter][0])
        for column in columns[f"score_{letter}"]:
            pair[f"{label}_score"] = row.cells.get(column)
    return row.fill(pair)


def _normalise_winner(value: object) -> str:
    """A winner's cell as text: 1.0 is "1", and "A >> B" is "a>b"."""
    if value is None:
        return ""
    text = str(value).strip().lower().removesuffix(".0")
    return re.sub(r"\s*([<>=])\1*\s*", r"\1", text)


def _number_words(
    place: Path, winner: str, cells: set[str], side_columns: str
) -> dict[str, str]:
    """The sides that the numbers in a winner's column mean."""
    numbers = cells & {"0", "1", "2", "true", "false"}
    if "2" in numbers:
        return {"1": "a", "2": "b"}
    is_label = winner.lower() in ("label", "labels")
    if is_label and not re.search(r"\d", side_columns):
        return _FIRST_WINS
    if numbers:
        meanings = "may number the answers, or say whether the first one won"
        problem = f"{place}: winner: column {winner!r}: 0 and 1 {meanings}"
        raise DataError(problem, "replace them by 'a' and 'b'")
    return {}
