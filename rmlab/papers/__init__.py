"""Printed numbers of papers and leaderboards, and results of real models."""

from rmlab.papers.outcomes import results
from rmlab.papers.printed import published

__all__ = ["published", "results"]
