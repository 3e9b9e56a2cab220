"""A row's prompt with its context (system, history, tools), and its answers."""

import json

import pandas as pd

from rmlab.benchmarks.conversations import (
    Messages,
    Prompt,
    Turns,
    read_messages,
    split_answers,
    to_messages,
    unwrap_prompt,
)
from rmlab.benchmarks.roles import OwnTable, match_roles
from rmlab.benchmarks.sources import read_source
from rmlab.tables import is_response

_PROMPT = "a text, or a list of messages of texts"
_ANSWER = "a text that is not empty, messages, or a list of these"


def read_prompt(table: OwnTable, row: int) -> Prompt | None:
    """The prompt of a row as text, or as messages where it has a context; None where
    the row has none.
    """
    cell = table.cells("prompt")[row]
    history = table.cells("history")[row]
    if cell is None and isinstance(history, str):
        cell = history  # as in SHP
        history = None
    if table.cells("images")[row]:
        table.refuse(
            row, "images", "empty: texts alone are scored", "leave the row out"
        )

    prompt: Prompt | None = cell if isinstance(cell, str) else read_messages(cell)
    if prompt is None and cell is not None:
        table.refuse(row, "prompt", _PROMPT)
    context = _read_context(table, row, history)
    if context:
        turns = [] if prompt is None else to_messages(prompt)
        has_system = turns[:1] == context[-1:] and turns[0]["role"] == "system"
        return context + turns[has_system:]
    return (
        prompt if prompt is None or isinstance(prompt, str) else unwrap_prompt(prompt)
    )


def _read_context(table: OwnTable, row: int, history: object) -> Messages:
    """The messages before the prompt: tools, the system's and earlier ones.

    The first message of the role tools holds them as JSON, for the chat template.
    """
    context: Messages = []
    tools = table.cells("tools")[row]
    if tools:
        text = (
            tools if isinstance(tools, str) else json.dumps(tools, ensure_ascii=False)
        )
        context.append({"role": "tools", "content": text})
    system = table.cells("system")[row]
    if system:
        if not isinstance(system, str):
            table.refuse(row, "system", "a text")
        context.append({"role": "system", "content": system})
    if history:
        messages = read_messages(_pair_turns(history))
        if messages is None:
            table.refuse(row, "history", "messages, or pairs of question and answer")
        context += messages
    return context


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
    messages = read_messages(cell)
    if messages is not None:
        return messages
    if isinstance(cell, str | list) and is_response(cell):
        return cell
    table.refuse(row, role, _ANSWER, "fill in the text")


def list_answers(
    frame: pd.DataFrame, prompt: str | None, response: str
) -> pd.DataFrame:
    """The answers of a table without labels, each with its row, prompt and response.

    Rows without a prompt or an answer are left out. `prompt` is None where the column
    of the answers holds whole chats.
    """
    table = match_roles(
        read_source(frame), {"prompt": prompt, "response": response}, None
    )
    rows = []
    for row, cell in enumerate(table.cells("response")):
        asked = read_prompt(table, row)
        if cell is None or cell == "" or (asked is None and prompt is not None):
            continue
        answer = read_answer(table, row, "response", cell)
        split = split_answers(asked, [answer])
        if split is None or split.prompt is None:
            allowed = "messages that end with the assistant's answer to the prompt"
            table.refuse(row, "response", allowed)
        if is_response(split.responses[0]):
            rows.append((row, split.prompt, split.responses[0]))
    return pd.DataFrame(rows, columns=["row", "prompt", "response"], dtype=object)
