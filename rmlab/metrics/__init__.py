"""Numbers of a benchmark: scores to pairs, accuracies, the style matrix, summaries,
best of n.
"""

from rmlab.estimation.ties import ties_score
from rmlab.metrics.best_of_n import best_of_curve, best_of_gain
from rmlab.metrics.pairing import pairs
from rmlab.metrics.steps import combine_steps
from rmlab.metrics.summaries import accuracy, estimates, matrix, summary

__all__ = [
    "accuracy",
    "best_of_curve",
    "best_of_gain",
    "combine_steps",
    "estimates",
    "matrix",
    "pairs",
    "summary",
    "ties_score",
]
