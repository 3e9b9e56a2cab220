r"""Readers of replies: the reasoning is taken off, then the last verdict counts.

A named reader is a row of `_PATTERNS`: the places of a reply where its verdict may
stand, such as `A>B` in `[[A>B]]`. What the words at a place mean (a vote, a rating, the
letter of the best answer) the mode of the judge says.
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

Verdict = str | tuple[float, ...]
"""The words of a verdict; of a function that reads replies, also one or two scores."""

DEFAULT = "letter"
YES_NO = "yes-no"
# Characters of a line that holds a verdict and little else.
_MAX_VERDICT_LINE = 30

_NAMES = "think|thinking|thought|reasoning"
_OPENED = re.compile(rf"\s*(<(?:{_NAMES})>|\[THINK\])", re.IGNORECASE)
_CLOSED = re.compile(rf"</(?:{_NAMES})>|\[/THINK\]", re.IGNORECASE)

_SCORE = r"-?\d+(?:\.\d+)?"
_OF = r"\s*(?:/|out of)\s*\d+"
_BRACKETS = r"\[\[([^][]{1,60})\]\]"
_BOX = r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\}){1,120})\}"
_LAST_LINE = r"^(.+)\s*\Z"
_INTRODUCED = (
    r"^[ \t*_#.`>-]*(?:(?:the|final|my|overall)\s+)*"
    r"(?:verdict|rating|score|judge?ment|choice|winner|better|best|answer)\b"
    r"[ \t*_]*(?:is\b|[:=]|-(?=\s))?[ \t*_:]*(.{1,40})$"
)
# The only answer that is named so: "Output (a) is better than Output (b)" has none.
_OUTPUT = (
    r"\A(?=[\s\S]*\boutput\s*\(([a-z])\))"
    r"(?![\s\S]*\boutput\s*\((?!\1)[a-z]\))"
)
_TAG = re.compile(r"<answer>(.*?)</answer>", re.IGNORECASE | re.DOTALL)
_RESULT = r"(?:\[result\]|\bresult[ *]*:|\*\*\s*result\s*\*\*)[\s:*]*(?=(.{1,40}))"
# One score, with the largest one, in bold, alone on its line, or introduced.
_RATED = (
    rf"(?<![\w.])({_SCORE}{_OF})|\*\*\s*\+?({_SCORE})\s*\*\*"
    rf"|^[^\w\n-]*({_SCORE})[^\w\n]*$"
    rf"|\b(?:score|rating)\b(?:\s+of\b)?[^\w\n-]*({_SCORE}(?:{_OF})?)\b"
)


def _compile(*patterns: str) -> list[re.Pattern[str]]:
    return [re.compile(pattern, re.IGNORECASE | re.MULTILINE) for pattern in patterns]


_LETTERS = _compile(_BRACKETS, _BOX, _LAST_LINE, _INTRODUCED, _OUTPUT)
_PATTERNS = {
    DEFAULT: _LETTERS,
    "strength": _LETTERS,
    "boxed": _compile(_BOX),
    "result": _compile(_RESULT),
    "scores": _compile(r"^(.+)$", r"^(?=(.+\n\s*.+)$)", _RATED),
    YES_NO: [],
}

# How verdicts are written.
_CHARACTERS = str.maketrans(
    {"［": "[", "］": "]", "【": "[", "】": "]", "≫": ">>", "≪": "<<", "≈": "="}
)
_TEX_SIGNS = {
    "gg": ">>",
    "ll": "<<",
    "gt": ">",
    "lt": "<",
    "succ": ">",
    "prec": "<",
    "approx": "=",
}
_TEX_SIGN = re.compile(rf"\\({'|'.join(_TEX_SIGNS)})(?![a-zA-Z])")
_TEX_TEXT = re.compile(r"\\(?:text|math|operatorname)\w*\s*\{([^{}]*)\}")
_MARKED = re.compile(f"{_BRACKETS}|{_BOX}")
_WRAPPED = re.compile(rf"{_BRACKETS}|\[([^][]*)\]")
_OUT_OF = re.compile(r"\s*(?:/|\bout of\b)\s*", re.IGNORECASE)
_ANSWER = r"(?<![a-z])(?:assistant|answer|response|option|model)(?![a-z])"
# What is around letters and numbers and says nothing of them.
_NOUN = re.compile(
    rf"^\s*>|{_ANSWER}|\b(?:scores?|ratings?)\b(?:\s+of\b)?"
    r"|\b(?:and|vs|to)\b|\.(?=\W*\Z)",
    re.IGNORECASE | re.MULTILINE,
)
# An answer that is named by its number, as "**Response 2**" and "2: 6".
_NUMBERED = re.compile(
    rf"{_ANSWER}[ *_`#]*([12])(?![\w/]|\.\d)|(?<![\w.])([12])\s*:", re.IGNORECASE
)
_WORD = re.compile(r"[+-]?\d*\.?\d+(?:/\d+)?|[a-z]+|[<>=~]+|\S", re.IGNORECASE)
_IGNORED = {*"-#:,;*_$`\"'(){}\\|"}
_PLACES = {"FIRST": "A", "SECOND": "B"}
# How much better A is, by the sign in "A>>B". A reply with another sign is unparsable.
_STRENGTHS = {
    ">>": 2.0,
    ">": 1.0,
    "=": 0.0,
    "==": 0.0,
    "~": 0.0,
    "<": -1.0,
    "<<": -2.0,
}
# A verdict of how much better an answer is, also between other words.
_STRONG_PAIR = re.compile(r"\b[AB]\s*(?:>>|<<)\s*[AB]\b")


class OutsideScale(ValueError):
    """The last score of a reply is outside the scale, so that the reply has none."""


@dataclass(frozen=True)
class Reader:
    """Finds the verdicts of a reply.

    Parameters
    ----------
    name : str
        What the provenance says.
    find : callable
        Returns the verdicts of a text, the last ones first.
    reads_scores : bool
        Whether a comparison may be two scores.
    reads_all : bool
        Whether the reasoning is read, too, and a reply that was cut.
    """

    name: str
    find: Callable[[str], Iterable[Verdict]]
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
                value = interpret(verdict)
                if value is not None:
                    return value
        return None


# RewardBench's runners look for [[A]] in the whole reply, then for [[B]] ...
PUBLISHED_LETTER = Reader(
    "reward-bench letter",
    lambda text: [letter for letter in LETTERS if f"[[{letter}]]" in text],
    reads_scores=False,
    reads_all=True,
)
# RewardBench 2's takes the integer at the reply's end: 8/10 is a 10.
PUBLISHED_RATING = Reader(
    "reward-bench-2 rating",
    lambda text: re.findall(r"\b([1-9]|10)\b\s*$", text.strip()),
    reads_all=True,
)


def choose_reader(reader: str | Callable[[str], Any] | None) -> Reader:
    r"""Return the reader of a name, a regular expression with a group, or a function.

    >>> choose_reader("result").read(Completion("**Result:** B"), pair_vote)
    Vote(value=-1.0, is_score=False)
    >>> choose_reader(r"winner=(\w)").read(Completion("winner=A"), pair_vote)
    Vote(value=1.0, is_score=False)
    """
    if callable(reader):
        code = getattr(reader, "__name__", type(reader).__name__)
        return Reader(code, lambda text: [_convert(reader(text))])
    name = reader or DEFAULT
    if name in _PATTERNS:
        patterns = _PATTERNS[name]
        return Reader(name, partial(_find_matches, patterns), patterns != _LETTERS)
    if name == "tag":
        return Reader(name, _find_tagged)
    if name.startswith("json:") and name != "json:":
        return Reader(name, partial(_find_json, name.removeprefix("json:")))
    with suppress(re.error):
        pattern = re.compile(name, re.MULTILINE)
        if pattern.groups in (1, 2):
            return Reader(name, partial(_find_matches, [pattern]))
    allowed = nearest(name, [*_PATTERNS, "tag", "json:KEY"])
    remedy = f"{allowed}; or a regular expression with one group, or two of scores"
    raise DataError(f"reader={name!r}", remedy)


def _convert(value: Any) -> Verdict:
    """What a function returned: words, or scores as a tuple."""
    if isinstance(value, str):
        return value
    if value is None:
        return ()
    return tuple(np.ravel(value).astype(np.float64).tolist())


def _find_matches(patterns: Iterable[re.Pattern[str]], text: str) -> Iterator[str]:
    """What the groups of all patterns hold, from the end of the text on."""
    text = text.translate(_CHARACTERS)
    matches = [match for pattern in patterns for match in pattern.finditer(text)]
    matches.sort(key=lambda match: match.start(match.lastindex or 0), reverse=True)
    for match in matches:
        yield ", ".join(group for group in match.groups() if group is not None)


def _find_tagged(text: str) -> Iterator[str]:
    """The contents of <answer>, and two of them, which may hold a score each."""
    contents = _TAG.findall(text)
    for i in reversed(range(len(contents))):
        yield contents[i]
        yield from _find_matches(_LETTERS, contents[i])
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


def list_words(verdict: str) -> list[str]:
    r"""Return the words of a verdict in capitals: letters, signs and numbers, without
    white space, TeX, Markdown, brackets, and the nouns around them.

    >>> list_words(r"**Score**: [[7 \text{ out of } 10]]")
    ['7/10']
    >>> list_words("Assistant A >> Assistant B"), list_words("1: 8, 2: 6.5")
    (['A', '>>', 'B'], ['A', '8', 'B', '6.5'])
    """
    text = _TAG.sub(r"\1", _replace_tex(verdict))
    text = _WRAPPED.sub(r"\1\2", text)
    text = _NUMBERED.sub(lambda name: "AB"[int(name[1] or name[2]) - 1], text)
    text = _NOUN.sub(" ", _OUT_OF.sub("/", text))
    words = [word for word in _WORD.findall(text.upper()) if word not in _IGNORED]
    return [_PLACES.get(word, word) for word in words]


def _replace_tex(text: str) -> str:
    """The signs of TeX and HTML as characters, and its texts without their command."""
    text = _TEX_TEXT.sub(r"\1", unescape(text).translate(_CHARACTERS))
    return _TEX_SIGN.sub(lambda sign: _TEX_SIGNS[sign[1]], text)


class Vote(NamedTuple):
    """How much better answer A is: 2, 1, 0, -1, -2, or the difference of two scores."""

    value: float
    is_score: bool = False


def pair_vote(
    verdict: Verdict, *, draw: str = "", scale: Scale | None = None
) -> Vote | None:
    """Return the vote of a verdict; None where it is none. Raises OutsideScale.

    `draw`: the letter for "both are equally good", where the question offers one.
    `scale`: of the scores; None reads none. A single number that a function returned
    is a difference.

    >>> pair_vote("A>>B").value, pair_vote("4, 7", scale=(1, 10)).value
    (2.0, -3.0)
    """
    if isinstance(verdict, str):
        words = list_words(verdict)
        strength = _strength(words, draw)
        if strength is not None:
            return Vote(strength)
        scores = _two_scores(words)
    else:
        scores = verdict
    if scale is None or not scores:
        return None
    is_inside = [scale[0] <= score <= scale[1] for score in scores]
    if len(scores) == 1:
        is_inside = [abs(scores[0]) <= scale[1] - scale[0]]
    if not all(is_inside):
        raise OutsideScale
    # 7.3 - 7.1 and 8.3 - 8.1 are the same.
    return Vote(round(scores[0] - sum(scores[1:]), 9), is_score=True)


def _strength(words: list[str], draw: str) -> float | None:
    match words:
        case ["A" | "B" as letter]:
            return 1.0 if letter == "A" else -1.0
        case [word] if word in ("TIE", "DRAW", "EQUAL") or word == draw:
            return 0.0
        # B>A says what A<B says.
        case ["A", sign, "B"] if sign in _STRENGTHS:
            return _STRENGTHS[sign]
        case ["B", sign, "A"] if sign in _STRENGTHS:
            return -_STRENGTHS[sign]
    return None


def _two_scores(words: list[str]) -> tuple[float, ...]:
    """The score of A and that of B, where the words say nothing else."""
    match words:
        case ["A", first, "B", second] | ["B", second, "A", first] | [first, second]:
            with suppress(ValueError):
                scores = [word.partition("/")[0] for word in (first, second)]
                return tuple(map(float, scores))
    return ()


def rating(verdict: Verdict, *, scale: Scale) -> float | None:
    """Return a score; None where the verdict is none. Raises OutsideScale.

    >>> rating("7/10", scale=(1, 10)), rating("7/10", scale=(0, 100))
    (7.0, None)
    """
    if isinstance(verdict, str):
        number, slash, largest = " ".join(list_words(verdict)).partition("/")
        if slash and largest != f"{scale[1]:g}":
            return None
        try:
            verdict = (float(number),)
        except ValueError:
            return None
    if len(verdict) != 1:
        return None
    if not scale[0] <= verdict[0] <= scale[1]:
        raise OutsideScale
    return verdict[0]


def chosen_letter(verdict: Verdict, *, answers: int) -> int | None:
    """Return the number of the chosen answer, from 0; None for a letter that was not
    shown.
    """
    words = list_words(str(verdict))
    shown = [[letter] for letter in LETTERS[:answers]]
    return shown.index(words) if words in shown else None


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
    double brackets or boxes, but for words, such as [[your verdict]].
    """
    for match in _MARKED.finditer(question):
        verdict = match[1] or match[2]
        if re.search("[a-z]{3}", verdict) or read(f"[[{verdict}]]") is not None:
            continue
        raise DataError(
            f"template={template!r}: nothing can read the verdict [[{verdict}]]",
            "ask for [[A]] or [[B]], or for a comparison such as [[A>>B]]",
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
