"""The share of tables in which `compare` finds what is promised."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from coverage_worlds import Measure, world
from coverage_worlds.simulated import (
    BATCH,
    Outcomes,
    Simulated,
    compare_draws,
    paired_outcomes,
)
from rmlab import stats, tables

PLANS = (
    (0.02, 0.92),
    (0.05, 0.8),
    (0.05, 0.92),
    (0.15, 0.8),
    (0.05, 0.95),
    (0.1, 0.9),
    (0.2, 0.8),
)


def share_found(tables: Simulated, draws: int, rng: np.random.Generator) -> float:
    """The share of draws in which the first model leads the second significantly."""
    n_found = 0
    for start in range(0, draws, BATCH):
        rows = min(BATCH, draws - start)
        difference = compare_draws(tables, *tables.draw(rng, rows))
        n_found += int((difference.p < 0.05).sum())
    return n_found / draws


@world("sample_size: the number of prompts finds the difference")
def planned(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
    for difference, agreement in PLANS:
        n = stats.sample_size(difference, agreement=agreement)["n_prompts"].item()
        only_a = (1 - agreement + difference) / 2
        outcomes = Outcomes(
            both=agreement / 2, only_a=only_a, only_b=only_a - difference
        )
        what = f"{difference} at agreement {agreement}"
        if pd.isna(n):
            yield Measure(f"{what}, no number", 0.0, draws, at_least=0.8)
            continue
        share = share_found(paired_outcomes({"all": n}, {"all": outcomes}), draws, rng)
        yield Measure(f"{what}, {n} prompts", share, draws, at_least=0.8)


@world("power: the detectable difference is found")
def detectable(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
    """Two models that differ on as many prompts as those of the table, by what `power`
    calls detectable.
    """
    for n, n_differing in (
        (60, 6),
        (60, 20),
        (300, 20),
        (300, 120),
        (1327, 40),
        (1327, 200),
    ):
        half = n_differing // 2
        table = two_models(half, half, n - n_differing)
        delta = stats.power(table, "a", "b")["detectable"].item()
        what = f"{n_differing} of {n} prompts differ"
        if pd.isna(delta):
            yield Measure(f"{what}: no number", 1.0, draws)
            continue
        only_a = (n_differing / n + delta) / 2
        only_b = max(n_differing / n - only_a, 0.0)
        outcomes = Outcomes(both=1 - only_a - only_b, only_a=only_a, only_b=only_b)
        share = share_found(paired_outcomes({"all": n}, {"all": outcomes}), draws, rng)
        yield Measure(f"{what}: {delta:.3f}", share, draws, at_least=0.76, at_most=0.86)


def two_models(only_a: int, only_b: int, both: int) -> pd.DataFrame:
    """Pairs of two models that win these numbers of prompts alone and together."""
    place = np.arange(only_a + only_b + both)
    won = {"a": place >= only_b, "b": (place < only_b) | (place >= only_a + only_b)}
    frames = [
        pd.DataFrame({"id": place.astype(str), "model": name, "margin": 2.0 * row - 1})
        for name, row in won.items()
    ]
    pairs = pd.concat(frames).assign(
        benchmark="own", domain="all", chosen_slot=0, rejected_slot=0
    )
    return tables.check_pairs(pairs)
