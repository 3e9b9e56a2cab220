"""What a scorer is: the Protocols that `rmlab.score`, `rmlab.prefer`, the doctor and the widgets rely on.

A function of (prompts, responses) is a scorer already. A class becomes one by having the members of a Protocol; it
inherits from nothing. This is the only file that asks an object which members it has.
"""

from collections.abc import Callable, Iterable, Sequence
from inspect import getattr_static
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeGuard, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import torch

    from rmlab.inference.forward import Batch
    from rmlab.scorers.checkpoint import Checkpoint
    from rmlab.scorers.forms import Texts
    from rmlab.scorers.streaming import Prepared

__all__ = [
    "AnyScorer",
    "Checkable",
    "EncodeOptions",
    "Inspectable",
    "InspectablePairwise",
    "PairwiseScorer",
    "PlainScorer",
    "Prompt",
    "Provenance",
    "RunOptions",
    "Scorer",
    "StreamingPairwiseScorer",
    "StreamingScorer",
    "SumScorer",
    "Term",
    "Traceable",
    "fingerprint_of",
    "is_checkable",
    "is_inspectable",
    "is_inspectable_pairwise",
    "is_pairwise",
    "is_plain",
    "is_streaming",
    "is_streaming_pairwise",
    "is_sum",
    "is_traceable",
    "name_of",
    "order_of",
    "provenance_of",
]

Prompt = str | list[dict[str, str]]
"""A question, or the messages before the answer: a list of {"role": ..., "content": ...}."""

Ints = NDArray[np.intp]
Floats = NDArray[np.float64]
Provenance = dict[str, Any]
"""Plain values that JSON can hold: what scored the texts."""

P = TypeVar("P")
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
        numbers in the order in which neighbours are best scored together.
        """

    def stream(self, prepared: P, wanted: Ints, /) -> Iterable[tuple[Ints, Floats]]:
        """Numbers and scores of the texts numbered `wanted`, batch by batch, in any order, each text once."""


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


class EncodeOptions(TypedDict, total=False):
    """How texts become tokens; the keywords of `rmlab.inference.template.encode`."""

    template: str | None
    eos: bool | None
    max_length: int | None
    truncate: str | None
    convention: str | None


class RunOptions(TypedDict, total=False):
    """How tokens are forwarded; none of these changes a score."""

    budget: int | None
    chunk: int | None
    together: bool | None


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
    def tokenizer(self) -> Any:
        """The transformers tokenizer."""

    @property
    def backbone(self) -> Any:
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
    def tokenizer(self) -> Any:
        """The transformers tokenizer."""

    @property
    def backbone(self) -> Any:
        """The transformers base model below the head; loads the weights."""

    def prepare(self, prompts: Sequence[Prompt], responses: Sequence[str], /) -> "Prepared":
        """As of `StreamingScorer`."""

    def places(self, prepared: "Prepared", wanted: Ints, /) -> tuple[list[NDArray[np.int32]], list[Ints]]:
        """Token ids of the texts and the positions that are read in each."""

    def read_head(self, batch: "Batch", /) -> Floats:
        """The head on each text's hidden states, shape (texts,)."""


AnyScorer = PlainScorer | StreamingScorer[Any] | PairwiseScorer | StreamingPairwiseScorer[Any]
"""Whatever `rmlab.score` or `rmlab.prefer` takes beside a string."""


def is_plain(scorer: object) -> TypeGuard[PlainScorer]:
    """Whether it can be called with (prompts, responses)."""
    return callable(scorer)


def is_streaming(scorer: object) -> TypeGuard[StreamingScorer[Any]]:
    """Whether it prepares and streams texts: single ones, or comparisons where `is_pairwise` too."""
    return _can(scorer, "prepare", "stream")


def is_pairwise(scorer: object) -> TypeGuard[PairwiseScorer]:
    """Whether it compares two answers."""
    return _can(scorer, "prefer")


def is_streaming_pairwise(scorer: object) -> TypeGuard[StreamingPairwiseScorer[Any]]:
    """Whether it streams comparisons, each in both orders."""
    return _can(scorer, "prefer", "prepare", "stream", "average")


def is_sum(scorer: object) -> TypeGuard[SumScorer[Any]]:
    """Whether its score is a weighted sum of several models' scores."""
    return _has(scorer, "terms")


def is_checkable(scorer: object) -> TypeGuard[Checkable[Any]]:
    """Whether it can score texts each by itself, so that a run may check itself."""
    return _can(scorer, "alone")


def is_inspectable(scorer: object) -> TypeGuard[Inspectable[Any]]:
    """Whether the doctor can examine it as a scorer of single texts; told without loading its weights."""
    return _is_local(scorer) and not is_pairwise(scorer)


def is_inspectable_pairwise(scorer: object) -> TypeGuard[InspectablePairwise[Any]]:
    """Whether the doctor can examine it as a pairwise scorer; told without loading its weights."""
    return is_streaming_pairwise(scorer) and _is_local(scorer)


def is_traceable(scorer: object) -> TypeGuard[Traceable]:
    """Whether its head can be read after every token; told without loading its weights."""
    return _can(scorer, "prepare", "places", "read_head") and _has(scorer, "backbone", "tokenizer", "looks")


def name_of(scorer: object) -> str:
    """Its `name`, or a function's `__name__`; TypeError for what is no scorer.

    >>> def brevity(prompts, responses):
    ...     return [-len(response) for response in responses]
    >>> name_of(brevity)
    'brevity'
    """
    name = getattr(scorer, "name", None) or getattr(scorer, "__name__", None)
    if not isinstance(name, str):
        raise TypeError(
            f"model: {type(scorer).__name__} {scorer!r:.80} is not a scorer; allowed: a baseline's name, a model id, a "
            "folder, a function of (prompts, responses), or an object with a name and such a call"
        )
    return name


def fingerprint_of(scorer: object) -> str | None:
    """What tells its scores from those of a changed version, or None where it has no `fingerprint`."""
    found = getattr(scorer, "fingerprint", None)
    return None if not found else str(found)


def provenance_of(scorer: object) -> Provenance:
    """The class or function that scores, its fingerprint, and what it says of itself (`provenance()`, if it has it)."""
    code = scorer if hasattr(scorer, "__qualname__") else type(scorer)
    about = {"scorer": f"{code.__module__}.{code.__qualname__}", "fingerprint": fingerprint_of(scorer)}
    return about | (dict(scorer.provenance()) if hasattr(scorer, "provenance") else {})


def order_of(prepared: object, default: Ints) -> Ints:
    """The order in which the prepared texts are best scored: their own, or else `default`."""
    return np.asarray(getattr(prepared, "order", default), np.intp)


def _is_local(scorer: object) -> bool:
    return _can(scorer, "alone", "stream", "places", "in_float32") and _has(scorer, "backbone", "tokenizer")


def _can(scorer: object, *methods: str) -> bool:
    return all(callable(getattr(scorer, method, None)) for method in methods)


def _has(scorer: object, *members: str) -> bool:
    # Looking a property up must not run it: some load weights.
    return all(getattr_static(scorer, member, None) is not None for member in members)
