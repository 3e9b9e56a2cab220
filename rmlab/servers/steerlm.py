"""The form of SteerLM and Nemotron reward models: conversations, attributes and their
weights.

What comes back for a conversation are ratings, mostly between 0 and 4, of five
attributes (HelpSteer) or of nine (Open Assistant's four before them). The reward is a
weighted sum of them.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rmlab.scorers.base import Prompt
from rmlab.tables import DataError

Weights = str | Mapping[str, float] | Sequence[float] | None

ATTRIBUTES = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")
"""The five of HelpSteer; in the nine-attribute form they come last."""

FIRST_FOUR = ("quality", "toxicity", "humor", "creativity")

WEIGHTS: Mapping[str, Sequence[float]] = MappingProxyType(
    {
        "Nemotron-4-340B-Reward": (0.3, 0.74, 0.46, 0.47, -0.33),
        "Llama3-70B-SteerLM-RM": (0.65, 0.8, 0.45, 0.55, -0.4),
    }
)
"""Weights of the five attributes as the models' cards give them."""


def weigh_attributes(width: int, weights: Weights) -> tuple[Sequence[str], Weights]:
    """Return the names of the attributes that a server rates, and their weights where a
    model's name was given.

    Five numbers are for HelpSteer's five attributes.
    """
    names = FIRST_FOUR + ATTRIBUTES if width == 9 else ATTRIBUTES
    if weights is None or (isinstance(weights, str) and weights not in WEIGHTS):
        models = ", ".join(WEIGHTS)
        choices = f"one of {models}, five numbers, or weights of {', '.join(names)}"
        raise DataError(f"label_weights={weights!r}", f"give {choices}")
    numbers = WEIGHTS[weights] if isinstance(weights, str) else weights
    if not isinstance(numbers, Mapping) and len(numbers) == len(ATTRIBUTES):
        numbers = dict(zip(ATTRIBUTES, numbers, strict=True))
    return names, numbers


_SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
"""The system message that these models were trained with, where the conversation has
none.
"""

_NAMES = {"user": "User", "assistant": "Assistant"}


def conversation(prompt: Prompt, response: str) -> str:
    """Return one conversation in the SteerLM format, up to the place where the ratings
    would be written.

    >>> system = {"role": "system", "content": "Be brief."}
    >>> question = {"role": "user", "content": "Hi"}
    >>> print(conversation([system, question], "Hello!"))
    <extra_id_0>System
    Be brief.
    <extra_id_1>User
    Hi
    <extra_id_1>Assistant
    Hello!
    <extra_id_2>
    """
    if isinstance(prompt, str):
        turns = [{"role": "user", "content": prompt}]
    else:
        turns = list(prompt)
    system = _SYSTEM
    if turns and turns[0]["role"] == "system":
        system = turns.pop(0)["content"]
    turns.append({"role": "assistant", "content": response})

    text = f"<extra_id_0>System\n{system}\n"
    for turn in turns:
        role = turn["role"]
        if role not in _NAMES:
            allowed = "allowed: 'system' first, 'user', 'assistant'"
            raise DataError(f"prompt: a turn of {role!r}", allowed)
        text += f"<extra_id_1>{_NAMES[role]}\n{turn['content']}\n"
    return text + "<extra_id_2>"
