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
    arrays = [_read_steps(cell, row) for row, cell in enumerate(lists)]
    n_steps = np.array([len(array) for array in arrays], np.intp)
    has_steps = n_steps > 0

    score = np.full(len(lists), np.nan)
    if has_steps.any():
        value = np.concatenate(arrays)
        first = (np.cumsum(n_steps) - n_steps)[has_steps]
        score[has_steps] = _reduce_steps(value, first, n_steps[has_steps], how)
    return pd.Series(score, index=lists.index, name="score")


def _read_steps(cell: object, row: int) -> FloatArray:
    """The step scores of an answer; none where the cell is missing."""
    try:
        array = np.asarray(cell, np.float64)
    except (TypeError, ValueError):
        array = np.zeros(())
    if array.ndim == 0 and np.isnan(array):
        return np.zeros(0)
    if array.ndim != 1:
        problem = f"steps: {short(cell)} in row {row} is not a list of numbers"
        raise DataError(problem, "pass one list per answer")
    return array


def _reduce_steps(
    value: FloatArray, first: IntArray, n_steps: IntArray, how: str
) -> FloatArray:
    """One number for each run of step scores; `first` is where a run begins."""
    if how == "last":
        is_missing = np.logical_or.reduceat(np.isnan(value), first)
        return np.where(is_missing, np.nan, value[first + n_steps - 1])
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
