"""How sure a number is, which of two models is better, where a model ranks, what an item tells."""

from rmlab.stats.best import compare_best
from rmlab.stats.calibration import calibration, calibration_error, margins
from rmlab.stats.comparing import compare, compare_all, flips
from rmlab.stats.difficulty import item_difficulty
from rmlab.stats.equivalence import equivalence
from rmlab.stats.errors import error_clusters, error_correlation
from rmlab.stats.judges import judge_report
from rmlab.stats.power import plan, power
from rmlab.stats.ranking import letters, rank
from rmlab.stats.sensitivity import sensitivity

__all__ = [
    "calibration",
    "calibration_error",
    "compare",
    "compare_all",
    "compare_best",
    "equivalence",
    "error_clusters",
    "error_correlation",
    "flips",
    "item_difficulty",
    "judge_report",
    "letters",
    "margins",
    "plan",
    "power",
    "rank",
    "sensitivity",
]
