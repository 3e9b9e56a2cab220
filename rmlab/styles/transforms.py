"""Small changes of an answer's style, one step at a time, that leave what it says
alone.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rmlab.styles.prose import plain

_FENCED_CODE = re.compile(
    r"(^ {0,3}(?:```|~~~).*?(?:^ {0,3}(?:```|~~~)[ \t]*$|\Z))", re.DOTALL | re.MULTILINE
)
# To split a text into its paragraphs, with the gap between two of them.
GAP = re.compile(r"(\n[ \t]*\n\s*)")
_ABBREVIATIONS = "".join(
    rf"(?<!\b{word}\.)"
    for word in ("Dr", "Mr", "Mrs", "Ms", "St", "No", "Prof", "vs", "cf", "Fig")
)
# To split running text into sentences; the space between two of them stands at the
# beginning of the second. A stop before a capital or a number, but not after an initial
# ("J. Smith", "e.g. Latin"), or a stop that ends a line.
SENTENCE_END = re.compile(
    rf"{_ABBREVIATIONS}(?:(?<!\b[^\W\d_]\.)(?:(?<=[.!?…])|(?<=[.!?…][\"'”)]))(?=\s+[\"'“(\[]?[A-Z0-9])"
    r"|(?<=[\w)][.!?])(?=\s*$|\n))"
)
_BLOCK = re.compile(
    r"\s*(?:#{1,6}\s|[-*+]\s|\d+[.)]\s|>|\||\$\$|```|~~~)|\t| {4}"
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
    "large big, begins starts, quickly rapidly, often frequently, therefore thus, almost nearly, entire whole, "
    "choose select, however nevertheless, although though, perhaps maybe, exactly precisely, usually normally"
)
_SYNONYM_OF = {
    a: b
    for pair in _SYNONYMS.split(", ")
    for a, b in (pair.split(), pair.split()[::-1])
}
_HAS_SYNONYM = re.compile(
    rf"(?<![\w`*$./\\(=-])(?:{'|'.join(_SYNONYM_OF)})(?![\w`*$/\\()=-])", re.IGNORECASE
)
_SENTENCE_SPACE = re.compile(r"(?<=[a-z][.!?]) (?=[A-Z])")

_ChangePart = Callable[[str, int], str]
"""A paragraph or sentence, and its number among those that are changed, to the new
text.
"""


@dataclass(frozen=True)
class Transform:
    """A change of style. Call it with a text and a number of steps; no steps give the
    text back.

    `steps`: the most it can take. `null`: a control that changes neither substance nor
    what readers call style. Code blocks are never touched. A text that offers no place
    for the change comes back as it was.
    """

    name: str
    change: Callable[[str, int], str]
    steps: int = 5
    null: bool = False

    def __call__(self, text: str, steps: int | None = None) -> str:
        """The text after `steps` of the change, by default all of them."""
        steps = self.steps if steps is None else steps
        if not 0 <= steps <= self.steps:
            raise ValueError(f"steps={steps}: {self.name} takes 0 to {self.steps}")
        return self.change(text, steps) if steps else text


def _change_paragraphs(text: str, steps: int, change: _ChangePart) -> str:
    """Change the first `steps` paragraphs of running text; headings, lists, tables and
    code stay as they are.
    """
    parts = _FENCED_CODE.split(text)  # every second one is code
    pieces = [
        piece
        for i, part in enumerate(parts)
        for piece in ([part] if i % 2 else GAP.split(part))
    ]
    n_changed = 0
    for i, piece in enumerate(pieces):
        paragraph = piece.strip()
        if (
            n_changed < steps
            and paragraph
            and not any(map(_BLOCK.match, piece.split("\n")))
        ):
            pieces[i] = piece.replace(paragraph, change(paragraph, n_changed), 1)
            n_changed += 1
    return "".join(pieces)


def _change_sentences(text: str, steps: int, change: _ChangePart) -> str:
    """Change the first `steps` sentences of running text."""
    n_changed = 0

    def change_paragraph(paragraph: str, _: int) -> str:
        nonlocal n_changed
        sentences = SENTENCE_END.split(paragraph)
        for i, sentence in enumerate(sentences):
            if n_changed < steps and sentence.strip():
                sentences[i] = change(sentence, n_changed)
                n_changed += sentences[i] != sentence
        return "".join(sentences)

    return _change_paragraphs(text, len(text), change_paragraph)


def _list_sentences(paragraph: str, _: int) -> str:
    sentences = [
        sentence.strip().replace("\n", " ")
        for sentence in SENTENCE_END.split(paragraph)
    ]
    return "\n".join(f"- {sentence}" for sentence in sentences if sentence)


def _mark_longest_word(sentence: str, _: int) -> str:
    word = max(
        _LONG_WORD.finditer(sentence), key=lambda match: len(match[0]), default=None
    )
    if word is None or "**" in sentence:
        return sentence
    return f"{sentence[: word.start()]}**{word[0]}**{sentence[word.end() :]}"


def _append_phrase(phrases: tuple[str, ...]) -> _ChangePart:
    """A change that adds a phrase after each of the first sentences."""
    return lambda sentence, i: f"{sentence} {phrases[i]}"


def _swap_synonym(word: re.Match[str]) -> str:
    synonym = _SYNONYM_OF[word[0].lower()]
    return synonym.capitalize() if word[0][0].isupper() else synonym


def _change_all(
    text: str,
    _: int,
    pattern: re.Pattern[str],
    replacement: str | Callable[[re.Match[str]], str],
) -> str:
    """Replace a pattern in all paragraphs of running text."""
    return _change_paragraphs(
        text, len(text), lambda paragraph, _: pattern.sub(replacement, paragraph)
    )


TRANSFORMS: dict[str, Transform] = {
    transform.name: transform
    for transform in (
        Transform("strip_markdown", lambda text, steps: plain(text), steps=1),
        Transform(
            "headings",
            partial(
                _change_paragraphs, change=lambda text, i: f"## {_TITLES[i]}\n\n{text}"
            ),
        ),
        Transform("bold", partial(_change_sentences, change=_mark_longest_word)),
        Transform("bullets", partial(_change_paragraphs, change=_list_sentences)),
        Transform(
            "padding",
            lambda text, steps: f"{text.rstrip()}\n\n{' '.join(FILLERS[:steps])}",
        ),
        Transform("hedging", partial(_change_sentences, change=_append_phrase(HEDGES))),
        Transform(
            "confidence", partial(_change_sentences, change=_append_phrase(ASSURANCES))
        ),
        Transform("emoji", partial(_change_sentences, change=_append_phrase(_EMOJI))),
        Transform(
            "synonyms",
            partial(_change_all, pattern=_HAS_SYNONYM, replacement=_swap_synonym),
            1,
            null=True,
        ),
        Transform(
            "spacing",
            partial(_change_all, pattern=_SENTENCE_SPACE, replacement="  "),
            1,
            null=True,
        ),
        Transform("final_newline", lambda text, steps: text + "\n", steps=1, null=True),
    )
}
"""The changes by name; the last three are the controls."""
