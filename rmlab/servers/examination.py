"""The checks that a server of a reward model has to pass before it is used.

No flag is trusted: what a server does with a few known texts shows in its answers.
`examine` is read by `rmlab.remote`, which refuses a server at its first failure, and by
`rmlab.doctor`, which shows them all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rmlab.findings import Check, Checks, Finding, grade, run_checks
from rmlab.scorers.base import Floats
from rmlab.servers.dialects import Payloads
from rmlab.servers.scorer import NEAR, Known, Remote, distance
from rmlab.tables import DataError

if TYPE_CHECKING:
    from rmlab.scorers.classifier import Classifier

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
"""Short questions and answers, good and bad."""

LONG_ENDS = (
    "So every cat has a mat of its own; I am glad that you asked.",
    "No, wait: I made all of this up, sorry. Count them yourself.",
)
"""The two long known texts differ at their end only: a server that cuts texts gives
both the same scores.
"""

LONG_LINES = (250, 40, 12, 0)
"""Lines of the long known texts, about 13 tokens each; the lower numbers for servers
and models that take no more.

Servers that compute prompts in pieces were wrong above some thousand tokens only.
"""


def known_texts(
    n_lines: int, n_texts: int | None = None
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the first known questions and answers; with `n_lines` two long ones after
    the short ones.
    """
    texts = list(KNOWN)
    if n_lines:
        lines = []
        for i in range(n_lines):
            lines.append(f"{i}. Cat number {i} sleeps on mat number {i * i % 97}.")
        for end in LONG_ENDS:
            texts.append(("Count the cats, please.", "\n".join([*lines, end])))
    prompts, responses = zip(*texts[:n_texts], strict=True)
    return prompts, responses


@dataclass(frozen=True)
class _ServerTrial:
    """Outputs for the known texts, together and one by one, and how many tokens the
    server says it read.

    `expected`: scores by the same weights on this machine. `bounded`: whether scores
    may lie between 0 and 1.
    """

    remote: Remote
    prepared: Payloads
    outputs: Floats
    n_read: int | None
    outputs_alone: Floats
    expected: Floats | None
    bounded: bool

    @property
    def scores(self) -> Floats:
        return self.outputs @ self.remote.mix

    @property
    def error(self) -> float:
        """Largest distance from the expected scores, in their standard deviations."""
        if self.expected is None:
            return np.inf
        return distance(self.expected, self.scores)


def examine(
    remote: Remote, local: "Classifier | None" = None, bounded: bool = True
) -> Iterator[tuple[str, Finding]]:
    """Yield the checks of a server one after the other.

    Where all pass that others need, the scorer remembers the outputs of the known
    texts, to check the server again.

    Parameters
    ----------
    remote
        The scorer of the server.
    local
        The same weights on this machine.
    bounded
        Whether the model's own scores may lie between 0 and 1.

    Raises
    ------
    DataError
        For faults on this machine: a tokenizer, options or weights with which the known
        texts cannot be scored.
    """
    remote.prepare(*known_texts(0))
    if local is not None:
        local(*known_texts(0))
    try:
        trial = _ask_known(remote, local, bounded)
    except DataError as error:
        detail = error.problem.removeprefix(f"{remote.client.url}: ")
        if error.remedy:
            detail += f"; {error.remedy}"
        remedy = "look at the server's log, kind= and model="
        yield "answers", Finding("fail", detail, remedy)
        return
    has_passed = yield from run_checks(_CHECKS, trial)
    if has_passed:
        remote.known = Known(trial.prepared, trial.outputs)


def _ask_known(
    remote: Remote, local: "Classifier | None", bounded: bool
) -> _ServerTrial:
    """Ask for the known texts; the longest is the longest that the server and the
    model's window take.
    """
    # A server that does not answer is asked no more.
    remote.ask_all(remote.prepare(*known_texts(0, 1)))
    for n_lines in LONG_LINES:
        texts = known_texts(n_lines)
        try:
            prepared = remote.prepare(*texts)
            together = remote.ask_all(prepared)
            expected = None if local is None else local(*texts)
            alone = remote.ask_all(prepared, batch=1)
        except DataError as error:
            refused = error
            continue
        return _ServerTrial(
            remote,
            prepared,
            together.outputs,
            together.n_tokens,
            alone.outputs,
            expected,
            bounded,
        )
    raise refused


def _check_answers(trial: _ServerTrial) -> Finding:
    detail = f"{len(trial.outputs)} known texts, together and one by one"
    return Finding("pass", detail)


def _check_labels(trial: _ServerTrial) -> Finding:
    width = trial.outputs.shape[1]
    names = trial.remote.outputs
    expected = f"{len(names)} ({', '.join(names[:9])})"
    detail = f"values for each text: {width}; expected: {expected}"
    return Finding(grade(width == len(names)), detail)


def _check_tokens(trial: _ServerTrial) -> Finding | None:
    if _is_cut(trial):
        return Finding(
            "fail",
            "texts that differ at their end get the same values: the server cuts long "
            "texts",
            "raise its limit, or pass it here as max_length= and truncate=",
        )

    n_sent = int(trial.prepared.lengths.sum())
    n_read = trial.n_read
    if n_read is None or not n_sent:
        if trial.error <= NEAR:
            return None
        remedy = "compare with the same weights on this machine: weights=folder"
        return Finding(
            "warn", "the server does not say how many tokens it read", remedy
        )
    detail = f"{n_read} were read where {n_sent} were sent"
    if n_read == n_sent + len(trial.prepared.texts):
        detail += ": a second beginning token"
    elif n_read != n_sent:
        detail += ": another tokenizer, or truncation"
    return Finding(grade(n_read == n_sent), detail)


def _is_cut(trial: _ServerTrial) -> bool:
    """Whether the long texts, which differ at their end, get the same outputs."""
    text, other_text = trial.prepared.texts[-2:]
    outputs, other_outputs = trial.outputs[-2:]
    is_constant = (trial.outputs == outputs).all()
    is_alike = np.array_equal(outputs, other_outputs) and not is_constant
    return is_alike and text != other_text


def _check_spread(trial: _ServerTrial) -> Finding:
    low = trial.scores.min()
    high = trial.scores.max()
    n_distinct = len(np.unique(trial.scores))
    is_wide = high - low > 1e-6 * max(abs(low), abs(high), 1e-12)
    has_few_ties = n_distinct >= len(trial.scores) / 2
    detail = f"{n_distinct} different scores, {low:.4g} to {high:.4g}"
    return Finding(grade(is_wide and has_few_ties), detail)


def _check_activation(trial: _ServerTrial) -> Finding:
    """Tell raw scores from a sigmoid or a softmax by their range."""
    low = trial.outputs.min()
    high = trial.outputs.max()
    detail = f"values from {low:.4g} to {high:.4g}"
    if low < 0 or high > 1:
        return Finding("pass", f"{detail}: raw, no sigmoid or softmax")
    if trial.error <= NEAR:
        return Finding("pass", f"{detail}, as the weights on this machine give them")
    sums = trial.outputs.sum(axis=1)
    if trial.outputs.shape[1] > 1 and np.allclose(sums, 1, atol=1e-3):
        return Finding("fail", f"{detail}, and each text's sum to 1: a softmax")
    detail += ", which may be a sigmoid: high scores become ties"
    return Finding(grade(False, trial.bounded), detail)


def _check_company(trial: _ServerTrial) -> Finding:
    apart = distance(trial.scores, trial.outputs_alone @ trial.remote.mix)
    detail = f"together and alone up to {apart:.2g} standard deviations apart"
    return Finding(grade(apart <= NEAR), detail)


def _check_weights(trial: _ServerTrial) -> Finding | None:
    if trial.expected is None:
        return None
    apart = f"up to {trial.error:.2g} standard deviations"
    detail = f"{apart} from the weights on this machine"
    return Finding(grade(trial.error <= NEAR), detail)


_CHECKS: Checks[_ServerTrial] = {
    "answers": Check(
        _check_answers,
        is_needed=True,
    ),
    "labels": Check(
        _check_labels,
        "pass label_weights=, one number per output; hundreds of values are an "
        "embedding",
        is_needed=True,
    ),
    "tokens": Check(
        _check_tokens,
        "send token ids (send='ids'), or start the server with the same tokenizer",
    ),
    "spread": Check(
        _check_spread,
        "ask for raw scores: a softmax over one label gives 1.0 for everything",
        is_needed=True,
    ),
    "activation": Check(
        _check_activation,
        "serve the model without an activation, or pass weights= or bounded=True",
    ),
    "alone": Check(
        _check_company,
        "padding is read, or answers come in another order: ask with batch=1",
    ),
    "weights": Check(
        _check_weights, "rmlab.parity(local, served, responses) looks for the cause"
    ),
}
