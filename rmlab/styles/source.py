"""Source code and formulas outside fences: their asterisks, underscores and number
signs are not Markdown.
"""

import re
from collections.abc import Callable
from functools import partial

_PRIVATE = 0xF0000  # Unicode's private-use planes begin here
_BLOCK = (
    0x200  # code points of one shield: 256 for hidden characters, 256 for literal ones
)
_SPECIAL = "\\`*_#|[]<>~-+=.)"
_ANYWHERE = "\\`*_#|[]<"
_AT_START = ">~-+="

_CODE_LINE = re.compile(
    r"[ \t]*(?:(?:def|class|import|from|return|assert|for|while|if|elif|else|try|with|print|raise|async|await|let|const"
    r"|var|sudo|pip|npm|git|cd|echo|export|using|public|private|static|void|int|fn|func)\b"
    r"|[A-Za-z_][\w.\[\]'\"]*[ \t]*[-+*/%|&]?=(?!=)|[A-Za-z_][\w.]*\(|@\w|//|/\*|[})\]]|[^\n]*[;{}][ \t]*$)"
)
_LINE_COMMENT = re.compile(r" {0,3}#[ \t]")

_MARKERS = r"(?:[ \t]*+(?:>|[-+*](?=[ \t])|\d{1,9}[.)](?=[ \t]))){20}"
_BODY = r"(?:[^\\\n`]|\n(?![ \t]*\n)|\\[^()\[\]\n`])*+"
_STARS = (
    r"(?<=[A-Za-z0-9_)\]])\*(?=[A-Za-z0-9_])"
    r"|(?<=[A-Za-z0-9_)\]])\*\*(?=[0-9])"
    r"|(?<=[a-z]\.)\*(?=;)"
    r"|(?<![\w*])[A-Za-z]++\*{2,}+[A-Za-z]"
)

_Accept = Callable[[str], bool]


def _is_closed_comment(comment: str) -> bool:
    return "*/" in comment.split("/*", 1)[1] and "```" not in comment


# What a text must contain for the pattern to match, the pattern (its group is hidden,
# else all of it), and which of its matches count. Each pattern takes what it may match
# in a single forward scan, so that a long text costs linear time.
_RULES: tuple[tuple[str, str, _Accept | None], ...] = (
    ("", rf"\\\({_BODY}\\\)|\\\[{_BODY}\\\]|\$\$[^$`]++\$\$", None),  # formulas
    (
        "$",
        r"(?<![\\$\w])\$(?=[^\s$])[^$\n`]*+(?<=[^\s\\$])\$(?![\w$])",
        lambda formula: "**" not in formula,
    ),
    ("*", _STARS, None),  # products, powers, masked words
    (".*", r"^[ \t]*import [\w.]+\.\*[ \t]*$", None),
    ("__", r"(?<!\w)__[a-z]\w*__(?!\w)", None),
    ("_", r"(?<=[^\s\w*_(\[{\"'“‘>-])_(?=[({])", None),  # subscripts
    ("", r"'[*_]{1,2}'|\"[*_]{1,2}\"", None),
    (">>>", r"^[ \t]*>>>(?=[ \t])", None),  # doctests
    ("](", r"\[[&=]?\]\(", None),  # lambdas of C++
    (
        "`",
        r"(?:(?<=[=(+:,])|(?<=[=(+:,] )|(?<=return ))`[^`\n]*`",
        lambda string: "${" in string,
    ),
    ("\\\n", r"\\(?=\n)", None),  # continued lines
    ("", rf"^(?:{_MARKERS}|[ \t]{{60}})(.*)$", None),  # deep nesting
    ("/*", r"^[ \t]*/\*(?:(?s:.*?)\*/|(?s:.*)\Z)", _is_closed_comment),
)
_PATTERNS = [
    (needed, re.compile(pattern, re.MULTILINE), accept)
    for needed, pattern, accept in _RULES
]


class Shield:
    """Hides characters from the Markdown parser behind private-use code points, and
    brings them back.

    Hidden outside fences and inside them alike: products and powers (`2*3*4`, `a**2`),
    words masked with asterisks, `import java.util.*;`, names such as `__init__`, quoted
    single marks, formulas between `\\(` `\\)`, `\\[` `\\]` or dollar signs, `/* ... */`
    comments, doctest prompts, a `# comment` line that touches a line of source code,
    and anything nested more than 20 markers or 60 columns deep.
    """

    def __init__(self, text: str) -> None:
        base = _free_block(text)
        self._hidden = {ord(c): chr(base + ord(c)) for c in _SPECIAL}
        self._literal = {
            ord(c): chr(base + 0x100 + ord(c)) for c in _ANYWHERE + _AT_START
        }
        self._back = {
            ord(hidden): chr(c)
            for table in (self._hidden, self._literal)
            for c, hidden in table.items()
        }
        self._back_escaped = {
            ord(hidden): "\\" + chr(c) for c, hidden in self._literal.items()
        }

    def hide(self, text: str) -> str:
        """`text` with the special characters of source code and formulas hidden; same
        length, same lines.
        """
        for needed, pattern, accept in _PATTERNS:
            if needed in text:
                text = pattern.sub(partial(self._hide_match, accept), text)
        return self._hide_line_comments(text) if "#" in text else text

    def literal(self, text: str) -> str:
        """Text that is to stand as it is in the result: `show` writes it plainly, or
        with backslashes if asked to.
        """
        anywhere = {ord(c): self._literal[ord(c)] for c in _ANYWHERE}
        return text[:1].translate(self._literal) + text[1:].translate(anywhere)

    def show(self, text: str, *, escape: bool = False) -> str:
        """Bring hidden characters back; with `escape`, those of `literal` come with a
        backslash before them.
        """
        return text.translate(self._back_escaped if escape else {}).translate(
            self._back
        )

    def _hide_match(self, accept: _Accept | None, match: re.Match[str]) -> str:
        if accept and not accept(match[0]):
            return match[0]
        hidden = match[match.lastindex or 0]
        return match[0].removesuffix(hidden) + hidden.translate(self._hidden)

    def _hide_line_comments(self, text: str) -> str:
        lines = text.split("\n")
        follows = False  # whether the line below is source code, or a comment on it
        for i in range(len(lines) - 1, -1, -1):
            if not _LINE_COMMENT.match(lines[i]):
                follows = is_code_line(lines[i])
            elif follows or (i > 0 and is_code_line(lines[i - 1])):
                lines[i] = lines[i].replace("#", self._hidden[ord("#")], 1)
                follows = True
        return "\n".join(lines)


def is_code_line(line: str) -> bool:
    """Whether a line begins or ends as those of common programming languages do."""
    return _CODE_LINE.match(line) is not None


def _free_block(text: str) -> int:
    """Start of a block of private-use code points that `text` does not contain."""
    clashes = {(ord(c) - _PRIVATE) // _BLOCK for c in set(text) if ord(c) >= _PRIVATE}
    return _PRIVATE + _BLOCK * next(
        k for k in range(len(clashes) + 1) if k not in clashes
    )
