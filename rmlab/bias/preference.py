"""What a model likes when correctness is held fixed: the fancier or the plainer telling of the same answer."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import metrics, tables
from rmlab.bias.prompts import MIN_PROMPTS, columns_of, prompt_index, too_few, unit_scores
from rmlab.tables import PROMPT, STYLE, STYLES, DataError

__all__ = ["style_preference"]

_STEPS = [(a, b) for i, a in enumerate(STYLES) for b in STYLES[i + 1 :]]


def style_preference(
    scores: pd.DataFrame,
    by: str | Sequence[str] = ("model", "plainer", "fancier"),
    *,
    ties: metrics.Ties = "half",
    confidence: float = 0.95,
) -> pd.DataFrame:
    """How often the fancier of two tellings of the same answer scores higher, correctness held fixed.

    Chosen answers meet chosen answers of the same prompt and rejected ones rejected ones, in another style. One row
    per combination of the `by` columns: model, benchmark, domain, subset, label, plainer, fancier. `by="model"` gives
    one number per model; add "label" to see right and wrong answers apart.
    Columns after those of `by`: preference (share of comparisons the fancier wins; 0.5 is no preference), se, low, high
    (Wilson, clustered by prompt), difference (mean of fancier minus plainer, in standard deviations of the model's
    scores within a prompt; NaN where its scores do not vary), n (comparisons), n_prompts, n_ties, missing, reason (why
    a number is not there). A tie counts half here, as neither answer is the right one; "loss" and "drop" are the other
    policies. Fewer than 5 prompts give no interval. Raises DataError where scores have no style.
    """
    scores = tables.check_scores(scores, allow_missing=True)
    if scores["style"].isna().all():
        raise DataError("scores: style is missing in every row; this benchmark has no styles to compare")
    rows = _comparisons(scores)
    by = columns_of(rows, by, "the comparisons")
    table = metrics.accuracy(rows, by, ties=ties, confidence=confidence)  # CORE: a share with its clustered interval
    names = {"accuracy": "preference", "n_pairs": "n", "ties": "n_ties"}
    table = table[(table["n_pairs"] + table["missing"]) > 0].rename(columns=names)
    mean = rows.groupby(by, observed=True, sort=False)["standardised"].mean().rename("difference").reset_index()
    table = table.merge(mean, on=by, how="left", sort=False)
    few = table["n_prompts"].to_numpy() < MIN_PROMPTS
    table.loc[few, ["se", "low", "high"]] = np.nan
    flat = np.where(table["difference"].isna(), "scores do not vary within a prompt", "")
    reason = np.where(few, [too_few(n) for n in table["n_prompts"]], flat).astype(str)
    columns = [*by, "preference", "se", "low", "high", "difference", "n", "n_prompts", "n_ties", "missing"]
    return table[columns].assign(reason=reason)


def _comparisons(scores: pd.DataFrame) -> pd.DataFrame:
    """One row per two answers of a prompt with the same label and different styles."""
    join = ["model", *PROMPT, "label"]
    scores = scores.assign(unit=np.nan)
    for _, own in scores.groupby("model"):
        scores.loc[own.index, "unit"] = unit_scores(own["score"].to_numpy(), prompt_index(own))
    flat = scores.groupby("model")["unit"].transform(lambda unit: not unit.any()).astype(bool)
    sides = {style: scores.loc[scores["style"] == style, [*join, "subset", "score", "unit"]] for style in STYLES}
    found = []
    for plainer, fancier in _STEPS:
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
