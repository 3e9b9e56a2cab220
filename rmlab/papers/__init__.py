"""Printed numbers of papers and leaderboards beside computed ones, and results of real
models.
"""

from rmlab.papers.outcomes import results
from rmlab.papers.printed import audit_leaderboard, published
from rmlab.papers.reproduction import reproduce

__all__ = ["audit_leaderboard", "published", "reproduce", "results"]
