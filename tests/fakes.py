"""Scorers without a model, for the tests of scoring and of the store."""

import hashlib
import pickle
from itertools import cycle

import numpy as np
import pandas as pd

from rmlab import toy
from rmlab.scorers import PairScorer, Scorer
from rmlab.tables import STYLES


def toy_responses(prompts, slots):
    """Answers of growing length in words that the toy tokenizer knows."""
    words = " ".join(toy.models.TEXTS).split()
    rng = np.random.default_rng(0)
    rows = [
        (
            "toy",
            "chat",
            str(prompt),
            label,
            slot,
            f"Question {prompt}?",
            " ".join(rng.choice(words, 4 + 6 * prompt)),
        )
        for prompt in range(prompts)
        for label in ("chosen", "rejected")
        for slot in range(slots)
    ]
    return pd.DataFrame(
        rows,
        columns=["benchmark", "domain", "id", "label", "slot", "prompt", "response"],
    )


def responses(n=20, label=("chosen", "rejected"), slots=3):
    """`n` prompts with distinct texts, in RM-Bench's shape."""
    rows = [
        (
            "fake",
            "chat",
            str(i),
            side,
            slot,
            STYLES[slot % 3],
            f"prompt {i}",
            f"{side} {slot} to {i}",
        )
        for i in range(n)
        for side in label
        for slot in range(slots)
    ]
    return pd.DataFrame(
        rows,
        columns=[
            "benchmark",
            "domain",
            "id",
            "label",
            "slot",
            "style",
            "prompt",
            "response",
        ],
    )


def truth(*texts):
    """A number that depends on every character: any mix-up shows."""
    digest = hashlib.sha256("\0".join(map(str, texts)).encode()).digest()
    return int.from_bytes(digest[:6]) / 2**46 - 2.0


class Streaming(Scorer):
    """A streaming scorer: batches of `size`, a fresh order each time, remembers what it
    was asked to forward.
    """

    fingerprint = "fake-1"

    def __init__(self, name="fake", size=7, seed=0, before=None, nan=()):
        self.name, self.size, self.before, self.nan = name, size, before, set(nan)
        self.rng = np.random.default_rng(seed)
        self.forwarded = []

    @property
    def logged(self):
        """What was forwarded, as `before` names it."""
        return self.forwarded

    def stream(self, texts):
        order = self.rng.permutation(len(texts))
        for start in range(0, len(texts), self.size):
            part = order[start : start + self.size]
            keys = [texts[i].key for i in part]
            if self.before:
                self.before(keys)
            self.forwarded.extend(keys)
            yield part, np.array([self.score_text(texts[i]) for i in part])

    def score_text(self, text):
        """Its value, NaN for the texts that it does not score."""
        return (
            np.nan
            if text.answers[-1] in self.nan
            else self.value((text.prompt, *text.answers))
        )

    def value(self, text):
        return truth(*text)

    def provenance(self):
        return {"model_id": "fake/fake", "dtype": "float32"}


class OneOrder(Streaming, PairScorer):
    """A judge of comparisons that is asked in one order."""

    both_orders = False


class BothOrders(Streaming, PairScorer):
    """A judge of comparisons that is asked for each order by itself."""


class Term(Streaming):
    """One of two models: its values are its own, and it says which texts it
    forwards.
    """

    def __init__(self, name, before=None, **options):
        named = before and (lambda keys: before([f"{name} {key}" for key in keys]))
        super().__init__(name, before=named, **options)
        self.fingerprint, self.here = name, False

    def stream(self, texts):
        self.here = True
        yield from super().stream(texts)

    def free_memory(self):
        self.here = False

    def value(self, text):
        return truth(self.name, *text)

    def provenance(self):
        return {"model": self.name, "fingerprint": self.name, "dtype": "float32"}


class Difference(Streaming):
    """A policy minus a reference, each with texts, batches and a place in the store of
    its own.
    """

    def __init__(self, policy="policy", reference="reference", name="fake", **options):
        super().__init__(name)
        self.models = [Term(policy, **options), Term(reference, **options)]
        self.fingerprint = f"{policy}-{reference}"

    @property
    def terms(self):
        return list(zip((1.0, -1.0), self.models, strict=True))

    @property
    def logged(self):
        return [
            f"{model.name} {key}" for model in self.models for key in model.forwarded
        ]

    def stream(self, texts):
        raise AssertionError("its terms are streamed, one after the other")

    def value(self, text):
        policy, reference = (model.value(text) for model in self.models)
        return policy - reference


class Here:
    """An engine of two workers in this process; what goes to them and comes back
    travels as bytes.
    """

    def __init__(self):
        self.given = []

    def map(self, work, blocks):
        workers = cycle([pickle.loads(pickle.dumps(work)) for _ in range(2)])
        for block in blocks:
            self.given.append(block)
            yield pickle.loads(
                pickle.dumps(next(workers)(pickle.loads(pickle.dumps(block))))
            )
