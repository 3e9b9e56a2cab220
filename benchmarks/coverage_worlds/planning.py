"""The share of tables in which `compare` finds what `plan` and `power` promise."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from coverage_worlds import Measure, world
from coverage_worlds.simulated import BATCH, Outcomes, Simulated, overall, paired_outcomes
from rmlab import stats
from rmlab.stats.difference import differences


def share_found(tables: Simulated, draws: int, rng: np.random.Generator) -> float:
    """The share of draws in which the first model leads the second significantly."""
    n_found = 0
    for start in range(0, draws, BATCH):
        rows = min(BATCH, draws - start)
        result = overall(tables, *tables.draw(rng, rows))
        difference = differences(result, np.arange(rows), np.arange(rows) + rows)
        n_found += int((difference.p < 0.05).sum())
    return n_found / draws


@world("plan: the number of prompts finds the difference")
def planned(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
    for difference, agreement in ((0.02, 0.92), (0.05, 0.8), (0.05, 0.92), (0.15, 0.8), (0.05, 0.95), (0.2, 0.8)):
        n = stats.plan(difference, agreement=agreement)["n_prompts"].item()
        only_a = (1 - agreement + difference) / 2
        outcomes = Outcomes(both=agreement / 2, only_a=only_a, only_b=only_a - difference)
        what = f"{difference} at agreement {agreement}"
        if pd.isna(n):
            yield Measure(f"{what}, no number", 0.0, draws, at_least=0.8)
            continue
        share = share_found(paired_outcomes({"all": n}, {"all": outcomes}), draws, rng)
        yield Measure(f"{what}, {n} prompts", share, draws, at_least=0.8)
