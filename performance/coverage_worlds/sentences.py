"""Sentences of a report: how many tables in which nothing differs have one that says
so.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from coverage_worlds import Measure, false_alarms, world
from rmlab.report.sentences import describe_models
from rmlab.tables import check_pairs

LENGTH = pd.CategoricalDtype(["shorter", "equal", "longer"], ordered=True)
PHRASES = ("is weakest in", "wins more often")


def lay_out_pairs(groups: dict[str, int], column: str, n_models: int) -> pd.DataFrame:
    """Single comparisons of models, in groups named by a column; nobody wins yet."""
    group = np.repeat([*groups], [*groups.values()])
    table = pd.DataFrame({"id": np.arange(len(group)).astype(str), "margin": 0.0})
    table = table.assign(
        benchmark="own", domain="own", chosen_slot=0, rejected_slot=0
    ).assign(**{column: group})
    if column == "length":
        table = table.astype({"length": LENGTH})
    models = [table.assign(model=f"model {model}") for model in range(n_models)]
    return check_pairs(pd.concat(models, ignore_index=True))


def _add(
    name: str, groups: dict[str, int], column: str, share: float, n_models: int = 1
) -> None:
    @world(f"sentences: {name}")
    def run(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
        """Models that win the same share in every group."""
        pairs = lay_out_pairs(groups, column, n_models)
        models = [f"model {model}" for model in range(n_models)]
        is_said = np.zeros(draws, bool)
        for place in range(draws):
            is_won = rng.random(len(pairs)) < share
            pairs["margin"] = np.where(is_won, 1.0, -1.0)
            pairs["outcome"] = pd.Categorical(
                np.where(is_won, "win", "loss"), dtype=pairs["outcome"].dtype
            )
            # The part of `rmlab.report.sentences` that tells of groups.
            findings = " ".join(describe_models(pairs, models))
            is_said[place] = any(phrase in findings for phrase in PHRASES)
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
