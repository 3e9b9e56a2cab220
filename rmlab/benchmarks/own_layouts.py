"""Layouts of people's own data: each makes a function from a row to its answers."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from rmlab.benchmarks.conversations import read_messages
from rmlab.benchmarks.roles import OwnColumns, OwnTable, name_column, spell
from rmlab.tables import LABELS, DataError
from rmlab.text import short


class Answer(NamedTuple):
    """An answer as a file has it: the role of its column, its text, mark and score.

    `text` is None where a file has scores alone. `mark` is 1 or 0 where the answers
    have labels, else a rating: the larger, the better.
    """

    role: str
    text: object
    mark: float
    score: float


ReadRow = Callable[[int], list[Answer]]
"""The number of a row to its answers."""

_TIES = (
    *("tie", "tie (bothbad)", "bothbad", "both_bad", "both bad", "both"),
    *("draw", "equal", "same", "a=b", "b=a"),
)
_MARKS = {"chosen": 1.0, "rejected": 0.0}
_MARK_OF_WORD = {
    **dict.fromkeys(("chosen", "1", "1.0", "true"), 1.0),
    **dict.fromkeys(("rejected", "0", "0.0", "false"), 0.0),
}
_MARKS_OF_VERDICT = {"a": (1.0, 0.0), "b": (0.0, 1.0), "tie": (0.0, 0.0)}
_VERDICT_OF_FLAGS = {
    ("1", "0"): "a",
    ("0", "1"): "b",
    ("0", "0"): "tie",
    ("1", "1"): "tie",
}
_RIVAL = {"a": "b", "b": "a"}
_TEXT_FIELDS = ("response", "answer", "text", "content", "completion", "output")
_RATING_FIELDS = ("overall_score", "score", "rating")


def read_pairs(table: OwnTable) -> ReadRow:
    """One or several answers of each label, and their scores."""
    present = {*map(spell, table.source.columns)}
    for name in table.roles["chosen"]:
        if present.issuperset(map(spell, table.source.columns[name])):
            problem = f"{table.source.place}: {name!r} holds names of columns, no texts"
            raise DataError(problem, f"pass {name_column('winner', name)}")
    has_texts = table.has(*LABELS)

    def read_row(row: int) -> list[Answer]:
        texts: dict[str, list[object]] = {}
        if has_texts:
            texts = {label: _list_texts(table, row, label) for label in LABELS}
        answers: list[Answer] = []
        scores = _split_scores(table, row, texts)
        for label, (role, cells) in scores.items():
            of_label = texts.get(label) or [None] * len(cells)
            numbers = _read_numbers(table, row, role, cells, len(of_label))
            for text, score in zip(of_label, numbers, strict=True):
                answers.append(Answer(label, text, _MARKS[label], score))
        return answers

    return read_row


def _split_scores(
    table: OwnTable, row: int, texts: dict[str, list[object]]
) -> dict[str, tuple[str, list[object]]]:
    """The role and the cells of the scores of each label; one list holds those of
    chosen answers first.
    """
    scores_of: dict[str, tuple[str, list[object]]] = {}
    if not table.has("scores") or table.has("chosen_score"):
        for label in LABELS:
            role = f"{label}_score"
            scores_of[label] = (role, _flatten(table.cells(role)[row]))
        return scores_of
    scores = _flatten(table.cells("scores")[row])
    n_chosen = len(texts.get("chosen", [None]))
    if not texts and table.has("num_correct"):
        number = table.source.to_number(table.cells("num_correct")[row])
        if number is None or number % 1 or not 0 < number < len(scores):
            allowed = "at least 1 and less than there are scores"
            table.refuse(row, "num_correct", f"{allowed} (chosen answers come first)")
        n_chosen = int(number)
    scores_of["chosen"] = ("scores", scores[:n_chosen])
    scores_of["rejected"] = ("scores", scores[n_chosen:])
    return scores_of


def _list_texts(table: OwnTable, row: int, label: str) -> list[object]:
    """The answers of one label: a cell may hold several; of several columns an empty
    cell is one answer fewer.
    """
    cells = table.row(label, row)
    if len(cells) > 1:
        return [cell for cell in cells if cell not in (None, "")] or [None]
    cell = cells[0]
    if isinstance(cell, list) and cell and read_messages(cell) is None:
        return cell
    return [cell]


def read_battles(table: OwnTable) -> ReadRow:
    """Two answers side by side, of which one wins; none where no winner is named."""
    verdicts = _list_verdicts(table)

    def read_row(row: int) -> list[Answer]:
        marks = _MARKS_OF_VERDICT.get(verdicts[row])
        if marks is None:
            table.left_out[verdicts[row]] += 1
            return []
        answers = []
        for side, mark in zip("ab", marks, strict=True):
            role = f"score_{side}"
            score = _to_score(table, row, role, table.cells(role)[row])
            answers.append(Answer(side, table.cells(side)[row], mark, score))
        return answers

    return read_row


def read_answers(table: OwnTable) -> ReadRow:
    """An answer a row, with a label, a rating or a rank."""
    _refuse_ranks(table, "rating")
    role = find_mark(table, ANSWER_MARKS)

    def read_row(row: int) -> list[Answer]:
        mark = _read_mark(table, row, role, table.cells(role)[row])
        score = _to_score(table, row, "score", table.cells("score")[row])
        return [Answer("response", table.cells("response")[row], mark, score)]

    return read_row


def read_lists(table: OwnTable) -> ReadRow:
    """A list of answers and one of their labels or ratings, or a list of objects that
    hold both.
    """
    _refuse_ranks(table, "ratings")
    if table.has("labels") and table.is_called("responses", "completions"):
        # trl writes the steps of one answer so.
        table.notes.append("completions are read as rival answers, not as steps")
    role = find_mark(table, LIST_MARKS)

    def read_row(row: int) -> list[Answer]:
        texts = table.cells("responses")[row]
        if not isinstance(texts, list):
            table.refuse(row, "responses", "a list of answers")
        if not texts:
            table.left_out["no answer"] += 1
        cells = table.cells(role)[row]
        if role == "responses":
            cells = [*map(_find_rating, texts)]
            texts = [_find_field(part, _TEXT_FIELDS, part) for part in texts]
        marks = [_read_mark(table, row, role, cell) for cell in _flatten(cells)]
        if len(marks) != len(texts):
            table.refuse(row, role, f"one for each of the {len(texts)} responses")
        scores = _flatten(table.cells("scores")[row])
        numbers = _read_numbers(table, row, "scores", scores, len(texts))
        answers = []
        for text, mark, score in zip(texts, marks, numbers, strict=True):
            answers.append(Answer("responses", text, mark, score))
        return answers

    return read_row


def find_mark(table: OwnTable, roles: Sequence[str]) -> str:
    """The first role that the data have, of those that say which answers are better."""
    return next(role for role in roles if table.has(role))


def _refuse_ranks(table: OwnTable, role: str) -> None:
    """Raise DataError for ranks that are given as ratings: the best has the lowest."""
    for name in table.roles[role]:
        if "rank" in name.lower():
            problem = f"{table.source.place}: {name!r} looks like ranks, not ratings"
            remedy = f"pass {name_column('rank', name)}, 1 is the best"
            if role == "ratings":
                remedy = "turn them round, so that the best answer has the largest"
            raise DataError(problem, remedy)


def _flatten(value: object) -> list[object]:
    """Values without the lists around them."""
    if not isinstance(value, list):
        return [value]
    values = []
    pending: list[object] = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending += reversed(part)
        else:
            values.append(part)
    return values


def _read_numbers(
    table: OwnTable, row: int, role: str, cells: Sequence[object], n_texts: int
) -> list[float]:
    """One score for each text; NaN where the data have none."""
    if not table.has(role):
        return [math.nan] * n_texts
    if len(cells) != n_texts:
        table.refuse(row, role, f"one number for each of the {n_texts} responses")
    return [_to_score(table, row, role, cell) for cell in cells]


def _to_score(table: OwnTable, row: int, role: str, cell: object) -> float:
    """A cell as a number; NaN for an empty one."""
    if isinstance(cell, float):
        return cell
    if cell is None or cell == "":
        return math.nan
    number = table.source.to_number(cell)
    if number is None:
        table.refuse(row, role, "a number (0.5, not 0,5)")
    return number


def _read_mark(table: OwnTable, row: int, role: str, cell: object) -> float:
    """A label as 1 or 0, a rating as it is, and a rank so that the first is largest."""
    if role not in ("label", "labels"):
        mark = _to_score(table, row, role, cell)
        if role == "rank":
            mark = -mark
        return mark
    word = str(cell).strip().lower()
    if word not in _MARK_OF_WORD:
        table.refuse(row, role, "chosen or rejected, 1 or 0, true or false")
    return _MARK_OF_WORD[word]


def _find_rating(part: object) -> object:
    """The rating of an answer that is an object; rank 1 is the best."""
    rank = _find_field(part, ("rank",), None)
    if rank is None:
        return _find_field(part, _RATING_FIELDS, "no rating")
    try:
        return -float(str(rank))
    except ValueError:
        return "no rank"


def _find_field(part: object, names: Iterable[str], default: object) -> object:
    """The first of some fields that an object has."""
    if not isinstance(part, dict):
        return default
    return next((part[name] for name in names if name in part), None)


def _list_verdicts(table: OwnTable) -> list[str]:
    """The side that won in each row, "tie", or the cell that names neither."""
    if not table.has("winner"):
        sides = [map(_normalise, table.cells(f"winner_{side}")) for side in "ab"]
        pairs = zip(*sides, strict=True)
        return [_VERDICT_OF_FLAGS.get(pair, str(pair)) for pair in pairs]

    verdict_of_word = dict.fromkeys(_TIES, "tie")
    for side, rival in _RIVAL.items():
        columns = map(spell, table.roles[side])
        forms = (side, f"model_{side}", f"{side}>{rival}", f"{rival}<{side}")
        verdict_of_word |= dict.fromkeys((*forms, *columns), side)
    cells = table.cells("winner")
    words = list(map(_normalise, cells))
    grades = [_to_grade(table, word) for word in words]
    verdict_of_number = _name_numbers(table, grades)
    verdicts = []
    for row, (cell, word, grade) in enumerate(zip(cells, words, grades, strict=True)):
        verdict = verdict_of_word.get(word) or _match_model(table, row, word)
        if grade in verdict_of_number:
            verdict = verdict_of_number[grade]
        verdicts.append(verdict or short(cell, 40))
    return verdicts


def _normalise(cell: object) -> str:
    """A winner's cell as text: 1.0 is "1", and "A >> B" is "a>b"."""
    text = {"true": "1", "false": "0"}.get(spell(cell), spell(cell))
    whole = re.fullmatch(r"(-?\d+)\.0", text)
    return whole[1] if whole else re.sub(r"\s*([<>=])\1*\s*", r"\1", text)


def _to_grade(table: OwnTable, word: str) -> float | None:
    """A winner's cell as a finite number; None where it is none."""
    number = table.source.to_number(word)
    return number if number is not None and math.isfinite(number) else None


def _match_model(table: OwnTable, row: int, word: str) -> str | None:
    """The side whose column with the model's name says the winner's; None where both
    do.
    """
    matches = []
    for side in _RIVAL:
        models = table.source.columns.get(f"model_{side}")
        if models is not None and word and word == _normalise(models[row]):
            matches.append(side)
    return matches[0] if len(matches) == 1 else None


def _name_numbers(
    table: OwnTable, grades: Sequence[float | None]
) -> dict[float | None, str]:
    """The side that each number of the winners means, or "tie"; of a scale the distance
    from its middle becomes the column `strength`.
    """
    numbers = {grade for grade in grades if grade is not None}
    sides = _find_sides(table, numbers)
    if sides is not None:
        return sides

    low = min(numbers)
    high = max(numbers)
    place = f"{table.source.place}: column {table.roles['winner'][0]!r}"
    scale = f"{place} holds numbers from {low:g} to {high:g}"
    if table.better is None:
        remedy = "write 'a' and 'b' into it; load_preferences also takes better='b'"
        reason = "where larger values favour the second answer"
        raise DataError(scale, f"{remedy} {reason}")
    middle = _find_middle(table, numbers)
    if middle is None:
        remedy = "subtract the middle, so that 0 is a tie, and call the column"
        remedy = f"{remedy} 'preference_strength', which is read so"
        raise DataError(f"{scale}, and its middle is not known", remedy)
    table.notes.append(f"middle {middle:g}, scale {low:g} to {high:g}")

    distances = np.abs(np.array(grades, float) - middle)
    table.added["strength"] = distances.tolist()
    verdict_of: dict[float | None, str] = {}
    for number in numbers:
        verdict_of[number] = _RIVAL[table.better]
        if number > middle:
            verdict_of[number] = table.better
    return verdict_of | {middle: "tie"}


def _find_sides(table: OwnTable, numbers: set[float]) -> dict[float | None, str] | None:
    """The sides that numbers mean; None where they are a scale."""
    if not numbers:
        return {}
    if table.better or table.is_called("winner", *_GRADES):
        return None
    if numbers <= {1.0, 2.0} and 2.0 in numbers:
        return {1.0: "a", 2.0: "b"}
    if table.is_called("winner", "label", "labels"):
        if numbers <= {0.0, 0.5, 1.0} and table.is_called("a", "human_ref_a"):
            return {1.0: "a", 0.0: "b", 0.5: "tie"}  # as in SHP
        return None
    columns = [name[-1:] for name in [*table.roles["a"], *table.roles["b"]]]
    if numbers <= {0.0, 1.0} and columns == ["0", "1"]:
        return {0.0: "a", 1.0: "b"}
    return None


def _find_middle(table: OwnTable, numbers: set[float]) -> float | None:
    """The tie of a scale, where its numbers show it: 0 of signed grades, or the middle
    of 0 and 1, of 1 and 2, or of 1 to an odd number.
    """
    low = min(numbers)
    high = max(numbers)
    if table.is_called("winner", "preference_strength"):
        return 0.0
    refuse_minus_one(f"{table.source.place}: {table.roles['winner'][0]!r}", numbers)
    if low < 0 and (high > 0 or table.is_called("winner", *_GRADES)):
        return 0.0
    # The numbers above 0 of a scale from -3 to 3 look like one from 1.
    if high <= 3 and table.is_called("winner", *_GRADES):
        return None
    has_middle = low == 1 and high > 1 and high % 2 == 1
    are_whole = all(number.is_integer() for number in numbers)
    if (has_middle and are_whole) or (low, high) in ((0, 1), (1, 2)):
        return (low + high) / 2
    return None


_GRADES = ("overall_preference", "preference_strength")


def refuse_minus_one(place: object, numbers: set[float]) -> None:
    """Raise DataError where -1 stands beside the numbers of a scale from 1."""
    others = numbers - {-1.0}
    are_whole = all(number.is_integer() for number in others)
    is_scale = are_whole and min(others, default=0) >= 1
    if -1.0 in numbers and is_scale and max(others) >= 3:
        problem = f"{place}: a scale from 1 to {max(others):g}, and some values are -1"
        remedy = "leave the cell empty if it is missing; add 2 to all if it is a grade"
        raise DataError(problem, remedy)


class OwnLayout(NamedTuple):
    """A layout: its name, the roles that show it (any group of them), and what reads
    its rows.

    `marks`: of these roles the first that is there says which answers are better.
    `is_grouped`: a prompt has several rows.
    """

    name: str
    needs: Sequence[Sequence[str]]
    read: Callable[[OwnTable], ReadRow]
    marks: Sequence[str] = ()
    is_grouped: bool = False


ANSWER_MARKS = ("label", "rating", "rank")
LIST_MARKS = ("labels", "ratings", "responses")
# Roles of several layouts.
_SHARED = {"response", "score", "scores", "score_a", "score_b"}
SCORED_PAIR = ("chosen_score", "rejected_score")
_ANSWER_NEEDS = (
    *(("response", "label"), ("score", "label")),
    *(("response", "rating"), ("response", "rank")),
)
_BATTLE_NEEDS = (
    ("a", "b", "winner"),
    ("a", "b", "winner_a"),
    ("score_a", "score_b", "winner"),
)
LAYOUTS = (
    OwnLayout("pairs", (LABELS, SCORED_PAIR), read_pairs),
    OwnLayout("battles", _BATTLE_NEEDS, read_battles, ("winner", "winner_a")),
    OwnLayout("answers", _ANSWER_NEEDS, read_answers, ANSWER_MARKS, is_grouped=True),
    OwnLayout("lists of answers", (("responses",),), read_lists, LIST_MARKS),
    OwnLayout("pairs", (("scores",),), read_pairs),
)


def find_layout(table: OwnTable, mapping: OwnColumns) -> OwnLayout:
    """The layout of a role that a user names, or the first whose columns are there;
    DataError where there is none.
    """
    named = {role for role, column in mapping.items() if column} - _SHARED
    chosen = [layout for layout in LAYOUTS if named & set().union(*layout.needs)]
    for layout in chosen or LAYOUTS:
        if any(table.has(*roles) for roles in layout.needs):
            return layout
    wanted: Sequence[str] = SCORED_PAIR if table.is_scored else LABELS
    if chosen:
        wanted = chosen[0].needs[0]
    table.require(*wanted)
    raise AssertionError
