"""Conversations as a server takes them: token ids of our own, or text that it will read as just these ids."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rmlab.scorers.types import EncodeOptions, Prompt
from rmlab.servers import steerlm
from rmlab.servers.dialects import Payload
from rmlab.tables import DataError

__all__ = ["Payloads", "SteerLMWriter", "TokenWriter", "Writer"]


@dataclass(frozen=True)
class Payloads:
    """Texts ready to be sent. `keys`: one content key per text. `lengths`: tokens of each, 0 where nobody knows."""

    texts: Sequence[Payload]
    keys: list[str]
    groups: NDArray[np.intp]
    lengths: NDArray[np.intp]
    truncated: int = 0

    @property
    def order(self) -> NDArray[np.intp]:
        """Text numbers, answers to one prompt beside each other: servers reuse what they share."""
        return np.argsort(self.groups, kind="stable")


class Writer(Protocol):
    """Makes payloads of conversations."""

    @property
    def identity(self) -> dict[str, object]:
        """All that decides what is sent, as plain values."""

    def write(self, prompts: Sequence[Prompt], responses: Sequence[str], /) -> Payloads:
        """One payload per response."""


@dataclass(frozen=True)
class TokenWriter:
    """Writes conversations by the model's own template and tokenizer, as `rmlab.inference.template.encode` does.

    `ids`: send token ids. Else text is sent that the server's tokenizer turns into the same ids; `adds_special` says
    whether the server writes special tokens around it. Raises DataError for texts of which that cannot be shown.
    """

    tokenizer: Any
    options: EncodeOptions
    ids: bool
    adds_special: bool

    @cached_property
    def identity(self) -> dict[str, object]:
        """The tokenizer and the options."""
        vocabulary = hashlib.sha256(repr(sorted(self.tokenizer.get_vocab().items())).encode()).hexdigest()[:16]
        return dict(self.options) | {"vocabulary": vocabulary, "chat_template": self.tokenizer.chat_template}

    def write(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Payloads:
        """One payload per response."""
        from rmlab.inference.template import encode

        encoded = encode(self.tokenizer, prompts, responses, **self.options)
        ids = [one.tolist() for one in encoded.ids]
        return Payloads(
            ids if self.ids else self._texts(ids),
            encoded.keys,
            encoded.groups,
            np.array([len(one) for one in ids], np.intp),
            int(np.sum(encoded.truncated)),
        )

    def _texts(self, ids: list[list[int]]) -> list[str]:
        from rmlab.inference.ends import call, special_tokens

        around = special_tokens(self.tokenizer) if self.adds_special else ((), ())
        opening, closing = map(len, around)
        texts = [
            self.tokenizer.decode(
                one[opening : len(one) - closing], skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
            for one in ids
        ]
        read = call(self.tokenizer, texts, add_special_tokens=self.adds_special)["input_ids"] if texts else []
        wrong = [i for i, (sent, found) in enumerate(zip(ids, read, strict=True)) if sent != found]
        if wrong:
            raise DataError(
                f"text {wrong[0]} (and {len(wrong) - 1} more of {len(ids)}): as text it would be read as other tokens "
                "than the model's template writes; use a server that takes token ids (vllm, sglang)"
            )
        return texts


@dataclass(frozen=True)
class SteerLMWriter:
    """Writes conversations in the SteerLM format; the server has the tokenizer."""

    @property
    def identity(self) -> dict[str, object]:
        """The format."""
        return {"template": "steerlm"}

    def write(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Payloads:
        """One payload per response."""
        texts = [steerlm.conversation(prompt, text) for prompt, text in zip(prompts, responses, strict=True)]
        numbers: dict[str, int] = {}
        groups = [numbers.setdefault(repr(prompt), len(numbers)) for prompt in prompts]
        keys = [hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest() for text in texts]
        return Payloads(texts, keys, np.array(groups, np.intp), np.zeros(len(texts), np.intp))
