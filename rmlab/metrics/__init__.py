"""Numbers of a benchmark: scores to pairs, accuracies, the style matrix, summaries,
best of n, ensembles.
"""

from rmlab.estimation.best_of_n import best_of, best_of_curve
from rmlab.estimation.gain import best_of_gain
from rmlab.estimation.items import credit, pairs
from rmlab.estimation.ties import ties_detail, ties_score
from rmlab.metrics.ensembles import ensemble
from rmlab.metrics.steps import combine_steps
from rmlab.metrics.summaries import accuracy, estimates, matrix, summary

__all__ = [
    "accuracy",
    "best_of",
    "best_of_curve",
    "best_of_gain",
    "combine_steps",
    "credit",
    "ensemble",
    "estimates",
    "matrix",
    "pairs",
    "summary",
    "ties_detail",
    "ties_score",
]
