"""Which texts to score: the prompts of a shard, and each distinct text once."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rmlab import metrics, tables
from rmlab.scorers.base import Ints, Prompt, Text
from rmlab.tables import PROMPT, DataError, group_codes

Shard = str | tuple[int, int]


@dataclass(frozen=True)
class Texts:
    """Distinct texts, those of a prompt side by side. `rows`: number of the text of
    each row of `table`.
    """

    distinct: list[Text]
    rows: Ints
    table: pd.DataFrame

    def describe(self, number: int) -> str:
        """Key of the first row that has this text, for messages."""
        key = self.table.iloc[int((self.rows == number).argmax())]
        return ", ".join(f"{column} {value}" for column, value in key.items())


def unique_texts(
    table: pd.DataFrame, prompts: Sequence[Prompt], *answers: Sequence[str]
) -> Texts:
    """Distinct (prompt, answers) of the rows; `table`: the rows' key columns."""
    texts = [
        Text(prompt, row)
        for prompt, row in zip(prompts, zip(*answers, strict=True), strict=True)
    ]
    order = np.argsort(group_codes(table, PROMPT)[0], kind="stable")
    distinct = {texts[row].key: texts[row] for row in order}
    number_of = {key: number for number, key in enumerate(distinct)}
    rows = np.array([number_of[text.key] for text in texts], np.intp)
    return Texts(list(distinct.values()), rows, table.reset_index(drop=True))


def comparisons(responses: pd.DataFrame) -> tuple[pd.DataFrame, Texts]:
    """Every chosen with every rejected answer of a prompt: rows of a pairs table
    without outcome, and their texts.
    """
    n_labels = responses.groupby(PROMPT, sort=False)["label"].nunique()
    if (n_labels < 2).any():
        prompt = dict(zip(PROMPT, n_labels.index[n_labels < 2][0], strict=True))
        where = f"responses: {(n_labels < 2).sum()} prompts have answers of one label only, first {prompt}"
        raise DataError(f"{where}. Give a chosen and a rejected answer of each.")
    frame = metrics.pairs(responses.assign(model="", score=0.0))
    keys = frame[[*PROMPT, "chosen_slot", "rejected_slot"]]
    first, second = (
        keys.merge(
            rows.rename(columns={"slot": f"{label}_slot"}),
            how="left",
            on=[*PROMPT, f"{label}_slot"],
        )
        for label in tables.LABELS
        for rows in [
            responses.loc[
                responses["label"] == label, [*PROMPT, "slot", "prompt", "response"]
            ]
        ]
    )
    return frame, unique_texts(
        keys,
        first["prompt"].tolist(),
        first["response"].tolist(),
        second["response"].tolist(),
    )


def both_orders(texts: Texts) -> Texts:
    """Comparisons in both orders: the rows as they stand, with the chosen answer first,
    then all exchanged.
    """
    rows = [texts.distinct[number] for number in texts.rows]
    first, second = ([text.answers[place] for text in rows] for place in (0, 1))
    keys = pd.concat(
        [texts.table.assign(written_first=label) for label in tables.LABELS]
    )
    return unique_texts(
        keys, [text.prompt for text in rows] * 2, first + second, second + first
    )


def select_shard(responses: pd.DataFrame, shard: Shard) -> pd.DataFrame:
    """Rows of one shard: whole prompts, dealt out in turn in their order, so that all
    shards are of one size.

    "3/16" or (3, 16) is the third of sixteen.
    """
    parts: object = shard
    if isinstance(shard, str) and re.fullmatch(r"\d+/\d+", shard):
        parts = tuple(map(int, shard.split("/")))
    match parts:
        case (int(number), int(n_shards)) if 1 <= number <= n_shards:
            prompt, _ = group_codes(responses, PROMPT)
            rows: pd.DataFrame = responses[prompt % n_shards == number - 1]
            return rows.reset_index(drop=True)
    raise DataError(
        f"shard: {shard!r} is not allowed. Give '3/16' or (3, 16) for the third of sixteen."
    )
