"""Pools of candidates: tables of any number of right and wrong answers to a prompt."""

import json
from collections.abc import Container, Mapping
from typing import cast

import numpy as np
import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks.conversations import (
    Prompt,
    Response,
    SplitAnswers,
    Turns,
    split_answers,
)
from rmlab.benchmarks.own_layouts import read_label, read_number
from rmlab.benchmarks.own_prompts import PromptReader, read_answer
from rmlab.benchmarks.roles import OwnTable, match_roles
from rmlab.benchmarks.sources import IN_MEMORY, Cells, Source, read_source
from rmlab.estimation.best_of import N_CANDIDATES
from rmlab.tables import PROMPT, DataError, IntArray, group_codes
from rmlab.text import short

_NAMES = {"model", "benchmark", "domain", "id", "subset"}
_USUAL = _NAMES | {"score", "correct"}


def load_pool(
    source: object,
    *,
    prompt: str | None = None,
    response: str | None = None,
    correct: str | None = None,
    name: str | None = None,
    model: str | None = None,
    allow_missing: bool = False,
) -> pd.DataFrame:
    """Load the candidates of many prompts, for best of n.

    Parameters
    ----------
    source : DataFrame, list of dicts, str or Path
        One row per candidate, as `load_preferences` takes it: the columns below, and
        where they are there `id`, `domain`, `subset`, `benchmark`, and with scores
        `model` and `score`. A prompt may have any number of right and wrong candidates,
        also none of one kind.
    prompt : str, optional
        The column of the prompt: its text or messages, or its name where there are no
        texts (default: `prompt`, `question` or `problem`, else `id`).
    response : str, optional
        The column of the candidates' texts (default: `response`, `completion` or
        `answer`); it may be missing where there are scores.
    correct : str, optional
        The column that says whether a candidate is right: true or false, 1 or 0
        (default: `correct` or `label`).
    name : str, optional
        Name of the benchmark and of its domain, where the data do not say them
        (default: "pool", or the file's name).
    model : str, optional
        Name of the model of scores, where the data do not say it.
    allow_missing : bool
        Whether missing scores pass. They are counted as missing later.

    Returns
    -------
    DataFrame
        Scores, where the data have a column `score`, else responses to score. Right
        candidates are `chosen`, wrong ones `rejected`; `n_candidates` counts those of
        the prompt. Other columns stay, such as `answer`, `n_steps` and `characters`,
        which `best_of_curve` compares with; of scored texts only the length stays,
        as `characters`. Equal candidates of several models have one slot, whatever the
        order of the rows.

    Raises
    ------
    DataError
        For a column that is not there, a candidate without prompt, correctness or
        score, and candidates of several models that cannot be told apart.

    Examples
    --------
    >>> frame = pd.DataFrame({"question": ["2 + 2?"] * 3, "text": ["4", "four", "5"]})
    >>> frame["right"] = [True, True, False]
    >>> pool = load_pool(frame, response="text", correct="right")
    >>> pool[["id", "label", "slot", "response", "n_candidates"]]
      id     label  slot response  n_candidates
    0  0    chosen     0        4             3
    1  0    chosen     1     four             3
    2  0  rejected     0        5             3
    """
    data = _rename(read_source(source), {prompt, response, correct})
    is_scored = "score" in data.columns
    table = _match_pool(
        data, {"prompt": prompt, "response": response, "label": correct}
    )
    has_chats = table.has("response") and not table.has("prompt")
    table.require("label", *([] if is_scored else ["response"]))
    if not has_chats:
        table.require("prompt")
    if is_scored and "model" not in data.columns and model is None:
        problem = f"{data.place}: scores without a column 'model'"
        remedy = "name it: model='my-rm', or add the column"
        present = short(list(data.columns), 200)
        raise DataError(f"{problem}; columns: {present}", remedy)

    pool = _read_pool(table)
    if model is not None and is_scored:
        pool["model"] = model
    benchmark = name
    if name is None:
        is_memory = data.place == IN_MEMORY
        benchmark = "pool" if is_memory else records.file_stem(data.place)
    for column in ("benchmark", "domain"):
        if column not in pool:
            pool[column] = benchmark
    key = [column for column in ("model", *PROMPT) if column in pool]
    _refuse_reused(table, pool)
    pool["slot"] = _number_slots(table, pool)
    pool[N_CANDIDATES] = pool.groupby(key, sort=False)["slot"].transform("size")
    if not is_scored:
        return tables.check_responses(pool)
    if table.has("response"):
        pool["characters"] = pool["response"].str.len()
    pool = pool.drop(columns=["prompt", "response"], errors="ignore")
    return tables.check_scores(pool, allow_missing=allow_missing)


def _rename(data: Source, named: Container[str | None]) -> Source:
    """The data with the usual names in small letters, but for columns that are named
    by the user.
    """
    columns: dict[str, Cells] = {}
    for name, cells in data.columns.items():
        usual = name.strip().lower()
        is_usual = usual in _USUAL and usual not in data.columns
        is_free = name not in named and usual not in columns
        columns[usual if is_usual and is_free else name] = cells
    return Source(data.place, columns, data.comma)


def _refuse_reused(table: OwnTable, pool: pd.DataFrame) -> None:
    """Raise DataError where one id has two prompts."""
    asked = pool["prompt"].map(_spell)
    keys = [pool[column] for column in PROMPT]
    is_reused = (asked.groupby(keys).transform("nunique") > 1).to_numpy()
    if is_reused.any():
        row = int(is_reused.argmax())
        remedy = "number the prompts, or leave out the ids"
        table.source.refuse(row, "id", "that of one prompt", remedy)


def _match_pool(data: Source, named: Mapping[str, str | None]) -> OwnTable:
    """The columns of a pool: those named, or else of the usual names."""
    mapping: dict[str, str | None] = {}
    for role, column in named.items():
        if column is not None:
            mapping[role] = column
    columns = data.columns.keys()
    if "correct" in columns:
        mapping.setdefault("label", "correct")
    if "score" in columns and "response" not in columns:
        mapping.setdefault("response", None)  # "answer" is the answer extracted from it
    table = match_roles(data, mapping, None)
    if not table.has("prompt") and "id" in columns:
        return match_roles(data, {**mapping, "prompt": "id"}, None)
    return table


def _read_pool(table: OwnTable) -> pd.DataFrame:
    """The columns of a pool: prompts, labels and responses read, the others as they
    are.
    """
    rows = range(len(table.source))
    prompts: Cells = []
    reader = PromptReader(table)
    for row, cell in enumerate(table.cells("prompt")):
        # A number names a prompt.
        asked = cell if isinstance(cell, int | float) else reader.read(row)
        prompts.append(asked)
    labels = [read_label(table, row) for row in rows]
    used = [table.roles[role][0] for role in ("prompt", "label") if table.has(role)]
    used += table.roles["response"]
    if "score" not in table.source.columns:
        used.append("model")  # The model that wrote the candidate.
    kept = {
        column: cells
        for column, cells in table.source.columns.items()
        if column not in used or column == "id"
    }
    for column in _NAMES & kept.keys():
        for row, cell in enumerate(kept[column]):
            if not pd.api.types.is_scalar(cell):
                table.source.refuse(row, column, "one name")
    if "score" in kept:
        cells = kept["score"]
        kept["score"] = [read_number(table, row, "score", cells[row]) for row in rows]
    pool = pd.DataFrame(kept, index=rows)
    has_texts = table.has("response")
    if has_texts:
        texts = []
        for row, cell in enumerate(table.cells("response")):
            answer = read_answer(table, row, "response", cell)
            split = _split_answer(table, row, prompts[row], answer)
            prompts[row] = split.prompt
            texts.append(split.responses[0])
        pool["response"] = pd.Series(texts, dtype=object)
    if None in prompts:
        table.refuse(prompts.index(None), "prompt", "given in every row", "fill it in")
    pool["prompt"] = pd.Series(prompts, dtype=object)
    pool["label"] = labels
    if "id" not in pool:
        spelled = [_spell(asked) for asked in prompts]
        numbers = pd.factorize(np.array(spelled, object))[0]
        pool["id"] = pd.Series(numbers, dtype="str") if has_texts else spelled
    return pool


def _split_answer(
    table: OwnTable, row: int, prompt: object, answer: Turns
) -> SplitAnswers:
    """The prompt and the response of a candidate, which may hold the prompt."""
    if isinstance(prompt, int | float):
        return SplitAnswers(cast("Prompt", prompt), [cast("Response", answer)], False)
    split = split_answers(cast("Prompt | None", prompt), [answer])
    if split is None:
        allowed = "messages that end with the assistant's answer to the prompt"
        table.refuse(row, "response", allowed)
    return split


def _spell(prompt: object) -> str:
    return prompt if isinstance(prompt, str) else json.dumps(prompt, default=str)


def _number_slots(table: OwnTable, pool: pd.DataFrame) -> IntArray:
    """The place of each candidate among those of its prompt and label: by content, so
    that it is the same for all models.
    """
    label = [*PROMPT, "label"]
    if "model" not in pool or pool["model"].nunique() < 2:
        return np.asarray(
            pool.groupby(label, sort=False, dropna=False).cumcount(), np.intp
        )

    read = {"model", "score", "prompt", "steps", *label}
    columns = ["response"]
    if not table.has("response"):
        columns = [str(column) for column in pool if column not in read]
    spelled = pool[columns].astype("str").to_numpy().tolist()
    named = pool[label].assign(content=[repr(cells) for cells in spelled])
    content = [*label, "content"]
    named["copy"] = named.groupby(
        [pool["model"], *content], sort=False, dropna=False
    ).cumcount()
    if not table.has("response") and named["copy"].any():
        rows_of_model = named[content].groupby(pool["model"], sort=False)
        orders = [rows.to_numpy().tolist() for _, rows in rows_of_model]
        if any(order != orders[0] for order in orders):
            row = int(named["copy"].to_numpy().argmax())
            problem = (
                f"{table.source.place}: row {row} repeats a candidate of its model"
            )
            remedy = (
                "add a column that tells them apart, such as the candidate's number"
            )
            raise DataError(problem, remedy)
    codes, first_rows = group_codes(named, [*content, "copy"])
    places = named.iloc[first_rows].groupby(label, sort=False, dropna=False).cumcount()
    return np.asarray(places, np.intp)[codes]
