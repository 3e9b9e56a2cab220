"""Sentences of a report: how many tables in which nothing differs have one that says
so.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from coverage_worlds import Measure, false_alarms, world
from rmlab.report import sentences
from rmlab.tables import check_pairs

LENGTH = pd.CategoricalDtype(["shorter", "equal", "longer"], ordered=True)
FINDINGS = ("is weakest in", "wins more often")


def draw_pairs(
    groups: dict[str, int],
    column: str,
    share: float,
    n_models: int,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Single comparisons of models that win the same share in every group."""
    group = np.repeat([*groups], [*groups.values()])
    tables = []
    for model in range(n_models):
        is_won = rng.random(len(group)) < share
        table = pd.DataFrame(
            {
                "id": np.arange(len(group)).astype(str),
                "margin": np.where(is_won, 1.0, -1.0),
            }
        )
        table = table.assign(
            model=f"model {model}",
            benchmark="own",
            domain="own",
            chosen_slot=0,
            rejected_slot=0,
        )
        tables.append(table.assign(**{column: group}))
    return check_pairs(pd.concat(tables, ignore_index=True))


def _add(
    name: str, groups: dict[str, int], column: str, share: float, n_models: int = 1
) -> None:
    @world(f"sentences: {name}", factor=0.5 / n_models)
    def run(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
        is_said = np.zeros(draws, bool)
        for place in range(draws):
            pairs = draw_pairs(groups, column, share, n_models, rng)
            if column == "length":
                pairs = pairs.astype({"length": LENGTH})
            is_said[place] = any(
                finding in sentence
                for sentence in sentences(pairs)
                for finding in FINDINGS
            )
        yield false_alarms("a table with a sentence", is_said)


_add(
    "6 longer and 60 shorter, right in 85 %",
    {"longer": 6, "shorter": 60},
    "length",
    0.85,
)
_add(
    "12 longer and 200 shorter, right in 90 %",
    {"longer": 12, "shorter": 200},
    "length",
    0.9,
)
_add("four domains of 25, right in 90 %", dict.fromkeys("abcd", 25), "domain", 0.9)
_add(
    "domains of 6, 10, 20 and 200, right in 90 %",
    {"a": 6, "b": 10, "c": 20, "d": 200},
    "domain",
    0.9,
)
_add(
    "twelve domains of 15, right in 80 %",
    dict.fromkeys("abcdefghijkl", 15),
    "domain",
    0.8,
)
_add(
    "five models, four domains of 100, right in 80 %",
    dict.fromkeys("abcd", 100),
    "domain",
    0.8,
    n_models=5,
)
