"""Which texts to score: the prompts of a shard, and each distinct text once."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.metrics.pairing import cross_answers, describe_pairs
from rmlab.scorers.base import Ints, Text
from rmlab.tables import PROMPT, DataError, group_codes, prompt_columns

Shard = str | tuple[int, int]


@dataclass(frozen=True)
class Texts:
    """Distinct texts, those of a prompt side by side.

    `rows`: number of the text of each row of `table`. `table`: the rows' keys.
    """

    distinct: list[Text]
    rows: Ints
    table: pd.DataFrame

    def describe(self, number: int) -> str:
        """Key of the first row that has this text, for messages."""
        key = self.table.iloc[int((self.rows == number).argmax())]
        return ", ".join(f"{column} {value}" for column, value in key.items())


def unique_texts(
    keys: pd.DataFrame, prompt_number: Ints, texts: Sequence[Text]
) -> Texts:
    """Distinct texts of the rows of a table; `prompt_number`: of each row."""
    distinct: list[Text] = []
    number_of: dict[str, int] = {}
    for row in np.argsort(prompt_number, kind="stable"):
        text = texts[row]
        if text.key not in number_of:
            number_of[text.key] = len(distinct)
            distinct.append(text)

    rows = np.array([number_of[text.key] for text in texts], np.intp)
    return Texts(distinct, rows, keys.reset_index(drop=True))


def list_texts(
    responses: pd.DataFrame, key_columns: Sequence[str], *, lists: bool
) -> Texts:
    """The distinct texts of responses, each one answer, or all answers to its prompt
    with that one first (`lists`).
    """
    prompt_number, _ = group_codes(responses, PROMPT)
    answers = responses["response"]
    others: list[tuple[str, ...]] = [()] * len(responses)
    if lists:
        others = _list_others(answers.tolist(), prompt_number)
    columns = zip(responses["prompt"], answers, others, strict=True)
    texts = [Text(prompt, (answer, *rest)) for prompt, answer, rest in columns]
    return unique_texts(responses[[*key_columns]], prompt_number, texts)


def _list_others(answers: Sequence[str], prompt_number: Ints) -> list[tuple[str, ...]]:
    """The other answers to the prompt of each answer."""
    rows_of: dict[int, list[int]] = {}
    for row, number in enumerate(prompt_number):
        rows_of.setdefault(number, []).append(row)
    others = []
    for row, number in enumerate(prompt_number):
        rows = rows_of[number]
        others.append(tuple(answers[other] for other in rows if other != row))
    return others


def comparisons(responses: pd.DataFrame) -> tuple[pd.DataFrame, Texts]:
    """Every chosen with every rejected answer of a prompt: rows of a pairs table
    without outcome, and their texts.
    """
    n_labels = responses.groupby(PROMPT, sort=False)["label"].nunique()
    one_sided = n_labels.index[n_labels < 2]
    if len(one_sided):
        first = dict(zip(PROMPT, one_sided[0], strict=True))
        count = f"{len(one_sided)} prompts have answers of one label only"
        remedy = "give a chosen and a rejected answer of each"
        raise DataError(f"responses: {count}, first {first}", remedy)

    prompt_number, _ = group_codes(responses, PROMPT)
    chosen, rejected = cross_answers(responses, prompt_number)
    # A column "model" of people's own says who wrote an answer.
    unsigned = responses.drop(columns="model", errors="ignore")
    names = prompt_columns(unsigned, [*tables.SCORES, *tables.PAIRS])
    extra = responses[names].iloc[chosen].reset_index(drop=True)
    pairs = describe_pairs(responses, chosen, rejected)
    pairs.insert(0, "model", "")
    pairs = pairs.assign(margin=np.nan, outcome=np.nan, **extra)

    prompts = responses["prompt"].to_numpy()[chosen]
    response = responses["response"].to_numpy()
    rows = zip(prompts, response[chosen], response[rejected], strict=True)
    texts = [Text(prompt, (left, right)) for prompt, left, right in rows]

    keys = pairs[[*PROMPT, "chosen_slot", "rejected_slot"]]
    return pairs, unique_texts(keys, prompt_number[chosen], texts)


def both_orders(texts: Texts) -> Texts:
    """Comparisons in both orders: the rows as they stand, with the chosen answer first,
    then all exchanged.
    """
    forward = [texts.distinct[number] for number in texts.rows]
    exchanged = [Text(text.prompt, text.answers[::-1]) for text in forward]

    labelled = [texts.table.assign(written_first=label) for label in tables.LABELS]
    keys = pd.concat(labelled)
    prompt_number, _ = group_codes(keys, PROMPT)
    return unique_texts(keys, prompt_number, forward + exchanged)


def select_shard(responses: pd.DataFrame, shard: Shard) -> pd.DataFrame:
    """Rows of one shard: whole prompts, dealt out in turn in their order, so that all
    shards are of one size.

    "3/16" or (3, 16) is the third of sixteen.
    """
    numbers: object = shard
    if isinstance(shard, str) and re.fullmatch(r"\d+/\d+", shard):
        numbers = tuple(map(int, shard.split("/")))

    match numbers:
        case (int(number), int(n_shards)) if 1 <= number <= n_shards:
            prompt_number, _ = group_codes(responses, PROMPT)
            rows = np.flatnonzero(prompt_number % n_shards == number - 1)
            return responses.iloc[rows].reset_index(drop=True)

    problem = f"shard: {shard!r} is not allowed"
    raise DataError(problem, "give '3/16' or (3, 16) for the third of sixteen")
