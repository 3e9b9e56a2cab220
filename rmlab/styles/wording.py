"""Changes of a prompt that keep its meaning: typos, quotes, spaces, what stands before
and after it. Code, formulas and quoted text stay as they are.
"""

import re
import string
from collections.abc import Callable
from functools import partial
from random import Random

from rmlab.styles.source import CODE_LINE
from rmlab.styles.transforms import name_transforms

_CODE = (
    r"```[\s\S]*?(?:```|\Z)|`[^`\n]+`"
    rf"|^(?:{CODE_LINE.pattern}| {{4}}|\t).*$"
    r"|\[asy\][\s\S]*?(?:\[/asy\]|\Z)|https?://\S+"
)
_FORMULA = (
    r"|\$\$[\s\S]+?\$\$|\$(?:\\.|[^$\\])+\$|\\\([\s\S]+?\\\)|\\\[[\s\S]+?\\\]"
    r"|\\begin\{[\s\S]+?\\end\{\w+\*?\}"
)
_QUOTED = r"|\"[^\"\n]*\"|“[^”]*”|‘[^’]*’|(?<!\w)'[^'\n]+'(?!\w)"
_UNTOUCHED = _CODE + _FORMULA + _QUOTED


def _pattern(place: str, untouched: str = _UNTOUCHED) -> re.Pattern[str]:
    """A pattern whose group 1 is the place of a change outside untouched text."""
    return re.compile(f"{untouched}|({place})", re.MULTILINE)


_WORD = _pattern(r"(?<![\w\\/@.-])[a-z]{5,}(?![\w\\/@(-])")
_SPACE = _pattern(r"(?<=\S) (?=\S)")
_FIRST_LETTER = _pattern(r"\A[^\W\d_]")
_CURLY_QUOTE = _pattern("[“”„‘’]", untouched=_CODE + _FORMULA)
_STRAIGHT = str.maketrans("“”„‘’", '"""\'\'')
_ENDS_WITH_CODE = re.compile(rf"(?:{_CODE}{_FORMULA})\Z", re.MULTILINE)

# Of one length, since length alone may move a score.
_GREETING = "Hello, and good day to you!"
_NEUTRAL = "This is the entire message."
_URL = "https://example.com/"
_N_HANDLE = 15


def _leave_out_letter(text: str) -> str:
    """A typo in one word, chosen by a generator whose seed is the text."""
    words = [match for match in _WORD.finditer(text) if match[1]]
    if not words:
        return text
    random = Random(text)
    word = random.choice(words)
    place = random.randrange(word.start() + 1, word.end() - 1)
    return text[:place] + text[place + 1 :]


def _change_places(
    text: str, pattern: re.Pattern[str], change: Callable[[str], str]
) -> str:
    def change_match(match: re.Match[str]) -> str:
        return change(match[1]) if match[1] else match[0]

    return pattern.sub(change_match, text)


def _double(space: str) -> str:
    return 2 * space


def _straighten(quote: str) -> str:
    return quote.translate(_STRAIGHT)


def _append(text: str, addition: str) -> str:
    # On the line of a closing fence it would be code.
    separator = "\n" if _ENDS_WITH_CODE.search(text) else " "
    return text + separator + addition


def _append_random(text: str, start: str, n_characters: int) -> str:
    """Append `start` and letters of a generator whose seed is the text."""
    letters = Random(text).choices(string.ascii_letters, k=n_characters - len(start))
    return _append(text, start + "".join(letters))


def _greet(text: str) -> str:
    return f"{_GREETING}\n{text}"


AGAIN = "again"
"""Name of the control that scores the same text a second time."""

PROMPT_TRANSFORMS = name_transforms(
    {
        "typo": _leave_out_letter,
        "straight_quotes": partial(
            _change_places, pattern=_CURLY_QUOTE, change=_straighten
        ),
        "spaces": partial(_change_places, pattern=_SPACE, change=_double),
        "url": partial(_append_random, start=_URL, n_characters=len(_NEUTRAL)),
        "handle": partial(_append_random, start="@", n_characters=_N_HANDLE),
        "greeting": _greet,
        "first_letter": partial(
            _change_places, pattern=_FIRST_LETTER, change=str.swapcase
        ),
        AGAIN: str,
        "neutral_sentence": partial(_append, addition=_NEUTRAL),
    },
    controls=(AGAIN, "neutral_sentence"),
)
"""The changes of a prompt by name."""
