"""A leaderboard or a comparison as Markdown, LaTeX or CSV, and any table in a notebook."""

import re
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pandas as pd
from pandas.api.types import is_integer_dtype, is_numeric_dtype

from rmlab.benchmarks.registry import with_columns
from rmlab.records import write_file
from rmlab.tables import DataError
from rmlab.text import escape_html, escape_latex, escape_markdown, format_csv, line

CAPTION = (
    "Scores from 0 to 1; 95 % interval of the overall score, clustered by prompt. Models that share a letter are not "
    "clearly different (paired, all pairs at once). Baselines do not read the answer."
)
_COMPARISON_CAPTION = (
    "Scores from 0 to 1 and their difference (A minus B) with its 95 % interval, clustered by prompt and paired. The "
    "adjusted p allows for all the rows of the table."
)
_COUNTS = ("n_prompts", "n_ties", "missing")
_HEADINGS = {
    "n_prompts": "prompts",
    "low": "95 % interval",
    "model_a": "A",
    "model_b": "B",
    "value_a": "score of A",
    "value_b": "score of B",
    "p_holm": "adjusted p",
}
_LABEL = re.compile(r"[\w:./+-]+")
_LEADERBOARD = ("rank", "model", "kind", "overall", "low", "high", "group", "rank_low", "rank_high")
_NOT_SCORES = {*_LEADERBOARD, *_COUNTS, "se", "average", "reason"} - {"overall"}
_COMPARISON = ("model_a", "model_b", "value_a", "value_b", "difference", "low", "high", "p", "n_prompts")
_WIDTH = 60  # letters in a line of a cell, in plain text
_NUMBER_CSS = "text-align: right; vertical-align: top"
_TEXT_CSS = "text-align: left; vertical-align: top; white-space: pre-wrap; overflow-wrap: break-word; max-width: 70ch"


def to_markdown(board: pd.DataFrame) -> str:
    """Write a leaderboard or a comparison as a Markdown table.

    Parameters
    ----------
    board : DataFrame
        What `rmlab.leaderboard`, `rmlab.compare` or `rmlab.stats.compare_all` return.

    Returns
    -------
    str
        Scores from 0 to 1 with intervals; names are escaped.
    """
    cells = _escaped(board, escape_markdown, "*{}*")
    rule = ["---" if name in _text_columns(board) else "--:" for name in cells.columns]
    lines = [[escape_markdown(heading(name)) for name in cells.columns], rule, *cells.to_numpy().tolist()]
    return "\n".join("| " + " | ".join(texts) + " |" for texts in lines) + "\n"


def to_latex(board: pd.DataFrame, *, caption: str | None = None, label: str | None = None) -> str:
    r"""Write a leaderboard or a comparison as a LaTeX table with booktabs rules (`\usepackage{booktabs}`).

    Parameters
    ----------
    board : DataFrame
        What `rmlab.leaderboard`, `rmlab.compare` or `rmlab.stats.compare_all` return.
    caption, label : str, optional
        By default a sentence on the columns, and "tab:leaderboard" or "tab:comparison".

    Returns
    -------
    str
        The table, written by a pandas Styler; all names are escaped.
    """
    is_comparison = _is_comparison(board)
    label = ("tab:comparison" if is_comparison else "tab:leaderboard") if label is None else label
    if not _LABEL.fullmatch(label):
        raise DataError(f"label: {label!r} cannot be a label; allowed: letters, digits and : . / _ + -")
    cells = _escaped(board, escape_latex, r"\textit{{{}}}")
    usual_caption = _COMPARISON_CAPTION if is_comparison else CAPTION
    styler = cells.rename(columns=lambda name: escape_latex(heading(name))).style.hide(axis="index")
    latex: str = styler.to_latex(
        hrules=True,
        position_float="centering",
        column_format="".join("l" if name in _text_columns(board) else "r" for name in cells.columns),
        label=label,
        caption=escape_latex(usual_caption if caption is None else caption),
    )
    return latex


def to_csv(board: pd.DataFrame, path: str | Path | None = None) -> str:
    """Write a leaderboard or a comparison as CSV with every digit.

    Parameters
    ----------
    board : DataFrame
        What `rmlab.leaderboard`, `rmlab.compare` or `rmlab.stats.compare_all` return.
    path : path, optional
        A file to write.

    Returns
    -------
    str
        The text. A name that a spreadsheet would run as a formula gets a quote before it.
    """
    if not _is_comparison(board):
        _check_leaderboard(board)
    text = format_csv(board)
    if path is not None:
        write_file(Path(path), text)
    return text


@dataclass(frozen=True, repr=False)
class ShownTable:
    """A table as `show` returns it: HTML in Jupyter, plain text elsewhere.

    Parameters
    ----------
    cells : DataFrame
        The texts of the cells.
    is_text : list of bool
        For each column whether it holds texts, which are set to the left and wrapped, or numbers.
    caption : str
        The sentence above the table; empty for none.
    """

    cells: pd.DataFrame
    is_text: list[bool]
    caption: str = ""

    def _repr_html_(self) -> str:
        styles = [_TEXT_CSS if text else _NUMBER_CSS for text in self.is_text]
        caption = f'<caption style="text-align: left">{escape_html(self.caption)}</caption>' if self.caption else ""
        rows = "".join(_row_html("td", texts, styles) for texts in self.cells.to_numpy())
        head = _row_html("th", self.cells.columns, styles)
        return f"<table>{caption}<thead>{head}</thead><tbody>{rows}</tbody></table>"

    def __repr__(self) -> str:
        lines: list[tuple[str, ...]] = []
        for texts in [self.cells.columns, *self.cells.to_numpy()]:
            lines += zip_longest(*(textwrap.wrap(line(text), _WIDTH) or [""] for text in texts), fillvalue="")
        columns = []
        for texts, is_text in zip(zip(*lines, strict=True), self.is_text, strict=True):
            width = max(map(len, texts))
            columns.append([text.ljust(width) if is_text else text.rjust(width) for text in texts])
        rows = ["  ".join(texts).rstrip() for texts in zip(*columns, strict=True)]
        return "\n".join([self.caption, *rows] if self.caption else rows)


def show(table: pd.DataFrame) -> ShownTable:
    """Show a whole table as the last line of a cell: no row, column or text is cut.

    Long texts wrap, and numbers are rounded to three decimals. Row labels are shown unless they are plain row numbers.
    A leaderboard is shown as it is printed: places with their ranges, scores with their interval, baselines marked.

    Parameters
    ----------
    table : DataFrame
        Any table.

    Returns
    -------
    ShownTable
        Jupyter shows it as HTML in which every text is escaped. Elsewhere it is plain text.

    Examples
    --------
    >>> show(pd.DataFrame({"model": ["long", "short"], "share": [0.123456, float("nan")], "n": [12, 7]}))
    model  share   n
    long   0.123  12
    short          7
    """
    if {*_LEADERBOARD} <= {*table.columns}:
        board = _escaped(table, str, "{}")
        is_text = [name in _text_columns(table) for name in board.columns]
        return ShownTable(board.rename(columns=heading), is_text, CAPTION)
    is_numbered = table.index.name is None and is_integer_dtype(table.index.dtype)
    levels = [] if is_numbered else range(table.index.nlevels)
    labels = [table.index.get_level_values(level).to_series() for level in levels]
    columns = [*labels, *(table.iloc[:, place] for place in range(table.shape[1]))]
    texts = np.array([[_format_cell(value) for value in column] for column in columns], dtype=object)
    headings = ["" if column.name is None else str(column.name) for column in columns]
    cells = pd.DataFrame(texts.reshape(len(columns), len(table)).T, columns=headings)
    return ShownTable(cells, [not is_numeric_dtype(column.dtype) for column in columns])


def printed_leaderboard(board: pd.DataFrame) -> pd.DataFrame:
    """The columns of a leaderboard as they are printed; counts that are all zero are left out."""
    _check_leaderboard(board)
    scores = score_columns(board)
    columns: dict[str, list[str]] = {
        "rank": [_format_rank(*ranks) for ranks in board[["rank", "rank_low", "rank_high"]].to_numpy()],
        "model": board["model"].astype(str).tolist(),
        **{name: [_format_share(value) for value in board[name]] for name in scores},
        "low": _format_intervals(board, ""),
        "group": board["group"].astype(str).tolist(),
    }
    for name in _COUNTS:
        if name in board and name not in scores and (name == "n_prompts" or board[name].any()):
            columns[name] = [f"{n:,}" for n in board[name]]
    return pd.DataFrame(columns, index=board.index)


def score_columns(board: pd.DataFrame) -> list[str]:
    """Columns that hold shares: the benchmark's own, up to overall."""
    return [name for name in board.columns if name not in _NOT_SCORES]


def chance_of(board: pd.DataFrame) -> float:
    """The score of random answers in the benchmark of the columns: 1/4 in best of four, else 1/2."""
    return with_columns(board.columns).lowest_chance


def heading(column: str) -> str:
    """A column's name as it is printed: in words, `low` as the interval that it begins."""
    return _HEADINGS.get(column, column.replace("_", " "))


def shade(share: float, chance: float) -> str:
    """CSS background of a share: none at chance, blue above, red below."""
    if np.isnan(share):
        return ""
    strength = (share - chance) / (1 - chance) if share >= chance else (chance - share) / chance
    colour = "33, 102, 172" if share >= chance else "178, 24, 43"
    return f"background-color: rgba({colour}, {0.35 * min(strength, 1.0):.3f})"


def _escaped(board: pd.DataFrame, escape: Callable[[str], str], baseline: str) -> pd.DataFrame:
    """The columns as they are printed, every cell escaped; `baseline` formats the name of a baseline."""
    if _is_comparison(board):
        return _printed_comparison(board).map(escape)
    cells = printed_leaderboard(board).reset_index(drop=True).map(escape)
    is_blind = (board["kind"] == "baseline").tolist()
    names = [
        f"{baseline.format(name)} (baseline)" if blind else name
        for name, blind in zip(cells["model"], is_blind, strict=True)
    ]
    return cells.assign(model=names)


def _printed_comparison(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns of a comparison as they are printed; the adjusted p only where there are several rows."""
    columns = {name: frame[name].astype(str).tolist() for name in _text_columns(frame)}
    columns |= {name: [_format_share(value) for value in frame[name]] for name in ("value_a", "value_b")}
    columns["difference"] = [_format_share(value, "+") for value in frame["difference"]]
    columns["low"] = _format_intervals(frame, "+")
    for name in ("p", "p_holm") if "p_holm" in frame and len(frame) > 1 else ("p",):
        columns[name] = ["" if np.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}" for p in frame[name]]
    columns["n_prompts"] = [f"{n:,}" for n in frame["n_prompts"]]
    return pd.DataFrame(columns, index=frame.index)


def _is_comparison(board: pd.DataFrame) -> bool:
    return {*_COMPARISON} <= {*board.columns}


def _text_columns(board: pd.DataFrame) -> list[str]:
    """Columns of texts, which are set to the left."""
    return list(board.columns[: board.columns.get_loc("value_a")]) if _is_comparison(board) else ["model", "group"]


def _check_leaderboard(board: pd.DataFrame) -> None:
    missing = [name for name in _LEADERBOARD if name not in board.columns]
    if missing:
        raise DataError(f"board: no column {missing[0]!r}. Pass what rmlab.leaderboard or rmlab.compare returns.")


def _format_share(share: float, sign: str = "") -> str:
    return "" if np.isnan(share) else f"{share:{sign}.3f}"


def _format_intervals(frame: pd.DataFrame, sign: str) -> list[str]:
    limits = zip(frame["low"], frame["high"], strict=True)
    return [
        "" if np.isnan(low) else f"{_format_share(low, sign)} to {_format_share(high, sign)}" for low, high in limits
    ]


def _format_rank(rank: float, low: float, high: float) -> str:
    is_alone = pd.isna(low) or low == high
    return "" if pd.isna(rank) else f"{rank}" if is_alone else f"{rank} ({low} to {high})"


def _format_cell(value: object) -> str:
    if isinstance(value, float | np.floating):
        number = float(value)
        return "" if np.isnan(number) else f"{number:.1g}" if 0 < abs(number) < 0.001 else f"{number:z.3f}"
    return "" if value is None or value is pd.NA or value is pd.NaT else str(value)


def _row_html(tag: str, texts: Iterable[str], styles: list[str]) -> str:
    cells = [f'<{tag} style="{css}">{escape_html(text)}</{tag}>' for text, css in zip(texts, styles, strict=True)]
    return f"<tr>{''.join(cells)}</tr>"
