"""The cells of heatmaps: numbers that can be read on any colour, and hatching for ties."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

__all__ = ["contrast", "hatch_cells", "ink", "write_cells"]

Colour = Sequence[float]

_LINEAR_BELOW = 0.04045  # of sRGB: darker values are proportional to light


def contrast(one: Colour, other: Colour) -> float:
    """Contrast of two colours (red, green, blue from 0 to 1): 1 to 21, as the W3C's accessibility guidelines count it.

    >>> round(contrast((0, 0, 0), (1, 1, 1)))
    21
    """
    dark, light = sorted(_light(colour) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def ink(background: Colour) -> str:
    """Black or white, whichever contrasts more: on any background at least 4.58 to 1."""
    return max("black", "white", key=lambda name: contrast(_INKS[name], background))


def write_cells(ax: "Axes", texts: np.ndarray, *, size: float | str = "medium") -> "list[Text]":
    """Write a text in the middle of every cell of the heatmap on `ax`, in the ink that its colour asks for."""
    from matplotlib.patheffects import withStroke

    written = []
    for (row, column), below in _colours(ax, texts.shape):
        if text := texts[row, column]:
            one = ax.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=size, linespacing=1.1)
            # The outline keeps hatching away from the strokes of the digits.
            one.set(color=ink(below), gid="cell", path_effects=[withStroke(linewidth=2.5, foreground=below)])
            written.append(one)
    return written


def hatch_cells(ax: "Axes", shares: np.ndarray) -> None:
    """Hatch a share of every cell, from its bottom up."""
    from matplotlib.patches import Rectangle

    for (row, column), below in _colours(ax, shares.shape):
        if (share := shares[row, column]) > 0:
            part = Rectangle((column, row + 1 - share), 1, share, fill=False, hatch="////", linewidth=0)
            part.set(edgecolor=ink(below), alpha=0.55)
            ax.add_patch(part)


def _colours(ax: "Axes", shape: tuple[int, ...]) -> "Iterator[tuple[tuple[int, ...], Colour]]":
    """The cells of the heatmap on `ax`, row and column, and their colours."""
    mesh = ax.collections[0]
    mesh.update_scalarmappable()
    shades = np.asarray(mesh.get_facecolor()).reshape(*shape, 4)
    for place in np.ndindex(shape):
        yield place, tuple(shades[place][:3].tolist())


_INKS = {"black": (0.0, 0.0, 0.0), "white": (1.0, 1.0, 1.0)}


def _light(colour: Colour) -> float:
    """Relative luminance of an sRGB colour."""
    part = np.asarray(colour[:3], float)
    linear = np.where(part <= _LINEAR_BELOW, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))
