"""The prompt that chosen and rejected share: found in conversations and transcripts, and split off."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from rmlab import records

__all__ = ["Asked", "common_prompt", "strip_prompt"]

Messages = list[dict[str, str]]
Answer = str | Messages

_ROLES = {"human": "user", "user": "user", "assistant": "assistant", "system": "system"}
_TURN = {
    "human": re.compile(r"(?:^|\n\n)(Human|Assistant):[ ]?"),
    "chatml": re.compile(r"\n?<\|im_start\|>(system|user|assistant)\n"),
}


@dataclass
class Asked:
    """A prompt with its answers as texts. `shared`: the prompt was found at the start of the answers."""

    number: int
    id: str
    domain: str | None
    subset: str | None
    prompt: str | Messages
    shared: bool
    answers: dict[str, list[str]]


def common_prompt(
    place: Path, number: int, row: records.Row, answers: list[Answer], *, known: bool
) -> tuple[str | Messages | None, list[str]]:
    """The shared prompt (None where the answers hold none) and the texts of the answers without it.

    An answer is a text, a transcript or a list of messages. All answers of a row must be of one kind, and all but
    their last messages equal; otherwise they answer different prompts and DataError is raised. Texts that are no
    proper transcripts are only texts where the prompt is `known` from elsewhere.
    """
    as_messages = [answer if isinstance(answer, list) else _parse(answer) for answer in answers]
    plain = [answer for answer in answers if isinstance(answer, str)]
    if not any(as_messages):
        return None, plain
    if known and len(plain) == len(answers) and not _agree(as_messages):
        return None, plain
    if not all(as_messages):
        _different(place, number, row, "some answers are conversations, others are not")
    conversations = [conversation for conversation in as_messages if conversation]
    prompt = conversations[0][:-1]
    for conversation in conversations:
        if conversation[-1]["role"] != "assistant":
            _different(place, number, row, f"a conversation ends with the role {conversation[-1]['role']!r}")
        if conversation[:-1] != prompt:
            _different(place, number, row, "the conversations differ before their last message")
    texts = [conversation[-1]["content"] for conversation in conversations]
    if not prompt:
        return None, texts
    alone = len(prompt) == 1 and prompt[0]["role"] == "user"
    return (prompt[0]["content"] if alone else prompt), texts


def strip_prompt(prompts: list[Asked]) -> bool:
    """Cut the prompt off the answers (in place) where every answer of every row starts with it; say whether it was."""
    for prompt in prompts:
        start = prompt.prompt
        answers = [answer for texts in prompt.answers.values() for answer in texts]
        if not isinstance(start, str) or start.strip() == "" or prompt.shared:
            return False
        if not all(answer.startswith(start) and answer[len(start) :].strip() for answer in answers):
            return False
    for prompt in prompts:
        for label, texts in prompt.answers.items():
            prompt.answers[label] = [answer[len(prompt.prompt) :].lstrip() for answer in texts]
    return True


def _agree(conversations: list[Messages | None]) -> bool:
    """Whether all are conversations that end with an assistant's message and are equal before it."""
    found = [conversation for conversation in conversations if conversation]
    ends = all(conversation[-1]["role"] == "assistant" for conversation in found)
    return len(found) == len(conversations) and ends and all(c[:-1] == found[0][:-1] for c in found)


def _parse(text: str) -> Messages | None:
    """Messages of a transcript that starts with a turn marker and has at least two turns, or else None."""
    for kind, turn in _TURN.items():
        marks = list(turn.finditer(text))
        if len(marks) < 2 or text[: marks[0].start()].strip():
            continue
        ends = [mark.start() for mark in marks[1:]] + [len(text)]
        return [
            {
                "role": _ROLES[mark[1].lower()],
                "content": _content(text[mark.end() : end], kind),
            }
            for mark, end in zip(marks, ends, strict=True)
        ]
    return None


def _content(text: str, kind: str) -> str:
    return text.removesuffix("\n").removesuffix("<|im_end|>") if kind == "chatml" else text


def _different(place: Path, number: int, row: records.Row, why: str) -> NoReturn:
    records.fail(
        place, number, row, "rejected" if "rejected" in row else "chosen",
        f"an answer to the same prompt as all others of the row ({why})", "repair the row",
    )  # fmt: skip
