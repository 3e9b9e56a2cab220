"""A judge behind an OpenAI-compatible chat endpoint (OpenAI, vLLM, SGLang, llama.cpp),
asked now or in a batch.
"""

import json
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

import pandas as pd

from rmlab import tables
from rmlab.judges.questions import (
    LETTERS,
    Completion,
    Completions,
    Question,
    Sampling,
    count_tokens,
    encode,
)
from rmlab.records import expand_path, write_file
from rmlab.scorers.base import Provenance, hash_parts
from rmlab.scoring.judged import list_items
from rmlab.scoring.texts import comparisons
from rmlab.store import Store
from rmlab.tables import DataError

if TYPE_CHECKING:
    from rmlab.judges.asking import LLMJudge
    from rmlab.judges.local import Local
    from rmlab.servers import Client
    from rmlab.servers.http import Json, Reply, Request

OPENAI = "api.openai.com"
PATH = "/chat/completions"

# Alternatives that OpenAI and vLLM give at most.
_TOP_LOGPROBS = 20
_MIN_LOGPROB = -1e4
NO_LOGPROBS = "no top_logprobs for mode='logprob'"
USE_PAIRWISE = "use mode='pairwise'"
NO_LETTERS = f"{NO_LOGPROBS}; {USE_PAIRWISE}"
"""Why a letter's reply is no answer."""


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
    """

    title: str
    client: "Client"
    sampling: Sampling
    extra: Mapping[str, object] = field(default_factory=dict)
    version: str = ""

    @property
    def fields(self) -> dict[str, object]:
        """Fields of each request beside model, messages and seed."""
        # OpenAI's own newer models refuse the older name; the servers that people run
        # know that one for certain.
        is_openai = urlsplit(self.client.url).hostname == OPENAI
        limit = "max_completion_tokens" if is_openai else "max_tokens"
        fields: dict[str, object] = {
            "temperature": self.sampling.temperature,
            limit: self.sampling.answer_tokens,
        }
        if self.sampling.letters:
            fields["logprobs"] = True
            fields["top_logprobs"] = _TOP_LOGPROBS
        return fields | dict(self.extra)

    @property
    def fingerprint(self) -> str:
        """Hash of the model, the whole address, and the sampling: another port or path
        may be another model.
        """
        return hash_parts(
            {
                "answers": 2,
                "model": self.title,
                "url": self.client.url,
                "version": self.version,
                "seed": self.sampling.seed,
                "sampling": self.fields,
            }
        )

    def request(self, question: Question) -> "Request":
        """Return one request. Each sample is a request of its own, with a seed of its
        own.
        """
        from rmlab.servers import Request

        fields = {
            "model": self.title,
            "messages": question.messages,
            "seed": question.seed,
        }
        fields |= self.fields
        body = {name: value for name, value in fields.items() if value is not None}
        n_tokens = 0
        if self.client.max_tokens is not None:
            # No tokenizer writes more tokens than bytes; the reply says how many they
            # were.
            n_tokens = question.n_bytes + self.sampling.answer_tokens
        return Request(PATH, body, n_tokens)

    def respond(self, questions: Sequence[Question]) -> Completions:
        """Yield answers as they arrive.

        Raises DataError before the first question where the questions alone exceed the
        rest of the client's budget.
        """
        if not questions:
            return
        self._check_budget(questions)

        requests = ((question, self.request(question)) for question in questions)
        answers = self.client.stream(requests, _read_reply)
        for question, result in answers:
            if result.value is None:
                yield question, result.reason
            elif self.sampling.letters and len(result.value.top or {}) < 2:
                yield question, NO_LETTERS
            else:
                yield question, result.value

    def _check_budget(self, questions: Sequence[Question]) -> None:
        """Raise DataError where the questions need more than is left."""
        spent = self.client.spent
        needs = [("max_requests", len(questions), spent.requests)]
        if self.client.max_tokens is not None:
            needs.append(("max_tokens", count_tokens(questions), spent.tokens))
        for name, n_needed, n_spent in needs:
            budget = getattr(self.client, name)
            if budget is None:
                continue
            n_left = budget - n_spent
            if n_needed > n_left:
                problem = f"{name}={budget}: {n_needed} are needed"
                problem += f", {max(n_left, 0)} are left"
                raise DataError(problem, "raise it, or pass shard=")

    def provenance(self) -> Provenance:
        """Return the model, the server and how it is asked."""
        server: Provenance = {
            "model": self.title,
            "url": self.client.url,
            "requests": self.client.spent.requests,
            "sampling": self.fields | {"seed": self.sampling.seed},
        }
        if self.version:
            server["version"] = self.version
        return server


def _read_reply(question: Question, reply: "Reply") -> Completion:
    return read_completion(reply.json())


def read_completion(completion: "Json") -> Completion:
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
        top=_top_logprobs(choice.get("logprobs")),
        prompt_tokens=_read_count(usage.get("prompt_tokens")),
        answer_tokens=_read_count(usage.get("completion_tokens")),
        model=str(completion.get("model") or ""),
    )


def _read_count(count: "Json") -> int | None:
    return None if count is None else int(count)


def _join_content(content: "Json") -> str:
    """The content as one string; some servers send a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content)


def _top_logprobs(logprobs: "Json") -> dict[str, float] | None:
    """Log-probabilities at the last letter of the answer: after the reasoning, if there
    is any.
    """
    tokens = (logprobs or {}).get("content") or []
    if not tokens:
        return None
    verdict = tokens[0]
    for token in reversed(tokens):
        if token["token"].strip() in {*LETTERS}:
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


def read_stored(
    respondent: "Chat | Local", keys: Container[str], store: Store | None
) -> Iterator[tuple[str, Completion]]:
    """Yield those of the keys that the store has an answer to, and the answers."""
    if store is None:
        return
    for record in store.records(respondent.fingerprint):
        if record.key in keys:
            yield record.key, Completion(**record.value)  # type: ignore[arg-type]


def list_questions(
    judge: "LLMJudge", responses: pd.DataFrame
) -> "list[tuple[LLMJudge, list[Question]]]":
    """Return the questions of a run with the judge that asks them: the judge itself, or
    that of a subset.
    """
    responses = tables.check_responses(responses)
    if judge.takes == "pair":
        return [(judge, judge.questions(comparisons(responses)[1].distinct))]
    runs = []
    for items in list_items(judge, responses):
        asking = cast("LLMJudge", items.judge)
        runs.append((asking, asking.questions(items.texts.distinct)))
    return runs


def _questions_by_key(
    judge: "LLMJudge", responses: pd.DataFrame
) -> dict[str, Question]:
    """Every different question of a run."""
    by_key = {}
    for _, questions in list_questions(judge, responses):
        for question in questions:
            by_key[question.key] = question
    return by_key


def _list_unanswered(
    judge: "LLMJudge", responses: pd.DataFrame, store: str | Path | None
) -> tuple[int, list[Question]]:
    """How many different questions there are, and those that the store has no answer
    to.
    """
    by_key = _questions_by_key(judge, responses)
    source = None if store is None else Store(store)
    answered = {key for key, _ in read_stored(judge.respondent, by_key, source)}
    pending = [question for key, question in by_key.items() if key not in answered]
    return len(by_key), pending


def estimate(
    judge: "LLMJudge", responses: pd.DataFrame, *, store: str | Path | None = None
) -> pd.DataFrame:
    """Count what judging `responses` would take; nothing is asked.

    Parameters
    ----------
    judge : PairJudge, AnswerJudge or ListJudge
        A judge, as `rmlab.judge` makes it.
    responses : DataFrame
        A table of responses.
    store : str or Path, optional
        Where earlier answers are.

    Returns
    -------
    DataFrame
        One row: judge, questions (each different one once), answered (by the store),
        to_ask, prompt_tokens (of those to ask, at four bytes a token) and answer_tokens
        (at most).
    """
    n_questions, pending = _list_unanswered(judge, responses, store)
    answer_tokens = judge.respondent.sampling.answer_tokens
    return pd.DataFrame(
        {
            "judge": [judge.name],
            "questions": n_questions,
            "answered": n_questions - len(pending),
            "to_ask": len(pending),
            "prompt_tokens": count_tokens(pending),
            "answer_tokens": answer_tokens * len(pending),
        }
    )


def write_requests(
    judge: "LLMJudge",
    responses: pd.DataFrame,
    path: str | Path,
    *,
    store: str | Path | None = None,
    most: int = 50_000,
) -> list[Path]:
    """Write the questions without an answer for a batch endpoint (OpenAI's batches,
    `vllm run-batch`).

    Nothing is asked, and no key is written.

    Parameters
    ----------
    judge : PairJudge, AnswerJudge or ListJudge
        A judge of a model behind a server.
    responses : DataFrame
        A table of responses.
    path : str or Path
        The file. Each line has `custom_id` (hash of the question), `method`, `url` and
        `body`.
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
    chat = judge.respondent
    path = expand_path(path)
    if not isinstance(chat, Chat):
        raise DataError(
            f"judge {judge.name!r} runs on this machine",
            "give rmlab.judge a url= for batch endpoints",
        )
    _, pending = _list_unanswered(judge, responses, store)
    if not pending:
        raise DataError(
            f"store: {store} holds an answer to every question",
            "rmlab.prefer or rmlab.score will read them",
        )

    files: list[Path] = []
    for start in range(0, len(pending), most):
        lines = [_request_line(chat, q) for q in pending[start : start + most]]
        file = path
        if files:
            file = path.with_name(f"{path.stem}-{len(files) + 1}{path.suffix}")
        files.append(write_file(file, "".join(lines)))
    return files


def _request_line(chat: Chat, question: Question) -> str:
    request = {
        "custom_id": question.key,
        "method": "POST",
        "url": f"/v1{PATH}",
        "body": chat.request(question).body,
    }
    return json.dumps(request) + "\n"


def read_results(
    judge: "LLMJudge", responses: pd.DataFrame, path: str | Path, *, store: str | Path
) -> pd.DataFrame:
    """Put the results of a batch into the store, where `rmlab.prefer` and `rmlab.score`
    find them.

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
        One row: file, read (answers that are new in the store), known (that it held),
        failed (lines with an error, which will be asked again), strange (lines of
        questions of other runs), missing (questions of this run that still have no
        answer).

    Raises
    ------
    DataError
        Where the file is not a batch result, or no line of it belongs to this run.
    """
    path = expand_path(path)
    by_key = _questions_by_key(judge, responses)
    answers: dict[str, Completion] = {}
    n_failed = 0
    n_strange = 0
    for key, completion in _read_lines(path):
        if key not in by_key:
            n_strange += 1
            continue
        try:
            answers[key] = read_completion(completion)
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
            n_failed += 1
    if not answers and not n_failed:
        raise DataError(
            f"{path}: no line is of this run",
            "give the judge and responses of which the requests were made",
        )

    # The judges of subsets ask the same model in other words, so that one fingerprint
    # has all answers.
    target = Store(store)
    fingerprint = judge.respondent.fingerprint
    stored = {key for key, _ in read_stored(judge.respondent, by_key, target)}
    new_answers = {
        key: encode(answer) for key, answer in answers.items() if key not in stored
    }
    source = {"name": judge.name, "read_from": path.name}
    target.note(fingerprint, source | judge.respondent.provenance())
    target.append(fingerprint, new_answers)
    target.flush()
    return pd.DataFrame(
        {
            "file": [str(path)],
            "read": len(new_answers),
            "known": len(answers) - len(new_answers),
            "failed": n_failed,
            "strange": n_strange,
            "missing": len(by_key.keys() - stored - new_answers.keys()),
        }
    )


def _read_lines(path: Path) -> "Iterator[tuple[str, Json]]":
    """Yield the key of each line's question, and the completion, None where the request
    failed.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = f"{path}: cannot be read ({error})"
        raise DataError(problem, "give the result file of a batch") from error
    # Not by `splitlines`: an answer may hold other separators than the line feed, which
    # JSON leaves as they are.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            result = json.loads(line)
            key = str(result["custom_id"])
            response = result["response"]
        except (ValueError, KeyError, TypeError, RecursionError):
            problem = f"{path}: line {number} is not a result of a batch"
            raise DataError(problem, "give the endpoint's file") from None
        yield key, response and response.get("body")
