"""How servers of reward models are asked for raw scores, and how their answers are
read, one `Dialect` each.

Servers differ in what they do by default: a sigmoid, a softmax, a second beginning
token, silent truncation. Each request here is right by the servers' documents or by
measurement; `rmlab.servers.examine` tests what a server does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rmlab.scorers.base import Prompt
from rmlab.scorers.encoder import EncodeOptions
from rmlab.servers.http import Json, Reply, Request
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Payload = str | list[int]
"""One conversation as a server takes it: text, or token ids."""

Body = dict[str, object]


@dataclass(frozen=True)
class Payloads:
    """Texts ready to be sent. `groups`: number of each one's prompt. `lengths`: tokens
    of each, 0 where unknown.
    """

    texts: Sequence[Payload]
    groups: NDArray[np.intp]
    lengths: NDArray[np.intp]
    truncated: int = 0


@dataclass(frozen=True)
class TokenWriter:
    """Writes conversations by the model's own template and tokenizer, as
    `rmlab.inference.template.encode` does.

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
        return dict(self.options) | {"tokenizer": self.content}

    def write(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Payloads:
        """Return one payload per response."""
        from rmlab.inference.template import encode

        encoded = encode(self.tokenizer, prompts, responses, **self.options)
        ids, lengths = (
            [text_ids.tolist() for text_ids in encoded.ids],
            [*map(len, encoded.ids)],
        )
        texts = ids if self.ids else self._as_text(ids)
        return Payloads(
            texts,
            encoded.groups,
            np.array(lengths, np.intp),
            int(np.sum(encoded.truncated)),
        )

    def _as_text(self, ids: list[list[int]]) -> list[str]:
        from rmlab.inference.template import call, decode, special_tokens

        opening, closing = map(
            len, special_tokens(self.tokenizer) if self.adds_special else ((), ())
        )
        spans = [text_ids[opening : len(text_ids) - closing] for text_ids in ids]
        exactly = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        texts = [decode(self.tokenizer, span, **exactly) for span in spans]
        ids_again = (
            call(self.tokenizer, texts, add_special_tokens=self.adds_special)[
                "input_ids"
            ]
            if texts
            else []
        )
        differing = [
            i
            for i, pair in enumerate(zip(ids, ids_again, strict=True))
            if pair[0] != pair[1]
        ]
        if differing:
            problem = f"text {differing[0]} of {len(ids)} would be read as other tokens than the template writes"
            raise DataError(
                f"{problem}; use a server that takes token ids (vllm, sglang)"
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
    """One kind of server.

    `takes_ids`: whether texts may go as token ids. `counts`: whether replies say how
    many tokens were read. `adds_special`: whether the server writes the tokenizer's
    special tokens around a text. `model_path`: where it names its model, empty where it
    does not, and `model_keys`, which lead to the name there.
    """

    kind = path = model_path = ""
    model_keys: tuple[str | int, ...] = ()
    takes_ids = counts = adds_special = False

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

    def read_model(self, reply: Reply) -> str:
        """Return the model's name in the reply from `model_path`."""
        return str(reduce(getitem, self.model_keys, reply.json()))


class Vllm(Dialect):
    """vLLM's /classify."""

    kind, path, model_path = "vllm", "/classify", "/v1/models"
    model_keys = ("data", 0, "id")
    takes_ids = counts = True
    values_key = "probs"

    def body(self, texts: Sequence[Payload], model: str | None) -> Body:
        """Return the JSON that is posted."""
        # For ids `add_special_tokens` says nothing; for text it keeps the beginning
        # token from being written twice.
        body: Body = {
            "input": list(texts),
            "add_special_tokens": False,
            "use_activation": False,
        }
        return body | ({"model": model} if model else {})

    def read(self, reply: Reply, n_texts: int) -> Scored:
        """Read rows that say which text each is for: they may come in any order."""
        answer = reply.json()
        rows = sorted(answer["data"], key=lambda row: int(row["index"]))
        if [row["index"] for row in rows] != list(range(n_texts)):
            raise ValueError(f"{len(rows)} answers for {n_texts} texts")
        tokens = answer.get("usage", {}).get("prompt_tokens") or None
        values = [parse_numbers(row[self.values_key]) for row in rows]
        return Scored(values, tokens, str(answer.get("model", "")))


class VllmPooling(Vllm):
    """vLLM's /pooling; a server that was started for another task gives values of every
    token.
    """

    kind, path, values_key = "vllm-pooling", "/pooling", "data"

    def body(self, texts: Sequence[Payload], model: str | None) -> Body:
        """Return the JSON that is posted."""
        return super().body(texts, model) | {"task": "classify"}


class Sglang(Dialect):
    """SGLang's /classify."""

    kind, path, model_path = "sglang", "/classify", "/get_model_info"
    model_keys = ("model_path",)
    takes_ids = counts = adds_special = True

    def body(self, texts: Sequence[Payload], model: str | None) -> Body:
        """Return the JSON that is posted."""
        return {"input_ids" if isinstance(texts[0], list) else "text": list(texts)}

    def read(self, reply: Reply, n_texts: int) -> Scored:
        """Read one row per text, in the order of the texts."""
        rows = _require_rows(reply.json(), n_texts)
        tokens = [row.get("meta_info", {}).get("prompt_tokens") for row in rows]
        return Scored(
            [parse_numbers(row["embedding"]) for row in rows],
            sum(tokens) if all(tokens) else None,
        )


class Tei(Dialect):
    """Text Embeddings Inference's /predict."""

    kind, path, model_path = "tei", "/predict", "/info"
    model_keys = ("model_id",)
    adds_special = True

    def body(self, texts: Sequence[Payload], model: str | None) -> Body:
        """Return the JSON that is posted."""
        # A list of two strings would be one pair: each text is a list of its own.
        return {
            "inputs": [[text] for text in texts],
            "raw_scores": True,
            "truncate": False,
        }

    def read(self, reply: Reply, n_texts: int) -> Scored:
        """Read one row per text; its labels come sorted by score, and their names put
        them in one order.
        """
        rows = [
            sorted(row, key=lambda label: str(label["label"]))
            for row in _require_rows(reply.json(), n_texts)
        ]
        return Scored(
            [parse_numbers([label["score"] for label in row]) for row in rows]
        )


class OpenRlhf(Dialect):
    """OpenRLHF's /get_reward."""

    kind, path = "openrlhf", "/get_reward"

    def body(self, texts: Sequence[Payload], model: str | None) -> Body:
        """Return the JSON that is posted."""
        return {"query": list(texts)}

    def read(self, reply: Reply, n_texts: int) -> Scored:
        """Read one reward per text."""
        return Scored(
            [
                parse_numbers(reward)
                for reward in _require_rows(reply.json()["rewards"], n_texts)
            ]
        )


DIALECTS = {
    server.kind: server
    for server in (Vllm(), VllmPooling(), Sglang(), Tei(), OpenRlhf())
}


def find_dialect(kind: str, url: str) -> Dialect:
    """Return the dialect of a server; raise DataError for an unknown one, and for one
    that gives no raw scores.
    """
    if kind not in DIALECTS:
        raise DataError(f"kind={kind!r}; {nearest(kind, [*DIALECTS, 'triton'])}")
    # Of these SGLang's /v1/classify is the trap: always a softmax, 1.0 for every text
    # of a model with one label.
    if url.endswith((DIALECTS[kind].path, "/v1", "/pooling", "/score", "/classify")):
        raise DataError(
            f"url={url!r}; give the server's address alone, such as 'http://127.0.0.1:8000'"
        )
    return DIALECTS[kind]


def parse_numbers(values: Json) -> list[float]:
    """Return the outputs for one text as floats; raise ValueError for anything else."""
    row = values if isinstance(values, list) else [values]
    if row and isinstance(row[0], list):
        raise ValueError(
            "values for every token; serve vLLM with --pooler-config.task classify"
        )
    if not row or any(
        isinstance(value, bool) or not isinstance(value, int | float) for value in row
    ):
        raise ValueError(f"{values!r:.60} where numbers belong")
    if not all(math.isfinite(value) for value in row):
        raise ValueError(f"{values!r:.60}: not finite")
    return [float(value) for value in row]


def _require_rows(rows: Json, n_texts: int) -> list[Json]:
    if not isinstance(rows, list) or len(rows) != n_texts:
        raise ValueError(f"no list of {n_texts} answers")
    return rows
