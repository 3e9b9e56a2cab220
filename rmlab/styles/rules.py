"""Concise, plain and Markdown versions of every answer by rule, each one checked."""

import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

import pandas as pd

from rmlab import tables
from rmlab.styles.counts import Document, features_of, unify_line_ends
from rmlab.styles.prose import plain
from rmlab.styles.source import is_code_line
from rmlab.styles.transforms import GAP, SENTENCE_END
from rmlab.tables import KEY, PROMPT, STYLES, DataError

_TOO_SHORT = "every sentence would stay: it cannot be shorter"
_SAME_TEXT = "the same text as a chosen answer"
_CONCISE_RULE = (
    "concise from plain: first sentence, and those with numbers, negations or code"
)
_NUMBER = re.compile(
    r"\d+(?:[.,:/]\d+)*|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
    r"|dozens?|half|twice|hundreds?|thousands?|millions?|billions?)\b",
    re.IGNORECASE,
)
_NEGATION = re.compile(
    r"\b(?:no|not|never|none|neither|nor|nothing|nobody|nowhere|without|cannot|unable"
    r"|refuse[ds]?|fail(?:s|ed)?|avoid(?:s|ed)?|except|unless|hardly|barely)\b"
    r"|n['’]t\b",
    re.IGNORECASE,
)
_SUBSTANCE = {"numbers": _NUMBER, "negations": _NEGATION}
_WORD = re.compile(r"\w+")
_OTHER_CODE_LINE = re.compile(
    r"\s*(?:#\s*(?:include|define|pragma|ifn?def|endif)\b|#!|use \w+::|package \w+"
    r"|</?\w+[^>]*>|\$ \w|(?:struct|impl|pub|type|namespace) .*[{;=])"
)


class Restyled(NamedTuple):
    """Answers in three styles, and a report of texts without a safe version in one."""

    responses: pd.DataFrame
    report: pd.DataFrame


def restyle_pairs(responses: pd.DataFrame) -> Restyled:
    """Make a three-style version of a pair set by rule, to get its 3x3 matrix.

    Every answer of slot k becomes three, in the slots 3k (concise), 3k + 1 (plain) and
    3k + 2 (markdown):

    - plain: the text itself, or without its Markdown (`styles.prose.plain`) where it
      has any;
    - markdown: the text itself, or with its first sentence in bold, sentences and lines
      as list items and code in fences where it has no Markdown;
    - concise: the first sentence of the plain text, all code, and every later sentence
      with a number or a negation.

    Each text is checked: numbers, negations and code must be those of the original;
    Markdown turned back into prose must be the plain text, a plain text must have all
    words of the Markdown one, a concise one must be shorter. A prompt with a text that
    fails is left out.

    Rules do not know what an answer says: a concise text may lack the point on which
    chosen and rejected differ (reported only where they become equal). Look at some
    before you trust the matrix.

    Parameters
    ----------
    responses : DataFrame
        A table of responses without styles, as `load_preferences` returns.

    Returns
    -------
    Restyled
        `responses`, a table of responses with a column `rule` ("as given", or what was
        done), whose benchmark's name ends in "(restyled by rule)"; and `report`, one
        row per text that fails a check: benchmark, domain, id, label, slot, style,
        reason.

    Raises
    ------
    DataError
        Where answers have styles already, or no prompt is left.

    Examples
    --------
    >>> pair = pd.DataFrame(
    ...     {
    ...         "benchmark": "mine",
    ...         "domain": "d",
    ...         "id": "0",
    ...         "label": ["chosen", "rejected"],
    ...         "slot": 0,
    ...         "prompt": "When?",
    ...         "response": ["It opens at 9. Bring a coat.", "At noon. Who knows?"],
    ...     }
    ... )
    >>> restyle_pairs(pair).responses["response"].iloc[0]
    'It opens at 9.'
    """
    responses = tables.check_responses(responses)
    if responses["style"].notna().any():
        problem = "responses: answers have styles already"
        raise DataError(problem, "pass pairs without, as load_preferences gives")

    versions = {text: _restyle_text(text) for text in responses["response"].unique()}
    report = _report_problems(responses, versions)
    prompts = pd.MultiIndex.from_frame(responses[PROMPT])
    has_problem = prompts.isin(pd.MultiIndex.from_frame(report[PROMPT]))
    if has_problem.all():
        reasons = report["reason"].value_counts().to_dict()
        problem = "responses: no prompt could be restyled safely"
        raise DataError(problem, f"texts by reason: {reasons}")

    safe = responses[~has_problem]
    by_style = []
    for place, style in enumerate(STYLES):
        rows = [versions[text][style] for text in safe["response"]]
        version = pd.DataFrame(rows, index=safe.index)
        restyled = safe.assign(
            benchmark=safe["benchmark"] + " (restyled by rule)",
            slot=3 * safe["slot"] + place,
            style=style,
            response=version["text"],
            rule=version["rule"],
        )
        by_style.append(restyled)
    answers = pd.concat(by_style).sort_index(kind="stable")
    answers = answers.reset_index(drop=True)
    return Restyled(tables.check_responses(answers), report)


class _Version(NamedTuple):
    """A text in one style, the rule that made it, and why it would not say the same."""

    text: str
    rule: str
    problem: str = ""


def _restyle_text(text: str) -> dict[str, _Version]:
    """The versions of a text by style."""
    if features_of(text)["markdown"]:
        code = _list_code(text)
        plain_version = _make_plain(text, code)
        markdown_version = _Version(text, "as given")
    else:
        code = _list_code_lines(text)
        plain_version = _Version(text, "as given")
        markdown_version = _make_markdown(text)
    return {
        "plain": plain_version,
        "markdown": markdown_version,
        "concise": _make_concise(plain_version.text, code),
    }


def _make_plain(markdown: str, code: list[str]) -> _Version:
    text = plain(markdown)
    problem = _find_loss(markdown, text, code) or _find_lost_words(markdown, text)
    return _Version(text, "plain from Markdown", problem)


def _make_markdown(plain_text: str) -> _Version:
    text = _add_markdown(plain_text)
    problem = ""
    if not features_of(text)["markdown"]:
        problem = "no place for Markdown"
    elif plain(text).split() != plain_text.split():
        problem = "the Markdown does not turn back into the text"
    return _Version(text, "Markdown from plain", problem)


def _make_concise(plain_text: str, code: list[str]) -> _Version:
    text = _shorten(plain_text, code)
    problem = _find_loss(plain_text, text, code)
    if not problem and _count_characters(text) >= _count_characters(plain_text):
        problem = _TOO_SHORT
    return _Version(text, _CONCISE_RULE, problem)


def _count_characters(text: str) -> int:
    """Characters of a text, any white space as one of them."""
    words = text.split()
    return len(" ".join(words))


def _report_problems(
    responses: pd.DataFrame, versions: dict[str, dict[str, _Version]]
) -> pd.DataFrame:
    """One row per answer and style without a safe version.

    A rejected answer has none in a style in which it becomes a chosen one.
    """
    is_chosen = responses["label"] == "chosen"
    chosen = responses.loc[is_chosen, [*PROMPT, "response"]]
    chosen_texts = set()
    for *prompt, text in chosen.itertuples(index=False):
        for style, version in versions[text].items():
            chosen_texts.add((*prompt, style, version.text))

    rows = []
    for answer in responses[[*KEY, "response"]].to_dict("records"):
        by_style = versions[answer["response"]]
        for style, version in by_style.items():
            if version.problem:
                rows.append(answer | {"style": style, "reason": version.problem})
        if answer["label"] == "chosen":
            continue
        prompt = [answer[column] for column in PROMPT]
        for style in STYLES:
            if (*prompt, style, by_style[style].text) in chosen_texts:
                rows.append(answer | {"style": style, "reason": _SAME_TEXT})
    return pd.DataFrame(rows, columns=[*KEY, "style", "reason"])


def _add_markdown(text: str) -> str:
    """Plain prose with list items, a first sentence in bold, and code in fences."""
    parts = []
    for i, block in enumerate(_split_blocks(text)):
        if block.is_code:
            parts.append(_fence(block.text))
        else:
            parts += _mark_prose(block.text, is_first=i == 0)
    return _join_filled("\n\n", parts)


def _fence(block: str) -> str:
    """The block in a fence, if every line of it looks like code."""
    lines = block.split("\n")
    if all(_looks_like_code(line) for line in lines):
        return f"```\n{block}\n```"
    return block


def _mark_prose(block: str, *, is_first: bool) -> list[str]:
    """Paragraphs of a block: its lines, or else its sentences, as items of a list."""
    pieces = block.split("\n")
    if len(pieces) == 1:
        pieces = SENTENCE_END.split(block)
    items = _strip_filled(pieces) or [""]
    if is_first:
        return [f"**{items[0]}**", _list_items(items[1:])]
    if len(items) > 1:
        return [_list_items(items)]
    return items


def _list_items(items: list[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _shorten(text: str, code: list[str]) -> str:
    """The first sentence of plain prose, all code, and later sentences that matter."""
    has_first = False
    parts = []
    for block in _split_blocks(text, code):
        if block.is_code:
            parts.append(block.text)
            continue
        lines = []
        for line in block.text.split("\n"):
            sentences = []
            for sentence in _strip_filled(SENTENCE_END.split(line)):
                if not has_first or _matters(sentence, code):
                    sentences.append(sentence)
                    has_first = has_first or not sentence.endswith(":")
            lines.append(" ".join(sentences))
        parts.append(_join_filled("\n", lines))
    return _join_filled("\n\n", parts)


def _matters(sentence: str, code: list[str]) -> bool:
    """Whether a sentence has a number, a negation or code."""
    if _NUMBER.search(sentence) or _NEGATION.search(sentence):
        return True
    return any(piece in sentence for piece in code)


class _Block(NamedTuple):
    text: str
    is_code: bool


def _split_blocks(text: str, code: Collection[str] = ()) -> list[_Block]:
    """Blocks of a text; code are those with a line of code, and those between two."""
    text = unify_line_ends(text).strip("\n")
    texts = GAP.split(text)[::2]  # without the gaps
    has_code = [_has_code(block, code) for block in texts]
    blocks = []
    for i, block in enumerate(texts):
        is_inside = 0 < i < len(texts) - 1
        is_between = is_inside and has_code[i - 1] and has_code[i + 1]
        blocks.append(_Block(block, has_code[i] or is_between))
    return blocks


def _has_code(block: str, code: Collection[str]) -> bool:
    """Whether a line looks like code, or is one of these pieces of code."""
    lines = block.split("\n")
    return any(_looks_like_code(line) or line.strip() in code for line in lines)


def _list_code(text: str) -> list[str]:
    """Code of a Markdown text: the lines of its blocks and its inline pieces."""
    document = Document(text)
    pieces: list[str] = []
    for token in document.tokens:
        if token.type in ("fence", "code_block"):
            pieces += token.content.split("\n")
        for child in token.children or []:
            if child.type == "code_inline":
                pieces.append(child.content)
    return _strip_filled(document.shield.show(piece) for piece in pieces)


def _list_code_lines(text: str) -> list[str]:
    """Lines of a plain text's blocks of code."""
    lines: list[str] = []
    for block in _split_blocks(text):
        if block.is_code:
            lines += block.text.split("\n")
    return [line.strip() for line in lines]


def _looks_like_code(line: str) -> bool:
    if line.startswith(("    ", "\t")) or is_code_line(line):
        return True
    return _OTHER_CODE_LINE.match(line) is not None


def _find_loss(before: str, after: str, code: Iterable[str]) -> str:
    """Which of the numbers, negations and code differ; empty where none does."""
    for name, pattern in _SUBSTANCE.items():
        words_before = pattern.findall(before.lower())
        words_after = pattern.findall(after.lower())
        difference = _count_difference(words_before, words_after)
        if difference:
            return f"{name} would change: {difference}"
    for piece in code:
        if piece not in after:
            return f"code would change: {piece[:60]}"
    return ""


def _find_lost_words(before: str, after: str) -> str:
    """Words that only a Markdown text or only its plain version has.

    The names of fences' languages do not count.
    """
    document = Document(before)
    fences = [token.info for token in document.tokens if token.type == "fence"]
    languages = document.shield.show(" ".join(fences))
    words_before = _WORD.findall(before)
    words_after = _WORD.findall(f"{after} {languages}")
    difference = _count_difference(words_before, words_after)
    return f"words would change: {difference}" if difference else ""


def _count_difference(before: list[str], after: list[str]) -> str:
    """Up to five words of which one list has more than the other."""
    lost = Counter(before) - Counter(after)
    gained = Counter(after) - Counter(before)
    words = sorted((lost + gained).elements())
    return ", ".join(words[:5])


def _strip_filled(pieces: Iterable[str]) -> list[str]:
    """The pieces without the white space around them, and without empty ones."""
    stripped = [piece.strip() for piece in pieces]
    return [piece for piece in stripped if piece]


def _join_filled(separator: str, parts: list[str]) -> str:
    return separator.join(part for part in parts if part)
