"""Measures that fit each group of a table: its groups and clusters, and the estimates
of a fit.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import stdtr

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
    BoolArray,
    DataError,
    FloatArray,
    IntArray,
    copy_provenance,
    default_cluster,
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
    def n_clusters(self) -> int:
        """How many clusters have a row."""
        return len(np.unique(self.cluster))


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
    results: Sequence[str],
) -> pd.DataFrame:
    """Fit each group of rows of a table.

    Parameters
    ----------
    table : DataFrame
        Scores, pairs, or other rows that belong to prompts.
    by : str or sequence of str
        Columns that define the groups.
    cluster : str, optional
        Column that names a cluster of prompts; default: the prompt.
    fit : callable
        Takes a `Group` and returns its numbers, as arrays where a group has several
        rows.
    results : sequence of str
        Columns of the result; what `fit` does not return is missing. None of `by` may
        have such a name.

    Returns
    -------
    DataFrame
        The rows of each group: the columns `by` and `results`.
    """
    columns = [by] if isinstance(by, str) else list(dict.fromkeys(by))
    if not columns:
        raise ValueError("by: []; name at least one column, for example 'model'")
    if table.empty:
        raise DataError("table: no rows", "look at the selection that it comes from")
    require_item_columns(table, columns, [])
    refuse_result_names(columns, results)
    prompts = group_codes(table, default_cluster(table))[0]
    clusters = number_clusters(table, cluster)

    first_rows: list[int] = []
    frames = []
    for rows in split_rows(table, columns):
        numbers = fit(Group(rows, prompts[rows], clusters[rows]))
        arrays = np.broadcast_arrays(*numbers.values(), np.empty(1))[:-1]
        frames.append(pd.DataFrame(dict(zip(numbers, arrays, strict=True))))
        first_rows += [rows[0]] * len(frames[-1])
    keys = table[columns].iloc[first_rows].reset_index(drop=True)
    fitted = pd.concat(frames, ignore_index=True).reindex(columns=list(results))
    texts = [name for name in results if name.endswith(_TEXTS)]
    fitted[texts] = fitted[texts].astype(object).fillna("").astype("str")
    return copy_provenance(table, pd.concat([keys, fitted], axis=1))


def split_rows(table: pd.DataFrame, columns: Sequence[str]) -> list[IntArray]:
    """Rows of each combination of values, in order of appearance."""
    codes, first_rows = group_codes(table, columns)
    return rows_by_code(codes, len(first_rows))


def estimate(
    value: FloatArray, se: FloatArray, df: FloatArray, confidence: float
) -> Estimate:
    """Student's t for values with these errors; no limits without degrees of
    freedom.
    """
    half = t_quantile(df, confidence) * se
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(value) / se
        p = 2 * stdtr(df, -t)
    return Estimate(
        value=value,
        se=np.where(np.isnan(half), np.nan, se),
        low=value - half,
        high=value + half,
        p=np.where(se > 0, p, np.nan),  # no spread, no test
    )


def estimate_mean(
    values: FloatArray,
    cluster: IntArray,
    confidence: float,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> clustered.Estimate:
    """Mean of values that come in clusters, (1,); a missing value counts nowhere."""
    group = np.zeros(len(values), np.intp)
    return group_means(values, group, cluster, 1, bounds=bounds, confidence=confidence)


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


def explain_few(n_clusters: int) -> str:
    """Why a group of so many clusters has no interval, else ""."""
    return TOO_FEW if n_clusters < MIN_PROMPTS else ""


def join_texts(texts: Iterable[str]) -> str:
    """The texts that are not empty, each once."""
    return "; ".join(dict.fromkeys(text for text in texts if text))
