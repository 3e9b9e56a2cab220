"""Flex attention on a GPU: the block mask of a pack, and a compiled function for each
kind of layer.

Row q sees key k exactly when first[k] <= q < end[k]. In a decoder k is seen from its
own row on, up to the end of its subtree; in an encoder from the first row of its text
on. Rows are counted from the first forwarded one, so those of a cached beginning have
negative numbers. A window compares positions.

Queries and keys are filled up to few sizes, as each takes seconds to compile. Where
flex attention fails for any reason but memory, packs go run by run (attention.py):
that gives the same and takes longer.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmlab.inference.memory import out_of_memory
from rmlab.inference.planning import Ints, Layout, filled

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.nn.attention.flex_attention import BlockMask

# Rows and columns of one block: what flex attention's kernels expect.
BLOCK = 128

# What compiles the kernels, by its name in torch.
BACKEND = "inductor"

# Sizes, kinds of layers and GPUs each need a kernel. Beyond torch's own limit, 8, a
# function that must not fall back to rows x rows raises.
RECOMPILE_LIMIT = 256

# Devices on which flex attention is not tried.
WITHOUT_KERNELS = {"cpu"}

_log = logging.getLogger(__name__)


class Kind(NamedTuple):
    """What an attention layer computes: how far it sees, the scale of its logits, and
    the cap on them.

    `window`: a row sees rows less than so many away, None: however far. `causal`: only
    those before it, and itself.
    """

    window: int | None
    scaling: float | None
    softcap: float | None
    causal: bool = True


def key_table(layout: Layout) -> Ints:
    """What the mask asks of a pack, (4, keys): of each key its row, where its subtree
    ends and its position; of each query its position.

    Keys that only fill up end at row 0: nobody sees them.
    """
    n_cached = layout.n_cached
    n_rows = len(layout.ids)
    n_keys = filled(layout.forwarded)
    if n_cached:
        n_keys += filled(n_cached)

    table = np.zeros((4, n_keys), np.intp)
    table[0] = np.arange(n_keys) - n_cached
    table[1, :n_rows] = layout.ends - n_cached
    table[2, :n_rows] = layout.positions
    table[3, : layout.forwarded] = layout.positions[n_cached:]
    return table


def block_mask(table: "Tensor", n_queries: int, kind: Kind) -> "BlockMask":
    """Who sees whom, for `n_queries` rows and the keys of the table, on its device."""
    import torch
    from torch.nn.attention.flex_attention import BlockMask

    row, end, position, query_position = table
    first = row if kind.causal else row - position

    def sees(batch: "Tensor", head: "Tensor", q: "Tensor", k: "Tensor") -> "Tensor":
        visible: Tensor = (first[k] <= q) & (q < end[k])
        if kind.window is not None:
            visible = visible & ((query_position[q] - position[k]).abs() < kind.window)
        return visible

    # Blocks meet where some query may see some key, fully where each sees each.
    start = torch.arange(0, n_queries, BLOCK, device=table.device)[:, None]
    stop = start + BLOCK
    first_low, first_high = _ranges(first)
    end_low, end_high = _ranges(end)
    meet = (first_low < stop) & (start < end_high)
    full = (first_high <= start) & (stop <= end_low)
    if kind.window is not None:
        key_low, key_high = _ranges(position)
        query_low, query_high = _ranges(query_position[:n_queries])
        near = torch.maximum(
            query_low[:, None] - key_high, key_low - query_high[:, None]
        )
        far = torch.maximum(
            query_high[:, None] - key_low, key_high - query_low[:, None]
        )
        meet &= near < kind.window
        full &= far < kind.window

    partial_counts, partial_blocks = _listed(meet & ~full)
    full_counts, full_blocks = _listed(full)
    return BlockMask.from_kv_blocks(
        partial_counts,
        partial_blocks,
        full_counts,
        full_blocks,
        BLOCK_SIZE=BLOCK,
        mask_mod=sees,
        seq_lengths=(n_queries, table.shape[1]),
    )


def _ranges(values: "Tensor") -> "tuple[Tensor, Tensor]":
    """The lowest and the highest value of each block."""
    blocks = values.view(-1, BLOCK)
    return blocks.amin(1), blocks.amax(1)


def _listed(blocks: "Tensor") -> "tuple[Tensor, Tensor]":
    """Of each block of queries: how many blocks of keys are true, and their numbers
    before all others; for one batch and all heads.
    """
    import torch

    counts = blocks.sum(1, dtype=torch.int32)
    numbers = blocks.int().argsort(dim=1, descending=True, stable=True).int()
    return counts[None, None], numbers[None, None]


@dataclass
class Masks:
    """The block masks of one pack, each made once for all layers that look alike.

    `table`: of the keys, on any device; `n_queries`: rows, filling included.
    """

    table: "Tensor"
    n_queries: int
    masks: "dict[tuple[Kind, torch.device], BlockMask]" = field(default_factory=dict)

    def of(self, kind: Kind, device: "torch.device") -> "BlockMask":
        """The mask of a kind of layer on a device; a model may be on several."""
        look = kind._replace(scaling=None, softcap=None)
        if (look, device) not in self.masks:
            table = self.table.to(device, non_blocking=True)
            self.masks[look, device] = block_mask(table, self.n_queries, look)
        return self.masks[look, device]


@dataclass
class Kernels:
    """Flex attention for the packs of one model.

    `trouble`: why it is not used, in one line; empty while all is well.
    """

    trouble: str = ""

    def __str__(self) -> str:
        """Which way attention goes, and why not the usual one."""
        return f"run by run ({self.trouble})" if self.trouble else "flex attention"

    def serve(self, device: "torch.device") -> bool:
        """Does attention on this device go over kernels?"""
        return device.type not in WITHOUT_KERNELS and not self.trouble

    def attend(
        self, kind: Kind, query: "Tensor", key: "Tensor", value: "Tensor", masks: Masks
    ) -> "Tensor | None":
        """Attention of a pack: (1, heads, rows, size) in, (1, rows, heads, size) out;
        None where flex attention fails.

        `key`, `value`: of cached rows too, these first. Raises only where memory runs
        out.
        """
        import torch

        n_rows = query.shape[2]
        try:
            mask = masks.of(kind, query.device)
            n_queries, n_keys = mask.shape[-2:]
            query = _fill(query, n_queries)
            key = _fill(key, n_keys)
            value = _fill(value, n_keys)
            with torch._dynamo.config.patch(recompile_limit=RECOMPILE_LIMIT):
                out = compiled(kind)(query, key, value, mask)
        except Exception as error:
            if out_of_memory(error):
                raise
            first_line, *_ = f"{type(error).__name__}: {error}".split("\n")
            place = f"{n_rows:,} rows on {query.device}"
            # No kernel is used from now on.
            self.trouble = f"no kernel for {place}: {first_line:.200}"
            _log.warning(
                "attention goes run by run, which gives the same and takes longer: %s",
                self.trouble,
            )
            return None
        return out[:, :, :n_rows].transpose(1, 2)


@cache
def compiled(kind: Kind) -> "Callable[..., Tensor]":
    """Attention of one kind of layer: queries, keys, values and the block mask in.

    `fullgraph`: a failure must not fall back to rows x rows (34 GB a layer at 16,384
    rows). `dynamic=False`: each size has its own kernel, which is faster.
    """
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    softcap = kind.softcap or 0.0

    def bend(
        score: "Tensor", batch: "Tensor", head: "Tensor", q: "Tensor", k: "Tensor"
    ) -> "Tensor":
        # Into -softcap..softcap (Gemma 2, arXiv 2408.00118).
        return softcap * torch.tanh(score / softcap)

    def attend(
        query: "Tensor", key: "Tensor", value: "Tensor", mask: "BlockMask"
    ) -> "Tensor":
        n_sharing = query.shape[1] // key.shape[1]
        # Kernels share keys among 1, 2, 4, 8 ... heads; among others each gets a copy.
        if n_sharing & (n_sharing - 1):
            key = key.repeat_interleave(n_sharing, 1)
            value = value.repeat_interleave(n_sharing, 1)
        return flex_attention(
            query,
            key,
            value,
            score_mod=bend if softcap else None,
            block_mask=mask,
            scale=kind.scaling,
            enable_gqa=True,
        )

    return torch.compile(attend, fullgraph=True, dynamic=False, backend=BACKEND)


def _fill(states: "Tensor", rows: int) -> "Tensor":
    """The states with zeros behind them."""
    from torch.nn.functional import pad

    return pad(states, (0, 0, 0, rows - states.shape[2]))
