"""The credit of every model on every item of a benchmark: what all numbers are means of."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import tables
from rmlab.keys import number
from rmlab.tables import PROMPT, DataError, unique_remedy

__all__ = ["LOSS", "MISSING", "NO_ROW", "TIE", "WIN", "Items", "common_items", "require_same_items", "select", "spread"]

Codes = NDArray[np.intp]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

NO_ROW, MISSING, LOSS, TIE, WIN = -2, -1, 0, 1, 2
"""Codes of an outcome: the model has no row for the item, or has one without an answer, or lost, tied, won."""

NO_STYLE = 9  # pair of styles of a comparison whose answers have none; above it the level, where that alone is known
STYLE_CODES = NO_STYLE + 1 + len(tables.LEVELS)
_CELL = ["domain", "subset", "chosen_style", "rejected_style", "level"]


@dataclass(frozen=True)
class Items:
    """Credit of every model on every item, in the order of the items' keys, whatever the order of the rows.

    `frame` has one row per item: its key, domain, subset, the styles and the level (missing where there are none), and
    any further column asked for. `credit` and `outcome` are (models, items); credit is NaN where a model has no row,
    no answer, or a tie that is dropped. `cluster` says which items stand or fall together (those of a prompt; in
    RewardBench 1 those of a task), `prompt` which belong to one prompt. `cell` is an index into `cells`, one row per
    domain, subset and pair of styles. `bounds` are the least and the most that an item of each cell can earn,
    (cells, 2). `appearance` (items,) is the order in which the items first stand in the table.
    """

    models: list[str]
    frame: pd.DataFrame
    outcome: NDArray[np.int8]
    credit: Floats
    prompt: Codes
    cluster: Codes
    cell: Codes
    cells: pd.DataFrame
    bounds: Floats
    appearance: Codes

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return int(self.cluster.max(initial=-1)) + 1

    @property
    def styled(self) -> bool:
        """Whether every comparison has a level, as in RM-Bench."""
        return bool(len(self.cells)) and bool((self.cells["styles"] != NO_STYLE).all())


def spread(
    rows: pd.DataFrame,
    *,
    key: Sequence[str],
    outcome: NDArray[np.int8],
    credit: Floats,
    cluster: Sequence[str] = PROMPT,
    describing: Sequence[str] = (),
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Items:
    """Spread rows (one per model and item) out into models by items.

    `key` are the columns that name an item, `describing` further ones that an item has, `cluster` those that items of
    one cluster share; `outcome` and `credit` are (rows,). Raises DataError where a model has two rows for one item.
    """
    # Items before models: numbering them takes the most memory, while nothing else is held.
    item, first = number(rows, list(key))
    model, seen = number(rows, ["model"])
    names = rows["model"].iloc[seen].tolist()
    shape = (len(names), len(first))
    order, frame = _sorted(_plain(rows[[*dict.fromkeys([*key, *describing])]].iloc[first]), key)
    place = np.empty(len(order), np.intp)
    place[order] = np.arange(len(order))
    where = place[item]
    model *= len(first)
    where += model
    del item, model
    _refuse_repeats(rows, where, [*key], {"outcome": outcome, "credit": credit})
    outcomes, credits = np.full(shape, NO_ROW, np.int8), np.full(shape, np.nan)
    # `ravel` of a fresh array is a view, so these two lines fill the squares themselves.
    outcomes.ravel()[where] = outcome
    credits.ravel()[where] = credit
    cell, cells = _cells(frame)
    return Items(
        models=names,
        frame=frame,
        outcome=outcomes,
        credit=credits,
        prompt=number(frame, [c for c in PROMPT if c in frame])[0],
        cluster=number(frame, list(cluster))[0],
        cell=cell,
        cells=cells,
        bounds=np.tile(np.array(bounds), (len(cells), 1)),
        appearance=order,
    )


def select(items: Items, kept: Mask) -> Items:
    """The items where `kept` (items,) is true, for the same models; clusters and cells keep their numbers."""
    return replace(
        items,
        frame=items.frame[kept].reset_index(drop=True),
        outcome=items.outcome[:, kept],
        credit=items.credit[:, kept],
        prompt=items.prompt[kept],
        cluster=items.cluster[kept],
        cell=items.cell[kept],
        appearance=items.appearance[kept],
    )


def common_items(items: Items) -> Items:
    """The items for which every model has a row; DataError where there is none."""
    everywhere = (items.outcome != NO_ROW).all(axis=0)
    if everywhere.all():
        return items
    if not everywhere.any():
        raise DataError("common: no item was scored by all models; leave some models out")
    return select(items, np.asarray(everywhere))


def require_same_items(items: Items, weighs: Mask | None = None, table: str = "table") -> None:
    """Raise DataError where some models lack rows that others have: their numbers would not be of the same things.

    `weighs` (models, items) says which items count for which model; a row that would weigh nothing is not missed.
    """
    no_row = items.outcome == NO_ROW
    no_row = no_row if weighs is None else no_row & weighs
    if not no_row.any():
        return
    lacking = no_row.sum(axis=1)
    worst = int(lacking.argmax())
    first = items.frame[[c for c in tables.PAIR_KEY if c in items.frame]].iloc[int(no_row[worst].argmax())].to_dict()
    shared = int((~no_row.any(axis=0)).sum())
    remedy = (
        f"pass common=True to use the {shared} comparisons that all models have"
        if shared
        else "no comparison is shared by all models: leave some models out"
    )
    raise DataError(
        f"{table}: the models were scored on different comparisons: {(lacking > 0).sum()} of {len(items.models)} "
        f"models lack some, most of all {items.models[worst]!r} with {lacking[worst]} of {len(items.frame)}, "
        f"first {first}; {remedy}"
    )


def _refuse_repeats(rows: pd.DataFrame, place: Codes, key: list[str], said: dict[str, NDArray[np.generic]]) -> None:
    seen = np.zeros(int(place.max(initial=-1)) + 1, np.bool_)
    seen[place] = True
    if np.count_nonzero(seen) == len(place):
        return
    found = np.bincount(place)
    repeated = int(np.flatnonzero(found[place] > 1)[1])
    where = {c: rows[c].iloc[repeated] for c in ("model", *key)}
    remedy = unique_remedy(rows[["model", *key]].assign(**said), ["model", *key], [*said])
    raise DataError(
        f"table: {int((found - 1).clip(0).sum())} rows repeat a key, first {where}; a model may have one row per item: "
        f"{remedy}"
    )


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """The same with strings in place of the categoricals that `comparison_items` carries."""
    packed = [c for c in (*PROMPT, "subset") if c in frame and isinstance(frame[c].dtype, pd.CategoricalDtype)]
    return frame.astype(dict.fromkeys(packed, "str"))


def _sorted(frame: pd.DataFrame, key: Sequence[str]) -> tuple[Codes, pd.DataFrame]:
    """The items in the order of their keys: random draws are dealt out by place, so they must not follow the rows."""
    frame = frame.reset_index(drop=True)
    ranked = frame.sort_values(list(key), kind="stable")
    return ranked.index.to_numpy().astype(np.intp), ranked.reset_index(drop=True)


def _cells(frame: pd.DataFrame) -> tuple[Codes, pd.DataFrame]:
    """Cell of each item, and one row per cell: domain, subset, styles (see `NO_STYLE`)."""
    cell, first = number(frame, [c for c in _CELL if c in frame])
    cells = frame.iloc[first].reset_index(drop=True)
    return cell, cells.assign(styles=_style_pair(cells))[[c for c in (*_CELL, "styles") if c in {*cells, "styles"}]]


def _style_pair(cells: pd.DataFrame) -> Codes:
    if "chosen_style" not in cells:
        return np.full(len(cells), NO_STYLE, np.intp)
    chosen, rejected = (
        pd.Categorical(cells[c], dtype=tables.STYLE).codes.astype(np.intp) for c in ("chosen_style", "rejected_style")
    )
    level = pd.Categorical(cells["level"], dtype=tables.LEVEL).codes if "level" in cells else -1
    return np.where((chosen < 0) | (rejected < 0), NO_STYLE + 1 + level, 3 * chosen + rejected).astype(np.intp)
