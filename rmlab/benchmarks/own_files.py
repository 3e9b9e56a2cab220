"""People's own preference data and scores: frames, files and hub datasets."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks.conversations import (
    Prompt,
    Response,
    hash_prompt,
    name_family,
    split_answers,
)
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
from rmlab.tables import LABELS, PROMPT, DataError, IntArray, check_option, group_codes
from rmlab.text import short

_log = logging.getLogger(__name__)

BadRows = Literal["refuse", "drop"]

TEXTS = ("(prompt)", "(response)")
"""Columns by which `read_scores` finds files whose rows have different orders."""

_RESERVED = {*ROLES, *tables.RESPONSES, *tables.SCORES, *tables.PAIRS}
# Characters; a longer cell is a text, and texts stay in prompt and response.
_LONGEST_EXTRA = 200


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
    scores = hash_texts(list_rows(reading, benchmark), by_number=not table.has("id"))
    _describe(reading, scores)
    scores["model"] = scores["model"].fillna(name or benchmark)
    if model is not None:
        scores["model"] = model
    return scores


def hash_texts(answers: pd.DataFrame, *, by_number: bool) -> pd.DataFrame:
    """Answers with hashes as `TEXTS` in place of their texts, where rows or the answers
    of a label are numbered.
    """
    last_slots = answers.groupby([*PROMPT, "label"])["slot"].transform("max")
    is_numbered = (last_slots > 0) | by_number
    hashed = answers.drop(columns=["prompt", "response"])
    for name, column in zip(TEXTS, ("prompt", "response"), strict=True):
        texts = answers[column].where(is_numbered)
        hashed[name] = texts.map(_hash_text, na_action="ignore").astype("str")
    return hashed


def _hash_text(text: object) -> str:
    return hash_prompt(str(text).strip())


class _Answer(NamedTuple):
    """An answer of a prompt, with the number of the prompt and its row in the data.

    `is_split`: the prompt was a part of the answer.
    """

    prompt_number: int
    row: int
    prompt: Prompt | None
    response: Response | None
    mark: float
    score: float
    is_split: bool


class Reading(NamedTuple):
    """The answers of some data, how these were understood, and how many prompts could
    not be read.

    `is_rated`: marks are ratings, not labels.
    """

    table: OwnTable
    layout: OwnLayout
    answers: pd.DataFrame
    is_rated: bool
    n_bad: int


def read_table(
    table: OwnTable,
    mapping: OwnColumns,
    *,
    drop_bad: bool = False,
    compares: bool = True,
) -> Reading:
    """The answers of people's own data, by the layout that its columns show.

    `compares`: a prompt without a chosen or without a rejected answer is bad.
    """
    layout = find_layout(table, mapping)
    layout.prepare(table)
    is_rated = layout.marks != LABELS
    if is_rated:
        is_rated = find_mark(table, layout.marks) not in ("label", "labels")

    answers: list[_Answer] = []
    errors = []
    for number, rows in enumerate(_group_rows(table, layout)):
        try:
            of_prompt = _read_prompt(table, layout, number, rows)
            if compares and not is_rated:
                _require_labels(table, of_prompt)
        except DataError as error:
            errors.append(error)
        else:
            answers += of_prompt
    if errors and (not drop_bad or not answers):
        first = errors[0]
        problem = first.problem
        if len(errors) > 1:
            problem = f"{problem} ({len(errors)} such prompts)"
        remedy = first.remedy
        if compares and not table.is_scored:
            remedy = f"{remedy}, or pass on_bad_rows='drop'"
        raise DataError(problem, remedy)
    frame = pd.DataFrame(answers, columns=_Answer._fields, dtype=object)
    frame = frame.astype({"prompt_number": int, "row": int, "mark": float})
    if is_rated:
        refuse_minus_one(table.source.place, {*frame["mark"]})
    return Reading(table, layout, frame, is_rated, len(errors))


def _group_rows(table: OwnTable, layout: OwnLayout) -> Iterable[Sequence[int]]:
    """The rows of each prompt: one, or those of one id, or of one text and context."""
    if not layout.is_grouped:
        return [(row,) for row in range(len(table.source))]
    name = "id" if table.has("id") else "prompt"
    if not table.has(name):
        problem = f"{table.source.place}: answers a row need a column for their prompt"
        raise DataError(problem, f"pass {name_column('id')}")
    for role in ("model", name):
        cells = table.cells(role)
        if table.has(role) and None in cells:
            table.refuse(cells.index(None), role, "given in every row", "fill it in")
    context = CONTEXT if name == "prompt" else ()
    roles = ["model", *PROMPT[:-1], name, *context]
    keys = map(repr, zip(*map(table.cells, roles), strict=True))
    rows_of_key: dict[str, list[int]] = {}
    for row, key in enumerate(keys):
        rows_of_key.setdefault(key, []).append(row)
    return rows_of_key.values()


def _read_prompt(
    table: OwnTable, layout: OwnLayout, number: int, rows: Sequence[int]
) -> list[_Answer]:
    """The answers of a prompt, which stand in one or several rows."""
    asked = table.cells("prompt")
    subsets = table.cells("subset")
    answers: list[tuple[int, Answer]] = []
    for row in rows:
        if table.has("id") and asked[row] != asked[rows[0]]:
            remedy = f"or pass {name_column('family', table.roles['id'][0])}"
            table.refuse(row, "id", "that of one prompt", remedy)
        if table.has("id", "subset") and subsets[row] != subsets[rows[0]]:
            remedy = "write subset and id into one column"
            table.refuse(row, "id", "that of one subset in a domain", remedy)
        answers += [(row, answer) for answer in layout.explode(table, row)]
    prompt = read_prompt(table, rows[0])
    responses: Sequence[Response | None] = [None] * len(answers)
    is_split = False
    has_texts = any(map(table.has, ("chosen", "a", "response", "responses")))
    if has_texts and answers:
        turns = [read_answer(table, row, *answer[:2]) for row, answer in answers]
        split = split_answers(prompt, turns)
        role = answers[-1][1].role
        if split is None:
            allowed = "conversations with one prompt, each ending with the assistant's"
            table.refuse(rows[-1], role, f"{allowed} answer")
        if split.prompt is None and not table.is_scored:
            table.refuse(rows[0], "prompt", "given, or begin the answers", "fill it in")
        if not all(map(tables.is_response, split.responses)):
            table.refuse(rows[-1], role, "an answer that is not empty")
        prompt, responses, is_split = split
    return [
        _Answer(number, row, prompt, response, answer.mark, answer.score, is_split)
        for (row, answer), response in zip(answers, responses, strict=True)
    ]


def _require_labels(table: OwnTable, answers: Sequence[_Answer]) -> None:
    marks = {answer.mark for answer in answers}
    if len(marks) == 1:
        role = "label" if table.has("label") else "prompt"
        allowed = "a chosen and a rejected answer to each prompt"
        remedy = "load single answers with load_pool"
        table.refuse(answers[0].row, role, allowed, remedy)


def list_rows(
    reading: Reading, benchmark: str, *, keep_all: bool = False
) -> pd.DataFrame:
    """A row per answer of all comparisons, not checked yet.

    `keep_all`: also columns of lists and of long texts stay.
    """
    table = reading.table
    frame = _add_names(reading, benchmark)
    frame["id"] = _name_prompts(reading, frame)
    _refuse_repeated_ids(table, frame)
    frame["slot"] = _number_answers(reading, frame)
    if reading.is_rated:
        frame = _compare_ratings(frame, table.left_out)
    else:
        frame["label"] = np.where(frame["mark"] > 0, *LABELS)
    if frame.empty:
        counts = dict(+table.left_out)
        problem = f"{table.source.place}: no winner, no two different ratings"
        raise DataError(
            f"{problem}; left out: {counts}", "allowed: a, b, A>B, tie, 1, 2"
        )

    if not frame["is_split"].any():
        texts = _strip_prompts(frame["prompt"], frame["response"].tolist())
        frame["response"] = pd.Series(texts, dtype=object)
    families = frame["prompt"].map(name_family, na_action="ignore")
    frame["family"] = frame["family"].fillna(families.astype("str"))
    n_prompts = len(frame.drop_duplicates(PROMPT))
    if not table.has("family") and frame["family"].nunique() in (0, n_prompts):
        frame = frame.drop(columns="family")
    added = {name: table.source.columns[name] for name in list_extra(table, keep_all)}
    if "strength" in table.added:
        added["strength"] = table.added["strength"]
    extra = pd.DataFrame(added, index=range(len(table.source)))
    extra = extra.take(frame["row"].to_numpy()).set_axis(frame.index)
    frame = frame.drop(columns=["row", "prompt_number", "mark", "is_split"])
    return pd.concat([frame, extra], axis=1)


def _add_names(reading: Reading, benchmark: str) -> pd.DataFrame:
    """The answers with their model, benchmark, domain, subset and family."""
    frame = reading.answers.copy()
    for role in ("model", "benchmark", "domain", "subset", "family"):
        names = pd.Series(reading.table.names(role), dtype="str")
        frame[role] = names.take(frame["row"].to_numpy()).to_numpy()
    frame["benchmark"] = frame["benchmark"].fillna(benchmark)
    frame["domain"] = frame["domain"].fillna(frame["subset"]).fillna(frame["benchmark"])
    frame["subset"] = frame["subset"].fillna(frame["domain"])
    return frame


def _name_prompts(reading: Reading, frame: pd.DataFrame) -> pd.Series:
    """The id of each answer's prompt: the cell of its column, or its number. Prompts
    with the same content have the number of the first, whatever the models' orders.
    """
    if reading.table.has("id"):
        names = [_read_id(reading.table, row) for row in frame["row"]]
        return pd.Series(names, dtype="str")
    numbers = frame["prompt_number"]
    if reading.table.has("model"):
        content = frame["prompt"].map(repr)
        if not reading.layout.is_grouped:
            # In one order, whatever the order of lists and of sides.
            answers = (
                frame["mark"].map(repr) + frame["response"].map(repr)
            ).sort_values()
            content += answers.groupby(numbers).transform("".join)
        prompts = frame.assign(content=content).drop_duplicates("prompt_number")
        if frame["response"].isna().all() and not reading.layout.is_grouped:
            prompts["content"] += _describe_rows(reading.table, prompts, PROMPT[:-1])
            _refuse_unknown(reading.table, prompts[["model", *PROMPT[:-1], "content"]])
        codes, first_rows = _match_content(prompts, PROMPT[:-1])
        of_prompt = prompts["prompt_number"]
        firsts = of_prompt.iloc[first_rows].to_numpy()[codes]
        numbers = numbers.map(dict(zip(of_prompt, firsts, strict=True)))
    return numbers.astype("str")


def _match_content(
    frame: pd.DataFrame, key: Sequence[str]
) -> tuple[IntArray, IntArray]:
    """Number the distinct contents of each key, and the first row of each number; the
    n-th of equal ones of a model is the n-th of the others'.
    """
    columns = [*key, "content"]
    by_model = frame.groupby(["model", *columns], sort=False, dropna=False)
    copies = frame[columns].assign(copy=by_model.cumcount())
    return group_codes(copies, [*columns, "copy"])


def _refuse_repeated_ids(table: OwnTable, frame: pd.DataFrame) -> None:
    prompts = frame.drop_duplicates("prompt_number")
    is_repeated = prompts.duplicated(["model", *PROMPT])
    if is_repeated.any():
        first = short(prompts["id"][is_repeated].iloc[0])
        problem = f"{table.source.place}: 'id' {first} occurs twice in a domain"
        family = name_column("family", table.roles["id"][0])
        remedy = f"repair the ids, or take them for families of prompts: {family}"
        raise DataError(problem, remedy)


def _number_answers(reading: Reading, frame: pd.DataFrame) -> IntArray:
    """The place of each answer among those of its prompt and label, by content, so that
    it is the same for all models.
    """
    table = reading.table
    key = PROMPT if reading.is_rated else [*PROMPT, "mark"]
    content = frame["response"].map(repr)
    if reading.layout.is_grouped and not table.has("response"):
        content = _describe_rows(table, frame, PROMPT)
        _refuse_unknown(table, frame[["model", *key]].assign(content=content))
    numbered = frame.assign(content=content)
    codes, first_rows = _match_content(numbered, key)
    places = numbered.iloc[first_rows].groupby(key, sort=False, dropna=False).cumcount()
    slots = np.asarray(places, np.intp)[codes]
    if not reading.layout.is_grouped:
        own = frame.groupby(["model", *key], dropna=False).cumcount()
        last = frame[key].assign(slot=slots, own=own)
        last = last.groupby(key, dropna=False).transform("max")
        is_other = last["slot"] > last["own"]
        if is_other.any():
            row = frame["row"][is_other].iloc[0]
            remedy = "give them an id of their own"
            table.refuse(row, "id", "that of the same answers for all models", remedy)
    return slots


def _describe_rows(
    table: OwnTable, frame: pd.DataFrame, key: Sequence[str]
) -> pd.Series:
    """What tells rows without texts apart for all models: the first column that does,
    or all columns that are the same for the models.
    """
    n_rows = frame.groupby(["model", *key], dropna=False).size()
    n_most = n_rows.groupby([*key], dropna=False).max().sum()
    content = pd.Series("", frame.index, dtype="str")
    for name in [*table.roles["family"], *list_extra(table, keep_all=True)]:
        cells = pd.Series(table.source.columns[name], dtype=object).map(repr)
        values = frame[["model", *key]].assign(
            value=cells.take(frame["row"]).to_numpy()
        )
        copies = values.groupby([*values], dropna=False).cumcount()
        together = values.assign(copy=copies).drop(columns="model").drop_duplicates()
        # A model may lack a few rows; seconds and tokens differ in most.
        if len(together) > 1.1 * n_most:
            continue
        if not copies.any():
            return values["value"]
        content += values["value"]
    return content


def _refuse_unknown(table: OwnTable, frame: pd.DataFrame) -> None:
    """Raise DataError where answers of several models cannot be told apart."""
    orders = [
        part.iloc[:, 1:].to_numpy().tolist() for _, part in frame.groupby("model")
    ]
    if frame.duplicated().any() and any(order != orders[0] for order in orders):
        problem = f"{table.source.place}: the models' rows have different orders"
        remedy = f"add a column that tells them apart, or pass {name_column('id')}"
        raise DataError(problem, remedy)


def _compare_ratings(frame: pd.DataFrame, left_out: Counter[str]) -> pd.DataFrame:
    """The pairs of rated answers of each prompt; equal ratings are ties, which are left
    out.
    """
    answers = frame[["prompt_number", "mark", "slot"]].reset_index(names="row")
    answers["last_slot"] = frame.groupby(PROMPT)["slot"].transform("max").to_numpy()
    pairs = answers.merge(answers, on="prompt_number", suffixes=("_a", "_b"))
    pairs = pairs[pairs["slot_a"] < pairs["slot_b"]]
    difference = pairs["mark_a"] - pairs["mark_b"]
    n_answers = frame["prompt_number"].value_counts()
    left_out["tie"] += int((difference == 0).sum())
    left_out["without a rating"] += int(difference.isna().sum())
    left_out["the only answer"] += int((n_answers == 1).sum())

    pairs = pairs[difference.notna() & (difference != 0)]
    is_first = pairs["mark_a"] > pairs["mark_b"]
    chosen = pairs["row_a"].where(is_first, pairs["row_b"])
    rejected = pairs["row_b"].where(is_first, pairs["row_a"])
    rows = np.stack([chosen, rejected], axis=1).ravel()
    compared = frame.iloc[rows].reset_index(drop=True)
    compared["label"] = np.resize(LABELS, len(compared))
    compared["slot"] = 0
    # Of several pairs of a prompt each has a name.
    names = ":" + pairs["slot_a"].astype("str") + "-" + pairs["slot_b"].astype("str")
    names = names.where(pairs["last_slot_a"] > 1, "")
    compared["id"] += np.repeat(names.to_numpy(object), 2)
    return compared


def list_extra(table: OwnTable, keep_all: bool = False) -> list[str]:
    """The columns without a role: of short texts and numbers, or all."""
    used = _RESERVED.union(table.added, *table.roles.values())
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
    extra = [name for name in list_extra(table, keep_all=True) if name in answers]
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
