"""A row's prompt with its context (system, history, tools), and its answers."""

import json

import pandas as pd

from rmlab.benchmarks.conversations import (
    Messages,
    Prompt,
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
    if not table.has_prompt:
        return None
    cell = table.cells("prompt")[row]
    context = {role: table.cells(role)[row] for role in CONTEXT}
    if cell is None and isinstance(context["history"], str):
        cell = context.pop("history")  # as in SHP
    cell = _open_single(cell)
    prompt = cell if isinstance(cell, str) else read_messages(cell)
    if prompt is None and cell is not None:
        table.refuse(row, "prompt", "a text, or a list of messages of texts")
    if table.cells("images")[row]:
        remedy = "leave the row out"
        table.refuse(row, "images", "empty: texts alone are scored", remedy)
    if not any(context.values()):
        return unwrap_prompt(prompt) if isinstance(prompt, list) else prompt

    turns = [] if prompt is None else to_messages(prompt)
    before: Messages = []
    if context["tools"]:
        # The first message holds them as JSON, for the chat template.
        tools = drop_nulls(context["tools"])
        if not isinstance(tools, str):
            tools = json.dumps(tools, ensure_ascii=False, default=str)
        before.append({"role": "tools", "content": tools})
    if context["system"]:
        before.append({"role": "system", "content": context["system"]})
        if not isinstance(context["system"], str):
            table.refuse(row, "system", "a text")
        if turns and turns[0]["role"] == "system":
            if turns[0] != before[-1]:
                table.refuse(row, "system", "that of the messages")
            turns = turns[1:]
    if context.get("history"):
        history = read_messages(_pair_turns(context["history"]))
        if history is None:
            table.refuse(row, "history", "messages, or pairs of question and answer")
        before += history
    return before + turns


def _open_single(cell: object) -> object:
    """The text of a list of one text, as LMArena writes a single turn."""
    if isinstance(cell, list) and len(cell) == 1 and isinstance(cell[0], str):
        return cell[0]
    return cell


def _pair_turns(history: object) -> object:
    """Pairs of question and answer as messages; other histories as they are."""
    if not isinstance(history, list):
        return history
    turns = []
    for pair in history:
        if not isinstance(pair, list) or len(pair) != 2:
            return history
        turns.append({"role": "user", "content": pair[0]})
        turns.append({"role": "assistant", "content": pair[1]})
    return turns


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
        asked = read_prompt(table, row)
        is_blank = cell is None or (isinstance(cell, str) and not cell.strip())
        if is_blank or (asked is None and prompt is not None):
            continue
        answer = read_answer(table, row, "response", cell)
        split = split_answers(asked, [answer])
        if split is None or split.prompt is None:
            allowed = "messages that end with the assistant's answer to the prompt"
            table.refuse(row, "response", allowed)
        if is_response(split.responses[0]):
            rows.append((row, split.prompt, split.responses[0]))
    return pd.DataFrame(rows, columns=columns, dtype=object)
