r"""Untrusted text to HTML that cannot run, load or lead anywhere: Markdown, maths as MathML, coloured code."""

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING
from xml.etree.ElementTree import tostring

from rmlab.text import escape_html, visible

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

LIMIT = 20_000
"""Characters of one text that are shown."""

TAGS = {
    *("p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "strong", "em", "s", "code", "pre", "blockquote", "span"),
    *("ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td"),
    *("math", "mi", "mn", "mo", "mtext", "mspace", "mrow", "mstyle", "mfrac", "msup", "msub", "msubsup", "mover"),
    *("munder", "munderover", "msqrt", "mroot", "mtable", "mtr", "mtd", "mpadded", "mphantom", "menclose"),
}
# MathML without links, styles, classes, colours and enclosed HTML.
ATTRIBUTES = {
    tag: set(names.split())
    for tag, names in {
        "span": "title",
        "ol": "start",
        "math": "display",
        **dict.fromkeys(("mi", "mn", "mtext"), "mathvariant"),
        "mo": "accent fence form maxsize minsize stretchy",
        "mstyle": "displaystyle scriptlevel",
        "mfrac": "linethickness",
        "mtable": "columnlines displaystyle rowlines",
        "mtd": "columnalign",
        "menclose": "notation",
    }.items()
}
_TEXT_ATTRIBUTES = ("title", "class")
_VALUE = re.compile(r"[a-z-]{1,20}|\d{1,9}|[+-]?[0-3]?(?:\.\d{1,3})?(?:em|ex|pt)?", re.IGNORECASE)
# A single dollar opens and closes only where a price or a shell variable would not stand.
_INLINE = re.compile(
    r"""\\\((?P<inline>.{1,2000}?)\\\) | \n?\\\[(?P<display>.{1,2000}?)\\\]\n? | \n?\$\$(?P<dollars>[^$]{1,2000})\$\$\n?
    | \n?(?P<environment>\\begin\{(?P<name>align|equation|gather|multline|[pbvBV]?matrix|d?cases|array)(?P<star>\*?)\}
        .{1,2000}?\\end\{(?P=name)(?P=star)\})\n?
    | (?<![\\$\w])\$(?=[^\s$])(?!\d[\d.,]*\s(?:[^\\$\n]*\s)?[A-Za-z]{2})
        (?P<dollar>(?:[^$\n\\]|\\.){1,500})(?<!\s)\$(?![\w${])""",
    re.DOTALL | re.VERBOSE,
)
_WRITTEN = re.compile(rf"(?<!`)(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`) | {_INLINE.pattern}", re.DOTALL | re.VERBOSE)
_FORMS = ("inline", "display", "dollars", "environment", "dollar")
_BRACKETS = re.compile(r"\\\[(.{1,2000}?)\\\][ \t]*(?:\n|\Z)", re.DOTALL)
_FENCE = re.compile(
    r"(?:^|(?<=\n)) {0,3}(`{3,}|~{3,})([^`\n]*)\n(.*?)(?:^ {0,3}\1[`~]*[ \t]*$\n?|\Z)", re.DOTALL | re.M
)
# A macro may double what another one doubled: one line of them would fill the memory.
_MACRO = re.compile(r"\\(?:[gex]?def|let|(?:re)?newcommand|providecommand|newenvironment|DeclareMathOperator)\b")
# Environments that latex2mathml 3.81 does not lay out, by the name of one that it does.
_RENAMED = {"aligned": "align*", "dcases": "cases"} | dict.fromkeys(
    ("gather", "gather*", "gathered", "multline", "multline*"), "matrix"
)
_ENVIRONMENT = re.compile(rf"\\(begin|end)\{{({'|'.join(map(re.escape, _RENAMED))})\}}")


def answer_html(text: str, style: str | None) -> str:
    """An answer: Markdown in the style markdown, as it was written in the others, both where there is no style."""
    if style in (None, "markdown"):
        return markdown_html(text, breaks=style is None)
    return plain_html(text)


def markdown_html(text: str, *, breaks: bool = False) -> str:
    """Markdown; raw HTML is shown as text, a link with its address as a tooltip, an image by its description.

    >>> markdown_html("**bold** <script>x()</script> $x_1$")[:57]
    '<p><strong>bold</strong> &lt;script&gt;x()&lt;/script&gt;'
    """
    return _clean(_renderer(breaks).render(visible(text[:LIMIT])))


def plain_html(text: str) -> str:
    """A text as it was written, but for its fenced code and its maths."""
    text, parts, end = visible(text[:LIMIT]), [], 0
    for fence in _FENCE.finditer(text):
        parts += [_written_html(text[end : fence.start()]), _highlight(fence[3], fence[2])]
        end = fence.end()
    return _clean("".join([*parts, _written_html(text[end:])]))


def prompt_html(prompt: object) -> str:
    """A prompt: a string, or the messages of a conversation, each under its role."""
    if not isinstance(prompt, list):
        return plain_html(str(prompt))
    return "".join(
        f"<p><strong>{escape_html(message['role'])}</strong></p>{plain_html(message['content'])}" for message in prompt
    )


def prompt_text(prompt: object) -> str:
    """A prompt as one text.

    >>> prompt_text([{"role": "user", "content": "Hello"}])
    'user: Hello'
    """
    if not isinstance(prompt, list):
        return str(prompt)
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in prompt)


def _clean(html: str) -> str:
    try:
        import nh3
    except ImportError:
        raise ImportError("texts as pages need nh3: run pip install -e '.[lab]' in the clone") from None
    from pygments.token import STANDARD_TYPES

    spans = {*STANDARD_TYPES.values(), "rmlab-link", "rmlab-image", "rmlab-math", "rmlab-display"}
    cleaned = nh3.clean(
        html,
        tags=TAGS,
        attributes=ATTRIBUTES,
        allowed_classes={"span": spans, "p": {"rmlab-written"}},
        attribute_filter=lambda tag, name, value: (
            value if name in _TEXT_ATTRIBUTES or _VALUE.fullmatch(value) else None
        ),
        url_schemes=set(),
    )
    return visible(cleaned)  # an entity may have become a control character


@cache
def _renderer(breaks: bool) -> "MarkdownIt":
    from markdown_it import MarkdownIt
    from mdit_py_plugins.amsmath import amsmath_plugin
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    options = {"html": False, "maxNesting": 20, "breaks": breaks, "highlight": _highlight}
    parser = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
    parser.use(dollarmath_plugin, allow_labels=False).use(amsmath_plugin)
    # The plugin's inline rule takes the two dollars of "$HOME/$USER" for maths.
    parser.inline.ruler.at("math_inline", _math_rule)
    parser.block.ruler.before("fence", "brackets", _brackets_rule, {"alt": ["paragraph"]})
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    parser.normalizeLink = lambda url: url  # type: ignore[method-assign]
    rules: dict[str, Callable[[Token], str]] = {
        **dict.fromkeys(("math_inline", "math_block", "amsmath"), _formula),
        "link_open": lambda token: f'<span class="rmlab-link" title="{escape_html(token.attrGet("href"))}">',
        "link_close": lambda token: "</span>",
        "image": lambda token: (
            f'<span class="rmlab-image" title="{escape_html(token.attrGet("src"))}">'
            f"image: {escape_html(token.content)}</span>"
        ),
    }
    for name, rule in rules.items():
        parser.add_render_rule(name, lambda self, tokens, i, options, env, rule=rule: rule(tokens[i]))
    return parser


def _math_rule(state: "StateInline", silent: bool) -> bool:
    match = _INLINE.match(state.src, state.pos)
    if match is None:
        return False
    if not silent:
        state.push("math_inline", "", 0).meta["match"] = match
    state.pos = match.end()
    return True


def _brackets_rule(state: "StateBlock", start: int, end: int, silent: bool) -> bool:
    r"""A block of `\[ ... \]`, whose lines are no list, heading or quotation."""
    match = _BRACKETS.match(state.src, state.bMarks[start] + state.tShift[start], state.eMarks[end - 1] + 1)
    if match is None:
        return False
    if not silent:
        token = state.push("math_block", "", 0)
        token.content = match[1]
    state.line = start + match[0].rstrip().count("\n") + 1
    return True


def _formula(token: "Token") -> str:
    if token.type == "math_inline":
        return _matched_formula(token.meta["match"])
    source = token.content if token.type == "amsmath" else f"$${token.content}$$"
    return f"<p>{_formula_html(token.content, source, is_display=True)}</p>"


def _matched_formula(match: re.Match[str]) -> str:
    name, body = next((name, match[name]) for name in _FORMS if match[name])
    return _formula_html(body, match[0], is_display=name not in ("inline", "dollar"))


def _formula_html(body: str, source: str, *, is_display: bool) -> str:
    """A formula as MathML, or its source where it holds something that cannot be typeset."""
    from latex2mathml.converter import convert_to_element

    body = _ENVIRONMENT.sub(lambda match: f"\\{match[1]}{{{_RENAMED[match[2]]}}}", body.strip())
    if "\\\\" in body and "\\begin" not in body:  # lines that stand in no environment
        name = "align*" if "&" in body else "matrix"
        body = f"\\begin{{{name}}} {body} \\end{{{name}}}"
    try:
        tree = convert_to_element(body, display="block" if is_display else "inline")
        is_complete = all(_is_typeset(element.text or "") for element in tree.iter())
        mathml = re.sub(r"&amp;(#x[0-9A-F]{2,6};)", r"&\1", tostring(tree, encoding="unicode"))
    except Exception:  # whatever is wrong with the formula: the reader sees its source
        is_complete = False
    if not is_complete or not body or _MACRO.search(body):
        return escape_html(source)
    classes = "rmlab-math rmlab-display" if is_display else "rmlab-math"
    return f'<span class="{classes}" title="{escape_html(source.strip())}">{mathml}</span>'


def _is_typeset(text: str) -> bool:
    """Whether latex2mathml has understood a symbol: it passes unknown commands and a stray & on."""
    return text != "&" and re.match(r"\\[A-Za-z]", text) is None


def _written_html(text: str) -> str:
    """A text with its line breaks, its formulas typeset."""
    parts, end = [], 0
    for match in _WRITTEN.finditer(text):
        formula = escape_html(match[0]) if match["ticks"] else _matched_formula(match)
        parts += [escape_html(text[end : match.start()]), formula]
        end = match.end()
    html = "".join([*parts, escape_html(text[end:])]).strip("\n")
    return f'<p class="rmlab-written">{html}</p>' if html.strip() else ""


def _highlight(code: str, language: str, attributes: str = "") -> str:
    """Code in `pre`, coloured where Pygments knows the language."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(language.strip().lower()[:30], stripnl=False, ensurenl=False)
    except ClassNotFound:
        return f"<pre><code>{escape_html(code)}</code></pre>"
    return f"<pre><code>{highlight(code, lexer, HtmlFormatter(nowrap=True))}</code></pre>"
