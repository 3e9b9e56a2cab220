"""How often the sets of ranks hold the true places: equal models, and models some errors apart.

Run by `benchmarks/coverage.py`; the sets, letters and best sets are those of `rmlab.rank`.
"""

import designs
import numpy as np
from designs import Design

from rmlab.metrics.estimate import estimate
from rmlab.metrics.numbers import overall
from rmlab.stats.ranking import rank_columns

Row = dict[str, object]
SIZES = {"all": 300}
PER = 3


def found(ladder: list[Design], rng: np.random.Generator) -> dict[str, dict]:
    """Both families' columns of one table of models on common prompts, three comparisons each."""
    common = designs.prompts_in_common(1, rng, SIZES)
    reading = designs.reading(np.concatenate([designs.margins(d, 1, common, rng, SIZES) for d in ladder]), SIZES, PER)
    one = estimate(reading.items, overall(reading))
    return {family: rank_columns(reading, one, family=family) for family in ("model", "all pairs")}


def equal(models: int, tables: int, seed: int) -> list[Row]:
    """Equal models share all their places: a set must hold them all, and one letter must stand at every model."""
    rng, held, both = np.random.default_rng(seed), {"model": [], "all pairs": []}, []
    for _ in range(tables):
        sets = found([Design((0.6,))] * models, rng)
        for family, columns in sets.items():
            inside = ((columns["rank_low"] == 1) & (columns["rank_high"] == models)).to_numpy()
            held[family].append(inside)
        best = sets["model"]["best"].to_numpy(bool)
        first = sets["model"]["rank"].to_numpy(int).argmin()
        both.append((best.mean(), held["model"][-1][first]))
    world = f"{models} equal models"
    return [
        {"what": "sets for one model hold all places: mean", "world": world, "share": np.mean(held["model"]),
         "draws": tables},
        {"what": "sets for all models hold all places at once", "world": world,
         "share": np.mean([inside.all() for inside in held["all pairs"]]), "draws": tables},
        {"what": "best set holds a model: mean", "world": world, "share": np.mean([b for b, _ in both]),
         "draws": tables},
        {"what": "the set of the model that came first holds all places", "world": world,
         "share": np.mean([f for _, f in both]), "draws": tables},
    ]  # fmt: skip


def spaced(models: int, gap: float, tables: int, seed: int) -> list[Row]:
    """Models `gap` errors of a difference apart: the true rank, the best model, and how wide the sets are."""
    rng = np.random.default_rng(seed)
    step = gap * 0.025 / 0.25  # error of a difference here, slope of accuracy by advantage
    ladder = [Design((0.6 + step * m,)) for m in range(models)]
    true, held, width, best = models - np.arange(models), {}, {}, []
    for _ in range(tables):
        sets = found(ladder, rng)
        for family, columns in sets.items():
            low, high = columns["rank_low"].to_numpy(int), columns["rank_high"].to_numpy(int)
            held.setdefault(family, []).append((low <= true) & (true <= high))
            width.setdefault(family, []).append((high - low).mean())
        best.append(bool(sets["model"]["best"].iloc[-1]))
    world = f"{models} models, {gap:g} errors apart"
    rows = [
        {"what": f"sets hold the true rank: {family}", "world": world, "share": np.mean(inside),
         "worst": np.mean(inside, axis=0).min(), "width": np.mean(width[family]), "draws": tables}
        for family, inside in held.items()
    ]  # fmt: skip
    return [*rows, {"what": "best set holds the best model", "world": world, "share": np.mean(best), "draws": tables}]
