"""Conversations as a server takes them: token ids, text that becomes the same ids, or a
form of the server's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rmlab.scorers.base import Ids, Prompt
from rmlab.scorers.encoder import TextEncoder
from rmlab.servers.kinds.base import Payloads, ServerKind
from rmlab.tables import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Prepared:
    """Texts ready to be sent, and the tokens of each, 0 where unknown."""

    texts: Payloads
    lengths: NDArray[np.intp]


@dataclass(frozen=True)
class Writer:
    """Writes conversations by the model's own template and tokenizer, or without an
    encoder in the server's form.

    A server that takes no token ids is sent text that its tokenizer turns into the same
    ids; DataError is raised for texts of which that cannot be shown.
    """

    kind: ServerKind
    encoder: TextEncoder | None = None

    @property
    def fingerprint(self) -> str:
        """Changes with everything that decides how texts are written."""
        return self.kind.form if self.encoder is None else self.encoder.fingerprint

    def write(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Prepared:
        """Return one payload per response."""
        if self.encoder is None:
            payloads = list(map(self.kind.write, prompts, responses))
            return Prepared(payloads, np.zeros(len(payloads), np.intp))

        encoded = self.encoder.encode(prompts, responses)
        texts: Payloads = [text_ids.tolist() for text_ids in encoded.ids]
        if not self.kind.takes_ids:
            tokenizer = self.encoder.tokenizer
            texts = _as_text(tokenizer, encoded.ids, self.kind.adds_special)
        lengths = np.array([len(text_ids) for text_ids in encoded.ids], np.intp)
        return Prepared(texts, lengths)


def _as_text(
    tokenizer: "PreTrainedTokenizerBase", ids: Sequence[Ids], adds_special: bool
) -> list[str]:
    """Texts that the server's tokenizer turns into these ids."""
    from rmlab.inference.tokenised import call, decode, special_tokens

    opening: Sequence[int] = ()
    closing: Sequence[int] = ()
    if adds_special:
        opening, closing = special_tokens(tokenizer)
    texts = []
    for text_ids in ids:
        inner = text_ids[len(opening) : len(text_ids) - len(closing)]
        text = decode(
            tokenizer,
            inner.tolist(),
            skip_special_tokens=False,
            clean_up_tokenization_spaces=False,
        )
        texts.append(text)

    encoded = call(tokenizer, texts, add_special_tokens=adds_special)
    for number, text_ids in enumerate(encoded["input_ids"]):
        if not np.array_equal(text_ids, ids[number]):
            raise DataError(
                f"text {number} would be read as other tokens than the template writes",
                "use a server that takes token ids (vllm, sglang)",
            )
    return texts
