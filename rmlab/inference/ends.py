"""A text's token ids and its ends: the special tokens around it, the end token, and what truncation keeps."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from rmlab.tables import DataError

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedTokenizerBase

__all__ = [
    "SpecialTokens",
    "Text",
    "call",
    "enclose",
    "fit",
    "one_bos",
    "require_unicode",
    "special_tokens",
    "with_end",
]

Ids = NDArray[np.int32]

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Text:
    """One text on its way: its ids, the index of its first response token, and the special tokens around it.

    `opening`, `closing`: how many tokens at the ends are the tokenizer's own and survive truncation.
    """

    ids: Ids
    start: int
    cut: bool = False
    opening: int = 0
    closing: int = 0


def require_unicode(prompts: Sequence[str | list[dict[str, str]]], *answers: Sequence[str]) -> None:
    """Raise DataError for texts with half a surrogate pair, which no tokenizer can write."""
    for number, row in enumerate(zip(prompts, *answers, strict=True)):
        prompt = row[0] if isinstance(row[0], str) else "".join(turn["content"] for turn in row[0])
        for text in (prompt, *row[1:]):
            if _SURROGATE.search(str(text)):
                raise DataError(
                    f"text {number} holds half a surrogate pair, which is not a character: {str(text)[:60]!r}; "
                    "repair the file it was read from"
                )


def decode(tokenizer: "PreTrainedTokenizerBase", ids: list[int], **options: bool) -> str:
    """The text of one sequence of ids; transformers' annotation leaves open whether one or several were given."""
    return cast(str, tokenizer.decode(ids, **options))


def call(tokenizer: "PreTrainedTokenizerBase", *texts: str | list[str], add_special_tokens: bool) -> "BatchEncoding":
    """The tokenizer's own call without padding, truncation or warnings; its stored settings come back afterwards."""
    # Fast tokenizers keep truncation and padding in their Rust part; a call without them switches them off for good.
    core = getattr(tokenizer, "backend_tokenizer", None)
    truncation, padding = getattr(core, "truncation", None), getattr(core, "padding", None)
    try:
        encoding: BatchEncoding = tokenizer(
            *texts, add_special_tokens=add_special_tokens, padding=False, truncation=False, verbose=False,
            return_attention_mask=False, return_token_type_ids=False,
        )  # fmt: skip
        return encoding
    finally:
        if core is not None and truncation is not None:
            core.enable_truncation(**truncation)
        if core is not None and padding is not None:
            core.enable_padding(**padding)


def one_bos(bos: int | None, habit: bool, text: Text) -> Text:
    """Exactly one beginning token where the tokenizer writes one before plain text, or the template does."""
    if bos is None:
        return text
    leading = int((text.ids != bos).argmax())  # beginning tokens that the template wrote
    wanted = int(habit or leading > 0)
    ids = np.concatenate([np.full(wanted, bos, np.int32), text.ids[leading:]])
    # The response moves with the tokens before it.
    return replace(text, ids=ids, start=text.start + wanted - leading, opening=wanted)


class SpecialTokens(NamedTuple):
    """What a tokenizer writes around plain text: token ids before it and behind it."""

    opening: tuple[int, ...]
    closing: tuple[int, ...]


def special_tokens(tokenizer: "PreTrainedTokenizerBase") -> SpecialTokens:
    """A decoder's beginning token, or an encoder's tokens at both ends, as `[CLS] text [SEP]`.

    What a decoder's tokenizer would write behind a text is left out: where an answer ends is the template's to say.
    """
    # Any text shows what is put around it; what the tokenizer adds is whatever stands around the bare ids.
    whole, bare = (call(tokenizer, "a", add_special_tokens=added)["input_ids"] for added in (True, False))
    start = next(i for i in range(len(whole) + 1) if whole[i : i + len(bare)] == bare or i == len(whole))
    opening, closing = tuple(whole[:start]), tuple(whole[start + len(bare) :])
    classes, separator = tokenizer.cls_token_id, tokenizer.sep_token_id
    # An encoder's, by the tokens that only encoders write: [CLS] at either end and [SEP] at the close.
    if None not in (classes, separator) and classes in opening + closing and separator in closing:
        return SpecialTokens(opening, closing)
    return SpecialTokens(opening[:1] if opening[:1] == (tokenizer.bos_token_id,) else (), ())


def enclose(text: Text, around: SpecialTokens) -> Text:
    """The text between the tokenizer's special tokens, each of them once even where the template writes them too."""
    inside = ~np.isin(text.ids, [*around.opening, *around.closing])
    first = int(inside.argmax())
    last = len(inside) - int(inside[::-1].argmax())  # one behind the last token that is not special
    ids = np.concatenate([np.array(around.opening), text.ids[first:last], np.array(around.closing)]).astype(np.int32)
    # Special tokens that go from the front, and those that come, move the response along.
    start = max(text.start - first, 0) + len(around.opening)
    return replace(text, ids=ids, start=start, opening=len(around.opening), closing=len(around.closing))


def with_end(tokenizer: "PreTrainedTokenizerBase", text: Text, eos: bool | None) -> Text:
    """The text with or without the end token, as asked."""
    if eos is None:
        return text
    end = tokenizer.eos_token_id
    if end is None:
        raise DataError(f"eos={eos}, but the tokenizer has no end token; set tokenizer.eos_token or leave eos=None")
    # All end tokens at the end, as some templates write one and some tokenizers add another.
    trailing = int((text.ids[::-1] != end).argmax())
    bare = text.ids[: len(text.ids) - trailing]
    return replace(text, ids=np.concatenate([bare, np.full(int(eos), end, np.int32)]))


def fit(texts: list[Text], max_length: int | None, truncate: str | None) -> list[Text]:
    """Texts of at most `max_length` tokens; the others are refused or cut."""
    if max_length is None:
        return texts
    long = [i for i, text in enumerate(texts) if len(text.ids) > max_length]
    if long and truncate is None:
        worst = max(long, key=lambda i: len(texts[i].ids))
        raise DataError(
            f"{len(long)} of {len(texts)} texts are longer than max_length={max_length} tokens; the longest is text "
            f"{worst} with {len(texts[worst].ids)}; pass truncate='left' (keeps the answer) or 'right'"
        )
    cut = _cut_left if truncate == "left" else _cut_right
    return [cut(text, max_length) if len(text.ids) > max_length else text for text in texts]


def _cut_left(text: Text, length: int) -> Text:
    """The end of a text behind its special tokens, which encoders are read at."""
    keep = text.opening
    gone = len(text.ids) - length
    ids = np.concatenate([text.ids[:keep], text.ids[keep + gone :]])
    # Where even the answer is cut, what is left of it begins behind the special tokens.
    return replace(text, ids=ids, start=max(text.start - gone, keep), cut=True)


def _cut_right(text: Text, length: int) -> Text:
    """The beginning of a text; the special tokens behind it stay."""
    if text.start >= length - text.closing:
        raise DataError(
            f"truncate='right' at {length} tokens leaves nothing of a response that begins at token {text.start}; "
            "use truncate='left' or a larger max_length"
        )
    ids = np.concatenate([text.ids[: length - text.closing], text.ids[len(text.ids) - text.closing :]])
    return replace(text, ids=ids, cut=True)
