"""What the local scorers share: prepared texts, scores gathered from a stream, and the refusal of NaN."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from importlib import metadata
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from rmlab.tables import DataError

if TYPE_CHECKING:
    from rmlab.inference.template import Encoded

__all__ = ["Prepared", "Stream", "fingerprint", "gather", "order", "remakable", "require_convention", "versions"]

P = ParamSpec("P")
S = TypeVar("S")

Stream = Iterator[tuple[NDArray[np.intp], NDArray[np.float64]]]
"""Text numbers and their scores, as they come."""
Batches = Iterable[tuple[NDArray[np.intp], NDArray[np.float64]]]


@dataclass(frozen=True)
class Prepared:
    """Texts as token ids, ready to be scored in any order. `keys`: one content key per text.

    `order`: the texts as they should be asked for when not all are asked for at once: those that can share a pass side
    by side. `by_length`: whether those are texts of about the same length, or else of the same prompt.
    """

    encoded: "Encoded"
    responses: Sequence[str]
    by_length: bool = False

    @property
    def keys(self) -> list[str]:
        """Hash of each text's token ids: the same text has the same key, whatever row it stands in."""
        return self.encoded.keys

    @property
    def lengths(self) -> NDArray[np.intp]:
        """How many tokens each text has."""
        return np.array([len(ids) for ids in self.encoded.ids], np.intp)

    @property
    def tokens(self) -> NDArray[np.intp]:
        """How many of these have to be forwarded: all for an encoder, else those that no text before it has."""
        from rmlab.inference.planning import own_tokens

        return self.lengths if self.by_length else own_tokens(self.encoded.ids, self.encoded.groups)

    @property
    def order(self) -> NDArray[np.intp]:
        """Text numbers, neighbours beside one another."""
        return order(self.encoded.ids, self.keys) if self.by_length else np.argsort(self.encoded.groups, kind="stable")


def remakable(make: Callable[P, S]) -> Callable[P, S]:
    """Let the scorer that a function makes be made anew elsewhere: the same options, and the device that is there."""

    @wraps(make)
    def make_remakable(*args: P.args, **options: P.kwargs) -> S:
        scorer = make(*args, **options)
        scorer.remake = partial(make_remakable, *args, **options)  # type: ignore[attr-defined]
        return scorer

    return make_remakable


def order(ids: Sequence[NDArray[np.int32]], keys: Sequence[str]) -> NDArray[np.intp]:
    """Numbers of the texts from the longest to the shortest, the same however the texts stand."""
    lengths = np.array([len(sequence) for sequence in ids])
    return np.lexsort((np.asarray(keys, str), -lengths)).astype(np.intp)


def gather(
    stream: Iterable[tuple[NDArray[np.intp], NDArray[np.float64]]], responses: Sequence[str], name: str
) -> NDArray[np.float64]:
    """All scores of a stream in the order of the texts; DataError naming those that are not a finite number."""
    scores = np.full(len(responses), np.nan)
    for texts, values in stream:
        scores[texts] = values
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        examples = "; ".join(f"text {i}: {responses[i][:60]!r}" for i in bad[:3])
        raise DataError(
            f"model={name!r}: {len(bad)} of {len(scores)} scores are NaN or infinite ({examples}); an overflow in half "
            "precision is the usual cause: score with dtype='float32'"
        )
    return scores


def require_convention(convention: str | None) -> None:
    """Raise DataError for a convention that does not exist."""
    if convention not in (None, "reward-bench"):
        raise DataError(
            f"convention={convention!r}; allowed: None (each special token once), 'reward-bench' (as its runner)"
        )


def fingerprint(parts: Mapping[str, object]) -> str:
    """Hash of everything that decides a score."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def versions() -> dict[str, str]:
    """Versions of the libraries that compute the scores."""
    return {name: metadata.version(name) for name in ("torch", "transformers", "tokenizers", "numpy")}
