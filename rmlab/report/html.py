"""Results of several benchmarks as one HTML file."""

import re
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path

import pandas as pd

from rmlab import escapes, io, metrics, plots
from rmlab.baselines import is_baseline
from rmlab.benchmarks import benchmark_of, known
from rmlab.files import matches, require_inside, write
from rmlab.io.own import SIDECAR, sha256
from rmlab.items.ties import TIES
from rmlab.plots.best_of import plot_best_of, plot_subsets, plot_ties
from rmlab.plots.leaderboard import plot_leaderboard
from rmlab.records import SUFFIXES
from rmlab.report import page
from rmlab.report.leaderboard import leaderboard, with_baselines
from rmlab.tables import DataError, check_pairs, check_scores

__all__ = ["read_results", "write_report"]

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]

_PANELS = 6  # models drawn one by one: the best
_BARS = 30  # models in the figure of easy, normal, hard


def write_report(
    source: Paths | pd.DataFrame,
    out: str | PathLike[str],
    *,
    responses: pd.DataFrame | None = None,
    title: str = "Reward models",
    seed: int = 0,
) -> Path:
    """Write one HTML file with a section for each benchmark in `source`, and return its path.

    `source`: a folder, a glob or a list of result files (any that `read_scores` or `read_pairs` understands), or a
    table of scores or pairs. Each section has the leaderboard with intervals, groups and baselines, sortable by a
    click, and the benchmark's figures (matrices and levels; subsets, best-of-n curves and Ties) with their numbers to
    download. `responses` adds the baselines that need the texts, for the benchmarks that it holds.
    The file needs no network and nothing beside it, and all names from files are escaped. The same input gives the
    same bytes. Raises DataError where nothing can be read, naming the file.
    """
    tables, files = read_results(source)
    sections = [_section(name, table, _texts(responses, name), seed) for name, table in tables.items()]
    text = page.page(title, sections, _footer(files))
    path = Path(out).expanduser()
    return write(path, text)


def read_results(source: Paths | pd.DataFrame) -> tuple[dict[str, pd.DataFrame], list[Path]]:
    """Scores (pairs, where a file holds only these) of each benchmark in `source`, and the files read."""
    if isinstance(source, pd.DataFrame):
        scored = "score" in source.columns
        return _by_benchmark([check_scores(source, allow_missing=True) if scored else check_pairs(source)]), []
    files = _files(source)
    return _by_benchmark([_read(path) for path in files]), files


def _files(source: Paths) -> list[Path]:
    if not isinstance(source, str | PathLike):
        return [path for one in source for path in _files(one)]
    path = Path(source).expanduser()
    if path.is_file():
        return [path]
    folder = path.is_dir()
    files = sorted(p for p in (path.rglob("*") if folder else matches(str(path))) if _is_result(p))
    if folder:
        files = [require_inside(file, path) for file in files]
    if not files:
        hint = (
            "it looks like a store whose runs have not ended: run rmlab score ... --store THIS to the end"
            if folder and any(path.glob("*/*.scores"))
            else f"expected {', '.join(SUFFIXES)}, such as rmlab score ... -o writes"
        )
        raise DataError(f"{path}: no result files there; {hint}")
    return files


def _is_result(path: Path) -> bool:
    named = path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and not path.name.endswith(SIDECAR)
    return named and path.is_file() and not any(path.parent.glob("*.scores"))  # a store's ledgers have notes in JSON


def _read(path: Path) -> pd.DataFrame:
    try:
        return io.read_scores(path, allow_missing=True)
    except DataError as error:
        try:
            return io.read_pairs(path)
        except DataError:
            raise error from None


def _by_benchmark(frames: list[pd.DataFrame]) -> dict[str, pd.DataFrame]:
    found: dict[str, list[pd.DataFrame]] = {}
    for frame in frames:
        for name, part in frame.groupby("benchmark", sort=False):
            found.setdefault(str(name), []).append(part)
    return {name: _one_table(parts) for name, parts in found.items()}


def _one_table(parts: list[pd.DataFrame]) -> pd.DataFrame:
    for part in parts:
        part.attrs = {}
    scored = ["score" in part.columns for part in parts]
    if not all(scored) and any(scored):
        parts = [metrics.pairs(part) if has else part for part, has in zip(parts, scored, strict=True)]
    return pd.concat(parts, ignore_index=True)


def _texts(responses: pd.DataFrame | None, benchmark: str) -> pd.DataFrame | None:
    if responses is None or benchmark not in set(responses["benchmark"]):
        return None
    return responses[responses["benchmark"] == benchmark]


def _section(name: str, table: pd.DataFrame, responses: pd.DataFrame | None, seed: int) -> tuple[str, str]:
    whole = with_baselines(table, responses, seed=seed)
    board = leaderboard(whole, common=True, seed=seed)
    heading = _title(name)
    models = int((board["kind"] == "model").sum())
    said = "1 model" if models == 1 else f"{models} models"
    prompts = int(board["n_prompts"].max())
    file = re.sub(r"[^\w.-]+", "-", name).strip("-.")
    parts = [
        f"<p>{said}, {prompts:,} prompts. {page.download(board, f'{file}-leaderboard')}</p>",
        page.board_html(board),
        *_figures(name, file, whole, board),
    ]
    return heading, "".join(parts)


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
    elif _styled(whole):
        shown = [*[m for m in board["model"] if not is_baseline(m)][:_BARS], *filter(is_baseline, board["model"])]
        pairs = whole[whole["model"].isin(shown)]
        pairs = metrics.pairs(pairs) if "score" in pairs.columns else pairs
        yield from _style_figures(file, pairs, [*best, *blind], shown)


def _best_of_figures(file: str, scores: pd.DataFrame) -> Iterator[str]:
    found = metrics.estimates(scores)
    subsets = found[found["quantity"] == "subset"]
    caption = f"The best {_PANELS} models, subset by subset; dotted: random scores."
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
        yield page.figure_html(plot_ties(detail), detail, f"{file}-ties", caption)


def _style_figures(file: str, pairs: pd.DataFrame, panels: list[str], bars: list[str]) -> Iterator[str]:
    ordered = pd.concat([pairs[pairs["model"] == model] for model in bars])
    levels = metrics.accuracy(ordered, by=["model", "level"])
    caption = "Easy, normal and hard: the longer the line, the more style decides."
    yield page.figure_html(plots.plot_style_gap(levels), levels, f"{file}-levels", caption)
    few = pd.concat([pairs[pairs["model"] == model] for model in panels])
    cells = metrics.accuracy(few, by=["model", "chosen_style", "rejected_style"])
    caption = f"Style against substance: the best {_PANELS} models and a baseline."
    yield page.figure_html(plots.plot_matrices(few), cells, f"{file}-matrices", caption)


def _styled(table: pd.DataFrame) -> bool:
    column = "style" if "style" in table.columns else "chosen_style"
    return bool(table[column].notna().all())


def _footer(files: list[Path]) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        made = version("rmlab")
    except PackageNotFoundError:
        made = "from source"
    rows = "".join(f"<li>{escapes.html(path.name)} <code>{sha256(path)}</code></li>" for path in files)
    read = "1 file" if len(files) == 1 else f"{len(files)} files"
    listed = f"<details><summary>{read} read (SHA-256)</summary><ul>{rows}</ul></details>" if files else ""
    return f'<p class="note">Made by rmlab {escapes.html(made)}.</p>{listed}'
