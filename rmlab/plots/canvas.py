"""Where a figure is drawn: the Axes given, or a fresh one."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["canvas"]


def canvas(ax: "Axes | None", size: tuple[float, float]) -> "Axes":
    """Return `ax`, or the Axes of a new figure of `size` inches; never the current Axes, which may hold a plot."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    fresh: Axes = plt.subplots(figsize=size, layout="constrained")[1]
    return fresh
