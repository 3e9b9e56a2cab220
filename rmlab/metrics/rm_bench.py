"""RM-Bench's summary: four domains, three levels, one overall number and its clustered interval."""

from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import intervals, tables
from rmlab.metrics.columns import allowed, positions
from rmlab.metrics.comparisons import TIE_CREDIT, Ties
from rmlab.metrics.counts import check_nine, count
from rmlab.tables import LEVELS, DataError

__all__ = ["Safety", "rm_bench"]

Safety = Literal["pooled", "split"]
Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

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
    Further columns: se, low, high (of overall; prompts are clusters, domains are strata; missing where a domain, or
    with "split" a file, has fewer than 5 prompts: `rmlab.intervals` has the reason), n_prompts, ties, missing.
    Raises DataError where a model has some of a prompt's nine comparisons only: score all six answers.
    RM-Bench (arXiv 2410.16184), section 3; `scripts/utils.py` of its repository.
    """
    tables.require_columns(pairs, [*tables.PAIR_KEY, "level", "outcome"], "pairs")
    part = _STRATA[allowed("safety", safety, tuple(_STRATA))]
    if safety == "split":
        tables.require_columns(pairs, ["subset"], "pairs")
    tie_credit = TIE_CREDIT[allowed("ties", ties, tuple(TIE_CREDIT))]
    counts = count(pairs)
    stratum = _strata(pairs, counts.first, list(part), safety)
    there = check_nine(pairs, counts)
    n = counts.loss + counts.win + (0 if np.isnan(tie_credit) else counts.tie)
    worth = counts.win + np.nan_to_num(tie_credit) * counts.tie
    weights = np.array(list(part.values()))
    mean, effects = _weighted(worth, n.astype(np.float64), stratum, weights)
    if safety == "pooled":
        mean[_half_safety(pairs, counts.first, there), :, _DOMAINS.index("safety")] = np.nan
    overall = mean.mean(axis=1) @ weights
    return pd.DataFrame(
        {
            "model": counts.models.astype("str"),
            **_domains(mean.mean(axis=1), list(part)),
            **dict(zip(LEVELS, (mean @ weights).T, strict=True)),
            "overall": overall,
            **_interval(effects, stratum, np.isnan(overall), confidence),
            "ties": counts.tie.sum(axis=(1, 2)),
            "missing": counts.missing.sum(axis=(1, 2)),
        }
    )


def _weighted(worth: Floats, n: Floats, stratum: Codes, weights: Floats) -> tuple[Floats, intervals.WeightedMean]:
    """Mean of each level and stratum, (models, levels, strata), and overall with what each prompt does to it.

    `worth` and `n` (models, levels, prompts) are what the comparisons earn together, and how many there are.
    """
    member = (stratum[:, None] == np.arange(len(weights))).astype(np.float64)
    size = n @ member
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (worth @ member) / size
        scale = np.where(size > 0, weights / len(LEVELS) / size, 0.0)[..., stratum]
    weight = n * scale
    share = weight.sum(axis=1)
    blank = np.where(share > 0, 0.0, np.nan)
    contribution = (worth * scale).sum(axis=1) + blank
    expected = (weight * np.nan_to_num(mean)[..., stratum]).sum(axis=1)
    value = mean.mean(axis=1) @ weights
    return mean, intervals.WeightedMean(value, contribution, contribution - expected, share)


def _interval(
    effects: intervals.WeightedMean, stratum: Codes, absent: NDArray[np.bool_], confidence: float
) -> dict[str, NDArray[np.generic]]:
    """Clustered error and interval of overall: prompts are the clusters, the parts that are averaged are the strata."""
    low, high = intervals.stratified_interval(effects, stratum, confidence=confidence)
    se = intervals.stratified_error(effects.influence, stratum)[0]
    counted = effects.share > 0
    n = counted.astype(np.float64) @ (stratum[:, None] == np.arange(stratum.max(initial=-1) + 1))
    few = ((n > 0) & (n < intervals.FEWEST)).any(axis=1)
    blank = np.where(absent | few, np.nan, 0.0)
    return {"se": se + blank, "low": low + blank, "high": high + blank, "n_prompts": counted.sum(axis=1)}


def _domains(score: Floats, strata: list[str]) -> dict[str, Floats]:
    owners = [name.split("-")[0] for name in strata]
    return {d: score[:, [i for i, o in enumerate(owners) if o == d]].mean(axis=1) for d in _DOMAINS}


def _half_safety(pairs: pd.DataFrame, first: Codes, there: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Models whose safety prompts come from one of the two files only, by the names of their subsets.

    `there` (models, prompts) says which model has which prompt.
    """
    if "subset" not in pairs:
        return np.zeros(len(there), np.bool_)
    file = positions(pairs["subset"].array[first], _SAFETY)
    half: NDArray[np.bool_] = there[:, file == 0].any(axis=1) != there[:, file == 1].any(axis=1)
    return half


def _strata(pairs: pd.DataFrame, first: Codes, strata: list[str], safety: Safety) -> Codes:
    """Stratum of each prompt, by the first row of each."""
    benchmarks = pairs["benchmark"].array[first].unique()
    if len(benchmarks) > 1:
        raise DataError(
            f"pairs: {len(benchmarks)} benchmarks {sorted(benchmarks)}; keep one: pairs[pairs.benchmark == ...]"
        )
    names = pairs["domain"].array[first]
    domain = positions(names, _DOMAINS)
    if (domain < 0).any():
        raise DataError(
            f"pairs: domain {min(names[domain < 0])!r} is not one of RM-Bench's {list(_DOMAINS)}; "
            "use reward_bench, reward_bench_2 or accuracy(pairs, by=...)"
        )
    if safety == "pooled":
        return domain
    files = np.where(np.asarray(names) == "safety", np.asarray(pairs["subset"].array[first]), np.asarray(names))
    file = positions(files, strata)
    if (file < 0).any():
        raise DataError(f"pairs: subset {files[file < 0][0]!r} inside safety; safety='split' needs {strata[3:]}")
    return file
