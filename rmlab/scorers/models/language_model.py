"""One language model and what it says of given answers: the log-probabilities of their tokens, made one number."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol, Unpack

import numpy as np
from numpy.typing import NDArray

from rmlab.scorers.base import Prompt, Provenance, Stream
from rmlab.scorers.checkpoints.checkpoint import Checkpoint
from rmlab.scorers.local import LocalOptions, LocalScorer, Prepared
from rmlab.scorers.models import backbone as backbones
from rmlab.scorers.models.vocabulary import Vocabulary
from rmlab.tables import DataError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from rmlab.inference.forward import Batch

__all__ = ["LanguageModel", "answer"]

Ints = NDArray[np.intp]
Ids = NDArray[np.int32]
Floats = NDArray[np.float64]


class Owner(Protocol):
    """Which models belong together: they read the same tokens, and `stays` says whether all stay on the device."""

    @property
    def stays(self) -> bool:
        """Asked before the weights are loaded and after a turn."""

    @property
    def text_fingerprint(self) -> str:
        """As of `LocalModel`."""

    def prepare(self, prompts: Sequence[Prompt], responses: Sequence[str], /) -> Prepared:
        """As of `LocalModel`."""


class LanguageModel(LocalScorer[Prepared]):
    """A causal language model as a scorer; its owner makes the tokens.

    A text's score is the `mode` ("sum", "mean", "norm") of the log-probabilities of its answer's tokens.
    """

    def __init__(self, checkpoint: Checkpoint, *, mode: str, owner: Owner, **options: Unpack[LocalOptions]) -> None:
        super().__init__([checkpoint], **options)
        self.mode, self.owner = mode, owner
        self._weights: tuple[PreTrainedModel, Vocabulary] | None = None
        self._forwarded = backbones.forwarded(None)

    def prepare(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Prepared:  # type: ignore[override]
        """Token ids of the texts."""
        return self.owner.prepare(prompts, responses)

    def places(self, prepared: Prepared, numbers: Ints) -> tuple[list[Ids], list[Ints]]:
        """Token ids of the texts and the positions whose states predict the response."""
        parts = [answer(prepared, int(text)) for text in numbers]
        return [part[0] for part in parts], [part[1] for part in parts]

    def forward(self, prepared: Prepared, numbers: Ints) -> Stream:
        """Scores of the texts with these `numbers`, as the batches come: text numbers and their scores."""
        from rmlab.inference.forward import hidden
        from rmlab.inference.transfers import read_late

        if not len(numbers):
            return
        answers = [answer(prepared, int(text)) for text in numbers]
        sequences, reads = [piece[0] for piece in answers], [piece[1] for piece in answers]
        groups = [int(prepared.encoded.groups[text]) for text in numbers]
        backbone = self.backbone
        batches = hidden(backbone, sequences, reads, groups=groups, budget=self.run_options["budget"])
        launched = (self._launch(batch, [answers[text][2] for text in batch.texts]) for batch in batches)
        for launch, log_probs in read_late(launched):
            self._forwarded = backbones.forwarded(backbone)
            yield np.asarray(numbers)[launch.texts], self._summed(launch, log_probs)

    def alone(self, prepared: Prepared, numbers: Ints) -> Floats:
        """Scores of the texts with these `numbers`, each forwarded by itself: the reference for everything faster."""
        token_log_probs = [self.log_probs(prepared, int(text)) for text in numbers]
        if not token_log_probs:
            return np.zeros(0)
        counts = np.array([len(piece) for piece in token_log_probs])
        return self._summed(
            _Launch(np.asarray(numbers), np.arange(counts.sum()), counts), np.concatenate(token_log_probs)
        )

    def log_probs(self, prepared: Prepared, text: int) -> Floats:
        """Log-probability of each token of a text's answer, forwarded by itself, shape (tokens,)."""
        from rmlab.inference.forward import Batch
        from rmlab.inference.passes import alone

        ids, reads, targets = answer(prepared, text)
        rows = alone(self.backbone, ids, reads)
        launch, raw = self._launch(Batch(np.zeros(1, np.intp), rows, [np.arange(len(reads))]), [targets])
        token_log_probs: Floats = raw.cpu().double().numpy()[launch.back]
        return token_log_probs

    @property
    def model(self) -> "PreTrainedModel":
        """The transformers model; loads the weights."""
        return self._load()[0]

    @property
    def backbone(self) -> "PreTrainedModel":
        """The transformers base model; loads the weights."""
        return backbones.base_model(self.model)

    @property
    def loaded(self) -> bool:
        """Whether the weights are on the device."""
        return self._weights is not None

    def free_memory(self) -> None:
        """Free the memory, unless there is room for all the models that belong together."""
        if not self.loaded or self.owner.stays:
            return
        import torch

        self._weights = None
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that decides a score: a reference that several policies share is stored once."""
        return self._hash_parts(head=f"implicit {self.mode}", texts=self.owner.text_fingerprint)

    def provenance(self) -> Provenance:
        """Where the scores come from, as plain values: model, revision, mode, dtype, template, versions, device."""
        return self._describe(self._forwarded, head=f"implicit {self.mode}", fingerprint=self.fingerprint)

    def _load(self) -> "tuple[PreTrainedModel, Vocabulary]":
        if self._weights is None:
            _ = self.owner.stays  # decided now, while the memory is still free
            model = backbones.load(self.checkpoint, "AutoModelForCausalLM", device=self.device, dtype=self.dtype)
            self._weights = model, Vocabulary(model, self.checkpoint.name)
        return self._weights

    def _launch(self, batch: "Batch", targets: list[Ids]) -> "tuple[_Launch, torch.Tensor]":
        """Log-probabilities of a batch's answers, still on the device, and what makes them scores again.

        Texts with a common beginning share rows, and so the log-probabilities of the tokens that these predict.
        """
        import torch

        from rmlab.inference.transfers import upload

        size = self._load()[1].size
        cells = np.concatenate(batch.where).astype(np.int64) * size + np.concatenate(targets)
        unique, back = np.unique(cells, return_inverse=True)
        uploaded = upload({"rows": unique // size, "tokens": unique % size}, batch.rows.device)
        with torch.inference_mode():
            raw = self._load()[1].log_probs(
                batch.rows[uploaded["rows"]], uploaded["tokens"], chunk=self.run_options["chunk"]
            )
        return _Launch(batch.texts, back.reshape(-1), np.array([len(part) for part in targets])), raw

    def _summed(self, launch: "_Launch", log_probs: Floats) -> Floats:
        """Each text's log-probabilities made one number."""
        token_log_probs, counts = log_probs[launch.back], launch.counts
        owner = np.repeat(np.arange(len(counts)), counts)
        if self.mode == "norm":
            return -np.sqrt(np.bincount(owner, token_log_probs**2, len(counts)))
        total = np.bincount(owner, token_log_probs, len(counts)).astype(np.float64)
        return total / counts if self.mode == "mean" else total


class _Launch(NamedTuple):
    """A batch whose log-probabilities are on their way: its texts, which of them each text's tokens are, how many."""

    texts: Ints
    back: Ints
    counts: Ints


def answer(prepared: Prepared, text: int) -> tuple[Ids, Ints, Ids]:
    """Token ids of a text, the positions that predict its answer, and the tokens they predict."""
    ids, start = prepared.encoded.ids[text], int(prepared.encoded.response_start[text])
    if start < 1:
        raise DataError(f"text {text}: its response begins at the first token, so nothing predicts it; add a prompt")
    return ids, np.arange(start - 1, len(ids) - 1), ids[start:]
