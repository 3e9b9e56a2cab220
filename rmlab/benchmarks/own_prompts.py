"""A row's prompt with its context (system, history, tools), and its answers."""

import json
from collections.abc import Mapping

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


class PromptReader:
    """The prompts of people's own data, row by row, each with its context."""

    def __init__(self, table: OwnTable) -> None:
        self._table = table
        self._cells = table.cells("prompt")
        self._context = {
            role: table.cells(role)
            for role in ("images", "tools", "system", "history")
            if table.has(role)
        }

    def read(self, row: int) -> Prompt | None:
        """The prompt of a row as text, or as messages where it has a context; None
        where the row has none.
        """
        cell = self._cells[row]
        context = {role: cells[row] for role, cells in self._context.items()}
        if cell is None and isinstance(context.get("history"), str):
            cell = context.pop("history")  # as in SHP
        cell = _open_single(cell)
        prompt = cell if isinstance(cell, str) else read_messages(cell)
        if prompt is None and cell is not None:
            self._table.refuse(row, "prompt", _PROMPT)
        if not any(context.values()):
            return unwrap_prompt(prompt) if isinstance(prompt, list) else prompt

        before = self._read_context(row, context)
        turns = [] if prompt is None else to_messages(prompt)
        systems = [turn for turn in before if turn["role"] == "system"]
        if turns and turns[0]["role"] == "system" and systems:
            if turns[0] != systems[0]:
                self._table.refuse(row, "system", "that of the messages")
            turns = turns[1:]  # the system's message stands in both
        return before + turns

    def _read_context(self, row: int, context: Mapping[str, object]) -> Messages:
        """The messages before the prompt: tools, the system's and earlier ones.

        The first message of the role tools holds them as JSON, for the chat template.
        """
        if context.get("images"):
            allowed = "empty: texts alone are scored"
            self._table.refuse(row, "images", allowed, "leave the row out")
        messages: Messages = []
        tools = context.get("tools")
        if tools:
            text = tools
            if not isinstance(tools, str):
                text = json.dumps(tools, ensure_ascii=False, default=str)
            messages.append({"role": "tools", "content": text})
        system = context.get("system")
        if system:
            if not isinstance(system, str):
                self._table.refuse(row, "system", "a text")
            messages.append({"role": "system", "content": system})
        history = context.get("history")
        if history:
            earlier = read_messages(_pair_turns(history))
            if earlier is None:
                allowed = "messages, or pairs of question and answer"
                self._table.refuse(row, "history", allowed)
            messages += earlier
        return messages


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
    return table.refuse(row, role, _ANSWER, "fill in the text")


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
    mapping = {"prompt": prompt, "response": response}
    table = match_roles(read_source(frame), mapping, None)
    prompts = PromptReader(table)
    for row, cell in enumerate(table.cells("response")):
        asked = prompts.read(row)
        if cell is None or cell == "" or (asked is None and prompt is not None):
            continue
        answer = read_answer(table, row, "response", cell)
        split = split_answers(asked, [answer])
        if split is None or split.prompt is None:
            allowed = "messages that end with the assistant's answer to the prompt"
            table.refuse(row, "response", allowed)
        if is_response(split.responses[0]):
            rows.append((row, split.prompt, split.responses[0]))
    return pd.DataFrame(rows, columns=columns, dtype=object)
