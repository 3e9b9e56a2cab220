"""Step scores: the scores of the steps of an answer, combined to one."""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import pandas as pd

from rmlab.tables import BoolArray, DataError, FloatArray, IntArray, check_option
from rmlab.text import short

StepRule = Literal["last", "min", "mean", "product", "sum_log"]


def combine_steps(
    steps: "pd.Series | Sequence[Sequence[float]]", how: StepRule = "last"
) -> pd.Series:
    """Combine the step scores of each answer to one score.

    Parameters
    ----------
    steps : Series or sequence
        A list of numbers per answer, such as a process reward model gives.
    how : {"last", "min", "mean", "product", "sum_log"}
        The last step's score, the lowest, the mean, the product, or the sum of
        logarithms. The last two rank alike, except where a product is too small for a
        float; both shrink with every further step.

    Returns
    -------
    Series
        A score per answer, with the index of `steps`; missing where an answer has no
        steps or a step is missing.

    Raises
    ------
    DataError
        For anything but lists of numbers; for numbers below 0 with "product", and not
        above 0 with "sum_log".

    References
    ----------
    Lightman et al. (2023), Let's verify step by step (arXiv 2305.20050), for the
    product and the minimum; Wang et al. (2024), Math-Shepherd (arXiv 2312.08935), for
    the minimum.

    Examples
    --------
    >>> combine_steps([[0.9, 0.5, 0.8], [0.7]], how="min").tolist()
    [0.5, 0.7]
    """
    check_option("how", how, get_args(StepRule))
    lists = steps if isinstance(steps, pd.Series) else pd.Series(list(steps))
    n_steps = _count_steps(lists)
    value = _join_steps(lists)
    has_steps = n_steps > 0
    ends = np.cumsum(n_steps)
    first = (ends - n_steps)[has_steps]

    score = np.full(len(lists), np.nan)
    if how == "last":
        score[has_steps] = value[ends[has_steps] - 1]
        is_missing = np.isnan(value)
        if is_missing.any():
            n_missing = np.add.reduceat(is_missing.astype(int), first)
            score[np.flatnonzero(has_steps)[n_missing > 0]] = np.nan
    elif has_steps.any():
        score[has_steps] = _reduce_steps(value, first, n_steps[has_steps], how)
    return pd.Series(score, index=lists.index, name="score")


def _reduce_steps(
    value: FloatArray, first: IntArray, n_steps: IntArray, how: str
) -> FloatArray:
    """One number for each run of step scores; `first` is where a run begins."""
    if how == "min":
        return np.minimum.reduceat(value, first)
    if how == "mean":
        return np.add.reduceat(value, first) / n_steps
    if how == "product":
        _refuse(value < 0, value, "how='product' needs step scores from 0")
        return np.multiply.reduceat(value, first)
    _refuse(value <= 0, value, "how='sum_log' needs step scores above 0")
    return np.add.reduceat(np.log(value), first)


def _refuse(is_bad: BoolArray, value: FloatArray, need: str) -> None:
    if is_bad.any():
        problem = f"steps: {need}; {is_bad.sum()} are not, first {value[is_bad][0]:g}"
        raise DataError(problem, "use another rule, or probabilities")


def _count_steps(lists: pd.Series) -> IntArray:
    """How many steps each answer has; DataError for a cell that is no list."""
    n_steps = np.zeros(len(lists), np.intp)
    for i, cell in enumerate(lists):
        if isinstance(cell, list | tuple | np.ndarray):
            n_steps[i] = len(cell)
        elif not (pd.api.types.is_scalar(cell) and pd.isna(cell)):
            problem = f"steps: {short(cell)} in row {i} is not a list of numbers"
            raise DataError(problem, "pass one list per answer")
    return n_steps


def _join_steps(lists: pd.Series) -> FloatArray:
    """The numbers of all lists behind each other."""
    filled = [cell for cell in lists if np.ndim(cell) == 1 and len(cell)]
    if not filled:
        return np.zeros(0)
    try:
        return np.concatenate(filled).astype(np.float64)
    except (TypeError, ValueError) as error:
        problem = f"steps: not all are numbers ({error})"
        raise DataError(problem, "pass one list of numbers per answer") from None
