"""Models whose weights are on this machine: their options, their texts as tokens, and
the way of texts to scores.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, cached_property, partial, wraps
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypedDict, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.forward import Batch, hidden
from rmlab.inference.memory import read_late
from rmlab.inference.passes import alone, how_packed
from rmlab.inference.template import Encoded, encode, read_template
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
from rmlab.scorers.checkpoints.tokenizer_file import load_tokenizer
from rmlab.scorers.models import backbone as backbones
from rmlab.tables import DataError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Ids = NDArray[np.int32]
Options = ParamSpec("Options")
S = TypeVar("S", bound="LocalScorer")


class EncodeOptions(TypedDict, total=False):
    """How texts become tokens; the keywords of `rmlab.inference.template.encode`."""

    template: str | Path | None
    eos: bool | None
    max_length: int | None
    truncate: str | None
    convention: str | None


class LocalScorer(Scorer):
    """A model on this machine, whose weights are loaded when the first text is scored.

    `checkpoints`: of the model, or of several; `checkpoint` is the first. `remake`:
    makes the model anew elsewhere. `encode_options`: how texts become tokens. `budget`:
    tokens forwarded at once. `n_answers`: of each text. `window`: the longest text that
    it was trained on, in tokens, where its configuration does not say so. `n_added`:
    tokens that it reads beside a text's own. `details`: what decides a score beside
    weights, number type and tokens. `head_title`: what is read, for people.
    """

    remake: Callable[..., Self]
    details: Provenance
    head_title = ""
    n_added = 0
    n_answers = 1
    window: int | None = None

    def __init__(
        self,
        checkpoints: list[Checkpoint],
        options: EncodeOptions,
        *,
        name: str | None = None,
        device: "str | torch.device | None" = None,
        dtype: "str | torch.dtype | None" = None,
        budget: int | None = None,
    ) -> None:
        self.checkpoint, *_ = self.checkpoints = checkpoints
        self.name = name or self.checkpoint.title
        self.device = backbones.device(device)
        self.dtype = backbones.dtype(dtype, self.device)
        self.encode_options: EncodeOptions = {
            **options,
            "template": read_template(options["template"]),
        }
        self.budget = budget
        self.encoding: Provenance = {}
        self._forwarded: Provenance = {"attention": None, "packs": None}

    def prepare(self, prompts: Sequence[Prompt], /, *answers: Sequence[str]) -> Encoded:
        """Return the texts as tokens, which needs no weights; the provenance then says
        how they were encoded.
        """
        encoded = self.encode(prompts, *answers)
        self.encoding |= {
            "template": encoded.source,
            "template_hash": encoded.template_hash,
        }
        self.encoding |= {
            "date_string": encoded.date,
            "convention": self.encode_options["convention"],
        }
        if len(prompts):
            self.encoding["truncated"] = int(np.sum(encoded.truncated))
        return encoded

    def encode(self, prompts: Sequence[Prompt], /, *answers: Sequence[str]) -> Encoded:
        """Return the texts as tokens."""
        return encode(
            self.tokenizer,
            prompts,
            *answers,
            **self.encode_options | {"max_length": self.longest},
        )

    @abstractmethod
    def places(
        self, prepared: Encoded, numbers: Ints, /
    ) -> tuple[list[Ids], list[Ints]]:
        """Return token ids of the texts and the positions that are read in each."""

    @abstractmethod
    def read_states(
        self, batch: Batch, prepared: Encoded, numbers: Ints, /
    ) -> "torch.Tensor":
        """Return the head's outputs for the hidden states of a batch of texts, still on
        the device.
        """

    def finish(self, outputs: Floats, prepared: Encoded, numbers: Ints, /) -> Floats:
        """Return the scores of a batch of texts from the head's outputs."""
        return outputs

    @cached_property
    @abstractmethod
    def parts(self) -> "tuple[PreTrainedModel, *tuple[Any, ...]]":
        """The transformers model that is forwarded, its head and where that is read;
        loads the weights.
        """

    @property
    def backbone(self) -> "PreTrainedModel":
        """The transformers model that is forwarded; loads the weights."""
        return self.parts[0]

    def stream(self, texts: Sequence[Text], /) -> Stream:
        """Yield positions in `texts` and their scores, as the batches come."""
        if texts:
            yield from self.forward(
                self.prepare(*list_columns(texts)), np.arange(len(texts))
            )

    def score_alone(self, texts: Sequence[Text], /) -> Floats:
        """Return the scores of the texts, each forwarded by itself."""
        return self.forward_alone(
            self.prepare(*list_columns(texts)), np.arange(len(texts))
        )

    def forward(self, prepared: Encoded, numbers: Ints, /) -> Stream:
        """Yield numbers and scores of the texts with these `numbers`, as the batches
        come.
        """
        (ids, reads), backbone = self.places(prepared, numbers), self.parts[0]
        batches = hidden(
            backbone, ids, reads, groups=prepared.groups[numbers], budget=self.budget
        )
        outputs = (
            (batch.texts, self.read_states(batch, prepared, numbers[batch.texts]))
            for batch in batches
        )
        for texts, values in read_late(outputs):
            self._forwarded = {
                "attention": backbone.config._attn_implementation,
                "packs": how_packed(backbone)[0],
            }
            yield numbers[texts], self.finish(values, prepared, numbers[texts])

    def forward_alone(self, prepared: Encoded, numbers: Ints, /) -> Floats:
        """Return scores of the texts, each forwarded by itself: the reference for
        everything faster.
        """
        singles = [np.array([text], np.intp) for text in numbers]
        scores = [
            self.finish(self.read_alone(prepared, text), prepared, text)[0]
            for text in singles
        ]
        return np.array(scores, np.float64)

    def read_alone(self, prepared: Encoded, numbers: Ints, /) -> Floats:
        """Return the head's outputs for one text, forwarded by itself with the model's
        own attention.
        """
        (ids,), (reads,) = self.places(prepared, numbers)
        batch = Batch(
            np.zeros(1, np.intp),
            alone(self.backbone, ids, reads),
            [np.arange(len(reads))],
        )
        return cast(
            Floats, self.read_states(batch, prepared, numbers).cpu().double().numpy()
        )

    def count_cut(self, texts: Sequence[Text], /) -> Provenance:
        """Return how many of a run's texts were cut, also of those whose scores were in
        the store.
        """
        if self.encode_options["truncate"] is None:
            return {}
        return {"truncated": int(np.sum(self.encode(*list_columns(texts)).truncated))}

    def free_memory(self) -> None:
        """Free the weights' memory; the next text loads them again."""
        import torch

        if self.__dict__.pop("parts", None) is not None:
            torch.cuda.empty_cache()  # does nothing where there is no GPU

    @cached_property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """The transformers tokenizer."""
        return load_tokenizer(self.checkpoint)

    @property
    def longest(self) -> int | None:
        """The longest text, in tokens, that the model takes; None where its positions
        are only relative.
        """
        windows = [
            backbones.window(checkpoint.config) for checkpoint in self.checkpoints
        ]
        longest = self.window or min(
            (size for size in windows if size is not None), default=None
        )
        longest = self.encode_options["max_length"] or longest
        return None if longest is None else longest - self.n_added

    @cached_property
    def text_fingerprint(self) -> str:
        """Hash of how texts become tokens: the tokenizer's files and the options."""
        return hash_parts(
            {"tokenizer": self.checkpoint.tokenizer_content} | self.encode_options
        )

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that decides a score; scores with the same fingerprint and text
        key are the same.
        """
        parts = {
            "scoring": SCORING_VERSION,
            "content": self.checkpoint.content,
            "dtype": str(self.dtype),
        }
        return hash_parts(parts | {"texts": self.text_fingerprint} | self.details)

    def in_float32(self) -> Self:
        """Return the same model with float32 weights, which are loaded anew, to see
        what half precision costs.
        """
        return self.remake(dtype="float32")

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[()]]:
        # To a worker of a cluster the options travel: the weights are loaded there, on
        # the device that is there.
        return self.remake, ()

    def provenance(self) -> Provenance:
        """Where the scores come from: checkpoint, head, number type, device, versions,
        and how texts were encoded.
        """
        if not self.encoding:
            # A run that reads all scores from a store makes no tokens.
            with suppress(DataError):  # of a tokenizer without a template
                self.prepare([], *[[]] * self.n_answers)
        about: Provenance = {
            "model": self.checkpoint.name,
            "revision": self.checkpoint.revision,
        }
        about |= {
            "content": self.checkpoint.content,
            **self.details,
            "fingerprint": self.fingerprint,
        }
        about |= {
            "dtype": str(self.dtype).removeprefix("torch."),
            "device": str(self.device),
            "versions": versions(),
        }
        return about | self._forwarded | self.encoding


def remakable(make: Callable[Options, S]) -> Callable[Options, S]:
    """Let the scorer that a function makes be made anew elsewhere: the same options,
    and the device that is there.
    """

    @wraps(make)
    def make_remakable(*args: Options.args, **options: Options.kwargs) -> S:
        scorer = make(*args, **options)
        scorer.remake = partial(make_remakable, *args, **options)
        return scorer

    return make_remakable


def require_convention(convention: str | None) -> None:
    """Raise DataError for a convention that does not exist."""
    if convention not in (None, "reward-bench"):
        raise DataError(
            f"convention={convention!r}; allowed: None (special tokens once), 'reward-bench' (as its runner)"
        )


@cache
def versions() -> dict[str, str]:
    """Return the versions of the libraries that compute the scores."""
    return {
        name: metadata.version(name)
        for name in ("torch", "transformers", "tokenizers", "numpy")
    }
