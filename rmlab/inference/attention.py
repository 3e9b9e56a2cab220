"""Attention that is restricted to paths: every token sees the tokens before it on its own text's path, and no other.

One function is registered with transformers' AttentionInterface; a model uses it for the length of one forward pass and
is otherwise as it was. Off the GPU it goes run by run (runs.py); on a GPU flex attention gets a block mask (flex.py).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from rmlab.inference import flex, runs
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
    """What one attention layer asked for: its sliding window, and everything path attention cannot do."""

    window: int | None
    refused: tuple[str, ...]


@dataclass
class _State:
    """The layout of the forward pass that is running, block masks made for it, and the calls seen so far."""

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
    kind = Kind(sliding_window, scaling, softcap)
    if _on_gpu(query):
        return flex.attend(state.layout, kind, query, key, value, _block_mask(state, query, sliding_window)), None
    return runs.attend(state.layout, kind, query, key, value), None


def _on_gpu(query: "torch.Tensor") -> bool:
    return bool(query.is_cuda)


def _block_mask(state: _State, query: "torch.Tensor", window: int | None) -> "BlockMask":
    made = state.masks.get((query.device, window))
    if made is None:
        made = state.masks[query.device, window] = flex.block_mask(state.layout, window, query.device)
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
