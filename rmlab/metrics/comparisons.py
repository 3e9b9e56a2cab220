"""Accuracies by any columns, and the style-substance matrix: means of items with n, ties and clustered errors."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.benchmarks.registry import benchmark_of
from rmlab.items.comparisons import ITEM, as_pairs, comparison_items
from rmlab.items.grid import NO_STYLE, Codes, Items, Mask, common_items
from rmlab.items.weighting import Average
from rmlab.keys import number
from rmlab.metrics.estimate import estimate
from rmlab.metrics.numbers import Reading, numbers, one_domain, read
from rmlab.metrics.summaries import Part, counts, stacked
from rmlab.tables import STYLES, DataError

__all__ = ["accuracy", "accuracy_reading", "grouped", "in_order", "matrix", "typed"]

_CELL_COLUMNS = ("level", "chosen_style", "rejected_style")
_ITEM_COLUMNS = (*ITEM, "subset", *_CELL_COLUMNS)


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
    domains alike); `average="prompts"` pools the prompts, "domains" averages the domains that are there; a table of one
    domain gives that domain's matrix. A model that lacks one of several domains has a matrix of NaN, with the way out
    in `attrs["reason"]`; a cell without a comparison is NaN. `attrs["cells"]` has the same nine numbers row by row with
    their intervals and counts (accuracy, low, high, n_pairs, n_ties), which `plot_matrix` shows. Raises DataError with
    several models or no styles.

    >>> margins = pd.DataFrame({"model": "m", "benchmark": "b", "domain": "chat", "id": ["0", "1"], "chosen_slot": 0,
    ...     "rejected_slot": 2, "chosen_style": "concise", "rejected_style": "markdown", "margin": [0.5, -1.0]})
    >>> matrix(tables.check_pairs(margins)).loc["concise", "markdown"].item()
    0.5
    """
    reading = one_domain(read(table, average, ties, common, options, whole=False))
    models = reading.items.models
    if len(models) != 1:
        raise DataError(
            f"table: a matrix shows one model, got {len(models)} {models[:5]}; keep one: table[table.model == ...]"
        )
    if (reading.items.cells["styles"] >= NO_STYLE).any():
        missing = int(reading.items.frame["level"].isna().sum()) if "level" in reading.items.frame else "every"
        raise DataError(
            f"table: level is missing in {missing} of {len(reading.items.frame)} comparisons; "
            "a matrix needs answers in styles, as RM-Bench has them"
        )
    cells = [estimate(reading.items, cell) for kind, _, cell in numbers(reading) if kind == "cell"]
    reasons = [one.reason[0] for one in cells if np.isnan(one.value[0])]
    known = {
        "accuracy": (shares := [float(one.value[0]) for one in cells]),
        "low": [float(one.low[0]) for one in cells],
        "high": [float(one.high[0]) for one in cells],
        "n_pairs": [int(one.n_pairs[0]) for one in cells],
        "n_ties": [int(one.n_ties[0]) for one in cells],
    }
    rows, columns = pd.Index(STYLES, name="chosen_style"), pd.Index(STYLES, name="rejected_style")
    frame = pd.DataFrame(np.reshape(shares, (len(STYLES), len(STYLES))), index=rows, columns=columns)
    frame.attrs = {"average": reading.weighting.label, "cells": known}
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
    needs that alone, and so does a table of one domain; the others need all parts of the benchmark. `by` may hold
    domain, subset, level, chosen_style, rejected_style and any further column of the pairs, such as `source`.
    Comparisons with a missing outcome are counted in `missing` and in nothing else. Style, level and other ordered
    categorical columns come on their full grid: a hole is NaN with n = 0.
    """
    by = [by] if isinstance(by, str) else list(dict.fromkeys(by))
    columns = [c for c in by if c != "model"]
    return in_order([_accuracies(rows, columns, average, ties, common, confidence, options)
                     for rows in _by_model(table, columns)], by)  # fmt: skip


def _accuracies(
    table: pd.DataFrame, columns: list[str], average: Average, ties: str | None, common: bool, confidence: float,
    options: Mapping[str, str],
) -> pd.DataFrame:  # fmt: skip
    reading = accuracy_reading(table, columns, average, ties, common, options)
    parts: list[Part] = []
    for key, counted, need in grouped(reading, columns):
        one = estimate(reading.items, reading.number(counted, need), confidence=confidence)
        behind = counts(one, reading, n_pairs=one.n_pairs)
        parts.append({"model": reading.items.models, **key, "accuracy": one.value, **behind})
    return typed(stacked(parts, len(reading.items.models)), reading, columns)


def typed(frame: pd.DataFrame, reading: Reading, columns: list[str]) -> pd.DataFrame:
    """The table with the types of its grouping columns: the contract's vocabularies, else as they were given."""
    types = {c: _vocabulary(reading.items.frame, c) or reading.items.frame[c].dtype for c in columns}
    return frame.astype(types)


def _by_model(table: pd.DataFrame, columns: list[str]) -> list[pd.DataFrame]:
    """The table, or its models one by one where a column says different things of one comparison: bins of margins."""
    own = [c for c in columns if isinstance(table, pd.DataFrame) and c in table.columns and c not in _ITEM_COLUMNS]
    if not own or not {*ITEM, "model"} <= set(table.columns):
        return [table]
    said = table.groupby(ITEM, sort=False, observed=True)[own].nunique(dropna=False)
    if (said <= 1).all(axis=None):
        return [table]
    return [table[table["model"] == model] for model in table["model"].unique()]


def accuracy_reading(
    table: pd.DataFrame, columns: list[str], average: Average, ties: str | None, common: bool,
    options: Mapping[str, str],
) -> Reading:  # fmt: skip
    """`read`, with further columns of the comparisons kept for grouping by them."""
    benchmark = benchmark_of(table)
    extra = [c for c in columns if c not in _ITEM_COLUMNS]
    if not extra:
        return one_domain(read(table, average, ties, common, options, whole=False))
    items = comparison_items(_with_extra(table, extra), benchmark.ties[0] if ties is None else ties, describing=extra)
    items = common_items(items) if common else items
    return one_domain(Reading(benchmark, items, benchmark.weighting(items, average, options)))


def in_order(parts: list[pd.DataFrame], by: list[str]) -> pd.DataFrame:
    """Tables of some models each as one: the `by` columns first; one model at a time where the groups are its own."""
    frame = pd.concat(parts, ignore_index=True)
    models = list(dict.fromkeys(frame["model"]))
    if "model" not in by and len(models) > 1:
        raise DataError(f"by: {by} has no 'model', but the table has {len(models)}; add 'model' or keep one of them")
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
    incomplete = [c for c in columns if c in tables.CLOSED and items.frame[c].isna().any()]
    if incomplete:
        n = int(items.frame[incomplete[0]].isna().sum())
        raise DataError(
            f"by: {incomplete[0]!r} is missing in {n} of {len(items.frame)} comparisons; "
            "this benchmark or file has no such column: group by domain or subset"
        )
    need = None if any(c not in _CELL_COLUMNS for c in columns) else everything
    for key, counted in _groups(items, columns):
        yield key, counted, need


def _groups(items: Items, columns: Sequence[str]) -> Iterator[tuple[dict[str, object], Mask]]:
    """Key and items of every group: what occurs of the open columns, times the whole grid of the closed ones."""
    types = {c: _vocabulary(items.frame, c) for c in columns}
    closed = {c: dtype for c, dtype in types.items() if dtype is not None}
    open_ = [c for c in columns if c not in closed]
    code, first = _in_appearance(items, open_) if open_ else (np.zeros(len(items.frame), np.intp), np.zeros(1, np.intp))
    for column, dtype in closed.items():
        code = code * len(dtype.categories) + pd.Categorical(items.frame[column], dtype=dtype).codes
    rows = np.argsort(code, kind="stable")
    seen = items.frame[open_].iloc[first].itertuples(index=False, name=None) if open_ else [()]
    keys = product(seen, *(dtype.categories for dtype in closed.values()))
    for place, (of_open, *of_closed) in enumerate(keys):
        start, end = np.searchsorted(code[rows], [place, place + 1])
        counted = np.zeros(len(items.frame), bool)
        counted[rows[start:end]] = True
        key = dict(zip([*open_, *closed], [*of_open, *of_closed], strict=True))
        yield {c: key[c] for c in columns}, counted


def _in_appearance(items: Items, columns: list[str]) -> tuple[Codes, Codes]:
    """Number of each item's combination of values, in the order of the table's rows, and an item of each."""
    order = np.argsort(items.appearance, kind="stable")
    found, first = number(items.frame.iloc[order], columns)
    code = np.empty_like(found)
    code[order] = found
    return code, order[first]


def _vocabulary(frame: pd.DataFrame, column: str) -> pd.CategoricalDtype | None:
    """The closed vocabulary of a column (the contract's, or its own ordered one), None where it has none."""
    own = frame[column].dtype
    return tables.CLOSED.get(column, own if isinstance(own, pd.CategoricalDtype) and own.ordered else None)


def _with_extra(table: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    missing = [c for c in columns if c not in table.columns]
    if missing:
        raise DataError(
            f"by: {missing[0]!r} is not a column of the table; {tables.nearest(missing[0], list(table.columns))}"
        )
    if "outcome" not in table.columns and "margin" not in table.columns:
        raise DataError(f"by: {columns[0]!r} is not a column of comparisons; add it to rmlab.pairs(scores)")
    return as_pairs(table)
