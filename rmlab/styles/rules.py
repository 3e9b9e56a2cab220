"""Three styles of any pair set by rule: concise, plain and Markdown versions of every answer, each one checked."""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

import pandas as pd

from rmlab import tables
from rmlab.styles.counts import features_of, parse, unified
from rmlab.styles.prose import plain
from rmlab.styles.source import Shield, is_code_line
from rmlab.tables import KEY, PROMPT, STYLES, DataError

__all__ = ["Restyled", "restyle_pairs"]

MADE_BY_RULE = " (restyled by rule)"

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
_FENCE = re.compile(r"^([ >]*(?:```+|~~~+))[^\n`]*$", re.MULTILINE)
_SHORT = "".join(
    rf"(?<!\b{word}\.)" for word in ("Dr", "Mr", "Mrs", "Ms", "St", "No", "Prof", "vs", "cf", "Fig", "e\\.g", "i\\.e")
)
_SENTENCE = re.compile(rf"(?<=[.!?…]){_SHORT}\s+(?=[\"'“(\[]?[A-Z0-9])|(?<=[.!?…][\"'”)])\s+(?=[\"'“(\[]?[A-Z0-9])")
_MORE_CODE = re.compile(
    r"\s*(?:#\s*(?:include|define|pragma|ifn?def|endif)\b|#!|use \w+::|package \w+|</?\w+[^>]*>|\$ \w"
    r"|(?:struct|impl|pub|type|namespace) .*[{;=])"
)
_GAP = re.compile(r"\n[ \t]*\n\s*")


class Restyled(NamedTuple):
    """What `restyle_pairs` returns: the three-style answers, and the texts that could not be made."""

    responses: pd.DataFrame
    report: pd.DataFrame


def restyle_pairs(responses: pd.DataFrame) -> Restyled:
    """Make a three-style version of a pair set by rule, so that it has a 3x3 matrix of its own.

    `responses`: a table without styles, as `load_pairs` returns. Of every answer there are then three, in the slots
    3k (concise), 3k + 1 (plain) and 3k + 2 (markdown) of its old slot k:

    - plain: the text itself, or without its Markdown (`styles.plain`) where it has any;
    - markdown: the text itself, or with its first sentence in bold, sentences and lines as list items and code in
      fences where it has no Markdown;
    - concise: the first sentence of the plain text, and all code and every later sentence with a number or a
      negation, so that none of these is lost.

    Each text is checked: numbers, negations and code must be those of the original; Markdown turned back into prose
    must be the plain text, a plain text must have all words of the Markdown one, a concise one must be shorter. A
    prompt with a text that fails is left out, and `report` has one row per such text: benchmark, domain, id, label,
    slot, style, reason. Nothing is changed silently: `responses` has a column `rule` ("as given", or what was done),
    and the benchmark's name ends in "(restyled by rule)".

    Rules do not know what an answer says: a concise text may lack the point on which chosen and rejected differ
    (reported only where they become equal). Look at some before you trust the matrix. Raises DataError where answers
    have styles already, or no prompt survives.

    >>> pair = {"benchmark": "mine", "domain": "d", "id": "0", "slot": 0, "prompt": "When?"}
    >>> texts = {"chosen": "It opens at 9. Trains run often. Bring a coat.", "rejected": "At noon. Or so. Who knows?"}
    >>> rows = [pair | {"label": label, "response": text} for label, text in texts.items()]
    >>> restyle_pairs(pd.DataFrame(rows)).responses["response"].iloc[0]
    'It opens at 9.'
    """
    responses = tables.check_responses(responses)
    if responses["style"].notna().any():
        raise DataError(
            "responses: answers have styles already; restyle_pairs is for pairs without, as load_pairs gives"
        )
    made = {text: _Versions(text) for text in responses["response"].unique()}
    report = _report(responses, made)
    left_out = pd.MultiIndex.from_frame(report[PROMPT])
    kept = responses[~pd.MultiIndex.from_frame(responses[PROMPT]).isin(left_out)]
    if kept.empty:
        reasons = report["reason"].value_counts().to_dict()
        raise DataError(f"responses: no prompt could be restyled safely; texts by reason: {reasons}")
    rows = [row for answer in kept.to_dict("records") for row in _three(answer, made[answer["response"]])]
    frame = tables.check_responses(pd.DataFrame(rows, columns=[*responses.columns, "rule"]))
    return Restyled(frame, report)


class _Versions:
    """The three styles of one text, how each was made, and why one could not be."""

    def __init__(self, text: str) -> None:
        marked = features_of(text)["markdown"] > 0
        code = _code(text) if marked else _code_lines(text)
        self.plain = plain(text) if marked else text
        self.markdown = text if marked else _markdown(text)
        self.concise = _concise(self.plain, code)
        self.rules = {
            "concise": "concise from plain: first sentence, and those with numbers, negations or code",
            "plain": "plain from Markdown" if marked else "as given",
            "markdown": "as given" if marked else "Markdown from plain",
        }
        problems = {"plain": _lost(text, self.plain, code) or _words_lost(text, self.plain)} if marked else {}
        problems |= {} if marked else {"markdown": _lost(text, self.markdown, code) or _not_back(text, self.markdown)}
        problems["concise"] = _lost(self.plain, self.concise, code) or _not_shorter(self.plain, self.concise)
        self.problems = {style: reason for style, reason in problems.items() if reason}


def _three(answer: dict[Hashable, object], made: _Versions) -> Iterator[dict[Hashable, object]]:
    for place, style in enumerate(STYLES):
        slot = 3 * int(str(answer["slot"])) + place
        text = getattr(made, style)
        name = f"{answer['benchmark']}{MADE_BY_RULE}"
        yield answer | {"benchmark": name, "slot": slot, "style": style, "response": text, "rule": made.rules[style]}


def _report(responses: pd.DataFrame, made: dict[str, _Versions]) -> pd.DataFrame:
    """Texts that could not be made, and styles in which a rejected answer became a chosen one."""
    rows = []
    taken: dict[tuple[object, ...], set[str]] = {}
    for row in responses[[*KEY, "response"]].to_dict("records"):
        if row["label"] == "chosen":
            taken.setdefault(tuple(row[c] for c in PROMPT), set()).add(row["response"])
    for row in responses[[*KEY, "response"]].to_dict("records"):
        key, versions = {c: row[c] for c in KEY}, made[row["response"]]
        rows += [key | {"style": style, "reason": reason} for style, reason in versions.problems.items()]
        if row["label"] == "rejected":
            others = [made[text] for text in taken.get(tuple(row[c] for c in PROMPT), set())]
            rows += [
                key | {"style": style, "reason": "the same text as a chosen answer"}
                for style in STYLES
                if any(getattr(versions, style) == getattr(other, style) for other in others)
            ]
    return pd.DataFrame(rows, columns=[*KEY, "style", "reason"])


def _markdown(text: str) -> str:
    """Plain prose with list items, a first sentence in bold, and code in fences."""
    blocks = _GAP.split(unified(text).strip("\n"))
    made = []
    for number, (block, is_code) in enumerate(zip(blocks, _code_blocks(blocks), strict=True)):
        lines = block.split("\n")
        if is_code:
            made.append(f"```\n{block}\n```" if all(map(_looks_like_code, lines)) else block)
        else:
            items = lines if len(lines) > 1 else _sentences(block)
            made.append(_listed([item.strip() for item in items], first=number == 0))
    return "\n\n".join(made)


def _listed(items: list[str], *, first: bool) -> str:
    if first:
        return f"**{items[0]}**" + "".join(f"\n{'' if i else chr(10)}- {item}" for i, item in enumerate(items[1:]))
    return "\n".join(f"- {item}" for item in items) if len(items) > 1 else items[0]


def _concise(text: str, code: list[str]) -> str:
    """First sentence of plain prose, with all code and every later sentence that has a number or a negation."""
    made, begun = [], False
    blocks = _GAP.split(unified(text).strip("\n"))
    for block, is_code in zip(blocks, _code_blocks(blocks, code), strict=True):
        if is_code:
            made.append(block)
            continue
        lines = []
        for line in block.split("\n"):
            kept = []
            for sentence in filter(str.strip, _sentences(line)):
                carries = _NUMBER.search(sentence) or _NEGATION.search(sentence) or any(p in sentence for p in code)
                if carries or not begun:
                    kept.append(sentence.strip())
                    begun = begun or not sentence.rstrip().endswith(":")
            lines += [" ".join(kept)] if kept else []
        made += ["\n".join(lines)] if lines else []
    return "\n\n".join(made)


def _code_blocks(blocks: list[str], code: Iterable[str] = ()) -> list[bool]:
    """Which blocks are code: those with a line of it, and what stands between two of them."""
    known = set(code)
    found = [any(_looks_like_code(line) or line.strip() in known for line in block.split("\n")) for block in blocks]
    between = [False, *(before and after for before, after in zip(found, found[2:], strict=False)), False]
    return [one or other for one, other in zip(found, between, strict=False)]


def _sentences(line: str) -> list[str]:
    return _SENTENCE.split(line)


def _code(text: str) -> list[str]:
    """Code of a Markdown text: the lines of its blocks and its inline pieces."""
    shield = Shield(text)
    found = []
    for token in parse(shield.hide(unified(text))):
        if token.type in ("fence", "code_block"):
            found += [line.strip() for line in shield.show(token.content).split("\n")]
        found += [shield.show(child.content).strip() for child in token.children or [] if child.type == "code_inline"]
    return [piece for piece in found if piece]


def _code_lines(text: str) -> list[str]:
    blocks = _GAP.split(unified(text).strip("\n"))
    lines = [block.split("\n") for block, is_code in zip(blocks, _code_blocks(blocks), strict=True) if is_code]
    return [line.strip() for block in lines for line in block]


def _looks_like_code(line: str) -> bool:
    return line.startswith(("    ", "\t")) or is_code_line(line) or _MORE_CODE.match(line) is not None


def _lost(before: str, after: str, code: Iterable[str]) -> str:
    """What of the numbers, negations and code is not the same any more; empty where all of it is."""
    for name, pattern in (("numbers", _NUMBER), ("negations", _NEGATION)):
        one, other = (Counter(found.lower() for found in pattern.findall(text)) for text in (before, after))
        if one != other:
            changed = sorted(((one - other) + (other - one)).elements())
            return f"{name} would change: {', '.join(changed[:5])}"
    lost = [piece for piece in code if piece not in after]
    return f"code would change: {lost[0][:60]}" if lost else ""


def _words_lost(before: str, after: str) -> str:
    """Words of a Markdown text that its plain version lacks, or has too many of; the names of fences do not count."""
    one, other = (Counter(_WORD.findall(text)) for text in (_FENCE.sub(r"\1", before), after))
    changed = sorted(((one - other) + (other - one)).elements())
    return f"words would change: {', '.join(changed[:5])}" if changed else ""


def _not_back(text: str, marked: str) -> str:
    if features_of(marked)["markdown"] == 0:
        return "no place for Markdown"
    return "" if _squeezed(plain(marked)) == _squeezed(text) else "the Markdown does not turn back into the text"


def _not_shorter(text: str, concise: str) -> str:
    return "" if len(_squeezed(concise)) < len(_squeezed(text)) else "every sentence would stay: it cannot be shorter"


def _squeezed(text: str) -> str:
    return " ".join(text.split())
