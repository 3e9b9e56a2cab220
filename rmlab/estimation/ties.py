"""RewardBench 2's Ties: many right answers should score alike, and all above the wrong
ones.
"""

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.tables import DataError

TIES = "Ties"
"""The subset of RewardBench 2 that these scores are of."""

WEIGHTS = {
    "accuracy_tied": 0.30,
    "accuracy_ref": 0.30,
    "prefers": 0.20,
    "prefers_both": 0.20,
    "margin": 0.01,
}


def ties_score(scores: pd.DataFrame) -> pd.DataFrame:
    """The parts of the Ties score of RewardBench 2.

    Parameters
    ----------
    scores : DataFrame
        A table of scores of RewardBench 2.

    Returns
    -------
    DataFrame
        One row per model and pair of prompts (ref:N, tied:N):

        - model, benchmark, number;
        - accuracy_tied, accuracy_ref;
        - prefers: gap of the tied prompt above its spread;
        - prefers_both: the smaller of the two gaps above that spread;
        - margin: tanh(smaller gap / spread - 1); 0 where that is NaN;
        - score: their sum with the weights 0.30, 0.30, 0.20, 0.20, 0.01.

        A model's Ties score is the mean of `score`; it may reach 1.01. A pair with a
        missing score is missing.

    Raises
    ------
    DataError
            If no prompt is in Ties, for an id that is not `ref:N` or `tied:N`, for one
        without its partner, and where answers of a prompt have no row.

    References
    ----------
    RewardBench 2 (arXiv 2506.01937), section 4.
    """
    scores = tables.check_scores(scores, allow_missing=True)
    scores = scores[scores["domain"] == TIES]
    if scores.empty:
        problem = "scores: no prompt is in RewardBench 2's domain 'Ties'"
        raise DataError(problem, "score load('reward-bench-2')")
    pair = ["model", "benchmark", "number"]
    sides = _summarise_sides(scores)
    is_complete = np.all(sides["count"] == sides["size"], axis=1)
    lowest = sides["min"]
    highest = sides["max"]
    gap_ref = lowest["ref", "chosen"] - highest["ref", "rejected"]
    gap_tied = lowest["tied", "chosen"] - highest["tied", "rejected"]
    spread = highest["tied", "chosen"] - lowest["tied", "chosen"]
    # One right answer has no spread.
    spread = spread.where(sides["size"]["tied", "chosen"] > 1)
    smaller = np.minimum(gap_ref, gap_tied)
    with np.errstate(divide="ignore", invalid="ignore"):
        # A spread of 0 gives an infinite ratio, or 0 / 0.
        margin = np.tanh(smaller / spread - 1)

    parts = pd.DataFrame(
        {
            "accuracy_tied": gap_tied > 0,
            "accuracy_ref": gap_ref > 0,
            "prefers": gap_tied > spread,
            "prefers_both": smaller > spread,
            "margin": np.nan_to_num(margin, nan=0.0),
        }
    ).astype(float)
    parts = parts.where(is_complete)
    parts["score"] = sum(weight * parts[part] for part, weight in WEIGHTS.items())
    return parts.rename_axis(pair).reset_index()


def _summarise_sides(scores: pd.DataFrame) -> pd.DataFrame:
    """Lowest and highest score, number of answers and of scores, of each pair of
    prompts (rows) and each kind and label (columns).

    DataError for other ids, and where a prompt or an answer is not there: a gap in the
    slots, or an answer that another model scored.
    """
    name = scores["id"].str.extract(r"^(?P<kind>ref|tied):(?P<number>.+)$")
    is_strange = name["kind"].isna()
    if is_strange.any():
        strange = scores["id"][is_strange].iloc[0]
        problem = f"scores: id {strange!r} in Ties is neither 'ref:N' nor 'tied:N'"
        raise DataError(problem, "load with reward-bench-2")
    pair = ["model", "benchmark", "number"]
    by_side = scores.assign(**name).groupby(
        [*pair, "kind", "label"], sort=False, observed=True
    )
    sides = by_side["score"].agg(["min", "max", "size", "count"])
    sides["last"] = by_side["slot"].max()
    wide = pd.DataFrame(sides.unstack(["kind", "label"], sort=False))

    size = pd.DataFrame(wide["size"])
    last_slot = wide["last"].groupby(["benchmark", "number"]).transform("max")
    is_short = (size != last_slot + 1).any(axis=1) | (size.shape[1] < 4)
    if is_short.any():
        first = wide[is_short].index.to_frame().iloc[0].to_dict()
        problem = f"scores: Ties prompts lack answers or their partner, first {first}"
        raise DataError(problem, "score all answers of ref:N and tied:N")
    return wide
