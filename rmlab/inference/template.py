"""Conversations to token ids: the chat template once, the tokenizer once, one beginning token, a known end."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.planning import common_length
from rmlab.inference.rendering import choose_template, pinned_date, read_template, render
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedTokenizerBase

CONVENTIONS = ("reward-bench", "reward-bench-twice", "reward-bench-dpo")
"""What RewardBench's runners do. The plain one: the tokenizer's own special tokens around the rendered text, with one
beginning token. twice: a beginning token for the template and one for the tokenizer. dpo: that of implicit rewards."""

Prompt = str | list[dict[str, str]]
Ids = NDArray[np.int32]

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class _Text:
    """One text on its way: its ids, the index of its first response token, and the special tokens around it.

    `opening`, `closing`: how many tokens at the ends are the tokenizer's own and survive truncation.
    """

    ids: Ids
    start: int
    is_cut: bool = False
    opening: int = 0
    closing: int = 0


class SpecialTokens(NamedTuple):
    """The token ids that a tokenizer writes around plain text: before it and behind it."""

    opening: tuple[int, ...]
    closing: tuple[int, ...]


@dataclass(frozen=True)
class Encoded:
    """Texts as token ids. Entry i of each field belongs to response i.

    `ids`: the whole conversation. `response_start`: index of the first token that holds a character of the response
    (what the template writes behind the generation prompt). `groups`: number of the prompt; equal prompts have equal
    numbers. `keys`: content hash of the ids. `truncated`: was the text cut? `source`: "tokenizer", the name of a
    format, or "given". `template_hash`: hash of the template's text and of what was done about the end token. `date`:
    the day that the template wrote instead of today's, None where it asks for none. `reads`: the positions to read,
    where the way to write the texts decides them.
    """

    ids: list[Ids]
    response_start: NDArray[np.intp]
    groups: NDArray[np.intp]
    keys: list[str]
    truncated: NDArray[np.bool_]
    source: str
    template_hash: str
    date: str | None = None
    reads: list[NDArray[np.intp]] | None = None

    @property
    def prompt_end(self) -> NDArray[np.intp]:
        """The last token of each prompt with the assistant's header; without one, as in "raw", the first token."""
        return np.maximum(self.response_start - 1, 0)


def encode(
    tokenizer: "PreTrainedTokenizerBase",
    prompts: Sequence[Prompt],
    responses: Sequence[str],
    *,
    template: str | Path | None = None,
    eos: bool | None = None,
    max_length: int | None = None,
    truncate: str | None = None,
    convention: str | None = None,
) -> Encoded:
    """Token ids of each prompt with its response, as the model's chat template writes them.

    The rendered text is tokenised once. Around it stand the special tokens that the tokenizer writes around plain text,
    each exactly once whether or not the template writes it too: a decoder's beginning token, an encoder's `[CLS]` and
    `[SEP]`. Dates that a template would take from the clock are fixed to 26 Jul 2024, the default of Llama's templates.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
        The model's tokenizer, which is left as it was.
    prompts : sequence of str or of lists of messages
        Messages have role and content; system messages and earlier turns go in there.
    responses : sequence of str
        One for each prompt.
    template : str or Path, optional
        None for the tokenizer's own, one of FORMATS by name, a Jinja template, or a file that holds one. A tokenizer
        without a template never gets one silently.
    eos : bool, optional
        None leaves the end as the template writes it (some write no end token; a head that reads the last token then
        reads the last token of the answer, as in training), True makes sure that the text ends with the end token,
        False that it does not.
    max_length : int, optional
        The most tokens of a text; a longer one raises unless `truncate` says otherwise.
    truncate : str, optional
        "left" (cut the beginning, keep the answer and the beginning token) or "right" (cut the end of the answer).
    convention : str, optional
        One of CONVENTIONS, which repeat RewardBench's runners.

    Returns
    -------
    Encoded

    Raises
    ------
    DataError
        For a tokenizer without template, an empty response, a conversation that the template refuses, texts that are
        too long, and options that do not exist.
    """
    _check_options(max_length, truncate, convention)
    _check_texts(prompts, responses)
    source, jinja = choose_template(tokenizer, read_template(template))
    # In front of messages stands a "\0", so that a prompt that is itself JSON never passes for messages.
    keys = [prompt if isinstance(prompt, str) else "\0" + json.dumps(prompt, sort_keys=True) for prompt in prompts]
    number_of = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    groups = [number_of[key] for key in keys]
    distinct = dict(zip(groups, prompts, strict=True)).values()
    messages = [[{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt for prompt in distinct]
    write = partial(render, tokenizer, jinja)
    # Once per prompt, not per response; whole conversations are rendered one for each response.
    bare = write(messages, header=False)
    if has_segments(tokenizer, template):
        texts = _with_end(tokenizer, _segment_pairs(tokenizer, [bare[g] for g in groups], responses), eos)
    else:
        turns = zip(groups, responses, strict=True)
        chats = write([[*messages[g], {"role": "assistant", "content": answer}] for g, answer in turns], header=False)
        if convention == "reward-bench-dpo":
            texts = _as_reward_bench_dpo(tokenizer, [bare[g] for g in groups], chats)
        else:
            headers, rows = write(messages, header=True), zip(chats, groups, responses, strict=True)
            starts = [_boundary(chat, headers[g], bare[g], answer) for chat, g, answer in rows]
            texts = _tokenise(tokenizer, chats, starts, add_special_tokens=convention is not None)
            texts = _with_special_tokens(tokenizer, _with_end(tokenizer, texts, eos), convention)
    texts = _fit(texts, max_length, truncate)
    return Encoded(
        ids=[text.ids for text in texts],
        response_start=np.array([text.start for text in texts], np.intp),
        groups=np.array(groups, np.intp),
        keys=[hashlib.blake2b(text.ids.tobytes(), digest_size=16).hexdigest() for text in texts],
        truncated=np.array([text.is_cut for text in texts], bool),
        source=source,
        # Both decide which tokens come out, so scores made otherwise must not pass for the same.
        template_hash=hashlib.blake2b(f"{jinja}\0{eos}".encode(), digest_size=16).hexdigest(),
        date=pinned_date(jinja),
    )


def _check_options(max_length: int | None, truncate: str | None, convention: str | None) -> None:
    if convention is not None and convention not in CONVENTIONS:
        raise DataError(f"convention={convention!r}; {nearest(convention, CONVENTIONS)}; None is rmlab's own")
    if truncate not in (None, "left", "right"):
        raise DataError(f"truncate={truncate!r}; {nearest(truncate, ['left', 'right'])}; None refuses long texts")
    if max_length is not None and max_length < 2:
        raise DataError(f"max_length={max_length}; allowed: 2 tokens or more")
    if truncate is not None and max_length is None:
        raise DataError(f"truncate={truncate!r} without max_length; give the model's window in tokens")


def _check_texts(prompts: Sequence[Prompt], responses: Sequence[str]) -> None:
    if len(prompts) != len(responses):
        raise ValueError(f"{len(prompts)} prompts and {len(responses)} responses; give one prompt per response")
    empty = [i for i, text in enumerate(responses) if not text.strip()]
    if empty:
        raise DataError(f"responses: {len(empty)} of {len(responses)} are empty, first number {empty[0]}; fill them in")
    require_unicode(prompts, responses)


def require_unicode(prompts: Sequence[str | list[dict[str, str]]], *answers: Sequence[str]) -> None:
    """Raise DataError for texts with half a surrogate pair, which no tokenizer can write."""
    for number, row in enumerate(zip(prompts, *answers, strict=True)):
        prompt = row[0] if isinstance(row[0], str) else "".join(turn["content"] for turn in row[0])
        for text in (prompt, *row[1:]):
            if _SURROGATE.search(str(text)):
                raise DataError(f"text {number} holds half a surrogate pair: {str(text)[:60]!r}; repair its file")


def _boundary(text: str, header: str, bare: str, response: str) -> int:
    """Index of the first character behind the generation prompt.

    Where a template writes the header of an answered turn in another way, the response itself is looked for.
    """
    # The generation prompt, written again at the head of an answered turn, is where the response begins.
    if header and text.startswith(header) and len(text) > len(header):
        return len(header)
    # Behind the prompt, which may quote the response; stripped, as templates often trim what they are given.
    start = text.find(response.strip(), len(bare) if text.startswith(bare) else 0)
    if start < 0:
        raise DataError(f"the chat template does not write the response {response[:60]!r}; it cannot be scored")
    return start


def _tokenise(
    tokenizer: "PreTrainedTokenizerBase", texts: list[str], starts: list[int], *, add_special_tokens: bool = False
) -> list[_Text]:
    """Ids of each text and the first token that holds a character at or behind `starts`."""
    if not texts:
        return []
    encoding = call(tokenizer, texts, add_special_tokens=add_special_tokens)
    if tokenizer.is_fast:
        first = [_token_at(encoding, i, start, len(texts[i])) for i, start in enumerate(starts)]
    else:
        # A slow tokenizer cannot say where a token stands; the ids of text and beginning part where the response
        # begins.
        beginnings = [text[:start] for text, start in zip(texts, starts, strict=True)]
        begun = call(tokenizer, beginnings, add_special_tokens=add_special_tokens)["input_ids"]
        first = [common_length(*map(np.array, pair)) for pair in zip(begun, encoding["input_ids"], strict=True)]
    return [_Text(np.array(ids, np.int32), start) for ids, start in zip(encoding["input_ids"], first, strict=True)]


def _token_at(encoding: "BatchEncoding", text: int, start: int, stop: int) -> int:
    # White space before a word may belong to no token of its own.
    tokens = (encoding.char_to_token(text, character) for character in range(start, stop))
    token = next((token for token in tokens if token is not None), None)
    if token is None:
        raise DataError(f"response {text} has no token; it cannot be scored")
    return int(token)


def _with_special_tokens(
    tokenizer: "PreTrainedTokenizerBase", texts: list[_Text], convention: str | None
) -> list[_Text]:
    """The texts with the tokenizer's special tokens around them, each exactly once, or as a convention has them."""
    special, bos = special_tokens(tokenizer), tokenizer.bos_token_id
    if convention == "reward-bench-twice":
        return texts
    if special.closing and convention is None:
        return [_enclose(text, special) for text in texts]
    # A decoder's beginning token, where its tokenizer writes one before plain text or the template does.
    if bos is not None:
        begun = SpecialTokens((bos,), ())
        texts = [_enclose(text, begun) if special.opening or text.ids[0] == bos else text for text in texts]
    return [replace(text, closing=len(special.closing)) for text in texts]


def _enclose(text: _Text, special: SpecialTokens) -> _Text:
    """The text between the tokenizer's special tokens, each of them once even where the template writes them too."""
    is_inside = ~np.isin(text.ids, [*special.opening, *special.closing])
    first = int(is_inside.argmax())
    stop = len(is_inside) - (int(is_inside[::-1].argmax()) if special.closing else 0)
    ids = np.concatenate([special.opening, text.ids[first:stop], special.closing]).astype(np.int32)
    # Special tokens that go from the front, and those that come, move the response along.
    n_opening, n_closing = map(len, special)
    return replace(text, ids=ids, start=max(text.start - first, 0) + n_opening, opening=n_opening, closing=n_closing)


def _with_end(tokenizer: "PreTrainedTokenizerBase", texts: list[_Text], eos: bool | None) -> list[_Text]:
    """The texts with or without the end token, as asked; None leaves them as they are."""
    if eos is None:
        return texts
    end = tokenizer.eos_token_id
    if end is None:
        raise DataError(f"eos={eos}, but the tokenizer has no end token; set tokenizer.eos_token or leave eos=None")
    ended = []
    for text in texts:
        # All end tokens at the end, as some templates write one and some tokenizers add another.
        n_trailing = int((text.ids[::-1] != end).argmax())
        bare = text.ids[: len(text.ids) - n_trailing]
        ended.append(replace(text, ids=np.concatenate([bare, np.full(int(eos), end, np.int32)])))
    return ended


def _fit(texts: list[_Text], max_length: int | None, truncate: str | None) -> list[_Text]:
    """Texts of at most `max_length` tokens; the others are refused or cut."""
    if max_length is None:
        return texts
    lengths = np.array([len(text.ids) for text in texts])
    n_long = int((lengths > max_length).sum())
    if n_long and truncate is None:
        longest = f"the longest is text {lengths.argmax()} with {lengths.max()}"
        too_long = f"{n_long} of {len(texts)} texts are longer than max_length={max_length} tokens; {longest}"
        raise DataError(f"{too_long}; pass truncate='left' (keeps the answer) or 'right'")
    return [_cut(text, max_length, truncate) if len(text.ids) > max_length else text for text in texts]


def _cut(text: _Text, length: int, truncate: str | None) -> _Text:
    """The text without tokens at one of its ends; the special tokens around it stay, as encoders are read there."""
    n_cut = len(text.ids) - length
    if truncate == "left":
        # Where even the answer is cut, what is left of it begins behind the special tokens.
        first, start = text.opening, max(text.start - n_cut, text.opening)
    else:
        first, start = length - text.closing, text.start
        if start >= first:
            at = f"truncate='right' at {length} tokens leaves nothing of a response that begins at token {start}"
            raise DataError(f"{at}; use truncate='left' or a larger max_length")
    return replace(text, ids=np.delete(text.ids, slice(first, first + n_cut)), start=start, is_cut=True)


def call(tokenizer: "PreTrainedTokenizerBase", *texts: str | list[str], add_special_tokens: bool) -> "BatchEncoding":
    """The tokenizer's own call without padding, truncation or warnings; its stored settings come back afterwards."""
    # Fast tokenizers keep truncation and padding in their Rust part; a call without them switches them off for good.
    core = getattr(tokenizer, "backend_tokenizer", None)
    truncation, padding = getattr(core, "truncation", None), getattr(core, "padding", None)
    options = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
    options |= {"padding": False, "truncation": False}
    try:
        encoding: BatchEncoding = tokenizer(*texts, add_special_tokens=add_special_tokens, **options)
        return encoding
    finally:
        if core is not None and truncation is not None:
            core.enable_truncation(**truncation)
        if core is not None and padding is not None:
            core.enable_padding(**padding)


def decode(tokenizer: "PreTrainedTokenizerBase", ids: list[int], **options: bool) -> str:
    """The text of one sequence of ids; transformers' annotation leaves open whether one or several were given."""
    return cast(str, tokenizer.decode(ids, **options))


def special_tokens(tokenizer: "PreTrainedTokenizerBase") -> SpecialTokens:
    """A decoder's beginning token, or an encoder's tokens at both ends, as `[CLS] text [SEP]`.

    A token that a decoder's tokenizer would write behind a text is left out: the template says where an answer ends.
    """
    # Any text shows what is put around it: the tokens around the bare ids.
    enclosed, bare = (call(tokenizer, "a", add_special_tokens=special)["input_ids"] for special in (True, False))
    start = next(i for i in range(len(enclosed) + 1) if enclosed[i : i + len(bare)] == bare or i == len(enclosed))
    opening, closing = tuple(enclosed[:start]), tuple(enclosed[start + len(bare) :])
    classes, separator = tokenizer.cls_token_id, tokenizer.sep_token_id
    # An encoder's, by the tokens that only encoders write: [CLS] at either end and [SEP] at the close.
    if None not in (classes, separator) and classes in opening + closing and separator in closing:
        return SpecialTokens(opening, closing)
    return SpecialTokens(opening[:1] if opening[:1] == (tokenizer.bos_token_id,) else (), ())


def has_segments(tokenizer: "PreTrainedTokenizerBase", template: str | Path | None) -> bool:
    """Whether `encode` writes prompt and response as two segments: "raw" with an encoder's tokenizer."""
    return template == "raw" and tokenizer.sep_token_id is not None and tokenizer.cls_token_id is not None


def _segment_pairs(tokenizer: "PreTrainedTokenizerBase", prompts: list[str], responses: Sequence[str]) -> list[_Text]:
    """Prompt and response as two segments with the tokenizer's own special tokens, as encoders are trained."""
    encoding = call(tokenizer, prompts, list(responses), add_special_tokens=True)
    special = special_tokens(tokenizer)
    opening, closing = len(special.opening), len(special.closing)
    return [
        # Segment 1 is the response.
        _Text(np.array(ids, np.int32), encoding.sequence_ids(i).index(1), opening=opening, closing=closing)
        for i, ids in enumerate(encoding["input_ids"])
    ]


def _as_reward_bench_dpo(tokenizer: "PreTrainedTokenizerBase", prompts: list[str], texts: list[str]) -> list[_Text]:
    """Ids as RewardBench's runner for implicit rewards makes them, its peculiarities included.

    The answer is all that stands behind the rendered prompt, the assistant's header included. One beginning token more
    stands before what the template writes, and one end token more behind it. Where the tokenizer has no beginning
    token, as Qwen's, its end token stands there too.
    """
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    if eos is None:
        raise DataError("convention='reward-bench' writes an end token, and this tokenizer has none; leave it out")
    # The runner takes the prompt out of the text wherever it occurs, then puts it in front again.
    joined = [prompt + text.replace(prompt, "") for prompt, text in zip(prompts, texts, strict=True)]
    prompt_ids, text_ids = (call(tokenizer, part, add_special_tokens=False)["input_ids"] for part in (prompts, joined))
    rows = []
    for prompt, ids in zip(prompt_ids, text_ids, strict=True):
        # The runner's own rule: where the last token of the prompt merges with the answer, it counts as the answer's.
        start = len(prompt) if prompt == ids[: len(prompt)] else len(prompt) - 1
        rows.append(_Text(np.array([eos if bos is None else bos, *ids, eos], np.int32), start + 1, opening=1))
    return rows
