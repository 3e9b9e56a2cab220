"""The questions of a run: which answers are shown, in which order, in which words; and who is to answer them."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from rmlab.judges.answers import Answer
from rmlab.judges.templates import Messages, Template
from rmlab.scorers.types import Prompt, Provenance

__all__ = ["Asked", "Order", "Question", "Questions", "Said", "Speaker", "ask_for", "both_orders", "shuffled"]

Order = tuple[int, ...]
"""Numbers of the answers in the order in which they are shown."""

Candidates = Sequence[tuple[str, ...]]


class Question(NamedTuple):
    """One question: the item that it is about, the order in which its answers are shown, and which sample it is."""

    item: int
    order: Order
    sample: int


class Asked(NamedTuple):
    """A question on its way to the model: its number, its messages, and a seed of its own for the answer.

    With one seed for all, a server would draw the same random numbers for every question.
    """

    number: int
    messages: Messages
    seed: int


class Said(NamedTuple):
    """What became of a question: an answer, or the reason why there is none."""

    number: int
    answer: Answer | None
    reason: str = ""


class Speaker(Protocol):
    """Who answers: a server, or a model on this machine."""

    @property
    def title(self) -> str:
        """The model, for people."""

    @property
    def fingerprint(self) -> str:
        """Changes with everything but the question that changes an answer."""

    @property
    def longest(self) -> int:
        """The most tokens of an answer."""

    @property
    def seed(self) -> int:
        """Seeds all drawn answers."""

    def check_budget(self, questions: int, tokens: Callable[[], int]) -> None:
        """Raise DataError where so many questions, of so many tokens, cannot be asked within the budget.

        Tokens are counted where the budget knows them alone.
        """

    def speak(self, questions: Iterable[Asked]) -> Iterator[Said]:
        """What becomes of each question, in any order; `questions` is read as far as it is needed."""

    def provenance(self) -> Provenance:
        """The model and how it is asked, as plain values."""


@dataclass(frozen=True)
class Questions:
    """All questions of a run. `prompts` and `candidates` belong to items, `template` asks about one of them."""

    prompts: Sequence[Prompt]
    candidates: Candidates
    template: Template
    asked: Sequence[Question]

    def __len__(self) -> int:
        return len(self.asked)

    def messages(self, number: int) -> Messages:
        """The messages of one question."""
        one = self.asked[number]
        return self.template.messages(self.prompts[one.item], [self.candidates[one.item][i] for i in one.order])

    @cached_property
    def keys(self) -> list[str]:
        """Hash of what each question says and of its sample: the same question is asked once, whatever its item."""
        return [_hash([self.messages(number), one.sample]) for number, one in enumerate(self.asked)]

    @cached_property
    def leaders(self) -> list[int]:
        """The first question of each key."""
        return list({key: number for number, key in reversed(list(enumerate(self.keys)))}.values())[::-1]

    def seed(self, number: int, seed: int) -> int:
        """The seed of one question's answer, the same wherever the question stands."""
        return int(_hash([seed, self.keys[number]])[:8], 16) >> 1

    def tokens(self, numbers: Iterable[int]) -> int:
        """About how many tokens these questions have, at four characters each."""
        return sum(sum(len(part["content"]) for part in self.messages(number)) // 4 + 8 for number in numbers)


def ask_for(
    prompts: Sequence[Prompt],
    candidates: Candidates,
    template: Template,
    orders: Callable[[Prompt, tuple[str, ...], int], Sequence[Order]],
    samples: int,
) -> Questions:
    """The questions about all items; `orders(prompt, candidates, sample)` says in which orders one is shown."""
    asked = [
        Question(item, order, sample)
        for item, (prompt, answers) in enumerate(zip(prompts, candidates, strict=True))
        for sample in range(samples)
        for order in orders(prompt, answers, sample)
    ]
    return Questions(prompts, candidates, template, asked)


def both_orders(prompt: Prompt, answers: tuple[str, ...], sample: int) -> list[Order]:
    """A comparison in both orders."""
    return [(0, 1), (1, 0)]


def shuffled(seed: int) -> Callable[[Prompt, tuple[str, ...], int], list[Order]]:
    """Every item in one order of its own, drawn by its texts, the sample and the seed: for two answers, a coin.

    It does not depend on the order in which the answers came (benchmarks list the right one first), on the other items,
    or on where a run was resumed.
    """

    def orders(prompt: Prompt, answers: tuple[str, ...], sample: int) -> list[Order]:
        drawn = {text: _hash([seed, sample, prompt, sorted(answers), text]) for text in answers}
        return [tuple(sorted(range(len(answers)), key=lambda i: drawn[answers[i]]))]

    return orders


def _hash(value: object) -> str:
    body = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return hashlib.blake2b(body.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
