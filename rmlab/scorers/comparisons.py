"""Comparisons as token ids, each in one order, and what they are called in keys and messages."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmlab.scorers.forms import Texts
from rmlab.scorers.protocol import Prompt

__all__ = ["Comparisons", "content_key", "order_name", "require_one_of_each"]

Ids = NDArray[np.int32]
Ints = NDArray[np.intp]


@dataclass(frozen=True)
class Comparisons:
    """Comparisons as token ids, each in one order. `keys`: one content key each. `order`: as in `Prepared`."""

    texts: Texts
    groups: Ints
    keys: list[str]
    order: Ints


def content_key(ids: Ids, reads: Ints) -> str:
    """Hash of the token ids and of where they are read: with markers inside answers the ids alone do not say where."""
    return hashlib.blake2b(np.concatenate([ids, reads]).astype(np.int32).tobytes(), digest_size=16).hexdigest()


def require_one_of_each(prompts: Sequence[Prompt], first: Sequence[str], second: Sequence[str]) -> None:
    """Raise ValueError unless there is a first and a second answer for each prompt."""
    if not len(prompts) == len(first) == len(second):
        raise ValueError(f"{len(prompts)} prompts, {len(first)} and {len(second)} answers; give one of each")


def order_name(first: str, second: str) -> str:
    """A comparison in one order, as messages name it."""
    return f"{first:.25} before {second:.25}"
