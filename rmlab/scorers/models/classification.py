"""Heads of transformers' sequence-classification classes, run in float32."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmlab.scorers.checkpoints.stored_weights import as_float32
from rmlab.scorers.in_memory import ModelInMemory, Source
from rmlab.scorers.models import loading
from rmlab.scorers.models.heads import Head
from rmlab.scorers.reads import Read
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from rmlab.scorers.models.class_head import ClassHead


class ModelParts(NamedTuple):
    """A sequence-classification model taken apart.

    `head`: (n, 1, hidden) float32 in, raw logits (n, labels) out. `read`: where it
    reads.
    """

    backbone: "PreTrainedModel"
    head: "ClassHead"
    read: Read


def head_keys(source: Source) -> list[str]:
    """Names of the weights above the backbone in transformers' class for the model, or
    in the class of a model in memory.

    Raises DataError where the class has no head, or an encoder and a decoder.
    """
    from transformers import AutoModelForSequenceClassification

    if isinstance(source, ModelInMemory):
        model = source.model
        if model.get_output_embeddings() is not None:
            problem = "it is a language model and has no reward head"
            raise source.error(problem, "language models go to rmlab.implicit_reward")
    else:
        if getattr(source.config, "is_encoder_decoder", False):
            problem = "it has an encoder and a decoder"
            raise source.error(problem, "use a decoder or an encoder alone")
        model = loading.empty_model(source, AutoModelForSequenceClassification)
    prefix = model.base_model_prefix
    n_labels = None
    keys = []
    for key, weight in model.state_dict().items():
        if not key.startswith(f"{prefix}."):
            keys.append(key)
            stored = source.weights.get(key)
            # The weight says how many labels there are, whatever the configuration.
            if stored and stored.shape and len(weight) == source.config.num_labels:
                n_labels = stored.shape[0]
    if not keys or not hasattr(model, prefix):
        problem = f"{type(model).__name__} has no head"
        raise source.error(problem, "pass a model for sequence classification")
    if n_labels is not None:
        source.config.num_labels = n_labels
    return keys


def label_weights(
    weights: Mapping[str, float] | Sequence[float] | None,
    head: Head,
    checkpoint: Source,
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


def _count_outputs(head: Head, checkpoint: Source) -> int:
    """How many numbers a head of the table gives each text, tried on zeros."""
    import torch

    zeros = []
    for key in head.keys(checkpoint.weights):
        zeros.append((key, torch.zeros(checkpoint.weights[key].shape)))
    weights = as_float32(zeros, torch.device("cpu"), head.rows)
    width = checkpoint.config.get_text_config().hidden_size
    states = torch.zeros(1, len(head.reads), width)
    assert head.make is not None
    return int(head.make(weights, checkpoint.settings)(states).shape[1])


def split(model: "PreTrainedModel", checkpoint: Source) -> ModelParts:
    """Take a sequence-classification model apart; where its head reads is found by
    trying.

    Raises DataError where the parts give short texts other logits than the whole model.
    """
    from rmlab.scorers.models.class_head import ClassHead

    head = ClassHead(model, checkpoint.name, checkpoint)
    read = _find_read(head)
    if read is None:
        problem = (
            f"{head.title} reads neither the first nor the last token nor the mean of "
            "all"
        )
        raise DataError(problem)
    head.require_class_logits(read)
    return ModelParts(head.backbone, head, read)


# Which of three tokens a class reads where the second is the pad token, and where the
# third is.
_READS_BESIDE_PAD = {
    (2, 2): Read.LAST,
    (2, 1): Read.BEFORE_PAD,
    (0, 1): Read.BEFORE_FIRST_PAD,
}


def _find_read(head: "ClassHead") -> Read | None:
    """Where the head reads: its logits for three states are those for one of them, or
    for their mean; None for another rule.
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    states = torch.randn(1, 3, head.width, generator=generator)
    single = [states[:, [0]], states[:, [1]], states[:, [2]]]
    single.append(states.mean(1, keepdim=True))
    known = [head(state) for state in single]

    def find_same(padded: Sequence[int] = ()) -> int:
        logits = head(states, padded)
        for number, logits_of_one in enumerate(known):
            if torch.allclose(logits, logits_of_one, atol=1e-4, equal_nan=True):
                return number
        return -1

    place = find_same()
    if place == 2:
        return _READS_BESIDE_PAD.get((find_same([1]), find_same([2])))
    return {0: Read.FIRST, 3: Read.MEAN}.get(place)
