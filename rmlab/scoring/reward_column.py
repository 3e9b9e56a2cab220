"""A list of answers without labels: people's own table with a reward for each row."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.benchmarks.own_prompts import list_answers
from rmlab.scoring.cluster import Ray
from rmlab.scoring.walk import Models, make_run_options, open_models, score_answers
from rmlab.store import Store
from rmlab.tables import DataError

REWARD = "reward"
"""The column that is added."""

_NAME = "answers"


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
        Column of the prompts: strings, or lists of messages; the columns `system`,
        `history` and `tools` belong to it. None where the column of the answers holds
        whole chats.
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
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f"frame: expected a DataFrame, got {type(frame).__name__}")
    if REWARD in frame:
        problem = f"{_NAME}: there is a column {REWARD!r} already"
        raise DataError(problem, "rename it, so that nothing is overwritten")

    responses = _list_responses(list_answers(frame, prompt, response))
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


def _list_responses(listed: pd.DataFrame) -> pd.DataFrame:
    """The answers as responses, those to equal prompts under one id."""
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
