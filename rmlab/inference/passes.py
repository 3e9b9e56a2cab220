"""One forward pass: a pack, a padded batch, or one text alone, read at the wanted positions in float32."""

import inspect
from collections.abc import Callable, Hashable, Iterator, Sequence, Set
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.attention import Call, Kept, paths
from rmlab.inference.budget import offloaded
from rmlab.inference.flex import View, filled, tables
from rmlab.inference.kernels import kernels, serves
from rmlab.inference.layout import Layout
from rmlab.inference.transfers import upload

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

__all__ = ["accepts", "alone", "exclusive_pass", "packed_rows", "padded_rows", "position_scales"]

Ints = NDArray[np.intp]
Tokens = NDArray[np.integer]

FILLING = 0.01
"""Where a pack needs at most this share of further rows to fill a kernel's size, they go through the whole model: that
costs less than filling up queries, keys and values in every layer."""

_locks: "WeakKeyDictionary[PreTrainedModel, Lock]" = WeakKeyDictionary()


def alone(backbone: "PreTrainedModel", sequence: Tokens, reads: Tokens) -> "Tensor":
    """Hidden states of one text forwarded by itself with the model's own attention: (reads, hidden) float32.

    The reference that packs and batches are compared with.
    """
    return padded_rows(backbone, [sequence], np.zeros(len(reads), np.intp), np.asarray(reads, np.intp))


def packed_rows(
    backbone: "PreTrainedModel", layout: Layout, rows: Ints, views: Set[View] = frozenset(), kept: Kept | None = None
) -> "tuple[Tensor, list[Call]]":
    """Hidden states of some forwarded `rows` of a pack, (n, hidden) float32, and the attention calls that made them.

    `views`: what the layers let a row see, as far as known, so that the tables for it go up with the pack. `kept`: what
    the pack before has left, where the layout goes on from that; takes what the next pack needs. Everything goes up in
    one copy, and nothing comes back before the states are asked for.
    """
    layout = _fill(backbone, layout)
    # A cache of keys and values would cost memory, and nothing is generated from it.
    options = {"use_cache": False} if accepts(backbone, "use_cache") else {}
    with exclusive_pass(backbone, layout.positions.max() + 1):
        # Kernels are compiled for tensors made inside: those made outside are of another sort to torch.
        sent = upload(dict(_arrays(backbone, layout, rows, views)), backbone.device)
        with paths(backbone, layout, sent, kept) as calls:
            states = backbone(input_ids=sent["ids"], position_ids=sent["positions"], **options).last_hidden_state[0]
        # A model that drops or adds rows would be read at the wrong ones.
        if len(states) != layout.forwarded:
            raise ValueError(f"{len(states)} rows came out of a pack of {layout.forwarded}")
        # Only the wanted rows become float32: heads compute in it, whatever the model's dtype is.
        return states[sent["rows"].to(states.device)].float(), calls


def _fill(backbone: "PreTrainedModel", layout: Layout) -> Layout:
    """The layout, filled up to a kernel's size where that costs next to nothing."""
    size = filled(layout.forwarded)
    few = size - layout.forwarded <= FILLING * size
    return layout.filled(size) if few and serves(backbone.device) and kernels(backbone).usable else layout


def _arrays(
    backbone: "PreTrainedModel", layout: Layout, rows: Ints, views: Set[View]
) -> Iterator[tuple[Hashable, NDArray[np.generic]]]:
    """All that a pack needs on the device, by name; rows are counted from the first forwarded one."""
    yield "ids", layout.ids[None, layout.kept :]
    yield "positions", layout.positions[None, layout.kept :]
    yield "rows", rows - layout.kept
    if serves(backbone.device) and kernels(backbone).usable:
        for view in views:
            yield from tables(layout, view).items()


def padded_rows(backbone: "PreTrainedModel", sequences: Sequence[Tokens], texts: Ints, reads: Ints) -> "Tensor":
    """Hidden states of right-padded `sequences` at positions `reads` of `texts` among them, (n, hidden) float32.

    Without padding no mask is passed, so that the model may take its fastest way.
    """
    lengths = np.array([len(ids) for ids in sequences])
    real = np.arange(lengths.max())[None, :] < lengths[:, None]  # (texts, longest): False is padding
    ids = np.full(real.shape, _pad_id(backbone), np.int64)
    ids[real] = np.concatenate(list(sequences))
    options: dict[str, Tensor | bool] = (
        {} if real.all() else {"attention_mask": _as_tensor(backbone, real.astype(np.int64))}
    )
    if accepts(backbone, "use_cache"):
        options["use_cache"] = False
    with exclusive_pass(backbone, lengths.max()):
        states = backbone(input_ids=_as_tensor(backbone, ids), **options).last_hidden_state
        read: Tensor = states[_as_tensor(states, texts), _as_tensor(states, reads)].float()
        return read


def accepts(backbone: "PreTrainedModel", argument: str) -> bool:
    """Does the model's forward method name this argument?"""
    # Of the function behind the bound method: the same for all models of a class, and the cache holds on to no model.
    return argument in _arguments(getattr(backbone.forward, "__func__", backbone.forward))


@lru_cache(maxsize=64)
def _arguments(function: Callable[..., object]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def position_scales(backbone: "PreTrainedModel", lengths: Ints) -> Ints:
    """Texts with equal numbers may share a forward pass.

    Some rotary embeddings rescale all positions by the longest text of the pass ("longrope" has one other scale above
    its first window, 1; "dynamic" one per length): such texts must not meet. Zero for all others.
    """
    config = backbone.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    scales = np.zeros(len(lengths), np.intp)
    # Settings per kind of layer are None for layers without rotary embeddings.
    for kind in [rope] if "rope_type" in rope else filter(None, rope.values()):
        if kind["rope_type"] == "longrope":
            # transformers takes the long factors for a whole pass as soon as one of its positions lies beyond this.
            window = kind.get("original_max_position_embeddings") or config.max_position_embeddings
            scales = np.maximum(scales, lengths > window)
        elif kind["rope_type"] == "dynamic":
            scales = np.maximum(scales, np.where(lengths > config.max_position_embeddings, lengths, 0))
    return scales


@contextmanager
def exclusive_pass(backbone: "PreTrainedModel", longest: int) -> Iterator[None]:
    """Eval mode, no gradients, RoPE scale reset, one pass at a time; the model is afterwards as it was before."""
    import torch

    # Weights that are fetched during a pass must not become inference tensors, which nothing else may change.
    no_gradients = torch.no_grad if offloaded(backbone) else torch.inference_mode
    # Attention is changed for the length of a pass, so that threads with one model have to take turns.
    with _locks.setdefault(backbone, Lock()), no_gradients():
        training, attention_type = backbone.training, getattr(backbone, "attention_type", None)
        if training:
            backbone.eval()
        try:
            if position_scales(backbone, np.array([longest]))[0] > 1:
                # "dynamic" keeps the scale of the longest text that it met until a short one comes.
                backbone(input_ids=_as_tensor(backbone, np.zeros((1, 1), np.int64)))
            yield
        finally:
            if training:
                backbone.train()
            # A short text switches BigBird to full attention for good; long texts after it would get other scores.
            if attention_type != getattr(backbone, "attention_type", None):
                cast("Callable[[object], None]", backbone.set_attention_type)(attention_type)


def _as_tensor(owner: "PreTrainedModel | Tensor", values: NDArray[np.generic]) -> "Tensor":
    import torch

    return torch.as_tensor(np.ascontiguousarray(values), device=owner.device)


def _pad_id(backbone: "PreTrainedModel") -> int:
    """The model's own pad token: some encoders count positions by it."""
    pad = getattr(backbone.config.get_text_config(), "pad_token_id", None)
    return 0 if pad is None or pad < 0 else int(pad)
