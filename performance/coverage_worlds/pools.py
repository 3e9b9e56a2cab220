"""Best of n on pools: the share of right selections, and what 16 candidates gain over
one.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

import rmlab
from coverage_worlds import Measure, coverage, false_alarms, world

SIZE = 16
N_TRUE = 20_000  # prompts of which the true values are taken

Draw = Callable[[int, np.random.Generator], pd.DataFrame]


def lay_out(share_right: np.ndarray, skill: float, rng: np.random.Generator):
    """A pool for each prompt; a right candidate scores `skill` higher, in tenths."""
    n_prompts = len(share_right)
    right = rng.random((n_prompts, SIZE)) < share_right[:, None]
    score = (skill * right + rng.normal(0, 1, right.shape)).round(1)
    return pd.DataFrame(
        {
            "model": "m",
            "prompt": np.repeat(np.arange(n_prompts), SIZE),
            "correct": right.ravel(),
            "score": score.ravel(),
        }
    )


def ordinary(n_prompts: int, rng: np.random.Generator) -> pd.DataFrame:
    return lay_out(rng.beta(2, 1, n_prompts), 1.0, rng)


def mostly_solved(n_prompts: int, rng: np.random.Generator) -> pd.DataFrame:
    """Two prompts of three are all right, one of twenty is all wrong."""
    kind = rng.random(n_prompts)
    share = np.where(
        kind < 0.66, 1.0, np.where(kind < 0.71, 0.0, rng.beta(2, 2, n_prompts))
    )
    return lay_out(share, 0.5, rng)


def families(n_prompts: int, rng: np.random.Generator) -> pd.DataFrame:
    """Three prompts of a family are about equally hard, and read equally well."""
    family = np.arange(n_prompts) // 3
    easiness = rng.normal(0.5, 1.5, family.max() + 1)[family]
    share = 1 / (1 + np.exp(-easiness - rng.normal(0, 0.5, n_prompts)))
    frame = lay_out(share, 0.0, rng)
    skill = rng.normal(0.7, 0.7, family.max() + 1)[family]
    frame["score"] += np.repeat(skill, SIZE) * frame["correct"]
    frame["score"] = frame["score"].round(1)
    frame["family"] = np.repeat(family, SIZE).astype(str)
    return frame


def cover(name: str, draw: Draw, n_prompts: int) -> None:
    """Register a world: best of 4 and of 16, and the gain of 16 over one."""

    @world(f"pools: {name}")
    def pools(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
        whole = rmlab.load_pool(draw(N_TRUE, rng))
        curve = rmlab.metrics.best_of_curve(whole, sizes=(1, 4, SIZE), by="model")
        true = curve.set_index("n")["accuracy"]
        curves = []
        gains = []
        for _ in range(draws):
            pool = rmlab.load_pool(draw(n_prompts, rng))
            curves.append(
                rmlab.metrics.best_of_curve(pool, sizes=(4, SIZE), by="model")
            )
            gains.append(rmlab.metrics.best_of_gain(pool, sizes=(SIZE,)).head(1))
        points = pd.concat(curves)
        for n in (4, SIZE):
            rows = points[points["n"] == n]
            yield coverage(
                f"best of {n}", rows["low"].to_numpy(), rows["high"].to_numpy(), true[n]
            )
        gain = pd.concat(gains)
        yield coverage(
            f"gain of {SIZE} over 1",
            gain["low"].to_numpy(),
            gain["high"].to_numpy(),
            true[SIZE] - true[1],
        )


cover("60 prompts", ordinary, 60)
cover("30 prompts, mostly all right or all wrong", mostly_solved, 30)
cover("90 prompts in families of three", families, 90)


@world("pools: a random reward gains nothing")
def random_reward(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
    p = []
    for _ in range(draws):
        pool = rmlab.load_pool(lay_out(rng.beta(2, 1, 50), 0.0, rng))
        p.append(rmlab.metrics.best_of_gain(pool, sizes=(SIZE,))["p"].iloc[0])
    yield false_alarms("gain over 1", np.array(p) < 0.05)
