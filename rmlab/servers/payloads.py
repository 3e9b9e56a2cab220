"""Conversations as a server takes them: token ids, text that becomes the same ids, or a
form of the server's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rmlab.scorers.base import Prompt
from rmlab.scorers.encoder import EncodeOptions
from rmlab.servers.kinds.base import Payloads, ServerKind
from rmlab.tables import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rmlab.inference.encoding import Encoded


@dataclass(frozen=True)
class Prepared:
    """Texts ready to be sent.

    `lengths`: tokens of each, 0 where unknown. `truncated`: how many were cut.
    """

    texts: Payloads
    lengths: NDArray[np.intp]
    truncated: int = 0


@dataclass(frozen=True)
class Writer:
    """Writes conversations by the model's own template and tokenizer, as
    `rmlab.inference.encoding.encode` does; without a tokenizer in the server's form.

    `content`: hash of the tokenizer's files. A server that takes no token ids is sent
    text that its tokenizer turns into the same ids; DataError is raised for texts of
    which that cannot be shown.
    """

    kind: ServerKind
    options: EncodeOptions
    tokenizer: "PreTrainedTokenizerBase | None" = None
    content: str = ""

    @property
    def identity(self) -> Mapping[str, object]:
        """All that decides how texts are written, as plain values."""
        return {**self.options, "tokenizer": self.content or self.kind.form}

    def encode(
        self, prompts: Sequence[Prompt], responses: Sequence[str]
    ) -> "Encoded | None":
        """Return the texts as token ids; None without a tokenizer."""
        if self.tokenizer is None:
            return None
        from rmlab.inference.encoding import encode

        return encode(self.tokenizer, prompts, responses, **self.options)

    def write(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Prepared:
        """Return one payload per response."""
        encoded = self.encode(prompts, responses)
        if encoded is None or self.tokenizer is None:
            payloads = []
            for prompt, response in zip(prompts, responses, strict=True):
                payloads.append(self.kind.write(prompt, response, self.options))
            return Prepared(payloads, np.zeros(len(payloads), np.intp))

        ids = [text_ids.tolist() for text_ids in encoded.ids]
        texts: Payloads = ids
        if ids and not self.kind.takes_ids:
            texts = _as_text(self.tokenizer, ids, self.kind.adds_special)
        lengths = np.array([len(text_ids) for text_ids in ids], np.intp)
        return Prepared(texts, lengths, int(np.sum(encoded.truncated)))


def _as_text(
    tokenizer: "PreTrainedTokenizerBase", ids: list[list[int]], adds_special: bool
) -> list[str]:
    """Texts that the server's tokenizer turns into these ids."""
    from rmlab.inference.tokenizer_calls import call, decode, special_tokens

    opening: Sequence[int] = ()
    closing: Sequence[int] = ()
    if adds_special:
        opening, closing = special_tokens(tokenizer)
    texts = []
    for text_ids in ids:
        inner = text_ids[len(opening) : len(text_ids) - len(closing)]
        text = decode(
            tokenizer,
            inner,
            skip_special_tokens=False,
            clean_up_tokenization_spaces=False,
        )
        texts.append(text)

    encoded = call(tokenizer, texts, add_special_tokens=adds_special)
    for number, text_ids in enumerate(encoded["input_ids"]):
        if text_ids != ids[number]:
            raise DataError(
                f"text {number} would be read as other tokens than the template writes",
                "use a server that takes token ids (vllm, sglang)",
            )
    return texts
