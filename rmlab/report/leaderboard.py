"""A leaderboard: the benchmark's summary with intervals, ranks, groups, and
content-blind baselines as rows.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from rmlab import baselines, scoring, tables
from rmlab.baselines import is_baseline
from rmlab.benchmarks import benchmark_of
from rmlab.benchmarks.prepare import prepare
from rmlab.benchmarks.registry import adopt_name
from rmlab.estimation.weights import Average
from rmlab.metrics import pairs
from rmlab.metrics.summaries import summary, summary_columns
from rmlab.stats.ranking import DECIMALS, rank_columns
from rmlab.tables import ITEM, KEY, PROMPT, DataError, refuse_repeats

_FIRST = ["rank", "model", "overall", "low", "high", "kind"]
_LAST = ["rank_low", "rank_high", "group"]


def leaderboard(
    table: pd.DataFrame,
    *,
    responses: pd.DataFrame | None = None,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    cluster: str | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    **options: str,
) -> pd.DataFrame:
    """Rank models by a benchmark's overall score, with content-blind baselines as rows.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs of one benchmark (RewardBench 2 needs scores).
    responses : DataFrame, optional
        The benchmark's texts: with them the five baselines of `rmlab.baselines` are
        scored and added. Without, a row "random draw", whose scores are drawn, is added
        where the table has no baseline.
    average, ties, common, cluster, confidence, **options
        As in `rmlab.summary`.
    seed : int
        Seed of the row "random draw".

    Returns
    -------
    DataFrame
        One row per model or baseline, best first: rank (among the models; missing for
        baselines), model, overall, low, high, kind ("model" or "baseline"), the other
        columns of `rmlab.summary`, rank_low, rank_high, group (as in `rmlab.rank`). A
        model without an overall score stands last, without rank or group, and `reason`
        names the way out. `rmlab.report.show` shows the table without cutting names or
        scores.

    Raises
    ------
    DataError
        For several benchmarks in one table, and for models scored on different items
        unless `common`.
    """
    benchmark_of(table)  # one at a time
    checked = (
        tables.check_scores(table, allow_missing=True)
        if "score" in table
        else tables.check_pairs(table)
    )
    entries = with_baselines(checked, responses, seed=seed)
    prepared = prepare(
        entries, average, ties, common, options, cluster=cluster, min_models=1
    )
    frame, overall = summary_columns(prepared, confidence, contrasts=True)
    kind = pd.Series(
        np.where(frame["model"].map(is_baseline), "baseline", "model"), dtype="str"
    )
    frame = frame.assign(kind=kind, **rank_columns(overall, confidence=confidence))
    frame = frame.drop(
        columns=[
            name
            for name in ("prior_sets",)
            if name in frame and frame[name].isna().all()
        ]
    )
    others = frame.columns.difference([*_FIRST, *_LAST], sort=False)
    frame = frame[[*_FIRST, *others, *_LAST]]
    ordered = frame.sort_values(
        "overall", ascending=False, na_position="last", kind="stable", ignore_index=True
    )
    return tables.copy_provenance(table, ordered)


def compare_benchmarks(
    tables: pd.DataFrame | Iterable[pd.DataFrame] | Mapping[str, pd.DataFrame],
    *,
    average: Average = "benchmark",
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Put the overall scores of several benchmarks into one table.

    Parameters
    ----------
    tables : DataFrame, iterable of DataFrame, or mapping
        Scores or pairs: one table of several benchmarks, several tables, or a table of
        each benchmark by its name.
    average, confidence
        As in `rmlab.summary`.

    Returns
    -------
    DataFrame
        One row per model:

        - model;
        - mean_rank: the mean over the benchmarks of the rank among the models that have
          all of them. It is missing for the other models and for baselines;
        - the overall score on each benchmark, in a column of its name, and its interval
          in `<name>_low` and `<name>_high`;
        - reason: why a score is missing.

        The best mean rank comes first.

    Raises
    ------
    DataError
        As in `rmlab.summary`.
    """
    if isinstance(tables, Mapping):
        parts = list(tables.items())
    else:
        frames = [tables] if isinstance(tables, pd.DataFrame) else tables
        parts = [
            part for frame in frames for part in frame.groupby("benchmark", sort=False)
        ]
    summaries = [
        summary(table, average=average, confidence=confidence).assign(
            benchmark=str(name)
        )
        for name, table in parts
    ]
    rows = pd.concat(summaries, ignore_index=True)
    refuse_repeats(rows, ["benchmark", "model"], "tables")
    numbers = rows.pivot(index="model", columns="benchmark")
    benchmarks = rows["benchmark"].unique()

    overall = pd.DataFrame(numbers["overall"][benchmarks])
    complete = overall.dropna()
    is_ranked = [not is_baseline(name) for name in complete.index]
    ranks = complete[is_ranked].round(DECIMALS).rank(ascending=False, method="min")
    frame = pd.DataFrame(
        {"mean_rank": ranks.mean(axis=1)}, index=overall.index
    ).reset_index()

    reasons = pd.Series("", index=frame.index)
    for name in benchmarks:
        column = (
            f"benchmark {name}" if name in ("model", "mean_rank", "reason") else name
        )
        frame[column] = overall[name].array
        frame[f"{column}_low"] = numbers["low"][name].array
        frame[f"{column}_high"] = numbers["high"][name].array
        reason = numbers["reason"][name].fillna("not scored").reset_index(drop=True)
        reasons += (f"; {name}: " + reason).where(reason != "", "")
    frame["reason"] = reasons.str.removeprefix("; ")
    return frame.sort_values("mean_rank", kind="stable", ignore_index=True)


def with_baselines(
    table: pd.DataFrame, responses: pd.DataFrame | None = None, *, seed: int = 0
) -> pd.DataFrame:
    """`table` (scores or pairs) with the rows of content-blind baselines that it lacks,
    at the end.

    With `responses` all of `rmlab.baselines`, scored on the texts that `table` has;
    without, one named "random draw", whose scores are drawn, unless there is a baseline
    already.
    """
    present = {name for name in table["model"].unique() if is_baseline(name)}
    missing = [scorer for name, scorer in baselines.ALL.items() if name not in present]
    if not missing or (present and responses is None):
        return table
    is_scores = "score" in table.columns
    item = KEY if is_scores else ITEM
    items = table.drop_duplicates(item)
    if responses is None:
        draw = np.random.default_rng(seed).normal(size=len(items))
        values = (
            {"score": draw}
            if is_scores
            else {"margin": draw, "outcome": tables.outcome(draw)}
        )
        return pd.concat(
            [table, items.assign(model=baselines.DRAWN, **values)], ignore_index=True
        )
    responses = adopt_name(responses, table)
    texts = responses[
        pd.MultiIndex.from_frame(responses[PROMPT]).isin(
            pd.MultiIndex.from_frame(items[PROMPT])
        )
    ]
    scores = scoring.score(texts, missing, progress=False)
    family = items.columns.intersection(["family"])
    scored = scores if is_scores else pairs(scores)
    scored = scored.drop(columns=family, errors="ignore")
    rows = items[[*item, *family]].merge(scored, how="left", on=item)
    without_text = rows[rows["model"].isna()]
    if len(without_text):
        first = without_text[PROMPT].iloc[0].to_dict()
        raise DataError(
            f"responses: no text in responses for {len(without_text)} rows, the first {first}."
        )
    by_model = rows.reindex(columns=table.columns).groupby("model", sort=False)
    return pd.concat([table, *(part for _, part in by_model)], ignore_index=True)
