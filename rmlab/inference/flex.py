"""Paths for flex attention: a mask function, and a block mask that skips the blocks in which no path meets another."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from rmlab.inference.trie import Layout

if TYPE_CHECKING:
    import torch
    from torch.nn.attention.flex_attention import BlockMask

__all__ = ["BLOCK", "block_mask", "mask_mod"]

BLOCK = 128
"""Rows and columns of one block of the block mask: what flex attention's kernels expect."""


def mask_mod(layout: Layout, window: int | None, device: "torch.device | str") -> "Callable[..., torch.Tensor]":
    """Flex attention's mask function for a layout: may row q see row k?"""
    import torch

    ends = torch.as_tensor(layout.ends, device=device)
    positions = torch.as_tensor(layout.positions, device=device)

    def on_path(batch: Any, head: Any, q: Any, k: Any) -> Any:
        return (k <= q) & (q < ends[k])

    def in_window(batch: Any, head: Any, q: Any, k: Any) -> Any:
        return (k <= q) & (q < ends[k]) & (positions[q] - positions[k] < window)

    return on_path if window is None else in_window


def block_mask(layout: Layout, window: int | None, device: "torch.device | str") -> "BlockMask":
    """Flex attention's block mask for a layout, read off the subtree ends; no rows x rows table is ever made.

    A block of keys matters to a block of queries when one of its subtrees reaches that far, and is open in full when
    all of its subtrees reach behind it. With a window no block is taken as fully open.
    """
    import torch
    from torch.nn.attention.flex_attention import BlockMask

    rows = len(layout.ends)
    starts = np.arange(0, rows, BLOCK)
    last = np.minimum(starts + BLOCK, rows) - 1
    farthest = np.maximum.reduceat(layout.ends, starts)
    nearest = np.minimum.reduceat(layout.ends, starts)
    earlier = starts[None, :] < starts[:, None]
    some = (starts[None, :] == starts[:, None]) | (earlier & (farthest[None, :] > starts[:, None]))
    full = earlier & (nearest[None, :] > last[:, None]) & (window is None)
    return BlockMask.from_kv_blocks(
        *_block_lists(torch, some & ~full, device),
        *_block_lists(torch, full, device),
        BLOCK_SIZE=BLOCK,
        mask_mod=mask_mod(layout, window, device),
        seq_lengths=(rows, rows),
    )


def _block_lists(torch: Any, wanted: np.ndarray, device: Any) -> tuple[Any, Any]:
    """Per row of blocks: how many are wanted, and their numbers, wanted ones first."""
    order = np.argsort(~wanted, axis=1, kind="stable")
    counts = torch.as_tensor(wanted.sum(1), dtype=torch.int32, device=device)
    return counts[None, None], torch.as_tensor(order, dtype=torch.int32, device=device)[None, None]
