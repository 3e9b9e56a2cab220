"""Conversations as text: chat formats, which chat template is taken, and rendering it on a fixed day."""

from datetime import datetime
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast
from unittest.mock import patch

from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Conversation = list[dict[str, str]]

DATE = "26 Jul 2024"
"""The day that templates read instead of the clock, at midnight: the default of Llama's templates."""

_CLOCK = SimpleNamespace(now=lambda: datetime.strptime(DATE, "%d %b %Y"))

_lock = Lock()

_SYSTEM = (
    "{% if messages and messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}"
    "{% set turns = messages[1:] %}{% else %}{% set system = '' %}{% set turns = messages %}{% endif %}"
)
"""Takes a system message off the front: `system` ('' without one) and `turns`."""


def _lines(user: str, assistant: str, after: str, *, between: str = "", start: str = "{{ system }}") -> str:
    """A format that writes `role between content after` for every turn, behind `start`."""
    # "\\n" is a line break to Jinja, which reads it inside a string of its own.
    return (
        _SYSTEM + start + "{% for m in turns %}"
        "{{ ('" + user + "' if m['role'] == 'user' else '" + assistant + "') + '" + between + "' + m['content']"
        " + '" + after + "' }}{% endfor %}{% if add_generation_prompt %}{{ '" + assistant + between + "' }}{% endif %}"
    )


def _brackets(opening: str, closing: str) -> str:
    """A format of [INST] and [/INST]; `opening`: what the first turn opens with where there is a system message."""
    return (
        # The system message stands inside the first user's turn.
        _SYSTEM + "{% for m in turns %}{% if loop.first %}"
        "{{ (" + opening + " if system else '[INST] ') + m['content'] + ' ' }}"
        "{% elif m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' ' }}"
        "{% else %}{{ '[/INST] ' + m['content'] + '" + closing + "' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '[/INST]' }}{% endif %}"
    )


_VICUNA = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user\\'s questions."
)

FORMATS = {
    "raw": "{% for m in messages %}{{ m['content'] }}{% endfor %}",
    "tulu": _lines("<|user|>", "<|assistant|>", "\\n", between="\\n", start="{{ system + ('\\n' if system else '') }}"),
    "open-instruct": (
        "{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] }}"
        "{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% if not loop.last %}{{ '\n' }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}{{ '\n<|assistant|>\n' }}{% endif %}"
    ),
    "vicuna": (
        _SYSTEM + "{{ (system or '" + _VICUNA + "') + ' ' }}{% for m in turns %}"
        "{% if m['role'] == 'user' %}{{ 'USER: ' + m['content'] + ' ' }}"
        "{% else %}{{ 'ASSISTANT: ' + m['content'] + '</s>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
    ),
    "zephyr": _lines(
        "<|user|>", "<|assistant|>", "</s>\\n", between="\\n", start="{{ '<|system|>\\n' + system + '</s>\\n' }}"
    ),
    "llama-2": _brackets("'[INST] <<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n'", " </s><s>"),
    "mistral": _brackets("'[INST] ' + system + '\\n'", "</s>"),
    "oasst": _lines("<|prompter|>", "<|assistant|>", "<|endoftext|>"),
    "pku-align": _lines("USER: ", "ASSISTANT: ", " ", start="{{ (system or 'BEGINNING OF CONVERSATION:') + ' ' }}"),
    "ziya": _lines("Human: ", "Assistant: ", "\\n\\n", start="{{ system + '\\n\\n' }}"),
    "openbmb": _lines("User: ", "Assistant: ", "\\n\\n"),
}
"""The formats exactly as FastChat and the benchmarks' runners write them, the names of special tokens included.

raw: the contents one behind the other, or as two segments where the tokenizer has a separator token, as encoders do.
vicuna, oasst: FastChat's `vicuna_v1.1` and `oasst_pythia`. zephyr: opens with an empty system turn where there is none.
llama-2: closes every answer with `</s><s>`. pku-align: Beaver. openbmb: UltraRM. open-instruct: what tulu models were
trained on, with the tokenizer's end token behind an answer and no line break after the last one.
"""


def read_template(template: str | Path | None) -> str | None:
    """A name of FORMATS, or the text of a template given as Jinja or as a file; None stays None.

    Raises DataError for everything else.
    """
    if template is None or template in FORMATS:
        return None if template is None else str(template)
    # A text that holds no braces is a path; a template without any would write the same for every conversation.
    text = str(template)
    if not isinstance(template, Path) and ("{{" in text or "{%" in text):
        return text
    try:
        return Path(template).read_text("utf-8")
    except (OSError, ValueError) as error:
        others = "or a Jinja template, or a file that holds one; None takes the tokenizer's own"
        raise DataError(f"template={text[:60]!r}; {nearest(text, list(FORMATS))}; {others}") from error


def choose_template(tokenizer: "PreTrainedTokenizerBase", template: str | None) -> tuple[str, str]:
    """Where the template comes from ("tokenizer", a name, or "given"), and its text."""
    if template is not None:
        return (template, FORMATS[template]) if template in FORMATS else ("given", template)
    try:
        jinja = tokenizer.get_chat_template() if tokenizer.chat_template else ""
    except ValueError:  # several templates, none of them the default
        jinja = ""
    if not jinja:
        raise DataError(
            f"the tokenizer {tokenizer.name_or_path or type(tokenizer).__name__!r} has no chat template, or several "
            "and no default; say in which format the model was trained: "
            f"template={' | '.join(map(repr, FORMATS))}, a Jinja template, or a file that holds one"
        )
    return "tokenizer", str(jinja)


def pinned_date(jinja: str) -> str | None:
    """DATE where the template asks for today's date, which it gets instead; None where it does not ask."""
    return DATE if "strftime_now" in jinja else None


def render(
    tokenizer: "PreTrainedTokenizerBase", jinja: str, conversations: list[Conversation], *, header: bool
) -> list[str]:
    """Each conversation as text; `header`: with the beginning of the assistant's answer.

    Every template reads DATE instead of the clock. Raises DataError where it refuses a conversation or fails.
    """
    from jinja2 import TemplateError

    texts = []
    # transformers hands templates plain data only, so no function of ours can take the clock's place among its options.
    with _lock, patch("transformers.utils.chat_template_utils.datetime", _CLOCK):
        # One by one, not as a batch: a refusal then names its conversation.
        for number, conversation in enumerate(conversations):
            try:
                text = tokenizer.apply_chat_template(
                    conversation, chat_template=jinja, tokenize=False, add_generation_prompt=header
                )
            except Exception as error:  # a template is somebody's program: it may raise whatever it likes
                verb = "refuses" if isinstance(error, TemplateError) else "fails on"
                roles = [message["role"] for message in conversation]
                cause = f"with roles {roles} ({type(error).__name__}: {str(error)[:200]})"
                raise DataError(
                    f"the chat template {verb} conversation {number} {cause}; bring its messages into the form that "
                    "the model knows, or give the template that was published with it"
                ) from error
            texts.append(cast(str, text))  # `tokenize=False` gives this one of the kinds that its annotation names
    return texts
