"""Scorers with a bias dial: they know which answers are right, and the user sets what
else they like.
"""

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
        """Return one score per prompt and response, independent of their order and of
        the other texts.
        """
        return np.array(
            [self._score(_text(p), r) for p, r in zip(prompts, responses, strict=True)],
            dtype=float,
        )

    def _score(self, prompt: str, response: str) -> float:
        right, steps = self.traits.get((prompt, response), (0.0, 0.0))
        doublings = float(np.log2(max(len(response), 1)))
        noise = (
            self.noise * text_noise(self.seed, prompt, response) if self.noise else 0.0
        )
        return self.skill * right + self.style * steps + self.length * doublings + noise


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
    """Make a scorer with a bias dial: it knows which responses are right, and you
    choose what else it likes.

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
    >>> row = {"benchmark": "b", "domain": "math", "id": "0", "slot": 0, "prompt": "2 + 2?", "style": "plain"}
    >>> texts = pd.DataFrame([row | {"label": "chosen", "response": "4"}, row | {"label": "rejected", "response": "5"}])
    >>> scorer(texts, skill=2.0, style=0.5, noise=0.0)(["2 + 2?", "2 + 2?"], ["4", "5"]).tolist()
    [2.5, 0.5]
    """
    responses = check_responses(responses)
    facts = responses.assign(
        prompt=responses["prompt"].map(_text),
        right=responses["label"] == "chosen",
        steps=responses["style"].cat.codes.clip(lower=0),
    )
    means = facts.groupby(["prompt", "response"], sort=False)[["right", "steps"]].mean()
    traits = dict(
        zip(means.index, means.itertuples(index=False, name=None), strict=True)
    )
    name = (
        f"toy skill={skill:g} style={style:g} length={length:g} noise={noise:g}"
        if name is None
        else name
    )
    return Dial(name, skill, style, length, noise, seed, traits)


def _text(prompt: object) -> str:
    return prompt if isinstance(prompt, str) else json.dumps(prompt, sort_keys=True)


def text_noise(seed: int, prompt: str, response: str) -> float:
    """Return a standard normal number that depends on nothing but its arguments."""
    digest = blake2b(
        json.dumps([seed, prompt, response]).encode(), digest_size=8
    ).digest()
    return NormalDist().inv_cdf((int.from_bytes(digest, "big") // 2**11 + 0.5) / 2**53)
