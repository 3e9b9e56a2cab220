"""An invented world whose questions a tiny model can learn: arithmetic, ordering, and facts about its towns."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from rmlab.styles.transforms import ASSURANCES, FILLERS
from rmlab.tables import LABELS, STYLES, DataError, check_responses, nearest

__all__ = ["FACTS", "TOPICS", "answer", "checked", "details", "world"]

_TOWNS = (
    "Abrel", "Borun", "Celwick", "Dorma", "Elsund", "Farrow", "Gelt", "Hask", "Imber", "Jorva", "Kelm", "Lunden",
)  # fmt: skip
_COLOURS = ("red", "green", "blue", "yellow", "white", "black")
_CROPS = ("barley", "apples", "hops", "flax", "plums", "rye")
_LARGEST = 30  # number in a question of ordering

FACTS: dict[str, tuple[str, str]] = {
    town: (_COLOURS[(5 * number + number // 6) % 6], _CROPS[(7 * number + number // 4) % 6])
    for number, town in enumerate(_TOWNS)
}
"""What is true of each town: the colour of its flag, and what grows there. The same in every world."""

_DETAILS = {
    "arithmetic": (
        "Addition puts two numbers together.",
        "You can check it with your fingers.",
        "The order of the two numbers does not matter.",
        "Each step adds one more.",
    ),
    "ordering": (
        "Numbers grow from left to right on a line.",
        "The tens are compared first.",
        "Where the tens are the same, the ones decide.",
        "Two different numbers are never equal.",
    ),
    "facts": (
        "Travellers wrote about it long ago.",
        "It is in every book about this land.",
        "Children there learn it at school.",
        "The people of the town are proud of it.",
    ),
}

Question = tuple[str, str, list[str]]
"""A prompt, its right claim and wrong ones."""


def _arithmetic(random: np.random.Generator) -> Question:
    a, b = (int(number) for number in random.integers(1, 6, 2))
    wrong = [str(a + b + step) for step in (-3, -2, -1, 1, 2, 3) if a + b + step > 0]
    return f"What is {a} + {b}?", str(a + b), wrong


def _ordering(random: np.random.Generator) -> Question:
    a, b = (int(number) for number in random.choice(np.arange(1, _LARGEST + 1), 2, replace=False))
    return f"Which is larger, {a} or {b}?", str(max(a, b)), [str(min(a, b))]


def _facts(random: np.random.Generator) -> Question:
    town = _TOWNS[random.integers(len(_TOWNS))]
    which = int(random.integers(2))
    asked = (f"Which colour is the flag of {town}?", f"What grows in {town}?")[which]
    right = FACTS[town][which]
    return asked, right, [other for other in (_COLOURS, _CROPS)[which] if other != right]


TOPICS: dict[str, Callable[[np.random.Generator], Question]] = {
    "arithmetic": _arithmetic,
    "ordering": _ordering,
    "facts": _facts,
}
"""What draws a question of each topic."""


def world(n: int = 300, *, seed: int = 0, topics: Sequence[str] = tuple(TOPICS)) -> pd.DataFrame:
    """Questions with six answers each, as RM-Bench has them: right and wrong, each concise, plain and in Markdown.

    A responses table, one row per answer, 6 `n` in all: benchmark "toy", domain one of `topics` in turn, slots 0, 1, 2
    in the order of the styles. The three answers of a label make the same claim; the plain one and the Markdown one
    hold the same sentences, and both labels are equally long. Extra columns: `right` (bool), `sure` (bool, by chance:
    whether the answer ends with a sentence such as "I am sure of this."). The same `seed` gives the same table, and
    the beginning of every longer one. FACTS are the same in every world. Raises DataError for another topic and for
    fewer than one question.

    >>> table = world(1)
    >>> table.loc[0, "prompt"], table.loc[0, "response"], table.loc[3, "response"]
    ('What is 5 + 4?', 'It is 9.', 'It is 6.')
    """
    topics = checked(n, topics)
    rows = []
    for number in range(n):
        topic, random = topics[number % len(topics)], np.random.default_rng([seed, number])
        prompt, right, wrong = TOPICS[topic](random)
        sentences, sure = int(random.integers(2, 5)), random.integers(2, size=2)
        for label, claim in zip(LABELS, (right, wrong[random.integers(len(wrong))]), strict=True):
            is_right = label == "chosen"
            said = details(topic, sentences, bool(sure[int(is_right)]), random)
            for slot, style in enumerate(STYLES):
                rows.append(
                    {
                        "benchmark": "toy", "domain": topic, "id": str(number), "label": label, "slot": slot,
                        "style": style, "prompt": prompt, "response": answer(claim, said, style),
                        "right": is_right, "sure": bool(sure[int(is_right)]),
                    }
                )  # fmt: skip
    return check_responses(pd.DataFrame(rows))


def answer(claim: str, details: Sequence[str], style: str) -> str:
    """The answer that makes `claim` in this style; a concise one leaves the details out, a last word of trust stays.

    >>> print(answer("7", ["Each step adds one more."], "markdown"))
    ## Answer
    <BLANKLINE>
    - **Answer:** 7
    - Each step adds one more.
    """
    if style == "concise":
        return " ".join([f"It is {claim}.", *(detail for detail in details if detail in ASSURANCES)])
    if style == "plain":
        return " ".join([f"It is {claim}.", *details])
    return "\n".join(["## Answer", "", f"- **Answer:** {claim}", *(f"- {detail}" for detail in details)])


def details(topic: str, sentences: int, sure: bool, random: np.random.Generator) -> list[str]:
    """So many different sentences that say nothing of the claim, and one of trust behind them where `sure`."""
    pool = (*_DETAILS[topic], *FILLERS)
    drawn = [pool[place] for place in random.choice(len(pool), sentences, replace=False)]
    return [*drawn, ASSURANCES[random.integers(len(ASSURANCES))]] if sure else drawn


def checked(n: int, topics: Sequence[str]) -> list[str]:
    """The topics as a list; raises DataError for another topic, for none, and for fewer than one question."""
    topics = [topics] if isinstance(topics, str) else list(topics)
    unknown = [topic for topic in topics if topic not in TOPICS]
    if unknown:
        raise DataError(f"topics: {unknown[0]!r}; {nearest(str(unknown[0]), list(TOPICS))}")
    if not topics:
        raise DataError(f"topics: none is given; choose from {', '.join(TOPICS)}")
    if n < 1:
        raise DataError(f"n={n}: a world has at least one question; pass n=300, say")
    return topics
