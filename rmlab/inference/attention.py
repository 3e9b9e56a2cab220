"""Attention that is restricted to paths: every token sees its own text, and no other.

In a decoder it sees the tokens before it on its text's path, in an encoder all of its text. One function is registered
with transformers' AttentionInterface; a model uses it for the length of one forward pass and is otherwise as it was.
Off the GPU it goes run by run (runs.py); on a GPU flex attention gets a block mask (flex.py).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rmlab.inference import flex, runs
from rmlab.inference.narrowing import Step, layers, narrowed
from rmlab.inference.runs import Kind
from rmlab.inference.trie import Layout

if TYPE_CHECKING:
    import torch
    from torch.nn.attention.flex_attention import BlockMask
    from transformers import PreTrainedModel

__all__ = ["Call", "path_attention", "paths"]

_NAME = "rmlab_paths"
_UNDERSTOOD = {"position_ids", "use_cache", "cache_position", "output_attentions", "is_causal", "layer_head_mask"}


@dataclass(frozen=True)
class Call:
    """What one attention layer asked for: one direction or both, its window, and all that path attention cannot do."""

    causal: bool
    window: int | None
    refused: tuple[str, ...]


@dataclass
class _State:
    """The forward pass that is running: its layout, block masks made for it, and the calls seen so far.

    `step`: a narrowed layer attends for its step. `done`: the attention of its rows that go on, which it asks for next.
    """

    layout: Layout
    masks: dict[Any, Any] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    step: Step | None = None
    done: "torch.Tensor | None" = None


class _Attended(Exception):
    """Ends a layer that was entered for its attention only."""


_running: ContextVar[_State] = ContextVar("rmlab_paths")


@contextmanager
def paths(backbone: "PreTrainedModel", layout: Layout, steps: Sequence[Step] = ()) -> Iterator[list[Call]]:
    """Let `backbone` attend along the paths of `layout` inside the block; its own attention comes back afterwards.

    `steps`: how the last layers are narrowed. Yields the list of attention calls, filled as the layers run.
    """
    _register()
    config = backbone.config
    own = config._attn_implementation
    state = _State(layout)
    token = _running.set(state)
    config._attn_implementation = _NAME
    try:
        with narrowed(layers(backbone) or (), steps, _attend):
            yield state.calls
    finally:
        config._attn_implementation = own
        _running.reset(token)


def _attend(step: Step, enter: Callable[[], object]) -> None:
    """Enter a layer for its attention, which is kept for the rows that go on."""
    state = _running.get()
    if step.layout is not state.layout:
        state.layout, state.masks = step.layout, {}
    state.step = step
    try:
        enter()
    except _Attended:
        return
    raise RuntimeError("a layer ended without attention")


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
    if state.done is not None:
        done, state.done = state.done, None
        return done, None
    call = Call(_causal(module, kwargs), sliding_window, tuple(_refused(attention_mask, dropout, kwargs)))
    state.calls.append(call)
    kind = Kind(sliding_window, scaling, softcap, call.causal)
    if _on_gpu(query):
        out = flex.attend(kind, query, key, value, _block_mask(state, query, kind))
    else:
        out = runs.attend(state.layout, kind, query, key, value)
    if state.step is not None:
        _keep(state, state.step, out)
        raise _Attended
    return out, None


def _keep(state: _State, step: Step, out: "torch.Tensor") -> None:
    """Keep the attention of the rows that go on."""
    import torch

    kept = torch.as_tensor(np.searchsorted(step.come, step.go), device=out.device)
    state.step, state.done = None, out.index_select(1, kept)


def _on_gpu(query: "torch.Tensor") -> bool:
    return bool(query.is_cuda)


def _block_mask(state: _State, query: "torch.Tensor", kind: Kind) -> "BlockMask":
    key = (query.device, kind.window, kind.causal)
    made = state.masks.get(key)
    if made is None:
        made = state.masks[key] = flex.block_mask(state.layout, kind, query.device)
    return made


@cache
def _register() -> None:
    from transformers import AttentionInterface

    AttentionInterface.register(_NAME, path_attention)


def _causal(module: Any, kwargs: dict[str, Any]) -> bool:
    """Does a row see only the rows before it?"""
    asked = kwargs.get("is_causal")
    return bool(getattr(module, "is_causal", True) if asked is None else asked)


def _refused(mask: Any, dropout: float, kwargs: dict[str, Any]) -> Iterator[str]:
    """Names of what an attention layer asks for and path attention would leave out."""
    if mask is not None:
        yield "an attention mask of its own"
    if dropout:
        yield "dropout"
    for name, value in kwargs.items():
        if value is not None and value is not False and name not in _UNDERSTOOD:
            yield name
