"""The commands that make pages: a report, and the explorer."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rmlab.cli.terminal import say
from rmlab.cli.texts import load_texts

__all__ = ["explore", "report"]


def report(
    results: Annotated[list[str], typer.Argument(help="Folders, files or globs of scores and pairs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")] = Path("report.html"),
    texts: Annotated[
        list[str] | None,
        typer.Option(help="Benchmark (or file of pairs) whose texts the baselines are scored on; repeat."),
    ] = None,
    path: Annotated[Path | None, typer.Option(help="File or folder of --texts; else downloaded.")] = None,
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "Reward models",
) -> None:
    """Write one HTML file that opens offline: a leaderboard for each benchmark, with intervals, groups and figures.

    \b
    Examples:
      rmlab report scores/ -o report.html
      rmlab report scores.csv "results/*.json" --texts mini -o report.html
    """
    import matplotlib

    matplotlib.use("Agg")
    from rmlab.report import write_report

    if path is not None and len(texts or []) != 1:
        raise typer.BadParameter("give exactly one --texts with it", param_hint="--path")
    responses = _stacked([load_texts(name, path) for name in texts]) if texts else None
    written = write_report(results, out, responses=responses, title=title)
    say(f"{written} ({written.stat().st_size / 2**20:.1f} MiB)", err=True)


def explore(
    scores: Annotated[Path, typer.Argument(help="Score file, or a folder of them such as a store.")],
    responses: Annotated[Path | None, typer.Option(help="The benchmark's files; else loaded by name.")] = None,
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8866,
    host: Annotated[str, typer.Option(help="Address to listen on; this machine only unless changed.")] = "127.0.0.1",
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Serve the explorer as a page on this machine, behind a token; stop it with Ctrl+C.

    \b
    Examples:
      rmlab explore scores
      rmlab explore scores.csv --responses data/rm-bench --port 9000
    """
    from rmlab.widgets import serve

    serve(scores, responses=responses, port=port, host=host, open_browser=open_browser)


def _stacked(frames: list[Any]) -> Any:
    import pandas as pd

    for frame in frames:
        frame.attrs = {}
    return pd.concat(frames, ignore_index=True)
