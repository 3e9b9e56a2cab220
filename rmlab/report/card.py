"""A model's results as its page on the hub has them: a Markdown card with metadata, and files of evaluation results."""

import re
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from rmlab import bias, escapes, metrics
from rmlab.benchmarks import benchmark_of, known
from rmlab.benchmarks.hub import Source
from rmlab.files import write
from rmlab.report.comparisons import decimals
from rmlab.report.results import Paths, read_results, versions_of
from rmlab.scorers.types import Provenance
from rmlab.tables import STYLES, DataError, nearest

__all__ = ["write_card"]

_TASK = "text-classification"  # under which the hub lists reward models
_CAVEATS = (
    "Intervals are of 95 %, clustered by prompt; they say how sure a number is on these prompts, not on others.",
    "A tie counts as the benchmark counts it, and stands in its own column.",
    "A difference of two models needs a paired comparison (`rmlab.compare`): overlapping intervals do not decide it.",
    "Benchmarks are not averaged: they count different things.",
)
_LEVELS = (
    "easy: the chosen answer has the fancier style; normal: both have the same style; hard: the rejected answer has "
    "the fancier one."
)


def write_card(
    source: Paths | pd.DataFrame, model: str, out: str | PathLike[str], *, title: str | None = None
) -> list[Path]:
    """Write `README.md` and `.eval_results/<benchmark>.yaml` of a model into the folder `out`; returns the files.

    `source`: results, as for `write_report`. The card has, for each benchmark, the table with intervals and ties, the
    style-substance matrix, the style gap and the exchange rate where there are styles, how the model was scored, and
    what to keep in mind. Its front matter holds the same numbers as the hub's `model-index`; the files of evaluation
    results hold the overall score of each benchmark that is on the hub. They appear on a leaderboard there only where
    the hub has registered the data set as a benchmark. Raises DataError for a model that `source` does not have.
    """
    results = read_results(source)
    names = list(dict.fromkeys(name for table in results.tables.values() for name in table["model"].unique()))
    if model not in names:
        raise DataError(f"model: {model!r} has no results there; {nearest(model, names)}")
    own = {name: table[table["model"] == model] for name, table in results.tables.items()}
    own = {name: table for name, table in own.items() if len(table)}
    about = {name: found.get(model, {}) for name, found in results.provenance.items()}
    numbers = {name: _numbers(table) for name, table in own.items()}
    head = f"\n# {escapes.markdown(model if title is None else title)}: results\n\n"
    sections = [_section(name, own[name], numbers[name]) + _scored(about.get(name, {})) for name in own]
    text = "".join([_front(model, numbers), head, *sections, _keep()])
    folder = Path(out).expanduser()
    files = [write(folder / "README.md", text)]
    for name, found in numbers.items():
        if (entry := _entry(name, found, about.get(name, {}))) is not None:
            files.append(write(folder / ".eval_results" / f"{_slug(name)}.yaml", entry))
    return files


def _numbers(table: pd.DataFrame) -> pd.DataFrame:
    """The benchmark's columns with their intervals: one row a number, overall first."""
    benchmark = benchmark_of(table)
    found = metrics.estimates(table)
    shown = benchmark.columns or [*found.loc[found["quantity"].isin(["domain", "level"]), "name"]]
    kept = found[(found["quantity"] == "overall") | (found["name"].isin(shown) & (found["quantity"] != "cell"))]
    return kept.drop_duplicates("name").reset_index(drop=True)


def _section(name: str, table: pd.DataFrame, numbers: pd.DataFrame) -> str:
    benchmark = benchmark_of(table)
    head = f"## {escapes.markdown(_title(name))}\n\n"
    if benchmark.hub is not None:
        head += f"Data: [{benchmark.hub.repo}](https://huggingface.co/datasets/{benchmark.hub.repo}), revision "
        head += f"`{benchmark.hub.revision[:12]}`.\n\n"
    rows = [
        [row["name"].replace("_", " "), decimals(row["value"]) or row["reason"], _interval(row["low"], row["high"]),
         f"{row['n_prompts']:,}", f"{row['n_ties']:,}", f"{row['missing']:,}"]
        for row in numbers.to_dict("records")
    ]  # fmt: skip
    parts = [head, _table(["number", "score", "95 % interval", "prompts", "ties", "missing"], rows)]
    column = "style" if "style" in table.columns else "chosen_style"
    if bool(table[column].notna().all()):
        parts += [f"\n{_LEVELS}\n", *_style(table)]
    return "".join([*parts, "\n"])


def _style(table: pd.DataFrame) -> Iterator[str]:
    """The matrix, the style gap, and the exchange rate where scores are known."""
    cells = metrics.accuracy(table, by=["chosen_style", "rejected_style"]).set_index(["chosen_style", "rejected_style"])
    yield "\nShare of comparisons won, by the style of the chosen answer (rows) and of the rejected one (columns):\n\n"
    each = {styles: cell for styles, (_, cell) in zip(cells.index, cells.iterrows(), strict=True)}
    rows = [[chosen, *(_cell(each[chosen, rejected]) for rejected in STYLES)] for chosen in STYLES]
    yield _table(["", *STYLES], rows)
    gap = bias.style_gap(table).iloc[0]
    yield (
        f"\nStyle gap (easy minus hard): {decimals(gap['gap'], '+') or escapes.markdown(gap['reason'])}"
        f"{_in_brackets(gap['low'], gap['high'], '+')}. Above 0 style counts more than it should.\n"
    )
    if "score" in table.columns:
        rate = bias.exchange_rate(table, terms=["correct", "step"]).iloc[0]
        known_rate = np.isfinite(rate["low"]) and np.isfinite(rate["high"])
        said = f"{rate['rate']:.2f} (95 % interval {rate['low']:.2f} to {rate['high']:.2f})" if known_rate else ""
        yield (
            f"\nExchange rate: one step of style is worth {said} times being right.\n"
            if said
            else f"\nExchange rate: no finite interval ({escapes.markdown(rate['reason'])}).\n"
        )


def _cell(row: pd.Series) -> str:
    if np.isnan(row["accuracy"]):
        return ""
    ties = f" ({row['n_ties']:,} {'tie' if row['n_ties'] == 1 else 'ties'})" if row["n_ties"] else ""
    return f"{row['accuracy']:.2f}{ties}"


def _scored(about: Provenance) -> str:
    if not about:
        return "How it was scored: nothing is known, as there is no provenance beside the file.\n\n"
    keys = ("revision", "dtype", "device", "head", "convention", "template", "started")
    rows = [[key, escapes.line(about[key])[:200]] for key in keys if about.get(key) is not None]
    versions = versions_of(about)
    rows += [["versions", ", ".join(f"{name} {version}" for name, version in versions.items())]] if versions else []
    return "How it was scored:\n\n" + _table(["", "value"], rows) + "\n"


def _keep() -> str:
    return "## What to keep in mind\n\n" + "".join(f"- {line}\n" for line in _CAVEATS)


def _front(model: str, numbers: dict[str, pd.DataFrame]) -> str:
    """The metadata of the card: every number of a benchmark on the hub, as `model-index` has them."""
    from huggingface_hub import EvalResult, ModelCardData

    found = [
        EvalResult(
            task_type=_TASK, task_name="Reward modelling", dataset_type=hub.repo, dataset_name=_title(name),
            dataset_revision=hub.revision, metric_type="accuracy",
            metric_name=f"{row['name'].replace('_', ' ')} "
            f"(95 % interval {_interval(row['low'], row['high']) or 'unknown'})",
            metric_value=round(float(row["value"]), 6),
        )
        for name, table in numbers.items()
        if (hub := _hub(name)) is not None
        for row in table.to_dict("records")
        if not np.isnan(row["value"])
    ]  # fmt: skip
    data = ModelCardData(tags=["reward-model"], model_name=model if found else None, eval_results=found or None)
    return f"---\n{data.to_yaml()}\n---\n"


def _entry(name: str, numbers: pd.DataFrame, about: Provenance) -> str | None:
    """A file of `.eval_results`: the overall score; None where the benchmark is not on the hub or has no such score."""
    import yaml
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    hub, row = _hub(name), numbers.iloc[0]
    if hub is None or np.isnan(row["value"]):
        return None
    notes = f"overall score from 0 to 1, 95 % interval {_interval(row['low'], row['high']) or 'unknown'}, "
    notes += f"{row['n_prompts']:,} prompts, {row['n_ties']:,} ties, average: {row['average']}"
    started = about.get("started")
    entry = EvalResultEntry(
        dataset_id=hub.repo, task_id="default", value=round(float(row["value"]), 6), dataset_revision=hub.revision,
        date=None if started is None else str(started), notes=notes,
    )  # fmt: skip
    return str(yaml.safe_dump(eval_result_entries_to_yaml([entry]), sort_keys=False, allow_unicode=True))


def _hub(name: str) -> Source | None:
    return known()[name].hub if name in known() else None


def _title(name: str) -> str:
    return known()[name].title if name in known() else name


def _slug(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")


def _interval(low: float, high: float, sign: str = "") -> str:
    return "" if np.isnan(low) else f"{decimals(low, sign)} to {decimals(high, sign)}"


def _in_brackets(low: float, high: float, sign: str) -> str:
    return "" if np.isnan(low) else f" (95 % interval {_interval(low, high, sign)})"


def _table(heads: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; the first column is left, the others right."""
    rule = ["---", *["--:"] * (len(heads) - 1)]
    lines = [heads, rule, *([escapes.markdown(cell) for cell in row] for row in rows)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
