"""A report on models and benchmarks as one HTML file, which opens offline."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import pandas as pd

from rmlab import metrics, plots
from rmlab.benchmarks.registry import benchmark_of, benchmarks_by_name
from rmlab.estimation.ties import TIES
from rmlab.io.native import sha256
from rmlab.records import expand_path, write_file
from rmlab.report import formats
from rmlab.report.figures import AnyFigure, draw_figure, root_figure
from rmlab.report.leaderboard import leaderboard, with_baselines
from rmlab.report.sources import (
    Source,
    match_texts,
    provenance_table,
    read_results,
)
from rmlab.scorers.base import Provenance
from rmlab.tables import LEVELS, DataError
from rmlab.text import escape_html, format_csv, visible
from rmlab.version import __version__
from rmlab.widgets.comparisons import Comparisons

_MOST_PANELS = 6  # models with a figure of their own: the best
_MOST_BARS = 30  # models in the figure of easy, normal, hard
_UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\x7f"}
_DOTS = 120  # per inch, of the figures in a page


class _Drawing(NamedTuple):
    """A figure, the name by which page.html explains it, and its numbers."""

    name: str
    figure: AnyFigure
    numbers: pd.DataFrame


def write_report(
    source: Source,
    out: str | PathLike[str],
    *,
    responses: pd.DataFrame | None = None,
    texts: bool = False,
    title: str = "Reward models",
) -> Path:
    """Write one HTML file with a section for each benchmark.

    A section has the leaderboard with intervals, groups and baselines, sorted by a
    click and filtered by name, and the benchmark's figures with their numbers to
    download. A number of the leaderboard leads to the explorer of the prompts that it
    counts. The address in the browser says what is shown, so it can be passed on. The
    file needs no network and runs no script but its own; the same input gives the same
    bytes.

    Parameters
    ----------
    source : path, sequence of paths, DataFrame or sequence of DataFrame
        A folder, a glob or a list of result files (any that `read_scores` or
        `read_pairs` understands), or tables of scores or pairs.
    out : path
        The file to write, ending in .html or .htm.
    responses : DataFrame, optional
        The texts of benchmarks in `source`: they add the baselines that read them.
        Custom data are matched by domain and id, whatever their files are called.
    texts : bool
        Whether prompts, answers and notes of `responses` are in the page. A browser
        handles about 50 MB: of a large benchmark pass a sample of the prompts.
    title : str
        Heading of the page.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    DataError
        Where nothing can be read, for another suffix of `out`, for `texts` without
        `responses`, and for responses that nothing in `source` is about.
    """
    if Path(out).suffix.lower() not in (".html", ".htm"):
        problem = f"out: {str(out)!r} does not end in .html"
        raise DataError(problem, "tables for papers: rmlab.report.to_latex(board)")
    results = read_results(source)
    texts_by_benchmark = results.texts
    if responses is not None:
        texts_by_benchmark = match_texts(responses, results.tables)
    if texts and not texts_by_benchmark:
        remedy = "pass responses=rmlab.load(...), the benchmark that was scored"
        raise DataError("texts: there are no texts", remedy)

    sections = []
    for name in [*results.tables]:
        # Taken out: a large table is not held beside the one with baselines.
        table = results.tables.pop(name)
        sections.append(_section(name, table, texts_by_benchmark.get(name), texts))
    return write_page(out, title, sections, results.files)


def _section(
    name: str,
    table: pd.DataFrame,
    responses: pd.DataFrame | None,
    texts: bool,
) -> dict[str, object]:
    """The section of a benchmark, as page.html reads it."""
    provenance = table.attrs.pop("provenance")
    table = with_baselines(table, responses)
    board = leaderboard(table, common=None)
    models = board[board["kind"] == "model"]
    benchmark = benchmark_of(table)
    data = Comparisons(table, responses)
    explorer = explorer_data(data, texts)

    style_column = "style" if "style" in table else "chosen_style"
    has_styles = not table[style_column].isna().any()
    missing = ""
    figures = []
    if board["overall"].isna().all():
        missing = board["reason"].iloc[0]
    else:
        for drawing in _figures(table, board, has_styles):
            image = encode_figure(drawing.figure)
            figures.append((drawing.name, image, drawing.numbers))

    return {
        "file": re.sub(r"[^\w.-]+", "-", name).strip("-."),
        "benchmark": benchmark,
        "scored": _scoring_dates(provenance),
        "has_styles": has_styles,
        "missing": missing,
        "below_chance": models["model"][models["high"] < benchmark.lowest_chance],
        "n_models": len(models),
        "numbers": board,
        "board": board_html(board, _links(data), name),
        "caption": formats.describe(board),
        "provenance": provenance_table(provenance),
        "figures": figures,
        "explorer": explorer,
    }


def _scoring_dates(provenance: Mapping[str, Provenance]) -> str:
    """The day on which the models were scored, or the first and the last day."""
    started = {str(entry.get("started", ""))[:10] for entry in provenance.values()}
    days = sorted(started - {""})
    return " to ".join(dict.fromkeys(days[:1] + days[-1:]))


def _links(data: Comparisons) -> dict[str, dict[str, str]]:
    """What the numbers of each column count, as fields of the explorer's selection."""
    columns = data.benchmark.subset_names
    links = {}
    for name in data.prompts["subset"].unique():
        links[columns.get(name, name)] = {"subset": name}
    links |= {name: {"domain": name} for name in data.prompts["domain"].unique()}
    links |= {name: {"subset": name} for name in data.benchmark.sections}
    links |= {level: {"level": level} for level in LEVELS}
    return links | {"overall": {}}


def _figures(
    table: pd.DataFrame, board: pd.DataFrame, has_styles: bool
) -> Iterator[_Drawing]:
    models = board["model"][board["kind"] == "model"]
    blind = board["model"][board["kind"] == "baseline"]
    shown = [*models[:_MOST_PANELS], *blind[:1]]
    best = pd.concat([table[table["model"] == model] for model in shown])
    best = best.reset_index(drop=True)

    is_pairwise = benchmark_of(table).needs == "pairs"
    if is_pairwise and has_styles:
        by = ["model", "chosen_style", "rejected_style"]
        cells = metrics.accuracy(best, by=by)
        yield _Drawing("matrices", plots.plot_matrices(best, columns=3), cells)
        bar_models = [*models[:_MOST_BARS], *blind]
        bars = table[table["model"].isin(bar_models)]
        levels = metrics.accuracy(bars, by=["model", "level"])
        yield _Drawing("levels", plots.plot_style_gap(levels), levels)

    numbers = board[["model", "kind", "overall", "low", "high", "group"]]
    yield _Drawing("overall", plots.plot_leaderboard(board), numbers)
    if not has_styles:
        parts = metrics.estimates(best)
        for quantity in ("section", "domain", "subset"):
            part = parts[parts["quantity"] == quantity]
            if len(part["name"].unique()) > 1:
                figure = plots.plot_forest(part, label="name", series="model")
                yield _Drawing("parts", figure, part)
                break
    if not is_pairwise:
        is_tie = best["domain"] == TIES
        curve = metrics.best_of_curve(best[~is_tie])
        yield _Drawing("best-of", plots.plot_best_of(curve), curve)


def write_page(
    out: str | PathLike[str],
    title: str,
    sections: Sequence[Mapping[str, object]],
    sources: Sequence[Path] = (),
) -> Path:
    """Write the page, its only script allowed by its hash."""
    from jinja2 import Environment, PackageLoader

    environment = Environment(
        loader=PackageLoader("rmlab.report", "."), autoescape=True
    )
    environment.filters |= {"csv": encode_csv, "sha256": sha256, "visible": visible}
    script = _read_asset("widgets/explorer.js") + _read_asset("report/page.js")
    digest = hashlib.sha256(script.encode()).digest()
    html = environment.get_template("page.html").render(
        title=title,
        sections=sections,
        style=_read_asset("report/page.css") + _read_asset("widgets/explorer.css"),
        script=script,
        digest=base64.b64encode(digest).decode(),
        files=sources,
        version=__version__,
    )
    return write_file(expand_path(out), html)


def _read_asset(name: str) -> str:
    return (files("rmlab") / name).read_text("utf-8")


def write_explorer(
    table: pd.DataFrame,
    responses: pd.DataFrame,
    out: str | PathLike[str],
    *,
    title: str,
) -> Path:
    """Write a page with the explorer alone, of scores or pairs and their texts."""
    explorer = explorer_data(Comparisons(table, responses), texts=True)
    return write_page(out, title, [{"explorer": explorer}])


def explorer_data(data: Comparisons, texts: bool) -> dict[str, object]:
    """The explorer's data, as lines of JSON: all columns, then a line for each prompt,
    which has its texts if they are wanted.
    """
    lines = [_script_json(data.payload(as_text=True))]
    for number in range(len(data.prompts)):
        lines.append(_script_json(data.texts(number) if texts else {}))

    name = str(data.prompts["benchmark"].iloc[0])
    return {
        "benchmark": visible(name),
        "title": benchmark_title(name),
        "has_texts": texts,
        "n_prompts": len(data.prompts),
        "data": "\n".join(lines),
    }


def _script_json(value: dict[str, object]) -> str:
    """A line of JSON for a script element: ASCII, with no end tag or comment."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.translate(_UNSAFE)


def board_html(
    board: pd.DataFrame, links: Mapping[str, Mapping[str, str]], benchmark: str
) -> str:
    """A leaderboard as an HTML table, whose numbers lead to the prompts they count."""
    cells = formats.print_cells(board).map(escape_html)
    cells.insert(0, "model", cells.pop("model"))
    for column in cells.columns.intersection([*links]):
        fields = {"b": visible(benchmark), **links[column]}
        queries = [urlencode(fields | {"models": model}) for model in board["model"]]
        cells[column] = list(map(_link, queries, cells[column]))

    parts = board.loc[:, "kind":"se"].columns[1:-1]
    shares = board[["overall", *parts]].round(3).astype("str")
    shares = shares[shares.columns.intersection(cells.columns)]
    properties = "--share: " + shares  # page.css colours it
    kinds = pd.DataFrame(dict.fromkeys(cells.columns, board["kind"]))
    identity = hashlib.sha256(benchmark.encode()).hexdigest()[:8]
    html: str = (
        cells.style.hide(axis="index")
        .set_uuid(identity)
        .set_td_classes(kinds)
        .apply(lambda _: properties, axis=None, subset=shares.columns)
        .format_index(_format_heading, axis="columns")
        .to_html(table_attributes='class="sortable"')
    )
    return html


def _format_heading(column: object) -> str:
    return escape_html(str(column).replace("_", " "))


def _link(query: str, text: str) -> str:
    return f'<a href="#{escape_html(query)}">{text}</a>' if text else ""


def encode_figure(figure: AnyFigure) -> str:
    """A figure (or that of an Axes) as PNG in base 64; closes the figure."""
    import matplotlib.pyplot as plt

    root = root_figure(figure)
    image = draw_figure(root, "png", _DOTS)
    plt.close(root)
    return base64.b64encode(image).decode()


def encode_csv(table: pd.DataFrame) -> str:
    """A table as CSV in base 64, to be saved from the page itself."""
    return base64.b64encode(format_csv(table).encode()).decode()


def benchmark_title(name: str) -> str:
    """A benchmark's name in print; of custom data the name itself."""
    benchmarks = benchmarks_by_name()
    return benchmarks[name].title if name in benchmarks else name
