"""People's own preference data and scores: frames, files and hub datasets."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn

import numpy as np
import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks.conversations import (
    Prompt,
    hash_prompt,
    name_family,
    split_answers,
)
from rmlab.benchmarks.own_layouts import (
    SCORED_PAIR,
    Answer,
    OwnLayout,
    ReadRow,
    find_layout,
    find_mark,
    refuse_minus_one,
)
from rmlab.benchmarks.own_prompts import read_answer, read_prompt
from rmlab.benchmarks.registry import looks_like
from rmlab.benchmarks.roles import (
    CONTEXT,
    ROLES,
    SCORE_ROLES,
    OwnColumns,
    OwnTable,
    match_roles,
    name_column,
    strip_prompts,
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
    answers = read_table(table, mapping, benchmark, drop_bad=on_bad_rows == "drop")
    first_row = {column: cells[0] for column, cells in data.columns.items()}
    for like in looks_like(data.place, first_row):
        message = f"{data.place}: may be a file of {like.title}"
        _warn_once(f"{message}; load({like.name!r}, path=...) knows its rules")
    answers = answers.drop(columns=["model", "score"])
    spelled = answers["response"].map(str)
    is_copy = answers[tables.KEY].assign(spelled=spelled).duplicated()
    responses = tables.check_responses(answers[~is_copy])
    responses.attrs["understood"] = _describe(table, responses)
    return responses


def load_scores(
    data: Source, columns: OwnColumns, model: str | None, name: str | None = None
) -> pd.DataFrame:
    """Scores of people's own data, under the ids that `load_preferences` gives them;
    not checked yet.

    The benchmark is called after the file; so is the model where neither `model` nor a
    column nor `name` says otherwise. Files that are called after their models are of a
    benchmark that is called after their folder. Texts are not needed.
    """
    table = match_roles(data, columns, is_scored=True)
    if not any(map(table.has, SCORE_ROLES)):
        try:
            table.require(*SCORED_PAIR)
        except DataError as error:
            score = f"rmlab score {data.place} MODEL"
            remedy = f"{error.remedy}, or score the texts: {score}"
            raise DataError(error.problem, remedy) from None
    is_named = table.has("model") or model is not None
    benchmark = name_benchmark(data.place, None if is_named else name)
    scores = read_table(table, columns, benchmark)
    _describe(table, scores)
    scores["model"] = scores["model"].fillna(name or name_model(data.place))
    if model is not None:
        scores["model"] = model
    return hash_texts(scores, by_number=not table.has("id"))


def name_model(place: Path) -> str:
    """The model that a file is called after, as reward-bench writes them, too."""
    return records.file_stem(place).removesuffix("_outputs").removesuffix("_all")


def name_benchmark(place: Path, model: str | None) -> str:
    """The file's name, or its folder's where the file is called after its model."""
    if model is not None and model == name_model(place):
        return place.resolve().parent.name
    return records.file_stem(place)


def hash_texts(answers: pd.DataFrame, *, by_number: bool) -> pd.DataFrame:
    """Answers with hashes as `TEXTS` in place of their texts, where rows or the answers
    of a label are numbered.
    """
    last_slots = answers.groupby([*PROMPT, "label"])["slot"].transform("max")
    is_numbered = (last_slots > 0) | by_number
    hashed = answers.drop(columns=["prompt", "response"])
    # A file without texts may name its prompts by their families.
    prompts = answers["prompt"].fillna(answers.get("family", np.nan))
    for name, texts in zip(TEXTS, (prompts, answers["response"]), strict=True):
        numbered = texts.where(is_numbered)
        hashed[name] = numbered.map(_hash_text, na_action="ignore").astype("str")
    return hashed


def _hash_text(text: object) -> str:
    return hash_prompt(str(text).strip())


class _Answer(NamedTuple):
    """An answer of a prompt, with the number of the prompt and its row in the data."""

    prompt_number: int
    row: int
    prompt: Prompt | None
    response: object
    mark: float
    score: float


def read_table(
    table: OwnTable,
    mapping: OwnColumns,
    benchmark: str,
    *,
    drop_bad: bool = False,
    compares: bool = True,
) -> pd.DataFrame:
    """A row per answer of all comparisons of people's own data, by the layout that its
    columns show; not checked yet.

    `compares`: a prompt without a chosen or without a rejected answer is bad. Without
    it columns of lists and of long texts stay, too.
    """
    table = strip_prompts(table)
    layout = find_layout(table, mapping)
    table.understood["layout"] = layout.name
    is_rated = False
    if layout.marks:
        is_rated = find_mark(table, layout.marks) not in ("label", "labels")
    needs_labels = compares and not is_rated
    frame, errors = _list_answers(table, layout, needs_labels)
    if errors and (not drop_bad or frame.empty):
        _refuse_all(errors, may_drop=compares and not table.is_scored)
    if errors:
        table.understood["bad_rows"] = len(errors)
    if is_rated:
        refuse_minus_one(table.source.place, {*frame["mark"]})

    for role in ("model", *PROMPT[:-1], "subset", "family"):
        names = pd.Series(table.names(role), dtype="str")
        frame[role] = names.take(frame["row"].to_numpy()).to_numpy()
    frame["benchmark"] = frame["benchmark"].fillna(benchmark)
    frame["domain"] = frame["domain"].fillna(frame["subset"]).fillna(frame["benchmark"])
    frame["subset"] = frame["subset"].fillna(frame["domain"])
    frame["id"] = _name_prompts(table, layout, frame)
    key = PROMPT if is_rated else [*PROMPT, "mark"]
    frame["slot"] = _number_answers(table, layout, frame, key)
    if is_rated:
        frame = _compare_ratings(frame, table.left_out)
    else:
        frame["label"] = np.where(frame["mark"] > 0, *LABELS)
    if frame.empty:
        counts = dict(+table.left_out)
        problem = f"{table.source.place}: no winner, no two different ratings"
        remedy = "allowed: a, b, A>B, tie, 1, 2"
        raise DataError(f"{problem}; left out: {counts}", remedy)

    families = frame["prompt"].map(name_family, na_action="ignore")
    frame["family"] = frame["family"].fillna(families.astype("str"))
    n_prompts = len(frame.drop_duplicates(PROMPT))
    if not table.has("family") and frame["family"].nunique() in (0, n_prompts):
        frame = frame.drop(columns="family")
    added = {
        name: table.source.columns[name] for name in list_extra(table, not compares)
    }
    if "strength" in table.added:
        added["strength"] = table.added["strength"]
    extra = pd.DataFrame(added, index=range(len(table.source)))
    extra = extra.take(frame["row"].to_numpy()).set_axis(frame.index)
    return pd.concat(
        [frame.drop(columns=["row", "prompt_number", "mark"]), extra], axis=1
    )


def _list_answers(
    table: OwnTable, layout: OwnLayout, needs_labels: bool
) -> tuple[pd.DataFrame, list[DataError]]:
    """The answers of all prompts, and the errors of those that cannot be read."""
    read_row = layout.read(table)
    answers: list[_Answer] = []
    errors = []
    for number, rows in enumerate(_group_rows(table, layout)):
        try:
            of_prompt = _read_prompt(table, read_row, number, rows)
            if needs_labels and len({answer.mark for answer in of_prompt}) == 1:
                role = "label" if table.has("label") else "prompt"
                allowed = "a chosen and a rejected answer to each prompt"
                remedy = "load single answers with load_pool"
                table.refuse(rows[0], role, allowed, remedy)
        except DataError as error:
            errors.append(error)
        else:
            answers += of_prompt
    frame = pd.DataFrame(answers, columns=_Answer._fields, dtype=object)
    return frame.astype({"prompt_number": int, "row": int, "mark": float}), errors


def _refuse_all(errors: Sequence[DataError], *, may_drop: bool) -> NoReturn:
    """Raise the first error, with their number."""
    problem = errors[0].problem
    if len(errors) > 1:
        problem = f"{problem} ({len(errors)} such prompts)"
    remedy = errors[0].remedy
    if may_drop:
        remedy = f"{remedy}, or pass on_bad_rows='drop'"
    raise DataError(problem, remedy)


def _group_rows(table: OwnTable, layout: OwnLayout) -> Iterable[Sequence[int]]:
    """The rows of each prompt: one, or those of one id, or of one text and context."""
    if not layout.is_grouped:
        return zip(range(len(table.source)))
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
    table: OwnTable, read_row: ReadRow, number: int, rows: Sequence[int]
) -> list[_Answer]:
    """The answers of a prompt, which stand in one or several rows."""
    for row in rows[1:]:
        prompts = table.cells("prompt")
        if table.has("id") and prompts[row] != prompts[rows[0]]:
            remedy = f"or pass {name_column('family', table.roles['id'][0])}"
            table.refuse(row, "id", "that of one prompt", remedy)
        subsets = table.cells("subset")
        if table.has("id") and subsets[row] != subsets[rows[0]]:
            remedy = "write subset and id into one column"
            table.refuse(row, "id", "that of one subset in a domain", remedy)
    answers: list[tuple[int, Answer]] = []
    for row in rows:
        answers += [(row, answer) for answer in read_row(row)]
    prompt = read_prompt(table, rows[0])
    candidates = table.cells("candidate")
    responses = [candidates[row] for row, _ in answers]
    if table.has_texts and answers:
        turns = [read_answer(table, row, *answer[:2]) for row, answer in answers]
        split = split_answers(prompt, turns)
        role = answers[-1][1].role
        if split is None:
            allowed = "conversations with one prompt, each ending with the assistant's"
            table.refuse(rows[-1], role, f"{allowed} answer")
        prompt = split.prompt
        responses = [*split.responses]
        if prompt is None and not table.is_scored:
            table.refuse(rows[0], "prompt", "given, or begin the answers", "fill it in")
        if not all(map(tables.is_response, responses)):
            table.refuse(rows[-1], role, "an answer that is not empty")
    return [
        _Answer(number, row, prompt, response, answer.mark, answer.score)
        for (row, answer), response in zip(answers, responses, strict=True)
    ]


def _name_prompts(table: OwnTable, layout: OwnLayout, frame: pd.DataFrame) -> pd.Series:
    """The id of each answer's prompt: the cell of its column, or its number. Prompts
    with the same content have the number of the first, whatever the models' orders.
    """
    numbers = frame["prompt_number"]
    prompts = frame.drop_duplicates("prompt_number")
    if table.has("id"):
        prompts = prompts.assign(id=prompts["row"].map(table.read_id))
        is_repeated = prompts.duplicated(["model", *PROMPT])
        if is_repeated.any():
            first = short(prompts["id"][is_repeated].iloc[0])
            problem = f"{table.source.place}: 'id' {first} occurs twice in a domain"
            family = name_column("family", table.roles["id"][0])
            remedy = f"repair the ids, or take them for families of prompts: {family}"
            raise DataError(problem, remedy)
        names = dict(zip(prompts["prompt_number"], prompts["id"], strict=True))
        return numbers.map(names).astype("str")

    if len(frame["model"].unique()) > 1:
        if not table.has_texts and not table.has_prompt:
            problem = f"{table.source.place}: rows of several models have no id"
            raise DataError(problem, f"pass {name_column('id')}")
        content = frame["prompt"].map(repr)
        if not layout.is_grouped:
            # In one order, whatever the order of lists and of sides.
            answers = frame["mark"].map(repr) + frame["response"].map(repr)
            content += answers.sort_values().groupby(numbers).transform("".join)
        codes, first_rows = _match_content(prompts.assign(content=content), PROMPT[:-1])
        firsts = prompts["prompt_number"].iloc[first_rows].to_numpy()[codes]
        numbers = numbers.map(dict(zip(prompts["prompt_number"], firsts, strict=True)))
    return numbers.astype("str")


def _match_content(frame: pd.DataFrame, key: list[str]) -> tuple[IntArray, IntArray]:
    """Number the distinct contents of each key, and the first row of each number; the
    n-th of equal ones of a model is the n-th of the others'.
    """
    columns = [*key, "content"]
    by_model = frame.groupby(["model", *columns], sort=False, dropna=False)
    copies = frame[columns].assign(copy=by_model.cumcount())
    return group_codes(copies, [*columns, "copy"])


def _number_answers(
    table: OwnTable, layout: OwnLayout, frame: pd.DataFrame, key: list[str]
) -> IntArray:
    """The place of each answer among those of its prompt and label, by content, so that
    it is the same for all models.
    """
    own_places = frame.groupby(["model", *key], dropna=False).cumcount()
    if len(frame["model"].unique()) < 2:
        return np.asarray(own_places, np.intp)
    has_content = table.has_texts or table.has("candidate")
    if own_places.any() and layout.is_grouped and not has_content:
        problem = f"{table.source.place}: nothing tells the answers of a prompt apart"
        raise DataError(problem, "number them in a column 'candidate'")
    numbered = frame.assign(content=frame["response"].map(repr))
    codes, first_rows = _match_content(numbered, key)
    places = numbered.iloc[first_rows].groupby(key, sort=False, dropna=False).cumcount()
    slots = np.asarray(places, np.intp)[codes]
    if not layout.is_grouped:
        last = frame[key].assign(slot=slots, own=own_places)
        last = last.groupby(key, dropna=False).transform("max")
        is_other = last["slot"] > last["own"]
        if is_other.any():
            row = frame["row"][is_other].iloc[0]
            remedy = "give them an id of their own"
            table.refuse(row, "id", "that of the same answers for all models", remedy)
    return slots


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
    texts = [cell for cell in cells if isinstance(cell, str)]
    are_plain = {*map(type, cells)} <= {str, bool, int, float, type(None)}
    are_scalars = are_plain or all(map(pd.api.types.is_scalar, cells))
    return are_scalars and max(map(len, texts), default=0) <= _LONGEST_EXTRA


def _describe(table: OwnTable, answers: pd.DataFrame) -> dict[str, object]:
    """What was understood, which is also said in one line where it is not obvious."""
    columns = {}
    for role, names in table.roles.items():
        if names and role in table.used:
            columns[role] = list(names)
    extra = [name for name in list_extra(table, keep_all=True) if name in answers]
    used = set(extra).union(*columns.values())
    ignored = [column for column in table.source.columns if column not in used]
    understood = table.understood
    understood |= {"columns": columns, "extra": extra, "ignored": ignored}

    n_items = len(answers.drop_duplicates(PROMPT))
    notes = [*table.notes]
    left_out = +table.left_out
    if left_out:
        understood["left_out"] = dict(left_out)
        counts = ", ".join(f"{word}: {n}" for word, n in left_out.most_common(5))
        notes.append(f"left out, as they name no winner: {counts}")
    if "bad_rows" in understood:
        notes.append(f"left out, as they cannot be read: {understood['bad_rows']}")
    if "family" in answers:
        n_families = answers["family"].nunique()
        understood |= {"prompts": n_items, "families": n_families}
        notes.append(f"{n_families} families, which intervals and n_prompts count")
    others = {role: names for role, names in columns.items() if names != [role]}
    layout = str(understood["layout"])
    if notes or (others and layout != "pairs"):
        named = ", ".join(f"{role}={names[0]!r}" for role, names in others.items())
        if named:
            layout = f"{layout} ({named})"
        line = f"{table.source.place}: {layout}, {n_items} comparisons"
        # A report reads the same file for its scores and for its texts.
        warn = _log.warning if table.source.place == IN_MEMORY else _warn_once
        warn("; ".join([line, *notes]))
    return understood


@cache
def _warn_once(message: str) -> None:
    """Log a warning that was not logged before."""
    _log.warning(message)
