"""Every number of a model, and the differences of two, on tables of many shapes."""

from collections.abc import Iterator
from functools import partial

import numpy as np
from designs import SIZES, Design

from coverage_worlds import Measure, world
from coverage_worlds.simulated import (
    Simulated,
    cover,
    failing_models,
    normal_models,
    shared_credits,
)

SECOND = Design(advantage=(0.5, 0.1, 0.2, 1.0), style=0.6)
QUARTER = {name: n // 4 for name, n in SIZES.items()}
NEAR = (3.0, 3.4, 2.8, 3.8)
FAR = (4.2, 3.4, 4.8, 3.0)
STUBBORN = Design((1.2,) * 4, style=3.0, prompts=0.3, noise=0.25)


def heavy_tailed(rng: np.random.Generator) -> dict[str, Simulated]:
    """Clusters of very unequal sizes."""
    ragged = {n: np.minimum(9, rng.geometric(0.3, n)) for n in (12, 40, 130)}
    heavy = np.minimum(60, np.ceil(rng.pareto(1.1, 100)) + 1).astype(int)
    few_heavy = np.minimum(40, np.ceil(rng.pareto(1.0, 20)) + 1).astype(int)
    worlds = {
        "heavy-tailed clusters": failing_models({"all": 100}, heavy, 0.1, 0.1, 0.6),
        "heavy-tailed clusters, 20 prompts": failing_models(
            {"all": 20}, few_heavy, 0.1, 0.1, 0.6
        ),
        "40 nearly perfect, 1 to 9 comparisons": pooled(3.0, 2.7, 40, ragged[40]),
    }
    for n, per in ragged.items():
        worlds[f"{n} prompts, 1 to 9 comparisons"] = pooled(1.0, 0.7, n, per)
    return worlds


def pooled(first: float, second: float, n: int, per: np.ndarray | int) -> Simulated:
    """One domain of `n` prompts with `per` comparisons each."""
    return normal_models(
        Design((first,)), Design((second,)), {"all": n}, False, per, "prompts"
    )


def unstyled(
    first: tuple[float, ...], second: tuple[float, ...], **sizes: int
) -> Simulated:
    """Domains of these sizes, without cells."""
    return normal_models(Design(first), Design(second), sizes, styled=False)


def near_perfect() -> dict[str, Simulated]:
    whole = {"prompts": 2.0, "noise": 0.3}
    zero = Design((-2.6, -3.4, -3.0, -2.2), style=0.2)
    return {
        "near-perfect": normal_models(
            Design(NEAR), Design(tuple(x - 0.3 for x in NEAR))
        ),
        "near-perfect, heavy tails": normal_models(
            Design(FAR, heavy=True), Design((3.9, 3.4, 4.1, 2.6), heavy=True)
        ),
        "near-perfect, prompts fail whole": normal_models(
            Design((3.6, 4.4, 3.0, 5.0), **whole), Design((3.3, 4.4, 3.2, 4.4), **whole)
        ),
        "near zero": normal_models(zero, Design((-2.4, -3.4, -2.7, -2.0))),
        "one domain near-perfect": normal_models(
            Design((0.2, 4.0, -0.4, 0.9)), Design((0.5, 3.7, -0.4, 1.1))
        ),
        "a constant share, rarely off": normal_models(
            STUBBORN, STUBBORN._replace(advantage=(1.1,) * 4)
        ),
        "near-perfect, 5 to 50 prompts": unstyled(
            (2.6, 3.2, 2.2, 3.6), (2.4, 3.0, 2.4, 3.2), a=20, b=5, c=50, d=15
        ),
        "200 nearly perfect, one comparison": pooled(3.0, 2.6, 200, 1),
    }


def full_size() -> dict[str, Simulated]:
    gaps = {"ties": 0.1, "missing": 0.05}
    halves = {"ties": 0.1, "tie": 0.5}
    return {
        "RM-Bench": normal_models(Design(), SECOND),
        "RM-Bench, a quarter": normal_models(Design(), SECOND, QUARTER),
        "heavy-tailed difficulty": normal_models(
            Design(heavy=True), SECOND._replace(heavy=True)
        ),
        "style goes with difficulty": normal_models(
            Design(slope=0.6), SECOND._replace(slope=0.3)
        ),
        "ties and gaps at random": normal_models(
            Design(**gaps), SECOND._replace(**gaps), QUARTER
        ),
        "ties worth a half": normal_models(
            Design(**halves), SECOND._replace(**halves), QUARTER
        ),
        "1,327 prompts, one comparison": pooled(0.6, 0.65, 1327, 1),
        "RewardBench 2: shared places": shared_credits(0.25, 0.15),
        "RewardBench 2: shared places, near-perfect": shared_credits(0.01, 0.02),
    }


def small() -> dict[str, Simulated]:
    worlds = {
        "domains of 8 prompts": normal_models(
            Design(), SECOND, dict.fromkeys(SIZES, 8)
        ),
        "domains of 8, 5 and 1,000": unstyled(
            (1.0, 0.5, 0.2, 0.6), (0.8, 0.5, 0.4, 0.6), a=8, b=5, c=1000, d=100
        ),
        "five and 1,000 prompts": unstyled((1.0, 0.5), (0.8, 0.4), a=5, b=1000),
        "six domains of 5": unstyled(
            (1.0, 0.5, 0.2, 0.6, 0.0, 1.4), (0.8,) * 6, **dict.fromkeys("abcdef", 5)
        ),
    }
    for n in (5, 8, 12, 20):
        worlds[f"{n} prompts, one domain"] = unstyled((0.6,), (0.3,), all=n)
    return worlds


def mixtures() -> dict[str, Simulated]:
    uneven = {"a": 5, "b": 30, "c": 120, "d": 400}
    return {
        "mixture: 2 % whole, 1.5 % isolated": failing_models(
            {"all": 100}, 9, 0.02, 0.015, 0.0
        ),
        "mixture: 1 % whole, 3 % isolated": failing_models(
            {"all": 100}, 9, 0.01, 0.03, 0.0
        ),
        "mixture: 3 % whole, a tenth in between": failing_models(
            {"all": 100}, 9, 0.03, 0.01, 0.1
        ),
        "mixture in 4 uneven domains": failing_models(uneven, 9, 0.03, 0.02, 0.1),
        "mixture, 20 prompts": failing_models({"all": 20}, 9, 0.05, 0.03, 0.2),
    }


def run(
    simulated: Simulated, draws: int, rng: np.random.Generator
) -> Iterator[Measure]:
    return cover(simulated, draws, rng)


every = (
    full_size()
    | near_perfect()
    | small()
    | mixtures()
    | heavy_tailed(np.random.default_rng(7))
)
for name, simulated in every.items():
    world(name)(partial(run, simulated))
