"""Layouts of people's own data: a table of the columns that hold answers, and of what
says which of them is better.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rmlab.benchmarks.conversations import Prompt, read_messages
from rmlab.benchmarks.roles import OwnColumns, OwnTable, spell
from rmlab.tables import LABELS, DataError
from rmlab.text import short


class Part(NamedTuple):
    """Where a layout has answers: the roles of their texts, of their scores, and of
    what says how good they are (the first that the data have; else `mark`).
    """

    texts: str
    scores: str
    marks: Sequence[str] = ()
    mark: float = math.nan

    def find_mark(self, table: OwnTable) -> str | None:
        """The role that says which answers are better; None for pairs."""
        return next((role for role in self.marks if table.has(role)), None)


class Answer(NamedTuple):
    """An answer as a file has it: its row, the role of its column, its response, mark
    and score.

    `response` is None where a file has scores alone. `mark` is 1 or 0 where the answers
    have labels, else a rating: the larger, the better.
    """

    row: int
    role: str
    response: object
    mark: float
    score: float
    prompt: Prompt | None = None


class OwnLayout(NamedTuple):
    """A layout: its name, its parts, and the roles that show it (any group of them).

    `prepare` makes cells of a part from those of other roles. `is_grouped`: a prompt
    has several rows.
    """

    name: str
    parts: Sequence[Part]
    needs: Sequence[Sequence[str]]
    prepare: Callable[[OwnTable], None] | None = None
    is_grouped: bool = False

    def has_texts(self, table: OwnTable) -> bool:
        """Whether the data have texts of answers."""
        return table.has(self.parts[0].texts)


_MARK_OF_WORD = {
    **dict.fromkeys(("chosen", "1", "1.0", "true"), 1.0),
    **dict.fromkeys(("rejected", "0", "0.0", "false"), 0.0),
}


def read_row(table: OwnTable, layout: OwnLayout, row: int) -> list[Answer]:
    """The answers of a row."""
    answers = []
    for part in layout.parts:
        texts: list[object] = [None] * len(_flatten(table.cells(part.scores)[row]))
        if table.has(part.texts):
            texts = _list_texts(part.texts, table.cells(part.texts)[row])
        default = [part.mark] * len(texts)
        marks = _read_numbers(table, row, part.find_mark(table), default)
        default = [math.nan] * len(texts)
        scores = _read_numbers(table, row, part.scores, default)
        for cells in zip(texts, marks, scores, strict=True):
            answers.append(Answer(row, part.texts, *cells))
    return answers


def _list_texts(role: str, cell: object) -> list[object]:
    """The answers of a cell: some columns may hold several."""
    if not isinstance(cell, list) or role not in (*LABELS, "responses"):
        return [cell]
    if role in LABELS and read_messages(cell) is not None:
        return [cell]
    return cell


def _flatten(value: object) -> list[object]:
    """Values without the lists around them."""
    if not isinstance(value, list):
        return [value]
    values: list[object] = []
    pending: list[object] = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending += reversed(part)
        else:
            values.append(part)
    return values


def _read_numbers(
    table: OwnTable, row: int, role: str | None, default: list[float]
) -> list[float]:
    """The numbers of a cell, one for each answer; `default` without such a column."""
    if role is None or not table.has(role):
        return default
    cells = _flatten(table.cells(role)[row])
    if len(cells) != len(default):
        table.refuse(row, role, f"one for each of the {len(default)} answers")
    read = _READERS.get(role, _to_score)
    numbers = []
    for cell in cells:
        number = read(cell)
        if number is None:
            allowed = "a number (0.5, not 0,5)"
            if read is _to_mark:
                allowed = "chosen or rejected, 1 or 0, true or false"
            table.refuse(row, role, allowed)
        numbers.append(number)
    return numbers


def _to_score(cell: object) -> float | None:
    """A cell as a number; NaN for an empty one, None where it is no number."""
    if isinstance(cell, float):
        return cell
    if cell is None or cell == "":
        return math.nan
    if isinstance(cell, bool):
        return None
    try:
        return float(str(cell))
    except ValueError:
        return None


def _to_mark(cell: object) -> float | None:
    """A label as 1 or 0."""
    return _MARK_OF_WORD.get(spell(cell))


def _to_rank(cell: object) -> float | None:
    """A rank so that the first is largest."""
    number = _to_score(cell)
    return None if number is None else -number


_READERS = {"label": _to_mark, "labels": _to_mark, "rank": _to_rank}


def _split_scores(table: OwnTable) -> None:
    """Scores of pairs in one list, which starts with those of the chosen answers: as
    many as there are texts or as a column says, else one.
    """
    if table.has(*SCORED_PAIR) or not table.has("scores"):
        return
    role = "num_correct"
    chosen_scores: list[object] = []
    rejected_scores: list[object] = []
    for row, cell in enumerate(table.cells("scores")):
        scores = _flatten(cell)
        n_chosen = len(_list_texts("chosen", table.cells("chosen")[row]))
        if table.has(role):
            count = _to_score(table.cells(role)[row])
            if count is None or count not in range(1, len(scores)):
                allowed = "at least 1 and less than there are scores"
                table.refuse(row, role, allowed)
            n_chosen = int(count)
        chosen_scores.append(scores[:n_chosen])
        rejected_scores.append(scores[n_chosen:])
    table.add("chosen_score", chosen_scores, "scores")
    table.add("rejected_score", rejected_scores, "scores")


_TEXT_FIELDS = ("response", "answer", "text", "content", "completion", "output")
_RATING_FIELDS = ("overall_score", "score", "rating")


def _open_objects(table: OwnTable) -> None:
    """Texts and ratings of answers that are objects; rank 1 is the best."""
    texts: list[object] = []
    ratings: list[object] = []
    for cell in table.cells("responses"):
        answers = cell if isinstance(cell, list) else [cell]
        texts.append([_find_field(part, _TEXT_FIELDS, part) for part in answers])
        ratings.append([_find_rating(part) for part in answers])
    table.add("responses", texts, "responses")
    if not table.has_any("labels", "ratings"):
        table.add("ratings", ratings, "responses")


def _find_rating(answer: object) -> object:
    rank = _find_field(answer, ("rank",), None)
    if rank is None:
        return _find_field(answer, _RATING_FIELDS, "no rating")
    number = _to_rank(rank)
    return "no rank" if number is None else number


def _find_field(answer: object, names: Sequence[str], default: object) -> object:
    """The first of some fields that an object has."""
    if not isinstance(answer, dict):
        return default
    return next((answer[name] for name in names if name in answer), None)


_TIES = (
    *("tie", "tie (bothbad)", "bothbad", "both_bad", "both bad", "both"),
    *("draw", "equal", "same", "a=b", "b=a"),
)
_GRADES = ("overall_preference", "preference_strength")


def _name_winners(table: OwnTable) -> None:
    """Marks of both answers: of the first how far it is preferred, of the second 0.

    Without a winner they have none, and the cell is counted.
    """
    role = "winner" if table.has("winner") else "winner_a"
    cells: Sequence[object] = table.cells(role)
    if role == "winner":
        preferences = _read_winners(table)
    else:
        flags = [*zip(cells, table.cells("winner_b"), strict=True)]
        preferences = [_to_grade(first) - _to_grade(second) for first, second in flags]
        cells = flags
    for cell, preference in zip(cells, preferences, strict=True):
        if math.isnan(preference):
            table.left_out[short(cell, 40)] += 1
    table.add("mark_a", preferences, role)
    table.add("mark_b", [0.0] * len(cells), role)


def _to_grade(cell: object) -> float:
    """A winner's cell as a number; NaN where it is none."""
    number = _to_score({"true": 1, "false": 0}.get(spell(cell), cell))
    return number if number is not None and math.isfinite(number) else math.nan


def _read_winners(table: OwnTable) -> list[float]:
    """How far the first answer is preferred; of a scale the distance from its middle is
    the role `strength`.
    """
    cells = table.cells("winner")
    grades = [_to_grade(cell) for cell in cells]
    numbers = {grade for grade in grades if grade == grade}
    preference_of: dict[object, float] = dict.fromkeys(_TIES, 0.0)
    for side, rival, preference in (("a", "b", 1.0), ("b", "a", -1.0)):
        forms = (side, f"model_{side}", f"{side}>{rival}", f"{rival}<{side}")
        columns = map(spell, table.roles[side])
        preference_of |= dict.fromkeys((*forms, *columns), preference)
    sides = _name_sides(table, numbers)
    is_scale = table.better is not None or table.is_called("winner", *_GRADES)
    if numbers and (is_scale or not numbers <= sides.keys()):
        middle = _find_middle(table, numbers)
        sign = 1.0 if table.better == "a" else -1.0
        sides = {number: sign * (number - middle) for number in numbers}
        strengths = [abs(grade - middle) for grade in grades]
        table.add("strength", strengths, "winner")
    preference_of |= sides

    preferences = []
    models = [table.columns.get(f"model_{side}", cells) for side in "ab"]
    for cell, grade, *names in zip(cells, grades, *models, strict=True):
        model_a, model_b = map(spell, names)
        named = {model_a: 1.0, model_b: -1.0} if model_a != model_b else {}
        word = re.sub(r"\s*([<>=])\1*\s*", r"\1", spell(cell))
        verdict = preference_of.get(word, named.get(spell(cell), math.nan))
        preferences.append(preference_of.get(grade, verdict))
    return preferences


def _name_sides(table: OwnTable, numbers: set[float]) -> dict[object, float]:
    """What numbers mean by themselves and by the names of the columns."""
    if 2.0 in numbers:
        return {1.0: 1.0, 2.0: -1.0}
    if table.is_called("winner", "label", "labels"):
        is_shp = table.is_called("a", "human_ref_a")
        return {1.0: 1.0, 0.5: 0.0, 0.0: -1.0} if is_shp else {}
    if any(name.endswith("0") for name in table.roles["a"]):
        return {0.0: 1.0, 1.0: -1.0}
    return {}


def _find_middle(table: OwnTable, numbers: set[float]) -> float:
    """The tie of a scale, where its numbers show it: 0 of signed grades, or the middle
    of 0 and 1, of 1 and 2, or of 1 to an odd number.
    """
    low = min(numbers)
    high = max(numbers)
    place = f"{table.place}: column {table.roles['winner'][0]!r}"
    scale = f"{place} holds numbers from {low:g} to {high:g}"
    if table.better is None:
        remedy = "write 'a' and 'b' into it; load_preferences also takes better='b'"
        reason = "where larger values favour the second answer"
        raise DataError(scale, f"{remedy} {reason}")
    refuse_minus_one(place, numbers)
    middle = (low + high) / 2
    has_middle = (low, high) in ((0, 1), (1, 2)) or (
        low == 1 and high in range(3, 99, 2)
    )
    # The numbers above 0 of a scale from -3 to 3 look like one from 1.
    is_half = high <= 3 and table.is_called("winner", *_GRADES)
    if low < 0 or table.is_called("winner", "preference_strength"):
        middle = 0.0
    elif is_half or not has_middle:
        remedy = "subtract the middle, so that 0 is a tie, and call the column"
        remedy = f"{remedy} 'preference_strength', which is read so"
        raise DataError(f"{scale}, and its middle is not known", remedy)
    table.notes.append(f"middle {middle:g}, scale {low:g} to {high:g}")
    return middle


def refuse_minus_one(place: object, numbers: set[float]) -> None:
    """Raise DataError where -1 stands beside the numbers of a scale from 1."""
    others = numbers - {-1.0}
    if len(others) == len(numbers) or len(others) < 2 or min(others) < 1:
        return
    problem = f"{place}: a scale from 1 to {max(others):g}, and some values are -1"
    remedy = "leave the cell empty if it is missing; add 2 to all if it is a grade"
    raise DataError(problem, remedy)


SCORED_PAIR = ("chosen_score", "rejected_score")
_PAIRS = OwnLayout(
    "pairs",
    (
        Part("chosen", "chosen_score", mark=1.0),
        Part("rejected", "rejected_score", mark=0.0),
    ),
    (LABELS, SCORED_PAIR),
    _split_scores,
)
ANSWERS = OwnLayout(
    "answers",
    (Part("response", "score", ("label", "rating", "rank")),),
    (
        *(("response", "label"), ("response", "rating")),
        *(("response", "rank"), ("score", "label")),
    ),
    is_grouped=True,
)
LAYOUTS = (
    _PAIRS,
    OwnLayout(
        "battles",
        (Part("a", "score_a", ("mark_a",)), Part("b", "score_b", ("mark_b",))),
        (
            ("a", "b", "winner"),
            ("a", "b", "winner_a"),
            ("score_a", "score_b", "winner"),
        ),
        _name_winners,
    ),
    ANSWERS,
    OwnLayout(
        "lists of answers",
        (Part("responses", "scores", ("labels", "ratings")),),
        (("responses",), ("scores", "labels"), ("scores", "ratings")),
        _open_objects,
    ),
    _PAIRS._replace(needs=(("scores",),)),
)
# Roles of several layouts.
_SHARED = {"response", "score", "scores", "score_a", "score_b"}


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
