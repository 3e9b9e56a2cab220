"""Conversations to token ids: the chat template once, the tokenizer once, one beginning
token, a known end.
"""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple, cast
from unittest.mock import patch

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.inference.limits import draws, limited
from rmlab.inference.planning import common_length
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedTokenizerBase

# What RewardBench's runners do. The plain one: the tokenizer's own special tokens
# around the rendered text, with one beginning token. twice: a beginning token for the
# template and one for the tokenizer. dpo: that of implicit rewards.
CONVENTIONS = ("reward-bench", "reward-bench-twice", "reward-bench-dpo")

Prompt = str | list[dict[str, str]]
Ids = NDArray[np.int32]

_SURROGATE = re.compile("[\ud800-\udfff]")

# The day that templates read instead of the clock, at midnight: the default of Llama's
# templates.
DATE = "26 Jul 2024"

_CLOCK = SimpleNamespace(now=lambda: datetime.strptime(DATE, "%d %b %Y"))

# A response that no template writes by itself.
_SENTINEL = "zebra"

_lock = Lock()

# Takes a system message off the front: `system` ('' without one) and `turns`.
_SYSTEM = (
    "{% if messages and messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}"
    "{% set turns = messages[1:] %}{% else %}{% set system = '' %}{% set turns = messages %}{% endif %}"
)


def _turns(
    user: str, assistant: str, start: str = "{{ system }}", header: str | None = None
) -> str:
    """A format of turns behind `start`; `{}` stands for what is said, `header` opens
    the answer to come.
    """
    user_turn, assistant_turn = (
        turn.replace("{}", "{{ m['content'] }}") for turn in (user, assistant)
    )
    header = assistant.partition("{}")[0] if header is None else header
    return (
        f"{_SYSTEM}{start}{{% for m in turns %}}{{% if m['role'] == 'user' %}}{user_turn}{{% else %}}{assistant_turn}"
        f"{{% endif %}}{{% endfor %}}{{% if add_generation_prompt %}}{header}{{% endif %}}"
    )


# A user's turn; before the first one the format opens with "[INST] " and the system
# message.
_INST = "{% if not loop.first %}[INST] {% endif %}{} "

_VICUNA = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user\\'s questions."
)

# The formats exactly as FastChat and the benchmarks' runners write them, the names of
# special tokens included.  raw: the contents one behind the other, or as two segments
# where the tokenizer has a separator token, as encoders do. vicuna, oasst: FastChat's
# `vicuna_v1.1` and `oasst_pythia`. zephyr: opens with an empty system turn where there
# is none. llama-2: closes every answer with `</s><s>`. pku-align: Beaver. openbmb:
# UltraRM. open-instruct: what tulu models were trained on, with the tokenizer's end
# token behind an answer and no line break after the last one.
FORMATS = {
    "raw": "{% for m in messages %}{{ m['content'] }}{% endfor %}",
    "tulu": _turns(
        "<|user|>\n{}\n",
        "<|assistant|>\n{}\n",
        "{{ system + ('\n' if system else '') }}",
    ),
    "open-instruct": (
        "{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] }}"
        "{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% if not loop.last %}{{ '\n' }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}{{ '\n<|assistant|>\n' }}{% endif %}"
    ),
    "vicuna": _turns(
        "USER: {} ",
        "ASSISTANT: {}</s>",
        f"{{{{ system or '{_VICUNA}' }}}} ",
        "ASSISTANT:",
    ),
    "zephyr": _turns(
        "<|user|>\n{}</s>\n",
        "<|assistant|>\n{}</s>\n",
        "<|system|>\n{{ system }}</s>\n",
    ),
    "llama-2": _turns(
        _INST,
        "[/INST] {} </s><s>",
        "[INST] {% if system %}<<SYS>>\n{{ system }}\n<</SYS>>\n\n{% endif %}",
        "[/INST]",
    ),
    "mistral": _turns(
        _INST,
        "[/INST] {}</s>",
        "[INST] {% if system %}{{ system + '\n' }}{% endif %}",
        "[/INST]",
    ),
    "oasst": _turns("<|prompter|>{}<|endoftext|>", "<|assistant|>{}<|endoftext|>"),
    "pku-align": _turns(
        "USER: {} ", "ASSISTANT: {} ", "{{ system or 'BEGINNING OF CONVERSATION:' }} "
    ),
    "ziya": _turns("Human: {}\n\n", "Assistant: {}\n\n", "{{ system }}\n\n"),
    "openbmb": _turns("User: {}\n\n", "Assistant: {}\n\n"),
}


@dataclass(frozen=True)
class _Text:
    """One text on its way: its ids, the index of its first response token, and the
    special tokens around it.

    `opening`, `closing`: how many tokens at the ends are the tokenizer's own and
    survive truncation.
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

    `ids`: the whole conversation. `response_start`: index of the first token that holds
    a character of the response (what the template writes behind the generation prompt).
    `groups`: number of the prompt; equal prompts have equal numbers. `truncated`: was
    the text cut? `source`: "tokenizer", the name of a format, "given", or the "form" of
    a comparison. `template_hash`: hash of the template's text and of what was done
    about the end token. `date`: the day that the template wrote instead of today's,
    None where it asks for none. `reads`: the positions to read, where the way to write
    the texts decides them.
    """

    ids: list[Ids]
    response_start: NDArray[np.intp]
    groups: NDArray[np.intp]
    truncated: NDArray[np.bool_]
    source: str = "form"
    template_hash: str = ""
    date: str | None = None
    reads: list[NDArray[np.intp]] | None = None

    @cached_property
    def keys(self) -> list[str]:
        """Content hash of each text's ids, and of the positions to read where there are
        any.
        """
        columns = [self.ids] if self.reads is None else [self.ids, self.reads]
        return [content_key(*row) for row in zip(*columns, strict=True)]

    @property
    def prompt_end(self) -> NDArray[np.intp]:
        """The last token of each prompt with the assistant's header; without one, as in
        "raw", the first token.
        """
        return np.maximum(self.response_start - 1, 0)


def content_key(*arrays: NDArray[np.integer]) -> str:
    """Hash of token ids, and of where they are read: with markers inside answers the
    ids alone do not say where.
    """
    return hashlib.blake2b(
        np.concatenate(arrays).astype(np.int32).tobytes(), digest_size=16
    ).hexdigest()


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
    """Token ids of each prompt with its response, as the model's chat template writes
    them.

    The rendered text is tokenised once. Around it stand the special tokens that the
    tokenizer writes around plain text, each exactly once whether or not the template
    writes it too: a decoder's beginning token, an encoder's `[CLS]` and `[SEP]`. Dates
    that a template would take from the clock are fixed to 26 Jul 2024, the default of
    Llama's templates.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
        The model's tokenizer, which is left as it was.
    prompts : sequence of str or of lists of messages
        Messages have role and content; system messages and earlier turns go in there.
    responses : sequence of str
        One for each prompt.
    template : str or Path, optional
        None for the tokenizer's own, one of FORMATS by name, a Jinja template, or a
        file that holds one. A tokenizer without a template never gets one silently.
    eos : bool, optional
        None leaves the end as the template writes it (some write no end token; a head
        that reads the last token then reads the last token of the answer, as in
        training), True makes sure that the text ends with the end token, False that it
        does not.
    max_length : int, optional
        The most tokens of a text; a longer one raises unless `truncate` says otherwise.
    truncate : str, optional
        "left" (cut the beginning, keep the answer and the beginning token) or "right"
        (cut the end of the answer).
    convention : str, optional
        One of CONVENTIONS, which repeat RewardBench's runners.

    Returns
    -------
    Encoded

    Raises
    ------
    DataError
        For a tokenizer without template, an empty response, a conversation that the
        template refuses, texts that are too long, and options that do not exist.
    """
    if convention is not None and convention not in CONVENTIONS:
        raise DataError(
            f"convention={convention!r}; {nearest(convention, CONVENTIONS)}; None is rmlab's own"
        )
    if len(prompts) != len(responses):
        raise ValueError(
            f"{len(prompts)} prompts and {len(responses)} responses; give one prompt per response"
        )
    empty = [i for i, text in enumerate(responses) if not text.strip()]
    if empty:
        raise DataError(
            f"responses: {len(empty)} of {len(responses)} are empty, first number {empty[0]}; fill them in"
        )
    require_unicode(prompts, responses)
    source, jinja = choose_template(tokenizer, read_template(template))
    chats = [
        [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        for prompt in prompts
    ]
    groups, _ = pd.factorize(
        np.array([json.dumps(chat, sort_keys=True) for chat in chats], object)
    )
    distinct = [*dict(zip(groups.tolist(), chats, strict=True)).values()]
    write = partial(render, tokenizer, jinja)
    # Once per prompt, not per response; whole conversations are rendered one for each
    # response.
    bare, headers = (
        np.array(write(distinct, header=header), object)[groups].tolist()
        for header in (False, True)
    )
    if has_segments(tokenizer, template):
        texts = _segment_pairs(tokenizer, bare, responses)
        texts = texts if eos is None else _with_end(tokenizer, texts, eos)
    else:
        answers = ({"role": "assistant", "content": response} for response in responses)
        rendered = write(
            [[*chat, answer] for chat, answer in zip(chats, answers, strict=True)],
            header=False,
        )
        if convention == "reward-bench-dpo":
            texts = _as_reward_bench_dpo(tokenizer, bare, rendered)
        else:
            openings = _answer_openings(write, distinct, groups, rendered, headers)
            starts = [
                _boundary(*row)
                for row in zip(rendered, openings, bare, responses, strict=True)
            ]
            texts = _tokenise(
                tokenizer, rendered, starts, add_special_tokens=convention is not None
            )
            texts = texts if eos is None else _with_end(tokenizer, texts, eos)
            texts = _with_special_tokens(tokenizer, texts, convention)
    texts = _fit(texts, max_length, truncate)
    return Encoded(
        ids=[text.ids for text in texts],
        response_start=np.array([text.start for text in texts], np.intp),
        groups=groups,
        truncated=np.array([text.is_cut for text in texts], bool),
        source=source,
        # Both decide which tokens come out, so scores made otherwise must not pass for
        # the same.
        template_hash=hashlib.blake2b(
            f"{jinja}\0{eos}".encode(), digest_size=16
        ).hexdigest(),
        date=pinned_date(jinja),
    )


def require_unicode(
    prompts: Sequence[str | list[dict[str, str]]], *answers: Sequence[str]
) -> None:
    """Raise DataError for texts with half a surrogate pair, which no tokenizer can
    write.
    """
    for number, row in enumerate(zip(prompts, *answers, strict=True)):
        if _SURROGATE.search(json.dumps(row, ensure_ascii=False)):
            raise DataError(
                f"text {number} holds half a surrogate pair, which is not a character; repair its file"
            )


def _answer_openings(
    write: Callable[..., list[str]],
    chats: list[list[dict[str, str]]],
    groups: NDArray[np.intp],
    texts: list[str],
    headers: list[str],
) -> list[str]:
    """What each text has before its response: the generation prompt, or how the
    template opens an answered turn.

    Some generation prompts open a thought that answered turns leave out.
    """
    openings = list(headers)
    opening_by_group: dict[int, str] = {}
    for number, (text, header) in enumerate(zip(texts, headers, strict=True)):
        if not text.startswith(header):
            group = int(groups[number])
            if group not in opening_by_group:
                answered = [*chats[group], {"role": "assistant", "content": _SENTINEL}]
                opening_by_group[group] = write([answered], header=False)[0].rpartition(
                    _SENTINEL
                )[0]
            openings[number] = opening_by_group[group]
    return openings


def _boundary(text: str, opening: str, bare: str, response: str) -> int:
    """Index of the first character behind the `opening` of the answer, or the response
    itself where that differs.
    """
    if opening and text.startswith(opening) and len(text) > len(opening):
        return len(opening)
    # Behind the prompt, which may quote the response; stripped, as templates often trim
    # what they are given.
    start = text.find(response.strip(), len(bare) if text.startswith(bare) else 0)
    if start < 0:
        raise DataError(
            f"the chat template does not write the response {response[:60]!r}; it cannot be scored"
        )
    return start


def _tokenise(
    tokenizer: "PreTrainedTokenizerBase",
    texts: list[str],
    starts: list[int],
    *,
    add_special_tokens: bool = False,
) -> list[_Text]:
    """Ids of each text and the first token that holds a character at or behind
    `starts`.
    """
    if not texts:
        return []
    encoding = call(tokenizer, texts, add_special_tokens=add_special_tokens)
    rows = [np.array(ids, np.int32) for ids in encoding["input_ids"]]
    if not tokenizer.is_fast:
        # It cannot say where a token stands; the ids of text and beginning part where
        # the response begins.
        beginnings = [text[:start] for text, start in zip(texts, starts, strict=True)]
        openings = call(tokenizer, beginnings, add_special_tokens=add_special_tokens)[
            "input_ids"
        ]
        return [
            _Text(ids, common_length(np.array(part), ids))
            for ids, part in zip(rows, openings, strict=True)
        ]
    tokenised = []
    for i, (ids, start) in enumerate(zip(rows, starts, strict=True)):
        # White space before a word may belong to no token of its own.
        tokens = (
            encoding.char_to_token(i, character)
            for character in range(start, len(texts[i]))
        )
        first = next((token for token in tokens if token is not None), None)
        if first is None:
            raise DataError(f"response {i} has no token; it cannot be scored")
        tokenised.append(_Text(ids, first))
    return tokenised


def _with_special_tokens(
    tokenizer: "PreTrainedTokenizerBase", texts: list[_Text], convention: str | None
) -> list[_Text]:
    """The texts with the tokenizer's special tokens around them, each exactly once, or
    as a convention has them.
    """
    special, bos = special_tokens(tokenizer), tokenizer.bos_token_id
    if convention == "reward-bench-twice":
        return texts
    if special.closing and convention is None:
        return [_enclose(text, special) for text in texts]
    # A decoder's beginning token, where its tokenizer writes one before plain text or
    # the template does.
    if bos is not None:
        begun = SpecialTokens((bos,), ())
        texts = [
            _enclose(text, begun) if special.opening or text.ids[0] == bos else text
            for text in texts
        ]
    return [replace(text, closing=len(special.closing)) for text in texts]


def _enclose(text: _Text, special: SpecialTokens) -> _Text:
    """The text between the tokenizer's special tokens, each of them once even where the
    template writes them too.
    """
    is_inside = ~np.isin(text.ids, [*special.opening, *special.closing])
    first = int(is_inside.argmax())
    stop = len(is_inside) - (int(is_inside[::-1].argmax()) if special.closing else 0)
    ids = np.concatenate(
        [special.opening, text.ids[first:stop], special.closing]
    ).astype(np.int32)
    # Special tokens that go from the front, and those that come, move the response
    # along.
    n_opening, n_closing = map(len, special)
    return replace(
        text,
        ids=ids,
        start=max(text.start - first, 0) + n_opening,
        opening=n_opening,
        closing=n_closing,
    )


def _with_end(
    tokenizer: "PreTrainedTokenizerBase", texts: list[_Text], eos: bool
) -> list[_Text]:
    """The texts with or without the end token."""
    end = tokenizer.eos_token_id
    if end is None:
        raise DataError(
            f"eos={eos}, but the tokenizer has no end token; set tokenizer.eos_token or leave eos=None"
        )
    # All end tokens at the end, as some templates write one and some tokenizers add
    # another.
    stripped = [
        text.ids[: len(text.ids) - int((text.ids[::-1] != end).argmax())]
        for text in texts
    ]
    ending = np.full(int(eos), end, np.int32)
    return [
        replace(text, ids=np.concatenate([ids, ending]))
        for text, ids in zip(texts, stripped, strict=True)
    ]


def _fit(
    texts: list[_Text], max_length: int | None, truncate: str | None
) -> list[_Text]:
    """Texts of at most `max_length` tokens; the others are refused or cut."""
    if truncate not in (None, "left", "right"):
        raise DataError(
            f"truncate={truncate!r}; {nearest(truncate, ['left', 'right'])}; None refuses long texts"
        )
    if max_length is not None and max_length < 2:
        raise DataError(f"max_length={max_length}; allowed: 2 tokens or more")
    if truncate is not None and max_length is None:
        raise DataError(
            f"truncate={truncate!r} without max_length; give the model's window in tokens"
        )
    lengths = np.array([len(text.ids) for text in texts])
    if max_length is None or not (lengths > max_length).any():
        return texts
    if truncate is None:
        where = f"{(lengths > max_length).sum()} of {len(texts)} texts are longer than max_length={max_length} tokens"
        longest = f"the longest is text {lengths.argmax()} with {lengths.max()}"
        raise DataError(
            f"{where}; {longest}; pass truncate='left' (keeps the answer) or 'right'"
        )
    return [
        _cut(text, max_length, truncate) if len(text.ids) > max_length else text
        for text in texts
    ]


def _cut(text: _Text, length: int, truncate: str) -> _Text:
    """The text without tokens at one of its ends; the special tokens around it stay, as
    encoders are read there.
    """
    n_cut = len(text.ids) - length
    if truncate == "left":
        # Where even the answer is cut, what is left of it begins behind the special
        # tokens.
        first, start = text.opening, max(text.start - n_cut, text.opening)
    else:
        first, start = length - text.closing, text.start
        if start >= first:
            where = f"truncate='right' at {length} tokens leaves nothing of a response that begins at token {start}"
            raise DataError(f"{where}; use truncate='left' or a larger max_length")
    return replace(
        text,
        ids=np.delete(text.ids, slice(first, first + n_cut)),
        start=start,
        is_cut=True,
    )


def call(
    tokenizer: "PreTrainedTokenizerBase",
    *texts: str | list[str],
    add_special_tokens: bool,
) -> "BatchEncoding":
    """The tokenizer's own call without padding, truncation or warnings; its stored
    settings come back afterwards.
    """
    # Fast tokenizers keep truncation and padding in their Rust part; a call without
    # them switches them off for good.
    core = getattr(tokenizer, "backend_tokenizer", None)
    truncation, padding = (
        getattr(core, "truncation", None),
        getattr(core, "padding", None),
    )
    options = {
        "add_special_tokens": add_special_tokens,
        "return_attention_mask": False,
        "verbose": False,
    }
    try:
        return cast("BatchEncoding", tokenizer(*texts, **options))
    finally:
        if core is not None and truncation is not None:
            core.enable_truncation(**truncation)
        if core is not None and padding is not None:
            core.enable_padding(**padding)


def decode(
    tokenizer: "PreTrainedTokenizerBase", ids: list[int], **options: bool
) -> str:
    """The text of one sequence of ids; transformers' annotation leaves open whether one
    or several were given.
    """
    return cast(str, tokenizer.decode(ids, **options))


def token_texts(tokenizer: "PreTrainedTokenizerBase", ids: list[int]) -> list[str]:
    """The text of each token, which put together are the text of all.

    The bytes of one character that several tokens share go to the last of them; the
    others are empty.
    """
    pieces: list[str] = []
    pending: list[int] = []
    for token in ids:
        pending.append(token)
        text = decode(tokenizer, pending, clean_up_tokenization_spaces=False)
        # A character has four bytes at most; bytes that never make one must not hold up
        # the rest of the text.
        is_complete = not text.endswith("�") or len(pending) >= 8
        pieces.append(text if is_complete else "")
        pending = [] if is_complete else pending
    return pieces


def special_tokens(tokenizer: "PreTrainedTokenizerBase") -> SpecialTokens:
    """A decoder's beginning token, or an encoder's tokens at both ends, as `[CLS] text
    [SEP]`.

    A token that a decoder's tokenizer would write behind a text is left out: the
    template says where an answer ends.
    """
    # Any text shows what is put around it: the tokens around the bare ids.
    enclosed, bare = (
        call(tokenizer, "a", add_special_tokens=special)["input_ids"]
        for special in (True, False)
    )
    start = next(
        i
        for i in range(len(enclosed) + 1)
        if enclosed[i : i + len(bare)] == bare or i == len(enclosed)
    )
    opening, closing = tuple(enclosed[:start]), tuple(enclosed[start + len(bare) :])
    classes, separator = tokenizer.cls_token_id, tokenizer.sep_token_id
    # An encoder's, by the tokens that only encoders write: [CLS] at either end and
    # [SEP] at the close.
    if (
        None not in (classes, separator)
        and classes in opening + closing
        and separator in closing
    ):
        return SpecialTokens(opening, closing)
    return SpecialTokens(
        opening[:1] if opening[:1] == (tokenizer.bos_token_id,) else (), ()
    )


def has_segments(
    tokenizer: "PreTrainedTokenizerBase", template: str | Path | None
) -> bool:
    """Whether `encode` writes prompt and response as two segments: "raw" with an
    encoder's tokenizer.
    """
    return (
        template == "raw"
        and tokenizer.sep_token_id is not None
        and tokenizer.cls_token_id is not None
    )


def _segment_pairs(
    tokenizer: "PreTrainedTokenizerBase", prompts: list[str], responses: Sequence[str]
) -> list[_Text]:
    """Prompt and response as two segments with the tokenizer's own special tokens, as
    encoders are trained.
    """
    encoding = call(tokenizer, prompts, list(responses), add_special_tokens=True)
    rows = encoding["input_ids"]
    special = special_tokens(tokenizer)
    opening, closing = len(special.opening), len(special.closing)
    if tokenizer.is_fast:
        # Segment 1 is the response.
        starts = [encoding.sequence_ids(i).index(1) for i in range(len(rows))]
    else:
        # It cannot say where a token stands, and writes the response as it does alone.
        answers = call(tokenizer, list(responses), add_special_tokens=False)[
            "input_ids"
        ]
        starts = [
            len(ids) - closing - len(answer)
            for ids, answer in zip(rows, answers, strict=True)
        ]
    return [
        _Text(np.array(ids, np.int32), start, opening=opening, closing=closing)
        for ids, start in zip(rows, starts, strict=True)
    ]


def _as_reward_bench_dpo(
    tokenizer: "PreTrainedTokenizerBase", prompts: list[str], texts: list[str]
) -> list[_Text]:
    """Ids as RewardBench's runner for implicit rewards makes them, its peculiarities
    included.

    The answer is all that stands behind the rendered prompt, the assistant's header
    included. One beginning token more stands before what the template writes, and one
    end token more behind it. Where the tokenizer has no beginning token, as Qwen's, its
    end token stands there too.
    """
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    if eos is None:
        raise DataError(
            "convention='reward-bench' writes an end token, and this tokenizer has none; leave it out"
        )
    # The runner takes the prompt out of the text wherever it occurs, then puts it in
    # front again.
    joined = [
        prompt + text.replace(prompt, "")
        for prompt, text in zip(prompts, texts, strict=True)
    ]
    prompt_ids, text_ids = (
        call(tokenizer, part, add_special_tokens=False)["input_ids"]
        for part in (prompts, joined)
    )
    rows = []
    for prompt, ids in zip(prompt_ids, text_ids, strict=True):
        # The runner's own rule: where the last token of the prompt merges with the
        # answer, it counts as the answer's.
        start = len(prompt) if prompt == ids[: len(prompt)] else len(prompt) - 1
        rows.append(
            _Text(
                np.array([eos if bos is None else bos, *ids, eos], np.int32),
                start + 1,
                opening=1,
            )
        )
    return rows


def read_template(template: str | Path | None) -> str | None:
    """A name of FORMATS, or the text of a template given as Jinja or as a file; None
    stays None.

    Raises DataError for everything else.
    """
    if template is None:
        return None
    # A text that holds no braces is a path; a template without any would write the same
    # for every conversation.
    text = str(template)
    if template in FORMATS or (
        not isinstance(template, Path) and ("{{" in text or "{%" in text)
    ):
        return text
    try:
        return Path(template).read_text("utf-8")
    except (OSError, ValueError) as error:
        allowed = f"{nearest(text, list(FORMATS))}; or a Jinja template, or a file that holds one"
        raise DataError(
            f"template={text[:60]!r}; {allowed}; None takes the tokenizer's own"
        ) from error


def choose_template(
    tokenizer: "PreTrainedTokenizerBase", template: str | None
) -> tuple[str, str]:
    """Where the template comes from ("tokenizer", a name, or "given"), and its text."""
    if template is not None:
        return (
            (template, FORMATS[template])
            if template in FORMATS
            else ("given", template)
        )
    try:
        return "tokenizer", str(tokenizer.get_chat_template())
    except ValueError as error:
        where = f"the tokenizer {tokenizer.name_or_path!r} has no chat template, or several and no default"
        allowed = f"{' | '.join(map(repr, FORMATS))}, a Jinja template, or a file that holds one"
        raise DataError(
            f"{where}; say in which format the model was trained: template={allowed}"
        ) from error


def pinned_date(jinja: str) -> str | None:
    """DATE where the template asks for today's date, which it gets instead; None where
    it does not ask.
    """
    return DATE if "strftime_now" in jinja else None


def render(
    tokenizer: "PreTrainedTokenizerBase",
    jinja: str,
    conversations: list[list[dict[str, str]]],
    *,
    header: bool,
) -> list[str]:
    """Each conversation as text; `header`: with the beginning of the assistant's
    answer.

    Every template reads DATE instead of the clock. Raises DataError where it draws at
    random, refuses a conversation, fails, or does not come to an end.
    """
    from jinja2 import TemplateError

    if draws(jinja):
        raise DataError(
            "the chat template draws random text, so that no score could be repeated; pass another one"
        )
    texts = []
    # transformers hands templates plain data only, so no function of ours can take the
    # clock's place among its options.
    with _lock, patch("transformers.utils.chat_template_utils.datetime", _CLOCK):
        # One by one, not as a batch: a refusal then names its conversation.
        for number, conversation in enumerate(conversations):
            try:
                with limited():
                    text = tokenizer.apply_chat_template(
                        conversation,
                        chat_template=jinja,
                        tokenize=False,
                        add_generation_prompt=header,
                    )
            # a template is somebody's program: it may raise whatever it likes
            except Exception as error:
                verb = "refuses" if isinstance(error, TemplateError) else "fails on"
                where = f"conversation {number} with roles {[m['role'] for m in conversation]}"
                cause = f"{type(error).__name__}: {str(error)[:200]}"
                raise DataError(
                    f"the chat template {verb} {where} ({cause}); change messages or template"
                ) from error
            texts.append(
                cast(str, text)
            )  # `tokenize=False` gives this one of the kinds that its annotation names
    return texts
