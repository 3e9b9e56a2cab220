"""Calibration: the error of the bins, the Brier score and the log loss."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy.special import expit, ndtr

from coverage_worlds import DERIVED_FLOOR, Measure, coverage, world
from rmlab import stats

BATCH = 50
MANY = 2_000_000
BINS = 10
SHARED = 0.5
"""Share of the variance behind the outcomes that comparisons of a prompt share."""
FACTORS = (1.0, 0.6, 2.0, 4.0)
"""Margins are log-odds times a factor: 1 is calibrated."""


def draw_pairs(
    n_models: int, n_prompts: int, per: int, factor: float, rng: np.random.Generator
) -> pd.DataFrame:
    log_odds = np.abs(rng.normal(0, 1.5, (n_models, n_prompts, per)))
    shared = SHARED if per > 1 else 0.0
    common = rng.standard_normal((n_models, n_prompts, 1)) * np.sqrt(shared)
    own = rng.standard_normal(log_odds.shape) * np.sqrt(1 - shared)
    is_won = ndtr(common + own) < expit(log_odds)
    margin = factor * log_odds * np.where(is_won, 1, -1)
    model, prompt, slot = (place.ravel() for place in np.indices(margin.shape))
    return pd.DataFrame(
        {
            "model": np.char.add("draw ", model.astype(str)),
            "benchmark": "b",
            "domain": "d",
            "id": prompt.astype(str),
            "chosen_slot": slot,
            "rejected_slot": 0,
            "margin": margin.ravel(),
        }
    )


def true_values(factor: float) -> dict[str, float]:
    """The error of the bins, the Brier score and the log loss of many draws."""
    log_odds = np.abs(np.random.default_rng(99).normal(0, 1.5, MANY))
    p, said = expit(log_odds), expit(factor * log_odds)
    place = np.minimum((2 * BINS * (said - 0.5)).astype(int), BINS - 1)
    log_loss = -p * np.log(said) - (1 - p) * np.log(expit(-factor * log_odds))
    brier = p * (1 - said) ** 2 + (1 - p) * said**2
    error = np.abs(np.bincount(place, p - said, BINS)).sum() / MANY
    return {"ece": error, "brier": brier.mean(), "log_loss": log_loss.mean()}


def _add(n_prompts: int, per: int, factor: float) -> None:
    @world(f"calibration_error: {n_prompts} prompts of {per}, log-odds x {factor}")
    def run(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
        tables = []
        for start in range(0, draws, BATCH):
            n_models = min(BATCH, draws - start)
            pairs = draw_pairs(n_models, n_prompts, per, factor, rng)
            tables.append(stats.calibration_error(pairs, bins=BINS))
        table = pd.concat(tables)
        for name, true in true_values(factor).items():
            low, high = (table[f"{name}_{end}"].to_numpy() for end in ("low", "high"))
            # A few sure and wrong answers make most of the log loss of 50 prompts.
            is_bounded = name != "log_loss" or n_prompts >= 100
            floor = DERIVED_FLOOR if is_bounded else float("nan")
            yield coverage(name, low, high, true, at_least=floor)


for factor in FACTORS:
    for n_prompts, per in [(50, 1), (400, 1), (1327, 1), (64, 9), (441, 9)]:
        _add(n_prompts, per, factor)
