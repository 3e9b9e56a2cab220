"""Reward models behind servers: `rmlab.remote`, and the checks that a server has to
pass first.

No flag is trusted: what a server does with a few known texts shows in its answers.
`examine` is read by `rmlab.remote`, which refuses a server at its first failure, and by
`rmlab.doctor`, which shows them all.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rmlab.findings import Check, Checks, Finding, grade, run_checks
from rmlab.scorers.encoder import EncodeOptions
from rmlab.servers import steerlm
from rmlab.servers.client import Answer, Client
from rmlab.servers.dialects import Dialect, Payloads, TokenWriter, find_dialect
from rmlab.servers.http import Reply, Request
from rmlab.servers.scorer import NEAR, Remote
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rmlab.scorers.classifier import Classifier

__all__ = ["Answer", "Client", "Remote", "Reply", "Request", "remote"]

Floats = NDArray[np.float64]
LabelWeights = str | Mapping[str, float] | Sequence[float]

KNOWN = (
    ("What is the capital of France?", "The capital of France is Paris."),
    ("What is the capital of France?", "Berlin."),
    ("What is 7 * 8?", "7 * 8 = 56, because 7 * 4 = 28 and twice 28 is 56."),
    (
        "What is 7 * 8?",
        "I do not feel like counting today, sorry about that; ask somebody else, or count it yourself.",
    ),
    (
        "How do I boil an egg?",
        "**Steps**\n\n1. Boil water.\n2. Add the egg.\n3. Wait for 8 minutes.\n\nEnjoy!",
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


def remote(url: str, *, kind: str, **options: Any) -> Remote:
    """Connect to a reward model behind a server: its raw scores, for `rmlab.score` and
    wherever a scorer goes.

    The server is first validated with a few known texts: it must return as many outputs
    as labels, read as many tokens as were sent, read texts to their end, give different
    texts different scores, apply no sigmoid or softmax, score a text alone as among
    others, and agree with `weights`. It gets the same texts again during and after
    every run, and before it goes on with the scores of a store; scores between two
    checks that differ are taken out of the store.

    Parameters
    ----------
    url
        The server's address, such as "http://127.0.0.1:8000".
    kind
        "vllm", "vllm-pooling" (vLLM where it has /pooling and no /classify), "sglang",
        "tei" (Text Embeddings Inference), "openrlhf" or "triton" (NeMo's SteerLM and
        Nemotron reward models).
    model
        Its name at the server; asked of the server where it tells.
    tokenizer
        Folder or hub id of the model's tokenizer. Conversations are written here, by
        its chat template or by `template`, `eos`, `max_length` and `truncate` as in
        `rmlab.classifier`, and sent as token ids where the server takes them.
        `send="text"` sends text that the server's tokenizer turns into the same ids.
    weights
        Folder or hub id of the same weights, to compare with; gives the tokenizer, too.
    label_weights
        The weight of each output in the score, by name or in order; for "triton" also
        the name of a model in `rmlab.servers.steerlm.WEIGHTS`. With several outputs
        `rmlab.score` keeps each as a column.
    version
        Names the weights behind the address, a commit say: stored scores are then found
        again at another address. Without it a store knows them by `url`.
    bounded
        The model's own scores lie between 0 and 1.
    add_eos
        For "triton": the server appends its end token.
    name, batch
        What tables call the model; texts in a request.
    key, concurrency, rate, retries, backoff, timeout, max_requests, outage
        As of `rmlab.servers.Client`: `key` is the name of the environment variable with
        the server's key.

    Returns
    -------
    Remote
        A scorer.

    Raises
    ------
    DataError
        At the first check that fails, naming it; for SGLang's /v1/classify and for
        Infinity, which give no raw scores; and for a server that does not answer.
    """
    scorer, local, bounded = connect(url, kind=kind, **options)
    for name, finding in examine(scorer, local, bounded):
        if finding.status == "fail":
            raise DataError(
                f"{scorer.client.url} is not accepted ({name}): {finding.detail}; {finding.remedy}"
            )
        # Other warnings follow from what the caller has passed: the kind of server, or
        # bounded=True.
        if finding.status == "warn" and name == "tokens" and scorer.dialect.counts:
            warnings.warn(
                f"{scorer.client.url}: {finding.detail}; {finding.remedy}", stacklevel=2
            )
    return scorer


def connect(
    url: str,
    *,
    kind: str,
    model: str | None = None,
    tokenizer: "str | Path | PreTrainedTokenizerBase | None" = None,
    weights: str | Path | None = None,
    template: str | Path | None = None,
    eos: bool | None = None,
    max_length: int | None = None,
    truncate: str | None = None,
    send: str = "ids",
    label_weights: LabelWeights | None = None,
    version: str | None = None,
    bounded: bool = False,
    add_eos: bool = False,
    batch: int = 8,
    name: str | None = None,
    **client_options: Any,
) -> "tuple[Remote, Classifier | None, bool]":
    """Return the scorer of `remote`, not tested yet, the same weights on this machine,
    and `bounded`.
    """
    client = Client(url, **{"concurrency": 16, **client_options})
    if batch < 1:
        raise DataError(f"batch={batch}; allowed: 1 text or more in a request")
    if send not in ("ids", "text"):
        raise DataError(f"send={send!r}; {nearest(send, ['ids', 'text'])}")
    template = template if template is None else str(template)
    options: EncodeOptions = {
        "template": template,
        "eos": eos,
        "max_length": max_length,
        "truncate": truncate,
    }
    writer: TokenWriter | steerlm.Triton
    server: Dialect
    labels: Sequence[str] = ()
    if kind == "triton":
        misplaced = [
            key
            for key, value in {
                **options,
                "tokenizer": tokenizer,
                "weights": weights,
            }.items()
            if value
        ]
        if misplaced:
            raise DataError(
                f"{', '.join(misplaced)}: not for kind='triton', whose server has the tokenizer"
            )
        model, server = model or "reward_model", (writer := steerlm.Triton(add_eos))
    else:
        server = find_dialect(kind, client.url)
        if kind == "openrlhf" and max_length is None:
            raise DataError(
                "max_length: OpenRLHF's server cuts long texts silently; pass its --max_len"
            )
        loaded, content, labels = _load_tokenizer(
            tokenizer if tokenizer is not None else weights
        )
        writer = TokenWriter(
            loaded,
            content,
            options,
            send == "ids" and server.takes_ids,
            server.adds_special,
        )
    scorer = Remote(
        client=client,
        dialect=server,
        model=model,
        writer=writer,
        version=version,
        batch=batch,
    )
    if kind == "triton":
        width = scorer.ask_all(scorer.prepare(*known_texts(0, 1)))[0].shape[1]
        labels, label_weights = steerlm.weigh_attributes(width, label_weights)
    scorer.outputs, scorer.mix = _name_outputs(
        sorted(labels) if kind == "tei" else labels, label_weights
    )
    if model is None and server.model_path:
        scorer.model = client.ask(server.model_path, None, server.read_model)
    scorer.name = name or (scorer.model or kind).rstrip("/").rpartition("/")[2]
    if weights is None:
        return scorer, None, bounded
    from rmlab.scorers.classifier import classifier

    mixed = (
        dict(zip(scorer.outputs, scorer.mix.tolist(), strict=True))
        if len(labels) > 1
        else None
    )
    return (
        scorer,
        classifier(weights, weights=mixed, dtype="float32", **options),
        bounded,
    )


def _name_outputs(
    names: Sequence[str], weights: LabelWeights | None
) -> tuple[tuple[str, ...], Floats]:
    """Return the names of the server's outputs and their weights in the score."""
    if isinstance(weights, str) or (weights is None and len(names) > 1):
        raise DataError(
            f"label_weights={weights!r}; give the weight of each label: {', '.join(names[:12])}"
        )
    if weights is None:
        return tuple(names) or ("score",), np.ones(1)
    if isinstance(weights, Mapping):
        names = names if len(names) > 1 else sorted(weights)
        for label in weights:
            if label not in names:
                raise DataError(
                    f"label_weights: no label {label!r}; {nearest(str(label), list(names))}"
                )
        weights = [weights.get(label, 0.0) for label in names]
    elif len(names) <= 1:
        names = (
            names
            if len(names) == len(weights)
            else [f"output_{i}" for i in range(len(weights))]
        )
    if len(names) != len(weights):
        raise DataError(
            f"label_weights: {len(weights)} values for {len(names)} labels {list(names)}; give all"
        )
    return tuple(names), np.asarray(weights, np.float64)


def _load_tokenizer(
    source: "str | Path | PreTrainedTokenizerBase | None",
) -> "tuple[PreTrainedTokenizerBase, str, list[str]]":
    """Return the tokenizer, the hash of its files, and the names of the labels in the
    configuration beside it.
    """
    if source is None:
        raise DataError(
            "tokenizer: not given; pass the folder or hub id that has it, whose template writes the texts"
        )
    from rmlab.scorers.checkpoints.checkpoint import find_tokenizer
    from rmlab.scorers.checkpoints.tokenizer_file import load_tokenizer
    from rmlab.scorers.in_memory import hash_saved

    if not isinstance(source, str | Path):
        return source, hash_saved(source), []
    checkpoint = find_tokenizer(source)
    labels = [str(label) for label in (checkpoint.config.id2label or {}).values()]
    return load_tokenizer(checkpoint), checkpoint.tokenizer_content, labels


def known_texts(
    n_lines: int, n_texts: int | None = None
) -> tuple[list[str], list[str]]:
    """Return the first known questions and answers; with `n_lines` two long ones after
    the short ones.
    """
    lines = [
        f"{i}. Cat number {i} sleeps on mat number {i * i % 97}."
        for i in range(n_lines)
    ]
    ends = LONG_ENDS if n_lines else ()
    long_texts = [("Count the cats, please.", "\n".join([*lines, end])) for end in ends]
    prompts, responses = zip(*[*KNOWN, *long_texts][:n_texts], strict=True)
    return [*prompts], [*responses]


@dataclass(frozen=True)
class _Trial:
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
        return np.inf if self.expected is None else distance(self.expected, self.scores)


def distance(scores: Floats, others: Floats) -> float:
    """Return the largest difference in standard deviations of `scores`."""
    return float(np.abs(scores - others).max() / scores.std())


def examine(
    remote: Remote, local: "Classifier | None" = None, bounded: bool = True
) -> Iterator[tuple[str, Finding]]:
    """Yield the checks of a server one after the other.

    `local`: the same weights on this machine. `bounded`: whether the model's own scores
    may lie between 0 and 1. Where the outputs are whole, the scorer keeps those of the
    known texts, to look at the server again. Raises DataError for faults on this
    machine: a tokenizer, options or weights with which the known texts cannot be
    scored.
    """
    remote.prepare(*known_texts(0))
    if local is not None:
        local(*known_texts(0))
    try:
        trial = _ask_known(remote, local, bounded)
    except DataError as error:
        detail = str(error).removeprefix(f"{remote.client.url}: ")
        yield (
            "answers",
            Finding("fail", detail, "look at the server's log, kind= and model="),
        )
        return
    if (yield from run_checks(_CHECKS, trial)):
        remote.known = trial.prepared, trial.outputs


def _ask_known(remote: Remote, local: "Classifier | None", bounded: bool) -> _Trial:
    """Ask for the known texts; the longest is the longest that the server and the
    model's window take.
    """
    remote.ask_all(
        remote.prepare(*known_texts(0, 1))
    )  # a server that does not answer is asked no more
    for n_lines in LONG_LINES:
        texts = known_texts(n_lines)
        try:
            prepared = remote.prepare(*texts)
            outputs, expected = (
                remote.ask_all(prepared),
                None if local is None else local(*texts),
            )
            return _Trial(
                remote,
                prepared,
                *outputs,
                remote.ask_all(prepared, batch=1)[0],
                expected,
                bounded,
            )
        except DataError as error:
            refused = error
    raise refused


def _check_labels(trial: _Trial) -> Finding:
    width, names = trial.outputs.shape[1], trial.remote.outputs
    detail = f"values for each text: {width}; expected: {len(names)} ({', '.join(names[:9])})"
    return Finding(grade(width == len(names)), detail)


def _check_tokens(trial: _Trial) -> Finding | None:
    *_, text, other_text = trial.prepared.texts
    *_, outputs, other_outputs = trial.outputs
    is_alike = (
        np.array_equal(outputs, other_outputs) and not (trial.outputs == outputs).all()
    )
    if is_alike and text != other_text:
        detail = "texts that differ at their end get the same values: the server cuts long texts"
        return Finding(
            "fail",
            detail,
            "raise its limit, or pass it here as max_length= and truncate=",
        )

    n_sent, n_read = int(trial.prepared.lengths.sum()), trial.n_read
    if n_read is None or not n_sent:
        if trial.error <= NEAR:
            return None
        remedy = "compare with the same weights on this machine: weights=folder"
        return Finding(
            "warn", "the server does not say how many tokens it read", remedy
        )
    is_twice = n_read == n_sent + len(trial.prepared.texts)
    cause = (
        "a second beginning token" if is_twice else "another tokenizer, or truncation"
    )
    detail = f"{n_read} were read where {n_sent} were sent" + (
        f": {cause}" if n_read != n_sent else ""
    )
    return Finding(grade(n_read == n_sent), detail)


def _check_spread(trial: _Trial) -> Finding:
    low, high, n_distinct = (
        trial.scores.min(),
        trial.scores.max(),
        len(np.unique(trial.scores)),
    )
    is_spread = (
        high - low > 1e-6 * max(abs(low), abs(high), 1e-12)
        and n_distinct >= len(trial.scores) / 2
    )
    return Finding(
        grade(is_spread), f"{n_distinct} different scores, {low:.4g} to {high:.4g}"
    )


def _check_activation(trial: _Trial) -> Finding:
    """Tell raw scores from a sigmoid or a softmax by their range."""
    low, high = trial.outputs.min(), trial.outputs.max()
    detail = f"values from {low:.4g} to {high:.4g}"
    if low < 0 or high > 1:
        return Finding("pass", f"{detail}: raw, no sigmoid or softmax")
    if trial.error <= NEAR:
        return Finding("pass", f"{detail}, as the weights on this machine give them")
    if trial.outputs.shape[1] > 1 and np.allclose(
        trial.outputs.sum(axis=1), 1, atol=1e-3
    ):
        return Finding("fail", f"{detail}, and each text's sum to 1: a softmax")
    return Finding(
        grade(False, trial.bounded),
        f"{detail}, which may be a sigmoid: high scores become ties",
    )


def _check_company(trial: _Trial) -> Finding:
    apart = distance(trial.scores, trial.outputs_alone @ trial.remote.mix)
    return Finding(
        grade(apart <= NEAR),
        f"together and alone up to {apart:.2g} standard deviations apart",
    )


def _check_weights(trial: _Trial) -> Finding | None:
    detail = (
        f"up to {trial.error:.2g} standard deviations from the weights on this machine"
    )
    return (
        None if trial.expected is None else Finding(grade(trial.error <= NEAR), detail)
    )


_CHECKS: Checks[_Trial] = {
    "answers": Check(
        lambda trial: Finding(
            "pass", f"{len(trial.outputs)} known texts, together and one by one"
        ),
        is_needed=True,
    ),
    "labels": Check(
        _check_labels,
        "pass label_weights=, one number per output; hundreds of values are an embedding",
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
