"""Who sees whom in a pack, as flex attention on a GPU wants it: blocks of rows that meet, and a rule within blocks.

Everything here is computed on the host, before a pack goes up, and no rows x rows table is ever made. Where a pack goes
on from kept rows (kept.py), these stand behind its own rows among the keys, so that a row's number is the same in both.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.layout import Layout

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["BLOCK", "SIZES", "Tables", "View", "filled", "mask_mod", "tables", "tables_of"]

BLOCK = 128
"""Rows and columns of one block: what flex attention's kernels expect."""

# Powers of four, from 1,024.
SIZES: tuple[int, ...] = tuple(1024 << power for power in range(0, 24, 2))
"""Numbers of rows that kernels are compiled for; few, because each takes seconds to compile."""

Ints = NDArray[np.intp]
Blocks = NDArray[np.bool_]
"""(blocks of queries, blocks of keys)."""


class View(NamedTuple):
    """What an attention layer lets a row see: rows less than `window` away (None: any), only earlier ones or not."""

    window: int | None
    causal: bool


A = TypeVar("A", NDArray[np.generic], "torch.Tensor")


class Tables(NamedTuple, Generic[A]):
    """A view of a layout, as arrays or tensors. Of each key, forwarded rows first: where its subtree `ends`, its
    position. Of each block of queries: how many blocks of keys it meets in part, their numbers, how many it meets in
    full, their numbers.
    """

    ends: A
    positions: A
    counts: A
    blocks: A
    full_counts: A
    full_blocks: A


def filled(rows: int) -> int:
    """The number of rows that a pack is filled up to: 1,024, 4,096, 16,384 and so on.

    Filling costs memory for queries, keys and values, and next to no time: filled blocks meet no other block.

    >>> filled(700), filled(1024), filled(16000)
    (1024, 1024, 16384)
    """
    return SIZES[bisect_left(SIZES, rows)]


def tables(layout: Layout, view: View) -> dict[Hashable, NDArray[np.generic]]:
    """The view of the layout as arrays to upload, by name; `tables_of` finds them again on the device."""
    # Tables must have the size that the kernel is compiled for.
    layout = layout.filled(filled(layout.forwarded))
    some, full = (_below if view.causal else _beside)(layout, view.window)
    ends, positions = _ends(layout).astype(np.int32), _kept_last(layout, layout.positions)
    # A block of keys stands in one of the two lists: in those met in full the kernel does not ask the rule.
    made: Tables[NDArray[np.generic]] = Tables(ends, positions, *_block_lists(some & ~full), *_block_lists(full))
    return {(view, name): values for name, values in made._asdict().items()}


def _ends(layout: Layout) -> Ints:
    """Of each key the first forwarded row behind it that does not see it; nobody sees what fills up the kept rows."""
    # Counted among forwarded rows, as the kernel counts its queries.
    return _kept_last(layout, layout.ends - layout.kept)


def _kept_last(layout: Layout, values: Ints) -> Ints:
    """Values of all rows in the order of the keys: of forwarded rows, of kept ones, and 0 up to a kernel's size."""
    more = filled(layout.kept) - layout.kept if layout.kept else 0
    return np.concatenate([values[layout.kept :], values[: layout.kept], np.zeros(more, values.dtype)])


def tables_of(sent: "Mapping[Hashable, torch.Tensor]", view: View) -> "Tables[torch.Tensor]":
    """The view's tables among what was uploaded."""
    return Tables(*(sent[view, name] for name in Tables._fields))


def mask_mod(
    view: View, ends: "torch.Tensor", positions: "torch.Tensor", rows: int | None = None
) -> "Callable[..., torch.Tensor]":
    """Flex attention's mask function: may row q see key k? `ends`, `positions`: of every key, on the device.

    `rows`: how many keys are forwarded rows, None: all.
    """
    window = view.window
    # Of the rules that ask for them.
    reach, forwarded = 0 if window is None else window, 0 if rows is None else rows

    def on_path(batch: "Tensor", head: "Tensor", q: "Tensor", k: "Tensor") -> "Tensor":
        # Depth first, an earlier row is on the path of all rows up to the end of its subtree, and of no other.
        return (k <= q) & (q < ends[k])

    def in_window(batch: "Tensor", head: "Tensor", q: "Tensor", k: "Tensor") -> "Tensor":
        return (k <= q) & (q < ends[k]) & (positions[q] - positions[k] < reach)

    def from_kept(batch: "Tensor", head: "Tensor", q: "Tensor", k: "Tensor") -> "Tensor":
        # Kept rows stand behind the others and come before all of them.
        return ((k <= q) | (k >= forwarded)) & (q < ends[k])

    def from_kept_in_window(batch: "Tensor", head: "Tensor", q: "Tensor", k: "Tensor") -> "Tensor":
        return ((k <= q) | (k >= forwarded)) & (q < ends[k]) & (positions[q] - positions[k] < reach)

    def in_text(batch: "Tensor", head: "Tensor", q: "Tensor", k: "Tensor") -> "Tensor":
        return ends[q] == ends[k]  # texts of an encoder share no rows: one end, one text

    def in_band(batch: "Tensor", head: "Tensor", q: "Tensor", k: "Tensor") -> "Tensor":
        return (ends[q] == ends[k]) & (q - k < reach) & (k - q < reach)

    if view.causal and rows is not None:
        return from_kept if window is None else from_kept_in_window
    if view.causal:
        return on_path if window is None else in_window
    return in_text if window is None else in_band


def _below(layout: Layout, window: int | None) -> tuple[Blocks, Blocks]:
    """Which blocks of keys matter to a decoder's blocks of queries, and which are open in full.

    A block of keys matters when one of its subtrees reaches the queries, and is open in full when all of its subtrees
    reach behind them. With a window no block is taken as fully open.
    """
    ends = _ends(layout)
    keys = np.arange(0, len(ends), BLOCK)
    starts = np.arange(0, layout.forwarded, BLOCK)
    last = starts + BLOCK - 1
    # Of each block of keys, where its last subtree ends and where its first one does.
    farthest = np.maximum.reduceat(ends, keys)
    nearest = np.minimum.reduceat(ends, keys)
    earlier = (keys[None, :] < starts[:, None]) | (keys[None, :] >= layout.forwarded)
    # The block on the diagonal is always met in part: half of it lies above.
    some = (keys[None, :] == starts[:, None]) | (earlier & (farthest[None, :] > starts[:, None]))
    # Full where even its shortest subtree outlasts the last of the queries.
    return some, earlier & (nearest[None, :] > last[:, None]) & (window is None)


def _beside(layout: Layout, window: int | None) -> tuple[Blocks, Blocks]:
    """The same for an encoder: blocks matter to one another when a text has rows in both, open in full within one."""
    ends = layout.ends
    starts = np.arange(0, len(ends), BLOCK)
    last = starts + BLOCK - 1
    begins = np.arange(len(ends)) - layout.positions  # of each row the first one of its text
    first, behind = begins[starts], ends[last]
    # Two blocks meet where the texts that begin in the one reach into the other.
    some = (starts[None, :] < behind[:, None]) & (first[:, None] <= last[None, :])
    if window is not None:
        return some & (np.abs(starts[:, None] - starts[None, :]) < window + BLOCK - 1), np.zeros_like(some)
    one = first == begins[last]  # blocks that hold rows of one text alone
    return some, one[:, None] & one[None, :] & (first[:, None] == first[None, :])


def _block_lists(wanted: Blocks) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Per row of blocks: how many are wanted, and their numbers, wanted ones first; for one batch and all heads."""
    counts = wanted.sum(1, dtype=np.int32)
    queries, keys = np.nonzero(wanted)
    numbers = np.zeros(wanted.shape, np.int32)
    numbers[queries, np.arange(len(keys)) - np.repeat(np.cumsum(counts) - counts, counts)] = keys
    # (1, 1, blocks of queries) and (1, 1, blocks of queries, blocks of keys); numbers behind the counts are not read.
    return counts[None, None], numbers[None, None]
