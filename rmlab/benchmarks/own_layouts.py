"""Layouts of people's own data: short functions from rows of roles to answers."""

import math
import re
from collections.abc import Callable, Hashable, Sequence
from itertools import combinations
from typing import NamedTuple

from rmlab.benchmarks.conversations import read_messages
from rmlab.benchmarks.roles import (
    SCORE_ROLES,
    OwnColumns,
    OwnTable,
    missing_columns,
    name_column,
)
from rmlab.benchmarks.sources import Cells
from rmlab.tables import LABELS, DataError
from rmlab.text import short


class Answer(NamedTuple):
    """An answer as a file has it.

    `item` tells comparisons apart, `row` is where the answer stands. `text` is None
    where a file has scores alone.
    """

    item: Hashable
    row: int
    label: str
    text: object
    score: float


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
# Numbers in these columns are signed grades, whatever values occur.
_GRADES = {"overall_preference", "preference_strength"}
_RIVAL = {"a": "b", "b": "a"}
_TEXT_FIELDS = ("response", "answer", "text", "content", "completion", "output")
_RATING_FIELDS = ("overall_score", "score", "rating")


def read_pairs(table: OwnTable) -> list[Answer]:
    """A pair a row: one or several answers of each label, and their scores."""
    has_texts = table.has(*LABELS)
    columns = {label: table.columns(label) for label in LABELS}
    if has_texts:
        _refuse_names(table, columns["chosen"])
    scores = _split_scores(table)
    answers = []
    for row in range(len(table.source)):
        for label in LABELS:
            values = _list_numbers(table, row, f"{label}_score", scores[label][row])
            texts: list[object] = [None] * len(values)
            if has_texts:
                texts = _list_answers([cells[row] for cells in columns[label]])
                values = values or [math.nan] * len(texts)
            if len(texts) != len(values):
                allowed = f"{len(texts)} numbers, one for each {label} answer"
                table.refuse(row, _score_role(table, label), allowed)
            for text, value in zip(texts, values, strict=True):
                answers.append(Answer(row, row, label, text, value))
    return answers


def _refuse_names(table: OwnTable, columns: Sequence[Cells]) -> None:
    """Raise DataError where a column of chosen answers names the better column."""
    present = {name.strip().lower() for name in table.source.columns}
    for name, cells in zip(table.roles["chosen"], columns, strict=True):
        if cells and all(str(cell).strip().lower() in present for cell in cells):
            problem = f"{table.source.place}: {name!r} holds names of columns, no texts"
            raise DataError(problem, f"pass {name_column('winner', name)}")


def _list_answers(cells: Sequence[object]) -> list[object]:
    """The answers of one label: a cell may hold several; of several columns an empty
    cell is one answer fewer.
    """
    if len(cells) > 1:
        filled = [cell for cell in cells if cell not in (None, "")]
        return filled or [None]
    (cell,) = cells
    if isinstance(cell, list) and cell and read_messages(cell) is None:
        return cell
    return [cell]


def _score_role(table: OwnTable, label: str) -> str:
    role = f"{label}_score"
    return role if table.has(role) else "scores"


def _split_scores(table: OwnTable) -> dict[str, Cells]:
    """The scores of each label by row, from columns of their own or from one column: an
    object by label, or a list with the chosen answers first.
    """
    of_label = {label: table.cells(f"{label}_score") for label in LABELS}
    if not table.has("scores") or table.has("chosen_score", "rejected_score"):
        return of_label
    numbers = table.cells("num_correct")
    chosen: Cells = []
    rejected: Cells = []
    for row, cell in enumerate(table.cells("scores")):
        if isinstance(cell, dict):
            chosen.append(cell.get("chosen"))
            rejected.append(cell.get("rejected"))
            continue
        values = flatten(cell)
        n_chosen = 1
        if table.has("chosen"):
            n_chosen = len(
                _list_answers([cells[row] for cells in table.columns("chosen")])
            )
        elif table.has("num_correct"):
            n_chosen = _count(table, row, numbers[row], len(values))
        chosen.append(values[:n_chosen])
        rejected.append(values[n_chosen:])
    return {"chosen": chosen, "rejected": rejected}


def _count(table: OwnTable, row: int, cell: object, n_scores: int) -> int:
    """How many of the scores, the first ones, are those of chosen answers."""
    number = _to_number(cell, ".")
    if number is None or number % 1 or not 0 < number < n_scores:
        allowed = (
            "at least 1 and less than there are scores (chosen answers come first)"
        )
        table.refuse(row, "num_correct", allowed)
    return int(number)


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


def _list_numbers(table: OwnTable, row: int, role: str, cell: object) -> list[float]:
    """The scores in a cell; none without a column, NaN for an empty cell."""
    if isinstance(cell, float):
        return [cell]
    if cell is None and not table.has(role) and not table.has("scores"):
        return []
    return [read_number(table, row, role, part) for part in flatten(cell)]


def read_number(table: OwnTable, row: int, role: str, cell: object) -> float:
    """A cell as a number, with the file's decimal comma; NaN for an empty one."""
    if isinstance(cell, float):
        return cell
    if cell is None or cell == "":
        return math.nan
    number = _to_number(cell, table.source.comma)
    if number is None:
        role = role if table.has(role) else "scores"
        table.refuse(row, role, "a number (0.5, not 0,5)")
    return number


def _to_number(cell: object, comma: str) -> float | None:
    """A cell as a number; None where it is none."""
    if isinstance(cell, bool):
        return None
    try:
        return float(str(cell).replace(comma, "."))
    except ValueError:
        return None


def read_sides(table: OwnTable) -> list[Answer]:
    """Two answers side by side, and which of them won; ties are left out."""
    has_scores = table.has("score_a", "score_b")
    if not has_scores:
        table.require("a", "b")
    winners = _find_winners(table)
    texts = {side: table.cells(side) for side in "ab"}
    scores = {side: table.cells(f"score_{side}") for side in "ab"}
    answers = []
    for row, winner in enumerate(winners):
        if winner not in _RIVAL:
            table.left_out[winner] += 1
            continue
        for label, side in (("chosen", winner), ("rejected", _RIVAL[winner])):
            score = read_number(table, row, f"score_{side}", scores[side][row])
            answers.append(Answer(row, row, label, texts[side][row], score))
    if not answers:
        problem = f"{table.source.place}: no row names a winner ({_count_words(table)})"
        raise DataError(problem, "allowed: a, b, tie, 1, 2, A>B, B>A")
    return answers


def _count_words(table: OwnTable) -> str:
    words = [f"{word}: {n}" for word, n in table.left_out.most_common(5)]
    return ", ".join(words)


def _find_winners(table: OwnTable) -> list[str]:
    """The side that won in each row, "tie", or the cell that names neither."""
    if not table.has("winner") and table.has("winner_a", "winner_b"):
        return _read_one_hot(table)
    cells = table.cells("winner")
    numbers = {_to_grade(table, cell) for cell in cells} - {None}
    sides = _side_numbers(table, numbers)
    if numbers and sides is None:
        return _read_scale(table, cells)

    words = dict.fromkeys(_TIES, "tie") | (sides or {})
    for side, rival in _RIVAL.items():
        columns = [name.strip().lower() for name in table.roles[side]]
        for word in (
            side,
            f"model_{side}",
            f"{side}>{rival}",
            f"{rival}<{side}",
            *columns,
        ):
            words[word] = side
    winners = []
    for row, cell in enumerate(cells):
        name = _normalise(cell)
        number = _to_grade(table, cell)
        word = name if number is None else f"{number:g}"
        winner = words.get(word) or _match_model(table, row, name)
        winners.append(winner or short(cell, 40))
    return winners


def _read_one_hot(table: OwnTable) -> list[str]:
    """The side whose column is 1 or true; a tie where neither is."""
    winners = []
    columns = zip(table.cells("winner_a"), table.cells("winner_b"), strict=True)
    for first, second in columns:
        is_first = _normalise(first) == "1"
        is_second = _normalise(second) == "1"
        if is_first == is_second:
            winners.append("tie")
        else:
            winners.append("a" if is_first else "b")
    return winners


def _match_model(table: OwnTable, row: int, name: str) -> str | None:
    """The side whose column with the model's name says the winner's; None where both
    do.
    """
    matches = []
    for side in _RIVAL:
        models = table.source.columns.get(f"model_{side}")
        if models is not None and name and name == _normalise(models[row]):
            matches.append(side)
    return matches[0] if len(matches) == 1 else None


def _to_grade(table: OwnTable, cell: object) -> float | None:
    """A winner's cell as a finite number; None where it is none."""
    number = _to_number(_normalise(cell), table.source.comma)
    return number if number is not None and math.isfinite(number) else None


def _is_graded(table: OwnTable) -> bool:
    return table.roles["winner"][0].strip().lower() in _GRADES


def _side_numbers(table: OwnTable, numbers: set[float | None]) -> dict[str, str] | None:
    """The sides that numbers mean; None where they are a scale."""
    if not numbers or table.better is not None or _is_graded(table):
        return None
    names = [table.roles[side][0] for side in "ab" if table.has(side)] or ["a", "b"]
    digits = [re.sub(r"\D", "", name) for name in names]
    is_label = table.roles["winner"][0].strip().lower() in ("label", "labels")
    is_shp = is_label and names[0].strip().lower() == "human_ref_a"
    if numbers <= {0.0, 1.0} and digits == ["0", "1"] and not is_label:
        return {"0": "a", "1": "b"}
    if numbers <= {1.0, 2.0} and 2.0 in numbers:
        return {"1": "a", "2": "b"}
    if numbers <= {0.0, 0.5, 1.0} and is_shp:
        # As in SHP, where the label says whether the first answer is better.
        return {"1": "a", "0": "b", "0.5": "tie"}
    return None


def _read_scale(table: OwnTable, cells: Cells) -> list[str]:
    """The winners of a scale: -3 to 3, or 1 to 5, whose middle is a tie.

    The distance from the middle is the column `strength`.
    """
    place = table.source.place
    column = table.roles["winner"][0]
    values = [_to_grade(table, cell) for cell in cells]
    numbers = [value for value in values if value is not None]
    low = min(numbers)
    high = max(numbers)
    if table.better is None:
        problem = (
            f"{place}: winner: column {column!r} holds numbers from {low} to {high}"
        )
        remedy = (
            "write 'a' and 'b' into it; load_preferences also takes "
            "better='b' (--better b) where larger values favour the second answer"
        )
        raise DataError(problem, remedy)
    if not _is_graded(table):
        _refuse_minus_one(table, "winner", numbers)
    middle = 0.0 if _is_graded(table) else _find_middle(numbers)
    if middle is None:
        problem = (
            f"{place}: column {column!r} goes from {low:g} to {high:g},"
            " and its middle is not known"
        )
        remedy = (
            "subtract the middle, so that 0 is a tie; a column 'preference_strength'"
            " is read so whatever its values"
        )
        raise DataError(problem, remedy)
    winners = []
    strengths: Cells = []
    for cell, value in zip(cells, values, strict=True):
        if value is None:
            winners.append(short(cell, 40))
            strengths.append(None)
            continue
        strengths.append(abs(value - middle))
        if value == middle:
            winners.append("tie")
        else:
            favours = table.better
            winners.append(favours if value > middle else _RIVAL[favours])
    table.extra["strength"] = strengths
    return winners


def _refuse_minus_one(table: OwnTable, role: str, numbers: Sequence[float]) -> None:
    """Raise DataError where -1 stands beside the numbers of a scale from 1."""
    others = {number for number in numbers if number != -1}
    is_scale = others and all(number >= 1 and number % 1 == 0 for number in others)
    if is_scale and len(others) < len({*numbers}) and max(others) >= 3:
        column = table.roles[role][0]
        problem = f"{table.source.place}: {column!r} goes from 1 to {max(others):g}"
        remedy = "leave the cell empty if it is missing; add 2 if -1 is a grade"
        raise DataError(f"{problem}, and some of its values are -1", remedy)


def _find_middle(numbers: Sequence[float]) -> float | None:
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


def _normalise(cell: object) -> str:
    """A winner's cell as text: 1.0 is "1", and "A >> B" is "a>b"."""
    if cell is None:
        return ""
    if isinstance(cell, bool) or str(cell).lower() in ("true", "false"):
        return "1" if str(cell).lower() == "true" else "0"
    text = str(cell).strip().lower().removesuffix(".0")
    return re.sub(r"\s*([<>=])\1*\s*", r"\1", text)


class _Marked(NamedTuple):
    """An answer with its mark: a label, or a rating."""

    item: Hashable
    row: int
    text: object
    mark: str | float
    score: float


def read_rows(table: OwnTable) -> list[Answer]:
    """An answer a row, with a label or a rating.

    With several models the rows of a prompt come in the order of their texts, so that
    one text has one slot.
    """
    mark_role = next(r for r in ("label", "rating", "rank") if table.has(r))
    _refuse_ranks(table)
    scores = table.cells("score")
    marks = table.cells(mark_role)
    texts = table.cells("response")
    marked = []
    ratings = []
    for row, item in enumerate(_find_prompts(table)):
        mark: str | float
        if mark_role == "label":
            try:
                mark = read_label(table, row)
            except DataError as error:
                table.bad.setdefault(item, error)
                mark = "chosen"
        else:
            mark = read_number(table, row, mark_role, marks[row])
            mark = -mark if mark_role == "rank" else mark
            ratings.append(abs(mark) if mark_role == "rank" else mark)
        score = read_number(table, row, "score", scores[row])
        marked.append(_Marked(item, row, texts[row], mark, score))
    _refuse_minus_one(table, mark_role, ratings)
    if table.has("model") and not table.has("response"):
        _refuse_unnamed(table, marked)
    if table.has("model"):
        marked.sort(key=lambda answer: str(answer.text))
    return _list_marked(table, marked)


def _refuse_unnamed(table: OwnTable, marked: Sequence[_Marked]) -> None:
    """Raise DataError where a model has several scores of a label, and nothing says
    which answer each is of.
    """
    models = table.names("model")
    seen = set()
    for answer in marked:
        key = (answer.item, answer.mark)
        if key in seen and len({*models}) > 1:
            problem = f"{table.source.place}: row {answer.row} repeats a prompt's label"
            remedy = "add a column that tells them apart: the text, or a slot"
            raise DataError(problem, remedy)
        seen.add(key)


def _refuse_ranks(table: OwnTable) -> None:
    """Raise DataError for ranks that are given as ratings: the best has the lowest."""
    for role, name in _list_ratings(table):
        if "rank" in name.lower():
            problem = (
                f"{table.source.place}: {name!r} is a rating, and looks like ranks"
            )
            remedy = f"pass {name_column('rank', name)}, 1 is the best"
            if role == "ratings":
                remedy = "turn them round, so that the best answer has the largest"
            raise DataError(problem, remedy)


def _list_ratings(table: OwnTable) -> list[tuple[str, str]]:
    """The columns of ratings with their roles."""
    roles = ("rating", "ratings")
    return [(role, name) for role in roles for name in table.roles[role]]


def read_label(table: OwnTable, row: int) -> str:
    """The label of a row: chosen or rejected, 1 or 0, true or false."""
    word = str(table.cells("label")[row]).strip().lower()
    if word not in _LABEL_WORDS:
        allowed = "chosen or rejected, 1 or 0, true or false"
        table.refuse(row, "label", allowed, f"or pass {name_column('label')}")
    return _LABEL_WORDS[word]


def _find_prompts(table: OwnTable) -> list[Hashable]:
    """What tells the prompt of each row: its id, or else its text and context."""
    group = ["id"] if table.has("id") else ["prompt", "system", "history", "tools"]
    if not table.has(group[0]):
        problem = f"{table.source.place}: answers a row need a column for their prompt"
        raise DataError(problem, f"pass {name_column('id')}")
    keys = ("model", "benchmark", "domain", *group)
    roles = [role for role in keys if table.has(role)]
    for role in ("model", group[0]):
        cells = table.cells(role)
        if table.has(role) and None in cells:
            table.refuse(cells.index(None), role, "given in every row", "fill it in")
    columns = [table.cells(role) for role in roles]
    items: list[Hashable] = [repr(key) for key in zip(*columns, strict=True)]
    if table.has("id", "prompt"):
        _refuse_reused(table, items)
    return items


def _refuse_reused(table: OwnTable, items: Sequence[Hashable]) -> None:
    """Raise DataError where one id has two prompts."""
    asked_first: dict[Hashable, object] = {}
    rows = zip(items, table.cells("prompt"), strict=True)
    for row, (item, asked) in enumerate(rows):
        if asked_first.setdefault(item, asked) != asked:
            remedy = f"or pass {name_column('family', table.roles['id'][0])}"
            table.refuse(row, "id", "that of one prompt", remedy)


def read_lists(table: OwnTable) -> list[Answer]:
    """A prompt a row, with lists: of answers and their labels or ratings, or of objects
    that hold both.
    """
    mark_role = next((r for r in ("labels", "ratings") if table.has(r)), "responses")
    _refuse_ranks(table)
    columns = {role: table.cells(role) for role in ("scores", mark_role)}
    marked = []
    ratings: list[float] = []
    for row, parts in enumerate(table.cells("responses")):
        if not isinstance(parts, list):
            table.refuse(row, "responses", "a list of answers")
        if not parts:
            table.left_out["no answer"] += 1
        values: Sequence[object] = [math.nan] * len(parts)
        if table.has("scores"):
            values = flatten(columns["scores"][row])
        marks: list[object] = [_mark_of(part) for part in parts]
        texts = parts
        if mark_role == "responses":
            texts = [_text_of(part) for part in parts]
        else:
            marks = flatten(columns[mark_role][row])
        for role, listed in ((mark_role, marks), ("scores", values)):
            if len(listed) != len(parts):
                table.refuse(row, role, f"one for each of the {len(parts)} responses")
        for text, mark, value in zip(texts, marks, values, strict=True):
            score = read_number(table, row, "scores", value)
            read_mark: str | float
            if mark_role == "labels":
                word = str(mark).lower()
                if word not in _LABEL_WORDS:
                    allowed = f"1 or 0 for each of the {len(parts)} responses"
                    table.refuse(row, "labels", allowed)
                read_mark = _LABEL_WORDS[word]
            else:
                read_mark = read_number(table, row, mark_role, mark)
                ratings.append(read_mark)
            marked.append(_Marked(row, row, text, read_mark, score))
    _refuse_minus_one(table, mark_role, ratings)
    return _list_marked(table, marked)


def _text_of(part: object) -> object:
    """The text of an answer that is an object with its rating."""
    if not isinstance(part, dict):
        return part
    return next((part[name] for name in _TEXT_FIELDS if name in part), None)


def _mark_of(part: object) -> object:
    """The rating of an answer that is an object; rank 1 is the best."""
    if not isinstance(part, dict):
        return "no rating"
    if part.get("rank") is not None:
        rank = _to_number(part["rank"], ".")
        return "no rank" if rank is None else -rank
    return next((part[name] for name in _RATING_FIELDS if name in part), None)


def _list_marked(table: OwnTable, marked: Sequence[_Marked]) -> list[Answer]:
    """Answers with labels as they are; rated ones as the pairs of each prompt.

    Equal ratings are ties, which are left out.
    """
    answers = []
    rated: dict[Hashable, list[_Marked]] = {}
    for answer in marked:
        item, row, text, mark, score = answer
        if isinstance(mark, str):
            answers.append(Answer(item, row, mark, text, score))
        else:
            rated.setdefault(item, []).append(answer)
    for item, of_prompt in rated.items():
        if len(of_prompt) == 1:
            table.left_out["the only answer"] += 1
        for (i, first), (j, second) in combinations(enumerate(of_prompt), 2):
            difference = float(first.mark) - float(second.mark)
            if not difference:
                table.left_out["tie"] += 1
            elif math.isnan(difference):
                table.left_out["without a rating"] += 1
            else:
                better, worse = (first, second) if difference > 0 else (second, first)
                pair = item if len(of_prompt) == 2 else (item, i, j)
                for label, side in (("chosen", better), ("rejected", worse)):
                    answers.append(Answer(pair, side.row, label, side.text, side.score))
    return answers


class OwnLayout(NamedTuple):
    """A layout: its name, the roles that show it (any group of them), its reader, and
    whether a prompt has several rows.
    """

    name: str
    needs: Sequence[Sequence[str]]
    read: Callable[[OwnTable], list[Answer]]
    is_grouped: bool = False


LAYOUTS = (
    OwnLayout("pairs", (LABELS, ("chosen_score", "rejected_score")), read_pairs),
    OwnLayout(
        "battles",
        (
            ("a", "b", "winner"),
            ("a", "b", "winner_a"),
            ("score_a", "score_b", "winner"),
        ),
        read_sides,
    ),
    OwnLayout(
        "answers",
        (
            ("response", "label"),
            ("score", "label"),
            ("response", "rating"),
            ("response", "rank"),
        ),
        read_rows,
        is_grouped=True,
    ),
    OwnLayout("lists of answers", (("responses",),), read_lists),
    OwnLayout("pairs", (("scores",),), read_pairs),
)


def find_layout(
    table: OwnTable, mapping: OwnColumns, *, needs_scores: bool
) -> OwnLayout:
    """The layout of a role that a user names, or the first whose columns are there.

    Raises DataError where there is none, or where scores are needed and missing.
    """
    layout = _choose_layout(table, mapping)
    has_scores = any(table.has(role) for role in SCORE_ROLES)
    if needs_scores and not has_scores:
        place = table.source.place
        problem = f"{place}: no column for chosen_score and rejected_score"
        present = short(list(table.source.columns), 200)
        score = f"rmlab score {place} MODEL"
        remedy = f"pass {name_column('chosen_score')}, or score the texts: {score}"
        raise DataError(f"{problem}; columns: {present}", remedy)
    if layout is not None:
        return layout
    remedy = "pass its answers' columns and winner= for two answers side by side"
    error = missing_columns(table.source, LABELS)
    raise DataError(error.problem, f"{error.remedy}, or {remedy}")


def _choose_layout(table: OwnTable, mapping: OwnColumns) -> OwnLayout | None:
    for layout in LAYOUTS:
        named = {role for needs in layout.needs for role in needs}
        own = named - {"response", "score", "scores", "score_a", "score_b"}
        if any(mapping.get(role) for role in own):
            return layout
    for layout in LAYOUTS:
        if any(table.has(*needs) for needs in layout.needs):
            return layout
    return None
