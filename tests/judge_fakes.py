"""Judges without a model: respondents that answer by a rule, and what a chat endpoint would reply."""

import re

import pandas as pd

from rmlab.judges.modes import AnswerJudge, PairJudge
from rmlab.judges.questions import Answer, Sampling, load_template

_SHOWN = re.compile(r"<answer_a>\n(.*)\n</answer_a>\n\n<answer_b>\n(.*)\n</answer_b>", re.DOTALL)
_RATED = re.compile(r"(?:<answer>|Reply of the assistant:\n---)\n(.*)\n(?:</answer>|---)", re.DOTALL)
_OTHER = re.compile(r"Reply of assistant A:\n---\n(.*)\n---\n\nReply of assistant B:\n---\n(.*)\n---", re.DOTALL)


class Respondent:
    """Answers by a rule: `answer(question)` gives a text, an Answer, or None for a failure."""

    title, sampling = "fake", Sampling(0.0, 10)

    def __init__(self, answer, fingerprint="fake"):
        self.answer, self.fingerprint, self.asked = answer, fingerprint, []

    def respond(self, questions):
        for question in questions:
            self.asked.append(question)
            answer = self.answer(question)
            answer = Answer(answer, "stop") if isinstance(answer, str) else answer
            yield question, answer or "status 500"

    def provenance(self):
        return {"model": "fake"}


def both(question):
    """The two answers that a question shows, in the shipped words or the other ones."""
    text = question.messages[-1]["content"]
    return (_SHOWN.search(text) or _OTHER.search(text)).groups()


def pair_judge(choose, name="judge", template="five", **options):
    """A pairwise judge; `choose(first, second, question)` gives its answer."""
    respondent = Respondent(lambda question: choose(*both(question), question))
    return PairJudge(name, respondent, load_template(template, "pair"), **options)


def rating_judge(rate, name="judge", template="rating", **options):
    """A judge that rates; `rate(text, question)` gives its answer."""
    respondent = Respondent(lambda question: rate(_RATED.search(question.messages[-1]["content"])[1], question))
    return AnswerJudge(name, respondent, load_template(template, "answer"), **options)


def longer(first, second, _=None):
    """A rule that does not care about the order."""
    return "[[A=B]]" if len(first) == len(second) else "[[A>B]]" if len(first) > len(second) else "[[B>A]]"


def responses(n=20, answers=1):
    """`n` prompts whose right answers are longer, with `answers` of either label."""
    rows = [
        ("fake", "chat", str(i), label, slot, f"question {i}", f"{label} {slot} to {i} {'x' * 9 * (label == 'chosen')}")
        for i in range(n)
        for label in ("chosen", "rejected")
        for slot in range(answers)
    ]
    return pd.DataFrame(rows, columns=["benchmark", "domain", "id", "label", "slot", "prompt", "response"])


def completion(text, finish="stop", logprobs=None, **message):
    """A chat completion, as OpenAI-compatible servers send it."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text} | message, "finish_reason": finish}
    if logprobs is not None:
        choice["logprobs"] = logprobs
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return {"id": "c", "object": "chat.completion", "model": "served", "choices": [choice], "usage": usage}
