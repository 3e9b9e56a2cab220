"""Prompts as the unit of evidence: rows numbered by prompt, prompt means taken off, and how few are too few."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.metrics.errors import MIN_PROMPTS, TOO_FEW
from rmlab.tables import PAIR_KEY, PROMPT, DataError, nearest, require_columns

__all__ = [
    "MIN_PROMPTS",
    "columns_of",
    "demean",
    "exponent",
    "groups_of",
    "prompt_index",
    "spread",
    "t_quantile",
    "too_few",
    "unit_scores",
]

Floats = NDArray[np.float64]


def too_few(n_prompts: int) -> str:
    """Why a group of so many prompts has no interval; empty where it has one."""
    return TOO_FEW if n_prompts < MIN_PROMPTS else ""


def t_quantile(confidence: float, n_prompts: int) -> float:
    """Student's t for a two-sided interval with n_prompts - 1 degrees of freedom; NaN where intervals are refused."""
    from scipy.stats import t

    if not 0 < confidence < 1:
        raise ValueError(f"confidence: {confidence!r}; allowed: between 0 and 1, for example 0.95")
    return float(t.ppf(0.5 + confidence / 2, n_prompts - 1)) if n_prompts >= MIN_PROMPTS else float("nan")


def columns_of(frame: pd.DataFrame, by: str | Sequence[str], table: str) -> list[str]:
    """`by` as a list, every entry a column of `frame`; a `table` called "pairs" must have the columns of one."""
    if table == "pairs":
        require_columns(frame, [*PAIR_KEY, "outcome"], table)
    by = [by] if isinstance(by, str) else list(dict.fromkeys(by))
    if len(frame) == 0:
        raise DataError(f"{table}: no rows, so there is nothing to measure; look at what the rows were selected by")
    if not by:
        raise ValueError(f"by: {by}; name at least one column, for example 'model'")
    for column in by:
        if column not in frame.columns:
            raise DataError(f"by: {column!r} is not a column of {table}; {nearest(column, list(frame.columns))}")
    return by


def prompt_index(frame: pd.DataFrame, columns: Sequence[str] = PROMPT) -> NDArray[np.intp]:
    """Number of each row's prompt, from 0, in order of first appearance."""
    number: NDArray[np.intp] = frame.groupby(list(columns), sort=False).ngroup().to_numpy().astype(np.intp)
    return number


def groups_of(frame: pd.DataFrame, by: Sequence[str]) -> Iterator[NDArray[np.intp]]:
    """Row numbers of each group, in order of first appearance."""
    number = frame.groupby(list(by), sort=False, observed=True, dropna=False).ngroup().to_numpy()
    order = np.argsort(number, kind="stable").astype(np.intp)  # stable: rows of a group keep their order
    return iter(np.split(order, np.flatnonzero(np.diff(number[order])) + 1) if len(order) else [])


def demean(values: Floats, prompt: NDArray[np.intp]) -> Floats:
    """Values (rows, or rows x columns) minus the mean of their prompt."""
    size = np.bincount(prompt)
    table = values.reshape(len(values), -1)
    means = np.stack([np.bincount(prompt, column) / size for column in table.T], axis=1)  # (prompts, columns)
    result: Floats = (table - means[prompt]).reshape(values.shape)
    return result


def spread(score: Floats, prompt: NDArray[np.intp]) -> float:
    """Standard deviation of scores around the mean of their prompt, pooled over prompts; NaN scores are left out.

    The unit of standardised effects: a reward model's scores mean something within a prompt only, so the spread
    between prompts must not enter. Degrees of freedom: scores minus prompts. Zero where scores never differ within a
    prompt (up to rounding), NaN without a prompt that has two scores.
    """
    there = ~np.isnan(score)
    score, prompt = score[there], np.unique(prompt[there], return_inverse=True)[1]
    freedom = len(score) - (prompt.max(initial=-1) + 1)  # one mean is taken off for each prompt
    if freedom == 0:
        return float("nan")
    power = exponent(score)
    score = np.ldexp(score, -power)
    squares = float((demean(score, prompt) ** 2).sum())
    # Means of equal scores may miss them by a last digit, which is not spread.
    rounding = (1e-12 * np.abs(score).max()) ** 2 * len(score)
    return float(np.ldexp(np.sqrt(squares / freedom), power)) if squares > rounding else 0.0


def unit_scores(score: Floats, prompt: NDArray[np.intp]) -> Floats:
    """Scores in units of their `spread`; all zero where there is none. NaN scores stay NaN.

    Scores of any size are fine: they are first divided by a power of two, which changes no digit.
    """
    score = np.ldexp(score, -exponent(score))
    unit = spread(score, prompt)
    units: Floats = score / unit if unit > 0 else score * 0
    return units


def exponent(score: Floats) -> int:
    """Power of two that brings the largest score to 1/2 .. 1, so that neither sums nor squares leave the floats."""
    there = score[~np.isnan(score)]
    return int(np.frexp(np.abs(there).max(initial=0.0))[1])
