"""A report on models and benchmarks as one HTML file, which opens offline."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from os import PathLike
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlencode

import numpy as np
import pandas as pd

from rmlab import metrics, plots
from rmlab.benchmarks import benchmark_of
from rmlab.benchmarks.registry import benchmarks_by_name
from rmlab.benchmarks.roles import OwnColumns
from rmlab.estimation.items import require_item_columns
from rmlab.estimation.ties import TIES
from rmlab.io.native import sha256
from rmlab.records import expand_path, write_file
from rmlab.report import formats
from rmlab.report.figures import AnyFigure, draw_figure, root_figure
from rmlab.report.leaderboard import leaderboard, with_baselines
from rmlab.report.sources import (
    Results,
    Source,
    match_texts,
    provenance_table,
    read_results,
)
from rmlab.scorers.base import Provenance
from rmlab.stats.ranking import MOST_MODELS
from rmlab.tables import KEY, LABELS, LEVELS, PROMPT, DataError
from rmlab.text import escape_html, format_csv, visible
from rmlab.version import __version__
from rmlab.widgets.comparisons import Comparisons

_MOST_PANELS = 6  # models with a figure of their own: the best
_MOST_BARS = 30  # models in the figure of easy, normal, hard
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
_UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\x7f"}
_MIB = 2**20
_DOTS = 120  # per inch, of the figures in a page
# Rows of one benchmark beyond which no browser would open a page with all of them.
MOST_ROWS = 12_000_000


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
    text_limit: float = 20.0,
    title: str = "Reward models",
    seed: int = 0,
    columns: OwnColumns | None = None,
    cluster: str | None = None,
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
        Whether prompts, answers and notes of `responses` are in the page.
    text_limit : float
        MiB of text of a benchmark in the page; beyond it those of a random sample of
        the prompts, and the page says how many.
    title : str
        Heading of the page.
    seed : int
        Seed of the random baseline and of the sample of prompts.
    columns : mapping, optional
        Our names to those of files of pairs, as in `rmlab.load_preferences`:
        {"chosen_score": "good"}.
    cluster : str, optional
        Column that names a cluster of prompts, as in `rmlab.summary`.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    DataError
        Where nothing can be read, for another suffix of `out`, for `texts` without
        `responses`, and for responses that nothing in `source` is about.

    Notes
    -----
    Where no model has all parts of a benchmark, its score is missing and the page says
    why. Where the scores of all
    models are too large for a page, their prompts are left out.
    """
    if Path(out).suffix.lower() not in (".html", ".htm"):
        problem = f"out: {str(out)!r} does not end in .html"
        raise DataError(problem, "tables for papers: rmlab.report.to_latex(board)")
    results = read_results(source, columns)
    if responses is None:
        texts_by_benchmark = results.texts
    else:
        texts_by_benchmark = match_texts(responses, results.tables)
    if texts and not texts_by_benchmark:
        remedy = "pass responses=rmlab.load(...), the benchmark that was scored"
        raise DataError("texts: there are no texts", remedy)

    limit = text_limit if texts else 0.0
    sections = []
    for name in [*results.tables]:
        benchmark_texts = texts_by_benchmark.get(name)
        section = _section(name, results, benchmark_texts, limit, seed, cluster)
        sections.append(section)
    return write_page(out, title, sections, results.files)


def _section(
    name: str,
    results: Results,
    responses: pd.DataFrame | None,
    text_limit: float,
    seed: int,
    cluster: str | None,
) -> dict[str, object]:
    """The section of a benchmark, as page.html reads it."""
    # Taken out: a table of millions of rows is not held beside the one with baselines.
    table = results.tables.pop(name)
    provenance = table.attrs.pop("provenance")
    table = _add_family(table, responses, cluster)
    table = with_baselines(table, responses, seed=seed)
    board = leaderboard(table, common=None, seed=seed)
    models = board[board["kind"] == "model"]

    benchmark = benchmark_of(table)
    style_column = "style" if "style" in table else "chosen_style"
    styles = table[style_column]
    links: dict[str, dict[str, str]] = {}
    explorer = None
    if len(table) <= MOST_ROWS:
        data = Comparisons(table, responses)
        links = _links(data)
        explorer = explorer_data(data, text_limit, seed)

    lacks_styles = bool(styles.isna().all())
    if lacks_styles and benchmark.needs == "pairs" and responses is not None:
        table = _add_length(table, responses)

    has_styles = bool(styles.notna().all())
    missing = ""
    figures = []
    if board["overall"].isna().all():
        missing = board["reason"].iloc[0]
    else:
        for drawing in _figures(table, board, has_styles):
            image = encode_figure(drawing.figure)
            figures.append((drawing.name, image, drawing.numbers))

    return {
        "title": benchmark_title(name),
        "file": re.sub(r"[^\w.-]+", "-", name).strip("-."),
        "benchmark": benchmark,
        "scored": _scoring_dates(provenance),
        "has_styles": has_styles,
        "missing": missing,
        "below_chance": models["model"][models["high"] < benchmark.lowest_chance],
        "n_models": len(models),
        "n_ranked": MOST_MODELS,
        "numbers": board,
        "board": board_html(board, links, name),
        "caption": formats.CAPTIONS["leaderboard"],
        "provenance": provenance_table(provenance),
        "figures": figures,
        "explorer": explorer,
    }


def _scoring_dates(provenance: Mapping[str, Provenance]) -> str:
    """The day on which the models were scored, or the first and the last day."""
    days = {
        str(entry["started"])[:10]
        for entry in provenance.values()
        if "started" in entry
    }
    return " to ".join(sorted({min(days), max(days)})) if days else ""


def _add_family(
    table: pd.DataFrame, responses: pd.DataFrame | None, cluster: str | None
) -> pd.DataFrame:
    """The table with the family of prompts that all its intervals go by.

    It is the column `cluster`, or the family of its texts.
    """
    column = cluster or "family"
    if column not in table and responses is not None and column in responses:
        families = responses[[*PROMPT, column]].drop_duplicates(PROMPT)
        table = table.merge(families, how="left", on=PROMPT)
    if cluster is None:
        return table
    require_item_columns(table, [], [cluster])
    return table.assign(family=table[cluster])


def _add_length(table: pd.DataFrame, responses: pd.DataFrame) -> pd.DataFrame:
    """Pairs with a column `length`: whether the chosen answer is shorter or longer.

    Lengths within a quarter of each other are equal.
    """
    rows = responses.assign(n_characters=responses["response"].str.len())
    n_characters = rows.set_index(KEY)["n_characters"]
    compared = metrics.pairs(table) if "score" in table else table
    lengths = {}
    for label in LABELS:
        keys = compared[[*PROMPT, f"{label}_slot"]].assign(label=label)
        keys = keys.rename(columns={f"{label}_slot": "slot"})[KEY]
        lengths[label] = n_characters.reindex(pd.MultiIndex.from_frame(keys)).to_numpy()

    ratio = lengths["chosen"] / lengths["rejected"]
    bounds = [0, 1 / 1.25, 1.25, np.inf]
    lengths_compared = pd.cut(ratio, bounds, labels=["shorter", "equal", "longer"])
    return compared.assign(length=lengths_compared)


def _links(data: Comparisons) -> dict[str, dict[str, str]]:
    """What the numbers of each column count, as fields of the explorer's selection."""
    columns = data.benchmark.subset_names
    links: dict[str, dict[str, str]] = {}
    for name in data.prompts["subset"].unique():
        links[columns.get(name, name)] = {"subset": name}
    for name in data.prompts["domain"].unique():
        links[name] = {"domain": name}
    for name in data.benchmark.sections:
        links[name] = {"subset": name}
    for level in LEVELS:
        links[level] = {"level": level}
    links["overall"] = {}
    return links


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
    if not is_pairwise:
        yield from _best_of_figures(best)
    elif "length" in table and not has_styles:
        yield from _length_figures(best)


def _length_figures(pairs: pd.DataFrame) -> Iterator[_Drawing]:
    shares = metrics.accuracy(pairs, by=["model", "length"], average="prompts")
    lengths = shares.dropna(subset=["low"])
    if len(lengths):
        yield _Drawing("length", plots.plot_forest(lengths), lengths)


def _best_of_figures(scores: pd.DataFrame) -> Iterator[_Drawing]:
    subsets = metrics.estimates(scores).query("quantity == 'subset'")
    figure = plots.plot_forest(subsets, label="name", series="model")
    yield _Drawing("subsets", figure, subsets)
    is_tie = scores["domain"] == TIES
    if not is_tie.all():
        curve = metrics.best_of_curve(scores[~is_tie])
        yield _Drawing("best-of", plots.plot_best_of(curve), curve)


def write_page(
    out: str | PathLike[str],
    title: str,
    sections: Sequence[Mapping[str, object]],
    sources: Sequence[Path] = (),
) -> Path:
    """Write the page, its only script allowed by its hash."""
    from jinja2 import Environment, PackageLoader

    widgets = files("rmlab.widgets")
    report = files("rmlab.report")
    script = _join_files(widgets / "explorer.js", report / "page.js")
    digest = hashlib.sha256(script.encode()).digest()

    loader = PackageLoader("rmlab.report", ".")
    environment = Environment(loader=loader, autoescape=True)
    environment.filters |= {"csv": encode_csv, "sha256": sha256, "visible": visible}
    html = environment.get_template("page.html").render(
        title=title,
        sections=sections,
        style=_join_files(report / "page.css", widgets / "explorer.css"),
        script=script,
        digest=base64.b64encode(digest).decode(),
        files=sources,
        version=__version__,
    )
    return write_file(expand_path(out), html)


def _join_files(*paths: Traversable) -> str:
    texts = [path.read_text("utf-8") for path in paths]
    return "".join(texts)


def write_explorer(
    table: pd.DataFrame,
    responses: pd.DataFrame,
    out: str | PathLike[str],
    *,
    title: str,
) -> Path:
    """Write a page with the explorer alone, of scores or pairs and all their texts."""
    explorer = explorer_data(Comparisons(table, responses), text_limit=np.inf)
    return write_page(out, title, [{"explorer": explorer}])


def explorer_data(
    data: Comparisons, text_limit: float, seed: int = 0
) -> dict[str, object]:
    """The explorer's data, as lines of JSON: all columns, then a prompt's texts a line.

    `text_limit`: MiB of texts; beyond it those of a random sample of prompts.
    """
    sizes = np.array([len(text) for text in data.searchable]) / _MIB
    has_text = np.zeros(len(sizes), bool)
    if data.responses is not None:
        order = np.random.default_rng(seed).permutation(len(sizes))
        fits = np.cumsum(sizes[order]) <= text_limit
        has_text[order[fits]] = True

    lines = [_script_json(data.payload(as_text=True))]
    for number in range(len(sizes)):
        texts = data.texts(number) if has_text[number] else {}
        lines.append(_script_json(texts))

    name = str(data.prompts["benchmark"].iloc[0])
    return {
        "benchmark": visible(name),
        "title": benchmark_title(name),
        "n_texts": int(has_text.sum()),
        "n_prompts": len(sizes),
        "mib": (sizes[has_text].sum(), sizes.sum()),
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
    cells = formats.printed_board(board).map(escape_html)
    names = zip(board["model"], cells["model"], strict=True)
    cells["model"] = [_link(_hub_address(name), text) for name, text in names]
    for column in cells.columns.intersection([*links]):
        fields = {"b": visible(benchmark), **links[column]}
        linked = []
        for model, text in zip(board["model"], cells[column], strict=True):
            query = urlencode(fields | {"models": model})
            linked.append(_link(f"#{query}", text))
        cells[column] = linked

    parts = board.loc[:, "kind":"se"].columns[1:-1]
    shares = board[["overall", *parts]].round(3).astype("str")
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
    return escape_html(formats.heading(str(column)))


def _hub_address(model: str) -> str:
    """The model's page on the hub, empty where its name is of another form."""
    if not _HUB_NAME.fullmatch(model):
        return ""
    return f"https://huggingface.co/{quote(model)}"


def _link(address: str, text: str) -> str:
    if not address or not text:
        return text
    return f'<a rel="noopener noreferrer" href="{escape_html(address)}">{text}</a>'


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
