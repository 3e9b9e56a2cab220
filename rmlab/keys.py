"""Key columns as numbers: a column of strings is read once, and its codes are remembered while the column lives.

A table of 24 million scores repeats a few names and ids; comparing and gathering the strings themselves took nine
tenths of the time of `pairs`. The tables keep plain strings all the same: only what is computed inside works on codes.
"""

import weakref
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.extensions import ExtensionArray

__all__ = ["Coded", "coded", "decoded", "has_repeats", "number", "packed", "shared", "starts_of"]

Codes = NDArray[np.intp]
Narrow = NDArray[np.signedinteger]

PIECE = 2**22  # rows gathered at once: the indices that this needs are eight bytes each, whatever the codes' width
REPEATED = 2**16  # rows of one value that lie in memory once, and stand in the column as often as they are needed
_DENSE, _SMALL = 4, 1024  # combined codes stay as they are up to so many times the rows; beyond, they are numbered anew


class Coded(NamedTuple):
    """A column as `codes` (rows,) into its distinct `values`, in order of first appearance; -1 where missing."""

    codes: Narrow
    values: ExtensionArray | pd.Index | NDArray[np.generic]

    @property
    def missing(self) -> bool:
        """Whether some cell is missing."""
        return bool((self.codes < 0).any())


# Arrow's arrays never change: a column that is written to gets another one. So codes may be kept by the array's
# identity as long as it lives; columns of Python objects may change in place and are read every time.
_known: dict[int, tuple[weakref.ref[object], Coded]] = {}


def coded(values: pd.Series) -> Coded:
    """The codes of a column, from memory where the very same Arrow array was read before."""
    if isinstance(values.array, pd.Categorical):
        return Coded(np.asarray(values.array.codes), values.cat.categories)
    source = _lasting(values)
    if source is not None and id(source) in _known:
        return _known[id(source)][1]
    codes, uniques = pd.factorize(values.array)
    found = Coded(_narrow(codes, len(uniques)), uniques)
    _remember(source, found)
    return found


def decoded(column: Coded, starts: Codes | None = None) -> pd.Series:
    """The column of these codes, as `coded` read it; its codes stay known.

    `starts` are rows at which a stretch begins that may say what an earlier one said, as another model's rows do of the
    same answers. Stretches that are alike, or of one value, lie in memory once.
    """
    values, codes, missing = pd.Series(column.values).array, column.codes, column.missing
    kept: dict[tuple[int, ...], tuple[Narrow, ExtensionArray]] = {}
    pieces = []
    for start, end in _stretches(codes, starts):
        own = codes[start:end]
        name = (len(own), *own[:1].tolist(), *own[-1:].tolist())
        if name not in kept or not np.array_equal(kept[name][0], own):
            kept[name] = own, values.take(own, allow_fill=missing)
        pieces.append(kept[name][1])
    # Joined as arrays: a Series for each of thousands of pieces would take longer than the gathering.
    series = pd.Series(type(values)._concat_same_type(pieces) if len(pieces) > 1 else pieces[0])
    _remember(_lasting(series), column)
    return series


def shared(frame: pd.DataFrame, earlier: pd.DataFrame) -> pd.DataFrame:
    """The same frame; columns of strings that say what those of `earlier` say, row for row, are those in memory.

    Files of several models repeat every domain and id. A column that repeats one name keeps it once.
    """
    made = {}
    for name in frame.columns.intersection(earlier.columns):
        if frame[name].dtype != "str" or earlier[name].dtype != "str":
            continue
        own, other = coded(frame[name]), coded(earlier[name])
        alike = np.array_equal(own.codes, other.codes) and pd.Index(own.values).equals(pd.Index(other.values))
        made[name] = earlier[name] if alike else decoded(own)
    return frame.assign(**made)


def packed(column: Coded, rows: Codes) -> pd.Categorical:
    """Some rows of a column, as a categorical: what tables carry inside in place of strings."""
    dtype = pd.CategoricalDtype(pd.Index(column.values))
    return pd.Categorical.from_codes(column.codes[rows], dtype=dtype, validate=False)


def number(frame: pd.DataFrame, columns: Sequence[str]) -> tuple[Codes, Codes]:
    """Number of each row's combination of values, in order of first appearance, and the first row of each.

    A missing value is a value of its own.

    >>> number(pd.DataFrame({"domain": ["chat", "chat", "math", "chat"]}), ["domain"])
    (array([0, 0, 1, 0]), array([0, 2]))
    """
    code = _combined(frame, columns)[0]
    start = starts_of(code)
    if len(start) == len(code):
        del start
        numbers = pd.factorize(code)[0]
        first = np.flatnonzero(_highest(numbers))
    else:
        # Rows of a prompt mostly stand together: one number per run of rows.
        of_run = pd.factorize(code[start])[0]
        first = start[_highest(of_run)]
        numbers = np.repeat(of_run, np.diff(start, append=len(code)))
    return numbers.astype(np.intp, copy=False), first.astype(np.intp, copy=False)


def starts_of(codes: NDArray[np.integer]) -> Codes:
    """Rows at which a run of equal codes starts."""
    new = np.ones(len(codes), np.bool_)
    np.not_equal(codes[1:], codes[:-1], out=new[1:])
    return np.flatnonzero(new)


def _highest(codes: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Whether each code is above all before it: numbers given in order of appearance are, where they first stand."""
    # Tens of millions of rows: a difference of neighbours would hold two more arrays of their length.
    so_far = np.maximum.accumulate(codes)
    above = np.ones(len(codes), np.bool_)
    np.greater(so_far[1:], so_far[:-1], out=above[1:])
    return above


def has_repeats(frame: pd.DataFrame, columns: Sequence[str]) -> bool:
    """Whether some combination of values stands in more than one row."""
    code, size = _combined(frame, columns)
    seen = np.zeros(size, np.bool_)
    seen[code] = True
    return int(np.count_nonzero(seen)) < len(code)


def _combined(frame: pd.DataFrame, columns: Sequence[str]) -> tuple[NDArray[np.int64], int]:
    """One code a row for all columns together, below the size returned: a number whose digits are the columns' codes.

    Numbered anew where it would outgrow the rows, so that it can be an index, and never leaves 64 bits.
    """
    most = _DENSE * len(frame) + _SMALL
    code, size = np.zeros(len(frame), np.int64), 1
    for column in columns:
        digit, base = _digits(frame[column])
        code *= base
        code += digit
        size *= base
        if size > most:
            found, uniques = pd.factorize(code)
            code, size = found.astype(np.int64, copy=False), len(uniques)
    return code, size


def _digits(values: pd.Series) -> tuple[Narrow, int]:
    """Codes of a column from 0, and how many there may be; numbers close together stand for themselves."""
    if isinstance(values.dtype, np.dtype) and values.dtype.kind == "i" and len(values):
        whole = values.to_numpy()
        low, high = int(whole.min()), int(whole.max())
        if high - low < _DENSE * len(whole) + _SMALL:
            return whole - low, high - low + 1
    column = coded(values)
    missing = int(column.missing)
    return column.codes + missing, max(len(column.values) + missing, 1)


def _stretches(codes: Narrow, starts: Codes | None) -> Iterator[tuple[int, int]]:
    """First row and end of the pieces that a column is gathered in: short where it repeats one value."""
    # One piece where none are known; an empty column has no stretches, and is one empty piece.
    begin = np.zeros(1, np.intp) if starts is None or len(starts) * _SMALL >= len(codes) else starts
    for start, end in zip(begin, [*begin[1:], len(codes)], strict=True):
        single = end - start > REPEATED and bool((codes[start:end] == codes[start]).all())
        piece = REPEATED if single else PIECE
        for first in range(start, max(end, start + 1), piece):
            yield first, min(first + piece, end)


def _lasting(values: pd.Series) -> object | None:
    """The Arrow array behind a column, which never changes; None where there is none."""
    array = values.array
    if isinstance(array, pd.arrays.ArrowStringArray | pd.arrays.ArrowExtensionArray):
        lasting: object = array.__arrow_array__()
        return lasting
    return None


def _remember(source: object | None, column: Coded) -> None:
    if source is not None:
        place = id(source)
        _known[place] = weakref.ref(source, lambda _: _known.pop(place, None)), column


def _narrow(codes: Codes, size: int) -> Narrow:
    return codes.astype(np.min_scalar_type(-max(size, 1)))
