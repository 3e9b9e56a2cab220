"""Reward models: one score per text (classifiers, implicit rewards), or one preference per pair."""

from rmlab.scorers.classifier import Classifier, classifier

__all__ = ["Classifier", "classifier"]
