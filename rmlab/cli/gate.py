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
from rmlab.estimation.items import as_pairs
from rmlab.report.sources import read_results
from rmlab.tables import DataError, nearest

FAILED = 3
_EXAMPLE = "write number=bound, for example overall=0.7, level:hard=0.5, domain:math=0.6 or gap=0.3"
_NUMBER = ["model", "number", "value", "low", "high", "reason"]


class Bound(NamedTuple):
    """A number of `rmlab.estimates`, as quantity:name, the style gap or a drop, and the
    limit that it must keep.
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
    bounds += [] if max_drop is None else [Bound("drop", max_drop, is_minimum=False)]
    if not bounds:
        raise typer.BadParameter(
            "name at least one bound", param_hint="--min, --max, --max-drop"
        )
    former = {} if baseline is None else read_results(str(baseline)).tables
    rows = [
        check_bounds(table, bounds, former.get(name)).assign(benchmark=name)
        for name, table in read_results(scores).tables.items()
    ]
    checked = pd.concat(rows, ignore_index=True)
    checked["verdict"] = pd.Categorical(
        checked["verdict"], ["fail", "undecided", "pass"], ordered=True
    )
    checked = checked.sort_values("verdict", kind="stable")
    say_aligned(checked[["verdict", "benchmark", *_NUMBER[:-1], "bound", "reason"]])
    is_failed = checked["verdict"].cat.codes.min() <= strict
    n_clear, word = (
        (checked["verdict"] == "pass").sum(),
        "fail" if is_failed else "pass",
    )
    say(f"{word}: {n_clear} of {len(checked)} bounds hold clearly", err=True)
    if is_failed:
        raise typer.Exit(FAILED)


def check_bounds(
    table: pd.DataFrame, bounds: list[Bound], former: pd.DataFrame | None = None
) -> pd.DataFrame:
    """One row per bound and model: verdict, number, value, low, high, bound, reason."""
    numbers = metrics.estimates(table)
    is_alone = numbers["quantity"] == numbers["name"]
    numbers["number"] = numbers["quantity"].where(
        is_alone, numbers["quantity"] + ":" + numbers["name"]
    )
    allowed = [*numbers["number"].unique(), "gap"]
    rows = []
    for bound in bounds:
        candidates = numbers[numbers["number"] == bound.number]
        if bound.number == "gap":
            candidates = (
                bias.style_gap(table)
                .assign(number="gap")
                .rename(columns={"gap": "value"})
            )
        elif bound.number == "drop":
            candidates = _list_drops(table, former)
        if candidates.empty:
            raise DataError(
                f"{bound.number}: no such number; {nearest(bound.number, allowed)}."
            )
        sign, limit = (1, "at least") if bound.is_minimum else (-1, "at most")
        limits = candidates[["low", "high"]].to_numpy(np.float64)[:, ::sign] * sign
        # A number beyond the bound fails, and so does a missing one.
        verdict = np.where(limits[:, 1] >= sign * bound.limit, "undecided", "fail")
        verdict = np.where(limits[:, 0] >= sign * bound.limit, "pass", verdict)
        rows.append(
            candidates[_NUMBER].assign(
                verdict=verdict, bound=f"{limit} {bound.limit:g}"
            )
        )
    return pd.concat(rows, ignore_index=True)


def _list_drops(table: pd.DataFrame, former: pd.DataFrame | None) -> pd.DataFrame:
    """One row per model: what its overall lost against the model of the same name, by
    the paired interval.
    """
    after = as_pairs(table)
    before = as_pairs(former) if former is not None else after.iloc[:0]
    models = after["model"].unique()
    if len(models) == before["model"].nunique() == 1:
        before = before.assign(model=models[0])
    drops = []
    for model in models:
        drop = pd.DataFrame(
            {
                "value": [np.nan],
                "low": np.nan,
                "high": np.nan,
                "reason": "not in the baseline",
            }
        )
        if model in before["model"].to_numpy():
            sides = {"before": before, "after": after}
            pairs = [
                frame[frame["model"] == model].assign(model=when)
                for when, frame in sides.items()
            ]
            drop = stats.compare(pd.concat(pairs, ignore_index=True), *sides).rename(
                columns={"difference": "value"}
            )
        drops.append(drop.assign(model=model, number="drop"))
    return pd.concat(drops, ignore_index=True)


def _parse_bound(text: str, *, is_minimum: bool) -> Bound:
    number, _, limit = text.rpartition("=")
    try:
        return Bound(number if number else limit, float(limit), is_minimum)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r}; {_EXAMPLE}", param_hint="--min, --max"
        ) from None
