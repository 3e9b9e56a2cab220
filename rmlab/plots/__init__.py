"""Tables to figures: every function takes a table first, draws it, and returns the Axes (a Figure for grids)."""

from rmlab.plots.matrix import plot_matrices, plot_matrix
from rmlab.plots.style import lengths, plot_lengths, plot_style_gap

__all__ = ["lengths", "plot_lengths", "plot_matrices", "plot_matrix", "plot_style_gap"]
