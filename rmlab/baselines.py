"""Scorers that do not read the answer: what any reward model has to beat."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from rmlab.styles.counts import features_of
from rmlab.tables import response_text

Prompt = str | Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Baseline:
    """A scorer whose reward of an answer is `reward(prompt, response)`, in any batch.

    Called with prompts and responses of equal length it returns one float64 reward per
    response.
    """

    name: str
    reward: Callable[[Prompt, str], float]

    def __call__(
        self, prompts: Sequence[Prompt], responses: Sequence[str]
    ) -> NDArray[np.float64]:
        """Rewards of the responses, in order; ValueError where the lengths differ."""
        texts = zip(prompts, responses, strict=True)
        return np.array([self.reward(*text) for text in texts], np.float64)


def _characters(prompt: Prompt, response: str) -> float:
    return len(response_text(response))


def _brevity(prompt: Prompt, response: str) -> float:
    return -_characters(prompt, response)


def _marks(prompt: Prompt, response: str) -> float:
    return features_of(response_text(response))["markdown"]


def _zero(prompt: Prompt, response: str) -> float:
    return 0.0


def _draw(prompt: Prompt, response: str) -> float:
    """A uniform number in [0, 1) that depends on prompt and response only."""
    # JSON keeps the parts apart and turns lone surrogates, which UTF-8 cannot hold,
    # into escapes.
    text = json.dumps(["random", 0, prompt, response], sort_keys=True)
    digest = blake2b(text.encode(), digest_size=8).digest()
    bits = int.from_bytes(digest, "big") >> 11
    return bits / 2**53


longest = Baseline("longest", _characters)
shortest = Baseline("shortest", _brevity)
most_markdown = Baseline("most_markdown", _marks)
random = Baseline("random", _draw)
constant = Baseline("constant", _zero)

ALL = {
    "longest": longest,
    "shortest": shortest,
    "most_markdown": most_markdown,
    "random": random,
    "constant": constant,
}
NAMES = tuple(ALL)
DRAWN = "random draw"
"""Name of scores drawn for a table without texts; `random` reads them and differs."""


def is_baseline(name: str) -> bool:
    """Whether a model's name is that of a content-blind baseline.

    A baseline is compared, but has no rank among models.
    """
    return name in (*NAMES, DRAWN)
