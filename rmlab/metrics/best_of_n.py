"""Best of n: how often the highest of n scores is a right answer's, and what a larger
choice gains.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.special import comb

from rmlab import tables
from rmlab.estimation.best_of import best_of
from rmlab.estimation.clustered import group_means
from rmlab.estimation.difference import holm
from rmlab.estimation.items import (
    cluster_columns,
    refuse_result_names,
    require_item_columns,
    spread,
)
from rmlab.metrics.pools import (
    Curve,
    Pools,
    group_pools,
    holds_pools,
    list_references,
    selection_credit,
)
from rmlab.tables import (
    PROMPT,
    BoolArray,
    DataError,
    FloatArray,
    IntArray,
    group_codes,
)

_CURVE = ["n", "accuracy", "se", "low", "high", "n_prompts", "missing", "reason"]
_CURVE += ["chance", "kl", "kind"]
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
    require_item_columns(scores, by, [])
    refuse_result_names(by, _CURVE)
    if references or holds_pools(scores, sizes or ()):
        if "model" not in by:
            raise DataError(f"by: {by} lacks 'model'", "add it")
        pools = group_pools(scores, cluster)
        curves = [Curve("model", pools, selection_credit(pools))]
        if references:
            curves += list_references(pools, cluster)
        sizes = sizes or pools.default_sizes()
        points = [_draw_pool_points(curve, sizes, by, confidence) for curve in curves]
    else:
        points = [_draw_points(scores, sizes or [2, 3, 4], by, cluster, confidence)]
    return pd.concat(points, ignore_index=True).astype({"reason": "str"})


def _draw_points(
    scores: pd.DataFrame,
    sizes: list[int],
    by: list[str],
    cluster: str | None,
    confidence: float,
) -> pd.DataFrame:
    """The rows of a benchmark's curve: one right answer against n - 1 wrong ones."""
    _, first_rows = group_codes(scores, ["model", *PROMPT])
    rows = scores.iloc[first_rows].reset_index(drop=True)
    group, first_of_group = group_codes(rows, by)
    cluster_code, _ = group_codes(rows, cluster_columns(scores, cluster))
    names = rows[by].iloc[first_of_group].reset_index(drop=True)
    prompts = best_of(scores)
    frames = []
    for n in sizes:
        counts = (prompts["n_chosen"] == 1) & (prompts["n_answers"] >= n)
        places = np.flatnonzero(counts)
        if len(places):
            large = prompts.iloc[places]
            expected = _expected_credit(
                n_rejected=large["n_answers"].to_numpy() - 1,
                above=large["above"].to_numpy(),
                level=large["level"].to_numpy(),
                n_drawn=n - 1,
            )
            credit = np.where(large["credit"].isna(), np.nan, expected)
            points = _estimate_points(
                names, n, credit, group[places], cluster_code[places], confidence
            )
            points["chance"] = 1 / n
            frames.append(points.iloc[np.unique(group[places])])
    if not frames:
        problem = f"sizes: no prompt has one chosen and {sizes[0] - 1} rejected answers"
        raise DataError(problem, "ask for fewer")
    return pd.concat(frames).sort_index(kind="stable")


def _draw_pool_points(
    curve: Curve, sizes: Sequence[int], by: list[str], confidence: float
) -> pd.DataFrame:
    """The rows of a curve of pools."""
    pools = curve.pools
    group, first_rows = group_codes(pools.prompts, by)
    names = pools.prompts[by].iloc[first_rows].reset_index(drop=True)
    smallest = np.full(len(names), pools.size.max())
    np.minimum.at(smallest, group, pools.size)
    chance = np.bincount(group, pools.n_right / pools.size) / np.bincount(group)
    frames = []
    for n in sizes:
        is_large_enough = smallest >= n
        credit = np.where(is_large_enough[group], curve.credit(n), np.nan)
        points = _estimate_points(names, n, credit, group, pools.cluster, confidence)
        if curve.reason:
            points["reason"] = points["reason"].replace(_NO_SCORES, curve.reason)
        too_small = [_too_small(size) for size in smallest]
        points["reason"] = points["reason"].where(is_large_enough, too_small)
        points["chance"] = chance
        points["kl"] = np.log(n) - (n - 1) / n
        points["kind"] = curve.kind
        frames.append(points)
    return pd.concat(frames).sort_index(kind="stable")


def _estimate_points(
    names: pd.DataFrame,
    n: int,
    credit: FloatArray,
    group: IntArray,
    cluster: IntArray,
    confidence: float,
) -> pd.DataFrame:
    """One row per group of prompts, indexed by its number."""
    means = group_means(credit, group, cluster, len(names), confidence=confidence)
    return names.assign(
        n=n,
        accuracy=means.value,
        se=means.se,
        low=means.low,
        high=means.high,
        n_prompts=means.n_prompts,
        missing=means.missing,
        reason=np.where(means.n_pairs == 0, _NO_SCORES, means.reason),
    )


def _check_sizes(sizes: Sequence[int] | None) -> list[int] | None:
    """The distinct sizes in their order."""
    if sizes is None:
        return None
    numbers = np.asarray(sizes)
    is_whole = numbers.ndim == 1 and numbers.dtype.kind in "iu"
    if not is_whole or numbers.size == 0 or numbers.min() < 1:
        allowed = "whole numbers from 1, for example (1, 2, 4)"
        raise ValueError(f"sizes: {sizes!r}; allowed: {allowed}")
    return [int(n) for n in np.unique(numbers)]


def _too_small(n_candidates: int) -> str:
    """The reason for which a size has no number."""
    plural = "" if n_candidates == 1 else "s"
    return f"the smallest pool has {n_candidates} candidate{plural}"


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
    pools = group_pools(scores, cluster)
    sizes = sizes or pools.default_sizes()
    names = pools.prompts["model"].unique()
    table = pd.DataFrame(_list_contrasts(len(names), sizes), columns=_GAIN[:5])
    if table.empty:
        return table.reindex(columns=_GAIN)

    credits = _lay_out_credits(pools, {*sizes, *table["n_b"]})
    peaks = _find_peaks([credits[n] for n in sizes], sizes)
    model_a = table["model_a"].to_numpy()
    model_b = table["model_b"].to_numpy()
    credit_a = _pick_credits(credits, table["n_a"], model_a)
    credit_b = _pick_credits(credits, table["n_b"], model_b)
    difference = credit_a - credit_b
    n_rows, n_prompts = difference.shape
    _, first_rows = group_codes(pools.prompts.drop(columns="model"), PROMPT)
    test = group_means(
        difference.ravel(),
        np.repeat(np.arange(n_rows), n_prompts),
        np.tile(pools.cluster[first_rows], n_rows),
        n_rows,
        bounds=(-1.0, 1.0),
        confidence=confidence,
    )
    is_known = ~np.isnan(difference)
    smallest = pools.size.min()
    reason = np.where(test.n_pairs == 0, _NO_SCORES, test.reason)
    reason = np.where(table["n_a"] > smallest, _too_small(smallest), reason)
    table = table.assign(
        model_a=names[model_a],
        model_b=names[model_b],
        value_a=_mean_where(is_known, credit_a),
        value_b=_mean_where(is_known, credit_b),
        difference=test.value,
        se=test.se,
        low=test.low,
        high=test.high,
        p=test.p,
        direction=np.select([test.low > 0, test.high < 0], ["up", "down"], "open"),
        peak=peaks[model_a],
        n_prompts=test.n_prompts,
        missing=test.missing,
        reason=pd.Series(reason, dtype="str"),
    )
    of_one_size = table.groupby(["comparison", "n_a"])["p"]
    table["p_holm"] = of_one_size.transform(lambda p: holm(p.to_numpy()))
    return table[_GAIN]


def _list_contrasts(
    n_models: int, sizes: Sequence[int]
) -> Iterator[tuple[str, int, int, int, int]]:
    """What is compared, with the two models and their n."""
    for model in range(n_models):
        for n in sizes:
            if n > 1:
                yield "n and 1", model, model, n, 1
    for model in range(n_models):
        for n in sizes:
            if n % 2 == 0:
                yield "n and n / 2", model, model, n, n // 2
    for n in sizes:
        for first, second in combinations(range(n_models), 2):
            yield "models", first, second, n, n


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


def _pick_credits(
    credits: Mapping[int, FloatArray], sizes: Iterable[int], models: IntArray
) -> FloatArray:
    """The credits of a model at a size, (rows, prompts)."""
    rows = [credits[n][model] for n, model in zip(sizes, models, strict=True)]
    return np.array(rows)


def _find_peaks(credits: Sequence[FloatArray], sizes: Sequence[int]) -> FloatArray:
    """The size at which each model's curve is highest, NaN where none is known; of
    equal ones the smallest.
    """
    curves = np.array([_mean_where(~np.isnan(credit), credit) for credit in credits])
    is_known = ~np.isnan(curves)
    highest = np.where(is_known, curves, -np.inf).argmax(axis=0)
    return np.where(is_known.any(axis=0), np.array(sizes)[highest], np.nan)


def _mean_where(counts: BoolArray, values: FloatArray) -> FloatArray:
    """Means of the values of each row that count; NaN where none does."""
    total = np.where(counts, values, 0.0).sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.asarray(total / counts.sum(axis=1))
