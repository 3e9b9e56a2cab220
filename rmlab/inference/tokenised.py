"""Rendered texts to token ids and back: a tokenizer's call without side effects, where
the response begins, both ends, and texts that are longer than the model's window.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.planning import common_length
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedTokenizerBase

Ids = NDArray[np.int32]

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
    token and the EOS tokens that its tokenizer adds.
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


@dataclass(frozen=True)
class TokenisedText:
    """The ids of one text, the index of its first response token, and its ends.

    `opening`, `closing`: how many tokens at the ends are the tokenizer's own and
    survive truncation.
    """

    ids: Ids
    start: int
    is_cut: bool = False
    opening: int = 0
    closing: int = 0


def tokenise(
    tokenizer: "PreTrainedTokenizerBase",
    texts: list[str],
    starts: list[int],
    *,
    add_special_tokens: bool = False,
) -> list[TokenisedText]:
    """Ids of each text; `starts`: index of the first character of its response."""
    if not texts:
        return []
    encoding = call(tokenizer, texts, add_special_tokens=add_special_tokens)
    if not tokenizer.is_fast:
        problem = f"the tokenizer {tokenizer.name_or_path!r} is written in Python"
        remedy = "save it as a fast one: it does not say where a token stands"
        raise DataError(problem, remedy)
    rows = zip(
        encoding["input_ids"], _first_tokens(encoding, texts, starts), strict=True
    )
    return [TokenisedText(np.array(ids, np.int32), start) for ids, start in rows]


def _first_tokens(
    encoding: "BatchEncoding", texts: list[str], starts: list[int]
) -> list[int]:
    """The first token of each text that holds a character at or behind its start."""
    first_tokens: list[int] = []
    for number, text in enumerate(texts):
        # White space before a word may belong to no token of its own.
        for character in range(starts[number], len(text)):
            token = encoding.char_to_token(number, character)
            if token is not None:
                first_tokens.append(token)
                break
        else:
            raise DataError(f"response {number} has no token", "it cannot be scored")
    return first_tokens


def tokenise_segments(
    tokenizer: "PreTrainedTokenizerBase", prompts: list[str], responses: Sequence[str]
) -> list[TokenisedText]:
    """Prompt and response as two segments between the tokenizer's special tokens.

    Encoders are trained in this form.
    """
    answers = list(responses)
    if not answers:
        return []
    pairs = call(tokenizer, prompts, answers, add_special_tokens=True)["input_ids"]
    plain = call(tokenizer, answers, add_special_tokens=False)["input_ids"]
    opening, closing = map(len, special_tokens(tokenizer))
    texts = []
    for ids, answer_ids in zip(pairs, plain, strict=True):
        # A segment is written as it is alone.
        start = len(ids) - closing - len(answer_ids)
        text = TokenisedText(
            np.array(ids, np.int32), start, opening=opening, closing=closing
        )
        texts.append(text)
    return texts


def tokenise_steps(
    tokenizer: "PreTrainedTokenizerBase",
    prompts: list[str],
    answers: Sequence[Sequence[str]],
    separator: str,
) -> list[TokenisedText]:
    """Prompt, steps and the separator behind each step, every one tokenised by itself,
    as trl trains process reward models.
    """
    texts = []
    for prompt, steps in zip(prompts, answers, strict=True):
        pieces = [prompt, separator, *steps]
        rows = call(tokenizer, pieces, add_special_tokens=False)["input_ids"]
        prompt_ids, separator_ids, *step_rows = rows
        ids = [*prompt_ids]
        for step_ids in step_rows:
            ids += [*step_ids, *separator_ids]
        texts.append(TokenisedText(np.array(ids, np.int32), len(prompt_ids)))
    return texts


def tokenise_as_reward_bench_dpo(
    tokenizer: "PreTrainedTokenizerBase", prompts: list[str], texts: list[str]
) -> list[TokenisedText]:
    """Ids as RewardBench's runner for implicit rewards makes them.

    The answer is all that stands behind the rendered prompt, the assistant's header
    included. One BOS token more stands before what the template writes, and one
    EOS token more behind it. Where the tokenizer has no BOS token, as Qwen's, its
    EOS token stands there too.
    """
    eos = tokenizer.eos_token_id
    bos = tokenizer.bos_token_id
    if bos is None:
        bos = eos

    if not texts:
        return []

    # The runner takes the prompt out of the text wherever it occurs, then puts it in
    # front again.
    joined = []
    for prompt, text in zip(prompts, texts, strict=True):
        joined.append(prompt + text.replace(prompt, ""))

    prompt_rows = call(tokenizer, prompts, add_special_tokens=False)["input_ids"]
    text_rows = call(tokenizer, joined, add_special_tokens=False)["input_ids"]
    tokenised = []
    for prompt_ids, text_ids in zip(prompt_rows, text_rows, strict=True):
        # The runner's own rule: where the last token of the prompt merges with the
        # answer, it counts as the answer's.
        start = len(prompt_ids)
        if text_ids[:start] != prompt_ids:
            start -= 1
        ids = np.array([bos, *text_ids, eos], np.int32)
        tokenised.append(TokenisedText(ids, start + 1, opening=1))
    return tokenised


def set_end(
    tokenizer: "PreTrainedTokenizerBase", texts: list[TokenisedText], eos: bool
) -> list[TokenisedText]:
    """The texts with or without the EOS token."""
    end = tokenizer.eos_token_id
    if end is None:
        problem = f"eos={eos}, but the tokenizer has no EOS token"
        raise DataError(problem, "set tokenizer.eos_token or leave eos=None")

    ending = np.full(int(eos), end, np.int32)
    ended = []
    for text in texts:
        # All EOS tokens go, as some templates write one and some tokenizers another.
        n_ends = int((text.ids[::-1] != end).argmax())
        stripped = text.ids[: len(text.ids) - n_ends]
        ids = np.concatenate([stripped, ending])
        # The EOS token that was asked for survives truncation.
        closing = max(text.closing - n_ends, 0) + int(eos)
        ended.append(replace(text, ids=ids, closing=closing))
    return ended


def set_special_tokens(
    tokenizer: "PreTrainedTokenizerBase",
    texts: list[TokenisedText],
    convention: str | None,
    bos: bool | None = None,
    eos: bool | None = None,
) -> list[TokenisedText]:
    """The texts with the tokenizer's special tokens around them.

    Each stands there exactly once, or as a convention has it; `bos`, `eos`: whether the
    beginning and the EOS token do.
    """
    begin = tokenizer.bos_token_id
    if bos is not None and begin is None:
        problem = f"bos={bos}, but the tokenizer has no BOS token"
        raise DataError(problem, "set tokenizer.bos_token or leave bos=None")
    opening, closing = special_tokens(tokenizer)
    if bos is False:
        opening = tuple(token for token in opening if token != begin)
    if eos is False:
        end = tokenizer.eos_token_id
        closing = tuple(token for token in closing if token != end)

    enclosed = []
    for text in texts:
        if convention == "reward-bench-twice":
            text = replace(text, opening=len(opening), closing=len(closing))
        else:
            # A template's own BOS token stays where the tokenizer writes none.
            is_begun = bos or (bos is None and text.ids[0] == begin)
            text_opening = opening
            if is_begun and begin not in opening:
                text_opening = (begin, *opening)
            # A convention has the tokenizer's own tokens at the end.
            added = () if convention else closing
            text = _enclose(text, SpecialTokens(text_opening, added), begin)
            n_closing = len(closing)
            if eos and tokenizer.eos_token_id not in closing:
                n_closing += 1
            text = replace(text, closing=n_closing)
        enclosed.append(text)
    return enclosed


def _enclose(
    text: TokenisedText, special: SpecialTokens, begin: int | None
) -> TokenisedText:
    """The text between special tokens.

    Each stands there once, even where the template writes it too; `begin`: the
    tokenizer's BOS token.
    """
    is_opening = np.isin(text.ids, [*special.opening, -1 if begin is None else begin])
    n_before = int((~is_opening).argmax())
    n_behind = 0
    if special.closing:
        is_closing = np.isin(text.ids, special.closing)
        n_behind = int((~is_closing[::-1]).argmax())
    inside = text.ids[n_before : len(text.ids) - n_behind]
    ids = np.concatenate([special.opening, inside, special.closing]).astype(np.int32)

    # Special tokens that go from the front, and those that come, move the response.
    n_opening = len(special.opening)
    return replace(
        text,
        ids=ids,
        start=max(text.start - n_before, 0) + n_opening,
        opening=n_opening,
    )


def limit_lengths(
    texts: list[TokenisedText], max_length: int | None, truncate: str | None
) -> list[TokenisedText]:
    """Texts of at most `max_length` tokens; longer ones are refused or cut."""
    if truncate not in (None, "left", "right"):
        problem = f"truncate={truncate!r}; {nearest(truncate, ['left', 'right'])}"
        raise DataError(problem, "None refuses long texts")
    if max_length is None:
        return texts

    lengths = np.array([len(text.ids) for text in texts])
    if (lengths <= max_length).all():
        return texts
    if truncate is None:
        raise _too_long(lengths, max_length)

    cut_texts = []
    for text in texts:
        if len(text.ids) > max_length:
            text = _cut(text, max_length, truncate)
        cut_texts.append(text)
    return cut_texts


def _too_long(lengths: NDArray[np.intp], max_length: int) -> DataError:
    """The error of texts that are longer than they may be."""
    n_long = (lengths > max_length).sum()
    problem = (
        f"{n_long} of {len(lengths)} texts are longer than "
        f"max_length={max_length} tokens; "
        f"the longest is text {lengths.argmax()} with {lengths.max()}"
    )
    return DataError(problem, "pass truncate='left' (keeps the answer) or 'right'")


def _cut(text: TokenisedText, max_length: int, truncate: str) -> TokenisedText:
    """The text without tokens at one of its ends.

    The special tokens around it stay, as encoders are read there.
    """
    n_cut = len(text.ids) - max_length
    if truncate == "left":
        first_cut = text.opening
        # Of an answer that is cut too, the rest begins behind the special tokens.
        start = max(text.start - n_cut, text.opening)
    else:
        first_cut = max_length - text.closing
        start = text.start
        if start >= first_cut:
            problem = (
                f"truncate='right' at {max_length} tokens leaves nothing of a response "
                f"that begins at token {start}"
            )
            raise DataError(problem, "use truncate='left' or a larger max_length")

    ids = np.delete(text.ids, slice(first_cut, first_cut + n_cut))
    return replace(text, ids=ids, start=start, is_cut=True)
