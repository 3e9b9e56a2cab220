"""Best of n: does the chosen answer score highest among all answers to its prompt?"""

from typing import Literal

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
from rmlab.tables import PROMPT, DataError, FloatArray, IntArray, group_codes

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
        One row per model and prompt: model, benchmark, domain, id, subset, n_answers,
        above and level (rejected answers that score higher than, and the same as, the
        best chosen one), credit (1 for a clear win, missing where a score is),
        reciprocal_rank (1 over the place of the best chosen answer, which comes behind
        the rejected ones of equal score unless ties="win", and in their middle with
        "share"; its mean is the mean reciprocal rank).

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
    n_prompts, score, is_chosen = (
        len(first_rows),
        scores["score"].to_numpy(),
        (scores["label"] == "chosen").to_numpy(),
    )
    best = np.full(n_prompts, -np.inf)
    np.fmax.at(best, prompt[is_chosen], score[is_chosen])
    best_of_prompt = best[prompt]
    selections = (
        ~is_chosen & (score > best_of_prompt),
        ~is_chosen & (score == best_of_prompt),
    )
    above, level = (
        np.bincount(prompt[rows], minlength=n_prompts) for rows in selections
    )
    winners = np.bincount(
        prompt[is_chosen & (score == best_of_prompt)], minlength=n_prompts
    )
    is_known = np.bincount(prompt[np.isnan(score)], minlength=n_prompts) == 0
    with np.errstate(
        invalid="ignore"
    ):  # 0 / 0 where no chosen answer has a score: not known
        shared = {
            "share": winners / (winners + level),
            "loss": np.zeros(n_prompts),
            "win": np.ones(n_prompts),
        }[ties]
    n_before = above + {"share": level / 2, "loss": level, "win": 0 * level}[ties]
    credit = np.where(above > 0, 0.0, np.where(level > 0, shared, 1.0))
    frame = scores.iloc[first_rows][["model", *PROMPT, "subset"]].reset_index(drop=True)
    frame = frame.assign(n_answers=np.bincount(prompt), above=above, level=level)
    credit, reciprocal_rank = np.where(is_known, [credit, 1 / (1 + n_before)], np.nan)
    return frame.assign(credit=credit, reciprocal_rank=reciprocal_rank)


def best_of_outcome(table: pd.DataFrame) -> NDArray[np.int8]:
    """Outcome of each row of `best_of`: a win, a tie where a rejected answer shares the
    maximum, a loss, or missing.
    """
    outcome = np.where(table["above"] > 0, LOSS, np.where(table["level"] > 0, TIE, WIN))
    return np.where(table["credit"].isna(), MISSING, outcome).astype(np.int8)


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
        One row per model, domain and n: model, domain, n, accuracy, se, low, high
        (missing with fewer than five prompts), n_prompts, missing, reason, chance
        (1/n). Each prompt counts with the exact mean over all ways to draw n - 1 of its
        rejected answers. Prompts with fewer rejected answers, or with several chosen
        ones, do not count at that n.

    Raises
    ------
    DataError
        Where no prompt has one chosen answer and enough rejected ones.
    """
    numbers = np.asarray(sizes)
    if numbers.ndim != 1 or numbers.dtype.kind != "i" or numbers.min() < 2:
        raise ValueError(
            f"sizes: {sizes!r}; allowed: whole numbers from 2, for example (2, 4)"
        )
    scores = tables.check_scores(scores, allow_missing=True)
    clusters_by = cluster_columns(scores, cluster)
    prompt, first_rows = group_codes(scores, ["model", *PROMPT])
    n_chosen, _ = count_labels(scores, prompt)
    clusters = group_codes(scores.iloc[first_rows], clusters_by)[0]
    prompts = best_of(scores).assign(cluster=clusters)[n_chosen == 1]
    large = {n: prompts[prompts["n_answers"] >= n] for n in sorted(sizes)}
    frames = [
        _curve_points(rows, n, confidence) for n, rows in large.items() if len(rows)
    ]
    if not frames:
        raise DataError(
            f"sizes: no prompt has one chosen and {min(sizes) - 1} rejected answers. Ask for fewer."
        )
    order = prompts[["model", "domain"]].drop_duplicates()
    points: pd.DataFrame = order.merge(
        pd.concat(frames), on=["model", "domain"]
    ).astype({"reason": "str"})
    return points


def _curve_points(large: pd.DataFrame, n: int, confidence: float) -> pd.DataFrame:
    n_rejected, above, level = (
        large[c].to_numpy() for c in ("n_answers", "above", "level")
    )
    credit = np.where(
        large["credit"].isna(),
        np.nan,
        _expected_credit(n_rejected - 1, above, level, n - 1),
    )
    group, first_rows = group_codes(large, ["model", "domain"])
    means = group_means(
        credit,
        group,
        large["cluster"].to_numpy(),
        len(first_rows),
        confidence=confidence,
    )
    frame = (
        large[["model", "domain"]]
        .iloc[first_rows]
        .assign(n=n, accuracy=means.value, se=means.se, low=means.low)
    )
    reason = np.where(means.n_pairs == 0, "no prompt with all scores", means.reason)
    frame = frame.assign(
        high=means.high, n_prompts=means.n_prompts, missing=means.missing, reason=reason
    )
    return frame.assign(chance=1 / n)


def _expected_credit(
    n_rejected: IntArray, above: IntArray, level: IntArray, n_drawn: int
) -> FloatArray:
    """Mean credit of one chosen answer against `n_drawn` of its rejected ones, over all
    draws (hypergeometric).
    """
    # A draw with an answer from above the chosen one earns nothing: only draws from the
    # others are summed.
    below = n_rejected - above - level
    credit = sum(
        comb(level, j) * comb(below, n_drawn - j) / (1 + j) for j in range(n_drawn + 1)
    )
    return np.asarray(credit / comb(n_rejected, n_drawn), np.float64)
