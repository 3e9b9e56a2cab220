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


def _describe_prompts(scores: pd.DataFrame) -> pd.DataFrame:
    """One row per model and Ties prompt: kind ("ref" with one right answer, "tied" with
    several), number (shared by the two prompts of a pair), spread (largest minus
    smallest score of the right answers; NaN with one) and gap (smallest right minus
    largest wrong score).
    """
    scores = tables.check_scores(scores, allow_missing=True)
    scores = scores[scores["domain"] == TIES]
    name = scores["id"].str.extract(r"^(?P<kind>ref|tied):(?P<number>.+)$")
    is_strange = name["kind"].isna()
    if is_strange.any():
        strange = scores["id"][is_strange].iloc[0]
        problem = f"scores: id {strange!r} in Ties is neither 'ref:N' nor 'tied:N'"
        raise DataError(problem, "load with reward-bench-2")
    _check_whole(scores)
    frame = scores.assign(kind=name["kind"], number=name["number"])
    prompt = ["model", "benchmark", "id"]
    right = _summarise_scores(frame[frame["label"] == "chosen"], prompt)
    wrong = _summarise_scores(frame[frame["label"] == "rejected"], prompt)

    has_right = right["count"] == right["size"]
    has_wrong = (wrong["count"] == wrong["size"]).reindex(right.index)
    is_complete = has_right & has_wrong
    gap = (right["min"] - wrong["max"]).where(is_complete)
    spread = right["max"] - right["min"]
    prompts = frame.drop_duplicates(prompt).set_index(prompt)
    detail = pd.DataFrame(
        {
            "kind": prompts["kind"],
            "number": prompts["number"],
            "spread": spread.where(is_complete & (right["size"] > 1)),
            "gap": gap,
        },
        index=prompts.index,
    ).reset_index()
    _check_partners(detail)
    return detail


def _summarise_scores(answers: pd.DataFrame, prompt: list[str]) -> pd.DataFrame:
    """Lowest and highest score, number of answers and of scores of each prompt."""
    scores = answers.groupby(prompt, sort=False)["score"]
    return scores.agg(["min", "max", "size", "count"])


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
    detail = _describe_prompts(scores)
    if detail.empty:
        problem = "scores: no prompt is in RewardBench 2's domain 'Ties'"
        raise DataError(problem, "score load('reward-bench-2')")
    pair = ["model", "benchmark", "number"]
    wide = detail.set_index([*pair, "kind"])[["gap", "spread"]].unstack("kind")
    gap_ref = wide[("gap", "ref")]
    gap_tied = wide[("gap", "tied")]
    spread = wide[("spread", "tied")]
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
    parts = parts.where(gap_ref.notna() & gap_tied.notna())
    parts["score"] = sum(weight * parts[part] for part, weight in WEIGHTS.items())
    in_order = pd.MultiIndex.from_frame(detail[pair].drop_duplicates())
    return parts.loc[in_order].reset_index()


def _check_whole(scores: pd.DataFrame) -> None:
    """Raise DataError where a prompt lacks answers: a gap in its slots, or an answer
    that another model scored.
    """
    side = ["benchmark", "id", "label"]
    slots_of_model = scores.groupby(["model", *side], sort=False, observed=True)["slot"]
    slots_of_all = scores.groupby(side, sort=False, observed=True)["slot"]
    size = slots_of_model.transform("size")
    expected = slots_of_all.transform("max") + 1
    is_short = size < expected
    if is_short.any():
        row = int(is_short.argmax())
        first = scores[["model", "id", "label"]].iloc[row].to_dict()
        counts = f"{size.iloc[row]} of {expected.iloc[row]}"
        problem = (
            f"scores: Ties prompts lack answers, first {first}: {counts} are there"
        )
        raise DataError(problem, "score all of them")


def _check_partners(detail: pd.DataFrame) -> None:
    """Raise DataError where one of the two prompts of a pair is not there."""
    kinds = detail.groupby(["model", "benchmark", "number"])["kind"]
    unpaired = detail[kinds.transform("nunique") < 2]
    if len(unpaired):
        first = unpaired.iloc[0]
        problem = (
            f"scores: {len(unpaired)} Ties prompts have no partner, first "
            f"{first['kind']}:{first['number']} of {first['model']!r}"
        )
        remedy = f"score both ref:{first['number']} and tied:{first['number']}"
        raise DataError(problem, remedy)
