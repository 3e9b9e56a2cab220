"""Attention that is restricted to paths: every token sees the tokens before it on its own text's path, and no other.

One function is registered with transformers' AttentionInterface; a model uses it for the length of one forward pass and
is otherwise as it was. Off the GPU it loops over the runs of the layout, so that nothing outside a path is computed: in
float32 the run's rows in blocks; in bfloat16 and float16, where another order of the sums is rounded to another score,
the whole path as the text alone would be. On a GPU it hands a block mask to flex attention, which skips the blocks in
which no path meets another.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rmlab.inference.trie import Layout

if TYPE_CHECKING:
    import torch
    from torch.nn.attention.flex_attention import BlockMask
    from transformers import PreTrainedModel

__all__ = ["BLOCK", "ROWS", "Call", "block_mask", "mask_mod", "path_attention", "paths"]

BLOCK = 128
"""Rows and columns of one block of the block mask: what flex attention's kernels expect."""

ROWS = 64
"""Queries of one attention call off the GPU: few, so that little is computed above the diagonal only to be masked."""

_NAME = "rmlab_paths"
_UNDERSTOOD = {"position_ids", "use_cache", "cache_position", "output_attentions", "is_causal", "layer_head_mask"}


@dataclass(frozen=True)
class Call:
    """What one attention layer asked for: its sliding window, and everything path attention cannot do."""

    window: int | None
    refused: tuple[str, ...]


@dataclass
class _State:
    """The layout of the forward pass that is running, masks made for it, and the calls seen so far."""

    layout: Layout
    masks: dict[Any, Any] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)


_running: ContextVar[_State] = ContextVar("rmlab_paths")


@contextmanager
def paths(backbone: "PreTrainedModel", layout: Layout) -> Iterator[list[Call]]:
    """Let `backbone` attend along the paths of `layout` inside the block; its own attention comes back afterwards.

    Yields the list of attention calls, filled as the layers run.
    """
    _register()
    config = backbone.config
    own = config._attn_implementation
    state = _State(layout)
    token = _running.set(state)
    config._attn_implementation = _NAME
    try:
        yield state.calls
    finally:
        config._attn_implementation = own
        _running.reset(token)


def path_attention(
    module: Any,
    query: "torch.Tensor",
    key: "torch.Tensor",
    value: "torch.Tensor",
    attention_mask: "torch.Tensor | None",
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> "tuple[torch.Tensor, None]":
    """Attention of transformers' interface: (1, heads, rows, size) in, (1, rows, heads, size) out, along the paths."""
    state = _running.get()
    state.calls.append(Call(sliding_window, tuple(_refused(module, attention_mask, dropout, kwargs))))
    if query.is_cuda:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        mask = _block_mask_on(state, query.device, sliding_window)
        flex = ALL_ATTENTION_FUNCTIONS["flex_attention"]
        return flex(module, query, key, value, mask, scaling=scaling, softcap=softcap)[0], None
    out = query.new_empty(1, query.shape[2], query.shape[1], value.shape[3])
    rounds = query.dtype.itemsize < 4 and not softcap
    for run in state.layout.runs:
        path = [*run.before, (run.start, run.stop)]
        keys, values = _rows(key, path), _rows(value, path)
        rows = query[:, :, run.start : run.stop]
        if rounds and (sliding_window is None or keys.shape[2] <= sliding_window):
            rows = _attend(_rows(query, path), keys, values, None, scaling, None)[:, :, run.offset :]
        else:
            rows = _in_blocks(state, rows, keys, values, sliding_window, scaling, softcap)
        out[:, run.start : run.stop] = rows.transpose(1, 2)
    return out, None


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


def _block_mask_on(state: _State, device: "torch.device", window: int | None) -> "BlockMask":
    made = state.masks.get((device, window))
    if made is None:
        made = state.masks[device, window] = block_mask(state.layout, window, device)
    return made


@cache
def _register() -> None:
    from transformers import AttentionInterface

    AttentionInterface.register(_NAME, path_attention)


def _refused(module: Any, mask: Any, dropout: float, kwargs: dict[str, Any]) -> Iterator[str]:
    """Names of what an attention layer asks for and path attention would leave out."""
    causal = kwargs.get("is_causal")
    if not (getattr(module, "is_causal", True) if causal is None else causal):
        yield "attention in both directions"
    if mask is not None:
        yield "an attention mask of its own"
    if dropout:
        yield "dropout"
    for name, value in kwargs.items():
        if value is not None and value is not False and name not in _UNDERSTOOD:
            yield name


def _rows(states: "torch.Tensor", slices: list[tuple[int, int]]) -> "torch.Tensor":
    """Rows of (1, heads, rows, size) that lie in the slices, copied only where there are several."""
    import torch

    parts = [states[:, :, start:stop] for start, stop in slices]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def _in_blocks(
    state: _State, query: "torch.Tensor", keys: "torch.Tensor", values: "torch.Tensor",
    window: int | None, scaling: float | None, softcap: float | None,
) -> "torch.Tensor":  # fmt: skip
    """Attention of a path's last rows, ROWS at a time, each block against the keys that it can see."""
    import torch

    offset = keys.shape[2] - query.shape[2]
    blocks = []
    for start in range(0, query.shape[2], ROWS):
        rows = query[:, :, start : start + ROWS]
        last = offset + start + rows.shape[2]
        first = 0 if window is None else max(offset + start - window + 1, 0)
        mask = _mask(state, query, rows.shape[2], last - first, window)
        blocks.append(_attend(rows, keys[:, :, first:last], values[:, :, first:last], mask, scaling, softcap))
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=2)


def _mask(state: _State, query: "torch.Tensor", rows: int, keys: int, window: int | None) -> "torch.Tensor":
    """Additive mask of the last `rows` of a path against its last `keys` tokens so far.

    Which keys a query sees depends only on how far apart they are, so all runs share one table, cut to size.
    """
    table = state.masks.get((query.dtype, window))
    if table is None:
        longest = max(len(path) for path in state.layout.paths)
        table = state.masks[query.dtype, window] = _distances(longest, query, window)
    end = table.shape[1] - (ROWS - rows)
    return table[:rows, end - keys : end]


def _distances(longest: int, query: "torch.Tensor", window: int | None) -> "torch.Tensor":
    """ROWS rows against themselves and the `longest` columns before them: 0 where seen, minus infinity where not."""
    import torch

    back = longest + torch.arange(ROWS)[:, None] - torch.arange(longest + ROWS)[None, :]
    seen = back >= 0 if window is None else (back >= 0) & (back < window)
    return torch.zeros(seen.shape, dtype=query.dtype).masked_fill_(~seen, -torch.inf).to(query.device)


def _attend(q: Any, k: Any, v: Any, mask: Any, scaling: float | None, softcap: float | None) -> Any:
    """Attention of some rows under an additive mask; simply causal without one."""
    from torch.nn.functional import scaled_dot_product_attention

    if softcap:
        return _capped(q, k, v, mask, scaling, softcap)
    grouped = q.shape[1] != k.shape[1]
    return scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, scale=scaling, enable_gqa=grouped
    )


def _capped(q: Any, k: Any, v: Any, mask: Any, scaling: float | None, softcap: float) -> Any:
    """Attention whose logits are bent into -softcap..softcap (Gemma 2, arXiv 2408.00118); softmax in float32."""
    import torch

    grouped = q.unflatten(1, (k.shape[1], -1))
    scores = grouped @ k[:, :, None].transpose(3, 4) * (q.shape[3] ** -0.5 if scaling is None else scaling)
    scores = torch.tanh(scores / softcap) * softcap + mask
    weights = scores.softmax(-1, dtype=torch.float32).to(q.dtype)
    return (weights @ v[:, :, None]).flatten(1, 2)
