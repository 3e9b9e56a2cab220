"""How hard each comparison is, and how well it separates models."""

from typing import Literal

import numpy as np
import pandas as pd

from rmlab.metrics.items import FloatArray, Items, Ties, comparison_items
from rmlab.stats.comparing import require_models
from rmlab.tables import ITEM, PROMPT, check_option


def item_difficulty(
    table: pd.DataFrame,
    *,
    unit: Literal["comparison", "prompt"] = "comparison",
    ties: Ties = "loss",
    common: bool = False,
) -> pd.DataFrame:
    """Difficulty and discrimination of every item.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs of two models or more.
    unit : {"comparison", "prompt"}
        What an item is; a prompt's credit is the mean over its comparisons.
    ties : {"loss", "half", "drop"}
        What a tie earns.
    common : bool
        Whether to keep only the comparisons that all models have.

    Returns
    -------
    DataFrame
        One row per item, in the order of the table: benchmark, domain, id (and chosen_slot, rejected_slot, level where
        the unit is a comparison), subset, n_models (that answered), missing, difficulty (share of credit that the
        models fail to earn), discrimination (correlation over models between the credit on this item and the mean
        credit on the others: below 0 good models tend to fail; NaN where all earn the same), none_right, all_right.
    """
    check_option("unit", unit, ("comparison", "prompt"))
    items = comparisons_of_models(table, ties, common)
    frame, credit = items.frame[[*ITEM, "level", "subset"]], items.credit
    if unit == "prompt":
        first_rows = np.unique(items.prompt, return_index=True)[1]
        frame = frame.iloc[first_rows][[*PROMPT, "subset"]].reset_index(drop=True)
        credit = pd.DataFrame(credit.T).groupby(items.prompt).mean().to_numpy().T
    n_models = (~np.isnan(credit)).sum(axis=0)
    with np.errstate(invalid="ignore"):
        easiness = np.nansum(credit, axis=0) / n_models
    return frame.assign(
        n_models=n_models,
        missing=len(items.models) - n_models,
        difficulty=1 - easiness,
        discrimination=_item_rest_correlation(credit),
        # Sums of 0, 1/2 and 1 are exact, so these need no tolerance.
        none_right=easiness == 0,
        all_right=easiness == 1,
    )


def comparisons_of_models(table: pd.DataFrame, ties: str, common: bool) -> Items:
    """Comparisons of two models or more, which must be the same for all of them."""
    items = comparison_items(table, ties)
    require_models(items)
    if common:
        return items.common()
    items.require_same()
    return items


def _item_rest_correlation(credit: FloatArray) -> FloatArray:
    """Correlation over models (rows) of each item's credit with the mean credit on the other items."""
    answered = ~np.isnan(credit)
    filled = np.where(answered, credit, 0.0)
    n = answered.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        # Of the other items: with the item itself among them, even noise would correlate with the total.
        rest = (filled.sum(axis=1)[:, None] - filled) / (answered.sum(axis=1)[:, None] - answered)
        rest = np.where(answered, rest, 0.0)
        x = np.where(answered, filled - filled.sum(axis=0) / n, 0.0)
        y = np.where(answered, rest - rest.sum(axis=0) / n, 0.0)
        spread = np.sqrt((x**2).sum(axis=0) * (y**2).sum(axis=0))
        return np.where(spread > 1e-12, (x * y).sum(axis=0) / spread, np.nan)
