"""One number of every model against another."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab.plots.best_of import COLOURS, MARKERS
from rmlab.plots.canvas import bare, canvas, plain, short
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["outliers", "plot_scatter"]

_LETTERS = 26  # of a name beside its point
_LINES = 22  # of small text, one above the other, that the axes have room for
_REACH = 0.3  # of the width of all points: about the length of a name


def plot_scatter(
    table: pd.DataFrame, x: str, y: str, *, group: str | None = None, named: int = 4, ax: "Axes | None" = None
) -> "Axes":
    """Two columns of a table with a model per row, one against the other; returns the Axes.

    `group` is a column that gives points their colour and mark (at most eight values). The `named` models that lie
    farthest from what the others have in common are named: `outliers(table, x, y)`. Rows without either number are left
    out, and counted below the axis. Raises DataError for a column that is not there, and for too many groups.
    """
    known = _known(table, x, y, group)
    groups = list(dict.fromkeys(known[group])) if group is not None else [None]
    if len(groups) > len(COLOURS):
        raise DataError(f"group: {group!r} has {len(groups)} values; at most {len(COLOURS)} can be told apart")
    ax = canvas(ax, (4.6, 4.0))
    for value, colour, mark in zip(groups, COLOURS, MARKERS, strict=False):
        part = known if group is None else known[known[group] == value]
        label = None if group is None else plain(value)
        ax.scatter(part[x], part[y], s=26, color=colour, marker=mark, alpha=0.8, lw=0, label=label, zorder=2)
    _name(ax, outliers(table, x, y, most=named).sort_values(y), x, y, known)
    left_out = len(table) - len(known)
    ax.set(xlabel=plain(x) + (f"\n({left_out} models without both are left out)" if left_out else ""), ylabel=plain(y))
    if group is not None:
        ax.legend(frameon=False, fontsize="small")
    bare(ax)
    return ax


def _name(ax: "Axes", shown: pd.DataFrame, x: str, y: str, known: pd.DataFrame) -> None:
    """Names beside the points `shown`, from the lowest up, each a line above the last where they would meet.

    A name stands on the side where fewer other points are in its way, or else towards the middle.
    """
    from matplotlib.patheffects import withStroke

    middle, bottom, reach = known[x].median(), -np.inf, _REACH * float(np.ptp(known[x]))
    height = max(float(np.ptp(known[y])), 1e-9) / _LINES
    # Lines that callers draw may run through a name, which stays readable so.
    edge = [withStroke(linewidth=3, foreground=ax.get_facecolor())]
    for name, across, up in shown[["model", x, y]].itertuples(index=False):
        at = bottom = max(up, bottom + height)
        beside_it = known.loc[(known[y] - at).abs() < height, x] - across
        crowd = [int(((beside_it * side > 0) & (beside_it * side < reach)).sum()) for side in (-1, 1)]
        right = crowd[1] < crowd[0] if crowd[0] != crowd[1] else across < middle
        text, beside = short(name.split("/")[-1], most=_LETTERS), (0.7 if right else -0.7, 0)
        ax.annotate(text, (across, at), beside, "data", "offset fontsize", va="center",
                    ha="left" if right else "right", fontsize="x-small", annotation_clip=False,
                    path_effects=edge)  # fmt: skip


def outliers(table: pd.DataFrame, x: str, y: str, *, most: int = 4) -> pd.DataFrame:
    """The rows whose `y` is farthest from a robust line through all (Theil and Sen's), farthest first.

    Columns: those of `table`, and residual (y minus the line).

    >>> found = outliers(pd.DataFrame({"model": list("abcd"), "x": [0, 1, 2, 3], "y": [0, 1, 9, 3]}), "x", "y", most=1)
    >>> found["model"].item(), found["residual"].item()
    ('c', 7.0)
    """
    from scipy.stats import theilslopes

    known = _known(table, x, y, None)
    across, up = known[x].to_numpy(float), known[y].to_numpy(float)
    if len(known) < 3 or np.ptp(across) == 0:
        return known.head(0).assign(residual=0.0)
    sloping = theilslopes(up, across).slope * across
    # The median of what the slope leaves is the line's height; medians of x and y apart would let a far point shift it.
    residual = up - np.median(up - sloping) - sloping
    order = np.argsort(-np.abs(residual), kind="stable")[:most]
    return known.assign(residual=residual).iloc[order]


def _known(table: pd.DataFrame, x: str, y: str, group: str | None) -> pd.DataFrame:
    for column in ("model", x, y, *([] if group is None else [group])):
        if column not in table.columns:
            raise DataError(f"table: no column {column!r}; {nearest(column, list(table.columns))}")
    return table.dropna(subset=[x, y])
