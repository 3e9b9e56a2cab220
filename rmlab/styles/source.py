"""Source code and formulas outside fences: their asterisks, underscores and number signs are not Markdown."""

import re
from collections.abc import Callable
from functools import cache, partial

__all__ = ["Shield", "is_code_line"]

_PRIVATE = 0xF0000  # Unicode's private-use planes begin here
_BLOCK = 0x200  # code points of one shield: 256 for hidden characters, 256 for literal ones
_CLASH = re.compile("[\U000f0000-\U0010ffff]")
_SPECIAL = "\\`*_#|[]<>~-+=.)"
_ANYWHERE = "\\`*_#|[]<"
_AT_START = ">~-+="

_CODE_LINE = re.compile(
    r"[ \t]*(?:(?:def|class|import|from|return|assert|for|while|if|elif|else|try|with|print|raise|async|await|let|const"
    r"|var|sudo|pip|npm|git|cd|echo|export|using|public|private|static|void|int|fn|func)\b"
    r"|[A-Za-z_][\w.\[\]'\"]*[ \t]*[-+*/%|&]?=(?!=)|[A-Za-z_][\w.]*\(|@\w|//|/\*|[})\]]|[^\n]*[;{}][ \t]*$)"
)
_COMMENT = re.compile(r" {0,3}#[ \t]")

# Each pattern takes what it may match of one kind in a single forward scan, so that a long text costs linear time.
_STARS = re.compile(
    r"(?<=[A-Za-z0-9_)\]])\*(?=[A-Za-z0-9_])"
    r"|(?<=[A-Za-z0-9_)\]])\*\*(?=[0-9])"
    r"|(?<=[a-z]\.)\*(?=;)"
    r"|(?<![\w*])[A-Za-z]++\*{2,}+[A-Za-z]"
)
_IMPORT = re.compile(r"^[ \t]*import [\w.]+\.\*[ \t]*$", re.MULTILINE)
_DUNDER = re.compile(r"(?<!\w)__[a-z]\w*__(?!\w)")
_QUOTED = re.compile(r"'[*_]{1,2}'|\"[*_]{1,2}\"")
_SUBSCRIPT = re.compile(r"(?<=[^\s\w*_(\[{\"'“‘>-])_(?=[({])")
_DOCTEST = re.compile(r"^[ \t]*>>>(?=[ \t])", re.MULTILINE)
_LAMBDA = re.compile(r"\[[&=]?\]\(")
_TEMPLATE = re.compile(r"(?:(?<=[=(+:,])|(?<=[=(+:,] )|(?<=return ))`[^`\n]*`")
_MARKERS = r"(?:[ \t]*+(?:>|[-+*](?=[ \t])|\d{1,9}[.)](?=[ \t]))){20}"
_DEEP = re.compile(rf"^(?:{_MARKERS}|[ \t]{{60}})(.*)$", re.MULTILINE)
_CONTINUED = re.compile(r"\\(?=\n)")
_BODY = r"(?:[^\\\n`]|\n(?![ \t]*\n)|\\[^()\[\]\n`])*+"
_MATH = re.compile(rf"\\\({_BODY}\\\)|\\\[{_BODY}\\\]|\$\$[^$`]++\$\$")
_DOLLARS = re.compile(r"(?<![\\$\w])\$(?=[^\s$])[^$\n`]*+(?<=[^\s\\$])\$(?![\w$])")


class Shield:
    """Hides characters from the Markdown parser behind private-use code points, and brings them back.

    Hidden outside fences and inside them alike: products and powers (`2*3*4`, `a**2`), words masked with asterisks,
    `import java.util.*;`, names such as `__init__`, quoted single marks, formulas between `\\(` `\\)`, `\\[` `\\]` or
    dollar signs, `/* ... */` comments, doctest prompts, a `# comment` line that touches a line of source code, and
    what is nested more than 20 markers or 60 columns deep.
    """

    def __init__(self, text: str) -> None:
        self._there, self._literal, self._back, self._back_escaped = _tables(_free_block(text))

    def hide(self, text: str) -> str:
        """`text` with the special characters of source code and formulas hidden; same length, same lines."""
        for needed, pattern, accept in _RULES:
            if needed in text:
                text = pattern.sub(partial(self._hidden_if, accept), text)
        text = _DEEP.sub(lambda m: m[0][: m.start(1) - m.start()] + self._hidden(m[1]), text)
        if "/*" in text:
            text = self._hide_block_comments(text)
        if "# " in text or "#\t" in text:
            text = self._hide_comment_lines(text)
        return text

    def literal(self, text: str) -> str:
        """Text that is to stand as it is in the result: `show` writes it plainly, or with backslashes if asked to."""
        anywhere = {ord(c): self._literal[ord(c)] for c in _ANYWHERE}
        return text[:1].translate(self._literal) + text[1:].translate(anywhere)

    def show(self, text: str, *, escape: bool = False) -> str:
        """Bring hidden characters back; with `escape`, those of `literal` come with a backslash before them."""
        return text.translate(self._back_escaped if escape else {}).translate(self._back)

    def _hidden(self, text: str) -> str:
        return text.translate(self._there)

    def _hidden_if(self, accept: Callable[[str], bool], match: re.Match[str]) -> str:
        return self._hidden(match[0]) if accept(match[0]) else match[0]

    def _hide_block_comments(self, text: str) -> str:
        parts, done = [], 0
        for opening in re.finditer(r"^[ \t]*/\*", text, re.MULTILINE):
            if opening.start() < done:
                continue
            close = text.find("*/", opening.end())
            if close < 0:
                break
            comment = text[opening.start() : close + 2]
            parts += [text[done : opening.start()], comment if "```" in comment else self._hidden(comment)]
            done = close + 2
        return "".join([*parts, text[done:]])

    def _hide_comment_lines(self, text: str) -> str:
        lines = text.split("\n")
        below = False
        for i in range(len(lines) - 1, -1, -1):
            if _COMMENT.match(lines[i]):
                if below or (i > 0 and is_code_line(lines[i - 1])):
                    lines[i] = lines[i].replace("#", self._there[ord("#")], 1)
                    below = True
            else:
                below = is_code_line(lines[i])
        return "\n".join(lines)


def is_code_line(line: str) -> bool:
    """Whether a line begins or ends as those of common programming languages do."""
    return _CODE_LINE.match(line) is not None


def _always(_: str) -> bool:
    return True


_RULES: tuple[tuple[str, re.Pattern[str], Callable[[str], bool]], ...] = (
    ("\\", _MATH, _always),
    ("$$", _MATH, _always),
    ("$", _DOLLARS, lambda formula: "**" not in formula),
    ("*", _STARS, _always),
    (".*", _IMPORT, _always),
    ("__", _DUNDER, _always),
    ("_", _SUBSCRIPT, _always),
    ("'", _QUOTED, _always),
    ('"', _QUOTED, _always),
    (">>>", _DOCTEST, _always),
    ("](", _LAMBDA, _always),
    ("`", _TEMPLATE, lambda string: "${" in string),
    ("\\\n", _CONTINUED, _always),
)


@cache
def _tables(base: int) -> tuple[dict[int, str], dict[int, str], dict[int, str], dict[int, str]]:
    """Translations: special to hidden, special to literal, both back, literal back with a backslash."""
    hidden = {ord(c): chr(base + ord(c)) for c in _SPECIAL}
    literal = {ord(c): chr(base + 0x100 + ord(c)) for c in _ANYWHERE + _AT_START}
    back = {ord(there): chr(c) for table in (hidden, literal) for c, there in table.items()}
    return hidden, literal, back, {ord(there): "\\" + chr(c) for c, there in literal.items()}


def _free_block(text: str) -> int:
    """Start of a block of private-use code points that `text` does not contain."""
    if not _CLASH.search(text):
        return _PRIVATE
    used = {(ord(c) - _PRIVATE) // _BLOCK for c in set(text) if ord(c) >= _PRIVATE}
    return _PRIVATE + _BLOCK * next(k for k in range(len(used) + 1) if k not in used)
