"""Findings as sentences: numbers with n and interval, none whose interval holds its
null value.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pandas as pd

from rmlab.baselines import is_baseline
from rmlab.benchmarks.prepare import Prepared, prepare
from rmlab.bias import style_gap
from rmlab.estimation.estimate import Estimate, estimate
from rmlab.estimation.weights import Average, WeightedMean, Weights, contrast
from rmlab.metrics import estimates, summary
from rmlab.metrics.summaries import group_weights
from rmlab.stats import rank
from rmlab.tables import DataError

MODELS = 5  # models with sentences of their own, the best by overall score
_NAMES = 8  # names in one sentence
_MAX_DECIMALS = 6
_ALPHA = 0.05


def sentences(table: pd.DataFrame) -> list[str]:
    """List the findings of a table as sentences, or write each row of a comparison as a
    sentence for a paper.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs, or the result of `rmlab.compare`. Pairs with a column `length`
        (`rmlab.bias.style_differences`) get the cost of length where there are no
        styles.

    Returns
    -------
    list of str
        In this order: overall score, weakest domain and cost of style (or length) of
        the five best models, models that cannot be told apart from the first, ties and
        missing outcomes. A score whose interval holds chance has no sentence, nor has a
        difference whose interval holds 0 after Bonferroni's adjustment for all
        differences that were tried: the domains of each model, and one for style or
        length. Of a comparison: one sentence a row, with as many decimals as keep
        interval and p from contradicting each other.

    Raises
    ------
    DataError
        For a table that is none of these.

    Examples
    --------
    >>> import rmlab
    >>> scores = rmlab.score(rmlab.load("mini"), "longest")
    >>> rmlab.report.sentences(scores)[0]
    'longest prefers the fancier style: easy minus hard is 0.578 (95 % CI 0.459 to 0.662, 64 prompts).'
    """
    if {"difference", "model_a", "model_b", "p"} <= {*table.columns}:
        return [
            _compare_sentence(row)
            for _, row in table.iterrows()
            if not math.isnan(row["difference"])
        ]
    if not {"score", "outcome", "margin"} & {*table.columns}:
        raise DataError(
            "table: no scores, pairs or result of rmlab.compare. Pass one of them."
        )
    overall = summary(table).sort_values(
        "overall", ascending=False, kind="stable", na_position="last"
    )
    ranked = overall.dropna(subset=["overall"])["model"]
    ranks = (
        rank(table[table["model"].isin(ranked)])
        if len(ranked) > 1
        else pd.DataFrame(columns=["model", "rank_low"])
    )
    return [
        *describe_models(table, overall["model"].head(MODELS)),
        *may_be_first(ranks),
        *_left_over(overall),
    ]


def describe_models(
    table: pd.DataFrame, models: Iterable[str], average: Average = "benchmark"
) -> Iterator[str]:
    """Overall score, weakest domain and cost of style of each model, as far as their
    intervals tell them.
    """
    models = [*models]
    table = table[table["model"].isin(models)]
    if table.empty:  # a report of content-blind baselines alone
        return
    numbers = estimates(table, average=average)
    for model in models:
        yield from _model_sentences(
            model,
            numbers[numbers["model"] == model],
            table[table["model"] == model],
            average,
            len(models),
        )


def format_interval(value: float, low: float, high: float, null: float = 0.0) -> str:
    """A value with its interval, with more decimals where rounding would move a limit
    onto or across `null`.
    """
    decimals = _count_decimals((low, high), null)
    return f"{value:.{decimals}f} (95 % CI {low:.{decimals}f} to {high:.{decimals}f}"


def format_p(p: float) -> str:
    """A p-value with three decimals, more where rounding would move it onto or across
    0.05.
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.{_count_decimals([p], _ALPHA)}f}"


def _count_decimals(values: Sequence[float], bound: float) -> int:
    """Three, or as many as keep every value on its side of the bound."""
    for decimals in range(3, _MAX_DECIMALS):
        rounded = [round(value, decimals) - bound for value in values]
        if np.array_equal(
            np.sign(rounded), np.sign(np.subtract(values, bound)), equal_nan=True
        ):
            return decimals
    return _MAX_DECIMALS


def _compare_sentence(row: pd.Series) -> str:
    first, second, sign = row["model_a"], row["model_b"], 1.0
    if row["difference"] < 0:
        first, second, sign = second, first, -1.0
    low, high = sorted((sign * row["low"], sign * row["high"]))
    place = row.loc[:"value_a"].drop(["model_a", "model_b", "value_a"]).astype(str)
    where = f" on {', '.join(place)}" if len(place) else ""
    difference = sign * row["difference"]
    if math.isnan(low):
        return f"{first} leads {second}{where} by {difference:.3f}, without an interval: {row['reason']}."
    numbers = f"{format_interval(difference, low, high)}, paired t, {format_p(row['p'])}, {row['n_prompts']:,} prompts)"
    if low <= 0:
        return f"{first} and {second} do not differ clearly{where}: {numbers}."
    return f"{first} leads {second}{where} by {numbers}."


def _model_sentences(
    model: str,
    numbers: pd.DataFrame,
    table: pd.DataFrame,
    average: Average,
    n_models: int,
) -> Iterator[str]:
    overall = numbers[numbers["quantity"] == "overall"].iloc[0]
    chance = overall["chance"]  # missing where it is not known
    if math.isnan(overall["value"]):
        yield f"{model} has no overall score: {overall['reason']}."
    elif not overall["low"] <= chance <= overall["high"] and not math.isnan(
        overall["low"]
    ):
        interval = format_interval(
            overall["value"], overall["low"], overall["high"], chance
        )
        against = "" if math.isnan(chance) else f"; chance is {chance:.2f}"
        yield f"{model} scores {interval}, {overall['n_prompts']:,} prompts{against})."
        if overall["high"] < chance and not is_baseline(model):
            yield f"{model} is below chance: its chosen and rejected scores may be swapped."

    domains = _known_domains(numbers)
    # Each model tries every domain, and style or length (Bonferroni).
    confidence = 1 - _ALPHA / (n_models * (len(domains) + 1))
    if len(domains) > 1:
        yield from _weakest_domain(model, domains, prepare(table, average), confidence)
    if "level" in [*numbers["quantity"]]:
        yield from _style_cost(model, table, average, confidence)
    elif "length" in table:
        yield from _length_cost(model, table, confidence)


def _known_domains(numbers: pd.DataFrame) -> pd.DataFrame:
    """Rows of the domains (or sections) that have an error, the lowest value first."""
    domains = numbers[numbers["quantity"].isin(["domain", "section"])]
    if len(domains):
        domains = domains[domains["quantity"] == domains["quantity"].iloc[-1]]
    return domains.dropna(subset=["value", "se"]).sort_values("value", kind="stable")


def _weakest_domain(
    model: str, domains: pd.DataFrame, prepared: Prepared, confidence: float
) -> Iterator[str]:
    """Where the lowest domain lies below the mean of the others."""
    weights = prepared.weights()
    mean_of = dict(
        zip(
            weights.numbers.itertuples(index=False, name=None),
            weights.means,
            strict=True,
        )
    )
    means = [
        mean_of[key]
        for key in domains[["quantity", "name"]].itertuples(index=False, name=None)
    ]
    n_others = len(means) - 1
    factors = [1.0, *[-1 / n_others] * n_others]
    if _estimate_contrast(prepared, means, factors, confidence).high.item() < 0:
        weakest = domains.iloc[0]
        interval = format_interval(
            weakest["value"], weakest["low"], weakest["high"], weakest["chance"]
        )
        yield f"{model} is weakest in {weakest['name']}: {interval}, {weakest['n_prompts']:,} prompts)."


def _style_cost(
    model: str, table: pd.DataFrame, average: Average, confidence: float
) -> Iterator[str]:
    adjusted = style_gap(table, average=average, confidence=confidence).iloc[0]
    if adjusted["low"] > 0 or adjusted["high"] < 0:
        gap = style_gap(table, average=average).iloc[0]
        side = "fancier" if gap["gap"] > 0 else "plainer"
        interval = format_interval(gap["gap"], gap["low"], gap["high"])
        yield f"{model} prefers the {side} style: easy minus hard is {interval}, {gap['n_prompts']:,} prompts)."


def _length_cost(model: str, pairs: pd.DataFrame, confidence: float) -> Iterator[str]:
    """Accuracy where the chosen answer is longer less where it is shorter."""
    prepared = prepare(pairs, "prompts", by=["length"], require_complete=False)
    weights = group_weights(prepared, ["length"])
    mean_of = dict(zip(weights.numbers["length"], weights.means, strict=True))
    sides = [mean_of["longer"], mean_of["shorter"]]
    adjusted = _estimate_contrast(prepared, sides, [1, -1], confidence)
    if adjusted.low.item() > 0 or adjusted.high.item() < 0:
        difference = _estimate_contrast(prepared, sides, [1, -1])
        interval = format_interval(
            difference.value.item(), difference.low.item(), difference.high.item()
        )
        side = "longer" if difference.value.item() > 0 else "shorter"
        yield (
            f"{model} wins more often where the chosen answer is {side}: longer minus shorter is {interval}, "
            f"{difference.n_prompts.item():,} prompts; length is not the only difference between them)."
        )


def _estimate_contrast(
    prepared: Prepared,
    means: Sequence[WeightedMean],
    factors: Sequence[float],
    confidence: float = 1 - _ALPHA,
) -> Estimate:
    """The sum of the means times their factors, of the only model."""
    weights = Weights(pd.DataFrame(index=range(1)), [contrast(means, factors)], "")
    return estimate(prepared.items, weights, confidence)


def may_be_first(ranks: pd.DataFrame) -> Iterator[str]:
    """The models that no test tells from the best, if there are several."""
    first = ranks.loc[ranks["rank_low"] == 1, "model"].tolist()
    if len(first) > 1:
        names = ", ".join(first[:_NAMES]) + (
            f" and {len(first) - _NAMES} more" if len(first) > _NAMES else ""
        )
        yield f"{len(first)} of {len(ranks)} models may be first, as no test tells them from the best: {names}."


def _left_over(overall: pd.DataFrame) -> Iterator[str]:
    for column, finding in (("n_ties", "are ties"), ("missing", "have no outcome")):
        if n_comparisons := int(overall[column].sum()):
            yield f"{n_comparisons:,} comparisons of {len(overall)} models {finding}."
