"""Tables to figures: every function takes a table first, draws it, and returns the Axes
(a Figure for grids).
"""

from rmlab.plots.curves import plot_best_of, plot_calibration, plot_training
from rmlab.plots.heatmaps import plot_matrices, plot_matrix
from rmlab.plots.rewards import plot_margins, plot_scatter, plot_token_rewards
from rmlab.plots.rows import (
    plot_effects,
    plot_forest,
    plot_leaderboard,
    plot_lengths,
    plot_rank,
    plot_style_gap,
)

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
