"""How often the sets of ranks hold the true places: equal models, and models some errors apart.

Run by `benchmarks/coverage.py`; the sets, letters and best sets are those of `rmlab.rank`.
"""

import designs
import numpy as np
from decisions import as_pairs
from designs import Design

from rmlab import stats
from rmlab.metrics.estimate import estimate
from rmlab.metrics.numbers import Reading, overall
from rmlab.stats.ranking import rank_columns

Row = dict[str, object]
SIZES = {"all": 300}
PER = 3


def drawn(ladder: list[Design], rng: np.random.Generator) -> Reading:
    """One table of models on common prompts, three comparisons each."""
    common = designs.prompts_in_common(1, rng, SIZES)
    return designs.reading(np.concatenate([designs.margins(d, 1, common, rng, SIZES) for d in ladder]), SIZES, PER)


def found(ladder: list[Design], rng: np.random.Generator) -> dict[str, dict]:
    """Both families' columns of one table."""
    reading = drawn(ladder, rng)
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


LADDERS = {  # what right answers score more, worst model first; 0.1 is one error of a difference here
    "6 equal models": (0.6,) * 6,
    "6 models 1 error apart": tuple(0.6 + 0.1 * m for m in range(6)),
    "6 models, two of them best": (0.5, 0.6, 0.7, 0.7, 0.9, 0.9),
}


def bounds(name: str, tables: int, seed: int) -> list[Row]:
    """How often `compare_best` holds each model's true distance to the best, from below and from above."""
    rng, ladder = np.random.default_rng(seed), [Design((up,)) for up in LADDERS[name]]
    true = np.array([design.cells()[0, :PER].mean() for design in ladder])
    behind, held = true.max() - true, {"at_least": [], "at_most": []}
    for _ in range(tables):
        found = stats.compare_best(as_pairs(drawn(ladder, rng))).set_index("model")
        found = found.loc[[f"row {i}" for i in range(len(ladder))]]
        held["at_least"].append(found["at_least"].to_numpy() <= behind + 1e-12)
        held["at_most"].append(found["at_most"].to_numpy() >= behind - 1e-12)
    return [
        {"what": f"compare_best: {side} holds the distance to the best", "world": name, "share": np.mean(inside),
         "worst": np.mean(inside, axis=0).min(), "draws": tables}
        for side, inside in held.items()
    ]  # fmt: skip
