"""Attention along paths on a GPU: flex attention, whose block mask skips the blocks in which no path meets another.

Its kernels are compiled for one number of rows each, so packs are filled up to few sizes; filling costs memory for
queries, keys and values, and next to no time, since filled blocks meet no other block.
"""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.runs import Kind
from rmlab.inference.trie import Layout

if TYPE_CHECKING:
    import torch
    from torch.nn.attention.flex_attention import BlockMask

__all__ = ["BLOCK", "attend", "block_mask", "filled", "mask_mod"]

BLOCK = 128
"""Rows and columns of one block of the block mask: what flex attention's kernels expect."""


Blocks = NDArray[np.bool_]
"""(blocks of queries, blocks of keys)."""

_KERNELS = 64  # that torch may compile before it falls back to the slow way, which needs rows x rows numbers


def attend(
    kind: Kind, query: "torch.Tensor", key: "torch.Tensor", value: "torch.Tensor", mask: "BlockMask"
) -> "torch.Tensor":
    """Attention of a pack: (1, heads, rows, size) in, (1, rows, heads, size) out. `mask`: the layout's block mask."""
    import torch

    rows = query.shape[2]
    empty = filled(rows) - rows
    query, key, value = (torch.nn.functional.pad(states, (0, 0, 0, empty)) for states in (query, key, value))
    shared = query.shape[1] // key.shape[1]
    if shared & (shared - 1):  # the kernels share keys among 2, 4, 8 ... heads
        key, value = key.repeat_interleave(shared, 1), value.repeat_interleave(shared, 1)
    with torch._dynamo.config.patch(recompile_limit=_KERNELS):
        out: torch.Tensor = _compiled()(
            query, key, value, score_mod=_cap(kind.softcap), block_mask=mask, scale=kind.scaling, enable_gqa=True
        )
    return out[:, :, :rows].transpose(1, 2)


def filled(rows: int) -> int:
    """The number of rows that a pack is filled up to: 1,024, 4,096, 16,384 and so on.

    >>> filled(700), filled(1024), filled(16000)
    (1024, 1024, 16384)
    """
    size = 1024
    while size < rows:
        size *= 4
    return size


@cache
def _compiled() -> Any:
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)


@cache
def _cap(softcap: float | None) -> "Callable[..., torch.Tensor] | None":
    """Bends logits into -softcap..softcap (Gemma 2, arXiv 2408.00118)."""
    import torch

    if not softcap:
        return None
    return lambda score, batch, head, q, k: softcap * torch.tanh(score / softcap)


def mask_mod(layout: Layout, kind: Kind, device: "torch.device | str") -> "Callable[..., torch.Tensor]":
    """Flex attention's mask function for a layout: may row q see row k? Rows that fill up see themselves."""
    import torch

    ends = torch.as_tensor(_ends(layout), device=device)
    positions = torch.as_tensor(np.pad(layout.positions, (0, len(ends) - len(layout.positions))), device=device)
    window = kind.window

    def on_path(batch: Any, head: Any, q: Any, k: Any) -> Any:
        return (k <= q) & (q < ends[k])

    def in_window(batch: Any, head: Any, q: Any, k: Any) -> Any:
        return (k <= q) & (q < ends[k]) & (positions[q] - positions[k] < window)

    def in_text(batch: Any, head: Any, q: Any, k: Any) -> Any:
        return ends[q] == ends[k]

    def in_band(batch: Any, head: Any, q: Any, k: Any) -> Any:
        return (ends[q] == ends[k]) & (q - k < window) & (k - q < window)

    if kind.causal:
        return on_path if window is None else in_window
    return in_text if window is None else in_band


def block_mask(layout: Layout, kind: Kind, device: "torch.device | str") -> "BlockMask":
    """Flex attention's block mask for a layout, read off the subtree ends; no rows x rows table is ever made."""
    import torch
    from torch.nn.attention.flex_attention import BlockMask

    rows = filled(len(layout.ends))
    some, full = (_below if kind.causal else _beside)(layout, kind.window)
    return BlockMask.from_kv_blocks(
        *_block_lists(torch, some & ~full, device),
        *_block_lists(torch, full, device),
        BLOCK_SIZE=BLOCK,
        mask_mod=mask_mod(layout, kind, device),
        seq_lengths=(rows, rows),
    )


def _below(layout: Layout, window: int | None) -> tuple[Blocks, Blocks]:
    """Which blocks of keys matter to a decoder's blocks of queries, and which are open in full.

    A block of keys matters when one of its subtrees reaches the queries, and is open in full when all of its subtrees
    reach behind them. With a window no block is taken as fully open.
    """
    ends = _ends(layout)
    starts = np.arange(0, len(ends), BLOCK)
    last = starts + BLOCK - 1
    farthest = np.maximum.reduceat(ends, starts)
    nearest = np.minimum.reduceat(ends, starts)
    earlier = starts[None, :] < starts[:, None]
    some = (starts[None, :] == starts[:, None]) | (earlier & (farthest[None, :] > starts[:, None]))
    return some, earlier & (nearest[None, :] > last[:, None]) & (window is None)


def _beside(layout: Layout, window: int | None) -> tuple[Blocks, Blocks]:
    """The same for an encoder: blocks matter to one another when a text has rows in both, open in full within one."""
    ends = _ends(layout)
    starts = np.arange(0, len(ends), BLOCK)
    last = starts + BLOCK - 1
    begins = np.pad(np.arange(len(layout.ids)) - layout.positions, (0, len(ends) - len(layout.ids)))
    begins[len(layout.ids) :] = np.arange(len(layout.ids), len(ends))
    first, behind = begins[starts], ends[last]
    some = (starts[None, :] < behind[:, None]) & (first[:, None] <= last[None, :])
    if window is not None:
        return some & (np.abs(starts[:, None] - starts[None, :]) < window + BLOCK - 1), np.zeros_like(some)
    one = first == begins[last]
    return some, one[:, None] & one[None, :] & (first[:, None] == first[None, :])


def _ends(layout: Layout) -> NDArray[np.intp]:
    """Where each row's subtree ends, the rows that fill up included."""
    rows = len(layout.ends)
    return np.concatenate([layout.ends, np.arange(rows, filled(rows)) + 1])


def _block_lists(torch: Any, wanted: np.ndarray, device: Any) -> tuple[Any, Any]:
    """Per row of blocks: how many are wanted, and their numbers, wanted ones first."""
    order = np.argsort(~wanted, axis=1, kind="stable")
    counts = torch.as_tensor(wanted.sum(1), dtype=torch.int32, device=device)
    return counts[None, None], torch.as_tensor(order, dtype=torch.int32, device=device)[None, None]
