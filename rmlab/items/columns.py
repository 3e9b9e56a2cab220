"""Columns of a pairs table as arrays: codes, positions, sums by group. What every metric and statistic starts from."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import tables
from rmlab.tables import DataError

__all__ = ["allowed", "codes", "factorise", "group_sums", "positions"]


def codes(
    frame: pd.DataFrame, column: str, dtype: pd.CategoricalDtype, allow_missing: bool = False
) -> NDArray[np.intp]:
    """Codes of a closed column, -1 for a missing value.

    Raises DataError where there is no such column, and for a missing value unless `allow_missing`.
    """
    tables.require_columns(frame, [column], "pairs")
    values = frame[column]
    if values.dtype != dtype:
        strange = values[values.notna() & ~values.isin(dtype.categories)]
        if len(strange):
            raise DataError(
                f"pairs: {column} is {strange.iloc[0]!r} in {len(strange)} of {len(frame)} rows; "
                f"{tables.nearest(strange.iloc[0], list(dtype.categories))}"
            )
        values = pd.Series(pd.Categorical(values, dtype=dtype))
    numbers: NDArray[np.intp] = values.cat.codes.to_numpy().astype(np.intp)
    missing = int((numbers < 0).sum())
    if missing and not allow_missing:
        raise DataError(
            f"pairs: {column} is missing in {missing} of {len(frame)} rows; this benchmark or file has no such column: "
            "group by another"
        )
    return numbers


def factorise(values: pd.Series) -> tuple[NDArray[np.intp], list[str]]:
    """Number of each value in order of first appearance, and the values."""
    numbers, uniques = pd.factorize(values)
    return numbers.astype(np.intp), list(uniques)


def positions(values: NDArray[np.object_], names: Sequence[str]) -> NDArray[np.intp]:
    """Place of each value in `names`, -1 where it is none of them."""
    numbers, uniques = pd.factorize(values)  # a missing value has number -1: the last of the places
    places = np.array([*(names.index(value) if value in names else -1 for value in uniques), -1], np.intp)
    found: NDArray[np.intp] = places[numbers]
    return found


def allowed(argument: str, value: str, values: tuple[str, ...]) -> str:
    """Return `value` if it is one of `values`; raise ValueError naming the argument and the nearest otherwise."""
    if value not in values:
        raise ValueError(f"{argument}: {value!r}; {tables.nearest(value, values)}")
    return value


def group_sums(values: NDArray[np.float64], group: NDArray[np.intp], size: int) -> NDArray[np.float64]:
    """Sums of (rows, columns) over the columns of each group: (rows, size), 0 for an empty group."""
    result = np.zeros((len(values), size))
    if len(group) == 0:
        return result
    if np.all(np.diff(group) > 0):  # every column a group of its own
        result[:, group] = values
        return result
    order = np.argsort(group, kind="stable")
    found, start = np.unique(group[order], return_index=True)
    result[:, found] = np.add.reduceat(values[:, order], start, axis=1)
    return result
