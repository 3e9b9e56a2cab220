"""A row of a benchmark's file: its id, its names, its prompt and its answers, which may
be conversations.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, NoReturn

import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks.layout import Files
from rmlab.records import Row

Messages = list[dict[str, str]]
RawAnswer = str | Messages
"""An answer as a file has it: a text, a transcript or a conversation."""

_ROLES = {"human": "user", "user": "user", "assistant": "assistant", "system": "system"}
_TURNS = (
    re.compile(r"(?:^|\n\n)(Human|Assistant):[ ]?"),
    re.compile(r"\n?<\|im_start\|>(system|user|assistant)\n"),
)
_END = re.compile(r"<\|im_end\|>\n?\Z")


@dataclass(frozen=True)
class FileRow:
    """A row and where it stands. Its methods return the value of a column, or raise
    DataError naming file and row.
    """

    file: Path
    number: int
    cells: Row

    def refuse(
        self, column: str, allowed: str, remedy: str = "repair the row"
    ) -> NoReturn:
        """Raise DataError naming file, row, column, value, what is allowed and the next
        step.
        """
        records.fail(self.file, self.number, self.cells, column, allowed, remedy)

    def fill(self, cells: Row) -> "FileRow":
        """The row with further cells."""
        return replace(self, cells=self.cells | cells)

    def read_cell(self, column: str) -> object:
        """The value of a column; a row must have it."""
        if column not in self.cells:
            self.refuse(column, "given in every row", "fill it in")
        return self.cells[column]

    def read_id(self, column: str = "id") -> str:
        """A whole number or a non-empty string."""
        value = self.cells.get(column)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        is_id = isinstance(value, int | str) and not isinstance(value, bool)
        if not is_id or value == "":
            allowed = "a whole number or a non-empty string"
            self.refuse(column, allowed, "number the rows")
        return str(value)

    def read_name(self, column: str | None) -> str | None:
        """A name such as that of a subset; None where the cell is empty, or there is no
        column.
        """
        if column is None:
            return None
        value = self.cells.get(column)
        if isinstance(value, list | dict):
            self.refuse(column, "one name", "write a string, or leave it empty")
        if value is None or value == "":
            return None
        return str(value)

    def read_subset(self, subsets: Sequence[str], column: str = "subset") -> str:
        """One of the benchmark's subsets as it spells them, whatever the case."""
        value = str(self.cells.get(column))
        subset_of_spelling = {name.lower(): name for name in subsets}
        subset = subset_of_spelling.get(value.lower())
        if subset is None:
            similar = tables.nearest(value, subsets)
            self.refuse(column, f"a {column} of this benchmark", similar)
        return subset

    def read_prompt(self, column: str = "prompt") -> str | Messages:
        """A string, or messages with role and content only."""
        value = self.cells.get(column)
        if isinstance(value, str):
            return value
        messages = parse_messages(value)
        if messages is None:
            allowed = "a string, or a list of {'role': ..., 'content': ...} messages"
            self.refuse(column, allowed)
        return messages

    def read_texts(self, label: str, n_texts: int | None) -> list[str]:
        """The answers of a label: `n_texts` non-empty strings, or any number of them
        but none.
        """
        answers = as_list(self.cells.get(label))
        texts = [answer for answer in answers if isinstance(answer, str) and answer]
        n_expected = n_texts or max(len(answers), 1)
        if len(texts) != len(answers) or len(texts) != n_expected:
            allowed = f"non-empty strings, {n_texts or 'one or more'} of them"
            self.refuse(label, allowed, "fill in the texts")
        return texts


def as_list(value: object) -> list[object]:
    """A list as it is, and any other value as a list of one."""
    return value if isinstance(value, list) else [value]


def read_answers(
    files: Files,
    benchmark: str,
    describe: Callable[[FileRow], Row],
    n_texts: int | None = None,
) -> pd.DataFrame:
    """Responses of rows with id, prompt, and `n_texts` chosen and rejected answers.

    `describe` gives the domain of a row, and further columns of its prompt.
    """
    answers: list[Row] = []
    keys = set()
    for file, rows in files:
        for number, cells in enumerate(rows):
            row = FileRow(file, number, cells)
            prompt: Row = {"benchmark": benchmark, "id": row.read_id()}
            prompt |= describe(row)
            prompt["prompt"] = row.read_prompt()

            key = (prompt["domain"], prompt["id"])
            if key in keys:
                allowed = f"unique within the domain {prompt['domain']!r}"
                row.refuse("id", allowed, "give each row an id of its own")
            keys.add(key)

            texts = {label: row.read_texts(label, n_texts) for label in tables.LABELS}
            answers += list_answers(prompt, texts)
    return tables.check_responses(pd.DataFrame(answers))


def read_renamed(
    files: Files,
    benchmark: str,
    rename: Callable[[FileRow], Row],
    n_texts: int | None = None,
) -> pd.DataFrame:
    """Responses of rows with names of their own.

    `rename` gives a row its id, domain, prompt, chosen and rejected, and extra columns.
    The column `question` is the same for equal prompts.
    """
    renamed = []
    for file, rows in files:
        numbered = [FileRow(file, number, cells) for number, cells in enumerate(rows)]
        renamed.append((file, [rename(row) for row in numbered]))
    return read_answers(renamed, benchmark, _keep_extra_cells, n_texts)


def _keep_extra_cells(row: FileRow) -> Row:
    """Domain and extra columns of a renamed row, and the name of its prompt."""
    cells = dict(row.cells)
    for name in ("id", "prompt", *tables.LABELS):
        cells.pop(name, None)
    cells["question"] = hash_prompt(row.read_prompt())
    return cells


def hash_prompt(prompt: object) -> str:
    """A short name of a prompt's text, for tables without texts."""
    content = json.dumps(prompt, sort_keys=True).encode()
    return blake2b(content, digest_size=8).hexdigest()


def name_family(prompt: str | Messages) -> str:
    """The family of a prompt: the same for equal texts, without space around them."""
    if isinstance(prompt, str):
        return hash_prompt(prompt.strip())
    turns = [[turn["role"], turn["content"].strip()] for turn in prompt]
    return hash_prompt(turns)


def first_rows(contents: Iterable[object], models: Iterable[object]) -> list[int]:
    """For each row the first one with its content; the n-th of equal rows of a model is
    the n-th of the others'.
    """
    n_equal: Counter[object] = Counter()
    row_of_key: dict[object, int] = {}
    rows = []
    for row, (content, model) in enumerate(zip(contents, models, strict=True)):
        key = (content, n_equal[content, model])
        n_equal[content, model] += 1
        rows.append(row_of_key.setdefault(key, row))
    return rows


def list_answers(prompt: Row, texts: Mapping[str, Sequence[str]]) -> list[Row]:
    """A row per answer, from what all answers to a prompt share and the texts of each
    label.
    """
    answers = []
    for label in tables.LABELS:
        for slot, text in enumerate(texts[label]):
            answers.append({**prompt, "label": label, "slot": slot, "response": text})
    return answers


def parse_messages(value: object) -> Messages | None:
    """Return a list of messages with role and content only, or None where the value is
    not such a list.
    """
    if not isinstance(value, list) or not tables.is_conversation(value):
        return None
    return [{"role": item["role"], "content": item["content"]} for item in value]


class SplitAnswers(NamedTuple):
    """The prompt that answers share (None where they hold none), and their texts."""

    prompt: str | Messages | None
    texts: list[str]


def split_prompt(answers: list[RawAnswer], *, has_prompt: bool) -> SplitAnswers | None:
    """Split conversations into the prompt that they share and their last messages.

    Parameters
    ----------
    answers
        Texts, transcripts or lists of messages.
    has_prompt
        The row has a column with the prompt. Texts that differ as transcripts are then
        only texts.

    Returns
    -------
    SplitAnswers, or None where the answers have different prompts.
    """
    conversations = []
    for answer in answers:
        turns = answer if isinstance(answer, list) else _parse_transcript(answer)
        if turns:
            conversations.append(turns)
    if len(conversations) == len(answers) and _share_prompt(conversations):
        texts = [turns[-1]["content"] for turns in conversations]
        return SplitAnswers(_unwrap_question(conversations[0][:-1]), texts)

    texts = [answer for answer in answers if isinstance(answer, str)]
    are_texts = len(texts) == len(answers)
    if are_texts and (has_prompt or not conversations):
        return SplitAnswers(None, texts)
    return None


def _share_prompt(conversations: list[Messages]) -> bool:
    """Whether all end with an answer, and the messages before it are equal."""
    prompt = conversations[0][:-1]
    return all(
        turns[-1]["role"] == "assistant" and turns[:-1] == prompt
        for turns in conversations
    )


def _unwrap_question(prompt: Messages) -> str | Messages | None:
    """The text of a single question; None where there is no message."""
    if not prompt:
        return None
    if len(prompt) == 1 and prompt[0]["role"] == "user":
        return prompt[0]["content"]
    return prompt


def _parse_transcript(text: str) -> Messages | None:
    """Messages of a text that starts with a turn marker and has at least two turns."""
    for turn in _TURNS:
        marks = list(turn.finditer(text))
        if len(marks) < 2 or text[: marks[0].start()].strip():
            continue
        ends = [mark.start() for mark in marks[1:]]
        ends.append(len(text))
        messages = []
        for mark, end in zip(marks, ends, strict=True):
            content = _END.sub("", text[mark.end() : end])
            messages.append({"role": _ROLES[mark[1].lower()], "content": content})
        return messages
    return None
