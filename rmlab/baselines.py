"""Scorers that do not read the answer: what any reward model has to beat."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from rmlab.styles.counts import features_of

Prompt = str | Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Baseline:
    """A scorer that gives each answer `reward(prompt, response)`, whatever else is
    scored with it.

    Called with prompts and responses of equal length it returns one float64 reward per
    response.
    """

    name: str
    reward: Callable[[Prompt, str], float]

    def __call__(
        self, prompts: Sequence[Prompt], responses: Sequence[str]
    ) -> NDArray[np.float64]:
        """Rewards of the responses, in their order; raises ValueError where the lengths
        differ.
        """
        rewards = (
            self.reward(prompt, response)
            for prompt, response in zip(prompts, responses, strict=True)
        )
        return np.fromiter(rewards, np.float64, len(responses))


def random_with(seed: int) -> Baseline:
    """A `random` baseline with another seed, named "random-<seed>".

    >>> random_with(7).name, bool(random_with(7)(["p"], ["r"])[0] == random_with(8)(["p"], ["r"])[0])
    ('random-7', False)
    """
    return Baseline(f"random-{seed}", partial(_draw, seed=seed))


def _characters(prompt: Prompt, response: str) -> float:
    return len(response)


def _brevity(prompt: Prompt, response: str) -> float:
    return -len(response)


def _marks(prompt: Prompt, response: str) -> float:
    return features_of(response)["markdown"]


def _zero(prompt: Prompt, response: str) -> float:
    return 0.0


def _draw(prompt: Prompt, response: str, *, seed: int) -> float:
    """A uniform number in [0, 1) that depends on seed, prompt and response only, on any
    machine and in any order.
    """
    # JSON keeps the parts apart and turns lone surrogates, which UTF-8 cannot hold,
    # into escapes.
    text = json.dumps(["random", seed, prompt, response], sort_keys=True)
    digest = blake2b(text.encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


longest = Baseline("longest", _characters)
shortest = Baseline("shortest", _brevity)
most_markdown = Baseline("most_markdown", _marks)
random = Baseline("random", partial(_draw, seed=0))
constant = Baseline("constant", _zero)

ALL = {
    baseline.name: baseline
    for baseline in (longest, shortest, most_markdown, random, constant)
}
NAMES = tuple(ALL)
DRAWN = "random draw"
"""Name of scores drawn for a table whose texts are not there: `random` reads the text,
so its scores are others.
"""


def is_baseline(name: str) -> bool:
    """Whether a model's name is that of a content-blind baseline: it is compared, but
    has no rank among models.
    """
    return name in (*NAMES, DRAWN) or (
        name.startswith("random-") and name[7:].isdecimal()
    )
