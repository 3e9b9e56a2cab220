"""A judge behind an OpenAI-compatible chat endpoint (OpenAI, vLLM, SGLang,
llama.cpp).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rmlab.judges.questions import (
    Completion,
    Completions,
    Question,
    Sampling,
)
from rmlab.judges.readers import is_choice
from rmlab.scorers.base import Provenance, hash_parts
from rmlab.tables import DataError

if TYPE_CHECKING:
    from rmlab.servers import Client
    from rmlab.servers.http import Json, Reply, Request

PATH = "/chat/completions"

# Alternatives that OpenAI and vLLM give at most.
_TOP_LOGPROBS = 20
_MIN_LOGPROB = -1e4
_NO_LETTERS = "the server gives no top_logprobs; use mode='pairwise'"
# Answers without log-probabilities in a row from which on a server counts as one that
# gives none.
_MAX_LETTERLESS = 8


@dataclass(frozen=True)
class Chat:
    """A chat endpoint that is asked.

    Parameters
    ----------
    title : str
        The model's name at the server.
    client : Client
        Sends the requests.
    sampling : Sampling
        How answers are drawn.
    extra : mapping
        Further fields of each request; None takes a field out.
    version : str
        Tells answers in the store apart where the model behind a name changed.
    template_options : mapping
        Options of the server's chat template.
    """

    title: str
    client: "Client"
    sampling: Sampling
    extra: Mapping[str, object] = field(default_factory=dict)
    version: str = ""
    template_options: Mapping[str, object] = field(default_factory=dict)

    @property
    def fields(self) -> dict[str, object]:
        """Fields of each request beside model, messages and seed."""
        # OpenAI's own newer models refuse the older name; the servers that people run
        # know that one for certain.
        limit = "max_tokens"
        if is_openai(self.client.url):
            limit = "max_completion_tokens"
        fields: dict[str, object] = {
            "temperature": self.sampling.temperature,
            limit: self.sampling.answer_tokens,
        }
        if self.sampling.choices:
            fields["logprobs"] = True
            fields["top_logprobs"] = _TOP_LOGPROBS
        if self.template_options:
            fields["chat_template_kwargs"] = dict(self.template_options)
        return fields | dict(self.extra)

    @property
    def fingerprint(self) -> str:
        """Hash of the model, the whole address, and the sampling: another port or path
        may be another model.
        """
        parts: dict[str, object] = {
            "answers": 2,
            "model": self.title,
            "url": self.client.url,
            "version": self.version,
            "sampling": self.fields,
            # The stored log-probabilities are those at the token of a choice.
            "choices": self.sampling.choices,
        }
        return hash_parts(parts)

    def request(self, question: Question) -> "Request":
        """Return one request. Each sample is a request of its own, with a seed of its
        own.
        """
        from rmlab.servers.http import Request

        fields = {
            "model": self.title,
            "messages": question.messages,
            "seed": question.seed,
        }
        fields |= self.fields
        body = {name: value for name, value in fields.items() if value is not None}
        return Request(PATH, body)

    def respond(self, questions: Sequence[Question]) -> Completions:
        """Yield answers as they arrive.

        Raises DataError before the first question where these are more than the rest
        of `max_requests`, and for a server that gives no log-probabilities.
        """
        most = self.client.max_requests
        if most is not None and len(questions) > most - self.client.spent.requests:
            left = f"{max(most - self.client.spent.requests, 0)} are left"
            problem = f"max_requests={most}: {len(questions)} are needed, {left}"
            raise DataError(problem, "raise it, or pass shard=")

        requests = ((question, self.request(question)) for question in questions)
        n_letterless = 0
        for question, result in self.client.stream(requests, self._read_reply):
            answer: Completion | str = result.value or result.reason
            if self.sampling.choices and isinstance(answer, Completion):
                n_letterless += 1
                if len(answer.top or {}) > 1:
                    n_letterless = 0
                else:
                    answer = _NO_LETTERS
            if n_letterless == _MAX_LETTERLESS:
                raise DataError(f"model={self.title!r}: {_NO_LETTERS}")
            yield question, answer

    def _read_reply(self, question: Question, reply: "Reply") -> Completion:
        return read_completion(reply.json(), self.sampling.choices)

    def provenance(self) -> Provenance:
        """Return the model, the server and how it is asked."""
        server: Provenance = {
            "model": self.title,
            "url": self.client.url,
            "sampling": self.fields,
        }
        if self.version:
            server["version"] = self.version
        return server


def is_openai(url: str) -> bool:
    """Whether an address is of OpenAI itself."""
    return urlsplit(url).hostname == "api.openai.com"


def read_completion(completion: "Json", choices: tuple[str, ...]) -> Completion:
    """Return the answer of a chat completion; raise ValueError, LookupError or
    TypeError where it is none.
    """
    choice = completion["choices"][0]
    message = choice["message"]
    content = message.get("content") or message.get("refusal") or ""
    reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    usage = completion.get("usage") or {}
    return Completion(
        text=_join_content(content),
        finish=str(choice.get("finish_reason") or ""),
        reasoning=_join_content(reasoning),
        top=_top_logprobs(choice.get("logprobs"), choices),
        prompt_tokens=int(usage.get("prompt_tokens") or 0) or None,
        answer_tokens=int(usage.get("completion_tokens") or 0) or None,
        model=str(completion.get("model") or ""),
    )


def _join_content(content: "Json") -> str:
    """The content as one string; some servers send a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content)


def _top_logprobs(
    logprobs: "Json", choices: tuple[str, ...]
) -> dict[str, float] | None:
    """Log-probabilities at the last token of the answer that is one of the choices:
    after the reasoning, if there is any.
    """
    tokens = (logprobs or {}).get("content") or []
    if not tokens:
        return None
    verdict = tokens[0]
    for token in reversed(tokens):
        if is_choice(token["token"], choices):
            verdict = token
            break

    alternatives = verdict.get("top_logprobs") or [verdict]
    top = {}
    for entry in alternatives:
        logprob = float(entry["logprob"])
        if not logprob < math.inf:  # nor NaN
            raise ValueError("a log-probability is no number")
        top[str(entry["token"])] = max(logprob, _MIN_LOGPROB)
    return top
