"""Heatmaps: the style-substance matrix."""

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab import metrics
from rmlab.estimation.weights import Average
from rmlab.plots import canvas
from rmlab.tables import STYLES, DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import Collection
    from matplotlib.figure import Figure

# Red below chance, white at chance, blue above; safe for the common colour blindnesses.
# In grey both ends are as dark, so that cells below chance lack a corner.
_SHARE_COLOURS = "RdBu"
_SHARE_TICKS = [0, 0.25, 0.5, 0.75, 1]
_CELL = ["chosen_style", "rejected_style"]
_CELLS = pd.MultiIndex.from_product([STYLES, STYLES], names=_CELL)
_COUNTED = ["accuracy", "low", "high", "n_pairs", "n_ties"]
_LEVELS = ("normal", "hard", "hard", "easy", "normal", "hard", "easy", "easy", "normal")
_CORNER = 0.24  # of a cell's side
_HATCHED = 0.05  # share of ties from which a cell is hatched; less is a sliver
# Luminance on which black and white text have the same contrast, 4.58 to 1.
_EQUAL_CONTRAST = 0.179


def plot_matrix(
    table: pd.DataFrame,
    *,
    intervals: bool = False,
    colorbar: bool = True,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the heatmap of one model's style-substance matrix.

    Rows are the style of the chosen answer, columns that of the rejected one. The
    colours run from 0 to 1 and are neutral at 0.5. A cell below 0.5 lacks a corner, so
    that a grey print tells red from blue. Ties are hatched, as large a part of a cell
    as they are of its comparisons, and counted in it.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs of one model, or its cells: the 3x3 frame of `rmlab.matrix`, or,
        with intervals and ties, the rows of `rmlab.estimates` whose quantity is "cell"
        or those of `rmlab.accuracy(table, by=["chosen_style", "rejected_style"])`.
    intervals : bool
        Whether the 95 % interval stands in each cell.
    colorbar : bool
        Whether the colours are explained.
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        The heatmap.

    Raises
    ------
    DataError
        For another table, for one without a number, and for `intervals` without any.

    References
    ----------
    RM-Bench (arXiv 2410.16184), figure 2.

    Examples
    --------
    >>> import rmlab
    >>> scores = rmlab.score(rmlab.load("mini"), "longest")
    >>> ax = rmlab.plot_matrix(rmlab.matrix(scores))
    >>> ax.get_xlabel()
    'style of the rejected answer'
    """
    if canvas.is_items(table):
        models = table["model"].unique()
        if len(models) > 1:
            problem = f"table: a matrix shows one model, not {models[:5].tolist()}"
            raise DataError(problem, "keep one of them, or use plot_matrices")
        table = metrics.accuracy(table, by=_CELL)
    cells = _read_cells(table)
    canvas.refuse_blank(
        cells, "accuracy", 'pass rmlab.matrix(table, average="domains")'
    )
    if intervals and cells["low"].isna().all():
        remedy = "pass the cells of rmlab.estimates(table), of at least 5 prompts"
        raise DataError("intervals: this matrix has none", remedy)

    ax = canvas.new_axes(ax, (4.6, 3.8), layout="compressed")
    mesh = _draw_shares(ax, cells)
    if colorbar:
        bar = ax.figure.colorbar(mesh, ax=ax, ticks=_SHARE_TICKS, shrink=0.75)
        # The cells themselves name their ties.
        bar.set_label(_explain(cells.assign(n_ties=0)))
        bar.outline.set_visible(False)

    notes = []
    numbers = cells[["low", "high", "n_ties"]].to_numpy(float)
    for level, (low, high, n_ties) in zip(_LEVELS, numbers, strict=True):
        lines = [level]
        if intervals and not np.isnan(low):
            lines.append(f"{low:.2f}–{high:.2f}")
        if n_ties > 0:
            lines.append("1 tie" if n_ties == 1 else f"{n_ties:,.0f} ties")
        notes.append("\n" + "\n".join(lines))
    _write_shares(ax, cells, notes, "small" if intervals else "medium")
    ax.set_xlabel("style of the rejected answer")
    ax.set_ylabel("style of the chosen answer")
    return ax


def plot_matrices(
    table: pd.DataFrame | Mapping[str, pd.DataFrame],
    *,
    by: str = "model",
    average: Average = "benchmark",
    columns: int = 4,
) -> "Figure":
    """Draw one heatmap per model, or per value of another column, with one colour bar.

    Parameters
    ----------
    table : DataFrame or mapping of DataFrame
        Scores or pairs, or the table beside the figure: `rmlab.accuracy(table, by=[by,
        "chosen_style", "rejected_style"])`. Or 3x3 matrices by name, such as printed
        ones.
    by : str
        The column with a panel for each value, such as "domain" for one model.
    average
        As in `rmlab.summary`. Used where `table` holds scores or pairs.
    columns : int
        Panels side by side; in print as many as have room.

    Returns
    -------
    Figure
        Panels in the order of the rows. One without numbers says why.

    Raises
    ------
    DataError
        Where no panel has a number, with the reason.

    Examples
    --------
    >>> import rmlab
    >>> scores = rmlab.score(rmlab.load("mini"), ["longest", "shortest"])
    >>> figure = rmlab.plot_matrices(scores)
    >>> [ax.get_title() for ax in figure.axes[:2]]
    ['longest', 'shortest']
    """
    if isinstance(table, Mapping):
        panels = [(name, _read_cells(matrix)) for name, matrix in table.items()]
    else:
        panels = _split_panels(table, by, average)

    # Titles and names stand above and below each row, and leave less for squares.
    figure, axes = canvas.new_panels(
        len(panels), columns, (2.5, 3.2), layout="compressed"
    )
    for ax, (name, cells) in zip(axes, panels, strict=True):
        mesh = _draw_shares(ax, cells)
        _write_shares(ax, cells, [""] * len(cells), "small")
        if cells["accuracy"].isna().all():
            reason = textwrap.fill(f"missing: {cells['reason'].iloc[0]}", 20)
            ax.text(1.5, 1.5, reason, ha="center", va="center")
        title = textwrap.fill(canvas.escape_name(name), 20)
        ax.set_title(title, fontsize="small")
        # So small that "markdown" stays whole where a panel is an inch wide.
        ax.tick_params(labelsize="x-small")
        ax.set_xlabel("rejected answer", fontsize="small")
        ax.set_ylabel("chosen answer", fontsize="small")

    bar = figure.colorbar(
        mesh, ax=axes, ticks=_SHARE_TICKS, location="top", shrink=0.6, aspect=25
    )
    bar.set_label(_explain(pd.concat([cells for _, cells in panels])))
    bar.outline.set_visible(False)
    return figure


def _split_panels(
    table: pd.DataFrame, by: str, average: Average
) -> list[tuple[str, pd.DataFrame]]:
    """Name and cells of each panel."""
    if canvas.is_items(table):
        table = metrics.accuracy(table, by=[by, *_CELL], average=average)
    needed = [by, *_CELL, "accuracy"]
    table = canvas.table_to_draw(table, metrics.accuracy, needed, "accuracy")
    groups = table.groupby(by, sort=False, observed=True)
    return [(str(name), _read_cells(rows)) for name, rows in groups]


def _explain(cells: pd.DataFrame) -> str:
    """What colours mean, and the marks that some cells have."""
    marks = []
    if (cells["accuracy"].round(2) < 0.5).any():
        marks.append("corner cut: below 0.5")
    if (cells["n_ties"] >= _HATCHED * cells["n_pairs"]).any():
        marks.append("hatched: ties")
    label = "share of comparisons won"
    return f"{label}\n({'; '.join(marks)})" if marks else label


def _draw_shares(ax: "Axes", cells: pd.DataFrame) -> "Collection":
    """The coloured squares, whose texts are still to come."""
    import seaborn

    seaborn.heatmap(
        cells["accuracy"].to_numpy(float).reshape(3, 3),
        ax=ax,
        square=True,
        cmap=_SHARE_COLOURS,
        vmin=0,
        vmax=1,
        linewidths=1.5,
        linecolor="white",
        cbar=False,
        xticklabels=STYLES,
        yticklabels=STYLES,
    )
    ax.tick_params(length=0, rotation=0)
    return ax.collections[-1]


def _write_shares(ax: "Axes", cells: pd.DataFrame, notes: list[str], size: str) -> None:
    """Write the share and its note into every cell, hatch the share of ties from its
    bottom up, and cut the corner of a cell below chance.

    The ink is the one that the colour of the cell asks for.
    """
    from matplotlib.patches import Polygon, Rectangle
    from matplotlib.patheffects import withStroke
    from seaborn.utils import relative_luminance

    mesh = ax.collections[-1]
    mesh.update_scalarmappable()
    share_of_ties = cells["n_ties"] / cells["n_pairs"]
    rows = zip(cells["accuracy"], share_of_ties, notes, strict=True)
    colours = iter(np.asarray(mesh.get_facecolor()))
    for i, (share, hatched, note) in enumerate(rows):
        row, column = divmod(i, len(STYLES))
        colour = tuple(next(colours)[:3])
        is_light = relative_luminance(colour) > _EQUAL_CONTRAST
        ink = "black" if is_light else "white"
        if hatched >= _HATCHED:
            corner = (column, row + 1 - hatched)
            hatching = Rectangle(
                corner, 1, hatched, fill=False, hatch="////", alpha=0.55
            )
            hatching.set(linewidth=0, edgecolor=ink)
            ax.add_patch(hatching)
        if round(share, 2) < 0.5:  # as it is written
            right = column + 1
            cut = [(right - _CORNER, row), (right, row), (right, row + _CORNER)]
            ax.add_patch(Polygon(cut, color=ax.get_facecolor(), linewidth=0))
        if not np.isnan(share):
            # The outline keeps hatching away from the strokes of the digits.
            outline = withStroke(linewidth=2.5, foreground=colour)
            ax.text(
                column + 0.5,
                row + 0.5,
                f"{share:.2f}{note}",
                ha="center",
                va="center",
                fontsize=size,
                color=ink,
                path_effects=[outline],
            )


def _read_cells(table: pd.DataFrame) -> pd.DataFrame:
    """Nine rows, cell by cell, with the numbers that the table has."""
    if {"quantity", "name", "value"} <= set(table.columns):
        rows = table[table["quantity"] == "cell"]
        styles = rows["name"].str.split(" > ", expand=True).reindex(columns=[0, 1])
        rows = rows.rename(columns={"value": "accuracy"})
    elif {*_CELL, "accuracy"} <= set(table.columns):
        rows = table
        styles = table[_CELL].astype("str")
    elif list(table.index) == list(table.columns) == list(STYLES):
        rows = pd.DataFrame({"accuracy": table.to_numpy(float).ravel()})
        styles = _CELLS.to_frame()
        if not rows["accuracy"].dropna().between(0, 1).all():
            problem = "table: a share is not from 0 to 1"
            raise DataError(problem, "divide percentages by 100")
    else:
        problem = f"table: rows {list(table.index[:4])} are not the styles"
        raise DataError(problem, "pass rmlab.matrix(table)")
    if styles.duplicated().any():
        problem = "table: a cell stands in several rows"
        raise DataError(problem, "keep one model, or use plot_matrices")
    cells = rows.set_index(pd.MultiIndex.from_frame(styles)).reindex(_CELLS)
    return cells.reindex(columns=[*_COUNTED, "reason"]).astype(
        dict.fromkeys(_COUNTED, float)
    )
