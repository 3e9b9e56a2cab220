"""What each comparison tells: how hard it is, how well it separates models, and which models err alike."""

from typing import Literal

import numpy as np
import pandas as pd

from rmlab.items.columns import allowed
from rmlab.items.comparisons import ITEM, Ties, comparison_items
from rmlab.items.grid import Floats, Items, common_items, require_same_items
from rmlab.tables import PROMPT, DataError

__all__ = ["error_clusters", "error_correlation", "item_difficulty"]


def item_difficulty(
    pairs: pd.DataFrame,
    *,
    unit: Literal["comparison", "prompt"] = "comparison",
    ties: Ties = "loss",
    common: bool = False,
) -> pd.DataFrame:
    """Difficulty and discrimination of every item: one row per comparison, or per prompt, in the order of `pairs`.

    Columns: benchmark, domain, id (and chosen_slot, rejected_slot, level where the unit is a comparison), subset,
    n_models (that answered), missing, difficulty (share of credit that the models fail to earn: 1 is an item every
    model gets wrong), discrimination (correlation over models between the credit on this item and the mean credit on
    all others: near 1 separates good models from bad ones, below 0 good models tend to fail; NaN where all models
    earn the same), none_right, all_right. A prompt's credit is the mean over its comparisons. Needs two models.

    Most telling items: `item_difficulty(pairs).nlargest(20, "discrimination")`; failed by all: `.query("none_right")`.
    """
    allowed("unit", unit, ("comparison", "prompt"))
    table = several(pairs, ties, common)
    worth, appearance = table.credit, table.appearance
    keys = [*ITEM, "level", "subset"]
    frame = table.frame[keys]
    if unit == "prompt":
        first = np.concatenate([[0], np.flatnonzero(np.diff(table.prompt)) + 1])
        worth = _by_prompt(worth, table, first)
        frame = frame.iloc[first][[*PROMPT, "subset"]]
        appearance = table.appearance[first]
    answered = ~np.isnan(worth)
    n = answered.sum(axis=0)
    with np.errstate(invalid="ignore"):
        easiness = np.where(answered, worth, 0.0).sum(axis=0) / n
    described = frame.assign(
        n_models=n,
        missing=len(table.models) - n,
        difficulty=1 - easiness,
        discrimination=_item_rest(worth),
        none_right=easiness == 0,
        all_right=easiness == 1,
    )
    return described.iloc[np.argsort(appearance, kind="stable")].reset_index(drop=True)


def error_correlation(pairs: pd.DataFrame, *, ties: Ties = "loss", common: bool = False) -> pd.DataFrame:
    """How alike the errors of two models are: a square frame, models by models.

    The correlation over comparisons of what two models earn (the phi coefficient where all is won or lost), on the
    comparisons that both answered: 1 is the same errors, 0 no relation. NaN where a model has no spread.
    """
    table = several(pairs, ties, common)
    worth = table.credit
    known = (~np.isnan(worth)).astype(float)
    filled = np.nan_to_num(worth)
    n, total, squares = known @ known.T, filled @ known.T, filled**2 @ known.T
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = squares / n - (total / n) ** 2
        spread = np.where(spread > 1e-12, spread, np.nan)
        square = ((filled @ filled.T) / n - total * total.T / n**2) / np.sqrt(spread * spread.T)
    names = pd.Index(table.models, name="model")
    return pd.DataFrame(np.clip(square, -1, 1), index=names, columns=names)


def error_clusters(
    pairs: pd.DataFrame, *, n_clusters: int = 4, ties: Ties = "loss", common: bool = False
) -> pd.DataFrame:
    """Models grouped by their errors: one row per model, those of a cluster together.

    Columns: model, cluster (1 is the largest), nearest (the model that errs most alike), correlation (with it, see
    `error_correlation`). Average-linkage clustering with distance 1 - correlation, cut into at most `n_clusters`.
    """
    from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
    from scipy.spatial.distance import squareform

    if n_clusters < 1:
        raise ValueError(f"n_clusters: {n_clusters!r}; allowed: a whole number from 1")
    square = error_correlation(pairs, ties=ties, common=common)
    alike = np.nan_to_num(square.to_numpy().copy())
    np.fill_diagonal(alike, 1.0)
    tree = linkage(squareform(np.clip(1 - alike, 0, 2), checks=False), "average", optimal_ordering=True)
    raw = fcluster(tree, n_clusters, "maxclust")
    label = pd.Series(raw).map({c: i + 1 for i, c in enumerate(pd.Series(raw).value_counts(sort=True).index)})
    np.fill_diagonal(alike, -np.inf)
    nearest = alike.argmax(axis=1)
    frame = pd.DataFrame({"model": pd.Series(square.index, dtype="str"), "cluster": label}).assign(
        nearest=pd.Series(square.index.to_numpy()[nearest], dtype="str"), correlation=alike.max(axis=1)
    )
    return frame.iloc[leaves_list(tree)].sort_values("cluster", kind="stable").reset_index(drop=True)


def several(pairs: pd.DataFrame, ties: Ties, common: bool) -> Items:
    """Comparisons of two models or more, which must be the same for all of them."""
    items = comparison_items(pairs, ties)
    if len(items.models) < 2:
        raise DataError(
            f"pairs: {len(items.models)} model {items.models}; a comparison needs 2: "
            "add another model's pairs with pd.concat([pairs, others])"
        )
    if common:
        return common_items(items)
    require_same_items(items, table="pairs")
    return items


def _by_prompt(worth: Floats, table: Items, first: np.ndarray) -> Floats:
    answered = ~np.isnan(worth)
    with np.errstate(invalid="ignore"):
        mean: Floats = np.add.reduceat(np.where(answered, worth, 0.0), first, axis=1) / np.add.reduceat(
            answered.astype(float), first, axis=1
        )
    return mean


def _item_rest(worth: Floats) -> Floats:
    """Correlation over models (rows) of each item's credit with the mean credit on the other items."""
    answered = ~np.isnan(worth)
    filled = np.where(answered, worth, 0.0)
    n = answered.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        rest = (filled.sum(axis=1)[:, None] - filled) / (answered.sum(axis=1)[:, None] - answered)
        rest = np.where(answered, rest, 0.0)
        x = np.where(answered, filled - filled.sum(axis=0) / n, 0.0)
        y = np.where(answered, rest - rest.sum(axis=0) / n, 0.0)
        spread = np.sqrt((x**2).sum(axis=0) * (y**2).sum(axis=0))
        return np.where(spread > 1e-12, (x * y).sum(axis=0) / spread, np.nan)
