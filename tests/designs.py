"""Simulated reward models with known true accuracies, at the sizes of the real benchmarks.

A prompt has six answers: chosen and rejected in three styles. The score of an answer is its quality plus what its
style is worth plus noise; how much better the chosen answers are differs between prompts, partly in the same way for
all models. So the nine comparisons of a prompt are dependent, and the true accuracy of each is a normal probability.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from rmlab.stats import grid as grids
from rmlab.tables import LEVEL, STYLE

SIZES = {"chat": 129, "math": 529, "code": 228, "safety": 441}  # RM-Bench's prompts
BEST_OF_FOUR = {"Factuality": 475, "Precise IF": 160, "Math": 183, "Safety": 450, "Focus": 495}  # RewardBench 2
CHOSEN, REJECTED = np.repeat(np.arange(3), 3), np.tile(np.arange(3), 3)


class Design(NamedTuple):
    """How a model scores: advantage of the chosen answers per domain, worth of a style, spreads."""

    advantage: tuple[float, ...] = (0.3, 0.1, 0.0, 1.2)
    style: float = 0.4
    prompts: float = 1.0  # spread of the advantage between prompts
    noise: float = 0.7  # spread of each answer's score
    shared: float = 0.5  # share of the prompts' variance that all models have in common

    def cells(self) -> np.ndarray:
        """True accuracy of each domain and comparison, (domains, 9)."""
        gap = self.style * (CHOSEN - REJECTED)
        spread = np.sqrt(self.prompts**2 + 2 * self.noise**2)
        return ndtr((np.array(self.advantage)[:, None] + gap) / spread)

    def overall(self) -> float:
        return float(self.cells().mean())


def margins(design, rows, common, rng, sizes=SIZES):
    """Margins (rows, prompts * 9) of `rows` draws; `common` (rows, prompts) is the shared part of the prompts."""
    domain = np.repeat(np.arange(len(sizes)), list(sizes.values()))
    own = rng.standard_normal((rows, len(domain)))
    effect = np.sqrt(design.shared) * common + np.sqrt(1 - design.shared) * own
    advantage = np.array(design.advantage)[domain] + design.prompts * effect
    score = design.noise * rng.standard_normal((rows, len(domain), 6)) + design.style * np.tile(np.arange(3), 2)
    margin = advantage[..., None] + score[..., CHOSEN] - score[..., 3 + REJECTED]
    return margin.reshape(rows, -1)


def prompts_in_common(rows, rng, sizes=SIZES):
    return rng.standard_normal((rows, sum(sizes.values())))


def grid(margin, sizes=SIZES):
    """The grid that `rmlab.stats` works on, from margins (rows, prompts * 9)."""
    import pandas as pd

    domain = np.repeat(np.arange(len(sizes)), list(sizes.values()))
    names = np.array(list(sizes))[domain]
    per = margin.shape[1] // len(domain)
    chosen, rejected = (np.tile(side, len(domain)) for side in (CHOSEN[:per], REJECTED[:per]))
    items = pd.DataFrame(
        {
            "benchmark": "rm-bench",
            "domain": np.repeat(names, per),
            "id": np.repeat(np.arange(len(domain)), per).astype(str),
            "chosen_slot": chosen,
            "rejected_slot": rejected,
            "subset": np.repeat(names, per),
            "chosen_style": pd.Categorical.from_codes(chosen, dtype=STYLE),
            "rejected_style": pd.Categorical.from_codes(rejected, dtype=STYLE),
            "level": pd.Categorical.from_codes(1 + np.sign(rejected - chosen), dtype=LEVEL),
        }
    )
    if per == 1:
        items["level"] = pd.Categorical.from_codes(np.full(len(items), -1), dtype=LEVEL)
    models = [f"row {i}" for i in range(len(margin))]
    outcome = (1 + np.sign(margin)).astype(np.int8)
    return grids.Grid(models, items, np.repeat(np.arange(len(domain)), per), domain, list(sizes), outcome, margin)


def truth(design, quantity, name, sizes=SIZES):
    """True value of a number that `intervals` reports."""
    cells = design.cells()
    if quantity == "domain":
        return cells[list(sizes).index(name)].mean()
    level = np.array(["hard", "normal", "easy"])[1 + np.sign(CHOSEN - REJECTED)]
    if quantity == "level":
        return cells[:, level == name].mean()
    if quantity == "cell":
        one, other = (["concise", "plain", "markdown"].index(style) for style in name.split(" > "))
        return cells[:, 3 * one + other].mean()
    return cells.mean()
