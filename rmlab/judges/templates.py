"""What a judge is asked: plain text files with places for the conversation and the answers."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from string import ascii_uppercase

from rmlab.scorers.types import Prompt
from rmlab.tables import DataError, nearest

__all__ = ["LETTERS", "MOST", "Messages", "Template", "conversation", "load_template", "reworded", "shipped"]

Messages = list[dict[str, str]]

LETTERS = ascii_uppercase
MOST = len(LETTERS)
"""Answers that one question can show: one letter each."""

_PLACES = [f"answer_{letter.lower()}" for letter in LETTERS]
_PLACE = re.compile(r"\{([a-z_]+)\}")
_SECTION = re.compile(r"^\[(system|user)\][ \t]*\n", re.MULTILINE)
_ROLES = {"system": "System", "user": "User", "assistant": "Assistant"}
_NEEDED = {"pair": ("prompt", "answer_a", "answer_b"), "list": ("prompt", "answers"), "answer": ("prompt", "answer")}


@dataclass(frozen=True)
class Template:
    """A question with places to fill. `name`: of the file. `system` may be empty.

    `messages` fills each place once, from left to right: braces in the filled-in texts, as in code, stay as they are.
    """

    name: str
    system: str
    user: str

    def messages(self, prompt: Prompt, answers: Sequence[str]) -> Messages:
        """The messages that show the answers in this order: A, B, C ..."""
        texts = dict(zip(_PLACES, answers, strict=False)) | {"prompt": conversation(prompt), "answer": answers[0]}
        # Only lists have these places, and every question is put together twice: for its key, and to be asked.
        if "{answers}" in self.text or "{verdicts}" in self.text:
            blocks = [f"<{place}>\n{text}\n</{place}>" for place, text in zip(_PLACES, answers, strict=False)]
            verdicts = _listed([f"[[{letter}]]" for letter in LETTERS[: len(answers)]])
            texts |= {"answers": "\n\n".join(blocks), "verdicts": verdicts}
        filled = {role: _fill(text, texts) for role, text in (("system", self.system), ("user", self.user)) if text}
        return [{"role": role, "content": text} for role, text in filled.items()]

    @cached_property
    def text(self) -> str:
        """All of it, for what depends on its words."""
        return f"{self.system}\n{self.user}"


def conversation(prompt: Prompt) -> str:
    """A prompt as one text: a single question as it is, several turns with who says them.

    >>> print(conversation([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]))
    User: Hi
    <BLANKLINE>
    Assistant: Hello.
    """
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1 and prompt[0]["role"] == "user":
        return prompt[0]["content"]
    return "\n\n".join(f"{_ROLES.get(turn['role'], turn['role'].title())}: {turn['content']}" for turn in prompt)


def shipped() -> list[str]:
    """Names of the templates that come with rmlab."""
    folder = resources.files("rmlab.judges") / "prompts"
    return sorted(file.name.removesuffix(".txt") for file in folder.iterdir() if file.name.endswith(".txt"))


def load_template(template: str | Path, shows: str) -> Template:
    """A template by its name, or from a file of the caller's.

    `shows`: what it has to have places for, "pair" ({prompt}, {answer_a}, {answer_b}), "list" ({prompt}, {answers}) or
    "answer" ({prompt}, {answer}). Lines `[system]` and `[user]` begin the two parts; a file without them is all user.
    Raises DataError for an unknown name, a file that cannot be read, and places that are not there.
    """
    name = str(template)
    if name in shipped():
        text = (resources.files("rmlab.judges") / "prompts" / f"{name}.txt").read_text("utf-8")
    else:
        try:
            text = Path(template).expanduser().read_text("utf-8")
        except (OSError, ValueError) as error:
            raise DataError(
                f"template={name[:80]!r}: {nearest(name, shipped())}; or a text file with the question"
            ) from error
    parts = _sections(name, text)
    made = Template(name, parts.get("system", "").strip(), parts.get("user", "").strip())
    _require_places(made, shows)
    return made


def reworded(template: Template, shows: str) -> Template:
    """The same question in other words, for a template that comes with rmlab; DataError where there is none."""
    other = f"{template.name}-reworded"
    if other not in shipped():
        raise DataError(
            f"template={template.name!r} comes without a second wording; pass reworded=, a file that asks the same in "
            "other words"
        )
    return load_template(other, shows)


def _sections(name: str, text: str) -> dict[str, str]:
    found = list(_SECTION.finditer(text))
    if not found:
        return {"user": text}
    if text[: found[0].start()].strip() or len({part[1] for part in found}) < len(found):
        raise DataError(
            f"template={name!r}: allowed: one part behind a line '[system]', one behind a line '[user]', and nothing "
            "before them"
        )
    ends = [part.start() for part in found[1:]] + [len(text)]
    return {part[1]: text[part.end() : end] for part, end in zip(found, ends, strict=True)}


def _require_places(template: Template, shows: str) -> None:
    missing = [place for place in _NEEDED[shows] if f"{{{place}}}" not in template.text]
    # A list of four may be written out, as papers do.
    if missing == ["answers"] and "{answer_a}" in template.text and "{answer_b}" in template.text:
        return
    if missing or not template.user:
        places = ", ".join(f"{{{place}}}" for place in missing) or "a part for the user"
        raise DataError(f"template={template.name!r}: lacks {places}; write it where the text is to stand")


def _fill(text: str, texts: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda found: texts.get(found[1], found[0]), text)


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
