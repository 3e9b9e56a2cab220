"""The questions of a run before it is asked: how many there are, and their answers by
way of a batch endpoint.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pandas as pd

from rmlab import tables
from rmlab.judges.asking import LLMJudge
from rmlab.judges.chat import PATH, Chat, read_completion, read_stored
from rmlab.judges.questions import Completion, Question, count_tokens, encode
from rmlab.records import expand_path, write_file
from rmlab.scoring.judged import list_items
from rmlab.scoring.texts import comparisons
from rmlab.store import Store
from rmlab.tables import DataError

if TYPE_CHECKING:
    from rmlab.servers.http import Json


def list_questions(
    judge: LLMJudge, responses: pd.DataFrame
) -> list[tuple[LLMJudge, list[Question]]]:
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


def _questions_by_key(judge: LLMJudge, responses: pd.DataFrame) -> dict[str, Question]:
    """Every different question of a run."""
    by_key = {}
    for _, questions in list_questions(judge, responses):
        for question in questions:
            by_key[question.key] = question
    return by_key


def _list_unanswered(
    judge: LLMJudge, responses: pd.DataFrame, store: str | Path | None
) -> tuple[int, list[Question]]:
    """How many different questions there are, and those that the store has no answer
    to.
    """
    by_key = _questions_by_key(judge, responses)
    source = None if store is None else Store(store)
    pending = dict(by_key)
    for key, _ in read_stored(judge.respondent, by_key, source):
        pending.pop(key, None)
    return len(by_key), list(pending.values())


def estimate(
    judge: LLMJudge, responses: pd.DataFrame, *, store: str | Path | None = None
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
    judge: LLMJudge,
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
    judge: LLMJudge, responses: pd.DataFrame, path: str | Path, *, store: str | Path
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
    new_answers = {}
    for key, answer in answers.items():
        if key not in stored:
            new_answers[key] = encode(answer)
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
