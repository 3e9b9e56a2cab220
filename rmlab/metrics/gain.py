"""What a larger choice gains: paired differences of best of n."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.estimation.clustered import group_means
from rmlab.estimation.difference import holm
from rmlab.metrics.best_of_n import check_sizes
from rmlab.metrics.pools import (
    Pools,
    default_sizes,
    group_pools,
    selection_credit,
    too_small,
)
from rmlab.tables import PROMPT, FloatArray, IntArray, group_codes


class _Contrast(NamedTuple):
    """Best of `n_a` by one model against best of `n_b` by another, or the same."""

    comparison: str
    model_a: int
    model_b: int
    n_a: int
    n_b: int


class _Credits(NamedTuple):
    """Credit of each model on each prompt, (models, prompts), by n; NaN where missing.

    `cluster` is (prompts,); `smallest` is the size of the smallest pool.
    """

    models: list[str]
    by_size: dict[int, FloatArray]
    cluster: IntArray
    smallest: int


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
    scores = tables.check_scores(scores, allow_missing=True)
    pools = group_pools(scores, cluster)
    sizes = check_sizes(sizes) or default_sizes(pools)
    halves = {n // 2 for n in sizes if n % 2 == 0}
    credits = _credits_by_size(pools, sorted({1, *sizes, *halves}))
    peaks = _find_peaks(credits, sizes)
    rows = []
    for contrast in _list_contrasts(len(credits.models), sizes):
        row = _compare(credits, contrast, confidence)
        rows.append(row | {"peak": peaks[contrast.model_a]})
    table = pd.DataFrame(rows, columns=_COLUMNS).astype({"reason": "str"})
    groups = table.groupby(["comparison", "n_a"])["p"]
    table["p_holm"] = groups.transform(lambda p: holm(p.to_numpy()))
    return table


_COLUMNS = [
    "comparison",
    "model_a",
    "model_b",
    "n_a",
    "n_b",
    "value_a",
    "value_b",
    "difference",
    "se",
    "low",
    "high",
    "p",
    "p_holm",
    "direction",
    "peak",
    "n_prompts",
    "missing",
    "reason",
]


def _credits_by_size(pools: Pools, sizes: Sequence[int]) -> _Credits:
    """Credits laid out so that the same prompt of all models stands in one column."""
    prompt, first_rows = group_codes(pools.prompts.drop(columns="model"), PROMPT)
    model, models = pd.factorize(pools.prompts["model"])
    smallest = int(pools.size.min())
    credit = selection_credit(pools)
    by_size = {}
    for n in sizes:
        by_size[n] = np.full((len(models), len(first_rows)), np.nan)
        if n <= smallest:
            by_size[n][model, prompt] = credit(n)
    return _Credits(list(models), by_size, pools.cluster[first_rows], smallest)


def _find_peaks(credits: _Credits, sizes: Sequence[int]) -> FloatArray:
    """The size at which each model's curve is highest, NaN where none is known; of
    equal ones the smallest.
    """
    curves = np.array([_known_means(credits.by_size[n]) for n in sizes])
    is_known = ~np.isnan(curves)
    highest = np.where(is_known, curves, -np.inf).argmax(axis=0)
    return np.where(is_known.any(axis=0), np.array(sizes)[highest], np.nan)


def _known_means(values: FloatArray) -> FloatArray:
    """Means of rows over what is known; NaN where nothing is."""
    n_known = (~np.isnan(values)).sum(axis=1)
    total = np.nansum(values, axis=1)
    return np.where(n_known > 0, total / np.maximum(n_known, 1), np.nan)


def _list_contrasts(n_models: int, sizes: Sequence[int]) -> Iterator[_Contrast]:
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


def _compare(
    credits: _Credits, contrast: _Contrast, confidence: float
) -> dict[str, object]:
    """The row of one comparison."""
    a = credits.by_size[contrast.n_a][contrast.model_a]
    b = credits.by_size[contrast.n_b][contrast.model_b]
    is_known = ~np.isnan(a - b)
    test = group_means(
        a - b,
        np.zeros(len(a), np.intp),
        credits.cluster,
        1,
        bounds=(-1.0, 1.0),
        confidence=confidence,
    )
    value_a, value_b = _known_means(np.where(is_known, [a, b], np.nan))
    reason = test.reason[0]
    if contrast.n_a > credits.smallest:
        reason = too_small(credits.smallest)
    return {
        "comparison": contrast.comparison,
        "model_a": credits.models[contrast.model_a],
        "model_b": credits.models[contrast.model_b],
        "n_a": contrast.n_a,
        "n_b": contrast.n_b,
        "value_a": value_a,
        "value_b": value_b,
        "difference": test.value[0],
        "se": test.se[0],
        "low": test.low[0],
        "high": test.high[0],
        "p": test.p[0],
        "direction": _name_direction(test.low[0], test.high[0]),
        "n_prompts": len(np.unique(credits.cluster[is_known])),
        "missing": int((~is_known).sum()),
        "reason": reason,
    }


def _name_direction(low: float, high: float) -> str:
    if low > 0:
        return "up"
    return "down" if high < 0 else "open"
