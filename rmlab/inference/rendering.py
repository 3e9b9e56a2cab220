"""Conversations as text: the chat template that is taken, and what it may do while it runs."""

import sys
from calendar import timegm
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from string import ascii_letters
from types import FrameType
from typing import TYPE_CHECKING, Any, TypedDict, cast

from rmlab.inference.formats import FORMATS
from rmlab.inference.randomness import draws
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["DATE", "Conversation", "choose_template", "pinned_date", "read_template", "render"]

Conversation = list[dict[str, str]]

DATE = "26 Jul 2024"
"""The day that templates read instead of the clock, at midnight: the default of Llama's templates."""

_STEPS = 2_000_000
"""Lines of the compiled template that one conversation may take; long conversations take some ten thousand."""

_REMEDY = (
    "save the tokenizer with the template that was published with the model (tokenizer.chat_template = ...), or pass "
    "that one where template= is taken"
)
"""Judges and models that compare answers go by the tokenizer's own template alone."""


def read_template(template: str | Path | None) -> str | None:
    """A name of FORMATS, or the text of a template given as Jinja or as a file; None stays None.

    Raises DataError for what is none of these, and for a template that draws random numbers.
    """
    if template is None or template in FORMATS:
        return None if template is None else str(template)
    # What holds no braces is a path; a template without any would write the same for every conversation.
    text = str(template)
    if isinstance(template, Path) or not ("{{" in text or "{%" in text):
        text = _file(template)
    if draws(text):
        raise DataError(f"template={str(template)[:60]!r} draws random text, so that no score could be repeated")
    return text


def choose_template(tokenizer: "PreTrainedTokenizerBase", template: str | None) -> tuple[str, str]:
    """Where the template comes from ("tokenizer", a name, or "given"), and its text."""
    if template is not None:
        return (template, FORMATS[template]) if template in FORMATS else ("given", template)
    who = tokenizer.name_or_path or type(tokenizer).__name__
    if not tokenizer.chat_template:
        raise DataError(
            f"the tokenizer {who!r} has no chat template; say in which format the model was trained: "
            f"template={' | '.join(map(repr, FORMATS))}, a Jinja template, or a file that holds one"
        )
    try:
        own = str(tokenizer.get_chat_template())
    except ValueError as error:
        raise DataError(
            f"the tokenizer {who!r} has several chat templates and none is its default ({error}); pass one of them as "
            "template="
        ) from error
    if draws(own):
        raise DataError(
            f"the chat template of the tokenizer {who!r} draws random text, so that no score could be repeated; "
            f"{_REMEDY}"
        )
    return "tokenizer", own


def pinned_date(jinja: str) -> str | None:
    """DATE where the template asks for today's date, which it gets instead; None where it does not ask."""
    return DATE if "strftime_now" in jinja else None


class _Fixed(TypedDict, total=False):
    """What templates with a clock are told of the time."""

    date_string: str


def render(
    tokenizer: "PreTrainedTokenizerBase", jinja: str, conversations: list[Conversation], *, header: bool
) -> list[str]:
    """Each conversation as text; `header`: with the beginning of the assistant's answer.

    Raises DataError where the template refuses a conversation, fails, or does not come to an end.
    """
    date = pinned_date(jinja)
    fixed: _Fixed = {} if date is None else {"date_string": date}
    pinned = _pinned(jinja)

    def one(conversation: Conversation) -> str:
        text = tokenizer.apply_chat_template(
            conversation, chat_template=pinned, tokenize=False, add_generation_prompt=header, **fixed
        )
        return cast(str, text)  # `tokenize=False` gives this one of the kinds that its annotation names

    # One by one, not as a batch: a refusal then names its conversation.
    rendered: list[str] = []
    for number, conversation in enumerate(conversations):
        with _limited():
            rendered.append(_render_one(one, number, conversation))
    return rendered


def _pinned(jinja: str) -> str:
    """The template with a clock that always shows DATE: a macro of the name by which templates ask for the time.

    transformers hands templates plain data only, so no function of ours can take the clock's place. The line break
    behind the macro ends a line as the lexer sees it: the template's first line is trimmed as if nothing stood before.
    """
    if pinned_date(jinja) is None:
        return jinja
    return _clock() + "\n" + jinja


@cache
def _clock() -> str:
    """The macro: what strftime writes at midnight of DATE for each code, and the rest of the text as it stands.

    Behind a "%" stands a code with its flag, a code, or a second "%", which leaves an empty part and makes the next
    part plain text.
    """
    day = datetime.strptime(DATE, "%d %b %Y")
    # "-" leaves out the leading zero ("%-d"); the machine's C library says which letters mean something.
    codes = [flag + letter for flag in ("", "-") for letter in ascii_letters]
    written = {code: day.strftime("%" + code) for code in codes}
    written["s"] = str(timegm(day.timetuple()))  # strftime would count from where this machine stands
    known = {code: text for code, text in written.items() if text != "%" + code}
    return (
        "{% macro strftime_now(format) %}"
        f"{{% set known, shown = {known!r}, namespace(text='', plain=true) %}}"
        "{% for part in format.split('%') %}{% set code = part[:2] if part[:2] in known else part[:1] %}"
        "{% set shown.text = shown.text ~ (part if shown.plain else known[code] ~ part[code | length:] "
        "if code in known else '%' ~ part) %}"
        "{% set shown.plain = not shown.plain and not part %}{% endfor %}{{ shown.text }}{% endmacro %}"
    )


def _file(template: str | Path) -> str:
    path = Path(template)
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError) as error:
        close = nearest(str(template), list(FORMATS))
        raise DataError(
            f"template={str(template)[:60]!r}; {close}; or a Jinja template, or a file that holds one; None takes the "
            "tokenizer's own"
        ) from error


def _render_one(one: Callable[[Conversation], str], number: int, conversation: Conversation) -> str:
    from jinja2 import TemplateError

    try:
        return one(conversation)
    except DataError:
        raise
    except TemplateError as error:
        roles = [message["role"] for message in conversation]
        raise DataError(
            f"the chat template refuses conversation {number} with roles {roles}: {error}; "
            "bring its messages into the form the model knows (no system message, user and assistant in turn)"
        ) from error
    except Exception as error:  # a template is somebody's program: it may raise whatever it likes
        raise DataError(
            f"the chat template fails on conversation {number} ({type(error).__name__}: {str(error)[:200]}); {_REMEDY}"
        ) from error


@contextmanager
def _limited() -> Iterator[None]:
    """Inside the block: a template that runs for more than _STEPS lines raises DataError instead of running on.

    Which way a template takes depends on what is said, so that each conversation is counted by itself.
    """
    left, before = _STEPS, sys.gettrace()

    # Lines, not seconds: the same conversation is refused on every machine or on none.
    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise DataError(f"the chat template does not come to an end (stopped after {_STEPS:,} steps); {_REMEDY}")
        return count

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        # The name that Jinja compiles templates under.
        return count if frame.f_code.co_filename == "<template>" else None

    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)  # a debugger or coverage may have been tracing
