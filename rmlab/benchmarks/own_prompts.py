"""A row's prompt with its context (system, history, tools), and its answers."""

import json
from collections.abc import Sequence

import pandas as pd

from rmlab.benchmarks.conversations import (
    Messages,
    Prompt,
    SplitAnswers,
    Turns,
    drop_nulls,
    read_messages,
    split_answers,
    to_messages,
    unwrap_prompt,
)
from rmlab.benchmarks.roles import CONTEXT, OwnTable, match_roles
from rmlab.benchmarks.sources import read_source
from rmlab.tables import is_response


def read_prompt(table: OwnTable, row: int) -> Prompt | None:
    """The prompt of a row as text, or as messages where it has a context; None where
    the row has none.
    """
    cell = table.cells("prompt")[row]
    tools, system, history = (table.cells(role)[row] for role in CONTEXT)
    if table.cells("images")[row]:
        remedy = "leave the row out"
        table.refuse(row, "images", "empty: texts alone are scored", remedy)
    if cell is None and isinstance(history, str):
        cell, history = history, None  # as in SHP
    cell = _open_single(cell)
    prompt = cell if isinstance(cell, str) else read_messages(cell)
    if prompt is None and cell is not None:
        table.refuse(row, "prompt", "a text, or a list of messages of texts")
    if not (tools or system or history):
        return unwrap_prompt(prompt) if isinstance(prompt, list) else prompt

    turns = [] if prompt is None else to_messages(prompt)
    before: Messages = []
    if tools:
        # The first message holds them as JSON, for the chat template.
        if not isinstance(tools, str):
            tools = json.dumps(drop_nulls(tools), ensure_ascii=False, default=str)
        before.append({"role": "tools", "content": tools})
    if system:
        message = {"role": "system", "content": system}
        if not isinstance(system, str):
            table.refuse(row, "system", "a text")
        if turns and turns[0]["role"] == "system" and turns.pop(0) != message:
            table.refuse(row, "system", "that of the messages")
        before.append(message)
    if history:
        messages = read_messages(history)
        if messages is None:
            table.refuse(row, "history", "a list of messages")
        before += messages
    return before + turns


def _open_single(cell: object) -> object:
    """The text of a list of one text, as LMArena writes a single turn."""
    if isinstance(cell, list) and len(cell) == 1 and isinstance(cell[0], str):
        return cell[0]
    return cell


def read_answer(table: OwnTable, row: int, role: str, cell: object) -> Turns:
    """An answer: a text, a list of steps, or the messages of a conversation."""
    cell = _open_single(cell)
    messages = read_messages(cell)
    if messages is not None:
        return messages
    if isinstance(cell, str | list) and is_response(cell):
        return cell
    allowed = "a text that is not empty, messages, or a list of these"
    return table.refuse(row, role, allowed, "fill in the text")


def split_prompt(
    table: OwnTable, rows: Sequence[int], role: str, answers: Sequence[Turns]
) -> SplitAnswers:
    """The prompt of some rows, and the responses of their answers."""
    split = split_answers(read_prompt(table, rows[0]), answers)
    if split is None:
        allowed = "conversations with one prompt, each ending with the assistant's"
        table.refuse(rows[-1], role, f"{allowed} answer")
    return split


def list_answers(
    frame: pd.DataFrame, prompt: str | None, response: str
) -> pd.DataFrame:
    """The answers of a table without labels, each with its row, prompt and response.

    Rows without a prompt or an answer are left out. `prompt` is None where the column
    of the answers holds whole chats.
    """
    rows: list[tuple[int, Prompt, object]] = []
    columns = ["row", "prompt", "response"]
    if frame.empty:
        return pd.DataFrame(rows, columns=columns, dtype=object)
    table = match_roles(read_source(frame), {"prompt": prompt, "response": response})
    for row, cell in enumerate(table.cells("response")):
        is_blank = cell is None or (isinstance(cell, str) and not cell.strip())
        if is_blank or (prompt is not None and read_prompt(table, row) is None):
            continue
        answer = read_answer(table, row, "response", cell)
        asked, responses = split_prompt(table, [row], "response", [answer])
        if asked is None:
            table.refuse(row, "response", "messages, of which the last is the answer")
        if is_response(responses[0]):
            rows.append((row, asked, responses[0]))
    return pd.DataFrame(rows, columns=columns, dtype=object)
