"""How servers of reward models are asked for raw scores, and how their answers are read, one `Dialect` each.

Servers differ in what they do unasked: a sigmoid, a softmax, a second beginning token, silent truncation. What is
asked for here is right by the servers' documents or by measurement; whether a server did it is tested before it is
believed (`rmlab.scorers.served.acceptance`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from rmlab.servers.wire import Json
from rmlab.tables import DataError, nearest

__all__ = ["DIALECTS", "KINDS", "Dialect", "Payload", "Scored", "dialect", "numbers"]

Payload = str | list[int]
"""One conversation as a server takes it: text, or token ids."""


@dataclass(frozen=True)
class Scored:
    """What a server says of the texts of one request. `values`: one list of outputs per text, in their order.

    `tokens`: how many tokens it has read in all of them, None where it does not say.
    """

    values: list[list[float]]
    tokens: int | None = None


@dataclass(frozen=True)
class Dialect:
    """One kind of server.

    `body`: from the texts and the model's name to what is posted to `path`. `read`: from the answer and the number of
    texts to what it says; raises ValueError or KeyError where the answer is not whole. `takes_ids`: whether texts may
    go as token ids. `adds_special`: whether the server writes the tokenizer's special tokens around a text.
    `tells_tokens`: whether the answer counts the tokens that were read. `activated`: the body that asks for values
    behind the activation, where the server has such a switch. `model_path`: where the server names its model.
    """

    kind: str
    path: str
    body: Callable[[Sequence[Payload], str | None], Json]
    read: Callable[[Json, int], Scored]
    takes_ids: bool
    adds_special: bool
    activated: Callable[[Sequence[Payload], str | None], Json] | None = None
    model_path: str | None = None
    model_name: Callable[[Json], str] = str


def numbers(values: Json, n: int | None = None) -> list[float]:
    """The outputs for one text as floats; ValueError for anything else, or for another number than `n`."""
    row = values if isinstance(values, list) else [values]
    if not row or any(isinstance(value, bool) or not isinstance(value, int | float) for value in row):
        raise ValueError(f"{values!r:.60} where numbers belong")
    if not all(math.isfinite(value) for value in row):
        raise ValueError(f"{values!r:.60}: not finite")
    if n is not None and len(row) != n:
        raise ValueError(f"{len(row)} values for {n} texts")
    return [float(value) for value in row]


def _vllm(texts: Sequence[Payload], model: str | None) -> Json:
    # For ids `add_special_tokens` says nothing; for text it keeps the beginning token from being written twice.
    return _vllm_activated(texts, model) | {"use_activation": False}


def _vllm_activated(texts: Sequence[Payload], model: str | None) -> Json:
    return {"input": list(texts), "add_special_tokens": False} | ({"model": model} if model else {})


def _pooling(texts: Sequence[Payload], model: str | None) -> Json:
    return _vllm(texts, model) | {"task": "classify"}


def _pooling_activated(texts: Sequence[Payload], model: str | None) -> Json:
    return _vllm_activated(texts, model) | {"task": "classify"}


def _read_vllm(answer: Json, n: int) -> Scored:
    return _indexed(answer, n, "probs")


def _read_pooling(answer: Json, n: int) -> Scored:
    if any(isinstance(row["data"], list) and any(isinstance(x, list) for x in row["data"]) for row in answer["data"]):
        raise ValueError(
            "values for every token where those of the text belong; serve with --pooler-config.task classify"
        )
    return _indexed(answer, n, "data")


def _indexed(answer: Json, n: int, key: str) -> Scored:
    """Rows that say which text each is for: they may come in any order."""
    rows = sorted(answer["data"], key=lambda row: int(row["index"]))
    if [row["index"] for row in rows] != list(range(n)):
        raise ValueError(f"{len(rows)} answers for {n} texts")
    return Scored([numbers(row[key]) for row in rows], _count(answer.get("usage", {}).get("prompt_tokens")))


def _sglang(texts: Sequence[Payload], model: str | None) -> Json:
    return {"input_ids" if isinstance(texts[0], list) else "text": list(texts)}


def _read_sglang(answer: Json, n: int) -> Scored:
    rows = answer if isinstance(answer, list) else [answer]
    if len(rows) != n:
        raise ValueError(f"{len(rows)} answers for {n} texts")
    counts = [_count(row.get("meta_info", {}).get("prompt_tokens")) for row in rows]
    known = [count for count in counts if count is not None]
    return Scored([numbers(row["embedding"]) for row in rows], sum(known) if len(known) == n else None)


def _tei(texts: Sequence[Payload], model: str | None) -> Json:
    # A list of two strings would be one pair: each text is a list of its own.
    return {"inputs": [[text] for text in texts], "raw_scores": True, "truncate": False}


def _tei_activated(texts: Sequence[Payload], model: str | None) -> Json:
    return _tei(texts, model) | {"raw_scores": False}


def _read_tei(answer: Json, n: int) -> Scored:
    if not isinstance(answer, list) or len(answer) != n:
        raise ValueError(f"no list of {n} answers")
    # The labels of a text come sorted by score; their names put them in one order.
    return Scored([numbers([one["score"] for one in sorted(row, key=lambda one: str(one["label"]))]) for row in answer])


def _openrlhf(texts: Sequence[Payload], model: str | None) -> Json:
    return {"query": list(texts)}


def _read_openrlhf(answer: Json, n: int) -> Scored:
    rewards = answer["rewards"]
    if not isinstance(rewards, list) or len(rewards) != n:
        raise ValueError(f"no list of {n} rewards")
    return Scored([numbers(reward) for reward in rewards])


def _count(value: Json) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _first_model(answer: Json) -> str:
    return str(answer["data"][0]["id"])


DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        one.kind: one
        for one in (
            Dialect(
                "vllm", "/classify", _vllm, _read_vllm, takes_ids=True, adds_special=False,
                activated=_vllm_activated, model_path="/v1/models", model_name=_first_model,
            ),
            Dialect(
                "vllm-pooling", "/pooling", _pooling, _read_pooling, takes_ids=True, adds_special=False,
                activated=_pooling_activated, model_path="/v1/models", model_name=_first_model,
            ),
            Dialect(
                "sglang", "/classify", _sglang, _read_sglang, takes_ids=True, adds_special=True,
                model_path="/get_model_info", model_name=lambda answer: str(answer["model_path"]),
            ),
            Dialect(
                "tei", "/predict", _tei, _read_tei, takes_ids=False, adds_special=True,
                activated=_tei_activated, model_path="/info", model_name=lambda answer: str(answer["model_id"]),
            ),
            Dialect("openrlhf", "/get_reward", _openrlhf, _read_openrlhf, takes_ids=False, adds_special=False),
        )
    }
)  # fmt: skip

KINDS = (*DIALECTS, "triton")

_REFUSED = {
    "infinity": "its /classify ignores raw_scores and always returns probabilities, which merge high scores into ties",
}


def dialect(kind: str, url: str) -> Dialect:
    """The dialect of a server; DataError for one that is not known, and for one whose scores cannot be had raw."""
    if kind in _REFUSED:
        raise DataError(f"kind={kind!r} is refused: {_REFUSED[kind]}; serve the model with {', '.join(DIALECTS)}")
    if kind not in DIALECTS:
        raise DataError(f"kind={kind!r}; {nearest(kind, KINDS)}")
    path = "/" + "/".join(url.split("/")[3:])
    if kind == "sglang" and path.startswith("/v1"):
        raise DataError(
            "url: SGLang's /v1/classify is refused: it always applies a softmax, which is 1.0 for every text of a "
            "model with one label; give the server's address alone, its /classify is asked then"
        )
    if path.rstrip("/").endswith((DIALECTS[kind].path, "/v1", "/pooling", "/score")):
        raise DataError(f"url: ends in {path!r}; give the server's address alone, such as 'http://127.0.0.1:8000'")
    return DIALECTS[kind]
