"""Markdown to plain prose: the same words, numbers and code in order, no mark."""

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

import pandas as pd

from rmlab import tables
from rmlab.styles.counts import Document

if TYPE_CHECKING:
    from markdown_it.token import Token

_PASSES = 8
_STOPS = tuple(".:!?;,…。！？：；؟۔।")
_CLOSERS = "\"'”’)]»"
_PUNCTUATION = re.compile(r"([\\`*_\[\]()#|<>~=+.!-])")
_FILLED_LINE = re.compile(r"^(?=.*\S)", re.MULTILINE)
_MAY_MARK = re.compile(r"[*_`\[<#|~>=+-]|\d[.)]")
_INLINE_MARKS = frozenset(
    {"strong_open", "em_open", "code_inline", "link_open", "image"}
)


def restyle(responses: pd.DataFrame, to: Literal["plain"] = "plain") -> pd.DataFrame:
    """Turn all texts into plain prose (see `plain`).

    Parameters
    ----------
    responses : DataFrame
        A table of responses.
    to : {"plain"}
        The style of the result.

    Returns
    -------
    DataFrame
        A new table of responses, with the keys and the order of the old one. The style
        of every row is plain, also where it was missing.

    Raises
    ------
    DataError
        For another `to`.
    """
    if to != "plain":
        raise tables.DataError(
            f"to: {to!r} is not a style to turn texts into",
            tables.nearest(to, ["plain"]),
        )
    responses = tables.check_responses(responses)
    plain_texts = {text: plain(text) for text in responses["response"].unique()}
    styles = pd.Categorical(["plain"] * len(responses), dtype=tables.STYLE)
    return responses.assign(
        response=responses["response"].map(plain_texts), style=styles
    )


def plain(text: str) -> str:
    """Turn Markdown into plain prose; a text without marks comes back as it is.

    Headings become lines that end in a full stop (or in the stop they have); list items
    become lines, numbered ones as "(1) ..."; table rows become lines with semicolons;
    links become "text (address)"; emphasis, quotes and rules go. Fenced code keeps
    every line; where a line of it would read as Markdown the block is indented by four
    spaces. Inline code that would read as Markdown is written with backslashes.
    `features_of` of the result counts no mark.

    Parameters
    ----------
    text : str
        The text of a response.

    Returns
    -------
    str
        The same words in the same order; one space for a text that is nothing but
        marks.

    Examples
    --------
    >>> text = "## Soil\\n1. **Sand**: see [here](https://example.org)\\n2. `perlite`"
    >>> print(plain(text))
    Soil.
    (1) Sand: see here (https://example.org)
    (2) perlite
    """
    return _remove_marks(text, _PASSES)


def _remove_marks(text: str, passes: int) -> str:
    document = Document(text)
    if not document.marks:
        return text
    if passes == 0:
        # Marks within marks within marks: the last of them are written out literally.
        return _PUNCTUATION.sub(r"\\\1", text)
    prose = _Writer(document, passes).write() or " "
    return _remove_marks(prose, passes - 1)


class _Span(NamedTuple):
    """First line of a block, and the line after its last one."""

    start: int
    end: int


def _line_span(token: "Token") -> _Span:
    return _Span(*(token.map or (0, 0)))


class _Row(NamedTuple):
    """A row of a table: where it stands, and its cells that hold text."""

    span: _Span
    cells: list[str]


class _Writer:
    """Writes the tokens of one text as blocks of plain lines.

    The blocks have the distances that they have in the source.
    """

    def __init__(self, document: Document, passes: int) -> None:
        self._passes = passes
        self._tokens = document.tokens
        self._shield = document.shield
        self._lines = document.source.split("\n")
        self._parts: list[str] = []
        self._end = 0
        self._after_code = False
        self._numbers: list[str] = []
        self._heading: _Span | None = None
        self._row: _Row | None = None

    def write(self) -> str:
        for token in self._tokens:
            self._write_token(token)
        return "".join(self._parts).strip("\n")

    def _write_token(self, token: "Token") -> None:
        match token.type:
            case "heading_open":
                self._heading = _line_span(token)
            case "list_item_open" if token.info:
                self._numbers.append(f"({token.info})")
            case "list_item_close":
                self._write_block("", _Span(self._end, self._end))
            case "tr_open":
                self._row = _Row(_line_span(token), [])
            case "tr_close" if self._row:
                self._write_block("; ".join(self._row.cells), self._row.span)
                self._row = None
            case "inline":
                self._write_inline(token)
            case "fence" | "code_block":
                self._write_code(token)
            case "hr":
                self._end = _line_span(token).end
            case "tbody_open":
                self._end = _line_span(token).start

    def _write_inline(self, token: "Token") -> None:
        """Write a paragraph or a heading, or keep the cell of a row."""
        text = self._inline(token)
        span = _line_span(token)
        if self._row:
            if text:
                self._row.cells.append(text)
            return

        if self._heading:
            span = self._heading
            self._heading = None
            if text and not text.rstrip(_CLOSERS).endswith(_STOPS):
                text += "."
        elif token.level == 1 and text == token.content:
            text = self._source(span)
        self._write_block(text, span)

    def _write_code(self, token: "Token") -> None:
        """A fence loses its fence; indented code, in a list or not, stays indented."""
        span = _line_span(token)
        is_fence = token.type == "fence"
        if not is_fence and token.level == 0:
            text = self._source(span).rstrip()
        else:
            text = token.content.rstrip("\n")
            if not is_fence or Document(self._shield.show(text)).marks:
                text = _FILLED_LINE.sub("    ", text)

        if text.strip():
            self._write_block("", _Span(self._end, self._end))
            self._place(self._shield.show(text), span, gap=1)
            self._after_code = is_fence

    def _source(self, span: _Span) -> str:
        return "\n".join(self._lines[span.start : span.end])

    def _write_block(self, text: str, span: _Span) -> None:
        """Place the text behind the numbers of the list items that it begins.

        Nothing is placed where there is neither.
        """
        if not text.strip() and not self._numbers:
            return
        pieces = [*self._numbers]
        if text:
            pieces.append(text)
        self._numbers = []
        self._place(self._without_marks(" ".join(pieces)), span)

    def _place(self, text: str, span: _Span, *, gap: int = 0) -> None:
        """Put a block behind the others, as many blank lines away as in the source."""
        if self._parts:
            n_blank = max(span.start - self._end, gap, int(self._after_code))
            self._parts.append("\n" * (n_blank + 1))
        self._parts.append(text)
        self._end = span.end
        self._after_code = False

    def _without_marks(self, text: str) -> str:
        """The block with its hidden characters back and no mark of its own.

        Backslashes keep the literal characters.
        """
        text_shown = self._shield.show(text)
        if not _MAY_MARK.search(text_shown) or not Document(text_shown).marks:
            return text_shown
        text_escaped = self._shield.show(text, escape=True)
        return _remove_marks(text_escaped, self._passes - 1)

    def _inline(self, token: "Token") -> str:
        """The text of an inline token; its lines keep their indents."""
        children = token.children or []
        if not any(child.type in _INLINE_MARKS for child in children):
            return token.content

        pieces = self._pieces(children)
        line_breaks = [i for i, piece in enumerate(pieces) if piece == "\n"]
        indented_breaks = re.findall(r"\n[ \t]*", token.content)
        if len(line_breaks) == len(indented_breaks):
            for i, indented_break in zip(line_breaks, indented_breaks, strict=True):
                pieces[i] = indented_break
        return "".join(pieces).strip()

    def _pieces(self, children: list["Token"]) -> list[str]:
        """The words of an inline token, one string per token.

        Every line break is a "\\n" of its own.
        """
        pieces: list[str] = []
        open_links: list[tuple[Token, int]] = []
        for child in children:
            match child.type:
                case "link_open":
                    open_links.append((child, len(pieces)))
                case "link_close":
                    link, start = open_links.pop()
                    words = "".join(pieces[start:])
                    pieces.append(self._address(words, link, "href"))
                case "text_special":
                    pieces.append(child.markup)
                case "softbreak" | "hardbreak":
                    pieces.append("\n")
                case "code_inline":
                    pieces.append(self._shield.literal(child.content))
                case "image":
                    words = "".join(self._pieces(child.children or []))
                    pieces.append(words + self._address(words, child, "src"))
                case _:
                    pieces.append(child.content)
        return pieces

    def _address(self, words: str, link: "Token", attribute: str) -> str:
        """Address and title of a link in brackets, for behind its words.

        The address is left out where the words say it.
        """
        address = str(link.attrs.get(attribute, ""))
        title = str(link.attrs.get("title", ""))
        parts = []
        if address and words not in (address, address.removeprefix("mailto:")):
            parts.append(address)
        if title:
            parts.append(f'"{title}"')

        text = " ".join(parts)
        if words and text:
            text = f" ({text})"
        return self._shield.literal(text)
