"""Measures that fit each group of a table: its groups, their prompts and clusters."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from rmlab.estimation.clustered import (
    MIN_PROMPTS,
    TOO_FEW,
    rows_by_code,
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
    IntArray,
    copy_provenance,
    group_codes,
)

Numbers = dict[str, ArrayLike]
"""Columns of a result: arrays with an entry for each row, or one entry for all."""

_TEXTS = ("caveat", "reason")


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
        Takes a `Group` and returns its numbers, at least one of them as an array with
        an entry for each row of the group.

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

    frames = []
    first_rows: list[int] = []
    for rows in split_rows(table, columns):
        frame = pd.DataFrame(fit(Group(rows, prompts[rows], clusters[rows])))
        frames.append(frame)
        first_rows += [rows[0]] * len(frame)
    keys = table[columns].iloc[first_rows].reset_index(drop=True)
    fitted = pd.concat(frames, ignore_index=True)
    refuse_result_names(columns, fitted.columns)
    texts = fitted.columns.intersection([*_TEXTS])
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
