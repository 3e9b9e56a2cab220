"""What a scorer is: the Protocols that `rmlab.score`, `rmlab.prefer`, the doctor and the widgets rely on.

A function of (prompts, responses) is a scorer already. A class becomes one by having the members of a Protocol; it
inherits from nothing. `rmlab.scorers.guards` asks an object which of them it satisfies.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rmlab.scorers.types import EncodeOptions, Judged, Prompt, RunOptions

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rmlab.inference.forward import Batch
    from rmlab.scorers.checkpoints.checkpoint import Checkpoint
    from rmlab.scorers.forms import Texts
    from rmlab.scorers.streaming import Prepared
    from rmlab.store import Store

__all__ = [
    "AnyScorer",
    "Checkable",
    "Inspectable",
    "InspectablePairwise",
    "Judge",
    "PairwiseScorer",
    "PlainScorer",
    "RatingScorer",
    "Scorer",
    "StreamingPairwiseScorer",
    "StreamingScorer",
    "SumScorer",
    "Term",
    "Traceable",
]

Ints = NDArray[np.intp]
Floats = NDArray[np.float64]


class Keyed(Protocol):
    """Prepared texts: one content key per text; texts with one key have one score."""

    @property
    def keys(self) -> Sequence[str]:
        """The keys, in the order of the texts."""


P = TypeVar("P", bound=Keyed)
C = TypeVar("C", contravariant=True)


class Scorer(Protocol):
    """The plain scorer: two lists in, one number per text out; higher is better.

    `rmlab.score` calls it once with all distinct texts, or, with a store, with `batch` texts at a time. NaN means "no
    score" and is refused unless the caller passes `allow_missing=True`. For a store it also needs a `fingerprint`.
    """

    @property
    def name(self) -> str:
        """What the scorer is called in every table: `scores.model`."""

    def __call__(self, prompts: Sequence[Prompt], responses: Sequence[str], /) -> ArrayLike:
        """One number per response, in their order."""


PlainScorer = Scorer | Callable[[Any, Any], ArrayLike]
"""A scorer, or a plain function: that is called by its `__name__`."""


class StreamingScorer(Protocol[P]):
    """A scorer that chooses its own batches: `prepare` once, then `stream` the texts that are still wanted.

    With a store every batch is kept as it comes, so that an interrupted run resumes where it stopped.
    """

    @property
    def name(self) -> str:
        """What the scorer is called in every table."""

    @property
    def fingerprint(self) -> str:
        """Changes with everything that changes a score: stored scores are found again by it and by a text's key."""

    def prepare(self, prompts: Sequence[Prompt], responses: Sequence[str], /) -> P:
        """The texts in the scorer's own form.

        The result has `keys`, one content key per text: texts with one key have one score. It may have `order`, text
        numbers in the order in which neighbours are best scored together; `lengths`, tokens of each text; and `tokens`,
        those of them that it does not share with an earlier one, in which progress is then counted.
        """

    def stream(self, prepared: P, wanted: Ints, /) -> Iterable[tuple[Ints, Floats]]:
        """Numbers and scores of the texts numbered `wanted`, batch by batch, in any order, each text once."""


class RatingScorer(StreamingScorer[P], Protocol[P]):
    """A streaming scorer that rates attributes: `stream` gives rows, the score and then one value for each column."""

    @property
    def columns(self) -> Sequence[str]:
        """Names of the attributes; `rmlab.score` keeps them as columns of its table. Empty: plain scores."""


class PairwiseScorer(Protocol):
    """A scorer that sees two answers at once, for `rmlab.prefer`."""

    @property
    def name(self) -> str:
        """What the scorer is called in every table."""

    def prefer(self, prompts: Sequence[Prompt], first: Sequence[str], second: Sequence[str], /) -> ArrayLike:
        """One margin per comparison: above 0 where the answer in `first` is better, 0 for a tie, NaN for no answer."""


class StreamingPairwiseScorer(PairwiseScorer, Protocol[P]):
    """A pairwise scorer that streams: each comparison is asked in both orders, which `average` makes one margin.

    Without `average` it streams margins, each comparison once with the chosen answer first.
    """

    @property
    def fingerprint(self) -> str:
        """As of `StreamingScorer`."""

    def prepare(self, prompts: Sequence[Prompt], first: Sequence[str], second: Sequence[str], /) -> P:
        """As of `StreamingScorer`; one text is one comparison in one order."""

    def stream(self, prepared: P, wanted: Ints, /) -> Iterable[tuple[Ints, Floats]]:
        """As of `StreamingScorer`."""

    def average(self, there: Floats, back: Floats, /) -> Floats:
        """Margins from what `stream` gave of both orders, positive in favour of the answer first in `there`."""


class Judge(Protocol):
    """A scorer that asks a model in words, and may get no answer that can be read: `rmlab.judge` makes one.

    `takes`: what one question shows, an "answer", a "pair" of them (for `rmlab.prefer`), or the "list" of all answers
    to a prompt. `apart`: judges of subsets that are judged in another way.
    """

    @property
    def name(self) -> str:
        """What the judge is called in every table."""

    @property
    def fingerprint(self) -> str:
        """As of `StreamingScorer`."""

    @property
    def takes(self) -> Literal["answer", "pair", "list"]:
        """What is judged at once."""

    @property
    def apart(self) -> "Mapping[str, Judge]":
        """Judges of some subsets, by the subset's name."""

    def judge(
        self,
        prompts: Sequence[Prompt],
        candidates: Sequence[tuple[str, ...]],
        /,
        *,
        store: "Store | None" = None,
        progress: bool | None = None,
    ) -> Judged:
        """What it says of each prompt's candidates; raw answers go to the store, and none is asked for twice."""


class Term(Protocol[C]):
    """One summand of a `SumScorer`: it streams, has its own place in the store, and leaves the device when asked."""

    @property
    def name(self) -> str:
        """What the model is called in the store and in the provenance."""

    @property
    def fingerprint(self) -> str:
        """As of `StreamingScorer`."""

    def stream(self, prepared: C, wanted: Ints, /) -> Iterable[tuple[Ints, Floats]]:
        """As of `StreamingScorer`."""

    def leave(self) -> None:
        """Free the device's memory: the next model needs it."""


class SumScorer(StreamingScorer[P], Protocol[P]):
    """A streaming scorer whose score is a weighted sum, such as policy minus reference."""

    @property
    def terms(self) -> Sequence[tuple[float, Term[P]]]:
        """Weights and models. One after the other scores all texts; with fewer than two the scorer itself streams."""


class Checkable(Protocol[C]):
    """What the self-check of a long run needs: texts scored among others and by themselves."""

    def stream(self, prepared: C, wanted: Ints, /) -> Iterable[tuple[Ints, Floats]]:
        """As of `StreamingScorer`."""

    def alone(self, prepared: C, wanted: Ints, /) -> Floats:
        """Scores of the texts, each forwarded by itself: what packs and batches are compared with."""


class LocalModel(Protocol):
    """What the doctor looks at in any model on this machine."""

    @property
    def name(self) -> str:
        """What the scorer is called in every table."""

    @property
    def device(self) -> "torch.device":
        """Where the weights are."""

    @property
    def dtype(self) -> "torch.dtype":
        """The number type of the weights."""

    @property
    def encode_options(self) -> EncodeOptions:
        """How texts become tokens."""

    @property
    def run_options(self) -> RunOptions:
        """How tokens are forwarded."""

    @property
    def checkpoints(self) -> "Sequence[Checkpoint]":
        """All the models behind the score."""

    @property
    def resident(self) -> "Sequence[Checkpoint]":
        """Those that are on the device at once."""

    @property
    def longest(self) -> int | None:
        """The longest text, in tokens, that it takes; None for any."""

    @property
    def sums_answer(self) -> bool:
        """Whether the score is a sum over the answer's tokens; otherwise it is read at the positions of `places`."""

    @property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """The transformers tokenizer."""

    @property
    def backbone(self) -> "PreTrainedModel":
        """The transformers model that is forwarded; loads the weights."""

    @property
    def head_title(self) -> str:
        """Which head is read, for people."""


class Inspectable(LocalModel, Checkable[P], Protocol[P]):
    """What `rmlab.doctor` examines: a streaming scorer whose tokens, positions and weights can be looked at."""

    def prepare(self, prompts: Sequence[Prompt], responses: Sequence[str], /) -> P:
        """As of `StreamingScorer`."""

    def places(self, prepared: P, wanted: Ints, /) -> tuple[list[NDArray[np.int32]], list[Ints]]:
        """Token ids of the texts and the positions that are read in each."""

    def in_float32(self) -> "Inspectable[P]":
        """The same model with float32 weights."""


class InspectablePairwise(LocalModel, Checkable[P], Protocol[P]):
    """What the doctor examines of a model that sees two answers."""

    @property
    def markers(self) -> bool:
        """Whether the head reads marker tokens inside the text instead of its end."""

    @property
    def asked(self) -> str:
        """Who wrote the words around the answers."""

    def encode(self, prompts: Sequence[Prompt], first: Sequence[str], second: Sequence[str], /) -> "Texts":
        """Comparisons as tokens, however long."""

    def prepare(self, prompts: Sequence[Prompt], first: Sequence[str], second: Sequence[str], /) -> P:
        """As of `StreamingPairwiseScorer`."""

    def average(self, there: Floats, back: Floats, /) -> Floats:
        """As of `StreamingPairwiseScorer`."""

    def places(self, prepared: P, wanted: Ints, /) -> tuple[list[NDArray[np.int32]], list[Ints]]:
        """Token ids of the texts and the positions that are read in each."""

    def in_float32(self) -> "InspectablePairwise[P]":
        """The same model with float32 weights."""


class Cumulative(Protocol):
    """What token rewards need of a score that is made of the log-probabilities of the answer's tokens."""

    @property
    def tokenizer(self) -> Any:
        """The transformers tokenizer."""

    def prepare(self, prompts: Sequence[Prompt], responses: Sequence[str], /) -> "Prepared":
        """As of `StreamingScorer`."""

    def along(self, prepared: "Prepared", text: int, /) -> tuple[NDArray[np.int32], Floats]:
        """Token ids of the text's answer, and the score of the answer up to and including each of them."""


class Traceable(Protocol):
    """What token rewards need: a head that can be read after every token of a text.

    `looks`: where the head reads, "last", "first", "mean" or "header".
    """

    @property
    def looks(self) -> tuple[str, ...]:
        """Where the head reads; loads the weights."""

    @property
    def run_options(self) -> RunOptions:
        """How tokens are forwarded."""

    @property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """The transformers tokenizer."""

    @property
    def backbone(self) -> "PreTrainedModel":
        """The transformers base model below the head; loads the weights."""

    def prepare(self, prompts: Sequence[Prompt], responses: Sequence[str], /) -> "Prepared":
        """As of `StreamingScorer`."""

    def places(self, prepared: "Prepared", wanted: Ints, /) -> tuple[list[NDArray[np.int32]], list[Ints]]:
        """Token ids of the texts and the positions that are read in each."""

    def read_head(self, batch: "Batch", /) -> Floats:
        """The head on each text's hidden states, shape (texts,)."""


AnyScorer = PlainScorer | StreamingScorer[Any] | PairwiseScorer | StreamingPairwiseScorer[Any] | Judge
"""Whatever `rmlab.score` or `rmlab.prefer` takes beside a string."""
