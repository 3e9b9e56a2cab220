"""The command that lets a training run go on or stops it: numbers against bounds, with
their intervals.
"""

from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pandas as pd
import typer

from rmlab import bias, metrics, stats
from rmlab.cli.terminal import say, say_aligned
from rmlab.metrics.pairing import as_pairs
from rmlab.report.sources import read_results
from rmlab.tables import DataError, nearest

FAILED = 3
_EXAMPLE = (
    "write number=bound, for example overall=0.7, level:hard=0.5, domain:math=0.6 or "
    "gap=0.3"
)
_VERDICT = pd.CategoricalDtype(["fail", "undecided", "pass"], ordered=True)
_NUMBER = ["model", "number", "value", "low", "high", "reason"]


class Bound(NamedTuple):
    """A number of `rmlab.estimates`, as quantity:name, the style gap or a drop, and the
    limit.
    """

    number: str
    limit: float
    is_minimum: bool


def gate(
    scores: Annotated[
        list[str], typer.Argument(help="Folders, files or globs of scores and pairs.")
    ],
    minimum: Annotated[
        list[str] | None,
        typer.Option("--min", help="overall=0.7 or level:hard=0.5; repeat."),
    ] = None,
    maximum: Annotated[
        list[str] | None,
        typer.Option("--max", help="gap=0.3: easy minus hard; repeat."),
    ] = None,
    max_drop: Annotated[
        float | None, typer.Option(help="Largest loss of overall against --baseline.")
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="Scores of the model to compare with, of equal name."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Undecided fails too.")
    ] = False,
) -> None:
    """Check scores against bounds; exit code 3 if one fails.

    A bound fails where the whole interval lies beyond it, or where the number is
    missing. It is undecided where the interval holds it: that passes, unless --strict.
    A drop is judged by its paired interval.

    \b
    Examples:
      rmlab gate scores/ --min overall=0.7 --min level:hard=0.5 --max gap=0.3
      rmlab gate new/ --baseline old/ --max-drop 0.01 --strict
    """
    if (max_drop is None) != (baseline is None):
        raise typer.BadParameter("give both", param_hint="--max-drop, --baseline")
    bounds = [_parse_bound(text, is_minimum=True) for text in minimum or ()]
    bounds += [_parse_bound(text, is_minimum=False) for text in maximum or ()]
    if max_drop is not None:
        bounds.append(Bound("drop", max_drop, is_minimum=False))
    if not bounds:
        flags = "--min, --max, --max-drop"
        raise typer.BadParameter("name at least one bound", param_hint=flags)

    former = {} if baseline is None else read_results(str(baseline)).tables
    by_benchmark = []
    for name, table in read_results(scores).tables.items():
        verdicts = check_bounds(table, bounds, former.get(name))
        by_benchmark.append(verdicts.assign(benchmark=name))
    checked = pd.concat(by_benchmark, ignore_index=True)
    checked["verdict"] = checked["verdict"].astype(_VERDICT)
    checked = checked.sort_values("verdict", kind="stable")
    columns = ["verdict", "benchmark", *_NUMBER[:-1], "bound", "reason"]
    say_aligned(checked[columns])

    worst = checked["verdict"].min()
    is_failed = worst == "fail" or (strict and worst == "undecided")
    n_clear = (checked["verdict"] == "pass").sum()
    word = "fail" if is_failed else "pass"
    say(f"{word}: {n_clear} of {len(checked)} bounds hold clearly", err=True)
    if is_failed:
        raise typer.Exit(FAILED)


def check_bounds(
    table: pd.DataFrame, bounds: list[Bound], former: pd.DataFrame | None = None
) -> pd.DataFrame:
    """One row per bound and model: verdict, number, value, low, high, bound, reason."""
    numbers = _list_numbers(table)
    rows = []
    for bound in bounds:
        if bound.number == "gap":
            candidates = _list_gaps(table)
        elif bound.number == "drop":
            candidates = _list_drops(table, former)
        else:
            candidates = numbers[numbers["number"] == bound.number]
        if candidates.empty:
            allowed = nearest(bound.number, [*numbers["number"].unique(), "gap"])
            raise DataError(f"{bound.number}: no such number", allowed)
        rows.append(_judge_bound(candidates[_NUMBER], bound))
    return pd.concat(rows, ignore_index=True)


def _list_numbers(table: pd.DataFrame) -> pd.DataFrame:
    """The estimates with the column number: quantity:name, or the quantity alone where
    both are one word.
    """
    numbers = metrics.estimates(table)
    is_one_word = numbers["quantity"] == numbers["name"]
    two_words = numbers["quantity"] + ":" + numbers["name"]
    return numbers.assign(number=numbers["quantity"].where(is_one_word, two_words))


def _list_gaps(table: pd.DataFrame) -> pd.DataFrame:
    """One row per model: its style gap."""
    gaps = bias.style_gap(table).rename(columns={"gap": "value"})
    return gaps.assign(number="gap")


def _judge_bound(numbers: pd.DataFrame, bound: Bound) -> pd.DataFrame:
    """The numbers with verdict and bound; a missing number fails."""
    if bound.is_minimum:
        comparison = "at least"
        is_clear = numbers["low"] >= bound.limit
        is_possible = numbers["high"] >= bound.limit
    else:
        comparison = "at most"
        is_clear = numbers["high"] <= bound.limit
        is_possible = numbers["low"] <= bound.limit
    verdict = np.where(is_possible, "undecided", "fail")
    verdict = np.where(is_clear, "pass", verdict)
    return numbers.assign(verdict=verdict, bound=f"{comparison} {bound.limit:g}")


def _list_drops(table: pd.DataFrame, former: pd.DataFrame | None) -> pd.DataFrame:
    """One row per model: the loss of overall against the model of the same name, by the
    paired interval.
    """
    after = as_pairs(table)
    before = as_pairs(former) if former is not None else after.iloc[:0]
    models = after["model"].unique()
    if len(models) == 1 and len(before["model"].unique()) == 1:
        before = before.assign(model=models[0])

    drops = []
    for model in models:
        model_before = before[before["model"] == model]
        model_after = after[after["model"] == model]
        drop = _compare_overall(model_before, model_after)
        drops.append(drop.assign(model=model, number="drop"))
    return pd.concat(drops, ignore_index=True)


def _compare_overall(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """The difference of a model's overall before and after."""
    if before.empty:
        missing = {
            "value": [np.nan],
            "low": [np.nan],
            "high": [np.nan],
            "reason": ["not in the baseline"],
        }
        return pd.DataFrame(missing)
    versions = [before.assign(model="before"), after.assign(model="after")]
    pairs = pd.concat(versions, ignore_index=True)
    difference = stats.compare(pairs, "before", "after")
    return difference.rename(columns={"difference": "value"})


def _parse_bound(text: str, *, is_minimum: bool) -> Bound:
    number, _, limit = text.rpartition("=")
    try:
        return Bound(number or limit, float(limit), is_minimum)
    except ValueError:
        message = f"{text!r}; {_EXAMPLE}"
        raise typer.BadParameter(message, param_hint="--min, --max") from None
