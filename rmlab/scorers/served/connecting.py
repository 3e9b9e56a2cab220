"""`rmlab.remote`: a server's address and kind to a scorer that has been tested."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rmlab.scorers.checkpoints.loading import require_score
from rmlab.scorers.served.acceptance import KNOWN, Reference, Trial, require_accepted
from rmlab.scorers.served.asking import Ask, AskJson, AskTriton
from rmlab.scorers.served.payloads import SteerLMWriter, TokenWriter, Writer
from rmlab.scorers.served.remote import Remote
from rmlab.scorers.types import EncodeOptions
from rmlab.servers import Client, steerlm
from rmlab.servers.dialects import Dialect, dialect
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["connect", "remote"]

LabelWeights = str | Mapping[str, float] | Sequence[float]


def remote(url: str, *, kind: str, **options: Any) -> Remote:
    """A reward model behind a server: its raw scores, for `rmlab.score` and wherever a scorer goes.

    `url`: the server's address, such as "http://127.0.0.1:8000". `kind`: "vllm", "vllm-pooling" (vLLM where it has
    /pooling and no /classify), "sglang", "tei" (Text Embeddings Inference), "openrlhf" or "triton" (NeMo's SteerLM and
    Nemotron reward models). `options`:

    - `model`: its name at the server; asked of the server where it tells.
    - `tokenizer`: folder or hub id of the model's tokenizer. Conversations are written here, by its chat template or
      by `template`, `eos`, `max_length` and `truncate` as in `rmlab.classifier`, and sent as token ids where the
      server takes them. `send="text"` sends text that the server's tokenizer turns into the same ids.
    - `weights`: folder or hub id of the same weights, to compare with; gives the tokenizer, too.
    - `label_weights`: the weight of each output in the score, by name or in order; for "triton" also the name of a
      model in `rmlab.servers.steerlm.WEIGHTS`. With several outputs `rmlab.score` keeps each as a column.
    - `version`: names the weights behind the address, a commit say: stored scores are then found again at another
      address. Without it a store knows them by `url`.
    - `bounded`: the model's own scores lie between 0 and 1. `add_eos`: for "triton".
    - `key`: name of the environment variable with the server's key; `batch` (texts in a request), `concurrency`,
      `rate`, `retries`, `timeout`, `max_requests`: see `rmlab.servers.Client`. `name`: what tables call it.

    The server is tried with a few known texts before it is believed (`rmlab.scorers.served.acceptance`): as many
    outputs as labels, as many tokens read as sent, different scores for different texts, no sigmoid or softmax, the
    same alone as among others, and the same as `weights`. Raises DataError at the first failure, naming it; for
    SGLang's /v1/classify and for Infinity, which give no raw scores; and for a server that does not answer.
    """
    trial = connect(url, kind=kind, **options)
    require_accepted(trial)
    return trial.remote


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
    key: str | None = None,
    batch: int = 8,
    concurrency: int = 16,
    rate: float | None = None,
    retries: int = 5,
    backoff: float = 0.5,
    timeout: float = 120.0,
    max_requests: int | None = None,
    name: str | None = None,
) -> Trial:
    """The scorer of `remote`, not tested yet."""
    client = Client(
        url, key=key, concurrency=concurrency, rate=rate, retries=retries, backoff=backoff, timeout=timeout,
        max_requests=max_requests,
    )  # fmt: skip
    if batch < 1:
        raise DataError(f"batch={batch}; allowed: 1 text or more in a request")
    options: EncodeOptions = {
        "template": template if template is None else str(template),
        "eos": eos,
        "max_length": max_length,
        "truncate": truncate,
        "convention": None,
    }
    if kind == "triton":
        _refuse_for_triton(options | {"tokenizer": tokenizer, "weights": weights})
        return _triton(client, model, label_weights, add_eos, version, batch, name, bounded)
    spoken = dialect(kind, client.url)
    require_score()
    if kind == "openrlhf" and max_length is None:
        raise DataError("max_length: OpenRLHF's server cuts long texts silently; pass its --max_len")
    words, names = _tokenizer(tokenizer if tokenizer is not None else weights)
    if send not in ("ids", "text"):
        raise DataError(f"send={send!r}; {nearest(send, ['ids', 'text'])}")
    writer = TokenWriter(words, options, ids=send == "ids" and spoken.takes_ids, adds_special=spoken.adds_special)
    outputs, mix = _outputs(sorted(names) if kind == "tei" else names, label_weights)
    served = model or _served_model(client, spoken)
    made = Remote(
        client, AskJson(spoken, served), writer, name=_title(name, served, kind), version=version,
        outputs=outputs, mix=mix, batch=batch,
    )  # fmt: skip
    return Trial(made, _reference(weights, options, names, outputs, mix), bounded)


def _triton(
    client: Client, model: str | None, label_weights: LabelWeights | None, add_eos: bool, version: str | None,
    batch: int, name: str | None, bounded: bool,
) -> Trial:  # fmt: skip
    steerlm.require_triton()
    ask: Ask = AskTriton(model or "reward_model", add_eos)
    writer: Writer = SteerLMWriter()
    prepared = writer.write(*map(list, zip(*KNOWN[:1], strict=True)))
    bare = Remote(client, ask, writer, name="", version=None, outputs=(), mix=np.zeros(0), batch=1)
    width = bare.ask_all(prepared, np.arange(1))[0].shape[1]
    names = steerlm.FIRST_FOUR + steerlm.ATTRIBUTES if width == 9 else steerlm.ATTRIBUTES
    mix = _attribute_weights(label_weights, names)
    made = Remote(
        client, ask, writer, name=_title(name, model, "triton"), version=version, outputs=names, mix=mix, batch=batch
    )
    return Trial(made, None, bounded)


def _attribute_weights(weights: LabelWeights | None, names: Sequence[str]) -> NDArray[np.float64]:
    """The weight of each attribute; five numbers are for HelpSteer's five, which come last."""
    if weights is None or (isinstance(weights, str) and weights not in steerlm.WEIGHTS):
        raise DataError(
            f"label_weights={weights!r}; the reward is a weighted sum of the attributes: give the model's name "
            f"({', '.join(steerlm.WEIGHTS)}), five numbers, or weights by name ({', '.join(names)})"
        )
    given = steerlm.WEIGHTS[weights] if isinstance(weights, str) else weights
    if not isinstance(given, Mapping) and len(given) == len(steerlm.ATTRIBUTES):
        given = dict(zip(steerlm.ATTRIBUTES, given, strict=True))
    return _outputs(names, given)[1]


def _outputs(names: Sequence[str], weights: LabelWeights | None) -> tuple[Sequence[str], NDArray[np.float64]]:
    """The names of the server's outputs and their weights in the score."""
    if isinstance(weights, str):
        raise DataError(f"label_weights={weights!r}: names are for kind='triton'; give weights by label")
    if weights is None:
        if len(names) > 1:
            raise DataError(
                f"label_weights: the model has {len(names)} labels ({', '.join(names[:12])}); give the weight of each: "
                "the reward is their weighted sum"
            )
        return names or ("score",), np.ones(1)
    if not isinstance(weights, Mapping):
        mix = np.asarray(weights, np.float64)
        if len(names) > 1 and len(names) != len(mix):
            raise DataError(f"label_weights: {len(mix)} values for {len(names)} labels {list(names)}; give all")
        return names if len(names) == len(mix) else [f"output_{i}" for i in range(len(mix))], mix
    names = names if len(names) > 1 else sorted(weights)
    for label in weights:
        if label not in names:
            raise DataError(f"label_weights: no label {label!r}; {nearest(str(label), list(names))}")
    return names, np.array([float(weights.get(label, 0.0)) for label in names])


def _tokenizer(
    source: "str | Path | PreTrainedTokenizerBase | None",
) -> "tuple[PreTrainedTokenizerBase, Sequence[str]]":
    """The tokenizer, and the names of the model's labels where its configuration lies beside it."""
    if source is None:
        raise DataError(
            "tokenizer: not given; pass the folder or hub id that has it: texts are written by its template"
        )
    if not isinstance(source, str | Path):
        return source, ()
    from rmlab.scorers.checkpoints.checkpoint import find_tokenizer
    from rmlab.scorers.checkpoints.tokenizer_file import load_tokenizer

    checkpoint = find_tokenizer(source)
    return load_tokenizer(checkpoint), [str(label) for label in (checkpoint.config.id2label or {}).values()]


def _served_model(client: Client, spoken: Dialect) -> str | None:
    """What the server calls its model, None where it does not say."""
    if spoken.model_path is None:
        return None
    return client.ask(spoken.model_path, None, lambda reply: spoken.model_name(reply.json()))


def _reference(
    weights: str | Path | None, options: EncodeOptions, names: Sequence[str], outputs: Sequence[str],
    mix: NDArray[np.float64],
) -> Reference | None:  # fmt: skip
    """Scores of the known texts by weights on this machine."""
    if weights is None:
        return None
    from rmlab.scorers.classifier import classifier

    by_label = dict(zip(outputs, mix.tolist(), strict=True)) if len(names) > 1 else None
    options = {key: value for key, value in options.items() if key != "convention"}  # type: ignore[assignment]
    local = classifier(weights, weights=by_label, dtype="float32", **options)
    return Reference(local([prompt for prompt, _ in KNOWN], [response for _, response in KNOWN]), str(weights))


def _title(name: str | None, model: str | None, kind: str) -> str:
    """What tables call the model: a path becomes its last part."""
    return name or (model.rstrip("/").rpartition("/")[2] if model else kind)


def _refuse_for_triton(given: Mapping[str, object]) -> None:
    named = [option for option, value in given.items() if value is not None]
    if named:
        raise DataError(f"{', '.join(named)}: not for kind='triton', whose server has the tokenizer; leave them out")
