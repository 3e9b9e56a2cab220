"""Pools: the candidates of a prompt, any number of them right, and how often a score,
or an election, selects a right one among n.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab.estimation.best_of import N_CANDIDATES
from rmlab.estimation.clustered import rows_by_code
from rmlab.estimation.ties import TIES
from rmlab.tables import (
    KEY,
    PROMPT,
    BoolArray,
    DataError,
    FloatArray,
    IntArray,
    group_codes,
)

Credit = Callable[[int], FloatArray]
"""Expected share of right selections of each prompt, for a number of candidates."""

_N_DRAWS = 256  # at least; every candidate comes equally often
_ROUNDING = 1e-12  # sums of rewards that differ by less are equal


class Pools(NamedTuple):
    """Candidates, their prompts (those of each model), and what is counted of these.

    `prompt`, `score` and `is_right` are (candidates,); `prompts`, `size` and `n_right`
    have one entry per model and prompt.
    """

    candidates: pd.DataFrame
    prompt: IntArray
    score: FloatArray
    is_right: BoolArray
    prompts: pd.DataFrame
    size: IntArray
    n_right: IntArray

    def default_sizes(self) -> list[int]:
        """Powers of two up to the smallest pool."""
        n_doublings = int(self.size.min()).bit_length()
        return [2**i for i in range(n_doublings)]


class Curve(NamedTuple):
    """One way to select: its kind, its pools, its credit for each n, and why it has
    none.
    """

    kind: str
    pools: Pools
    credit: Credit
    reason: str = ""


def holds_pools(scores: pd.DataFrame, sizes: Sequence[int] = ()) -> bool:
    """Whether the prompts of a scores table are pools.

    They are where `load_pool` made the table, where best of one is asked for, and where
    a prompt outside RewardBench 2's Ties has not one right answer and some wrong ones.
    """
    if N_CANDIDATES in scores or 1 in sizes:
        return True
    single = scores[scores["subset"] != TIES]
    prompt, first_rows = group_codes(single, ["model", *PROMPT])
    is_right = (single["label"] == "chosen").to_numpy()
    n_right = np.bincount(prompt[is_right], minlength=len(first_rows))
    has_wrong = np.bincount(prompt) > n_right
    return not ((n_right == 1) & has_wrong).all()


def group_pools(scores: pd.DataFrame) -> Pools:
    """The candidates of a checked table of scores by model and prompt."""
    if scores.empty:
        raise DataError("scores: no rows", "look at how they were selected")
    prompt, first_rows = group_codes(scores, ["model", *PROMPT])
    is_right = (scores["label"] == "chosen").to_numpy()
    return Pools(
        candidates=scores,
        prompt=prompt,
        score=scores["score"].to_numpy(np.float64),
        is_right=is_right,
        prompts=scores.iloc[first_rows].reset_index(drop=True),
        size=np.bincount(prompt),
        n_right=np.bincount(prompt[is_right], minlength=len(first_rows)),
    )


def selection_credit(pools: Pools) -> Credit:
    """How often the highest score among n is a right candidate's.

    Candidates of equal score share. With N candidates, a of them above a score and k at
    it, the best of n has this score in (C(N - a, n) - C(N - a - k, n)) / C(N, n) of the
    draws.
    """
    # Levels: the distinct scores of each prompt, from the highest down.
    order = np.lexsort((-pools.score, pools.prompt))
    prompt = pools.prompt[order]
    score = pools.score[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = (np.diff(prompt) != 0) | (score[1:] != score[:-1])
    first_place = np.flatnonzero(is_first)
    level = np.cumsum(is_first) - 1
    prompt_of_level = prompt[first_place]

    n_at_level = np.bincount(level)
    n_right = np.bincount(level, pools.is_right[order])
    size = pools.size[prompt_of_level]
    place_of_prompt = np.cumsum(pools.size) - pools.size
    n_from_level_down = size - (first_place - place_of_prompt[prompt_of_level])
    share_right = n_right / n_at_level
    has_missing = np.bincount(pools.prompt, np.isnan(pools.score)) > 0

    def credit(n: int) -> FloatArray:
        at_most = _share_of_draws(n_from_level_down, size, n)
        below = _share_of_draws(n_from_level_down - n_at_level, size, n)
        earned = (at_most - below) * share_right
        total = np.bincount(prompt_of_level, earned)
        return np.where(has_missing, np.nan, total)

    return credit


def _share_of_draws(n_marked: IntArray, size: IntArray, n: int) -> FloatArray:
    """In which share of the draws of n candidates all are marked ones; NaN where there
    are fewer than n candidates.
    """
    share = np.where(size >= n, 1.0, np.nan)
    for i in range(n):
        # C(m, n) / C(N, n), as a product of n shares.
        share *= np.maximum(n_marked - i, 0) / np.maximum(size - i, 1)
    return share


def list_references(pools: Pools) -> Iterator[Curve]:
    """What a score is compared with: the best and the blind ways to select."""
    candidates = pools.candidates.drop_duplicates(KEY)

    def select_by(kind: str, name: str, score: pd.Series | float) -> Curve:
        scored = group_pools(candidates.assign(model=name, score=score))
        return Curve(kind, scored, selection_credit(scored))

    is_right = (candidates["label"] == "chosen").astype(float)
    yield select_by("any right", "any right", is_right)
    yield select_by("random", "random", 0.0)
    if "answer" in candidates:
        voters = group_pools(candidates.assign(model="majority", score=1.0))
        yield Curve("majority", voters, _vote_credit(voters))
        for _, rows in pools.candidates.groupby("model", sort=False):
            voters = group_pools(rows.reset_index(drop=True))
            reason = ""
            if (voters.score < 0).any():
                reason = "votes weigh at least 0: some rewards are negative"
            yield Curve("weighted majority", voters, _vote_credit(voters), reason)
    if "n_steps" in candidates:
        yield select_by("content-blind", "fewest steps", -candidates["n_steps"])
    if "characters" in candidates:
        yield select_by("content-blind", "shortest", -candidates["characters"])
        yield select_by("content-blind", "longest", candidates["characters"])


def _vote_credit(pools: Pools) -> Credit:
    """How often the final answer with the largest sum of scores among n candidates is
    right; no score may be negative.
    """
    answer, _ = group_codes(pools.candidates, ["model", *PROMPT, "answer"])
    rows_of_prompt = rows_by_code(pools.prompt, len(pools.size))
    has_negative = (pools.score < 0).any()

    def credit(n: int) -> FloatArray:
        share = np.full(len(pools.size), np.nan)
        for prompt, rows in enumerate(rows_of_prompt):
            if len(rows) >= n and not has_negative:
                is_right = pools.is_right[rows]
                share[prompt] = _elect(answer[rows], is_right, pools.score[rows], n)
        return share

    return credit


def _elect(answer: IntArray, is_right: BoolArray, weight: FloatArray, n: int) -> float:
    """How often the answer with the largest sum of weights among n candidates is right,
    over at least 256 draws; exact for one candidate and for all.
    """
    if np.isnan(weight).any():
        return np.nan
    if is_right.all() or not is_right.any():
        return float(is_right[0])
    codes, _ = pd.factorize(answer)
    counts = np.bincount(codes)
    share_right = np.bincount(codes, is_right) / counts
    is_answer = np.eye(len(counts))[codes]

    is_drawn = (_list_draws(len(codes)) < n).astype(np.float64)
    total = is_drawn @ (is_answer * weight[:, None])
    total[is_drawn @ is_answer == 0] = -np.inf
    largest = total.max(axis=1, keepdims=True)
    has_won = total >= largest * (1 - _ROUNDING)
    return float((has_won @ share_right / has_won.sum(axis=1)).mean())


@cache
def _list_draws(n_candidates: int) -> IntArray:
    """(draws, candidates): places of the candidates in orders of a fixed seed; each
    order comes with all its rotations.
    """
    rng = np.random.default_rng(0)
    n_orders = -(-_N_DRAWS // n_candidates)
    order = np.tile(np.arange(n_candidates), (n_orders, 1))
    orders = rng.permuted(order, axis=1)
    rotated = orders[:, None, :] + np.arange(n_candidates)[:, None]
    return (rotated % n_candidates).reshape(-1, n_candidates)
