"""Models whose weights are on this machine: text encoder, backbone and readout."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache, cached_property, partial, wraps
from importlib import metadata
from typing import TYPE_CHECKING, Generic, NamedTuple, ParamSpec, Self, TypeVar

import numpy as np
import pandas as pd

from rmlab.findings import Finding
from rmlab.inference.backbone import Batch
from rmlab.inference.encoding import Encoded
from rmlab.inference.memory import read_late
from rmlab.scorers.base import (
    SCORING_VERSION,
    Floats,
    Ints,
    Prompt,
    Provenance,
    Scorer,
    Stream,
    Text,
    hash_parts,
    list_columns,
)
from rmlab.scorers.checkpoints.checkpoint import Checkpoint
from rmlab.scorers.encoder import Ids, TextEncoder
from rmlab.scorers.in_memory import ModelInMemory, Source
from rmlab.scorers.model_checks import examine_model
from rmlab.scorers.models import loading

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rmlab.inference.backbone import Backbone
    from rmlab.scorers.readout import AnswerReadout, LoadedModel, Places, Readout

R = TypeVar("R", bound="Readout | AnswerReadout")
Options = ParamSpec("Options")
Made = TypeVar("Made", bound=Scorer)


class Placement(NamedTuple):
    """Where a model's weights go, their number type, and how many tokens at once; None
    for what suits the machine.
    """

    device: str | None
    dtype: str | None
    max_batch_tokens: int | None


def remakeable(make: Callable[Options, Made]) -> Callable[Options, Made]:
    """Return the function `make`, whose scorers know how they were made."""

    @wraps(make)
    def made_anew(*args: Options.args, **options: Options.kwargs) -> Made:
        scorer = make(*args, **options)
        # To a worker of a cluster the options travel: the weights are loaded there, on
        # the device that is there.
        scorer.remake = partial(made_anew, *args, **options)  # type: ignore[attr-defined]
        return scorer

    return made_anew


class LocalScorer(Scorer, Generic[R]):
    """A model on this machine: a text encoder, a backbone and a readout. Its weights
    are loaded when the first text is scored.

    Parameters
    ----------
    checkpoint : Checkpoint or ModelInMemory
        The model.
    encoder : TextEncoder
        How texts become tokens.
    placement : Placement
        Device, number type and tokens at once; of a model in memory the first two are
        None.
    details : dict
        What decides a score beside weights, number type and tokens.
    name : str, optional
        The model's name in tables.
    """

    # What is read: "head", "answer" (all its tokens), "end" (of the text), "markers".
    read_at: str = "head"
    # Makes the scorer anew elsewhere, or with changed options; set by `remakeable`.
    remake: Callable[..., Self]
    _parts: "LoadedModel[R] | None" = None

    def __init__(
        self,
        checkpoint: Source,
        encoder: TextEncoder,
        placement: Placement,
        *,
        details: Provenance,
        name: str | None,
    ) -> None:
        self.checkpoint = checkpoint
        self.encoder = encoder
        if isinstance(checkpoint, ModelInMemory):
            # It stays as it is.
            checkpoint.refuse_moves(device=placement.device, dtype=placement.dtype)
            self.device = checkpoint.model.device
            self.dtype = checkpoint.model.dtype
        else:
            self.device = loading.device(placement.device)
            self.dtype = loading.dtype(placement.dtype, self.device)
        self.placement = placement
        self.max_batch_tokens = placement.max_batch_tokens
        self.details = details
        self.name = name or checkpoint.title
        # Of the texts scored last: how they went through the model, how many were cut.
        self.progress: Provenance = {"attention": None, "packs": None}

    @property
    @abstractmethod
    def head_title(self) -> str:
        """What is read, for people."""

    @abstractmethod
    def load(self) -> "LoadedModel[R]":
        """Return the backbone and the readout; loads the weights."""

    @property
    def travels(self) -> bool:  # type: ignore[override]
        """Whether copies may score on other machines: not those of models in memory."""
        return all(isinstance(model, Checkpoint) for model in self.encoder.readers)

    @property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """The transformers tokenizer."""
        return self.encoder.tokenizer

    def evaluating(self) -> AbstractContextManager[None]:
        """Around a pass: what puts the model into evaluation."""
        return self.checkpoint.evaluating()

    @property
    def parts(self) -> "LoadedModel[R]":
        """Backbone and readout; loads the weights.

        Of a model in memory they are made anew each time, as its weights may have
        changed.
        """
        parts = self._parts
        if parts is None:
            import torch

            with self.evaluating(), torch.no_grad():
                parts = self.load()
            if isinstance(self.checkpoint, Checkpoint):
                self._parts = parts
        return parts

    @property
    def backbone(self) -> "Backbone":
        """What is forwarded; loads the weights."""
        return self.parts.backbone

    @property
    def readout(self) -> R:
        """What makes scores of the backbone's states; loads the weights."""
        return self.parts.readout

    @property
    def loaded(self) -> bool:
        """Whether the weights are on the device."""
        return self._parts is not None

    def free_memory(self) -> None:
        """Free the weights' memory; the next text loads them again."""
        import torch

        if self._parts is not None:
            self._parts = None
            torch.cuda.empty_cache()  # does nothing where there is no GPU

    def prepare(self, prompts: Sequence[Prompt], /, *answers: Sequence[str]) -> Encoded:
        """Return the texts as tokens, which needs no weights; the provenance then says
        how many were cut.
        """
        encoded = self.encoder.encode(prompts, *answers)
        if encoded.ids:
            self.progress["truncated"] = int(np.sum(encoded.truncated))
        return encoded

    def stream(self, texts: Sequence[Text], /) -> Stream:
        """Yield positions in `texts` and their scores, as the batches come."""
        if texts:
            encoded = self.prepare(*list_columns(texts))
            yield from self.forward(encoded, np.arange(len(texts)))

    def score_alone(self, texts: Sequence[Text], /) -> Floats:
        """Return the scores of the texts, each forwarded by itself."""
        encoded = self.prepare(*list_columns(texts))
        return self.forward_alone(encoded, np.arange(len(texts)))

    def places(self, encoded: Encoded, texts: Ints, /) -> tuple[list[Ids], list[Ints]]:
        """Return token ids of the texts and the positions that are read in each."""
        backbone, readout = self.parts
        located = readout.locate(self.encoder, encoded, texts)
        return self._known_ids(backbone, encoded, texts), located.positions

    def forward(self, encoded: Encoded, texts: Ints, /) -> Stream:
        """Yield numbers and scores of the texts with these numbers, as the batches
        come.
        """
        backbone, readout = self.parts
        places = readout.locate(self.encoder, encoded, texts)
        ids = self._known_ids(backbone, encoded, texts)
        with self.evaluating():
            batches = backbone.hidden(
                ids,
                places.positions,
                groups=encoded.groups[texts],
                budget=self.max_batch_tokens,
            )
            outputs = ((batch.texts, readout.read(batch, places)) for batch in batches)
            for rows, values in read_late(outputs):
                self.progress |= {
                    "attention": backbone.model.config._attn_implementation,
                    "packs": backbone.way,
                }
                yield texts[rows], readout.score(values, places, rows)

    def forward_alone(self, encoded: Encoded, texts: Ints, /) -> Floats:
        """Return scores of the texts, each forwarded by itself: the reference for
        everything faster.
        """
        scores = np.empty(len(texts))
        for row, text in enumerate(texts):
            outputs, places = self.read_alone(encoded, text)
            values = self.readout.score(outputs, places, np.zeros(1, np.intp))
            # Of a process model the steps' scores stand behind it.
            scores[row] = values.flat[0]
        return scores

    def read_alone(self, encoded: Encoded, text: int) -> "tuple[Floats, Places]":
        """Return the readout's outputs for one text, forwarded by itself with the
        model's own attention, and where it was read.
        """
        backbone, readout = self.parts
        places = readout.locate(self.encoder, encoded, np.array([text]))
        (positions,) = places.positions
        (ids,) = self._known_ids(backbone, encoded, [text])
        with self.evaluating():
            rows = backbone.alone(ids, positions)
        batch = Batch(np.zeros(1, np.intp), rows, [np.arange(len(positions))])
        outputs = readout.read(batch, places)
        return outputs.cpu().double().numpy(), places

    def _known_ids(
        self, backbone: "Backbone", encoded: Encoded, texts: Iterable[int]
    ) -> list[Ids]:
        """Return token ids of the texts; refuse those that the model has no embedding
        for.
        """
        ids = [encoded.ids[text] for text in texts]
        n_embeddings = loading.vocabulary_size(backbone.model)
        largest = max((int(text_ids.max()) for text_ids in ids), default=0)
        if largest >= n_embeddings:
            n_tokens = len(self.tokenizer)
            problem = (
                f"its tokenizer of {n_tokens} tokens writes the token {largest}, and "
                f"the model has {n_embeddings} embeddings"
            )
            remedy = "use the tokenizer that was saved with the weights"
            raise self.checkpoint.error(problem, remedy)
        return ids

    def token_rewards(self, encoded: Encoded, text: int) -> tuple[Ids, Floats] | None:
        """Token ids of an answer, and the score of the answer up to and including each
        of them; None where the beginnings of a text do not share its states.
        """
        return None

    def count_cut(self, texts: Sequence[Text], /) -> Provenance:
        """Return how many of a run's texts were cut, also of those that this scorer did
        not score now.
        """
        if self.encoder.options["truncate"] is None:
            return {}
        encoded = self.encoder.encode(*list_columns(texts))
        return {"truncated": int(np.sum(encoded.truncated))}

    def checks(
        self, responses: pd.DataFrame, sample: int = 24, /
    ) -> Iterator[tuple[str, Finding]]:
        """Yield the checks of weights, tokens and scores."""
        return examine_model(self, responses, sample)

    def token_ids(self, texts: Sequence[Text], /) -> list[Ids]:
        """Return the token ids of the texts."""
        return self.encoder.encode(*list_columns(texts)).ids

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[object, ...]]:
        return self.remake, ()

    @cached_property
    def fingerprint(self) -> str | None:
        """Hash of all that decides a score; scores with the same fingerprint and text
        key are the same. None for a model in memory that nobody has named.
        """
        content = self.checkpoint.content
        if content is None:
            return None
        parts = {
            "scoring": SCORING_VERSION,
            "content": content,
            "dtype": str(self.dtype),
            "texts": self.encoder.fingerprint,
        }
        return hash_parts(parts | self.details)

    def provenance(self) -> Provenance:
        """Where the scores come from: checkpoint, head, number type, device, versions,
        and how texts were encoded.
        """
        return {
            "model": self.checkpoint.name,
            "revision": self.checkpoint.revision,
            "content": self.checkpoint.content,
            **self.checkpoint.origin,
            **self.details,
            "fingerprint": self.fingerprint,
            "dtype": str(self.dtype).removeprefix("torch."),
            "device": str(self.device),
            "versions": versions(),
            **self.encoder.provenance(),
            **self.progress,
        }


@cache
def versions() -> dict[str, str]:
    """Return the versions of the libraries that compute the scores."""
    names = ("torch", "transformers", "tokenizers", "numpy")
    return {name: metadata.version(name) for name in names}
