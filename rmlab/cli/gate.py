"""The command that lets a training run go on or stops it: numbers against bounds, with
their intervals.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from typer import BadParameter, Exit

from rmlab import metrics, stats
from rmlab.bias.gap import style_gap
from rmlab.cli.options import RESULTS, option, switch
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
        sign = 1 if self.is_minimum else -1
        worst, best = sorted([sign * low, sign * high])
        limit = sign * self.limit
        verdict = _FAILS
        if worst >= limit:
            verdict = _PASSES
        elif best >= limit:
            verdict = _OPEN

        interval = f"95 % interval {low:.3f} to {high:.3f}"
        value = f"{row['value']:.3f} ({interval}, n = {row['n_prompts']:,.0f} prompts)"
        if pd.isna(row["value"]):
            value = f"missing ({row['reason']})"
        side = "at least" if self.is_minimum else "at most"
        bound = f"the bound is {side} {self.limit:g}"
        return verdict, f"{row['model']}: {self.number} is {value}, {bound}"


@dataclass(kw_only=True)
class Gate:
    """Check scores against bounds; exit code 3 if one fails.

    A bound fails where the whole interval lies beyond it, or where the number is
    missing. It is undecided where the interval holds it: that passes, unless --strict.
    A drop is judged by its paired interval.

    \b
    Examples:
      rmlab gate scores/ --min overall=0.7 --min level:hard=0.5 --max gap=0.3
      rmlab gate new/ --baseline old/ --max-drop 0.01 --strict
    """

    scores: list[str] = RESULTS
    minimum: list[Bound] | None = option(
        "overall=0.7 or level:hard=0.5; repeat.", "--min", parser=Bound.parse
    )
    maximum: list[Bound] | None = option(
        "gap=0.3: easy minus hard; repeat.", "--max", parser=Bound.parse
    )
    max_drop: float | None = option("Largest loss of overall against --baseline.")
    baseline: Path | None = option("Scores of the model to compare with.")
    strict: bool = switch("Undecided fails too.", "--strict")

    def run(self) -> None:
        """Print a line for each bound; those that pass come last."""
        bounds = [*(self.minimum or [])]
        for bound in self.maximum or ():
            bounds.append(bound._replace(is_minimum=False))
        if self.max_drop is not None:
            bounds.append(Bound("drop", self.max_drop, is_minimum=False))
        if not bounds:
            flags = "--min, --max, --max-drop"
            raise BadParameter("name at least one bound", param_hint=flags)

        former = {}
        if self.baseline is not None:
            former = read_results(self.baseline).tables
        lines = []
        for name, table in read_results(self.scores).tables.items():
            for bound in bounds:
                numbers = _find_number(table, bound.number, former.get(name))
                for row in numbers.to_dict("records"):
                    verdict, text = bound.check(row)
                    lines.append((verdict, f"{name}, {text}"))
        for verdict, text in sorted(lines):
            say(f"{verdict}: {text}")

        failing = {_FAILS, _OPEN} if self.strict else {_FAILS}
        if failing.intersection(verdict for verdict, _ in lines):
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
