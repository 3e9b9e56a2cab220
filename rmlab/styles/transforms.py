"""Small changes of an answer's style, one step at a time, that leave what it says alone."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from rmlab.styles.prose import plain

__all__ = ["ASSURANCES", "FILLERS", "HEDGES", "TRANSFORMS", "Transform"]

_FENCE = re.compile(r"(^ {0,3}(?:```|~~~).*?(?:^ {0,3}(?:```|~~~)[ \t]*$|\Z))", re.DOTALL | re.MULTILINE)
_PARAGRAPH = re.compile(r"(\n[ \t]*\n\s*)")
_TITLE = "".join(rf"(?<!\b{word}\.)" for word in ("Dr", "Mr", "Ms", "St", "No", "vs", "Mrs", "Prof"))
_STOP = re.compile(rf"{_TITLE}(?:(?<=[^\W\d_]{{2}}[.!?])(?=\s+[A-Z]|\s*$)|(?<=[\w)][.!?])(?=\n|\s*$))")
_BLOCK = re.compile(
    r"\s*(?:#{1,6}\s|[-*+]\s|\d+[.)]\s|>|\||\$\$)|\t| {4}"
    r"|(?:def|class|import|from|function|const|let|var|public|static|return|#include)\b.*[:;({})=]|[})]"
)
_LONG_WORD = re.compile(r"(?<![\w*`$\\/<@.-])[^\W\d_]{4,}(?![:.]?[\w*`$\\/>@-])")

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
_SYNONYMS = (
    ("large", "big"), ("begins", "starts"), ("quickly", "rapidly"), ("often", "frequently"), ("therefore", "thus"),
    ("almost", "nearly"), ("entire", "whole"), ("choose", "select"), ("however", "nevertheless"),
    ("although", "though"), ("perhaps", "maybe"), ("exactly", "precisely"), ("usually", "normally"),
)  # fmt: skip
_SWAP = {a: b for pair in _SYNONYMS for a, b in (pair, pair[::-1])}
_SWAPPED = re.compile(rf"(?<![\w`*$./\\(=-])(?:{'|'.join(_SWAP)})(?![\w`*$/\\()=-])", re.IGNORECASE)


@dataclass(frozen=True)
class Transform:
    """A change of style. Call it with a text and a number of steps; no steps give the text back.

    `steps`: the most it can take. `null`: a control that changes neither substance nor what readers call style.
    Code blocks are never touched. A text that offers no place for the change comes back as it was.
    """

    name: str
    change: Callable[[str, int], str]
    steps: int = 5
    null: bool = False

    def __call__(self, text: str, steps: int | None = None) -> str:
        """The text after `steps` of the change, by default all of them."""
        wanted = self.steps if steps is None else steps
        if not 0 <= wanted <= self.steps:
            raise ValueError(f"steps={steps}: {self.name} takes 0 to {self.steps}")
        return self.change(text, wanted) if wanted else text


def _headings(text: str, steps: int) -> str:
    """A heading before each of the first paragraphs that has none."""

    def titled(paragraph: str, number: int) -> str:
        return f"## {_TITLES[number]}\n\n{paragraph}"

    return _paragraphs(text, steps, titled)


def _bullets(text: str, steps: int) -> str:
    """The sentences of each of the first paragraphs as list items."""

    def listed(paragraph: str, number: int) -> str:
        found = [sentence.strip().replace("\n", " ") for sentence in _STOP.split(paragraph)]
        return "\n".join(f"- {sentence}" for sentence in found if sentence)

    return _paragraphs(text, steps, listed)


def _bold(text: str, steps: int) -> str:
    """The longest word of each of the first sentences in bold."""

    def marked(sentence: str, number: int) -> str:
        words = list(_LONG_WORD.finditer(sentence))
        if not words or "**" in sentence:
            return sentence
        word = max(words, key=lambda found: len(found.group()))
        return f"{sentence[: word.start()]}**{word.group()}**{sentence[word.end() :]}"

    return _sentences(text, steps, marked)


def _after(phrases: tuple[str, ...]) -> Callable[[str, int], str]:
    """A phrase after each of the first sentences."""

    def change(text: str, steps: int) -> str:
        return _sentences(text, steps, lambda sentence, number: f"{sentence} {phrases[number]}")

    return change


def _padding(text: str, steps: int) -> str:
    """Sentences that say nothing, in a paragraph at the end."""
    return f"{text.rstrip()}\n\n{' '.join(FILLERS[:steps])}"


def _synonyms(text: str, steps: int) -> str:
    """Some common words exchanged for others of the same meaning, in both directions."""

    def other(found: re.Match[str]) -> str:
        word = _SWAP[found.group().lower()]
        return word.capitalize() if found.group()[0].isupper() else word

    return _paragraphs(text, len(text), lambda part, number: _SWAPPED.sub(other, part))


def _spacing(text: str, steps: int) -> str:
    """Two spaces instead of one between the sentences of a line."""
    return _paragraphs(text, len(text), lambda part, number: re.sub(r"(?<=[a-z][.!?]) (?=[A-Z])", "  ", part))


def _final_newline(text: str, steps: int) -> str:
    return text + "\n"


def _prose(text: str, change: Callable[[str], str]) -> str:
    """Apply to everything outside code blocks."""
    parts = _FENCE.split(text)
    return "".join(part if number % 2 else change(part) for number, part in enumerate(parts))


def _paragraphs(text: str, steps: int, change: Callable[[str, int], str]) -> str:
    """Apply to the first `steps` paragraphs of running text; headings, lists, tables and code are passed by."""
    done = 0

    def part(source: str) -> str:
        nonlocal done
        pieces = _PARAGRAPH.split(source)
        for number in range(0, len(pieces), 2):
            piece = pieces[number]
            if done < steps and piece.strip() and not any(_BLOCK.match(line) for line in piece.split("\n")):
                lead = piece[: len(piece) - len(piece.lstrip())]
                tail = piece[len(piece.rstrip()) :]
                pieces[number] = lead + change(piece.strip(), done) + tail
                done += 1
        return "".join(pieces)

    return _prose(text, part)


def _sentences(text: str, steps: int, change: Callable[[str, int], str]) -> str:
    """Apply to the first `steps` sentences of running text."""
    done = 0

    def paragraph(source: str, number: int) -> str:
        nonlocal done
        pieces = _STOP.split(source)
        for k, piece in enumerate(pieces):
            if done < steps and piece.strip():
                pieces[k] = change(piece, done)
                done += pieces[k] != piece
        return "".join(pieces)

    return _paragraphs(text, len(text), paragraph)


TRANSFORMS: dict[str, Transform] = {
    made.name: made
    for made in (
        Transform("strip_markdown", lambda text, steps: plain(text), steps=1),
        Transform("headings", _headings),
        Transform("bold", _bold),
        Transform("bullets", _bullets),
        Transform("padding", _padding),
        Transform("hedging", _after(HEDGES)),
        Transform("confidence", _after(ASSURANCES)),
        Transform("emoji", _after(_EMOJI)),
        Transform("synonyms", _synonyms, steps=1, null=True),
        Transform("spacing", _spacing, steps=1, null=True),
        Transform("final_newline", _final_newline, steps=1, null=True),
    )
}
"""The changes by name; the last three are the controls."""
