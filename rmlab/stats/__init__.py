"""Comparisons of models, ranks, planning and calibration."""

from rmlab.stats.calibration import calibration, calibration_error
from rmlab.stats.comparing import compare, equivalence, flips
from rmlab.stats.ranking import rank
from rmlab.stats.study_size import power, sample_size

__all__ = [
    "calibration",
    "calibration_error",
    "compare",
    "equivalence",
    "flips",
    "power",
    "rank",
    "sample_size",
]
