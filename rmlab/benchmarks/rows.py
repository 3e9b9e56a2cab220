"""A row of a benchmark's file: its id, its names, its prompt and its answers, which may
be conversations.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks.conversations import Prompt, hash_prompt, read_messages
from rmlab.benchmarks.layout import Files
from rmlab.records import Row


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
        subset_of_spelling = dict(zip(map(str.lower, subsets), subsets, strict=True))
        subset = subset_of_spelling.get(value.lower())
        if subset is None:
            similar = tables.nearest(value, subsets)
            self.refuse(column, f"a {column} of this benchmark", similar)
        return subset

    def read_sides(self, column: str, sides: Mapping[str, Sequence[str]]) -> Row:
        """The better and the worse of two answers, whose columns a cell names."""
        value = str(self.cells.get(column))
        if value not in sides:
            self.refuse(column, f"one of {', '.join(sides)}")
        better, worse = sides[value]
        return {
            "chosen": self.read_texts(better, 1),
            "rejected": self.read_texts(worse, 1),
        }

    def read_prompt(self, column: str = "prompt") -> Prompt:
        """A string, or messages."""
        value = self.cells.get(column)
        if isinstance(value, str):
            return value
        messages = read_messages(value)
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
    *,
    names_question: bool = False,
) -> pd.DataFrame:
    """Responses of rows with a prompt, and `n_texts` chosen and rejected answers.

    `describe` gives the domain of a row, further columns of its prompt, and its id,
    prompt, chosen and rejected where the file has other names for them.
    `names_question`: the column `question` is the same for equal prompts.
    """
    answers: list[Row] = []
    prompts_of_key: dict[tuple[object, object], list[object]] = {}
    for file, rows in files:
        for number, cells in enumerate(rows):
            row = FileRow(file, number, cells)
            described = describe(row)
            item = described.pop("id", None) or row.read_id()
            asked = described.pop("prompt", None) or row.read_prompt()
            texts: dict[str, list[object]] = {}
            for label in tables.LABELS:
                own = described.pop(label, None)
                texts[label] = as_list(own or row.read_texts(label, n_texts))

            key = (described["domain"], item)
            prompts = prompts_of_key.setdefault(key, [])
            if asked in prompts:
                allowed = f"unique within the domain {key[0]!r}"
                row.refuse("id", allowed, "give each row an id of its own")
            prompts.append(asked)
            if len(prompts) > 1:
                item = f"{item}#{len(prompts)}"
            prompt: Row = {"benchmark": benchmark, "id": item, **described}
            prompt["prompt"] = asked
            if names_question:
                prompt["question"] = hash_prompt(asked)
            answers += _list_answers(prompt, texts)
    return tables.check_responses(pd.DataFrame(answers))


def _list_answers(prompt: Row, texts: Mapping[str, Sequence[object]]) -> list[Row]:
    """A row per answer, from what all answers to a prompt share and the texts of each
    label.
    """
    answers = []
    for label in tables.LABELS:
        for slot, text in enumerate(texts[label]):
            answers.append({**prompt, "label": label, "slot": slot, "response": text})
    return answers
