"""Source code and formulas outside fences: their asterisks, underscores and number
signs are not Markdown.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

_SPECIAL = "\\`*_#|[]<>~-+=.)"
# Special characters stand as code points of Unicode's last private-use plane.
_HIDDEN = "".join(chr(0x10FF00 + ord(character)) for character in _SPECIAL)
_TO_HIDDEN = str.maketrans(_SPECIAL, _HIDDEN)
_TO_SHOWN = str.maketrans(_HIDDEN, _SPECIAL)

_CODE_LINE = re.compile(
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


def hide(text: str) -> str:
    """Hide special characters of code and formulas; same length, same lines.

    Hidden outside fences and inside them alike: products and powers (`2*3*4`, `a**2`),
    words masked with asterisks, `import java.util.*;`, names such as `__init__`, quoted
    single marks, formulas between `\\(` `\\)`, `\\[` `\\]` or dollar signs, `/* ... */`
    comments, doctest prompts, a `# comment` line that touches a line of source code,
    and anything nested more than 20 markers or 60 columns deep.
    """
    for rule in _RULES:
        if rule.needed in text:
            text = rule.pattern.sub(partial(_hide_match, rule.accepts), text)
    if "#" in text:
        text = _hide_line_comments(text)
    return text


def show(text: str) -> str:
    """Restore the hidden characters."""
    return text.translate(_TO_SHOWN)


def _hide_match(accepts: _Accepts, match: re.Match[str]) -> str:
    if accepts and not accepts(match[0]):
        return match[0]
    special = match[match.lastindex or 0]
    before = match[0].removesuffix(special)
    return before + special.translate(_TO_HIDDEN)


def _hide_line_comments(text: str) -> str:
    number_sign = "#".translate(_TO_HIDDEN)
    lines = text.split("\n")
    code_below = False  # or a comment on code

    for i in reversed(range(len(lines))):
        if not _LINE_COMMENT.match(lines[i]):
            code_below = _CODE_LINE.match(lines[i]) is not None
        elif code_below or (i > 0 and _CODE_LINE.match(lines[i - 1])):
            lines[i] = lines[i].replace("#", number_sign, 1)
            code_below = True
    return "\n".join(lines)
