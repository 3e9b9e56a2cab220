"""Step scores: the scores of the steps of an answer, combined to one."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from rmlab.tables import DataError, FloatArray, check_option
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
    check_option("how", how, tuple(_RULES))
    lists = steps if isinstance(steps, pd.Series) else pd.Series(list(steps))
    score = np.full(len(lists), np.nan)
    for row, cell in enumerate(lists):
        value = _read_steps(cell, row)
        if len(value) and not np.isnan(value).any():
            lowest = _LOWEST.get(how, -np.inf)
            if value.min() < lowest:
                problem = f"steps: how={how!r} with {value.min():g} in row {row}"
                raise DataError(problem, "use another rule, or probabilities")
            score[row] = _RULES[how](value)
    return pd.Series(score, index=lists.index, name="score")


_RULES: dict[str, Callable[[FloatArray], float]] = {
    "last": lambda value: value[-1],
    "min": np.min,
    "mean": np.mean,
    "product": np.prod,
    "sum_log": lambda value: np.log(value).sum(),
}
_LOWEST = {"product": 0.0, "sum_log": np.nextafter(0.0, 1.0)}


def _read_steps(cell: object, row: int) -> FloatArray:
    """The step scores of an answer; none where the cell is missing."""
    try:
        value = np.asarray(cell, np.float64)
    except (TypeError, ValueError):
        value = np.zeros(())
    if value.ndim == 0 and np.isnan(value):
        return np.zeros(0)
    if value.ndim != 1:
        problem = f"steps: {short(cell)} in row {row} is not a list of numbers"
        raise DataError(problem, "pass one list per answer")
    return value
