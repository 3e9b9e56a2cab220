r"""What a judge's answer says: the reasoning taken off, then the last verdict in double brackets or in \boxed{}."""

import re
from collections.abc import Callable, Iterator
from html import unescape
from typing import TypeVar

from rmlab.judges.templates import LETTERS

__all__ = ["HIGHEST", "LOWEST", "read_letter", "read_pair", "read_rating", "without_reasoning"]

LOWEST, HIGHEST = 1, 10
"""Of a rating."""

T = TypeVar("T")

_NAMES = "think|thinking|thought|reasoning"
_OPENED = re.compile(rf"\s*(<(?:{_NAMES})>|\[THINK\])", re.IGNORECASE)
_CLOSED = re.compile(rf"</(?:{_NAMES})>|\[/THINK\]", re.IGNORECASE)
_MARKED = re.compile(r"\[\[([^\[\]]{1,60})\]\]|\\boxed\s*\{((?:[^{}]|\{[^{}]*\}){1,120})\}")
_WRAPPED = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textrm|operatorname)\s*\{([^{}]*)\}")
_LATEX = {r"\gg": ">>", r"\ll": "<<", r"\gt": ">", r"\lt": "<", r"\succ": ">", r"\prec": "<", r"\approx": "="}
_SIGN = re.compile("|".join(re.escape(name) + r"(?![a-zA-Z])" for name in _LATEX))
_NOUN = re.compile(r"\b(?:assistant|answer|response|option|model)\b", re.IGNORECASE)
_MARKS = re.compile(r"[\s*_$`\"'.:,;(){}\\]+(?!\d)|\s+")
_SAID = re.compile(
    r"(?:final\s+|my\s+|overall\s+)*(?:verdict|rating|score|judge?ment|choice|winner)\s*(?:is|:|=|-)?\s*(.{1,40})",
    re.IGNORECASE,
)
_PAIR = re.compile(r"([AB])(>>|>|<<|<|=|==|~|≈|≫|≪)([AB])")
_STRENGTH = {">>": 2, "≫": 2, ">": 1, "=": 0, "==": 0, "~": 0, "≈": 0, "<": -1, "<<": -2, "≪": -2}
_NUMBER = re.compile(r"(\d{1,2}(?:\.\d+)?)(?:/10)?")


def without_reasoning(text: str) -> str:
    """The answer behind the reasoning; empty where the reasoning never ends.

    The opening tag may be missing, as where the chat template has written it already.

    >>> without_reasoning("A is wrong [[A]] ... no, it is right.</think>[[B]]")
    '[[B]]'
    >>> without_reasoning("<think>I would say [[A]], but")
    ''
    """
    closed = list(_CLOSED.finditer(text))
    if closed:
        return text[closed[-1].end() :]
    return "" if _OPENED.match(text) else text


def read_pair(text: str, *, draw: str = "") -> int | None:
    """How much better answer A is: 2, 1, 0, -1, -2; None without a verdict. The last verdict counts.

    `draw`: the letter that says that both are equally good, where the question offers one.

    >>> read_pair("[[A>B]] at first sight, but B is right: [[B>>A]]"), read_pair("Neither.")
    (-2, None)
    """
    return _last(without_reasoning(text), lambda said: _pair(said, draw))


def read_letter(text: str, answers: int) -> int | None:
    """The number of the answer that is chosen, from 0; None without a verdict or for a letter that was not shown.

    >>> read_letter("The third one: [[C]]", 4), read_letter("[[E]]", 4)
    (2, None)
    """
    allowed = LETTERS[:answers]
    return _last(without_reasoning(text), lambda said: allowed.index(said) if said in {*allowed} else None)


def read_rating(text: str) -> float | None:
    r"""A rating from 1 to 10; None without one, or beyond that range.

    >>> read_rating(r"Good, but short. \\boxed{7}"), read_rating("[[11]]")
    (7.0, None)
    """
    return _last(without_reasoning(text), _rating)


def _last(text: str, read: Callable[[str], T | None]) -> T | None:
    """The last marked text that reads as a verdict; else what the answer's last line says, or the whole of it."""
    marked = [found for found in map(read, _marked(text)) if found is not None]
    if marked:
        return marked[-1]
    lines = text.strip().splitlines()
    if not lines:
        return None
    line = _clean(lines[-1])
    said = _SAID.fullmatch(lines[-1].strip(" \t*_#.`"))
    found = read(line)
    return found if found is not None or said is None else read(_clean(said[1]))


def _marked(text: str) -> Iterator[str]:
    for found in _MARKED.finditer(text):
        yield _clean((found[1] if found[1] is not None else found[2]).strip("[] "))


def _clean(text: str) -> str:
    """A verdict without white space, TeX, Markdown and the words around the letter."""
    text = _WRAPPED.sub(r"\1", unescape(text))
    text = _SIGN.sub(lambda found: _LATEX[found[0]], text)
    return _MARKS.sub("", _NOUN.sub("", text)).strip(".")


def _pair(said: str, draw: str) -> int | None:
    if said in ("A", "B"):
        return 1 if said == "A" else -1
    if said.lower() in ("tie", "draw", "equal") or (draw and said == draw):
        return 0
    found = _PAIR.fullmatch(said)
    if found is None or found[1] == found[3]:
        return None
    strength = _STRENGTH[found[2]]
    return strength if found[1] == "A" else -strength


def _rating(said: str) -> float | None:
    found = _NUMBER.fullmatch(said)
    value = float(found[1]) if found else 0.0
    return value if LOWEST <= value <= HIGHEST else None
