"""How often the intervals of ranks hold the true rank: simulated models, published scores, real answers.

Run by `benchmarks/coverage.py`. The rule is the one of `rmlab.rank`, by the fast way of `rmlab.report`.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import rankdata

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import designs
from designs import Design

from rmlab import intervals
from rmlab.papers import published
from rmlab.report import standings
from rmlab.stats import reported, targets
from rmlab.stats.grid import credit

TYPICAL = (0.3, 0.1, 0.0, 1.2)
ERROR, SLOPE = 0.0095, 0.24  # of a paired difference; of overall by advantage
Row = dict[str, object]


class Held:
    """Which ranks were in their intervals, draw by draw, and how wide the intervals were."""

    def __init__(self) -> None:
        self.inside: list[np.ndarray] = []
        self.width: list[float] = []

    def add(self, found: standings.Standings, true: np.ndarray) -> None:
        """Count the models whose true rank is in its interval; equal models have no rank to be covered."""
        _, low, high = standings.rank_interval(found, np.ones(len(true), bool))
        low, high = low.to_numpy(int), high.to_numpy(int)
        alone = (true[:, None] == true).sum(axis=1) == 1
        self.inside.append(((low <= true) & (true <= high))[alone])
        self.width.append(float((high - low).mean()))

    def row(self, design: str, fixed: bool) -> Row:
        """`worst`: of a single model, where they are the same in every draw. The error is between draws."""
        by_draw = np.array([np.mean(inside) for inside in self.inside])
        found = {"what": "coverage: rank", "design": f"{design} (mean width {np.mean(self.width):.1f})",
                 "method": "paired comparisons", "share": by_draw.mean(), "draws": len(by_draw),
                 "error": by_draw.std() / np.sqrt(len(by_draw))}  # fmt: skip
        return found | ({"worst": np.mean(self.inside, axis=0).min()} if fixed else {})


def simulated(draws: int, seed: int) -> list[Row]:
    """Even gaps between neighbours, random gaps drawn anew each time, and models as good as the published ones."""
    rng, rows = np.random.default_rng(seed), []
    for models in (5, 10, 30):
        n = draws if models < 30 else max(draws // 3, 10)
        for gap in (0.1, 0.25, 0.5, 1.0, 2.0):
            even, name = spaced(np.full(models - 1, gap)), f"{models} models, neighbours {gap} errors apart"
            rows.append(coverage(lambda even=even: even, n, rng).row(name, fixed=True))
            name = f"{models} models, random gaps of {gap} errors"
            uneven = coverage(lambda gap=gap, k=models - 1: spaced(rng.exponential(gap, k)), n, rng)
            rows.append(uneven.row(name, fixed=False))
    real = as_published()
    for models in (10, 30, len(real)):
        held = coverage(lambda models=models: real[:models], max(draws // 3, 10), rng)
        rows.append(held.row(f"the first {models} of RM-Bench's published scores", fixed=True))
    return rows


def coverage(make: Callable[[], list[Design]], draws: int, rng: np.random.Generator) -> Held:
    """Rank intervals of models by their overall score on RM-Bench's sizes."""
    held = Held()
    for _ in range(draws):
        models, common = make(), designs.prompts_in_common(1, rng)
        table = designs.grid(np.concatenate([designs.margins(d, 1, common, rng) for d in models]))
        target = targets.overall(table, "benchmark")
        one = reported.estimate(credit(table.outcome, "loss"), table, target)
        found = standings.Standings(table.models, one.mean, target.strata, one.se, one.low, one.high, one.n_prompts)
        held.add(found, rankdata([-d.overall() for d in models], method="min"))
    return held


def spaced(gaps: np.ndarray) -> list[Design]:
    """Models whose overall scores lie such gaps apart, in standard errors of a difference, best first."""
    place = np.concatenate([[0.0], np.cumsum(gaps)])
    up = ERROR / SLOPE * (place[-1] / 2 - place)
    return [Design(advantage=tuple(a + x for a in (0.3, 0.1, 0.0, 0.2))) for x in up]


def as_published() -> list[Design]:
    """Models with the overall scores of RM-Bench's published leaderboard, best first; equal ones 0.0001 apart."""
    up = np.linspace(-3, 6, 2001)
    overall = [Design(advantage=tuple(a + x for a in TYPICAL)).overall() for x in up]
    shown = published("rm-bench")["overall"].dropna().sort_values(ascending=False).to_numpy(float)
    shown = shown - 1e-4 * np.arange(len(shown))
    return [Design(advantage=tuple(a + x for a in TYPICAL)) for x in np.interp(shown, overall, up)]


def real(folder: Path, draws: int, seed: int) -> list[Row]:
    """Real models on RewardBench: 2,985 items drawn with replacement from the real ones, true ranks on all of them."""
    wide = pd.read_csv(folder / "rewardbench/response_matrix.torch_measure.csv", index_col="model").to_numpy(float)
    wide = wide[np.argsort(-np.nanmean(wide, axis=1))]
    rng, rows, n = np.random.default_rng(seed), [], wide.shape[1]
    for models in (10, 30, len(wide)):
        held, of = Held(), wide[:models]
        true = rankdata(-np.nanmean(of, axis=1), method="min")
        for _ in range(draws):
            held.add(answered(of[:, rng.integers(0, n, n)]), true)
        rows.append(held.row(f"the first {models} of 149 real models, items drawn anew", fixed=True))
    return rows


def answered(values: np.ndarray) -> standings.Standings:
    """Standings of models (rows) by their share of items (columns), NaN where blank."""
    strata, everyone = np.zeros(values.shape[1], np.intp), np.arange(values.shape[1])
    mean = intervals.weighted_mean(values, strata, np.ones(1), everyone, len(everyone))
    se, _ = intervals.stratified_error(mean.influence, strata)
    low, high = intervals.stratified_interval(mean, strata)
    names = [str(i) for i in range(len(values))]
    return standings.Standings(names, mean, strata, se, low, high, (~np.isnan(values)).sum(axis=1))
