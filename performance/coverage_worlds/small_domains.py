"""Two models on a few small domains of nine comparisons a prompt: size and power."""

from collections.abc import Iterator

import numpy as np
from designs import Design
from scipy.special import stdtrit

from coverage_worlds import Measure, false_alarms, world
from coverage_worlds.simulated import (
    BATCH,
    Simulated,
    compare_draws,
    lay_out,
    normal_models,
)

FOUR = dict.fromkeys("abcd", 16)
EIGHT = dict(zip("abcdefgh", (5, 7, 9, 12, 15, 20, 25, 30), strict=True))


def whole_and_single(n_prompts: int, rate: float) -> Simulated:
    """Equal models: one fails whole prompts of nine comparisons with a rate, the other
    single comparisons.
    """
    layout = lay_out({"all": n_prompts}, 9)
    n_items = len(layout.prompt)

    def draw(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        fails_whole = rng.random((rows, n_prompts)) < rate
        fails_single = rng.random((rows, n_items)) < rate
        return 1.0 - fails_whole[:, layout.prompt], 1.0 - fails_single

    return Simulated(draw, layout, np.full((2, n_items), 1 - rate))


def count_found(
    tables: Simulated, draws: int, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Which differences `compare` finds (draws,), and the share that the plain
    clustered t finds.
    """
    found = []
    found_by_t = []
    for start in range(0, draws, BATCH):
        rows = min(BATCH, draws - start)
        credits = tables.draw(rng, rows)
        difference = compare_draws(tables, *credits)
        found.append(difference.p[:, 0] < 0.05)
        half = stdtrit(np.maximum(difference.df, 1), 0.975) * difference.se
        found_by_t.append(np.abs(difference.value) > half)
    return np.concatenate(found), float(np.concatenate(found_by_t).mean())


@world("small domains: equal models and models that differ")
def small_domains(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
    for what, sizes, gap in (
        ("4 domains of 16 prompts", FOUR, 0.35),
        ("8 domains of 5 to 30", EIGHT, 0.25),
    ):
        equal = Design((0.6,) * len(sizes))
        better = Design((0.6 + gap,) * len(sizes))
        for name, first in (("equal", equal), ("a difference", better)):
            tables = normal_models(first, equal, sizes, styled=False)
            found, by_t = count_found(tables, draws, rng)
            row = false_alarms(f"{what}, {name}", found)
            if first is better:
                row = row._replace(at_most=np.nan)
            yield row._replace(plain=by_t)


@world("whole prompts that fail rarely beside single comparisons")
def rare_failures(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
    for n_prompts in (20, 50, 100, 300):
        for rate in (0.005, 0.02, 0.1):
            tables = whole_and_single(n_prompts, rate)
            found, by_t = count_found(tables, draws, rng)
            row = false_alarms(f"{n_prompts} prompts, a rate of {rate}", found)
            yield row._replace(plain=by_t)
