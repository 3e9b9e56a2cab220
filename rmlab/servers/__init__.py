"""Reward models behind servers: `rmlab.remote`, and how it chooses the form of requests
and the way texts are written.
"""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np

from rmlab.scorers.checkpoints.checkpoint import find
from rmlab.scorers.encoder import EncodeOptions, TextEncoder, complete_options
from rmlab.servers.client import Client, ClientOptions
from rmlab.servers.kinds.base import ServerKind, find_kind
from rmlab.servers.payloads import Writer
from rmlab.servers.scorer import Remote
from rmlab.tables import DataError, nearest

__all__ = ["Client", "ClientOptions", "Remote", "remote"]

LabelWeights = Mapping[str, float] | Sequence[float]


class RemoteOptions(ClientOptions, EncodeOptions, total=False):
    """Options of `remote`: those of `Client` for requests, and those of
    `rmlab.classifier` for texts.
    """


def remote(
    url: str,
    *,
    kind: str,
    model: str | None = None,
    name: str | None = None,
    tokenizer: str | Path | None = None,
    label_weights: LabelWeights | None = None,
    version: str | None = None,
    bounded: bool = False,
    batch: int = 8,
    examine: bool = True,
    **options: Unpack[RemoteOptions],
) -> Remote:
    """Connect to a reward model behind a server: a scorer that returns its raw scores.

    The server is first validated with a few known texts: it must return as many outputs
    as labels, read as many tokens as were sent, read texts to their end, score
    different texts differently, apply no sigmoid or softmax, and score a text in a
    batch as it does alone. The known texts are sent again during and after every run,
    and before a run resumes from a store; scores are kept once the next check has
    passed.
    `rmlab.parity` compares the scores with those of the same weights on this machine.

    Parameters
    ----------
    url
        The server's address, such as "http://127.0.0.1:8000".
    kind
        "vllm", "vllm-pooling" (vLLM where it has /pooling and no /classify), "sglang",
        "tei" (Text Embeddings Inference), "openrlhf" or "triton" (NeMo's SteerLM and
        Nemotron reward models).
    model
        The model's name at the server; by default the one that the server reports.
    name
        The model's name in tables.
    tokenizer
        Folder or hub id of the model's tokenizer. It turns conversations into token
        ids, which are sent as they are to a server that accepts them, and otherwise as
        text that the server's tokenizer turns into the same ids.
    label_weights
        The weight of each output in the score, by name or in order; for "triton" by
        default those of Nemotron-4-340B-Reward. With several outputs `rmlab.score`
        keeps each as a column.
    version
        Names the weights behind the address, such as a commit: a store then finds their
        scores also at another address. By default a store knows them by `url`.
    bounded
        The model's own scores lie between 0 and 1.
    batch
        Texts in a request.
    examine
        False skips the validation, and with it the checks during a run.
    **options
        For texts, as in `rmlab.classifier`: `template`, `eos`, `max_length`, `truncate`
        and the others of `rmlab.scorers.encoder.EncodeOptions`; none for "triton". For
        requests, as in `rmlab.servers.Client`: `key` (the name of the environment
        variable with the key), `concurrency` (default 16), `retries`, `backoff`,
        `timeout`, `max_requests` and `outage`.

    Returns
    -------
    Remote
        A scorer.

    Raises
    ------
    DataError
        At the first check that fails, naming it; for SGLang's /v1/classify and for
        Infinity, which return no raw scores; and for a server that does not answer.
    """
    asking: dict[str, Any] = {"concurrency": 16}
    writing: dict[str, Any] = dict(options)
    for option in ClientOptions.__annotations__.keys() & writing.keys():
        asking[option] = writing.pop(option)
    encoding = complete_options(cast(EncodeOptions, writing))
    client = Client(url, **asking)
    server = find_kind(kind)
    writer, labels = _open_writer(server, tokenizer, encoding)
    output_weights = _weigh_outputs(labels, label_weights or server.weights)
    model = model or server.usual_model
    if not model and server.model_path:
        model = client.ask(server.model_path, None, server.read_model)
    scorer = Remote(
        client=client,
        kind=server,
        model=model,
        writer=writer,
        version=version,
        batch=batch,
        name=name or (model or kind).rstrip("/").rpartition("/")[2],
        outputs=tuple(output_weights),
        mix=np.array([*output_weights.values()], float),
        bounded=bounded,
    )
    if examine:
        _require_sound(scorer)
    return scorer


def _require_sound(scorer: Remote) -> None:
    """Raise DataError at the first check that fails; warn of a server that takes token
    ids and does not report how many it read.
    """
    for name, finding in scorer.examine():
        if name == "tokens" and finding.status == "warn" and scorer.kind.takes_ids:
            message = f"{scorer.client.url}: {finding.detail}; {finding.remedy}"
            warnings.warn(message, stacklevel=3)
        if finding.status == "fail":
            problem = f"{scorer.client.url} is not accepted ({name}): {finding.detail}"
            raise DataError(problem, finding.remedy)


def _open_writer(
    kind: ServerKind, source: object, options: EncodeOptions
) -> tuple[Writer, list[str]]:
    """Return the writer of the texts, and the names of the model's outputs in the
    server's order, where they are known.
    """
    if kind.form:
        for option, value in {"tokenizer": source, **options}.items():
            if value:
                problem = f"{option}: not for kind={kind.name!r}"
                raise DataError(problem, "its server has the tokenizer")
        return Writer(kind), list(kind.weights)
    if kind.length_option and options["max_length"] is None:
        problem = f"max_length: a server of kind={kind.name!r} cuts long texts silently"
        raise DataError(problem, f"pass its {kind.length_option}")
    if source is None:
        remedy = "pass the folder or hub id of the model, which has it"
        raise DataError("tokenizer: not given", remedy)
    if not isinstance(source, str | Path):
        problem = f"tokenizer: expected a folder or hub id, got {type(source).__name__}"
        raise TypeError(f"{problem}; save it with save_pretrained(folder)")

    checkpoint = find(source, with_weights=False)
    labels = list((checkpoint.config.id2label or {}).values())
    if kind.sorts_outputs:
        labels.sort()
    return Writer(kind, TextEncoder(checkpoint, options)), labels


def _weigh_outputs(labels: Sequence[str], weights: LabelWeights) -> dict[str, float]:
    """Return the weight of each output in the score, by name, in the server's order."""
    if not weights:
        if len(labels) > 1:
            problem = f"label_weights: a score of {len(labels)} labels"
            choices = ", ".join(labels[:12])
            raise DataError(problem, f"pass the weight of each, by name: {choices}")
        return dict.fromkeys(labels or ["score"], 1.0)

    if not isinstance(weights, Mapping):
        names = labels
        if len(weights) != len(labels):
            names = [f"output_{i}" for i in range(len(weights))]
        return dict(zip(names, weights, strict=True))
    for label in weights:
        if label not in labels:
            problem = f"label_weights: no label {label!r}"
            raise DataError(problem, nearest(str(label), list(labels)))
    return {label: weights.get(label, 0.0) for label in labels}
