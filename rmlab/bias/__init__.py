"""Prices of style: gaps, preferences, effects, accuracies at equal style, scores with
style taken off.
"""

from rmlab.bias.controlled import length_controlled, style_controlled
from rmlab.bias.debias import debias
from rmlab.bias.gap import style_preference

__all__ = ["debias", "length_controlled", "style_controlled", "style_preference"]
