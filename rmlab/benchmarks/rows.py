"""A row of a benchmark's file: its id, its names, its prompt and its answers, which may
be conversations.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import NoReturn

import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks.benchmark import Files
from rmlab.records import Row

Messages = list[dict[str, str]]
Answer = str | Messages

_ROLES = {"human": "user", "user": "user", "assistant": "assistant", "system": "system"}
_TURNS = (
    re.compile(r"(?:^|\n\n)(Human|Assistant):[ ]?"),
    re.compile(r"\n?<\|im_start\|>(system|user|assistant)\n"),
)
_END = re.compile(r"<\|im_end\|>\n?\Z")


@dataclass(frozen=True)
class Record:
    """A row and where it stands. Its methods return what a column holds, or raise
    DataError naming file and row.
    """

    file: Path
    number: int
    row: Row

    def refuse(
        self, column: str, allowed: str, remedy: str = "repair the row"
    ) -> NoReturn:
        """Raise DataError naming file, row, column, value, what is allowed and the next
        step.
        """
        records.fail(self.file, self.number, self.row, column, allowed, remedy)

    def read_cell(self, column: str) -> object:
        """What a column holds; a row must have it."""
        if column not in self.row:
            self.refuse(column, "given in every row", "fill it in")
        return self.row[column]

    def read_id(self, column: str = "id") -> str:
        """A whole number or a non-empty string."""
        value = self.row.get(column)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
            self.refuse(
                column, "a whole number or a non-empty string", "number the rows"
            )
        return str(value)

    def read_name(self, column: str | None) -> str | None:
        """A name such as that of a subset; None where the cell is empty, or there is no
        column.
        """
        value = None if column is None else self.row.get(column)
        if column is not None and isinstance(value, list | dict):
            self.refuse(column, "one name", "write a string, or leave it empty")
        return None if value is None or value == "" else str(value)

    def read_subset(self, subsets: Sequence[str], column: str = "subset") -> str:
        """One of the benchmark's subsets as it spells them, whatever the case."""
        value = str(self.row.get(column))
        subset = {name.lower(): name for name in subsets}.get(value.lower())
        if subset is None:
            self.refuse(
                column, f"a {column} of this benchmark", tables.nearest(value, subsets)
            )
        return subset

    def read_prompt(self, column: str = "prompt") -> str | Messages:
        """A string, or messages with role and content only."""
        value = self.row.get(column)
        prompt = value if isinstance(value, str) else parse_messages(value)
        if prompt is None:
            self.refuse(
                column, "a string, or a list of {'role': ..., 'content': ...} messages"
            )
        return prompt

    def read_texts(self, label: str, n_texts: int | None) -> list[str]:
        """The answers of a label: `n_texts` non-empty strings, or any number of them
        but none.
        """
        value = self.row.get(label)
        answers = value if isinstance(value, list) else [value]
        texts = [answer for answer in answers if isinstance(answer, str) and answer]
        if len(texts) != len(answers) or len(texts) != (n_texts or max(len(texts), 1)):
            self.refuse(
                label,
                f"non-empty strings, {n_texts or 'one or more'} of them",
                "fill in the texts",
            )
        return texts


def read_answers(
    files: Files,
    benchmark: str,
    describe: Callable[[Record], Row],
    n_texts: int | None = None,
) -> pd.DataFrame:
    """Responses of rows with id, prompt, and `n_texts` chosen and rejected answers.

    `describe` gives the domain of a row, and what else it says of its prompt.
    """
    answers: list[Row] = []
    keys = set()
    for record in (
        Record(file, number, row)
        for file, rows in files
        for number, row in enumerate(rows)
    ):
        prompt = {
            "benchmark": benchmark,
            "id": record.read_id(),
            **describe(record),
            "prompt": record.read_prompt(),
        }
        key = prompt["domain"], prompt["id"]
        if key in keys:
            record.refuse(
                "id",
                f"unique within the domain {key[0]!r}",
                "give each row an id of its own",
            )
        keys.add(key)
        answers += list_answers(
            prompt,
            {label: record.read_texts(label, n_texts) for label in tables.LABELS},
        )
    return tables.check_responses(pd.DataFrame(answers))


def read_renamed(
    files: Files,
    benchmark: str,
    rename: Callable[[Record], Row],
    n_texts: int | None = None,
) -> pd.DataFrame:
    """Responses of rows with names of their own.

    `rename` gives a row its id, domain, prompt, chosen and rejected, and extra columns.
    The column `question` is the same for equal prompts.
    """
    renamed = [
        (file, [rename(Record(file, number, row)) for number, row in enumerate(rows)])
        for file, rows in files
    ]

    def describe(record: Record) -> Row:
        extra = {
            name: value
            for name, value in record.row.items()
            if name not in ("id", "prompt", *tables.LABELS)
        }
        return extra | {"question": hash_prompt(record.read_prompt())}

    return read_answers(renamed, benchmark, describe, n_texts)


def hash_prompt(prompt: object) -> str:
    """A short name of a prompt's text, for tables without texts."""
    return blake2b(
        json.dumps(prompt, sort_keys=True).encode(), digest_size=8
    ).hexdigest()


def name_family(prompt: str | Messages) -> str:
    """The family of a prompt: the same for equal texts, whatever space is around them."""
    if isinstance(prompt, str):
        return hash_prompt(prompt.strip())
    return hash_prompt([[turn["role"], turn["content"].strip()] for turn in prompt])


def first_rows(contents: Iterable[object], models: Iterable[object]) -> list[int]:
    """For each row the first one with its content; the n-th of equal rows of a model is
    the n-th of the others'.
    """
    n_equal: Counter[object] = Counter()
    row_of_key: dict[object, int] = {}
    rows = []
    for row, (content, model) in enumerate(zip(contents, models, strict=True)):
        key = content, n_equal[content, model]
        n_equal[content, model] += 1
        rows.append(row_of_key.setdefault(key, row))
    return rows


def list_answers(prompt: Row, texts: Mapping[str, Sequence[str]]) -> list[Row]:
    """A row per answer, from what all answers to a prompt share and the texts of each
    label.
    """
    return [
        {**prompt, "label": label, "slot": slot, "response": text}
        for label in tables.LABELS
        for slot, text in enumerate(texts[label])
    ]


def parse_messages(value: object) -> Messages | None:
    """Return a list of messages with role and content only, or None where the value is
    not such a list.
    """
    if not isinstance(value, list) or not tables.is_conversation(value):
        return None
    return [{"role": item["role"], "content": item["content"]} for item in value]


def split_prompt(
    answers: list[Answer], *, has_prompt: bool
) -> tuple[str | Messages | None, list[str]] | None:
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
    The prompt (None where the answers hold none) and the texts, or None where the
    answers have different prompts.
    """
    conversations = [
        answer if isinstance(answer, list) else _parse_transcript(answer)
        for answer in answers
    ]
    parsed = [conversation for conversation in conversations if conversation]
    if len(parsed) == len(answers) and all(
        conversation[-1]["role"] == "assistant" and conversation[:-1] == parsed[0][:-1]
        for conversation in parsed
    ):
        prompt = parsed[0][:-1]
        is_question = len(prompt) == 1 and prompt[0]["role"] == "user"
        return prompt[0]["content"] if is_question else prompt or None, [
            turns[-1]["content"] for turns in parsed
        ]
    texts = [answer for answer in answers if isinstance(answer, str)]
    return (
        (None, texts)
        if len(texts) == len(answers) and (has_prompt or not parsed)
        else None
    )


def _parse_transcript(text: str) -> Messages | None:
    """Messages of a text that starts with a turn marker and has at least two turns."""
    for turn in _TURNS:
        marks = list(turn.finditer(text))
        if len(marks) < 2 or text[: marks[0].start()].strip():
            continue
        ends = [*(mark.start() for mark in marks[1:]), len(text)]
        return [
            {
                "role": _ROLES[mark[1].lower()],
                "content": _END.sub("", text[mark.end() : end]),
            }
            for mark, end in zip(marks, ends, strict=True)
        ]
    return None
