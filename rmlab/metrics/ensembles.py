"""Several models to one: their scores averaged, standardised or by rank, or a vote on
every pair of answers; several judges' pairs to those of a jury.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from rmlab import tables
from rmlab.tables import ITEM, KEY, PROMPT, DataError, FloatArray, group_codes

How = Literal["mean", "zscore", "rank", "vote", "majority"]
HOW = ("mean", "zscore", "rank", "vote")
HOW_OF_PAIRS = ("majority", "mean")


def ensemble(
    table: pd.DataFrame,
    models: Sequence[str] | None = None,
    *,
    how: How = "mean",
    name: str | None = None,
) -> pd.DataFrame:
    """Combine several models into one, or several judges into a jury.

    No way of combining looks at the labels.

    Parameters
    ----------
    table : DataFrame
        Scores, or pairs such as those of judges.
    models : sequence of str, optional
        The models to combine; default: all.
    how : {"mean", "zscore", "rank", "vote"} of scores, {"mean", "majority"} of pairs
        - "mean": of the scores as they are. A model with a wide scale outweighs the
          others. Of pairs: the mean of the margins.
        - "majority": the verdict (win, tie or loss) that most judges give; where two
          verdicts lead alike, the jury is tied. It has no margins.
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
        The scores, or pairs, of one model. A response without a score of one of the
        models is missing, and is left out of the other responses' ranks, votes and
        deviations for every model. A comparison without the verdict (or margin) of one
        of the judges has no outcome, and counts as missing.

    Raises
    ------
    DataError
        If the models were scored on different responses or comparisons, and for the
        mean of judges without margins.

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
    if isinstance(models, str):
        raise TypeError(f"models: a list of names, not the string {models!r}")
    if "score" in table:
        tables.check_option("how", how, HOW)
        checked = tables.check_scores(table, allow_missing=True)
    else:
        tables.check_option("how", how, HOW_OF_PAIRS)
        checked = tables.check_pairs(table)

    present = checked["model"].unique().tolist()
    names = present if models is None else list(models)
    for model in names:
        if model not in present or names.count(model) > 1 or len(names) < 2:
            problem = f"models: {model!r} of {names}; two or more, each once"
            raise DataError(problem, tables.nearest(model, present))
    result_name = f"{how} of {len(names)} models" if name is None else name
    if result_name in present:
        problem = f"name: {result_name!r} is already a model in the table"
        raise DataError(problem, "pass name='another name'")

    rows = checked[checked["model"].isin(names)]
    if "score" in table:
        frame = _combine_scores(rows, names, how)
    else:
        frame = _combine_pairs(rows, names, how)
    frame["model"] = result_name
    frame.attrs = {"provenance": {result_name: {"ensemble": how, "models": names}}}
    return frame


def _combine_scores(rows: pd.DataFrame, names: list[str], how: How) -> pd.DataFrame:
    """The scores of one model."""
    score = rows["score"].to_numpy()
    values, answers = _spread_models(rows, names, KEY, score)
    is_known = ~np.isnan(values).any(axis=0)
    combined = np.full(len(answers), np.nan)
    known_answers = answers.iloc[np.flatnonzero(is_known)]
    combined[is_known] = _combine(values[:, is_known], known_answers, how)
    return answers.assign(score=combined)[tables.SCORES]


def _combine_pairs(rows: pd.DataFrame, names: list[str], how: How) -> pd.DataFrame:
    """The pairs of a jury, with the further columns on which its members agree."""
    if how == "mean":
        margin = rows["margin"].to_numpy(float)
        margins, comparisons = _spread_models(rows, names, ITEM, margin)
        margin = margins.mean(axis=0)
        verdict = margin
        if np.isnan(margin).all():
            without = rows.groupby("model")["margin"].count().idxmin()
            problem = f"pairs: no comparison has margins of all models, {without!r}"
            raise DataError(f"{problem} has the fewest", "pass how='majority'")
    else:
        codes = np.array(rows["outcome"].cat.codes, np.float64)
        codes[codes < 0] = np.nan
        outcomes, comparisons = _spread_models(rows, names, ITEM, codes)
        margin = np.full(len(comparisons), np.nan)
        verdict = _find_majority(outcomes)

    columns = tables.prompt_columns(rows.drop(columns="model"), tables.PAIRS)
    frame = comparisons[[*tables.PAIRS, *columns]]
    return frame.assign(margin=margin, outcome=tables.outcome(verdict))


def _find_majority(outcomes: FloatArray) -> FloatArray:
    """Verdict (-1, 0, 1) that most judges give, from places in `tables.OUTCOMES`
    (judges, comparisons): 0 where two lead alike, NaN where a judge has none.
    """
    places = range(len(tables.OUTCOMES))
    n_judges = np.array([(outcomes == place).sum(axis=0) for place in places])
    leads = n_judges == n_judges.max(axis=0)
    verdict = np.where(leads.sum(axis=0) == 1, leads.argmax(axis=0) - 1.0, 0.0)
    verdict[np.isnan(outcomes).any(axis=0)] = np.nan
    return verdict


def _spread_models(
    rows: pd.DataFrame, names: list[str], key: list[str], value: FloatArray
) -> tuple[FloatArray, pd.DataFrame]:
    """Values (models, items) of the rows, and the items in the first model's order."""
    item, first_rows = group_codes(rows, key)
    lacks_models = np.bincount(item) < len(names)
    if lacks_models.any():
        row = first_rows[int(lacks_models.argmax())]
        first = rows[key].iloc[row].to_dict()
        if key == KEY:
            problem = f"scores: {names} were scored on different responses"
        else:
            problem = f"pairs: {names} judged different comparisons"
        raise DataError(f"{problem}, first {first}", "score the same for all")

    values = np.empty((len(names), len(first_rows)))
    for place, name in enumerate(names):
        is_model = (rows["model"] == name).to_numpy()
        values[place, item[is_model]] = value[is_model]
    is_first = (rows["model"] == names[0]).to_numpy()
    return values[:, item[is_first]], rows[is_first].reset_index(drop=True)


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
