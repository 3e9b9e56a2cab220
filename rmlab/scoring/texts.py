"""Which texts to score: the prompts of a shard, and each distinct text once."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

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

    `numbers`: number of the text of each row of `keys`, shape (orders, rows);
    comparisons in both orders have two. `keys`: what messages call a row by.
    """

    distinct: list[Text]
    numbers: Ints
    keys: pd.DataFrame

    def describe(self, number: int) -> str:
        """Key of the first row that has this text, for messages."""
        has_text = (self.numbers == number).any(axis=0)
        key = self.keys.iloc[int(has_text.argmax())]
        return ", ".join(f"{column} {value}" for column, value in key.items())


def _assign_texts(
    keys: pd.DataFrame, prompt_number: Ints, orders: Sequence[Sequence[Text]]
) -> Texts:
    """The texts of the rows of a table, in each order; `prompt_number`: of each row."""
    texts = list(chain.from_iterable(orders))
    distinct: list[Text] = []
    number_of: dict[str, int] = {}
    for row in np.argsort(np.tile(prompt_number, len(orders)), kind="stable"):
        text = texts[row]
        if text.key not in number_of:
            number_of[text.key] = len(distinct)
            distinct.append(text)

    numbers = np.array([number_of[text.key] for text in texts], np.intp)
    return Texts(distinct, numbers.reshape(len(orders), -1), keys)


def list_texts(
    responses: pd.DataFrame, key_columns: Sequence[str], *, lists: bool
) -> Texts:
    """The distinct texts of responses, each one answer, or all answers to its prompt
    with that one first (`lists`).
    """
    prompt_number, _ = group_codes(responses, PROMPT)
    answers = responses["response"].tolist()
    rows_of: defaultdict[int, list[int]] = defaultdict(list)
    if lists:
        for row, number in enumerate(prompt_number):
            rows_of[number].append(row)

    texts = []
    for row, prompt in enumerate(responses["prompt"]):
        shown = [answers[row]]
        if lists:
            same_prompt = rows_of[prompt_number[row]]
            shown += [answers[other] for other in same_prompt if other != row]
        texts.append(Text(prompt, tuple(shown)))
    return _assign_texts(responses[[*key_columns]], prompt_number, [texts])


def comparisons(
    responses: pd.DataFrame, *, both_orders: bool
) -> tuple[pd.DataFrame, Texts]:
    """Every chosen with every rejected answer of a prompt: rows of a pairs table
    without outcome, and their texts, the chosen answer first; then, in both orders,
    with the answers exchanged.
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
    forward = [Text(prompt, (left, right)) for prompt, left, right in rows]
    orders = [forward]
    if both_orders:
        orders.append([Text(text.prompt, text.answers[::-1]) for text in forward])
    keys = pairs[[*PROMPT, "chosen_slot", "rejected_slot"]]
    return pairs, _assign_texts(keys, prompt_number[chosen], orders)


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
