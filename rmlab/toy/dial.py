"""Scorers with a bias dial: they know the right answers, and users set their biases."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from statistics import NormalDist

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.tables import check_responses


@dataclass(frozen=True)
class Dial:
    """A scorer whose preferences are known exactly; `scorer` makes it.

    `traits` holds for each prompt and response whether it is right (0 to 1) and its
    steps of style (0 to 2).
    """

    name: str
    skill: float
    style: float
    length: float
    noise: float
    seed: int
    traits: dict[tuple[str, str], tuple[float, float]]

    def __call__(
        self, prompts: Sequence[object], responses: Sequence[str]
    ) -> NDArray[np.float64]:
        """Return one score per prompt and response, whatever else is scored."""
        scores = np.empty(len(responses))
        for i, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
            scores[i] = self._score(_text(prompt), response)
        return scores

    def _score(self, prompt: str, response: str) -> float:
        right, steps = self.traits.get((prompt, response), (0.0, 0.0))
        doublings = float(np.log2(max(len(response), 1)))
        score = self.skill * right + self.style * steps
        score += self.length * doublings
        if self.noise:
            score += self.noise * text_noise(self.seed, prompt, response)
        return score


def scorer(
    responses: pd.DataFrame,
    *,
    skill: float = 1.0,
    style: float = 0.5,
    length: float = 0.0,
    noise: float = 1.0,
    seed: int = 0,
    name: str | None = None,
) -> Dial:
    """Make a scorer that knows the right responses and has biases that you choose.

    score = skill * (1 if chosen) + style * (0 concise, 1 plain, 2 markdown) + length *
    log2(characters) + noise * z, with z standard normal, drawn from the text itself:
    the same text always gets the same score. One step of style is therefore worth style
    / skill units of correctness, the value that `exchange_rate` estimates.

    Parameters
    ----------
    responses : DataFrame
        A responses table. A text that stands on both sides, or in two styles, gets the
        mean of them; a text outside the table counts as wrong and concise.
    skill : float
        Weight of correctness.
    style : float
        Weight of a step of style.
    length : float
        Weight of a doubling of the characters.
    noise : float
        Standard deviation of the noise.
    seed : int
        Seed of the noise.
    name : str, optional
        The scorer's name; by default its settings.

    Returns
    -------
    Dial
        A scorer for `rmlab.score`.

    Examples
    --------
    >>> texts = pd.DataFrame(
    ...     {
    ...         "benchmark": "b",
    ...         "domain": "math",
    ...         "id": "0",
    ...         "label": ["chosen", "rejected"],
    ...         "slot": 0,
    ...         "style": "plain",
    ...         "prompt": "2 + 2?",
    ...         "response": ["4", "5"],
    ...     }
    ... )
    >>> score = scorer(texts, skill=2.0, style=0.5, noise=0.0)
    >>> score(["2 + 2?", "2 + 2?"], ["4", "5"]).tolist()
    [2.5, 0.5]
    """
    responses = check_responses(responses)
    facts = responses.assign(
        prompt=responses["prompt"].map(_text),
        right=responses["label"] == "chosen",
        steps=responses["style"].cat.codes.clip(lower=0),
    )
    by_text = facts.groupby(["prompt", "response"], sort=False)
    means = by_text[["right", "steps"]].mean()
    traits = {}
    for prompt, response, right, steps in means.reset_index().itertuples(index=False):
        traits[prompt, response] = (right, steps)
    if name is None:
        name = f"toy skill={skill:g} style={style:g} length={length:g} noise={noise:g}"
    return Dial(name, skill, style, length, noise, seed, traits)


def _text(prompt: object) -> str:
    return prompt if isinstance(prompt, str) else json.dumps(prompt, sort_keys=True)


def text_noise(seed: int, prompt: str, response: str) -> float:
    """Return a standard normal number that depends on nothing but its arguments."""
    text = json.dumps([seed, prompt, response])
    digest = blake2b(text.encode(), digest_size=8).digest()
    bits = int.from_bytes(digest, "big") // 2**11
    uniform = (bits + 0.5) / 2**53
    return NormalDist().inv_cdf(uniform)
