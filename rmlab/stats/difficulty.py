"""What each comparison tells: how hard it is, and how well it separates models."""

from typing import Literal

import numpy as np
import pandas as pd

from rmlab.items.columns import allowed
from rmlab.items.comparisons import ITEM, Ties, comparison_items
from rmlab.items.grid import Floats, Items, common_items, require_same_items
from rmlab.tables import PROMPT, DataError

__all__ = ["item_difficulty", "several"]


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
    credit, appearance = table.credit, table.appearance
    keys = [*ITEM, "level", "subset"]
    frame = table.frame[keys]
    if unit == "prompt":
        # Items stand sorted by their keys, so a prompt's lie together.
        first = np.concatenate([[0], np.flatnonzero(np.diff(table.prompt)) + 1])
        credit = _by_prompt(credit, table, first)
        frame = frame.iloc[first][[*PROMPT, "subset"]]
        appearance = table.appearance[first]
    answered = ~np.isnan(credit)
    n = answered.sum(axis=0)
    with np.errstate(invalid="ignore"):
        easiness = np.where(answered, credit, 0.0).sum(axis=0) / n
    described = frame.assign(
        n_models=n,
        missing=len(table.models) - n,
        difficulty=1 - easiness,
        discrimination=_item_rest(credit),
        # Sums of 0, 1/2 and 1 are exact, so these need no tolerance.
        none_right=easiness == 0,
        all_right=easiness == 1,
    )
    return described.iloc[np.argsort(appearance, kind="stable")].reset_index(drop=True)  # sorted by key so far


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


def _by_prompt(credit: Floats, table: Items, first: np.ndarray) -> Floats:
    answered = ~np.isnan(credit)
    with np.errstate(invalid="ignore"):
        # (models, prompts); 0 / 0, so NaN, where a model answered none of a prompt's comparisons.
        mean: Floats = np.add.reduceat(np.where(answered, credit, 0.0), first, axis=1) / np.add.reduceat(
            answered.astype(float), first, axis=1
        )
    return mean


def _item_rest(credit: Floats) -> Floats:
    """Correlation over models (rows) of each item's credit with the mean credit on the other items."""
    answered = ~np.isnan(credit)
    filled = np.where(answered, credit, 0.0)
    n = answered.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        # Of the other items: with the item itself among them, even noise would correlate with the total, most on short
        # lists.
        rest = (filled.sum(axis=1)[:, None] - filled) / (answered.sum(axis=1)[:, None] - answered)
        rest = np.where(answered, rest, 0.0)
        # Both centred per item over the models that answered it: (models, items).
        x = np.where(answered, filled - filled.sum(axis=0) / n, 0.0)
        y = np.where(answered, rest - rest.sum(axis=0) / n, 0.0)
        spread = np.sqrt((x**2).sum(axis=0) * (y**2).sum(axis=0))
        # All models earn the same: no correlation.
        return np.where(spread > 1e-12, (x * y).sum(axis=0) / spread, np.nan)
