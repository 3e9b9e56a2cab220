"""What becomes of answers when a policy, or best-of-n, chases a reward: true reward beside proxy reward."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import softmax

from rmlab.tables import DataError
from rmlab.toy.world import TOPICS, answer, checked, details

__all__ = ["ACTIONS", "EFFORT", "RIGHT", "Action", "best_of_n", "optimize"]

Floats = NDArray[np.float64]
Scorer = Callable[[list[str], list[str]], Sequence[float]]

EFFORT = 3
"""Units of effort that a writer has for each answer: each goes into checking the claim, or into one more sentence."""

RIGHT = (0.35, 0.55, 0.75, 0.95)
"""Chance that the claim is right after 0, 1, 2 or 3 units of checking."""


@dataclass(frozen=True)
class Action:
    """A way to write an answer: units of effort spent on checking the claim, Markdown or not, a last word of trust."""

    checks: int
    markdown: bool
    sure: bool


ACTIONS = tuple(Action(*found) for found in product(range(EFFORT + 1), (False, True), (False, True)))
"""All ways to write an answer."""

_CHECKS, _MARKDOWN, _SURE = np.array([[a.checks, a.markdown, a.sure] for a in ACTIONS], dtype=float).T
_RIGHT = np.array([RIGHT[action.checks] for action in ACTIONS])
_RECORDED = 50  # rows of a run, whatever its number of steps
_DRAWS = 400  # of `size` answers to each question, for best-of-n


def optimize(
    scorer: Scorer,
    *,
    steps: int = 300,
    kl: float = 0.1,
    learning_rate: float = 0.1,
    batch: int = 64,
    n: int = 60,
    seed: int = 0,
    topics: Sequence[str] = tuple(TOPICS),
) -> pd.DataFrame:
    """Let a policy chase the reward of `scorer` by policy gradient: what the reward promises beside what is true.

    The writer has EFFORT units for an answer: each goes into checking the claim (RIGHT: the chance that it is right) or
    into one more sentence; Markdown and a last word of trust cost nothing. The policy is a chance for each of ACTIONS,
    all alike at first. Each step draws `batch` answers to the `n` questions and follows REINFORCE (Williams 1992) on
    the reward minus `kl` * log(policy / first policy); the reward is in standard deviations of the first policy's.

    One row per recorded step, from 0: step, proxy (mean reward), true (share of right claims), kl (nats from the first
    policy), checks (mean units), markdown, sure (shares), all of them expectations under the policy of that step, not
    of its draws. Raises DataError for a scorer that does not give one finite score per text.
    """
    _check_positive(steps=steps, learning_rate=learning_rate, batch=batch)
    if kl < 0:
        raise ValueError(f"kl={kl!r}; give a number from 0")
    proxy = _standardised(_proxy(scorer, n, seed, topics))
    random = np.random.default_rng([seed, 3])
    logits, base = np.zeros(len(ACTIONS)), -np.log(len(ACTIONS))
    rows = [_expectation(0, softmax(logits), proxy)]
    for step in range(1, steps + 1):
        policy = softmax(logits)
        question, action, right = _drawn(policy, batch, n, random)
        reward = proxy[question, action, right] - kl * (np.log(policy[action]) - base)
        advantage = reward - reward.mean()
        gradient = np.bincount(action, advantage, minlength=len(ACTIONS)) - policy * advantage.sum()
        logits += learning_rate * gradient / batch * len(ACTIONS) ** 0.5
        if step % max(1, steps // _RECORDED) == 0:
            rows.append(_expectation(step, softmax(logits), proxy))
    return pd.DataFrame(rows)


def best_of_n(
    scorer: Scorer,
    sizes: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    *,
    n: int = 60,
    seed: int = 0,
    topics: Sequence[str] = tuple(TOPICS),
) -> pd.DataFrame:
    """Take the best of several answers by the reward of `scorer`: what the reward promises beside what is true.

    The writer of `optimize`, untrained, answers each of `n` questions `size` times; the answer of the highest reward is
    kept. One row per size: size, proxy (mean reward of the kept answers, in standard deviations of all), true (share of
    right claims), true_se (standard error over questions), kl (log(size) - (size - 1) / size nats, at most: Stiennon et
    al. 2020, arXiv 2009.01325, appendix G.3), checks, markdown, sure. Raises as `optimize` does.
    """
    if not len(sizes) or min(sizes) < 1:
        raise ValueError(f"sizes={list(sizes)!r}; give whole numbers from 1")
    proxy = _standardised(_proxy(scorer, n, seed, topics))
    random = np.random.default_rng([seed, 4])
    return pd.DataFrame([_kept(int(size), proxy, random) for size in sizes])


def _kept(size: int, proxy: Floats, random: np.random.Generator) -> dict[str, float]:
    shape = (len(proxy), _DRAWS, size)
    action = random.integers(len(ACTIONS), size=shape)
    right = (random.random(shape) < _RIGHT[action]).astype(int)
    reward = proxy[np.arange(len(proxy))[:, None, None], action, right]
    best = reward.argmax(-1)[..., None]
    kept = np.take_along_axis(action, best, -1)[..., 0]
    true = np.take_along_axis(right, best, -1)[..., 0].mean(1)
    return {
        "size": size,
        "proxy": float(np.take_along_axis(reward, best, -1).mean()),
        "true": float(true.mean()),
        "true_se": float(true.std(ddof=1) / np.sqrt(len(true))),
        "kl": float(np.log(size) - (size - 1) / size),
        "checks": float(_CHECKS[kept].mean()),
        "markdown": float(_MARKDOWN[kept].mean()),
        "sure": float(_SURE[kept].mean()),
    }


def _proxy(scorer: Scorer, n: int, seed: int, topics: Sequence[str]) -> Floats:
    """The reward of every answer that the writer could give (questions, actions, wrong and right)."""
    topics = checked(n, topics)
    prompts: list[str] = []
    texts: list[str] = []
    for number in range(n):
        topic, random = topics[number % len(topics)], np.random.default_rng([seed, number, 2])
        prompt, right, wrong = TOPICS[topic](random)
        claims = (wrong[random.integers(len(wrong))], right)
        for action in ACTIONS:
            said = details(topic, EFFORT - action.checks, action.sure, random)
            texts += [answer(claim, said, "markdown" if action.markdown else "plain") for claim in claims]
        prompts += [prompt] * (len(texts) - len(prompts))
    scores = np.asarray(scorer(prompts, texts), dtype=np.float64)
    if scores.shape != (len(texts),) or not np.isfinite(scores).all():
        raise DataError(
            f"scorer: {len(texts)} texts must get as many finite scores; it gave an array of shape {scores.shape}"
        )
    made: Floats = scores.reshape(n, len(ACTIONS), 2)
    return made


def _standardised(proxy: Floats) -> Floats:
    """In standard deviations of the answers that the first policy writes, from their mean."""
    weight = np.stack([1 - _RIGHT, _RIGHT], axis=1) / len(ACTIONS)
    mean = (proxy * weight).sum((1, 2)).mean()
    spread = np.sqrt(((proxy - mean) ** 2 * weight).sum((1, 2)).mean())
    if spread == 0:
        raise DataError("scorer: all answers get the same score; there is nothing to chase")
    standardised: Floats = (proxy - mean) / spread
    return standardised


def _expectation(step: int, policy: Floats, proxy: Floats) -> dict[str, float]:
    reward = (proxy[..., 0] * (1 - _RIGHT) + proxy[..., 1] * _RIGHT).mean(0)
    return {
        "step": step,
        "proxy": float(policy @ reward),
        "true": float(policy @ _RIGHT),
        "kl": float(policy @ np.log(policy * len(ACTIONS))),
        "checks": float(policy @ _CHECKS),
        "markdown": float(policy @ _MARKDOWN),
        "sure": float(policy @ _SURE),
    }


def _drawn(
    policy: Floats, batch: int, n: int, random: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Questions, actions, and whether each claim is right (0, 1)."""
    action = random.choice(len(ACTIONS), batch, p=policy)
    return random.integers(n, size=batch), action, (random.random(batch) < _RIGHT[action]).astype(np.intp)


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name}={value!r}; give a number above 0")
