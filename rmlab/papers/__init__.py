"""What papers and leaderboards print, beside one's own numbers, and what explains the difference; real results."""

from rmlab.papers.agreeing import agreement
from rmlab.papers.outcomes import results
from rmlab.papers.printed import audit_leaderboard, published
from rmlab.papers.reproduction import reproduce

__all__ = ["agreement", "audit_leaderboard", "published", "reproduce", "results"]
