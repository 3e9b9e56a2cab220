"""Untrusted text to HTML that cannot run, load or lead anywhere.

Markdown is rendered, maths becomes MathML, and code is coloured.
"""

import json
import re
from functools import cache
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, tostring

from rmlab.tables import STYLES
from rmlab.text import escape_html, visible

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

LIMIT = 20_000
"""Characters of one text that are shown."""

_TEXT_TAGS = "p br hr h1 h2 h3 h4 h5 h6 strong em s code pre blockquote span div"
_TABLE_TAGS = "ul ol li table thead tbody tr th td"
_MATH_TAGS = (
    "math mi mn mo mtext mspace mrow mstyle mfrac msup msub msubsup mover munder "
    "munderover msqrt mroot mtable mtr mtd mpadded mphantom menclose"
)
TAGS = {*_TEXT_TAGS.split(), *_TABLE_TAGS.split(), *_MATH_TAGS.split()}
# Of MathML those without links, styles, colours and enclosed HTML.
_MATH_ATTRIBUTES = (
    "display mathvariant accent fence form maxsize minsize stretchy displaystyle "
    "scriptlevel linethickness columnlines rowlines columnalign notation"
)
ATTRIBUTES = {"class", "title", "start", *_MATH_ATTRIBUTES.split()}
_VALUE = re.compile(r"[\w. +-]{1,40}")
# Code, and formulas. A single dollar opens and closes only where a price or a shell
# variable would not stand.
_MARKUP = re.compile(
    r"""
    ^[ \t>]*(?P<fence>`{3,}|~{3,})(?P<language>[^`\n]*)\n
        (?P<code>.*?)(?:^[ \t>]*(?P=fence)[`~]*[ \t]*$\n?|\Z)
    | (?<!`)(?P<ticks>`+)(?!`)[^\n]*?(?<!`)(?P=ticks)(?!`)
    | \\\((?P<inline>.{1,2000}?)\\\)
    | \\\[(?P<display>.{1,2000}?)\\\]\n?
    | \$\$(?P<dollars>[^$]{1,2000})\$\$\n?
    | (?P<environment>
        \\begin\{
        (?P<name>align|equation|gather|multline|[pbvBV]?matrix|d?cases|array)
        (?P<star>\*?)\}
        .{1,2000}?\\end\{(?P=name)(?P=star)\})\n?
    | (?<![\\$\w])\$(?=[^\s$])(?!\d[\d.,]*\s(?:[^\\$\n]*\s)?[A-Za-z]{2})
        (?P<dollar>(?:[^$\n\\]|\\.){1,500})(?<!\s)\$(?![\w${])
    """,
    re.DOTALL | re.VERBOSE | re.MULTILINE,
)
# Markdown must not read a formula: its characters wait in the last two planes of
# Unicode, which no text uses.
_PLANE = 0xF0000
_LAST = "\U0001ffff"
_HIDDEN = re.compile("(?P<code><code>.*?</code>)|[\U000f0000-\U0010ffff]+", re.DOTALL)
# A macro may double what another one doubled: one line of them would fill the memory.
_MACRO = re.compile(
    r"\\(?:[gex]?def|let|(?:re)?newcommand|providecommand|newenvironment"
    r"|DeclareMathOperator)\b"
)


def text_html(text: str, style: str | float) -> str:
    """A text: Markdown in the style markdown, as it was written in the others.

    Where the style is missing it is Markdown that keeps its line breaks.
    """
    if style in STYLES[:2]:
        return plain_html(text)
    return markdown_html(text, breaks=style != "markdown")


def markdown_html(text: str, *, breaks: bool = False) -> str:
    """Markdown; raw HTML, links and images are shown as they were written.

    >>> markdown_html("**bold** <script>x()</script> $x_1$")[:57]
    '<p><strong>bold</strong> &lt;script&gt;x()&lt;/script&gt;'
    """
    source = _MARKUP.sub(_hide_formula, _prepare_text(text))
    html = _renderer(breaks).render(source)
    return _clean(_HIDDEN.sub(_show_formulas, html))


def plain_html(text: str) -> str:
    """A text as it was written, but for its fenced code and its maths."""
    text = _prepare_text(text).strip("\n")
    html = ""
    end = 0
    for match in _MARKUP.finditer(text):
        html += escape_html(text[end : match.start()])
        if match["fence"]:
            html += _highlight(match["code"], match["language"])
        else:
            html += _formula_html(match)
        end = match.end()
    html += escape_html(text[end:])
    return _clean(f'<div class="rmlab-written">{html}</div>')


def prompt_text(prompt: object) -> str:
    """A prompt, an answer as one message or the steps of an answer, as one text.

    >>> prompt_text([{"role": "user", "content": "Hello"}])
    'user: Hello'
    """
    if isinstance(prompt, dict):
        prompt = [prompt]
    if not isinstance(prompt, list):
        return str(prompt)
    return "\n\n".join(map(_message_text, prompt))


def _message_text(message: object) -> str:
    """A message with its role and its other fields; a step as it is."""
    if not isinstance(message, dict):
        return str(message)
    others = {k: v for k, v in message.items() if k not in ("role", "content")}
    text = f"{message['role']}: {message.get('content') or ''}"
    return f"{text} {json.dumps(others)}" if others else text


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
    hidden = [chr(ord(character) + _PLANE) for character in formula]
    line_end = match[0][len(formula) :]
    return "".join(hidden) + line_end


def _show_formulas(match: re.Match[str]) -> str:
    """Typeset hidden formulas; in code they are shown as they were written."""
    text = ""
    for character in match[0]:
        is_hidden = ord(character) >= _PLANE
        if is_hidden:
            character = chr(ord(character) - _PLANE)
        if is_hidden and match["code"]:
            character = escape_html(character)
        text += character
    if match["code"]:
        return text
    return _MARKUP.sub(_formula_html, text)


def _formula_html(match: re.Match[str]) -> str:
    """A formula as MathML, or its source where it cannot be typeset or is code."""
    from latex2mathml.converter import convert_to_element

    source = escape_html(match[0])
    forms = ("inline", "display", "dollars", "environment", "dollar")
    bodies = [body for body in match.group(*forms) if body]
    body = bodies[0].strip() if bodies else ""
    if not body or _MACRO.search(body):
        return source

    is_inline = bool(match["inline"] or match["dollar"])
    display = "inline" if is_inline else "block"
    # latex2mathml 3.81 does not lay `aligned` out.
    body = body.replace("{aligned}", "{align*}")
    try:
        tree = convert_to_element(body, display=display)
    except Exception:  # whatever is wrong with the formula: the reader sees its source
        return source
    if _is_garbled(body, tree):
        return source

    mathml = tostring(tree, encoding="unicode")
    mathml = re.sub(r"&amp;(#x[0-9A-F]{2,6};)", r"&\1", mathml)
    classes = "rmlab-math" if is_inline else "rmlab-math rmlab-display"
    title = escape_html(match[0].strip())
    return f'<span class="{classes}" title="{title}">{mathml}</span>'


def _is_garbled(body: str, tree: Element) -> bool:
    """Whether latex2mathml could not typeset a formula, and did not say so.

    It passes unknown commands and a stray & on, and puts lines without a table one
    behind the other.
    """
    if "\\\\" in body and tree.find(".//mtable") is None:
        return True
    for element in tree.iter():
        if re.match(r"&$|\\[A-Za-z]", element.text or ""):
            return True
    return False


def _highlight(code: str, language: str, attributes: str = "") -> str:
    """Code in `pre`, coloured where Pygments knows the language."""
    from pygments import formatters, highlight, lexers, util

    name = language.strip().lower()[:30]
    try:
        lexer = lexers.get_lexer_by_name(name, stripnl=False, ensurenl=False)
    except util.ClassNotFound:
        return f"<pre><code>{escape_html(code)}</code></pre>"
    formatter = formatters.HtmlFormatter(nowrap=True)
    return f"<pre><code>{highlight(code, lexer, formatter)}</code></pre>"
