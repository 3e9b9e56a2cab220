"""Prices of style: gaps, preferences, effects, accuracies at equal style, scores with
style taken off.
"""

from rmlab.bias.controlled import length_controlled, style_controlled
from rmlab.bias.debias import debias, debias_change
from rmlab.bias.effects import exchange_rate, style_effects
from rmlab.bias.gap import style_differences, style_gap, style_preference
from rmlab.bias.probe import probe

__all__ = [
    "debias",
    "debias_change",
    "exchange_rate",
    "length_controlled",
    "probe",
    "style_controlled",
    "style_differences",
    "style_effects",
    "style_gap",
    "style_preference",
]
