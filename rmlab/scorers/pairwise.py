"""Pairwise models: which of two answers to a prompt is better, asked in both orders."""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import NDArray

from rmlab.scorers.base import Prompt, Provenance, Stream
from rmlab.scorers.checkpoints.checkpoint import Checkpoint, find
from rmlab.scorers.checkpoints.loading import refuse_new_weights
from rmlab.scorers.forms import (
    Comparisons,
    Form,
    Texts,
    choose_form,
    content_key,
    letters,
    order_name,
    require_one_of_each,
)
from rmlab.scorers.local import LocalOptions, LocalPairScorer, longest_first, remakable, require_convention
from rmlab.scorers.models import backbone as backbones
from rmlab.scorers.models.first_token import generated
from rmlab.scorers.models.heads import layers
from rmlab.scorers.models.vocabulary import Vocabulary
from rmlab.tables import DataError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

__all__ = ["Pairwise", "mean_log_odds", "pairwise"]

Ids = NDArray[np.int32]
Ints = NDArray[np.intp]
Floats = NDArray[np.float64]


@remakable
def pairwise(
    model: str | Path,
    *,
    form: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    max_length: int | None = None,
    truncate: str | None = None,
    convention: str | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    revision: str | None = None,
    budget: int | None = None,
    name: str | None = None,
) -> "Pairwise":
    """A model that sees two answers at once and says which is better; for `rmlab.prefer`.

    Parameters
    ----------
    model : str or Path
        An id on the hub or a folder.
    form : str, optional
        How it is asked: "pairrm", "better-pairrm", "steamshp", or "letters" (a language model that answers A or B). By
        default what its keys and configuration show.
    max_length : int, optional
        The longest text in tokens. By default the model's window (SteamSHP: the 512 tokens it was trained on).
    truncate : str, optional
        "right" cuts long texts as PairRM's authors do. The other forms only refuse them.
    convention : str, optional
        "reward-bench" asks as its runner does, where that differs (Better-PairRM).
    dtype, device, trust_remote_code, allow_pickle, revision, budget, name
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
        raise DataError(f"truncate={truncate!r}; allowed: None (refuse long texts), 'right' (cut them, PairRM only)")
    require_convention(convention)
    checkpoint = find(model, revision=revision, allow_pickle=allow_pickle, trust_remote_code=trust_remote_code)
    target = backbones.device(device)
    return Pairwise(
        checkpoint,
        choose_form(checkpoint, form, convention),
        name=name or checkpoint.title,
        device=target,
        dtype=backbones.dtype(dtype, target),
        encode_options={"max_length": max_length, "truncate": truncate, "convention": convention},
        run_options={"budget": budget},
    )


class Pairwise(LocalPairScorer[Comparisons]):
    """A pairwise model; made by `pairwise`. The weights are loaded when the first pair is compared."""

    def __init__(self, checkpoint: Checkpoint, form: Form, **options: Unpack[LocalOptions]) -> None:
        super().__init__([checkpoint], **options)
        self.form = form
        self.encoding = {"truncated": 0, "date_string": None, "convention": self.encode_options["convention"]}
        self.markers = form.task == "AutoModel"
        if form.task == "AutoModelForCausalLM":
            self.asked = f"the tokenizer's own, around the words of {form.models}"
        else:
            self.asked = f"the words of {form.models}, as its authors wrote them"

    def prefer(self, prompts: Sequence[Prompt], first: Sequence[str], second: Sequence[str]) -> Floats:
        """Logit that each answer of `first` is better than that of `second`, averaged over both orders, shape (n,).

        PairRM: half the difference of the two orders' logits, as its authors take it. Models that answer A or B: the
        log-odds of the mean probability. Exchanging `first` and `second` changes the sign and nothing else.
        """
        require_one_of_each(prompts, first, second)
        return super().prefer(prompts, first, second)

    def average(self, forward: Floats, exchanged: Floats) -> Floats:
        """Margins in favour of the answer that is first in `forward`, shape (n,).

        `forward`, `exchanged`: logit that the answer written first is better, in one order and with the answers
        exchanged. A margin is NaN where either logit is.
        """
        if self.markers:
            return (forward - exchanged) / 2
        return mean_log_odds(forward, exchanged)

    def prepare(  # type: ignore[override]
        self, prompts: Sequence[Prompt], first: Sequence[str], second: Sequence[str]
    ) -> Comparisons:
        """Token ids and content keys of the comparisons, each in the order given; needs the tokenizer, not the weights.

        One text is one comparison in one order: for both orders, prepare each comparison twice.
        """
        texts = self.encode(prompts, first, second)
        self._refuse_long(texts, first, second)
        self.encoding |= {"truncated": int(np.sum(texts.cut)), "date_string": texts.date}
        keys = [content_key(ids, reads) for ids, reads in zip(texts.ids, texts.reads, strict=True)]
        numbers: dict[str, int] = {}
        groups = np.array([numbers.setdefault(repr(prompt), len(numbers)) for prompt in prompts], np.intp)
        # Language models share a prompt's beginning; the others are padded, so that length is what neighbours share.
        shares = self.form.task == "AutoModelForCausalLM"
        return Comparisons(
            texts, groups, keys, np.argsort(groups, kind="stable") if shares else longest_first(texts.ids, keys)
        )

    def encode(self, prompts: Sequence[Prompt], first: Sequence[str], second: Sequence[str]) -> Texts:
        """The comparisons in the order given, however long."""
        from rmlab.inference.template import require_unicode

        require_one_of_each(prompts, first, second)
        require_unicode(prompts, first, second)
        empty = [i for i, pair in enumerate(zip(first, second, strict=True)) if not all(text.strip() for text in pair)]
        if empty:
            i = empty[0]
            raise DataError(
                f"responses: {len(empty)} of {len(first)} texts (a comparison in one order each) have an empty answer, "
                f"first number {i}, {order_name(first[i], second[i])!r}; there is nothing to "
                "compare: fill them in"
            )
        return self.form.encode(self.tokenizer, self.checkpoint, prompts, first, second)

    def forward(self, prepared: Comparisons, numbers: Ints) -> Stream:
        """Logit that the answer written first is better, of the texts with these `numbers`, as the batches come."""
        numbers = np.asarray(numbers, np.intp)
        if len(numbers):
            for texts, logits in self.logits(*self.places(prepared, numbers), prepared.groups[numbers]):
                yield numbers[texts], logits

    def logits(self, ids: list[Ids], reads: list[Ints], groups: Ints) -> Stream:
        """Logit that the answer written first is better, for each text."""
        from rmlab.inference.forward import hidden
        from rmlab.inference.transfers import read_late

        (model, head), budget = self.parts, self.run_options["budget"]
        if self.form.task == "AutoModelForSeq2SeqLM":
            return generated(model, head, ids, budget or 4096)
        batches = hidden(model, ids, reads, groups=groups.tolist(), budget=budget)
        return read_late((batch.texts, head(batch.stacked())) for batch in batches)

    def alone(self, prepared: Comparisons, numbers: Ints) -> Floats:
        """The same logits, each text forwarded by itself: the reference for everything faster."""
        from rmlab.inference.passes import alone

        ids, reads = self.places(prepared, numbers)
        model, head = self.parts
        results = np.full(len(ids), np.nan)
        if self.form.task == "AutoModelForSeq2SeqLM":
            # A budget of one token leaves no room for company.
            for texts, logits in generated(model, head, ids, 1):
                results[texts] = logits
            return results
        for i, (sequence, positions) in enumerate(zip(ids, reads, strict=True)):
            results[i] = head(alone(model, sequence, positions)[None]).item()
        return results

    def places(self, prepared: Comparisons, numbers: Ints) -> tuple[list[Ids], list[Ints]]:
        """Token ids of the wanted texts and the positions read in each."""
        which = np.asarray(numbers).tolist()
        return [prepared.texts.ids[i] for i in which], [prepared.texts.reads[i] for i in which]

    @property
    def head_title(self) -> str:
        """What is read, for people."""
        if self.markers:
            return f"{self.form.name}: head_layer in the checkpoint"
        pair = self.tokenizer.convert_ids_to_tokens(letters(self.tokenizer, self.name))
        return f"{self.form.name}: logits of {' and '.join(map(repr, pair))}"

    @property
    def backbone(self) -> "PreTrainedModel":
        """The transformers model that is forwarded; loads the weights."""
        return self.parts[0]

    @property
    def longest(self) -> int | None:
        """The longest text, in tokens, that the model takes; None where its positions are only relative."""
        return self.encode_options["max_length"] or self.form.longest or backbones.window(self.checkpoint.config)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that decides a logit."""
        return self._hash_parts(form=self.form.name)

    def provenance(self) -> Provenance:
        """Where the preferences come from, as plain values."""
        forwarded = backbones.forwarded(self.backbone if "parts" in self.__dict__ else None)
        return self._describe(forwarded, form=self.form.name, fingerprint=self.fingerprint)

    def _refuse_long(self, texts: Texts, first: Sequence[str], second: Sequence[str]) -> None:
        lengths = np.array([len(ids) for ids in texts.ids])
        n = f"{len(lengths)} texts (a comparison in one order each)"
        if texts.cut.any() and self.encode_options["truncate"] is None:
            i = int(texts.cut.argmax())
            raise DataError(
                f"{texts.cut.sum()} of {n} are longer than {self.form.name} reads, first number {i}, "
                f"{order_name(first[i], second[i])!r}; pass truncate='right' to cut as its authors do"
            )
        if self.longest is not None and (lengths > self.longest).any():
            i = int(lengths.argmax())
            raise DataError(
                f"{(lengths > self.longest).sum()} of {n} are longer than {self.longest} tokens, the longest, "
                f"number {i}, {order_name(first[i], second[i])!r}, has {lengths[i]}; raise "
                "max_length where the model can read more than it was trained on"
            )

    @cached_property
    def parts(self) -> "tuple[PreTrainedModel, Callable[[Tensor], Tensor]]":
        """What is forwarded, and what makes logits of its hidden states (texts, reads, hidden)."""
        head = [key for key in self.checkpoint.files if self.markers and key.startswith("head_layer.")]
        model = backbones.load(self.checkpoint, self.form.task, device=self.device, dtype=self.dtype, head=head)
        if self.markers:
            return model, self._candidates(model)
        pair = letters(self.tokenizer, self.checkpoint.name)
        if self.form.task == "AutoModelForSeq2SeqLM":
            weight = model.get_output_embeddings().weight[pair].float()
            return model, lambda states: states[:, 0] @ (weight[0] - weight[1])
        vocabulary = Vocabulary(model, self.checkpoint.name)

        def prefer_first(states: "Tensor") -> "Tensor":
            logits = vocabulary.logits(states[:, 0], pair)
            return logits[:, 0] - logits[:, 1]

        return backbones.base_model(model), prefer_first

    def _candidates(self, backbone: "PreTrainedModel") -> "Callable[[Tensor], Tensor]":
        """PairRM's head: each candidate's marker beside the source's, through two layers; the mean over its tasks."""
        import torch

        keys = [f"head_layer.{number}.{part}" for number in (1, 4) for part in ("weight", "bias")]
        refuse_new_weights(self.checkpoint.name, [key for key in keys if key not in self.checkpoint.files])
        weights = {key: tensor.to(backbone.device) for key, tensor in self.checkpoint.read(keys).items()}
        run = layers(weights, "head_layer", "tanh")

        def prefer_first(states: "Tensor") -> "Tensor":
            source, first, second = states.unbind(1)
            return (run(torch.cat([source, first], -1)) - run(torch.cat([source, second], -1))).mean(-1)

        return prefer_first


def mean_log_odds(forward: Floats, exchanged: Floats) -> Floats:
    """Log-odds of the mean of two probabilities that one answer is better, without leaving log space.

    `forward`, `exchanged`: as of `Pairwise.average`. NaN where either is.
    """
    with np.errstate(invalid="ignore"):  # NumPy would warn of NaN
        better = np.logaddexp(_log_sigmoid(forward), _log_sigmoid(-exchanged))
        worse = np.logaddexp(_log_sigmoid(-forward), _log_sigmoid(exchanged))
    return np.asarray(better - worse, np.float64)


def _log_sigmoid(x: Floats) -> Floats:
    return np.asarray(-np.logaddexp(0, -x), np.float64)
