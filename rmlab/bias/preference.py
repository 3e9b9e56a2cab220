"""What a model likes when correctness is held fixed: the fancier or the plainer version of the same answer."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import tables
from rmlab.bias.prompts import columns_of, prompt_index, unit_scores
from rmlab.items.comparisons import Ties, credit
from rmlab.keys import number
from rmlab.metrics.means import clustered_mean, share_interval
from rmlab.tables import PROMPT, STYLE, STYLES, DataError

__all__ = ["style_preference"]

_STEPS = [(a, b) for i, a in enumerate(STYLES) for b in STYLES[i + 1 :]]


def style_preference(
    scores: pd.DataFrame,
    by: str | Sequence[str] = ("model", "plainer", "fancier"),
    *,
    ties: Ties = "half",
    confidence: float = 0.95,
) -> pd.DataFrame:
    """How often the fancier of two versions of the same answer scores higher, correctness held fixed.

    Chosen answers meet chosen answers of the same prompt and rejected ones rejected ones, in another style. One row
    per combination of the `by` columns: model, benchmark, domain, subset, label, plainer, fancier. `by="model"` gives
    one number per model; add "label" to see right and wrong answers apart.
    Columns after those of `by`: preference (share of comparisons the fancier wins; 0.5 is no preference), se, low, high
    (mid-p, clustered by prompt), difference (mean of fancier minus plainer, in standard deviations of the model's
    scores within a prompt; NaN where its scores do not vary), n_pairs, n_prompts, n_ties, missing, reason. A tie
    counts half here, as neither answer is the right one; "loss" and "drop" are the other policies. Fewer than 5
    prompts give no interval. Raises DataError where scores have no style.
    """
    scores = tables.check_scores(scores, allow_missing=True)
    if scores["style"].isna().all():
        raise DataError("scores: style is missing in every row; this benchmark has no styles to compare")
    rows = _comparisons(scores)
    by = columns_of(rows, by, "the comparisons")
    group, first = number(rows, by)  # number of each row's group, and its first row
    found = clustered_mean(credit(rows, ties=ties), group, number(rows, PROMPT)[0], len(first))
    low, high = share_interval(found, confidence=confidence)
    n_groups = len(first)
    table = (
        rows[by]
        .iloc[first]
        .reset_index(drop=True)
        .assign(
            preference=found.mean,
            se=found.se,
            low=low,
            high=high,
            # Only the mean is wanted, so it does not matter what the clusters are.
            difference=clustered_mean(rows["standardised"].to_numpy(), group, group, n_groups).mean,
            n_pairs=found.n_items,
            n_prompts=found.n_clusters,
            n_ties=np.bincount(group, rows["outcome"] == "tie", n_groups).astype(int),
            missing=np.bincount(group, rows["outcome"].isna(), n_groups).astype(int),
        )
    )
    still = np.where(table["difference"].isna(), "scores do not vary within a prompt", "")
    return table.assign(reason=pd.Series(np.where(np.array(found.reason) != "", found.reason, still), dtype="str"))


def _comparisons(scores: pd.DataFrame) -> pd.DataFrame:
    """One row per two answers of a prompt with the same label and different styles."""
    join = ["model", *PROMPT, "label"]
    scores = scores.assign(unit=np.nan)
    # Differences in units of the model's own spread; wins and losses below are of the scores as they are.
    for _, own in scores.groupby("model"):
        scores.loc[own.index, "unit"] = unit_scores(own["score"].to_numpy(), prompt_index(own))
    # Units of a model without spread are all 0: a difference of 0 there would be a number that nobody measured.
    flat = scores.groupby("model")["unit"].transform(lambda unit: not unit.any()).astype(bool)
    sides = {style: scores.loc[scores["style"] == style, [*join, "subset", "score", "unit"]] for style in STYLES}
    found = []
    for plainer, fancier in _STEPS:
        # On the label too: right meets right and wrong meets wrong, so correctness cannot decide.
        both = sides[plainer].merge(sides[fancier].drop(columns="subset"), on=join, suffixes=("_plainer", "_fancier"))
        found.append(both.assign(plainer=plainer, fancier=fancier))
    rows = pd.concat(found, ignore_index=True)
    won = rows["score_fancier"].to_numpy(), rows["score_plainer"].to_numpy()
    standardised = (rows["unit_fancier"] - rows["unit_plainer"]).where(~rows["model"].isin(scores.loc[flat, "model"]))
    return rows[[*join, "subset"]].assign(
        plainer=pd.Categorical(rows["plainer"], dtype=STYLE),
        fancier=pd.Categorical(rows["fancier"], dtype=STYLE),
        outcome=tables.outcome(_sign(*won)),
        standardised=standardised,
    )


def _sign(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 where a > b, -1 where a < b, 0 where equal, NaN where one is missing: also where a - b would overflow."""
    return np.where(np.isnan(a) | np.isnan(b), np.nan, (a > b).astype(float) - (a < b))
