"""Tests, intervals and ranks of two models and of many."""

from collections.abc import Iterator
from dataclasses import replace

import designs
import numpy as np
from designs import Design
from scipy.special import ndtr

from coverage_worlds import RANK_FLOOR, Measure, coverage, world
from coverage_worlds.simulated import (
    BATCH,
    Simulated,
    compare_draws,
    credit_of,
    items_of,
    lay_out,
    normal_models,
    rank_draws,
)
from rmlab.estimation.estimate import estimate
from rmlab.metrics.prepare import overall_number


@world("one decision: the interval excludes 0 exactly where p < alpha")
def one_decision(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
    """Tables of two models of random size and tilt, 50 draws each."""
    n_same = 0
    n_total = 0
    for _ in range(-(-draws // 10)):
        sizes = {"x": int(rng.integers(6, 60)), "y": int(rng.integers(6, 60))}
        first, second = rng.normal(1, 1.5, 2)
        tables = normal_models(
            Design((first,) * 2, missing=0.05),
            Design((second,) * 2),
            sizes,
            styled=False,
        )
        credits = tables.draw(rng, 50)
        for alpha in (0.1, 0.05, 0.01):
            difference = compare_draws(tables, *credits, confidence=1 - alpha)
            excludes_zero = (difference.low > 0) | (difference.high < 0)
            n_same += int((excludes_zero == (difference.p < alpha)).sum())
            n_total += 50
    yield Measure("same decision", n_same / n_total, n_total, at_least=1.0)


def equal_ranks(tables: list[list[np.ndarray]], world: Simulated) -> Measure:
    """How often the sets of ranks hold all places of models that are equal; a table is
    a list of models' credits.
    """
    n_held = 0
    for models in tables:
        columns = rank_draws(world, *models)
        n_held += bool(
            ((columns["rank_low"] == 1) & (columns["rank_high"] == len(models))).all()
        )
    return Measure(
        "all sets hold all places",
        n_held / len(tables),
        len(tables),
        at_least=RANK_FLOOR,
    )


def _add_equal_models(n_models: int) -> None:
    @world(f"ranks of {n_models} equal models")
    def equal_models(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
        sizes = {"all": 300}
        three = normal_models(
            Design((0.6,)), Design((0.6,)), sizes, styled=False, per=3
        )
        is_kept = np.tile(np.arange(9), 300) < 3
        tables = []
        for _ in range(draws):
            common = designs.prompts_in_common(1, rng, sizes)
            margins = [
                designs.margins(Design((0.6,)), 1, common, rng, sizes)
                for _ in range(n_models)
            ]
            tables.append([credit_of(margin[:, is_kept], 0.0) for margin in margins])
        yield equal_ranks(tables, three)


for n_models in (2, 5, 20):
    _add_equal_models(n_models)


@world("families of four prompts")
def families(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
    """Prompts that stand or fall together for the most part: clustered by family, and
    wrongly by prompt.
    """
    n = 120
    layout = lay_out({"all": n}, 9)
    true = float(ndtr(0.5 / np.sqrt(1 + 0.25 + 0.49)))
    limits: dict[str, list[np.ndarray]] = {"prompt": [], "family": []}
    for start in range(0, draws, BATCH):
        rows = min(BATCH, draws - start)
        family_effect = np.repeat(rng.standard_normal((rows, n // 4)), 4, axis=1)
        effect = family_effect + 0.5 * rng.standard_normal((rows, n))
        margin = (
            0.5
            + effect[:, layout.prompt]
            + 0.7 * rng.standard_normal((rows, len(layout.prompt)))
        )
        won = (margin > 0).astype(float)
        items = items_of(Simulated(None, layout, won), won)
        numbers = [overall_number(items)]
        for name, cluster in (
            ("prompt", items.cluster),
            ("family", items.cluster // 4),
        ):
            result = estimate(replace(items, cluster=cluster), numbers)
            limits[name].append(np.stack([result.low[:, 0], result.high[:, 0]]))
    for name, at_least in (("prompt", float("nan")), ("family", 0.93)):
        low, high = np.concatenate(limits[name], axis=1)
        yield coverage(f"clustered by {name}", low, high, true, at_least=at_least)
