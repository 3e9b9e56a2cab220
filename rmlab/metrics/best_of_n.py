"""Best of n: how often the highest of n scores is a right answer's, and what a larger
choice gains.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.estimation.clustered import group_means
from rmlab.estimation.difference import holm
from rmlab.estimation.groups import Group, Numbers, fit_groups
from rmlab.estimation.items import number_clusters, spread
from rmlab.metrics.pools import (
    Curve,
    Pools,
    group_pools,
    holds_pools,
    list_references,
    selection_credit,
)
from rmlab.tables import PROMPT, DataError, FloatArray, group_codes

_GAIN = ["comparison", "model_a", "model_b", "n_a", "n_b", "value_a", "value_b"]
_GAIN += ["difference", "se", "low", "high", "p", "p_holm", "direction", "peak"]
_GAIN += ["n_prompts", "missing", "reason"]
_NO_SCORES = "no prompt with all scores"


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
    "random"; with a column `answer`, "majority" (the most frequent final answer) and
    for each model "weighted majority" (the largest sum of rewards), both over at least
    256 draws; with columns `n_steps` or `characters`, "content-blind" selections by
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
    sizes = _check_sizes(sizes)
    scores = tables.check_scores(scores, allow_missing=True)
    pools = group_pools(scores)
    of_scores = Curve("model", pools, selection_credit(pools))
    if not references and not holds_pools(scores, sizes or ()):
        sizes = sizes or [2, 3, 4]
        points = _draw_points(
            of_scores, sizes, by, cluster, confidence, is_benchmark=True
        )
        return points.drop(columns=["kl", "kind"])
    if "model" not in by:
        raise DataError(f"by: {by} lacks 'model'", "add it")
    curves = [of_scores]
    if references:
        curves += list_references(pools)
    sizes = sizes or pools.default_sizes()
    points_of = []
    for curve in curves:
        points_of.append(_draw_points(curve, sizes, by, cluster, confidence))
    return pd.concat(points_of, ignore_index=True)


def _draw_points(
    curve: Curve,
    sizes: Sequence[int],
    by: list[str],
    cluster: str | None,
    confidence: float,
    *,
    is_benchmark: bool = False,
) -> pd.DataFrame:
    """The rows of a curve, by group and size.

    Of a benchmark those prompts count that have one right answer and n - 1 wrong ones,
    and draws that hold the right one.
    """
    pools = curve.pools
    n = np.array(sizes)
    credits = np.array([curve.credit(size) for size in sizes])
    counts = np.ones(credits.shape, bool)
    if is_benchmark:
        counts = (pools.n_right == 1) & (pools.size >= n[:, None])
        # The right one is among n of N answers in n / N of all draws; the others earn
        # nothing.
        credits *= pools.size / n[:, None]

    def fit(group: Group) -> Numbers:
        size = pools.size[group.rows]
        is_beyond = (n > size.min()) & (not is_benchmark)
        credit = np.where(is_beyond[:, None], np.nan, credits[:, group.rows])
        is_counted = counts[:, group.rows]
        place, prompt = np.nonzero(is_counted)
        means = group_means(
            credit[is_counted],
            place,
            group.cluster[prompt],
            len(sizes),
            confidence,
        )
        reason = np.where(means.n_pairs == 0, curve.reason or _NO_SCORES, means.reason)
        share_right = (pools.n_right[group.rows] / size).mean()
        return {
            "n": n,
            "accuracy": means.value,
            "se": means.se,
            "low": means.low,
            "high": means.high,
            "n_prompts": means.n_pairs,
            "missing": means.missing,
            "reason": np.where(is_beyond, _too_small(size.min()), reason),
            "chance": 1 / n if is_benchmark else share_right,
            "kl": np.log(n) - (n - 1) / n,
            "kind": curve.kind,
        }

    points = fit_groups(pools.prompts, by, cluster, fit)
    points = points[points["n_prompts"] + points["missing"] > 0]
    if points.empty:
        problem = f"sizes: no prompt has one chosen and {sizes[0] - 1} rejected answers"
        raise DataError(problem, "ask for fewer")
    return points.reset_index(drop=True)


def _check_sizes(sizes: Sequence[int] | None) -> list[int] | None:
    """The distinct sizes in their order."""
    if sizes is None:
        return None
    numbers = np.unique(sizes)
    is_whole = np.ndim(sizes) == 1 and numbers.dtype.kind in "iu"
    if not is_whole or not numbers.size or numbers[0] < 1:
        allowed = "whole numbers from 1, for example (1, 2, 4)"
        raise ValueError(f"sizes: {sizes!r}; allowed: {allowed}")
    return list(map(int, numbers))


def _too_small(n_candidates: int) -> str:
    """The reason for which a size has no number."""
    plural = "" if n_candidates == 1 else "s"
    return f"the smallest pool has {n_candidates} candidate{plural}"


def best_of_gain(
    scores: pd.DataFrame,
    *,
    sizes: Sequence[int] | None = None,
    cluster: str | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Compare best of n with best of one, with best of n / 2, and between models.

    Parameters
    ----------
    scores : DataFrame
        A table of scores of pools (`rmlab.load_pool`).
    sizes : sequence of int, optional
        The numbers of candidates; by default the powers of two up to the smallest pool.
    cluster : str, optional
        Column whose values the prompts of a cluster share; default: the prompt.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    DataFrame
        One row per comparison, paired by prompt:

        - comparison: "n and 1", "n and n / 2" (is the curve still rising there?) or
          "models" (at one n);
        - model_a, model_b, n_a, n_b: what is compared;
        - value_a, value_b: shares of right selections, on the prompts of both;
        - difference (a minus b), se, low, high, p, as in `rmlab.compare`;
        - p_holm: adjusted for the rows of the same comparison and n;
        - direction: "up" (the interval is above zero), "down" or "open";
        - peak: the size at which the curve of model_a is highest;
        - n_prompts, missing, reason.

    Raises
    ------
    DataError
        For a table that is none of scores.
    ValueError
        For sizes that are not whole numbers from 1.

    Examples
    --------
    >>> import rmlab
    >>> pool = pd.DataFrame({"prompt": list("aabbccddee"), "correct": [1, 0] * 5})
    >>> pool = rmlab.load_pool(pool.assign(model="m", score=pool["correct"]))
    >>> gain = best_of_gain(pool)
    >>> gain[["comparison", "n_a", "n_b", "difference"]].head(1)
      comparison  n_a  n_b  difference
    0    n and 1    2    1         0.5
    """
    sizes = _check_sizes(sizes)
    scores = tables.check_scores(scores, allow_missing=True)
    pools = group_pools(scores)
    sizes = sizes or pools.default_sizes()
    names = pools.prompts["model"].unique()
    contrasts = list(_list_contrasts(len(names), sizes))
    table = pd.DataFrame(contrasts, columns=_Contrast._fields)
    if table.empty:
        return table.reindex(columns=_GAIN)

    credits = _lay_out_credits(pools, {*sizes, *table["n_b"]})
    curves = pd.DataFrame({n: _mean_rows(credits[n]) for n in sizes})
    # Of equal ones the smallest.
    peaks = curves.fillna(-1).idxmax(axis=1).where(curves.notna().any(axis=1))
    credit_a = np.array([credits[row.n_a][row.model_a] for row in contrasts])
    credit_b = np.array([credits[row.n_b][row.model_b] for row in contrasts])
    difference = credit_a - credit_b
    n_rows, n_prompts = difference.shape
    prompts = pools.prompts.drop_duplicates(PROMPT)
    test = group_means(
        difference.ravel(),
        np.repeat(np.arange(n_rows), n_prompts),
        np.tile(number_clusters(prompts, cluster), n_rows),
        n_rows,
        confidence,
        bounds=(-1.0, 1.0),
    )
    is_missing = np.isnan(difference)
    smallest = pools.size.min()
    reason = np.where(test.n_pairs == 0, _NO_SCORES, test.reason)
    reason = np.where(table["n_a"] > smallest, _too_small(smallest), reason)
    table = table.assign(
        model_a=names[table["model_a"]],
        model_b=names[table["model_b"]],
        value_a=_mean_rows(np.where(is_missing, np.nan, credit_a)),
        value_b=_mean_rows(np.where(is_missing, np.nan, credit_b)),
        difference=test.value,
        se=test.se,
        low=test.low,
        high=test.high,
        p=test.p,
        direction=np.select([test.low > 0, test.high < 0], ["up", "down"], "open"),
        peak=peaks.loc[table["model_a"]].to_numpy(),
        n_prompts=test.n_pairs,
        missing=test.missing,
        reason=pd.Series(reason, dtype="str"),
    )
    of_one_size = table.groupby(["comparison", "n_a"])["p"]
    table["p_holm"] = of_one_size.transform(lambda p: holm(p.to_numpy()))
    return table[_GAIN]


class _Contrast(NamedTuple):
    """What is compared, with the numbers of the two models and their n."""

    comparison: str
    model_a: int
    model_b: int
    n_a: int
    n_b: int


def _list_contrasts(n_models: int, sizes: Sequence[int]) -> Iterator[_Contrast]:
    """The rows of a table of gains."""
    for model in range(n_models):
        for n in sizes:
            if n > 1:
                yield _Contrast("n and 1", model, model, n, 1)
    for model in range(n_models):
        for n in sizes:
            if n % 2 == 0:
                yield _Contrast("n and n / 2", model, model, n, n // 2)
    for n in sizes:
        for first, second in combinations(range(n_models), 2):
            yield _Contrast("models", first, second, n, n)


def _lay_out_credits(pools: Pools, sizes: Iterable[int]) -> dict[int, FloatArray]:
    """Credits by n, (models, prompts) each; NaN beyond the smallest pool."""
    prompt, _ = group_codes(pools.prompts.drop(columns="model"), PROMPT)
    model, _ = group_codes(pools.prompts, ["model"])
    credit = selection_credit(pools)
    credits = {}
    for n in sizes:
        of_prompts = np.where(n <= pools.size.min(), credit(n), np.nan)
        credits[n] = spread(model, prompt, of_prompts, np.nan)
    return credits


def _mean_rows(values: FloatArray) -> "pd.Series[float]":
    """Mean of the known values of each row; NaN where there is none."""
    return pd.DataFrame(values).mean(axis=1)
