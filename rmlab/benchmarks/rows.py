"""Checks of a row that the readers of all benchmarks share: its id, its prompt, its answers."""

from collections.abc import Sequence
from pathlib import Path

from rmlab import records

__all__ = ["check_answers", "messages", "row_id", "row_prompt"]


def row_id(file: Path, number: int, row: records.Row) -> str:
    """The row's `id` as a string; whole numbers and non-empty strings are allowed."""
    value = row.get("id")
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        records.fail(file, number, row, "id", "a whole number or a non-empty string", "number the rows")
    return str(value)


def check_answers(file: Path, number: int, row: records.Row, label: str, answers: Sequence[object]) -> None:
    """Raise DataError unless every answer of one label is a non-empty string."""
    for slot, answer in enumerate(answers):
        if not isinstance(answer, str) or answer == "":
            allowed = f"a list of non-empty strings (answer {slot} is {records.short(answer)})"
            records.fail(file, number, row, label, allowed, "fill in the text")


def row_prompt(file: Path, number: int, row: records.Row, column: str = "prompt") -> str | list[dict[str, str]]:
    """The row's prompt: a string, or its messages as plain role and content."""
    value = row.get(column)
    if isinstance(value, str):
        return value
    found = messages(value)
    if not found:
        allowed = "a string, or a list of {'role': ..., 'content': ...} messages"
        records.fail(file, number, row, column, allowed, "repair the row")
    return found


def messages(value: object) -> list[dict[str, str]] | None:
    """The value as messages with role and content only, or None where it is not a list of messages."""
    if not isinstance(value, list | tuple):
        return None
    for item in value:
        if not (isinstance(item, dict) and isinstance(item.get("role"), str) and isinstance(item.get("content"), str)):
            return None
    return [{"role": item["role"], "content": item["content"]} for item in value]
