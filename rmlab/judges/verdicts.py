r"""Reading verdicts: the reasoning is taken off, then the last verdict in double
brackets or in \boxed{} counts.
"""

import re
from collections.abc import Callable, Mapping
from html import unescape
from typing import TypeVar

import numpy as np

from rmlab.judges.questions import LETTERS, Completion
from rmlab.tables import DataError

T = TypeVar("T")

_LOWEST, _HIGHEST = 1, 10
# Characters of a line that holds a verdict and little else.
_MAX_VERDICT_LINE = 30

_NAMES = "think|thinking|thought|reasoning"
_OPENED = re.compile(rf"\s*(<(?:{_NAMES})>|\[THINK\])", re.IGNORECASE)
_CLOSED = re.compile(rf"</(?:{_NAMES})>|\[/THINK\]", re.IGNORECASE)
_MARKED = re.compile(
    r"\[\[([^\[\]]{1,60})\]\]|\\boxed\s*\{((?:[^{}]|\{[^{}]*\}){1,120})\}"
)
_WRAPPED = re.compile(
    r"\\(?:text|textbf|mathrm|mathbf|textrm|operatorname)\s*\{([^{}]*)\}"
)
_LATEX = {
    r"\gg": ">>",
    r"\ll": "<<",
    r"\gt": ">",
    r"\lt": "<",
    r"\succ": ">",
    r"\prec": "<",
    r"\approx": "=",
}
_SIGN = re.compile("|".join(re.escape(name) + r"(?![a-zA-Z])" for name in _LATEX))
_NOUN = re.compile(r"\b(?:assistant|answer|response|option|model)\b", re.IGNORECASE)
_MARKS = re.compile(r"[\s*_$`\"'.:,;(){}\\]+(?!\d)|\s+")
_INTRODUCED = re.compile(
    r"(?:final\s+|my\s+|overall\s+)*"
    r"(?:verdict|rating|score|judge?ment|choice|winner)"
    r"\s*(?:is|:|=|-)?\s*(.{1,40})",
    re.IGNORECASE,
)
# How much better A is, by the sign in "A>>B". A reply with another sign is unparsable,
# and a question that asks for one is refused.
_STRENGTHS = {
    ">>": 2,
    "≫": 2,
    ">": 1,
    "=": 0,
    "==": 0,
    "~": 0,
    "≈": 0,
    "<": -1,
    "<<": -2,
    "≪": -2,
}
_SIGNS = "|".join(sorted(map(re.escape, _STRENGTHS), key=len, reverse=True))
_PAIR = re.compile(rf"([AB])({_SIGNS})([AB])")
# The same between other words, as in "say A >> B if A is much better".
_UNMARKED_PAIR = re.compile(rf"\b[AB]\s*(?:{_SIGNS})\s*[AB]\b")
# What a question writes in the place of a verdict, as in [[your verdict]].
_PLACEHOLDER = re.compile(
    r"((the|your|my|final|own|best|better) )*"
    r"(verdict|letter|choice|pick|answer|option|winner|result|preference|decision"
    r"|judge?ment|double (square )?brackets)|\.\.\.",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(\d{1,2}(?:\.\d+)?)(?:/10)?")
_PUBLISHED_RATING = re.compile(r"\b([1-9]|10)\b\s*$")


def largest_strength(
    question: str, read: Callable[[str], int | None], template: str
) -> int:
    """Return the largest strength of the verdicts that the words of a question name.

    These are the texts in double brackets or boxes, and comparisons such as A>>B; one
    like [[your verdict]] stands for the verdicts. Raises DataError where `read` cannot
    read one; `template` names the question.

    >>> largest_strength("Write [[A]] or [[B]].", read_pair, "two")
    1
    >>> largest_strength("Say A >> B, A > B or B > A.", read_pair, "mine")
    2
    """
    # One of the two groups of a mark holds its text, brackets or a box.
    marked = ["".join(groups).strip("[] ") for groups in _MARKED.findall(question)]
    unmarked = _UNMARKED_PAIR.findall(_MARKED.sub(" ", question))
    known = []
    unread = []
    for verdict in [*marked, *unmarked]:
        strength = read(f"[[{verdict}]]")
        if strength is not None:
            known.append(abs(strength))
        elif verdict not in unread:
            unread.append(verdict)

    strange = [verdict for verdict in unread if not _PLACEHOLDER.fullmatch(verdict)]
    if strange:
        verdicts = ", ".join(f"[[{verdict}]]" for verdict in strange[:5])
        raise DataError(
            f"template={template!r}: nothing can read the verdicts {verdicts}",
            "ask for [[A]] or [[B]] or for a comparison such as [[A>>B]]; "
            "their place may be called [[your verdict]]",
        )
    return max(known, default=1)


def without_reasoning(text: str) -> str:
    """Return the answer behind the reasoning; empty where the reasoning never ends.

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


def verdict_text(answer: Completion) -> str:
    """Return the text that verdicts are read from; empty where the answer was cut
    before its verdict.

    Of an answer that was cut by the limit of its length only a short last line is a
    verdict: the text before it may have been reasoning, whose opening tag the chat
    template had written.
    """
    if answer.finish != "length":
        return answer.text
    lines = without_reasoning(answer.text).rstrip().splitlines()
    if not lines or len(lines[-1]) > _MAX_VERDICT_LINE:
        return ""
    return lines[-1]


def read_pair(text: str, *, draw: str = "") -> int | None:
    """Return how much better answer A is: 2, 1, 0, -1, -2; None without a verdict. The
    last verdict counts.

    `draw`: the letter for "both are equally good", where the question offers one.

    >>> read_pair("[[A>B]] at first sight, but B is right: [[B>>A]]")
    -2
    >>> read_pair("Neither.") is None
    True
    """
    return _last_verdict(text, lambda verdict: _strength(verdict, draw))


def read_letter(text: str, answers: int) -> int | None:
    """Return the number of the chosen answer, from 0; None without a verdict or for a
    letter that was not shown.

    >>> read_letter("The third one: [[C]]", 4), read_letter("[[E]]", 4)
    (2, None)
    """
    numbers = {letter: number for number, letter in enumerate(LETTERS[:answers])}
    return _last_verdict(text, numbers.get)


def read_rating(text: str) -> float | None:
    r"""Return a rating from 1 to 10; None without one, or beyond that range.

    >>> read_rating(r"Good, but short. \\boxed{7}"), read_rating("[[11]]")
    (7.0, None)
    """
    return _last_verdict(text, _rating)


def read_published_letter(text: str, answers: int) -> int | None:
    """Return the number of the chosen answer as RewardBench's runners read it: they
    look for [[A]], then for [[B]] ...

    >>> read_published_letter("[[B]] at first, then [[A]]", 2)
    0
    >>> read_published_letter("**B**", 2) is None
    True
    """
    for number, letter in enumerate(LETTERS[:answers]):
        if f"[[{letter}]]" in text:
            return number
    return None


def read_published_rating(text: str) -> int | None:
    """Return the integer from 1 to 10 at the text's end, as RewardBench 2's runner
    reads a rating.

    >>> [read_published_rating(text) for text in ("Rating: 8", "[[8]]", "8/10")]
    [8, None, 10]
    """
    rating = _PUBLISHED_RATING.search(text.strip())
    return int(rating[1]) if rating else None


def letter_odds(top: Mapping[str, float]) -> float | None:
    """Return the log-odds of the letter A against B from log-probabilities of tokens;
    None where neither is named.

    A server names only the likeliest tokens. Where one of the letters is not among
    them, the least likely token named stands in for it: the letter is less likely
    still, so the true log-odds are further from 0. A single token says nothing of the
    letter that it is not: None.
    """
    log_a = _letter_log(top, "A")
    log_b = _letter_log(top, "B")
    if len(top) < 2 or (log_a is None and log_b is None):
        return None
    least = min(top.values())
    if log_a is None:
        log_a = least
    if log_b is None:
        log_b = least
    return log_a - log_b


def _letter_log(top: Mapping[str, float], letter: str) -> float | None:
    """Log-probability of a letter, with or without spaces around it."""
    logs = [log for token, log in top.items() if token.strip() == letter]
    return float(np.logaddexp.reduce(logs)) if logs else None


def _last_verdict(text: str, read: Callable[[str], T | None]) -> T | None:
    """The last marked text that reads as a verdict; else the answer's last line."""
    text = without_reasoning(text)
    for groups in reversed(_MARKED.findall(text)):
        verdict = read(_clean("".join(groups).strip("[] ")))
        if verdict is not None:
            return verdict

    lines = text.strip().splitlines()
    if not lines:
        return None
    verdict = read(_clean(lines[-1]))
    introduced = _INTRODUCED.fullmatch(lines[-1].strip(" \t*_#.`"))
    if verdict is None and introduced is not None:
        return read(_clean(introduced[1]))
    return verdict


def _clean(text: str) -> str:
    """A verdict without white space, TeX, Markdown and the words around the letter."""
    text = _WRAPPED.sub(r"\1", unescape(text))
    text = _SIGN.sub(lambda sign: _LATEX[sign[0]], text)
    return _MARKS.sub("", _NOUN.sub("", text)).strip(".")


def _strength(verdict: str, draw: str) -> int | None:
    if verdict == "A":
        return 1
    if verdict == "B":
        return -1
    if verdict.lower() in ("tie", "draw", "equal") or (draw and verdict == draw):
        return 0
    pair = _PAIR.fullmatch(verdict)
    if pair is None or pair[1] == pair[3]:
        return None
    strength = _STRENGTHS[pair[2]]
    return strength if pair[1] == "A" else -strength


def _rating(verdict: str) -> float | None:
    number = _NUMBER.fullmatch(verdict)
    if number is None:
        return None
    rating = float(number[1])
    return rating if _LOWEST <= rating <= _HIGHEST else None
