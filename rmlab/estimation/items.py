"""Comparisons of a prompt's answers, and the credit of every model on every item: all
numbers are means of it.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import tables
from rmlab.tables import (
    ITEM,
    PROMPT,
    BoolArray,
    DataError,
    FloatArray,
    IntArray,
    group_codes,
)

Ties = Literal["loss", "half", "drop"]

NO_ROW, MISSING, LOSS, TIE, WIN = -2, -1, 0, 1, 2
"""Codes of an outcome: the model has no row for the item, or has one without an answer,
or lost, tied, won.
"""

CREDIT_OF_TIE = {"loss": 0.0, "half": 0.5, "drop": np.nan}

# style code of a comparison without styles; above it the level, where that alone is
# known
NO_STYLE = 9
N_STYLE_CODES = NO_STYLE + 1 + len(tables.LEVELS)
DESCRIBED = ["subset", "chosen_style", "rejected_style", "level"]
_NAMES = ["model", *PROMPT, "subset"]
_PAIR_TYPES: dict[str, object] = {
    "chosen_slot": "int64",
    "rejected_slot": "int64",
    "margin": "float64",
}
_PAIR_TYPES |= dict.fromkeys(_NAMES, "str") | {
    name: tables.CLOSED[name] for name in ("outcome", *DESCRIBED[1:])
}


@dataclass(frozen=True)
class Items:
    """Credit of every model on every item, in the order in which the items appear.

    Attributes
    ----------
    models : list of str
        Names of the models.
    frame : DataFrame
        One row per item: its key, domain, subset, styles and level (where there are
        any), further columns.
    credit : ndarray
        (models, items): what the model earns, NaN where it has no row, no answer, or a
        tie that is dropped.
    outcome : ndarray
        (models, items): NO_ROW, MISSING, LOSS, TIE or WIN.
    prompt, cluster : ndarray
        (items,): number of the item's prompt, and of the set of items that stand or
        fall together.
    cell : ndarray
        (items,): row of `cells`, the distinct combinations of domain, subset, styles
        and further columns.
    cells : DataFrame
        One row per cell; the column `style_code` numbers the pair of styles (see
        `NO_STYLE`).
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
        return bool(len(self.cells)) and bool(
            (self.cells["style_code"] != NO_STYLE).all()
        )

    @cached_property
    def rows_of_cell(self) -> list[IntArray]:
        """Items of each cell."""
        order = np.argsort(self.cell, kind="stable")
        return np.split(
            order, np.searchsorted(self.cell[order], np.arange(1, len(self.cells)))
        )

    def common(self) -> "Items":
        """The items for which every model has a row; DataError where there is none."""
        in_all = (self.outcome != NO_ROW).all(axis=0)
        if not in_all.any():
            raise DataError(
                "common: no item was scored by all models. Leave some models out."
            )
        arrays = {
            name: getattr(self, name)[..., in_all]
            for name in ("credit", "outcome", "prompt", "cluster")
        }
        frame = self.frame[in_all].reset_index(drop=True)
        cells, cell = np.unique(self.cell[in_all], return_inverse=True)
        cells_frame, bounds = (
            self.cells.iloc[cells].reset_index(drop=True),
            self.bounds[cells],
        )
        return replace(
            self,
            frame=frame,
            cell=cell.astype(np.intp),
            cells=cells_frame,
            bounds=bounds,
            **arrays,
        )

    def require_same(self, counts: BoolArray | None = None) -> None:
        """Raise DataError where some models lack rows that others have.

        `counts` (models, items) says which items count for which model; a row that
        counts nowhere may be absent.
        """
        lacks = (self.outcome == NO_ROW) & (True if counts is None else counts)
        if lacks.any():
            worst = int(lacks.sum(axis=1).argmax())
            n, key = (
                lacks[worst].sum(),
                self.frame.filter(ITEM).iloc[int(lacks[worst].argmax())].to_dict(),
            )
            message = f"table: {self.models[worst]!r} lacks {n} of {len(self.frame)} items, first {key}."
            raise DataError(
                f"{message} Pass common=True to use the {(~lacks.any(axis=0)).sum()} that all models have."
            )


def pairs(scores: pd.DataFrame) -> pd.DataFrame:
    """Compare every chosen with every rejected answer of a prompt.

    Parameters
    ----------
    scores : DataFrame
        A table of scores; missing scores give comparisons with a missing outcome.

    Returns
    -------
    DataFrame
        One row per model, prompt, chosen and rejected answer, so n chosen and m
        rejected answers give n * m rows. Columns: model, benchmark, domain, id,
        chosen_slot, rejected_slot, subset, chosen_style, rejected_style, level, margin
        (score of the chosen minus score of the rejected answer), outcome (win, tie,
        loss, or missing), and the further columns of `scores` that are constant within
        a prompt, such as `source`.

    Raises
    ------
    DataError
        If a prompt of a model has answers of one label only.
    """
    scores, prompt = tables.number_prompts(scores, allow_missing=True)
    # Models with the same answers in the same order have the same comparisons: those of
    # `answers`, once per model. Of other tables `answers` are all the rows, and
    # n_models is 1.
    n_models, answers = (
        max(len(scores), 1) // max(len(prompt), 1),
        scores[: len(prompt)],
    )
    n_rejected, is_chosen = (
        count_labels(answers, prompt)[1],
        (answers["label"] == "chosen").to_numpy(),
    )
    # Each chosen answer as often as its prompt has rejected ones, beside these, in the
    # order of the scores.
    chosen, rejected = np.flatnonzero(is_chosen), np.flatnonzero(~is_chosen)
    rejected = rejected[np.argsort(prompt[rejected], kind="stable")]
    first_rejected, repeats = (
        (np.cumsum(n_rejected) - n_rejected)[prompt[chosen]],
        n_rejected[prompt[chosen]],
    )
    offset = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    chosen, rejected = (
        np.repeat(chosen, repeats),
        rejected[np.repeat(first_rejected, repeats) + offset],
    )
    columns = {name: answers[name].array.take(chosen) for name in [*PROMPT, "subset"]}
    for label, rows in zip(tables.LABELS, (chosen, rejected), strict=True):
        columns |= {
            f"{label}_{name}": answers[name].array.take(rows)
            for name in ("slot", "style")
        }
    columns["level"] = tables.level(columns["chosen_style"], columns["rejected_style"])
    frame = pd.concat(
        [pd.DataFrame(columns, columns=tables.PAIRS[1:-2])] * n_models,
        ignore_index=True,
    )
    score = scores["score"].to_numpy().reshape(n_models, -1)
    margin = (score[:, chosen] - score[:, rejected]).ravel()
    rows = (len(prompt) * np.arange(n_models)[:, None] + chosen).ravel()
    known = [*tables.SCORES, *tables.PAIRS]
    extra = tables.prompt_columns(scores, known) if {*scores.columns} - {*known} else []
    further = {name: scores[name].array.take(rows) for name in extra}
    frame.insert(0, "model", scores["model"].array.take(rows))
    frame = frame.assign(margin=margin, outcome=tables.outcome(margin), **further)
    return tables.copy_provenance(scores, frame)


def count_labels(scores: pd.DataFrame, prompt: IntArray) -> tuple[IntArray, IntArray]:
    """Chosen and rejected answers of each prompt; DataError where a prompt has answers
    of one label only.
    """
    is_chosen, n_prompts = (
        (scores["label"] == "chosen").to_numpy(),
        int(prompt.max(initial=-1)) + 1,
    )
    n_chosen, n_rejected = (
        np.bincount(prompt[rows], minlength=n_prompts)
        for rows in (is_chosen, ~is_chosen)
    )
    one_sided = (n_chosen == 0) | (n_rejected == 0)
    if one_sided.any():
        row = (
            scores.loc[one_sided[prompt], ["model", *PROMPT, "label"]].iloc[0].to_dict()
        )
        message = f"scores: {one_sided.sum()} prompts of a model have answers of one label only, first {row}"
        raise DataError(f"{message}. Score both.")
    return n_chosen, n_rejected


def credit(pairs: pd.DataFrame, *, ties: Ties = "loss") -> FloatArray:
    """Credit that each comparison earns.

    Parameters
    ----------
    pairs : DataFrame
        A table of pairs.
    ties : {"loss", "half", "drop"}
        A tie earns 0, 0.5 or is left out (NaN).

    Returns
    -------
    ndarray
        One entry per row: 1 for a win, 0 for a loss, NaN where the outcome is missing.
    """
    tables.check_option("ties", ties, tuple(CREDIT_OF_TIE))
    credit_of_outcome = np.array([0.0, CREDIT_OF_TIE[ties], 1.0, np.nan])
    return np.asarray(
        credit_of_outcome[pd.Categorical(pairs["outcome"], dtype=tables.OUTCOME).codes]
    )


def as_pairs(table: pd.DataFrame) -> pd.DataFrame:
    """A table of scores or pairs as checked pairs; DataError where it has no rows."""
    columns = set(table.columns) if isinstance(table, pd.DataFrame) else set()
    # Columns and types that `pairs` gives need no second check, unless a name is
    # missing.
    is_checked = {*tables.PAIRS} <= columns and not any(
        table[name].hasnans for name in _NAMES
    )
    is_checked = is_checked and all(
        table[name].dtype == dtype for name, dtype in _PAIR_TYPES.items()
    )
    if "score" in columns and "outcome" not in columns:
        table = pairs(table)
    elif not is_checked:
        table = tables.check_pairs(table)
    if table.empty:
        raise DataError("table: no rows. Look at the selection that it comes from.")
    return table


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
        If a model has two rows for one item, a value in `cluster` is missing, or a
        column of `by` or `cluster` differs between models.
    """
    require_item_columns(rows, by, cluster)
    item, first_rows = group_codes(rows, key)
    for name in {*by, *cluster} - {*key, *columns}:
        codes = pd.factorize(rows[name])[0]
        differs = codes != codes[first_rows][item]
        if differs.any():
            first = rows[list(key)].iloc[int(differs.argmax())].to_dict()
            raise DataError(
                f"by, cluster: {name!r} differs between the models, first in {first}."
            )
    model, models = pd.factorize(rows["model"])
    shape = (len(models), len(first_rows))
    outcomes, credits = np.full(shape, NO_ROW, np.int8), np.full(shape, np.nan)
    outcomes[model, item], credits[model, item] = outcome, credit
    if np.count_nonzero(outcomes != NO_ROW) < len(rows):
        tables.refuse_repeats(
            rows.assign(outcome=outcome, credit=credit), ["model", *key], "table"
        )
    frame = (
        rows[[*dict.fromkeys([*key, *columns, *by, *cluster])]]
        .iloc[first_rows]
        .reset_index(drop=True)
    )
    if frame[list(cluster)].isna().any(axis=None):
        first = (
            frame.loc[frame[list(cluster)].isna().any(axis=1), list(key)]
            .iloc[0]
            .to_dict()
        )
        raise DataError(
            f"cluster: {list(cluster)} is missing in some items, first {first}. Fill it in."
        )
    defining = list(
        dict.fromkeys([*(c for c in ("domain", *DESCRIBED) if c in frame), *by])
    )
    cell, cell_rows = group_codes(frame, defining)
    cells = frame[defining].iloc[cell_rows].reset_index(drop=True)
    prompt = group_codes(frame, [c for c in PROMPT if c in frame])[0]
    style_code: IntArray = np.full(len(cells), NO_STYLE)
    if "chosen_style" in cells:
        styles = [
            pd.Categorical(cells[f"{label}_style"], dtype=tables.STYLE).codes
            for label in tables.LABELS
        ]
        level = pd.Categorical(cells["level"], dtype=tables.LEVEL).codes
        style_code = np.where(
            np.minimum(*styles) < 0, NO_STYLE + 1 + level, 3 * styles[0] + styles[1]
        ).astype(np.intp)
    return Items(
        models=models.tolist(),
        frame=frame,
        credit=credits,
        outcome=outcomes,
        prompt=prompt,
        cluster=prompt if list(cluster) == PROMPT else group_codes(frame, cluster)[0],
        cell=cell,
        cells=cells.assign(style_code=style_code),
        bounds=np.tile(np.array(bounds, np.float64), (len(cells), 1)),
    )


def comparison_items(
    table: pd.DataFrame,
    ties: str = "loss",
    *,
    by: Sequence[str] = (),
    cluster: Sequence[str] = PROMPT,
) -> Items:
    """Items that are comparisons, from scores or pairs: credit 1 for a win, 0 for a
    loss, a tie as `ties` says.
    """
    rows = as_pairs(table)
    outcome = (
        rows["outcome"].cat.codes.to_numpy().astype(np.int8)
    )  # 0 loss, 1 tie, 2 win, -1 missing
    earned = credit(rows, ties=ties)  # type: ignore[arg-type]
    return build_items(
        rows,
        key=ITEM,
        outcome=outcome,
        credit=earned,
        columns=DESCRIBED,
        by=by,
        cluster=cluster,
    )


def cluster_columns(table: pd.DataFrame, cluster: str | None) -> list[str]:
    """The columns that name what stands or falls together; DataError for one that is
    not there.
    """
    columns = tables.default_cluster(table) if cluster is None else [cluster]
    require_item_columns(table, [], columns)
    return columns


def require_item_columns(
    rows: pd.DataFrame, by: Sequence[str], cluster: Sequence[str]
) -> None:
    """Raise DataError unless `rows` has the columns that items are grouped by."""
    for argument, name in [
        *(("by", name) for name in by),
        *(("cluster", name) for name in cluster),
    ]:
        if name not in rows.columns:
            raise DataError(
                f"{argument}: {name!r} is not a column here; {tables.nearest(name, list(rows.columns))}."
            )


def refuse_result_names(by: Iterable[str], results: Collection[str]) -> None:
    """Raise DataError where a column of `by` is named like a column of the result."""
    for name in by:
        if name in results:
            raise DataError(
                f"by: {name!r} is a column of the result. Rename it in the table."
            )
