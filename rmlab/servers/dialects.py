"""How servers of reward models are asked for raw scores, and how their answers are
read, one `Dialect` each.

Servers differ in what they do by default: a sigmoid, a softmax, a second beginning
token, silent truncation. Each request here is right by the servers' documents or by
measurement; `rmlab.servers.examine` tests what a server does.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from rmlab.records import install_command
from rmlab.scorers.base import Prompt
from rmlab.scorers.encoder import EncodeOptions
from rmlab.servers import steerlm
from rmlab.servers.http import Failure, Json, Reply, Request
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Payload = str | list[int] | dict[str, object]
"""One conversation as a server takes it: text, token ids, or its parts by name."""

Body = dict[str, object]


@dataclass(frozen=True)
class Payloads:
    """Texts ready to be sent.

    `groups`: number of each one's prompt. `lengths`: tokens of each, 0 where unknown.
    `truncated`: how many were cut.
    """

    texts: Sequence[Payload]
    groups: NDArray[np.intp]
    lengths: NDArray[np.intp]
    truncated: int = 0


class Writer(Protocol):
    """Writes conversations as a server takes them."""

    @property
    def identity(self) -> Mapping[str, object]:
        """All that decides how texts are written, as plain values."""

    def write(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Payloads:
        """Return one payload per response."""


class FormWriter:
    """Writes conversations in a server's own form; the server has the tokenizer.

    `form`: its name. `write_one`: writes a prompt and its response.
    """

    def __init__(self, form: str, write_one: Callable[[Prompt, str], Payload]) -> None:
        self.identity = {"template": form}
        self._write_one = write_one

    def write(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Payloads:
        """Return one payload per response."""
        texts = []
        for prompt, response in zip(prompts, responses, strict=True):
            texts.append(self._write_one(prompt, response))
        _, groups = np.unique([repr(prompt) for prompt in prompts], return_inverse=True)
        return Payloads(texts, groups.astype(np.intp), np.zeros(len(texts), np.intp))


@dataclass(frozen=True)
class TokenWriter:
    """Writes conversations by the model's own template and tokenizer, as
    `rmlab.inference.encoding.encode` does.

    `content`: hash of the tokenizer's files. `ids`: send token ids. Else text is sent
    that the server's tokenizer turns into the same ids; `adds_special` says whether the
    server writes special tokens around it. Raises DataError for texts of which that
    cannot be shown.
    """

    tokenizer: "PreTrainedTokenizerBase"
    content: str
    options: EncodeOptions
    ids: bool
    adds_special: bool

    @property
    def identity(self) -> dict[str, object]:
        """Return the tokenizer and the options."""
        return {**self.options, "tokenizer": self.content}

    def write(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Payloads:
        """Return one payload per response."""
        from rmlab.inference.encoding import encode

        encoded = encode(self.tokenizer, prompts, responses, **self.options)
        ids = [text_ids.tolist() for text_ids in encoded.ids]
        lengths = [len(text_ids) for text_ids in ids]
        texts: Sequence[Payload] = ids if self.ids else self._as_text(ids)
        return Payloads(
            texts=texts,
            groups=encoded.groups,
            lengths=np.array(lengths, np.intp),
            truncated=int(np.sum(encoded.truncated)),
        )

    def _as_text(self, ids: list[list[int]]) -> list[str]:
        """Texts that the server's tokenizer turns into these ids."""
        if not ids:
            return []
        from rmlab.inference.tokenizer_calls import call, decode, special_tokens

        n_opening = 0
        n_closing = 0
        if self.adds_special:
            opening, closing = special_tokens(self.tokenizer)
            n_opening = len(opening)
            n_closing = len(closing)
        texts = []
        for text_ids in ids:
            text = decode(
                self.tokenizer,
                text_ids[n_opening : len(text_ids) - n_closing],
                skip_special_tokens=False,
                clean_up_tokenization_spaces=False,
            )
            texts.append(text)

        encoded = call(self.tokenizer, texts, add_special_tokens=self.adds_special)
        ids_again = encoded["input_ids"]
        for number, text_ids in enumerate(ids):
            if text_ids != ids_again[number]:
                text = f"text {number} of {len(ids)}"
                raise DataError(
                    f"{text} would be read as other tokens than the template writes",
                    "use a server that takes token ids (vllm, sglang)",
                )
        return texts


@dataclass(frozen=True)
class Scored:
    """A server's outputs for the texts of one request: one list per text, in their
    order.

    `tokens`: how many tokens it has read in all of them, None where it does not say.
    `model`: the model that it names.
    """

    values: list[list[float]]
    tokens: int | None = None
    model: str = ""


class Dialect:
    """One kind of server. A further one is a class like these, in `DIALECTS`.

    Attributes
    ----------
    kind : str
        Its name in `rmlab.remote(kind=)`.
    path : str
        Where scores are asked for.
    takes_ids : bool
        Whether texts may go as token ids.
    counts : bool
        Whether replies say how many tokens were read.
    adds_special : bool
        Whether the server writes the tokenizer's special tokens around a text.
    usual_model : str
        The model's name at the server where none is given; empty where there is none.
    rates_attributes : bool
        Whether the outputs are SteerLM's attributes, as many as the server gives.
    model_path : str
        Where it names its model; empty where it does not.
    model_keys : tuple
        They lead to the name in that reply.
    sorts_labels : bool
        Whether `read` puts the outputs in the order of their labels' names.
    length_option : str
        The server's option for the length at which it cuts texts silently, so that
        `max_length` has to be given; empty where it does not cut them.
    writer : Writer, optional
        Writes conversations in the server's own form. None: the model's template writes
        them here, so that `tokenizer` has to be given.
    add_eos : bool, optional
        Whether the server appends its end token; None where it cannot be told to.
    """

    kind: ClassVar[str]
    path: ClassVar[str]
    takes_ids: ClassVar[bool] = False
    counts: ClassVar[bool] = False
    adds_special: ClassVar[bool] = False
    usual_model: ClassVar[str] = ""
    rates_attributes: ClassVar[bool] = False
    model_path: ClassVar[str] = ""
    model_keys: ClassVar[tuple[str | int, ...]] = ()
    sorts_labels: ClassVar[bool] = False
    length_option: ClassVar[str] = ""
    writer: ClassVar[Writer | None] = None
    add_eos: bool | None = None

    def __init__(self, add_eos: bool = False) -> None:
        if self.add_eos is not None:
            self.add_eos = add_eos
        elif add_eos:
            problem = f"add_eos: a server of kind={self.kind!r} cannot be told to"
            raise DataError(problem, "leave it out")

    def body(self, texts: Sequence[Payload], model: str | None) -> Body:
        """Return the JSON that is posted; it asks for values before the activation."""
        raise NotImplementedError

    def request(self, texts: Sequence[Payload], model: str | None) -> Request:
        """Return the request for the outputs of some texts, before the activation."""
        return Request(self.path, self.body(texts, model))

    def read(self, reply: Reply, n_texts: int) -> Scored:
        """Return the outputs in a reply; raise ValueError, TypeError or LookupError if
        it is not whole.
        """
        raise NotImplementedError

    def read_refusal(self, reply: Reply) -> str:
        """Return the reason in the reply of a server that refuses; its beginning is
        shown. May raise as `read` does.
        """
        return reply.text()

    def read_model(self, reply: Reply) -> str:
        """Return the model's name in the reply from `model_path`."""
        value = reply.json()
        for key in self.model_keys:
            value = value[key]
        return str(value)


class Vllm(Dialect):
    """vLLM's /classify."""

    kind = "vllm"
    path = "/classify"
    takes_ids = True
    counts = True
    model_path = "/v1/models"
    model_keys = ("data", 0, "id")
    values_key: ClassVar[str] = "probs"

    def body(self, texts: Sequence[Payload], model: str | None) -> Body:
        """Return the JSON that is posted."""
        body: Body = {
            "input": list(texts),
            # For ids it says nothing; for text it keeps the beginning token from being
            # written twice.
            "add_special_tokens": False,
            "use_activation": False,
        }
        if model:
            body["model"] = model
        return body

    def read(self, reply: Reply, n_texts: int) -> Scored:
        """Read rows that say which text each is for: they may come in any order."""
        answer = reply.json()
        rows = sorted(answer["data"], key=lambda row: int(row["index"]))
        if [row["index"] for row in rows] != list(range(n_texts)):
            raise ValueError(f"{len(rows)} answers for {n_texts} texts")
        return Scored(
            values=[parse_numbers(row[self.values_key]) for row in rows],
            tokens=answer.get("usage", {}).get("prompt_tokens") or None,
            model=str(answer.get("model", "")),
        )


class VllmPooling(Vllm):
    """vLLM's /pooling; a server that was started for another task gives values of every
    token.
    """

    kind = "vllm-pooling"
    path = "/pooling"
    values_key = "data"

    def body(self, texts: Sequence[Payload], model: str | None) -> Body:
        """Return the JSON that is posted."""
        return super().body(texts, model) | {"task": "classify"}


class Sglang(Dialect):
    """SGLang's /classify."""

    kind = "sglang"
    path = "/classify"
    takes_ids = True
    counts = True
    adds_special = True
    model_path = "/get_model_info"
    model_keys = ("model_path",)

    def body(self, texts: Sequence[Payload], model: str | None) -> Body:
        """Return the JSON that is posted."""
        name = "input_ids" if isinstance(texts[0], list) else "text"
        return {name: list(texts)}

    def read(self, reply: Reply, n_texts: int) -> Scored:
        """Read one row per text, in the order of the texts."""
        values = []
        counts = []
        for row in _require_rows(reply.json(), n_texts):
            values.append(parse_numbers(row["embedding"]))
            counts.append(row.get("meta_info", {}).get("prompt_tokens"))
        tokens = sum(counts) if all(counts) else None
        return Scored(values, tokens)


class Tei(Dialect):
    """Text Embeddings Inference's /predict."""

    kind = "tei"
    path = "/predict"
    adds_special = True
    model_path = "/info"
    model_keys = ("model_id",)
    sorts_labels = True

    def body(self, texts: Sequence[Payload], model: str | None) -> Body:
        """Return the JSON that is posted."""
        return {
            # A list of two strings would be one pair: each text is a list of its own.
            "inputs": [[text] for text in texts],
            "raw_scores": True,
            "truncate": False,
        }

    def read(self, reply: Reply, n_texts: int) -> Scored:
        """Read one row per text; its labels come sorted by score, and their names put
        them in one order.
        """
        values = []
        for row in _require_rows(reply.json(), n_texts):
            labels = sorted(row, key=lambda label: str(label["label"]))
            values.append(parse_numbers([label["score"] for label in labels]))
        return Scored(values)


class OpenRlhf(Dialect):
    """OpenRLHF's /get_reward."""

    kind = "openrlhf"
    path = "/get_reward"
    length_option = "--max_len"

    def body(self, texts: Sequence[Payload], model: str | None) -> Body:
        """Return the JSON that is posted."""
        return {"query": list(texts)}

    def read(self, reply: Reply, n_texts: int) -> Scored:
        """Read one reward per text."""
        rewards = _require_rows(reply.json()["rewards"], n_texts)
        return Scored([parse_numbers(reward) for reward in rewards])


class Triton(Dialect):
    """NeMo's reward server, which speaks Triton's binary protocol."""

    kind = "triton"
    path = "/infer"
    usual_model = "reward_model"
    rates_attributes = True
    writer = FormWriter("steerlm", steerlm.conversation)
    add_eos = False

    def __init__(self, add_eos: bool = False) -> None:
        super().__init__(add_eos)
        if find_spec("tritonclient") is None:
            command = install_command("triton")
            raise ImportError(
                f"asking a Triton server needs tritonclient: run {command}"
            )

    def request(self, texts: Sequence[Payload], model: str | None) -> Request:
        """Return the request for the attributes of some texts."""
        from tritonclient.http import (
            InferenceServerClient,
            InferInput,
            InferRequestedOutput,
        )

        sentences = np.array([[str(text).encode()] for text in texts], np.object_)
        text_input = InferInput("sentences", list(sentences.shape), "BYTES")
        text_input.set_data_from_numpy(sentences)
        eos_marks = np.full((len(texts), 1), self.add_eos)
        eos_input = InferInput("add_EOS", list(eos_marks.shape), "BOOL")
        eos_input.set_data_from_numpy(eos_marks)
        inputs = [text_input, eos_input]
        outputs = [InferRequestedOutput("rewards"), InferRequestedOutput("exceeded")]
        content, json_size = InferenceServerClient.generate_request_body(
            inputs, outputs=outputs
        )
        headers = {
            "content-type": "application/octet-stream",
            "inference-header-content-length": str(json_size),
        }
        return Request(f"/v2/models/{model}{self.path}", content, headers=headers)

    def read(self, reply: Reply, n_texts: int) -> Scored:
        """Return the attributes in a reply; raise where they are not whole, or the
        server cut a text.
        """
        from tritonclient.http import InferenceServerClient
        from tritonclient.utils import InferenceServerException

        size = reply.headers.get("inference-header-content-length")
        try:
            result = InferenceServerClient.parse_response_body(
                reply.content, header_length=size and int(size)
            )
        except InferenceServerException as error:
            raise ValueError(str(error)) from error
        rewards = result.as_numpy("rewards")
        exceeded = result.as_numpy("exceeded")
        problem = f"no rewards and marks of length for {n_texts} texts"
        if rewards is None or exceeded is None:
            raise ValueError(problem)
        if not len(rewards) == exceeded.size == n_texts:
            raise ValueError(problem)
        if exceeded.astype(bool).any():
            reason = "the text is longer than the server's window (exceeded)"
            raise Failure(reason, again=False, refused=True)
        rows = rewards.reshape(n_texts, -1).astype(float).tolist()
        return Scored([parse_numbers(row) for row in rows])


DIALECTS = {
    dialect.kind: dialect
    for dialect in (Vllm, VllmPooling, Sglang, Tei, OpenRlhf, Triton)
}


def find_dialect(kind: str, url: str) -> type[Dialect]:
    """Return the dialect of a server; raise DataError for an unknown one, and for one
    that gives no raw scores.
    """
    if kind not in DIALECTS:
        raise DataError(f"kind={kind!r}", nearest(kind, list(DIALECTS)))
    dialect = DIALECTS[kind]
    # Of these SGLang's /v1/classify is the trap: always a softmax, 1.0 for every text
    # of a model with one label.
    if url.endswith((dialect.path, "/v1", "/pooling", "/score", "/classify")):
        example = "such as 'http://127.0.0.1:8000'"
        raise DataError(f"url={url!r}", f"give the server's address alone, {example}")
    return dialect


def parse_numbers(values: Json) -> list[float]:
    """Return the outputs for one text as floats; raise ValueError for anything else."""
    row = values if isinstance(values, list) else [values]
    if row and isinstance(row[0], list):
        raise ValueError(
            "values for every token; serve vLLM with --pooler-config.task classify"
        )
    if not row:
        raise ValueError("no numbers")
    numbers = []
    for value in row:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{values!r:.60} where numbers belong")
        if not math.isfinite(value):
            raise ValueError(f"{values!r:.60}: not finite")
        numbers.append(float(value))
    return numbers


def _require_rows(rows: Json, n_texts: int) -> list[Json]:
    if not isinstance(rows, list) or len(rows) != n_texts:
        raise ValueError(f"no list of {n_texts} answers")
    return rows
