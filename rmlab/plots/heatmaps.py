"""Heatmaps: the style-substance matrix, and who differs from whom."""

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rmlab import metrics, stats
from rmlab.estimation.weights import Average
from rmlab.plots import canvas
from rmlab.tables import STYLES, DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

# red below chance, white at chance, blue above; safe for the common colour blindnesses
COLOURS = "RdBu"
_CELL = ["chosen_style", "rejected_style"]
_CELLS = pd.MultiIndex.from_product([STYLES, STYLES], names=_CELL)
_NUMBERS = ["accuracy", "low", "high", "n_pairs", "n_ties", "reason"]
_LEVELS = ("normal", "hard", "hard", "easy", "normal", "hard", "easy", "easy", "normal")
_NARROW = ["concise", "plain", "mark-\ndown"]  # below the small panels of a grid
_MIDDLE = [0.5, 1.5, 2.5]
_ROUNDED = (
    0.0051  # a matrix of two decimals still belongs to the cells that came with it
)
PALE = "#ebebeb"  # lighter, in print without colour too, than any clear difference
_WITH_NUMBERS = 14  # models up to which the differences are written into the cells
_LARGE = 30  # models from which cells have no lines between them
_EQUAL_CONTRAST = (
    0.179  # luminance on which black and white text have the same contrast, 4.58 to 1
)


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
        The result of `rmlab.matrix`, scores or pairs of one model, the cells as
        `rmlab.accuracy(table, by=["chosen_style", "rejected_style"])` returns them, or
        a plain 3x3 frame of shares.
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
    cells = _read_cells(metrics.matrix(matrix) if canvas.is_items(matrix) else matrix)
    canvas.refuse_blank(
        cells, "accuracy", "matrix", 'Pass rmlab.matrix(table, average="domains").'
    )
    if intervals and cells["low"].isna().all():
        raise DataError(
            "intervals: this matrix has none. Pass rmlab.matrix(table) of at least 5 prompts, unchanged."
        )
    ax = canvas.new_axes(ax, (4.6, 3.8), squares=True)
    _draw_heatmap(ax, cells, chance, colorbar=colorbar)
    _write_shares(
        ax,
        cells,
        levels=names,
        intervals=intervals,
        ties=True,
        size="small" if intervals else "medium",
    )
    ax.set(xlabel="style of the rejected answer", ylabel="style of the chosen answer")
    ax.set_title("" if title is None else canvas.plain(title), fontsize="medium")
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
    if isinstance(table, Mapping):
        panels = {name: _read_cells(matrix) for name, matrix in table.items()}
    else:
        cells = metrics.accuracy(table, by=[by, *_CELL], average=average, ties=ties)
        panels = {
            str(value): _read_cells(cells[cells[by] == value])
            for value in cells[by].unique()
        }
    numbers = pd.concat(panels.values()) if panels else pd.DataFrame(columns=_NUMBERS)
    canvas.refuse_blank(
        numbers,
        "accuracy",
        hint='Pass average="domains" to count the domains that are there.',
    )
    figure, axes = canvas.new_panels(len(panels), columns, (2.5, 2.5), squares=True)
    for ax, (name, cells) in zip(axes, panels.items(), strict=True):
        _draw_heatmap(ax, cells, chance)
        _write_shares(
            ax, cells, levels=False, intervals=intervals, ties=False, size="small"
        )
        if cells["accuracy"].isna().all():
            ax.text(
                1.5,
                1.5,
                textwrap.fill(f"missing: {cells['reason'].iloc[0]}", 20),
                ha="center",
                va="center",
            )
        ax.set_title(textwrap.fill(canvas.plain(name), 20), fontsize="small")
        ax.set_xticks(_MIDDLE, _NARROW, fontsize="small")
        ax.set_yticks(_MIDDLE, STYLES, fontsize="small")
        ax.set_xlabel("rejected answer", fontsize="small")
        ax.set_ylabel("chosen answer", fontsize="small")
    bar = figure.colorbar(
        axes[0].collections[0],
        ax=axes,
        ticks=_TICKS,
        location="top",
        shrink=0.6,
        aspect=25,
    )
    bar.set_label(
        "share of comparisons won"
        + (" (hatched: ties)" if numbers["n_ties"].gt(0).any() else "")
    )
    bar.outline.set_visible(False)
    return figure


_TICKS = [0, 0.25, 0.5, 0.75, 1]


def _draw_heatmap(
    ax: "Axes", cells: pd.DataFrame, chance: float, *, colorbar: bool = False
) -> None:
    from matplotlib.colors import TwoSlopeNorm

    shares = cells["accuracy"].to_numpy(float).reshape(3, 3)
    mesh = _draw_squares(
        ax, shares, cmap=COLOURS, norm=TwoSlopeNorm(chance, 0, 1), linewidth=1.5
    )
    if colorbar:
        bar = ax.figure.colorbar(
            mesh, ax=ax, ticks=_TICKS, shrink=0.75, label="share of comparisons won"
        )
        bar.outline.set_visible(False)
    ax.set_xticks(_MIDDLE, STYLES)
    ax.set_yticks(_MIDDLE, STYLES)


def _draw_squares(
    ax: "Axes", numbers: np.ndarray, *, linewidth: float, **options: Any
) -> "QuadMesh":
    mesh = ax.pcolormesh(numbers, edgecolors="white", linewidth=linewidth, **options)
    ax.set(aspect="equal", xlim=(0, len(numbers)), ylim=(len(numbers), 0))
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return mesh


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
    numbers = cells[_NUMBERS[:-1]].to_numpy(float)
    texts = []
    for level, (share, low, high, _, n_ties) in zip(_LEVELS, numbers, strict=True):
        lines = [f"{share:.2f}", *([level] if levels else [])]
        lines += [f"{low:.2f}–{high:.2f}"] if intervals and not np.isnan(low) else []
        lines += (
            [f"{n_ties:,.0f} {'tie' if n_ties == 1 else 'ties'}"]
            if ties and n_ties > 0
            else []
        )
        texts.append("" if np.isnan(share) else "\n".join(lines))
    hatched = (cells["n_ties"] / cells["n_pairs"]).to_numpy(float)
    _fill_cells(
        ax,
        np.array(texts, dtype=object).reshape(3, 3),
        hatched.reshape(3, 3),
        size=size,
    )


def _read_cells(matrix: pd.DataFrame) -> pd.DataFrame:
    """Nine rows, cell by cell, with the numbers of the table or those that
    `rmlab.matrix` noted about it.
    """
    if not isinstance(matrix, pd.DataFrame):
        raise TypeError(
            f"matrix: {type(matrix).__name__} is not the DataFrame that rmlab.matrix(table) returns."
        )
    if {*_CELL, "accuracy"} <= set(matrix.columns):
        if matrix.duplicated(_CELL).any():
            raise DataError(
                "matrix: a cell stands in several rows. Keep one model, or use plot_matrices."
            )
        cells = matrix.set_index(
            [matrix[column].astype("str") for column in _CELL]
        ).reindex(_CELLS)
    elif list(matrix.index) != list(STYLES) or list(matrix.columns) != list(STYLES):
        raise DataError(
            f"matrix: rows {list(matrix.index[:4])} are not the styles. Pass rmlab.matrix(table)."
        )
    else:
        shares = matrix.to_numpy(float).ravel()
        if len(outside := shares[(shares < 0) | (shares > 1)]):
            raise DataError(
                f"matrix: {outside[0]:g} is not a share from 0 to 1. Divide percentages by 100."
            )
        cells = pd.DataFrame(matrix.attrs.get("cells"), index=_CELLS, columns=_NUMBERS)
        # pandas hands the notes on to whatever is made of a frame: they are of this
        # matrix only if the shares agree.
        if not np.allclose(
            cells["accuracy"].astype(float), shares, atol=_ROUNDED, equal_nan=True
        ):
            cells = pd.DataFrame(index=_CELLS)
        cells = cells.assign(accuracy=shares, reason=matrix.attrs.get("reason", ""))
    return cells.reindex(columns=_NUMBERS).astype(dict.fromkeys(_NUMBERS[:-1], float))


def plot_significance(
    contests: pd.DataFrame, *, alpha: float = 0.05, ax: "Axes | None" = None
) -> "Axes":
    """Draw the differences between all models as a triangle: each row minus each column
    below it in the ranking.

    Blue: the row is better; red and hatched: worse; grey: not clear at `alpha`, over
    all pairs at once. The numbers are written where there are at most 14 models;
    `differences` returns them all.

    Parameters
    ----------
    contests : DataFrame
        The result of `rmlab.stats.compare_all`, or scores or pairs.
    alpha : float
        The adjusted p below which a difference is clear.
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        Models by their mean difference from the others, best first; a column has the
        number of its model. Models without a known difference are left out, and counted
        below the axis.

    Raises
    ------
    DataError
        For another table, where a pair of models stands in several rows, and where no
        difference is known.

    Examples
    --------
    >>> import rmlab
    >>> contests = rmlab.stats.compare_all(rmlab.papers.results("math-prm"), average="domains")
    >>> ax = rmlab.plots.plot_significance(contests)
    >>> len(ax.get_yticklabels())
    9
    """
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    # Red to blue without the pale middle: a cell that is coloured is a clear
    # difference, however small.
    strong = colormaps["RdBu"](np.r_[0:0.36:128j, 0.64:1:128j])
    contests = canvas.read_table(
        contests, stats.compare_all, ["difference"], "difference", "contests"
    )
    square = differences(contests.dropna(subset=["difference"]), alpha=alpha)
    n_models, is_above = len(square), np.triu(np.ones(square.shape, bool), 1)
    clear = square.where(is_above).to_numpy(float)
    largest = float(np.nanmax(np.abs(clear), initial=0.0)) or 1.0
    is_large = n_models > _LARGE
    size = (9.5, 8.5) if is_large else (0.42 * n_models + 3, 0.42 * n_models + 1.4)
    ax = canvas.new_axes(ax, size, squares=True)
    lines = 0.0 if is_large else 0.5
    mesh = _draw_squares(
        ax,
        clear,
        linewidth=lines,
        cmap=ListedColormap(strong),
        vmin=-largest,
        vmax=largest,
    )
    unclear = np.where(is_above & np.isnan(clear), 0.0, np.nan)
    _draw_squares(ax, unclear, linewidth=lines, cmap=ListedColormap([PALE]))
    texts = np.full(clear.shape, "", dtype=object)
    if n_models <= _WITH_NUMBERS:
        texts[~np.isnan(clear)] = [
            f"{gap:.3f}".replace("0.", ".", 1) for gap in clear[~np.isnan(clear)]
        ]
    _fill_cells(ax, texts, (clear < 0).astype(float), size="small")
    if not np.isnan(clear).all():
        bar = ax.figure.colorbar(mesh, ax=ax, location="top", shrink=0.7, aspect=25)
        bar.set_label("difference in score: row minus column", loc="right")
        bar.ax.set_xlim(np.nanmin(clear, initial=0.0), np.nanmax(clear, initial=0.0))
    n_left_out = len({*contests["model_a"], *contests["model_b"]}) - n_models
    canvas.label_values(ax, "", n_left_out, "without a score left out")
    ax.set(xticks=np.arange(n_models) + 0.5, yticks=np.arange(n_models) + 0.5)
    ax.tick_params(labelsize=6 if is_large else "small")
    canvas.set_column_names(
        ax, [str(i + 1) for i in range(n_models)], len(str(n_models))
    )
    canvas.set_row_names(
        ax, list(square.index), [f"  {i + 1}" for i in range(n_models)]
    )
    worse = "hatched: the row\nis worse\n" if (clear < 0).any() else ""
    note = f"{worse}grey: not clearly\ndifferent (adjusted\np at least {alpha:g})"
    ax.text(0.02, 0.02, note, transform=ax.transAxes, fontsize="small", va="bottom")
    return ax


def differences(contests: pd.DataFrame, *, alpha: float = 0.05) -> pd.DataFrame:
    """Arrange the clear differences between all models as a square: the numbers of
    `plot_significance`.

    Parameters
    ----------
    contests : DataFrame
        The result of `rmlab.stats.compare_all`, or scores or pairs.
    alpha : float
        The adjusted p below which a difference is clear.

    Returns
    -------
    DataFrame
        Models by models, best first: row minus column, from -1 to 1; NaN where p_holm
        is not below `alpha`.

    Raises
    ------
    DataError
        Where a pair of models stands in several rows, as in `compare(pairs, a, b,
        by=...)`.

    Examples
    --------
    >>> import rmlab
    >>> contests = pd.DataFrame({"model_a": ["a"], "model_b": ["b"], "difference": [0.1], "p_holm": [0.01]})
    >>> rmlab.plots.differences(contests).loc["b", "a"].item()
    -0.1
    """
    columns = ["model_a", "model_b", "difference", "p_holm"]
    contests = canvas.read_table(
        contests, stats.compare_all, columns, argument="contests"
    )
    if contests.duplicated(["model_a", "model_b"]).any():
        raise DataError(
            "contests: a pair of models stands in several rows. Draw it with plot_forest."
        )
    swapped = {"model_a": "model_b", "model_b": "model_a"}
    both_ways = pd.concat(
        [
            contests,
            contests.rename(columns=swapped).assign(difference=-contests["difference"]),
        ]
    )
    gaps, p_holm = (
        both_ways.pivot(index="model_a", columns="model_b", values=name)
        for name in columns[2:]
    )
    order = gaps.mean(axis=1).sort_values(ascending=False, kind="stable").index
    return (
        gaps.where(p_holm < alpha)
        .loc[order, order]
        .rename_axis(index=None, columns=None)
    )


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
        ink = (
            "black"
            if relative_luminance((red, green, blue)) > _EQUAL_CONTRAST
            else "white"
        )
        if share > 0:
            place = (column, row + 1 - share)
            ax.add_patch(
                Rectangle(
                    place,
                    1,
                    share,
                    fill=False,
                    hatch="////",
                    linewidth=0,
                    edgecolor=ink,
                    alpha=0.55,
                )
            )
        if texts[row, column]:
            text = ax.text(
                column + 0.5,
                row + 0.5,
                str(texts[row, column]),
                ha="center",
                va="center",
                fontsize=size,
            )
            # The outline keeps hatching away from the strokes of the digits.
            outline = withStroke(linewidth=2.5, foreground=(red, green, blue))
            text.set(color=ink, gid="cell", path_effects=[outline])
