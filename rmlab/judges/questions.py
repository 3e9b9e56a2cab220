"""Questions to a judge: templates with placeholders for the conversation and the
answers, and the answers of its model.
"""

import hashlib
import json
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib import resources
from pathlib import Path
from string import ascii_uppercase

import numpy as np
from numpy.typing import NDArray

from rmlab.records import expand_path
from rmlab.scorers.base import Prompt, Text
from rmlab.tables import DataError, nearest

Messages = list[dict[str, str]]

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
_SECTION = re.compile(r"^\[(system|user)\][ \t]*\n", re.MULTILINE)
_NEEDED = {
    "pair": ("{prompt}", "{answer_a}", "{answer_b}"),
    "list": ("{prompt}", "{answers}"),
    "answer": ("{prompt}", "{answer}"),
}


@dataclass(frozen=True)
class Template:
    """A question with placeholders.

    Parameters
    ----------
    name : str
        Name of a shipped template, or of a file.
    system, user : str
        The two messages; `system` may be empty.
    """

    name: str
    system: str
    user: str

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
        texts = dict(zip(_ANSWER_NAMES, answers, strict=False))
        shown = [f"<{name}>\n{text}\n</{name}>" for name, text in texts.items()]
        texts["prompt"] = conversation(prompt)
        texts["answer"] = answers[0]
        texts["answers"] = "\n\n".join(shown)
        texts["verdicts"] = letters[-1]
        if first_letters:
            texts["verdicts"] = f"{first_letters} or {letters[-1]}"

        messages = []
        for role, words in (("system", self.system), ("user", self.user)):
            if words:
                messages.append({"role": role, "content": _fill(words, texts)})
        return messages

    @cached_property
    def text(self) -> str:
        """Both messages, for everything that depends on their words."""
        return f"{self.system}\n{self.user}"


def _fill(words: str, texts: Mapping[str, str]) -> str:
    """Put the texts in the place of their names in braces; other braces stay."""
    # Words and names of placeholders take turns.
    pieces = _PLACEHOLDER.split(words)
    for i in range(1, len(pieces), 2):
        name = pieces[i]
        pieces[i] = texts.get(name, f"{{{name}}}")
    return "".join(pieces)


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
        return str(prompt[0]["content"])
    turns = []
    for turn in prompt:
        turns.append(f"{turn['role'].title()}: {turn['content']}")
    return "\n\n".join(turns)


def shipped() -> list[str]:
    """Return the names of the templates that come with rmlab."""
    return sorted(_SHIPPED)


def load_template(template: str | Path, shows: str) -> Template:
    """Load a template by its name, or from a file.

    Parameters
    ----------
    template : str or Path
        A name of `shipped`, or a text file. Lines `[system]` and `[user]` begin the two
        messages; a file without them is the user's message.
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
    messages = _split_messages(text)
    if messages is None:
        sections = "one part [user], after at most one part [system]"
        raise _template_error(name, sections)
    loaded = Template(name, messages.get("system", ""), messages["user"])

    # A list of answers may also be written out: {answer_a}, {answer_b} ...
    is_written_out = "{answer_a}" in loaded.text and "{answer_b}" in loaded.text
    if shows == "list" and is_written_out:
        shows = "pair"
    missing = [needed for needed in _NEEDED[shows] if needed not in loaded.text]
    if missing:
        raise _template_error(name, ", ".join(missing))
    return loaded


def _template_error(name: str, lacking: str) -> DataError:
    problem = f"template={name!r}: lacks {lacking}"
    return DataError(problem, "write it where it is to stand")


def _split_messages(text: str) -> dict[str, str] | None:
    """The messages of a template by role; None where it has no single user's message.

    A text without lines [system] and [user] is the user's message.
    """
    before, *sections = _SECTION.split(text)
    if not sections:
        sections = ["user", before]
        before = ""
    roles = sections[::2]
    contents = [content.strip() for content in sections[1::2]]
    messages = dict(zip(roles, contents, strict=True))
    has_repeats = len(messages) < len(roles)
    if before.strip() or has_repeats or not messages.get("user"):
        return None
    return messages


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
    fields = asdict(answer)
    text = fields.pop("text")
    values = {name: v for name, v in fields.items() if v not in ("", None)}
    return {"text": text, **values}


@dataclass(frozen=True)
class Question:
    """One question.

    Parameters
    ----------
    item : int
        Number of the comparison, answer or list that the question is about.
    order : tuple of int
        Numbers of the item's answers in the order in which they are shown.
    sample : int
        Which of several answers to the same words this one is.
    template : Template
        The words around the texts.
    text : Text
        The item: the conversation and its answers.
    base_seed : int
        Seed of the run, from which each question draws a seed of its own.
    """

    item: int
    order: Order
    sample: int
    template: Template
    text: Text
    base_seed: int = 0

    @cached_property
    def key(self) -> str:
        """Hash of the words and the sample: equal questions are asked once, whatever
        their items.
        """
        prompt = conversation(self.text.prompt)
        return hash_json([self.template.text, prompt, self.answers, self.sample])

    @property
    def answers(self) -> tuple[str, ...]:
        """The item's answers in the order in which they are shown."""
        return tuple(self.text.answers[i] for i in self.order)

    @property
    def seed(self) -> int:
        """Seed of the answer. With one seed for all, a server would draw the same
        random numbers for every question.
        """
        return int(hash_json([self.base_seed, self.key])[:8], 16) >> 1

    @property
    def messages(self) -> Messages:
        """The messages that are sent."""
        return self.template.messages(self.text.prompt, self.answers)

    @property
    def n_bytes(self) -> int:
        """Bytes of UTF-8 in the messages."""
        n_bytes = 0
        for message in self.messages:
            n_bytes += len(message["content"].encode("utf-8", "surrogatepass"))
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
    letters : bool
        Whether the log-probabilities of the letters are read, not the text.
    seed : int
        Seed of drawn answers.
    """

    temperature: float
    answer_tokens: int
    letters: bool = False
    seed: int = 0


def item_numbers(questions: Sequence[Question]) -> NDArray[np.intp]:
    """Return the number of each question's item."""
    return np.array([question.item for question in questions], np.intp)


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
        hash_json([seed, sample, item.prompt, sorted_answers, text]) for text in answers
    ]
    return tuple(sorted(range(len(answers)), key=draws.__getitem__))


def count_tokens(questions: Iterable[Question]) -> int:
    """Return about how many tokens the questions have, at four bytes a token (Chinese:
    three).
    """
    return sum(question.n_bytes // 4 + 8 for question in questions)


def hash_json(value: object) -> str:
    """Return a hash of plain values, also of texts with half a surrogate pair."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    body = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(body, digest_size=16).hexdigest()
