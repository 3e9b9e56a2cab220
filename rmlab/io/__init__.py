"""Scores and comparisons to and from files: rmlab's own, RM-Bench's, RewardBench's, and an exchange format."""

from rmlab.io.every_eval_ever import export_every_eval_ever
from rmlab.io.joining import join
from rmlab.io.reading import read_pairs, read_scores
from rmlab.io.writing import check_target, write_pairs, write_scores

__all__ = ["check_target", "export_every_eval_ever", "join", "read_pairs", "read_scores", "write_pairs", "write_scores"]
