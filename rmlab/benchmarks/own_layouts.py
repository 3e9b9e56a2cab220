"""Layouts of people's own data: short functions from a row of roles to its answers."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rmlab.benchmarks.conversations import read_messages
from rmlab.benchmarks.roles import OwnColumns, OwnTable, name_column
from rmlab.benchmarks.sources import Cells
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


_TIES = (
    *("tie", "tie (bothbad)", "bothbad", "both_bad", "both bad", "both"),
    *("draw", "equal", "same", "a=b", "b=a"),
)
_MARK_OF_LABEL = {
    **dict.fromkeys(("chosen", "1", "1.0", "true"), 1.0),
    **dict.fromkeys(("rejected", "0", "0.0", "false"), 0.0),
}
_MARKS_OF_WINNER = {"a": (1.0, 0.0), "b": (0.0, 1.0), "tie": (0.0, 0.0)}
_RIVAL = {"a": "b", "b": "a"}
# The first of these that is there says which answers are better.
_ANSWER_MARKS = ("label", "rating", "rank")
_LIST_MARKS = ("labels", "ratings", "responses")
_TEXT_FIELDS = ("response", "answer", "text", "content", "completion", "output")
_RATING_FIELDS = ("overall_score", "score", "rating")


def explode_pair(table: OwnTable, row: int) -> list[Answer]:
    """One or several answers of each label, and their scores."""
    if table.has("scores") and not table.has("chosen_score"):
        return _explode_scores(table, row)
    answers = []
    for label, mark in zip(LABELS, (1.0, 0.0), strict=True):
        role = f"{label}_score"
        scores = flatten(table.cells(role)[row]) if table.has(role) else []
        texts = _list_texts(table, row, label) if table.has(label) else scores
        marks = [mark] * len(texts)
        answers += _combine(table, row, (label, label, role), texts, marks, scores)
    return answers


def _explode_scores(table: OwnTable, row: int) -> list[Answer]:
    """A list of scores, those of the chosen answers first."""
    scores = flatten(table.cells("scores")[row])
    texts = scores
    n_chosen = 1
    if table.has(*LABELS):
        chosen = _list_texts(table, row, "chosen")
        texts = chosen + _list_texts(table, row, "rejected")
        n_chosen = len(chosen)
    elif table.has("num_correct"):
        number = table.source.to_number(table.cells("num_correct")[row])
        if number is None or number % 1 or not 0 < number < len(scores):
            allowed = "at least 1 and less than there are scores"
            table.refuse(row, "num_correct", f"{allowed} (chosen answers come first)")
        n_chosen = int(number)
    marks = [1.0] * n_chosen + [0.0] * (len(texts) - n_chosen)
    roles = ("chosen", "chosen", "scores")
    return _combine(table, row, roles, texts, marks, scores)


def explode_battle(table: OwnTable, row: int) -> list[Answer]:
    """Two answers side by side, of which one wins; none where no winner is named."""
    winner = table.cells("verdict")[row]
    if winner not in _MARKS_OF_WINNER:
        table.left_out[str(winner)] += 1
        return []
    marks = _MARKS_OF_WINNER[str(winner)]
    texts = [table.cells(side)[row] for side in "ab"]
    scores = [_read_number(table, row, f"score_{side}") for side in "ab"]
    return list(map(Answer, "ab", texts, marks, scores))


def explode_answer(table: OwnTable, row: int) -> list[Answer]:
    """One answer, with a label, a rating or a rank."""
    role = find_mark(table, _ANSWER_MARKS)
    mark = _read_mark(table, row, role, table.cells(role)[row])
    text = table.cells("response")[row]
    return [Answer("response", text, mark, _read_number(table, row, "score"))]


def explode_list(table: OwnTable, row: int) -> list[Answer]:
    """A list of answers and one of their labels or ratings, or a list of objects that
    hold both.
    """
    parts = table.cells("responses")[row]
    if not isinstance(parts, list):
        table.refuse(row, "responses", "a list of answers")
    if not parts:
        table.left_out["no answer"] += 1
    scores = flatten(table.cells("scores")[row]) if table.has("scores") else []
    role = find_mark(table, _LIST_MARKS)
    texts = parts
    if role == "responses":
        texts = [_find_field(part, _TEXT_FIELDS, part) for part in parts]
        cells = [_find_rating(part) for part in parts]
    else:
        cells = flatten(table.cells(role)[row])
    marks = [_read_mark(table, row, role, cell) for cell in cells]
    roles = ("responses", role, "scores")
    return _combine(table, row, roles, texts, marks, scores)


def find_mark(table: OwnTable, roles: Sequence[str]) -> str:
    """The first role that the data have, of those that say which answers are better."""
    return next(role for role in roles if table.has(role))


def _combine(
    table: OwnTable,
    row: int,
    roles: tuple[str, str, str],
    texts: Sequence[object],
    marks: Sequence[float],
    scores: Sequence[object],
) -> list[Answer]:
    """Answers with their marks and scores, one for each text; DataError for others.

    `roles` are those of texts, marks and scores.
    """
    text_role, mark_role, score_role = roles
    has_scores = table.has(score_role) or bool(scores)
    values = [math.nan] * len(texts)
    if has_scores:
        values = [_to_score(table, row, score_role, cell) for cell in scores]
    for role, numbers in ((mark_role, marks), (score_role, values)):
        if len(numbers) != len(texts):
            allowed = f"one number for each of the {len(texts)} responses"
            table.refuse(row, role, allowed)
    if texts is scores:
        texts = [None] * len(values)
    return list(map(Answer, [text_role] * len(texts), texts, marks, values))


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


def flatten(value: object) -> list[object]:
    """Values without the lists around them."""
    values = []
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending += reversed(part)
        else:
            values.append(part)
    return values


def _read_number(table: OwnTable, row: int, role: str) -> float:
    return _to_score(table, row, role, table.cells(role)[row])


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
        return -mark if role == "rank" else mark
    word = str(cell).strip().lower()
    if word not in _MARK_OF_LABEL:
        table.refuse(row, role, "chosen or rejected, 1 or 0, true or false")
    return _MARK_OF_LABEL[word]


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


def prepare_battles(table: OwnTable) -> None:
    """Add the column `verdict`: the side that won in each row, "tie", or the cell that
    names neither.
    """
    if not table.has("winner"):
        sides = [map(_normalise, table.cells(f"winner_{side}")) for side in "ab"]
        verdict_of = {("1", "0"): "a", ("0", "1"): "b"}
        verdict_of |= dict.fromkeys((("0", "0"), ("1", "1")), "tie")
        pairs = zip(*sides, strict=True)
        table.added["verdict"] = [verdict_of.get(pair, str(pair)) for pair in pairs]
        return
    cells = table.cells("winner")
    words = [_normalise(cell) for cell in cells]
    grades = [_to_grade(table, word) for word in words]
    numbers = {grade for grade in grades if grade is not None}
    side_of_number = _find_sides(table, numbers)
    if numbers and side_of_number is None:
        _read_scale(table, grades, numbers)
        return

    side_of_word = dict.fromkeys(_TIES, "tie")
    for side, rival in _RIVAL.items():
        columns = [name.strip().lower() for name in table.roles[side]]
        forms = (side, f"model_{side}", f"{side}>{rival}", f"{rival}<{side}")
        side_of_word |= dict.fromkeys((*forms, *columns), side)
    verdicts = []
    for row, (cell, word, grade) in enumerate(zip(cells, words, grades, strict=True)):
        if grade is not None and side_of_number is not None:
            verdicts.append(side_of_number[grade])
            continue
        named = side_of_word.get(word) or _match_model(table, row, word)
        verdicts.append(named or short(cell, 40))
    table.added["verdict"] = [*verdicts]


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


def _normalise(cell: object) -> str:
    """A winner's cell as text: 1.0 is "1", and "A >> B" is "a>b"."""
    text = "" if cell is None else str(cell).strip().lower()
    if text in ("true", "false"):
        return "1" if text == "true" else "0"
    whole = re.fullmatch(r"(-?\d+)\.0", text)
    return whole[1] if whole else re.sub(r"\s*([<>=])\1*\s*", r"\1", text)


def _to_grade(table: OwnTable, word: str) -> float | None:
    """A winner's cell as a finite number; None where it is none."""
    number = table.source.to_number(word)
    return number if number is not None and math.isfinite(number) else None


def _is_signed(table: OwnTable, numbers: set[float]) -> bool:
    """Whether the column of the winner holds signed grades: by its name, or where the
    name is used for both kinds of scale, by a value below 1.
    """
    if table.is_called("winner", "overall_preference"):
        return any(number < 1 for number in numbers)
    return table.is_called("winner", "preference_strength")


def _find_sides(table: OwnTable, numbers: set[float]) -> dict[float, str] | None:
    """The sides that numbers mean; None where they are a scale."""
    is_grade = table.is_called("winner", "overall_preference", "preference_strength")
    if not numbers or table.better or is_grade:
        return None
    is_label = table.is_called("winner", "label", "labels")
    columns = [
        re.sub(r"\D", "", name) for name in [*table.roles["a"], *table.roles["b"]]
    ]
    if numbers <= {0.0, 1.0} and columns == ["0", "1"] and not is_label:
        return {0.0: "a", 1.0: "b"}
    if numbers <= {1.0, 2.0} and 2.0 in numbers:
        return {1.0: "a", 2.0: "b"}
    if numbers <= {0.0, 0.5, 1.0} and is_label and table.is_called("a", "human_ref_a"):
        return {1.0: "a", 0.0: "b", 0.5: "tie"}  # as in SHP
    return None


def _read_scale(
    table: OwnTable, grades: Sequence[float | None], numbers: set[float]
) -> None:
    """Add the winners of a scale, -3 to 3 or 1 to 5, whose middle is a tie, and the
    distance from the middle as the column `strength`.
    """
    place = f"{table.source.place}: column {table.roles['winner'][0]!r}"
    scale = f"{place} holds numbers from {min(numbers):g} to {max(numbers):g}"
    if table.better is None:
        remedy = "write 'a' and 'b' into it; load_preferences also takes better='b'"
        reason = "where larger values favour the second answer"
        raise DataError(scale, f"{remedy} {reason}")
    middle: float | None = 0.0
    if not _is_signed(table, numbers):
        refuse_minus_one(place, numbers)
        middle = _find_middle(numbers)
        # These may also be the grades above 0 of a scale from -3 to 3.
        if table.is_called("winner", "overall_preference") and max(numbers) <= 3:
            middle = None
    if middle is None:
        remedy = "subtract the middle, so that 0 is a tie, and call the column"
        remedy = f"{remedy} 'preference_strength', which is read so"
        raise DataError(f"{scale}, and its middle is not known", remedy)
    ends = f"scale {min(numbers):g} to {max(numbers):g}"
    table.notes.append(f"middle {middle:g}, {ends}")

    cells = table.cells("winner")
    verdicts: Cells = []
    strengths: Cells = []
    for grade, cell in zip(grades, cells, strict=True):
        if grade is None:
            verdicts.append(short(cell, 40))
            strengths.append(None)
            continue
        strengths.append(abs(grade - middle))
        if grade == middle:
            verdicts.append("tie")
        else:
            verdicts.append(table.better if grade > middle else _RIVAL[table.better])
    table.added["verdict"] = verdicts
    table.added["strength"] = strengths


def _find_middle(numbers: set[float]) -> float | None:
    """The tie of a scale, where its numbers show it: 0 between both signs, or the
    middle of 0 and 1, of 1 and 2, or of 1 to an odd number.
    """
    low = min(numbers)
    high = max(numbers)
    if low < 0 < high:
        return 0.0
    is_whole = all(value % 1 == 0 for value in numbers)
    is_odd = is_whole and low == 1 and high > 1 and high % 2 == 1
    if is_odd or (low, high) in ((0, 1), (1, 2)):
        return (low + high) / 2
    return None


def refuse_minus_one(place: object, numbers: set[float]) -> None:
    """Raise DataError where -1 stands beside the numbers of a scale from 1."""
    others = numbers - {-1.0}
    is_scale = all(number >= 1 and number % 1 == 0 for number in others)
    if -1.0 in numbers and is_scale and max(others, default=0) >= 3:
        problem = f"{place}: a scale from 1 to {max(others):g}, and some values are -1"
        remedy = "leave the cell empty if it is missing; add 2 to all if it is a grade"
        raise DataError(problem, remedy)


def prepare_marks(table: OwnTable) -> None:
    """Raise DataError for ranks that are given as ratings: the best has the lowest."""
    if table.has("labels") and table.is_called("responses", "completions"):
        # trl writes the steps of one answer so.
        table.notes.append("completions are read as rival answers, not as steps")
    for role in ("rating", "ratings"):
        for name in table.roles[role]:
            if "rank" in name.lower():
                problem = (
                    f"{table.source.place}: {name!r} looks like ranks, not ratings"
                )
                remedy = f"pass {name_column('rank', name)}, 1 is the best"
                if role == "ratings":
                    remedy = "turn them round, so that the best answer has the largest"
                raise DataError(problem, remedy)


def prepare_pairs(table: OwnTable) -> None:
    """Raise DataError where the chosen cells name the better column."""
    present = {name.strip().lower() for name in table.source.columns}
    for name in table.roles["chosen"]:
        cells = table.source.columns[name]
        if all(str(cell).strip().lower() in present for cell in cells):
            problem = f"{table.source.place}: {name!r} holds names of columns, no texts"
            raise DataError(problem, f"pass {name_column('winner', name)}")


class OwnLayout(NamedTuple):
    """A layout: its name, the roles that say which answers are better, the roles that
    show it (any group of them), its functions of the table and of a row, and whether a
    prompt has several rows.
    """

    name: str
    marks: Sequence[str]
    needs: Sequence[Sequence[str]]
    prepare: Callable[[OwnTable], None]
    explode: Callable[[OwnTable, int], list[Answer]]
    is_grouped: bool = False


# Roles of several layouts.
_SHARED = {"response", "score", "scores", "score_a", "score_b"}
SCORED_PAIR = ("chosen_score", "rejected_score")
LAYOUTS = (
    OwnLayout("pairs", LABELS, (LABELS, SCORED_PAIR), prepare_pairs, explode_pair),
    OwnLayout(
        "battles",
        ("winner", "winner_a"),
        (
            ("a", "b", "winner"),
            ("a", "b", "winner_a"),
            ("score_a", "score_b", "winner"),
        ),
        prepare_battles,
        explode_battle,
    ),
    OwnLayout(
        "answers",
        _ANSWER_MARKS,
        (
            *(("response", "label"), ("score", "label")),
            *(("response", "rating"), ("response", "rank")),
        ),
        prepare_marks,
        explode_answer,
        is_grouped=True,
    ),
    OwnLayout(
        "lists of answers", _LIST_MARKS, (("responses",),), prepare_marks, explode_list
    ),
    OwnLayout("pairs", LABELS, (("scores",),), prepare_pairs, explode_pair),
)


def find_layout(table: OwnTable, mapping: OwnColumns) -> OwnLayout:
    """The layout of a role that a user names, or the first whose columns are there;
    DataError where there is none.
    """
    named = {role for role, names in mapping.items() if names} - _SHARED
    chosen = [layout for layout in LAYOUTS if named & set().union(*layout.needs)]
    for layout in chosen or LAYOUTS:
        if any(table.has(*needs) for needs in layout.needs):
            return layout
    wanted = LABELS if not table.is_scored else SCORED_PAIR
    table.require(*(chosen[0].needs[0] if chosen else wanted))
    raise AssertionError
