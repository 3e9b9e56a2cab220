"""Markdown to plain prose: the same words, numbers and code in the same order, without
a mark.
"""

import re
from typing import TYPE_CHECKING, Literal

import pandas as pd

from rmlab import tables
from rmlab.styles.counts import Document

if TYPE_CHECKING:
    from markdown_it.token import Token

_PASSES = 8
_STOPS = tuple(".:!?;,…。！？：；؟۔।")
_CLOSERS = "\"'”’)]»"
_PUNCTUATION = re.compile(r"([\\`*_\[\]()#|<>~=+.!-])")
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
            f"to: {to!r} is not a style to turn texts into; {tables.nearest(to, ['plain'])}"
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
    >>> print(plain("## Soil\\n1. **Sand**: see [here](https://example.org)\\n2. `perlite`"))
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
    return _remove_marks(_Writer(document, passes).write() or " ", passes - 1)


class _Writer:
    """Writes the tokens of one text as blocks of plain lines, at the distances they
    have in the source.
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

    def write(self) -> str:
        heading: tuple[int, int] | None = None
        row: list[str] | None = None
        for token in self._tokens:
            match token.type:
                case "heading_open":
                    heading = _line_span(token)
                case "list_item_open" if token.info:
                    self._numbers.append(f"({token.info})")
                case "list_item_close":
                    self._write_block("", (self._end, self._end))
                case "tr_open":
                    row, row_span = [], _line_span(token)
                case "tr_close":
                    self._write_block(
                        "; ".join(cell for cell in row or [] if cell), row_span
                    )
                    row = None
                case "inline" if row is not None:
                    row.append(self._inline(token))
                case "inline":
                    self._write_prose(token, heading)
                    heading = None
                case "fence" | "code_block":
                    self._write_code(token)
                case "hr" | "tbody_open":
                    self._end = _line_span(token)[token.type == "hr"]
        return "".join(self._parts).strip("\n")

    def _write_prose(self, token: "Token", heading: tuple[int, int] | None) -> None:
        text, span = self._inline(token), heading or _line_span(token)
        if heading:
            text = (
                text
                if not text or text.rstrip(_CLOSERS).endswith(_STOPS)
                else text + "."
            )
        elif token.level == 1 and text == token.content:
            text = "\n".join(self._lines[slice(*span)])
        self._write_block(text, span)

    def _write_code(self, token: "Token") -> None:
        """A fence loses its fence; indented code, in a list or not, stays indented."""
        span = _line_span(token)
        if token.type == "code_block" and token.level == 0:
            text = "\n".join(self._lines[slice(*span)]).rstrip()
        else:
            text = token.content.rstrip("\n")
            if token.type == "code_block" or Document(self._shield.show(text)).marks:
                text = "\n".join(
                    "    " + line if line.strip() else line for line in text.split("\n")
                )
        if text.strip():
            self._write_block("", (self._end, self._end))
            self._place(self._shield.show(text), span, gap=1)
            self._after_code = token.type == "fence"

    def _write_block(self, text: str, span: tuple[int, int]) -> None:
        """Place the text behind the numbers of the list items that it begins; nothing
        where there is neither.
        """
        if text.strip() or self._numbers:
            text = self._without_marks(
                " ".join([*self._numbers, text] if text else self._numbers)
            )
            self._numbers = []
            self._place(text, span)

    def _place(self, text: str, span: tuple[int, int], *, gap: int = 0) -> None:
        gap = max(span[0] - self._end, gap, int(self._after_code))
        self._parts += ["\n" * (gap + 1) if self._parts else "", text]
        self._end, self._after_code = span[1], False

    def _without_marks(self, text: str) -> str:
        """The block with its hidden characters back and no mark of its own; backslashes
        keep the literal ones.
        """
        text_shown = self._shield.show(text)
        if not _MAY_MARK.search(text_shown) or not Document(text_shown).marks:
            return text_shown
        return _remove_marks(self._shield.show(text, escape=True), self._passes - 1)

    def _inline(self, token: "Token") -> str:
        children = token.children or []
        if not any(child.type in _INLINE_MARKS for child in children):
            return token.content
        pieces = self._pieces(children)
        indents = re.findall(r"\n([ \t]*)", token.content)
        if pieces.count("\n") == len(indents):
            pieces = [
                piece + indents.pop(0) if piece == "\n" else piece for piece in pieces
            ]
        return "".join(pieces).strip()

    def _pieces(self, children: list["Token"]) -> list[str]:
        """The words of an inline token, one string per token; every line break is a
        "\\n" of its own.
        """
        pieces: list[str] = []
        open_links: list[tuple[Token, int]] = []
        for child in children:
            match child.type:
                case "link_open":
                    open_links.append((child, len(pieces)))
                case "link_close":
                    link, start = open_links.pop()
                    pieces.append(self._address("".join(pieces[start:]), link, "href"))
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
        """Address and title of a link in brackets, for behind its words; nothing where
        these say the address.
        """
        address, title = (
            str(link.attrs.get(attribute, "")),
            str(link.attrs.get("title", "")),
        )
        if words in (address, address.removeprefix("mailto:")):
            address = ""
        text = " ".join(filter(None, [address, f'"{title}"' if title else ""]))
        return self._shield.literal(f" ({text})" if words and text else text)


def _line_span(token: "Token") -> tuple[int, int]:
    """First line of a block, and the line after its last one."""
    begin, end = token.map or (0, 0)
    return begin, end
