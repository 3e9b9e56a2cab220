"""What stands on the right of a regression: features of answers looked up, counts as doublings, columns that repeat."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.tables import KEY, DataError, nearest, unique_remedy

__all__ = ["counts_of", "doublings", "lookup", "repeats"]

Floats = NDArray[np.float64]

_REPEATED = 1e-7  # share of a column's length, below which it is a sum of the columns before it


def repeats(x: Floats, names: Sequence[str], *, scale: Floats | None = None, where: str = "") -> list[str]:
    """One reason per column of `x`: empty, or why it can have no effect of its own.

    A column does not vary where its length is nothing beside `scale` (default: its own length), and repeats where it
    is a sum of the columns before it.
    """
    reasons, basis = [], np.empty((len(x), 0))
    for i, name in enumerate(names):
        length = float(np.linalg.norm(x[:, i]))
        left = x[:, i] - basis @ (basis.T @ x[:, i])
        left = left - basis @ (basis.T @ left)  # twice: exact enough for nearly repeated columns
        if length <= _REPEATED * max(float(scale[i]) if scale is not None else 0.0, 1e-300):
            reasons.append(f"{name} does not vary {where}".rstrip())
        elif np.linalg.norm(left) <= _REPEATED * length:
            reasons.append(f"{name} cannot be told from the terms before it")
        else:
            reasons.append("")
            basis = np.column_stack([basis, left / np.linalg.norm(left)])
    return reasons


def lookup(keys: pd.DataFrame, features: pd.DataFrame, columns: Sequence[str], table: str) -> Floats:
    """The features of each keyed row, (rows, columns); raises DataError where a text or a column is not there."""
    missing = [c for c in KEY if c not in features.columns]
    if missing:
        raise DataError(f"features: no column {missing[0]!r}; make them with rmlab.styles.features(responses)")
    for column in columns:
        if column not in counts_of(features):
            raise DataError(f"features: no counts {column!r}; {nearest(column, counts_of(features))}")
    # Labels as strings: the two tables may have categories of their own.
    known = pd.MultiIndex.from_frame(features[KEY].astype({"label": "str"}))
    if known.has_duplicates:
        remedy = unique_remedy(features, [*KEY], counts_of(features))
        raise DataError(f"features: {int(known.duplicated().sum())} rows repeat a key {KEY}; {remedy}")
    asked = pd.MultiIndex.from_frame(keys[KEY].astype({"label": "str"}))
    row = known.get_indexer(asked)  # -1 where a text has no features
    if (row < 0).any():
        first = keys[KEY].astype({"label": "str"}).iloc[[int((row < 0).argmax())]].to_dict("records")[0]
        raise DataError(
            f"features: {int((row < 0).sum())} of {len(keys)} texts of {table} have no row, first {first}; "
            "pass rmlab.styles.features(responses) of the responses that were scored"
        )
    found = features[list(columns)].to_numpy(dtype=float)[row]
    if not np.isfinite(found).all():
        column = list(columns)[int((~np.isfinite(found)).any(axis=0).argmax())]
        raise DataError(
            f"features: {column!r} is not a finite number in some rows; give every text a number, or name other columns"
        )
    result: Floats = found
    return result


def counts_of(features: pd.DataFrame) -> list[str]:
    """The columns of `features` that count something: numbers that are not part of the key."""
    return [c for c in features.select_dtypes("number").columns if c not in KEY]


def doublings(count: Floats) -> Floats:
    """log2 of counts, log2(1 + count) where a count can be 0."""
    # One rule for the whole column: with 0 in it every count gets 1 more, or equal counts would differ.
    result: Floats = np.log2(count) if count.min(initial=1.0) >= 1 else np.log2(1 + count)
    return result
