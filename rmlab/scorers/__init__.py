"""Reward models: one score per text (classifiers, implicit rewards), or one preference per pair."""

from rmlab.scorers.classifier import Classifier, classifier
from rmlab.scorers.gguf import from_gguf, smollm2
from rmlab.scorers.implicit import ImplicitReward, implicit_reward
from rmlab.scorers.pairwise import Pairwise, pairwise

__all__ = [
    "Classifier",
    "ImplicitReward",
    "Pairwise",
    "classifier",
    "from_gguf",
    "implicit_reward",
    "pairwise",
    "smollm2",
]
