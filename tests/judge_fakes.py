"""Judges without a model: respondents that answer by a rule, and what a chat endpoint
would reply.
"""

import re

import pandas as pd

from rmlab.judges.kinds import AnswerJudge, PairJudge
from rmlab.judges.questions import Completion, Sampling, load_template

_SHOWN = re.compile(
    (
        r"(?:<answer(?:_\w)?>|Reply of (?:the assistant|assistant \w):\n---)\n(.*?)\n"
        r"(?:</answer|---(?=\n\nReply of|\Z))"
    ),
    re.DOTALL,
)


class Respondent:
    """Answers by a rule: `answer(question)` gives a text, a Completion, or None for a
    failure.
    """

    title = "fake"

    def __init__(self, answer, fingerprint="fake", choices=()):
        self.answer, self.fingerprint, self.asked = answer, fingerprint, []
        self.sampling = Sampling(0.0, 10, choices)

    def respond(self, questions):
        for question in questions:
            self.asked.append(question)
            answer = self.answer(question)
            answer = Completion(answer, "stop") if isinstance(answer, str) else answer
            yield question, answer or "status 500"

    def provenance(self):
        return {"model": "fake"}


def shown_answers(messages):
    """The answers that a question shows, in the shipped words or the other ones."""
    return _SHOWN.findall(messages[-1]["content"])


def pair_judge(choose, name="judge", template="five", **options):
    """A pairwise judge; `choose(first, second, question)` gives its answer."""
    respondent = Respondent(
        lambda question: choose(*shown_answers(question.messages), question),
        choices=("A", "B") if options.get("letters") else (),
    )
    return PairJudge(name, respondent, load_template(template, "pair"), **options)


def rating_judge(rate, name="judge", template="rating", **options):
    """A judge that rates; `rate(text, question)` gives its answer."""
    respondent = Respondent(
        lambda question: rate(*shown_answers(question.messages), question)
    )
    return AnswerJudge(name, respondent, load_template(template, "answer"), **options)


def longer(first, second, _=None):
    """A rule that does not care about the order."""
    return (
        "[[A=B]]"
        if len(first) == len(second)
        else "[[A>B]]"
        if len(first) > len(second)
        else "[[B>A]]"
    )


def responses(n=20, answers=1):
    """`n` prompts whose right answers are longer, with `answers` of either label."""
    rows = [
        (
            "fake",
            "chat",
            str(i),
            label,
            slot,
            f"question {i}",
            f"{label} {slot} to {i} {'x' * 9 * (label == 'chosen')}",
        )
        for i in range(n)
        for label in ("chosen", "rejected")
        for slot in range(answers)
    ]
    return pd.DataFrame(
        rows,
        columns=["benchmark", "domain", "id", "label", "slot", "prompt", "response"],
    )


def completion(text, finish="stop", logprobs=None, **message):
    """A chat completion, as OpenAI-compatible servers send it."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text} | message,
        "finish_reason": finish,
    }
    if logprobs is not None:
        choice["logprobs"] = logprobs
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return {
        "id": "c",
        "object": "chat.completion",
        "model": "served",
        "choices": [choice],
        "usage": usage,
    }


def respond(path, body, headers):
    """A server's reply: the longer of two answers is better, a single one is rated 9
    where it is right, else 3.
    """
    answers = shown_answers(body["messages"])
    return completion(
        longer(*answers)
        if len(answers) > 1
        else "[[9]]"
        if answers[0].startswith("chosen")
        else "[[3]]"
    )
