"""The credit of every model on every item of a benchmark: all numbers are means of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import tables
from rmlab.metrics.comparisons import as_pairs, outcome_and_credit
from rmlab.tables import ITEM, PROMPT, DataError, IntArray, group_codes

__all__ = ["LOSS", "MISSING", "NO_ROW", "TIE", "WIN", "Items", "build_items", "comparison_items"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

NO_ROW, MISSING, LOSS, TIE, WIN = -2, -1, 0, 1, 2
"""Codes of an outcome: the model has no row for the item, or has one without an answer, or lost, tied, won."""

NO_STYLE = 9  # style code of a comparison without styles; above it the level, where that alone is known
N_STYLE_CODES = NO_STYLE + 1 + len(tables.LEVELS)
_DESCRIBED = ("subset", "chosen_style", "rejected_style", "level")
_CELL_COLUMNS = ("domain", *_DESCRIBED)


@dataclass(frozen=True)
class Items:
    """Credit of every model on every item, in the order in which the items appear.

    Attributes
    ----------
    models : list of str
        Names of the models.
    frame : DataFrame
        One row per item: its key, domain, subset, styles and level (where there are any), further columns.
    credit : ndarray
        (models, items): what the model earns, NaN where it has no row, no answer, or a tie that is dropped.
    outcome : ndarray
        (models, items): NO_ROW, MISSING, LOSS, TIE or WIN.
    prompt, cluster : ndarray
        (items,): number of the item's prompt, and of the set of items that stand or fall together.
    cell : ndarray
        (items,): row of `cells`, the distinct combinations of domain, subset, styles and further columns.
    cells : DataFrame
        One row per cell; the column `style_code` numbers the pair of styles (see `NO_STYLE`).
    bounds : ndarray
        (cells, 2): the least and the most that an item of the cell can earn.
    """

    models: list[str]
    frame: pd.DataFrame
    credit: FloatArray
    outcome: NDArray[np.int8]
    prompt: IntArray
    cluster: IntArray
    cell: IntArray
    cells: pd.DataFrame
    bounds: FloatArray

    @property
    def has_levels(self) -> bool:
        """Whether every comparison has a level, as in RM-Bench."""
        return bool(len(self.cells)) and bool((self.cells["style_code"] != NO_STYLE).all())

    @cached_property
    def rows_of_cell(self) -> list[IntArray]:
        """Items of each cell."""
        order = np.argsort(self.cell, kind="stable")
        return np.split(order, np.searchsorted(self.cell[order], np.arange(1, len(self.cells))))

    def select(self, kept: BoolArray) -> "Items":
        """The items where `kept` (items,) is true, for the same models; a cell without items goes."""
        cells, cell = np.unique(self.cell[kept], return_inverse=True)
        return replace(
            self,
            frame=self.frame[kept].reset_index(drop=True),
            credit=self.credit[:, kept],
            outcome=self.outcome[:, kept],
            prompt=self.prompt[kept],
            cluster=self.cluster[kept],
            cell=cell.astype(np.intp),
            cells=self.cells.iloc[cells].reset_index(drop=True),
            bounds=self.bounds[cells],
        )

    def common(self) -> "Items":
        """The items for which every model has a row; DataError where there is none."""
        in_all = (self.outcome != NO_ROW).all(axis=0)
        if not in_all.any():
            raise DataError("common: no item was scored by all models. Leave some models out.")
        return self if in_all.all() else self.select(in_all)

    def require_same(self, counts: BoolArray | None = None) -> None:
        """Raise DataError where some models lack rows that others have.

        `counts` (models, items) says which items count for which model; a row that counts nowhere may be absent.
        """
        no_row = self.outcome == NO_ROW
        no_row = no_row if counts is None else no_row & counts
        if not no_row.any():
            return
        n_absent = no_row.sum(axis=1)
        worst = int(n_absent.argmax())
        key = self.frame[[c for c in ITEM if c in self.frame]].iloc[int(no_row[worst].argmax())].to_dict()
        n_shared = int((~no_row.any(axis=0)).sum())
        hint = f"Pass common=True to use the {n_shared} that all have" if n_shared else "Leave some models out"
        raise DataError(
            f"table: the models were scored on different comparisons; {self.models[worst]!r} lacks {n_absent[worst]} "
            f"of {len(self.frame)}, first {key}. {hint}."
        )


def build_items(
    rows: pd.DataFrame,
    *,
    key: Sequence[str],
    outcome: NDArray[np.int8],
    credit: FloatArray,
    columns: Sequence[str] = (),
    by: Sequence[str] = (),
    cluster: Sequence[str] = PROMPT,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Items:
    """Spread rows, one per model and item, out into models by items.

    Parameters
    ----------
    rows : DataFrame
        Has the column model and the columns named below.
    key : sequence of str
        Columns that name an item.
    outcome, credit : ndarray
        (rows,): code of the outcome, and what the model earns.
    columns, by : sequence of str
        Further columns that describe an item; those in `by` split the cells.
    cluster : sequence of str
        Columns whose values the items of a cluster share.
    bounds : tuple of float
        The least and the most that an item can earn.

    Raises
    ------
    DataError
        If a model has two rows for one item, a value in `cluster` is missing, or a column of `by` or `cluster` differs
        between models.
    """
    require_item_columns(rows, by, cluster)
    item, first_rows = group_codes(rows, key)
    for name in {*by, *cluster} - {*key, *columns}:
        values = pd.factorize(rows[name])[0]
        differs = values != values[first_rows][item]
        if differs.any():
            raise DataError(
                f"by, cluster: {name!r} differs between the models in {int(differs.sum())} rows, first "
                f"{rows[list(key)].iloc[int(differs.argmax())].to_dict()}. Use a column of the prompts."
            )
    model, model_rows = group_codes(rows, ["model"])
    models, shape = rows["model"].iloc[model_rows].tolist(), (len(model_rows), len(first_rows))
    place = model * shape[1] + item
    seen = np.zeros(shape[0] * shape[1], bool)
    seen[place] = True
    if np.count_nonzero(seen) < len(place):
        tables.refuse_repeats(rows, ["model", *key], "table")
    outcomes, credits = np.full(shape, NO_ROW, np.int8), np.full(shape, np.nan)
    outcomes.ravel()[place] = outcome  # `ravel` of a new array is a view
    credits.ravel()[place] = credit
    frame = rows[[*dict.fromkeys([*key, *columns, *by, *cluster])]].iloc[first_rows].reset_index(drop=True)
    without_cluster = frame[list(cluster)].isna().any(axis=1)
    if without_cluster.any():
        first = frame.loc[without_cluster, [c for c in PROMPT if c in frame]].iloc[0].to_dict()
        raise DataError(
            f"cluster: {list(cluster)} is missing in {int(without_cluster.sum())} items, first {first}. Fill it in."
        )
    defining = list(dict.fromkeys([*(c for c in _CELL_COLUMNS if c in frame), *by]))
    cell, cell_rows = group_codes(frame, defining)
    cells = frame[defining].iloc[cell_rows].reset_index(drop=True)
    return Items(
        models=models,
        frame=frame,
        credit=credits,
        outcome=outcomes,
        prompt=group_codes(frame, [c for c in PROMPT if c in frame])[0],
        cluster=group_codes(frame, cluster)[0],
        cell=cell,
        cells=cells.assign(style_code=_style_codes(cells)),
        bounds=np.tile(np.array(bounds, np.float64), (len(cells), 1)),
    )


def comparison_items(
    table: pd.DataFrame, ties: str = "loss", *, by: Sequence[str] = (), cluster: Sequence[str] = PROMPT
) -> Items:
    """Items that are comparisons, from scores or pairs: credit 1 for a win, 0 for a loss, a tie as `ties` says."""
    pairs = as_pairs(table)
    outcome, credit = outcome_and_credit(pairs, ties)
    return build_items(pairs, key=ITEM, outcome=outcome, credit=credit, columns=_DESCRIBED, by=by, cluster=cluster)


def require_item_columns(rows: pd.DataFrame, by: Sequence[str], cluster: Sequence[str]) -> None:
    """Raise DataError unless `rows` has the columns that items are grouped by."""
    for argument, names in (("by", by), ("cluster", cluster)):
        for name in names:
            if name not in rows.columns:
                raise DataError(
                    f"{argument}: {name!r} is not a column here; {tables.nearest(name, list(rows.columns))}."
                )


def _style_codes(cells: pd.DataFrame) -> IntArray:
    """Code of each cell's pair of styles: 3 * chosen + rejected, or NO_STYLE, or NO_STYLE + 1 + level."""
    if "chosen_style" not in cells:
        return np.full(len(cells), NO_STYLE, np.intp)
    chosen, rejected = (
        pd.Categorical(cells[c], dtype=tables.STYLE).codes.astype(np.intp) for c in ("chosen_style", "rejected_style")
    )
    level = pd.Categorical(cells["level"], dtype=tables.LEVEL).codes if "level" in cells else -1
    return np.where((chosen < 0) | (rejected < 0), NO_STYLE + 1 + level, 3 * chosen + rejected).astype(np.intp)
