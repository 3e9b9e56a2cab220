"""Conversations to text: formats as Jinja templates, the choice among them, and
rendering with a pinned date for the clock.
"""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from rmlab.tables import DataError, nearest

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

# A call of the function that transformers gives to templates. It hands them plain data
# only, and so no function of ours.
_CLOCK = re.compile(r"""strftime_now\(\s*(?:format\s*=\s*)?(['"])([^'"\\]*)\1\s*\)""")


def _pin(jinja: str) -> str:
    """The template with DATE, as Python's `strftime` writes it, for the clock."""
    pinned = _CLOCK.sub(lambda call: json.dumps(_DAY.strftime(call[2])), jinja)
    if "strftime_now(" in pinned:
        problem = "the chat template makes the format of its date"
        raise DataError(problem, "write the format into the template")
    return pinned


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
) -> list[str]:
    """Each conversation as text; `header`: with the beginning of the answer to come.

    Every template reads DATE instead of the clock. Raises DataError where it refuses a
    conversation or fails, and for tools or `options` that it does not read.
    """
    options = options or {}
    for name in options:
        if not _reads(name, jinja):
            problem = f"template_options: the chat template does not read {name!r}"
            raise DataError(problem, "give variables that stand in its text")
    pinned = _pin(jinja)

    texts = []
    # One by one, not as a batch: a refusal then names its conversation.
    for number, conversation in enumerate(conversations):
        variables = dict(options)
        messages = conversation
        if messages and messages[0]["role"] == TOOLS:
            variables[TOOLS] = json.loads(messages[0]["content"])
            messages = messages[1:]
            if not _reads(TOOLS, jinja):
                problem = (
                    f"conversation {number}: the chat template does not write the tools"
                )
                raise DataError(problem, "leave them out, or give another template")
        try:
            text = tokenizer.apply_chat_template(
                messages,
                chat_template=pinned,
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


def _reads(name: str, jinja: str) -> bool:
    """Whether a variable of this name stands in the template."""
    return re.search(rf"\b{re.escape(name)}\b", jinja) is not None


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


# Takes a system message off the front: `system` ('' without one) and `turns`.
_SYSTEM = (
    "{% if messages and messages[0]['role'] == 'system' %}"
    "{% set system = messages[0]['content'] %}{% set turns = messages[1:] %}"
    "{% else %}{% set system = '' %}{% set turns = messages %}{% endif %}"
)

# For a role that a format does not have, also a system message behind the first turn.
_NO_ROLE = "{{ raise_exception('this format has no role ' ~ m['role'] ~ ' here') }}"


def _turns(
    user: str, assistant: str, start: str = "{{ system }}", header: str | None = None
) -> str:
    """A format of turns behind `start`; `{}` stands for the content of a message.

    `header` opens the answer to come; None: all of `assistant` before the content.
    """
    if header is None:
        header = assistant.partition("{}")[0]
    user_turn = user.replace("{}", "{{ m['content'] }}")
    assistant_turn = assistant.replace("{}", "{{ m['content'] }}")
    return (
        f"{_SYSTEM}{start}{{% for m in turns %}}"
        f"{{% if m['role'] == 'user' %}}{user_turn}"
        f"{{% elif m['role'] == 'assistant' %}}{assistant_turn}"
        f"{{% else %}}{_NO_ROLE}{{% endif %}}{{% endfor %}}"
        f"{{% if add_generation_prompt %}}{header}{{% endif %}}"
    )


# A user's turn; before the first one the format opens with "[INST] " and the system
# message.
_INST = "{% if not loop.first %}[INST] {% endif %}{} "

_VICUNA = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers "
    "to the user\\'s questions."
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
        "{% for m in messages %}"
        f"{{% if m['role'] not in ['system', 'user', 'assistant'] %}}{_NO_ROLE}"
        "{% endif %}{{ '<|' + m['role'] + '|>\n' + m['content'] }}"
        "{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}"
        "{% if not loop.last %}{{ '\n' }}{% endif %}"
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


class ChatTemplate(NamedTuple):
    """A template and its source: "tokenizer", a name of FORMATS, or "given"."""

    source: str
    jinja: str


def read_template(template: str | Path | None) -> str | None:
    """A name of FORMATS, or the text of a template given as Jinja or as a file.

    None stays None. Raises DataError for everything else.
    """
    if template is None:
        return None
    text = str(template)
    # A text without braces is a path: as a template it would write the same for every
    # conversation.
    is_jinja = "{{" in text or "{%" in text
    if template in FORMATS or (is_jinja and not isinstance(template, Path)):
        return text

    try:
        return Path(template).read_text("utf-8")
    except (OSError, ValueError) as error:
        allowed = nearest(text, list(FORMATS))
        problem = (
            f"template={text[:60]!r}; {allowed}; "
            "or a Jinja template, or a file that holds one"
        )
        raise DataError(problem, "None takes the tokenizer's own") from error


def choose_template(
    tokenizer: "PreTrainedTokenizerBase", template: str | None
) -> ChatTemplate:
    """The template that `read_template` gave, or else the tokenizer's own."""
    if template in FORMATS:
        return ChatTemplate(template, FORMATS[template])
    if template is not None:
        return ChatTemplate("given", template)

    try:
        return ChatTemplate("tokenizer", str(tokenizer.get_chat_template()))
    except ValueError as error:
        problem = (
            f"the tokenizer {tokenizer.name_or_path!r} has no chat template, "
            "or several and no default"
        )
        names = " | ".join(map(repr, FORMATS))
        remedy = (
            "say in which format the model was trained: "
            f"template={names}, a Jinja template, or a file that holds one"
        )
        raise DataError(problem, remedy) from error


def has_segments(
    tokenizer: "PreTrainedTokenizerBase", template: str | Path | None
) -> bool:
    """Whether prompt and response become segments: "raw" with an encoder's tokens."""
    if template != "raw":
        return False
    return tokenizer.sep_token_id is not None and tokenizer.cls_token_id is not None
