"""Best of n: does the chosen answer score highest among all answers to its prompt?"""

from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import comb

from rmlab import tables
from rmlab.estimation.clustered import group_means
from rmlab.estimation.items import (
    LOSS,
    MISSING,
    TIE,
    WIN,
    cluster_columns,
    count_labels,
)
from rmlab.tables import PROMPT, BoolArray, DataError, FloatArray, IntArray, group_codes

SharedCredit = Literal["share", "loss", "win"]
SHARED_CREDIT: tuple[SharedCredit, ...] = ("share", "loss", "win")


def best_of(scores: pd.DataFrame, *, ties: SharedCredit = "share") -> pd.DataFrame:
    """Credit of each prompt when the highest score wins.

    Parameters
    ----------
    scores : DataFrame
        A table of scores.
    ties : {"share", "loss", "win"}
        What a maximum shared with a rejected answer earns: 1/k where k answers share it
        (RewardBench 2), 0, or 1.

    Returns
    -------
    DataFrame
        One row per model and prompt:

        - model, benchmark, domain, id, subset, n_answers;
        - above, level: rejected answers that score higher than, and the same as, the
          best chosen one;
        - credit: 1 for a clear win, missing where a score is;
        - reciprocal_rank: 1 over the place of the best chosen answer, which comes
          behind the rejected ones of equal score unless ties="win", and in their middle
          with "share"; its mean is the mean reciprocal rank.

    Raises
    ------
    DataError
        If a prompt has answers of one label only.

    References
    ----------
    RewardBench 2 (arXiv 2506.01937), section 4; `rewardbench/utils.py` of its
    repository.
    """
    tables.check_option("ties", ties, SHARED_CREDIT)
    scores = tables.check_scores(scores, allow_missing=True)
    prompt, first_rows = group_codes(scores, ["model", *PROMPT])
    count_labels(scores, prompt)
    score = scores["score"].to_numpy()
    is_chosen = (scores["label"] == "chosen").to_numpy()
    answers = _compare_with_best(score, is_chosen, prompt, len(first_rows))
    credit = np.select(
        [answers.above > 0, answers.level > 0], [0.0, _tie_credit(answers, ties)], 1.0
    )
    rank = 1 + answers.above + _ties_before(answers, ties)

    n_missing = np.bincount(prompt[np.isnan(score)], minlength=len(first_rows))
    is_known = n_missing == 0
    prompts = scores.iloc[first_rows].reset_index(drop=True)
    return pd.DataFrame(
        {
            "model": prompts["model"],
            "benchmark": prompts["benchmark"],
            "domain": prompts["domain"],
            "id": prompts["id"],
            "subset": prompts["subset"],
            "n_answers": np.bincount(prompt),
            "above": answers.above,
            "level": answers.level,
            "credit": np.where(is_known, credit, np.nan),
            "reciprocal_rank": np.where(is_known, 1 / rank, np.nan),
        }
    )


class _Answers(NamedTuple):
    """Answers of each prompt beside its best chosen one, (prompts,) each.

    `winners` are the chosen answers with its score, `above` and `level` the rejected
    ones with a higher and with the same score.
    """

    winners: IntArray
    above: IntArray
    level: IntArray


def _compare_with_best(
    score: FloatArray, is_chosen: BoolArray, prompt: IntArray, n_prompts: int
) -> _Answers:
    best = np.full(n_prompts, -np.inf)
    np.fmax.at(best, prompt[is_chosen], score[is_chosen])
    is_level = score == best[prompt]
    is_above = ~is_chosen & (score > best[prompt])
    return _Answers(
        winners=np.bincount(prompt[is_chosen & is_level], minlength=n_prompts),
        above=np.bincount(prompt[is_above], minlength=n_prompts),
        level=np.bincount(prompt[~is_chosen & is_level], minlength=n_prompts),
    )


def _tie_credit(answers: _Answers, ties: SharedCredit) -> FloatArray:
    """What the best chosen answer earns where rejected ones share its score."""
    if ties == "share":
        with np.errstate(invalid="ignore"):  # 0 / 0: no chosen answer has a score
            share = answers.winners / (answers.winners + answers.level)
        return np.asarray(share, np.float64)
    return np.full(len(answers.level), 1.0 if ties == "win" else 0.0)


def _ties_before(answers: _Answers, ties: SharedCredit) -> FloatArray:
    """How many of the rejected answers of equal score come before the chosen one."""
    share_before = {"share": 0.5, "loss": 1.0, "win": 0.0}
    return np.asarray(answers.level * share_before[ties], np.float64)


def best_of_outcome(table: pd.DataFrame) -> NDArray[np.int8]:
    """Outcome of each row of `best_of`: a win, a tie where a rejected answer shares the
    maximum, a loss, or missing.
    """
    outcome = np.select(
        [table["credit"].isna(), table["above"] > 0, table["level"] > 0],
        [MISSING, LOSS, TIE],
        WIN,
    )
    return outcome.astype(np.int8)


def best_of_curve(
    scores: pd.DataFrame,
    *,
    sizes: tuple[int, ...] = (2, 3, 4),
    cluster: str | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Accuracy of picking the chosen answer among n, for several n.

    Parameters
    ----------
    scores : DataFrame
        A table of scores.
    sizes : tuple of int
        The numbers of answers.
    cluster : str, optional
        Column whose values the prompts of a cluster share; default: the prompt.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    DataFrame
        One row per model, domain and n:

        - model, domain, n, accuracy;
        - se, low, high: missing with fewer than five prompts;
        - n_prompts, missing, reason;
        - chance: 1/n.

        Each prompt counts with the exact mean over all ways to draw n - 1 of its
        rejected answers. Prompts with fewer rejected answers, or with several chosen
        ones, do not count at that n.

    Raises
    ------
    DataError
        Where no prompt has one chosen answer and enough rejected ones.
    """
    numbers = np.asarray(sizes)
    if numbers.ndim != 1 or numbers.dtype.kind != "i" or numbers.min() < 2:
        allowed = "whole numbers from 2, for example (2, 4)"
        raise ValueError(f"sizes: {sizes!r}; allowed: {allowed}")
    scores = tables.check_scores(scores, allow_missing=True)
    clusters_by = cluster_columns(scores, cluster)
    prompt, first_rows = group_codes(scores, ["model", *PROMPT])
    n_chosen, _ = count_labels(scores, prompt)
    clusters = group_codes(scores.iloc[first_rows], clusters_by)[0]
    prompts = best_of(scores).assign(cluster=clusters)[n_chosen == 1]
    frames = []
    for n in sorted(sizes):
        large = prompts[prompts["n_answers"] >= n]
        if len(large):
            frames.append(_curve_points(large, n, confidence))
    if not frames:
        problem = (
            f"sizes: no prompt has one chosen and {min(sizes) - 1} rejected answers"
        )
        raise DataError(problem, "ask for fewer")
    order = prompts[["model", "domain"]].drop_duplicates()
    points: pd.DataFrame = order.merge(pd.concat(frames), on=["model", "domain"])
    return points.astype({"reason": "str"})


def _curve_points(large: pd.DataFrame, n: int, confidence: float) -> pd.DataFrame:
    """One row per model and domain for best of n; `large` are prompts with at least n
    answers, and their clusters.
    """
    expected = _expected_credit(
        n_rejected=large["n_answers"].to_numpy() - 1,
        above=large["above"].to_numpy(),
        level=large["level"].to_numpy(),
        n_drawn=n - 1,
    )
    group, first_rows = group_codes(large, ["model", "domain"])
    means = group_means(
        np.where(large["credit"].isna(), np.nan, expected),
        group,
        large["cluster"].to_numpy(),
        len(first_rows),
        confidence=confidence,
    )
    domains = large.iloc[first_rows].reset_index(drop=True)
    reason = np.where(means.n_values == 0, "no prompt with all scores", means.reason)
    return pd.DataFrame(
        {
            "model": domains["model"],
            "domain": domains["domain"],
            "n": n,
            "accuracy": means.value,
            "se": means.se,
            "low": means.low,
            "high": means.high,
            "n_prompts": means.n_clusters,
            "missing": means.missing,
            "reason": reason,
            "chance": 1 / n,
        }
    )


def _expected_credit(
    n_rejected: IntArray, above: IntArray, level: IntArray, n_drawn: int
) -> FloatArray:
    """Mean credit of one chosen answer against `n_drawn` of its rejected ones, over all
    draws (hypergeometric).
    """
    # A draw with an answer from above the chosen one earns nothing: only draws from the
    # others are summed.
    below = n_rejected - above - level
    credit = np.zeros(len(n_rejected))
    for n_ties in range(n_drawn + 1):
        n_draws = comb(level, n_ties) * comb(below, n_drawn - n_ties)
        credit += n_draws / (1 + n_ties)
    return np.asarray(credit / comb(n_rejected, n_drawn), np.float64)
