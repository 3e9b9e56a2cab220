"""Best of n as items: does the chosen answer score highest among all answers to its prompt?"""

from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import tables
from rmlab.items.columns import allowed
from rmlab.items.grid import LOSS, MISSING, TIE, WIN
from rmlab.keys import number
from rmlab.tables import PROMPT, DataError

__all__ = ["SHARED_CREDIT", "best_of", "best_of_outcome"]

SharedCredit = Literal["share", "loss", "win"]
SHARED_CREDIT: tuple[SharedCredit, ...] = ("share", "loss", "win")


def best_of(scores: pd.DataFrame, *, ties: SharedCredit = "share") -> pd.DataFrame:
    """What each prompt earns when the highest score wins: one row per model and prompt.

    Columns: model, benchmark, domain, id, subset, n_answers, above, level, credit, reciprocal_rank. `above` and `level`
    count the rejected answers that score higher than, and the same as, the best chosen one. `credit` is the share of
    chosen answers among those at the maximum: 1 for a clear win, 1/k where k answers share it, 0 otherwise, missing
    where a score is. `ties` says what a shared maximum earns: "share" (1/k, RewardBench 2), "loss" (0: strict) or "win"
    (1). `reciprocal_rank` is 1 over the place of the best chosen answer, which comes behind the rejected ones that
    score the same unless `ties="win"`, and in the middle of them with "share"; its mean is the mean reciprocal rank.
    RewardBench 2 (arXiv 2506.01937), section 4; `rewardbench/utils.py` of its repository.
    """
    allowed("ties", ties, SHARED_CREDIT)
    scores = tables.check_scores(scores, allow_missing=True)
    group, first = number(scores, ["model", *PROMPT])
    score, chosen = scores["score"].to_numpy(), (scores["label"] == "chosen").to_numpy()
    _check_both_labels(scores, group, chosen, len(first))
    best = _maximum(np.where(chosen, score, -np.inf), group, len(first))
    above = np.bincount(group[~chosen & (score > best[group])], minlength=len(first))
    level = np.bincount(group[~chosen & (score == best[group])], minlength=len(first))
    winners = np.bincount(group[chosen & (score == best[group])], minlength=len(first))
    known = np.bincount(group[np.isnan(score)], minlength=len(first)) == 0
    with np.errstate(invalid="ignore"):  # 0 / 0 where no chosen answer has a score; `known` leaves these prompts out
        half = winners / (winners + level)
    nothing, one = np.zeros(len(first)), np.ones(len(first))
    shared = {"share": half, "loss": nothing, "win": one}[ties]
    behind = {"share": level / 2, "loss": level.astype(np.float64), "win": nothing}[ties]
    earned = np.where(above > 0, 0.0, np.where(level > 0, shared, 1.0))
    frame = scores.iloc[first][["model", *PROMPT, "subset"]].reset_index(drop=True)
    return frame.assign(
        n_answers=np.bincount(group),
        above=above,
        level=level,
        credit=np.where(known, earned, np.nan),
        reciprocal_rank=np.where(known, 1 / (1 + above + behind), np.nan),
    )


def best_of_outcome(table: pd.DataFrame) -> NDArray[np.int8]:
    """Outcome of each row of `best_of`: a win, a tie where a rejected answer shares the maximum, a loss, or missing."""
    lost, shared = (table["above"] > 0).to_numpy(), (table["level"] > 0).to_numpy()
    found = np.where(lost, LOSS, np.where(shared, TIE, WIN))
    return np.where(table["credit"].isna(), MISSING, found).astype(np.int8)


def _maximum(values: NDArray[np.float64], group: NDArray[np.intp], size: int) -> NDArray[np.float64]:
    result = np.full(size, -np.inf)
    # `fmax` passes over missing scores; the prompts that have some are taken out by the caller.
    np.fmax.at(result, group, values)
    return result


def _check_both_labels(scores: pd.DataFrame, group: NDArray[np.intp], chosen: NDArray[np.bool_], size: int) -> None:
    lonely = (np.bincount(group[chosen], minlength=size) == 0) | (np.bincount(group[~chosen], minlength=size) == 0)
    if lonely.any():
        row = scores.loc[lonely[group], ["model", *PROMPT, "label"]].iloc[0].to_dict()
        raise DataError(
            f"scores: {int(lonely.sum())} prompts have answers of one label only, first {row}; "
            "best of n needs a chosen and a rejected answer: score both"
        )
