"""Comparisons of models and of languages, ranks, planning, calibration, item
difficulty, and reports on judges.
"""

from rmlab.stats.calibration import calibration, calibration_error, margins
from rmlab.stats.comparing import compare, compare_all, equivalence, flips
from rmlab.stats.item_analysis import error_correlation, item_difficulty
from rmlab.stats.ranking import rank
from rmlab.stats.spread import spread
from rmlab.stats.study_size import plan, power

__all__ = [
    "calibration",
    "calibration_error",
    "compare",
    "compare_all",
    "equivalence",
    "error_correlation",
    "flips",
    "item_difficulty",
    "margins",
    "plan",
    "power",
    "rank",
    "spread",
]
