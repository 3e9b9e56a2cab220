"""Source code and formulas outside fences: their asterisks, underscores and number
signs are not Markdown.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

_PRIVATE = 0xF0000  # Unicode's private-use planes begin here
# Code points of one shield: half of them for hidden characters, half for literal ones.
_BLOCK = 0x200
_SPECIAL = "\\`*_#|[]<>~-+=.)"
_ANYWHERE = "\\`*_#|[]<"
_AT_START = ">~-+="

CODE_LINE = re.compile(
    r"[ \t]*(?:(?:def|class|import|from|return|assert|for|while|if|elif|else|try|with"
    r"|print|raise|async|await|let|const|var|sudo|pip|npm|git|cd|echo|export|using"
    r"|public|private|static|void|int|fn|func)\b"
    r"|[A-Za-z_][\w.\[\]'\"]*[ \t]*[-+*/%|&]?=(?!=)"
    r"|[A-Za-z_][\w.]*\(|@\w|//|/\*|[})\]]|[^\n]*[;{}][ \t]*$)"
)
_LINE_COMMENT = re.compile(r" {0,3}#[ \t]")


_Accepts = Callable[[str], bool] | None


class _Rule(NamedTuple):
    """Which matches of a pattern are hidden: its group, or without one all of it."""

    pattern: re.Pattern[str]
    needed: str  # no match in a text without it
    accepts: _Accepts


def _rule(pattern: str, *, needed: str = "", accepts: _Accepts = None) -> _Rule:
    compiled = re.compile(pattern, re.MULTILINE)
    return _Rule(compiled, needed, accepts)


def _is_not_bold(formula: str) -> bool:
    return "**" not in formula


def _is_template_string(string: str) -> bool:
    return "${" in string


def _is_closed_comment(comment: str) -> bool:
    return "*/" in comment.split("/*", 1)[1] and "```" not in comment


_MARKERS = r"(?:[ \t]*+(?:>|[-+*](?=[ \t])|\d{1,9}[.)](?=[ \t]))){20}"
_BODY = r"(?:[^\\\n`]|\n(?![ \t]*\n)|\\[^()\[\]\n`])*+"
_STARS = (
    r"(?<=[A-Za-z0-9_)\]])\*(?=[A-Za-z0-9_])"
    r"|(?<=[A-Za-z0-9_)\]])\*\*(?=[0-9])"
    r"|(?<=[a-z]\.)\*(?=;)"
    r"|(?<![\w*])[A-Za-z]++\*{2,}+[A-Za-z]"
)
_DOLLARS = r"(?<![\\$\w])\$(?=[^\s$])[^$\n`]*+(?<=[^\s\\$])\$(?![\w$])"
_TEMPLATE_STRING = r"(?:(?<=[=(+:,])|(?<=[=(+:,] )|(?<=return ))`[^`\n]*`"
_BLOCK_COMMENT = r"^[ \t]*/\*(?:(?s:.*?)\*/|(?s:.*)\Z)"

# Each pattern takes what it may match in a single forward scan, so that a long text
# costs linear time.
_RULES = (
    # Formulas.
    _rule(rf"\\\({_BODY}\\\)|\\\[{_BODY}\\\]|\$\$[^$`]++\$\$"),
    _rule(_DOLLARS, needed="$", accepts=_is_not_bold),
    # Products, powers, masked words.
    _rule(_STARS, needed="*"),
    # Names with underscores, subscripts, quoted marks.
    _rule(r"(?<!\w)__[a-z]\w*__(?!\w)", needed="__"),
    _rule(r"(?<=[^\s\w*_(\[{\"'“‘>-])_(?=[({])", needed="_"),
    _rule(r"'[*_]{1,2}'|\"[*_]{1,2}\""),
    # Doctests, lambdas of C++, template strings.
    _rule(r"^[ \t]*>>>(?=[ \t])", needed=">>>"),
    _rule(r"\[[&=]?\]\(", needed="]("),
    _rule(_TEMPLATE_STRING, needed="`", accepts=_is_template_string),
    # Deep nesting.
    _rule(rf"^(?:{_MARKERS}|[ \t]{{60}})(.*)$"),
    _rule(_BLOCK_COMMENT, needed="/*", accepts=_is_closed_comment),
)


class Shield:
    """Hides characters from the Markdown parser as private-use code points, and back.

    Hidden outside fences and inside them alike: products and powers (`2*3*4`, `a**2`),
    words masked with asterisks, `import java.util.*;`, names such as `__init__`, quoted
    single marks, formulas between `\\(` `\\)`, `\\[` `\\]` or dollar signs, `/* ... */`
    comments, doctest prompts, a `# comment` line that touches a line of source code,
    and anything nested more than 20 markers or 60 columns deep.
    """

    def __init__(self, text: str) -> None:
        base = _free_block(text)
        hidden = _shift(_SPECIAL, base)
        literal = _shift(_ANYWHERE, base + _BLOCK // 2)
        literal_at_start = _shift(_AT_START, base + _BLOCK // 2)

        self._to_hidden = str.maketrans(_SPECIAL, hidden)
        self._to_literal = str.maketrans(_ANYWHERE, literal)
        self._to_literal_at_start = str.maketrans(_AT_START, literal_at_start)

        every_literal = literal + literal_at_start
        every_character = _ANYWHERE + _AT_START
        self._back = str.maketrans(hidden + every_literal, _SPECIAL + every_character)
        self._backslashes = {
            ord(stand_in): "\\" + character
            for stand_in, character in zip(every_literal, every_character, strict=True)
        }

    def hide(self, text: str) -> str:
        """Hide special characters of code and formulas; same length, same lines."""
        for rule in _RULES:
            if rule.needed in text:
                hide_match = partial(self._hide_match, rule.accepts)
                text = rule.pattern.sub(hide_match, text)
        if "#" in text:
            text = self._hide_line_comments(text)
        return text

    def literal(self, text: str) -> str:
        """Protect text that is to stand as it is in the result.

        `show` writes it plainly, or with backslashes if asked to.
        """
        first = text[:1].translate(self._to_literal_at_start)
        return (first + text[1:]).translate(self._to_literal)

    def show(self, text: str, *, escape: bool = False) -> str:
        """Bring hidden characters back.

        With `escape`, those of `literal` come with a backslash before them.
        """
        if escape:
            text = text.translate(self._backslashes)
        return text.translate(self._back)

    def _hide_match(self, accepts: _Accepts, match: re.Match[str]) -> str:
        if accepts and not accepts(match[0]):
            return match[0]
        special = match[match.lastindex or 0]
        before = match[0].removesuffix(special)
        return before + special.translate(self._to_hidden)

    def _hide_line_comments(self, text: str) -> str:
        number_sign = "#".translate(self._to_hidden)
        lines = text.split("\n")
        code_below = False  # or a comment on code

        for i in reversed(range(len(lines))):
            if not _LINE_COMMENT.match(lines[i]):
                code_below = is_code_line(lines[i])
            elif code_below or (i > 0 and is_code_line(lines[i - 1])):
                lines[i] = lines[i].replace("#", number_sign, 1)
                code_below = True
        return "\n".join(lines)


def is_code_line(line: str) -> bool:
    """Whether a line begins or ends as those of common programming languages do."""
    return CODE_LINE.match(line) is not None


def _free_block(text: str) -> int:
    """Start of a block of private-use code points that `text` does not contain."""
    private = [ord(c) - _PRIVATE for c in set(text) if ord(c) >= _PRIVATE]
    clashes = {offset // _BLOCK for offset in private}
    block = 0
    while block in clashes:
        block += 1
    return _PRIVATE + _BLOCK * block


def _shift(characters: str, start: int) -> str:
    """The private-use code points that stand for these characters."""
    return "".join(chr(start + ord(character)) for character in characters)
