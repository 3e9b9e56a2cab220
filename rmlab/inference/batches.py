"""Length-sorted, right-padded batches, for models whose texts cannot share a row."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["WASTE", "Padded", "pad"]

WASTE = 0.01
"""A batch holds at most this share of padding by default."""


@dataclass(frozen=True)
class Padded:
    """Texts that go through the model as one batch, and how many tokens that is with the padding."""

    texts: NDArray[np.intp]
    tokens: int

    @property
    def finished(self) -> NDArray[np.intp]:
        """The texts whose last token is forwarded by now: all of them."""
        return self.texts


def pad(lengths: Sequence[int], budget: int, waste: float = WASTE) -> list[Padded]:
    """Batches of at most `budget` tokens with the padding, longest texts first, every text once.

    Texts are sorted by length; a batch ends where the next text would make more than `waste` of it padding; 0: texts of
    one length only. A text that is longer than the budget is a batch of its own.

    >>> [(part.texts.tolist(), part.tokens) for part in pad([3, 5, 3], budget=8)]
    [([1], 5), ([0, 2], 6)]
    """
    if budget < 1:
        raise ValueError(f"budget={budget}; allowed: a positive number of tokens")
    sizes = np.asarray(lengths, np.intp)
    # Longest first: if memory runs out, it does so at once.
    order = np.argsort(-sizes, kind="stable")
    parts: list[Padded] = []
    begin, real = 0, 0
    for k, size in enumerate(sizes[order].tolist()):
        padded = int(sizes[order[begin]]) * (k + 1 - begin)  # the first is the longest of its batch
        # A batch holds one text at least, however long it is.
        if k > begin and (padded > budget or padded - real - size > waste * padded):
            parts.append(_padded(order[begin:k], sizes))
            begin, real = k, 0
        real += size
    if len(order):
        parts.append(_padded(order[begin:], sizes))
    return parts


def _padded(texts: NDArray[np.intp], sizes: NDArray[np.intp]) -> Padded:
    return Padded(texts, int(sizes[texts].max()) * len(texts))
