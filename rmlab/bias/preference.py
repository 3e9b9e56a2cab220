"""What a model likes when correctness is held fixed: the fancier or the plainer telling of the same answer."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rmlab import metrics, tables
from rmlab.bias.within import MIN_PROMPTS, columns_of, interval_note, prompt_index, spread
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
    scores within a prompt; NaN where its scores do not vary), n (comparisons), n_prompts, ties, missing, note. A tie
    counts half here, as neither answer is the right one; "loss" and "drop" are the other policies. Fewer than 5
    prompts give no interval. Raises DataError where scores have no style.
    """
    scores = tables.check_scores(scores, allow_missing=True)
    if scores["style"].isna().all():
        raise DataError("scores: style is missing in every row; this benchmark has no styles to compare")
    rows = _comparisons(scores)
    by = columns_of(rows, by, "the comparisons")
    table = metrics.accuracy(rows, by, ties=ties, confidence=confidence)
    table = table[(table["n_pairs"] + table["missing"]) > 0].rename(columns={"accuracy": "preference", "n_pairs": "n"})
    mean = rows.groupby(by, observed=True, sort=False)["standardised"].mean().rename("difference").reset_index()
    table = table.merge(mean, on=by, how="left", sort=False)
    few = table["n_prompts"].to_numpy() < MIN_PROMPTS
    table.loc[few, ["se", "low", "high"]] = np.nan
    note = np.where(table["difference"].isna(), "scores do not vary within a prompt", "")
    note = np.where(few, interval_note(table["n_prompts"].to_numpy()), note).astype(str)
    columns = [*by, "preference", "se", "low", "high", "difference", "n", "n_prompts", "ties", "missing"]
    return table[columns].assign(note=note)


def _comparisons(scores: pd.DataFrame) -> pd.DataFrame:
    """One row per two answers of a prompt with the same label and different styles."""
    join = ["model", *PROMPT, "label"]
    unit = {model: spread(own["score"].to_numpy(), prompt_index(own)) for model, own in scores.groupby("model")}
    sides = {style: scores.loc[scores["style"] == style, [*join, "subset", "score"]] for style in STYLES}
    found = []
    for plainer, fancier in _STEPS:
        both = sides[plainer].merge(sides[fancier].drop(columns="subset"), on=join, suffixes=("_plainer", "_fancier"))
        found.append(both.assign(plainer=plainer, fancier=fancier))
    rows = pd.concat(found, ignore_index=True)
    difference = (rows["score_fancier"] - rows["score_plainer"]).to_numpy()
    scale = rows["model"].map(unit).to_numpy(dtype=float)
    return rows.drop(columns=["score_plainer", "score_fancier"]).assign(
        plainer=pd.Categorical(rows["plainer"], dtype=STYLE),
        fancier=pd.Categorical(rows["fancier"], dtype=STYLE),
        outcome=tables.outcome(difference),
        standardised=difference / np.where(scale > 0, scale, np.nan),
    )
