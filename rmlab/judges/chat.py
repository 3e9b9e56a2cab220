"""A judge behind an OpenAI-compatible chat endpoint: OpenAI, vLLM, SGLang, llama.cpp, `transformers serve`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rmlab.judges.questions import Answer, Question, Sampling, count_bytes, count_tokens
from rmlab.judges.templates import LETTERS
from rmlab.scorers.streaming import fingerprint
from rmlab.scorers.types import Provenance
from rmlab.tables import DataError

if TYPE_CHECKING:
    from rmlab.servers import Client, Reply, Request
    from rmlab.servers.http import Json

OPENAI = "api.openai.com"
PATH = "/chat/completions"

# Alternatives that OpenAI and vLLM give at most.
_TOP_LOGPROBS = 20
_MIN_LOGPROB = -1e4
_RAISE_IT = "raise it, or judge fewer prompts (shard=)"


@dataclass
class _TokenRate:
    """Tokens of a byte of the questions: at most one, until the server says how many it counted."""

    per_byte: float = 1.0
    is_reported: bool = False

    def update(self, n_bytes: int, n_tokens: int | None) -> None:
        """Take the server's count; the highest of all counts holds."""
        if n_tokens is not None and n_bytes:
            self.per_byte = max(self.per_byte * self.is_reported, n_tokens / n_bytes)
            self.is_reported = True


@dataclass(frozen=True)
class Chat:
    """A chat endpoint that is asked.

    Parameters
    ----------
    model : str
        The model's name at the server.
    client : Client
        Sends the requests.
    sampling : Sampling
        How answers are drawn.
    extra : mapping
        Further fields of each request; None takes a field out.
    version : str
        Tells answers in the store apart where the model behind a name changed.
    """

    model: str
    client: "Client"
    sampling: Sampling
    extra: Mapping[str, object] = field(default_factory=dict)
    version: str = ""
    token_rate: _TokenRate = field(default_factory=_TokenRate, repr=False, compare=False)

    @property
    def title(self) -> str:
        """The model's name at the server."""
        return self.model

    @property
    def longest(self) -> int:
        """The most tokens of an answer."""
        return self.sampling.answer_tokens

    @property
    def fields(self) -> dict[str, object]:
        """Fields of each request beside model, messages and seed."""
        # OpenAI's own newer models refuse the older name; the servers that people run know that one for certain.
        limit = "max_completion_tokens" if urlsplit(self.client.url).hostname == OPENAI else "max_tokens"
        logprobs = {"logprobs": True, "top_logprobs": _TOP_LOGPROBS} if self.sampling.letters else {}
        return {"temperature": self.sampling.temperature, limit: self.longest} | logprobs | dict(self.extra)

    @property
    def fingerprint(self) -> str:
        """Hash of the model, the whole address, and the sampling: another port or path may be another model."""
        server = {"model": self.model, "url": self.client.url, "version": self.version}
        return fingerprint({"answers": 2} | server | {"seed": self.sampling.seed, "sampling": self.fields})

    def check_budget(self, questions: Sequence[Question]) -> None:
        """Raise DataError where the questions alone exceed the rest of the client's budget."""
        client, n = self.client, len(questions)
        if client.max_requests is not None and n > (free := max(client.max_requests - client.spent.requests, 0)):
            raise DataError(
                f"max_requests={client.max_requests:,}: there are {n:,} questions to ask, and {free:,} are left; "
                f"{_RAISE_IT}"
            )
        if client.max_tokens is None:
            return
        n_tokens, free = count_tokens(questions), max(client.max_tokens - client.spent.tokens, 0)
        if n_tokens > free:
            raise DataError(
                f"max_tokens={client.max_tokens:,}: the {n:,} questions to ask have about {n_tokens:,} tokens, their "
                f"answers not counted, and {free:,} are left; {_RAISE_IT}"
            )

    def speak(self, questions: Iterable[Question]) -> Iterator[tuple[Question, Answer | str]]:
        """Yield answers as they arrive; raise DataError where log-probabilities are needed and missing."""
        pending = iter(questions)
        if self.client.max_tokens is not None:
            # Its answer says what a byte costs: the others then reserve that, instead of a token for each byte.
            yield from self._send(islice(pending, 1))
        yield from self._send(pending)

    def provenance(self) -> Provenance:
        """Return the model, the server and how it is asked."""
        asked: Provenance = {
            "model": self.model,
            "url": self.client.url,
            "sampling": self.fields | {"seed": self.sampling.seed},
            "requests": self.client.spent.requests,
        }
        return asked | ({"version": self.version} if self.version else {})

    def _send(self, questions: Iterable[Question]) -> Iterator[tuple[Question, Answer | str]]:
        for (question, n_bytes), answer in self.client.stream(self._requests(questions), _read_reply):
            if answer.value is None:
                yield question, answer.reason
                continue
            if self.sampling.letters and len(answer.value.top or {}) < 2:
                raise DataError(
                    f"url={self.client.url!r}: the server gives no log-probabilities of alternatives (top_logprobs), "
                    "which mode='logprob' reads; use mode='pairwise', or start the server with them"
                )
            self.token_rate.update(n_bytes, answer.value.prompt_tokens)
            yield question, answer.value

    def _requests(self, questions: Iterable[Question]) -> "Iterator[tuple[tuple[Question, int], Request]]":
        from rmlab.servers import Request

        for question in questions:
            n_bytes = count_bytes(question.messages)
            reserved = int(n_bytes * self.token_rate.per_byte) + 1 + self.longest
            yield (question, n_bytes), Request(PATH, request_body(self, question), reserved)


def request_body(chat: Chat, question: Question) -> dict[str, object]:
    """Return the body of one request. Each sample is a request of its own, with a seed of its own."""
    fields = {"model": chat.model, "messages": question.messages, "seed": question.seed} | chat.fields
    return {name: value for name, value in fields.items() if value is not None}


def read_completion(completion: "Json") -> Answer:
    """Return the answer of a chat completion; raise ValueError, LookupError or TypeError where it is none."""
    choice = completion["choices"][0]
    message = choice["message"]
    usage = completion.get("usage") or {}
    return Answer(
        text=_text(message.get("content") or message.get("refusal") or ""),
        finish=_word(choice.get("finish_reason")),
        reasoning=_text(message.get("reasoning_content") or message.get("reasoning") or ""),
        top=_top_logprobs(choice.get("logprobs")),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        answer_tokens=_count(usage.get("completion_tokens")),
        model=_word(completion.get("model")),
    )


def _read_reply(_: object, reply: "Reply") -> Answer:
    return read_completion(reply.json())


def _text(content: object) -> str:
    """The content as one string; some servers send a list of parts."""
    if isinstance(content, list):
        return "".join(_word(part.get("text")) for part in content)
    if not isinstance(content, str):
        raise ValueError(f"the content is {type(content).__name__}, not a string")
    return content


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _top_logprobs(logprobs: "Json") -> dict[str, float] | None:
    """Log-probabilities at the last letter of the answer: after the reasoning, if there is any."""
    tokens = (logprobs or {}).get("content") or []
    if not tokens:
        return None
    token = next((token for token in reversed(tokens) if token["token"].strip() in {*LETTERS}), tokens[0])
    alternatives = token.get("top_logprobs") or [token]
    return {entry["token"]: max(float(entry["logprob"]), _MIN_LOGPROB) for entry in alternatives}
