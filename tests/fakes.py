"""Scorers without a model, for the tests of scoring and of the store."""

import hashlib
from types import SimpleNamespace

import numpy as np
import pandas as pd


def responses(n=20, label=("chosen", "rejected"), slots=3):
    """`n` prompts with distinct texts, in RM-Bench's shape."""
    rows = [
        (
            "fake",
            "chat",
            str(i),
            side,
            slot,
            ("concise", "plain", "markdown")[slot % 3],
            f"prompt {i}",
            f"{side} {slot} to {i}",
        )
        for i in range(n)
        for side in label
        for slot in range(slots)
    ]
    return pd.DataFrame(rows, columns=["benchmark", "domain", "id", "label", "slot", "style", "prompt", "response"])


def truth(*texts):
    """A number that depends on every character: any mix-up shows."""
    digest = hashlib.sha256("\0".join(map(str, texts)).encode()).digest()
    return int.from_bytes(digest[:6]) / 2**46 - 2.0


class Streaming:
    """A streaming scorer: batches of `size`, a fresh order each time, remembers what it was asked to forward."""

    fingerprint = "fake-1"

    def __init__(self, name="fake", size=7, seed=0, before=None, nan=()):
        self.name, self.size, self.before, self.nan = name, size, before, set(nan)
        self.rng = np.random.default_rng(seed)
        self.forwarded = []

    def prepare(self, *columns):
        texts = list(zip(*columns, strict=True))
        keys = [hashlib.sha256(repr(text).encode()).hexdigest()[:32] for text in texts]
        return SimpleNamespace(keys=keys, texts=texts)

    def stream(self, prepared, wanted):
        wanted = self.rng.permutation(wanted)
        for start in range(0, len(wanted), self.size):
            part = wanted[start : start + self.size]
            if self.before:
                self.before([prepared.keys[i] for i in part])
            self.forwarded.extend(prepared.keys[i] for i in part)
            texts = [prepared.texts[i] for i in part]
            yield part, np.array([np.nan if text[-1] in self.nan else truth(*text) for text in texts])

    def provenance(self):
        return {"model_id": "fake/fake", "dtype": "float32"}

    def __call__(self, prompts, responses):
        raise AssertionError("a streaming scorer is streamed")
