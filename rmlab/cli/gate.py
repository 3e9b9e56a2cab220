"""The command that lets a training run go on or stops it: numbers against bounds, with
their intervals.
"""

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd
from typer import BadParameter, Exit, Option

from rmlab import metrics, stats
from rmlab.bias.gap import style_gap
from rmlab.cli.options import Results
from rmlab.cli.terminal import say
from rmlab.report.sources import join_tables, read_results
from rmlab.tables import DataError, nearest

_EXIT_CODE = 3
_FAILS = "fails"
_OPEN = "cannot be decided"
_PASSES = "passes"


class Bound(NamedTuple):
    """A number of `rmlab.estimates` as quantity:name, the style gap or a drop, and its
    limit.
    """

    number: str
    limit: float
    is_minimum: bool = True

    @classmethod
    def parse(cls, text: str) -> "Bound":
        """Split number=limit."""
        number, _, limit = text.rpartition("=")
        try:
            return cls(number or limit, float(limit))
        except ValueError:
            message = f"{text!r}; write for example overall=0.7 or level:hard=0.5"
            raise BadParameter(message) from None

    def check(self, row: Mapping[Hashable, Any]) -> tuple[str, str]:
        """The verdict on a model, and a line in words; a missing number fails."""
        low = row["low"]
        high = row["high"]
        side = "at least" if self.is_minimum else "at most"
        room = (low - self.limit, high - self.limit)
        if not self.is_minimum:
            room = (self.limit - high, self.limit - low)
        verdict = _FAILS
        if room[0] >= 0:
            verdict = _PASSES
        elif room[1] >= 0:
            verdict = _OPEN

        interval = f"95 % interval {low:.3f} to {high:.3f}"
        value = f"{row['value']:.3f} ({interval}, n = {row['n_prompts']:,.0f} prompts)"
        if pd.isna(row["value"]):
            value = f"missing ({row['reason']})"
        limit = f"the bound is {side} {self.limit:g}"
        return verdict, f"{row['model']}: {self.number} is {value}, {limit}"


def gate(
    scores: Results,
    minimum: Annotated[
        list[Bound] | None,
        Option(
            "--min", parser=Bound.parse, help="overall=0.7 or level:hard=0.5; repeat."
        ),
    ] = None,
    maximum: Annotated[
        list[Bound] | None,
        Option("--max", parser=Bound.parse, help="gap=0.3: easy minus hard; repeat."),
    ] = None,
    max_drop: Annotated[
        float | None, Option(help="Largest loss of overall against --baseline.")
    ] = None,
    baseline: Annotated[
        Path | None,
        Option(help="Scores of the model to compare with, of equal name."),
    ] = None,
    strict: Annotated[bool, Option("--strict", help="Undecided fails too.")] = False,
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
        raise BadParameter("give both", param_hint="--max-drop, --baseline")
    bounds = [*(minimum or [])]
    bounds += [bound._replace(is_minimum=False) for bound in maximum or ()]
    if max_drop is not None:
        bounds.append(Bound("drop", max_drop, is_minimum=False))
    if not bounds:
        flags = "--min, --max, --max-drop"
        raise BadParameter("name at least one bound", param_hint=flags)

    former = {} if baseline is None else read_results(str(baseline)).tables
    lines: dict[str, list[str]] = {_FAILS: [], _OPEN: [], _PASSES: []}
    for name, table in read_results(scores).tables.items():
        for bound in bounds:
            numbers = _find_number(table, bound.number, former.get(name))
            for verdict, text in map(bound.check, numbers.to_dict("records")):
                lines[verdict].append(f"{verdict}: {name}, {text}")
    for verdict in lines:
        for line in lines[verdict]:
            say(line)

    is_failed = bool(lines[_FAILS] or (strict and lines[_OPEN]))
    word = "fail" if is_failed else "pass"
    n_bounds = sum(map(len, lines.values()))
    n_open = len(lines[_OPEN])
    counts = f"{len(lines[_FAILS])} of {n_bounds} bounds fail, {n_open} {_OPEN}"
    say(f"{word}: {counts}", err=True)
    if is_failed:
        raise Exit(_EXIT_CODE)


def _find_number(
    table: pd.DataFrame, number: str, former: pd.DataFrame | None
) -> pd.DataFrame:
    """One row per model: model, value, low, high, n_prompts, reason."""
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
    names = table["model"].unique()
    if former is not None and len(names) == former["model"].nunique() == 1:
        former = former.assign(model=names[0])

    drops = []
    for name in names:
        if former is None or name not in set(former["model"]):
            remedy = "score the same benchmark and model before and after"
            raise DataError(f"--baseline: no scores of {name!r}", remedy)
        before = former[former["model"] == name].assign(model="before")
        after = table[table["model"] == name].assign(model="after")
        drop = stats.compare(join_tables([before, after]), "before", "after")
        # Where each comparison has the outcome of before, nothing is estimated.
        drop.loc[drop["agreement"] == 1, ["low", "high"]] = 0.0
        drops.append(drop.assign(model=name))
    return pd.concat(drops).rename(columns={"difference": "value"})
