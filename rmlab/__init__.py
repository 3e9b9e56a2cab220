"""See what a reward model really rewards.

Load gives responses, scoring gives scores, pairing gives comparisons; every number and every figure is a function of
these three tables.

    import rmlab

    responses = rmlab.load("mini")
    scores = rmlab.score(responses, rmlab.baselines.longest)
    rmlab.rm_bench(rmlab.pairs(scores))
"""

from rmlab import styles
from rmlab.benchmarks import load
from rmlab.metrics import (
    accuracy,
    best_of,
    best_of_curve,
    matrix,
    pairs,
    reward_bench,
    reward_bench_2,
    reward_bench_2_subsets,
    rm_bench,
    ties_detail,
    ties_score,
)
from rmlab.plots import plot_lengths, plot_matrices, plot_matrix, plot_style_gap
from rmlab.published import audit_leaderboard, published
from rmlab.report import save_figure
from rmlab.score_files import read_scores, write_scores
from rmlab.scorers import baselines
from rmlab.scoring import prefer, score
from rmlab.styles import audit
from rmlab.tables import DataError, check_pairs, check_responses, check_scores

__version__ = "0.1.0"

__all__ = [
    "DataError",
    "__version__",
    "accuracy",
    "audit",
    "audit_leaderboard",
    "baselines",
    "best_of",
    "best_of_curve",
    "check_pairs",
    "check_responses",
    "check_scores",
    "load",
    "matrix",
    "pairs",
    "plot_lengths",
    "plot_matrices",
    "plot_matrix",
    "plot_style_gap",
    "prefer",
    "published",
    "read_scores",
    "reward_bench",
    "reward_bench_2",
    "reward_bench_2_subsets",
    "rm_bench",
    "save_figure",
    "score",
    "styles",
    "ties_detail",
    "ties_score",
    "write_scores",
]
