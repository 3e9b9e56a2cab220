"""One forward pass: a pack, a padded batch, or one text alone, read at the wanted positions in float32."""

import inspect
from collections.abc import Callable, Hashable, Iterator, Set
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.attention import Call, Kept, paths
from rmlab.inference.flex import View, kernels, serves, tables
from rmlab.inference.memory import offloaded, upload
from rmlab.inference.planning import Ints, Layout, Texts, Tokens, filled

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

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
    backbone: "PreTrainedModel", layout: Layout, rows: Ints, views: Set[View] = frozenset(), prefix: Kept | None = None
) -> "tuple[Tensor, list[Call]]":
    """Hidden states of some forwarded `rows` of a pack, (n, hidden) float32, and the attention calls that made them.

    `views`: what the layers let a row see, as far as known, so that the tables for it go up with the pack. `prefix`:
    what the pack before has left, where the layout goes on from that; takes what the next pack needs. Everything goes
    up in one copy, and nothing comes back before the states are asked for.
    """
    on_kernels = serves(backbone.device) and kernels(backbone).usable
    size = filled(layout.forwarded)
    if on_kernels and size - layout.forwarded <= FILLING * size:
        layout = layout.filled(size)
    # Rows are counted from the first forwarded one.
    ids, positions = layout.ids[None, layout.kept :], layout.positions[None, layout.kept :]
    arrays: dict[Hashable, NDArray[np.generic]] = {"ids": ids, "positions": positions, "rows": rows - layout.kept}
    for view in views if on_kernels else ():
        arrays |= tables(layout, view)
    with exclusive_pass(backbone, layout.positions.max() + 1):
        # Kernels are compiled for tensors made inside: those made outside are of another sort to torch.
        uploaded = upload(arrays, backbone.device)
        with paths(backbone, layout, uploaded, prefix) as calls:
            states = _forward(backbone, input_ids=uploaded["ids"], position_ids=uploaded["positions"])[0]
        # A model that drops or adds rows would be read at the wrong ones.
        if len(states) != layout.forwarded:
            raise ValueError(f"{len(states)} rows came out of a pack of {layout.forwarded}")
        # Only the wanted rows become float32: heads compute in it, whatever the model's dtype is.
        return states[uploaded["rows"].to(states.device)].float(), calls


def padded_rows(backbone: "PreTrainedModel", sequences: Texts, texts: Ints, reads: Ints) -> "Tensor":
    """Hidden states of right-padded `sequences` at positions `reads` of `texts` among them, (n, hidden) float32.

    Without padding no mask is passed, so that the model may take its fastest way.
    """
    lengths = np.array([len(ids) for ids in sequences])
    real = np.arange(lengths.max())[None, :] < lengths[:, None]  # (texts, longest): False is padding
    # The model's own pad token: some encoders count positions by it.
    pad = getattr(backbone.config.get_text_config(), "pad_token_id", None)
    ids = np.full(real.shape, 0 if pad is None or pad < 0 else pad, np.int64)
    ids[real] = np.concatenate(list(sequences))
    arrays = {"input_ids": ids} | ({} if real.all() else {"attention_mask": real.astype(np.int64)})
    with exclusive_pass(backbone, lengths.max()):
        states = _forward(backbone, **upload(arrays, backbone.device))
        places = upload({"texts": texts, "reads": reads}, states.device)
        return states[places["texts"], places["reads"]].float()


def _forward(backbone: "PreTrainedModel", **inputs: "Tensor") -> "Tensor":
    """The last hidden states, (texts, rows, hidden)."""
    # A cache of keys and values would cost memory, and nothing is generated from it.
    options = {"use_cache": False} if accepts(backbone, "use_cache") else {}
    states: Tensor = backbone(**inputs, **options).last_hidden_state
    return states


def accepts(backbone: "PreTrainedModel", argument: str) -> bool:
    """Does the model's forward method name this argument?"""
    return argument in inspect.signature(backbone.forward).parameters


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
                backbone(input_ids=torch.zeros((1, 1), dtype=torch.int64, device=backbone.device))
            yield
        finally:
            if training:
                backbone.train()
            # A short text switches BigBird to full attention for good; long texts after it would get other scores.
            if attention_type != getattr(backbone, "attention_type", None):
                cast("Callable[[object], None]", backbone.set_attention_type)(attention_type)
