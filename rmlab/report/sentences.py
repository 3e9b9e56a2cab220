"""Findings as sentences, none whose interval holds its null value."""

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
    """Write the findings of a table, or each row of a comparison, as sentences.

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
    >>> finding, numbers = rmlab.report.sentences(scores)[0].split(": ")
    >>> finding
    'longest prefers the fancier style'
    >>> numbers
    'easy minus hard is 0.578 (95 % CI 0.454 to 0.667, 64 prompts).'
    """
    columns = {*table.columns}
    if {"difference", "model_a", "model_b", "p"} <= columns:
        comparisons = table.dropna(subset=["difference"])
        return [_compare_sentence(row) for _, row in comparisons.iterrows()]
    if columns.isdisjoint({"score", "outcome", "margin"}):
        problem = "table: no scores, pairs or result of rmlab.compare"
        raise DataError(problem, "pass one of them")

    overall = summary(table).sort_values(
        "overall", ascending=False, kind="stable", na_position="last"
    )
    findings = [*describe_models(table, overall["model"].head(MODELS))]
    ranked = overall.dropna(subset=["overall"])["model"]
    if len(ranked) > 1:
        ranks = rank(table[table["model"].isin(ranked)])
        findings += may_be_first(ranks)
    findings += _count_undecided(overall)
    return findings


def describe_models(
    table: pd.DataFrame, models: Iterable[str], average: Average = "benchmark"
) -> Iterator[str]:
    """Overall score, weakest domain and cost of style, where intervals tell them."""
    models = [*models]
    table = table[table["model"].isin(models)]
    if table.empty:  # a report of content-blind baselines alone
        return
    numbers = estimates(table, average=average)
    for model in models:
        rows = table[table["model"] == model]
        numbers_of_model = numbers[numbers["model"] == model]
        yield from _model_sentences(model, numbers_of_model, rows, average, len(models))


def format_interval(value: float, low: float, high: float, null: float = 0.0) -> str:
    """A value with its interval, the parenthesis left open.

    It has more decimals where rounding would move a limit onto or across `null`.
    """
    decimals = _count_decimals((low, high), null)
    return f"{value:.{decimals}f} (95 % CI {low:.{decimals}f} to {high:.{decimals}f}"


def format_p(p: float) -> str:
    """A p-value with three decimals, or as many as keep it on its side of 0.05."""
    if p < 0.001:
        return "p < 0.001"
    decimals = _count_decimals([p], _ALPHA)
    return f"p = {p:.{decimals}f}"


def _count_decimals(values: Sequence[float], bound: float) -> int:
    """Three, or as many as keep every value on its side of the bound."""
    sides = np.sign(np.subtract(values, bound))
    for decimals in range(3, _MAX_DECIMALS):
        rounded = [round(value, decimals) - bound for value in values]
        if np.array_equal(np.sign(rounded), sides, equal_nan=True):
            return decimals
    return _MAX_DECIMALS


def _compare_sentence(row: pd.Series) -> str:
    """A row of a comparison, the model with the higher score first."""
    first = row["model_a"]
    second = row["model_b"]
    sign = 1.0
    if row["difference"] < 0:
        first, second = second, first
        sign = -1.0
    difference = sign * row["difference"]
    low, high = sorted((sign * row["low"], sign * row["high"]))

    where = ""
    groups = row.loc[:"value_a"].drop(["model_a", "model_b", "value_a"])
    if len(groups):
        where = f" on {', '.join(groups.astype(str))}"
    lead = f"{first} leads {second}{where} by"
    if math.isnan(low):
        return f"{lead} {difference:.3f}, without an interval: {row['reason']}."

    interval = format_interval(difference, low, high)
    test = f"paired t, {format_p(row['p'])}"
    numbers = f"{interval}, {test}, {row['n_prompts']:,} prompts)"
    if low <= 0:
        return f"{first} and {second} do not differ clearly{where}: {numbers}."
    return f"{lead} {numbers}."


def _model_sentences(
    model: str,
    numbers: pd.DataFrame,
    table: pd.DataFrame,
    average: Average,
    n_models: int,
) -> Iterator[str]:
    overall = numbers[numbers["quantity"] == "overall"].iloc[0]
    yield from _overall_score(model, overall)

    domains = _known_domains(numbers)
    # Each model tries every domain, and style or length (Bonferroni).
    n_tests = n_models * (len(domains) + 1)
    confidence = 1 - _ALPHA / n_tests
    if len(domains) > 1:
        yield from _weakest_domain(model, domains, prepare(table, average), confidence)
    if "level" in [*numbers["quantity"]]:
        yield from _style_cost(model, table, average, confidence)
    elif "length" in table:
        yield from _length_cost(model, table, confidence)


def _overall_score(model: str, overall: pd.Series) -> Iterator[str]:
    """The overall score, unless its interval holds chance or is not known."""
    if math.isnan(overall["value"]):
        yield f"{model} has no overall score: {overall['reason']}."
        return
    low = overall["low"]
    high = overall["high"]
    chance = overall["chance"]  # missing where it is not known
    if math.isnan(low) or low <= chance <= high:
        return

    interval = format_interval(overall["value"], low, high, chance)
    against = "" if math.isnan(chance) else f"; chance is {chance:.2f}"
    yield f"{model} scores {interval}, {overall['n_prompts']:,} prompts{against})."
    if high < chance and not is_baseline(model):
        problem = "its chosen and rejected scores may be swapped"
        yield f"{model} is below chance: {problem}."


def _known_domains(numbers: pd.DataFrame) -> pd.DataFrame:
    """Rows of the domains (or sections) that have an error, the lowest value first."""
    domains = numbers[numbers["quantity"].isin(["domain", "section"])]
    if len(domains):
        last_quantity = domains["quantity"].iloc[-1]
        domains = domains[domains["quantity"] == last_quantity]
    domains = domains.dropna(subset=["value", "se"])
    return domains.sort_values("value", kind="stable")


def _weakest_domain(
    model: str, domains: pd.DataFrame, prepared: Prepared, confidence: float
) -> Iterator[str]:
    """Where the lowest domain lies below the mean of the others."""
    weights = prepared.weights()
    names = weights.numbers.itertuples(index=False, name=None)
    mean_of = dict(zip(names, weights.means, strict=True))
    keys = domains[["quantity", "name"]].itertuples(index=False, name=None)
    means = [mean_of[key] for key in keys]

    n_others = len(means) - 1
    factors = [1.0, *[-1 / n_others] * n_others]
    difference = _estimate_contrast(prepared, means, factors, confidence)
    if difference.high.item() < 0:
        weakest = domains.iloc[0]
        interval = format_interval(
            weakest["value"], weakest["low"], weakest["high"], weakest["chance"]
        )
        numbers = f"{interval}, {weakest['n_prompts']:,} prompts)"
        yield f"{model} is weakest in {weakest['name']}: {numbers}."


def _style_cost(
    model: str, table: pd.DataFrame, average: Average, confidence: float
) -> Iterator[str]:
    """Easy minus hard, where the adjusted interval excludes 0."""
    adjusted = style_gap(table, average=average, confidence=confidence).iloc[0]
    if adjusted["low"] > 0 or adjusted["high"] < 0:
        gap = style_gap(table, average=average).iloc[0]
        side = "fancier" if gap["gap"] > 0 else "plainer"
        interval = format_interval(gap["gap"], gap["low"], gap["high"])
        numbers = f"{interval}, {gap['n_prompts']:,} prompts)"
        yield f"{model} prefers the {side} style: easy minus hard is {numbers}."


def _length_cost(model: str, pairs: pd.DataFrame, confidence: float) -> Iterator[str]:
    """Accuracy where the chosen answer is longer less where it is shorter."""
    prepared = prepare(pairs, "prompts", by=["length"], require_complete=False)
    weights = group_weights(prepared, ["length"])
    mean_of = dict(zip(weights.numbers["length"], weights.means, strict=True))
    means = [mean_of["longer"], mean_of["shorter"]]
    factors = [1, -1]
    adjusted = _estimate_contrast(prepared, means, factors, confidence)
    if adjusted.low.item() > 0 or adjusted.high.item() < 0:
        cost = _estimate_contrast(prepared, means, factors)
        difference = cost.value.item()
        side = "longer" if difference > 0 else "shorter"
        interval = format_interval(difference, cost.low.item(), cost.high.item())
        n_prompts = cost.n_prompts.item()
        yield (
            f"{model} wins more often where the chosen answer is {side}: "
            f"longer minus shorter is {interval}, {n_prompts:,} prompts; "
            "length is not the only difference between them)."
        )


def _estimate_contrast(
    prepared: Prepared,
    means: Sequence[WeightedMean],
    factors: Sequence[float],
    confidence: float = 1 - _ALPHA,
) -> Estimate:
    """The sum of the means times their factors, of the only model."""
    numbers = pd.DataFrame(index=range(1))
    weights = Weights(numbers, [contrast(means, factors)], "")
    return estimate(prepared.items, weights, confidence)


def may_be_first(ranks: pd.DataFrame) -> Iterator[str]:
    """The models that no test tells from the best, if there are several."""
    first = ranks.loc[ranks["rank_low"] == 1, "model"].tolist()
    if len(first) < 2:
        return
    names = ", ".join(first[:_NAMES])
    n_more = len(first) - _NAMES
    if n_more > 0:
        names = f"{names} and {n_more} more"
    yield (
        f"{len(first)} of {len(ranks)} models may be first, "
        f"as no test tells them from the best: {names}."
    )


def _count_undecided(overall: pd.DataFrame) -> Iterator[str]:
    """How many comparisons are ties, and how many have no outcome."""
    models = "1 model" if len(overall) == 1 else f"{len(overall)} models"
    for column, finding in (("n_ties", "are ties"), ("missing", "have no outcome")):
        n_comparisons = int(overall[column].sum())
        if n_comparisons:
            yield f"{n_comparisons:,} comparisons of {models} {finding}."
