"""People's own preference data and scores: frames, files and hub datasets."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Literal, NamedTuple

import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks.conversations import (
    Prompt,
    Response,
    Turns,
    name_family,
    split_answers,
)
from rmlab.benchmarks.own_layouts import Answer, OwnLayout, find_layout
from rmlab.benchmarks.own_prompts import PromptReader, read_answer
from rmlab.benchmarks.registry import looks_like
from rmlab.benchmarks.roles import (
    ROLES,
    OwnColumns,
    OwnTable,
    match_roles,
    name_column,
    name_value,
)
from rmlab.benchmarks.sources import IN_MEMORY, Cells, Source, read_source
from rmlab.tables import LABELS, DataError, check_option
from rmlab.text import short

_log = logging.getLogger(__name__)

BadRows = Literal["refuse", "drop"]

_RESERVED = {
    *ROLES,
    *tables.RESPONSES,
    *tables.SCORES,
    *tables.PAIRS,
}
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
    - an answer a row: `response` with a `label` (chosen, rejected, 1, 0) or a `rating`;
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
        Whether a prompt with an empty or unreadable answer raises, or is left out and
        counted.

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

    reading = _read(data, mapping, better, on_bad_rows, needs_scores=False)
    first_row = {column: cells[0] for column, cells in data.columns.items()}
    for like in looks_like(data.place, first_row):
        message = f"{data.place}: may be a file of {like.title}"
        _warn_once(f"{message}; load({like.name!r}, path=...) knows its rules")
    answers = _list_rows(reading, benchmark)
    answers = answers.drop(columns=["model", "score"])
    answers = answers.drop_duplicates([*tables.KEY, "spelled"]).drop(columns="spelled")
    responses = tables.check_responses(answers)
    responses.attrs["understood"] = _describe(reading, answers)
    return responses


def load_scores(
    data: Source, columns: OwnColumns, model: str | None, name: str | None = None
) -> pd.DataFrame:
    """Scores of people's own data, under the ids that `load_preferences` gives them;
    not checked yet.

    The benchmark is called after the file; so is the model where neither `model` nor a
    column nor `name` says otherwise. Texts are not needed.
    """
    reading = _read(data, columns, None, "refuse", needs_scores=True)
    benchmark = records.file_stem(data.place)
    scored = _list_rows(reading, benchmark)
    scored = scored.drop(columns=["prompt", "response", "spelled"])
    _describe(reading, scored)
    scored["model"] = scored["model"].fillna(name or benchmark)
    if model is not None:
        scored["model"] = model
    return scored


class _Item(NamedTuple):
    """A comparison: its first row, what tells it apart, its prompt and its answers.

    `is_split`: the prompt was split off the answers.
    """

    row: int
    key: object
    prompt: Prompt | None
    answers: Sequence[Answer]
    responses: Sequence[Response | None]
    is_split: bool


class _Reading(NamedTuple):
    """The items of some data, and how these were understood."""

    table: OwnTable
    layout: OwnLayout
    items: list[_Item]
    extra: list[str]
    n_bad: int


def _read(
    data: Source,
    mapping: OwnColumns,
    better: str | None,
    on_bad_rows: BadRows,
    *,
    needs_scores: bool,
) -> _Reading:
    """The items of people's own data, by the layout that its columns show."""
    table = match_roles(data, mapping, better)
    layout = find_layout(table, mapping, needs_scores=needs_scores)
    groups: dict[object, list[Answer]] = {}
    for answer in layout.read(table):
        groups.setdefault(answer.item, []).append(answer)

    items = []
    errors = []
    prompts = PromptReader(table)
    for key, answers in groups.items():
        if key in table.bad:
            errors.append(table.bad[key])
            continue
        try:
            items.append(_read_item(table, key, answers, prompts))
        except DataError as error:
            errors.append(error)
    if errors and (on_bad_rows == "refuse" or not items):
        _refuse_rows(errors)
    if not items:
        counts = dict(table.left_out)
        problem = f"{table.source.place}: no two answers to compare; left out: {counts}"
        raise DataError(problem, "give answers with different ratings")
    extra = [column for column in table.source.columns if _is_extra(table, column)]
    return _Reading(table, layout, items, extra, len(errors))


def _refuse_rows(errors: Sequence[DataError]) -> None:
    """Raise the first error with the number of rows like it."""
    first = errors[0]
    problem = first.problem
    if len(errors) > 1:
        problem = f"{first.problem} ({len(errors)} such prompts)"
    raise DataError(problem, f"{first.remedy}, or pass on_bad_rows='drop'")


def _read_item(
    table: OwnTable, key: object, answers: list[Answer], prompts: PromptReader
) -> _Item:
    """The prompt and the responses of a comparison."""
    row = answers[0].row
    labels = {answer.label for answer in answers}
    if len(labels) < len(LABELS):
        role = "label" if table.has("label") else "prompt"
        allowed = "a chosen and a rejected answer to each prompt"
        table.refuse(row, role, allowed, "load single answers with load_pool")
    prompt = prompts.read(row)
    if answers[0].text is None and not _has_texts(table):
        return _Item(row, key, prompt, answers, [None] * len(answers), is_split=False)

    turns: list[Turns] = [
        read_answer(table, answer.row, _role_of(table, answer), answer.text)
        for answer in answers
    ]
    split = split_answers(prompt, turns)
    if split is None:
        allowed = (
            "conversations with one prompt, each ending with the assistant's answer"
        )
        table.refuse(answers[-1].row, _role_of(table, answers[-1]), allowed)
    if split.prompt is None:
        table.refuse(row, "prompt", "given, or begin the answers", "fill it in")
    for response, answer in zip(split.responses, answers, strict=True):
        if not tables.is_response(response):
            allowed = "an answer that is not empty"
            table.refuse(answer.row, _role_of(table, answer), allowed)
    return _Item(row, key, split.prompt, answers, split.responses, split.is_split)


def _has_texts(table: OwnTable) -> bool:
    roles = ("chosen", "a", "response", "responses")
    return any(table.has(role) for role in roles)


def _role_of(table: OwnTable, answer: Answer) -> str:
    """The role of the column that an answer stands in, for messages."""
    roles = (answer.label, "response", "responses", "a")
    return next((role for role in roles if table.has(role)), answer.label)


def _is_extra(table: OwnTable, column: str) -> bool:
    """Whether a column that has no role holds short texts or numbers."""
    used = {name for names in table.roles.values() for name in names}
    if column in used or column in _RESERVED or column in table.extra:
        return False
    for cell in table.source.columns[column]:
        if cell is None or isinstance(cell, bool | float):
            continue
        if not pd.api.types.is_scalar(cell) or len(short(cell, 300)) > _LONGEST_EXTRA:
            return False
    return True


def _list_rows(reading: _Reading, benchmark: str) -> pd.DataFrame:
    """A row per answer of all items, not checked yet.

    `spelled` is the response as text, by which equal ones are found.
    """
    table = reading.table
    frame = _list_answers(reading)
    rows = frame.pop("row").tolist()
    for role in _NAMES:
        names = table.names(role)
        frame[role] = pd.Series([names[row] for row in rows], dtype="str")
    added = {column: table.source.columns[column] for column in reading.extra}
    extra = {}
    for column, cells in (added | table.extra).items():
        extra[column] = [cells[row] for row in rows]
    frame = pd.concat([frame, pd.DataFrame(extra, index=frame.index)], axis=1)

    frame["benchmark"] = frame["benchmark"].fillna(benchmark)
    frame["domain"] = frame["domain"].fillna(frame["subset"]).fillna(frame["benchmark"])
    frame["subset"] = frame["subset"].fillna(frame["domain"])
    families = frame.pop("prompt_family")
    frame["family"] = frame["family"].fillna(families)
    _refuse_repeated_ids(table, frame)
    n_prompts = len(frame.drop_duplicates(tables.PROMPT))
    if not table.has("family") and frame["family"].nunique() in (0, n_prompts):
        return frame.drop(columns="family")
    return frame


def _list_answers(reading: _Reading) -> pd.DataFrame:
    """The answers of all items, each with the first row of its item."""
    answers = []
    is_split = False
    for item, item_id in zip(reading.items, _name_items(reading), strict=True):
        is_split = is_split or item.is_split
        slots = dict.fromkeys(LABELS, 0)
        family = None if item.prompt is None else name_family(item.prompt)
        for answer, response in zip(item.answers, item.responses, strict=True):
            slot = slots[answer.label]
            slots[answer.label] += 1
            key = (item.row, item_id, answer.label, slot)
            answers.append((*key, item.prompt, response, answer.score, family))
    rows, ids, labels, slots_, prompts, responses, scores, families = zip(
        *answers, strict=True
    )
    texts: Cells = list(responses)
    if not is_split:
        texts = _strip_prompts(prompts, texts)
    return pd.DataFrame(
        {
            "row": rows,
            "id": ids,
            "label": labels,
            "slot": slots_,
            "prompt": pd.Series(prompts, dtype=object),
            "response": pd.Series(texts, dtype=object),
            "score": scores,
            "prompt_family": pd.Series(families, dtype="str"),
            "spelled": list(map(str, texts)),
        }
    )


def _refuse_repeated_ids(table: OwnTable, frame: pd.DataFrame) -> None:
    repeated = frame.loc[frame.duplicated(["model", *tables.KEY]), "id"].tolist()
    if repeated:
        problem = f"{table.source.place}: 'id' {short(repeated[0])} occurs twice"
        family = name_column("family", table.roles["id"][0])
        remedy = f"repair the ids, or take them for families of prompts: {family}"
        raise DataError(f"{problem} in a domain", remedy)


def _name_items(reading: _Reading) -> list[str]:
    """The id of every item: the cell of its column, or its number.

    Items in which several models scored the same answers have the number of the first
    of them.
    """
    table, layout, items, *_ = reading
    bases = []
    numbers: dict[object, int] = {}
    for item in items:
        prompt = item.key[0] if isinstance(item.key, tuple) else item.key
        number = numbers.setdefault(prompt, len(numbers))
        if table.has("id"):
            bases.append(_read_id(table, item.row))
        else:
            bases.append(str(number if layout.is_grouped else item.row))
    if table.has("model") and not table.has("id"):
        contents = []
        names = table.names("model")
        for item in items:
            shared = [table.cells(role)[item.row] for role in ("benchmark", "domain")]
            labelled = [
                (answer.label, response)
                for answer, response in zip(item.answers, item.responses, strict=True)
            ]
            contents.append(repr((shared, item.prompt, labelled)))
        bases = [
            bases[place]
            for place in _first_rows(contents, [names[item.row] for item in items])
        ]
    return [_add_pair(base, item.key) for base, item in zip(bases, items, strict=True)]


def _first_rows(contents: Iterable[object], models: Iterable[object]) -> list[int]:
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


def _read_id(table: OwnTable, row: int) -> str:
    """A whole number or a non-empty string."""
    value = table.cells("id")[row]
    is_id = isinstance(value, int | str) or (
        isinstance(value, float) and value.is_integer()
    )
    if not is_id or isinstance(value, bool) or value == "":
        table.refuse(
            row, "id", "a whole number or a non-empty string", "number the rows"
        )
    return name_value(value)


def _add_pair(base: str, key: object) -> str:
    """The id of an item: of several pairs of a prompt each has a name of its own."""
    if not isinstance(key, tuple):
        return base
    _, first, second = key
    return f"{base}:{first}-{second}"


def _strip_prompts(prompts: Sequence[object], responses: Cells) -> Cells:
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


def _describe(reading: _Reading, answers: pd.DataFrame) -> dict[str, object]:
    """What was understood, which is also said in one line."""
    table = reading.table
    matched = {}
    for role, names in table.roles.items():
        if names and role in table.used:
            matched[role] = list(names)
    used = set(reading.extra).union(*matched.values())
    understood: dict[str, object] = {
        "layout": reading.layout.name,
        "columns": matched,
        "extra": reading.extra,
        "ignored": [column for column in table.source.columns if column not in used],
    }
    if table.left_out:
        understood["left_out"] = dict(table.left_out)
    if reading.n_bad:
        understood["bad_rows"] = reading.n_bad
    if "family" in answers:
        understood["prompts"] = len(answers.drop_duplicates(tables.PROMPT))
        understood["families"] = answers["family"].nunique()
        understood["copies"] = _count_copies(table.source)

    line = _describe_line(reading, understood)
    if line:
        # A report reads the same file for its scores and for its texts.
        warn = _log.warning if table.source.place == IN_MEMORY else _warn_once
        warn(line)
    return understood


def _describe_line(reading: _Reading, understood: Mapping[str, object]) -> str:
    """One line on columns with other names than their roles, and on rows that are left
    out or repeated; empty where there are none.
    """
    notes = []
    if "left_out" in understood:
        words = reading.table.left_out.most_common(5)
        counts = ", ".join(f"{word}: {n}" for word, n in words)
        notes.append(f"left out, as they name no winner: {counts}")
    if reading.n_bad:
        notes.append(f"left out, as they cannot be read: {reading.n_bad}")
    if "families" in understood:
        counts = (
            f"{understood['prompts']} prompts are {understood['families']} families"
        )
        notes.append(f"{counts}, which intervals and n_prompts count")
    if understood.get("copies"):
        notes.append(f"{understood['copies']} rows are exact copies of others")
    named = []
    for role in reading.table.used:
        names = reading.table.roles.get(role)
        if names and [*names] != [role]:
            named.append(f"{role}={names[0]!r}")
    if not notes and (not named or reading.layout.name == "pairs"):
        return ""
    columns = f" ({', '.join(sorted(named))})" if named else ""
    counts = f"{len(reading.items)} comparisons"
    place = reading.table.source.place
    return "; ".join([f"{place}: {reading.layout.name}{columns}, {counts}", *notes])


def _count_copies(source: Source) -> int:
    rows = zip(*source.columns.values(), strict=True)
    return int(pd.Series([repr(row) for row in rows]).duplicated().sum())


@cache
def _warn_once(message: str) -> None:
    """Log a warning that was not logged before."""
    _log.warning(message)
