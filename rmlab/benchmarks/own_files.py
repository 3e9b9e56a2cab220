"""People's own preference data and scores: frames and files."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks.conversations import name_family
from rmlab.benchmarks.own_layouts import (
    SCORED_PAIR,
    Answer,
    OwnLayout,
    find_layout,
    read_row,
    refuse_minus_one,
)
from rmlab.benchmarks.own_prompts import read_answer, read_prompt, split_prompt
from rmlab.benchmarks.roles import (
    CONTEXT,
    ROLES,
    SCORE_ROLES,
    OwnColumns,
    OwnTable,
    match_roles,
    name_column,
)
from rmlab.benchmarks.sources import Source, read_source
from rmlab.tables import LABELS, PROMPT, DataError, IntArray, check_option, group_codes
from rmlab.text import short

_log = logging.getLogger(__name__)

BadRows = Literal["refuse", "drop"]

TEXTS = "(texts)"
"""Column by which `read_scores` finds files whose rows have different orders."""

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
    on_bad_rows: BadRows = "refuse",
) -> pd.DataFrame:
    """Load preference data as a responses table.

    Columns are found by their usual names. The layouts that are read:

    - pairs: `chosen` and `rejected`, each a text, several texts, a message or a
      conversation that ends with the answer;
    - battles: `response_a`, `response_b` and a `winner` (or `winner_model_a` ...), also
      graded: -3 to 3 or 1 to 5, or named as in the columns `model_a` and `model_b`;
    - an answer a row: `response` with a `label` (chosen, rejected, 1, 0), a `rating` or
      a `rank`;
    - lists: `responses` with `labels` or `ratings`, or `completions` that hold texts
      and ratings.

    The prompt is `prompt`, `question`, `messages` or `instruction` with the columns
    `system`, `history` and `tools`, or the shared prefix of the answers. Optional:
    `id` (default: the row's number), `domain`, `subset`, `benchmark`, `family` (the
    cluster; see Notes), and with scores `model`. Other columns of short texts or
    numbers stay as extra columns. "Layouts of public data" in the documentation shows
    how public data sets are read.

    Parameters
    ----------
    source : DataFrame, list of dicts, str or Path
        A DataFrame, polars or Arrow table or `datasets.Dataset` (of a hub dataset,
        `datasets.load_dataset("owner/name", split="train")`); dicts; or a file (JSON,
        JSON lines, CSV, TSV or Parquet; .gz and .zst are unpacked).
    name : str, optional
        Name of the benchmark (default: the file's name).
    columns : mapping, optional
        The names above to the names in the data, for example `{"chosen": "better",
        "rejected": ["worse_1", "worse_2"]}`; a dot leads into a nested object. None as
        a value ignores a column. Of several columns an empty cell means one answer
        fewer.
    winner : str, optional
        The column that says which of two answers won: a or b, 1 or 2, `A>B` or `B>A`,
        the name of an answer's column, the name in `model_a` or `model_b`, or a tie.
        Ties, and rows without one of these, are left out and counted.
    better : {"a", "b"}, optional
        The answer that larger numbers of a graded winner favour. The middle of the
        scale is a tie; the distance from it becomes the column `strength`.
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
    data = read_source(source)
    benchmark = records.file_stem(data.place) if name is None else name
    tables.require_text("name", benchmark)
    mapping = dict(columns or {})
    if winner is not None:
        mapping["winner"] = winner

    table = match_roles(data, mapping, better)
    layout = find_layout(table, mapping)
    answers = read_table(table, layout, benchmark, drop_bad=on_bad_rows == "drop")
    answers = answers.drop(columns=["model", "score"])
    # Of several models each has the same answers.
    responses = tables.check_responses(answers.drop_duplicates(tables.KEY))
    responses.attrs["understood"] = _describe(table, layout, responses)
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
    if not table.has_any(*SCORE_ROLES):
        present = short(list(data.columns), 400)
        problem = f"{data.place}: no column of scores; found: {present}"
        command = f"rmlab score {data.place} MODEL"
        remedy = f"pass {name_column(SCORED_PAIR[0])}, or score the texts: {command}"
        raise DataError(problem, remedy)
    layout = find_layout(table, columns)
    is_named = table.has("model") or model is not None
    benchmark = name_benchmark(data.place, None if is_named else name)
    scores = read_table(table, layout, benchmark)
    _describe(table, layout, scores)
    scores["model"] = scores["model"].replace("", name or name_model(data.place))
    if model is not None:
        scores["model"] = model
    return hash_texts(scores)


def name_model(place: Path) -> str:
    """The model that a file is called after, as reward-bench writes them, too."""
    return records.file_stem(place).removesuffix("_outputs").removesuffix("_all")


def name_benchmark(place: Path, model: str | None) -> str:
    """The file's name, or its folder's where the file is called after its model."""
    if model is not None and model == name_model(place):
        return place.resolve().parent.name
    return records.file_stem(place)


def hash_texts(answers: pd.DataFrame) -> pd.DataFrame:
    """Answers with hashes as `TEXTS` in place of their texts.

    A file without texts may name its prompts by their families.
    """
    prompts = answers["prompt"].fillna(answers.get("family", ""))
    texts = prompts.map(str).str.strip() + "\n" + answers["response"].map(str)
    hashed = answers.drop(columns=["prompt", "response"])
    hashed[TEXTS] = pd.util.hash_array(texts.to_numpy(object))
    return hashed


def read_table(
    table: OwnTable,
    layout: OwnLayout,
    benchmark: str,
    *,
    drop_bad: bool = False,
    compares: bool = True,
) -> pd.DataFrame:
    """A row per answer of all comparisons of people's own data; not checked yet.

    `compares`: a prompt without a chosen or without a rejected answer is bad.
    """
    if layout.prepare is not None:
        layout.prepare(table)
    is_rated = layout.parts[0].find_mark(table) not in (None, "label", "labels")
    names = _name_rows(table, layout, benchmark)
    answers, errors = _list_answers(table, layout, names["number"], is_rated, compares)
    if errors and (not drop_bad or not answers):
        first = errors[0]
        problem = f"{first.problem} ({len(errors)} such prompts)"
        remedy = first.remedy
        if compares and not table.is_scored:
            remedy = f"{remedy}, or pass on_bad_rows='drop'"
        raise DataError(problem, remedy)
    table.left_out["cannot be read"] += len(errors)

    frame = pd.DataFrame(answers, columns=Answer._fields, dtype=object)
    frame = frame.drop(columns="role").astype({"row": int, "mark": float})
    frame = frame.join(names, on="row")
    frame["id"] = _name_prompts(table, layout, frame)
    key = PROMPT if is_rated else [*PROMPT, "mark"]
    frame["slot"] = _number_answers(table, layout, frame, key)
    if is_rated:
        frame = _compare_ratings(table, frame)
    else:
        frame["label"] = np.where(frame["mark"] > 0, *LABELS)
    frame["response"] = _cut_prompts(frame)

    families = frame["prompt"].map(name_family, na_action="ignore")
    frame["family"] = frame["family"].fillna(families.astype("str"))
    n_prompts = len(frame.drop_duplicates(PROMPT))
    if not table.has("family") and frame["family"].nunique() in (0, n_prompts):
        frame = frame.drop(columns="family")
    columns = {name: table.columns[name] for name in _list_extra(table)}
    if "strength" in table.found:
        columns["strength"] = table.found["strength"]
    extra = pd.DataFrame(columns, index=range(len(table)))
    extra = extra.take(frame.pop("row").to_numpy()).set_axis(frame.index)
    return pd.concat([frame.drop(columns=["number", "mark"]), extra], axis=1)


def _name_rows(table: OwnTable, layout: OwnLayout, benchmark: str) -> pd.DataFrame:
    """The names of each row, and the number of its prompt: the row's, or that of the
    rows of one id or text.
    """
    if layout.is_grouped and not table.has_any("id", "prompt"):
        problem = f"{table.place}: answers a row need a column for their prompt"
        raise DataError(problem, f"pass {name_column('id')}")
    names = pd.DataFrame(index=range(len(table)))
    for role in ("model", *PROMPT, "subset", "family"):
        names[role] = pd.Series(table.names(role), dtype="str")
        needs_name = role in ("model", "id") and table.has(role)
        if needs_name and names[role].hasnans:
            row = int(names[role].isna().argmax())
            table.refuse(row, role, "given in every row", "fill it in")
    names["model"] = names["model"].fillna("")
    names["benchmark"] = names["benchmark"].fillna(benchmark)
    names["domain"] = names["domain"].fillna(names["subset"]).fillna(names["benchmark"])
    names["subset"] = names["subset"].fillna(names["domain"])

    numbers = pd.Series(range(len(names)))
    if layout.is_grouped:
        key = names[["model", *PROMPT, "subset"]].fillna("")
        texts = zip(*map(table.cells, ("prompt", *CONTEXT)), strict=True)
        key["texts"] = [*map(repr, texts)]
        numbers = key.groupby([*key], sort=False).ngroup()
    return names.assign(number=numbers)


def _list_answers(
    table: OwnTable,
    layout: OwnLayout,
    numbers: pd.Series,
    is_rated: bool,
    compares: bool,
) -> tuple[list[Answer], list[DataError]]:
    """The answers of all prompts, and the errors of those that cannot be read."""
    answers: list[Answer] = []
    errors = []
    rows_of_prompt: dict[int, list[int]] = {}
    for row, number in enumerate(numbers.tolist()):
        rows_of_prompt.setdefault(number, []).append(row)
    for rows in rows_of_prompt.values():
        try:
            of_prompt = _read_prompt(table, layout, rows)
            n_labels = len({answer.mark for answer in of_prompt})
            if compares and not is_rated and n_labels == 1:
                role = "label" if table.has("label") else "prompt"
                allowed = "a chosen and a rejected answer to each prompt"
                remedy = "load single answers with load_pool"
                table.refuse(rows[0], role, allowed, remedy)
            answers += of_prompt
        except DataError as error:
            errors.append(error)
    return answers, errors


def _read_prompt(
    table: OwnTable, layout: OwnLayout, rows: Sequence[int]
) -> list[Answer]:
    """The answers of a prompt, which stand in one or several rows."""
    answers = [answer for row in rows for answer in read_row(table, layout, row)]
    if not answers:
        table.left_out["no answer"] += 1
        return []
    role = answers[-1].role
    responses: Sequence[object]
    if table.has(role):
        turns = [read_answer(table, *answer[:3]) for answer in answers]
        prompt, responses = split_prompt(table, rows, role, turns)
        if prompt is None and not table.is_scored:
            table.refuse(rows[0], "prompt", "given, or begin the answers", "fill it in")
        if not all(map(tables.is_response, responses)):
            table.refuse(rows[-1], role, "an answer that is not empty")
    else:
        prompt = read_prompt(table, rows[0])
        responses = [table.cells("candidate")[answer.row] for answer in answers]
    return [
        answer._replace(prompt=prompt, response=response)
        for answer, response in zip(answers, responses, strict=True)
    ]


def _name_prompts(table: OwnTable, layout: OwnLayout, frame: pd.DataFrame) -> pd.Series:
    """The id of each answer's prompt: the cell of its column, or the number of its row.
    Of several models' rows equal prompts have the number of the first.
    """
    has_ids = table.has("id")
    if not has_ids:
        if len(frame["model"].unique()) == 1:
            return frame["number"].astype("str")
        if not layout.has_texts(table) and not table.has("prompt"):
            problem = f"{table.place}: rows of several models have no id"
            raise DataError(problem, f"pass {name_column('id')}")
        frame = frame.assign(id=frame["prompt"].map(repr))
    prompts = frame.drop_duplicates("number")
    repeated = prompts[prompts.duplicated(["model", *PROMPT])]
    if len(repeated):
        first = short(repeated["id"].iloc[0])
        problem = f"{table.place}: a model has the prompt {first} twice"
        remedy = f"number the items, and pass {name_column('id')}"
        if has_ids:
            problem = f"{table.place}: 'id' {first} occurs twice in a domain"
            family = name_column("family", table.roles["id"][0])
            remedy = f"repair the ids, or take them for families of prompts: {family}"
        raise DataError(problem, remedy)
    if has_ids:
        return frame["id"]
    return frame.groupby(PROMPT)["number"].transform("first").astype("str")


def _number_answers(
    table: OwnTable, layout: OwnLayout, frame: pd.DataFrame, key: list[str]
) -> IntArray:
    """The place of each answer among those of its prompt and label, by content, so that
    it is the same for all models; the n-th of equal answers is the n-th of the others'.
    """
    by_model = ["model", *key]
    has_content = layout.has_texts(table) or table.has("candidate")
    needs_content = layout.is_grouped and len(frame["model"].unique()) > 1
    if needs_content and not has_content and frame.duplicated(by_model).any():
        problem = f"{table.place}: nothing tells the answers of a prompt apart"
        raise DataError(problem, "number them in a column 'candidate'")

    answers = frame.assign(content=frame["response"].map(repr))
    answers["copy"] = answers.groupby([*by_model, "content"]).cumcount()
    codes, first_rows = group_codes(answers, [*key, "content", "copy"])
    places = answers.iloc[first_rows].groupby(key, sort=False).cumcount()
    return np.asarray(places, np.intp)[codes]


def _compare_ratings(table: OwnTable, frame: pd.DataFrame) -> pd.DataFrame:
    """The pairs of rated answers of each prompt; equal ratings are ties, which are left
    out.
    """
    refuse_minus_one(table.place, {*frame["mark"].dropna()})
    answers = frame[["number", "mark", "slot"]].reset_index(names="place")
    pairs = answers.merge(answers, on="number", suffixes=("", "_b"))
    is_tie = (pairs["mark"] == pairs["mark_b"]) & (pairs["place"] < pairs["place_b"])
    left_out = table.left_out
    left_out["tie"] += int(is_tie.sum())
    if not table.has("mark_a"):
        left_out["without a rating"] += int(frame["mark"].isna().sum())
        left_out["the only answer"] += int((~frame["number"].duplicated(False)).sum())

    pairs = pairs[pairs["mark"] > pairs["mark_b"]]
    if pairs.empty:
        problem = f"{table.place}: no winner, no two different ratings"
        remedy = "allowed: a, b, A>B, tie, 1, 2"
        raise DataError(f"{problem}; left out: {dict(+left_out)}", remedy)
    places = pairs[["place", "place_b"]].to_numpy().ravel()
    compared = frame.iloc[places].reset_index(drop=True)
    compared["label"] = np.resize(LABELS, len(compared))
    compared["slot"] = 0
    if frame["slot"].max() > 1:
        # Each of several pairs of a prompt has a name.
        slots = np.sort(pairs[["slot", "slot_b"]].to_numpy(), axis=1)
        names = [f":{first}-{second}" for first, second in slots]
        compared["id"] += np.repeat(names, 2)
    return compared


def _cut_prompts(frame: pd.DataFrame) -> pd.Series:
    """The responses, without the prompt if every one of them begins with it."""
    responses = []
    for prompt, response in zip(frame["prompt"], frame["response"], strict=True):
        if not isinstance(prompt, str) or not isinstance(response, str):
            return frame["response"]
        rest = response.removeprefix(prompt).strip()
        if rest in ("", response.strip()):
            return frame["response"]
        responses.append(rest)
    return pd.Series(responses, index=frame.index, dtype=object)


def _list_extra(table: OwnTable) -> list[str]:
    """The columns of short texts and numbers that have no role."""
    used = _RESERVED.union(*table.roles.values())
    extra = []
    for name, cells in table.columns.items():
        is_plain = {*map(type, cells)} <= {str, bool, int, float, type(None)}
        lengths = [len(cell) for cell in cells if isinstance(cell, str)]
        if name not in used and is_plain and max(lengths, default=0) <= _LONGEST_EXTRA:
            extra.append(name)
    return extra


def _describe(
    table: OwnTable, layout: OwnLayout, answers: pd.DataFrame
) -> dict[str, object]:
    """What was understood, which is also said in one line where it is not obvious."""
    columns = {}
    for role in ROLES:
        if table.has(role) and role in table.found:
            columns[role] = table.roles[role]
    extra = _list_extra(table)
    used = set(extra).union(*columns.values())
    left_out = dict(+table.left_out)
    notes = table.notes.copy()
    if left_out:
        notes.append(f"left out: {short(left_out, 200)}")
    if "family" in answers:
        n_families = answers["family"].nunique()
        notes.append(f"{n_families} families, which intervals and n_prompts count")
    if notes or layout.name != "pairs":
        n_items = len(answers.drop_duplicates(PROMPT))
        line = f"{table.place}: {layout.name}, {n_items} comparisons"
        named = {role: names[0] for role, names in columns.items() if names != [role]}
        if named:
            notes.insert(0, f"columns {short(named, 200)}")
        _log.warning("; ".join([line, *notes]))
    return {
        "layout": layout.name,
        "columns": columns,
        "extra": extra,
        "ignored": [column for column in table.columns if column not in used],
        "left_out": left_out,
    }
