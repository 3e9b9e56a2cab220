"""The commands that make figures and pages: the demo, a report, the explorer."""

import shutil
import sys
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from rmlab import benchmarks, report
from rmlab.cli.options import TextOptions, split_columns, with_shared_options
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
    notebook = (
        "open notebooks/00_quickstart.ipynb (make lab), or " if is_clone() else ""
    )
    say(f"\nNext: {notebook}score a model:")
    if shutil.which("rmlab"):
        say("  rmlab score --help")
        return
    command = Path(sys.argv[0])
    say(f"  {command} score --help")
    say(
        f"Run this once in a shell, and rmlab alone will do:  . {command.with_name('activate')}"
    )


@with_shared_options
def write_html_report(
    results: Annotated[
        list[str], typer.Argument(help="Folders, files or globs of scores and pairs.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="HTML file to write.")
    ] = Path("report.html"),
    texts: Annotated[
        list[str] | None,
        typer.Option(
            help="Benchmark (or file of pairs) whose texts the baselines are scored on; repeat."
        ),
    ] = None,
    path: Annotated[
        Path | None, typer.Option(help="File or folder of --texts; else downloaded.")
    ] = None,
    include_texts: Annotated[
        bool,
        typer.Option(
            "--include-texts", help="Put prompts and answers of --texts into the page."
        ),
    ] = False,
    text_limit: Annotated[
        float,
        typer.Option(help="MiB of text a benchmark; beyond it a sample of prompts."),
    ] = 20.0,
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "Reward models",
    column: Annotated[list[str] | None, typer.Option(help=_COLUMN)] = None,
    cluster: Annotated[str | None, typer.Option(help=_CLUSTER)] = None,
) -> None:
    """Write one HTML file that opens offline.

    It has a leaderboard for each benchmark, with intervals, groups and figures. Its
    numbers lead to the prompts behind them.

    \b
    Examples:
      rmlab report scores/ -o report.html
      rmlab report scores.csv "results/*.json" --texts mini -o report.html
      rmlab report scores/ --texts rm-bench --include-texts
    """
    import matplotlib

    matplotlib.use("Agg")
    if path is not None and len(texts or []) > 1:
        raise typer.BadParameter("give one --texts with it", param_hint="--path")
    frames = [TextOptions(path).load(name) for name in texts or ()]
    for frame in frames:
        frame.attrs = {}
    responses = pd.concat(frames, ignore_index=True) if frames else None
    file = report.write_report(
        results,
        out,
        responses=responses,
        texts=include_texts,
        text_limit=text_limit,
        title=title,
        columns=split_columns(column),
        cluster=cluster,
    )
    say(f"{file} ({file.stat().st_size / 2**20:.1f} MiB)", err=True)


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
        raise DataError(
            f"scores: results of {len(results.tables)} benchmarks {[*results.tables]}. Give those of one."
        )
    ((benchmark, table),) = results.tables.items()
    texts = results.texts.get(benchmark) if responses is None else None
    texts = benchmarks.load(benchmark, path=responses) if texts is None else texts
    file = write_explorer(table, texts, out, title=f"{benchmark}: rmlab explorer")
    say(f"{file} ({file.stat().st_size / 2**20:.1f} MiB)", err=True)
    if open_browser:
        webbrowser.open(file.resolve().as_uri())
