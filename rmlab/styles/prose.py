"""Markdown to plain prose: the same words, numbers and code in the same order, without a mark."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import pandas as pd

from rmlab import tables
from rmlab.styles.counts import marks, parse, unified
from rmlab.styles.source import Shield

if TYPE_CHECKING:
    from markdown_it.token import Token

__all__ = ["plain", "restyle"]

_PASSES = 8
_STOPS = tuple(".:!?;,…。！？：；؟۔।")
_CLOSERS = "\"'”’)]»"
_PUNCTUATION = re.compile(r"([\\`*_\[\]()#|<>~=+.!-])")
_MAY_MARK = re.compile(r"[*_`\[<#|~>=+-]|\d[.)]")
_INLINE_MARKS = frozenset({"strong_open", "em_open", "code_inline", "link_open", "image"})


def restyle(responses: pd.DataFrame, to: Literal["plain"] = "plain") -> pd.DataFrame:
    """A new responses table whose texts are plain prose (see `plain`); one row per response, same keys and order.

    The style of every row becomes plain, a missing one too. Raises DataError for another `to`.
    """
    if to != "plain":
        raise tables.DataError(f"to: {to!r} is not a style to turn texts into; {tables.nearest(to, ['plain'])}")
    responses = tables.check_responses(responses)
    known = {text: plain(text) for text in responses["response"].unique()}
    styles = pd.Categorical(["plain"] * len(responses), dtype=tables.STYLE)
    return responses.assign(response=responses["response"].map(known), style=styles)


def plain(text: str) -> str:
    """Turn Markdown into plain prose. Deterministic; a text without marks comes back as it is, so idempotent.

    Headings become lines that end in a full stop (or their own stop); list items become lines, numbered ones as
    "(1) ..."; table rows become lines with semicolons; links become "text (address)"; emphasis, quotes and rules go.
    Fenced code keeps every line; where a line of it would read as Markdown the block is indented by four spaces.
    Inline code that would read as Markdown is written with backslashes. `features_of` of the result counts no mark.
    A text that is nothing but marks becomes one space.

    >>> print(plain("## Soil\\n1. **Sand**: see [here](https://example.org)\\n2. `perlite`"))
    Soil.
    (1) Sand: see here (https://example.org)
    (2) perlite
    """
    return _plain(text, _PASSES)


def _plain(text: str, passes: int) -> str:
    shield = Shield(text)
    source = shield.hide(unified(text))
    tokens = parse(source)
    if not marks(tokens):
        return text
    if passes == 0:
        # Marks within marks within marks: what is left now is written out literally.
        return _PUNCTUATION.sub(r"\\\1", text)
    return _plain(_Writer(shield, source, passes).write(tokens) or " ", passes - 1)


class _Writer:
    """Writes the tokens of one text as blocks of plain lines, at the distances they have in the source."""

    def __init__(self, shield: Shield, source: str, passes: int) -> None:
        self._passes = passes
        self._shield = shield
        self._lines = source.split("\n")
        self._parts: list[str] = []
        self._end = 0
        self._apart = False
        self._numbers: list[str] = []

    def write(self, tokens: list["Token"]) -> str:
        heading: tuple[int, int] | None = None
        row: list[str] | None = None
        lines = (0, 0)
        for token in tokens:
            match token.type:
                case "heading_open":
                    heading = _map(token)
                case "list_item_open" if token.info:
                    self._numbers.append(f"({token.info})")
                case "list_item_close":
                    self._flush_numbers()
                case "tr_open":
                    row, lines = [], _map(token)
                case "tr_close":
                    self._block("; ".join(cell for cell in row or [] if cell), lines)
                    row = None
                case "inline" if row is not None:
                    row.append(self._inline(token))
                case "inline":
                    self._prose(token, heading)
                    heading = None
                case "fence" | "code_block":
                    self._code(token)
                case "hr":
                    self._end = _map(token)[1]
                case "tbody_open":
                    self._end = _map(token)[0]
        self._flush_numbers()
        return "".join(self._parts).strip("\n")

    def _prose(self, token: "Token", heading: tuple[int, int] | None) -> None:
        text = self._inline(token)
        if heading:
            text = _stopped(text)
        elif token.level == 1 and text == token.content:
            text = "\n".join(self._lines[slice(*_map(token))])
        self._block(text, heading or _map(token))

    def _code(self, token: "Token") -> None:
        """A fence loses its fence; indented code, in a list or not, stays indented."""
        lines = _map(token)
        if token.type == "code_block" and token.level == 0:
            text = "\n".join(self._lines[slice(*lines)]).rstrip()
        else:
            text = token.content.rstrip("\n")
            if token.type == "code_block" or _has_marks(self._shield.show(text)):
                text = "\n".join("    " + line if line.strip() else line for line in text.split("\n"))
        if text.strip():
            self._flush_numbers()
            self._place(self._shield.show(text), lines, apart=True)
            self._apart = token.type == "fence"

    def _flush_numbers(self) -> None:
        if self._numbers:
            self._block("", (self._end, self._end))

    def _block(self, text: str, lines: tuple[int, int]) -> None:
        if not text.strip() and not self._numbers:
            return
        text = " ".join([*self._numbers, text] if text else self._numbers)
        self._numbers = []
        self._place(self._settled(text), lines)

    def _place(self, text: str, lines: tuple[int, int], *, apart: bool = False) -> None:
        gap = max(lines[0] - self._end, 1 if apart or self._apart else 0)
        self._parts += ["\n" * (gap + 1) if self._parts else "", text]
        self._end, self._apart = lines[1], False

    def _settled(self, text: str) -> str:
        """The block with its hidden characters back and no mark of its own; backslashes keep the literal ones."""
        shown = self._shield.show(text)
        if not _MAY_MARK.search(shown) or not _has_marks(shown):
            return shown
        return _plain(self._shield.show(text, escape=True), self._passes - 1)

    def _inline(self, token: "Token") -> str:
        children = token.children or []
        if not any(child.type in _INLINE_MARKS for child in children):
            return token.content
        pieces = list(self._pieces(children))
        indents = [re.match(r"[ \t]*", line)[0] for line in token.content.split("\n")[1:]]  # type: ignore[index]
        if pieces.count("\n") != len(indents):
            return "".join(pieces).strip()
        left = iter(indents)
        return "".join(piece + next(left) if piece == "\n" else piece for piece in pieces).strip()

    def _pieces(self, children: list["Token"]) -> Iterator[str]:
        """The words of an inline token, one string per token; every line break is its own "\\n"."""
        opened: list[tuple[Token, list[str]]] = []
        for child in children:
            piece = self._piece(child)
            if child.type == "link_open":
                opened.append((child, []))
            elif child.type == "link_close":
                link, words = opened.pop()
                yield self._address("".join(words), link, "href")
            elif piece:
                for _, words in opened:
                    words.append(piece)
                yield piece

    def _piece(self, child: "Token") -> str:
        match child.type:
            case "text_special":
                return child.markup
            case "softbreak" | "hardbreak":
                return "\n"
            case "code_inline":
                return self._shield.literal(child.content)
            case "image":
                words = "".join(self._pieces(child.children or []))
                return words + self._address(words, child, "src")
            case _:
                return child.content

    def _address(self, words: str, link: "Token", attribute: str) -> str:
        """What follows the words of a link: its address and title in brackets, nothing where they say the same."""
        address, title = str(link.attrs.get(attribute, "")), str(link.attrs.get("title", ""))
        parts = [
            address if words not in (address, address.removeprefix("mailto:")) else "",
            f'"{title}"' if title else "",
        ]
        said = " ".join(part for part in parts if part)
        return self._shield.literal(f" ({said})" if words else said) if said else ""


def _has_marks(text: str) -> bool:
    return bool(marks(parse(Shield(text).hide(text))))


def _stopped(text: str) -> str:
    return text if not text or text.rstrip(_CLOSERS).endswith(_STOPS) else text + "."


def _map(token: "Token") -> tuple[int, int]:
    begin, end = token.map or (0, 0)
    return begin, end
