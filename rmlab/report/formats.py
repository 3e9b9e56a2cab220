"""A table for readers: in a notebook, and as Markdown, LaTeX or CSV."""

from collections.abc import Sequence
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
_LEADERBOARD = (
    "Scores from 0 to 1; 95 % interval of the overall score, clustered by prompt.{} "
    "Baselines do not read the answer."
)
_COMPARISON = (
    "Scores from 0 to 1 and their difference (A minus B) with its 95 % interval, "
    "clustered by prompt and paired. "
    "The adjusted p allows for all the rows of the table."
)
_MOST_COLUMNS = 10  # that a notebook's page holds
_NOT_PRINTED = ("kind", "average", "reason")
_CSS = (
    "<style>.rmlab-table :is(th, td) "
    "{text-align: left !important; white-space: pre-wrap; max-width: 70ch}</style>"
)


def to_markdown(table: pd.DataFrame) -> str:
    """Write a table as a Markdown table.

    Parameters
    ----------
    table : DataFrame
        Such as `rmlab.leaderboard`, `rmlab.rank` or `rmlab.compare` return.

    Returns
    -------
    str
        Rounded numbers with their intervals, behind row labels that are not plain row
        numbers; names are escaped, and empty columns are left out.
    """
    cells = print_cells(_keep_labels(table)).map(escape_markdown)
    header = [escape_markdown(name) for name in cells.columns]
    rule = ["---"] * len(header)
    rows = [header, rule, *cells.to_numpy().tolist()]
    lines = ["| " + " | ".join(row) + " |\n" for row in rows]
    return "".join(lines)


def to_latex(
    table: pd.DataFrame,
    *,
    columns: Sequence[str] | None = None,
    caption: str | None = None,
    label: str | None = None,
) -> str:
    r"""Write a table as a LaTeX table (`\usepackage{booktabs}`).

    Parameters
    ----------
    table : DataFrame
        Such as `rmlab.leaderboard`, `rmlab.rank` or `rmlab.compare` return.
    columns : sequence of str, optional
        The columns to print, in this order; a number has its interval behind it. By
        default all but errors and empty columns.
    caption : str, optional
        LaTeX, written as it is; by default a sentence on the columns.
    label : str, optional

    Returns
    -------
    str
        The table, written by a pandas Styler; all names in it are escaped.

    Raises
    ------
    DataError
        For columns that the table lacks.

    Examples
    --------
    >>> import rmlab
    >>> board = rmlab.leaderboard(rmlab.papers.results("smollm2-mini"))
    >>> latex = to_latex(
    ...     board, columns=["model", "overall"], caption=r"\emph{Small} models"
    ... )
    >>> print(latex.splitlines()[7])
    random draw (baseline) & 0.544 (0.476 to 0.609) \\
    """
    table = _keep_labels(table)
    cells = print_cells(table, columns)
    if caption is None:
        caption = escape_latex(describe(table))
    headings = [escape_latex(name.replace("_", " ")) for name in cells.columns]
    dtypes = dict(zip(table.columns.map(visible), table.dtypes, strict=True))
    is_number = [is_numeric_dtype(dtypes[name]) for name in cells.columns]
    latex: str = (
        cells.map(escape_latex)
        .set_axis(headings, axis="columns")
        .style.hide(axis="index")
        .to_latex(
            hrules=True,
            position_float="centering",
            column_format="".join(np.where(is_number, "r", "l")),
            label=label,
            caption=caption,
        )
    )
    return latex


def to_csv(table: pd.DataFrame, path: str | Path | None = None) -> str:
    """Write a table as CSV with every digit.

    Parameters
    ----------
    table : DataFrame
        Any table.
    path : path, optional
        A file to write.

    Returns
    -------
    str
        The text. A name that a spreadsheet would run as a formula gets a quote before
        it.
    """
    text = format_csv(_keep_labels(table))
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
    table = _keep_labels(table)
    caption = describe(table)
    if len(table.columns) <= _MOST_COLUMNS:
        return ShownTable(_format_cells(table), caption)

    cells = print_cells(table)
    if "reason" in cells:
        n_before = min(len(cells.columns), _MOST_COLUMNS) - 1
        cells.insert(n_before, "reason", cells.pop("reason"))
    hidden = cells.columns[_MOST_COLUMNS:]
    if len(hidden):
        caption = f"{caption} Also in the table: {', '.join(hidden)}.".strip()
    return ShownTable(cells.drop(columns=hidden), caption)


def _keep_labels(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its row labels as columns, unless they are plain row numbers."""
    if table.index.names == [None] and is_integer_dtype(table.index.dtype):
        return table
    labels = ["" if name is None else name for name in table.index.names]
    return table.reset_index(names=labels, allow_duplicates=True)


def print_cells(
    table: pd.DataFrame, columns: Sequence[str] | None = None
) -> pd.DataFrame:
    """A table as text, each interval behind its number.

    By default columns that are empty are left out, and those of `_NOT_PRINTED`, unless
    there is a reason.
    """
    cells = _join_intervals(_format_cells(table))
    if columns is None:
        is_blank = cells.isin(["", "0"]).all()  # counts of nothing
        is_printed = ~is_blank & ~cells.columns.isin(_NOT_PRINTED)
        columns = [*cells.columns[is_printed]]
        if not is_blank.get("reason", True):
            columns.append("reason")
    for name in columns:
        if name not in cells.columns:
            allowed = nearest(name, [*cells.columns])
            raise DataError(f"columns: no column {name!r}", allowed)
    return cells[[*columns]]


def _format_cells(table: pd.DataFrame) -> pd.DataFrame:
    """All cells and the names of columns as text; baselines are marked."""
    cells = table.astype(object).map(_format_value)
    if "kind" in table and "model" in table:
        is_blind = table["kind"] == "baseline"
        marks = pd.Series(" (baseline)", index=cells.index)
        cells["model"] += marks.where(is_blind, "")
    return cells.set_axis(cells.columns.map(visible), axis=1)


def _join_intervals(cells: pd.DataFrame) -> pd.DataFrame:
    """Put the limits of each interval behind its value, and leave its error out."""
    cells = cells.drop(columns="se", errors="ignore")
    for low in [*cells.columns]:
        if low == "low":
            columns = [*cells.columns]
            value = columns[columns.index("low") - 1]
        elif low.endswith("_low"):
            value = low.removesuffix("_low")
        else:
            continue
        high = f"{low.removesuffix('low')}high"
        is_wide = cells[low] != cells[high]
        interval = " (" + cells[low] + " to " + cells[high] + ")"
        cells[value] += interval.where(is_wide, "")
        cells = cells.drop(columns=[low, high])
    return cells


def describe(table: pd.DataFrame) -> str:
    """A sentence on the columns of a leaderboard or a comparison."""
    if "p_holm" in table:
        return _COMPARISON
    if "rank" not in table or "kind" not in table:
        return ""
    return _LEADERBOARD.format(_LETTERS if table["group"].any() else "")


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
