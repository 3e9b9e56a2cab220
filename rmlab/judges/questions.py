"""Questions to a judge: templates with places for the conversation and the answers, and
the answers of its model.
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

from rmlab.records import expand_path
from rmlab.scorers.base import Prompt, Text
from rmlab.tables import DataError, nearest

Messages = list[dict[str, str]]

LETTERS = ascii_uppercase
"""Names of the answers in a question, which shows at most so many."""

_FOLDER = resources.files("rmlab.judges") / "prompts"
_PLACES = [f"answer_{letter.lower()}" for letter in LETTERS]
_PLACE = re.compile(r"\{([a-z_]+)\}")
_SECTION = re.compile(r"^\[(system|user)\][ \t]*\n", re.MULTILINE)
_ROLES = {"system": "System", "user": "User", "assistant": "Assistant"}
_NEEDED = {
    "pair": ("prompt", "answer_a", "answer_b"),
    "list": ("prompt", "answers"),
    "answer": ("prompt", "answer"),
}


@dataclass(frozen=True)
class Template:
    """A question with places to fill.

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

        Each place is filled once, from left to right: braces in the texts, as in code,
        stay as they are.

        Parameters
        ----------
        prompt : str or list of messages
            The conversation.
        answers : sequence of str
            Answers A, B, C ...
        """
        by_place = dict(zip(_PLACES, answers, strict=False))
        letters = [f"[[{letter}]]" for letter in LETTERS[: len(answers)]]
        texts = by_place | {
            "prompt": conversation(prompt),
            "answer": answers[0],
            "answers": "\n\n".join(
                f"<{place}>\n{text}\n</{place}>" for place, text in by_place.items()
            ),
            "verdicts": " or ".join(
                filter(None, [", ".join(letters[:-1]), letters[-1]])
            ),
        }
        return [
            {
                "role": role,
                "content": _PLACE.sub(
                    lambda place: texts.get(place[1], place[0]), text
                ),
            }
            for role, text in (("system", self.system), ("user", self.user))
            if text
        ]

    @cached_property
    def text(self) -> str:
        """Both messages, for everything that depends on their words."""
        return f"{self.system}\n{self.user}"


def conversation(prompt: Prompt) -> str:
    """Return a prompt as one text: a single question as it is, several turns with their
    speakers.

    >>> print(conversation([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]))
    User: Hi
    <BLANKLINE>
    Assistant: Hello.
    """
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1 and prompt[0]["role"] == "user":
        return prompt[0]["content"]
    return "\n\n".join(
        f"{_ROLES.get(turn['role'], turn['role'].title())}: {turn['content']}"
        for turn in prompt
    )


def shipped() -> list[str]:
    """Return the names of the templates that come with rmlab."""
    return sorted(
        file.name.removesuffix(".txt")
        for file in _FOLDER.iterdir()
        if file.name.endswith(".txt")
    )


def load_template(template: str | Path, shows: str) -> Template:
    """Load a template by its name, or from a file.

    Parameters
    ----------
    template : str or Path
        A name of `shipped`, or a text file. Lines `[system]` and `[user]` begin the two
        messages; a file without them is the user's message.
    shows : str
        What the question shows: "pair" needs the places {prompt}, {answer_a},
        {answer_b}; "list" needs {prompt}, {answers}, or the answers written out;
        "answer" needs {prompt}, {answer}.

    Returns
    -------
    Template

    Raises
    ------
    DataError
        For an unknown name, a file that cannot be read, and missing places.
    """
    name = str(template)
    file = _FOLDER / f"{name}.txt" if name in shipped() else expand_path(template)
    try:
        text = file.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise DataError(
            f"template={name[:80]!r}: {nearest(name, shipped())}; or a text file"
        ) from error
    before, *parts = _SECTION.split(text)
    sections = (
        dict(zip(parts[::2], parts[1::2], strict=True)) if parts else {"user": before}
    )
    loaded = Template(
        name, sections.get("system", "").strip(), sections.get("user", "").strip()
    )
    # A list of answers may also be written out: {answer_a}, {answer_b} ...
    is_written_out = "{answer_a}" in loaded.text and "{answer_b}" in loaded.text
    needed = _NEEDED["pair" if shows == "list" and is_written_out else shows]
    missing = [f"{{{place}}}" for place in needed if f"{{{place}}}" not in loaded.text]
    if (
        missing
        or not loaded.user
        or (parts and (before.strip() or 2 * len(sections) < len(parts)))
    ):
        places = (
            ", ".join(missing) or "one part [user], after at most one part [system]"
        )
        raise DataError(
            f"template={name!r}: lacks {places}; write it where it is to stand"
        )
    return loaded


Order = tuple[int, ...]
"""Numbers of an item's answers in the order in which a question shows them."""


@dataclass(frozen=True)
class Answer:
    """What a model answered, as the store keeps it.

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


def encode(answer: Answer) -> dict[str, object]:
    """Return the answer as plain values; empty ones are left out."""
    return {
        name: value
        for name, value in asdict(answer).items()
        if value not in ("", None) or name == "text"
    }


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
        return hash_json(
            [
                self.template.text,
                conversation(self.text.prompt),
                self.answers,
                self.sample,
            ]
        )

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
        return sum(
            len(part["content"].encode("utf-8", "surrogatepass"))
            for part in self.messages
        )


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


Answers = Generator[tuple[Question, Answer | str], None, None]
"""Questions, each with its answer, or with the reason why there is none, in any order.
"""


def shuffled_order(item: Text, sample: int, seed: int) -> Order:
    """Return one order, drawn by the item's texts, the sample and the seed: for two
    answers, a coin.

    The order does not depend on the order in which the answers came (benchmarks list
    the right one first), on the other items, or on where a run was resumed.
    """
    answers = item.answers
    draws = {
        text: hash_json([seed, sample, item.prompt, sorted(answers), text])
        for text in answers
    }
    return tuple(sorted(range(len(answers)), key=lambda i: draws[answers[i]]))


def count_tokens(questions: Iterable[Question]) -> int:
    """Return about how many tokens the questions have, at four bytes a token (Chinese:
    three).
    """
    return sum(question.n_bytes // 4 + 8 for question in questions)


def hash_json(value: object) -> str:
    """Return a hash of plain values, also of texts with half a surrogate pair."""
    body = json.dumps(value, ensure_ascii=False, sort_keys=True).encode(
        "utf-8", "surrogatepass"
    )
    return hashlib.blake2b(body, digest_size=16).hexdigest()
