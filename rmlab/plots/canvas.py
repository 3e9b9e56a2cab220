"""What a figure is drawn on, the Axes given or a fresh one, and of: a summary, or the pairs to make it from."""

from typing import TYPE_CHECKING

import pandas as pd

from rmlab.tables import PAIR_KEY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["canvas", "is_pairs"]


def canvas(ax: "Axes | None", size: tuple[float, float]) -> "Axes":
    """Return `ax`, or the Axes of a new figure of `size` inches; never the current Axes, which may hold a plot."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    fresh: Axes = plt.subplots(figsize=size, layout="constrained")[1]
    return fresh


def is_pairs(table: pd.DataFrame) -> bool:
    """Whether a table holds comparisons one by one, so that its summary is still to be made."""
    return isinstance(table, pd.DataFrame) and set(PAIR_KEY) <= set(table.columns)
