"""Reward models: one score per text (classifiers, implicit rewards), or one preference per pair."""

from rmlab.scorers.classifier import Classifier, classifier
from rmlab.scorers.implicit import ImplicitReward, implicit_reward
from rmlab.scorers.pairwise import Pairwise, pairwise

__all__ = ["Classifier", "ImplicitReward", "Pairwise", "classifier", "implicit_reward", "pairwise"]
