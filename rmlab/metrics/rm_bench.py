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
    cell = (model * len(weights) + stratum) * 3 + codes(pairs, "level", tables.LEVEL)
    value = credit(pairs, ties=ties)
    total, n = sums(value, cell, len(models) * len(weights) * 3)
    with np.errstate(invalid="ignore"):
        mean = (total / n).reshape(len(models), len(weights), 3)
    if safety == "pooled":
        mean[_half_safety(pairs, model, len(models)), _DOMAINS.index("safety")] = np.nan
    share = np.array(list(weights.values()))
    overall = share @ mean.mean(axis=2).T
    se, low, high, n_prompts = _overall_interval(pairs, model, value, cell, mean, n, share, confidence)
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
    mean: NDArray[np.float64],
    n: NDArray[np.float64],
    share: NDArray[np.float64],
    confidence: float,
) -> _Interval:
    """Clustered interval of overall: each comparison's influence on it, summed by prompt, squared, summed."""
    models, strata, _ = mean.shape
    weight = np.repeat(share, 3) / 3
    with np.errstate(invalid="ignore", divide="ignore"):
        influence = (value - mean.ravel()[cell]) * weight[cell % (3 * strata)] / n[cell]
    prompt = pairs.groupby(["model", *PROMPT], sort=False).ngroup().to_numpy()
    residual = np.bincount(prompt, np.nan_to_num(influence))
    where = np.zeros(len(residual), np.intp)
    where[prompt] = cell // 3
    squares = np.bincount(where, residual**2, models * strata).reshape(models, strata)
    prompts = np.bincount(where, minlength=models * strata).reshape(models, strata)
    with np.errstate(invalid="ignore", divide="ignore"):
        se = np.sqrt((squares * prompts / (prompts - 1)).sum(axis=1))
    overall = share @ mean.mean(axis=2).T
    se = np.where(np.isnan(overall), np.nan, se)
    n_prompts = prompts.sum(axis=1)
    low, high = intervals.share_interval(overall, se, n_prompts, confidence=confidence)
    return _Interval(se, low, high, n_prompts)


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
