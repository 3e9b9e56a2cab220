"""Heatmaps: the style-substance matrix."""

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

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
_SHARE_COLOURS = "RdBu"
_SHARE_TICKS = [0, 0.25, 0.5, 0.75, 1]
_CELL = ["chosen_style", "rejected_style"]
_CELLS = pd.MultiIndex.from_product([STYLES, STYLES], names=_CELL)
_COUNTED = ["accuracy", "low", "high", "n_pairs", "n_ties"]
_NUMBERS = [*_COUNTED, "reason"]
_LEVELS = ("normal", "hard", "hard", "easy", "normal", "hard", "easy", "easy", "normal")
_MIDDLE = [0.5, 1.5, 2.5]
_HATCHED = 0.05  # share of ties from which a cell is hatched; less is a sliver
# Luminance on which black and white text have the same contrast, 4.58 to 1.
_EQUAL_CONTRAST = 0.179


def plot_matrix(
    matrix: pd.DataFrame,
    *,
    chance: float = 0.5,
    names: bool = True,
    intervals: bool = False,
    title: str | None = None,
    colorbar: bool = True,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the heatmap of one model's style-substance matrix.

    Rows are the style of the chosen answer, columns that of the rejected one. The
    colours run from 0 to 1 and are neutral at `chance`. Ties are hatched, as large a
    part of a cell as they are of its comparisons, and counted in it.

    Parameters
    ----------
    matrix : DataFrame
        Scores or pairs of one model, or its cells: the 3x3 frame of `rmlab.matrix`, or,
        with intervals and ties, the rows of `rmlab.estimates` whose quantity is "cell"
        or those of `rmlab.accuracy(table, by=["chosen_style", "rejected_style"])`.
    chance : float
        The share that random scores win.
    names : bool
        Whether the level (easy, normal, hard) stands below each share.
    intervals : bool
        Whether the 95 % interval stands in each cell.
    title : str, optional
        A title, in which dollar signs are not formulas.
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
    >>> ax = rmlab.plot_matrix(rmlab.matrix(scores), title="longest")
    >>> ax.get_xlabel()
    'style of the rejected answer'
    """
    if canvas.is_items(matrix):
        matrix = metrics.accuracy(matrix, by=_CELL)
    cells = _read_cells(matrix)
    hint = 'pass rmlab.matrix(table, average="domains")'
    canvas.refuse_blank(cells, "accuracy", "matrix", hint)
    if intervals and cells["low"].isna().all():
        remedy = "pass the cells of rmlab.estimates(table), of at least 5 prompts"
        raise DataError("intervals: this matrix has none", remedy)

    ax = canvas.new_axes(ax, (4.6, 3.8), squares=True)
    mesh = _draw_shares(ax, cells, chance)
    if colorbar:
        label = "share of comparisons won"
        bar = ax.figure.colorbar(
            mesh, ax=ax, ticks=_SHARE_TICKS, shrink=0.75, label=label
        )
        bar.outline.set_visible(False)
    size = "small" if intervals else "medium"
    _write_shares(ax, cells, levels=names, intervals=intervals, ties=True, size=size)

    if title is None:
        title = ""
    ax.set_title(canvas.escape_name(title), fontsize="medium")
    ax.set_xlabel("style of the rejected answer")
    ax.set_ylabel("style of the chosen answer")
    return ax


def plot_matrices(
    table: pd.DataFrame | Mapping[str, pd.DataFrame],
    *,
    by: str = "model",
    average: Average = "benchmark",
    ties: str | None = None,
    chance: float = 0.5,
    intervals: bool = False,
    columns: int = 4,
) -> "Figure":
    """Draw one heatmap per model, or per value of another column, with one colour bar.

    The table beside it: `rmlab.accuracy(table, by=[by, "chosen_style",
    "rejected_style"])`, with the same options.

    Parameters
    ----------
    table : DataFrame or mapping
        Scores or pairs, or matrices by their titles.
    by : str
        The column with a panel for each value, such as "domain" for one model.
    average, ties
        As in `rmlab.summary`.
    chance : float
        The share that random scores win; neutral in colour.
    intervals : bool
        Whether the 95 % interval stands in each cell.
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
    panels = {}
    if isinstance(table, Mapping):
        for name, matrix in table.items():
            panels[name] = _read_cells(matrix)
    else:
        cells = metrics.accuracy(table, by=[by, *_CELL], average=average, ties=ties)
        for value in cells[by].unique():
            panels[str(value)] = _read_cells(cells[cells[by] == value])
    numbers = pd.DataFrame(columns=_NUMBERS)
    if panels:
        numbers = pd.concat(panels.values())
    hint = 'pass average="domains" to count the domains that are there'
    canvas.refuse_blank(numbers, "accuracy", hint=hint)

    figure, axes = canvas.new_panels(len(panels), columns, (2.5, 2.5), squares=True)
    for ax, (name, cells) in zip(axes, panels.items(), strict=True):
        _draw_panel(ax, name, cells, chance, intervals=intervals)

    mesh = axes[0].collections[0]
    bar = figure.colorbar(
        mesh, ax=axes, ticks=_SHARE_TICKS, location="top", shrink=0.6, aspect=25
    )
    label = "share of comparisons won"
    if (numbers["n_ties"] >= _HATCHED * numbers["n_pairs"]).any():
        label += " (hatched: ties)"
    bar.set_label(label)
    bar.outline.set_visible(False)
    return figure


def _draw_panel(
    ax: "Axes", name: str, cells: pd.DataFrame, chance: float, *, intervals: bool
) -> None:
    """One matrix of a grid, with small type; one without numbers says why."""
    _draw_shares(ax, cells, chance)
    _write_shares(
        ax, cells, levels=False, intervals=intervals, ties=False, size="small"
    )
    if cells["accuracy"].isna().all():
        reason = textwrap.fill(f"missing: {cells['reason'].iloc[0]}", 20)
        ax.text(1.5, 1.5, reason, ha="center", va="center")

    ax.set_title(textwrap.fill(canvas.escape_name(name), 20), fontsize="small")
    # So small that "markdown" stays whole where a panel is an inch wide.
    ax.set_xticks(_MIDDLE, STYLES, fontsize="x-small")
    ax.set_yticks(_MIDDLE, STYLES, fontsize="x-small")
    ax.set_xlabel("rejected answer", fontsize="small")
    ax.set_ylabel("chosen answer", fontsize="small")


def _draw_shares(ax: "Axes", cells: pd.DataFrame, chance: float) -> "Collection":
    from matplotlib.colors import TwoSlopeNorm

    shares = cells["accuracy"].to_numpy(float).reshape(3, 3)
    norm = TwoSlopeNorm(chance, 0, 1)
    mesh = _draw_squares(
        ax, shares, cmap=_SHARE_COLOURS, norm=norm, vmin=0, vmax=1, linewidths=1.5
    )
    ax.set_xticks(_MIDDLE, STYLES)
    ax.set_yticks(_MIDDLE, STYLES)
    return mesh


def _draw_squares(ax: "Axes", numbers: np.ndarray, **options: Any) -> "Collection":
    """A heatmap whose labels, numbers and bar of colours are still to come."""
    import seaborn

    seaborn.heatmap(
        numbers,
        ax=ax,
        square=True,
        linecolor="white",
        cbar=False,
        xticklabels=False,
        yticklabels=False,
        **options,
    )
    ax.tick_params(length=0)
    return ax.collections[-1]


def _write_shares(
    ax: "Axes",
    cells: pd.DataFrame,
    *,
    levels: bool,
    intervals: bool,
    ties: bool,
    size: str,
) -> None:
    """Write the share, the level, the interval and the ties into every cell, each on a
    line.
    """
    texts = []
    numbers = cells[_COUNTED].to_numpy(float)
    for level, (share, low, high, _, n_ties) in zip(_LEVELS, numbers, strict=True):
        if np.isnan(share):
            texts.append("")
            continue
        lines = [f"{share:.2f}"]
        if levels:
            lines.append(level)
        if intervals and not np.isnan(low):
            lines.append(f"{low:.2f}–{high:.2f}")
        if ties and n_ties > 0:
            lines.append(canvas.format_ties(n_ties))
        texts.append("\n".join(lines))

    square = (3, 3)
    share_of_ties = (cells["n_ties"] / cells["n_pairs"]).to_numpy(float)
    _fill_cells(
        ax,
        np.array(texts, dtype=object).reshape(square),
        share_of_ties.reshape(square),
        size=size,
    )


def _read_cells(matrix: pd.DataFrame) -> pd.DataFrame:
    """Nine rows, cell by cell, with the numbers that the table has."""
    if not isinstance(matrix, pd.DataFrame):
        raise TypeError(
            f"matrix: {type(matrix).__name__} is not the DataFrame that "
            "rmlab.matrix(table) returns."
        )
    columns = set(matrix.columns)
    if {"quantity", "name", "value"} <= columns:
        rows = matrix[matrix["quantity"] == "cell"]
        styles = rows["name"].str.split(" > ", expand=True).reindex(columns=[0, 1])
        cells = _cells_of_rows(rows.rename(columns={"value": "accuracy"}), styles)
    elif {*_CELL, "accuracy"} <= columns:
        cells = _cells_of_rows(matrix, matrix[_CELL].astype("str"))
    else:
        cells = _cells_of_square(matrix)
    return cells.reindex(columns=_NUMBERS).astype(dict.fromkeys(_COUNTED, float))


def _cells_of_rows(table: pd.DataFrame, styles: pd.DataFrame) -> pd.DataFrame:
    """The cells of a table with a row for each."""
    if styles.duplicated().any():
        problem = "matrix: a cell stands in several rows"
        raise DataError(problem, "keep one model, or use plot_matrices")
    return table.set_index(pd.MultiIndex.from_frame(styles)).reindex(_CELLS)


def _cells_of_square(matrix: pd.DataFrame) -> pd.DataFrame:
    """The cells of a 3x3 frame of shares, without further numbers."""
    styles = list(STYLES)
    if list(matrix.index) != styles or list(matrix.columns) != styles:
        problem = f"matrix: rows {list(matrix.index[:4])} are not the styles"
        raise DataError(problem, "pass rmlab.matrix(table)")
    shares = matrix.to_numpy(float).ravel()
    outside = shares[(shares < 0) | (shares > 1)]
    if len(outside):
        problem = f"matrix: {outside[0]:g} is not a share from 0 to 1"
        raise DataError(problem, "divide percentages by 100")
    return pd.DataFrame({"accuracy": shares, "reason": ""}, index=_CELLS)


def _fill_cells(
    ax: "Axes", texts: np.ndarray, hatched: np.ndarray, *, size: str
) -> None:
    """Hatch a share of every cell of the heatmap on `ax`, from its bottom up, and write
    a text in its middle.

    The ink is the one that the colour of the cell asks for.
    """
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke
    from seaborn.utils import relative_luminance

    mesh = ax.collections[0]
    mesh.update_scalarmappable()
    colours = np.asarray(mesh.get_facecolor()).reshape(*texts.shape, 4)
    for (row, column), share in np.ndenumerate(hatched):
        red, green, blue, _ = colours[row, column].tolist()
        colour = (red, green, blue)
        is_light = relative_luminance(colour) > _EQUAL_CONTRAST
        ink = "black" if is_light else "white"

        if share >= _HATCHED:
            corner = (column, row + 1 - share)
            hatching = Rectangle(corner, 1, share, fill=False, hatch="////", alpha=0.55)
            hatching.set(linewidth=0, edgecolor=ink)
            ax.add_patch(hatching)

        text = str(texts[row, column])
        if text:
            # The outline keeps hatching away from the strokes of the digits.
            outline = withStroke(linewidth=2.5, foreground=colour)
            ax.text(
                column + 0.5,
                row + 0.5,
                text,
                ha="center",
                va="center",
                fontsize=size,
                color=ink,
                gid="cell",
                path_effects=[outline],
            )
