"""Cells of a table as exact numbers and as clean texts: what every table's columns are read by."""

import re
from collections.abc import Iterable
from decimal import Decimal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["broken", "floats", "is_broken", "printed"]

_NUMBER = re.compile(r"\s*[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|inf(?:inity)?|nan)\s*", re.ASCII | re.IGNORECASE)


def floats(values: pd.Series) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Cells as float64 (NaN where missing), and which cells hold anything but a number that a float can stand for.

    A text is a number if it is written as one in ASCII digits, and is read to the nearest float. Complex numbers,
    dates and whole numbers beyond 1.8e308 are not numbers here; pandas would cut them, or count nanoseconds.
    """
    if pd.api.types.is_numeric_dtype(values.dtype) and not pd.api.types.is_complex_dtype(values.dtype):
        found = np.asarray(pd.to_numeric(values).astype("float64"), np.float64)
        return found, np.zeros(len(values), np.bool_)
    parsed = [_float(value) for value in values.astype(object)]
    strange = np.array([number is None for number in parsed], bool)
    return np.array([np.nan if number is None else number for number in parsed], np.float64), strange


def broken(values: pd.Series) -> NDArray[np.bool_]:
    """Which cells hold half of a surrogate pair, or a number too long to be written: no text can be made of them."""
    if pd.api.types.is_numeric_dtype(values.dtype):
        return np.zeros(len(values), bool)
    there = values.array
    if values.dtype != object:  # few names, many rows
        codes, uniques = pd.factorize(there)
        bad = np.array([*map(is_broken, uniques), False], bool)
        found: NDArray[np.bool_] = bad[codes]
        return found
    return np.fromiter(map(is_broken, there), bool, len(values))


def is_broken(value: object) -> bool:
    """Whether UTF-8 cannot hold a text, or the texts inside lists and mappings."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return True
        return False
    if isinstance(value, int) and not isinstance(value, bool):
        return value.bit_length() > 10_000  # Python writes 4,300 digits at most
    parts: Iterable[object] = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(is_broken, parts))


def printed(value: object, limit: int = 80) -> str:
    """`repr(value)`, cut to a length that fits into an error message; long and deep values do not raise."""
    if isinstance(value, str) and len(value) > limit:
        value = value[:limit]
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # over 4,300 digits, or nested without end
        text = f"a whole number of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _float(value: object) -> float | None:
    """One cell as a float, NaN where it is missing, None where it is not a number."""
    if value is None or value is pd.NA or value is pd.NaT:
        return float("nan")
    if isinstance(value, str):
        return float(value) if _NUMBER.fullmatch(value) else None
    if not isinstance(value, bool | int | float | Decimal | np.integer | np.floating | np.bool_):
        return None
    try:
        return float(value)
    except (OverflowError, ValueError):
        return None
