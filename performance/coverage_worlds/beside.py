"""Our intervals and test beside three others: Wilson's with the design effect, Miller's
recipe (arXiv 2411.00640), and a percentile bootstrap of the prompts.
"""

from collections.abc import Iterator

import numpy as np
from designs import SIZES, Design
from scipy.special import ndtri

from coverage_worlds import Measure, world
from coverage_worlds.simulated import (
    BATCH,
    Simulated,
    Sizes,
    compare_draws,
    normal_models,
    overall,
    true_numbers,
)

MINI = dict.fromkeys("abcd", 16)
Z = ndtri(0.975)
N_RESAMPLES = 1000
ORDINARY = (0.3, 0.1, 0.0, 1.2)
NEARLY_PERFECT = (3.2, 3.2, 3.2, 3.2)
Limits = tuple[np.ndarray, np.ndarray]


def mean_of_prompts(credit: np.ndarray) -> np.ndarray:
    """Credit of each prompt (draws, prompts), from nine comparisons a prompt."""
    return credit.reshape(len(credit), -1, 9).mean(axis=2)


def weigh_prompts(sizes: Sizes) -> np.ndarray:
    """Weight of each prompt in the overall score: domains count alike."""
    return np.concatenate([np.full(n, 1 / n / len(sizes)) for n in sizes.values()])


def plain_error(prompts: np.ndarray, sizes: Sizes) -> np.ndarray:
    """Clustered error of the overall score without a factor for few clusters."""
    ends = np.cumsum(list(sizes.values()))[:-1]
    of_domains = np.split(prompts, ends, axis=1)
    variances = [domain.var(axis=1) / domain.shape[1] for domain in of_domains]
    return np.sqrt(np.sum(variances, axis=0)) / len(sizes)


def wilson(prompts: np.ndarray, sizes: Sizes) -> Limits:
    """Wilson's interval with as many trials as give the clustered error; where that is
    zero, the prompts.
    """
    p = prompts @ weigh_prompts(sizes)
    variance = plain_error(prompts, sizes) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        n = np.where(variance > 0, p * (1 - p) / variance, prompts.shape[1])
    center = (p + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * np.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
    return center - half, center + half


def miller(prompts: np.ndarray, sizes: Sizes) -> Limits:
    """The value and 1.96 clustered errors."""
    value = prompts @ weigh_prompts(sizes)
    half = Z * plain_error(prompts, sizes)
    return value - half, value + half


def bootstrap(prompts: np.ndarray, sizes: Sizes, rng: np.random.Generator) -> Limits:
    """Percentiles over tables whose prompts are drawn again within each domain."""
    counts = [
        rng.multinomial(n, np.full(n, 1 / n), N_RESAMPLES) for n in sizes.values()
    ]
    weights = np.hstack(counts) * weigh_prompts(sizes)
    low, high = np.quantile(prompts @ weights.T, [0.025, 0.975], axis=1)
    return low, high


def compare_ways(
    models: Simulated, sizes: Sizes, draws: int, rng: np.random.Generator
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Limits of the first model's score and of the difference by each way, (2, draws)
    each.
    """
    limits: dict[str, list[Limits]] = {}
    limits_of_gap: dict[str, list[Limits]] = {}
    for start in range(0, draws, BATCH):
        first, second = models.draw(rng, min(BATCH, draws - start))
        result = overall(models, first)
        gap = compare_draws(models, first, second)
        prompts = mean_of_prompts(first)
        gap_of_prompts = prompts - mean_of_prompts(second)
        of_score = {
            "ours": (result.low[:, 0], result.high[:, 0]),
            "Wilson, design effect": wilson(prompts, sizes),
            "Miller": miller(prompts, sizes),
            "bootstrap": bootstrap(prompts, sizes, rng),
        }
        of_gap = {
            "ours": (gap.low[:, 0], gap.high[:, 0]),
            "Miller": miller(gap_of_prompts, sizes),
            "bootstrap": bootstrap(gap_of_prompts, sizes, rng),
        }
        for way, pair in of_score.items():
            limits.setdefault(way, []).append(pair)
        for way, pair in of_gap.items():
            limits_of_gap.setdefault(way, []).append(pair)
    return (
        {way: np.hstack(parts) for way, parts in limits.items()},
        {way: np.hstack(parts) for way, parts in limits_of_gap.items()},
    )


@world("beside Wilson, Miller and a bootstrap of prompts")
def beside(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
    """Coverage and width of a score, and how often a difference is found where models
    are equal and where they differ.
    """
    for what, sizes, advantage, gap in (
        ("RM-Bench", SIZES, ORDINARY, 0.15),
        ("near-perfect", SIZES, NEARLY_PERFECT, 0.3),
        ("mini", MINI, ORDINARY, 0.5),
        ("near-perfect mini", MINI, NEARLY_PERFECT, 1.0),
    ):
        design = Design(advantage)
        better = Design(tuple(value + gap for value in advantage))
        for name, first in (("equal", design), ("a difference", better)):
            models = normal_models(first, design, sizes)
            _, true = true_numbers(models)
            by_way, gaps = compare_ways(models, sizes, draws, rng)
            if first is design:
                for way, (low, high) in by_way.items():
                    inside = (low <= true[0, 0]) & (true[0, 0] <= high)
                    width = float((high - low).mean())
                    held = float(inside.mean())
                    yield Measure(f"{what}, score: {way}", held, draws, width=width)
            for way, (low, high) in gaps.items():
                is_found = (low > 0) | (high < 0)
                share = float(is_found.mean())
                yield Measure(f"{what}, {name} found: {way}", share, draws)
