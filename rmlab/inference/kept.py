"""What a pack leaves for the next one: keys and values of the beginning that goes on, and states to be read later.

A prompt that is larger than a pack is forwarded in several, each token once. What the rows of a later pack see of the
earlier ones is one path (layout.py), so of each layer the keys and values of that path are kept, and freed when the
prompt is done. Keys are kept as attention gets them, behind their rotary embedding: a token's position stays the same.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.layout import Layout

if TYPE_CHECKING:
    import torch

__all__ = ["Kept"]

Ints = NDArray[np.intp]


class Kept:
    """What the packs of one prompt hand on to one another; empty before the first.

    `states`: hidden states (n, hidden) float32 at `positions` of the kept beginning, ascending: texts that end in a
    later pack want them.
    """

    def __init__(self) -> None:
        self.positions: Ints = np.zeros(0, np.intp)
        self.states: torch.Tensor | None = None
        self.layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def joined(
        self, layer: int, layout: Layout, key: "torch.Tensor", value: "torch.Tensor"
    ) -> "tuple[torch.Tensor, torch.Tensor]":
        """A layer's keys and values (1, heads, rows, size) of all the layout's rows, the kept ones first.

        What the next pack needs of them takes the place of what was kept.
        """
        # Taken out, not looked at: so the old keys are freed layer by layer as new ones come.
        if layout.kept:
            key, value = map(_behind, self.layers.pop(layer), (key, value))
        if layout.keep:
            self.layers[layer] = _carried(layout, key), _carried(layout, value)
        return key, value


def _behind(kept: "torch.Tensor", states: "torch.Tensor") -> "torch.Tensor":
    """What was kept, and behind it the pack's own."""
    import torch

    # Dimension 2 are the rows.
    return torch.cat([kept, states], 2)


def _carried(layout: Layout, states: "torch.Tensor") -> "torch.Tensor":
    """The rows that the next pack goes on from, as memory of their own: the pack's is freed."""
    import torch

    # A slice would hold on to all of it.
    return torch.cat([states[:, :, start:stop] for start, stop in layout.carried], 2)
