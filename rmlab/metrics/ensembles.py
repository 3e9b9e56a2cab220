"""Several models' scores to one: the mean, standardised or by rank, or a vote on every
pair of answers.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from rmlab import tables
from rmlab.tables import KEY, PROMPT, DataError, FloatArray, group_codes

How = Literal["mean", "zscore", "rank", "vote"]
HOW = ("mean", "zscore", "rank", "vote")


def ensemble(
    scores: pd.DataFrame,
    models: Sequence[str] | None = None,
    *,
    how: How = "mean",
    name: str | None = None,
) -> pd.DataFrame:
    """Combine the scores of several models into those of one.

    No way of combining looks at the labels.

    Parameters
    ----------
    scores : DataFrame
        A table of scores.
    models : sequence of str, optional
        The models to combine; default: all.
    how : {"mean", "zscore", "rank", "vote"}
        - "mean": of the scores as they are. A model with a wide scale outweighs the
          others.
        - "zscore": of the scores less the model's mean over its deviation, both over
          the benchmark. A model that gives every answer the same score adds nothing.
        - "rank": of the ranks within the prompt, from 0 (worst) to 1 (best); equal
          scores share their mean rank.
        - "vote": every two answers to a prompt meet and most models decide (a tie of
          the votes is half a win); an answer's score is the share of the meetings that
          it wins.
    name : str, optional
        Name of the result; default "mean of 3 models" and so on.

    Returns
    -------
    DataFrame
        A table of scores of one model, one row per response. A response without a score
        of one of the models is missing, and is left out of the other responses' ranks,
        votes and deviations for every model.

    Raises
    ------
    DataError
        If the models were scored on different responses.

    Examples
    --------
    >>> prompt = {"benchmark": "b", "domain": "d", "id": "0", "slot": 0}
    >>> answers = {"model": [*"aabbcc"], "label": ["chosen", "rejected"] * 3}
    >>> scores = pd.DataFrame(prompt | answers | {"score": [9, 1, 0.1, 0.3, 0.2, 0.4]})
    >>> ensemble(scores, how="mean")["score"].round(2).tolist()
    [3.1, 0.57]
    >>> ensemble(scores, how="vote")["score"].tolist()
    [0.0, 1.0]
    """
    tables.check_option("how", how, HOW)
    if isinstance(models, str):
        raise TypeError(f"models: a list of names, not the string {models!r}")
    scores = tables.check_scores(scores, allow_missing=True)
    present = scores["model"].unique().tolist()
    names = present if models is None else list(models)
    for model in names:
        if model not in present or names.count(model) > 1 or len(names) < 2:
            problem = f"models: {model!r} of {names}; two or more, each once"
            raise DataError(problem, tables.nearest(model, present))
    result_name = f"{how} of {len(names)} models" if name is None else name
    if result_name in present:
        problem = f"name: {result_name!r} is already a model in scores"
        raise DataError(problem, "pass name='another name'")

    values, answers = _spread_models(scores, names)
    is_known = ~np.isnan(values).any(axis=0)
    score = np.full(len(answers), np.nan)
    known_answers = answers.iloc[np.flatnonzero(is_known)]
    score[is_known] = _combine(values[:, is_known], known_answers, how)
    frame = answers.assign(model=result_name, score=score)[tables.SCORES]
    frame.attrs = {"provenance": {result_name: {"ensemble": how, "models": names}}}
    return frame


def _spread_models(
    scores: pd.DataFrame, names: list[str]
) -> tuple[FloatArray, pd.DataFrame]:
    """Scores (models, answers) and the answers, in the first model's order."""
    rows = scores[scores["model"].isin(names)]
    answer, first_rows = group_codes(rows, KEY)
    lacks_models = np.bincount(answer) < len(names)
    if lacks_models.any():
        row = first_rows[int(lacks_models.argmax())]
        first = rows[KEY].iloc[row].to_dict()
        problem = f"scores: {names} were scored on different responses, first {first}"
        raise DataError(problem, "score the same for all")

    score = rows["score"].to_numpy()
    values = np.empty((len(names), len(first_rows)))
    for place, name in enumerate(names):
        is_model = (rows["model"] == name).to_numpy()
        values[place, answer[is_model]] = score[is_model]
    is_first = (rows["model"] == names[0]).to_numpy()
    return values[:, answer[is_first]], rows[is_first].reset_index(drop=True)


def _combine(values: FloatArray, answers: pd.DataFrame, how: How) -> FloatArray:
    """One score of each answer from those of the models (models, answers)."""
    if how == "mean":
        return np.asarray(values.mean(axis=0))
    combined = np.full(values.shape[1], 0.5)  # of an answer that meets no other
    if how == "zscore":
        for rows in answers.groupby("benchmark", sort=False).indices.values():
            combined[rows] = _standardise(values[:, rows]).mean(axis=0)
        return combined

    combine_prompt = _mean_rank if how == "rank" else _vote
    for rows in answers.groupby(PROMPT, sort=False).indices.values():
        if len(rows) > 1:
            combined[rows] = combine_prompt(values[:, rows])
    return combined


def _standardise(values: FloatArray) -> FloatArray:
    """Scores (models, answers) less the model's mean, over its deviation; 0 where it
    gives all the same score.
    """
    centred = values - values.mean(axis=1, keepdims=True)
    deviation = values.std(axis=1, keepdims=True)
    # By the range, not the deviation: that of equal scores may come out as 1e-17
    # instead of 0.
    varies = np.ptp(values, axis=1)[:, None] > 0
    standardised = np.zeros_like(values)
    np.divide(centred, deviation, out=standardised, where=varies)
    return standardised


def _mean_rank(values: FloatArray) -> FloatArray:
    """Mean over the models of the rank from 0 to 1 of a prompt's answers, (models,
    answers).
    """
    # Sums of ranks are exact and divided once, so that equal ranks stay equal: Ties
    # asks how far answers are apart.
    n_models, n_answers = values.shape
    rank_sum = rankdata(values, axis=-1).sum(axis=0)
    largest_sum = n_models * (n_answers - 1)  # of ranks from 0
    return np.asarray((rank_sum - n_models) / largest_sum)


def _vote(values: FloatArray) -> FloatArray:
    """Share of a prompt's other answers that an answer beats when most models decide,
    (models, answers).
    """
    votes = np.sign(values[:, :, None] - values[:, None, :])
    majority = np.sign(votes.sum(axis=0))
    n_others = values.shape[1] - 1
    return np.asarray((majority.sum(axis=1) / n_others + 1) / 2)
