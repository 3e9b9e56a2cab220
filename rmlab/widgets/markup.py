r"""Untrusted text to HTML that cannot run, load or lead anywhere: Markdown, maths as
MathML, coloured code.
"""

import re
from functools import cache
from typing import TYPE_CHECKING
from xml.etree.ElementTree import tostring

from rmlab.tables import STYLES
from rmlab.text import escape_html, visible

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

LIMIT = 20_000
"""Characters of one text that are shown."""

TAGS = {
    *(
        "p",
        "br",
        "hr",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "strong",
        "em",
        "s",
        "code",
        "pre",
        "blockquote",
        "span",
    ),
    *(
        "div",
        "ul",
        "ol",
        "li",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "math",
        "mi",
        "mn",
        "mo",
        "mtext",
    ),
    *(
        "mspace",
        "mrow",
        "mstyle",
        "mfrac",
        "msup",
        "msub",
        "msubsup",
        "mover",
        "munder",
        "munderover",
        "msqrt",
    ),
    *("mroot", "mtable", "mtr", "mtd", "mpadded", "mphantom", "menclose"),
}
ATTRIBUTES = {  # of MathML those without links, styles, colours and enclosed HTML
    *(
        "class",
        "title",
        "start",
        "display",
        "mathvariant",
        "accent",
        "fence",
        "form",
        "maxsize",
        "minsize",
    ),
    *(
        "stretchy",
        "displaystyle",
        "scriptlevel",
        "linethickness",
        "columnlines",
        "rowlines",
        "columnalign",
        "notation",
    ),
}
_VALUE = re.compile(r"[\w. +-]{1,40}")
# Code, and formulas. A single dollar opens and closes only where a price or a shell
# variable would not stand.
_MARKUP = re.compile(
    r"""^[ \t>]*(?P<fence>`{3,}|~{3,})(?P<language>[^`\n]*)\n(?P<code>.*?)(?:^[ \t>]*(?P=fence)[`~]*[ \t]*$\n?|\Z)
    | (?<!`)(?P<ticks>`+)(?!`)[^\n]*?(?<!`)(?P=ticks)(?!`)
    | \\\((?P<inline>.{1,2000}?)\\\) | \\\[(?P<display>.{1,2000}?)\\\]\n? | \$\$(?P<dollars>[^$]{1,2000})\$\$\n?
    | (?P<environment>\\begin\{(?P<name>align|equation|gather|multline|[pbvBV]?matrix|d?cases|array)(?P<star>\*?)\}
        .{1,2000}?\\end\{(?P=name)(?P=star)\})\n?
    | (?<![\\$\w])\$(?=[^\s$])(?!\d[\d.,]*\s(?:[^\\$\n]*\s)?[A-Za-z]{2})
        (?P<dollar>(?:[^$\n\\]|\\.){1,500})(?<!\s)\$(?![\w${])""",
    re.DOTALL | re.VERBOSE | re.MULTILINE,
)
# Markdown must not read a formula: its characters wait in the last two planes of
# Unicode, which no text uses.
_PLANE, _LAST = 0xF0000, "\U0001ffff"
_HIDDEN = re.compile("(?P<code><code>.*?</code>)|[\U000f0000-\U0010ffff]+", re.DOTALL)
# A macro may double what another one doubled: one line of them would fill the memory.
_MACRO = re.compile(
    r"\\(?:[gex]?def|let|(?:re)?newcommand|providecommand|newenvironment|DeclareMathOperator)\b"
)


def text_html(text: str, style: str | float) -> str:
    """A text: Markdown in the style markdown, as it was written in the others, both
    where the style is missing.
    """
    return (
        plain_html(text)
        if style in STYLES[:2]
        else markdown_html(text, breaks=style != "markdown")
    )


def markdown_html(text: str, *, breaks: bool = False) -> str:
    """Markdown; raw HTML, links and images are shown as they were written.

    >>> markdown_html("**bold** <script>x()</script> $x_1$")[:57]
    '<p><strong>bold</strong> &lt;script&gt;x()&lt;/script&gt;'
    """
    html = _renderer(breaks).render(_MARKUP.sub(_hide_formula, _prepare_text(text)))
    return _clean(_HIDDEN.sub(_show_formulas, html))


def plain_html(text: str) -> str:
    """A text as it was written, but for its fenced code and its maths."""
    text, html, end = _prepare_text(text).strip("\n"), "", 0
    for match in _MARKUP.finditer(text):
        piece = (
            _highlight(match["code"], match["language"])
            if match["fence"]
            else _formula_html(match)
        )
        html, end = (
            f"{html}{escape_html(text[end : match.start()])}{piece}",
            match.end(),
        )
    return _clean(f'<div class="rmlab-written">{html}{escape_html(text[end:])}</div>')


def prompt_text(prompt: object) -> str:
    """A prompt as one text.

    >>> prompt_text([{"role": "user", "content": "Hello"}])
    'user: Hello'
    """
    if not isinstance(prompt, list):
        return str(prompt)
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in prompt)


def _prepare_text(text: str) -> str:
    return re.sub("[\U000f0000-\U0010ffff]", "\ufffd", visible(text[:LIMIT]))


def _clean(html: str) -> str:
    import nh3

    cleaned = nh3.clean(
        html,
        tags=TAGS,
        attributes={"*": ATTRIBUTES},
        attribute_filter=_filter_attribute,
        url_schemes=set(),
    )
    return visible(cleaned)  # an entity may have become a control character


def _filter_attribute(tag: str, name: str, value: str) -> str | None:
    return value if name == "title" or _VALUE.fullmatch(value) else None


@cache
def _renderer(breaks: bool) -> "MarkdownIt":
    from markdown_it import MarkdownIt

    options = {
        "html": False,
        "maxNesting": 20,
        "breaks": breaks,
        "highlight": _highlight,
    }
    parser = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
    return parser.disable(["link", "image", "autolink", "reference"])


def _hide_formula(match: re.Match[str]) -> str:
    formula = match[0].rstrip("\n")
    if match["fence"] or match["ticks"] or max(formula) > _LAST:
        return match[0]
    return (
        "".join(chr(ord(character) + _PLANE) for character in formula)
        + match[0][len(formula) :]
    )


def _show_formulas(match: re.Match[str]) -> str:
    """Typeset hidden formulas; in code they are shown as they were written."""
    quote = escape_html if match["code"] else str
    text = "".join(
        quote(chr(ord(c) - _PLANE)) if ord(c) >= _PLANE else c for c in match[0]
    )
    return text if match["code"] else _MARKUP.sub(_formula_html, text)


def _formula_html(match: re.Match[str]) -> str:
    """A formula as MathML; its source where it cannot be typeset, and of code the
    source.
    """
    from latex2mathml.converter import convert_to_element

    body = next(
        filter(
            None, match.group("inline", "display", "dollars", "environment", "dollar")
        ),
        "",
    ).strip()
    if not body or _MACRO.search(body):
        return escape_html(match[0])
    is_display = not (match["inline"] or match["dollar"])
    try:  # latex2mathml 3.81 does not lay `aligned` out
        body = body.replace("{aligned}", "{align*}")
        tree = convert_to_element(body, display="block" if is_display else "inline")
    except Exception:  # whatever is wrong with the formula: the reader sees its source
        return escape_html(match[0])
    # latex2mathml passes unknown commands and a stray & on, and puts lines without a
    # table one behind the other.
    is_one_line = "\\\\" in body and tree.find(".//mtable") is None
    if is_one_line or any(
        re.match(r"&$|\\[A-Za-z]", element.text or "") for element in tree.iter()
    ):
        return escape_html(match[0])
    mathml = re.sub(
        r"&amp;(#x[0-9A-F]{2,6};)", r"&\1", tostring(tree, encoding="unicode")
    )
    classes = "rmlab-math rmlab-display" if is_display else "rmlab-math"
    return f'<span class="{classes}" title="{escape_html(match[0].strip())}">{mathml}</span>'


def _highlight(code: str, language: str, attributes: str = "") -> str:
    """Code in `pre`, coloured where Pygments knows the language."""
    from pygments import formatters, highlight, lexers, util

    try:
        lexer = lexers.get_lexer_by_name(
            language.strip().lower()[:30], stripnl=False, ensurenl=False
        )
    except util.ClassNotFound:
        return f"<pre><code>{escape_html(code)}</code></pre>"
    return f"<pre><code>{highlight(code, lexer, formatters.HtmlFormatter(nowrap=True))}</code></pre>"
