"""Scores to pairs to accuracies, and the summaries of the benchmarks."""

from rmlab.metrics.comparisons import Ties, accuracy, credit, matrix, pairs, win_matrix
from rmlab.metrics.rm_bench import Safety, rm_bench

__all__ = ["Safety", "Ties", "accuracy", "credit", "matrix", "pairs", "rm_bench", "win_matrix"]
