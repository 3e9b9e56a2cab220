"""Responses to scores: any scorer, each distinct text once, resumable with a store."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.benchmarks.own_prompts import list_answers
from rmlab.scoring.cluster import Ray
from rmlab.scoring.stores import merge_stores
from rmlab.scoring.texts import Shard
from rmlab.scoring.walk import (
    Models,
    make_run_options,
    open_models,
    score_answers,
    score_table,
)
from rmlab.tables import DataError

__all__ = ["Ray", "merge_stores", "prefer", "rewards", "score"]

REWARD = "reward"
"""The column that `rewards` adds."""

_NAME = "answers"


def score(
    responses: pd.DataFrame,
    model: "Models",
    *,
    store: str | Path | None = None,
    shard: Shard | None = None,
    cluster: str | Ray | None = None,
    batch: int = 256,
    allow_missing: bool = False,
    progress: bool | None = None,
    device: str | None = None,
    dtype: str | None = None,
    template: str | Path | None = None,
    max_batch_tokens: int | None = None,
    **options: object,
) -> pd.DataFrame:
    """Score every response. Identical texts are scored once.

    Parameters
    ----------
    responses : DataFrame
        A table of responses.
    model : str, Path, scorer, list of these, or mapping from names to these
        The name of a baseline ("longest"), a model id ("owner/name") or folder, or a
        scorer: a function of (prompts, responses), two lists, that returns one number
        per text, or an object with such a call and a `name`. A judge (`rmlab.judge`) is
        a scorer, too.
    store : str or Path, optional
        A folder, or a URL that fsspec knows ("s3://bucket/scores"). Every batch is put
        there as it comes, so that an interrupted run resumes and a rerun forwards
        nothing. A function needs an attribute `fingerprint` for that. A run that ended
        leaves its table there as well. Processes that run at the same time each need a
        `shard`: without it they score the same texts.
    shard : str or tuple of int, optional
        "3/16" scores, and returns, the third of sixteen parts of whole prompts.
    cluster : str or Ray, optional
        "ray", "ray://host:port" or a `rmlab.scoring.Ray`: score on a Ray cluster, one
        worker for each GPU or CPU.
    batch : int
        Texts of a call of a function, where there is a store.
    allow_missing : bool
        Whether a text may be without a score. It is counted in the provenance.
    progress : bool, optional
        Whether to show a bar; by default on a terminal only.
    device, dtype, template, max_batch_tokens, **options
        Go to `rmlab.classifier` where a string names a model, such as `system=`, a
        system message before every conversation. `name` names any model; it may be a
        list, one for each.

    Returns
    -------
    DataFrame
        A scores table in the row order of `responses`, models one after the other.
        Behind the score follow attributes that a scorer rates, the column `verdict` of
        a judge, and further columns of `responses` that are constant within a prompt.
        `attrs["provenance"]` says per model what scored the texts.

    Raises
    ------
    DataError
        For an unknown name, scores that are not one finite number per text, and a store
        that cannot be used.
    OSError
        Where the disk is full.

    Examples
    --------
    >>> import pandas as pd
    >>> responses = pd.DataFrame({"label": ["chosen", "rejected"], "slot": 0,
    ...     "benchmark": "b", "domain": "chat", "id": "0",
    ...     "prompt": "Hi", "response": ["Hello there.", "No."]})
    >>> def characters(prompts, responses):
    ...     return [len(response) for response in responses]
    >>> score(responses, characters)[["model", "label", "score"]]
            model     label  score
    0  characters    chosen   12.0
    1  characters  rejected    3.0
    """
    options |= {"device": device, "dtype": dtype, "template": template}
    options["max_batch_tokens"] = max_batch_tokens
    run = make_run_options(store, cluster, batch, allow_missing, progress)
    return score_table(responses, model, options, run, shard=shard, pairwise=False)


def prefer(
    responses: pd.DataFrame,
    model: "Models",
    *,
    store: str | Path | None = None,
    shard: Shard | None = None,
    cluster: str | Ray | None = None,
    batch: int = 256,
    allow_missing: bool = False,
    progress: bool | None = None,
    device: str | None = None,
    dtype: str | None = None,
    max_batch_tokens: int | None = None,
    **options: object,
) -> pd.DataFrame:
    """Compare every chosen with every rejected answer of a prompt by a model that sees
    two answers at once.

    Parameters
    ----------
    responses : DataFrame
        A table of responses.
    model : str, Path, scorer, list of these, or mapping from names to these
        A model id or folder, a scorer with `prefer(prompts, first, second)`, or a
        judge. Models of `rmlab.pairwise` are asked for each comparison in both orders,
        and the margin is the average of the two; what is scored, stored and counted is
        then one order of a comparison.
    store, shard, cluster, batch, progress
        As in `rmlab.score`.
    allow_missing : bool
        Whether a comparison may be without a number, in either order; its outcome is
        missing.
    device, dtype, max_batch_tokens, **options
        Go to `rmlab.pairwise` where a string names a model.

    Returns
    -------
    DataFrame
        A pairs table, models one after the other, rows as `rmlab.pairs` orders them.
        The margin is above 0 where the chosen answer is preferred. A judge adds
        `verdict` (win, tie, loss, flip, unparsable, failed), `vote_first` and
        `vote_second` (the mean vote for the chosen answer where it is shown first and
        second, -1 to 1). Its margin is missing, unless it reads log-probabilities or
        has five verdicts: these give votes from -2 to 2, a margin that is their mean
        over the orders, and `strength`, the margin without its sign.
        Further columns of `responses` that are constant within a prompt follow.

    Raises
    ------
    DataError, OSError
        Where `rmlab.score` raises them.
    """
    options |= {"device": device, "dtype": dtype}
    options["max_batch_tokens"] = max_batch_tokens
    run = make_run_options(store, cluster, batch, allow_missing, progress)
    return score_table(responses, model, options, run, shard=shard, pairwise=True)


def rewards(
    frame: pd.DataFrame,
    model: "Models",
    *,
    prompt: str | None = "prompt",
    response: str = "response",
    store: str | Path | None = None,
    cluster: str | Ray | None = None,
    batch: int = 256,
    allow_missing: bool = False,
    progress: bool | None = None,
    device: str | None = None,
    dtype: str | None = None,
    template: str | Path | None = None,
    max_batch_tokens: int | None = None,
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
    store, cluster, batch, progress
        A folder or URL, as for `rmlab.score`; it keeps the scores, and no table.
    device, dtype, template, max_batch_tokens, **options
        As in `rmlab.score`.
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
    options |= {"device": device, "dtype": dtype, "template": template}
    options["max_batch_tokens"] = max_batch_tokens
    run = make_run_options(store, cluster, batch, allow_missing, progress)
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
