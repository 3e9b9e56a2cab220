"""Conversations to token ids: the chat template once, the tokenizer once, one beginning
token, a known end.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.inference.templates import (
    Conversation,
    TemplateOptions,
    add_system,
    choose_template,
    has_segments,
    pinned_date,
    read_template,
    render,
)
from rmlab.inference.tokenised import (
    Ids,
    limit_lengths,
    set_end,
    set_special_tokens,
    tokenise,
    tokenise_as_reward_bench_dpo,
    tokenise_segments,
    tokenise_steps,
)
from rmlab.tables import DataError, is_response

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Prompt = str | Conversation
# A text, a message of the assistant that holds more than its text, or steps.
Response = str | Mapping[str, Any] | list[str]

# A response that no template writes by itself.
_SENTINEL = "zebra"


@dataclass(frozen=True)
class Encoded:
    """Texts as token ids. Entry i of each field belongs to response i.

    `ids`: the whole conversation. `response_start`: index of the first token that holds
    a character of the response (what the template writes behind the generation prompt).
    `groups`: number of the prompt; equal prompts have equal numbers. `truncated`: was
    the text cut? `source`: "tokenizer", the name of a format, "given", or the "form" of
    a comparison. `template_hash`: hash of the template's text and of what was done
    about the EOS token. `date`: the day that the template wrote instead of today's,
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
    def prompt_end(self) -> NDArray[np.intp]:
        """The last token before each answer: of the assistant's header, or of the
        prompt where the template writes none; 0 where nothing stands before it.
        """
        return np.maximum(self.response_start - 1, 0)


class _Prompts(NamedTuple):
    """Distinct conversations, and which of them each response answers."""

    conversations: list[Conversation]
    groups: NDArray[np.intp]


def encode(
    tokenizer: "PreTrainedTokenizerBase",
    prompts: Sequence[Prompt],
    responses: Sequence[Response],
    *,
    template: str | Path | None = None,
    template_options: TemplateOptions | None = None,
    system: str | None = None,
    bos: bool | None = None,
    eos: bool | None = None,
    max_length: int | None = None,
    truncate: str | None = None,
    convention: str | None = None,
    separator: str | None = None,
) -> Encoded:
    """Token ids of each prompt with its response, as the chat template writes them.

    The rendered text is tokenised once. Around it stand the special tokens that the
    tokenizer writes around plain text, each exactly once whether or not the template
    writes it too: a decoder's BOS token (and its EOS token, where the tokenizer
    adds one), an encoder's `[CLS]` and `[SEP]`. Dates that a template would take from
    the clock are fixed to 26 Jul 2024, the default of Llama's templates.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
        The model's tokenizer, which is left as it was.
    prompts : sequence of str or of lists of messages
        Messages have role and content, and what else the template reads (tool_calls,
        reasoning_content); system messages and earlier turns go in there.
    responses : sequence of str or of messages
        One for each prompt.
    template : str or Path, optional
        None for the tokenizer's own, one of FORMATS by name, a Jinja template, or a
        file that holds one. A tokenizer without a template never gets one silently.
    template_options : mapping, optional
        Variables of the template, such as {"enable_thinking": False} or "tools".
    system : str, optional
        A system message that is put before every conversation.
    bos, eos : bool, optional
        Whether the text begins with the BOS token, and ends with the EOS token.
        By default as template and tokenizer write them: where neither writes an end
        token, a head that reads the last token reads the last token of the answer.
    max_length : int, optional
        The most tokens of a text; a longer one raises unless `truncate` says otherwise.
    truncate : str, optional
        "left" (cut the beginning, keep the answer and the BOS token) or "right"
        (cut the end of the answer).
    convention : str, optional
        Of RewardBench's runners. "reward-bench": the tokenizer's own special tokens
        around the rendered text, with one BOS token. "reward-bench-twice": a
        BOS token for the template and one for the tokenizer. "reward-bench-dpo":
        that of implicit rewards.
    separator : str, optional
        Stands behind each step of responses that are lists of steps. The tokenizer gets
        the prompt, each step and the separator apart.

    Returns
    -------
    Encoded

    Raises
    ------
    DataError
        For a tokenizer without template, an empty response, a conversation that the
        template refuses, a system message that it does not write, texts that are too
        long, and options that do not exist.
    """
    _check_texts(prompts, responses)
    source, jinja = choose_template(tokenizer, read_template(template))
    write = partial(render, tokenizer, jinja, options=template_options)
    numbered = _number_prompts(prompts, system)
    # Once per prompt, not per response.
    prompt_texts = write(numbered.conversations, header=False)
    if system is not None:
        _require_system(system, prompt_texts)
    bare = [prompt_texts[group] for group in numbered.groups]
    contents = []
    if separator is None:
        contents = [_content(response) for response in responses]

    if separator is not None:
        steps = cast("Sequence[list[str]]", responses)
        texts = tokenise_steps(tokenizer, bare, steps, separator)
        texts = set_special_tokens(tokenizer, texts, None, bos)
    elif has_segments(tokenizer, template):
        texts = tokenise_segments(tokenizer, bare, contents)
        if eos is not None:
            texts = set_end(tokenizer, texts, eos)
    else:
        rendered = write(_answered(numbered, responses), header=False)
        if convention == "reward-bench-dpo":
            texts = tokenise_as_reward_bench_dpo(tokenizer, bare, rendered)
        else:
            starts = _response_starts(write, numbered, rendered, bare, contents)
            texts = tokenise(
                tokenizer, rendered, starts, add_special_tokens=convention is not None
            )
            if eos is not None:
                texts = set_end(tokenizer, texts, eos)
            texts = set_special_tokens(tokenizer, texts, convention, bos, eos)

    texts = limit_lengths(texts, max_length, truncate)
    # All that decides the tokens: other tokens are other scores.
    written_by = f"{jinja}\0{eos}"
    if (template_options, system, bos) != (None, None, None):
        written_by += json.dumps([template_options, system, bos], sort_keys=True)
    return Encoded(
        ids=[text.ids for text in texts],
        response_start=np.array([text.start for text in texts], np.intp),
        groups=numbered.groups,
        truncated=np.array([text.is_cut for text in texts], bool),
        source=source,
        template_hash=hashlib.blake2b(written_by.encode(), digest_size=16).hexdigest(),
        date=pinned_date(jinja),
    )


def _check_texts(prompts: Sequence[Prompt], responses: Sequence[Response]) -> None:
    if len(prompts) != len(responses):
        problem = f"{len(prompts)} prompts and {len(responses)} responses"
        raise ValueError(f"{problem}; give one prompt per response")
    empty = [i for i, response in enumerate(responses) if not is_response(response)]
    if empty:
        problem = (
            f"responses: {len(empty)} of {len(responses)} are empty, "
            f"first number {empty[0]}"
        )
        raise DataError(problem, "fill them in")


def _content(response: Response) -> str:
    """The text of a response; of steps (process models) there is none."""
    if isinstance(response, str):
        return response
    if isinstance(response, Mapping):
        return response.get("content") or ""
    problem = f"responses: a list of {len(response)} steps"
    raise DataError(problem, "join them to one text for this model")


def _require_system(system: str, texts: Sequence[str]) -> None:
    """Raise DataError where the template has left out the system message."""
    if not all(system.strip() in text for text in texts):
        problem = f"system={system[:60]!r}: the chat template does not write it"
        raise DataError(problem, "put the text into the prompts")


def _number_prompts(prompts: Sequence[Prompt], system: str | None) -> _Prompts:
    """The distinct prompts as conversations, behind a system message if there is one;
    equal ones share a number.
    """
    distinct: dict[str, Conversation] = {}
    keys = []
    for prompt in prompts:
        if isinstance(prompt, str):
            prompt = [{"role": "user", "content": prompt}]
        key = json.dumps(prompt, sort_keys=True)
        distinct[key] = prompt
        keys.append(key)
    groups, _ = pd.factorize(np.array(keys, object))
    conversations = list(distinct.values())
    if system is not None:
        conversations = [add_system(turns, system) for turns in conversations]
    return _Prompts(conversations, groups)


def _answered(prompts: _Prompts, responses: Sequence[Response]) -> list[Conversation]:
    """The whole conversation of each response."""
    conversations = []
    for group, response in zip(prompts.groups, responses, strict=True):
        answer = {"role": "assistant", "content": response}
        if isinstance(response, Mapping):
            answer = dict(response)
        conversations.append([*prompts.conversations[group], answer])
    return conversations


def _response_starts(
    write: Callable[..., list[str]],
    prompts: _Prompts,
    texts: list[str],
    bare: list[str],
    responses: Sequence[str],
) -> list[int]:
    """Index of the first character of each response in its text: behind what the
    template opens the answer with.

    `bare`: each text's prompt without an answer.
    """
    # How answered turns open, where the generation prompt is none of it.
    answer_openings: dict[int, str] = {}
    headers = write(prompts.conversations, header=True)
    starts = []
    for number, group in enumerate(prompts.groups.tolist()):
        text = texts[number]
        opening = headers[group]
        if not text.startswith(opening):
            if group not in answer_openings:
                conversation = prompts.conversations[group]
                answer_openings[group] = _answer_opening(write, conversation)
            opening = answer_openings[group]

        if opening and text.startswith(opening) and len(text) > len(opening):
            start = len(opening)
        else:
            start = _find_response(text, bare[number], responses[number])
        starts.append(start)
    return starts


def _answer_opening(write: Callable[..., list[str]], conversation: Conversation) -> str:
    """What an answered turn has before the response.

    Some generation prompts open a thought that answered turns leave out.
    """
    answer = {"role": "assistant", "content": _SENTINEL}
    (text,) = write([[*conversation, answer]], header=False)
    return text.rpartition(_SENTINEL)[0]


def _find_response(text: str, bare: str, response: str) -> int:
    """Index of the response in a text that does not begin as the template opens it."""
    # Behind the prompt, which may quote the response.
    first = 0
    if text.startswith(bare):
        first = len(bare)
    # Stripped, as many templates trim the contents.
    start = text.find(response.strip(), first)
    if start < 0:
        problem = f"the chat template does not write the response {response[:60]!r}"
        raise DataError(problem, "it cannot be scored")
    return start
