"""A tokenizer's call without side effects, its special tokens, and the way back."""

from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from rmlab.inference.planning import common_length

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedTokenizerBase

# More than the four bytes that a character has at most.
_MOST_TOKENS_OF_A_CHARACTER = 8


class SpecialTokens(NamedTuple):
    """The token ids that a tokenizer writes around a text: before it and behind it."""

    opening: tuple[int, ...]
    closing: tuple[int, ...]


def call(
    tokenizer: "PreTrainedTokenizerBase",
    *texts: str | list[str],
    add_special_tokens: bool,
) -> "BatchEncoding":
    """The tokenizer's own call without padding, truncation or warnings.

    The settings that are stored in it come back afterwards.
    """
    # Fast tokenizers keep truncation and padding in their Rust part; a call without
    # them switches them off for good.
    core = getattr(tokenizer, "backend_tokenizer", None)
    truncation = getattr(core, "truncation", None)
    padding = getattr(core, "padding", None)
    try:
        encoding = tokenizer(
            *texts,
            add_special_tokens=add_special_tokens,
            return_attention_mask=False,
            verbose=False,
        )
    finally:
        if core is not None and truncation is not None:
            core.enable_truncation(**truncation)
        if core is not None and padding is not None:
            core.enable_padding(**padding)
    return cast("BatchEncoding", encoding)


def decode(
    tokenizer: "PreTrainedTokenizerBase", ids: list[int], **options: bool
) -> str:
    """The text of one sequence of ids.

    transformers' annotation leaves open whether one or several were given.
    """
    return cast(str, tokenizer.decode(ids, **options))


def token_texts(tokenizer: "PreTrainedTokenizerBase", ids: list[int]) -> list[str]:
    """The text of each token, which put together are the text of all.

    The bytes of one character that several tokens share go to the last of them; the
    others are empty.
    """
    texts: list[str] = []
    pending: list[int] = []
    for token in ids:
        pending.append(token)
        text = decode(tokenizer, pending, clean_up_tokenization_spaces=False)
        # Bytes that never make a character must not hold up the texts behind them.
        is_stuck = len(pending) >= _MOST_TOKENS_OF_A_CHARACTER
        if text.endswith("�") and not is_stuck:
            texts.append("")
        else:
            texts.append(text)
            pending = []
    return texts


def special_tokens(tokenizer: "PreTrainedTokenizerBase") -> SpecialTokens:
    """An encoder's tokens at both ends (`[CLS] text [SEP]`), or a decoder's beginning
    token and the end tokens that its tokenizer adds.
    """
    # Around an empty text stands what stands around any; another shows where it parts.
    around = call(tokenizer, "", add_special_tokens=True)["input_ids"]
    enclosed = call(tokenizer, "a", add_special_tokens=True)["input_ids"]
    n_opening = common_length(np.array(around), np.array(enclosed))
    opening = tuple(around[:n_opening])
    behind = around[n_opening:]
    n_closing = common_length(np.array(behind[::-1]), np.array(enclosed[::-1]))
    closing = tuple(behind[len(behind) - n_closing :])

    # Only encoders have both tokens: [CLS] at either end and [SEP] at the close.
    class_token = tokenizer.cls_token_id
    separator = tokenizer.sep_token_id
    is_known = class_token is not None and separator is not None
    if is_known and class_token in opening + closing and separator in closing:
        return SpecialTokens(opening, closing)

    if opening[:1] != (tokenizer.bos_token_id,):
        opening = ()
    return SpecialTokens(opening[:1], closing)
