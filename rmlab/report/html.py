"""A report on any number of models and several benchmarks as one HTML file."""

import re
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path

import pandas as pd

from rmlab import metrics, plots
from rmlab.baselines import is_baseline
from rmlab.benchmarks import benchmark_of
from rmlab.benchmarks.own_pairs import Columns
from rmlab.bias import style_differences
from rmlab.metrics.ties import TIES
from rmlab.metrics.weights import Average
from rmlab.report import page
from rmlab.report.leaderboard import leaderboard, with_baselines
from rmlab.report.results import Paths, Results, provenance_rows, read_results
from rmlab.report.sentences import MODELS, describe_models, may_be_first
from rmlab.report.tables import CAPTION
from rmlab.stats.ranking import MOST_MODELS
from rmlab.tables import LEVELS, DataError
from rmlab.text import visible
from rmlab.widgets.comparisons import Comparisons

_MOST_PANELS = 6  # models with a figure of their own: the best
_MOST_BARS = 30  # models in the figure of easy, normal, hard
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
    columns: Columns | None = None,
) -> Path:
    """Write one HTML file with a section for each benchmark.

    A section begins with its findings as sentences. It has the leaderboard with intervals, groups and baselines, sorted
    by a click and filtered by name, and the benchmark's figures with their numbers to download. A number of the
    leaderboard leads to the explorer of the prompts that it counts. The address in the browser says what is shown, so
    it can be passed on. The file needs no network and runs no script but its own; the same input gives the same bytes.

    Parameters
    ----------
    source : path, sequence of paths or DataFrame
        A folder, a glob or a list of result files (any that `read_scores` or `read_pairs` understands), or a table of
        scores or pairs.
    out : path
        The file to write, ending in .html or .htm.
    responses : DataFrame, optional
        The texts of benchmarks in `source`: they add the baselines that read them.
    texts : bool
        Whether prompts, answers and notes of `responses` are in the page.
    text_limit : float
        MiB of text of a benchmark in the page; beyond it those of a random sample of the prompts, and the page says how
        many.
    title : str
        Heading of the page.
    seed : int
        Seed of the random baseline and of the sample of prompts.
    columns : mapping, optional
        Our names to those of files of pairs, as in `rmlab.load_pairs`: {"chosen_score": "good"}.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    DataError
        Where nothing can be read, for another suffix of `out`, and for `texts` without `responses`.

    Notes
    -----
    Where no model has all domains of a benchmark, the section falls back to those that are there, each domain alike,
    and says so in its title. Where the scores of all models are too large for a page, their prompts are left out.
    """
    if Path(out).suffix.lower() not in (".html", ".htm"):
        raise DataError(f"out: {str(out)!r} does not end in .html. Tables for papers: rmlab.report.to_latex(board).")
    results = read_results(source, columns)
    if responses is None and results.texts:
        responses = pd.concat(results.texts.values(), ignore_index=True)
    if texts and responses is None:
        raise DataError("texts: there are no texts. Pass responses=rmlab.load(...), the benchmark that was scored.")
    if not text_limit > 0:
        raise DataError(f"text_limit: {text_limit!r}; give the MiB of text of a benchmark, more than 0")
    sections, explorers = [], []
    for name in list(results.tables):
        has_texts = responses is not None and (responses["benchmark"] == name).any()
        benchmark_texts = responses[responses["benchmark"] == name] if responses is not None and has_texts else None
        section, explorer = _section(name, results, benchmark_texts, text_limit if texts else 0.0, seed)
        sections.append(section)
        explorers += [explorer] if explorer is not None else []
    return page.write_page(out, title, sections, explorers, results.files)


def _section(
    name: str, results: Results, responses: pd.DataFrame | None, text_limit: float, seed: int
) -> tuple[dict[str, object], page.Explorer | None]:
    # Taken out: a table of millions of rows is not held beside the one with baselines.
    table = with_baselines(results.tables.pop(name), responses, seed=seed)
    board, average = _ranked(table, seed)
    title = page.benchmark_title(name)
    warning = ""
    if average == "domains":
        present = ", ".join(visible(domain) for domain in dict.fromkeys(table["domain"]))
        reason = metrics.summary(table, common=True)["reason"].iloc[0]
        title, warning = f"{title}: {present} only", f"Parts are missing ({reason}): the score averages {present}."
    file = re.sub(r"[^\w.-]+", "-", name).strip("-.")
    has_styles = table["style" if "style" in table else "chosen_style"].notna().any()
    is_paired = benchmark_of(table).needs == "pairs"
    described = table if has_styles or responses is None or not is_paired else style_differences(table, responses)
    n_models = int((board["kind"] == "model").sum())
    data = Comparisons(table, responses)
    explorer = (
        None if page.is_too_large(data) else page.explorer_data(data, text_limit=text_limit, average=average, seed=seed)
    )
    if explorer is None:
        warning = f"{warning} The prompts of {n_models:,} models are left out of this page.".strip()
    if n_models > MOST_MODELS:
        warning = f"{warning} Places have no range and no group: these are worked out for {MOST_MODELS} models.".strip()
    hub = benchmark_of(table).hub
    section: dict[str, object] = {
        "title": title,
        "counts": f"{n_models:,} model{'' if n_models == 1 else 's'}, {int(board['n_prompts'].max()):,} prompts.",
        "download": page.download_data(board, f"{file}-leaderboard"),
        "prompts": visible(name) if explorer else "",
        "warning": warning,
        "findings": [visible(text) for text in _findings(described, board)],
        "board": page.board_rows(board, _links(data) if explorer else {}, name),
        "caption": CAPTION,
        "explanation": _explanation(data),
        "source": hub
        and {"link": f"https://huggingface.co/datasets/{hub.repo}", "repo": hub.repo, "revision": hub.revision[:12]},
        "provenance": provenance_rows(results.provenance.get(name, {})),
        "figures": [*_figures(file, table, board, average), *_length_figures(file, described, board)],
    }
    return section, explorer


def _findings(table: pd.DataFrame, board: pd.DataFrame) -> Iterator[str]:
    models = board[board["kind"] == "model"]
    if models.empty:
        return
    yield from describe_models(table, models["model"].head(MODELS))
    yield from may_be_first(models)


def _length_figures(file: str, pairs: pd.DataFrame, board: pd.DataFrame) -> Iterator[dict[str, object]]:
    """Accuracy by the length of unlabelled answers, of the best models."""
    if "length" not in pairs:
        return
    best = pairs[pairs["model"].isin(board["model"].head(_MOST_PANELS))]
    table = metrics.accuracy(best, by=["model", "length"], average="prompts").dropna(subset=["low"])
    if table.empty:
        return
    caption = (
        "Accuracy where the chosen answer is shorter than the rejected one, about equal or longer. These are different "
        "prompts, so that a difference between them is not the effect of length alone."
    )
    yield page.figure_data(plots.plot_forest(table), table, f"{file}-length", caption)


def _ranked(table: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, Average]:
    """The leaderboard, of the domains that are there where no model has all of them."""
    board = leaderboard(table, common=True, seed=seed)
    if board["overall"].notna().any():
        return board, "benchmark"
    fallback = leaderboard(table, common=True, seed=seed, average="domains")
    return (fallback, "domains") if fallback["overall"].notna().any() else (board, "benchmark")


def _links(data: Comparisons) -> dict[str, dict[str, str]]:
    """Column of the leaderboard to what its number counts, as fields of the explorer's selection."""
    benchmark = data.benchmark
    domains = {visible(domain): {"domain": visible(domain)} for domain in data.prompts["domain"].unique()}
    subsets = {
        benchmark.subset_names.get(name, name): {"subset": visible(name)} for name in data.prompts["subset"].unique()
    }
    sections = {name: {"subset": name} for name in benchmark.sections}
    levels = {level: {"level": level} for level in LEVELS} if (data.cell >= 0).all() else {}
    return {"overall": {}, **subsets, **domains, **sections, **levels}


def _explanation(data: Comparisons) -> str:
    sections = [f"{name}: {', '.join(subsets)}." for name, subsets in data.benchmark.sections.items()]
    return " ".join([*([_LEVELS] if (data.cell >= 0).all() else []), *sections])


def _figures(file: str, table: pd.DataFrame, board: pd.DataFrame, average: Average) -> Iterator[dict[str, object]]:
    if board["overall"].isna().all():
        return
    numbers = board[["model", "kind", "overall", "low", "high", "group"]]
    caption = "Overall score with its 95 % interval."
    yield page.figure_data(plots.plot_leaderboard(board), numbers, f"{file}-overall", caption)
    models = [model for model in board["model"] if not is_baseline(model)]
    baselines = [model for model in board["model"] if is_baseline(model)]
    panels = [*models[:_MOST_PANELS], *baselines[:1]]
    if benchmark_of(table).needs == "scores":
        yield from _best_of_figures(file, table[table["model"].isin(panels)])
    elif (table["style" if "style" in table else "chosen_style"]).notna().all():
        yield from _style_figures(file, table, panels, [*models[:_MOST_BARS], *baselines], average)


def _best_of_figures(file: str, scores: pd.DataFrame) -> Iterator[dict[str, object]]:
    numbers = metrics.estimates(scores)
    subsets = numbers[numbers["quantity"] == "subset"]
    caption = f"Subset by subset: {_describe_panels(list(scores['model'].unique()))}; dotted: random scores."
    yield page.figure_data(plots.plot_subsets(subsets), subsets, f"{file}-subsets", caption)
    is_tie = scores["domain"] == TIES
    curve = None if is_tie.all() else metrics.best_of_curve(scores[~is_tie])
    if curve is not None:
        caption = "The right answer among n; dotted: chance."
        yield page.figure_data(plots.plot_best_of(curve), curve, f"{file}-best-of", caption)
    if is_tie.any():
        detail = metrics.ties_detail(scores)
        caption = "Ties: how far right answers spread, and stand above wrong ones; above the dashed line is good."
        yield page.figure_data(plots.plot_ties(detail), plots.tie_points(detail), f"{file}-ties", caption)


def _style_figures(
    file: str, table: pd.DataFrame, panels: Sequence[str], bars: Sequence[str], average: Average
) -> Iterator[dict[str, object]]:
    of_bars = _of_models(table, bars)
    levels = metrics.accuracy(of_bars, by=["model", "level"], average=average)
    caption = "Easy, normal and hard: the longer the line, the more style decides."
    yield page.figure_data(plots.plot_style_gap(levels), levels, f"{file}-levels", caption)
    of_panels = _of_models(table, panels)
    cells = metrics.accuracy(of_panels, by=["model", "chosen_style", "rejected_style"], average=average)
    caption = f"Style against substance: {_describe_panels(panels)}."
    yield page.figure_data(plots.plot_matrices(of_panels, average=average), cells, f"{file}-matrices", caption)


def _of_models(table: pd.DataFrame, models: Sequence[str]) -> pd.DataFrame:
    """The rows of some models, in the order of these."""
    return pd.concat([table[table["model"] == model] for model in models])


def _describe_panels(models: Sequence[str]) -> str:
    """Which models a figure shows, in words."""
    n_models = sum(not is_baseline(model) for model in models)
    best = "the best " if n_models == _MOST_PANELS else ""
    baseline = " and a baseline" if len(models) > n_models else ""
    return f"{best}{n_models} model{'' if n_models == 1 else 's'}{baseline}"
