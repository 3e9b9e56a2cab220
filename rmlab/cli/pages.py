"""The commands that make figures and pages: the demo, a report, the explorer."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from rmlab import report, scoring
from rmlab.benchmarks import load
from rmlab.benchmarks.registry import benchmarks_by_name
from rmlab.cli.options import (
    COLUMN,
    RESULTS,
    Column,
    load_pairs,
    load_texts,
    option,
    switch,
)
from rmlab.cli.terminal import say, say_aligned
from rmlab.papers.printed import SEVEN_BENCHMARKS
from rmlab.report.page import write_explorer
from rmlab.report.sources import match_texts, read_results
from rmlab.tables import DataError


@dataclass(kw_only=True)
class Demo:
    """Run the main job on the bundled data: scores, table, figures. Needs no network
    and no model.

    \b
    Example:
      rmlab demo --out figures
    """

    out: Path = option(
        "Folder for the figures.", "--out", "-o", default=Path("figures")
    )

    def run(self) -> None:
        """Write the figures, and print the table."""
        from rmlab.demo import demo

        table, files = demo(self.out)
        columns = ["model", *table.loc[:, "chat":"overall"], "low", "high"]
        say("Share of comparisons that the right answer wins, over 64 prompts.")
        say("The 95 % interval of overall is from low to high. A tie is not won.\n")
        say_aligned(table[columns].assign(ties=table["n_ties"]))
        say("\nFigures, each with its numbers beside it:")
        for file in files:
            say(f"  {file}")
        command = "rmlab" if shutil.which("rmlab") else sys.argv[0]
        say(f"\nNext, score a model:\n  {command} score --help")


@dataclass(kw_only=True)
class Report:
    """Write one HTML file that opens offline.

    It has a leaderboard for each benchmark, with intervals, groups and figures. Its
    numbers lead to the prompts behind them.

    \b
    Examples:
      rmlab report scores/ -o report.html
      rmlab report scores.csv "results/*.json" --texts mini -o report.html
      rmlab report scores/ --texts rm-bench --include-texts
      rmlab report ./my-model --benchmarks all --benchmarks rmb=data/RMB --store scores
    """

    results: list[str] = RESULTS
    out: Path = option("HTML file.", "--out", "-o", default=Path("report.html"))
    texts: list[str] | None = option(
        "Benchmark (or file of pairs) that baselines are scored on; repeat."
    )
    column: list[Column] | None = COLUMN
    include_texts: bool = switch(
        "Put prompts and answers of --texts into the page.", "--include-texts"
    )
    benchmarks: list[str] | None = option(
        "RESULTS are models, scored on it first: a name, name=FOLDER, or all; repeat."
    )
    store: str | None = option("Keeps what --benchmarks scores, to resume.")

    def run(self) -> None:
        """Score the models, if any are to be scored, and write the page."""
        import matplotlib

        matplotlib.use("Agg")
        responses = None
        if self.texts:
            frames = [load_texts(name, None, self.column) for name in self.texts]
            responses = pd.concat(frames, ignore_index=True)
        source: Any = self.results
        if self.benchmarks:
            texts = pd.concat(_load_all(self.benchmarks), ignore_index=True)
            # A text that stands in several benchmarks is forwarded once.
            source = scoring.score(texts, source, store=self.store)
            say(report.to_markdown(report.compare_benchmarks(source)))
        file = report.write_report(
            source, self.out, responses=responses, texts=self.include_texts
        )
        _say_file(file)


def _load_all(names: list[str]) -> list[pd.DataFrame]:
    """Texts of benchmarks. Those that cannot be loaded are all named before anything
    is scored.
    """
    places: dict[str, str | None] = {}
    for given in names:
        name, _, place = given.partition("=")
        if name == "all":
            places = dict.fromkeys(SEVEN_BENCHMARKS) | places
        else:
            places[name] = place or None

    loaded = []
    problems = []
    for name, folder in places.items():
        try:
            loaded.append(load(name, path=folder))
        except (DataError, TypeError) as error:
            problems.append(f"{name} ({error})")
    if problems:
        problem = f"--benchmarks: cannot load {'; '.join(problems)}"
        raise DataError(problem, "give name=FOLDER, or leave it out")
    return loaded


@dataclass(kw_only=True)
class Explore:
    """Write the explorer as one HTML file.

    \b
    Examples:
      rmlab explore scores
      rmlab explore scores.csv --responses data/rm-bench -o rm-bench.html
      rmlab explore scores.csv --responses my-pairs.csv --column chosen=better
    """

    scores: list[str] = RESULTS
    responses: Path | None = option(
        "The benchmark's files or a file of pairs; else loaded by name."
    )
    column: list[Column] | None = COLUMN
    out: Path = option("HTML file.", "--out", "-o", default=Path("explorer.html"))

    def run(self) -> None:
        """Find the texts of the scores, and write the page."""
        tables, _, texts = read_results(self.scores)
        if len(tables) > 1:
            problem = f"scores: results of several benchmarks {[*tables]}"
            raise DataError(problem, "give those of one")
        ((benchmark, table),) = tables.items()
        if benchmark in benchmarks_by_name():
            texts[benchmark] = load(benchmark, path=self.responses)
        elif self.responses is not None:
            texts = match_texts(load_pairs(self.responses, self.column), tables)
        elif benchmark not in texts:
            problem = f"no texts of {benchmark!r} beside its scores"
            raise DataError(problem, "give its file of pairs: --responses FILE")
        title = f"{benchmark}: rmlab explorer"
        file = write_explorer(table, texts[benchmark], self.out, title=title)
        _say_file(file)


def _say_file(file: Path) -> None:
    """Say where a page is, and how large."""
    say(f"{file} ({file.stat().st_size / 2**20:.1f} MiB)", err=True)
