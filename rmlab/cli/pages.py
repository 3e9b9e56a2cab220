"""The commands that make figures and pages: the demo, a report, the explorer."""

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from typer import Option

from rmlab import metrics, report, scoring
from rmlab.benchmarks import load
from rmlab.benchmarks import sample as draw_sample
from rmlab.benchmarks.registry import benchmarks_by_name
from rmlab.cli.options import Columns, Results, TextOptions, load_pairs, refuse
from rmlab.cli.terminal import say, say_aligned
from rmlab.papers.printed import SEVEN_BENCHMARKS
from rmlab.report.page import write_explorer
from rmlab.report.sources import match_texts, read_results
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
    column: Columns = None,
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
    benchmarks: Annotated[
        list[str] | None,
        Option(
            help="RESULTS are models, and are scored on it first: a name, name=FOLDER, "
            "or all seven of model cards; repeat."
        ),
    ] = None,
    sample: Annotated[
        int | None, Option(help="Prompts of each of --benchmarks; else all.")
    ] = None,
    store: Annotated[
        str | None, Option(help="Keeps what --benchmarks scores, to resume.")
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
      rmlab report ./my-model --benchmarks all --benchmarks rmb=data/RMB --store scores
    """
    import matplotlib

    matplotlib.use("Agg")
    responses = None
    if texts:
        options = TextOptions(column=column)
        frames = [options.load_responses(name) for name in texts]
        responses = pd.concat(frames, ignore_index=True)
    source: Any = results
    if benchmarks:
        source = _score_benchmarks(results, _load_all(benchmarks, sample), store)
        say(report.to_markdown(report.compare_benchmarks(source)))
    else:
        refuse({"sample": sample, "store": store}, "goes with --benchmarks")
    file = report.write_report(
        source,
        out,
        responses=responses,
        texts=include_texts,
        title=title,
        cluster=cluster,
    )
    _say_file(file)


def _load_all(names: list[str], n_prompts: int | None) -> list[pd.DataFrame]:
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
            responses = load(name, path=folder)
        except (DataError, TypeError) as error:
            problems.append(f"{name} ({error})")
            continue
        if n_prompts is not None:
            responses = draw_sample(responses, n_prompts)
            # A scorer at chance: about the widest interval that there is.
            scores = scoring.score(responses, "random", progress=False)
            row = metrics.summary(scores).iloc[0]
            reach = (row["high"] - row["low"]) / 2
            size = f"{row['n_prompts']} prompts"
            say(f"{name}: {size}, the interval reaches about {reach:.2f}", err=True)
        loaded.append(responses)
    if problems:
        problem = f"--benchmarks: cannot load {'; '.join(problems)}"
        raise DataError(problem, "give name=FOLDER, or leave it out")
    return loaded


def _score_benchmarks(
    models: list[str], responses: list[pd.DataFrame], store: str | None
) -> list[pd.DataFrame]:
    """Scores by benchmark; a text that stands in several is forwarded once."""
    together = pd.concat(responses, ignore_index=True)
    scores = scoring.score(together, list(models), store=store)
    by_benchmark = scores.groupby("benchmark", sort=False)
    return [part.dropna(axis=1, how="all") for _, part in by_benchmark]


def explore(
    scores: Results,
    responses: Annotated[
        Path | None,
        Option(help="The benchmark's files or a file of pairs; else loaded by name."),
    ] = None,
    column: Columns = None,
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
      rmlab explore scores.csv --responses my-pairs.csv --column chosen=better
    """
    import webbrowser

    results = read_results(scores)
    if len(results.tables) > 1:
        problem = f"scores: results of several benchmarks {[*results.tables]}"
        raise DataError(problem, "give those of one")
    ((benchmark, table),) = results.tables.items()
    texts = results.texts.get(benchmark)
    is_own = benchmark not in benchmarks_by_name()
    if responses is not None and is_own:
        own = load_pairs(str(responses), column)
        texts = match_texts(own, results.tables)[benchmark]
    elif texts is None and is_own:
        problem = f"no texts of {benchmark!r} beside its scores"
        raise DataError(problem, "give its file of pairs: --responses FILE")
    elif responses is not None or texts is None:
        texts = load(benchmark, path=responses)
    file = write_explorer(table, texts, out, title=f"{benchmark}: rmlab explorer")
    _say_file(file)
    if open_browser:
        webbrowser.open(file.resolve().as_uri())


def _say_file(file: Path) -> None:
    """Say where a page is, and how large."""
    say(f"{file} ({file.stat().st_size / 2**20:.1f} MiB)", err=True)
