"""Scores to pairs to accuracies, and the summaries of the benchmarks."""

from rmlab.items import best_of, credit, pairs, ties_detail, ties_score
from rmlab.items.comparisons import Ties
from rmlab.items.weighting import Average
from rmlab.metrics.comparisons import accuracy, matrix
from rmlab.metrics.curve import best_of_curve
from rmlab.metrics.ensembles import ensemble
from rmlab.metrics.summaries import estimates, reward_bench, reward_bench_2, rm_bench, summary

__all__ = [
    "Average",
    "Ties",
    "accuracy",
    "best_of",
    "best_of_curve",
    "credit",
    "ensemble",
    "estimates",
    "matrix",
    "pairs",
    "reward_bench",
    "reward_bench_2",
    "rm_bench",
    "summary",
    "ties_detail",
    "ties_score",
]
