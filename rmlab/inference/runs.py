"""Attention along paths off the GPU, run by run, so that nothing outside a path is computed.

In float32 a run's rows go in small blocks. In bfloat16 and float16 another order of the sums is rounded to another
score, so the keys are grouped as in the text alone.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from rmlab.inference.trie import Layout, Run

if TYPE_CHECKING:
    import torch

__all__ = ["KEYS", "ROWS", "Kind", "attend"]

ROWS = 64
"""Queries of one call in float32: few, so that little is computed above the diagonal only to be masked."""

KEYS = 512
"""Keys that torch's attention on CPUs takes together; grouped otherwise, their sums are rounded otherwise."""


class Kind(NamedTuple):
    """What an attention layer computes: how far it sees, the scale of its logits, and the cap on them."""

    window: int | None
    scaling: float | None
    softcap: float | None


def attend(
    layout: Layout, kind: Kind, query: "torch.Tensor", key: "torch.Tensor", value: "torch.Tensor"
) -> "torch.Tensor":
    """Attention of a pack: (1, heads, rows, size) in, (1, rows, heads, size) out."""
    out = query.new_empty(1, query.shape[2], query.shape[1], value.shape[3])
    exact = query.dtype.itemsize < 4 and not kind.softcap
    longest = max(len(path) for path in layout.paths)
    mask = _mask(-(-longest // KEYS) * KEYS, KEYS if exact else ROWS, kind.window, query.dtype, query.device)
    some = _as_alone if exact else _in_blocks
    for run in layout.runs:
        path = [*run.before, (run.start, run.stop)]
        rows = some(kind, run, query, _rows(key, path), _rows(value, path), mask)
        out[:, run.start : run.stop] = rows.transpose(1, 2)
    return out


def _as_alone(
    kind: Kind, run: Run, query: "torch.Tensor", keys: "torch.Tensor", values: "torch.Tensor", mask: "torch.Tensor"
) -> "torch.Tensor":
    """Attention of a run's rows, each against the very keys that the kernel would take for it in the text alone."""
    import torch

    length = keys.shape[2]
    # Calls without a mask are faster: where few rows come before the run, these are computed again instead.
    if 6 * run.offset < length and (kind.window is None or length <= kind.window):
        path = _rows(query, [*run.before, (run.start, run.stop)])
        return _attention(kind, path, keys, values, None)[:, :, run.offset :]
    blocks = []
    for start, stop in _cut(run.offset, length, KEYS):
        end = min(-(-stop // KEYS) * KEYS, length)
        seen = _seen(mask, start, stop, 0, end)
        blocks.append(_attention(kind, _queries(query, run, start, stop), keys[:, :, :end], values[:, :, :end], seen))
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=2)


def _in_blocks(
    kind: Kind, run: Run, query: "torch.Tensor", keys: "torch.Tensor", values: "torch.Tensor", mask: "torch.Tensor"
) -> "torch.Tensor":
    """Attention of a run's rows, ROWS at a time, each block against the keys that it can see."""
    import torch

    length = keys.shape[2]
    blocks = []
    for start, stop in pairwise([*range(run.offset, length, ROWS), length]):
        first = 0 if kind.window is None else max(start - kind.window + 1, 0)
        rows, seen = _queries(query, run, start, stop), _seen(mask, start, stop, first, stop)
        blocks.append(_attention(kind, rows, keys[:, :, first:stop], values[:, :, first:stop], seen))
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=2)


def _rows(states: "torch.Tensor", slices: list[tuple[int, int]]) -> "torch.Tensor":
    """Rows of (1, heads, rows, size) that lie in the slices, copied only where there are several."""
    import torch

    parts = [states[:, :, start:stop] for start, stop in slices]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def _queries(query: "torch.Tensor", run: Run, start: int, stop: int) -> "torch.Tensor":
    """The rows of tokens `start` to `stop` of the run's text."""
    begin = run.start - run.offset
    return query[:, :, begin + start : begin + stop]


def _cut(start: int, stop: int, step: int) -> Iterator[tuple[int, int]]:
    """The range from start to stop, cut at the multiples of `step`."""
    return pairwise([start, *range(start // step * step + step, stop, step), stop])


@lru_cache(maxsize=8)
def _mask(longest: int, rows: int, window: int | None, dtype: "torch.dtype", device: "torch.device") -> "torch.Tensor":
    """Additive mask of `rows` tokens against themselves and the `longest` before: 0 where seen, else minus infinity.

    Which keys a query sees depends only on how far apart they are, so all runs share one mask, cut to size.
    """
    import torch

    back = longest + torch.arange(rows)[:, None] - torch.arange(longest + rows)[None, :]
    seen = back >= 0 if window is None else (back >= 0) & (back < window)
    return torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, -torch.inf).to(device)


def _seen(mask: "torch.Tensor", start: int, stop: int, first: int, end: int) -> "torch.Tensor":
    """The mask of a text's tokens `start` to `stop` against its tokens `first` to `end`."""
    shift = mask.shape[1] - mask.shape[0] - start
    return mask[: stop - start, shift + first : shift + end]


def _attention(
    kind: Kind, q: "torch.Tensor", k: "torch.Tensor", v: "torch.Tensor", mask: "torch.Tensor | None"
) -> "torch.Tensor":
    """Attention of some rows under an additive mask; simply causal without one."""
    from torch.nn.functional import scaled_dot_product_attention

    if kind.softcap and mask is not None:
        return _capped(kind.softcap, kind.scaling, q, k, v, mask)
    grouped = q.shape[1] != k.shape[1]
    return scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, scale=kind.scaling, enable_gqa=grouped
    )


def _capped(
    softcap: float, scaling: float | None, q: "torch.Tensor", k: "torch.Tensor", v: "torch.Tensor", mask: "torch.Tensor"
) -> "torch.Tensor":
    """Attention whose logits are bent into -softcap..softcap (Gemma 2, arXiv 2408.00118); softmax in float32."""
    import torch

    grouped = q.unflatten(1, (k.shape[1], -1))
    scores = grouped @ k[:, :, None].transpose(3, 4) * (q.shape[3] ** -0.5 if scaling is None else scaling)
    scores = torch.tanh(scores / softcap) * softcap + mask
    weights = scores.softmax(-1, dtype=torch.float32).to(q.dtype)
    return (weights @ v[:, :, None]).flatten(1, 2)
