"""Reward models: one score per text (classifiers, implicit rewards), or one preference
per pair.
"""

from rmlab.scorers.base import PairScorer, Scorer, Text
from rmlab.scorers.checkpoints.gguf import from_gguf, smollm2
from rmlab.scorers.classifier import Classifier, classifier
from rmlab.scorers.implicit import ImplicitReward, implicit_reward
from rmlab.scorers.pairwise import Pairwise, pairwise

__all__ = [
    "Classifier",
    "ImplicitReward",
    "PairScorer",
    "Pairwise",
    "Scorer",
    "Text",
    "classifier",
    "from_gguf",
    "implicit_reward",
    "pairwise",
    "smollm2",
]
