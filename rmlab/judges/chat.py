"""A judge behind an OpenAI-compatible chat endpoint (OpenAI, vLLM, SGLang, llama.cpp),
asked now or in a batch.
"""

import json
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pandas as pd

from rmlab import tables
from rmlab.judges.questions import (
    LETTERS,
    Answer,
    Answers,
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
    from rmlab.judges.local import Local
    from rmlab.judges.modes import Judge
    from rmlab.servers import Client
    from rmlab.servers.http import Json

OPENAI = "api.openai.com"
PATH = "/chat/completions"

# Alternatives that OpenAI and vLLM give at most.
_TOP_LOGPROBS = 20
_MIN_LOGPROB = -1e4
NO_LETTERS = "no top_logprobs for mode='logprob'; use mode='pairwise'"
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
        limit = (
            "max_completion_tokens"
            if urlsplit(self.client.url).hostname == OPENAI
            else "max_tokens"
        )
        logprobs = (
            {"logprobs": True, "top_logprobs": _TOP_LOGPROBS}
            if self.sampling.letters
            else {}
        )
        sampling = {
            "temperature": self.sampling.temperature,
            limit: self.sampling.answer_tokens,
        }
        return sampling | logprobs | dict(self.extra)

    @property
    def fingerprint(self) -> str:
        """Hash of the model, the whole address, and the sampling: another port or path
        may be another model.
        """
        server = {"model": self.title, "url": self.client.url, "version": self.version}
        return hash_parts(
            {"answers": 2}
            | server
            | {"seed": self.sampling.seed, "sampling": self.fields}
        )

    def body(self, question: Question) -> dict[str, object]:
        """Return the body of one request. Each sample is a request of its own, with a
        seed of its own.
        """
        fields = {
            "model": self.title,
            "messages": question.messages,
            "seed": question.seed,
        } | self.fields
        return {name: value for name, value in fields.items() if value is not None}

    def respond(self, questions: Sequence[Question]) -> Answers:
        """Yield answers as they arrive.

        Raises DataError before the first question where the questions alone exceed the
        rest of the client's budget.
        """
        if not questions:
            return
        from rmlab.servers import Request

        client, has_budget = self.client, self.client.max_tokens is not None
        needs = [("max_requests", len(questions), client.spent.requests)]
        needs += (
            [("max_tokens", count_tokens(questions), client.spent.tokens)]
            if has_budget
            else []
        )
        for name, n_needed, n_spent in needs:
            budget = getattr(client, name)
            if budget is not None and n_needed > budget - n_spent:
                left = max(budget - n_spent, 0)
                raise DataError(
                    f"{name}={budget}: {n_needed} are needed, {left} are left; raise it, or pass shard="
                )
        # No tokenizer writes more tokens than bytes; the reply says how many they were.
        sizes = (
            q.n_bytes + self.sampling.answer_tokens if has_budget else 0
            for q in questions
        )
        requests = (
            Request(PATH, self.body(q), size)
            for q, size in zip(questions, sizes, strict=True)
        )
        items = zip(questions, requests, strict=True)
        for question, answer in client.stream(
            items, lambda _, reply: read_completion(reply.json())
        ):
            reply = answer.value or answer.reason
            if (
                isinstance(reply, Answer)
                and self.sampling.letters
                and len(reply.top or {}) < 2
            ):
                reply = NO_LETTERS
            yield question, reply

    def provenance(self) -> Provenance:
        """Return the model, the server and how it is asked."""
        server: Provenance = {
            "model": self.title,
            "url": self.client.url,
            "requests": self.client.spent.requests,
        }
        sampling = {"sampling": self.fields | {"seed": self.sampling.seed}}
        return server | sampling | ({"version": self.version} if self.version else {})


def read_completion(completion: "Json") -> Answer:
    """Return the answer of a chat completion; raise ValueError, LookupError or
    TypeError where it is none.
    """
    choice = completion["choices"][0]
    message, usage = choice["message"], completion.get("usage") or {}
    counts = (usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
    n_read, n_written = (None if count is None else int(count) for count in counts)
    return Answer(
        text=_join_parts(message.get("content") or message.get("refusal") or ""),
        finish=str(choice.get("finish_reason") or ""),
        reasoning=_join_parts(
            message.get("reasoning_content") or message.get("reasoning") or ""
        ),
        top=_top_logprobs(choice.get("logprobs")),
        prompt_tokens=n_read,
        answer_tokens=n_written,
        model=str(completion.get("model") or ""),
    )


def _join_parts(content: "Json") -> str:
    """The content as one string; some servers send a list of parts."""
    return (
        content
        if isinstance(content, str)
        else "".join(part.get("text") or "" for part in content)
    )


def _top_logprobs(logprobs: "Json") -> dict[str, float] | None:
    """Log-probabilities at the last letter of the answer: after the reasoning, if there
    is any.
    """
    tokens = (logprobs or {}).get("content") or []
    if not tokens:
        return None
    token = next(
        (token for token in reversed(tokens) if token["token"].strip() in {*LETTERS}),
        tokens[0],
    )
    alternatives = token.get("top_logprobs") or [token]
    top = {str(entry["token"]): float(entry["logprob"]) for entry in alternatives}
    if not all(logprob < math.inf for logprob in top.values()):  # nor NaN
        raise ValueError("a log-probability is no number")
    return {token: max(logprob, _MIN_LOGPROB) for token, logprob in top.items()}


def read_stored(
    respondent: "Chat | Local", keys: Container[str], store: Store | None
) -> Iterator[tuple[str, Answer]]:
    """Yield those of the keys that the store has an answer to, and the answers."""
    for record in () if store is None else store.records(respondent.fingerprint):
        if record.key in keys:
            yield record.key, Answer(**record.value)  # type: ignore[arg-type]


def list_questions(
    judge: "Judge", responses: pd.DataFrame
) -> "list[tuple[Judge, list[Question]]]":
    """Return the questions of a run with the judge that asks them: the judge itself, or
    that of a subset.
    """
    responses = tables.check_responses(responses)
    if judge.takes == "pair":
        return [(judge, judge.questions(comparisons(responses)[1].distinct))]
    parts = [
        (items.judge, items.texts.distinct) for items in list_items(judge, responses)
    ]
    return [(part_judge, part_judge.questions(texts)) for part_judge, texts in parts]  # type: ignore[attr-defined, misc]


def _list_unanswered(
    judge: "Judge", responses: pd.DataFrame, store: str | Path | None
) -> tuple[int, list[Question]]:
    """How many different questions there are, and those that the store has no answer
    to.
    """
    by_key = {
        question.key: question
        for _, questions in list_questions(judge, responses)
        for question in questions
    }
    answered = {
        key
        for key, _ in read_stored(
            judge.respondent, by_key, None if store is None else Store(store)
        )
    }
    return len(by_key), [
        question for key, question in by_key.items() if key not in answered
    ]


def estimate(
    judge: "Judge", responses: pd.DataFrame, *, store: str | Path | None = None
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
    counts = {
        "questions": n_questions,
        "answered": n_questions - len(pending),
        "to_ask": len(pending),
    }
    n_written = judge.respondent.sampling.answer_tokens * len(pending)
    tokens = {"prompt_tokens": count_tokens(pending), "answer_tokens": n_written}
    return pd.DataFrame([{"judge": judge.name} | counts | tokens])


def write_requests(
    judge: "Judge",
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
    chat, path = judge.respondent, expand_path(path)
    if not isinstance(chat, Chat):
        raise DataError(
            f"judge {judge.name!r} runs on this machine; give rmlab.judge a url= for batch endpoints"
        )
    request = {"method": "POST", "url": f"/v1{PATH}"}
    _, pending = _list_unanswered(judge, responses, store)
    lines = [
        json.dumps({"custom_id": q.key} | request | {"body": chat.body(q)})
        for q in pending
    ]
    if not lines:
        raise DataError(
            f"store: {store} holds an answer to every question; rmlab.prefer or rmlab.score will read them"
        )
    files: list[Path] = []
    for start in range(0, len(lines), most):
        file = (
            path.with_name(f"{path.stem}-{len(files) + 1}{path.suffix}")
            if files
            else path
        )
        files.append(write_file(file, "\n".join(lines[start : start + most]) + "\n"))
    return files


def read_results(
    judge: "Judge", responses: pd.DataFrame, path: str | Path, *, store: str | Path
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
    keys = {
        question.key
        for _, questions in list_questions(judge, responses)
        for question in questions
    }
    answers, n_failed, n_strange = dict[str, Answer](), 0, 0
    for key, completion in _read_lines(path):
        if key not in keys:
            n_strange += 1
            continue
        try:
            answers[key] = read_completion(completion)
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
            n_failed += 1
    if not answers and not n_failed:
        raise DataError(
            f"{path}: no line is of this run; give the judge and responses of which the requests were made"
        )
    # The judges of subsets ask the same model in other words, so that one fingerprint
    # has all answers.
    target, fingerprint = Store(store), judge.respondent.fingerprint
    stored = {key for key, _ in read_stored(judge.respondent, keys, target)}
    new_keys = [key for key in answers if key not in stored]
    target.note(
        fingerprint,
        {"name": judge.name, "read_from": path.name} | judge.respondent.provenance(),
    )
    target.append(fingerprint, {key: encode(answers[key]) for key in new_keys})
    target.flush()
    n_missing = len(keys - stored - set(new_keys))
    counts = {
        "read": len(new_keys),
        "known": len(answers) - len(new_keys),
        "failed": n_failed,
        "strange": n_strange,
    }
    return pd.DataFrame([{"file": str(path)} | counts | {"missing": n_missing}])


def _read_lines(path: Path) -> "Iterator[tuple[str, Json]]":
    """Yield the key of each line's question, and the completion, None where the request
    failed.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: cannot be read ({error}); give the result file of a batch"
        ) from error
    # Not by `splitlines`: an answer may hold other separators than the line feed, which
    # JSON leaves as they are.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                result = json.loads(line)
                key, response = str(result["custom_id"]), result["response"]
            except (ValueError, KeyError, TypeError, RecursionError):
                raise DataError(
                    f"{path}: line {number} is not a result of a batch; give the endpoint's file"
                ) from None
            yield key, response and response.get("body")
