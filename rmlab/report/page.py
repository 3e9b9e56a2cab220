"""A report on any number of models and several benchmarks as one HTML file, which opens
offline.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from os import PathLike
from pathlib import Path
from urllib.parse import quote, urlencode

import numpy as np
import pandas as pd

from rmlab import metrics, plots
from rmlab.benchmarks import benchmark_of
from rmlab.benchmarks.layouts import Columns
from rmlab.benchmarks.registry import benchmarks_by_name
from rmlab.bias import style_differences
from rmlab.estimation.items import require_item_columns
from rmlab.estimation.ties import TIES
from rmlab.estimation.weights import Average
from rmlab.io.native import sha256
from rmlab.records import __version__, write_file
from rmlab.report import tables
from rmlab.report.figures import AnyFigure, draw_figure, root_figure
from rmlab.report.leaderboard import leaderboard, with_baselines
from rmlab.report.results import (
    Paths,
    Results,
    match_texts,
    provenance_table,
    read_results,
)
from rmlab.report.sentences import MODELS, describe_models, may_be_first
from rmlab.stats.ranking import MOST_MODELS
from rmlab.tables import LEVELS, PROMPT, DataError
from rmlab.text import escape_html, format_csv, visible
from rmlab.widgets.comparisons import Comparisons

_MOST_PANELS = 6  # models with a figure of their own: the best
_MOST_BARS = 30  # models in the figure of easy, normal, hard
_Figures = Iterator[
    tuple[str, AnyFigure, pd.DataFrame]
]  # their names, which page.html explains, and numbers
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
_UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\x7f"}
_MIB = 2**20
_DOTS = 120  # per inch, of the figures in a page
# rows of one benchmark beyond which no browser would open a page with all of them
MOST_ROWS = 12_000_000


def write_report(
    source: Paths | pd.DataFrame,
    out: str | PathLike[str],
    *,
    responses: pd.DataFrame | None = None,
    texts: bool = False,
    text_limit: float = 20.0,
    title: str = "Reward models",
    seed: int = 0,
    columns: Columns | None = None,
    cluster: str | None = None,
) -> Path:
    """Write one HTML file with a section for each benchmark.

    A section begins with its findings as sentences. It has the leaderboard with
    intervals, groups and baselines, sorted by a click and filtered by name, and the
    benchmark's figures with their numbers to download. A number of the leaderboard
    leads to the explorer of the prompts that it counts. The address in the browser says
    what is shown, so it can be passed on. The file needs no network and runs no script
    but its own; the same input gives the same bytes.

    Parameters
    ----------
    source : path, sequence of paths or DataFrame
        A folder, a glob or a list of result files (any that `read_scores` or
        `read_pairs` understands), or a table of scores or pairs.
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
        Our names to those of files of pairs, as in `rmlab.load_pairs`: {"chosen_score":
        "good"}.
    cluster : str, optional
        Column that names a family of prompts which stand or fall together, as in
        `rmlab.summary`.

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
    Where no model has all domains of a benchmark, the section falls back to those that
    are there, each domain alike, and says so in its title. Where the scores of all
    models are too large for a page, their prompts are left out.
    """
    if Path(out).suffix.lower() not in (".html", ".htm"):
        raise DataError(
            f"out: {str(out)!r} does not end in .html. Tables for papers: rmlab.report.to_latex(board)."
        )
    results = read_results(source, columns)
    texts_by_benchmark = (
        results.texts if responses is None else match_texts(responses, results.tables)
    )
    if texts and not texts_by_benchmark:
        raise DataError(
            "texts: there are no texts. Pass responses=rmlab.load(...), the benchmark that was scored."
        )
    limit = text_limit if texts else 0.0
    sections = []
    for name in [*results.tables]:
        sections.append(
            _section(name, results, texts_by_benchmark.get(name), limit, seed, cluster)
        )
    return write_page(out, title, sections, results.files)


def _section(
    name: str,
    results: Results,
    responses: pd.DataFrame | None,
    text_limit: float,
    seed: int,
    cluster: str | None,
) -> dict[str, object]:
    # Taken out: a table of millions of rows is not held beside the one with baselines.
    table = results.tables.pop(name)
    provenance = table.attrs.pop("provenance")
    table = _add_family(table, responses, cluster)
    table = with_baselines(table, responses, seed=seed)
    average: Average = "benchmark"
    board, reason = leaderboard(table, common=True, seed=seed), ""
    if board["overall"].isna().all():
        fallback = leaderboard(table, common=True, seed=seed, average="domains")
        if fallback["overall"].notna().any():
            reason = metrics.summary(table, common=True)["reason"].iloc[0]
            board, average = fallback, "domains"
    models = board[board["kind"] == "model"]
    benchmark, styles = (
        benchmark_of(table),
        table["style" if "style" in table else "chosen_style"],
    )
    has_styles = bool(styles.notna().all())
    data = None if len(table) > MOST_ROWS else Comparisons(table, responses)
    if benchmark.needs == "pairs" and styles.isna().all() and responses is not None:
        table = style_differences(table, responses)
    drawings = (
        _figures(table, board, average, has_styles)
        if board["overall"].notna().any()
        else []
    )
    return {
        "title": benchmark_title(name),
        "file": re.sub(r"[^\w.-]+", "-", name).strip("-."),
        "benchmark": benchmark,
        "domains": table["domain"].unique(),
        "has_styles": has_styles,
        "missing": reason,
        "n_models": len(models),
        "n_ranked": MOST_MODELS,
        "findings": [
            *describe_models(table, models["model"].head(MODELS), average),
            *may_be_first(models),
        ],
        "numbers": board,
        "board": board_html(board, {} if data is None else _links(data), name),
        "caption": tables.CAPTIONS["leaderboard"],
        "provenance": provenance_table(provenance),
        "figures": [
            (kind, encode_figure(figure), numbers) for kind, figure, numbers in drawings
        ],
        "explorer": None
        if data is None
        else explorer_data(data, text_limit, average, seed),
    }


def _add_family(
    table: pd.DataFrame, responses: pd.DataFrame | None, cluster: str | None
) -> pd.DataFrame:
    """The table with the family that all its intervals go by: the column `cluster`, or
    the family of its texts.
    """
    column = cluster or "family"
    if column not in table and responses is not None and column in responses:
        families = responses[[*PROMPT, column]].drop_duplicates(PROMPT)
        table = table.merge(families, how="left", on=PROMPT)
    if cluster is None:
        return table
    require_item_columns(table, [], [cluster])
    return table.assign(family=table[cluster])


def _links(data: Comparisons) -> dict[str, dict[str, str]]:
    """Column of the leaderboard to what its number counts, as fields of the explorer's
    selection.
    """
    columns = data.benchmark.subset_names
    links = {
        columns.get(name, name): {"subset": name}
        for name in data.prompts["subset"].unique()
    }
    links |= {name: {"domain": name} for name in data.prompts["domain"].unique()}
    links |= {name: {"subset": name} for name in data.benchmark.sections}
    return links | {level: {"level": level} for level in LEVELS} | {"overall": {}}


def _figures(
    table: pd.DataFrame, board: pd.DataFrame, average: Average, has_styles: bool
) -> _Figures:
    yield (
        "overall",
        plots.plot_leaderboard(board),
        board[["model", "kind", "overall", "low", "high", "group"]],
    )
    models, blind = (
        board["model"][board["kind"] == kind] for kind in ("model", "baseline")
    )
    panels = [
        table[table["model"] == model] for model in [*models[:_MOST_PANELS], *blind[:1]]
    ]
    best = pd.concat(panels, ignore_index=True)
    if benchmark_of(table).needs == "scores":
        yield from _best_of_figures(best)
    elif has_styles:
        bars = table[table["model"].isin([*models[:_MOST_BARS], *blind])]
        levels = metrics.accuracy(bars, by=["model", "level"], average=average)
        yield "levels", plots.plot_style_gap(levels), levels
        cells = metrics.accuracy(
            best, by=["model", "chosen_style", "rejected_style"], average=average
        )
        yield "matrices", plots.plot_matrices(best, average=average), cells
    elif "length" in table:
        lengths = metrics.accuracy(
            best, by=["model", "length"], average="prompts"
        ).dropna(subset=["low"])
        if len(lengths):
            yield "length", plots.plot_forest(lengths), lengths


def _best_of_figures(scores: pd.DataFrame) -> _Figures:
    subsets = metrics.estimates(scores).query("quantity == 'subset'")
    yield "subsets", plots.plot_subsets(subsets), subsets
    is_tie = scores["domain"] == TIES
    if not is_tie.all():
        curve = metrics.best_of_curve(scores[~is_tie])
        yield "best-of", plots.plot_best_of(curve), curve
    if is_tie.any():
        detail = metrics.ties_detail(scores)
        yield "ties", plots.plot_ties(detail), plots.tie_points(detail)


def write_page(
    out: str | PathLike[str],
    title: str,
    sections: Sequence[Mapping[str, object]],
    sources: Sequence[Path] = (),
) -> Path:
    """Write the page, its only script allowed by its hash."""
    from jinja2 import Environment, PackageLoader

    widgets, report = files("rmlab.widgets"), files("rmlab.report")
    script = "".join(
        file.read_text("utf-8")
        for file in (widgets / "explorer.js", report / "page.js")
    )
    environment = Environment(
        loader=PackageLoader("rmlab.report", "."), autoescape=True
    )
    environment.filters |= {"csv": encode_csv, "sha256": sha256, "visible": visible}
    html = environment.get_template("page.html").render(
        title=title,
        sections=sections,
        style="".join(
            file.read_text("utf-8")
            for file in (report / "page.css", widgets / "explorer.css")
        ),
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        files=sources,
        version=__version__,
    )
    return write_file(Path(out).expanduser(), html)


def write_explorer(
    table: pd.DataFrame,
    responses: pd.DataFrame,
    out: str | PathLike[str],
    *,
    title: str,
) -> Path:
    """Write a page with nothing but the explorer of scores or pairs and all their
    texts.
    """
    return write_page(
        out,
        title,
        [{"explorer": explorer_data(Comparisons(table, responses), text_limit=np.inf)}],
    )


def explorer_data(
    data: Comparisons, text_limit: float, average: Average = "benchmark", seed: int = 0
) -> dict[str, object]:
    """The explorer's data as lines of JSON: all columns, then a line for each prompt
    with its texts.

    `text_limit`: MiB of texts; beyond it those of a random sample of prompts.
    """
    name, size = (
        str(data.prompts["benchmark"].iloc[0]),
        np.array([len(text) for text in data.searchable]) / _MIB,
    )
    order = np.random.default_rng(seed).permutation(len(size))
    with_text = {
        *order[
            (np.cumsum(size[order]) <= text_limit) & (data.responses is not None)
        ].tolist()
    }
    lines = [data.payload(average=average, as_text=True)]
    lines += [
        data.texts(number) if number in with_text else {} for number in range(len(size))
    ]
    # Plain ASCII without an end tag or a comment, as it may stand in a script element.
    texts = [
        json.dumps(line, separators=(",", ":"), allow_nan=False).translate(_UNSAFE)
        for line in lines
    ]
    return {
        "benchmark": visible(name),
        "title": benchmark_title(name),
        "n_texts": len(with_text),
        "n_prompts": len(size),
        "mib": (size[[*with_text]].sum(), size.sum()),
        "data": "\n".join(texts),
    }


def board_html(
    board: pd.DataFrame, links: Mapping[str, Mapping[str, str]], benchmark: str
) -> str:
    """A leaderboard as an HTML table: its numbers lead to the prompts that they count."""
    cells = tables.printed_board(board).map(escape_html)
    hub = [
        f"https://huggingface.co/{quote(name)}" if _HUB_NAME.fullmatch(name) else ""
        for name in board["model"]
    ]
    cells["model"] = [
        _link(address, text) for address, text in zip(hub, cells["model"], strict=True)
    ]
    for name in cells.columns.intersection([*links]):
        fields = {"b": visible(benchmark), **links[name]}
        addresses = [
            f"#{urlencode(fields | {'models': model})}" for model in board["model"]
        ]
        cells[name] = [
            _link(address, text)
            for address, text in zip(addresses, cells[name], strict=True)
        ]
    parts = board.loc[:, "kind":"se"].columns[1:-1]
    shares = board[["overall", *parts]].round(3).astype("str")
    html: str = (
        cells.style.hide(axis="index")
        .set_uuid(hashlib.sha256(benchmark.encode()).hexdigest()[:8])
        .set_td_classes(pd.DataFrame(dict.fromkeys(cells.columns, board["kind"])))
        .apply(
            lambda column: "--share: " + shares[column.name], subset=shares.columns
        )  # page.css colours it
        .format_index(
            lambda name: escape_html(tables.heading(str(name))), axis="columns"
        )
        .to_html(table_attributes='class="sortable"')
    )
    return html


def _link(address: str, text: str) -> str:
    return (
        f'<a rel="noopener noreferrer" href="{escape_html(address)}">{text}</a>'
        if address and text
        else text
    )


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
    """A benchmark's name in print; of data of one's own the name itself."""
    return benchmarks_by_name()[name].title if name in benchmarks_by_name() else name
