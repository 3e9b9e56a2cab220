"""What an object has that is to score: a function, an object of one's own, or one of the classes of `base`."""

from collections.abc import Callable
from inspect import getattr_static
from typing import Any, TypeGuard

import numpy as np

from rmlab.scorers.base import Ints, LocalPairScorer, LocalScorer, PairScorer, StreamingPairScorer, StreamingScorer
from rmlab.scorers.protocol import Checkable, Judge, PlainScorer
from rmlab.scorers.types import Provenance
from rmlab.tables import require_text


def is_plain(scorer: object) -> TypeGuard[PlainScorer]:
    """Whether it can be called with (prompts, responses)."""
    return callable(scorer)


def is_streaming(scorer: object) -> TypeGuard[StreamingScorer[Any]]:
    """Whether it prepares and streams texts: single ones, or comparisons where `is_pairwise` too."""
    return _can(scorer, "prepare", "stream")


def is_pairwise(scorer: object) -> TypeGuard[PairScorer]:
    """Whether it compares two answers."""
    return _can(scorer, "prefer")


def is_streaming_pairwise(scorer: object) -> TypeGuard[StreamingPairScorer[Any]]:
    """Whether it streams comparisons, each in both orders."""
    return _can(scorer, "prefer", "prepare", "stream", "average")


def is_judge(scorer: object) -> TypeGuard[Judge]:
    """Whether it asks a model in words, with answers that may not be readable."""
    return _can(scorer, "judge") and hasattr(scorer, "takes")


def is_sum(scorer: object) -> TypeGuard[StreamingScorer[Any]]:
    """Whether its score is a weighted sum of several models' scores."""
    return hasattr(scorer, "terms")


def is_checkable(scorer: object) -> TypeGuard[Checkable[Any]]:
    """Whether it can score texts each by itself, so that a run may check itself."""
    return _can(scorer, "alone")


def is_inspectable(scorer: object) -> TypeGuard[LocalScorer[Any]]:
    """Whether the doctor can examine it as a scorer of single texts."""
    return isinstance(scorer, LocalScorer)


def is_inspectable_pairwise(scorer: object) -> TypeGuard[LocalPairScorer[Any]]:
    """Whether the doctor can examine it as a pairwise scorer."""
    return isinstance(scorer, LocalPairScorer)


def name_of(scorer: object) -> str:
    """Its `name`, or a function's `__name__`; TypeError without either, DataError for a name that is not a string.

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
    require_text("name", name)
    return name


def columns_of(scorer: object) -> tuple[str, ...]:
    """Names of what a streaming scorer gives of each text beside its score; most give nothing."""
    return tuple(getattr(scorer, "columns", ())) if is_streaming(scorer) else ()


def fingerprint_of(scorer: object) -> str | None:
    """What tells its scores from those of a changed version, or None where it has no `fingerprint`."""
    value = getattr(scorer, "fingerprint", None)
    return None if not value else str(value)


def provenance_of(scorer: object) -> Provenance:
    """The class or function that scores, its fingerprint, and what it says of itself (`provenance()`, if it has it)."""
    code = scorer if hasattr(scorer, "__qualname__") else type(scorer)
    description: Provenance = {
        "scorer": f"{code.__module__}.{code.__qualname__}",
        "fingerprint": fingerprint_of(scorer),
    }
    return description | (dict(scorer.provenance()) if hasattr(scorer, "provenance") else {})


def remake_of(scorer: object) -> Callable[[], Any] | None:
    """What makes the scorer anew on another machine, with the device that is there; None where it travels as it is."""
    return getattr(scorer, "remake", None)


def asks_a_server(scorer: object) -> bool:
    """Whether it, or the model that speaks for a judge, asks a server, with a budget of its own."""
    # Looking a property up must not run it: some load weights.
    return getattr_static(getattr(scorer, "respondent", scorer), "client", None) is not None


def tokens_of(prepared: object) -> Ints | None:
    """How many tokens each prepared text adds to what is forwarded; None where the scorer does not say."""
    value = getattr(prepared, "tokens", None)
    return None if value is None else np.asarray(value, np.intp)


def lengths_of(prepared: object) -> Ints | None:
    """How many tokens each prepared text has; None where the scorer does not say."""
    value = getattr(prepared, "lengths", None)
    return None if value is None else np.asarray(value, np.intp)


def order_of(prepared: object, default: Ints) -> Ints:
    """The order in which the prepared texts are best scored: their own, or else `default`."""
    return np.asarray(getattr(prepared, "order", default), np.intp)


def _can(scorer: object, *methods: str) -> bool:
    return all(callable(getattr(scorer, method, None)) for method in methods)
