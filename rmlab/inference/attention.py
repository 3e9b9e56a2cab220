"""Attention that is restricted to paths: every token sees its own text, and no other.

In a decoder it sees the tokens before it on its text's path, in an encoder all of its
text. One function is registered with transformers' AttentionInterface; a model uses it
for the length of one forward pass and is otherwise as it was. On a GPU it is flex
attention over a block mask (flex.py). Elsewhere, and where no kernel can be had:

A decoder in float32 on a CPU goes segment by segment. A run sees itself, as any text
does. What it sees of earlier runs are whole segments (planning.py), and all rows behind
a segment up to the end of its subtree see all of it: one call without a mask serves
them all, whatever texts they belong to. The two results of a row are joined by the
logarithms of their sums, as FlashAttention (arXiv 2205.14135) joins blocks of keys.

Windows, capped logits and half precision go run by run, in blocks of rows that get only
the keys they can see.
"""

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmlab.inference import flex
from rmlab.inference.flex import Kernels, Kind, View, kernels, serves
from rmlab.inference.memory import upload
from rmlab.inference.planning import Ints, Layout, Run

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel

_NAME = "rmlab_paths"
# What layers hand over and path attention need not act on: positions are in the keys
# already, nothing is cached, and the layout says which rows are seen.
_UNDERSTOOD = {
    "position_ids",
    "use_cache",
    "cache_position",
    "output_attentions",
    "is_causal",
    "layer_head_mask",
}

# Queries of one call under a window or a cap: few, so that little is computed only to
# be masked.
NARROW_ROWS = 64

# Queries of one call otherwise, so that masks stay small.
WIDE_ROWS = 512


class Call(NamedTuple):
    """The request of one attention layer: what a row sees, and all that path attention
    cannot do.
    """

    view: View
    refused: tuple[str, ...]


@dataclass
class Kept:
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
        the kept ones first.

        What the next pack needs of them takes the place of what was kept.
        """
        import torch

        if layout.kept:
            # Taken out, so that the old keys are freed layer by layer as new ones come.
            before = self.layers.pop(layer)
            key, value = (
                torch.cat([before[0], key], 2),
                torch.cat([before[1], value], 2),
            )
        if layout.keep:
            # Memory of their own: a slice would hold on to all of the pack's.
            carried = [
                torch.cat([states[:, :, i:j] for i, j in layout.carried], 2)
                for states in (key, value)
            ]
            self.layers[layer] = carried[0], carried[1]
        return key, value


@dataclass
class _Pass:
    """The forward pass that is running. `tables`: by view and device, from `uploaded`
    or made on demand.
    """

    layout: Layout
    kernels: Kernels
    uploaded: "Mapping[Hashable, Tensor]"
    kept: Kept
    tables: "dict[tuple[View, torch.device], flex.Tables[Tensor]]" = field(
        default_factory=dict
    )
    calls: list[Call] = field(default_factory=list)


# A context variable, as transformers gives attention functions no argument of ours to
# carry it in.
_running: ContextVar[_Pass] = ContextVar("rmlab_paths")


@contextmanager
def paths(
    backbone: "PreTrainedModel",
    layout: Layout,
    uploaded: "Mapping[Hashable, Tensor] | None" = None,
    prefix: Kept | None = None,
) -> Iterator[list[Call]]:
    """Let `backbone` attend along the paths of `layout` inside the block; its own
    attention comes back afterwards.

    `uploaded`: what went up with the pack, the tables of flex attention among it.
    `prefix`: what the pack before has left, and where this one leaves what the next
    needs. Yields the list of attention calls, filled as the layers run.
    """
    register()
    # transformers looks the function up by this name in every call of a layer, so
    # setting it for the pass is enough.
    config = backbone.config
    implementation = config._attn_implementation
    running = _Pass(layout, kernels(backbone), uploaded or {}, prefix or Kept())
    token = _running.set(running)
    config._attn_implementation = _NAME
    try:
        yield running.calls
    finally:
        config._attn_implementation = implementation
        _running.reset(token)


def path_attention(
    module: "torch.nn.Module",
    query: "Tensor",
    key: "Tensor",
    value: "Tensor",
    attention_mask: "Tensor | None",
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    dropout: float = 0.0,
    **kwargs: object,
) -> "tuple[Tensor, None]":
    """Attention of transformers' interface: (1, heads, rows, size) in, (1, rows, heads,
    size) out, along the paths.
    """
    # No default: outside of `paths` nothing asks for the name, and a model left with it
    # would fail here, loudly.
    running = _running.get()
    # The call's word goes over the module's, and causal is the default, as in
    # transformers' own attention functions.
    is_causal = kwargs.get("is_causal")
    causal = bool(
        getattr(module, "is_causal", True) if is_causal is None else is_causal
    )
    view = View(sliding_window, causal)  # of this layer: models may alternate
    requests = {
        "an attention mask of its own": attention_mask,
        "dropout": dropout or None,
        **kwargs,
    }
    # None and False switch things off, whatever they belong to.
    active = {
        name
        for name, value in requests.items()
        if value is not None and value is not False
    }
    running.calls.append(Call(view, tuple(sorted(active - _UNDERSTOOD))))
    if running.layout.kept or running.layout.keep:
        # Layers come to their attention in the same order in every pass: the number of
        # the call tells which this is.
        key, value = running.kept.joined(len(running.calls), running.layout, key, value)
    kind = Kind(sliding_window, scaling, softcap, causal)
    out = None
    if serves(query.device) and running.kernels.usable:
        out = running.kernels.attend(
            kind, query, key, value, _tables(running, view, query.device)
        )
    # The second part would be attention weights, which no caller reads.
    return attend(running.layout, kind, query, key, value) if out is None else out, None


def _tables(
    running: _Pass, view: View, device: "torch.device"
) -> "flex.Tables[Tensor]":
    """The layout's tables on the device of this layer; a model may be spread over
    several.
    """
    # Made once for the pass: all layers of a kind and device look at the same tables.
    if (view, device) not in running.tables:
        # A view that was not known before the pass, as in the first trial of a model.
        if (view, "ends") not in running.uploaded:
            running.uploaded = {
                **running.uploaded,
                **upload(flex.tables(running.layout, view), device),
            }
        tables = flex.tables_of(running.uploaded, view)
        running.tables[view, device] = flex.Tables(
            *(values.to(device, non_blocking=True) for values in tables)
        )
    return running.tables[view, device]


@cache
def register() -> None:
    """Tell transformers the name by which a model asks for `path_attention`; no model
    uses it without being asked.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(_NAME, path_attention)


def attend(
    layout: Layout, kind: Kind, query: "Tensor", key: "Tensor", value: "Tensor"
) -> "Tensor":
    """Attention of a pack without kernels: (1, heads, rows, size) in, (1, rows, heads,
    size) out.

    `query`: of the forwarded rows; `key`, `value`: of all rows of the layout, kept ones
    first.
    """
    longest = max(run.offset + run.stop - run.start for run in layout.runs)
    if kind.window is not None and kind.window >= longest:
        kind = kind._replace(window=None)
    # Segments are seen as a whole, so not with a window; and the kernel that returns
    # its sums knows no cap.
    sees_whole = kind.causal and not kind.softcap and kind.window is None
    if (
        sees_whole
        and query.device.type == "cpu"
        and query.dtype.itemsize >= 4
        and query.shape[3] == value.shape[3]
    ):
        return _attend_segments(layout, kind.scaling, query, key, value)
    # Rows that only fill up are read by nobody, but must hold numbers.
    out = query.new_zeros(1, query.shape[2], query.shape[1], value.shape[3])
    for run in layout.runs:
        if run.stop > run.start:
            rows = slice(run.start - layout.kept, run.stop - layout.kept)
            out[:, rows] = _attend_run(
                run, kind, query[:, :, rows], key, value
            ).transpose(1, 2)
    return out


def _attend_run(
    run: Run, kind: Kind, query: "Tensor", key: "Tensor", value: "Tensor"
) -> "Tensor":
    """Attention of a run's rows to what they see of their path, block by block."""
    import torch

    path = [*run.before, (run.start, run.stop)]
    keys, values = (
        torch.cat([states[:, :, start:stop] for start, stop in path], 2)
        for states in (key, value)
    )
    length, window = keys.shape[2], kind.window
    if window is None and not kind.softcap and not (kind.causal and run.offset):
        return _attention(kind, query, keys, values, None)
    # Half precision gets all keys at once, as in the text alone: sums in another order
    # are rounded otherwise.
    narrow = bool(kind.softcap) or (window is not None and query.dtype.itemsize >= 4)
    reach = length if window is None or not narrow else window - 1
    size = NARROW_ROWS if narrow else WIDE_ROWS
    blocks = []
    for start in range(run.offset, length, size):
        stop = min(start + size, length)
        first, last = (
            max(start - reach, 0),
            stop if kind.causal else min(stop + reach, length),
        )
        distance = (
            torch.arange(start, stop)[:, None] - torch.arange(first, last)[None, :]
        )
        visible = (
            distance >= 0
            if kind.causal
            else torch.ones_like(distance, dtype=torch.bool)
        )
        if window is not None:
            visible &= distance.abs() < window
        rows = query[:, :, start - run.offset : stop - run.offset]
        mask = visible.to(query.device)
        blocks.append(
            _attention(
                kind, rows, keys[:, :, first:last], values[:, :, first:last], mask
            )
        )
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
    causal, grouped = kind.causal and mask is None, query.shape[1] != key.shape[1]
    return scaled_dot_product_attention(
        query, key, value, mask, 0.0, causal, scale=kind.scaling, enable_gqa=grouped
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

    grouped = query.unflatten(
        1, (key.shape[1], -1)
    )  # (1, heads of keys, queries to each, rows, size)
    logits = (
        grouped
        @ key[:, :, None].transpose(3, 4)
        * (query.shape[3] ** -0.5 if scaling is None else scaling)
    )
    logits = torch.tanh(logits / softcap) * softcap
    logits = logits if mask is None else logits.masked_fill(~mask, -torch.inf)
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

    # The kernel behind scaled_dot_product_attention, which keeps the logarithms of its
    # sums to itself.
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    # Rows that only fill up stay 0: they are read by nobody, but must hold numbers.
    out = query.new_zeros(1, query.shape[2], query.shape[1], query.shape[3]).transpose(
        1, 2
    )
    log_sums = query.new_empty(query.shape[:3])  # (1, heads, rows)
    for start, stop, *_ in layout.runs:
        if stop > start:
            rows, columns = (
                slice(start - layout.kept, stop - layout.kept),
                slice(start, stop),
            )
            out[:, :, rows], log_sums[:, :, rows] = kernel(
                query[:, :, rows],
                key[:, :, columns],
                value[:, :, columns],
                0.0,
                True,
                scale=scaling,
            )
    for start, stop, first, end in layout.segments:
        rows, columns = (
            slice(first - layout.kept, end - layout.kept),
            slice(start, stop),
        )
        segment_out, segment_sums = kernel(
            query[:, :, rows],
            key[:, :, columns],
            value[:, :, columns],
            0.0,
            False,
            scale=scaling,
        )
        # out = (out e^run + segment_out e^segment) / (e^run + e^segment), the rescaling
        # of FlashAttention, section 3.1.
        run_sums = log_sums[:, :, rows]
        # The sigmoid of the logarithms' difference is the segment's part of both sums:
        # no exponential can overflow.
        out[:, :, rows].lerp_(
            segment_out, torch.sigmoid(segment_sums - run_sums)[..., None]
        )
        log_sums[:, :, rows] = torch.logaddexp(run_sums, segment_sums)
    return out.transpose(1, 2)
