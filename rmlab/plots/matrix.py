"""Heatmaps of the style-substance matrix."""

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rmlab import metrics
from rmlab.plots.canvas import canvas
from rmlab.plots.names import plain
from rmlab.tables import STYLES, DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_matrices", "plot_matrix"]

COLOURS = "RdBu"  # red below chance, white at chance, blue above; safe for the common colour blindnesses
TICKS = (0, 0.25, 0.5, 0.75, 1)


def plot_matrix(
    matrix: pd.DataFrame, *, chance: float = 0.5, names: bool = True, colorbar: bool = True, ax: "Axes | None" = None
) -> "Axes":
    """Heatmap of one 3x3 matrix as `rmlab.matrix` returns it; returns the Axes.

    Rows are the style of the chosen answer, columns that of the rejected one. The colour scale is fixed from 0 to 1
    and white at `chance`; the share stands in every cell, with the name of its level below (`names`). A cell without
    a comparison stays empty. Raises DataError for another frame than 3x3 shares. RM-Bench (arXiv 2410.16184), figure 2.
    """
    _check_square(matrix)
    import seaborn as sns
    from matplotlib.colors import TwoSlopeNorm

    ax = canvas(ax, (4.6, 3.8))
    sns.heatmap(
        matrix,
        norm=TwoSlopeNorm(chance, 0, 1),
        cmap=COLOURS,
        annot=_labels(matrix, names),
        fmt="",
        square=True,
        linewidths=1.5,
        linecolor="white",
        cbar=colorbar,
        cbar_kws={"label": "share of comparisons won", "ticks": TICKS, "shrink": 0.75} if colorbar else None,
        ax=ax,
    )
    ax.set(xlabel="style of the rejected answer", ylabel="style of the chosen answer")
    ax.tick_params(length=0)
    ax.tick_params(axis="y", rotation=0)
    return ax


def plot_matrices(
    table: pd.DataFrame,
    *,
    by: str = "model",
    average: metrics.Average = "benchmark",
    ties: str | None = None,
    chance: float = 0.5,
    columns: int = 4,
) -> "Figure":
    """One heatmap per value of `by` ("model", or "domain" and the like for one model), one colour bar; the Figure.

    `table`: scores or pairs. Panels stand in the order of its rows. The table beside it:
    `rmlab.accuracy(pairs, by=[by, "chosen_style", "rejected_style"])`, with the same `average` and `ties`.
    """
    cells = metrics.accuracy(table, by=[by, "chosen_style", "rejected_style"], average=average, ties=ties)
    import matplotlib.pyplot as plt

    panels = list(cells[by].unique())
    across = min(columns, len(panels))
    down = -(-len(panels) // across)
    figure: Figure
    figure, axes = plt.subplots(
        down, across, figsize=(2.5 * across + 1.6, 2.55 * down + 0.7), squeeze=False, layout="constrained"
    )
    for number, (ax, value) in enumerate(zip(axes.flat, panels, strict=False)):
        panel = cells[cells[by] == value].pivot(index="chosen_style", columns="rejected_style", values="accuracy")
        plot_matrix(
            panel.rename_axis(index="chosen_style", columns="rejected_style"),
            chance=chance,
            names=False,
            colorbar=False,
            ax=ax,
        )
        ax.set_title(textwrap.fill(plain(value), 24), fontsize="medium")
        ax.set(xlabel="", ylabel="")
        ax.tick_params(axis="y", labelleft=number % across == 0)
        _name_columns(ax, shown=number + across >= len(panels))
    for ax in axes.flat[len(panels) :]:
        ax.set_axis_off()
    _shared_colorbar(figure, axes)
    figure.supxlabel("style of the rejected answer", fontsize="medium")
    figure.supylabel("style of the chosen answer", fontsize="medium")
    return figure


def _name_columns(ax: "Axes", *, shown: bool) -> None:
    """Style names below a panel, where no other panel stands below it."""
    ax.tick_params(axis="x", labelbottom=shown)
    for text in ax.get_xticklabels():
        text.set(rotation=30, ha="right", rotation_mode="anchor")


def _shared_colorbar(figure: "Figure", axes: Any) -> None:
    mesh = axes.flat[0].collections[0]
    bar = figure.colorbar(mesh, ax=axes, ticks=TICKS, shrink=0.9, aspect=25)
    bar.set_label("share of comparisons won")
    bar.outline.set_visible(False)


def _labels(matrix: pd.DataFrame, names: bool) -> np.ndarray:
    values = matrix.to_numpy()
    level = np.array([["normal", "hard", "hard"], ["easy", "normal", "hard"], ["easy", "easy", "normal"]])
    shares = np.array([["" if np.isnan(v) else f"{v:.2f}" for v in row] for row in values])
    return np.char.add(np.char.add(shares, "\n"), level) if names else shares


def _check_square(matrix: pd.DataFrame) -> None:
    if not isinstance(matrix, pd.DataFrame):
        raise TypeError(f"matrix: expected the DataFrame that rmlab.matrix(pairs) returns, got {type(matrix).__name__}")
    if list(matrix.index) != list(STYLES) or list(matrix.columns) != list(STYLES):
        raise DataError(
            f"matrix: rows {list(matrix.index[:4])} and columns {list(matrix.columns[:4])}; both must be "
            f"{list(STYLES)}; make it with rmlab.matrix(pairs)"
        )
    values = matrix.to_numpy()
    strange = values[(values < 0) | (values > 1)]
    if len(strange):
        raise DataError(f"matrix: {strange[0]:g} is no share; all must lie from 0 to 1: divide percentages by 100")
