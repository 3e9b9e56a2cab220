"""Every reported number of every model (overall, domains, levels, cells) with an interval clustered by prompt."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import intervals as errors
from rmlab import metrics
from rmlab.stats.grid import Codes, Floats, Grid, allowed, credit, grid
from rmlab.stats.targets import Average, Target, overall, scheme, styled, too_few
from rmlab.tables import LEVELS, STYLES

__all__ = ["Estimate", "estimate", "intervals", "quantities"]

_ROUNDING = 1e-6  # resampled values that spread less do not spread


class Estimate(NamedTuple):
    """One number of every model: value, clustered error, interval limits, and the mean behind them."""

    value: Floats
    se: Floats
    low: Floats
    high: Floats
    n_prompts: NDArray[np.intp]
    reason: list[str]
    mean: errors.WeightedMean


def intervals(
    pairs: pd.DataFrame,
    *,
    average: Average = "benchmark",
    ties: metrics.Ties = "loss",
    method: Literal["analytic", "bootstrap"] = "analytic",
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    common: bool = False,
) -> pd.DataFrame:
    """Every reported number with its interval: one row per model, quantity and name.

    Quantities: "overall" (name "overall"), "domain" (chat ...), "level" (easy, normal, hard) and "cell"
    ("concise > markdown": chosen against rejected style); levels and cells only where comparisons have styles.
    Columns: model, quantity, name, value, se (clustered by prompt, stratified by domain), low, high, n_prompts,
    n_pairs, ties, missing (counted, never losses), reason (why there is no interval, else empty).
    `average`: how domains combine into overall, levels and cells. "benchmark": the mean of RM-Bench's four domains
    where comparisons have styles (missing if a domain is), all prompts alike elsewhere; "domains": the mean of the
    domains there are; "prompts": all prompts alike; or a mapping of domains to weights.
    `method`: "analytic" combines the domains' Wilson intervals, which have the effective sample size that the
    clustered error implies (`rmlab.intervals.stratified_interval`); "bootstrap"
    resamples prompts inside their domain and takes percentiles (the Wilson limits where the spread is zero).
    A domain of fewer than 5 prompts has no interval, nor has any number that needs it. All or none right never gives
    an interval of zero width. Miller (arXiv 2411.00640); Korn and Graubard (1998).
    """
    allowed("method", method, ("analytic", "bootstrap"))
    table = grid(pairs, common=common)
    worth = credit(table.outcome, ties)
    found = []
    for quantity, name, target, chosen in quantities(table, average):
        one = estimate(worth, table, target, chosen=chosen, confidence=confidence)
        if method == "bootstrap":
            one = _percentiles(one, target.strata, confidence, resamples, seed)
        outcome = table.outcome[:, chosen]
        found.append(
            pd.DataFrame({"model": pd.Series(table.models, dtype="str"), "quantity": quantity, "name": name}).assign(
                value=one.value,
                se=one.se,
                low=one.low,
                high=one.high,
                n_prompts=one.n_prompts,
                n_pairs=(~np.isnan(worth[:, chosen])).sum(axis=1),
                ties=(outcome == 1).sum(axis=1),
                missing=(outcome == -1).sum(axis=1),
                reason=pd.Series(one.reason, dtype="str"),
            )
        )
    order = np.concatenate([np.arange(len(table.models))] * len(found)).argsort(kind="stable")
    return pd.concat(found, ignore_index=True).iloc[order].reset_index(drop=True)


def estimate(
    worth: Floats,
    table: Grid,
    target: Target,
    *,
    chosen: NDArray[np.bool_] | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Estimate a target for every row of `worth` (models, comparisons), over the `chosen` comparisons."""
    where = np.ones(len(table.prompt), bool) if chosen is None else chosen
    mean = errors.weighted_mean(
        worth[:, where], target.cells[where], target.weights, table.prompt[where], table.n_prompts
    )
    if target.absent:
        mean = mean._replace(value=np.full_like(mean.value, np.nan))
    se, _ = errors.stratified_error(mean.influence, target.strata)
    n_prompts = (~np.isnan(mean.influence)).sum(axis=1)
    reason = [
        target.absent or ("a domain is blank" if np.isnan(value) else few)
        for value, few in zip(mean.value, too_few(mean.influence, target), strict=True)
    ]
    blank = np.where([r == "" for r in reason], 0.0, np.nan)
    low, high = errors.stratified_interval(mean, target.strata, confidence=confidence)
    return Estimate(mean.value, se + blank, low + blank, high + blank, n_prompts, reason, mean)


def quantities(table: Grid, average: Average) -> Iterator[tuple[str, str, Target, NDArray[np.bool_]]]:
    """Every reported number: quantity, name, target, and which comparisons it is made of."""
    yield "overall", "overall", overall(table, average), np.ones(len(table.prompt), bool)
    full = styled(table)
    level = table.items["level"].cat.codes.to_numpy().astype(np.intp)
    cells, weights = (level, np.full(3, 1 / 3)) if full else (np.zeros(len(level), np.intp), np.ones(1))
    for name in table.items["domain"].sort_index().unique():
        within = (table.items["domain"] == name).to_numpy()
        yield "domain", name, Target(cells, weights, table.domain, table.domains), within
    if not full:
        return
    rule = scheme(table, average)
    strata: Codes = rule.stratum[table.domain]
    mixed = Target(strata[table.prompt], rule.weights, strata, rule.names, rule.absent)
    for number, name in enumerate(LEVELS):
        yield "level", name, mixed, level == number
    for chosen in STYLES:
        for rejected in STYLES:
            where = (table.items["chosen_style"] == chosen) & (table.items["rejected_style"] == rejected)
            yield "cell", f"{chosen} > {rejected}", mixed, where.to_numpy()


def _percentiles(one: Estimate, strata: Codes, confidence: float, resamples: int, seed: int) -> Estimate:
    drawn = errors.bootstrap(one.mean, strata, resamples=resamples, seed=seed)
    tails = [(1 - confidence) / 2, (1 + confidence) / 2]
    low, high = np.quantile(drawn, tails, axis=0).astype(np.float64)
    spread = np.ptp(drawn, axis=0) > _ROUNDING
    known = spread & ~np.isnan(one.low)
    return one._replace(
        se=np.where(np.isnan(one.se), np.nan, drawn.std(axis=0, ddof=1)),
        low=np.where(known, np.clip(low, 0, 1), one.low),
        high=np.where(known, np.clip(high, 0, 1), one.high),
    )
