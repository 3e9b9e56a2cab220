"""Comparisons of a prompt's answers, and the credit of every model on every item: all
numbers are means of it.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar

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
T = TypeVar("T", bound=np.generic)

NO_ROW, MISSING, LOSS, TIE, WIN = -2, -1, 0, 1, 2
"""Codes of an outcome: the model has no row for the item, or has one without an answer,
or lost, tied, won.
"""

CREDIT_OF_TIE = {"loss": 0.0, "half": 0.5, "drop": np.nan}

CREDIT_OF_OUTCOME = {
    ties: np.array([0.0, credit_of_tie, 1.0, np.nan])
    for ties, credit_of_tie in CREDIT_OF_TIE.items()
}
"""Credit of LOSS, TIE and WIN by the rule for ties; MISSING takes the last entry."""

NO_STYLE = 9
"""Style code of a comparison without styles; above it the level, where that alone is
known.
"""

N_STYLE_CODES = NO_STYLE + 1 + len(tables.LEVELS)
DESCRIBED = ["subset", "chosen_style", "rejected_style", "level"]
_NAMES = ["model", *PROMPT, "subset"]
_PAIR_TYPES: dict[str, object] = {
    **dict.fromkeys(_NAMES, "str"),
    "chosen_slot": "int64",
    "rejected_slot": "int64",
    "chosen_style": tables.STYLE,
    "rejected_style": tables.STYLE,
    "level": tables.LEVEL,
    "margin": "float64",
    "outcome": tables.OUTCOME,
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
        style_code = self.cells["style_code"]
        return bool(len(self.cells)) and bool((style_code != NO_STYLE).all())

    def common(self) -> "Items":
        """The items for which every model has a row; DataError where there is none."""
        in_all = (self.outcome != NO_ROW).all(axis=0)
        if not in_all.any():
            problem = "common: no item was scored by all models"
            raise DataError(problem, "leave some models out")
        cells, cell = np.unique(self.cell[in_all], return_inverse=True)
        return replace(
            self,
            frame=self.frame[in_all].reset_index(drop=True),
            credit=self.credit[:, in_all],
            outcome=self.outcome[:, in_all],
            prompt=self.prompt[in_all],
            cluster=self.cluster[in_all],
            cell=cell.astype(np.intp),
            cells=self.cells.iloc[cells].reset_index(drop=True),
            bounds=self.bounds[cells],
        )

    def require_same(self, counts: BoolArray | None = None) -> None:
        """Raise DataError where some models lack rows that others have.

        `counts` (models, items) says which items count for which model; a row that
        counts nowhere may be absent.
        """
        lacks = self.outcome == NO_ROW
        if counts is not None:
            lacks &= counts
        if not lacks.any():
            return
        worst = int(lacks.sum(axis=1).argmax())
        n_lacking = lacks[worst].sum()
        first = self.frame.filter(ITEM).iloc[int(lacks[worst].argmax())].to_dict()
        n_common = (~lacks.any(axis=0)).sum()
        problem = (
            f"table: {self.models[worst]!r} lacks {n_lacking} of {len(self.frame)} "
            f"items, first {first}"
        )
        remedy = f"pass common=True to use the {n_common} that all models have"
        raise DataError(problem, remedy)


class Grid(NamedTuple):
    """Where rows, each of one model and one item, stand among models by items.

    `model` and `item` are (rows,); `first_rows` (items,) is an item's first row.
    """

    models: list[str]
    model: IntArray
    item: IntArray
    first_rows: IntArray

    def spread(self, values: NDArray[T], absent: float) -> NDArray[T]:
        """Values (rows,) as (models, items), with `absent` where there is no row."""
        shape = (len(self.models), len(self.first_rows))
        grid = np.full(shape, absent, values.dtype)
        grid[self.model, self.item] = values
        return grid


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
    n_models = max(len(scores), 1) // max(len(prompt), 1)
    answers = scores[: len(prompt)]
    chosen, rejected = cross_answers(answers, prompt)
    described = describe_pairs(answers, chosen, rejected)
    frame = pd.concat([described] * n_models, ignore_index=True)

    score = scores["score"].to_numpy().reshape(n_models, -1)
    margin = (score[:, chosen] - score[:, rejected]).ravel()
    first_row_of_model = len(prompt) * np.arange(n_models)
    rows = (first_row_of_model[:, None] + chosen).ravel()
    further_columns = tables.prompt_columns(scores, [*tables.SCORES, *tables.PAIRS])
    further = {name: scores[name].array.take(rows) for name in further_columns}
    frame.insert(0, "model", scores["model"].array.take(rows))
    frame = frame.assign(margin=margin, outcome=tables.outcome(margin), **further)
    return tables.copy_provenance(scores, frame)


def describe_pairs(
    answers: pd.DataFrame, chosen: IntArray, rejected: IntArray
) -> pd.DataFrame:
    """Key, subset, styles and level of comparisons of a row with another one."""
    of_chosen = answers.iloc[chosen].reset_index(drop=True)
    of_rejected = answers.iloc[rejected].reset_index(drop=True)
    return pd.DataFrame(
        {
            "benchmark": of_chosen["benchmark"],
            "domain": of_chosen["domain"],
            "id": of_chosen["id"],
            "chosen_slot": of_chosen["slot"],
            "rejected_slot": of_rejected["slot"],
            "subset": of_chosen["subset"],
            "chosen_style": of_chosen["style"],
            "rejected_style": of_rejected["style"],
            "level": tables.level(of_chosen["style"], of_rejected["style"]),
        }
    )


def cross_answers(answers: pd.DataFrame, prompt: IntArray) -> tuple[IntArray, IntArray]:
    """Rows of the chosen and of the rejected answer of every comparison.

    Each chosen answer meets every rejected answer of its prompt. DataError where a
    prompt has answers of one label only.
    """
    _, n_rejected = count_labels(answers, prompt)
    first_rejected = np.cumsum(n_rejected) - n_rejected

    is_chosen = (answers["label"] == "chosen").to_numpy()
    chosen = np.flatnonzero(is_chosen)
    rejected = np.flatnonzero(~is_chosen)
    rejected = rejected[np.argsort(prompt[rejected], kind="stable")]  # prompt by prompt

    n_partners = n_rejected[prompt[chosen]]
    chosen_rows = np.repeat(chosen, n_partners)
    first_row = np.cumsum(n_partners) - n_partners
    partner = np.arange(len(chosen_rows)) - np.repeat(first_row, n_partners)
    rejected_rows = rejected[first_rejected[prompt[chosen_rows]] + partner]
    return chosen_rows, rejected_rows


def count_labels(scores: pd.DataFrame, prompt: IntArray) -> tuple[IntArray, IntArray]:
    """Chosen and rejected answers of each prompt; DataError where a prompt has answers
    of one label only.
    """
    is_chosen = (scores["label"] == "chosen").to_numpy()
    n_prompts = int(prompt.max(initial=-1)) + 1
    n_chosen = np.bincount(prompt[is_chosen], minlength=n_prompts)
    n_rejected = np.bincount(prompt[~is_chosen], minlength=n_prompts)
    one_sided = (n_chosen == 0) | (n_rejected == 0)
    if one_sided.any():
        rows = scores.loc[one_sided[prompt], ["model", *PROMPT, "label"]]
        problem = (
            f"scores: {one_sided.sum()} prompts of a model have answers of one label "
            f"only, first {rows.iloc[0].to_dict()}"
        )
        raise DataError(problem, "score both")
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
    outcome = pd.Categorical(pairs["outcome"], dtype=tables.OUTCOME)
    return np.asarray(CREDIT_OF_OUTCOME[ties][outcome.codes])


def as_pairs(table: pd.DataFrame) -> pd.DataFrame:
    """A table of scores or pairs as checked pairs; DataError where it has no rows."""
    columns = set(table.columns) if isinstance(table, pd.DataFrame) else set()
    if "score" in columns and "outcome" not in columns:
        table = pairs(table)
    elif not _is_checked(table, columns):
        table = tables.check_pairs(table)
    if table.empty:
        raise DataError("table: no rows", "look at the selection that it comes from")
    return table


def _is_checked(table: pd.DataFrame, columns: set[str]) -> bool:
    """Whether the columns are those that `pairs` gives, and no name is missing."""
    if not set(tables.PAIRS) <= columns:
        return False
    if any(table[name].dtype != dtype for name, dtype in _PAIR_TYPES.items()):
        return False
    return not any(table[name].hasnans for name in _NAMES)


def place_rows(rows: pd.DataFrame, key: Sequence[str]) -> Grid:
    """Number the models and the items of rows, each in order of appearance.

    Raises DataError where a model has two rows of one item.
    """
    item, first_rows = group_codes(rows, key)
    model, models = pd.factorize(rows["model"])
    has_row = np.zeros((len(models), len(first_rows)), np.bool_)
    has_row[model, item] = True
    if np.count_nonzero(has_row) < len(rows):
        tables.refuse_repeats(rows, ["model", *key], "table")
    return Grid(models.tolist(), model, item, first_rows)


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
    grid = place_rows(rows, key)
    described = dict.fromkeys([*key, *columns])
    grouping = dict.fromkeys([*by, *cluster])
    undescribed = [name for name in grouping if name not in described]
    for name in undescribed:
        _require_constant(rows, key, name, grid)

    frame = rows[[*described, *undescribed]].iloc[grid.first_rows]
    frame = frame.reset_index(drop=True)
    cell_columns = [name for name in ("domain", *DESCRIBED) if name in frame]
    cell_columns += [name for name in by if name not in cell_columns]
    cell, first_items = group_codes(frame, cell_columns)
    prompt, _ = group_codes(frame, [name for name in PROMPT if name in frame])
    cells = frame[cell_columns].iloc[first_items].reset_index(drop=True)
    clusters = prompt
    if list(cluster) != PROMPT:
        clusters = cluster_codes(frame, cluster, key)
    return Items(
        models=grid.models,
        frame=frame,
        credit=grid.spread(credit, np.nan),
        outcome=grid.spread(outcome, NO_ROW),
        prompt=prompt,
        cluster=clusters,
        cell=cell,
        cells=cells.assign(style_code=_number_styles(cells)),
        bounds=np.tile(np.array(bounds, np.float64), (len(cells), 1)),
    )


def _require_constant(
    rows: pd.DataFrame, key: Sequence[str], name: str, grid: Grid
) -> None:
    """Raise DataError where a column differs between the models' rows of an item."""
    codes = pd.factorize(rows[name])[0]
    differs = codes != codes[grid.first_rows][grid.item]
    if differs.any():
        first = rows[list(key)].iloc[int(differs.argmax())].to_dict()
        problem = f"by, cluster: {name!r} differs between the models"
        raise DataError(f"{problem}, first in {first}", "give each item one value")


def _number_styles(cells: pd.DataFrame) -> IntArray:
    """The style code of each cell: 3 times the style of the chosen answer plus that of
    the rejected one.
    """
    if "chosen_style" not in cells:
        return np.full(len(cells), NO_STYLE)
    chosen = pd.Categorical(cells["chosen_style"], dtype=tables.STYLE).codes
    rejected = pd.Categorical(cells["rejected_style"], dtype=tables.STYLE).codes
    level = pd.Categorical(cells["level"], dtype=tables.LEVEL).codes
    has_styles = np.minimum(chosen, rejected) >= 0
    code = np.where(has_styles, 3 * chosen + rejected, NO_STYLE + 1 + level)
    return code.astype(np.intp)


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
    outcome = rows["outcome"].cat.codes.to_numpy().astype(np.int8)
    return build_items(
        rows,
        key=ITEM,
        outcome=outcome,
        credit=CREDIT_OF_OUTCOME[ties][outcome],
        columns=DESCRIBED,
        by=by,
        cluster=cluster,
    )


def cluster_columns(table: pd.DataFrame, cluster: str | None) -> list[str]:
    """The columns that define a cluster; DataError for one that is not there."""
    columns = tables.default_cluster(table) if cluster is None else [cluster]
    require_item_columns(table, [], columns)
    return columns


def cluster_codes(
    frame: pd.DataFrame, cluster: Sequence[str], key: Sequence[str]
) -> IntArray:
    """Number the clusters of items; DataError where one is missing."""
    is_missing = frame[list(cluster)].isna().any(axis=1)
    if is_missing.any():
        first = frame.loc[is_missing, list(key)].iloc[0].to_dict()
        problem = f"cluster: {list(cluster)} is missing in some items, first {first}"
        raise DataError(problem, "fill it in")
    return group_codes(frame, cluster)[0]


def require_item_columns(
    rows: pd.DataFrame, by: Sequence[str], cluster: Sequence[str]
) -> None:
    """Raise DataError unless `rows` has the columns that items are grouped by."""
    for argument, names in (("by", by), ("cluster", cluster)):
        for name in names:
            if name not in rows.columns:
                similar = tables.nearest(name, list(rows.columns))
                raise DataError(f"{argument}: {name!r} is not a column here", similar)


def refuse_result_names(by: Iterable[str], results: Collection[str]) -> None:
    """Raise DataError where a column of `by` is named like a column of the result."""
    for name in by:
        if name in results:
            problem = f"by: {name!r} is a column of the result"
            raise DataError(problem, "rename it in the table")
