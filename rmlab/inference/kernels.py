"""The compiled kernels of flex attention: one for each shape, with smaller blocks where the first do not fit.

Compiling can fail in many ways that say nothing of the model: no C compiler, no triton, too little shared memory for
the blocks that torch picks, a driver that is too old. Then the pack goes run by run (attention.py), which gives the
same, only slower, and a warning says why.
"""

import logging
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from weakref import WeakKeyDictionary, finalize

from rmlab.inference.budget import out_of_memory
from rmlab.inference.flex import BLOCK, Kind, Tables, View, filled, mask_mod

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch._dynamo.types import GuardFilterEntry
    from torch.nn.attention.flex_attention import FlexKernelOptions
    from transformers import PreTrainedModel

OPTIONS: tuple[Mapping[str, int], ...] = ({}, {"BLOCK_M": 32, "BLOCK_N": 32, "num_stages": 1})
"""What torch is told of a kernel: first nothing, then the smallest blocks, which need the least shared memory."""

BACKEND = "inductor"
"""What compiles the kernels, by its name in torch."""

_log = logging.getLogger(__name__)


class _Shape(NamedTuple):
    """All that a kernel is compiled for: shapes and strides of queries, keys and values as they are.

    Every layer of every pack looks its kernel up by this, so it holds what tensors give out at once.
    """

    kind: Kind
    query: tuple[int, ...]
    key: tuple[int, ...]
    value: tuple[int, ...]
    # Part of what a kernel is made for: with conditions left unchecked, another layout in memory would be misread.
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

    `trouble`: the last reason why a kernel could not be had, in one line; empty while all is well.
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
        # Some shape could not be had at a higher level; kernels that were made before that are still used.
        return f"run by run{' in part' if self.made else ''} ({self.trouble})"

    @property
    def usable(self) -> bool:
        """Is there a kernel, or one left to try?"""
        return not self._paused and (bool(self.made) or self._level < len(OPTIONS))

    def attend(
        self, kind: Kind, query: "Tensor", key: "Tensor", value: "Tensor", tables: "Tables[Tensor]"
    ) -> "Tensor | None":
        """Attention of a pack: (1, heads, rows, size) in, (1, rows, heads, size) out; None where no kernel can be had.

        `key`, `value`: of kept rows too, these first. `tables`: of the layout, on the queries' device. Raises only
        where memory runs out.
        """
        rows = query.shape[2]
        query, key, value = _fitted(query, key, value)
        strides = query.stride(), key.stride(), value.stride()
        shape = _Shape(kind, query.shape, key.shape, value.shape, strides, query.dtype, query.device)
        while (kernel := self._kernel(shape)) is not None:
            try:
                out = kernel.run(query, key, value, *tables)
            except Exception as error:
                if out_of_memory(error):
                    raise
                self._step_down(shape, error)
            else:
                # Without the rows that fill up, and as transformers wants it: rows before heads.
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
            kernel = _Kernel(self._level, compiled(shape.kind, shape.rows, OPTIONS[self._level], shape.prefix_keys))
            self.made[shape] = kernel
        return kernel

    def _step_down(self, shape: _Shape, error: Exception) -> None:
        """Forget the kernel; the next one has smaller blocks, unless this one was only compiled too often."""
        from torch._dynamo.exc import FailOnRecompileLimitHit

        kernel = self.made.pop(shape)
        # torch's own limit on compilations says nothing about the blocks: once more with the same ones.
        if isinstance(error, FailOnRecompileLimitHit) and shape not in self._recompiled:
            self._recompiled.add(shape)
            return
        cause = f"no kernel for {shape.rows:,} rows on {shape.device}: {_first_line(error)}"
        if kernel.level + 1 == len(OPTIONS):
            self._give_up(cause)
        else:
            self.trouble, self._level = cause, max(self._level, kernel.level + 1)
            _log.warning("flex attention takes smaller blocks: %s", cause)

    def _give_up(self, cause: str) -> None:
        self.trouble, self._level = cause, len(OPTIONS)
        _log.warning("attention goes run by run, which gives the same and takes longer: %s", cause)


_numbers = count()
_kernels: "WeakKeyDictionary[PreTrainedModel, Kernels]" = WeakKeyDictionary()


def kernels(backbone: "PreTrainedModel") -> Kernels:
    """The model's kernels, which live as long as it does."""
    return _kernels.setdefault(backbone, Kernels())


def serves(device: "torch.device") -> bool:
    """Has flex attention a kernel for this device: CUDA and ROCm always, Apple's GPU with the torch that brings one."""
    return device.type == "cuda" or (device.type == "mps" and has_metal())


def compiled(kind: Kind, rows: int, options: Mapping[str, int], kept: int = 0) -> "Callable[..., Tensor]":
    """A kernel for packs of this many rows and kept rows: queries, keys, values and tables in, attention out.

    torch keeps what it compiles with a function's code and gives up after a few shapes: attention would then be
    computed without a kernel, rows x rows at once (34 GB a layer at 16,384 rows). So every kernel has code of its own,
    and `fullgraph` makes giving up an error. The code is told to forget its kernel when nothing can call it any more.

    Torch also remembers which sizes were different the last time, by the name of the function, and compiles the next
    kernel for any size. So the code has a name of its own too. (`dynamic=False` says the same, but changes torch's
    configuration around each call, which takes a sixth of a layer's time on the host.)
    """
    import torch
    from torch._C._dynamo.eval_frame import reset_code

    # A code object of its own for every kernel, as torch keys what it has compiled by code.
    original: Any = attention(kind, rows, options, kept)
    name = f"attend_{next(_numbers)}"
    code = original.__code__.replace(co_name=name)
    clone = types.FunctionType(code, original.__globals__, name, closure=original.__closure__)
    finalize(clone, reset_code, clone.__code__)
    # Releases of torch that cannot leave conditions out check them all.
    checks: dict[str, str | int | bool | Callable[..., object]] | None = None
    if hasattr(torch.compiler, "skip_all_guards_unsafe"):
        checks = {"guard_filter_fn": _checked}
    kernel: Callable[..., Tensor] = torch.compile(clone, fullgraph=True, backend=BACKEND, options=checks)
    return kernel


def _checked(conditions: "Sequence[GuardFilterEntry]") -> list[bool]:
    """Which conditions torch checks before each call of a kernel: that its global settings are still the same.

    The others ask of the tensors what is part of a kernel's `_Shape`, so no other tensors ever reach it; to check them
    again takes longer than all the rest of a layer's work on the host.
    """
    return [condition.guard_type == "GLOBAL_STATE" for condition in conditions]


def attention(kind: Kind, rows: int, options: Mapping[str, int], kept: int = 0) -> "Callable[..., Tensor]":
    """What `compiled` compiles: the arguments of a pack, and nothing else, change from call to call."""
    from torch.nn.attention.flex_attention import BlockMask, flex_attention

    view, cap = View(kind.window, kind.causal), _cap(kind.softcap)
    kernel_options = cast("FlexKernelOptions | None", dict(options) or None)
    only_forward, forwarded = only_forward_options(), rows if kept else None

    def attend(query: "Tensor", key: "Tensor", value: "Tensor", *tables: "Tensor") -> "Tensor":
        # Made inside from the tables, as these change from pack to pack and the compiled function does not.
        ends, positions, counts, blocks, full_counts, full_blocks = tables
        sees, lengths = mask_mod(view, ends, positions, forwarded), (rows, rows + kept)
        mask = BlockMask.from_kv_blocks(counts, blocks, full_counts, full_blocks, BLOCK, sees, lengths, **only_forward)
        return flex_attention(query, key, value, cap, mask, kind.scaling, True, kernel_options=kernel_options)

    return attend


@cache
def only_forward_options() -> dict[str, Any]:
    """Tells a block mask to leave out what only a backward pass reads; older releases of torch always compute it."""
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
    """The states as kernels take them: rows filled up, kept ones last, and keys for 1, 2, 4, 8 ... heads each.

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
    # No power of two: kernels cannot share keys among, say, seven heads, so each gets its own copy.
    if shared & (shared - 1):
        key, value = key.repeat_interleave(shared, 1), value.repeat_interleave(shared, 1)
    return query, key, value


def _kept_last(states: "Tensor", kept: int, size: int) -> "Tensor":
    """Keys or values whose first `kept` rows stand behind the others, which are filled up to `size`.

    Each part is filled up to a size of its own, so that a kernel serves every prompt of about that length.
    """
    import torch

    return torch.cat([_filled(states[:, :, kept:], size), _filled(states[:, :, :kept], filled(kept))], 2)


def _filled(states: "Tensor", rows: int) -> "Tensor":
    """The states with zeros behind them, laid out row by row, as most models make those of full packs, which stay.

    So one kernel serves both.
    """
    from torch.nn.functional import pad

    # Padding goes on the dimension of rows with heads behind it, which gives the row-by-row layout in memory.
    empty = rows - states.shape[2]
    return pad(states.transpose(1, 2), (0, 0, 0, 0, 0, empty)).transpose(1, 2) if empty else states


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]:.200}" if lines else type(error).__name__


@cache
def has_metal() -> bool:
    """Whether this torch has a kernel for Apple's GPU."""
    import torch

    return tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
