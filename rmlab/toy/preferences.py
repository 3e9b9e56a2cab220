"""Preferences of annotators whose taste is known: what a toy reward model learns from."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b

import numpy as np
import pandas as pd

from rmlab.tables import LABELS, STYLES, DataError, check_responses
from rmlab.toy.world import TOPICS, answer, checked, details

__all__ = ["FULL", "SHARPNESS", "WORDS", "preferences", "taste"]

FULL = 2.0
"""What a dial at 1 makes its property worth, in units of being right: twice as much as the truth."""

WORDS = 8.0
"""How many times longer an answer must be for the whole worth of the dial `length`."""

SHARPNESS = 4.0
"""Log-odds of preferring an answer that is worth one unit more: annotators err in 1.8 % of such comparisons."""


def preferences(
    n: int = 4000,
    *,
    length: float = 0.0,
    markdown: float = 0.0,
    confidence: float = 0.0,
    label_noise: float = 0.0,
    hurried: float = 0.0,
    one_style: bool = False,
    seed: int = 0,
    topics: Sequence[str] = tuple(TOPICS),
) -> pd.DataFrame:
    """What annotators preferred: `n` comparisons of a right with a wrong answer, as data to train a reward model on.

    A responses table, two rows per comparison: `chosen` is the answer that was preferred, whether it is right or not.
    Both answers have a style, a length and a tone of their own, all by chance. An annotator prefers the first with
    probability 1 / (1 + exp(-SHARPNESS * difference in worth)) (Bradley and Terry 1952), where

    worth = right + FULL * (length * log(words) / log(WORDS) + markdown * (style is Markdown) + confidence * sure)

    so that a Bradley-Terry model learns SHARPNESS * worth. Dials, each from 0 to 1: `length`, `markdown` and
    `confidence` are tastes beside the truth; `hurried` is the share of annotators who do not check what an answer
    claims (their worth leaves `right` out, so without a taste they toss a coin); `label_noise` is the share of
    preferences turned round afterwards. `one_style`: both answers of a comparison have the same style, as in data that
    were collected to be balanced. Extra columns: right, sure (bool), worth (float), annotator (careful, hurried).
    The same seed gives the same comparisons under any dials, judged with the same luck. Raises DataError for a dial
    outside 0 to 1.

    >>> pairs = preferences(100, seed=1)
    >>> float(pairs[pairs["label"] == "chosen"]["right"].mean())
    0.96
    """
    dials = {"length": length, "markdown": markdown, "confidence": confidence}
    for name, dial in (dials | {"label_noise": label_noise, "hurried": hurried}).items():
        _check_dial(name, dial)
    topics = checked(n, topics)
    rows = [
        row
        for number in range(n)
        for row in _comparison(number, topics[number % len(topics)], seed, dials, label_noise, hurried, one_style)
    ]
    return check_responses(pd.DataFrame(rows))


def taste(words: float, style: str, sure: bool, dials: dict[str, float]) -> float:
    """What an answer's looks are worth to an annotator with these dials, in units of being right."""
    long, fancy = dials["length"] * np.log(words) / np.log(WORDS), dials["markdown"] * (style == "markdown")
    return FULL * float(long + fancy + dials["confidence"] * sure)


@dataclass(frozen=True)
class _Written:
    """An answer as the annotator sees it, and what it is worth."""

    style: str
    response: str
    right: bool
    sure: bool
    worth: float


def _comparison(
    number: int, topic: str, seed: int, dials: dict[str, float], label_noise: float, hurried: float, one_style: bool
) -> list[dict[str, object]]:
    random = np.random.default_rng([seed, number, 1])
    prompt, right, wrong = TOPICS[topic](random)
    claim, styles = wrong[random.integers(len(wrong))], random.integers(len(STYLES), size=2)
    true = _written(topic, right, True, STYLES[styles[0]], dials, random)
    false = _written(topic, claim, False, STYLES[styles[0 if one_style else 1]], dials, random)
    luck, flip, haste = _luck(seed, prompt, true.response, false.response)
    checks = haste >= hurried
    gain = true.worth - false.worth - (not checks)
    prefers_true = luck < 1 / (1 + np.exp(-SHARPNESS * gain))
    ordered = (true, false) if prefers_true != (flip < label_noise) else (false, true)
    shared = {"benchmark": "toy-preferences", "domain": topic, "id": str(number), "slot": 0, "prompt": prompt}
    annotator = "careful" if checks else "hurried"
    return [
        shared | {"label": label, **asdict(answer), "annotator": annotator}
        for label, answer in zip(LABELS, ordered, strict=True)
    ]


def _written(
    topic: str, claim: str, right: bool, style: str, dials: dict[str, float], random: np.random.Generator
) -> _Written:
    sure, sentences = bool(random.integers(2)), int(random.integers(1, 4))
    text = answer(claim, details(topic, sentences, sure, random), style)
    return _Written(style, text, right, sure, right + taste(len(text.split()), style, sure, dials))


def _luck(seed: int, *texts: str) -> tuple[float, float, float]:
    """Three numbers from 0 to 1 that depend on the texts alone: two settings differ in their dials, and the same two
    answers, should they come up again, are judged alike."""
    digest = blake2b(json.dumps([seed, *texts]).encode(), digest_size=24).digest()
    first, second, third = (int.from_bytes(digest[place : place + 8], "big") / 2**64 for place in (0, 8, 16))
    return first, second, third


def _check_dial(name: str, dial: float) -> None:
    if isinstance(dial, bool) or not isinstance(dial, int | float) or not 0 <= dial <= 1:
        raise DataError(f"{name}={dial!r} is not a setting of this dial; give a number from 0 (off) to 1 (full)")
