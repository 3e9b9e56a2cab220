"""The commands that make figures and pages: the demo, a report, the explorer."""

import shutil
import sys
from pathlib import Path
from typing import Annotated

import pandas as pd
from typer import Option

from rmlab import benchmarks, report
from rmlab.cli.options import Results, TextOptions
from rmlab.cli.terminal import say, say_aligned
from rmlab.report.page import write_explorer
from rmlab.report.sources import read_results
from rmlab.tables import DataError


def run_demo(
    out: Annotated[Path, Option("--out", "-o", help="Folder for the figures.")] = Path(
        "figures"
    ),
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
    command = "rmlab" if shutil.which("rmlab") else sys.argv[0]
    say(f"\nNext, score a model:\n  {command} score --help")


def write_report(
    results: Results,
    out: Annotated[Path, Option("--out", "-o", help="HTML file to write.")] = (
        Path("report.html")
    ),
    texts: Annotated[
        list[str] | None,
        Option(
            help="Benchmark (or file of pairs) whose texts the baselines are scored "
            "on; repeat."
        ),
    ] = None,
    include_texts: Annotated[
        bool,
        Option(
            "--include-texts", help="Put prompts and answers of --texts into the page."
        ),
    ] = False,
    title: Annotated[str, Option(help="Heading of the page.")] = "Reward models",
    cluster: Annotated[
        str | None,
        Option(
            help="Column that names a cluster of prompts; else family, or the prompt."
        ),
    ] = None,
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
    responses = None
    if texts:
        frames = [TextOptions().load_responses(name) for name in texts]
        responses = pd.concat(frames, ignore_index=True)
    file = report.write_report(
        results,
        out,
        responses=responses,
        texts=include_texts,
        title=title,
        cluster=cluster,
    )
    _say_file(file)


def explore(
    scores: Results,
    responses: Annotated[
        Path | None, Option(help="The benchmark's files; else loaded by name.")
    ] = None,
    out: Annotated[Path, Option("--out", "-o", help="HTML file to write.")] = Path(
        "explorer.html"
    ),
    open_browser: Annotated[
        bool, Option("--open/--no-open", help="Open the page in a browser.")
    ] = True,
) -> None:
    """Write the explorer as one HTML file and open it.

    \b
    Examples:
      rmlab explore scores
      rmlab explore scores.csv --responses data/rm-bench -o rm-bench.html --no-open
    """
    import webbrowser

    results = read_results(scores)
    if len(results.tables) > 1:
        problem = f"scores: results of several benchmarks {[*results.tables]}"
        raise DataError(problem, "give those of one")
    ((benchmark, table),) = results.tables.items()
    texts = results.texts.get(benchmark)
    if responses is not None or texts is None:
        texts = benchmarks.load(benchmark, path=responses)
    file = write_explorer(table, texts, out, title=f"{benchmark}: rmlab explorer")
    _say_file(file)
    if open_browser:
        webbrowser.open(file.resolve().as_uri())


def _say_file(file: Path) -> None:
    """Say where a page is, and how large."""
    say(f"{file} ({file.stat().st_size / 2**20:.1f} MiB)", err=True)
