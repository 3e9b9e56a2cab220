"""The checks that a server of a reward model has to pass before it is used.

No flag is trusted: what a server does with a few known texts shows in its answers.
`rmlab.remote` refuses a server at its first failure, `rmlab.doctor` shows them all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rmlab.findings import Check, Checks, Finding, grade
from rmlab.scorers.base import Floats
from rmlab.servers.payloads import Prepared

NEAR = 0.1
"""Standard deviations within which two scores count as the same: servers compute in
half precision.
"""

KNOWN = (
    ("What is the capital of France?", "The capital of France is Paris."),
    ("What is the capital of France?", "Berlin."),
    ("What is 7 * 8?", "7 * 8 = 56, because 7 * 4 = 28 and twice 28 is 56."),
    (
        "What is 7 * 8?",
        "I do not feel like counting today, sorry about that; ask somebody else, or "
        "count it yourself.",
    ),
    (
        "How do I boil an egg?",
        "**Steps**\n\n1. Boil water.\n2. Add the egg.\n3. Wait for 8 minutes.\n\n"
        "Enjoy!",
    ),
    ("Traduis en anglais : « le chat dort ».", "The cat is sleeping."),
    ("Traduis en anglais : « le chat dort ».", "猫が寝ている。"),
)
"""Short questions and answers, good and bad. Stores hold their outputs: whoever changes
a text raises SCORING_VERSION.
"""

LONG_ENDS = (
    "So every cat has a mat of its own; I am glad that you asked.",
    "No, wait: I made all of this up, sorry. Count them yourself.",
)
"""The two long known texts differ at their end only: a server that cuts texts scores
both the same.
"""

LONG_LINES = (250, 40, 12, 0)
"""Lines of the long known texts, about 13 tokens each; the lower numbers for servers
and models that take no more.

Servers that compute prompts in pieces were wrong above some thousand tokens only.
"""


def known_texts(n_lines: int) -> tuple[Sequence[str], Sequence[str]]:
    """Return the known questions and answers; with `n_lines` two long ones after the
    short ones.
    """
    texts = list(KNOWN)
    if n_lines:
        lines = []
        for i in range(n_lines):
            lines.append(f"{i}. Cat number {i} sleeps on mat number {i * i % 97}.")
        for end in LONG_ENDS:
            texts.append(("Count the cats, please.", "\n".join([*lines, end])))
    prompts, responses = zip(*texts, strict=True)
    return prompts, responses


@dataclass(frozen=True)
class Trial:
    """A server's outputs for the known texts, shape (texts, outputs).

    `n_read`: how many tokens it says it read, 0 where it does not say. `alone`: the
    outputs for each text in a request of its own. `names`, `mix`: of the model's
    outputs, and their weights in the score. `bounded`: whether scores may lie between 0
    and 1.
    """

    prepared: Prepared
    outputs: Floats
    n_read: int
    alone: Floats
    names: Sequence[str]
    mix: Floats
    bounded: bool

    @property
    def scores(self) -> Floats:
        """The scores, shape (texts,)."""
        return self.outputs @ self.mix


def distance(before: Floats, now: Floats) -> float:
    """Return the largest difference of scores, or of outputs, in standard deviations of
    `before`.
    """
    if now.shape != before.shape:
        return np.inf
    scale = np.maximum(before.std(axis=0), 1e-12)
    return float((np.abs(now - before) / scale).max())


def _check_labels(trial: Trial) -> Finding:
    width = trial.outputs.shape[1]
    expected = f"{len(trial.names)} ({', '.join(trial.names[:9])})"
    detail = f"values for each text: {width}; expected: {expected}"
    return Finding(grade(width == len(trial.names)), detail)


def _check_tokens(trial: Trial) -> Finding:
    if _is_cut(trial):
        return Finding(
            "fail",
            "texts that differ at their end get the same values: the server cuts long "
            "texts",
            "raise its limit, or pass it here as max_length= and truncate=",
        )

    n_sent = int(trial.prepared.lengths.sum())
    n_read = trial.n_read
    if not n_read or not n_sent:
        return Finding(
            "warn",
            "the server does not say how many tokens it read",
            "compare it with the same weights on this machine: rmlab.parity",
        )
    detail = f"{n_read} were read where {n_sent} were sent"
    if n_read == n_sent + len(trial.outputs):
        detail += ": a second BOS token"
    return Finding(grade(n_read == n_sent), detail)


def _is_cut(trial: Trial) -> bool:
    """Whether the long texts, which differ at their end, get the same outputs."""
    text, other_text = trial.prepared.texts[-2:]
    outputs, other_outputs = trial.outputs[-2:]
    is_constant = (trial.outputs == outputs).all()
    is_alike = np.array_equal(outputs, other_outputs) and not is_constant
    return is_alike and text != other_text


def _check_spread(trial: Trial) -> Finding:
    n_distinct = len(np.unique(trial.scores))
    range_of_scores = f"{trial.scores.min():.4g} to {trial.scores.max():.4g}"
    detail = f"{n_distinct} different scores, {range_of_scores}"
    return Finding(grade(n_distinct >= len(trial.scores) / 2), detail)


def _check_activation(trial: Trial) -> Finding:
    """Tell raw scores from a sigmoid or a softmax by their range."""
    low = trial.outputs.min()
    high = trial.outputs.max()
    detail = f"values from {low:.4g} to {high:.4g}"
    is_raw = low < 0 or high > 1
    if not is_raw:
        detail += ", which may be a sigmoid or a softmax: high scores become ties"
    return Finding(grade(is_raw, trial.bounded), detail)


def _check_batch(trial: Trial) -> Finding:
    apart = distance(trial.scores, trial.alone @ trial.mix)
    detail = f"together and alone up to {apart:.2g} standard deviations apart"
    return Finding(grade(apart <= NEAR), detail)


CHECKS: Checks[Trial] = {
    "labels": Check(
        _check_labels,
        "pass label_weights=, one number per output; hundreds of values are an "
        "embedding",
        is_needed=True,
    ),
    "tokens": Check(
        _check_tokens,
        "start the server with the same tokenizer, or one that takes token ids",
    ),
    "spread": Check(
        _check_spread,
        "ask for raw scores: a softmax over one label is 1.0 for every text",
        is_needed=True,
    ),
    "activation": Check(
        _check_activation,
        "serve the model without an activation, or pass bounded=True",
    ),
    "alone": Check(
        _check_batch,
        "padding is read, or answers come in another order: ask with batch=1",
    ),
}
