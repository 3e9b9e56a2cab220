"""Heads of transformers' own sequence-classification classes, run in float32 on the
hidden states they read.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.backbone import Backbone
from rmlab.scorers.checkpoints.checkpoint import Checkpoint
from rmlab.scorers.models import backbone as backbones
from rmlab.scorers.models.adapters import mark_first, takes_global_attention
from rmlab.scorers.models.heads import Head
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel


class _States(NamedTuple):
    """A backbone's output; what some classes hand on unread (memories, global
    attentions) is None.
    """

    last_hidden_state: "Tensor"
    pooler_output: "Tensor | None"

    def __getattr__(self, name: str) -> None:
        if name.startswith("_"):
            raise AttributeError(name)


def head_keys(checkpoint: Checkpoint) -> list[str]:
    """Names of the weights above the backbone in the class that transformers has for
    this configuration.

    Raises DataError where it has no such class, or one with an encoder and a decoder.
    """
    from transformers import AutoModelForSequenceClassification

    if getattr(checkpoint.config, "is_encoder_decoder", False):
        raise checkpoint.error(
            "it has an encoder and a decoder; a pairwise one (SteamSHP) goes to rmlab.pairwise"
        )
    model = backbones.empty_model(checkpoint, AutoModelForSequenceClassification)
    return [
        key
        for key in model.state_dict()
        if not key.startswith(f"{model.base_model_prefix}.")
    ]


def label_weights(
    weights: Mapping[str, float] | Sequence[float] | None,
    head: Head,
    checkpoint: Checkpoint,
) -> NDArray[np.float64] | None:
    """The weight of each label, or None for a model with one output."""
    labels = (
        [str(label) for label in (checkpoint.config.id2label or {}).values()]
        if head.make is None
        else ["score"]
    )
    if len(labels) < 2:
        if weights is not None:
            raise DataError(
                f"weights: {checkpoint.name!r} has one output (head {head.name!r}); leave weights out"
            )
        return None
    if weights is None:
        names = f"{len(labels)} labels ({', '.join(labels[:12])})"
        raise checkpoint.error(
            f"the reward is a weighted sum of its {names}; pass weights={{{labels[0]!r}: 1.0}}"
        )
    if not isinstance(weights, Mapping):
        if len(weights) != len(labels):
            raise DataError(
                f"weights: {len(weights)} values for {len(labels)} labels {labels}; give one for each"
            )
        return np.asarray(weights, np.float64)
    if unknown := [str(label) for label in weights if label not in labels]:
        raise DataError(
            f"weights: no label {unknown[0]!r}; {nearest(unknown[0], labels)}"
        )
    return np.array([float(weights.get(label, 0.0)) for label in labels])


def split(
    model: "PreTrainedModel", checkpoint: Checkpoint
) -> "tuple[PreTrainedModel, Callable[[Tensor], Tensor], str]":
    """Take a sequence-classification model apart: its backbone, its head, and where the
    head reads.

    The head is the model's own forward method with the backbone exchanged for hidden
    states: (n, 1, hidden) float32 in, raw logits (n, labels) out. Where it reads
    ("first", "last" or "mean" of all tokens) is found by trying. Raises DataError where
    the parts give short texts other logits than the whole model.
    """
    import torch

    backbone, dtype = getattr(model, model.base_model_prefix), model.dtype
    title = type(model).__name__
    # Four texts of eight tokens that stand for nothing but themselves.
    config = model.config.get_text_config()
    marks = {
        getattr(config, f"{name}_token_id", None)
        for name in ("pad", "bos", "eos", "sep", "cls")
    }
    texts = np.resize(
        [token for token in range(5, min(64, config.vocab_size)) if token not in marks],
        (4, 8),
    )
    # With the argument that the class itself passes to its backbone.
    trial = Backbone(backbone)
    if takes_global_attention(backbone):
        trial.arguments["global_attention_mask"] = mark_first
    with trial.exclusive_pass(texts.shape[1]):
        class_logits = torch.cat(
            [
                model(input_ids=torch.tensor(ids[None], device=model.device)).logits
                for ids in texts
            ]
        )
    stand_in: Any = (
        torch.nn.Module()
    )  # in the backbone's place: gives out its member `states`
    stand_in.pooler = copy.deepcopy(getattr(backbone, "pooler", None))
    pool = stand_in.pooler or (lambda states: None)
    stand_in.forward = lambda *_, **__: _States(stand_in.states, pool(stand_in.states))
    setattr(model, model.base_model_prefix, stand_in)
    device = next((p.device for p in model.parameters()), backbone.device)
    device = torch.device("cpu") if device.type == "meta" else device
    # Only now, with the backbone out of it: the head becomes float32 (with a pooler of
    # its own), the backbone stays.
    model.float()
    # Loading in bfloat16 has rounded weights that the file holds in float32.
    stored = checkpoint.read(
        key for key in model.state_dict() if key in checkpoint.files
    )
    model.load_state_dict(
        {key: tensor.to(device) for key, tensor in stored.items()},
        strict=False,
        assign=True,
    )
    # The ids that `run` passes are all 0, which must not count as padding; the backbone
    # keeps its own configuration.
    model.config = copy.deepcopy(model.config)
    model.config.pad_token_id = 1

    def run(states: "Tensor") -> "Tensor":
        ids = torch.zeros(states.shape[:2], dtype=torch.long, device=device)
        with torch.inference_mode():
            stand_in.states = states.to(device)
            return cast(
                "Tensor",
                model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits,
            )

    width = (
        getattr(backbone.config, "hidden_size", None)
        or backbone.config.get_text_config().hidden_size
    )
    read = _find_position(run, width)
    if read is None:
        raise checkpoint.error(
            f"its class {title} reads neither the first nor the last token nor the mean of all"
        )
    # Funnel gives fewer states than tokens, so only those that are read are asked for.
    positions = {"first": np.arange(1), "last": np.arange(7, 8), "mean": np.arange(8)}[
        read
    ]
    states = torch.stack(
        [trial.alone(ids, positions).mean(0, keepdim=True) for ids in texts]
    )
    difference = _compare_logits(run(states).cpu(), class_logits.float().cpu(), dtype)
    if difference is not None:
        apart = f"than its backbone and head apart (by up to {difference:.2g} standard deviations)"
        raise checkpoint.error(
            f"its class {title} gives short texts other logits {apart}; rmlab cannot score it"
        )
    return backbone, run, read


def _compare_logits(
    logits: "Tensor", class_logits: "Tensor", dtype: "torch.dtype"
) -> float | None:
    """By how many standard deviations the parts miss the logits of the whole; None
    within rounding.
    """
    import torch

    finite = class_logits.isfinite().all(1)
    if not finite.any():  # scores of NaN are refused with the names of their texts
        return None
    class_logits, logits = class_logits[finite], logits[finite]
    spread, size = (
        float(class_logits.std(0, correction=0).max()),
        float(class_logits.abs().max()),
    )
    # In half precision the whole model's head rounds, and the head here does not.
    tolerance = (
        1e-2 * spread + 1e-4 * size
        if dtype == torch.float32
        else 0.5 * spread + 0.05 * size
    )
    difference = float((logits - class_logits).abs().max())
    return None if difference <= tolerance else difference / max(spread, 1e-12)


def _find_position(run: "Callable[[Tensor], Tensor]", width: int) -> str | None:
    """Where the head reads: its logits for three states are those for the first, the
    last, their mean, or none.
    """
    import torch

    states = torch.randn(1, 3, width, generator=torch.Generator().manual_seed(0))
    logits = run(states)
    candidates = {
        "last": states[:, -1:],
        "first": states[:, :1],
        "mean": states.mean(1, keepdim=True),
    }
    is_equal = partial(torch.allclose, logits, atol=1e-4, equal_nan=True)
    return next(
        (position for position, state in candidates.items() if is_equal(run(state))),
        None,
    )
