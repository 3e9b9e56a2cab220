"""The credit of every model on every item: all numbers are means of it."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeVar

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


@dataclass(frozen=True)
class Parts:
    """The parts of a benchmark and their weights in its overall score.

    Attributes
    ----------
    names : list of str
        Names of the parts.
    of_item : ndarray
        (items,): the part that an item belongs to.
    weight : ndarray
        (1 or models, parts): of any scale, as `weighted_mean` scales the weights of the
        parts that a number requires.
    label : str
        What the column `average` of a table says.
    reasons : dict
        (model, part) to the reason why the part is incomplete for the model.
    """

    names: list[str]
    of_item: IntArray
    weight: FloatArray
    label: str = "benchmark"
    reasons: Mapping[tuple[int, int], str] = field(default_factory=dict)

    def of_pairs(self, first: IntArray, second: IntArray) -> "Parts":
        """The parts that both models of a pair have, for each pair."""
        reasons = {}
        for (model, part), reason in self.reasons.items():
            for pair in np.flatnonzero((first == model) | (second == model)):
                reasons[int(pair), part] = reason
        weight = self.weight
        if len(weight) > 1:
            n_parts = np.count_nonzero(weight, axis=1)
            fewer = np.where(n_parts[first] <= n_parts[second], first, second)
            weight = weight[fewer]
        return replace(self, weight=weight, reasons=reasons)


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
        (items,): number of the item's prompt, and of its cluster.
    bounds : ndarray
        (items, 2): the least and the most that an item can earn.
    parts : Parts
        The parts of the benchmark that the items belong to.
    """

    models: list[str]
    frame: pd.DataFrame
    credit: FloatArray
    outcome: NDArray[np.int8]
    prompt: IntArray
    cluster: IntArray
    bounds: FloatArray
    parts: Parts

    @cached_property
    def style_code(self) -> IntArray:
        """(items,): 3 times the style of the chosen answer plus that of the rejected
        one; NO_STYLE or more where a style is not known.
        """
        if "chosen_style" not in self.frame:
            return np.full(len(self.frame), NO_STYLE)
        chosen = self.frame["chosen_style"].cat.codes.to_numpy()
        rejected = self.frame["rejected_style"].cat.codes.to_numpy()
        level = self.frame["level"].cat.codes.to_numpy()
        has_styles = np.minimum(chosen, rejected) >= 0
        code = np.where(has_styles, 3 * chosen + rejected, NO_STYLE + 1 + level)
        return code.astype(np.intp)

    @property
    def has_levels(self) -> bool:
        """Whether every comparison has a level, as in RM-Bench."""
        return len(self.frame) > 0 and bool((self.style_code != NO_STYLE).all())

    @property
    def counts(self) -> BoolArray:
        """(models or 1, items): whether an item's part has a weight."""
        has_weight: BoolArray = self.parts.weight != 0
        return has_weight[:, self.parts.of_item]

    def keep(self, is_kept: BoolArray) -> "Items":
        """The items, those that are not kept (items, or models by items) without an
        answer.
        """
        return replace(
            self,
            credit=np.where(is_kept, self.credit, np.nan),
            outcome=np.where(is_kept, self.outcome, MISSING).astype(np.int8),
        )

    def common(self) -> "Items":
        """The items that every model has answered; DataError where there is none."""
        in_all = np.asarray((self.outcome > MISSING).all(axis=0))
        if not in_all.any():
            problem = "common: no item was answered by all models"
            raise DataError(problem, "leave some models out")
        return self.keep(in_all)

    def shared_by(self, a: int, b: int) -> "Items":
        """Two models on what both have: an item counts where both have a credit, a part
        where it weighs something for both.
        """
        models = np.array([a, b])
        credit = self.credit[models]
        outcome = self.outcome[models]
        has_credit = ~np.isnan(credit).any(axis=0)
        is_answered = (outcome > MISSING).all(axis=0)
        return replace(
            self,
            models=[self.models[a], self.models[b]],
            credit=np.where(has_credit, credit, np.nan),
            outcome=np.where(is_answered, outcome, MISSING).astype(np.int8),
            parts=self.parts.of_pairs(models, models[::-1]),
        )

    def subtract(self, first: IntArray, second: IntArray) -> "Items":
        """Differences between models, first minus second: an item has one where both
        have a credit.
        """
        credit = self.credit[first] - self.credit[second]
        outcome = np.where(np.isnan(credit), MISSING, WIN)
        width = np.diff(self.bounds, axis=1)
        return replace(
            self,
            models=[f"pair {pair}" for pair in range(len(first))],
            credit=credit,
            outcome=outcome.astype(np.int8),
            bounds=np.hstack([-width, width]),
            parts=self.parts.of_pairs(first, second),
        )

    def require_same(self) -> None:
        """Raise DataError where some models lack rows that others have, and that
        count.
        """
        lacks = (self.outcome == NO_ROW) & self.counts
        if not lacks.any():
            return
        worst = int(lacks.sum(axis=1).argmax())
        count = f"{lacks[worst].sum()} of {len(self.frame)} items"
        first = self.frame.filter(ITEM).iloc[int(lacks[worst].argmax())].to_dict()
        problem = f"table: {self.models[worst]!r} lacks {count}, first {first}"
        raise DataError(problem, "pass common=True to use what all models answered")


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


def place_rows(
    rows: pd.DataFrame, key: Sequence[str]
) -> tuple[list[str], IntArray, IntArray, IntArray]:
    """Number the models and the items of rows, each in order of appearance.

    Returns the names of the models, the model and the item of each row, and the first
    row of each item. Raises DataError where a model has two rows of one item.
    """
    item, first_rows = group_codes(rows, key)
    model, models = pd.factorize(rows["model"])
    has_row = spread(model, item, np.ones(len(rows), np.bool_), False)
    if np.count_nonzero(has_row) < len(rows):
        tables.refuse_repeats(rows, ["model", *key], "table")
    return models.tolist(), model, item, first_rows


def spread(
    model: IntArray, item: IntArray, values: NDArray[T], absent: float
) -> NDArray[T]:
    """Values of rows as (models, items), with `absent` where there is no row."""
    shape = (int(model.max(initial=-1)) + 1, int(item.max(initial=-1)) + 1)
    grid = np.full(shape, absent, values.dtype)
    grid[model, item] = values
    return grid


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
        Further columns that describe an item.
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
    models, model, item, first_rows = place_rows(rows, key)
    described = dict.fromkeys([*key, *columns])
    grouping = [
        name for name in dict.fromkeys([*by, *cluster]) if name not in described
    ]
    for name in grouping:
        _require_constant(rows, key, name, first_rows[item])

    frame = rows[[*described, *grouping]].iloc[first_rows].reset_index(drop=True)
    prompt, _ = group_codes(frame, [name for name in PROMPT if name in frame])
    clusters = prompt
    if list(cluster) != PROMPT:
        clusters = _cluster_codes(frame, cluster, key)
    n_items = len(frame)
    return Items(
        models=models,
        frame=frame,
        credit=spread(model, item, credit, np.nan),
        outcome=spread(model, item, outcome, NO_ROW),
        prompt=prompt,
        cluster=clusters,
        bounds=np.tile(np.array(bounds, np.float64), (n_items, 1)),
        parts=Parts(["all"], np.zeros(n_items, np.intp), np.ones((1, 1))),
    )


def _require_constant(
    rows: pd.DataFrame, key: Sequence[str], name: str, first_row: IntArray
) -> None:
    """Raise DataError where a column differs between the models' rows of an item."""
    codes = pd.factorize(rows[name])[0]
    differs = codes != codes[first_row]
    if differs.any():
        first = rows[list(key)].iloc[int(differs.argmax())].to_dict()
        problem = f"by, cluster: {name!r} differs between the models"
        remedy = "give each item one value, or take one model at a time"
        raise DataError(f"{problem}, first in {first}", remedy)


def comparison_items(
    table: pd.DataFrame,
    ties: str = "loss",
    *,
    by: Sequence[str] = (),
    cluster: Sequence[str] = PROMPT,
) -> Items:
    """Items of a table of pairs: credit 1 for a win, 0 for a loss, a tie as `ties`
    says.
    """
    outcome = table["outcome"].cat.codes.to_numpy().astype(np.int8)
    return build_items(
        table,
        key=ITEM,
        outcome=outcome,
        credit=CREDIT_OF_OUTCOME[ties][outcome],
        columns=DESCRIBED,
        by=by,
        cluster=cluster,
    )


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


def number_clusters(table: pd.DataFrame, cluster: str | None) -> IntArray:
    """Cluster of each row; default: the prompt, or its family."""
    columns = tables.default_cluster(table) if cluster is None else [cluster]
    require_item_columns(table, [], columns)
    return _cluster_codes(table, columns, PROMPT)


def _cluster_codes(
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


def refuse_result_names(by: Iterable[Hashable], results: Iterable[Hashable]) -> None:
    """Raise DataError where a column of `by` is named like a column of the result."""
    for name in set(by) & set(results):
        problem = f"by: {name!r} is a column of the result"
        raise DataError(problem, "rename it in the table")
