"""Conversations to text by a chat template that reads a pinned date for the clock."""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from rmlab.tables import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Messages, each with role and content and what else a template reads.
Conversation = list[dict[str, Any]]
# Variables of a chat template beside the messages, such as enable_thinking.
TemplateOptions = Mapping[str, Any]

TOOLS = "tools"
"""Role of a first message that holds the tools of a conversation as JSON."""

# The day that templates read instead of the clock, at midnight: the default of Llama's
# templates.
DATE = "26 Jul 2024"
_DAY = datetime.strptime(DATE, "%d %b %Y")

# Stands before a template in place of the function of this name that transformers gives
# to all of them: it hands templates plain data only, and so no function of ours. TEXTS:
# the date in each format that the template names. Jinja takes away a line break behind
# a block: without the last one it would take the template's own.
_CLOCK = (
    "{% macro strftime_now(format) %}{% set texts = TEXTS %}"
    "{% if format in texts %}{{ texts[format] }}{% else %}"
    "{{ raise_exception('it makes the format of its date') }}"
    "{% endif %}{% endmacro %}\n"
)
_NAMED_FORMAT = re.compile(r"""strftime_now\(\s*(?:format=)?['"]([^'"\\]*)['"]""")


def _pinned_clock(jinja: str) -> str:
    """The macro `strftime_now`, which writes DATE as Python's `strftime` would."""
    texts = {}
    for text_format in _NAMED_FORMAT.findall(jinja):
        texts[text_format] = _DAY.strftime(text_format)
    return _CLOCK.replace("TEXTS", json.dumps(texts))


def pinned_date(jinja: str) -> str | None:
    """DATE where the template asks for today's date and gets this one; else None."""
    return DATE if "strftime_now" in jinja else None


def add_system(conversation: Conversation, system: str) -> Conversation:
    """The conversation behind a system message with this text; its tools stay first."""
    n_tools = int(bool(conversation) and conversation[0]["role"] == TOOLS)
    message = {"role": "system", "content": system}
    return [*conversation[:n_tools], message, *conversation[n_tools:]]


def render(
    tokenizer: "PreTrainedTokenizerBase",
    jinja: str,
    conversations: list[Conversation],
    *,
    header: bool,
    options: TemplateOptions | None = None,
    tool_jinja: str | None = None,
) -> list[str]:
    """Each conversation as text; `header`: with the beginning of the answer to come.

    `tool_jinja`: the template of conversations with tools, if they have their own.
    Every template reads DATE instead of the clock. Raises DataError where it refuses a
    conversation or fails, and for tools or `options` that it does not read.
    """
    options = options or {}
    if tool_jinja is None:
        tool_jinja = jinja
    _check_options(options, jinja + tool_jinja)
    pinned = _pin(jinja)
    pinned_tools = _pin(tool_jinja)

    texts = []
    # One by one, not as a batch: a refusal then names its conversation.
    for number, conversation in enumerate(conversations):
        variables = dict(options)
        messages = conversation
        if messages and messages[0]["role"] == TOOLS:
            variables[TOOLS] = json.loads(messages[0]["content"])
            messages = messages[1:]
            if not _reads(TOOLS, tool_jinja):
                problem = (
                    f"conversation {number}: the chat template does not write the tools"
                )
                raise DataError(problem, "leave them out, or give another template")
        try:
            text = tokenizer.apply_chat_template(
                messages,
                chat_template=pinned_tools if TOOLS in variables else pinned,
                tokenize=False,
                add_generation_prompt=header,
                **variables,
            )
        # A template is somebody's program: it may raise whatever it likes.
        except Exception as error:
            raise _refusal(error, number, conversation) from error
        # `tokenize=False` gives a text, one of the kinds that the annotation names.
        texts.append(cast(str, text))
    return texts


def _pin(jinja: str) -> str:
    """The template with DATE for the clock, where it reads that."""
    if pinned_date(jinja) is None:
        return jinja
    return _pinned_clock(jinja) + jinja


def _reads(name: str, jinja: str) -> bool:
    """Whether a variable of this name stands in the template."""
    return re.search(rf"\b{re.escape(name)}\b", jinja) is not None


def _check_options(options: TemplateOptions, jinja: str) -> None:
    """Raise DataError for a variable that the template does not read, or that is not
    plain.
    """
    for name in options:
        if not _reads(name, jinja):
            problem = f"template_options: the chat template does not read {name!r}"
            raise DataError(problem, "give variables that stand in its text")
    try:
        json.dumps(dict(options), sort_keys=True)
    except (TypeError, ValueError) as error:
        problem = f"template_options: not plain values ({error})"
        remedy = "give what JSON holds: texts, numbers, booleans, lists, dictionaries"
        raise DataError(problem, remedy) from error


def _refusal(error: Exception, number: int, conversation: Conversation) -> DataError:
    """The error of a template that refuses a conversation, or fails on it."""
    from jinja2 import TemplateError

    verb = "refuses" if isinstance(error, TemplateError) else "fails on"
    roles = [message["role"] for message in conversation]
    cause = f"{type(error).__name__}: {str(error)[:200]}"
    problem = (
        f"the chat template {verb} conversation {number} with roles {roles} ({cause})"
    )
    return DataError(problem, "change messages or template")
