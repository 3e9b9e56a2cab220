"""The commands that make figures and pages: the demo, a report, the explorer."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from rmlab import benchmarks, report
from rmlab.cli.options import TextOptions, split_columns
from rmlab.cli.terminal import say, say_aligned
from rmlab.records import is_clone
from rmlab.report.page import write_explorer
from rmlab.report.sources import read_results
from rmlab.tables import DataError

_CLUSTER = "Column that names a cluster of prompts; else family, or the prompt."
_COLUMN = "chosen_score=good: columns of a file of pairs; repeat."


def run_demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the figures.")
    ] = Path("figures"),
) -> None:
    """Run the main job on the bundled data: scores, table, figures. Needs no network
    and no model.

    \b
    Example:
      rmlab demo --out figures
    """
    from rmlab.demo import demo

    table, files = demo(out)
    columns = ["model", *table.loc[:, "chat":"overall"], "low", "high"]
    say("Share of comparisons that the right answer wins, over 64 prompts.")
    say("The 95 % interval of overall is from low to high. A tie is not won.\n")
    say_aligned(table[columns].assign(ties=table["n_ties"]), decimals=2)
    say("\nFigures, each with its numbers beside it:")
    for file in files:
        say(f"  {file}")
    notebook = ""
    if is_clone():
        notebook = "open notebooks/00_quickstart.ipynb (make lab), or "
    say(f"\nNext: {notebook}score a model:")
    if shutil.which("rmlab"):
        say("  rmlab score --help")
        return
    command = Path(sys.argv[0])
    say(f"  {command} score --help")
    activate = command.with_name("activate")
    say(f"Run this once in a shell, and rmlab alone will do:  . {activate}")


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write one HTML file that opens offline.

    It has a leaderboard for each benchmark, with intervals, groups and figures. Its
    numbers lead to the prompts behind them.

    \b
    Examples:
      rmlab report scores/ -o report.html
      rmlab report scores.csv "results/*.json" --texts mini -o report.html
      rmlab report scores/ --texts rm-bench --include-texts
    """

    results: Annotated[
        list[str], typer.Argument(help="Folders, files or globs of scores and pairs.")
    ]
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")] = (
        Path("report.html")
    )
    texts: Annotated[
        list[str] | None,
        typer.Option(
            help="Benchmark (or file of pairs) whose texts the baselines are scored "
            "on; repeat."
        ),
    ] = None
    path: Annotated[
        Path | None, typer.Option(help="File or folder of --texts; else downloaded.")
    ] = None
    include_texts: Annotated[
        bool,
        typer.Option(
            "--include-texts", help="Put prompts and answers of --texts into the page."
        ),
    ] = False
    text_limit: Annotated[
        float,
        typer.Option(help="MiB of text a benchmark; beyond it a sample of prompts."),
    ] = 20.0
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "Reward models"
    column: Annotated[list[str] | None, typer.Option(help=_COLUMN)] = None
    cluster: Annotated[str | None, typer.Option(help=_CLUSTER)] = None

    def run(self) -> None:
        """Write the page."""
        import matplotlib

        matplotlib.use("Agg")
        names = self.texts or []
        if self.path is not None and len(names) > 1:
            raise typer.BadParameter("give one --texts with it", param_hint="--path")
        file = report.write_report(
            self.results,
            self.out,
            responses=self._load_texts(names),
            texts=self.include_texts,
            text_limit=self.text_limit,
            title=self.title,
            columns=split_columns(self.column),
            cluster=self.cluster,
        )
        say_file(file)

    def _load_texts(self, names: list[str]) -> pd.DataFrame | None:
        frames = []
        for name in names:
            responses = TextOptions(path=self.path).load_responses(name)
            responses.attrs = {}
            frames.append(responses)
        return pd.concat(frames, ignore_index=True) if frames else None


def explore_scores(
    scores: Annotated[
        list[str],
        typer.Argument(
            help="Files, globs or folders of scores and pairs of one benchmark."
        ),
    ],
    responses: Annotated[
        Path | None, typer.Option(help="The benchmark's files; else loaded by name.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="HTML file to write.")
    ] = Path("explorer.html"),
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser.")
    ] = True,
    column: Annotated[list[str] | None, typer.Option(help=_COLUMN)] = None,
) -> None:
    """Write the explorer as one HTML file and open it.

    \b
    Examples:
      rmlab explore scores
      rmlab explore scores.csv --responses data/rm-bench -o rm-bench.html --no-open
    """
    import webbrowser

    results = read_results(scores, split_columns(column))
    if len(results.tables) > 1:
        names = list(results.tables)
        problem = f"scores: results of {len(names)} benchmarks {names}"
        raise DataError(problem, "give those of one")
    ((benchmark, table),) = results.tables.items()
    texts = None
    if responses is None:
        texts = results.texts.get(benchmark)
    if texts is None:
        texts = benchmarks.load(benchmark, path=responses)
    file = write_explorer(table, texts, out, title=f"{benchmark}: rmlab explorer")
    say_file(file)
    if open_browser:
        webbrowser.open(file.resolve().as_uri())


def say_file(file: Path) -> None:
    """Say where a page is, and how large."""
    say(f"{file} ({file.stat().st_size / 2**20:.1f} MiB)", err=True)
