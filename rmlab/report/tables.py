"""A leaderboard or a comparison as Markdown, LaTeX or CSV, and any table in a notebook."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from pandas.api.types import is_integer_dtype, is_numeric_dtype

from rmlab.records import write_file
from rmlab.tables import DataError
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
    "leaderboard": "Scores from 0 to 1; 95 % interval of the overall score, clustered by prompt."
    f"{_LETTERS} Baselines do not read the answer.",
    "comparison": "Scores from 0 to 1 and their difference (A minus B) with its 95 % interval, clustered by prompt and "
    "paired. The adjusted p allows for all the rows of the table.",
}
_HEADINGS = {
    "n_prompts": "prompts",
    "low": "95 % interval",
    "p_holm": "adjusted p",
    "model_a": "A",
    "model_b": "B",
}
_HEADINGS |= {"value_a": "score of A", "value_b": "score of B"}
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
_CSS = "<style>.rmlab-table :is(th, td) {text-align: left !important; white-space: pre-wrap; max-width: 70ch}</style>"


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
    cells = _escape_cells(board, escape_markdown, "*{}*")
    rule = ["--:" if is_numeric_dtype(board[name]) else "---" for name in cells.columns]
    lines = [
        [escape_markdown(heading(name)) for name in cells.columns],
        rule,
        *cells.to_numpy().tolist(),
    ]
    return "".join("| " + " | ".join(texts) + " |\n" for texts in lines)


def to_latex(
    board: pd.DataFrame, *, caption: str | None = None, label: str | None = None
) -> str:
    r"""Write a leaderboard or a comparison as a LaTeX table with booktabs rules
    (`\usepackage{booktabs}`).

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
    kind = _check_board(board)
    cells = _escape_cells(board, escape_latex, r"\textit{{{}}}")
    latex: str = (
        cells.rename(columns=lambda name: escape_latex(heading(name)))
        .style.hide(axis="index")
        .to_latex(
            hrules=True,
            position_float="centering",
            column_format="".join(
                "r" if is_numeric_dtype(board[name]) else "l" for name in cells.columns
            ),
            label=f"tab:{kind}" if label is None else label,
            caption=escape_latex(CAPTIONS[kind] if caption is None else caption),
        )
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
        text = self.cells.map(line).rename(columns=line).to_string(index=False)
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
    >>> show(pd.DataFrame({"model": ["long", "short"], "share": [0.123456, float("nan")], "n": [12, 7]}))
    model share  n
     long 0.123 12
    short        7
    """
    if table.index.name is not None or not is_integer_dtype(table.index.dtype):
        labels = ["" if name is None else name for name in table.index.names]
        table = table.reset_index(names=labels, allow_duplicates=True)
    cells = table.astype(object).map(_format_value)
    caption = ""
    if {*table.columns} >= _COLUMNS["leaderboard"]:
        caption = CAPTIONS["leaderboard"]
        cells["model"] += pd.Series(" (baseline)", index=cells.index).where(
            table["kind"] == "baseline", ""
        )
    if len(cells.columns) > _MOST_COLUMNS:
        cells = _join_intervals(cells)
        is_blank = cells.isin(["", "0"]).all()  # counts of nothing
        names = cells.columns[~is_blank].drop(["kind", "average"], errors="ignore")
        n_reasons = int("reason" in names)
        shown = [
            *names.drop("reason", errors="ignore")[: _MOST_COLUMNS - n_reasons],
            *["reason"] * n_reasons,
        ]
        hidden = names.drop(shown)
        if len(hidden):
            caption = f"{caption} Also in the table: {', '.join(hidden)}.".strip()
        if "group" not in shown:
            caption = caption.replace(_LETTERS, "")
        cells = cells[shown]
    return ShownTable(cells.set_axis(cells.columns.map(visible), axis=1), caption)


def _join_intervals(cells: pd.DataFrame) -> pd.DataFrame:
    """Put the limits of each interval behind its value, and leave its error out."""
    cells = cells.drop(columns="se", errors="ignore")
    for low in [
        name for name in cells.columns if name == "low" or str(name).endswith("_low")
    ]:
        high = f"{low.removesuffix('low')}high"
        value = (
            list(cells.columns)[list(cells.columns).index("low") - 1]
            if low == "low"
            else low.removesuffix("_low")
        )
        is_wide = cells[low] != cells[high]
        cells[value] += (" (" + cells[low] + " to " + cells[high] + ")").where(
            is_wide, ""
        )
        cells = cells.drop(columns=[low, high])
    return cells


def printed_board(board: pd.DataFrame) -> pd.DataFrame:
    """The columns of a leaderboard or a comparison as they are printed; counts that are
    all zero are left out.
    """
    is_comparison = _check_board(board) == "comparison"
    cells = board.astype(object).map(_format_value)
    numbers = board[["low", "high", "difference"] if is_comparison else ["low", "high"]]
    signed = numbers.map(("{:+.3f}" if is_comparison else "{:.3f}").format).where(
        numbers.notna(), ""
    )
    cells["low"] = (signed["low"] + " to " + signed["high"]).replace(" to ", "")
    if is_comparison:
        cells["difference"] = signed["difference"]
        cells[["p", "p_holm"]] = cells[["p", "p_holm"]].mask(
            board[["p", "p_holm"]] < 0.001, "< 0.001"
        )
    else:
        cells["rank"] = [
            _format_rank(*ranks)
            for ranks in board[["rank", "rank_low", "rank_high"]].to_numpy()
        ]
    hidden = (
        _NOT_PRINTED
        | (_NOT_COMPARED if is_comparison else set())
        | ({"p_holm"} if len(board) == 1 else set())
    )
    hidden |= {
        name
        for name in ("n_ties", "missing")
        if name in board and not board[name].any()
    }
    return cells.drop(columns=[*hidden], errors="ignore")


def heading(column: str) -> str:
    """A column's name as it is printed: in words, `low` as the interval that it begins."""
    return _HEADINGS.get(column, visible(column).replace("_", " "))


def _escape_cells(
    board: pd.DataFrame, escape: Callable[[str], str], baseline: str
) -> pd.DataFrame:
    """The columns as they are printed, every cell escaped; `baseline` formats the name
    of a baseline.
    """
    cells = printed_board(board).reset_index(drop=True).map(escape)
    if "kind" in board:
        is_blind = (board["kind"] == "baseline").to_numpy()
        cells.loc[is_blind, "model"] = [
            f"{baseline.format(name)} (baseline)" for name in cells["model"][is_blind]
        ]
    return cells


def _check_board(board: pd.DataFrame) -> str:
    """Whether a table is a leaderboard or a comparison; DataError where it is neither."""
    for kind, columns in _COLUMNS.items():
        if columns <= {*board.columns}:
            return kind
    missing = min(_COLUMNS["leaderboard"] - {*board.columns})
    raise DataError(
        f"board: no column {missing!r}. Pass what rmlab.leaderboard or rmlab.compare returns."
    )


def _format_rank(rank: float, low: float, high: float) -> str:
    is_alone = pd.isna(low) or low == high
    return (
        "" if pd.isna(rank) else f"{rank}" if is_alone else f"{rank} ({low} to {high})"
    )


def _format_value(value: object) -> str:
    """A cell as text: three decimals, more for small numbers, thousands with commas,
    empty where missing.
    """
    if isinstance(value, float):
        return (
            ""
            if np.isnan(value)
            else f"{value:.1g}"
            if 0 < abs(value) < 0.001
            else f"{value:z.3f}"
        )
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None or value is pd.NA or value is pd.NaT else visible(value)
