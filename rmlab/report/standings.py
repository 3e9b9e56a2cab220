"""What a leaderboard says of many models at once: overall scores, ranks with intervals, groups not told apart."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import intervals, metrics, stats, subsets
from rmlab.metrics.reward_bench import SECTIONS
from rmlab.stats.grid import credit, grid
from rmlab.stats.permutation import holm
from rmlab.stats.ranking import rank_columns
from rmlab.stats.reported import estimate
from rmlab.stats.targets import Average, overall

__all__ = ["Standings", "benchmark_kind", "from_pairs", "from_scores", "groups", "paired_p", "rank_interval"]

Floats = NDArray[np.float64]
_ROUNDING = 1e-15  # below this a variance is rounding noise


class Standings(NamedTuple):
    """Overall score of every model and what each prompt does to it, from which everything paired follows."""

    models: list[str]
    mean: intervals.WeightedMean  # rows are models, columns prompts
    strata: NDArray[np.intp]  # of each prompt
    se: Floats
    low: Floats
    high: Floats
    n_prompts: NDArray[np.intp]


def benchmark_kind(frame: pd.DataFrame) -> str:
    """Whose rules a table of scores or pairs follows: rm-bench, reward-bench, reward-bench-2, or own."""
    found = set(frame["subset"].unique())
    styles = frame["style"] if "style" in frame.columns else frame["chosen_style"]
    if found <= {*subsets.RM_BENCH, "safety"} and styles.notna().all():
        return "rm-bench"
    if found <= set(subsets.REWARD_BENCH_2):
        return "reward-bench-2"
    if found <= {*subsets.REWARD_BENCH, *subsets.PRIOR_SETS}:
        return "reward-bench"
    return "own"


def from_pairs(pairs: pd.DataFrame, kind: str, *, confidence: float = 0.95, common: bool = False) -> Standings:
    """Standings of RM-Bench, RewardBench 1 (published weights; prior sets where all models have them) or own data."""
    if kind == "reward-bench":
        pairs = _without_partial_prior_sets(pairs)
    table = grid(pairs, common=common)
    average: Average = "benchmark"
    if kind == "reward-bench":
        average = _section_weights(table.domains)
    target = overall(table, "prompts" if kind == "own" else average)
    one = estimate(credit(table.outcome, "loss"), table, target, confidence=confidence)
    return Standings(table.models, one.mean, target.strata, one.se, one.low, one.high, one.n_prompts)


def from_scores(scores: pd.DataFrame, *, confidence: float = 0.95) -> Standings:
    """Standings of RewardBench 2: best of four with 1/k credit, and the Ties score by pair of prompts."""
    is_ties = scores["domain"] == "Ties"
    parts = []
    if not is_ties.all():
        four = metrics.best_of(scores[~is_ties])
        parts.append(four.assign(unit=four["domain"] + "/" + four["id"], value=four["credit"]))
    if is_ties.any():
        tied = metrics.ties_score(scores[is_ties])
        parts.append(tied.assign(domain="Ties", unit="Ties/" + tied["number"], value=tied["score"]))
    units = pd.concat([part[["model", "domain", "unit", "value"]] for part in parts], ignore_index=True)
    wide = units.pivot(index="model", columns="unit", values="value").loc[list(dict.fromkeys(units["model"]))]
    owner = units.drop_duplicates("unit").set_index("unit")["domain"].loc[wide.columns]
    cells = pd.Categorical(owner, categories=list(subsets.REWARD_BENCH_2)).codes.astype(np.intp)
    weights = np.full(len(subsets.REWARD_BENCH_2), 1 / len(subsets.REWARD_BENCH_2))
    everyone = np.arange(len(cells), dtype=np.intp)
    mean = intervals.weighted_mean(wide.to_numpy(float), cells, weights, everyone, len(cells))
    se = intervals.stratified_error(mean.influence, cells)[0]
    n_prompts = wide.notna().sum(axis=1).to_numpy()
    fewest = wide.notna().T.groupby(cells).sum().min().to_numpy()
    se = np.where(np.isnan(mean.value) | (fewest < intervals.FEWEST), np.nan, se)
    low, high = intervals.stratified_interval(mean, cells, confidence=confidence)
    blank = np.where(np.isnan(se), np.nan, 0.0)
    return Standings(list(wide.index), mean, cells, se, low + blank, high + blank, n_prompts)


def groups(standings: Standings, *, alpha: float = 0.05) -> list[str]:
    """Letters: two models share one unless their paired difference is significant at `alpha` after Holm."""
    value = standings.mean.value
    order = [int(i) for i in np.argsort(-value, kind="stable") if not np.isnan(value[i])]
    if not order:
        return [""] * len(value)
    p = paired_p(standings)[np.ix_(order, order)]
    above = np.triu_indices(len(order), 1)
    differ = np.zeros_like(p, dtype=bool)
    differ[above] = holm(p[above]) < alpha
    shown = stats.letters([standings.models[i] for i in order], differ | differ.T)
    letters = dict(zip(order, shown, strict=True))
    return [letters.get(i, "") for i in range(len(value))]


def paired_p(standings: Standings) -> Floats:
    """Two-sided p of every difference between two models, a symmetric square.

    Student's t of the difference over its error, clustered by prompt and stratified, with Satterthwaite's degrees of
    freedom; never below 2^(1 - n), where n prompts differ. All pairs of models at once from the covariances of what
    each prompt does to their scores, so that hundreds of models take a second; `stats.compare_all` resamples instead.
    """
    from scipy.special import stdtr

    gap, variance, freedom = _differences(standings)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(gap != 0, np.abs(gap) / np.sqrt(variance), 0.0)
        p = 2 * stdtr(np.maximum(freedom, 1.0), -t)
    contribution = np.nan_to_num(standings.mean.contribution)
    differing = np.array([(np.abs(contribution - row) > 1e-12).sum(axis=1) for row in contribution])
    floor = np.minimum(2.0 ** (1 - np.minimum(differing, 1000)), 1.0)
    return np.where(np.isnan(gap), np.nan, np.minimum(np.maximum(p, floor), 1.0))


def _differences(standings: Standings) -> tuple[Floats, Floats, Floats]:
    """Difference (row minus column), its variance and degrees of freedom for every two models: three squares."""
    size = len(standings.models)
    influence = np.nan_to_num(standings.mean.influence)
    total, spent = np.zeros((size, size)), np.zeros((size, size))
    for stratum in np.unique(standings.strata):
        part = influence[:, standings.strata == stratum]
        n = part.shape[1]
        if n < 2:
            continue
        product = part @ part.T
        own = np.diag(product)
        variance = np.maximum(own[:, None] + own[None, :] - 2 * product, 0) * n / (n - 1)
        total += variance
        spent += variance**2 / (n - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = np.where(spent > 0, total**2 / spent, 1.0)
    return standings.mean.value[:, None] - standings.mean.value[None, :], total, freedom


def rank_interval(
    standings: Standings, ranked: NDArray[np.bool_], *, confidence: float = 0.95
) -> tuple[pd.Series, pd.Series, pd.Series]:
    """Rank, rank_low and rank_high among the `ranked` models, by the rule of `rmlab.rank`."""
    gap, variance, freedom = _differences(standings)
    n = standings.n_prompts.max(initial=0) - len(np.unique(standings.strata))
    spread = variance > _ROUNDING
    se = np.where(spread, np.sqrt(variance), 0.0)
    least, _ = intervals.difference_interval(gap, se, np.where(spread, freedom, n) + 1, confidence=confidence)
    value = np.where(ranked, standings.mean.value, np.nan)
    found = rank_columns(value, gap, least, ~np.isnan(standings.se))
    return found["rank"], found["rank_low"], found["rank_high"]


def _section_weights(domains: list[str]) -> dict[str, float]:
    """Weight of each subset in RewardBench 1's overall score; an absent subset keeps its weight, so it is missed."""
    weights = {name: count / sum(section.values()) for section in SECTIONS.values() for name, count in section.items()}
    priors = ("anthropic_helpful", "anthropic_hhh", "shp", "summarize")
    return weights | {name: (0.5 / len(priors) if set(priors) <= set(domains) else 0.0) for name in priors}


def _without_partial_prior_sets(pairs: pd.DataFrame) -> pd.DataFrame:
    """Prior sets that only some models have are left out of comparisons between models."""
    prior = pairs["subset"].isin(subsets.PRIOR_SETS)
    if not prior.any():
        return pairs
    have = pairs[prior].groupby("subset")["model"].nunique()
    everywhere = (have == pairs["model"].nunique()).all() and {"anthropic_helpful", "shp"} <= set(have.index)
    return pairs if everywhere else pairs[~prior].reset_index(drop=True)
