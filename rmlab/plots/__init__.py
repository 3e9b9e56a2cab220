"""Tables to figures: every function takes a table first, draws it, and returns the Axes
(a Figure for grids).
"""

from rmlab.plots.best_of import plot_best_of, plot_subsets, plot_ties, tie_points
from rmlab.plots.heatmaps import (
    differences,
    plot_matrices,
    plot_matrix,
    plot_significance,
)
from rmlab.plots.intervals import (
    plot_effects,
    plot_forest,
    plot_leaderboard,
    plot_preference,
    plot_rank,
)
from rmlab.plots.rewards import plot_calibration, plot_margins, plot_token_rewards
from rmlab.plots.style import (
    lengths,
    outliers,
    plot_lengths,
    plot_scatter,
    plot_style_gap,
)
from rmlab.plots.training import plot_training

__all__ = [
    "differences",
    "lengths",
    "outliers",
    "plot_best_of",
    "plot_calibration",
    "plot_effects",
    "plot_forest",
    "plot_leaderboard",
    "plot_lengths",
    "plot_margins",
    "plot_matrices",
    "plot_matrix",
    "plot_preference",
    "plot_rank",
    "plot_scatter",
    "plot_significance",
    "plot_style_gap",
    "plot_subsets",
    "plot_ties",
    "plot_token_rewards",
    "plot_training",
    "tie_points",
]
