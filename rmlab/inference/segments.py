"""Attention of a decoder's pack in float32 on a CPU, in few large calls: shared beginnings are looked at together.

A run sees itself, as any text does. What it sees of earlier runs are whole segments (layout.py), and all the rows
behind a segment up to where its subtree ends see all of it: one call without a mask serves them all, whatever texts
they belong to. The two results of a row are put together by the logarithms of their sums, as in FlashAttention (arXiv
2205.14135) between blocks of keys, so that no keys are copied, and nothing is computed only to be masked.
"""

from typing import TYPE_CHECKING

from rmlab.inference.layout import Layout

if TYPE_CHECKING:
    import torch

__all__ = ["attend", "serves"]


def serves(query: "torch.Tensor", value: "torch.Tensor") -> bool:
    """Is there a kernel that gives the sums, and is another order of summation below what can be seen?

    Half precision is left out: there the keys are grouped as in the text alone (runs.py).
    """
    return bool(query.device.type == "cpu" and query.dtype.itemsize >= 4 and query.shape[3] == value.shape[3])


def attend(
    layout: Layout, scaling: float | None, query: "torch.Tensor", key: "torch.Tensor", value: "torch.Tensor"
) -> "torch.Tensor":
    """Attention along paths: queries of the forwarded rows, keys and values of all, (1, heads, rows, size) each."""
    import torch

    # Rows that only fill up stay 0: they are read by nobody, but must hold numbers.
    out = query.new_zeros(1, query.shape[2], query.shape[1], query.shape[3]).transpose(1, 2)
    sums = query.new_empty(query.shape[:3])  # (1, heads, rows): logarithm of what weights were divided by
    for start, stop, _ in layout.runs:
        if stop > start:
            rows = slice(start - layout.kept, stop - layout.kept)
            own = query[:, :, rows], key[:, :, start:stop], value[:, :, start:stop]
            out[:, :, rows], sums[:, :, rows] = _attention(*own, scaling, causal=True)
    for start, stop, first, end in layout.segments:
        rows = slice(first - layout.kept, end - layout.kept)
        more, logs = _attention(
            query[:, :, rows], key[:, :, start:stop], value[:, :, start:stop], scaling, causal=False
        )
        # out = (out e^before + more e^logs) / (e^before + e^logs), the rescaling of FlashAttention, section 3.1.
        before = sums[:, :, rows]
        # The sigmoid of the logarithms' difference is the new keys' part of both sums: no exponential can overflow.
        out[:, :, rows].lerp_(more, torch.sigmoid(logs - before)[..., None])
        sums[:, :, rows] = torch.logaddexp(before, logs)
    return out.transpose(1, 2)


def _attention(
    query: "torch.Tensor", key: "torch.Tensor", value: "torch.Tensor", scaling: float | None, *, causal: bool
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Attention of some rows, and the logarithm of the sum that each row's weights were divided by."""
    import torch

    # The kernel behind scaled_dot_product_attention, which keeps the sums to itself.
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    out, sums = kernel(query, key, value, 0.0, causal, scale=scaling)
    return out, sums
