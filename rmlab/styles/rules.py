"""Three styles of any pair set by rule: concise, plain and Markdown versions of every
answer, each one checked.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import pandas as pd

from rmlab import tables
from rmlab.styles.counts import Document, features_of, unify_line_ends
from rmlab.styles.prose import plain
from rmlab.styles.source import is_code_line
from rmlab.styles.transforms import GAP, SENTENCE_END
from rmlab.tables import KEY, PROMPT, STYLES, DataError

_TOO_SHORT = "every sentence would stay: it cannot be shorter"
_CONCISE_RULE = (
    "concise from plain: first sentence, and those with numbers, negations or code"
)
_NUMBER = re.compile(
    r"\d+(?:[.,:/]\d+)*|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozens?|half|twice|hundreds?"
    r"|thousands?|millions?|billions?)\b",
    re.IGNORECASE,
)
_NEGATION = re.compile(
    r"\b(?:no|not|never|none|neither|nor|nothing|nobody|nowhere|without|cannot|unable|refuse[ds]?|fail(?:s|ed)?"
    r"|avoid(?:s|ed)?|except|unless|hardly|barely)\b|n['’]t\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+")
_OTHER_CODE_LINE = re.compile(
    r"\s*(?:#\s*(?:include|define|pragma|ifn?def|endif)\b|#!|use \w+::|package \w+|</?\w+[^>]*>|\$ \w"
    r"|(?:struct|impl|pub|type|namespace) .*[{;=])"
)


class Restyled(NamedTuple):
    """The result of `restyle_pairs`: answers in three styles, and the texts that have
    no safe version in a style.
    """

    responses: pd.DataFrame
    report: pd.DataFrame


def restyle_pairs(responses: pd.DataFrame) -> Restyled:
    """Make a three-style version of a pair set by rule, so that it has a 3x3 matrix of
    its own.

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
        A table of responses without styles, as `load_pairs` returns.

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
    >>> pair = {"benchmark": "mine", "domain": "d", "id": "0", "slot": 0, "prompt": "When?"}
    >>> texts = {"chosen": "It opens at 9. Trains run often. Bring a coat.", "rejected": "At noon. Or so. Who knows?"}
    >>> rows = [pair | {"label": label, "response": text} for label, text in texts.items()]
    >>> restyle_pairs(pd.DataFrame(rows)).responses["response"].iloc[0]
    'It opens at 9.'
    """
    responses = tables.check_responses(responses)
    if responses["style"].notna().any():
        raise DataError(
            "responses: answers have styles already; pass pairs without, as load_pairs gives"
        )
    versions = {text: _restyle_text(text) for text in responses["response"].unique()}
    report = _report_problems(responses, versions)
    has_problem = pd.MultiIndex.from_frame(responses[PROMPT]).isin(
        pd.MultiIndex.from_frame(report[PROMPT])
    )
    if has_problem.all():
        reasons = report["reason"].value_counts().to_dict()
        raise DataError(
            f"responses: no prompt could be restyled safely; texts by reason: {reasons}"
        )
    safe = responses[~has_problem].assign(
        benchmark=lambda frame: frame["benchmark"] + " (restyled by rule)"
    )
    safe_versions, by_style = [versions[text] for text in safe["response"]], []
    for place, style in enumerate(STYLES):
        texts, rules = (
            [version[part][style] for version in safe_versions] for part in (0, 1)
        )
        by_style.append(
            safe.assign(
                slot=3 * safe["slot"] + place, style=style, response=texts, rule=rules
            )
        )
    restyled = pd.concat(by_style).sort_index(kind="stable").reset_index(drop=True)
    return Restyled(tables.check_responses(restyled), report)


class _Versions(NamedTuple):
    """One text by style, how each version was made, and why one would not say the same."""

    texts: dict[str, str]
    rules: dict[str, str]
    problems: dict[str, str]


def _restyle_text(text: str) -> _Versions:
    if features_of(text)["markdown"]:
        code, plain_text, markdown = _list_code(text), plain(text), text
        rules = {"plain": "plain from Markdown", "markdown": "as given"}
        problems = {
            "plain": _find_loss(text, plain_text, code)
            or _find_lost_words(text, plain_text)
        }
    else:
        code = [
            line.strip()
            for block, is_code in _split_blocks(text)
            if is_code
            for line in block.split("\n")
        ]
        plain_text, markdown = text, _add_markdown(text)
        rules = {"plain": "as given", "markdown": "Markdown from plain"}
        has_marks, is_reversible = (
            features_of(markdown)["markdown"] > 0,
            plain(markdown).split() == text.split(),
        )
        problem = (
            "" if is_reversible else "the Markdown does not turn back into the text"
        )
        problems = {"markdown": problem if has_marks else "no place for Markdown"}
    concise = _shorten(plain_text, code)
    is_shorter = len(" ".join(concise.split())) < len(" ".join(plain_text.split()))
    problems["concise"] = _find_loss(plain_text, concise, code) or (
        "" if is_shorter else _TOO_SHORT
    )
    texts = {"concise": concise, "plain": plain_text, "markdown": markdown}
    reasons = {style: reason for style, reason in problems.items() if reason}
    return _Versions(texts, rules | {"concise": _CONCISE_RULE}, reasons)


def _report_problems(
    responses: pd.DataFrame, versions: dict[str, _Versions]
) -> pd.DataFrame:
    """Texts without a safe version, and styles in which a rejected answer becomes a
    chosen one.
    """
    chosen = (
        responses[responses["label"] == "chosen"]
        .groupby(PROMPT)["response"]
        .agg(list)
        .to_dict()
    )
    rows = []
    for row in responses[[*KEY, "response"]].to_dict("records"):
        texts, _, problems = versions[row["response"]]
        reasons = list(problems.items())
        if row["label"] == "rejected":
            for style, text in texts.items():
                if text in [
                    versions[t].texts[style]
                    for t in chosen.get(tuple(row[c] for c in PROMPT), [])
                ]:
                    reasons.append((style, "the same text as a chosen answer"))
        rows += [row | {"style": style, "reason": reason} for style, reason in reasons]
    return pd.DataFrame(rows, columns=[*KEY, "style", "reason"])


def _add_markdown(text: str) -> str:
    """Plain prose with list items, a first sentence in bold, and code in fences."""
    parts = []
    for i, (block, is_code) in enumerate(_split_blocks(text)):
        lines = block.split("\n")
        if is_code:
            parts.append(
                f"```\n{block}\n```" if all(map(_looks_like_code, lines)) else block
            )
            continue
        items = [
            *filter(
                None,
                map(str.strip, lines if len(lines) > 1 else SENTENCE_END.split(block)),
            )
        ] or [""]
        if i == 0:
            parts.append(f"**{items.pop(0)}**")
        parts.append(
            "\n".join(f"- {item}" for item in items)
            if len(items) > 1 or i == 0
            else items[0]
        )
    return "\n\n".join(filter(None, parts))


def _shorten(text: str, code: list[str]) -> str:
    """First sentence of plain prose, with all code and every later sentence that has a
    number or a negation.
    """
    parts, has_first = [], False
    for block, is_code in _split_blocks(text, code):
        lines = [block] if is_code else []
        for line in [] if is_code else block.split("\n"):
            sentences = []
            for sentence in filter(None, map(str.strip, SENTENCE_END.split(line))):
                matters = (
                    _NUMBER.search(sentence)
                    or _NEGATION.search(sentence)
                    or any(p in sentence for p in code)
                )
                if matters or not has_first:
                    sentences.append(sentence)
                    has_first = has_first or not sentence.endswith(":")
            lines.append(" ".join(sentences))
        parts.append("\n".join(filter(None, lines)))
    return "\n\n".join(filter(None, parts))


def _split_blocks(text: str, code: Iterable[str] = ()) -> list[tuple[str, bool]]:
    """Blocks of a text, and which are code: those with a line of it, and those between
    two of these.
    """
    blocks = GAP.split(unify_line_ends(text).strip("\n"))[::2]
    lines = [block.split("\n") for block in blocks]
    with_code = [
        any(_looks_like_code(line) or line.strip() in {*code} for line in block)
        for block in lines
    ]
    between = [
        False,
        *(a and b for a, b in zip(with_code, with_code[2:], strict=False)),
        False,
    ]
    return [
        (block, a or b) for block, a, b in zip(blocks, with_code, between, strict=False)
    ]


def _list_code(text: str) -> list[str]:
    """Code of a Markdown text: the lines of its blocks and its inline pieces."""
    document = Document(text)
    pieces: list[str] = []
    for token in document.tokens:
        if token.type in ("fence", "code_block"):
            pieces += token.content.split("\n")
        pieces += [
            child.content
            for child in token.children or []
            if child.type == "code_inline"
        ]
    return [code for piece in pieces if (code := document.shield.show(piece).strip())]


def _looks_like_code(line: str) -> bool:
    return (
        line.startswith(("    ", "\t"))
        or is_code_line(line)
        or _OTHER_CODE_LINE.match(line) is not None
    )


def _find_loss(before: str, after: str, code: Iterable[str]) -> str:
    """Which of the numbers, negations and code differ; empty where none does."""
    for name, pattern in (("numbers", _NUMBER), ("negations", _NEGATION)):
        if difference := _count_difference(
            pattern.findall(before.lower()), pattern.findall(after.lower())
        ):
            return f"{name} would change: {difference}"
    lost = [piece for piece in code if piece not in after]
    return f"code would change: {lost[0][:60]}" if lost else ""


def _find_lost_words(before: str, after: str) -> str:
    """Words that only a Markdown text or only its plain version has; the names of
    fences' languages do not count.
    """
    document = Document(before)
    languages = document.shield.show(
        " ".join(token.info for token in document.tokens if token.type == "fence")
    )
    difference = _count_difference(
        _WORD.findall(before), _WORD.findall(f"{after} {languages}")
    )
    return f"words would change: {difference}" if difference else ""


def _count_difference(before: list[str], after: list[str]) -> str:
    a, b = Counter(before), Counter(after)
    return ", ".join(sorted(((a - b) + (b - a)).elements())[:5])
