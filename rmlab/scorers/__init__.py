"""Reward models: one score per text (classifiers, implicit rewards), or one preference
per pair.
"""

from rmlab.scorers.base import PairScorer, Scorer
from rmlab.scorers.checkpoints.gguf import smollm2
from rmlab.scorers.classifier import classifier
from rmlab.scorers.encoder import EncodeOptions
from rmlab.scorers.implicit import implicit_reward
from rmlab.scorers.pairwise import pairwise

__all__ = [
    "EncodeOptions",
    "PairScorer",
    "Scorer",
    "classifier",
    "implicit_reward",
    "pairwise",
    "smollm2",
]
