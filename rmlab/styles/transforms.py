"""Small changes of an answer's style, without its substance."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rmlab.styles.prose import plain

_FENCED_CODE = re.compile(
    r"(^ {0,3}(?:```|~~~).*?(?:^ {0,3}(?:```|~~~)[ \t]*$|\Z))", re.DOTALL | re.MULTILINE
)
# To split a text into its paragraphs, with the gap between two of them.
_GAP = re.compile(r"(\n[ \t]*\n\s*)")
_ABBREVIATIONS = ("Dr", "Mr", "Mrs", "Ms", "St", "No", "Prof", "vs", "cf", "Fig")
_NO_ABBREVIATION = "".join(rf"(?<!\b{word}\.)" for word in _ABBREVIATIONS)
# To split running text into sentences; the space between two of them stands at the
# beginning of the second. A stop before a capital or a number, but not after an initial
# ("J. Smith", "e.g. Latin"), or a stop that ends a line.
_SENTENCE_END = re.compile(
    rf"{_NO_ABBREVIATION}"
    r"(?:(?<!\b[^\W\d_]\.)(?:(?<=[.!?…])|(?<=[.!?…][\"'”)]))(?=\s+[\"'“(\[]?[A-Z0-9])"
    r"|(?<=[\w)][.!?])(?=\s*$|\n))"
)
_BLOCK = re.compile(
    r"\s*(?:#{1,6}\s|[-*+]\s|\d+[.)]\s|>|\||\$\$|```|~~~)|\t| {4}"
    r"|(?:def|class|import|from|function|const|let|var|public|static|return|#include)\b"
    r".*[:;({})=]|[})]"
)
_LONG_WORD = re.compile(r"(?<![\w*`$\\/<@.-])[^\W\d_]{4,}(?![:.]?[\w*`$\\/>@-])")

_MOST = 5  # places of a text that a change takes
_TITLES = ("Answer", "Explanation", "Details", "Further details", "In more depth")
FILLERS = (
    "I hope that this is of use to you.",
    "There is always more that could be said about this.",
    "As you can see, several things come together here.",
    "It is worth taking a moment to think about this.",
    "Please let me know if anything is unclear.",
)
HEDGES = (
    "I may be wrong about this.",
    "At least, that is how it seems to me.",
    "This is only my impression.",
    "Others may see it differently.",
    "It would be wise to check this.",
)
ASSURANCES = (
    "I am sure of this.",
    "There is no doubt about it.",
    "You can rely on this.",
    "This is certain.",
    "This is beyond question.",
)
_EMOJI = ("🙂", "✨", "👍", "🎉", "🚀")
_SYNONYMS = {
    "large": "big",
    "begins": "starts",
    "quickly": "rapidly",
    "often": "frequently",
    "therefore": "thus",
    "almost": "nearly",
    "entire": "whole",
    "choose": "select",
    "however": "nevertheless",
    "although": "though",
    "perhaps": "maybe",
    "exactly": "precisely",
    "usually": "normally",
}
_SYNONYMS |= {synonym: word for word, synonym in _SYNONYMS.items()}
_HAS_SYNONYM = re.compile(
    rf"(?<![\w`*$./\\(=-])(?:{'|'.join(_SYNONYMS)})(?![\w`*$/\\()=-])",
    re.IGNORECASE,
)
_SENTENCE_SPACE = re.compile(r"(?<=[a-z][.!?]) (?=[A-Z])")

_ChangePart = Callable[[str, int], str]
"""From a part of a text, and its number among those that change, to the new part."""


@dataclass(frozen=True)
class Transform:
    """A change of style, called with a text.

    `null`: a control that changes neither substance nor what readers call style. Code
    blocks are never touched, and a text that offers no place for the change comes back
    as it was.
    """

    name: str
    change: Callable[[str], str]
    null: bool = False

    def __call__(self, text: str) -> str:
        """The text after the change."""
        return self.change(text)


def _change_paragraphs(text: str, change: _ChangePart, most: int = _MOST) -> str:
    """Change the first paragraphs of running text.

    Headings, lists, tables and code stay as they are.
    """
    pieces = []
    for i, part in enumerate(_FENCED_CODE.split(text)):
        is_code = i % 2 == 1
        pieces += [part] if is_code else _GAP.split(part)

    n_changed = 0
    for i, piece in enumerate(pieces):
        if n_changed < most and _is_running_text(piece):
            paragraph = piece.strip()
            pieces[i] = piece.replace(paragraph, change(paragraph, n_changed), 1)
            n_changed += 1
    return "".join(pieces)


def _is_running_text(piece: str) -> bool:
    if not piece.strip():
        return False
    return not any(_BLOCK.match(line) for line in piece.split("\n"))


def _change_sentences(text: str, change: _ChangePart) -> str:
    """Change the first sentences of running text that the change has a place in."""
    n_changed = 0

    def change_paragraph(paragraph: str, _: int) -> str:
        nonlocal n_changed
        sentences = _SENTENCE_END.split(paragraph)
        for i, sentence in enumerate(sentences):
            if n_changed < _MOST and sentence.strip():
                sentences[i] = change(sentence, n_changed)
                n_changed += sentences[i] != sentence
        return "".join(sentences)

    return _change_paragraphs(text, change_paragraph, len(text))


def _change_matches(
    text: str,
    pattern: re.Pattern[str],
    replacement: str | Callable[[re.Match[str]], str],
) -> str:
    """Replace a pattern in all paragraphs of running text."""

    def change_paragraph(paragraph: str, _: int) -> str:
        return pattern.sub(replacement, paragraph)

    return _change_paragraphs(text, change_paragraph, len(text))


def _add_title(paragraph: str, i: int) -> str:
    return f"## {_TITLES[i]}\n\n{paragraph}"


def _mark_longest_word(sentence: str, _: int) -> str:
    words = list(_LONG_WORD.finditer(sentence))
    if not words or "**" in sentence:
        return sentence
    longest = max(words, key=lambda word: len(word[0]))
    before = sentence[: longest.start()]
    after = sentence[longest.end() :]
    return f"{before}**{longest[0]}**{after}"


def _list_sentences(paragraph: str, _: int) -> str:
    items = []
    for sentence in _SENTENCE_END.split(paragraph):
        item = sentence.strip().replace("\n", " ")
        if item:
            items.append(f"- {item}")
    return "\n".join(items)


def _pad(text: str) -> str:
    return f"{text.rstrip()}\n\n{' '.join(FILLERS)}"


def _append_phrase(phrases: tuple[str, ...]) -> _ChangePart:
    """A change that adds a phrase after each of the first sentences."""
    return lambda sentence, i: f"{sentence} {phrases[i]}"


def _swap_synonym(word: re.Match[str]) -> str:
    synonym = _SYNONYMS[word[0].lower()]
    return synonym.capitalize() if word[0][0].isupper() else synonym


def _end_line(text: str) -> str:
    return text + "\n"


_CHANGES: dict[str, Callable[[str], str]] = {
    "strip_markdown": plain,
    "headings": partial(_change_paragraphs, change=_add_title),
    "bold": partial(_change_sentences, change=_mark_longest_word),
    "bullets": partial(_change_paragraphs, change=_list_sentences),
    "padding": _pad,
    "hedging": partial(_change_sentences, change=_append_phrase(HEDGES)),
    "confidence": partial(_change_sentences, change=_append_phrase(ASSURANCES)),
    "emoji": partial(_change_sentences, change=_append_phrase(_EMOJI)),
    "synonyms": partial(
        _change_matches, pattern=_HAS_SYNONYM, replacement=_swap_synonym
    ),
    "spacing": partial(_change_matches, pattern=_SENTENCE_SPACE, replacement="  "),
    "final_newline": _end_line,
}
_CONTROLS = ("synonyms", "spacing", "final_newline")
TRANSFORMS = {
    name: Transform(name, change, name in _CONTROLS)
    for name, change in _CHANGES.items()
}
"""The changes of an answer by name."""
