"""Conversations to token ids: the chat template once, the tokenizer once, one beginning token, a known end."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.formats import FORMATS
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["FORMATS", "Encoded", "Prompt", "encode", "has_segments"]

Prompt = str | list[dict[str, str]]
Ids = NDArray[np.int32]


@dataclass(frozen=True)
class Encoded:
    """Texts as token ids. Entry i of each field belongs to response i.

    `ids`: the whole conversation. `response_start`: index of the first token that holds a character of the response
    (what the template writes behind the generation prompt). `prompt_end`: the token before it, the last one of the
    prompt with the assistant's header. `groups`: number of the prompt; equal prompts have equal numbers. `keys`:
    content hash of the ids. `truncated`: was the text cut? `source`: "tokenizer", or the name of the legacy format.
    `template_hash`: hash of the template's text and of what was done about the end token.
    """

    ids: list[Ids]
    response_start: NDArray[np.intp]
    prompt_end: NDArray[np.intp]
    groups: NDArray[np.intp]
    keys: list[str]
    truncated: NDArray[np.bool_]
    source: str
    template_hash: str


@dataclass(frozen=True)
class _Text:
    """One text on its way: its ids and the index of its first response token."""

    ids: Ids
    start: int
    cut: bool = False


def encode(
    tokenizer: "PreTrainedTokenizerBase",
    prompts: Sequence[Prompt],
    responses: Sequence[str],
    *,
    template: str | None = None,
    eos: bool | None = None,
    max_length: int | None = None,
    truncate: str | None = None,
) -> Encoded:
    """Token ids of each prompt with its response, as the model's chat template writes them.

    `prompts`: strings, or lists of messages with role and content (system messages and earlier turns go in there).
    `template`: None for the tokenizer's own, or one of FORMATS by name; a tokenizer without a template never gets one
    silently. The rendered text is tokenised once without added special tokens. At the beginning stands exactly one
    beginning token where the tokenizer has the habit of writing one, whether or not the template writes it.
    `eos`: None leaves the end as the template writes it (some write no end token; a head that reads the last token then
    reads the last token of the answer, as in training), True makes sure that the text ends with the end token, False
    that it does not. `max_length`: the most tokens of a text; a longer one raises, unless `truncate` is "left" (cut
    the beginning, keep the answer and the beginning token) or "right" (cut the end of the answer).

    Dates that a template would take from the clock are fixed to 26 Jul 2024, the default of Llama's templates.
    Raises DataError for a tokenizer without template, an empty response, a conversation that the template refuses, and
    texts that are too long; ValueError for options that do not exist. The tokenizer is left as it was.
    """
    _check_options(template, max_length, truncate)
    _check_texts(prompts, responses)
    source, jinja = _template(tokenizer, template)
    numbers, groups = _groups(prompts)
    messages = [_messages(prompts[first]) for first in numbers]
    texts = _texts(tokenizer, jinja, has_segments(tokenizer, template), messages, groups, responses)
    texts = _fit([_with_end(tokenizer, text, eos) for text in texts], tokenizer, max_length, truncate)
    start = np.array([text.start for text in texts], np.intp)
    return Encoded(
        ids=[text.ids for text in texts],
        response_start=start,
        prompt_end=np.maximum(start - 1, 0),
        groups=np.array(groups, np.intp),
        keys=[hashlib.blake2b(text.ids.tobytes(), digest_size=16).hexdigest() for text in texts],
        truncated=np.array([text.cut for text in texts], bool),
        source=source,
        template_hash=hashlib.blake2b(f"{jinja}\0{eos}".encode(), digest_size=16).hexdigest(),
    )


def _check_options(template: str | None, max_length: int | None, truncate: str | None) -> None:
    if template is not None and template not in FORMATS:
        raise ValueError(f"template={template!r}; {nearest(template, list(FORMATS))}; None takes the tokenizer's own")
    if truncate not in (None, "left", "right"):
        raise ValueError(f"truncate={truncate!r}; {nearest(truncate, ['left', 'right'])}; None refuses long texts")
    if max_length is not None and max_length < 2:
        raise ValueError(f"max_length={max_length}; allowed: 2 tokens or more")
    if truncate is not None and max_length is None:
        raise ValueError(f"truncate={truncate!r} without max_length; give the model's window in tokens")


def _check_texts(prompts: Sequence[Prompt], responses: Sequence[str]) -> None:
    if len(prompts) != len(responses):
        raise ValueError(f"{len(prompts)} prompts and {len(responses)} responses; give one prompt per response")
    empty = [i for i, text in enumerate(responses) if not text.strip()]
    if empty:
        raise DataError(
            f"responses: {len(empty)} of {len(responses)} are empty, first number {empty[0]}; there is nothing to "
            "score: fill them in or drop the rows"
        )


def _template(tokenizer: "PreTrainedTokenizerBase", name: str | None) -> tuple[str, str]:
    """Where the template comes from, and its text."""
    if name is not None:
        return name, FORMATS[name]
    if not tokenizer.chat_template:
        raise DataError(
            f"the tokenizer {tokenizer.name_or_path or type(tokenizer).__name__!r} has no chat template; say in which "
            f"format the model was trained: template={' | '.join(map(repr, FORMATS))}"
        )
    return "tokenizer", tokenizer.get_chat_template()


def _groups(prompts: Sequence[Prompt]) -> tuple[list[int], list[int]]:
    """The first text of each different prompt, and the number of each text's prompt."""
    seen: dict[str, int] = {}
    firsts: list[int] = []
    groups: list[int] = []
    for text, prompt in enumerate(prompts):
        key = prompt if isinstance(prompt, str) else "\0" + json.dumps(prompt, sort_keys=True)
        if key not in seen:
            seen[key] = len(seen)
            firsts.append(text)
        groups.append(seen[key])
    return firsts, groups


def _messages(prompt: Prompt) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)


def _texts(
    tokenizer: "PreTrainedTokenizerBase", jinja: str, pairs: bool, messages: list[list[dict[str, str]]],
    groups: list[int], responses: Sequence[str],
) -> list[_Text]:  # fmt: skip
    """Ids of each response behind the messages of its group; `pairs`: as two segments."""
    bare = _render(tokenizer, jinja, messages, False)
    if pairs:
        return _pairs(tokenizer, [bare[g] for g in groups], responses)
    headers = _render(tokenizer, jinja, messages, True)
    turns = zip(groups, responses, strict=True)
    whole = _render(
        tokenizer, jinja, [[*messages[g], {"role": "assistant", "content": text}] for g, text in turns], False
    )
    behind = zip(whole, groups, responses, strict=True)
    starts = [_boundary(text, headers[g], bare[g], response) for text, g, response in behind]
    habit = _writes_bos(tokenizer)
    return [_one_bos(tokenizer.bos_token_id, habit, text) for text in _tokenise(tokenizer, whole, starts)]


def _render(
    tokenizer: "PreTrainedTokenizerBase", jinja: str, conversations: list[list[dict[str, str]]], header: bool
) -> list[str]:
    """Each conversation as text; `header`: with the beginning of the assistant's answer."""
    from jinja2 import TemplateError

    fixed = {"date_string": "26 Jul 2024"} if "strftime_now" in jinja else {}
    rendered: list[str] = []
    for number, conversation in enumerate(conversations):
        try:
            text = tokenizer.apply_chat_template(
                conversation, chat_template=jinja, tokenize=False, add_generation_prompt=header, **fixed
            )
        except TemplateError as error:
            roles = [message["role"] for message in conversation]
            raise DataError(
                f"the chat template refuses conversation {number} with roles {roles}: {error}; "
                "bring its messages into the form the model knows (no system message, user and assistant in turn)"
            ) from error
        rendered.append(text)
    return rendered


def _boundary(text: str, header: str, bare: str, response: str) -> int:
    """Index of the first character behind the generation prompt.

    Where a template writes the header of an answered turn in another way, the response itself is looked for.
    """
    if header and text.startswith(header) and len(text) > len(header):
        return len(header)
    found = text.find(response.strip(), len(bare) if text.startswith(bare) else 0)
    if found < 0:
        raise DataError(f"the chat template does not write the response {response[:60]!r}; it cannot be scored")
    return found


def _tokenise(tokenizer: "PreTrainedTokenizerBase", texts: list[str], starts: list[int]) -> list[_Text]:
    """Ids of each text and the first token that holds a character at or behind `starts`."""
    if not texts:
        return []
    coded = _call(tokenizer, texts, add_special_tokens=False)
    if tokenizer.is_fast:
        found = [
            _token_at(coded, i, start, len(text)) for i, (start, text) in enumerate(zip(starts, texts, strict=True))
        ]
    else:
        prompts = _call(
            tokenizer, [text[:start] for text, start in zip(texts, starts, strict=True)], add_special_tokens=False
        )
        found = [_common(a, b) for a, b in zip(prompts["input_ids"], coded["input_ids"], strict=True)]
    return [_Text(np.array(ids, np.int32), start) for ids, start in zip(coded["input_ids"], found, strict=True)]


def _token_at(coded: Any, text: int, start: int, stop: int) -> int:
    for character in range(start, stop):
        token = coded.char_to_token(text, character)
        if token is not None:
            return int(token)
    raise DataError(f"response {text} has no token; it cannot be scored")


def _common(left: list[int], right: list[int]) -> int:
    differ = (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b)
    return next(differ, min(len(left), len(right)))


def has_segments(tokenizer: "PreTrainedTokenizerBase", template: str | None) -> bool:
    """Whether `encode` writes prompt and response as two segments: "raw" with an encoder's tokenizer."""
    return template == "raw" and tokenizer.sep_token_id is not None and tokenizer.cls_token_id is not None


def _pairs(tokenizer: "PreTrainedTokenizerBase", prompts: list[str], responses: Sequence[str]) -> list[_Text]:
    """Prompt and response as two segments with the tokenizer's own special tokens, as encoders are trained."""
    coded = _call(tokenizer, prompts, list(responses), add_special_tokens=True)
    return [_Text(np.array(ids, np.int32), coded.sequence_ids(i).index(1)) for i, ids in enumerate(coded["input_ids"])]


def _call(tokenizer: "PreTrainedTokenizerBase", *texts: Any, add_special_tokens: bool) -> Any:
    """The tokenizer's own call without padding, truncation or warnings; its stored settings come back afterwards."""
    core = getattr(tokenizer, "backend_tokenizer", None)
    truncation, padding = getattr(core, "truncation", None), getattr(core, "padding", None)
    try:
        return tokenizer(
            *texts, add_special_tokens=add_special_tokens, padding=False, truncation=False, verbose=False,
            return_attention_mask=False, return_token_type_ids=False,
        )  # fmt: skip
    finally:
        if core is not None and truncation is not None:
            core.enable_truncation(**truncation)
        if core is not None and padding is not None:
            core.enable_padding(**padding)


def _one_bos(bos: int | None, habit: bool, text: _Text) -> _Text:
    """Exactly one beginning token where the tokenizer writes one before plain text, or the template does."""
    if bos is None:
        return text
    leading = int((text.ids != bos).argmax())
    wanted = int(habit or leading > 0)
    ids = np.concatenate([np.full(wanted, bos, np.int32), text.ids[leading:]])
    return replace(text, ids=ids, start=text.start + wanted - leading)


def _writes_bos(tokenizer: "PreTrainedTokenizerBase") -> bool:
    return bool(_call(tokenizer, "a", add_special_tokens=True)["input_ids"][:1] == [tokenizer.bos_token_id])


def _with_end(tokenizer: "PreTrainedTokenizerBase", text: _Text, eos: bool | None) -> _Text:
    """The text with or without the end token, as asked."""
    if eos is None:
        return text
    end = tokenizer.eos_token_id
    if end is None:
        raise DataError(f"eos={eos}, but the tokenizer has no end token; set tokenizer.eos_token or leave eos=None")
    trailing = int((text.ids[::-1] != end).argmax())
    bare = text.ids[: len(text.ids) - trailing]
    return replace(text, ids=np.concatenate([bare, np.full(int(eos), end, np.int32)]))


def _fit(
    texts: list[_Text], tokenizer: "PreTrainedTokenizerBase", max_length: int | None, truncate: str | None
) -> list[_Text]:
    """Texts of at most `max_length` tokens; the others are refused or cut."""
    if max_length is None:
        return texts
    long = [i for i, text in enumerate(texts) if len(text.ids) > max_length]
    if long and truncate is None:
        worst = max(long, key=lambda i: len(texts[i].ids))
        raise DataError(
            f"{len(long)} of {len(texts)} texts are longer than max_length={max_length} tokens; the longest is text "
            f"{worst} with {len(texts[worst].ids)}; pass truncate='left' (keeps the answer) or 'right', or drop them"
        )
    cut = _cut_left if truncate == "left" else _cut_right
    return [cut(text, tokenizer, max_length) if len(text.ids) > max_length else text for text in texts]


def _cut_left(text: _Text, tokenizer: "PreTrainedTokenizerBase", length: int) -> _Text:
    """The end of a text behind its beginning token, which encoders are read at."""
    keep = int(text.ids[0] in (tokenizer.bos_token_id, tokenizer.cls_token_id))
    gone = len(text.ids) - length
    return _Text(np.concatenate([text.ids[:keep], text.ids[keep + gone :]]), max(text.start - gone, keep), True)


def _cut_right(text: _Text, tokenizer: "PreTrainedTokenizerBase", length: int) -> _Text:
    """The beginning of a text; two segments stay closed."""
    closing = int(text.ids[0] == tokenizer.cls_token_id and text.ids[-1] == tokenizer.sep_token_id)
    if text.start >= length - closing:
        raise DataError(
            f"truncate='right' at {length} tokens leaves nothing of a response that begins at token {text.start}; "
            "use truncate='left' or a larger max_length"
        )
    return _Text(np.concatenate([text.ids[: length - closing], text.ids[len(text.ids) - closing :]]), text.start, True)
