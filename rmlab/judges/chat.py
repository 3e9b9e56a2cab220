"""A judge behind an OpenAI-compatible chat endpoint (OpenAI, vLLM, SGLang, llama.cpp), asked now or in a batch."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pandas as pd

from rmlab.judges.asking import Answers, Respondent, list_questions, split_answered
from rmlab.judges.questions import LETTERS, Answer, Question, Sampling, count_tokens, encode
from rmlab.records import write_file
from rmlab.scorers.base import Provenance
from rmlab.scorers.local import hash_parts
from rmlab.store import Store
from rmlab.tables import DataError

if TYPE_CHECKING:
    from rmlab.judges.modes import Judge
    from rmlab.servers import Client, Reply, Request
    from rmlab.servers.http import Json

OPENAI = "api.openai.com"
PATH = "/chat/completions"

# Alternatives that OpenAI and vLLM give at most.
_TOP_LOGPROBS = 20
_MIN_LOGPROB = -1e4


@dataclass
class _TokenRate:
    """Tokens of a byte: at most one, until the server has counted those of a question in the same kind of script.

    `per_byte`: the highest rate by whether nearly all of a question is ASCII. A run may begin in English, and go on in
    Chinese.
    """

    per_byte: dict[bool, float] = field(default_factory=dict)

    def reserve(self, question: Question) -> int:
        """Return the most tokens that a question is likely to have."""
        return int(question.n_bytes * self.per_byte.get(_is_ascii(question), 1.0)) + 1

    def update(self, question: Question, n_tokens: int | None) -> None:
        """Take the server's count."""
        if n_tokens is not None:
            script = _is_ascii(question)
            self.per_byte[script] = max(self.per_byte.get(script, 0.0), n_tokens / max(question.n_bytes, 1))


@dataclass(frozen=True)
class Chat(Respondent):
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
        return hash_parts({"answers": 2} | server | {"seed": self.sampling.seed, "sampling": self.fields})

    def body(self, question: Question) -> dict[str, object]:
        """Return the body of one request. Each sample is a request of its own, with a seed of its own."""
        fields = {"model": self.model, "messages": question.messages, "seed": question.seed} | self.fields
        return {name: value for name, value in fields.items() if value is not None}

    def check_budget(self, questions: Sequence[Question]) -> None:
        """Raise DataError where the questions alone exceed the rest of the client's budget."""
        spent = self.client.spent
        needs = {"max_requests": (len(questions), spent.requests)}
        if self.client.max_tokens is not None:
            needs["max_tokens"] = (count_tokens(questions), spent.tokens)
        for name, (n_needed, n_spent) in needs.items():
            budget = getattr(self.client, name)
            if budget is not None and n_needed > budget - n_spent:
                raise DataError(
                    f"{name}={budget}: the {len(questions)} questions take at least {n_needed}, and "
                    f"{max(budget - n_spent, 0)} are left; raise it, or judge fewer prompts (shard=)"
                )

    def respond(self, questions: Iterable[Question]) -> Answers:
        """Yield answers as they arrive; raise DataError where log-probabilities are needed and missing."""
        pending = iter(questions)
        if self.client.max_tokens is not None:
            # Its answer says what a byte costs: the others then reserve that, instead of a token for each byte.
            yield from self._send(islice(pending, 1))
        yield from self._send(pending)

    def provenance(self) -> Provenance:
        """Return the model, the server and how it is asked."""
        server: Provenance = {"model": self.model, "url": self.client.url, "requests": self.client.spent.requests}
        sampling = {"sampling": self.fields | {"seed": self.sampling.seed}}
        return server | sampling | ({"version": self.version} if self.version else {})

    def _send(self, questions: Iterable[Question]) -> Answers:
        for question, answer in self.client.stream(self._requests(questions), _read_reply):
            if answer.value is None:
                yield question, answer.reason
                continue
            if self.sampling.letters and len(answer.value.top or {}) < 2:
                raise DataError(
                    f"url={self.client.url!r}: the server gives no log-probabilities of alternatives (top_logprobs), "
                    "which mode='logprob' reads; use mode='pairwise', or start the server with them"
                )
            if self.client.max_tokens is not None:
                self.token_rate.update(question, answer.value.prompt_tokens)
            yield question, answer.value

    def _requests(self, questions: Iterable[Question]) -> "Iterator[tuple[Question, Request]]":
        from rmlab.servers import Request

        for question in questions:
            n_tokens = self.longest + self.token_rate.reserve(question) if self.client.max_tokens is not None else 0
            yield question, Request(PATH, self.body(question), n_tokens)


def read_completion(completion: "Json") -> Answer:
    """Return the answer of a chat completion; raise ValueError, LookupError or TypeError where it is none."""
    choice = completion["choices"][0]
    message = choice["message"]
    usage = completion.get("usage") or {}
    return Answer(
        text=_join_parts(message.get("content") or message.get("refusal") or ""),
        finish=_string(choice.get("finish_reason")),
        reasoning=_join_parts(message.get("reasoning_content") or message.get("reasoning") or ""),
        top=_top_logprobs(choice.get("logprobs")),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        answer_tokens=_count(usage.get("completion_tokens")),
        model=_string(completion.get("model")),
    )


def _is_ascii(question: Question) -> bool:
    return question.n_bytes <= 1.05 * sum(len(part["content"]) for part in question.messages)


def _read_reply(_: Question, reply: "Reply") -> Answer:
    return read_completion(reply.json())


def _join_parts(content: object) -> str:
    """The content as one string; some servers send a list of parts."""
    if isinstance(content, list):
        return "".join(_string(part.get("text")) for part in content)
    if not isinstance(content, str):
        raise ValueError(f"the content is {type(content).__name__}, not a string")
    return content


def _string(value: object) -> str:
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


def write_requests(
    judge: "Judge", responses: pd.DataFrame, path: str | Path, *, store: str | Path | None = None, most: int = 50_000
) -> list[Path]:
    """Write the questions without an answer for a batch endpoint (OpenAI's batches, `vllm run-batch`).

    Nothing is asked, and no key is written.

    Parameters
    ----------
    judge : PairJudge, AnswerJudge or ListJudge
        A judge of a model behind a server.
    responses : DataFrame
        A table of responses.
    path : str or Path
        The file. Each line has `custom_id` (hash of the question), `method`, `url` and `body`.
    store : str or Path, optional
        Where earlier answers are; their questions are left out.
    most : int
        Lines of a file. Further ones go into files with -2, -3 ... behind the name.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    DataError
        Where no question is left, and for a judge that runs on this machine.
    """
    chat, path = judge.respondent, Path(path).expanduser()
    if not isinstance(chat, Chat):
        raise DataError(f"judge {judge.name!r} runs on this machine; give rmlab.judge a url= for batch endpoints")
    stored, bodies = None if store is None else Store(store), dict[str, dict[str, object]]()
    for _, questions in list_questions(judge, responses):
        _, pending = split_answered(chat, questions, lambda answer, question: None, stored)
        bodies |= {question.key: chat.body(question) for question in pending}
    lines = [
        json.dumps({"custom_id": key, "method": "POST", "url": f"/v1{PATH}", "body": body})
        for key, body in bodies.items()
    ]
    if not lines:
        raise DataError(f"store: {store} holds an answer to every question; rmlab.prefer or rmlab.score will read them")
    files: list[Path] = []
    for start in range(0, len(lines), most):
        file = path.with_name(f"{path.stem}-{len(files) + 1}{path.suffix}") if files else path
        files.append(write_file(file, "\n".join(lines[start : start + most]) + "\n"))
    return files


def read_results(judge: "Judge", responses: pd.DataFrame, path: str | Path, *, store: str | Path) -> pd.DataFrame:
    """Put the results of a batch into the store, where `rmlab.prefer` and `rmlab.score` find them.

    Parameters
    ----------
    judge : PairJudge, AnswerJudge or ListJudge
        The judge with which the requests were written.
    responses : DataFrame
        The table of responses with which the requests were written.
    path : str or Path
        The result file; its lines may stand in any order.
    store : str or Path
        Where the answers go.

    Returns
    -------
    DataFrame
        One row: file, read (answers that are new in the store), known (that it held), failed (lines with an error,
        which will be asked again), strange (lines of questions of other runs), missing (questions of this run that
        still have no answer).

    Raises
    ------
    DataError
        Where the file is not a batch result, or no line of it belongs to this run.
    """
    path = Path(path).expanduser()
    keys = {question.key for _, questions in list_questions(judge, responses) for question in questions}
    answers, n_failed, n_strange = _read_lines(path, keys)
    if not answers and not n_failed:
        raise DataError(
            f"{path}: none of its {n_strange} lines is of this run; give the judge (template, samples, seed) and the "
            "responses that the requests were written with"
        )
    # The judges of subsets ask the same model in other words, so that one fingerprint has all answers.
    target, fingerprint = Store(store), judge.respondent.fingerprint
    stored = {record.key for record in target.records(fingerprint)}
    new_keys = [key for key in answers if key not in stored]
    target.note(fingerprint, {"name": judge.name, "read_from": path.name} | judge.respondent.provenance())
    target.append(fingerprint, {key: encode(answers[key]) for key in new_keys})
    target.flush()
    n_missing = len(keys - stored - set(new_keys))
    counts = {"read": len(new_keys), "known": len(answers) - len(new_keys), "failed": n_failed, "strange": n_strange}
    return pd.DataFrame([{"file": str(path)} | counts | {"missing": n_missing}])


def _read_lines(path: Path, keys: set[str]) -> tuple[dict[str, Answer], int, int]:
    """Answers by key, and how many lines failed and are of other runs."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error}); give the result file of a batch") from error
    answers: dict[str, Answer] = {}
    n_failed = n_strange = 0
    # Not by `splitlines`: an answer may hold other separators than the line feed, which JSON leaves as they are.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            result = json.loads(line)
            is_strange = (key := result["custom_id"]) not in keys
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(
                f"{path}: line {number} is no result of a batch ({type(error).__name__}); give the file that the batch "
                "endpoint wrote"
            ) from None
        n_strange += is_strange
        if not is_strange:
            try:
                answers[key] = read_completion(result["response"]["body"])
            except (ValueError, LookupError, TypeError, AttributeError):
                n_failed += 1
    return answers, n_failed, n_strange
