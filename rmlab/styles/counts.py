"""Text to style features: its length, words and sentences, and its Markdown marks."""

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

import pandas as pd

from rmlab import tables
from rmlab.styles.source import hide

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MARKS = (
    "headings",
    "bold",
    "italic",
    "list_items",
    "tables",
    "code_blocks",
    "inline_code",
    "links",
)
FEATURES = ("characters", "words", "sentences", *MARKS, "emoji", "markdown")

_KIND = {
    "heading_open": "headings",
    "strong_open": "bold",
    "em_open": "italic",
    "list_item_open": "list_items",
    "table_open": "tables",
    "fence": "code_blocks",
    "code_inline": "inline_code",
    "link_open": "links",
    "image": "links",
    "blockquote_open": "quotes",
    "hr": "rules",
}
_WORD_CHARACTER = re.compile(r"\w")
_SENTENCE_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’)\]»*_]*+(?=\s|$)|[。！？؟۔।]")
# Written out, and not the properties of the package `regex`: those follow the Unicode
# version of whatever release is installed, so that the same answer could count
# differently on two machines; and a table of features is published data.
_FACE = (
    "[\U0001f004\U0001f0cf\U0001f18e\U0001f191-\U0001f19a\U0001f201-\U0001f265"
    "\U0001f300-\U0001f64f\U0001f680-\U0001f6ff\U0001f7e0-\U0001f7eb"
    "\U0001f90c-\U0001f9ff\U0001fa70-\U0001faff"
    "\u231a\u231b\u23e9-\u23ec\u23f0\u23f3\u25fd\u25fe\u2614\u2615\u2648-\u2653"
    "\u267f\u2693\u26a1\u26aa\u26ab\u26bd\u26be\u26c4\u26c5\u26ce\u26d4\u26ea"
    "\u26f2\u26f3\u26f5\u26fa\u26fd\u2705\u270a\u270b\u2728\u274c\u274e"
    "\u2753-\u2755\u2757\u2795-\u2797\u27b0\u27bf\u2b1b\u2b1c\u2b50\u2b55]"
)
_SYMBOL = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u2bff\u3030\u303d\u3297\u3299]\ufe0f"
)
_PICTURE = f"(?:{_FACE}|{_SYMBOL})\ufe0f?[\U0001f3fb-\U0001f3ff]?"
_EMOJI = re.compile(
    f"[\U0001f1e6-\U0001f1ff]{{2}}|[0-9#*]\ufe0f?\u20e3"
    f"|{_PICTURE}(?:\u200d{_PICTURE})*+"
)


def features(responses: pd.DataFrame) -> pd.DataFrame:
    """Count the style of every response.

    Parameters
    ----------
    responses : DataFrame
        A table of responses.

    Returns
    -------
    DataFrame
        One row per response, in the order of `responses`: benchmark, domain, id, label,
        slot, subset, style, then whole numbers: characters (code points), words,
        sentences, headings, bold, italic, list_items, tables, code_blocks, inline_code,
        links, emoji, and markdown, the sum of the eight kinds of marks from headings to
        links. `features_of` says how each is counted.
    """
    responses = tables.check_responses(responses)
    texts = responses["response"].map(tables.response_text)
    counts_by_text = {text: features_of(text) for text in texts.unique()}
    counts = [counts_by_text[text] for text in texts]
    columns = pd.DataFrame(counts, columns=list(FEATURES), dtype="int64")
    keys = responses[[*tables.KEY, "subset", "style"]]
    return pd.concat([keys, columns], axis=1)


def features_of(text: str) -> dict[str, int]:
    """Count the style of one text.

    Marks come from a CommonMark parse with tables. A link is an inline link, an
    autolink or an image; nested emphasis counts at each level; indented code is not a
    mark, only a fence is; raw HTML and entities are text; reference-style links are
    text. Block quotes and rules are in no count. Marks inside code and formulas are not
    Markdown: products, powers, `__init__`, comments beside a line of code, and the
    like. A word is a run of non-space characters with a letter or digit in it; a
    sentence ends in . ! ? (or their counterparts in other scripts) before a space, and
    every paragraph, heading and list item has at least one, whatever its end; an emoji
    sequence counts once.

    Parameters
    ----------
    text : str
        The text of a response.

    Returns
    -------
    dict
        The count columns of `features` by name.

    Examples
    --------
    >>> text = "# Cacti\\n\\nThey need **dry** soil. See [more](https://example.org)."
    >>> count = features_of(text)
    >>> count["headings"], count["bold"], count["links"], count["markdown"]
    (1, 1, 1, 3)
    >>> count["sentences"]
    3
    """
    document = Document(text)
    marks = {kind: document.marks[kind] for kind in MARKS}
    emoji = list(_EMOJI.finditer(text))
    return {
        "characters": len(text),
        "words": _count_wordy(text.split()),
        "sentences": _count_sentences(document.tokens),
        **marks,
        "emoji": len(emoji),
        "markdown": sum(marks.values()),
    }


class Document:
    """A Markdown text as CommonMark reads it, with source code and formulas hidden.

    Escapes have their source in `markup`. `marks` counts each kind of mark, block
    quotes and rules included.
    """

    def __init__(self, text: str) -> None:
        source = hide(text.replace("\r\n", "\n").replace("\r", "\n"))
        blocks, inlines = _parsers()
        env: dict[str, object] = {}
        self.tokens = blocks.parse(source, env)

        types = [token.type for token in self.tokens]
        for token in self.tokens:
            if token.type == "inline":
                children: list[Token] = []
                inlines.inline.parse(token.content, inlines, env, children)
                token.children = children
                types += [child.type for child in children]
        self.marks = Counter(_KIND[kind] for kind in types if kind in _KIND)


@cache
def _parsers() -> tuple["MarkdownIt", "MarkdownIt"]:
    """One parser for blocks, and one for their content.

    In the content brackets may nest less deeply, as each level costs a scan.
    """
    from markdown_it import MarkdownIt

    class Verbatim(MarkdownIt):
        """Every link destination is a link, and stays as it is written."""

        def validateLink(self, url: str) -> bool:
            return True

        def normalizeLink(self, url: str) -> str:
            return url

        def normalizeLinkText(self, link: str) -> str:
            return link

    # Without `entity` and with html off, entities and tags are text: nothing is
    # decoded, nothing is dropped, and the parser's searches that copy the rest of the
    # text never run. Without `reference`, "[Name]: Ann" is not lost.
    blocks = Verbatim("commonmark", {"html": False, "maxNesting": 150})
    blocks.enable("table")
    blocks.disable(["reference", "inline"])
    inlines = Verbatim("commonmark", {"html": False, "maxNesting": 10})
    inlines.disable("entity")
    return blocks, inlines


def _count_sentences(tokens: list["Token"]) -> int:
    """Sentences of paragraphs, headings and list items, not of table cells and code."""
    n_sentences = 0
    in_table = False
    for token in tokens:
        if token.type in ("table_open", "table_close"):
            in_table = token.type == "table_open"
        elif token.type == "inline" and not in_table:
            n_sentences += _count_wordy(_SENTENCE_END.split(token.content))
    return n_sentences


def _count_wordy(pieces: Iterable[str]) -> int:
    """How many pieces have a letter or a digit."""
    return sum(_WORD_CHARACTER.search(piece) is not None for piece in pieces)
