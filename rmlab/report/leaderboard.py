"""A leaderboard: a benchmark's summary with ranks, groups and baselines."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from rmlab import baselines, scoring, tables
from rmlab.baselines import is_baseline
from rmlab.benchmarks.registry import adopt_name
from rmlab.estimation.estimate import estimate
from rmlab.estimation.weights import Average
from rmlab.metrics import pairs
from rmlab.metrics.prepare import list_numbers, prepare
from rmlab.metrics.summaries import summary, summary_frame
from rmlab.papers.printed import SEVEN_BENCHMARKS, published
from rmlab.report.sources import check_table
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
    common: bool | None = False,
    cluster: str | None = None,
    confidence: float = 0.95,
    **options: str,
) -> pd.DataFrame:
    """Rank models by a benchmark's overall score, with baselines as rows.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs of one benchmark (RewardBench 2 needs scores).
    responses : DataFrame, optional
        The benchmark's texts: with them the baselines of `rmlab.baselines` (but
        `constant`) are scored and added. Without, a row "random draw", whose scores are
        drawn, is added where the table has no baseline.
    average, ties, cluster, confidence, **options
        As in `rmlab.summary`.
    common : bool, optional
        As in `rmlab.summary`. With None each model is shown on what it has, and two
        models are compared on what both have answered.

    Returns
    -------
    DataFrame
        One row per model or baseline, best first: rank (among the models; missing for
        baselines), model, overall, low, high, kind ("model" or "baseline"), the other
        columns of `rmlab.summary`, rank_low, rank_high, group (as in `rmlab.rank`). A
        model without an overall score stands last, without rank or group, and `reason`
        names the remedy. `rmlab.report.show` shows the table without cutting names or
        scores.

    Raises
    ------
    DataError
        For several benchmarks in one table, and for models scored on different items
        unless `common` is True or None.
    """
    entries = with_baselines(check_table(table), responses)
    benchmark, items = prepare(
        entries, average, ties, common, options, cluster=cluster, min_models=1
    )
    names, numbers = list_numbers(benchmark, items, of_summary=True)
    result = estimate(items, numbers, confidence)
    frame = summary_frame(items, names, result)

    is_blind = frame["model"].map(is_baseline)
    frame["kind"] = np.where(is_blind, "baseline", "model")
    frame = frame.assign(**rank_columns(items, result, confidence))
    others = frame.columns.difference([*_FIRST, *_LAST], sort=False)
    frame = frame[[*_FIRST, *others, *_LAST]]
    ordered = frame.sort_values(
        "overall", ascending=False, na_position="last", kind="stable", ignore_index=True
    )
    return tables.copy_provenance(table, ordered)


def compare_benchmarks(
    tables: pd.DataFrame | Iterable[pd.DataFrame], *, average: Average = "benchmark"
) -> pd.DataFrame:
    """Put the overall scores of several benchmarks into one table.

    Parameters
    ----------
    tables : DataFrame or iterable of DataFrame
        Scores or pairs: one table of several benchmarks, or several tables.
    average
        As in `rmlab.summary`.

    Returns
    -------
    DataFrame
        One row per model:

        - model;
        - mean_rank: the mean over the benchmarks of the rank among the models that have
          all of them. It is missing for the other models and for baselines;
        - mean: the mean of the scores of a model that has all of them;
        - the overall score on each benchmark, in a column of its name, and its interval
          in `<name>_low` and `<name>_high`; for the seven benchmarks of model cards
          also `<name>_printed`, what `rmlab.papers.published("seven-benchmarks")` has
          for a model of this name (the part after the last "/");
        - outside: the benchmarks whose printed number is not in the interval;
        - reason: why a score is missing.

        The best mean rank comes first.

    Raises
    ------
    DataError
        Where `rmlab.summary` raises it.
    """
    summaries = []
    for frame in [tables] if isinstance(tables, pd.DataFrame) else tables:
        for name, part in frame.groupby("benchmark", sort=False):
            scores = summary(part, average=average)
            summaries.append(scores.assign(benchmark=name))
    rows = pd.concat(summaries, ignore_index=True)
    refuse_repeats(rows, ["benchmark", "model"], "tables")
    numbers = rows.pivot(index="model", columns="benchmark")
    benchmarks = rows["benchmark"].unique()

    overall = pd.DataFrame(numbers["overall"][benchmarks])
    columns = {
        "mean_rank": _mean_rank(overall),
        "mean": overall.mean(axis=1, skipna=False),
    }
    notes = pd.DataFrame({"outside": "", "reason": ""}, index=numbers.index)
    for name in benchmarks:
        low = numbers["low"][name]
        high = numbers["high"][name]
        columns[name] = overall[name]
        columns[f"{name}_low"] = low
        columns[f"{name}_high"] = high
        if name in SEVEN_BENCHMARKS:
            printed = _printed_scores(name, numbers.index)
            columns[f"{name}_printed"] = printed
            # Printed in per cent with one digit.
            is_outside = (printed < low - 5e-4) | (printed > high + 5e-4)
            notes.loc[is_outside, "outside"] += f", {name}"
        reason = numbers["reason"][name].fillna("not scored")
        notes["reason"] += (f"; {name}: " + reason).where(reason != "", "")
    notes = notes.apply(lambda column: column.str.lstrip(",; "))
    frame = pd.DataFrame(columns).join(notes).reset_index()
    return frame.sort_values("mean_rank", kind="stable", ignore_index=True)


def _printed_scores(benchmark: str, models: pd.Index) -> pd.Series:
    """What model cards print for models of these names, without their owners."""
    table = published("seven-benchmarks").set_index("model")
    column = table[SEVEN_BENCHMARKS[benchmark]].astype(float)
    return column.reindex(models.str.rsplit("/").str[-1]).set_axis(models)


def _mean_rank(overall: pd.DataFrame) -> pd.Series:
    """Mean over the benchmarks of the rank among the models that have all of them."""
    complete = overall.dropna()
    is_ranked = [not is_baseline(name) for name in complete.index]
    scores = complete[is_ranked].round(DECIMALS)
    ranks = scores.rank(ascending=False, method="min")
    return ranks.mean(axis=1).reindex(overall.index)


def with_baselines(
    table: pd.DataFrame, responses: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Add rows of the baselines that scores or pairs lack, at the end.

    With `responses` all of `rmlab.baselines` but `constant`, scored on its texts;
    without, one named "random draw", whose scores are drawn, unless there is a baseline
    already.
    """
    present = {name for name in table["model"].unique() if is_baseline(name)}
    items = table.drop_duplicates(KEY if "score" in table else ITEM)
    # One score for all answers ties every comparison, which ranks nothing.
    absent = [name for name in baselines.NAMES if name not in {*present, "constant"}]
    if responses is not None and absent:
        rows = _score_rows(items, adopt_name(responses, table), absent)
    elif responses is None and not present:
        rows = _draw_rows(items)
    else:
        return table
    return pd.concat([table, rows], ignore_index=True)


def _draw_rows(items: pd.DataFrame) -> pd.DataFrame:
    """The rows of a model whose scores (or margins) are drawn."""
    draw = np.random.default_rng(0).normal(size=len(items))
    drawn = items.assign(model=baselines.DRAWN)
    if "score" in items:
        return drawn.assign(score=draw)
    return drawn.assign(margin=draw, outcome=tables.outcome(draw))


def _score_rows(
    items: pd.DataFrame, responses: pd.DataFrame, names: list[str]
) -> pd.DataFrame:
    """The rows of baselines that read the texts of `items`."""
    scored = scoring.score(responses, names, progress=False)
    key = KEY
    if "score" not in items:
        scored = pairs(scored)
        key = ITEM
    own = items.columns.intersection([*key, "family"])
    texts = scored.drop(columns="family", errors="ignore")
    rows = items[own].merge(texts, how="left", on=key)
    without_text = rows[rows["model"].isna()]
    if len(without_text):
        first = without_text[PROMPT].iloc[0].to_dict()
        problem = f"responses: no text for {len(without_text)} rows, the first {first}"
        raise DataError(problem, "pass the responses of the table")
    return rows.reindex(columns=items.columns)
