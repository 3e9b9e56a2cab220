"""RM-Bench's summary: four domains, three levels, one overall number and its clustered interval."""

from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import intervals, tables
from rmlab.metrics.columns import allowed, codes, factorise, positions, sums, tally
from rmlab.metrics.comparisons import Ties, credit
from rmlab.tables import LEVELS, PROMPT, DataError

__all__ = ["Safety", "rm_bench"]

Safety = Literal["pooled", "split"]

_DOMAINS = ("chat", "math", "code", "safety")
_SAFETY = ("safety-refuse", "safety-response")
_STRATA: dict[str, dict[str, float]] = {
    "pooled": dict.fromkeys(_DOMAINS, 1 / 4),
    "split": {"chat": 1 / 4, "math": 1 / 4, "code": 1 / 4, **dict.fromkeys(_SAFETY, 1 / 8)},
}


def rm_bench(
    pairs: pd.DataFrame, *, ties: Ties = "loss", safety: Safety = "pooled", confidence: float = 0.95
) -> pd.DataFrame:
    """RM-Bench's summary, one row per model: chat, math, code, safety | easy, normal, hard | overall.

    A domain's level is the mean of its cells, a domain's score the mean of its three levels; easy, normal, hard and
    overall are unweighted means over the four domains, so the mean of the domains equals the mean of the levels.
    `safety="pooled"` counts refuse and response prompts as one domain, as the released runner does; "split"
    averages the two files. A domain that is not all there (of safety: one of the two files) is NaN, and so is every
    mean that needs it.
    Further columns: se, low, high (of overall; prompts are clusters, domains are strata), n_prompts, ties, missing.
    RM-Bench (arXiv 2410.16184), section 3; `scripts/utils.py` of its repository.
    """
    tables.require_columns(pairs, [*tables.PAIR_KEY, "level", "outcome"], "pairs")
    weights = _STRATA[allowed("safety", safety, tuple(_STRATA))]
    model, models = factorise(pairs["model"])
    stratum = _strata(pairs, list(weights), safety)
    cell = stratum * 3 + codes(pairs, "level", tables.LEVEL)
    value = credit(pairs, ties=ties)
    total, n = sums(value, model * len(weights) * 3 + cell, len(models) * len(weights) * 3)
    with np.errstate(invalid="ignore"):
        mean = (total / n).reshape(len(models), len(weights), 3)
    if safety == "pooled":
        mean[_half_safety(pairs, model, len(models)), _DOMAINS.index("safety")] = np.nan
    share = np.array(list(weights.values()))
    overall = share @ mean.mean(axis=2).T
    se, low, high, n_prompts = _overall_interval(pairs, model, value, cell, share, overall, confidence)
    frame = pd.DataFrame({"model": pd.Series(models, dtype="str")}).assign(
        **_domain_columns(mean, list(weights)),
        **dict(zip(LEVELS, np.einsum("s,msl->lm", share, mean), strict=True)),
        overall=overall,
    )
    return frame.assign(se=se, low=low, high=high, n_prompts=n_prompts, **tally(pairs, model, len(models)))


class _Interval(NamedTuple):
    se: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    n_prompts: NDArray[np.intp]


def _overall_interval(
    pairs: pd.DataFrame,
    model: NDArray[np.intp],
    value: NDArray[np.float64],
    cell: NDArray[np.intp],
    share: NDArray[np.float64],
    overall: NDArray[np.float64],
    confidence: float,
) -> _Interval:
    """Clustered interval of overall: prompts are the clusters, the parts that are averaged are the strata."""
    item = pairs.groupby([*PROMPT, "chosen_slot", "rejected_slot"], sort=False).ngroup().to_numpy()
    first = np.unique(item, return_index=True)[1]
    values = np.full((model.max(initial=-1) + 1, len(first)), np.nan)
    values[model, item] = value
    prompt = pairs.iloc[first].groupby(PROMPT, sort=False).ngroup().to_numpy()
    strata = (cell[first] // 3)[np.unique(prompt, return_index=True)[1]]
    mean = intervals.weighted_mean(values, cell[first], np.repeat(share, 3) / 3, prompt, len(strata))
    low, high = intervals.stratified_interval(mean, strata, confidence=confidence)
    se = intervals.stratified_error(mean.influence, strata)[0]
    blank = np.where(np.isnan(overall), np.nan, 0.0)
    n_prompts = (~np.isnan(mean.influence)).sum(axis=1)
    return _Interval(se + blank, low + blank, high + blank, n_prompts)


def _domain_columns(mean: NDArray[np.float64], strata: list[str]) -> dict[str, NDArray[np.float64]]:
    score = mean.mean(axis=2)
    owners = [name.split("-")[0] for name in strata]
    return {d: score[:, [i for i, o in enumerate(owners) if o == d]].mean(axis=1) for d in _DOMAINS}


def _half_safety(pairs: pd.DataFrame, model: NDArray[np.intp], models: int) -> NDArray[np.bool_]:
    """Models whose safety prompts come from one of the two files only, by the names of their subsets."""
    if "subset" not in pairs:
        return np.zeros(models, np.bool_)
    safety = (pairs["domain"] == "safety").to_numpy()
    place = positions(pairs["subset"][safety], _SAFETY)
    found = np.bincount(model[safety] * 3 + place + 1, minlength=models * 3).reshape(models, 3) > 0
    half: NDArray[np.bool_] = found[:, 1] != found[:, 2]
    return half


def _strata(pairs: pd.DataFrame, names: list[str], safety: Safety) -> NDArray[np.intp]:
    benchmarks = pairs["benchmark"].unique()
    if len(benchmarks) > 1:
        raise DataError(
            f"pairs: {len(benchmarks)} benchmarks {sorted(benchmarks)}; keep one: pairs[pairs.benchmark == ...]"
        )
    strange = sorted(set(pairs["domain"].unique()) - set(_DOMAINS))
    if strange:
        raise DataError(
            f"pairs: domain {strange[0]!r} is not one of RM-Bench's {list(_DOMAINS)}; "
            "use reward_bench, reward_bench_2 or accuracy(pairs, by=...)"
        )
    column = pairs["domain"]
    if safety == "split":
        column = column.where(column != "safety", pairs["subset"])
    numbers = positions(column, names)
    if (numbers < 0).any():
        raise DataError(
            f"pairs: subset {column[numbers < 0].iloc[0]!r} inside safety; safety='split' needs {names[3:]}"
        )
    return numbers
