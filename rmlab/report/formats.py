"""A leaderboard or a comparison as Markdown, LaTeX or CSV; any table in a notebook."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from pandas.api.types import is_integer_dtype, is_numeric_dtype

from rmlab.records import write_file
from rmlab.tables import DataError, nearest
from rmlab.text import (
    escape_html,
    escape_latex,
    escape_markdown,
    format_csv,
    line,
    visible,
)

_LETTERS = (
    " Models that share a letter are not clearly different (paired, all pairs at once)."
)
CAPTIONS = {
    "leaderboard": (
        "Scores from 0 to 1; 95 % interval of the overall score, clustered by prompt."
        f"{_LETTERS} Baselines do not read the answer."
    ),
    "comparison": (
        "Scores from 0 to 1 and their difference (A minus B) with its 95 % interval, "
        "clustered by prompt and paired. "
        "The adjusted p allows for all the rows of the table."
    ),
}
_HEADINGS = {
    "n_prompts": "prompts",
    "low": "95 % interval",
    "p_holm": "adjusted p",
    "model_a": "A",
    "model_b": "B",
    "value_a": "score of A",
    "value_b": "score of B",
}
_COLUMNS = {
    "leaderboard": {
        "rank",
        "model",
        "kind",
        "overall",
        "low",
        "high",
        "group",
        "rank_low",
        "rank_high",
    },
    "comparison": {
        "model_a",
        "model_b",
        "value_a",
        "value_b",
        "difference",
        "low",
        "high",
        "p",
        "p_holm",
        "n_prompts",
    },
}
_NOT_PRINTED = {"kind", "se", "high", "rank_low", "rank_high", "average", "reason"}
_NOT_COMPARED = {"agreement", "n_pairs", "n_ties_a", "n_ties_b"}
_MOST_COLUMNS = 10  # that a notebook's page holds
_CSS = (
    "<style>.rmlab-table :is(th, td) "
    "{text-align: left !important; white-space: pre-wrap; max-width: 70ch}</style>"
)


def to_markdown(board: pd.DataFrame) -> str:
    """Write a leaderboard or a comparison as a Markdown table.

    Parameters
    ----------
    board : DataFrame
        What `rmlab.leaderboard`, `rmlab.rank` or `rmlab.compare` return.

    Returns
    -------
    str
        Scores from 0 to 1 with intervals; names are escaped.
    """
    cells = _escape_cells(board, escape_markdown, "*{}*")
    header = [escape_markdown(heading(name)) for name in cells.columns]
    rule = _mark_columns(board[cells.columns], "--:", "---")
    rows = [header, rule, *cells.to_numpy().tolist()]
    lines = ["| " + " | ".join(row) + " |\n" for row in rows]
    return "".join(lines)


def to_latex(
    board: pd.DataFrame,
    *,
    columns: Sequence[str] | None = None,
    caption: str | None = None,
    label: str | None = None,
) -> str:
    r"""Write a leaderboard or a comparison as a LaTeX table (`\usepackage{booktabs}`).

    Parameters
    ----------
    board : DataFrame
        What `rmlab.leaderboard`, `rmlab.rank` or `rmlab.compare` return.
    columns : sequence of str, optional
        The columns of `board` to print, in this order; "low" prints the interval. By
        default those that a paper needs.
    caption : str, optional
        LaTeX, written as it is; by default a sentence on the columns.
    label : str, optional
        By default "tab:leaderboard" or "tab:comparison".

    Returns
    -------
    str
        The table, written by a pandas Styler; all names in it are escaped.

    Raises
    ------
    DataError
        For another table, and for columns that it lacks.

    Examples
    --------
    >>> import rmlab
    >>> board = rmlab.leaderboard(rmlab.papers.results("smollm2-mini"))
    >>> latex = to_latex(
    ...     board, columns=["model", "overall", "low"], caption=r"\emph{Small} models"
    ... )
    >>> print(latex.splitlines()[6])
    model & overall & 95 \% interval \\
    """
    kind = _check_board(board)
    if caption is None:
        caption = escape_latex(CAPTIONS[kind])
    if label is None:
        label = f"tab:{kind}"
    cells = _escape_cells(board, escape_latex, r"\textit{{{}}}", columns)
    alignment = _mark_columns(board[cells.columns], "r", "l")
    headings = [escape_latex(heading(name)) for name in cells.columns]
    latex: str = (
        cells.set_axis(headings, axis="columns")
        .style.hide(axis="index")
        .to_latex(
            hrules=True,
            position_float="centering",
            column_format="".join(alignment),
            label=label,
            caption=caption,
        )
    )
    return latex


def to_csv(board: pd.DataFrame, path: str | Path | None = None) -> str:
    """Write a leaderboard or a comparison as CSV with every digit.

    Parameters
    ----------
    board : DataFrame
        What `rmlab.leaderboard`, `rmlab.rank` or `rmlab.compare` return.
    path : path, optional
        A file to write.

    Returns
    -------
    str
        The text. A name that a spreadsheet would run as a formula gets a quote before
        it.
    """
    _check_board(board)
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
        The texts of the cells, all visible.
    caption : str
        The sentence above the table; empty for none.
    """

    cells: pd.DataFrame
    caption: str = ""

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):
            table = self.cells.to_html(index=False, border=0, classes="rmlab-table")
        return f"{_CSS}<p>{escape_html(self.caption)}</p>{table}"

    def __repr__(self) -> str:
        cells = self.cells.map(line).rename(columns=line)
        text = cells.to_string(index=False)
        return f"{self.caption}\n{text}" if self.caption else text


def show(table: pd.DataFrame) -> ShownTable:
    """Show a table as the last line of a cell: no row and no text is cut.

    Long texts wrap in Jupyter, and numbers are rounded to three decimals. Row labels
    are shown unless they are plain row numbers. A table of more than ten columns has
    its intervals beside their numbers, as in "0.61 (0.55 to 0.67)", and leaves out
    errors and what is empty; columns beyond the tenth are named above it. Baselines of
    a leaderboard are marked.

    Parameters
    ----------
    table : DataFrame
        Any table.

    Returns
    -------
    ShownTable
        Jupyter shows it as HTML in which every text is escaped. Elsewhere it is plain
        text.

    Examples
    --------
    >>> share = [0.123456, float("nan")]
    >>> show(pd.DataFrame({"model": ["long", "short"], "share": share, "n": [12, 7]}))
    model share  n
     long 0.123 12
    short        7
    """
    if table.index.name is not None or not is_integer_dtype(table.index.dtype):
        labels = []
        for name in table.index.names:
            label = "" if name is None else name
            labels.append(label)
        table = table.reset_index(names=labels, allow_duplicates=True)
    cells = table.astype(object).map(_format_value)
    caption = ""
    if {*table.columns} >= _COLUMNS["leaderboard"]:
        caption = CAPTIONS["leaderboard"]
        is_blind = table["kind"] == "baseline"
        marks = pd.Series(" (baseline)", index=cells.index)
        cells["model"] += marks.where(is_blind, "")

    if len(cells.columns) > _MOST_COLUMNS:
        cells = _join_intervals(cells)
        shown, hidden = _choose_columns(cells)
        if hidden:
            caption = f"{caption} Also in the table: {', '.join(hidden)}.".strip()
        if "group" not in shown:
            caption = caption.replace(_LETTERS, "")
        cells = cells[shown]
    return ShownTable(cells.set_axis(cells.columns.map(visible), axis=1), caption)


def _join_intervals(cells: pd.DataFrame) -> pd.DataFrame:
    """Put the limits of each interval behind its value, and leave its error out."""
    cells = cells.drop(columns="se", errors="ignore")
    for low in [*cells.columns]:
        if low == "low":
            columns = [*cells.columns]
            value = columns[columns.index("low") - 1]
        elif str(low).endswith("_low"):
            value = low.removesuffix("_low")
        else:
            continue
        high = f"{low.removesuffix('low')}high"
        is_wide = cells[low] != cells[high]
        interval = " (" + cells[low] + " to " + cells[high] + ")"
        cells[value] += interval.where(is_wide, "")
        cells = cells.drop(columns=[low, high])
    return cells


def _choose_columns(cells: pd.DataFrame) -> tuple[list[str], list[str]]:
    """The columns that fit on a page, `reason` among them, and those that do not."""
    is_blank = cells.isin(["", "0"]).all()  # counts of nothing
    names = [*cells.columns[~is_blank]]
    others = [name for name in names if name not in ("kind", "average", "reason")]
    if "reason" in names:
        n_shown = _MOST_COLUMNS - 1
        return [*others[:n_shown], "reason"], others[n_shown:]
    return others[:_MOST_COLUMNS], others[_MOST_COLUMNS:]


def printed_board(
    board: pd.DataFrame, columns: Sequence[str] | None = None
) -> pd.DataFrame:
    """The columns of a leaderboard or a comparison as they are printed.

    By default counts that are all zero are left out, and columns that a paper does
    not need.
    """
    cells = _print_cells(board)
    if columns is not None:
        for name in columns:
            if name not in cells.columns:
                allowed = nearest(name, list(cells.columns))
                raise DataError(f"columns: no column {name!r}", allowed)
        return cells[list(columns)]

    hidden = {*_NOT_PRINTED}
    for name in ("n_ties", "missing"):
        if name in board and not board[name].any():
            hidden.add(name)
    if len(board) == 1:
        hidden.add("p_holm")
    if _check_board(board) == "comparison":
        hidden |= _NOT_COMPARED
    return cells.drop(columns=[*hidden], errors="ignore")


def _print_cells(board: pd.DataFrame) -> pd.DataFrame:
    """All cells as text; `low` is the interval, and a rank has its own behind it."""
    cells = board.astype(object).map(_format_value)
    if _check_board(board) == "comparison":
        cells["low"] = _format_intervals(board, "{:+.3f}")
        cells["difference"] = _format_numbers(board["difference"], "{:+.3f}")
        for name in ("p", "p_holm"):
            cells[name] = cells[name].mask(board[name] < 0.001, "< 0.001")
    else:
        cells["low"] = _format_intervals(board, "{:.3f}")
        ranks = zip(board["rank"], board["rank_low"], board["rank_high"], strict=True)
        cells["rank"] = [_format_rank(rank, low, high) for rank, low, high in ranks]
    return cells


def heading(column: str) -> str:
    """A column's name in words; `low` is the interval that it begins."""
    in_words = visible(column).replace("_", " ")
    return _HEADINGS.get(column, in_words)


def _escape_cells(
    board: pd.DataFrame,
    escape: Callable[[str], str],
    baseline: str,
    columns: Sequence[str] | None = None,
) -> pd.DataFrame:
    """The columns as they are printed, every cell escaped.

    `baseline` formats the name of a baseline.
    """
    cells = printed_board(board, columns).map(escape).reset_index(drop=True)
    if "kind" in board and "model" in cells:
        is_blind = (board["kind"] == "baseline").to_numpy()
        names = cells["model"][is_blind].map(baseline.format)
        cells.loc[is_blind, "model"] = names + " (baseline)"
    return cells


def _mark_columns(table: pd.DataFrame, of_numbers: str, of_texts: str) -> list[str]:
    """How each column is aligned, in the signs of the format."""
    marks = []
    for name in table.columns:
        mark = of_numbers if is_numeric_dtype(table[name]) else of_texts
        marks.append(mark)
    return marks


def _check_board(board: pd.DataFrame) -> str:
    """Whether a table is a leaderboard or a comparison; DataError if it is neither."""
    for kind, columns in _COLUMNS.items():
        if columns <= {*board.columns}:
            return kind
    missing = min(_COLUMNS["leaderboard"] - {*board.columns})
    remedy = "pass what rmlab.leaderboard or rmlab.compare returns"
    raise DataError(f"board: no column {missing!r}", remedy)


def _format_intervals(board: pd.DataFrame, form: str) -> pd.Series:
    """The intervals as text, empty where there is none."""
    low = _format_numbers(board["low"], form)
    high = _format_numbers(board["high"], form)
    return (low + " to " + high).replace(" to ", "")


def _format_numbers(values: pd.Series, form: str) -> pd.Series:
    return values.map(form.format).where(values.notna(), "")


def _format_rank(rank: float | None, low: float | None, high: float | None) -> str:
    if pd.isna(rank):
        return ""
    if pd.isna(low) or low == high:
        return f"{rank}"
    return f"{rank} ({low} to {high})"


def _format_value(value: object) -> str:
    """A cell as text: three decimals (more for small numbers), empty where missing."""
    if value is None or value is pd.NA or value is pd.NaT:
        return ""
    if isinstance(value, float):
        return _format_number(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return visible(value)


def _format_number(value: float) -> str:
    if np.isnan(value):
        return ""
    if 0 < abs(value) < 0.001:
        return f"{value:.1g}"
    return f"{value:z.3f}"
