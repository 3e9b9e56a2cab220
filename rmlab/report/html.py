"""Results of several benchmarks as one HTML file."""

import re
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from urllib.parse import quote

import pandas as pd

from rmlab import metrics, plots
from rmlab.baselines import is_baseline
from rmlab.benchmarks import benchmark_of, known
from rmlab.io.native import sha256
from rmlab.metrics.ties import TIES
from rmlab.metrics.weights import Average
from rmlab.plots import plot_best_of, plot_leaderboard, plot_subsets, plot_ties, tie_points
from rmlab.records import __version__, write_file
from rmlab.report import page
from rmlab.report.browsing import browsing, has_styles
from rmlab.report.leaderboard import leaderboard, with_baselines
from rmlab.report.results import Paths, Results, read_results
from rmlab.tables import DataError
from rmlab.text import escape_html, visible

__all__ = ["write_report"]

_PANELS = 6  # models drawn one by one: the best
_BARS = 30  # models in the figure of easy, normal, hard
_LEVELS = (
    "easy: the chosen answer has the fancier style, so that style helps; normal: both have the same style; hard: the "
    "rejected answer has the fancier one. From plain to fancy: concise, plain, markdown."
)


def write_report(
    source: Paths | pd.DataFrame,
    out: str | PathLike[str],
    *,
    responses: pd.DataFrame | None = None,
    texts: bool = False,
    text_limit: float = 20.0,
    title: str = "Reward models",
    seed: int = 0,
) -> Path:
    """Write one HTML file with a section for each benchmark in `source`, and return its path.

    `source`: a folder, a glob or a list of result files (any that `read_scores` or `read_pairs` understands), or a
    table of scores or pairs. Each section has the leaderboard with intervals, groups and baselines, sorted by a click
    and filtered by name, and the benchmark's figures (matrices and levels; subsets, best-of-n curves and Ties) with
    their numbers to download. A number of the leaderboard, or a cell of a model's matrix, leads to the prompts that it
    counts, and these to the scores and outcomes of their answers; the address in the browser says what is shown, so it
    can be passed on. How the models were scored is told where the files have their provenance.
    `responses` adds the baselines that need the texts, for the benchmarks that it holds. With `texts` prompts, answers
    and notes are in the page, too, up to `text_limit` MiB a benchmark: beyond it those of a random sample of the
    prompts, and the page says how many. Without it the page holds no text of the benchmark.
    The file needs no network and nothing beside it, runs no script but its own, and all names from files are escaped.
    The same input gives the same bytes. Raises DataError where nothing can be read, naming the file, and for `texts`
    without `responses`.
    """
    if texts and responses is None:
        raise DataError("texts: there are no texts; pass responses=rmlab.load(...), the benchmark that was scored")
    if not text_limit > 0:
        raise DataError(f"text_limit: {text_limit!r}; give the MiB of text that a benchmark may take, more than 0")
    results = read_results(source)
    limit = text_limit if texts else 0.0
    sections = [_section(name, results, _texts(responses, name), limit, seed) for name in list(results.tables)]
    return write_file(Path(out).expanduser(), page.page(title, sections, _footer(results.files)))


def _texts(responses: pd.DataFrame | None, benchmark: str) -> pd.DataFrame | None:
    if responses is None or benchmark not in set(responses["benchmark"]):
        return None
    return responses[responses["benchmark"] == benchmark]


def _section(name: str, results: Results, responses: pd.DataFrame | None, limit: float, seed: int) -> tuple[str, str]:
    # Taken out: a table of millions of rows is not kept beside the one with baselines.
    whole = with_baselines(results.tables.pop(name), responses, seed=seed)
    board = leaderboard(whole, common=True, seed=seed)
    models = int((board["kind"] == "model").sum())
    said = "1 model" if models == 1 else f"{models} models"
    file = re.sub(r"[^\w.-]+", "-", name).strip("-.")
    # Before the prompts, whose lists stay until the page is written.
    figures = list(_figures(name, file, whole, board))
    found = browsing(whole, responses, texts=limit > 0, limit=limit, seed=seed)
    parts = [
        f"<p>{said}, {int(board['n_prompts'].max()):,} prompts. {page.download(board, f'{file}-leaderboard')} "
        f'<a class="prompts" href="#b={escape_html(quote(visible(name)))}">Look at the prompts</a></p>',
        page.board_html(board, name, found.columns),
        _explained(name, whole),
        page.provenance_html(results.provenance.get(name, {})),
        *figures,
        page.browse_html(name, _title(name), found),
    ]
    return _title(name), "".join(parts)


def _explained(name: str, table: pd.DataFrame) -> str:
    """What the columns are, and where the benchmark is."""
    one = benchmark_of(table)
    parts = [_LEVELS] if has_styles(table) else []
    if one.sections:
        parts += [f"{column}: {', '.join(subsets)}." for column, subsets in one.sections.items()]
    at = page.hub_link(one.hub.repo, "datasets/") if one.hub is not None else ""
    source = f" Data: {at} at {escape_html(one.hub.revision[:12])}." if one.hub is not None and at else ""
    return f'<p class="note">{escape_html(" ".join(parts))}{source}</p>' if parts or source else ""


def _title(name: str) -> str:
    return known()[name].title if name in known() else name


def _figures(name: str, file: str, whole: pd.DataFrame, board: pd.DataFrame) -> Iterator[str]:
    if board["overall"].notna().any():
        drawn = plot_leaderboard(board)
        caption = f"{_title(name)}: overall score with its 95 % interval."
        yield page.figure_html(
            drawn, board[["model", "kind", "overall", "low", "high", "group"]], f"{file}-overall", caption
        )
    best = [m for m in board["model"] if not is_baseline(m)][:_PANELS]
    blind = [m for m in board["model"] if is_baseline(m)][:1]
    if benchmark_of(whole).needs == "scores":
        yield from _best_of_figures(file, whole[whole["model"].isin([*best, *blind])])
    elif has_styles(whole):
        shown = [*[m for m in board["model"] if not is_baseline(m)][:_BARS], *filter(is_baseline, board["model"])]
        yield from _style_figures(file, whole, [*best, *blind], shown)


def _drawn(models: Iterable[str]) -> str:
    """Which models a figure shows, in words."""
    blind = [is_baseline(model) for model in models]
    own = len(blind) - sum(blind)
    best = "the model" if own == 1 else f"the best {own} models" if own == _PANELS else f"{own} models"
    return " and ".join([*([best] if own else []), *(["a baseline"] if any(blind) else [])])


def _best_of_figures(file: str, scores: pd.DataFrame) -> Iterator[str]:
    found = metrics.estimates(scores)
    subsets = found[found["quantity"] == "subset"]
    caption = f"Subset by subset: {_drawn(scores['model'].unique())}; dotted: random scores."
    yield page.figure_html(plot_subsets(subsets), subsets, f"{file}-subsets", caption)
    tied = scores["domain"] == TIES
    curve = metrics.best_of_curve(scores[~tied]) if not tied.all() else None
    if curve is not None:
        yield page.figure_html(
            plot_best_of(curve), curve, f"{file}-best-of", "The right answer among n; dotted: chance."
        )
    if tied.any():
        detail = metrics.ties_detail(scores)
        caption = "Ties: how far right answers spread, and stand above wrong ones; above the dashed line is good."
        yield page.figure_html(plot_ties(detail), tie_points(detail), f"{file}-ties", caption)


def _style_figures(file: str, table: pd.DataFrame, panels: list[str], bars: list[str]) -> Iterator[str]:
    # Tables may have millions of rows: models are left out only where some are, and the rows of the result are ordered.
    drawn = table if set(bars) == set(table["model"].unique()) else table[table["model"].isin(bars)]
    found = metrics.accuracy(drawn, by=["model", "level"])
    average: Average = "domains" if found["accuracy"].isna().all() else "benchmark"
    note = " Parts are missing: the mean of the domains that are there." if average == "domains" else ""
    found = metrics.accuracy(drawn, by=["model", "level"], average=average)
    levels = pd.concat([found[found["model"] == model] for model in bars], ignore_index=True)
    caption = "Easy, normal and hard: the longer the line, the more style decides." + note
    yield page.figure_html(plots.plot_style_gap(levels), levels, f"{file}-levels", caption)
    few = pd.concat([table[table["model"] == model] for model in panels])
    cells = metrics.accuracy(few, by=["model", "chosen_style", "rejected_style"], average=average)
    caption = f"Style against substance: {_drawn(panels)}." + note
    yield page.figure_html(plots.plot_matrices(few, average=average), cells, f"{file}-matrices", caption)


def _footer(files: list[Path]) -> str:
    rows = "".join(f"<li>{escape_html(path.name)} <code>{sha256(path)}</code></li>" for path in files)
    read = "1 file" if len(files) == 1 else f"{len(files)} files"
    listed = f"<details><summary>{read} read (SHA-256)</summary><ul>{rows}</ul></details>" if files else ""
    return f'<p class="note">Made by rmlab {__version__}.</p>{listed}'
