"""Best of n: does the chosen answer score highest among all answers to its prompt? With 1/k credit for ties."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import intervals, tables
from rmlab.metrics.columns import number
from rmlab.tables import PROMPT, DataError

__all__ = ["best_of", "best_of_curve"]


def best_of(scores: pd.DataFrame) -> pd.DataFrame:
    """What each prompt earns when the highest score wins: one row per model and prompt.

    Columns: model, benchmark, domain, id, subset, n_answers, above, level, credit. `above` and `level` count the
    rejected answers that score higher than, and the same as, the best chosen one. Credit is the share of chosen
    answers among those at the maximum: 1 for a clear win, 1/k where k answers share it, 0 otherwise, missing where a
    score is. RewardBench 2 (arXiv 2506.01937), section 4; `rewardbench/utils.py` of its repository.
    """
    scores = tables.check_scores(scores, allow_missing=True)
    group, first = number(scores, ["model", *PROMPT])
    score, chosen = scores["score"].to_numpy(), (scores["label"] == "chosen").to_numpy()
    _check_both_labels(scores, group, chosen, len(first))
    best = _maximum(np.where(chosen, score, -np.inf), group, len(first))
    above = np.bincount(group[~chosen & (score > best[group])], minlength=len(first))
    level = np.bincount(group[~chosen & (score == best[group])], minlength=len(first))
    winners = np.bincount(group[chosen & (score == best[group])], minlength=len(first))
    known = np.bincount(group[np.isnan(score)], minlength=len(first)) == 0
    with np.errstate(invalid="ignore"):
        earned = np.where(above > 0, 0.0, winners / (winners + level))
    frame = scores.iloc[first][["model", *PROMPT, "subset"]].reset_index(drop=True)
    return frame.assign(n_answers=np.bincount(group), above=above, level=level, credit=np.where(known, earned, np.nan))


def best_of_curve(
    scores: pd.DataFrame, *, sizes: tuple[int, ...] = (2, 3, 4), confidence: float = 0.95
) -> pd.DataFrame:
    """Accuracy of picking the chosen answer among n, for several n: one row per model, subset and n.

    Columns: model, domain, n, accuracy, se, low, high (these three missing with fewer than 5 prompts, as in
    `rmlab.intervals`), n_prompts, missing, chance (1/n). Each prompt contributes the exact mean over all ways to draw
    n - 1 of its rejected answers. Prompts with fewer rejected answers, or with several chosen ones, do not count at
    that n. No other source: the n = 4 value is RewardBench 2's own.
    """
    scores = tables.check_scores(scores, allow_missing=True)
    table = best_of(scores)
    n_chosen = scores[scores["label"] == "chosen"].groupby(["model", *PROMPT], sort=False).size()
    one = n_chosen.reindex(pd.MultiIndex.from_frame(table[["model", *PROMPT]])).to_numpy() == 1
    table = table[one].reset_index(drop=True)
    parts = [_curve_point(table, n, confidence) for n in sizes]
    order = {key: i for i, key in enumerate(dict.fromkeys(zip(table["model"], table["domain"], strict=True)))}
    points = pd.concat(parts, ignore_index=True)
    place = [order[key] for key in zip(points["model"], points["domain"], strict=True)]
    return points.iloc[np.lexsort([points["n"], place])].reset_index(drop=True)


def mean_by(frame: pd.DataFrame, value: str, by: list[str], confidence: float) -> pd.DataFrame:
    """Mean of one value per prompt with se, low, high, n_prompts and missing: one row per combination of `by`.

    With fewer than 5 prompts se, low and high are missing.
    """
    counted = frame[value].notna().to_numpy()
    group, first = number(frame, by)
    keys = frame[by].iloc[first].reset_index(drop=True)
    values = frame[value].fillna(0.0).to_numpy()
    mean, se, n = intervals.clustered_se(values, counted.astype(float), group, len(keys))
    se = np.where(n < intervals.FEWEST, np.nan, se)
    low, high = intervals.share_interval(mean, se, n, confidence=confidence)
    missing = np.bincount(group[~counted], minlength=len(keys))
    return keys.assign(accuracy=mean, se=se, low=low, high=high, n_prompts=n.astype(int), missing=missing)


def _curve_point(table: pd.DataFrame, n: int, confidence: float) -> pd.DataFrame:
    enough = table[table["n_answers"] >= n]
    earned = _expected_credit(
        enough["n_answers"].to_numpy() - 1, enough["above"].to_numpy(), enough["level"].to_numpy(), n - 1
    )
    earned = np.where(enough["credit"].isna(), np.nan, earned)
    points = mean_by(enough.assign(earned=earned), "earned", ["model", "domain"], confidence)
    points.insert(2, "n", n)
    return points.assign(chance=1 / n)


def _expected_credit(
    rejected: NDArray[np.intp], above: NDArray[np.intp], level: NDArray[np.intp], drawn: int
) -> NDArray[np.float64]:
    """Mean credit of one chosen answer against `drawn` of its rejected ones, over all draws (hypergeometric)."""
    from scipy.special import comb

    below = rejected - above - level
    total = comb(rejected, drawn)
    earned = sum(comb(level, j) * comb(below, drawn - j) / (1 + j) for j in range(drawn + 1))
    return np.asarray(earned / total, np.float64)


def _maximum(values: NDArray[np.float64], group: NDArray[np.intp], size: int) -> NDArray[np.float64]:
    result = np.full(size, -np.inf)
    np.fmax.at(result, group, values)
    return result


def _check_both_labels(scores: pd.DataFrame, group: NDArray[np.intp], chosen: NDArray[np.bool_], size: int) -> None:
    lonely = (np.bincount(group[chosen], minlength=size) == 0) | (np.bincount(group[~chosen], minlength=size) == 0)
    if lonely.any():
        row = scores.loc[lonely[group], ["model", *PROMPT, "label"]].iloc[0].to_dict()
        raise DataError(
            f"scores: {int(lonely.sum())} prompts have answers of one label only, first {row}; "
            "best of n needs a chosen and a rejected answer: score both or drop the prompt"
        )
