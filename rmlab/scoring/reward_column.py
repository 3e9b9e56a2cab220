"""A list of answers without labels: people's own table with a reward for each row."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.records import fail
from rmlab.scorers.base import Prompt
from rmlab.scoring.cluster import Ray
from rmlab.scoring.walk import Models, make_run_options, open_models, score_answers
from rmlab.store import Store
from rmlab.tables import DataError, is_broken, is_conversation, require_columns

REWARD = "reward"
"""The column that is added."""

_NAME = "answers"
_TEXT = "a string, or a list of messages with 'role' and 'content'"
_CHAT = "messages that end with the assistant's answer, and a prompt before it"
_REMEDY = "repair the row, or leave the cell empty"


class _AnsweredRow(NamedTuple):
    """The number of a row, and its text."""

    row: int
    prompt: Prompt
    response: str


def rewards(
    frame: pd.DataFrame,
    model: Models,
    *,
    prompt: str | None = "prompt",
    response: str = "response",
    store: str | Path | Store | None = None,
    cluster: str | Ray | None = None,
    batch: int = 256,
    allow_missing: bool = False,
    progress: bool | None = None,
    **options: object,
) -> pd.DataFrame:
    """Add a reward to each row of a table of answers, which needs no labels.

    Parameters
    ----------
    frame : DataFrame
        A row per answer.
    model : str, Path or scorer
        One model, given as `rmlab.score` takes it.
    prompt : str, optional
        Column of the prompts: strings, or lists of messages. None where the column of
        the answers holds whole chats.
    response : str
        Column of the answers: strings, or lists of messages, the last of which is the
        assistant's. Those before it continue the prompt.
    store, cluster, batch, progress, **options
        A folder or URL, as for `rmlab.score`; it keeps the scores, and no table.
    allow_missing : bool
        Whether the model may give no number for an answer.

    Returns
    -------
    DataFrame
        A copy with the column `reward`; rows, index and all other columns are as they
        were. The reward is NaN where the prompt or the answer is missing, or the answer
        is empty. `attrs["provenance"]` says what scored the texts.

    Raises
    ------
    DataError
        Naming the row of a cell that is no text, and as in `rmlab.score`.

    Examples
    --------
    >>> answers = pd.DataFrame({
    ...     "prompt": ["Name a prime.", "Name a prime.", "Hi"],
    ...     "response": ["Seven.", None, "Hello there."],
    ...     "step": [100, 200, 100]})
    >>> rewards(answers, "longest")[["step", "reward"]]
       step  reward
    0   100     6.0
    1   200     NaN
    2   100    12.0
    """
    roles = {response: "assistant"}
    if prompt is not None:
        roles = {prompt: "user", response: "assistant"}
    require_columns(frame, [*roles], _NAME)
    if REWARD in frame:
        problem = f"{_NAME}: there is a column {REWARD!r} already"
        raise DataError(problem, "rename it, so that nothing is overwritten")

    responses = _list_responses(_read_answers(frame, roles))
    run = make_run_options(
        store=store,
        cluster=cluster,
        batch=batch,
        allow_missing=allow_missing,
        progress=progress,
    )
    models = open_models(model, options, run, pairwise=False)
    if len(models) > 1:
        problem = f"model: {len(models)} models for one column {REWARD!r}"
        raise DataError(problem, "give one at a time")
    [(name, scorer)] = models.items()

    table = frame.copy()
    reward = np.full(len(table), np.nan)
    if len(responses):
        scored, provenance = score_answers(scorer, responses, run, key_columns=["row"])
        reward[responses["row"]] = scored["score"]
        table.attrs["provenance"] = {name: provenance}
    table[REWARD] = reward
    return table


def _list_responses(answers: Iterator[_AnsweredRow]) -> pd.DataFrame:
    """The answers as responses, those to equal prompts under one id."""
    listed = pd.DataFrame(answers, columns=_AnsweredRow._fields, dtype=object)
    spelled = listed["prompt"].map(json.dumps)
    prompt_number, _ = pd.factorize(spelled)
    return pd.DataFrame(
        {
            "benchmark": _NAME,
            "domain": _NAME,
            "id": prompt_number,
            "label": "chosen",
            "slot": spelled.groupby(spelled).cumcount(),
            "subset": _NAME,
            "style": pd.Series(pd.NA, index=listed.index, dtype=tables.STYLE),
            "prompt": listed["prompt"],
            "response": listed["response"],
            "row": listed["row"].astype(np.intp),
        }
    )


def _read_answers(
    frame: pd.DataFrame, roles: Mapping[str, str]
) -> Iterator[_AnsweredRow]:
    """The rows that have a prompt and an answer; DataError for cells without text.

    `roles`: who speaks in each column, the answer's last.
    """
    *_, response = roles
    cells_of = frame[[*roles]].itertuples(index=False, name=None)
    for row, cells in enumerate(cells_of):
        if any(_is_missing(cell) for cell in cells):
            continue
        turns = []
        for (column, role), cell in zip(roles.items(), cells, strict=True):
            turns += _read_turns(row, column, role, cell)

        *before, last = turns
        if not before or last["role"] != "assistant":
            fail(_NAME, row, {response: cells[-1]}, response, _CHAT, _REMEDY)
        if last["content"]:
            yield _AnsweredRow(row, _unwrap_question(before), last["content"])


def _is_missing(cell: Any) -> bool:
    return bool(pd.api.types.is_scalar(cell) and pd.isna(cell))


def _read_turns(row: int, column: str, role: str, cell: object) -> list[dict[str, str]]:
    """The messages of a cell; a string is one message of that role."""
    if isinstance(cell, np.ndarray):
        cell = cell.tolist()  # as Parquet files are read
    turns = cell
    if isinstance(cell, str):
        turns = [{"role": role, "content": cell}]
    if not is_conversation(turns) or is_broken(turns):
        fail(_NAME, row, {column: cell}, column, _TEXT, _REMEDY)
    return cast("list[dict[str, str]]", turns)


def _unwrap_question(turns: list[dict[str, str]]) -> Prompt:
    """The text where the user asks once, so that both spellings are one prompt."""
    question = turns[0]["content"]
    if turns == [{"role": "user", "content": question}]:
        return question
    return turns
