"""One forward pass: a pack, a padded batch, or one text alone, read at the wanted positions in float32."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.attention import Call, paths
from rmlab.inference.narrowing import steps
from rmlab.inference.trie import Layout

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

__all__ = ["accepts", "alone", "packed_rows", "padded_rows", "position_scales"]

Ints = NDArray[np.intp]
Tokens = NDArray[np.integer]

_turns: "WeakKeyDictionary[PreTrainedModel, Lock]" = WeakKeyDictionary()


def alone(backbone: "PreTrainedModel", sequence: Tokens, reads: Tokens) -> "torch.Tensor":
    """Hidden states of one text forwarded by itself with the model's own attention: (reads, hidden) float32.

    The reference that packs and batches are compared with.
    """
    return padded_rows(backbone, [sequence], np.zeros(len(reads), np.intp), np.asarray(reads, np.intp))


def packed_rows(
    backbone: "PreTrainedModel", layout: Layout, rows: Ints, windows: Sequence[int | None] = ()
) -> "tuple[torch.Tensor, list[Call]]":
    """Hidden states of a pack's `rows`, ascending, (n, hidden) float32, and the attention calls that made them.

    `windows`: of the layers that may be narrowed (narrowing.py), up to the last.
    """
    ids, positions = (_on(backbone, values[None]) for values in (layout.ids, layout.positions))
    options = {"use_cache": False} if accepts(backbone, "use_cache") else {}
    narrowed = steps(layout, rows, windows)
    with _resting(backbone, layout.positions.max() + 1), paths(backbone, layout, narrowed) as calls:
        states = backbone(input_ids=ids, position_ids=positions, **options).last_hidden_state[0]
    if len(states) != (len(rows) if narrowed else len(layout.ids)):
        raise ValueError(f"{len(states)} rows came out of a pack of {len(layout.ids)}")
    return (states if narrowed else states[_on(states, rows)]).float(), calls


def padded_rows(backbone: "PreTrainedModel", sequences: Sequence[Tokens], texts: Ints, reads: Ints) -> "torch.Tensor":
    """Hidden states of right-padded `sequences` at positions `reads` of `texts` among them, (n, hidden) float32.

    Without padding no mask is passed, so that the model may take its fastest way.
    """
    lengths = np.array([len(ids) for ids in sequences])
    real = np.arange(lengths.max())[None, :] < lengths[:, None]
    ids = np.full(real.shape, _pad_id(backbone), np.int64)
    ids[real] = np.concatenate(list(sequences))
    options: dict[str, Any] = {} if real.all() else {"attention_mask": _on(backbone, real.astype(np.int64))}
    if accepts(backbone, "use_cache"):
        options["use_cache"] = False
    with _resting(backbone, lengths.max()):
        states = backbone(input_ids=_on(backbone, ids), **options).last_hidden_state
        return states[_on(states, texts), _on(states, reads)].float()


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
            window = kind.get("original_max_position_embeddings") or config.max_position_embeddings
            scales = np.maximum(scales, lengths > window)
        elif kind["rope_type"] == "dynamic":
            scales = np.maximum(scales, np.where(lengths > config.max_position_embeddings, lengths, 0))
    return scales


@contextmanager
def _resting(backbone: "PreTrainedModel", longest: int) -> Iterator[None]:
    """No gradients, no dropout, no scale of earlier texts, no other pass; a model in training mode goes back to it."""
    import torch

    # Attention is changed for the length of a pass, so that threads with one model have to take turns.
    with _turns.setdefault(backbone, Lock()), torch.no_grad():
        training = backbone.training
        if training:
            backbone.eval()
        try:
            if position_scales(backbone, np.array([longest]))[0] > 1:
                # "dynamic" keeps the scale of the longest text that it met until a short one comes.
                backbone(input_ids=_on(backbone, np.zeros((1, 1), np.int64)))
            yield
        finally:
            if training:
                backbone.train()


def _on(owner: Any, values: NDArray[Any]) -> "torch.Tensor":
    import torch

    return torch.as_tensor(np.ascontiguousarray(values), device=owner.device)


def _pad_id(backbone: "PreTrainedModel") -> int:
    """The model's own pad token: some encoders count positions by it."""
    pad = getattr(backbone.config.get_text_config(), "pad_token_id", None)
    return 0 if pad is None or pad < 0 else int(pad)
