"""Attention that is restricted to paths: every token sees its own text, and no other.

In a decoder it sees the tokens before it on its text's path, in an encoder all of its text. One function is registered
with transformers' AttentionInterface; a model uses it for the length of one forward pass and is otherwise as it was.
On a GPU it is flex attention over a block mask (kernels.py, flex.py); elsewhere, and where no kernel can be had, it
goes run by run or segment by segment (runs.py).
"""

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from rmlab.inference import flex, runs
from rmlab.inference.flex import View
from rmlab.inference.kept import Kept
from rmlab.inference.kernels import Kernels, kernels, serves
from rmlab.inference.layout import Layout
from rmlab.inference.runs import Kind
from rmlab.inference.transfers import upload

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

__all__ = ["Call", "calls_made", "path_attention", "paths"]

_NAME = "rmlab_paths"
# What layers hand over and path attention need not act on: positions are in the keys already, nothing is cached, and
# which rows are seen is the layout's to say.
_UNDERSTOOD = {"position_ids", "use_cache", "cache_position", "output_attentions", "is_causal", "layer_head_mask"}


class Call(NamedTuple):
    """What one attention layer asked for: what a row sees, and all that path attention cannot do."""

    view: View
    refused: tuple[str, ...]

    @property
    def causal(self) -> bool:
        """Does a row see only the rows before it?"""
        return self.view.causal

    @property
    def window(self) -> int | None:
        """Rows less than so many away are seen."""
        return self.view.window


@dataclass
class _State:
    """The forward pass that is running: its layout, the model's kernels, what was uploaded, the calls seen so far.

    `kept`: what the packs of a long prompt hand on. `tables`: of the layout, by view and device, found among `sent` or
    made when a layer first asks for them.
    """

    layout: Layout
    kernels: Kernels
    sent: "Mapping[Hashable, torch.Tensor]"
    kept: Kept
    tables: "dict[tuple[View, torch.device], flex.Tables[torch.Tensor]]" = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)


# A context variable, as transformers gives attention functions no argument of ours to carry it in.
_running: ContextVar[_State] = ContextVar("rmlab_paths")


@contextmanager
def paths(
    backbone: "PreTrainedModel",
    layout: Layout,
    sent: "Mapping[Hashable, torch.Tensor] | None" = None,
    kept: Kept | None = None,
) -> Iterator[list[Call]]:
    """Let `backbone` attend along the paths of `layout` inside the block; its own attention comes back afterwards.

    `sent`: what was uploaded with the pack, the tables of flex attention among it. `kept`: what the pack before has
    left, and where this one leaves what the next needs. Yields the list of attention calls, filled as the layers run.
    """
    register()
    # transformers looks the function up by this name in every call of a layer, so setting it for the pass is enough.
    config = backbone.config
    own = config._attn_implementation
    state = _State(layout, kernels(backbone), sent or {}, kept or Kept())
    token = _running.set(state)
    config._attn_implementation = _NAME
    try:
        yield state.calls
    finally:
        config._attn_implementation = own
        _running.reset(token)


def calls_made() -> int:
    """How many layers of the running pass have come to their attention; 0 where none is running."""
    state = _running.get(None)
    return 0 if state is None else len(state.calls)


def path_attention(
    module: "torch.nn.Module",
    query: "torch.Tensor",
    key: "torch.Tensor",
    value: "torch.Tensor",
    attention_mask: "torch.Tensor | None",
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    dropout: float = 0.0,
    **kwargs: object,
) -> "tuple[torch.Tensor, None]":
    """Attention of transformers' interface: (1, heads, rows, size) in, (1, rows, heads, size) out, along the paths."""
    # No default: outside of `paths` nothing asks for the name, and a model left with it would fail here, loudly.
    state = _running.get()
    view = View(sliding_window, _causal(module, kwargs))  # of this layer: models may alternate
    state.calls.append(Call(view, tuple(_refused(attention_mask, dropout, kwargs))))
    # Layers come to their attention in the same order in every pass: the number of the call tells which one this is.
    key, value = state.kept.joined(len(state.calls), state.layout, key, value)
    kind = Kind(sliding_window, scaling, softcap, view.causal)
    out = None
    if state.kernels.usable and serves(query.device):
        out = state.kernels.attend(kind, query, key, value, _tables(state, view, query.device))
    # The second part would be attention weights, which no caller reads.
    return runs.attend(state.layout, kind, query, key, value) if out is None else out, None


def _tables(state: _State, view: View, device: "torch.device") -> "flex.Tables[torch.Tensor]":
    """The layout's tables on the device of this layer; a model may be spread over several."""
    # Made once for the pass: all layers of a kind and device look at the same tables.
    found = state.tables.get((view, device))
    if found is None:
        # A view that was not known before the pass, as in the first trial of a model.
        if (view, "ends") not in state.sent:
            state.sent = {**state.sent, **upload(flex.tables(state.layout, view), device)}
        made = flex.tables_of(state.sent, view)
        found = state.tables[view, device] = flex.Tables(*(values.to(device, non_blocking=True) for values in made))
    return found


@cache
def register() -> None:
    """Tell transformers the name by which a model asks for `path_attention`; no model uses it without being asked."""
    from transformers import AttentionInterface

    AttentionInterface.register(_NAME, path_attention)


def _causal(module: "torch.nn.Module", kwargs: dict[str, object]) -> bool:
    """Does a row see only the rows before it?"""
    # The call's word goes over the module's, and causal is the default, as in transformers' own attention functions.
    asked = kwargs.get("is_causal")
    return bool(getattr(module, "is_causal", True) if asked is None else asked)


def _refused(mask: "torch.Tensor | None", dropout: float, kwargs: dict[str, object]) -> Iterator[str]:
    """Names of what an attention layer asks for and path attention would leave out."""
    if mask is not None:
        yield "an attention mask of its own"
    if dropout:
        yield "dropout"
    for name, value in kwargs.items():
        # None and False switch things off, whatever they belong to.
        if value is not None and value is not False and name not in _UNDERSTOOD:
            yield name
