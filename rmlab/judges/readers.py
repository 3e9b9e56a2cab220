r"""Readers of replies: the reasoning is taken off, then the last verdict counts.

A reader finds the texts of a reply that may be its verdict, such as `A>B` in
`[[A>B]]`. The mode of the judge says what these texts mean: a vote, a rating or the
letter of the best answer.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from html import unescape
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rmlab.judges.questions import LETTERS, Completion
from rmlab.tables import DataError, nearest

T = TypeVar("T")

Scale = tuple[float, float]
"""The lowest and the highest score."""

Verdict = str | float | tuple[float, float]
"""The verdict of a reply: its text, a score, or the scores of two answers."""

YES_NO = "yes-no"
# Characters of a line that holds a verdict and little else.
_MAX_VERDICT_LINE = 30

_NAMES = "think|thinking|thought|reasoning"
_OPENED = re.compile(rf"\s*(<(?:{_NAMES})>|\[THINK\])", re.IGNORECASE)
_CLOSED = re.compile(rf"</(?:{_NAMES})>|\[/THINK\]", re.IGNORECASE)

# Where verdicts stand. The brackets may be those of Chinese and Japanese.
_BOX = r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\}){1,120})\}"
_BOXED = re.compile(_BOX)
_MARKED = re.compile(rf"[\[［【]{{2}}([^][［］【】]{{1,60}})[\]］】]{{2}}|{_BOX}")
_INTRODUCED = re.compile(
    r"^[ \t*_#.`>-]*(?:(?:the|final|my|overall)\s+)*"
    r"(?:verdict|rating|score|judge?ment|choice|winner|better|best|answer)\b"
    r"[ \t*_]*(?:is\b|[:=]|-(?=\s))?[ \t*_:]*(.{1,40})$",
    re.IGNORECASE | re.MULTILINE,
)
_OUTPUT = re.compile(r"\boutput\s*\(([a-z])\)", re.IGNORECASE)
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.IGNORECASE | re.DOTALL)
_RESULT = re.compile(
    r"(?:\[result\]|\bresult[ *]*:|\*\*\s*result\s*\*\*)[\s:*]*(?=(.{1,40}))",
    re.IGNORECASE,
)
_SCORE = r"-?\d+(?:\.\d+)?"
_OF = r"\s*(?:/|out of)\s*\d+"
# One score, with the largest one, in bold, alone on its line, or introduced.
_RATED = re.compile(
    rf"(?<![\w.])({_SCORE}{_OF})|\*\*\s*\+?({_SCORE})\s*\*\*"
    rf"|^[^\w\n-]*({_SCORE})[^\w\n]*$"
    rf"|\b(?:score|rating)\b(?:\s+of\b)?[^\w\n-]*({_SCORE}(?:{_OF})?)\b",
    re.IGNORECASE | re.MULTILINE,
)
_PUBLISHED_RATING = re.compile(r"\b([1-9]|10)\b\s*$")

# How verdicts are written.
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
_ANSWER = r"(?:\b|(?<=_))(?:assistant|answer|response|option|model)"
_NOUN = re.compile(
    rf"{_ANSWER}(?:\b|(?=_))|\b(?:scores?|ratings?)\b(?:\s+of\b)?", re.IGNORECASE
)
# An answer that is named by its number, as "**Response 2**".
_NUMBERED = re.compile(rf"{_ANSWER}[ *_`#]*([12])(?![\w/]|\.\d)", re.IGNORECASE)
_MARKS = re.compile(r"[*_$`\"'(){}\\]+|[\s.:,;]+(?!\d)|\s+")
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
# A verdict of how much better an answer is, also between other words.
_STRONG_PAIR = re.compile(r"\b[AB]\s*(?:>>|<<|≫|≪)\s*[AB]\b")
# What a question writes in the place of a verdict, as in [[your verdict]].
_PLACEHOLDER = re.compile(
    r"((the|your|my|final|own|best|better) )*"
    r"(verdict|letter|choice|pick|answer|option|winner|result|preference|decision"
    r"|judge?ment|double (square )?brackets)|\.\.\.",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"([+-]?\d+(?:\.\d+)?)(?:/(\d+))?")
# Two numbers, which are not the parts of 7/10 or 7.5.
_APART = re.compile(r"\d[^\d/]*[^\d/.][^\d/]*\d")
_OUT_OF = re.compile(r"\s*out of\s*", re.IGNORECASE)
_LARGEST = re.compile(rf"({_SCORE})/\d+")
# The scores of two answers, with their names or without, and no other words. None of
# a number's digits or decimals is left over.
_NAMED_SCORE = (
    rf"(?:\b([AB]|first|second|[12](?=\W+{_SCORE}))\b[\s:*_`|]*|[\s*_`|]*)"
    rf"({_SCORE}(?![\d.]*\d))"
)
_TWO_SCORES = re.compile(
    rf"[^\w-]*+{_NAMED_SCORE}[\s,;*_`|]*(?:(?:and|vs\.?|to|-)\s+)?{_NAMED_SCORE}[^\w]*",
    re.IGNORECASE,
)
_PLACES = {"a": 0, "first": 0, "1": 0, "b": 1, "second": 1, "2": 1}


def asks_strength(question: str) -> bool:
    """Return whether the words of a question ask how much better an answer is.

    >>> asks_strength("Say A >> B, A > B or B > A."), asks_strength("[[A]] or [[B]]")
    (True, False)
    """
    return _STRONG_PAIR.search(_replace_tex(question)) is not None


def require_readable(
    question: str, read: Callable[[str], object], template: str
) -> None:
    """Raise DataError where `read` cannot read a verdict that a question names in
    double brackets or boxes, but for one such as [[your verdict]].
    """
    for match in _MARKED.finditer(question):
        verdict = _marked_text(match)
        if _PLACEHOLDER.fullmatch(verdict) or read(f"[[{verdict}]]") is not None:
            continue
        raise DataError(
            f"template={template!r}: nothing can read the verdict [[{verdict}]]",
            "ask for [[A]] or [[B]] or for a comparison such as [[A>>B]]; "
            "their place may be called [[your verdict]]",
        )


def verdict_text(answer: Completion) -> str:
    """Return the text that verdicts are read from: the answer behind the reasoning,
    whose opening tag may stand in the chat template. Empty where it never ends.

    Of an answer that was cut by the limit of its length only a short last line is a
    verdict: the text before it may have been reasoning.

    >>> verdict_text(Completion("A is wrong [[A]] ... no, right.</think>[[B]]"))
    '[[B]]'
    >>> verdict_text(Completion("<think>I would say [[A]], but"))
    ''
    """
    text = _CLOSED.split(answer.text)[-1]
    if text == answer.text and _OPENED.match(text):
        return ""
    if answer.finish != "length":
        return text
    last_line = text.rstrip().rpartition("\n")[2]
    return last_line if len(last_line) <= _MAX_VERDICT_LINE else ""


class OutsideScale(ValueError):
    """The last score of a reply is outside the scale, so that the reply has none."""


@dataclass(frozen=True)
class Reader:
    """Finds the texts of a reply that may be its verdict.

    Parameters
    ----------
    name : str
        What the provenance says.
    find : callable
        Returns these texts, the last ones first, or scores.
    reads_scores : bool
        Whether a comparison may be two scores.
    reads_all : bool
        Whether the reasoning is read, too, and a reply that was cut.
    """

    name: str
    find: Callable[[str], Iterable[Verdict | None]]
    reads_scores: bool = True
    reads_all: bool = False

    def read(
        self, answer: Completion, interpret: Callable[[Verdict], T | None]
    ) -> T | None:
        """Return what the last verdict of a reply means; None without one, and where
        it is outside the scale.
        """
        text = answer.text if self.reads_all else verdict_text(answer)
        with suppress(OutsideScale):
            for verdict in self.find(text):
                value = None if verdict is None else interpret(verdict)
                if value is not None:
                    return value
        return None


def choose_reader(reader: "str | Callable[[str], Any] | None") -> Reader:
    r"""Return the reader of a name, a regular expression with a group, or a function.

    >>> choose_reader("result").read(Completion("**Result:** B"), pair_vote)
    Vote(value=-1.0, is_score=False)
    >>> choose_reader(r"winner=(\w)").read(Completion("winner=A"), pair_vote)
    Vote(value=1.0, is_score=False)
    """
    if callable(reader):
        code = getattr(reader, "__name__", type(reader).__name__)
        return Reader(code, lambda text: [_convert(reader(text))])
    if reader is None or reader in _READERS:
        return _READERS[reader or "brackets"]
    if reader.startswith("json:") and reader != "json:":
        return Reader(reader, partial(_find_json, reader.removeprefix("json:")))
    with suppress(re.error):
        pattern = re.compile(reader, re.MULTILINE)
        if pattern.groups in (1, 2):
            return Reader(reader, partial(_find_pattern, pattern))
    allowed = nearest(reader, [*_READERS, "json:KEY"])
    remedy = f"{allowed}; or a regular expression with one group, or two of scores"
    raise DataError(f"reader={reader!r}", remedy)


def _convert(value: Any) -> Verdict | None:
    """What a function returned, as a verdict: numbers as floats, two of them as a
    tuple; None where one is NaN, or where there are more.
    """
    if value is None or isinstance(value, str):
        text: str | None = value
        return text
    scores = np.asarray(value, np.float64).ravel().tolist()
    if len(scores) not in (1, 2) or any(np.isnan(scores)):
        return None
    return scores[0] if len(scores) == 1 else (scores[0], scores[1])


class Vote(NamedTuple):
    """How much better answer A is: 2, 1, 0, -1, -2, or the difference of two scores."""

    value: float
    is_score: bool = False


def pair_vote(
    verdict: Verdict, *, draw: str = "", scale: Scale | None = None
) -> Vote | None:
    """Return the vote of a verdict; None where the text is none. Raises OutsideScale.

    `draw`: the letter for "both are equally good", where the question offers one.
    `scale`: of the scores; None reads none.

    >>> pair_vote("A>>B").value, pair_vote("4, 7", scale=(1, 10)).value
    (2.0, -3.0)
    """
    if isinstance(verdict, int | float):
        if scale is not None and abs(verdict) > scale[1] - scale[0]:
            raise OutsideScale
        return Vote(float(verdict), is_score=True)
    if isinstance(verdict, str):
        text = _NUMBERED.sub(lambda name: "AB"[int(name[1]) - 1], verdict)
        strength = _strength(_clean(text), draw)
        if strength is not None:
            return Vote(float(strength))
        scores = _read_two(text)
    else:
        scores = verdict
    if scale is None or scores is None:
        return None
    first, second = scores
    if not scale[0] <= min(first, second) <= max(first, second) <= scale[1]:
        raise OutsideScale
    # 7.3 - 7.1 and 8.3 - 8.1 are the same.
    return Vote(round(float(first - second), 9), is_score=True)


def _strength(verdict: str, draw: str) -> int | None:
    if verdict in ("A", "B"):
        return 1 if verdict == "A" else -1
    if verdict in ("TIE", "DRAW", "EQUAL") or (draw and verdict == draw):
        return 0
    pair = _PAIR.fullmatch(verdict)
    if pair is None or pair[1] == pair[3]:
        return None
    strength = _STRENGTHS[pair[2]]
    # B>A says what A<B says.
    return strength if pair[1] == "A" else -strength


def _read_two(text: str) -> tuple[float, float] | None:
    """The two scores that are all that a text says, that of A first; None where it says
    other things, or names one answer only.
    """
    text = _LARGEST.sub(r"\1", _OUT_OF.sub("/", _replace_tex(text)))
    match = _TWO_SCORES.fullmatch(_NOUN.sub("", text).strip())
    if match is None:
        return None
    name, score, other_name, other_score = match.groups()
    scores = (float(score), float(other_score))
    places = [_PLACES.get((word or "").lower()) for word in (name, other_name)]
    if places == [1, 0]:
        return scores[::-1]
    return scores if places in ([0, 1], [None, None]) else None


def rating(verdict: Verdict, *, scale: Scale) -> float | None:
    """Return a score; None where the text is none. Raises OutsideScale.

    >>> rating("7/10", scale=(1, 10)), rating("7/10", scale=(0, 100))
    (7.0, None)
    """
    if isinstance(verdict, tuple):
        return None
    if isinstance(verdict, str):
        text = _OUT_OF.sub("/", verdict)
        number = _NUMBER.fullmatch(_clean(text))
        if number is None or _APART.search(unescape(text)):
            return None
        if number[2] and float(number[2]) != scale[1]:
            return None
        verdict = number[1]
    score = float(verdict)
    if not scale[0] <= score <= scale[1]:
        raise OutsideScale
    return score


def chosen_letter(verdict: Verdict, *, answers: int) -> int | None:
    """Return the number of the chosen answer, from 0; None for a letter that was not
    shown.
    """
    letter = _clean(str(verdict))
    is_shown = len(letter) == 1 and letter in LETTERS[:answers]
    return LETTERS.index(letter) if is_shown else None


def _clean(text: str) -> str:
    """A verdict in capitals, without white space, TeX, Markdown, single brackets and
    the words around the letter or the number.
    """
    words = _MARKS.sub("", _NOUN.sub("", _replace_tex(text))).strip(".").upper()
    if re.fullmatch(r"\[[^][]*\]", words):
        return words[1:-1]
    return words


def _replace_tex(text: str) -> str:
    """The signs of TeX and HTML as characters, and its texts without their command."""
    text = _WRAPPED.sub(r"\1", unescape(text))
    return _SIGN.sub(lambda sign: _LATEX[sign[0]], text).replace("\\ ", " ")


def _marked_text(match: re.Match[str]) -> str:
    return "".join(match.groups("")).strip("[] ")


def _find_verdicts(text: str, *, in_any_line: bool = False) -> list[str]:
    """Texts in double brackets or boxes, the last line, and what "Verdict:" or the like
    introduces there, or `in_any_line`; then also `Output (a)`.
    """
    text = text.rstrip()
    last_line = text.rfind("\n") + 1
    found = [(match.start(), _marked_text(match)) for match in _MARKED.finditer(text)]
    found.append((last_line, text[last_line:]))
    start = 0 if in_any_line else last_line
    for match in _INTRODUCED.finditer(text, start):
        found.append((match.start(1), match[1]))

    # Where several are named, as in "Output (a) is better than Output (b)", none is
    # said to be the verdict.
    outputs = [(match.start(), match[1].upper()) for match in _OUTPUT.finditer(text)]
    if in_any_line and len({letter for _, letter in outputs}) == 1:
        found += outputs
    found.sort(key=lambda place: place[0], reverse=True)
    return [verdict for _, verdict in found]


def _find_tagged(text: str) -> Iterator[str]:
    """The contents of <answer>, and two of them, which may hold a score each."""
    contents = _TAGGED.findall(text)
    for i in reversed(range(len(contents))):
        yield from _find_verdicts(contents[i])
        yield contents[i]
        yield ", ".join(contents[i - 1 : i + 1])


def _find_json(key: str, text: str) -> Iterator[str]:
    """The values of a key in JSON objects, bare or fenced."""
    decoder = json.JSONDecoder(strict=False)
    values = []
    for start in re.finditer(r"\{", text):
        with suppress(ValueError, RecursionError):
            content, _ = decoder.raw_decode(text, start.start())
            if key in content:
                values.append(content[key])
    for value in reversed(values):
        yield ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _find_scores(text: str) -> Iterator[str]:
    """From the last line on: the line and the two lines, which may hold two scores,
    then single scores of the line.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    for i in reversed(range(len(lines))):
        yield lines[i]
        if i > 0:
            yield ", ".join(lines[i - 1 : i + 1])
        for scores in reversed(_RATED.findall(lines[i])):
            yield "".join(scores)


def _find_pattern(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    for match in reversed(list(pattern.finditer(text))):
        yield ", ".join(group for group in match.groups() if group is not None)


def _find_published_letter(text: str) -> list[str]:
    """RewardBench's runners look for [[A]], then for [[B]] ..."""
    return [letter for letter in LETTERS if f"[[{letter}]]" in text]


def _find_published_rating(text: str) -> list[str]:
    """The integer from 1 to 10 at the text's end, as RewardBench 2's runner reads it;
    8/10 is a 10.
    """
    return _PUBLISHED_RATING.findall(text.strip())


_FINDERS: dict[str, Callable[[str], Iterable[str]]] = {
    "brackets": _find_verdicts,
    "letter": partial(_find_verdicts, in_any_line=True),
    "strength": _find_verdicts,
    "boxed": partial(_find_pattern, _BOXED),
    "tag": _find_tagged,
    "result": partial(_find_pattern, _RESULT),
    "scores": _find_scores,
    YES_NO: lambda text: (),
}
_ONLY_LETTERS = ("brackets", "letter", "strength")
_READERS = {
    name: Reader(name, find, reads_scores=name not in _ONLY_LETTERS)
    for name, find in _FINDERS.items()
}
PUBLISHED_LETTER = Reader(
    "reward-bench letter", _find_published_letter, reads_scores=False, reads_all=True
)
PUBLISHED_RATING = Reader(
    "reward-bench-2 rating", _find_published_rating, reads_all=True
)


def choice_odds(top: Mapping[str, float], choices: tuple[str, ...]) -> float | None:
    """Return the log-odds of the first choice against the second, such as the letters A
    and B, from log-probabilities of tokens; None where neither is named.

    A server names only the likeliest tokens. Where one of the choices is not among
    them, the least likely token named stands in for it: the choice is less likely
    still, so the true log-odds are further from 0. A single token says nothing of the
    choice that it is not: None.
    """
    logs = []
    for choice in choices:
        spelled = [log for token, log in top.items() if is_choice(token, (choice,))]
        logs.append(np.logaddexp.reduce([-np.inf, *spelled]))
    if len(top) < 2 or max(logs) == -np.inf:
        return None
    first, second = np.maximum(logs, min(top.values()))
    return float(first - second)


def is_choice(token: str, choices: tuple[str, ...]) -> bool:
    """Whether a token is one of the choices, with or without spaces around it; of words
    in any case.
    """
    word = token.strip()
    return word in choices or (len(word) > 1 and word.title() in choices)
