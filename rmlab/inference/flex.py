"""Who sees whom in a pack, as flex attention on a GPU wants it: blocks of rows that meet, and a rule within blocks.

Everything here is computed on the host, before a pack goes up, and no rows x rows table is ever made. Where a pack goes
on from kept rows, these stand behind its own rows among the keys, so that a row's number is the same in both.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.layout import Layout
from rmlab.inference.planning import Ints

if TYPE_CHECKING:
    import torch
    from torch import Tensor

BLOCK = 128
"""Rows and columns of one block: what flex attention's kernels expect."""

# Powers of four, from 1,024.
SIZES: tuple[int, ...] = tuple(1024 << power for power in range(0, 24, 2))
"""Numbers of rows that kernels are compiled for; few, because each takes seconds to compile."""


class Met(NamedTuple):
    """Blocks of queries and of keys that meet, by their numbers, a pair each: in order of the queries, then the keys.

    `full`: whether every query of the one sees every key of the other.
    """

    queries: Ints
    keys: Ints
    full: NDArray[np.bool_]


class View(NamedTuple):
    """What an attention layer lets a row see: rows less than `window` away (None: any), only earlier ones or not."""

    window: int | None
    causal: bool


class Kind(NamedTuple):
    """What an attention layer computes: how far it sees, the scale of its logits, and the cap on them.

    `window`: a row sees rows less than so many away, None: however far. `causal`: only those before it, and itself.
    """

    window: int | None
    scaling: float | None
    softcap: float | None
    causal: bool = True


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
    # Ends are counted among forwarded rows, as the kernel counts its queries; nobody sees what fills up the kept ones.
    ends, positions = _of_keys(layout, layout.ends - layout.kept), _of_keys(layout, layout.positions)
    met = _meeting_paths(layout, ends, view.window) if view.causal else _meeting_texts(layout, view.window)
    blocks = layout.forwarded // BLOCK, len(ends) // BLOCK
    # A block of keys stands in one of the two lists: in those met in full the kernel does not ask the rule.
    lists = *_block_lists(met, ~met.full, blocks), *_block_lists(met, met.full, blocks)
    arrays: Tables[NDArray[np.generic]] = Tables(ends, positions, *lists)
    return {(view, name): values for name, values in arrays._asdict().items()}


def _of_keys(layout: Layout, values: Ints) -> NDArray[np.int32]:
    """Values of all rows in the order of the keys: of forwarded rows, of kept ones, and 0 up to a kernel's size."""
    if not layout.kept:
        return values.astype(np.int32)
    filling = np.zeros(filled(layout.kept) - layout.kept)
    return np.concatenate([values[layout.kept :], values[: layout.kept], filling], dtype=np.int32, casting="unsafe")


def tables_of(sent: "Mapping[Hashable, torch.Tensor]", view: View) -> "Tables[torch.Tensor]":
    """The view's tables among what was uploaded."""
    return Tables(*(sent[view, name] for name in Tables._fields))


def mask_mod(
    view: View, ends: "torch.Tensor", positions: "torch.Tensor", rows: int | None = None
) -> "Callable[..., torch.Tensor]":
    """Flex attention's mask function: may row q see key k? `ends`, `positions`: of every key, on the device.

    `rows`: how many keys are forwarded rows, None: all.
    """
    window, causal = view

    # Branches on what is fixed are gone when the function is compiled.
    def may_attend(batch: "Tensor", head: "Tensor", q: "Tensor", k: "Tensor") -> "Tensor":
        if not causal:
            same_text = ends[q] == ends[k]  # texts of an encoder share no rows: one end, one text
            return same_text if window is None else same_text & (q - k < window) & (k - q < window)
        # Kept rows stand behind the others and come before all of them.
        earlier = k <= q if rows is None else (k <= q) | (k >= rows)
        # Depth first, an earlier row is on the path of all rows up to the end of its subtree, and of no other.
        on_path = earlier & (q < ends[k])
        return on_path if window is None else on_path & (positions[q] - positions[k] < window)

    return may_attend


def _meeting_paths(layout: Layout, ends: NDArray[np.int32], window: int | None) -> Met:
    """Which blocks meet in a decoder. `ends`: of each key, the first row behind it that does not see it.

    A block of keys is seen from its own rows on, if they are forwarded ones, up to where the farthest of its subtrees
    ends; in full by later blocks, up to where the nearest ends. With a window no block is taken as seen in full.
    """
    starts = np.arange(0, len(ends), BLOCK)
    # Of each block of keys, where its last subtree ends and where its first one does.
    farthest, nearest = np.maximum.reduceat(ends, starts), np.minimum.reduceat(ends, starts)
    first = np.where(starts < layout.forwarded, starts // BLOCK, 0)
    keys, queries = _ranges(first, -(-farthest // BLOCK))
    order = np.argsort(queries, kind="stable")
    queries, keys = queries[order], keys[order]
    # Full where even the shortest subtree outlasts the last of the queries; of its own block each sees half.
    full = (queries < nearest[keys] // BLOCK) & (queries != keys)
    return Met(queries, keys, full & (window is None))


def _meeting_texts(layout: Layout, window: int | None) -> Met:
    """The same in an encoder: blocks meet where a text has rows in both, in full where both lie within one text."""
    begins = (np.arange(len(layout.ends)) - layout.positions).reshape(-1, BLOCK)  # of each row the first of its text
    first, last = begins[:, 0], begins[:, -1]
    # From where the text of its first row begins to where that of its last row ends.
    queries, keys = _ranges(first // BLOCK, -(-layout.ends.reshape(-1, BLOCK)[:, -1] // BLOCK))
    if window is not None:
        near = np.abs(queries - keys) * BLOCK < window + BLOCK - 1
        queries, keys = queries[near], keys[near]
        return Met(queries, keys, np.zeros(len(keys), bool))
    single = first == last  # blocks that hold rows of one text alone
    return Met(queries, keys, single[queries] & single[keys] & (first[queries] == first[keys]))


def _ranges(first: Ints, behind: Ints) -> tuple[Ints, Ints]:
    """Pairs of each index of the two arrays with the numbers from its `first` up to the one before its `behind`.

    >>> _ranges(np.array([0, 1]), np.array([3, 2]))
    (array([0, 0, 0, 1]), array([0, 1, 2, 1]))
    """
    counts = behind - first
    owners = np.repeat(np.arange(len(counts)), counts)
    return owners, np.arange(len(owners)) - (np.cumsum(counts) - counts - first)[owners]


def _block_lists(
    met: Met, selected: NDArray[np.bool_], blocks: tuple[int, int]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Per block of queries: how many blocks of keys are selected, and their numbers; for one batch and all heads."""
    queries, keys = met.queries[selected], met.keys[selected]
    counts = np.bincount(queries, minlength=blocks[0])
    numbers = np.zeros(blocks, np.int32)
    numbers[queries, np.arange(len(keys)) - (np.cumsum(counts) - counts)[queries]] = keys
    # (1, 1, blocks of queries) and (1, 1, blocks of queries, blocks of keys); numbers behind the counts are not read.
    return counts.astype(np.int32)[None, None], numbers[None, None]
