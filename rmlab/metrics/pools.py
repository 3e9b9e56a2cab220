"""Pools: the candidates of a prompt, any number of them right, and how often a score
selects a right one among n.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab.estimation.best_of import N_CANDIDATES
from rmlab.estimation.clustered import group_means
from rmlab.estimation.items import cluster_columns, require_item_columns
from rmlab.estimation.ties import TIES
from rmlab.metrics.majority import Ballot, majority_credit, weighted_credit
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


class Pools(NamedTuple):
    """Candidates, their prompts (those of each model), and what is counted of these.

    `prompt`, `score` and `is_right` are (candidates,); `prompts`, `size`, `n_right` and
    `cluster` have one entry per model and prompt.
    """

    candidates: pd.DataFrame
    prompt: IntArray
    score: FloatArray
    is_right: BoolArray
    prompts: pd.DataFrame
    size: IntArray
    n_right: IntArray
    cluster: IntArray


class _Curve(NamedTuple):
    """One way to select: its kind, its pools, and its credit for each n."""

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


def group_pools(scores: pd.DataFrame, cluster: str | None) -> Pools:
    """The candidates of a checked table of scores by model and prompt."""
    if scores.empty:
        raise DataError("scores: no rows", "look at how they were selected")
    prompt, first_rows = group_codes(scores, ["model", *PROMPT])
    prompts = scores.iloc[first_rows].reset_index(drop=True)
    is_right = (scores["label"] == "chosen").to_numpy()
    clusters = group_codes(prompts, cluster_columns(scores, cluster))[0]
    return Pools(
        candidates=scores,
        prompt=prompt,
        score=scores["score"].to_numpy(np.float64),
        is_right=is_right,
        prompts=prompts,
        size=np.bincount(prompt),
        n_right=np.bincount(prompt[is_right], minlength=len(first_rows)),
        cluster=clusters,
    )


def default_sizes(pools: Pools) -> list[int]:
    """Powers of two up to the smallest pool."""
    n_doublings = int(pools.size.min()).bit_length()
    return [2**i for i in range(n_doublings)]


def pool_curve(
    scores: pd.DataFrame,
    sizes: Sequence[int] | None,
    by: list[str],
    references: bool,
    cluster: str | None,
    confidence: float,
) -> pd.DataFrame:
    """The rows of `best_of_curve` for a checked table of pools."""
    if "model" not in by:
        raise DataError(f"by: {by} lacks 'model'", "add it")
    require_item_columns(scores, by, [])
    pools = group_pools(scores, cluster)
    if sizes is None:
        sizes = default_sizes(pools)

    curves = [_Curve("model", pools, selection_credit(pools))]
    if references:
        curves += _list_references(pools, cluster)
    frames = [_draw_points(curve, sizes, by, confidence) for curve in curves]
    return pd.concat(frames, ignore_index=True).astype({"reason": "str"})


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
    is_complete = ~has_missing(pools)

    def credit(n: int) -> FloatArray:
        at_most = share_of_draws(n_from_level_down, size, n)
        below = share_of_draws(n_from_level_down - n_at_level, size, n)
        earned = (at_most - below) * share_right
        total = np.bincount(prompt_of_level, earned)
        return np.where(is_complete, total, np.nan)

    return credit


def has_missing(pools: Pools) -> BoolArray:
    """Which prompts have a candidate without a score."""
    return np.bincount(pools.prompt, np.isnan(pools.score)) > 0


def too_small(n_candidates: int) -> str:
    """The reason for which a size has no number."""
    plural = "" if n_candidates == 1 else "s"
    return f"the smallest pool has {n_candidates} candidate{plural}"


def share_of_draws(n_marked: IntArray, size: IntArray, n: int) -> FloatArray:
    """In which share of the draws of n candidates all are marked ones; NaN where there
    are fewer than n candidates.
    """
    share = np.full(len(size), np.nan)
    present_sizes = np.flatnonzero(np.bincount(size))
    for n_candidates in present_sizes[present_sizes >= n]:
        # C(m, n) / C(N, n) for all m, as a product of n shares.
        marked = np.arange(n_candidates + 1)
        share_of_marked = np.ones(n_candidates + 1)
        for i in range(n):
            share_of_marked *= np.maximum(marked - i, 0) / (n_candidates - i)
        is_here = size == n_candidates
        share[is_here] = share_of_marked[n_marked[is_here]]
    return share


def _draw_points(
    curve: _Curve, sizes: Sequence[int], by: list[str], confidence: float
) -> pd.DataFrame:
    """One row per group of prompts and n."""
    pools = curve.pools
    group, first_rows = group_codes(pools.prompts, by)
    names = pools.prompts.iloc[first_rows][by].reset_index(drop=True)
    n_groups = len(first_rows)
    smallest = np.full(n_groups, pools.size.max())
    np.minimum.at(smallest, group, pools.size)
    chance = np.bincount(group, pools.n_right / pools.size) / np.bincount(group)

    frames = []
    for n in sizes:
        is_large_enough = smallest >= n
        credit = np.where(is_large_enough[group], curve.credit(n), np.nan)
        means = group_means(
            credit, group, pools.cluster, n_groups, confidence=confidence
        )
        reason = means.reason
        reason[means.n_pairs == 0] = curve.reason or "no prompt with all scores"
        for i in np.flatnonzero(~is_large_enough):
            reason[i] = too_small(smallest[i])

        numbers: dict[str, object] = {
            "n": n,
            "accuracy": means.value,
            "se": means.se,
            "low": means.low,
            "high": means.high,
            "n_prompts": means.n_prompts,
            "missing": means.missing,
            "reason": reason,
            "chance": chance,
            "kl": np.log(n) - (n - 1) / n,
            "kind": curve.kind,
        }
        frames.append(pd.DataFrame({**names, **numbers}))
    # The index is the number of the group.
    return pd.concat(frames).sort_index(kind="stable")


def _list_references(pools: Pools, cluster: str | None) -> Iterator[_Curve]:
    """What a score is compared with: the best and the blind ways to select."""
    candidates = pools.candidates.drop_duplicates(KEY)

    def group_as(name: str, score: pd.Series | float = 0.0) -> Pools:
        return group_pools(candidates.assign(model=name, score=score), cluster)

    oracle = group_as("any right")
    yield _Curve("any right", oracle, _any_right_credit(oracle))
    blind = group_as("random")
    yield _Curve("random", blind, selection_credit(blind))
    if "answer" in candidates:
        voters = group_as("majority")
        yield _Curve("majority", voters, _vote_credit(voters, majority_credit))
        yield from _list_weighted_majorities(pools, cluster)
    for name, score in _list_blind_scores(candidates):
        baseline = group_as(name, score)
        yield _Curve("content-blind", baseline, selection_credit(baseline))


def _any_right_credit(pools: Pools) -> Credit:
    """How often n candidates hold a right one (pass@n)."""
    n_wrong = pools.size - pools.n_right
    return lambda n: 1 - share_of_draws(n_wrong, pools.size, n)


def _list_weighted_majorities(pools: Pools, cluster: str | None) -> Iterator[_Curve]:
    """The answer with the largest sum of rewards, by model."""
    model = pools.candidates["model"]
    for name in model.unique():
        own = pools.candidates[model == name].reset_index(drop=True)
        voters = group_pools(own, cluster)
        if (voters.score < 0).any():
            reason = "votes weigh at least 0: some rewards are negative"
            yield _Curve("weighted majority", voters, _no_credit(voters), reason)
        else:
            credit = _vote_credit(voters, weighted_credit)
            yield _Curve("weighted majority", voters, credit)


def _no_credit(pools: Pools) -> Credit:
    return lambda n: np.full(len(pools.size), np.nan)


def _list_blind_scores(candidates: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    """Scores that do not read the answers, where the table has what they count."""
    if "n_steps" in candidates:
        yield "fewest steps", -candidates["n_steps"]
    if "characters" in candidates:
        yield "shortest", -candidates["characters"]
        yield "longest", candidates["characters"]


def _vote_credit(pools: Pools, count_votes: Callable[[Ballot, int], float]) -> Credit:
    """The credit of an election among the final answers of n candidates."""
    answer, _ = group_codes(pools.candidates, ["model", *PROMPT, "answer"])
    # Where all are right or all are wrong, there is nothing to elect.
    always = np.where(pools.n_right == 0, 0.0, 1.0)
    always[has_missing(pools)] = np.nan
    is_mixed = (pools.n_right > 0) & (pools.n_right < pools.size)
    is_mixed &= ~np.isnan(always)

    rows = np.argsort(pools.prompt, kind="stable")
    rows_of_prompt = np.split(rows, np.cumsum(pools.size)[:-1])
    ballots = {}
    for i in np.flatnonzero(is_mixed):
        rows = rows_of_prompt[i]
        codes = pd.factorize(answer[rows])[0]
        ballots[i] = Ballot(codes, pools.is_right[rows], pools.score[rows])

    def credit(n: int) -> FloatArray:
        share = np.where(pools.size >= n, always, np.nan)
        for i, ballot in ballots.items():
            if pools.size[i] >= n:
                share[i] = count_votes(ballot, n)
        return share

    return credit
