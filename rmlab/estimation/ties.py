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


def ties_detail(scores: pd.DataFrame) -> pd.DataFrame:
    """Spread and gap of every Ties prompt: how far right answers spread, and how far
    above the wrong ones they stand.

    Parameters
    ----------
    scores : DataFrame
        A table of scores of RewardBench 2.

    Returns
    -------
    DataFrame
        One row per model and prompt: model, benchmark, id, kind ("ref" with one right
        answer, "tied" with several), number (shared by the two prompts of a pair),
        n_correct, n_incorrect, spread (largest minus smallest score of the right
        answers; NaN with one), gap (smallest right minus largest wrong), accurate (gap
        > 0; missing where a score is).

    Raises
    ------
    DataError
        For an id that is not `ref:N` or `tied:N`, for one without its partner, and
        where answers of a prompt have no row.

    References
    ----------
    RewardBench 2 (arXiv 2506.01937), section 4; `rewardbench/utils.py` of its
    repository.
    """
    scores = tables.check_scores(scores, allow_missing=True)
    scores = scores[scores["domain"] == TIES]
    name = scores["id"].str.extract(r"^(?P<kind>ref|tied):(?P<number>.+)$")
    if name["kind"].isna().any():
        strange = scores["id"][name["kind"].isna()].iloc[0]
        raise DataError(
            f"scores: id {strange!r} in Ties is neither 'ref:N' nor 'tied:N'; load with reward-bench-2"
        )
    prompt = ["model", "benchmark", "id"]
    _check_whole(scores)
    frame = scores.assign(kind=name["kind"], number=name["number"])
    sides = {
        label: frame[frame["label"] == label].groupby(prompt, sort=False)["score"]
        for label in tables.LABELS
    }
    right, wrong = (
        side.agg(["min", "max", "size", "count"]) for side in sides.values()
    )
    detail = frame.drop_duplicates(prompt)[[*prompt, "kind", "number"]].set_index(
        prompt
    )
    is_complete = (right["count"] == right["size"]) & (
        wrong["count"] == wrong["size"]
    ).reindex(right.index)
    gap = (right["min"] - wrong["max"]).where(is_complete)
    spread = (right["max"] - right["min"]).where(is_complete & (right["size"] > 1))
    detail = detail.assign(
        n_correct=right["size"], n_incorrect=wrong["size"], spread=spread, gap=gap
    )
    detail = detail.assign(
        accurate=(gap > 0).astype("boolean").where(gap.notna())
    ).reset_index()
    _check_partners(detail)
    return detail


def ties_score(scores: pd.DataFrame) -> pd.DataFrame:
    """The parts of the Ties score of RewardBench 2.

    Parameters
    ----------
    scores : DataFrame
        A table of scores of RewardBench 2.

    Returns
    -------
    DataFrame
        One row per model and pair of prompts (ref:N, tied:N): model, benchmark, number,
        accuracy_tied, accuracy_ref, prefers (gap of the tied prompt above its spread),
        prefers_both (the smaller of the two gaps above that spread), margin
        (tanh(smaller gap / spread - 1); 0 where that is NaN), score (their sum with the
        weights 0.30, 0.30,
        0.20, 0.20, 0.01). A model's Ties score is the mean of `score`; it may reach 1.01. A pair with a missing score
        is missing.

    Raises
    ------
    DataError
        If no prompt is in Ties.

    References
    ----------
    RewardBench 2 (arXiv 2506.01937), section 4.
    """
    detail = ties_detail(scores)
    if detail.empty:
        raise DataError(
            "scores: no prompt is in RewardBench 2's domain 'Ties'; score load('reward-bench-2')"
        )
    wide = detail.set_index(["model", "benchmark", "number", "kind"])[
        ["gap", "spread"]
    ].unstack("kind")
    gap_ref, gap_tied, spread = (
        wide[("gap", "ref")],
        wide[("gap", "tied")],
        wide[("spread", "tied")],
    )
    smaller = np.minimum(gap_ref, gap_tied)
    with np.errstate(
        divide="ignore", invalid="ignore"
    ):  # a spread of 0 gives an infinite ratio, or 0 / 0
        margin = np.nan_to_num(np.tanh(smaller / spread - 1), nan=0.0)
    parts = pd.DataFrame(
        {
            "accuracy_tied": gap_tied > 0,
            "accuracy_ref": gap_ref > 0,
            "prefers": gap_tied > spread,
        }
    )
    parts = parts.assign(prefers_both=smaller > spread, margin=margin).astype(float)
    parts = parts.where(gap_ref.notna() & gap_tied.notna())
    score = sum(weight * parts[part] for part, weight in WEIGHTS.items())
    order = (
        detail.drop_duplicates(["model", "benchmark", "number"])
        .set_index(["model", "benchmark", "number"])
        .index
    )
    return parts.assign(score=score).loc[order].reset_index()


def _check_whole(scores: pd.DataFrame) -> None:
    """Raise DataError where a prompt lacks answers: a gap in its slots, or an answer
    that another model scored.
    """
    side = ["benchmark", "id", "label"]
    size = scores.groupby(["model", *side], sort=False, observed=True)[
        "slot"
    ].transform("size")
    expected = (
        scores.groupby(side, sort=False, observed=True)["slot"].transform("max") + 1
    )
    short = scores[size < expected]
    if len(short):
        row = short[["model", "id", "label"]].iloc[0].to_dict()
        counts = f"{size[short.index[0]]} of {expected[short.index[0]]}"
        raise DataError(
            f"scores: Ties prompts lack answers, first {row}: {counts} are there. Score all of them."
        )


def _check_partners(detail: pd.DataFrame) -> None:
    partners = detail.groupby(["model", "benchmark", "number"], sort=False)["kind"].agg(
        ["nunique", "first"]
    )
    unpaired = partners[partners["nunique"] < 2]
    if len(unpaired):
        (model, _, number), kind = unpaired.index[0], unpaired["first"].iloc[0]
        message = f"scores: {len(unpaired)} Ties prompts have no partner, first {kind}:{number} of {model!r}."
        raise DataError(f"{message} Score both ref:{number} and tied:{number}.")
