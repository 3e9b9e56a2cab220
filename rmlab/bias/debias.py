"""Scores with the fitted effect of style or length removed."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.bias.answers import answer_column, demean, read_counts
from rmlab.bias.least_squares import dependence_reasons, fit_without_clusters
from rmlab.estimation.clustered import MIN_PROMPTS
from rmlab.estimation.groups import join_texts, list_names, split_rows
from rmlab.tables import PROMPT, DataError, FloatArray, copy_provenance

_FOLDS = 5


def debias(
    scores: pd.DataFrame,
    features: pd.DataFrame | None = None,
    *,
    on: str | Sequence[str] = "characters",
) -> pd.DataFrame:
    """Take the effect of length or style off the scores without looking at the labels.

    Parameters
    ----------
    scores : DataFrame
        A table of scores.
    features : DataFrame, optional
        Counts of each answer, from `rmlab.styles.features(responses)`, or responses;
        not needed for `on="step"`.
    on : str or sequence of str
        Columns of `features`, which enter as log2 (log2(1 + count) where they can be
        0), or "step": concise 0, plain 1, markdown 2. A liking for Markdown alone does
        not lie on a straight line through the three: name what is liked ("headings",
        say) where you know it, or one step ("step_plain", "step_markdown").

    Returns
    -------
    DataFrame
        A table of scores in the order of `scores`. The model's name ends in "debiased",
        so that both tables can stand in one; a last column `removed` is the old minus
        the new score: differences inside a prompt have a meaning, its level has none.
        Missing scores stay missing.

    Raises
    ------
    DataError
        With fewer than five prompts, for a feature that does not vary, and for features
        of other responses.

    Notes
    -----
    score = level of the prompt + slopes * `on`, by least squares. The slopes for a
    prompt's answers are fitted on four fifths of the prompts, without its own. Where
    right answers are shorter or longer than wrong ones, part of the effect is merit:
    `rmlab.compare` by level of the scores before and after, as two models, shows what
    is lost. For integer ratings read only the change over all levels: the correction
    breaks all ties by the sign of an estimated slope, and the intervals of a level take
    that slope as known.

    Examples
    --------
    >>> import rmlab
    >>> responses = rmlab.load("mini")
    >>> scores = rmlab.score(responses, "longest")
    >>> debiased = debias(scores, rmlab.styles.features(responses))
    >>> gaps = rmlab.style_gap(pd.concat([scores, debiased]))
    >>> gaps[["model", "gap"]].round(2).to_numpy().tolist()
    [['longest', 0.58], ['longest debiased', 0.01]]
    """
    scores = tables.check_scores(scores, allow_missing=True)
    names = list_names("on", on)
    counts = read_counts(features, scores)
    columns = [answer_column(scores, counts, name) for name in names]
    x = np.column_stack(columns)
    y = scores["score"].to_numpy()

    removed = np.zeros(len(scores))
    # Model by model: scores of different models have no scale in common.
    for rows in split_rows(scores, ["model"]):
        slopes = _fit_other_folds(y[rows], x[rows], scores.iloc[rows], names)
        removed[rows] = (x[rows] * slopes).sum(axis=1)
    debiased = scores.assign(
        model=scores["model"] + " debiased",
        score=scores["score"] - removed,
        removed=removed,
    )
    return copy_provenance(scores, debiased)


def _fit_other_folds(
    y: FloatArray, x: FloatArray, scores: pd.DataFrame, names: list[str]
) -> FloatArray:
    """Slopes for each row of a model's scores, (rows, columns), fitted on the folds
    without its prompt.
    """
    # By key: the order of rows does not matter.
    prompt = scores.groupby(PROMPT, sort=True).ngroup().to_numpy().astype(np.intp)
    n_prompts = int(prompt.max()) + 1
    if n_prompts < MIN_PROMPTS:
        problem = f"scores: {n_prompts} prompts of model {scores['model'].iloc[0]!r}"
        raise DataError(problem, f"debias needs {MIN_PROMPTS}")
    fold_of_prompt = np.empty(n_prompts, np.intp)
    order = np.random.default_rng(0).permutation(n_prompts)
    fold_of_prompt[order] = np.arange(n_prompts) % _FOLDS
    fold = fold_of_prompt[prompt]

    observed = ~np.isnan(y)
    if not observed.any():
        return np.zeros_like(x)
    prompt = prompt[observed]
    x = x[observed]
    centered = demean(x, prompt)
    reasons = dependence_reasons(centered, names, x, "within a prompt")
    if any(reasons):
        problem = f"on: {join_texts(reasons)}"
        raise DataError(problem, "choose other columns")
    y = demean(y[observed], prompt)
    return fit_without_clusters(y, centered, fold[observed], _FOLDS).without[fold]
