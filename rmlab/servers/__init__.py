"""Reward models behind servers: `rmlab.remote`, and how it finds out what a server is
asked and how texts are written.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmlab.scorers.base import Floats
from rmlab.scorers.encoder import EncodeOptions
from rmlab.servers import steerlm
from rmlab.servers.client import Client
from rmlab.servers.dialects import Dialect, TokenWriter, Writer, find_dialect
from rmlab.servers.examination import examine, known_texts
from rmlab.servers.http import Reply, Request
from rmlab.servers.scorer import Remote
from rmlab.servers.sender import Answer
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rmlab.scorers.classifier import Classifier

__all__ = ["Answer", "Client", "Remote", "Reply", "Request", "remote"]

LabelWeights = str | Mapping[str, float] | Sequence[float]


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
    connected = connect(url, kind=kind, **options)
    scorer = connected.remote
    address = scorer.client.url
    for name, finding in examine(*connected):
        if finding.status == "fail":
            problem = f"{address} is not accepted ({name}): {finding.detail}"
            raise DataError(problem, finding.remedy)
        # Other warnings follow from what the caller has passed: the kind of server, or
        # bounded=True.
        if finding.status == "warn" and name == "tokens" and scorer.dialect.counts:
            message = f"{address}: {finding.detail}; {finding.remedy}"
            warnings.warn(message, stacklevel=2)
    return scorer


class Connected(NamedTuple):
    """The scorer of a server, not examined yet; the same weights on this machine; and
    whether the model's own scores may lie between 0 and 1.
    """

    remote: Remote
    local: "Classifier | None"
    bounded: bool


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
) -> Connected:
    """Return the scorer of `remote`, not examined yet, and what it is compared with."""
    client = Client(url, **{"concurrency": 16, **client_options})
    if batch < 1:
        raise DataError(f"batch={batch}", "allowed: 1 text or more in a request")
    if send not in ("ids", "text"):
        raise DataError(f"send={send!r}", nearest(send, ["ids", "text"]))

    written_by = None if template is None else str(template)
    options: EncodeOptions = {
        "template": written_by,
        "eos": eos,
        "max_length": max_length,
        "truncate": truncate,
    }
    dialect = find_dialect(kind, client.url)(add_eos)
    if dialect.writer is None:
        source = weights if tokenizer is None else tokenizer
        writer, labels = _make_token_writer(dialect, source, options, send)
    else:
        _refuse_given(kind, {**options, "tokenizer": tokenizer, "weights": weights})
        writer = dialect.writer
        labels = ()
    if not model and dialect.usual_model:
        model = dialect.usual_model

    draft = Remote(
        client=client,
        dialect=dialect,
        model=model,
        writer=writer,
        version=version,
        batch=batch,
    )

    if dialect.rates_attributes:
        known = draft.ask_all(draft.prepare(*known_texts(0, 1)))
        width = known.outputs.shape[1]
        labels, label_weights = steerlm.weigh_attributes(width, label_weights)
    outputs, mix = _weigh_outputs(labels, label_weights, dialect.sorts_labels)

    if model is None and dialect.model_path:
        model = client.ask(dialect.model_path, None, dialect.read_model)
    title = name or (model or kind).rstrip("/").rpartition("/")[2]
    scorer = replace(draft, model=model, name=title, outputs=outputs, mix=mix)

    local = None
    if weights is not None:
        local = _open_local(weights, labels, scorer, options)
    return Connected(scorer, local, bounded)


def _open_local(
    weights: str | Path, labels: Sequence[str], scorer: Remote, options: EncodeOptions
) -> "Classifier":
    """The same weights on this machine, whose labels weigh the same."""
    from rmlab.scorers.classifier import classifier

    label_weights = None
    if len(labels) > 1:
        label_weights = dict(zip(scorer.outputs, scorer.mix.tolist(), strict=True))
    return classifier(weights, weights=label_weights, dtype="float32", **options)


def _refuse_given(kind: str, options: Mapping[str, object]) -> None:
    """Raise DataError for options of the tokenizer, which the server has."""
    misplaced = [name for name, value in options.items() if value]
    if misplaced:
        names = ", ".join(misplaced)
        raise DataError(
            f"{names}: not for kind={kind!r}, whose server has the tokenizer"
        )


class _LocalWriter(NamedTuple):
    """Who writes the texts here, and the names of the model's labels."""

    writer: Writer
    labels: Sequence[str]


def _make_token_writer(
    dialect: Dialect,
    source: "str | Path | PreTrainedTokenizerBase | None",
    options: EncodeOptions,
    send: str,
) -> _LocalWriter:
    """Who writes texts for a server that is sent texts or tokens."""
    if dialect.length_option and options["max_length"] is None:
        server = f"a server of kind={dialect.kind!r}"
        problem = f"max_length: {server} cuts long texts silently"
        raise DataError(problem, f"pass its {dialect.length_option}")
    if source is None:
        raise DataError(
            "tokenizer: not given",
            "pass the folder or hub id that has it, whose template writes the texts",
        )
    loaded = _load_tokenizer(source)
    writer = TokenWriter(
        tokenizer=loaded.tokenizer,
        content=loaded.content,
        options=options,
        ids=send == "ids" and dialect.takes_ids,
        adds_special=dialect.adds_special,
    )
    return _LocalWriter(writer, loaded.labels)


class _LoadedTokenizer(NamedTuple):
    """A tokenizer, the hash of its files, and the labels in the configuration beside
    it.
    """

    tokenizer: "PreTrainedTokenizerBase"
    content: str
    labels: list[str]


def _load_tokenizer(
    source: "str | Path | PreTrainedTokenizerBase",
) -> _LoadedTokenizer:
    from rmlab.scorers.checkpoints.checkpoint import find
    from rmlab.scorers.checkpoints.tokenizer_file import load_tokenizer
    from rmlab.scorers.in_memory import hash_saved

    if not isinstance(source, str | Path):
        return _LoadedTokenizer(source, hash_saved(source), [])
    checkpoint = find(source, with_weights=False)
    labels = [str(label) for label in (checkpoint.config.id2label or {}).values()]
    tokenizer = load_tokenizer(checkpoint)
    return _LoadedTokenizer(tokenizer, checkpoint.tokenizer_content, labels)


def _weigh_outputs(
    labels: Sequence[str], weights: LabelWeights | None, sorts_labels: bool
) -> tuple[tuple[str, ...], Floats]:
    """Return the names of the server's outputs and their weights in the score."""
    names = sorted(labels) if sorts_labels else list(labels)
    if isinstance(weights, str) or (weights is None and len(names) > 1):
        choices = f"give the weight of each label: {', '.join(names[:12])}"
        raise DataError(f"label_weights={weights!r}", choices)
    if weights is None:
        return tuple(names) or ("score",), np.ones(1)

    if isinstance(weights, Mapping):
        if len(names) <= 1:
            names = sorted(weights)
        for label in weights:
            if label not in names:
                problem = f"label_weights: no label {label!r}"
                raise DataError(problem, nearest(str(label), names))
        weights = [weights.get(label, 0.0) for label in names]
    elif len(names) <= 1 and len(names) != len(weights):
        names = [f"output_{i}" for i in range(len(weights))]
    if len(names) != len(weights):
        counts = f"{len(weights)} values for {len(names)} labels {names}"
        raise DataError(f"label_weights: {counts}", "give all")
    return tuple(names), np.asarray(weights, np.float64)
