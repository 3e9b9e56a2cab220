"""Attention that is restricted to paths: every token sees its own text, and no other.

In a decoder it sees the tokens before it on its text's path, in an encoder all of its
text. One function is registered with transformers' AttentionInterface; a model uses it
for the length of one forward pass and is otherwise as it was. On a GPU it is flex
attention over a block mask (flex.py). Elsewhere, and where flex attention fails:

A decoder in float32 on a CPU goes segment by segment. A run sees itself, as any text
does. What it sees of earlier runs are whole segments (planning.py), and all rows behind
a segment up to the end of its subtree see all of it: one call without a mask serves
them all, whatever texts they belong to. The two results of a row are joined by the
logarithms of their sums, as FlashAttention (arXiv 2205.14135) joins blocks of keys.

Windows, capped logits and half precision go run by run, in blocks of rows that get only
the keys they can see.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from rmlab.inference.flex import Kernels, Kind, Masks
from rmlab.inference.planning import Ints, Layout, Run

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel

_NAME = "rmlab_paths"
# Queries of one call under a window or a cap: few, so that little is computed only to
# be masked.
NARROW_ROWS = 64

# Queries of one call otherwise, so that masks stay small.
WIDE_ROWS = 512

# The kernel behind scaled_dot_product_attention on a CPU, which keeps the logarithms of
# its sums to itself. It is no public name: if torch renames it, models fail the trial
# of packs and go in batches, which gives the same and takes longer. Flex attention
# returns these logarithms too (AuxRequest), and would replace it.
CPU_KERNEL = "_scaled_dot_product_flash_attention_for_cpu"


@dataclass
class PrefixCache:
    """What the packs of a prompt that is larger than a pack hand on to one another;
    empty before the first.

    `layers`: of each layer, keys and values of the beginning that the next pack goes on
    from, as attention gets them, behind their rotary embedding: a token's position
    stays the same. `states`: hidden states (n, hidden) float32 at `positions` of that
    beginning, ascending, which texts that end in a later pack read.
    """

    positions: Ints = field(default_factory=lambda: np.zeros(0, np.intp))
    states: "Tensor | None" = None
    layers: "dict[int, tuple[Tensor, Tensor]]" = field(default_factory=dict)

    def joined(
        self, layer: int, layout: Layout, key: "Tensor", value: "Tensor"
    ) -> "tuple[Tensor, Tensor]":
        """A layer's keys and values (1, heads, rows, size) of all the layout's rows,
        the cached ones first.

        What the next pack needs of them takes the place of what was cached.
        """
        import torch

        if layout.n_cached:
            # Taken out, so that the old keys are freed layer by layer as new ones come.
            old_key, old_value = self.layers.pop(layer)
            key = torch.cat([old_key, key], 2)
            value = torch.cat([old_value, value], 2)
        if layout.n_to_cache:
            # Memory of their own: a slice would hold on to all of the pack's.
            self.layers[layer] = (
                _rows(key, layout.to_cache),
                _rows(value, layout.to_cache),
            )
        return key, value


def _rows(states: "Tensor", slices: "Iterable[tuple[int, int]]") -> "Tensor":
    """Some rows of (1, heads, rows, size), copied."""
    import torch

    return torch.cat([states[:, :, start:stop] for start, stop in slices], 2)


@dataclass
class _Pass:
    """The forward pass that is running. `masks`: for flex attention, None without."""

    layout: Layout
    kernels: Kernels
    masks: Masks | None
    cache: PrefixCache
    calls: list[Kind] = field(default_factory=list)


# A context variable, as transformers gives attention functions no argument of ours to
# carry it in.
_running: ContextVar[_Pass] = ContextVar("rmlab_paths")


@contextmanager
def paths(
    model: "PreTrainedModel",
    layout: Layout,
    kernels: Kernels,
    masks: Masks | None = None,
    cache: PrefixCache | None = None,
) -> Iterator[list[Kind]]:
    """Let the model attend along the paths of `layout` inside the block; its own
    attention comes back afterwards.

    `masks`: of the layout, where attention goes over `kernels`. `cache`: what the pack
    before has left, and where this one leaves what the next needs. Yields the list of
    what the attention layers compute, filled as they run.
    """
    register()
    running = _Pass(layout, kernels, masks, cache or PrefixCache())
    token = _running.set(running)
    implementation = model.config._attn_implementation
    model.set_attn_implementation(_NAME)
    try:
        yield running.calls
    finally:
        model.set_attn_implementation(implementation)
        _running.reset(token)


@cache
def register() -> None:
    """Tell transformers the name by which a model asks for `path_attention`; no model
    uses it without being asked.
    """
    import torch
    from transformers import AttentionInterface

    # A compiled model must not compile it too: every pack has another layout.
    function = torch.compiler.disable(path_attention)
    AttentionInterface.register(_NAME, function)


def path_attention(
    module: "torch.nn.Module",
    query: "Tensor",
    key: "Tensor",
    value: "Tensor",
    attention_mask: "Tensor | None",
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **kwargs: object,
) -> "tuple[Tensor, None]":
    """Attention of transformers' interface: (1, heads, rows, size) in, (1, rows, heads,
    size) out, along the paths.

    A mask and whatever else a layer asks for is left out: a model that needs it fails
    the trial of packs.
    """
    # No default: outside of `paths` nothing asks for the name, and a model left with it
    # would fail here, loudly.
    running = _running.get()
    layout = running.layout

    # The call's word goes over the module's, and causal is the default, as in
    # transformers' own attention functions.
    causal = kwargs.get("is_causal")
    if causal is None:
        causal = getattr(module, "is_causal", True)
    kind = Kind(sliding_window, scaling, softcap, bool(causal))
    running.calls.append(kind)

    if layout.n_cached or layout.n_to_cache:
        # Layers come to their attention in the same order in every pass: the number of
        # the call tells which this is.
        layer = len(running.calls)
        key, value = running.cache.joined(layer, layout, key, value)
    out = None
    if running.masks is not None and running.kernels.serve(query.device):
        out = running.kernels.attend(kind, query, key, value, running.masks)
    if out is None:
        out = attend(layout, kind, query, key, value)
    # The second part would be attention weights, which no caller reads.
    return out, None


def attend(
    layout: Layout, kind: Kind, query: "Tensor", key: "Tensor", value: "Tensor"
) -> "Tensor":
    """Attention of a pack without flex attention: (1, heads, rows, size) in, (1, rows,
    heads, size) out.

    `query`: of the forwarded rows; `key`, `value`: of all rows of the layout, cached
    ones first.
    """

    # A window that reaches over the longest text is none.
    if kind.window is not None and kind.window > layout.positions.max():
        kind = kind._replace(window=None)

    # Segments are seen as a whole, so not with a window; and the kernel that returns
    # its sums knows no cap.
    sees_whole = kind.causal and not kind.softcap and kind.window is None
    has_one_size = query.shape[3] == value.shape[3]
    is_wide = query.dtype.itemsize >= 4
    is_on_cpu = query.device.type == "cpu"
    if sees_whole and has_one_size and is_wide and is_on_cpu:
        return _attend_segments(layout, kind.scaling, query, key, value)

    out = query.new_empty(1, query.shape[2], query.shape[1], value.shape[3])
    for run in layout.runs:
        if run.stop > run.start:
            rows = slice(run.start - layout.n_cached, run.stop - layout.n_cached)
            attended = _attend_run(run, kind, query[:, :, rows], key, value)
            out[:, rows] = attended.transpose(1, 2)
    return out


def _attend_run(
    run: Run, kind: Kind, query: "Tensor", key: "Tensor", value: "Tensor"
) -> "Tensor":
    """Attention of a run's rows to what they see of their path, block by block."""
    import torch

    keys = _rows(key, run.path)
    values = _rows(value, run.path)
    length = keys.shape[2]
    window = kind.window
    if window is None and not kind.softcap and not (kind.causal and run.offset):
        return _attention(kind, query, keys, values, None)

    # Half precision gets all keys at once, as in the text alone: sums in another order
    # are rounded otherwise.
    narrow = bool(kind.softcap) or (window is not None and query.dtype.itemsize >= 4)
    reach = window - 1 if narrow and window is not None else length
    size = NARROW_ROWS if narrow else WIDE_ROWS
    nearest = 0 if kind.causal else -length
    farthest = length if window is None else window
    blocks = []
    for start in range(run.offset, length, size):
        stop = min(start + size, length)
        first = max(start - reach, 0)
        last = stop if kind.causal else min(stop + reach, length)

        queries = torch.arange(start, stop, device=query.device)
        distance = queries[:, None] - torch.arange(first, last, device=query.device)
        visible = (distance >= nearest) & (distance.abs() < farthest)

        rows = query[:, :, start - run.offset : stop - run.offset]
        block_keys = keys[:, :, first:last]
        block_values = values[:, :, first:last]
        blocks.append(_attention(kind, rows, block_keys, block_values, visible))
    return torch.cat(blocks, 2)


def _attention(
    kind: Kind, query: "Tensor", key: "Tensor", value: "Tensor", mask: "Tensor | None"
) -> "Tensor":
    """Attention of some rows where the mask is true; without one, simply causal or to
    everything.
    """
    from torch.nn.functional import scaled_dot_product_attention

    if kind.softcap:
        return _capped_attention(kind.softcap, kind.scaling, query, key, value, mask)
    return scaled_dot_product_attention(
        query,
        key,
        value,
        mask,
        is_causal=kind.causal and mask is None,
        scale=kind.scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )


def _capped_attention(
    softcap: float,
    scaling: float | None,
    query: "Tensor",
    key: "Tensor",
    value: "Tensor",
    mask: "Tensor | None",
) -> "Tensor":
    """Attention whose logits are bent into -softcap..softcap (Gemma 2, arXiv
    2408.00118); softmax in float32.
    """
    import torch

    # (1, heads of keys, queries to each, rows, size)
    grouped = query.unflatten(1, (key.shape[1], -1))
    if scaling is None:
        scaling = query.shape[3] ** -0.5
    logits = grouped @ key[:, :, None].transpose(3, 4) * scaling
    logits = torch.tanh(logits / softcap) * softcap
    if mask is not None:
        logits = logits.masked_fill(~mask, -torch.inf)
    # torch's fused attention knows no cap, and transformers too takes the softmax in
    # float32 here.
    weights = logits.softmax(-1, dtype=torch.float32).to(query.dtype)
    return (weights @ value[:, :, None]).flatten(1, 2)


def _attend_segments(
    layout: Layout,
    scaling: float | None,
    query: "Tensor",
    key: "Tensor",
    value: "Tensor",
) -> "Tensor":
    """Attention of all runs, each to itself and then to the segments before it; shapes
    as in `attend`.
    """
    import torch

    kernel = getattr(torch.ops.aten, CPU_KERNEL).default
    # The kernel of torch 2.6 reads on behind the last of key heads that are shared.
    n_sharing = query.shape[1] // key.shape[1]
    if n_sharing > 1:
        key = key.repeat_interleave(n_sharing, 1)
        value = value.repeat_interleave(n_sharing, 1)

    n_cached = layout.n_cached
    shape = 1, query.shape[2], query.shape[1], query.shape[3]
    out = query.new_empty(shape).transpose(1, 2)
    # (1, heads, rows)
    log_sums = query.new_empty(query.shape[:3])
    for start, stop, *_ in layout.runs:
        if stop > start:
            rows = slice(start - n_cached, stop - n_cached)
            out[:, :, rows], log_sums[:, :, rows] = kernel(
                query[:, :, rows],
                key[:, :, start:stop],
                value[:, :, start:stop],
                0.0,
                True,
                scale=scaling,
            )

    for start, stop, first, end in layout.segments:
        rows = slice(first - n_cached, end - n_cached)
        segment_out, segment_sums = kernel(
            query[:, :, rows],
            key[:, :, start:stop],
            value[:, :, start:stop],
            0.0,
            False,
            scale=scaling,
        )
        # out = (out e^run + segment_out e^segment) / (e^run + e^segment), the rescaling
        # of FlashAttention, section 3.1.
        run_sums = log_sums[:, :, rows]
        # The sigmoid of the logarithms' difference is the segment's part of both sums:
        # no exponential can overflow.
        share = torch.sigmoid(segment_sums - run_sums)
        out[:, :, rows].lerp_(segment_out, share[..., None])
        log_sums[:, :, rows] = torch.logaddexp(run_sums, segment_sums)
    return out.transpose(1, 2)
