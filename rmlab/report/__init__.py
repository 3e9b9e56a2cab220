"""Tables and figures to files: leaderboards in every format, and a report that opens
offline.
"""

from rmlab.report.figures import save_figure
from rmlab.report.formats import show, to_csv, to_latex, to_markdown
from rmlab.report.leaderboard import compare_benchmarks, leaderboard
from rmlab.report.page import write_report

__all__ = [
    "compare_benchmarks",
    "leaderboard",
    "save_figure",
    "show",
    "to_csv",
    "to_latex",
    "to_markdown",
    "write_report",
]
