"""People's own preference data and scores: frames, files and hub datasets."""

import logging
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import Literal, NamedTuple

import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks.conversations import Prompt, Response, name_family, split_answers
from rmlab.benchmarks.own_layouts import (
    SCORED_PAIR,
    Answer,
    OwnLayout,
    find_layout,
    find_mark,
    refuse_minus_one,
)
from rmlab.benchmarks.own_prompts import CONTEXT, read_answer, read_prompt
from rmlab.benchmarks.registry import looks_like
from rmlab.benchmarks.roles import (
    ROLES,
    SCORE_ROLES,
    OwnColumns,
    OwnTable,
    match_roles,
    name_column,
    name_value,
)
from rmlab.benchmarks.sources import IN_MEMORY, Cells, Source, read_source
from rmlab.tables import PROMPT, DataError, check_option
from rmlab.text import short

_log = logging.getLogger(__name__)

BadRows = Literal["refuse", "drop"]

_RESERVED = {*ROLES, *tables.RESPONSES, *tables.SCORES, *tables.PAIRS}
# Characters; a longer cell is a text, and texts stay in prompt and response.
_LONGEST_EXTRA = 200
_NAMES = ("model", "benchmark", "domain", "subset", "family")


def load_preferences(
    source: object,
    *,
    name: str | None = None,
    columns: OwnColumns | None = None,
    winner: str | None = None,
    better: Literal["a", "b"] | None = None,
    split: str | None = None,
    revision: str | None = None,
    on_bad_rows: BadRows = "refuse",
) -> pd.DataFrame:
    """Load preference data as a responses table.

    Columns are found by their usual names. The layouts that are read:

    - pairs: `chosen` and `rejected`, each a text, several texts, a message or a
      conversation that ends with the answer;
    - battles: `response_a`, `response_b` and a `winner` (or `winner_model_a` ...), also
      graded: -3 to 3 or 1 to 5;
    - an answer a row: `response` with a `label` (chosen, rejected, 1, 0), a `rating` or
      a `rank`;
    - lists: `responses` with `labels` or `ratings`, or `completions` that hold texts
      and ratings.

    The prompt is `prompt`, `question`, `messages` or `instruction` with the columns
    `system`, `history` and `tools`, or the shared beginning of the answers. Optional:
    `id` (default: the row's number), `domain`, `subset`, `benchmark`, `family` (the
    cluster; see Notes), and with scores `model`. Other columns of short texts or
    numbers stay as extra columns. "Layouts of public data" in the documentation shows
    how public data sets are read.

    Parameters
    ----------
    source : DataFrame, list of dicts, str or Path
        A DataFrame, polars or Arrow table or `datasets.Dataset`; dicts; a file (JSON,
        JSON lines, CSV, TSV or Parquet; .gz and .zst are unpacked); or a hub dataset
        "owner/name".
    name : str, optional
        Name of the benchmark (default: the file's name).
    columns : mapping, optional
        The names above to the names in the data, for example `{"chosen": "better",
        "rejected": ["worse_1", "worse_2"]}`; a dot leads into a nested object. None as
        a value ignores a column. Of several columns an empty cell means one answer
        fewer.
    winner : str, optional
        The column that says which of two answers won: a or b, 1 or 2, `A>B` or `B>A`,
        the name of an answer's column or of its model, or a tie. Ties are left out and
        counted.
    better : {"a", "b"}, optional
        The answer that larger numbers of a graded winner favour. The middle of the
        scale is a tie; the distance from it becomes the column `strength`.
    split, revision : str, optional
        Part and version of a dataset.
    on_bad_rows : {"refuse", "drop"}
        Whether a prompt with an empty or unreadable answer or label raises, or is left
        out and counted.

    Returns
    -------
    DataFrame
        One row per answer. Styles are missing: RM-Bench's own files need `load`.
        `attrs["understood"]` says which columns were read as what, what was ignored and
        what was left out.

    Raises
    ------
    DataError
        If a column is missing or a row cannot be read, for example because its answers
        have different prompts.

    Notes
    -----
    Where prompts repeat, the column `family` is the same for equal prompts. It is the
    default cluster of intervals, and `n_prompts` counts families.

    Examples
    --------
    >>> row = {"question": "2 + 2?", "chosen": "4", "rejected": ["5", "22"]}
    >>> responses = load_preferences([row], name="sums")
    >>> responses[["id", "label", "slot", "prompt", "response"]]
      id     label  slot  prompt response
    0  0    chosen     0  2 + 2?        4
    1  0  rejected     0  2 + 2?        5
    2  0  rejected     1  2 + 2?       22
    """
    check_option("on_bad_rows", on_bad_rows, ["refuse", "drop"])
    if better is not None:
        check_option("better", better, ["a", "b"])
    data = read_source(source, split, revision)
    benchmark = records.file_stem(data.place) if name is None else name
    tables.require_text("name", benchmark)
    mapping = dict(columns or {})
    if winner is not None:
        mapping["winner"] = winner

    table = match_roles(data, mapping, better)
    reading = read_table(table, mapping, drop_bad=on_bad_rows == "drop")
    first_row = {column: cells[0] for column, cells in data.columns.items()}
    for like in looks_like(data.place, first_row):
        message = f"{data.place}: may be a file of {like.title}"
        _warn_once(f"{message}; load({like.name!r}, path=...) knows its rules")
    answers = list_rows(reading, benchmark).drop(columns=["model", "score"])
    spelled = answers["response"].map(str)
    is_copy = answers[tables.KEY].assign(spelled=spelled).duplicated()
    responses = tables.check_responses(answers[~is_copy])
    responses.attrs["understood"] = _describe(reading, responses)
    return responses


def load_scores(
    data: Source, columns: OwnColumns, model: str | None, name: str | None = None
) -> pd.DataFrame:
    """Scores of people's own data, under the ids that `load_preferences` gives them;
    not checked yet.

    The benchmark is called after the file; so is the model where neither `model` nor a
    column nor `name` says otherwise. Texts are not needed.
    """
    table = match_roles(data, columns, is_scored=True)
    if not any(map(table.has, SCORE_ROLES)):
        try:
            table.require(*SCORED_PAIR)
        except DataError as error:
            score = f"rmlab score {data.place} MODEL"
            remedy = f"{error.remedy}, or score the texts: {score}"
            raise DataError(error.problem, remedy) from None
    reading = read_table(table, columns)
    benchmark = records.file_stem(data.place)
    scores = list_rows(reading, benchmark).drop(columns=["prompt", "response"])
    _describe(reading, scores)
    scores["model"] = scores["model"].fillna(name or benchmark)
    if model is not None:
        scores["model"] = model
    return scores


class Group(NamedTuple):
    """The answers to a prompt: its number among the prompts, the row of each answer,
    and what stands there.

    `is_split`: the prompt was a part of the answers.
    """

    number: int
    first_row: int
    rows: Sequence[int]
    answers: Sequence[Answer]
    prompt: Prompt | None
    responses: Sequence[Response | None]
    is_split: bool


class Reading(NamedTuple):
    """The prompts of some data, how these were understood, and how many prompts could
    not be read.

    `is_rated`: marks are ratings, not labels. `compares`: each prompt is a comparison.
    """

    table: OwnTable
    layout: OwnLayout
    groups: list[Group]
    is_rated: bool
    compares: bool
    n_bad: int


def read_table(
    table: OwnTable,
    mapping: OwnColumns,
    *,
    drop_bad: bool = False,
    compares: bool = True,
) -> Reading:
    """The prompts of people's own data, by the layout that its columns show.

    `compares`: a prompt without a chosen or without a rejected answer is bad.
    """
    layout = find_layout(table, mapping)
    layout.prepare(table)
    is_rated = layout.name == "battles"
    if layout.name not in ("pairs", "battles"):
        is_rated = find_mark(table) not in ("label", "labels")

    groups = []
    errors = []
    for number, rows in enumerate(_group_rows(table, layout)):
        try:
            group = _read_group(table, layout, number, rows)
            if compares and not is_rated:
                _require_labels(table, group)
        except DataError as error:
            errors.append(error)
            continue
        groups.append(group)
    if errors and (not drop_bad or not groups):
        _refuse_rows(errors)
    if is_rated:
        marks = {answer.mark for group in groups for answer in group.answers}
        refuse_minus_one(table.source.place, marks)
    return Reading(table, layout, groups, is_rated, compares, len(errors))


def _refuse_rows(errors: Sequence[DataError]) -> None:
    """Raise the first error with the number of prompts like it."""
    first = errors[0]
    problem = first.problem
    if len(errors) > 1:
        problem = f"{problem} ({len(errors)} such prompts)"
    raise DataError(problem, f"{first.remedy}, or pass on_bad_rows='drop'")


def _group_rows(table: OwnTable, layout: OwnLayout) -> Iterable[Sequence[int]]:
    """The rows of each prompt: one, or those of one id, or of one text and context."""
    n_rows = len(table.source)
    if not layout.is_grouped:
        return [[row] for row in range(n_rows)]
    name = "id" if table.has("id") else "prompt"
    if not table.has(name):
        problem = f"{table.source.place}: answers a row need a column for their prompt"
        raise DataError(problem, f"pass {name_column('id')}")
    for role in ("model", name):
        cells = table.cells(role)
        if table.has(role) and None in cells:
            table.refuse(cells.index(None), role, "given in every row", "fill it in")
    context = CONTEXT if name == "prompt" else ()
    roles = [
        role for role in ("model", *PROMPT[:-1], name, *context) if table.has(role)
    ]
    keys = map(repr, zip(*map(table.cells, roles), strict=True))
    rows_of_key: dict[str, list[int]] = {}
    for row, key in enumerate(keys):
        rows_of_key.setdefault(key, []).append(row)
    return rows_of_key.values()


def _read_group(
    table: OwnTable, layout: OwnLayout, number: int, rows: Sequence[int]
) -> Group:
    """The prompt and the responses of a group."""
    asked = table.cells("prompt")
    for row in rows:
        if table.has("id") and asked[row] != asked[rows[0]]:
            remedy = f"or pass {name_column('family', table.roles['id'][0])}"
            table.refuse(row, "id", "that of one prompt", remedy)
    answers: list[Answer] = []
    answer_rows: list[int] = []
    for row in rows:
        exploded = layout.explode(table, row)
        answers += exploded
        answer_rows += [row] * len(exploded)
    prompt = read_prompt(table, rows[0])
    role = next((r for r in _TEXT_ROLES if table.has(r)), None)
    if role is None or not answers:
        responses = [None] * len(answers)
        return Group(number, rows[0], answer_rows, answers, prompt, responses, False)

    turns = [
        read_answer(table, row, _name_role(role, answer), answer.text)
        for row, answer in zip(answer_rows, answers, strict=True)
    ]
    last_role = _name_role(role, answers[-1])
    split = split_answers(prompt, turns)
    if split is None:
        allowed = "conversations with one prompt, each ending with the assistant's"
        table.refuse(rows[-1], last_role, f"{allowed} answer")
    if split.prompt is None and not table.is_scored:
        table.refuse(rows[0], "prompt", "given, or begin the answers", "fill it in")
    for row, answer, response in zip(
        answer_rows, answers, split.responses, strict=True
    ):
        if not tables.is_response(response):
            allowed = "an answer that is not empty"
            table.refuse(row, _name_role(role, answer), allowed)
    return Group(number, rows[0], answer_rows, answers, *split)


_TEXT_ROLES = ("chosen", "response", "responses", "a")


def _name_role(role: str, answer: Answer) -> str:
    """The role of the column that an answer stands in, for messages."""
    return "rejected" if role == "chosen" and not answer.mark else role


def _require_labels(table: OwnTable, group: Group) -> None:
    marks = {answer.mark for answer in group.answers}
    if len(marks) == 1:
        role = "label" if table.has("label") else "prompt"
        allowed = "a chosen and a rejected answer to each prompt"
        remedy = "load single answers with load_pool"
        table.refuse(group.rows[0], role, allowed, remedy)


class _Labelled(NamedTuple):
    """An answer of a group, by its number there, as part of an item."""

    item: str
    label: str
    place: int


def _compare(
    reading: Reading, group: Group, places: Sequence[int]
) -> Iterator[_Labelled]:
    """The items of a prompt: of labelled answers one, of rated ones their pairs.

    `places` number the answers. Equal ratings are ties, which are left out.
    """
    marks = [answer.mark for answer in group.answers]
    if not reading.is_rated:
        for index, mark in enumerate(marks):
            yield _Labelled("", "chosen" if mark else "rejected", index)
        return
    left_out = reading.table.left_out
    left_out["the only answer"] += len(marks) == 1
    for first, second in combinations(range(len(marks)), 2):
        difference = marks[first] - marks[second]
        if not difference or math.isnan(difference):
            left_out["without a rating" if difference else "tie"] += 1
            continue
        item = f":{places[first]}-{places[second]}" if len(marks) > 2 else ""
        chosen, rejected = (first, second) if difference > 0 else (second, first)
        yield _Labelled(item, "chosen", chosen)
        yield _Labelled(item, "rejected", rejected)


def list_rows(
    reading: Reading, benchmark: str, *, keep_all: bool = False
) -> pd.DataFrame:
    """A row per answer of all items, not checked yet.

    `keep_all`: also columns of lists and of long texts stay.
    """
    table = reading.table
    names = {role: table.names(role) for role in _NAMES}
    bases = _name_groups(reading, names)
    places = _place_answers(reading, names, bases)
    rows = []
    for group, base, group_places in zip(reading.groups, bases, places, strict=True):
        family = None if group.prompt is None else name_family(group.prompt)
        for item, label, index in _compare(reading, group, group_places):
            rows.append(
                {
                    "group": group.number,
                    "row": group.rows[index],
                    "id": base + item,
                    "label": label,
                    "slot": 0 if reading.is_rated else group_places[index],
                    "prompt": group.prompt,
                    "response": group.responses[index],
                    "score": group.answers[index].score,
                    "prompt_family": family,
                }
            )
    if not rows:
        counts = dict(table.left_out)
        problem = f"{table.source.place}: no winner, no two different ratings"
        raise DataError(
            f"{problem}; left out: {counts}", "allowed: a, b, A>B, tie, 1, 2"
        )
    return _add_columns(reading, pd.DataFrame(rows), names, benchmark, keep_all)


def _add_columns(
    reading: Reading,
    frame: pd.DataFrame,
    names: Mapping[str, Sequence[str | None]],
    benchmark: str,
    keep_all: bool,
) -> pd.DataFrame:
    """The rows with their names and extra columns."""
    table = reading.table
    if not any(group.is_split for group in reading.groups):
        texts = _strip_prompts(frame["prompt"], frame["response"].tolist())
        frame["response"] = pd.Series(texts, dtype=object)
    rows = frame.pop("row").tolist()
    columns = {role: [cells[row] for row in rows] for role, cells in names.items()}
    named = pd.DataFrame(columns, index=frame.index, dtype="str")
    added = {name: table.source.columns[name] for name in list_extra(table, keep_all)}
    if "strength" in table.added:
        added["strength"] = table.added["strength"]
    extra = {name: [cells[row] for row in rows] for name, cells in added.items()}
    frame = pd.concat([frame, named, pd.DataFrame(extra, index=frame.index)], axis=1)

    frame["benchmark"] = frame["benchmark"].fillna(benchmark)
    frame["domain"] = frame["domain"].fillna(frame["subset"]).fillna(frame["benchmark"])
    frame["subset"] = frame["subset"].fillna(frame["domain"])
    frame["family"] = frame["family"].fillna(frame.pop("prompt_family").astype("str"))
    item = ["model", *PROMPT]
    items = frame.drop_duplicates([*item, "group"])
    is_repeated = items.duplicated(item)
    if is_repeated.any():
        first = short(items["id"][is_repeated].iloc[0])
        problem = f"{table.source.place}: 'id' {first} occurs twice in a domain"
        family = name_column("family", table.roles["id"][0])
        remedy = f"repair the ids, or take them for families of prompts: {family}"
        raise DataError(problem, remedy)
    frame = frame.drop(columns="group")
    n_prompts = len(frame.drop_duplicates(PROMPT))
    if not table.has("family") and frame["family"].nunique() in (0, n_prompts):
        return frame.drop(columns="family")
    return frame


def list_extra(table: OwnTable, keep_all: bool = False) -> list[str]:
    """The columns without a role: of short texts and numbers, or all."""
    roles = {name for names in table.roles.values() for name in names}
    used = roles | _RESERVED | table.added.keys()
    columns = table.source.columns
    names = [name for name in columns if name not in used]
    return [name for name in names if keep_all or _is_short(columns[name])]


def _is_short(cells: Cells) -> bool:
    for cell in cells:
        if cell is None or isinstance(cell, bool | float):
            continue
        if not pd.api.types.is_scalar(cell) or len(short(cell, 300)) > _LONGEST_EXTRA:
            return False
    return True


def _name_groups(
    reading: Reading, names: Mapping[str, Sequence[str | None]]
) -> list[str]:
    """The id of every prompt: the cell of its column, or its number. Prompts with the
    same content have the number of the first, whatever the order of the models' rows.
    """
    table = reading.table
    first_rows = [group.first_row for group in reading.groups]
    if table.has("id"):
        return [_read_id(table, row) for row in first_rows]
    numbers = [str(group.number) for group in reading.groups]
    if not table.has("model"):
        return numbers
    contents = []
    for group, row in zip(reading.groups, first_rows, strict=True):
        responses = () if reading.layout.is_grouped else group.responses
        shared = (names["benchmark"][row], names["domain"][row])
        contents.append(repr((shared, group.prompt, responses)))
    models = [names["model"][row] for row in first_rows]
    return [numbers[first] for first in _find_first(contents, models)]


def _find_first(contents: Sequence[Hashable], models: Sequence[object]) -> list[int]:
    """For each row the first one with its content; the n-th of equal rows of a model is
    the n-th of the others'.
    """
    n_equal: Counter[object] = Counter()
    row_of_key: dict[object, int] = {}
    rows = []
    for row, (content, model) in enumerate(zip(contents, models, strict=True)):
        key = (content, n_equal[content, model])
        n_equal[content, model] += 1
        rows.append(row_of_key.setdefault(key, row))
    return rows


def _place_answers(
    reading: Reading, names: Mapping[str, Sequence[str | None]], bases: Sequence[str]
) -> list[list[int]]:
    """The place of each answer among those of its prompt and label, by content, so that
    it is the same for all models.
    """
    table = reading.table
    keys = []
    contents = []
    models = []
    extra = [table.source.columns[name] for name in list_extra(table, keep_all=True)]
    for group, base in zip(reading.groups, bases, strict=True):
        for index, row in enumerate(group.rows):
            mark = None if reading.is_rated else group.answers[index].mark
            keys.append((names["benchmark"][row], names["domain"][row], base, mark))
            models.append(names["model"][row])
            content: object = index
            if reading.layout.is_grouped:
                content = group.responses[index] or [cells[row] for cells in extra]
            contents.append(repr(content))
    firsts = list(range(len(keys)))
    if len({*models}) > 1:
        firsts = _find_first(list(zip(keys, contents, strict=True)), models)
        _refuse_unknown(reading, keys, contents, models)
    n_places: Counter[object] = Counter()
    place_of_first: dict[int, int] = {}
    for key, first in zip(keys, firsts, strict=True):
        if first not in place_of_first:
            place_of_first[first] = n_places[key]
            n_places[key] += 1
    placed = iter([place_of_first[first] for first in firsts])
    return [[next(placed) for _ in group.rows] for group in reading.groups]


def _refuse_unknown(
    reading: Reading,
    keys: Sequence[Hashable],
    contents: Sequence[str],
    models: Sequence[object],
) -> None:
    """Raise DataError where answers of several models cannot be told apart."""
    if not reading.layout.is_grouped or reading.table.has("response"):
        return
    orders: dict[object, list[object]] = {}
    for key, content, model in zip(keys, contents, models, strict=True):
        orders.setdefault(model, []).append((key, content))
    first, *others = orders.values()
    if len({*first}) < len(first) and any(order != first for order in others):
        problem = f"{reading.table.source.place}: a model's answers repeat"
        remedy = "add a column that tells them apart, such as the answer's number"
        raise DataError(problem, remedy)


def _read_id(table: OwnTable, row: int) -> str:
    """A whole number or a non-empty string."""
    value = table.cells("id")[row]
    is_number = isinstance(value, int) or (
        isinstance(value, float) and value.is_integer()
    )
    if isinstance(value, bool) or not (is_number or (value and isinstance(value, str))):
        allowed = "a whole number or a non-empty string"
        table.refuse(row, "id", allowed, "number the rows")
    return name_value(value)


def _strip_prompts(prompts: Iterable[object], responses: Cells) -> Cells:
    """Cut the prompt off the answers if every answer of every row begins with it."""
    endings: Cells = []
    for prompt, response in zip(prompts, responses, strict=True):
        if not isinstance(prompt, str) or not prompt.strip():
            return responses
        if not isinstance(response, str) or not response.startswith(prompt):
            return responses
        ending = response.removeprefix(prompt).lstrip()
        if not ending:
            return responses
        endings.append(ending)
    return endings


def _describe(reading: Reading, answers: pd.DataFrame) -> dict[str, object]:
    """What was understood, which is also said in one line where it is not obvious."""
    table = reading.table
    columns = {
        role: list(names)
        for role, names in table.roles.items()
        if names and role in table.used
    }
    extra = list_extra(table)
    used = set(extra).union(*columns.values())
    understood: dict[str, object] = {
        "layout": reading.layout.name,
        "columns": columns,
        "extra": extra,
        "ignored": [column for column in table.source.columns if column not in used],
    }
    n_items = len(answers.drop_duplicates(PROMPT))
    notes = []
    left_out = +table.left_out
    if left_out:
        understood["left_out"] = dict(left_out)
        counts = ", ".join(f"{word}: {n}" for word, n in left_out.most_common(5))
        notes.append(f"left out, as they name no winner: {counts}")
    if reading.n_bad:
        understood["bad_rows"] = reading.n_bad
        notes.append(f"left out, as they cannot be read: {reading.n_bad}")
    if "family" in answers:
        n_families = answers["family"].nunique()
        understood |= {"prompts": n_items, "families": n_families}
        notes.append(f"{n_families} families, which intervals and n_prompts count")
    others = {role: names for role, names in columns.items() if names != [role]}
    if notes or (others and reading.layout.name != "pairs"):
        named = ", ".join(f"{role}={names[0]!r}" for role, names in others.items())
        counts = f"{n_items} comparisons"
        line = f"{table.source.place}: {reading.layout.name} ({named}), {counts}"
        # A report reads the same file for its scores and for its texts.
        warn = _log.warning if table.source.place == IN_MEMORY else _warn_once
        warn("; ".join([line, *notes]))
    return understood


@cache
def _warn_once(message: str) -> None:
    """Log a warning that was not logged before."""
    _log.warning(message)
