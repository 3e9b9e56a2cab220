"""Heads of transformers' sequence-classification classes, run in float32."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.passes import Passes, takes_argument
from rmlab.scorers.checkpoints.adapters import Adapted, plain_name
from rmlab.scorers.checkpoints.checkpoint import Checkpoint
from rmlab.scorers.checkpoints.stored_weights import as_float32
from rmlab.scorers.models import loading
from rmlab.scorers.models.arguments import GLOBAL_ATTENTION, mark_first
from rmlab.scorers.models.heads import Head
from rmlab.scorers.reads import Read
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from rmlab.scorers.in_memory import Source


# The pad token of a detached head.
_PAD = 1


class ModelParts(NamedTuple):
    """A sequence-classification model taken apart.

    `head`: (n, 1, hidden) float32 in, raw logits (n, labels) out. `read`: where it
    reads.
    """

    backbone: "PreTrainedModel"
    head: "Callable[[Tensor], Tensor]"
    read: Read


def head_keys(checkpoint: Checkpoint) -> list[str]:
    """Names of the weights above the backbone in transformers' class for the model.

    Raises DataError where it has no such class, or one with an encoder and a decoder.
    """
    from transformers import AutoModelForSequenceClassification

    if getattr(checkpoint.config, "is_encoder_decoder", False):
        raise checkpoint.error(
            "it has an encoder and a decoder", "use a decoder or an encoder alone"
        )
    model = loading.empty_model(checkpoint, AutoModelForSequenceClassification)
    prefix = f"{model.base_model_prefix}."
    keys = []
    for key, weight in model.state_dict().items():
        if not key.startswith(prefix):
            keys.append(key)
            _count_labels(checkpoint, key, weight)
    return keys


def _count_labels(checkpoint: Checkpoint, key: str, weight: "Tensor") -> None:
    """Take the number of labels from a weight where the configuration is silent, or is
    that of an adapter's base.
    """
    config = checkpoint.config
    stored = checkpoint.weights.get(key)
    is_silent = checkpoint.settings.keys().isdisjoint({"id2label", "num_labels"})
    is_named = not (is_silent or isinstance(checkpoint, Adapted))
    if is_named or stored is None or not stored.shape:
        return
    n_labels = stored.shape[0]
    if n_labels != config.num_labels == len(weight):
        config.num_labels = n_labels


def label_weights(
    weights: Mapping[str, float] | Sequence[float] | None,
    head: Head,
    checkpoint: "Source",
) -> NDArray[np.float64] | None:
    """The weight of each label, or None for a model with one output."""
    if head.make is None:
        labels = [str(label) for label in (checkpoint.config.id2label or {}).values()]
    else:
        labels = [str(number) for number in range(_count_outputs(head, checkpoint))]
    if len(labels) < 2:
        if weights is not None:
            problem = (
                f"weights: {checkpoint.name!r} has one output (head {head.name!r})"
            )
            raise DataError(problem, "leave weights out")
        return None

    if weights is None:
        names = ", ".join(labels[:12])
        raise checkpoint.error(
            f"the reward is a weighted sum of its {len(labels)} labels ({names})",
            f"pass weights={{{labels[0]!r}: 1.0}}",
        )
    if not isinstance(weights, Mapping):
        if len(weights) != len(labels):
            problem = (
                f"weights: {len(weights)} values for {len(labels)} labels {labels}"
            )
            raise DataError(problem, "give one for each")
        return np.asarray(weights, np.float64)

    for label in weights:
        if label not in labels:
            raise DataError(f"weights: no label {str(label)!r}", nearest(label, labels))
    return np.array([float(weights.get(label, 0.0)) for label in labels])


def _count_outputs(head: Head, checkpoint: "Source") -> int:
    """How many numbers a head of the table gives each text, tried on zeros."""
    import torch

    weights = {}
    for key in head.keys(checkpoint.weights):
        shape = checkpoint.weights[key].shape
        if shape:
            n_rows = min(shape[0], head.rows or shape[0])
            shape = (n_rows, *shape[1:])
        weights[key] = torch.zeros(shape)
    width = checkpoint.config.get_text_config().hidden_size
    states = torch.zeros(1, len(head.reads), width)
    assert head.make is not None
    run = head.make(weights, checkpoint.settings)
    return int(run(states).shape[1])


def split(model: "PreTrainedModel", checkpoint: "Source") -> ModelParts:
    """Take a sequence-classification model apart.

    The head is a copy of the model with the backbone exchanged for hidden states. Where
    it reads is found by trying. Raises DataError where the parts give short texts other
    logits than the whole model.
    """
    import torch

    backbone = loading.base_model(model)
    title = type(model).__name__
    texts = _trial_texts(model)
    class_logits, output_class = _run_whole(model, backbone, texts)
    head = _detach_head(model, backbone, output_class, checkpoint)

    passes = Passes(backbone)
    # The argument that the class itself passes to its backbone.
    if takes_argument(backbone, GLOBAL_ATTENTION):
        passes.arguments[GLOBAL_ATTENTION] = mark_first
    positions = np.arange(texts.shape[1])
    width = passes.alone(texts[0], positions[:1]).shape[-1]
    read = _find_read(head, width)
    if read is None:
        raise checkpoint.error(
            f"its class {title} reads neither the first nor the last token "
            "nor the mean of all"
        )

    # Funnel gives fewer states than tokens, so only those that are read are asked for.
    if read is Read.FIRST:
        positions = positions[:1]
    elif read is not Read.MEAN:
        positions = positions[-1:]
    states = [passes.alone(ids, positions).mean(0, keepdim=True) for ids in texts]
    logits = head(torch.stack(states)).cpu()
    # Scores of NaN are refused with the names of their texts.
    if not class_logits.isfinite().all():
        return ModelParts(backbone, head, read)

    difference = float((logits - class_logits).abs().max())
    spread = float(class_logits.std(0, correction=0).max())
    size = float(class_logits.abs().max())
    tolerance = 1e-2 * spread + 1e-4 * size
    if model.dtype != torch.float32:
        # The whole model's head rounds, and the head here does not.
        tolerance = 0.5 * spread + 0.05 * size
    if difference > tolerance:
        problem = (
            f"its class {title} gives short texts other logits than its backbone and "
            f"head apart (by up to {difference / max(spread, 1e-12):.2g} standard "
            "deviations)"
        )
        raise checkpoint.error(problem, "rmlab cannot score it")
    return ModelParts(backbone, head, read)


def _trial_texts(model: "PreTrainedModel") -> NDArray[np.integer]:
    """Four texts of eight tokens, none of them the pad token."""
    pad = getattr(model.config.get_text_config(), "pad_token_id", None)
    n_tokens = loading.vocabulary_size(loading.base_model(model))
    tokens = np.arange(5, min(64, n_tokens))
    return np.resize(tokens[tokens != pad], (4, 8))


def _run_whole(
    model: "PreTrainedModel", backbone: "PreTrainedModel", texts: NDArray[np.integer]
) -> "tuple[Tensor, Callable[..., object]]":
    """The whole model's logits of each text alone, with a mask as in
    `Passes.padded_rows`, and the class of what its backbone returns.
    """
    import torch

    takes_mask = takes_argument(model, "attention_mask")
    logits = []
    output_classes: list[Callable[..., object]] = []
    hook = backbone.register_forward_hook(
        lambda *arguments: output_classes.append(type(arguments[-1]))
    )
    with hook, Passes(backbone).exclusive_pass(texts.shape[1]):
        for ids in texts:
            row = torch.tensor(ids[None], device=model.device)
            inputs = {"input_ids": row}
            if takes_mask:
                inputs["attention_mask"] = torch.ones_like(row)
            # Without the hooks of a model in memory.
            logits.append(type(model).forward(model, **inputs).logits)
    return torch.cat(logits).float().cpu(), output_classes[0]


def _detach_head(
    model: "PreTrainedModel",
    backbone: "PreTrainedModel",
    output_class: "Callable[..., object]",
    checkpoint: "Source",
) -> "Callable[..., Tensor]":
    """The model's forward method from hidden states on, in float32.

    It is that of a copy with a module in the backbone's place that gives out those
    states; the model stays as it is. The function also takes the positions of pad
    tokens.
    """
    import torch

    stand_in: Any = torch.nn.Module()
    stand_in.pooler = copy.deepcopy(getattr(backbone, "pooler", None))

    def give_states(*_: object, **__: object) -> object:
        outputs = {"last_hidden_state": stand_in.states}
        if stand_in.pooler is not None:
            outputs["pooler_output"] = stand_in.pooler(stand_in.states)
        return output_class(**outputs)

    stand_in.forward = give_states
    head: PreTrainedModel = copy.deepcopy(model, {id(backbone): stand_in})
    # The method of a model with quantized weights refuses.
    torch.nn.Module.float(head)
    parameter = next(head.parameters(), None)
    device = backbone.device if parameter is None else parameter.device
    is_exact = backbone.dtype == torch.float32 and device.type != "meta"
    if device.type == "meta":
        device = torch.device("cpu")
    if not is_exact:
        # Loading in bfloat16 has rounded weights that the file holds in float32.
        names = {plain_name(key): key for key in head.state_dict()}
        tensors = checkpoint.tensors(checkpoint.weights.keys() & names)
        stored = as_float32(tensors, device)
        state = {names[key]: tensor for key, tensor in stored.items()}
        head.load_state_dict(state, strict=False, assign=True)
    # The ids that `run` passes are 0, which must not count as padding.
    head.config.pad_token_id = _PAD
    head.config.get_text_config().pad_token_id = _PAD

    def run(states: "Tensor", padded: Sequence[int] = ()) -> "Tensor":
        ids = torch.zeros(states.shape[:2], dtype=torch.long, device=device)
        ids[:, list(padded)] = _PAD
        with torch.inference_mode():
            stand_in.states = states.to(device)
            # Without the hooks of a model in memory.
            output = type(head).forward(
                head, input_ids=ids, attention_mask=torch.ones_like(ids)
            )
        return cast("Tensor", output.logits)

    return run


# Which of three tokens a class reads where the second is the pad token, and where the
# third is.
_READS_BESIDE_PAD = {
    (2, 2): Read.LAST,
    (2, 1): Read.BEFORE_PAD,
    (0, 1): Read.BEFORE_FIRST_PAD,
}


def _find_read(run: "Callable[..., Tensor]", width: int) -> Read | None:
    """Where the head reads: its logits for three states are those for one of them, or
    for their mean; None for another rule.
    """
    import torch

    states = torch.randn(1, 3, width, generator=torch.Generator().manual_seed(0))
    logits_of_one = [run(states[:, [i]]) for i in range(3)]
    logits_of_mean = run(states.mean(1, keepdim=True))

    def find_same(logits: "Tensor") -> int:
        for number, known in enumerate([*logits_of_one, logits_of_mean]):
            if torch.allclose(logits, known, atol=1e-4, equal_nan=True):
                return number
        return -1

    place = find_same(run(states))
    if place == 2:
        beside_pad = (find_same(run(states, [1])), find_same(run(states, [2])))
        return _READS_BESIDE_PAD.get(beside_pad)
    return {0: Read.FIRST, 3: Read.MEAN}.get(place)
