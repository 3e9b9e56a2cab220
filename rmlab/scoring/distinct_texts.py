"""Which texts to score: a shard's prompts, and each distinct text once."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import metrics
from rmlab.scorers.types import Prompt
from rmlab.tables import PROMPT, DataError

__all__ = ["Shard", "Texts", "both_orders", "comparisons", "select_shard", "unique_texts"]

Shard = str | tuple[int, int]


@dataclass(frozen=True)
class Texts:
    """Distinct texts: `prompts`, and one list of `answers` (two for comparisons), all of one length.

    `groups`: prompt number of each text. `rows`: number of the text of each row asked for. `keys`: those rows' keys.
    """

    prompts: list[Prompt]
    answers: tuple[list[str], ...]
    groups: NDArray[np.intp]
    rows: NDArray[np.intp]
    keys: pd.DataFrame

    def __len__(self) -> int:
        return len(self.groups)

    def some(self, numbers: NDArray[np.intp], first: NDArray[np.intp]) -> "Texts":
        """The texts of these numbers, one row of each; `first`: the first row of every text."""
        answers = tuple([column[i] for i in numbers] for column in self.answers)
        keys = self.keys.iloc[first[numbers]].reset_index(drop=True)
        return Texts([self.prompts[i] for i in numbers], answers, self.groups[numbers], np.arange(len(numbers)), keys)

    def name(self, text: int) -> str:
        """Key of the first row that has this text, for messages."""
        key = self.keys.iloc[int((self.rows == text).argmax())]
        return ", ".join(f"{column} {value}" for column, value in key.items())

    def content_keys(self) -> list[str]:
        """A hash of each text, for scorers that have no better key (as the tokens are)."""
        bodies = (
            json.dumps(text, ensure_ascii=False, sort_keys=True)
            for text in zip(self.prompts, *self.answers, strict=True)
        )
        return [blake2b(body.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest() for body in bodies]


def unique_texts(keys: pd.DataFrame, prompts: Sequence[Prompt], *answers: Sequence[str]) -> Texts:
    """Distinct (prompt, answers) of the rows, in the order of their first row."""
    numbers: dict[tuple[str, ...], int] = {}
    groups: dict[str, int] = {}
    rows = np.empty(len(keys), np.intp)
    kept: tuple[list[str], ...] = tuple([] for _ in answers)
    first: list[Prompt] = []
    group: list[int] = []
    for row, (asked, text) in enumerate(zip(prompts, zip(*answers, strict=True), strict=True)):
        prompt = asked if isinstance(asked, str) else "\0" + json.dumps(asked, sort_keys=True)
        rows[row] = number = numbers.setdefault((prompt, *text), len(numbers))
        if number == len(group):
            group.append(groups.setdefault(prompt, len(groups)))
            first.append(asked)
            for column, value in zip(kept, text, strict=True):
                column.append(value)
    return Texts(first, kept, np.array(group, np.intp), rows, keys.reset_index(drop=True))


def comparisons(responses: pd.DataFrame) -> tuple[pd.DataFrame, Texts]:
    """Every chosen with every rejected answer of a prompt: rows of a pairs table, not judged yet, and their texts."""
    labels = responses.groupby(PROMPT, sort=False)["label"].nunique()
    if (labels < 2).any():
        alone = dict(zip(PROMPT, labels.index[labels < 2][0], strict=True))
        raise DataError(
            f"responses: {(labels < 2).sum()} prompts have answers of one label only, first {alone}; a comparison "
            "needs a chosen and a rejected answer: give both"
        )
    frame = metrics.pairs(responses.assign(model="", score=0.0))
    first, second = (_answers(frame, responses, label) for label in ("chosen", "rejected"))
    keys = frame[[*PROMPT, "chosen_slot", "rejected_slot"]]
    texts = unique_texts(keys, first["prompt"].tolist(), first["response"].tolist(), second["response"].tolist())
    return frame, texts


def both_orders(asked: Texts) -> Texts:
    """Comparisons in both orders: the rows of `asked` as they stand, the chosen answer first, then all exchanged."""
    prompts = [asked.prompts[text] for text in asked.rows]
    first, second = ([column[text] for text in asked.rows] for column in asked.answers)
    keys = pd.concat([asked.keys.assign(written_first=label) for label in ("chosen", "rejected")])
    return unique_texts(keys, prompts * 2, first + second, second + first)


def _answers(pairs: pd.DataFrame, responses: pd.DataFrame, label: str) -> pd.DataFrame:
    """The responses row of each pair's chosen or rejected answer."""
    rows = responses[(responses["label"] == label).to_numpy()]
    index = pd.MultiIndex.from_frame(rows[[*PROMPT, "slot"]])
    wanted = pd.MultiIndex.from_arrays([*(pairs[c] for c in PROMPT), pairs[f"{label}_slot"]])
    return rows.iloc[index.get_indexer(wanted)]


def select_shard(responses: pd.DataFrame, shard: Shard | None) -> pd.DataFrame:
    """Rows of one shard: whole prompts, dealt out in turn in their order, so that all shards are of one size.

    "3/16" or (3, 16) is the third of sixteen; None is everything.
    """
    if shard is None:
        return responses
    number, of = _shard(shard)
    prompt = responses.groupby(PROMPT, sort=False).ngroup().to_numpy()
    mine: pd.DataFrame = responses[prompt % of == number - 1]
    return mine.reset_index(drop=True)


def _shard(shard: Shard) -> tuple[int, int]:
    parts: object = shard
    if isinstance(shard, str) and re.fullmatch(r"\d+/\d+", shard):
        parts = tuple(map(int, shard.split("/")))
    match parts:
        case (int(number), int(of)) if 1 <= number <= of:
            return number, of
    raise DataError(f"shard: {shard!r} is not allowed; give '3/16' or (3, 16) for the third of sixteen, counted from 1")
