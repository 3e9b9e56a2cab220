"""Who sees whom in a pack, as flex attention on a GPU wants it: blocks of rows that meet, and a rule within blocks.

Everything here is computed on the host, before a pack goes up, and no rows x rows table is ever made.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.trie import Layout

if TYPE_CHECKING:
    import torch

__all__ = ["BLOCK", "SIZES", "Tables", "View", "filled", "mask_mod", "tables", "tables_of"]

BLOCK = 128
"""Rows and columns of one block: what flex attention's kernels expect."""

SIZES: tuple[int, ...] = tuple(1024 << power for power in range(0, 24, 2))
"""Numbers of rows that kernels are compiled for; few, because each takes seconds to compile."""

Blocks = NDArray[np.bool_]
"""(blocks of queries, blocks of keys)."""


class View(NamedTuple):
    """What an attention layer lets a row see: rows less than `window` away (None: any), only earlier ones or not."""

    window: int | None
    causal: bool


class Tables(NamedTuple):
    """A view of a layout. Of each row: where its subtree `ends`, its position. Of each block of queries: how many
    blocks of keys it meets in part, their numbers, how many it meets in full, their numbers.
    """

    ends: Any
    positions: Any
    counts: Any
    blocks: Any
    full_counts: Any
    full_blocks: Any


def filled(rows: int) -> int:
    """The number of rows that a pack is filled up to: 1,024, 4,096, 16,384 and so on.

    Filling costs memory for queries, keys and values, and next to no time: filled blocks meet no other block.

    >>> filled(700), filled(1024), filled(16000)
    (1024, 1024, 16384)
    """
    return SIZES[bisect_left(SIZES, rows)]


def tables(layout: Layout, view: View) -> dict[Hashable, NDArray[Any]]:
    """The view of the layout as arrays to upload, by name; `tables_of` finds them again on the device."""
    layout = layout.filled(filled(len(layout.ids)))
    some, full = (_below if view.causal else _beside)(layout, view.window)
    made = Tables(layout.ends.astype(np.int32), layout.positions, *_block_lists(some & ~full), *_block_lists(full))
    return {(view, name): values for name, values in made._asdict().items()}


def tables_of(sent: "Mapping[Hashable, torch.Tensor]", view: View) -> Tables:
    """The view's tables among what was uploaded."""
    return Tables(*(sent[view, name] for name in Tables._fields))


def mask_mod(view: View, ends: "torch.Tensor", positions: "torch.Tensor") -> "Callable[..., torch.Tensor]":
    """Flex attention's mask function: may row q see row k? `ends`, `positions`: of every row, on the device."""
    window = view.window

    def on_path(batch: Any, head: Any, q: Any, k: Any) -> Any:
        return (k <= q) & (q < ends[k])

    def in_window(batch: Any, head: Any, q: Any, k: Any) -> Any:
        return (k <= q) & (q < ends[k]) & (positions[q] - positions[k] < window)

    def in_text(batch: Any, head: Any, q: Any, k: Any) -> Any:
        return ends[q] == ends[k]

    def in_band(batch: Any, head: Any, q: Any, k: Any) -> Any:
        return (ends[q] == ends[k]) & (q - k < window) & (k - q < window)

    if view.causal:
        return on_path if window is None else in_window
    return in_text if window is None else in_band


def _below(layout: Layout, window: int | None) -> tuple[Blocks, Blocks]:
    """Which blocks of keys matter to a decoder's blocks of queries, and which are open in full.

    A block of keys matters when one of its subtrees reaches the queries, and is open in full when all of its subtrees
    reach behind them. With a window no block is taken as fully open.
    """
    ends = layout.ends
    starts = np.arange(0, len(ends), BLOCK)
    last = starts + BLOCK - 1
    farthest = np.maximum.reduceat(ends, starts)
    nearest = np.minimum.reduceat(ends, starts)
    earlier = starts[None, :] < starts[:, None]
    some = (starts[None, :] == starts[:, None]) | (earlier & (farthest[None, :] > starts[:, None]))
    return some, earlier & (nearest[None, :] > last[:, None]) & (window is None)


def _beside(layout: Layout, window: int | None) -> tuple[Blocks, Blocks]:
    """The same for an encoder: blocks matter to one another when a text has rows in both, open in full within one."""
    ends = layout.ends
    starts = np.arange(0, len(ends), BLOCK)
    last = starts + BLOCK - 1
    begins = np.arange(len(ends)) - layout.positions
    first, behind = begins[starts], ends[last]
    some = (starts[None, :] < behind[:, None]) & (first[:, None] <= last[None, :])
    if window is not None:
        return some & (np.abs(starts[:, None] - starts[None, :]) < window + BLOCK - 1), np.zeros_like(some)
    one = first == begins[last]
    return some, one[:, None] & one[None, :] & (first[:, None] == first[None, :])


def _block_lists(wanted: Blocks) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Per row of blocks: how many are wanted, and their numbers, wanted ones first; for one batch and all heads."""
    counts = wanted.sum(1, dtype=np.int32)
    queries, keys = np.nonzero(wanted)
    numbers = np.zeros(wanted.shape, np.int32)
    numbers[queries, np.arange(len(keys)) - np.repeat(np.cumsum(counts) - counts, counts)] = keys
    return counts[None, None], numbers[None, None]
