"""A leaderboard: the benchmark's summary with intervals, ranks, groups, and content-blind baselines as rows."""

import numpy as np
import pandas as pd

from rmlab import baselines, scoring, tables
from rmlab.baselines import is_baseline
from rmlab.items.comparisons import ITEM, pairs
from rmlab.items.grid import common_items, require_same_items
from rmlab.items.weighting import Average, weighs
from rmlab.metrics.estimate import estimate
from rmlab.metrics.numbers import overall, read
from rmlab.metrics.summaries import summary_of
from rmlab.stats.comparing import with_way_out
from rmlab.stats.ranking import rank_columns
from rmlab.tables import KEY, PROMPT, DataError

__all__ = ["leaderboard", "with_baselines"]

_FIRST = ["rank", "model", "kind"]
_RANK = ["rank_low", "rank_high", "group"]


def leaderboard(
    table: pd.DataFrame,
    *,
    responses: pd.DataFrame | None = None,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    confidence: float = 0.95,
    seed: int = 0,
    **options: str,
) -> pd.DataFrame:
    """Rank models by a benchmark's overall score: one row per model or baseline, best first.

    `table`: scores or pairs of one benchmark (RewardBench 2 needs scores); the options are those of `rmlab.summary`.
    Columns: rank (among the models; missing for baselines), model, kind ("model" or "baseline"), the columns of
    `summary` (chat ... overall, se, low, high, n_prompts, n_ties, missing, average, reason), rank_low, rank_high, group
    (places and groups that paired comparisons leave open, all at once: as `rmlab.rank` has them). Scores are shares.

    Content-blind baselines belong in every leaderboard: with `responses` (the benchmark's texts) the five of
    `rmlab.baselines` are scored and added; without, a "random" row is drawn where `table` has no baseline.
    A model without an overall score stands last, without rank or group, and `reason` names the way out. With `common`
    models scored on different items are compared on those that all have. Raises DataError for several benchmarks in
    one table, and for models scored on different items unless `common`.
    """
    whole = with_baselines(_checked(table), responses, seed=seed)
    reading = read(whole, average, ties, False, options)
    if common:
        reading = reading._replace(items=common_items(reading.items))
        reading = reading._replace(weighting=reading.benchmark.weighting(reading.items, average, options))
    require_same_items(reading.items, weighs(reading.items, reading.weighting))
    frame = summary_of(reading, confidence=confidence)
    one = estimate(reading.items, overall(reading), confidence=confidence)
    ranks = rank_columns(reading, one, confidence=confidence)
    blind = np.array([is_baseline(name) for name in reading.items.models])
    reasons = with_way_out(frame["reason"], one.value)
    frame = frame.assign(
        kind=np.where(blind, "baseline", "model"), rank=ranks["rank"], reason=pd.Series(reasons, dtype="str"),
        **{column: ranks[column] for column in _RANK},
    )  # fmt: skip
    if frame.get("prior_sets", pd.Series(0.0)).isna().all():
        frame = frame.drop(columns="prior_sets")
    middle = [
        c for c in frame.columns if c not in (*_FIRST, *_RANK, "n_prompts", "n_ties", "missing", "average", "reason")
    ]
    last = [*_RANK, "n_prompts", "n_ties", "missing", "average", "reason"]
    ordered = frame[[*_FIRST, *middle, *last]].sort_values(
        "overall", ascending=False, na_position="last", kind="stable", ignore_index=True
    )
    return tables.made_from(table, ordered)


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
        item = pd.MultiIndex.from_frame(table[ITEM].drop_duplicates())
        made = pairs(scored)
        scored = made[pd.MultiIndex.from_frame(made[ITEM]).isin(item)]
    return pd.concat([table, scored[table.columns]], ignore_index=True)


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
    item = KEY if "score" in table.columns else ITEM
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
