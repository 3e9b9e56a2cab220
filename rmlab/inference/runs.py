"""Attention along paths without a GPU's kernels, so that nothing outside a path is computed.

A decoder in float32 on a CPU goes segment by segment (segments.py). The rest goes run by run: what has a window or a
cap on its logits in small blocks; half precision with the keys grouped as in the text alone, since another order of
the sums would be rounded to another score.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from rmlab.inference import segments
from rmlab.inference.layout import Layout, Run

if TYPE_CHECKING:
    import torch

__all__ = ["Kind", "attend", "forget"]

ROWS = 64
"""Queries of one call in float32: few, so that little is computed above the diagonal only to be masked."""

KEYS = 512
"""Keys that torch's attention on CPUs takes together; grouped otherwise, their sums are rounded otherwise."""

MIN_QUERIES = 64
"""Queries below which it takes another kernel, which may sum in another order."""

Slices = list[tuple[int, int]]


class Kind(NamedTuple):
    """What an attention layer computes: how far it sees, the scale of its logits, and the cap on them.

    `window`: a row sees rows less than so many away, None: however far. `causal`: only those before it, and itself.
    """

    window: int | None
    scaling: float | None
    softcap: float | None
    causal: bool = True


def attend(
    layout: Layout, kind: Kind, query: "torch.Tensor", key: "torch.Tensor", value: "torch.Tensor"
) -> "torch.Tensor":
    """Attention of a pack: (1, heads, rows, size) in, (1, rows, heads, size) out.

    `query`: of the forwarded rows; `key`, `value`: of all rows of the layout, kept ones first.
    """
    # Segments are seen as a whole, so not with a window; and a kernel that gives its sums knows no cap.
    if kind.causal and not kind.softcap and _sees_all(layout, kind) and segments.serves(query, value):
        return segments.attend(layout, kind.scaling, query, key, value)
    out = query.new_empty(1, query.shape[2], query.shape[1], value.shape[3])
    along = _along_paths if kind.causal else _both_ways
    for run, rows in along(layout, kind, query, key, value):
        out[:, run.start - layout.kept : run.stop - layout.kept] = rows.transpose(1, 2)
    # Rows that only fill up are read by nobody, but must hold numbers.
    out[:, layout.runs[-1].stop - layout.kept :] = 0
    return out


def forget() -> None:
    """Let go of the masks that are kept for the next pack."""
    for kept in (_mask, _band):
        kept.cache_clear()


def _along_paths(
    layout: Layout, kind: Kind, query: "torch.Tensor", key: "torch.Tensor", value: "torch.Tensor"
) -> "Iterator[tuple[Run, torch.Tensor]]":
    """Attention of each run's rows to the rows before them on their path."""
    exact = query.dtype.itemsize < 4 and not kind.softcap  # half precision: sums in the same order as alone
    longest = _longest(layout)
    # Rounded up to whole groups of keys, so that texts of nearly equal length find the same mask in the cache.
    mask = _mask(-(-longest // KEYS) * KEYS, KEYS if exact else ROWS, kind.window, query.dtype, query.device)
    some = _as_alone if exact else _in_blocks
    for run in layout.runs:
        if run.stop > run.start:
            path = [*run.before, (run.start, run.stop)]
            asked = _Queries(query, path, layout.kept)
            yield run, some(kind, run.offset, asked, _rows(key, path), _rows(value, path), mask)


def _both_ways(
    layout: Layout, kind: Kind, query: "torch.Tensor", key: "torch.Tensor", value: "torch.Tensor"
) -> "Iterator[tuple[Run, torch.Tensor]]":
    """Attention of each text's rows to all of the text; texts share no rows."""
    longest = _longest(layout)
    for run in layout.runs:
        q, k, v = (states[:, :, run.start : run.stop] for states in (query, key, value))
        if kind.window is None or q.shape[2] <= kind.window:  # all of the text is seen: no mask
            yield run, _attention(kind, q, k, v, None)
        elif query.dtype.itemsize < 4:
            # All keys at once, as in the text alone.
            yield run, _in_band(kind, kind.window, -(-longest // KEYS) * KEYS, 0, q, k, v)
        else:
            yield run, _in_band(kind, kind.window, ROWS, kind.window - 1, q, k, v)


def _longest(layout: Layout) -> int:
    return max(run.offset + run.stop - run.start for run in layout.runs)


def _sees_all(layout: Layout, kind: Kind) -> bool:
    return kind.window is None or kind.window >= _longest(layout)


class _Queries(NamedTuple):
    """The queries of a path's tokens; those of the first `kept` are gone with the pack that forwarded them."""

    states: "torch.Tensor"
    path: Slices
    kept: int

    def part(self, start: int, stop: int) -> "torch.Tensor":
        """Of the tokens start..stop."""
        slices = _part(self.path, start, stop)
        return _rows(self.states, [(first - self.kept, last - self.kept) for first, last in slices])


def _in_band(
    kind: Kind, window: int, rows: int, reach: int, query: "torch.Tensor", key: "torch.Tensor", value: "torch.Tensor"
) -> "torch.Tensor":
    """Attention of a text's rows to those around them, in blocks of `rows` that get the keys `reach` to either side."""
    import torch

    # The band is cut to the keys that there are: at a text's ends it has fewer to one side.
    band, length = _band(window, rows, reach, query.dtype, query.device), query.shape[2]
    blocks = []
    for start, stop in _cut(0, length, rows):
        first, last = max(start - reach, 0), min(stop + reach, length)
        seen = band[: stop - start, reach + first - start : reach + last - start]
        keys, values = key[:, :, first:last], value[:, :, first:last]
        blocks.append(_attention(kind, query[:, :, start:stop], keys, values, seen))
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=2)


def _as_alone(
    kind: Kind, offset: int, asked: _Queries, keys: "torch.Tensor", values: "torch.Tensor", mask: "torch.Tensor"
) -> "torch.Tensor":
    """Attention of a path's rows from `offset` on, each against the very keys that it meets in the text alone."""
    import torch

    length = keys.shape[2]
    # Calls without a mask are faster: where few rows come before the run, these are computed again instead.
    if not asked.kept and 6 * offset < length and (kind.window is None or length <= kind.window):
        return _attention(kind, asked.part(0, length), keys, values, None)[:, :, offset:]
    blocks = []
    # Cut where torch groups the keys: the last block's keys are then grouped as in the text alone.
    for start, stop in _cut(offset, length, KEYS):
        # Some rows are computed once more, so that torch takes the kernel that it takes for the whole text.
        begin = max(min(start, stop - MIN_QUERIES), asked.kept)
        rows, seen = asked.part(begin, stop), _seen(mask, begin, stop, 0)
        block = _attention(kind, rows, keys[:, :, :stop], values[:, :, :stop], seen)
        blocks.append(block[:, :, start - begin :])
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=2)


def _in_blocks(
    kind: Kind, offset: int, asked: _Queries, keys: "torch.Tensor", values: "torch.Tensor", mask: "torch.Tensor"
) -> "torch.Tensor":
    """Attention of a path's rows from `offset` on, block by block, each against the keys that it can see."""
    import torch

    blocks = []
    for start, stop in _cut(offset, keys.shape[2], ROWS):
        # The first of the block's rows looks back farthest: window - 1 keys before itself.
        first = 0 if kind.window is None else max(start - kind.window + 1, 0)
        rows, seen = asked.part(start, stop), _seen(mask, start, stop, first)
        blocks.append(_attention(kind, rows, keys[:, :, first:stop], values[:, :, first:stop], seen))
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=2)


def _cut(start: int, stop: int, step: int) -> Iterator[tuple[int, int]]:
    """The range from start to stop, cut at the multiples of `step`."""
    # At multiples, not from `start`: blocks then lie the same way whatever stands before the run.
    return pairwise([start, *range(start // step * step + step, stop, step), stop])


def _part(path: Slices, start: int, stop: int) -> Slices:
    """The slices that hold tokens `start` to `stop` of a path."""
    part, before = [], 0
    for first, last in path:
        low, high = max(start - before, 0), min(stop - before, last - first)
        if low < high:
            part.append((first + low, first + high))
        before += last - first
    return part


def _rows(states: "torch.Tensor", slices: Slices) -> "torch.Tensor":
    """Rows of (1, heads, rows, size) that lie in the slices, copied only where there are several."""
    import torch

    parts = [states[:, :, start:stop] for start, stop in slices]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


@lru_cache(maxsize=8)
def _mask(longest: int, rows: int, window: int | None, dtype: "torch.dtype", device: "torch.device") -> "torch.Tensor":
    """Additive mask of `rows` tokens against themselves and the `longest` before: 0 where seen, else minus infinity.

    Which keys a query sees depends only on how far apart they are, so all runs share one mask, cut to size.
    """
    import torch

    # (rows, longest + rows): how far a key lies before a query.
    back = longest + torch.arange(rows)[:, None] - torch.arange(longest + rows)[None, :]
    seen = back >= 0 if window is None else (back >= 0) & (back < window)
    return torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, -torch.inf).to(device)


@lru_cache(maxsize=8)
def _band(window: int, rows: int, reach: int, dtype: "torch.dtype", device: "torch.device") -> "torch.Tensor":
    """Additive mask of a block of `rows` against itself and `reach` rows to either side."""
    import torch

    away = torch.arange(rows)[:, None] - torch.arange(-reach, rows + reach)[None, :]
    return torch.zeros(away.shape, dtype=dtype).masked_fill_(away.abs() >= window, -torch.inf).to(device)


def _seen(mask: "torch.Tensor", start: int, stop: int, first: int) -> "torch.Tensor":
    """The mask of a text's tokens `start` to `stop` against its tokens `first` to `stop`."""
    # Column `longest` of the mask is the block's own first token.
    shift = mask.shape[1] - mask.shape[0] - start
    return mask[: stop - start, shift + first : shift + stop]


def _attention(
    kind: Kind, q: "torch.Tensor", k: "torch.Tensor", v: "torch.Tensor", mask: "torch.Tensor | None"
) -> "torch.Tensor":
    """Attention of some rows under an additive mask; without one, simply causal or to everything."""
    from torch.nn.functional import scaled_dot_product_attention

    if kind.softcap:
        return _capped(kind.softcap, kind.scaling, q, k, v, mask)
    grouped = q.shape[1] != k.shape[1]
    return scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=kind.causal and mask is None, scale=kind.scaling, enable_gqa=grouped
    )


def _capped(
    softcap: float, scaling: float | None,
    q: "torch.Tensor", k: "torch.Tensor", v: "torch.Tensor", mask: "torch.Tensor | None",
) -> "torch.Tensor":  # fmt: skip
    """Attention whose logits are bent into -softcap..softcap (Gemma 2, arXiv 2408.00118); softmax in float32."""
    import torch

    grouped = q.unflatten(1, (k.shape[1], -1))  # (1, heads of keys, queries to each, rows, size)
    scores = grouped @ k[:, :, None].transpose(3, 4) * (q.shape[3] ** -0.5 if scaling is None else scaling)
    scores = torch.tanh(scores / softcap) * softcap
    scores = scores if mask is None else scores + mask
    # torch's fused attention knows no cap, and transformers too takes the softmax in float32 here.
    weights = scores.softmax(-1, dtype=torch.float32).to(q.dtype)
    return (weights @ v[:, :, None]).flatten(1, 2)
