"""Best of n: how often the highest of n scores is a right answer's."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import comb

from rmlab import tables
from rmlab.estimation.best_of import best_of
from rmlab.estimation.clustered import group_means
from rmlab.estimation.items import cluster_columns, require_item_columns
from rmlab.metrics.pools import holds_pools, pool_curve
from rmlab.tables import PROMPT, DataError, FloatArray, IntArray, group_codes


def best_of_curve(
    scores: pd.DataFrame,
    *,
    sizes: Sequence[int] | None = None,
    by: str | Sequence[str] = ("model", "domain"),
    references: bool = False,
    cluster: str | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Share of right selections when the highest of n scores wins, for several n.

    Parameters
    ----------
    scores : DataFrame
        A table of scores, of pools (`rmlab.load_pool`) or of a benchmark whose prompts
        have one right answer (RewardBench 2).
    sizes : sequence of int, optional
        The numbers of answers; by default the powers of two up to the smallest pool,
        and 2, 3, 4 for a benchmark.
    by : str or sequence of str
        Columns that define a row: "model", and others whose value is the same for all
        answers to a prompt.
    references : bool
        Whether pools get further rows, for what a score is compared with.
    cluster : str, optional
        Column whose values the prompts of a cluster share; default: the prompt.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    DataFrame
        One row per group of `by` and n:

        - model, domain (the columns of `by`), n, accuracy;
        - se, low, high: clustered; missing with fewer than five prompts;
        - n_prompts, missing (prompts of which a score is missing), reason;
        - chance: of a random selection;
        - kl (pools): log n - (n - 1) / n, the largest divergence in nats between the
          selected and all answers;
        - kind (pools): "model", or one of the references.

    Raises
    ------
    DataError
        For a column of `by` that is not there, and where no prompt has one chosen
        answer and enough rejected ones.
    ValueError
        For sizes that are not whole numbers from 1 (from 2 for a benchmark).

    Notes
    -----
    Pools: n candidates are drawn without replacement from all of a prompt, right and
    wrong ones; each prompt counts with the exact mean over all draws (hypergeometric),
    and candidates that share the highest score share the selection. A size larger than
    the smallest pool of a row is missing, with its reason. A table is one of pools
    where `load_pool` made it, `sizes` hold 1, references are asked for, or a prompt
    outside RewardBench 2's Ties has not one right answer and some wrong ones.

    References of pools: "any right" (pass@n, what a perfect selection earns) and
    "random"; with a column `answer`, "majority" (the most frequent final answer, exact)
    and for each model "weighted majority" (the largest sum of rewards, over at least
    256 draws); with columns `n_steps` or `characters`, "content-blind" selections by
    fewest steps, shortest and longest.

    A benchmark: each prompt counts with the exact mean over all ways to draw n - 1 of
    its rejected answers beside the chosen one. Prompts with fewer rejected answers, or
    with several chosen ones, do not count at that n.

    Examples
    --------
    >>> import rmlab
    >>> pool = pd.DataFrame({"prompt": "p", "correct": [1, 0, 0], "score": [3.0, 2, 1]})
    >>> pool = rmlab.load_pool(pool.assign(model="m"))
    >>> curve = best_of_curve(pool, sizes=(1, 2, 3), by="model")
    >>> curve["accuracy"].round(3).tolist()
    [0.333, 0.667, 1.0]
    """
    by = [by] if isinstance(by, str) else list(by)
    numbers = check_sizes(sizes)
    scores = tables.check_scores(scores, allow_missing=True)
    if references or holds_pools(scores, numbers or ()):
        return pool_curve(scores, numbers, by, references, cluster, confidence)

    if numbers is None:
        numbers = [2, 3, 4]
    clusters_by = cluster_columns(scores, cluster)
    require_item_columns(scores, by, [])
    _, first_rows = group_codes(scores, ["model", *PROMPT])
    rows = scores.iloc[first_rows].reset_index(drop=True)
    group, first_of_group = group_codes(rows, by)
    cluster_code, _ = group_codes(rows, clusters_by)
    prompts = best_of(scores).assign(cluster=cluster_code, group=group)
    prompts = prompts[prompts["n_chosen"] == 1]
    frames = []
    for n in numbers:
        large = prompts[prompts["n_answers"] >= n]
        if len(large):
            frames.append(_curve_points(large, n, confidence))
    if not frames:
        problem = (
            f"sizes: no prompt has one chosen and {numbers[0] - 1} rejected answers"
        )
        raise DataError(problem, "ask for fewer")
    # The index is the number of the group.
    points = pd.concat(frames).sort_index(kind="stable")
    names = rows[by].iloc[first_of_group].reset_index(drop=True)
    curve = names.merge(points, left_index=True, right_index=True)
    return curve.reset_index(drop=True).astype({"reason": "str"})


def check_sizes(sizes: Sequence[int] | None) -> list[int] | None:
    """The distinct sizes in their order."""
    if sizes is None:
        return None
    numbers = np.asarray(sizes)
    is_whole = numbers.ndim == 1 and numbers.dtype.kind in "iu"
    if not is_whole or numbers.size == 0 or numbers.min() < 1:
        allowed = "whole numbers from 1, for example (1, 2, 4)"
        raise ValueError(f"sizes: {sizes!r}; allowed: {allowed}")
    return [int(n) for n in np.unique(numbers)]


def _curve_points(large: pd.DataFrame, n: int, confidence: float) -> pd.DataFrame:
    """One row per group for best of n; `large` are prompts with at least n answers,
    their groups and clusters.
    """
    expected = _expected_credit(
        n_rejected=large["n_answers"].to_numpy() - 1,
        above=large["above"].to_numpy(),
        level=large["level"].to_numpy(),
        n_drawn=n - 1,
    )
    group, first_rows = group_codes(large, ["group"])
    means = group_means(
        np.where(large["credit"].isna(), np.nan, expected),
        group,
        large["cluster"].to_numpy(),
        len(first_rows),
        confidence=confidence,
    )
    reason = np.where(means.n_pairs == 0, "no prompt with all scores", means.reason)
    return pd.DataFrame(
        {
            "n": n,
            "accuracy": means.value,
            "se": means.se,
            "low": means.low,
            "high": means.high,
            "n_prompts": means.n_prompts,
            "missing": means.missing,
            "reason": reason,
            "chance": 1 / n,
        },
        index=large["group"].iloc[first_rows],
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
