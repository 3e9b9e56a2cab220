"""The command that lets a training run go on or stops it: numbers against bounds, with their intervals."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from rmlab.cli.terminal import say, say_aligned

if TYPE_CHECKING:
    import pandas as pd

FAILED = 3
_EXAMPLE = "write number=bound, for example overall=0.7, level:hard=0.5, domain:math=0.6 or gap=0.3"


class Bound(NamedTuple):
    """A number of `rmlab.estimates`, as quantity:name, or the style gap, and the limit that it must keep."""

    number: str
    limit: float
    is_minimum: bool


def gate(
    scores: Annotated[list[str], typer.Argument(help="Folders, files or globs of scores and pairs.")],
    minimum: Annotated[list[str] | None, typer.Option("--min", help="overall=0.7 or level:hard=0.5; repeat.")] = None,
    maximum: Annotated[list[str] | None, typer.Option("--max", help="gap=0.3: easy minus hard; repeat.")] = None,
    max_drop: Annotated[float | None, typer.Option(help="Largest loss of overall against --baseline.")] = None,
    baseline: Annotated[Path | None, typer.Option(help="Scores of the model to compare with, of equal name.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Undecided fails too.")] = False,
) -> None:
    """Check scores against bounds; exit code 3 if one fails.

    A bound fails where the whole interval lies beyond it, or where the number is missing. It is undecided where the
    interval holds it: that passes, unless --strict. A drop is judged by its paired interval.

    \b
    Examples:
      rmlab gate scores/ --min overall=0.7 --min level:hard=0.5 --max gap=0.3
      rmlab gate new/ --baseline old/ --max-drop 0.01 --strict
    """
    import pandas as pd

    from rmlab.report.results import read_results

    if (max_drop is None) != (baseline is None):
        raise typer.BadParameter("give both", param_hint="--max-drop, --baseline")
    bounds = [_parse(text, is_minimum=True) for text in minimum or ()]
    bounds += [_parse(text, is_minimum=False) for text in maximum or ()]
    if not bounds and baseline is None:
        raise typer.BadParameter("name at least one bound", param_hint="--min, --max, --max-drop")
    tables = read_results(scores).tables
    rows = [check_bounds(table, bounds).assign(benchmark=name) for name, table in tables.items()]
    if baseline is not None and max_drop is not None:
        former = read_results(str(baseline)).tables
        rows += [check_drop(table, former.get(name), max_drop).assign(benchmark=name) for name, table in tables.items()]
    checked = pd.concat(rows, ignore_index=True)
    order = {"fail": 0, "undecided": 1, "pass": 2}
    checked = checked.sort_values("verdict", key=lambda column: column.map(order), kind="stable")
    say_aligned(checked[["verdict", "benchmark", "model", "number", "value", "low", "high", "bound", "reason"]])
    verdicts = set(checked["verdict"])
    verdict = "fail" if "fail" in verdicts or (strict and "undecided" in verdicts) else "pass"
    say(f"{verdict}: {int((checked['verdict'] == 'pass').sum())} of {len(checked)} bounds hold clearly", err=True)
    if verdict == "fail":
        raise typer.Exit(FAILED)


def check_bounds(table: "pd.DataFrame", bounds: list[Bound]) -> "pd.DataFrame":
    """One row per model and bound: verdict, number, value, low, high, bound, reason."""
    import pandas as pd

    from rmlab.bias import style_gap
    from rmlab.metrics import estimates
    from rmlab.tables import DataError, nearest

    numbers = estimates(table)
    labels = numbers["quantity"].where(
        numbers["quantity"] == numbers["name"], numbers["quantity"] + ":" + numbers["name"]
    )
    numbers = numbers.assign(number=labels)
    rows = []
    for bound in bounds:
        if bound.number == "gap":
            candidates = style_gap(table).assign(number="gap").rename(columns={"gap": "value"})
        else:
            candidates = numbers[numbers["number"] == bound.number]
        if candidates.empty:
            raise DataError(f"{bound.number}: no such number; {nearest(bound.number, [*labels.unique(), 'gap'])}.")
        rows += [_judge(row, bound) for _, row in candidates.iterrows()]
    return pd.DataFrame(rows)


def check_drop(table: "pd.DataFrame", former: "pd.DataFrame | None", max_drop: float) -> "pd.DataFrame":
    """One row per model: what its overall lost against the model of the same name, by the paired interval."""
    import pandas as pd

    from rmlab.metrics.items import as_pairs
    from rmlab.stats import compare

    bound = Bound("drop", max_drop, is_minimum=False)
    after = as_pairs(table)
    before = as_pairs(former) if former is not None else after.iloc[:0]
    models, former_models = after["model"].unique(), before["model"].unique()
    if len(models) == len(former_models) == 1:
        before = before.assign(model=models[0])
        former_models = models
    rows = []
    for model in models:
        missing = {"model": model, "number": "drop", "value": float("nan"), "low": float("nan"), "high": float("nan")}
        row = pd.Series(missing | {"reason": "not in the baseline"})
        if model in former_models:
            sides = [
                frame[frame["model"] == model].assign(model=when)
                for frame, when in ((before, "before"), (after, "after"))
            ]
            difference = compare(pd.concat(sides, ignore_index=True), "before", "after").iloc[0]
            row = difference.rename({"difference": "value"})
            row["model"], row["number"] = model, "drop"
        rows.append(_judge(row, bound))
    return pd.DataFrame(rows)


def _judge(row: "pd.Series", bound: Bound) -> dict[str, object]:
    sign = 1 if bound.is_minimum else -1
    near, far = (row["low"], row["high"]) if bound.is_minimum else (row["high"], row["low"])
    if sign * near >= sign * bound.limit:
        verdict = "pass"
    elif sign * far >= sign * bound.limit:
        verdict = "undecided"
    else:  # beyond the bound, or missing
        verdict = "fail"
    sentence = f"{'at least' if bound.is_minimum else 'at most'} {bound.limit:g}"
    numbers = {name: row[name] for name in ("model", "number", "value", "low", "high", "reason")}
    return {"verdict": verdict, **numbers, "bound": sentence}


def _parse(text: str, *, is_minimum: bool) -> Bound:
    number, _, limit = text.rpartition("=")
    try:
        return Bound(number if number else limit, float(limit), is_minimum)
    except ValueError:
        raise typer.BadParameter(f"{text!r}; {_EXAMPLE}", param_hint="--min, --max") from None
