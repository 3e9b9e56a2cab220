"""Pairwise models: which of two answers to a prompt is better, asked in both orders."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rmlab.inference.backbone import Backbone
from rmlab.inference.passes import Passes
from rmlab.inference.planning import Packing
from rmlab.scorers.base import Floats, PairScorer
from rmlab.scorers.checkpoints.adapters import Adapted
from rmlab.scorers.checkpoints.checkpoint import Checkpoint, find
from rmlab.scorers.checkpoints.stored_weights import as_float32
from rmlab.scorers.encoder import EncodeOptions, complete_options
from rmlab.scorers.forms import Form, PairEncoder, choose_form, letters
from rmlab.scorers.local import Placement, ReadoutScorer, place, remakeable
from rmlab.scorers.models import loading
from rmlab.scorers.models.arguments import with_arguments
from rmlab.scorers.models.heads import Function, layers
from rmlab.scorers.models.vocabulary import Vocabulary, output_layer
from rmlab.tables import DataError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from rmlab.scorers.readout import LoadedModel, Readout


@remakeable
def pairwise(
    model: str | Path,
    *,
    base: str | Path | None = None,
    form: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    max_length: int | None = None,
    truncate: str | None = None,
    convention: str | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    revision: str | None = None,
    max_batch_tokens: int | None = None,
    name: str | None = None,
) -> "Pairwise":
    """A model that sees two answers at once and says which is better; for
    `rmlab.prefer`.

    Parameters
    ----------
    model : str or Path
        An id on the hub or a folder.
    base : str or Path, optional
        Folder or id with the tokenizer and the configuration, where the model has none;
        of an adapter, the model that it changes.
    form : str, optional
        How it is asked: "pairrm", "better-pairrm", "steamshp", or "letters" (a language
        model that answers A or B). By default what its keys and configuration show.
    max_length : int, optional
        The longest text in tokens. By default the model's window (SteamSHP: the 512
        tokens it was trained on).
    truncate : str, optional
        "right" cuts long texts as PairRM's authors do. The other forms only refuse
        them.
    convention : str, optional
        "reward-bench" asks as its runner does, where that differs (Better-PairRM).
    dtype, device, trust_remote_code, allow_pickle, revision, max_batch_tokens, name
        As in `rmlab.classifier`.

    Returns
    -------
    Pairwise
        The weights are loaded when the first pair is compared.

    Raises
    ------
    DataError
        For a model that is not pairwise, and as `rmlab.classifier` does.
    """
    if truncate not in (None, "right"):
        allowed = "allowed: None (refuse long texts), 'right' (cut them, PairRM only)"
        raise DataError(f"truncate={truncate!r}", allowed)
    checkpoint = find(
        model,
        base=base,
        revision=revision,
        allow_pickle=allow_pickle,
        trust_remote_code=trust_remote_code,
    )
    if isinstance(checkpoint, Adapted):
        checkpoint.refuse_task("CAUSAL_LM", "SEQ_2_SEQ_LM")
    texts = EncodeOptions(
        max_length=max_length, truncate=truncate, convention=convention
    )
    options = complete_options(texts)
    encoder = PairEncoder(
        checkpoint, options, choose_form(checkpoint, form, convention)
    )
    return Pairwise(
        checkpoint,
        encoder,
        place(checkpoint, device, dtype, max_batch_tokens),
        name=name,
    )


class Pairwise(ReadoutScorer["Readout"], PairScorer):
    """A pairwise model; made by `pairwise`. The weights are loaded when the first pair
    is compared.

    `form`: how it is asked.
    """

    checkpoint: Checkpoint

    def __init__(
        self,
        checkpoint: Checkpoint,
        encoder: PairEncoder,
        placement: Placement,
        *,
        name: str | None,
    ) -> None:
        form = encoder.form
        super().__init__(
            checkpoint,
            encoder,
            placement,
            details={"form": form.name},
            name=name,
        )
        self.form: Form = form
        self.read_at = "markers" if form.markers else "end"

    def average(self, forward: Floats, exchanged: Floats) -> Floats:
        """Margins in favour of the answer that is first in `forward`, shape (n,).

        PairRM: half the difference of the two orders' logits, as its authors take it.
        Models that answer A or B: the log-odds of the mean probability. A margin is NaN
        where either logit is.
        """
        if self.form.markers:
            return super().average(forward, exchanged)
        return mean_log_odds(forward, exchanged)

    @property
    def head_title(self) -> str:
        """The form and its head, for people."""
        marked = "head_layer in the checkpoint"
        read = marked if self.form.markers else "logits of A and B"
        return f"{self.form.name}: {read}"

    def load(self) -> "LoadedModel[Readout]":
        """Return the backbone, and the readout that gives the logit that the answer
        written first is better; loads the weights.
        """
        from rmlab.scorers.readout import LoadedModel, Readout

        if self.form.markers:
            backbone, head = self._load_marked()
        else:
            backbone, head = self._load_lettered()
        return LoadedModel(backbone, Readout(head, self.form.reads))

    def _load_model(self, head: Sequence[str]) -> "PreTrainedModel":
        return loading.load(
            self.checkpoint,
            self.form.task,
            device=self.device,
            dtype=self.dtype,
            head=head,
        )

    def _load_marked(self) -> tuple[Backbone, Function]:
        """PairRM's encoder and its head."""
        model = self._load_model(_HEAD_KEYS)
        backbone = with_arguments(model, self.encoder, self.form.task)
        weights = as_float32(self.checkpoint.tensors(_HEAD_KEYS), backbone.device)
        return backbone, _marked_head(weights)

    def _load_lettered(self) -> tuple[Backbone, Function]:
        """A language model, and its logit of A minus that of B."""
        model = self._load_model(())
        first, second = letters(self.tokenizer, self.checkpoint.name)
        if self.form.generates:
            weight = output_layer(model).weight[[first, second]].float()
            difference = weight[:1] - weight[1:]
            return FirstToken(model), lambda states: states[:, 0] @ difference.T
        vocabulary = Vocabulary(model, self.checkpoint.name)

        def prefer_first(states: "torch.Tensor") -> "torch.Tensor":
            logits = vocabulary.logits(states[:, 0], [first, second])
            return logits[:, :1] - logits[:, 1:]

        base = loading.base_model(model)
        return with_arguments(base, self.encoder, self.form.task), prefer_first


_HEAD_KEYS = (
    "head_layer.1.weight",
    "head_layer.1.bias",
    "head_layer.4.weight",
    "head_layer.4.bias",
)


def _marked_head(weights: "dict[str, torch.Tensor]") -> Function:
    """PairRM's head: each candidate's marker beside the source's, through two layers;
    the mean over its tasks.
    """
    import torch

    run = layers(weights, "head_layer", "tanh")

    def prefer_first(states: "torch.Tensor") -> "torch.Tensor":
        source, first, second = states.unbind(1)
        first_logits = run(torch.cat([source, first], -1))
        second_logits = run(torch.cat([source, second], -1))
        return (first_logits - second_logits).mean(-1, keepdim=True)

    return prefer_first


class FirstToken(Backbone):
    """An encoder with a decoder, read at the decoder's first position."""

    def __init__(self, model: "PreTrainedModel") -> None:
        super().__init__(model)
        self.passes = _FirstTokenPasses(model)

    @cached_property
    def packing(self) -> Packing:
        """Texts go together in padded batches."""
        return Packing("the model has an encoder and a decoder")


class _FirstTokenPasses(Passes):
    def forward(self, **inputs: "torch.Tensor") -> "torch.Tensor":
        """The states that enter the output layer for the first token, (texts, 1,
        hidden).
        """
        model = self.model
        begin = int(model.config.decoder_start_token_id)
        start = inputs["input_ids"].new_full((len(inputs["input_ids"]), 1), begin)
        states: list[torch.Tensor] = []
        hook = model.get_output_embeddings().register_forward_pre_hook(
            lambda _, arguments: states.append(arguments[0])
        )
        with hook:
            model(**inputs, decoder_input_ids=start, use_cache=False)
        return states.pop()


def mean_log_odds(forward: Floats, exchanged: Floats) -> Floats:
    """Log-odds of the mean of two probabilities that one answer is better, without
    leaving log space.

    `forward`, `exchanged`: as of `Pairwise.average`. NaN where either is.
    """
    with np.errstate(invalid="ignore"):  # NumPy would warn of NaN
        better = np.logaddexp(-np.logaddexp(0, -forward), -np.logaddexp(0, exchanged))
        worse = np.logaddexp(-np.logaddexp(0, forward), -np.logaddexp(0, -exchanged))
    return np.asarray(better - worse, np.float64)
