"""Tables to figures: every function takes a table first, draws it, and returns the Axes
(a Figure for grids).
"""

from rmlab.plots.best_of import plot_best_of
from rmlab.plots.heatmaps import plot_matrices, plot_matrix
from rmlab.plots.intervals import (
    plot_effects,
    plot_forest,
    plot_leaderboard,
    plot_rank,
)
from rmlab.plots.rewards import plot_calibration, plot_margins, plot_token_rewards
from rmlab.plots.style import plot_lengths, plot_scatter, plot_style_gap
from rmlab.plots.training import plot_training

__all__ = [
    "plot_best_of",
    "plot_calibration",
    "plot_effects",
    "plot_forest",
    "plot_leaderboard",
    "plot_lengths",
    "plot_margins",
    "plot_matrices",
    "plot_matrix",
    "plot_rank",
    "plot_scatter",
    "plot_style_gap",
    "plot_token_rewards",
    "plot_training",
]
