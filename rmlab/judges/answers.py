"""One answer of a judge, as it came: what the store keeps, and what verdicts are read from."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Answer", "decode", "encode"]


@dataclass(frozen=True)
class Answer:
    """What a model answered. `finish`: why it stopped ("stop", "length" ...), empty where the server does not say.

    `reasoning`: what the server took off as reasoning. `top`: log-probabilities of the tokens that could have stood
    where the letter of the verdict is, None where nobody asked for them. `asked`, `answered`: tokens, None where the
    server does not say.
    """

    text: str
    finish: str = ""
    reasoning: str = ""
    top: Mapping[str, float] | None = None
    asked: int | None = None
    answered: int | None = None
    model: str = field(default="", compare=False)


def encode(answer: Answer) -> str:
    """One line of JSON; what is empty is left out."""
    held = {name: value for name, value in vars(answer).items() if value not in ("", None)}
    # Half a surrogate pair, as a cut emoji leaves it, is written as an escape: every line is UTF-8.
    return json.dumps({"text": answer.text} | held, sort_keys=True)


def decode(line: str) -> Answer:
    """The answer of a line that `encode` wrote; ValueError for any other."""
    held = json.loads(line)
    if not isinstance(held, dict) or not isinstance(held.get("text"), str):
        raise ValueError("no answer of a judge")
    top, counts = held.get("top"), [held.get(name) for name in ("asked", "answered")]
    words = [held.get(name, "") for name in ("text", "finish", "reasoning", "model")]
    if not all(isinstance(word, str) for word in words) or not all(isinstance(n, int | None) for n in counts):
        raise ValueError("no answer of a judge")
    if top is not None and not (isinstance(top, dict) and all(isinstance(p, float | int) for p in top.values())):
        raise ValueError("no answer of a judge")
    text, finish, reasoning, model = words
    return Answer(text, finish, reasoning, top, counts[0], counts[1], model)
