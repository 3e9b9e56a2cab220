"""Accuracies by any columns, and the style-substance matrix: means of items with n, ties and clustered errors."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import tables
from rmlab.benchmarks.registry import benchmark_of
from rmlab.items.columns import number
from rmlab.items.comparisons import ITEM, as_pairs, comparison_items
from rmlab.items.grid import Codes, Items, Mask, common_items
from rmlab.items.weighting import Average
from rmlab.metrics.estimate import estimate
from rmlab.metrics.numbers import Reading, numbers, read
from rmlab.metrics.summaries import counts
from rmlab.tables import STYLES, DataError

__all__ = ["accuracy", "accuracy_reading", "grouped", "in_order", "matrix"]

_CELL_COLUMNS = ("level", "chosen_style", "rejected_style")


def matrix(
    table: pd.DataFrame,
    *,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    **options: str,
) -> pd.DataFrame:
    """Style-substance matrix of one model: share of comparisons that the chosen answer wins.

    A 3x3 frame, rows the chosen style, columns the rejected style, both concise, plain, markdown. The upper triangle
    is hard, the diagonal normal, the lower triangle easy; the mean of a triangle is that level in `summary`. RM-Bench
    (arXiv 2410.16184), section 3 and figure 2. By default cells are averaged as the benchmark does (RM-Bench: its four
    domains alike); `average="prompts"` pools the prompts, "domains" averages the domains that are there. A model that
    lacks a domain has a matrix of NaN, with the way out in `attrs["reason"]`; a cell without a comparison is NaN.
    Raises DataError with several models or no styles.

    >>> margins = pd.DataFrame({"model": "m", "benchmark": "b", "domain": "chat", "id": ["0", "1"], "chosen_slot": 0,
    ...     "rejected_slot": 2, "chosen_style": "concise", "rejected_style": "markdown", "margin": [0.5, -1.0]})
    >>> matrix(tables.check_pairs(margins)).loc["concise", "markdown"].item()
    0.5
    """
    reading = read(table, average, ties, common, options)
    models = reading.items.models
    if len(models) != 1:
        raise DataError(
            f"table: a matrix shows one model, got {len(models)} {models[:5]}; keep one: table[table.model == ...]"
        )
    if not reading.items.styled:
        blank = int(reading.items.frame["level"].isna().sum()) if "level" in reading.items.frame else "every"
        raise DataError(
            f"table: level is missing in {blank} of {len(reading.items.frame)} comparisons; a matrix needs answers in "
            "styles, as RM-Bench has them"
        )
    shares, reasons = np.full((len(STYLES), len(STYLES)), np.nan), []
    for place, (_, _, cell) in enumerate(n for n in numbers(reading) if n[0] == "cell"):
        one = estimate(reading.items, cell)
        shares[divmod(place, len(STYLES))] = one.value[0]
        reasons += [one.reason[0]] if np.isnan(one.value[0]) else []
    rows, columns = pd.Index(STYLES, name="chosen_style"), pd.Index(STYLES, name="rejected_style")
    frame = pd.DataFrame(shares, index=rows, columns=columns)
    frame.attrs = {"average": reading.weighting.label}
    if reasons:
        frame.attrs["reason"] = f"{reasons[0]}; average='domains' or 'prompts' takes what there is"
    return frame


def accuracy(
    table: pd.DataFrame,
    by: str | Sequence[str] = "model",
    *,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    confidence: float = 0.95,
    **options: str,
) -> pd.DataFrame:
    """Share of comparisons won, one row per combination of the `by` columns, which hold "model" unless there is one.

    Columns after those of `by`: accuracy, se (clustered by prompt), low, high, n_prompts, n_pairs (comparisons
    counted), n_ties, missing, average, reason. The same options, numbers and intervals as `summary` and `estimates`:
    by="model" is the overall score, by=["model", "level"] are easy, normal and hard. A row inside one domain or subset
    needs that alone; the others need all parts of the benchmark. `by` may hold domain, subset, level, chosen_style, rejected_style
    and any further column that a comparison has in every model, such as `source`.
    Comparisons with a missing outcome are counted in `missing` and in nothing else. Style, level and other ordered
    categorical columns come on their full grid: a hole is NaN with n = 0.
    """
    by = [by] if isinstance(by, str) else list(dict.fromkeys(by))
    columns = [c for c in by if c != "model"]
    reading = accuracy_reading(table, columns, average, ties, common, options)
    parts = []
    for key, counted, need in grouped(reading, columns):
        one = estimate(reading.items, reading.number(counted, need), confidence=confidence)
        frame = pd.DataFrame({"model": pd.Series(reading.items.models, dtype="str")}).assign(**key)
        parts.append(frame.assign(accuracy=one.value, **counts(one, reading, n_pairs=one.n_pairs)))
    return in_order(parts, by, columns, reading)


def accuracy_reading(
    table: pd.DataFrame, columns: list[str], average: Average, ties: str | None, common: bool,
    options: Mapping[str, str],
) -> Reading:  # fmt: skip
    """`read`, with further columns of the comparisons kept for grouping by them."""
    benchmark = benchmark_of(table)
    extra = [c for c in columns if c not in {*ITEM, "subset", *_CELL_COLUMNS}]
    if not extra:
        return read(table, average, ties, common, options)
    items = comparison_items(_with_extra(table, extra), benchmark.ties[0] if ties is None else ties, describing=extra)
    items = common_items(items) if common else items
    return Reading(benchmark, items, benchmark.weighting(items, average, options))


def in_order(parts: list[pd.DataFrame], by: list[str], columns: list[str], reading: Reading) -> pd.DataFrame:
    """Rows of all groups (one frame each, a row a model) as one table: the `by` columns first, model by model."""
    models = reading.items.models
    if "model" not in by and len(models) > 1:
        raise DataError(f"by: {by} has no 'model', but the table has {len(models)}; add 'model' or keep one of them")
    order = np.tile(np.arange(len(models)), len(parts)).argsort(kind="stable")
    frame = pd.concat(parts, ignore_index=True).iloc[order].reset_index(drop=True)
    frame = frame.assign(**{c: frame[c].astype(_dtype(reading.items.frame, c)) for c in columns})
    return frame[[*by, *(c for c in frame.columns if c not in {"model", *by})]]


def grouped(reading: Reading, columns: Sequence[str]) -> Iterator[tuple[dict[str, object], Mask, Codes | None]]:
    """Key, items and needed parts of every group; closed columns come on their full grid, others as they occur."""
    items, everything = reading.items, np.arange(len(reading.weighting.names))
    if not columns:
        yield {}, np.ones(len(items.frame), bool), everything
        return
    strange = [c for c in columns if c not in items.frame.columns]
    if strange:
        raise DataError(
            f"by: {strange[0]!r} is not a column here; {tables.nearest(strange[0], list(items.frame.columns))}"
        )
    blank = [c for c in columns if c in tables.CLOSED and items.frame[c].isna().any()]
    if blank:
        n = int(items.frame[blank[0]].isna().sum())
        raise DataError(
            f"by: {blank[0]!r} is missing in {n} of {len(items.frame)} comparisons; "
            "this benchmark or file has no such column: group by domain or subset"
        )
    need = None if any(c not in _CELL_COLUMNS for c in columns) else everything
    for key, counted in _groups(items, columns):
        yield key, counted, need


def _groups(items: Items, columns: Sequence[str]) -> Iterator[tuple[dict[str, object], Mask]]:
    closed = [c for c in columns if isinstance(_dtype(items.frame, c), pd.CategoricalDtype)]
    open_ = [c for c in columns if c not in closed]
    group, first = number(items.frame, open_) if open_ else (np.zeros(len(items.frame), np.intp), np.zeros(1, np.intp))
    codes, sizes = group, []
    for column in closed:
        dtype = _dtype(items.frame, column)
        sizes.append(len(dtype.categories))
        codes = codes * sizes[-1] + pd.Categorical(items.frame[column], dtype=dtype).codes
    rows = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[rows], np.arange(len(first) * int(np.prod(sizes, initial=1)) + 1))
    for place, (start, end) in enumerate(pairwise(ends)):
        key = _key(items.frame, columns, open_, closed, sizes, first, place)
        counted = np.zeros(len(items.frame), bool)
        counted[rows[start:end]] = True
        yield key, counted


def _key(
    frame: pd.DataFrame, columns: Sequence[str], open_: list[str], closed: list[str], sizes: list[int],
    first: NDArray[np.intp], place: int,
) -> dict[str, object]:  # fmt: skip
    found: dict[str, object] = {}
    for column, size in zip(reversed(closed), reversed(sizes), strict=True):
        place, code = divmod(place, size)
        found[column] = _dtype(frame, column).categories[code]
    found |= {column: frame[column].iloc[first[place]] for column in open_}
    return {column: found[column] for column in columns}


def _dtype(frame: pd.DataFrame, column: str) -> object:
    dtype = tables.CLOSED.get(column, frame[column].dtype)
    return dtype if not isinstance(dtype, pd.CategoricalDtype) or dtype.ordered or column in tables.CLOSED else "str"


def _with_extra(table: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    absent = [c for c in columns if c not in table.columns]
    if absent:
        raise DataError(
            f"by: {absent[0]!r} is not a column of the table; {tables.nearest(absent[0], list(table.columns))}"
        )
    if "outcome" not in table.columns and "margin" not in table.columns:
        raise DataError(f"by: {columns[0]!r} is no column of comparisons; add it to rmlab.pairs(scores)")
    return as_pairs(table)
