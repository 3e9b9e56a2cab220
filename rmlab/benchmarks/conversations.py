"""Messages and transcripts: how people write a prompt and the answer to it."""

import json
import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple, cast

from rmlab.tables import is_conversation, is_message

Message = dict[str, object]
Messages = list[Message]
Prompt = str | Messages
Response = str | Message | list[str]
"""A text, a message of the assistant, or the steps of a process model."""
Turns = Response | Messages
"""An answer as a file has it: a response, or a conversation that ends with it."""

_SPEAKERS = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "system": "system",
    "tool": "tool",
    "observation": "tool",
}
_TURNS = (
    re.compile(r"(?:^|\n\n)(Human|Assistant):[ ]?"),
    re.compile(r"\n?<\|im_start\|>(system|user|assistant)\n"),
)
_END = re.compile(r"<\|im_end\|>\n?\Z")


def read_messages(value: object) -> Messages | None:
    """The messages of a list, or of one message; None where it is something else.

    All fields stay but those that are null, which Arrow adds. A content in parts
    becomes their text; a part that is no text, such as an image, is no message.
    """
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list) or not value:
        return None
    messages = []
    for item in value:
        message = _read_message(item)
        if message is None:
            return None
        messages.append(message)
    return messages


def _read_message(item: object) -> Message | None:
    if not isinstance(item, dict):
        return None
    try:
        message = cast("Message", drop_nulls(item))
    except RecursionError:
        return None
    if "from" in message and "value" in message:
        # As ShareGPT names the fields.
        speaker = str(message.pop("from"))
        role = _SPEAKERS.get(speaker, speaker)
        message = {"role": role, "content": message.pop("value"), **message}
    content = message.get("content")
    if isinstance(content, list):
        content = _join_parts(content)
        if content is None:
            return None
    message["content"] = content
    return message if is_message(message) else None


def _join_parts(parts: Sequence[object]) -> str | None:
    """The text of a content in parts; None where a part is no text."""
    texts = []
    for part in parts:
        text = part
        if isinstance(part, dict):
            text = part.get("text") if part.get("type", "text") == "text" else None
        if not isinstance(text, str):
            return None
        texts.append(text)
    return "".join(texts)


def drop_nulls(value: object) -> object:
    """A value without the fields of objects that are null, which Arrow adds."""
    if isinstance(value, dict):
        fields = {name: drop_nulls(part) for name, part in value.items()}
        return {name: part for name, part in fields.items() if part is not None}
    if isinstance(value, list):
        return [drop_nulls(part) for part in value]
    return value


def to_messages(prompt: Prompt) -> Messages:
    """A prompt as messages; a text is a transcript or what the user says."""
    if isinstance(prompt, list):
        return prompt
    turns = _parse_transcript(prompt)
    if turns is None:
        return [{"role": "user", "content": prompt}]
    if turns[-1] == {"role": "assistant", "content": ""}:
        return turns[:-1]
    return turns


def unwrap_prompt(messages: Messages) -> Prompt:
    """The text of a single question, so that both spellings are one prompt."""
    content = read_response(messages[0])
    is_question = len(messages) == 1 and messages[0]["role"] == "user"
    return content if is_question and isinstance(content, str) else messages


class SplitAnswers(NamedTuple):
    """The prompt of some answers, None where there is none, and their responses."""

    prompt: Prompt | None
    responses: list[Response]


def split_answers(
    prompt: Prompt | None, answers: Sequence[Turns]
) -> SplitAnswers | None:
    """Split answers into the prompt that they share and their last messages.

    Answers may repeat the prompt or continue it.

    Parameters
    ----------
    prompt
        The row's own prompt, where it has one.
    answers
        Texts, transcripts, lists of steps or conversations.

    Returns
    -------
    SplitAnswers, or None where the answers have different prompts or contradict
    `prompt`.
    """
    are_texts = not any(is_conversation(answer) for answer in answers)
    plain = SplitAnswers(prompt, cast("list[Response]", list(answers)))
    talks = []
    for answer in answers:
        turns = _list_turns(answer, is_transcript=are_texts)
        if turns is None:
            return plain
        talks.append(turns)
    if prompt is not None:
        start = to_messages(prompt)
        talks = [_continue_prompt(start, turns) for turns in talks]
    if _share_prompt(talks):
        before = talks[0][:-1]
        shared = unwrap_prompt(before) if before else None
        responses = [read_response(turns[-1]) for turns in talks]
        return SplitAnswers(shared, responses)
    if are_texts and prompt is not None:
        return plain  # They only look like transcripts.
    return None


def read_response(message: Message) -> Response:
    """The text of a message, or the message where it has more fields."""
    content = message["content"]
    if message.keys() == {"role", "content"} and isinstance(content, str):
        return content
    return message


def _list_turns(answer: Turns, *, is_transcript: bool) -> Messages | None:
    """The messages of an answer; None for a text that is no transcript."""
    if is_conversation(answer):
        return cast("Messages", answer)
    if not is_transcript:
        return [{"role": "assistant", "content": answer}]
    return _parse_transcript(answer) if isinstance(answer, str) else None


def _continue_prompt(prompt: Messages, turns: Messages) -> Messages:
    """The conversation of a prompt and an answer that repeats or continues it; nothing
    where the two contradict each other.
    """
    if _same_messages(turns[:-1][-len(prompt) :], prompt):
        return turns
    question = [turn for turn in prompt if turn["role"] not in ("tools", "system")]
    for start in (prompt, question):
        if start and _same_messages(turns[: len(start)], start):
            return prompt + turns[len(start) :]
    is_asked = prompt[-1]["role"] == "user"
    if turns[0]["role"] == "system" or (turns[0]["role"] == "user" and is_asked):
        return []
    return prompt + turns


def _same_messages(first: Messages, second: Messages) -> bool:
    """Whether messages are equal but for space around them."""
    return _strip_messages(first) == _strip_messages(second)


def _strip_messages(messages: Messages) -> Messages:
    return [{**turn, "content": str(turn["content"]).strip()} for turn in messages]


def _share_prompt(talks: Sequence[Messages]) -> bool:
    """Whether all end with an answer, and the messages before it are equal."""
    for turns in talks:
        if not turns or turns[-1]["role"] != "assistant":
            return False
        if turns[:-1] != talks[0][:-1]:
            return False
    return True


def _parse_transcript(text: str) -> Messages | None:
    """Messages of a text that starts with a turn marker and has at least two turns."""
    for turn in _TURNS:
        marks = list(turn.finditer(text))
        if len(marks) < 2 or text[: marks[0].start()].strip():
            continue
        ends = [mark.start() for mark in marks[1:]]
        ends.append(len(text))
        messages: Messages = []
        for mark, end in zip(marks, ends, strict=True):
            content = _END.sub("", text[mark.end() : end])
            messages.append({"role": _SPEAKERS[mark[1].lower()], "content": content})
        return messages
    return None


def hash_prompt(prompt: object) -> str:
    """A short name of a prompt's text, for tables without texts."""
    content = json.dumps(prompt, sort_keys=True).encode()
    return blake2b(content, digest_size=8).hexdigest()


def name_family(prompt: Prompt) -> str:
    """The family of a prompt: the same for equal texts, without space around them."""
    if isinstance(prompt, str):
        return hash_prompt(prompt.strip())
    return hash_prompt(_strip_messages(prompt))
