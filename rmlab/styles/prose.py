"""Markdown to plain prose: the same words, numbers and code in order."""

import re
from typing import TYPE_CHECKING

from rmlab.styles.counts import Document
from rmlab.styles.source import show

if TYPE_CHECKING:
    from markdown_it.token import Token

_PASSES = 3  # marks within marks, such as a bold number that begins a list
_STOPS = tuple(".:!?;,…。！？：；؟۔।")
_CLOSERS = "\"'”’)]»"
_PUNCTUATION = re.compile(r"([\\`*_\[\]#|<>~=+.-])")
_FILLED_LINE = re.compile(r"^(?=.*\S)", re.MULTILINE)


def plain(text: str) -> str:
    """Turn Markdown into plain prose; a text without marks comes back as it is.

    Headings become lines that end in a full stop (or in the stop they have); list items
    become lines, numbered ones as "(1) ..."; table rows become lines with semicolons;
    links become "text (address)"; emphasis, quotes and rules go. Fenced code keeps
    every line; where a line of it would read as Markdown the block is indented by four
    spaces.

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
    for _ in range(_PASSES):
        document = Document(text)
        if not document.marks:
            break
        text = show(_remove_marks(document.tokens)).strip("\n") or " "
    return text


def _remove_marks(tokens: list["Token"]) -> str:
    prose = ""
    end = 0  # the line after the last block
    number = ""
    is_heading = False
    for token in tokens:
        start, after = token.map or (0, 0)
        match token.type:
            case "heading_open":
                is_heading = True
            case "list_item_open" if token.info:
                number += f"({token.info}) "
            case "list_item_close" if number:
                prose += "\n" + number.strip()  # an item without words
                number = ""
            case "tbody_open":
                end = start  # the line of hyphens is none of the text
            case "inline":
                words = _inline_text(token)
                if is_heading and not words.rstrip(_CLOSERS).endswith(_STOPS):
                    words += "."
                if words:
                    prose += _separator(start - end) + number + words
                    end = after
                    number = ""
                is_heading = False
            case "fence" | "code_block":
                prose += "\n\n" + number + _code_text(token)
                end = after - 1
                number = ""
    return prose


def _separator(n_lines: int) -> str:
    """What stands between two blocks, the second so many lines below the first."""
    if n_lines < 0:
        return "; "  # cells of one row
    return "\n\n" if n_lines else "\n"


def _code_text(token: "Token") -> str:
    text = token.content.rstrip("\n")
    if token.type == "code_block" or Document(show(text)).marks:
        text = _FILLED_LINE.sub("    ", text)
    return text


def _inline_text(token: "Token") -> str:
    """The words of an inline token; its lines keep their indents."""
    line_breaks = iter(re.findall(r"\n[ \t]*", token.content))
    pieces: list[str] = []
    links: list[tuple[str, int]] = []
    for child in token.children or []:
        match child.type:
            case "link_open":
                links.append((str(child.attrs["href"]), len(pieces)))
            case "link_close":
                address, first = links.pop()
                pieces.append(_in_brackets(address, "".join(pieces[first:])))
            case "image":
                words = _inline_text(child)
                pieces.append(words + _in_brackets(str(child.attrs["src"]), words))
            case "text_special":
                pieces.append(child.markup)  # an escape stays as it is written
            case "softbreak" | "hardbreak":
                pieces.append(next(line_breaks, "\n"))
            case "code_inline" if Document(show(f"a {child.content} b")).marks:
                pieces.append(_PUNCTUATION.sub(r"\\\1", child.content))
            case _:
                pieces.append(child.content)
    return "".join(pieces).strip()


def _in_brackets(address: str, words: str) -> str:
    """The address of a link, for behind its words unless they are the address."""
    if not address or words in (address, address.removeprefix("mailto:")):
        return ""
    return f" ({address})"
