"""The command that lets a training run go on or stops it: numbers against bounds, with
their intervals.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pandas as pd
import typer

from rmlab import metrics, stats
from rmlab.bias.gap import style_gap
from rmlab.cli.terminal import say
from rmlab.metrics.pairing import as_pairs
from rmlab.report.sources import read_results
from rmlab.tables import PAIR_KEY, DataError, nearest

_EXIT_CODE = 3
_EXAMPLE = (
    "write number=bound, for example overall=0.7, level:hard=0.5, domain:math=0.6 or "
    "gap=0.3"
)
_FAILS = "fails"
_OPEN = "cannot be decided"
_PASSES = "passes"


class Bound(NamedTuple):
    """A number of `rmlab.estimates` as quantity:name, the style gap or a drop, and its
    limit.
    """

    number: str
    limit: float
    is_minimum: bool

    def judge(self, low: float, high: float) -> str:
        """The verdict on an interval; a missing one fails."""
        is_clear = high <= self.limit
        is_possible = low <= self.limit
        if self.is_minimum:
            is_clear = low >= self.limit
            is_possible = high >= self.limit
        if is_clear:
            return _PASSES
        return _OPEN if is_possible else _FAILS


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
    lines: list[str] = []
    for name, table in read_results(scores).tables.items():
        for bound in bounds:
            lines += _check_bound(name, table, bound, former.get(name))
    # Those that fail first, those that pass last.
    lines.sort(key=lambda line: line.startswith(_PASSES) - line.startswith(_FAILS))
    for line in lines:
        say(line)

    n_failed = sum(line.startswith(_FAILS) for line in lines)
    n_open = sum(line.startswith(_OPEN) for line in lines)
    is_failed = bool(n_failed or (strict and n_open))
    word = "fail" if is_failed else "pass"
    counts = f"{n_failed} of {len(lines)} bounds fail, {n_open} cannot be decided"
    say(f"{word}: {counts}", err=True)
    if is_failed:
        raise typer.Exit(_EXIT_CODE)


def _check_bound(
    benchmark: str, table: pd.DataFrame, bound: Bound, former: pd.DataFrame | None
) -> Iterator[str]:
    """A line in words for each model."""
    side = "at least" if bound.is_minimum else "at most"
    for row in _find_number(table, bound.number, former).to_dict("records"):
        verdict = bound.judge(row["low"], row["high"])
        if np.isnan(row["value"]):
            number = f"{bound.number} is missing ({row['reason']})"
        else:
            interval = f"95 % interval {row['low']:.3f} to {row['high']:.3f}"
            counted = f"{interval}, n = {row['n_prompts']:,.0f} prompts"
            number = f"{bound.number} is {row['value']:.3f} ({counted})"
        yield (
            f"{verdict}: {benchmark}, {row['model']}: {number}, "
            f"the bound is {side} {bound.limit:g}"
        )


def _find_number(
    table: pd.DataFrame, number: str, former: pd.DataFrame | None
) -> pd.DataFrame:
    """One row per model: value, low, high, n_prompts, reason."""
    if number == "gap":
        return style_gap(table).rename(columns={"gap": "value"})
    if number == "drop":
        return _list_drops(table, former)
    numbers = metrics.estimates(table)
    names = numbers["quantity"] + ":" + numbers["name"]
    names = names.where(numbers["quantity"] != numbers["name"], numbers["name"])
    rows = numbers[names == number]
    if rows.empty:
        allowed = nearest(number, [*names.unique(), "gap"])
        raise DataError(f"{number}: no such number", allowed)
    return rows


def _list_drops(table: pd.DataFrame, former: pd.DataFrame | None) -> pd.DataFrame:
    """The loss of overall against the model of the same name, with paired intervals."""
    after = as_pairs(table)
    before = as_pairs(former) if former is not None else after.iloc[:0]
    models = after["model"].unique()
    if len(models) == len(before["model"].unique()) == 1:
        before = before.assign(model=models[0])

    drops = []
    for model in models:
        model_before = before[before["model"] == model]
        model_after = after[after["model"] == model]
        drops.append({"model": model} | _compare_overall(model_before, model_after))
    return pd.DataFrame(drops)


def _compare_overall(before: pd.DataFrame, after: pd.DataFrame) -> dict[str, object]:
    """The difference of a model's overall before and after."""
    columns = ["value", "low", "high", "n_prompts", "reason"]
    if before.empty:
        missing = [np.nan, np.nan, np.nan, 0, "not in the baseline"]
        return dict(zip(columns, missing, strict=True))
    versions = [before.assign(model="before"), after.assign(model="after")]
    pairs = pd.concat(versions, ignore_index=True)
    difference = stats.compare(pairs, "before", "after")
    numbers = difference.rename(columns={"difference": "value"})[columns].iloc[0]
    outcomes = before.set_index(PAIR_KEY)["outcome"]
    if outcomes.sort_index().equals(after.set_index(PAIR_KEY)["outcome"].sort_index()):
        # Not one comparison has another outcome, so there is nothing to estimate.
        numbers[["low", "high"]] = 0.0
    return {str(name): value for name, value in numbers.items()}


def _parse_bound(text: str, *, is_minimum: bool) -> Bound:
    number, _, limit = text.rpartition("=")
    try:
        return Bound(number or limit, float(limit), is_minimum)
    except ValueError:
        message = f"{text!r}; {_EXAMPLE}"
        raise typer.BadParameter(message, param_hint="--min, --max") from None
