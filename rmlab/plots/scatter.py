"""One number of every model against another."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab import metrics
from rmlab.plots import canvas
from rmlab.plots.canvas import COLOURS, MARKERS
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LETTERS = 26  # of a name beside its point
_LINES = 20  # of small text, one above the other, that the axes have room for


def plot_scatter(
    table: pd.DataFrame, x: str, y: str, *, group: str | None = None, named: int = 4, ax: "Axes | None" = None
) -> "Axes":
    """Draw two columns of a table with a row per model against each other.

    Parameters
    ----------
    table : DataFrame
        Any table with the column model; of scores or pairs, the summary is drawn.
    x, y : str
        Columns with numbers.
    group : str, optional
        A column with at most eight values, which give points their colour and mark.
    named : int
        How many models are named: those of `outliers`.
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        A point per model. Rows that lack a number are left out, and counted below the axis.

    Raises
    ------
    DataError
        For a column that is not there, too many groups, or where no row has both numbers.

    Examples
    --------
    >>> import rmlab
    >>> ax = rmlab.plots.plot_scatter(rmlab.papers.published("rm-bench"), "easy", "hard", named=1)
    >>> len(ax.texts)
    1
    """
    table = metrics.summary(table) if canvas.is_items(table) else table
    points = _complete_rows(table, x, y, group)
    if points.empty:
        raise DataError(f"table: none of {len(table)} rows has both {x} and {y}. {canvas.WAY_OUT}")
    groups = list(dict.fromkeys(points[group])) if group is not None else [None]
    if len(groups) > len(COLOURS):
        raise DataError(f"group: {group!r} has {len(groups)} values; at most {len(COLOURS)} can be told apart.")
    ax = canvas.new_axes(ax, (4.6, 4.0))
    for value, colour, marker in zip(groups, COLOURS, MARKERS, strict=False):
        part = points if group is None else points[points[group] == value]
        label = None if group is None else canvas.plain(value)
        ax.scatter(part[x], part[y], s=26, color=colour, marker=marker, alpha=0.7, lw=0, label=label, zorder=2)
    _name_points(ax, outliers(table, x, y, most=named).sort_values(y), x, y, points)
    left_out = canvas.count_left_out(len(table) - len(points), "without both numbers left out")
    ax.set(xlabel=canvas.plain(x) + left_out, ylabel=canvas.plain(y))
    if group is not None:
        canvas.add_legend(ax)
    canvas.remove_frame(ax)
    return ax


def _name_points(ax: "Axes", named: pd.DataFrame, x: str, y: str, points: pd.DataFrame) -> None:
    """Names beside points, from the lowest up, towards the middle, each a line above the last where they would meet."""
    from matplotlib.patheffects import withStroke

    middle, bottom = points[x].median(), -np.inf
    line_height = max(float(np.ptp(points[y])), 1e-9) / _LINES
    # Lines that callers draw may run through a name, which stays readable so.
    outline = [withStroke(linewidth=3, foreground=ax.get_facecolor())]
    names = canvas.shorten_names([name.split("/")[-1] for name in named["model"]], _LETTERS)
    for name, (across, up) in zip(names, named[[x, y]].itertuples(index=False), strict=True):
        bottom = max(up, bottom + line_height)
        side, sign = ("left", 1) if across < middle else ("right", -1)
        text = ax.annotate(canvas.plain(name), (across, bottom), (0.7 * sign, 0), "data", "offset fontsize", ha=side)
        text.set(va="center", fontsize="x-small", annotation_clip=False, path_effects=outline)


def outliers(table: pd.DataFrame, x: str, y: str, *, most: int = 4) -> pd.DataFrame:
    """Find the models whose `y` is farthest from a robust line through all (Theil and Sen's).

    Parameters
    ----------
    table : DataFrame
        Any table with the column model.
    x, y : str
        Columns with numbers.
    most : int
        How many rows.

    Returns
    -------
    DataFrame
        The rows of `table`, farthest first, and residual (y minus the line).

    Raises
    ------
    DataError
        For a column that is not there.

    Examples
    --------
    >>> table = pd.DataFrame({"model": list("abcd"), "x": [0, 1, 2, 3], "y": [0, 1, 9, 3]})
    >>> outliers(table, "x", "y", most=1)["model"].item()
    'c'
    """
    from scipy.stats import theilslopes

    points = _complete_rows(table, x, y, None)
    across, up = points[x].to_numpy(float), points[y].to_numpy(float)
    if len(points) < 3 or np.ptp(across) == 0:
        return points.head(0).assign(residual=0.0)
    sloping = theilslopes(up, across).slope * across
    # The median of what the slope leaves is the line's height; medians of x and y apart would let a far point shift it.
    residual = up - np.median(up - sloping) - sloping
    order = np.argsort(-np.abs(residual), kind="stable")[:most]
    return points.assign(residual=residual).iloc[order]


def _complete_rows(table: pd.DataFrame, x: str, y: str, group: str | None) -> pd.DataFrame:
    for column in filter(None, ("model", x, y, group)):
        if column not in table.columns:
            raise DataError(f"table: no column {column!r}; {nearest(column, list(table.columns))}")
    return table.dropna(subset=[x, y])
