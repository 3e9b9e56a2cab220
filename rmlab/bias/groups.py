"""Measures that fit each group of a table: its groups and clusters, and the estimates
of a fit.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy
from numpy.typing import ArrayLike

from rmlab.estimation import clustered
from rmlab.estimation.clustered import (
    MIN_PROMPTS,
    TOO_FEW,
    group_means,
    rows_by_code,
    t_quantile,
)
from rmlab.estimation.items import (
    number_clusters,
    refuse_result_names,
    require_item_columns,
)
from rmlab.tables import (
    PROMPT,
    BoolArray,
    DataError,
    FloatArray,
    IntArray,
    copy_provenance,
    group_codes,
)

Numbers = dict[str, ArrayLike]
"""Columns of a result: arrays with an entry for each row, or one entry for all."""

_TEXTS = ("caveat", "reason")  # the ends of names of columns of text


class Group(NamedTuple):
    """Rows of a table that are fitted together, with the prompt and cluster of each."""

    rows: IntArray
    prompt: IntArray
    cluster: IntArray

    def select(self, counts: BoolArray) -> "Group":
        """The rows that count."""
        return Group(self.rows[counts], self.prompt[counts], self.cluster[counts])

    @property
    def n_prompts(self) -> int:
        """How many prompts have a row."""
        return len(np.unique(self.prompt))

    @property
    def few(self) -> str:
        """Why there are too few clusters for an interval, else ""."""
        return TOO_FEW if len(np.unique(self.cluster)) < MIN_PROMPTS else ""


class Estimate(NamedTuple):
    """Numbers with errors, limits and p, in arrays of one shape; NaN where missing."""

    value: FloatArray
    se: FloatArray
    low: FloatArray
    high: FloatArray
    p: FloatArray


def fit_groups(
    table: pd.DataFrame,
    by: str | Sequence[str],
    cluster: str | None,
    fit: Callable[[Group], Numbers],
) -> pd.DataFrame:
    """Fit each group of rows of a table.

    Parameters
    ----------
    table : DataFrame
        Scores, pairs, or other rows that belong to prompts.
    by : str or sequence of str
        Columns that define the groups. None may be named like a number of `fit`.
    cluster : str, optional
        Column that names a cluster of prompts; default: the prompt.
    fit : callable
        Takes a `Group` and returns its numbers, as arrays where a group has several
        rows.

    Returns
    -------
    DataFrame
        The rows of each group: the columns `by`, and the numbers.
    """
    columns = [by] if isinstance(by, str) else list(dict.fromkeys(by))
    if not columns:
        raise ValueError("by: []; name at least one column, for example 'model'")
    if table.empty:
        raise DataError("table: no rows", "look at the selection that it comes from")
    require_item_columns(table, columns, [])
    prompts = group_codes(table, PROMPT)[0]
    clusters = number_clusters(table, cluster)

    first_rows: list[int] = []
    frames = []
    for rows in split_rows(table, columns):
        numbers = fit(Group(rows, prompts[rows], clusters[rows]))
        arrays = np.broadcast_arrays(*numbers.values(), np.empty(1))[:-1]
        frames.append(pd.DataFrame(dict(zip(numbers, arrays, strict=True))))
        first_rows += [rows[0]] * len(frames[-1])
    keys = table[columns].iloc[first_rows].reset_index(drop=True)
    fitted = pd.concat(frames, ignore_index=True)
    refuse_result_names(columns, fitted.columns)
    texts = [name for name in fitted if str(name).endswith(_TEXTS)]
    fitted = fitted.astype(dict.fromkeys(texts, "str"))
    return copy_provenance(table, pd.concat([keys, fitted], axis=1))


def split_rows(table: pd.DataFrame, columns: Sequence[str]) -> list[IntArray]:
    """Rows of each combination of values, in order of appearance."""
    codes, first_rows = group_codes(table, columns)
    return rows_by_code(codes, len(first_rows))


def require_model(by: str | Sequence[str], models: Iterable[str]) -> None:
    """Raise DataError where a row would hold several models, whose scores have no
    common unit.
    """
    n_models = len(set(models))
    if "model" not in by and n_models > 1:
        problem = f"by: {by} has no 'model', but the table has {n_models}"
        raise DataError(problem, "add 'model'")


def list_names(argument: str, names: str | Sequence[str]) -> list[str]:
    """A name or several as a list; ValueError where one repeats, or without any."""
    names = [names] if isinstance(names, str) else list(names)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"{argument}: {names}; name at least one, each once")
    return names


def estimate(
    value: FloatArray, se: FloatArray, df: FloatArray, confidence: float
) -> Estimate:
    """Student's t for values with these errors; no limits without degrees of
    freedom.
    """
    half = t_quantile(df, confidence) * se
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(value) / se
        p = 2 * scipy.special.stdtr(df, -t)
    return Estimate(
        value=value,
        se=np.where(np.isnan(half), np.nan, se),
        low=value - half,
        high=value + half,
        p=np.where(se > 0, p, np.nan),  # no spread, no test
    )


def estimate_mean(
    values: FloatArray,
    group: Group,
    confidence: float,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> clustered.Estimate:
    """Mean of the values of a group's rows, (1,); a missing value counts nowhere."""
    one = np.zeros(len(values), np.intp)
    return group_means(
        values, one, group.cluster, 1, bounds=bounds, confidence=confidence
    )


def name_limits(name: str, estimates: Estimate | clustered.Estimate) -> Numbers:
    """A number and its limits, as columns that begin with its name."""
    return {
        name: estimates.value,
        f"{name}_low": estimates.low,
        f"{name}_high": estimates.high,
    }


def count_outcomes(outcome: "pd.Series[str]", answered: Group) -> Numbers:
    """The counts of a group's comparisons, of which some have an outcome."""
    return {
        "n_pairs": len(answered.rows),
        "n_prompts": answered.n_prompts,
        "n_ties": (outcome == "tie").sum(),
        "missing": outcome.isna().sum(),
    }


def join_texts(texts: Iterable[str]) -> str:
    """The texts that are not empty, each once."""
    return "; ".join(dict.fromkeys(text for text in texts if text))
