"""A leaderboard: the benchmark's summary with intervals, ranks, groups, and content-blind baselines as rows."""

import numpy as np
import pandas as pd

from rmlab import baselines, metrics, scoring, stats, tables
from rmlab.report import standings as standing
from rmlab.tables import KEY, LEVELS, PROMPT, DataError

__all__ = ["leaderboard", "with_baselines"]

_FIRST = ["rank", "model", "kind"]
_RESERVED = (*_FIRST, "overall", "low", "high", "rank_low", "rank_high", "group", "n_prompts", "ties", "missing", "se")
_MOST_DOMAINS = 8
_PAIR_ITEM = [*PROMPT, "chosen_slot", "rejected_slot"]


def leaderboard(
    table: pd.DataFrame,
    *,
    responses: pd.DataFrame | None = None,
    confidence: float = 0.95,
    alpha: float = 0.05,
    seed: int = 0,
    common: bool = False,
) -> pd.DataFrame:
    """Rank models by a benchmark's overall score: one row per model or baseline, best first.

    `table`: scores or pairs of one benchmark (RewardBench 2 needs scores). Columns: rank (among the models; missing
    for baselines), model, kind ("model" or "baseline"), the benchmark's own columns (chat ... overall; for data of
    one's own up to eight domains and the levels, where answers have styles), low, high (of overall), rank_low,
    rank_high (the places that paired comparisons leave open, see `rmlab.rank`), group (models that share a letter
    are not significantly different at `alpha` after Holm), n_prompts, ties, missing. Scores are shares.

    Content-blind baselines belong in every leaderboard: with `responses` (the benchmark's texts) the five of
    `rmlab.baselines` are scored and added; without, a "random" row is drawn where `table` has no baseline.
    A model without an overall score stands last, without rank or group. With `common` models scored on different
    comparisons are compared on those that all have. RewardBench 1: prior sets that only some models have count in
    `overall` but not in groups and rank intervals. Raises DataError for several benchmarks in one table.
    """
    table = _checked(table)
    kind = standing.benchmark_kind(table)
    if kind == "reward-bench-2" and "score" not in table.columns:
        raise DataError("leaderboard: RewardBench 2 is best of four, which pairs do not say; pass the scores")
    whole = with_baselines(table, responses, seed=seed)
    if kind == "reward-bench-2":
        found = standing.from_scores(whole, confidence=confidence)
        summary = (
            metrics.reward_bench_2(whole, confidence=confidence).set_index("model").loc[found.models].reset_index()
        )
    else:
        pairs = metrics.pairs(whole) if "score" in whole.columns else whole
        found = standing.from_pairs(pairs, kind, confidence=confidence, common=common)
        summary = _summary(kind, pairs, found, confidence)
    blind = np.array([is_baseline(name) for name in found.models])
    rank, rank_low, rank_high = standing.rank_interval(found, ~blind, confidence=confidence)
    frame = summary.drop(columns="se").assign(
        kind=np.where(blind, "baseline", "model"),
        rank=rank,
        rank_low=rank_low,
        rank_high=rank_high,
        group=standing.groups(found, alpha=alpha),
    )
    return _ordered(frame, kind)


def with_baselines(table: pd.DataFrame, responses: pd.DataFrame | None = None, *, seed: int = 0) -> pd.DataFrame:
    """`table` (scores or pairs) with the rows of content-blind baselines that it lacks, at the end.

    With `responses` all of `rmlab.baselines`, scored on the texts that `table` has; without, one named "random", whose
    scores are drawn, unless there is a baseline already.
    """
    there = {name for name in table["model"].unique() if is_baseline(name)}
    if responses is None:
        return table if there else pd.concat([table, _drawn(table, seed)], ignore_index=True)
    wanted = [scorer for name, scorer in baselines.ALL.items() if name not in there]
    if not wanted:
        return table
    scored = scoring.score(_scored_texts(table, responses), wanted, progress=False)
    if "score" not in table.columns:
        item = pd.MultiIndex.from_frame(table[_PAIR_ITEM].drop_duplicates())
        made = metrics.pairs(scored)
        scored = made[pd.MultiIndex.from_frame(made[_PAIR_ITEM]).isin(item)]
    return pd.concat([table, scored[table.columns]], ignore_index=True)


def is_baseline(name: str) -> bool:
    """Whether a model's name is that of a content-blind baseline."""
    return name in baselines.NAMES or (name.startswith("random-") and name[7:].isdecimal())


def _checked(table: pd.DataFrame) -> pd.DataFrame:
    checked = (
        tables.check_scores(table, allow_missing=True)[tables.SCORES]
        if isinstance(table, pd.DataFrame) and "score" in table.columns
        else tables.check_pairs(table)[tables.PAIRS]
    )
    benchmarks = sorted(checked["benchmark"].unique())
    if len(benchmarks) != 1:
        raise DataError(
            f"leaderboard: {len(benchmarks)} benchmarks {benchmarks}; one at a time: table[table.benchmark == ...]"
        )
    return checked


def _drawn(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    item = KEY if "score" in table.columns else _PAIR_ITEM
    items = table.drop_duplicates(item).assign(model="random")
    draw = np.random.default_rng(seed).normal(size=len(items))
    if "score" in table.columns:
        return items.assign(score=draw)
    return items.assign(margin=draw, outcome=tables.outcome(draw))


def _scored_texts(table: pd.DataFrame, responses: pd.DataFrame) -> pd.DataFrame:
    """The rows of `responses` whose texts `table` scores."""
    if "score" in table.columns:
        tables.check_match(table, responses)
        wanted = table[KEY]
    else:
        sides = [
            table[[*PROMPT, f"{label}_slot"]].rename(columns={f"{label}_slot": "slot"}).assign(label=label)
            for label in tables.LABELS
        ]
        wanted = pd.concat(sides)[KEY]
        tables.check_match(wanted.astype({"label": tables.LABEL}), responses)
    index = pd.MultiIndex.from_frame(wanted.astype({"label": "str"}).drop_duplicates())
    return responses[pd.MultiIndex.from_frame(responses[KEY].astype({"label": "str"})).isin(index)]


def _summary(kind: str, pairs: pd.DataFrame, found: standing.Standings, confidence: float) -> pd.DataFrame:
    """The benchmark's own table, one row per model in the order of the standings."""
    if kind == "rm-bench":
        frame = metrics.rm_bench(pairs, confidence=confidence)
    elif kind == "reward-bench":
        frame = metrics.reward_bench(pairs, confidence=confidence)
        frame = frame.drop(columns="prior_sets") if frame["prior_sets"].isna().all() else frame
    else:
        frame = _own(pairs, found)
    return frame.set_index("model").loc[found.models].reset_index()


def _own(pairs: pd.DataFrame, found: standing.Standings) -> pd.DataFrame:
    """Overall of data of one's own with its domains and, where answers have styles, its levels."""
    reported = stats.intervals(pairs, average="prompts", common=True)
    several = reported.loc[reported["quantity"] == "domain", "name"].unique()
    named = [*several] if 1 < len(several) <= _MOST_DOMAINS else []
    named += [level for level in LEVELS if level in set(reported.loc[reported["quantity"] == "level", "name"])]
    shown = reported[reported["quantity"].isin(["domain", "level"])].pivot(
        index="model", columns="name", values="value"
    )
    counts = reported[reported["quantity"] == "overall"].set_index("model")[["ties", "missing"]].loc[found.models]
    frame = shown.reindex(columns=named).loc[found.models].rename_axis(columns=None)
    frame = frame.rename(columns={c: f"domain {c}" for c in frame.columns if c in _RESERVED}).reset_index()
    value = {"overall": found.mean.value, "se": found.se, "low": found.low, "high": found.high}
    return frame.assign(**value, n_prompts=found.n_prompts, **{c: counts[c].to_numpy() for c in counts})


def _ordered(frame: pd.DataFrame, kind: str) -> pd.DataFrame:
    last = ["overall", "low", "high", "rank_low", "rank_high", "group", "n_prompts", "ties", "missing"]
    if kind == "reward-bench-2":
        last.remove("ties")  # there it is a subset, not a count
    middle = [c for c in frame.columns if c not in (*_FIRST, *last)]
    frame = frame[[*_FIRST, *middle, *(c for c in last if c in frame.columns)]]
    return frame.sort_values("overall", ascending=False, na_position="last", kind="stable").reset_index(drop=True)
