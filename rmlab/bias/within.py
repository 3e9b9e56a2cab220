"""What the measures of bias share: prompts as groups, their means taken off, features looked up, groups refused."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.intervals import FEWEST
from rmlab.tables import KEY, PAIR_KEY, PROMPT, DataError, nearest, require_columns

__all__ = [
    "MIN_PROMPTS",
    "columns_of",
    "counts_of",
    "demean",
    "groups_of",
    "interval_note",
    "lookup",
    "prompt_index",
    "repeats",
    "spread",
    "t_quantile",
]

Floats = NDArray[np.float64]

MIN_PROMPTS = FEWEST
"""Below this many prompts no interval is given: a clustered error from so few clusters means nothing."""

_REPEATED = 1e-7  # share of a column's length, below which it is a sum of the columns before it


def interval_note(n_prompts: NDArray[np.intp]) -> NDArray[np.object_]:
    """One note per group: empty, or why its interval is refused."""
    few = [f"{n} prompts: too few for an interval (needs {MIN_PROMPTS})" for n in n_prompts]
    return np.where(n_prompts < MIN_PROMPTS, np.array(few, dtype=object), "")


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
    order = np.argsort(number, kind="stable").astype(np.intp)
    return iter(np.split(order, np.flatnonzero(np.diff(number[order])) + 1) if len(order) else [])


def demean(values: Floats, prompt: NDArray[np.intp]) -> Floats:
    """Values (rows, or rows x columns) minus the mean of their prompt."""
    size = np.bincount(prompt)
    table = values.reshape(len(values), -1)
    means = np.stack([np.bincount(prompt, column) / size for column in table.T], axis=1)
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
    freedom = len(score) - (prompt.max(initial=-1) + 1)
    if freedom == 0:
        return float("nan")
    squares = float((demean(score, prompt) ** 2).sum())
    rounding = (1e-12 * np.abs(score).max()) ** 2 * len(score)
    return float(np.sqrt(squares / freedom)) if squares > rounding else 0.0


def repeats(x: Floats, names: Sequence[str], *, scale: Floats | None = None, where: str = "") -> list[str]:
    """One note per column of `x`: empty, or why it can have no effect of its own.

    A column does not vary where its length is nothing beside `scale` (default: its own length), and repeats where it
    is a sum of the columns before it.
    """
    notes, basis = [], np.empty((len(x), 0))
    for i, name in enumerate(names):
        length = float(np.linalg.norm(x[:, i]))
        left = x[:, i] - basis @ (basis.T @ x[:, i])
        left = left - basis @ (basis.T @ left)  # twice: exact enough for nearly repeated columns
        if length <= _REPEATED * max(float(scale[i]) if scale is not None else 0.0, 1e-300):
            notes.append(f"{name} does not vary {where}".rstrip())
        elif np.linalg.norm(left) <= _REPEATED * length:
            notes.append(f"{name} cannot be told from the terms before it")
        else:
            notes.append("")
            basis = np.column_stack([basis, left / np.linalg.norm(left)])
    return notes


def lookup(keys: pd.DataFrame, features: pd.DataFrame, columns: Sequence[str], table: str) -> Floats:
    """The features of each keyed row, (rows, columns); raises DataError where a text or a column is not there."""
    absent = [c for c in KEY if c not in features.columns]
    if absent:
        raise DataError(f"features: no column {absent[0]!r}; make them with rmlab.styles.features(responses)")
    for column in columns:
        if column not in counts_of(features):
            raise DataError(f"features: no counts {column!r}; {nearest(column, counts_of(features))}")
    known = pd.MultiIndex.from_frame(features[KEY].astype({"label": "str"}))
    if known.has_duplicates:
        raise DataError(f"features: {int(known.duplicated().sum())} rows repeat a key {KEY}; drop the repeats")
    asked = pd.MultiIndex.from_frame(keys[KEY].astype({"label": "str"}))
    row = known.get_indexer(asked)
    if (row < 0).any():
        first = keys[KEY].astype({"label": "str"}).iloc[[int((row < 0).argmax())]].to_dict("records")[0]
        raise DataError(
            f"features: {int((row < 0).sum())} of {len(keys)} texts of {table} have no row, first {first}; "
            "pass rmlab.styles.features(responses) of the responses that were scored"
        )
    found = features[list(columns)].to_numpy(dtype=float)[row]
    if not np.isfinite(found).all():
        column = list(columns)[int((~np.isfinite(found)).any(axis=0).argmax())]
        raise DataError(f"features: {column!r} is not a finite number in some rows; fill it in or leave it out")
    result: Floats = found
    return result


def counts_of(features: pd.DataFrame) -> list[str]:
    """The columns of `features` that count something: numbers that are no part of the key."""
    return [c for c in features.select_dtypes("number").columns if c not in KEY]
