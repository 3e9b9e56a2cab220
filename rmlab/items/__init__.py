"""What numbers are made of: the credit of each model on each item, and how the parts of a benchmark combine."""

from rmlab.items.best_of_n import best_of
from rmlab.items.comparisons import Ties, comparison_items, credit, pairs
from rmlab.items.grid import Items, common_items, require_same_items, select, spread
from rmlab.items.ties import ties_detail, ties_score
from rmlab.items.weighting import Average, Number, Weighting, number_of

__all__ = [
    "Average",
    "Items",
    "Number",
    "Ties",
    "Weighting",
    "best_of",
    "common_items",
    "comparison_items",
    "credit",
    "number_of",
    "pairs",
    "require_same_items",
    "select",
    "spread",
    "ties_detail",
    "ties_score",
]
