"""Flex attention on a GPU: who sees whom in a pack, and the compiled kernels, one for
each shape.

Blocks of rows that meet, and a rule within blocks, are computed on the host before a
pack goes up; no rows x rows table is ever made. Where a pack goes on from kept rows,
these stand behind its own rows among the keys, so that a row's number is the same in
both.

Compiling can fail in many ways that say nothing of the model: no C compiler, no triton,
too little shared memory for the blocks that torch picks, a driver that is too old. Then
kernels with smaller blocks are tried. Where these fail too, the pack goes run by run
(attention.py), which gives the same, only slower, and a warning says why.
"""

import logging
import types
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary, finalize

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.memory import out_of_memory
from rmlab.inference.planning import Ints, Layout, filled

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch._dynamo.types import GuardFilterEntry
    from torch.nn.attention.flex_attention import FlexKernelOptions
    from transformers import PreTrainedModel

# Rows and columns of one block: what flex attention's kernels expect.
BLOCK = 128

# What torch is told of a kernel: first nothing, then the smallest blocks, which need
# the least shared memory.
OPTIONS: tuple[Mapping[str, int], ...] = (
    {},
    {"BLOCK_M": 32, "BLOCK_N": 32, "num_stages": 1},
)

# What compiles the kernels, by its name in torch.
BACKEND = "inductor"

_log = logging.getLogger(__name__)


# Blocks of queries and of keys that meet, by their numbers, a pair each: in order of
# the queries, then the keys; and whether every query of the one sees every key of the
# other.
Met = tuple[Ints, Ints, NDArray[np.bool_]]


class View(NamedTuple):
    """What an attention layer lets a row see: rows less than `window` away (None: any),
    only earlier ones or not.
    """

    window: int | None
    causal: bool


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


A = TypeVar("A", NDArray[np.generic], "torch.Tensor")


class Tables(NamedTuple, Generic[A]):
    """A view of a layout, as arrays or tensors. Of each key, forwarded rows first:
    where its subtree `ends`, its position. Of each block of queries: how many blocks of
    keys it meets in part, their numbers, how many it meets in full, their numbers.
    """

    ends: A
    positions: A
    counts: A
    blocks: A
    full_counts: A
    full_blocks: A


def tables(layout: Layout, view: View) -> dict[Hashable, NDArray[np.generic]]:
    """The view of the layout as arrays to upload, by name; `tables_of` finds them again
    on the device.
    """
    # Tables must have the size that the kernel is compiled for.
    layout = layout.filled(filled(layout.forwarded))
    # Ends are counted among forwarded rows, as the kernel counts its queries; nobody
    # sees what fills up the kept ones.
    ends, positions = (
        _of_keys(layout, layout.ends - layout.kept),
        _of_keys(layout, layout.positions),
    )
    met = (
        _meeting_paths(layout, ends, view.window)
        if view.causal
        else _meeting_texts(layout, view.window)
    )
    blocks = layout.forwarded // BLOCK, len(ends) // BLOCK
    # A block of keys stands in one of the two lists: in those met in full the kernel
    # does not ask the rule.
    lists = *_block_lists(met, ~met[2], blocks), *_block_lists(met, met[2], blocks)
    arrays: Tables[NDArray[np.generic]] = Tables(ends, positions, *lists)
    return {(view, name): values for name, values in arrays._asdict().items()}


def _of_keys(layout: Layout, values: Ints) -> NDArray[np.int32]:
    """Values of all rows in the order of the keys: of forwarded rows, of kept ones, and
    0 up to a kernel's size.
    """
    if not layout.kept:
        return values.astype(np.int32)
    filling = np.zeros(filled(layout.kept) - layout.kept)
    return np.concatenate(
        [values[layout.kept :], values[: layout.kept], filling],
        dtype=np.int32,
        casting="unsafe",
    )


def tables_of(
    uploaded: "Mapping[Hashable, torch.Tensor]", view: View
) -> "Tables[torch.Tensor]":
    """The view's tables among what was uploaded."""
    return Tables(*(uploaded[view, name] for name in Tables._fields))


def mask_mod(
    view: View, ends: "torch.Tensor", positions: "torch.Tensor", rows: int | None = None
) -> "Callable[..., torch.Tensor]":
    """Flex attention's mask function: may row q see key k? `ends`, `positions`: of
    every key, on the device.

    `rows`: how many keys are forwarded rows, None: all.
    """
    window, causal = view

    # Branches on what is fixed are gone when the function is compiled.
    def may_attend(
        batch: "Tensor", head: "Tensor", q: "Tensor", k: "Tensor"
    ) -> "Tensor":
        if not causal:
            same_text = (
                ends[q] == ends[k]
            )  # texts of an encoder share no rows: one end, one text
            return (
                same_text
                if window is None
                else same_text & (q - k < window) & (k - q < window)
            )
        # Kept rows stand behind the others and come before all of them.
        earlier = k <= q if rows is None else (k <= q) | (k >= rows)
        # Depth first, an earlier row is on the path of all rows up to the end of its
        # subtree, and of no other.
        on_path = earlier & (q < ends[k])
        return (
            on_path
            if window is None
            else on_path & (positions[q] - positions[k] < window)
        )

    return may_attend


def _meeting_paths(layout: Layout, ends: NDArray[np.int32], window: int | None) -> Met:
    """Which blocks meet in a decoder. `ends`: of each key, the first row behind it that
    does not see it.

    A block of keys is seen from its own rows on, if they are forwarded ones, up to
    where the farthest of its subtrees ends; in full by later blocks, up to where the
    nearest ends. With a window no block is taken as seen in full.
    """
    starts = np.arange(0, len(ends), BLOCK)
    # Of each block of keys, where its last subtree ends and where its first one does.
    farthest, nearest = (
        np.maximum.reduceat(ends, starts),
        np.minimum.reduceat(ends, starts),
    )
    first = np.where(starts < layout.forwarded, starts // BLOCK, 0)
    keys, queries = _ranges(first, -(-farthest // BLOCK))
    order = np.argsort(queries, kind="stable")
    queries, keys = queries[order], keys[order]
    # Full where even the shortest subtree outlasts the last of the queries; of its own
    # block each sees half.
    full = (queries < nearest[keys] // BLOCK) & (queries != keys)
    return queries, keys, full & (window is None)


def _meeting_texts(layout: Layout, window: int | None) -> Met:
    """The same in an encoder: blocks meet where a text has rows in both, in full where
    both lie within one text.
    """
    begins = (np.arange(len(layout.ends)) - layout.positions).reshape(
        -1, BLOCK
    )  # of each row the first of its text
    first, last = begins[:, 0], begins[:, -1]
    # From where the text of its first row begins to where that of its last row ends.
    queries, keys = _ranges(
        first // BLOCK, -(-layout.ends.reshape(-1, BLOCK)[:, -1] // BLOCK)
    )
    if window is not None:
        near = np.abs(queries - keys) * BLOCK < window + BLOCK - 1
        queries, keys = queries[near], keys[near]
        return queries, keys, np.zeros(len(keys), bool)
    single = first == last  # blocks that hold rows of one text alone
    return (
        queries,
        keys,
        single[queries] & single[keys] & (first[queries] == first[keys]),
    )


def _ranges(first: Ints, behind: Ints) -> tuple[Ints, Ints]:
    """Pairs of each index of the two arrays with the numbers from its `first` up to the
    one before its `behind`.

    >>> _ranges(np.array([0, 1]), np.array([3, 2]))
    (array([0, 0, 0, 1]), array([0, 1, 2, 1]))
    """
    counts = behind - first
    owners = np.repeat(np.arange(len(counts)), counts)
    return owners, np.arange(len(owners)) - (np.cumsum(counts) - counts - first)[owners]


def _block_lists(
    met: Met, selected: NDArray[np.bool_], blocks: tuple[int, int]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Per block of queries: how many blocks of keys are selected, and their numbers;
    for one batch and all heads.
    """
    queries, keys = met[0][selected], met[1][selected]
    counts = np.bincount(queries, minlength=blocks[0])
    numbers = np.zeros(blocks, np.int32)
    numbers[queries, np.arange(len(keys)) - (np.cumsum(counts) - counts)[queries]] = (
        keys
    )
    # (1, 1, blocks of queries) and (1, 1, blocks of queries, blocks of keys); numbers
    # behind the counts are not read.
    return counts.astype(np.int32)[None, None], numbers[None, None]


class _Shape(NamedTuple):
    """All that a kernel is compiled for: shapes and strides of queries, keys and values
    as they are.

    Every layer of every pack looks its kernel up by this, so it holds what tensors give
    out at once.
    """

    kind: Kind
    query: tuple[int, ...]
    key: tuple[int, ...]
    value: tuple[int, ...]
    # Part of what a kernel is made for: with conditions left unchecked, another layout
    # in memory would be misread.
    strides: tuple[tuple[int, ...], ...]
    dtype: "torch.dtype"
    device: "torch.device"

    @property
    def rows(self) -> int:
        """Rows of a pack."""
        return self.query[2]

    @property
    def prefix_keys(self) -> int:
        """Keys of kept rows, which stand behind those of its own."""
        return self.key[2] - self.query[2]


class _Kernel(NamedTuple):
    """A compiled kernel and which of OPTIONS it has."""

    level: int
    run: "Callable[..., Tensor]"


class Kernels:
    """Flex attention for the packs of one model; its kernels are freed with it.

    `trouble`: the last reason why a kernel could not be had, in one line; empty while
    all is well.
    """

    def __init__(self) -> None:
        self.trouble = ""
        self._level = 0
        self._paused = False
        self.made: dict[_Shape, _Kernel] = {}
        self._recompiled: set[_Shape] = set()

    def __str__(self) -> str:
        """Which way attention goes, and why not the usual one."""
        if self._level == 0:
            return "flex attention"
        if self._level < len(OPTIONS):
            return f"flex attention in small blocks ({self.trouble})"
        # Some shape could not be had at a higher level; kernels that were made before
        # that are still used.
        return f"run by run{' in part' if self.made else ''} ({self.trouble})"

    @property
    def usable(self) -> bool:
        """Is there a kernel, or one left to try?"""
        return not self._paused and (bool(self.made) or self._level < len(OPTIONS))

    def attend(
        self,
        kind: Kind,
        query: "Tensor",
        key: "Tensor",
        value: "Tensor",
        tables: "Tables[Tensor]",
    ) -> "Tensor | None":
        """Attention of a pack: (1, heads, rows, size) in, (1, rows, heads, size) out;
        None where no kernel can be had.

        `key`, `value`: of kept rows too, these first. `tables`: of the layout, on the
        queries' device. Raises only where memory runs out.
        """
        rows = query.shape[2]
        query, key, value = _fitted(query, key, value)
        strides = query.stride(), key.stride(), value.stride()
        shape = _Shape(
            kind,
            query.shape,
            key.shape,
            value.shape,
            strides,
            query.dtype,
            query.device,
        )
        while (kernel := self._kernel(shape)) is not None:
            try:
                out = kernel.run(query, key, value, *tables)
            except Exception as error:
                if out_of_memory(error):
                    raise
                self._step_down(shape, error)
            else:
                # Without the rows that fill up, and as transformers wants it: rows
                # before heads.
                return (out if rows == shape.rows else out[:, :, :rows]).transpose(1, 2)
        return None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside the block attention goes run by run."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def refuse(self, reason: str) -> None:
        """Use no kernel from now on."""
        self.made.clear()
        self._give_up(reason)

    def _kernel(self, shape: _Shape) -> _Kernel | None:
        kernel = self.made.get(shape)
        # What failed once for this model is not tried again for its other shapes.
        if kernel is None and self._level < len(OPTIONS):
            kernel = _Kernel(
                self._level,
                compiled(
                    shape.kind, shape.rows, OPTIONS[self._level], shape.prefix_keys
                ),
            )
            self.made[shape] = kernel
        return kernel

    def _step_down(self, shape: _Shape, error: Exception) -> None:
        """Forget the kernel; the next one has smaller blocks, unless this one was only
        compiled too often.
        """
        from torch._dynamo.exc import FailOnRecompileLimitHit

        kernel = self.made.pop(shape)
        # torch's own limit on compilations says nothing about the blocks: once more
        # with the same ones.
        if isinstance(error, FailOnRecompileLimitHit) and shape not in self._recompiled:
            self._recompiled.add(shape)
            return
        cause = (
            f"no kernel for {shape.rows:,} rows on {shape.device}: {_first_line(error)}"
        )
        if kernel.level + 1 == len(OPTIONS):
            self._give_up(cause)
        else:
            self.trouble, self._level = cause, max(self._level, kernel.level + 1)
            _log.warning("flex attention takes smaller blocks: %s", cause)

    def _give_up(self, cause: str) -> None:
        self.trouble, self._level = cause, len(OPTIONS)
        _log.warning(
            "attention goes run by run, which gives the same and takes longer: %s",
            cause,
        )


_numbers = count()
_kernels: "WeakKeyDictionary[PreTrainedModel, Kernels]" = WeakKeyDictionary()


def kernels(backbone: "PreTrainedModel") -> Kernels:
    """The model's kernels, which live as long as it does."""
    return _kernels.setdefault(backbone, Kernels())


def serves(device: "torch.device") -> bool:
    """Has flex attention a kernel for this device: CUDA and ROCm always, Apple's GPU
    with the torch that brings one.
    """
    return device.type == "cuda" or (device.type == "mps" and has_metal())


def has_kernels(backbone: "PreTrainedModel") -> bool:
    """Does the model's attention go through a GPU's kernels?"""
    return serves(backbone.device) and kernels(backbone).usable


def compiled(
    kind: Kind, rows: int, options: Mapping[str, int], kept: int = 0
) -> "Callable[..., Tensor]":
    """A kernel for packs of this many rows and kept rows: queries, keys, values and
    tables in, attention out.

    torch keeps what it compiles with a function's code and gives up after a few shapes:
    attention would then be computed without a kernel, rows x rows at once (34 GB a
    layer at 16,384 rows). So every kernel has code of its own, and `fullgraph` makes
    giving up an error. The code is told to forget its kernel when nothing can call it
    any more.

    Torch also remembers which sizes were different the last time, by the name of the
    function, and compiles the next kernel for any size. So the code has a name of its
    own too. (`dynamic=False` says the same, but changes torch's configuration around
    each call, which takes a sixth of a layer's time on the host.)
    """
    import torch
    from torch._C._dynamo.eval_frame import reset_code

    # A code object of its own for every kernel, as torch keys what it has compiled by
    # code.
    original: Any = attention(kind, rows, options, kept)
    name = f"attend_{next(_numbers)}"
    code = original.__code__.replace(co_name=name)
    clone = types.FunctionType(
        code, original.__globals__, name, closure=original.__closure__
    )
    finalize(clone, reset_code, clone.__code__)
    # Releases of torch that cannot leave conditions out check them all.
    checks: dict[str, str | int | bool | Callable[..., object]] | None = None
    if hasattr(torch.compiler, "skip_all_guards_unsafe"):
        checks = {"guard_filter_fn": _checked}
    kernel: Callable[..., Tensor] = torch.compile(
        clone, fullgraph=True, backend=BACKEND, options=checks
    )
    return kernel


def _checked(conditions: "Sequence[GuardFilterEntry]") -> list[bool]:
    """Which conditions torch checks before each call of a kernel: that its global
    settings are still the same.

    The others ask of the tensors what is part of a kernel's `_Shape`, so no other
    tensors ever reach it; to check them again takes longer than all the rest of a
    layer's work on the host.
    """
    return [condition.guard_type == "GLOBAL_STATE" for condition in conditions]


def attention(
    kind: Kind, rows: int, options: Mapping[str, int], kept: int = 0
) -> "Callable[..., Tensor]":
    """What `compiled` compiles: the arguments of a pack, and nothing else, change from
    call to call.
    """
    from torch.nn.attention.flex_attention import BlockMask, flex_attention

    view, cap = View(kind.window, kind.causal), _cap(kind.softcap)
    kernel_options = cast("FlexKernelOptions | None", dict(options) or None)
    only_forward, forwarded = only_forward_options(), rows if kept else None

    def attend(
        query: "Tensor", key: "Tensor", value: "Tensor", *tables: "Tensor"
    ) -> "Tensor":
        # Made inside from the tables, as these change from pack to pack and the
        # compiled function does not.
        ends, positions, counts, blocks, full_counts, full_blocks = tables
        sees, lengths = mask_mod(view, ends, positions, forwarded), (rows, rows + kept)
        mask = BlockMask.from_kv_blocks(
            counts,
            blocks,
            full_counts,
            full_blocks,
            BLOCK,
            sees,
            lengths,
            **only_forward,
        )
        return flex_attention(
            query,
            key,
            value,
            cap,
            mask,
            kind.scaling,
            True,
            kernel_options=kernel_options,
        )

    return attend


@cache
def only_forward_options() -> dict[str, Any]:
    """Tells a block mask to leave out what only a backward pass reads; older releases
    of torch always compute it.
    """
    import inspect

    from torch.nn.attention.flex_attention import BlockMask

    named = inspect.signature(BlockMask.from_kv_blocks).parameters
    return {"compute_q_blocks": False} if "compute_q_blocks" in named else {}


def _cap(softcap: float | None) -> "Callable[..., Tensor] | None":
    """Bends logits into -softcap..softcap (Gemma 2, arXiv 2408.00118)."""
    import torch

    if not softcap:
        return None
    return lambda score, batch, head, q, k: softcap * torch.tanh(score / softcap)


def _fitted(query: "Tensor", key: "Tensor", value: "Tensor") -> "tuple[Tensor, ...]":
    """The states as kernels take them: rows filled up, kept ones last, and keys for 1,
    2, 4, 8 ... heads each.

    Those of a full pack that goes on from nothing stay as they are.
    """
    (_, heads, rows, _), (_, key_heads, keys, _) = query.shape, key.shape
    size = filled(rows)
    if keys > rows:
        key, value = (_kept_last(states, keys - rows, size) for states in (key, value))
        query = _filled(query, size)
    elif size > rows:
        query, key, value = (_filled(states, size) for states in (query, key, value))
    shared = heads // key_heads  # queries' heads to each head of keys
    # No power of two: kernels cannot share keys among, say, seven heads, so each gets
    # its own copy.
    if shared & (shared - 1):
        key, value = (
            key.repeat_interleave(shared, 1),
            value.repeat_interleave(shared, 1),
        )
    return query, key, value


def _kept_last(states: "Tensor", kept: int, size: int) -> "Tensor":
    """Keys or values whose first `kept` rows stand behind the others, which are filled
    up to `size`.

    Each part is filled up to a size of its own, so that a kernel serves every prompt of
    about that length.
    """
    import torch

    return torch.cat(
        [
            _filled(states[:, :, kept:], size),
            _filled(states[:, :, :kept], filled(kept)),
        ],
        2,
    )


def _filled(states: "Tensor", rows: int) -> "Tensor":
    """The states with zeros behind them, laid out row by row, as most models make those
    of full packs, which stay.

    So one kernel serves both.
    """
    from torch.nn.functional import pad

    # Padding goes on the dimension of rows with heads behind it, which gives the
    # row-by-row layout in memory.
    empty = rows - states.shape[2]
    return (
        pad(states.transpose(1, 2), (0, 0, 0, 0, 0, empty)).transpose(1, 2)
        if empty
        else states
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]:.200}" if lines else type(error).__name__


@cache
def has_metal() -> bool:
    """Whether this torch has a kernel for Apple's GPU."""
    import torch

    return tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
