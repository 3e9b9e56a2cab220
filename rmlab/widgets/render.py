"""Untrusted text to safe HTML: Markdown with raw HTML off, links inert, images off, and nothing that can run."""

import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import cache
from typing import TYPE_CHECKING, Any

from rmlab.escapes import html as escape
from rmlab.escapes import visible

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

__all__ = ["LIMIT", "conversation", "difference", "markdown", "raw"]

LIMIT = 20_000
"""Characters of one text that are shown."""

_DIFF_LIMIT = 3_000  # words of one text: the comparison is quadratic
_MEETINGS = 200_000  # pairs of equal words that the comparison may look at
_TAGS = frozenset(
    ["p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "strong", "em", "s", "code", "pre", "blockquote", "ul", "ol",
     "li", "table", "thead", "tbody", "tr", "th", "td", "span"]
)  # fmt: skip


def markdown(text: str, *, limit: int = LIMIT) -> str:
    """Markdown to HTML that cannot run, load or lead anywhere; `limit` characters are shown, and the rest is counted.

    Raw HTML is shown as text. A link is its text, with the address as a tooltip; an image is its description. Math
    stays as it was written. What comes out is sanitised once more (nh3), so a hole in one layer is not a hole.

    >>> markdown("**bold** <script>x()</script>")
    '<p><strong>bold</strong> &lt;script&gt;x()&lt;/script&gt;</p>\\n'
    """
    import nh3

    shown, note = _cut(text, limit)
    made: str = nh3.clean(
        _renderer().render(visible(shown)),
        tags=set(_TAGS),
        attributes={"span": {"title"}, "ol": {"start"}},
        allowed_classes={"span": {"rmlab-link", "rmlab-image"}},
        url_schemes=set(),
        strip_comments=True,
    )
    return visible(made) + note  # again: an entity may have become a control character


def raw(text: str, *, limit: int = LIMIT) -> str:
    """The text as it is, every character shown, in a `pre` element."""
    shown, note = _cut(text, limit)
    return f'<pre class="rmlab-raw">{escape(shown)}</pre>{note}'


def conversation(prompt: object, *, as_raw: bool = False, limit: int = LIMIT) -> str:
    """A prompt as HTML: a string, or each message of a conversation with its role before it."""
    show = raw if as_raw else markdown
    if not isinstance(prompt, list):
        return show(str(prompt), limit=limit)
    return "".join(
        f'<div class="rmlab-role">{escape(m["role"])}</div>{show(m["content"], limit=limit)}' for m in prompt
    )


def difference(chosen: str, rejected: str) -> str:
    """Word by word: what only the chosen answer says is `ins`, what only the rejected one says is `del`.

    White space does not count. Of each text the first 3,000 words are compared.

    >>> difference("It is 11 minutes.", "It is 12 minutes.")
    '<div class="rmlab-diff">It is <del>12</del> <ins>11</ins> minutes.</div>'
    """
    left, right = (re.findall(r"\S+\s*", visible(text)) for text in (chosen, rejected))
    cut = max(len(left), len(right)) > _DIFF_LIMIT
    left, right = left[:_DIFF_LIMIT], right[:_DIFF_LIMIT]
    steps = _steps([word.strip() for word in left], [word.strip() for word in right])
    parts = []
    for kind, a, b, c, d in steps:
        if kind == "equal":
            parts.append(escape("".join(left[a:b])))
        else:
            parts += [_marked("del", right[c:d]), _marked("ins", left[a:b])]
    note = _note(f"The first {_DIFF_LIMIT:,} words are compared.") if cut else ""
    return f'<div class="rmlab-diff">{"".join(parts).rstrip()}</div>{note}'


def _steps(left: list[str], right: list[str]) -> Sequence[tuple[str, int, int, int, int]]:
    """Edits from left to right. Texts that say few words over and over would take minutes: common words give way."""
    there = Counter(right)
    meetings = sum(count * there[word] for word, count in Counter(left).items())
    return SequenceMatcher(None, left, right, autojunk=meetings > _MEETINGS).get_opcodes()


@cache
def _renderer() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False, "maxNesting": 20}).enable(["table", "strikethrough"])
    made.validateLink = lambda url: True  # type: ignore[method-assign]
    for name, rule in (("link_open", _link), ("link_close", _link_end), ("image", _image), ("fence", _code)):
        made.add_render_rule(name, lambda renderer, *parts, rule=rule: rule(*parts))
    return made


def _link(tokens: Any, index: int, options: Any, env: Any) -> str:
    return f'<span class="rmlab-link" title="{escape(str(tokens[index].attrGet("href")))}">'


def _link_end(tokens: Any, index: int, options: Any, env: Any) -> str:
    return "</span>"


def _image(tokens: Any, index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    source = escape(str(token.attrGet("src")))
    return f'<span class="rmlab-image" title="{source}">image: {escape(token.content)}</span>'


def _code(tokens: Any, index: int, options: Any, env: Any) -> str:
    return f"<pre><code>{escape(tokens[index].content)}</code></pre>\n"


def _cut(text: str, limit: int) -> tuple[str, str]:
    if len(text) <= limit:
        return text, ""
    return text[:limit], _note(f"The first {limit:,} of {len(text):,} characters are shown.")


def _note(text: str) -> str:
    return f'<p class="rmlab-cut">{text}</p>'


def _marked(tag: str, words: list[str]) -> str:
    text = "".join(words)
    body = text.rstrip()
    return f"<{tag}>{escape(body)}</{tag}>{text[len(body) :] or ' '}" if body else ""
