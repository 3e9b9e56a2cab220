"""Scores to pairs to accuracies, and the summaries of the benchmarks."""

from rmlab.metrics.best_of import best_of, best_of_curve
from rmlab.metrics.comparisons import Ties, accuracy, credit, matrix, pairs, win_matrix
from rmlab.metrics.reward_bench import reward_bench, reward_bench_2, reward_bench_2_subsets
from rmlab.metrics.rm_bench import Safety, rm_bench
from rmlab.metrics.ties import ties_detail, ties_score

__all__ = [
    "Safety",
    "Ties",
    "accuracy",
    "best_of",
    "best_of_curve",
    "credit",
    "matrix",
    "pairs",
    "reward_bench",
    "reward_bench_2",
    "reward_bench_2_subsets",
    "rm_bench",
    "ties_detail",
    "ties_score",
    "win_matrix",
]
