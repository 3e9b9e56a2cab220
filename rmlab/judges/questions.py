"""Questions to a judge: templates with placeholders for the conversation and the
answers, and the answers of its model.
"""

import json
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from pathlib import Path
from string import ascii_uppercase
from typing import Any, NamedTuple

from rmlab.records import expand_path
from rmlab.scorers.base import Prompt, Text, hash_parts
from rmlab.tables import DataError, nearest

Messages = list[dict[str, Any]]

LETTERS = ascii_uppercase
"""Names of the answers in a question, which shows at most so many."""

_FOLDER = resources.files("rmlab.judges") / "prompts"
_SHIPPED = {
    file.name.removesuffix(".txt"): file
    for file in _FOLDER.iterdir()
    if file.name.endswith(".txt")
}
_ANSWER_NAMES = [f"answer_{letter.lower()}" for letter in LETTERS]
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
# A line that begins a message: the role of who speaks.
_SECTION = re.compile(r"^\[([a-z0-9_]+)\][ \t]*(?:\n|\Z)", re.MULTILINE)
# The section that stands for the messages of the conversation.
_CONVERSATION = "prompt"
_NEEDED = {
    "pair": ("{prompt}", "{answer_a}", "{answer_b}"),
    "list": ("{prompt}", "{answers}"),
    "answer": ("{prompt}", "{answer}"),
}


class Section(NamedTuple):
    """The role and the words of a message."""

    role: str
    words: str


@dataclass(frozen=True)
class Template:
    """A question with placeholders.

    Parameters
    ----------
    name : str
        Name of a shipped template, or of a file.
    sections : tuple of Section
        The messages. A section "prompt" without words stands for the messages of the
        conversation.
    system : str
        A system message before the question, or before the words of its own. It fills
        the placeholder {system}, where there is one.
    """

    name: str
    sections: tuple[Section, ...]
    system: str = ""

    def messages(self, prompt: Prompt, answers: Sequence[str]) -> Messages:
        """Return the messages that show the answers in this order.

        Each placeholder is filled once, from left to right: braces in the texts, as in
        code, stay as they are.

        Parameters
        ----------
        prompt : str or list of messages
            The conversation.
        answers : sequence of str
            Answers A, B, C ...
        """
        letters = [f"[[{letter}]]" for letter in LETTERS[: len(answers)]]
        first_letters = ", ".join(letters[:-1])
        texts = dict(zip(_ANSWER_NAMES, map(message_text, answers), strict=False))
        shown = [f"<{name}>\n{text}\n</{name}>" for name, text in texts.items()]
        texts["prompt"] = conversation(prompt)
        texts["answer"] = message_text(answers[0])
        texts["answers"] = "\n\n".join(shown)
        texts["system"] = self.system
        texts["verdicts"] = letters[-1]
        if first_letters:
            texts["verdicts"] = f"{first_letters} or {letters[-1]}"

        messages: Messages = []
        for role, words in self.sections:
            if role != _CONVERSATION or words:
                filled = _PLACEHOLDER.sub(
                    lambda place: texts.get(place[1], place[0]), words
                )
                messages.append({"role": role, "content": filled})
            elif isinstance(prompt, str):
                messages.append({"role": "user", "content": prompt})
            else:
                messages += prompt

        if self.system and "{system}" not in self.text:
            words = self.system
            if messages[0]["role"] == "system":
                words += f"\n\n{messages.pop(0)['content']}"
            messages.insert(0, {"role": "system", "content": words})
        return messages

    @cached_property
    def text(self) -> str:
        """All sections, for everything that depends on their words."""
        return "\n".join(words for _, words in self.sections)

    @property
    def identity(self) -> list[object]:
        """Plain values that change with each word."""
        return [self.sections, self.system]


def conversation(prompt: Prompt) -> str:
    """Return a prompt as one text: a single question as it is, several turns with their
    speakers.

    >>> answer = {"role": "assistant", "content": "Hello."}
    >>> print(conversation([{"role": "user", "content": "Hi"}, answer]))
    User: Hi
    <BLANKLINE>
    Assistant: Hello.
    """
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1 and prompt[0]["role"] == "user":
        return message_text(prompt[0])
    turns = []
    for turn in prompt:
        turns.append(f"{turn['role'].title()}: {message_text(turn)}")
    return "\n\n".join(turns)


def message_text(answer: object) -> str:
    """Return an answer or a message as one text: steps on lines of their own, and what
    a message has beside its content as JSON.
    """
    if isinstance(answer, Mapping):
        texts = [str(answer.get("content") or "")]
        further = {k: v for k, v in answer.items() if k not in ("role", "content")}
        if further:
            texts.append(json.dumps(further, ensure_ascii=False))
        return "\n".join(text for text in texts if text)
    if isinstance(answer, str):
        return answer
    return "\n\n".join(map(str, answer))  # type: ignore[call-overload]


def shipped() -> list[str]:
    """Return the names of the templates that come with rmlab."""
    return sorted(_SHIPPED)


def load_template(template: str | Path, shows: str) -> Template:
    """Load a template by its name, or from a file.

    Parameters
    ----------
    template : str or Path
        A name of `shipped`, or a text file. A line such as `[system]`, `[user]` or
        `[response_1]` begins a message of that role; a file that does not begin with
        such a line is the user's message. `[prompt]`, without words, stands for the
        messages of the conversation.
    shows : str
        What the question shows: "pair" needs {prompt}, {answer_a},
        {answer_b}; "list" needs {prompt}, {answers}, or the answers written out;
        "answer" needs {prompt}, {answer}.

    Returns
    -------
    Template

    Raises
    ------
    DataError
        For an unknown name, a file that cannot be read, and missing placeholders.
    """
    name = str(template)
    file = _SHIPPED.get(name) or expand_path(template)
    try:
        text = file.read_text("utf-8")
    except (OSError, ValueError) as error:
        problem = f"template={name[:80]!r}: {nearest(name, shipped())}"
        raise DataError(problem, "or a text file") from error
    loaded = Template(name, _split_sections(text))

    # A list of answers may also be written out: {answer_a}, {answer_b} ...
    is_written_out = "{answer_a}" in loaded.text and "{answer_b}" in loaded.text
    if shows == "list" and is_written_out:
        shows = "pair"
    present = loaded.text
    if Section(_CONVERSATION, "") in loaded.sections:
        present += "{prompt}"
    missing = [needed for needed in _NEEDED[shows] if needed not in present]
    if missing:
        problem = f"template={name!r}: lacks {', '.join(missing)}"
        raise DataError(problem, "write it where it is to stand")
    return loaded


def _split_sections(text: str) -> tuple[Section, ...]:
    """The messages of a template; one that does not begin with a role is the user's
    message.
    """
    before, *parts = _SECTION.split(text)
    if before.strip() or not parts:
        return (Section("user", text.strip()),)
    messages = zip(parts[::2], parts[1::2], strict=True)
    return tuple(Section(role, words.strip()) for role, words in messages)


Order = tuple[int, ...]
"""Numbers of an item's answers in the order in which a question shows them."""


@dataclass(frozen=True)
class Completion:
    """What a model answered, as it is stored.

    Parameters
    ----------
    text : str
        The answer, as far as the server did not take parts of it off as reasoning.
    finish : str
        Why the answer ended ("stop", "length" ...); empty where the server does not
        say.
    reasoning : str
        What the server took off.
    top : mapping of str to float, optional
        Log-probabilities of the tokens that could have stood where the letter of the
        verdict stands.
    prompt_tokens, answer_tokens : int, optional
        Tokens read and written; None where the server does not say.
    model : str
        The model that the server names.
    """

    text: str
    finish: str = ""
    reasoning: str = ""
    top: Mapping[str, float] | None = None
    prompt_tokens: int | None = None
    answer_tokens: int | None = None
    model: str = field(default="", compare=False)


def encode(answer: Completion) -> dict[str, object]:
    """Return the answer as plain values; empty ones are left out."""
    fields = {name: v for name, v in vars(answer).items() if v not in ("", None)}
    return {"text": answer.text, **fields}


@dataclass(frozen=True)
class Question:
    """One question.

    Parameters
    ----------
    order : tuple of int
        Numbers of the answers in the order in which they are shown.
    sample : int
        Which of several answers to the same words this one is.
    template : Template
        The words around the texts.
    text : Text
        The conversation and its answers.
    base_seed : int
        Seed of the run, from which each question draws a seed of its own.
    """

    order: Order
    sample: int
    template: Template
    text: Text
    base_seed: int = 0

    @cached_property
    def key(self) -> str:
        """Hash of the words and the sample: equal questions are asked once."""
        prompt = conversation(self.text.prompt)
        words = self.template.identity
        return hash_parts([words, prompt, self.answers, self.sample])

    @property
    def answers(self) -> tuple[str, ...]:
        """The answers in the order in which they are shown."""
        return tuple(self.text.answers[i] for i in self.order)

    @property
    def seed(self) -> int:
        """Seed of the answer. With one seed for all, a server would draw the same
        random numbers for every question.
        """
        return int(hash_parts([self.base_seed, self.key])[:8], 16) >> 1

    @property
    def messages(self) -> Messages:
        """The messages that are sent."""
        return self.template.messages(self.text.prompt, self.answers)

    @property
    def n_bytes(self) -> int:
        """Bytes of UTF-8 in the messages."""
        n_bytes = 0
        for message in self.messages:
            n_bytes += len(message_text(message).encode("utf-8", "surrogatepass"))
        return n_bytes


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn.

    Parameters
    ----------
    temperature : float
        0 takes the likeliest token.
    answer_tokens : int
        The most tokens of an answer.
    choices : tuple of str
        Words whose log-probabilities are read instead of the text: A and B, or yes and
        no.
    """

    temperature: float
    answer_tokens: int
    choices: tuple[str, ...] = ()


Completions = Generator[tuple[Question, Completion | str], None, None]
"""Questions, each with its answer, or with the reason why there is none, in any order.
"""


def shuffled_order(item: Text, sample: int, seed: int) -> Order:
    """Return one order, drawn by the item's texts, the sample and the seed: for two
    answers, a coin.

    The order does not depend on the order in which the answers came (benchmarks list
    the right one first), on the other items, or on where a run was resumed.
    """
    answers = item.answers
    sorted_answers = sorted(answers)
    draws = [
        hash_parts([seed, sample, item.prompt, sorted_answers, text])
        for text in answers
    ]
    return tuple(sorted(range(len(answers)), key=draws.__getitem__))


def count_tokens(questions: Iterable[Question]) -> int:
    """Return about how many tokens the questions have, at four bytes a token (Chinese:
    three).
    """
    return sum(question.n_bytes // 4 + 8 for question in questions)
