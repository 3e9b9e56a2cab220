"""Whether p and interval say the same, and whether power is what it says. Run by `benchmarks/coverage.py`."""

from typing import NamedTuple

import designs
import numpy as np
import pandas as pd
from designs import Design
from scipy.stats import binom

from rmlab import stats, tables
from rmlab.metrics.estimate import estimate
from rmlab.metrics.numbers import Reading, overall
from rmlab.stats.difference import differences
from rmlab.stats.mcnemar import mcnemar
from rmlab.stats.power import exact_power

Row = dict[str, object]
BATCH = 50


def coherence(draws: int, seed: int) -> list[Row]:
    """Tables of two models of random size, tilt, ties, gaps, comparisons a prompt: do p and interval agree?"""
    rng = np.random.default_rng(seed)
    agree = {"mcnemar": [], "t": []}
    for batch in range(draws // BATCH):
        sizes = (
            {"all": int(rng.integers(6, 80))}
            if batch % 3
            else {"x": int(rng.integers(6, 40)), "y": int(rng.integers(6, 40))}
        )
        design = Design(tuple(rng.normal(0.8, 1.0, len(sizes))), shared=rng.random(), ties=0.1 * (batch % 2),
                        missing=0.05 * (batch % 4 == 3))  # fmt: skip
        other = design._replace(advantage=tuple(np.array(design.advantage) + rng.normal(0, 0.7)))
        common = designs.prompts_in_common(BATCH, rng, sizes)
        margin = np.concatenate([designs.margins(d, BATCH, common, rng, sizes) for d in (design, other)])
        reading = designs.reading(margin, sizes, (1, 3, rng.integers(1, 10, sum(sizes.values())))[batch % 3])
        one = estimate(reading.items, overall(reading))
        for confidence in (0.95, 0.9):
            gap = differences(one, np.arange(BATCH), np.arange(BATCH) + BATCH, confidence=confidence)
            out = (gap.low > 0) | (gap.high < 0)
            for name, kind in (("mcnemar", gap.exact), ("t", ~gap.exact)):
                agree[name].append((out == (gap.p < 1 - confidence))[kind])
    return [
        {"what": "interval excludes 0 exactly where p < alpha", "world": name, "share": np.concatenate(found).mean(),
         "draws": len(np.concatenate(found))}
        for name, found in agree.items()
    ]  # fmt: skip


def planned(draws: int, seed: int) -> list[Row]:
    """Power of McNemar's test at the number of prompts that `plan` gives, by drawing tables."""
    rng, rows = np.random.default_rng(seed), []
    for row in stats.plan([0.02, 0.05], agreement=[0.8, 0.92], comparisons=1).itertuples():
        apart = 1 - row.agreement
        chances = [(apart + row.difference) / 2, (apart - row.difference) / 2, row.agreement]
        drawn = rng.multinomial(row.n_prompts, chances, draws)
        rows.append({"what": "power at plan's number of prompts (80 % asked)", "draws": draws,
                     "world": f"{row.difference:g} at agreement {row.agreement:g}: {row.n_prompts} prompts",
                     "share": (mcnemar(drawn[:, 0], drawn[:, 1]) < row.alpha).mean()})  # fmt: skip
    return rows


def from_tables(asked: int = 25) -> list[Row]:
    """What `power` calls detectable in tables of equal models: its true power, and how often its range holds.

    All that a table says of it is on how many prompts the two differ: `asked` such numbers between the 0.05 and the
    99.95 % quantile, straight lines between them, each number weighed with its chance. `detectable_low` to
    `detectable_high` must hold the difference whose true power is 80 %. Nothing is drawn, so a row has no error.
    """
    rows = []
    for n, agreement in ((60, 0.8), (200, 0.85), (1327, 0.915)):
        true, found = detectable_at(n, agreement), []
        for differ in np.unique(np.linspace(*binom.ppf([0.0005, 0.9995], n, 1 - agreement), asked).astype(int)):
            kinds = np.repeat([0, 1, 2], [differ // 2, differ - differ // 2, n - differ])
            row = stats.power(one_each(kinds), "a", "b", seed=int(differ)).iloc[0]
            if row["detectable"] == row["detectable"]:
                found.append([differ, *row[["detectable", "detectable_low", "detectable_high"]]])
        at = np.arange(found[0][0], found[-1][0] + 1)
        chance = binom.pmf(at, n, 1 - agreement)
        middle, low, high = (np.interp(at, *np.array(found, float).T[[0, k]]) for k in (1, 2, 3))
        reached = [exact_power(n, delta, agreement, 0.05) if delta < 1 - agreement else 1.0 for delta in middle]
        ends = np.interp([0.025, 0.975], np.cumsum(chance) / chance.sum(), reached)
        world = f"{n} prompts, agreement {agreement:g}"
        rows += [
            {"what": "true power at power's detectable (80 % asked): mean over tables",
             "world": f"{world}: 95 % of tables {ends[0]:.2f} to {ends[1]:.2f}",
             "share": np.average(reached, weights=chance)},
            {"what": "detectable_low to detectable_high hold the detectable difference",
             "world": f"{world}: truly {true:.4f}",
             "share": np.average((low <= true) & (true <= high), weights=chance)},
        ]  # fmt: skip
    return rows


def detectable_at(n: int, agreement: float) -> float:
    """The difference that McNemar's test finds with 80 % on so many prompts."""
    low, high = 0.0, 1 - agreement
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if exact_power(n, middle, agreement, 0.05) >= 0.8 else (middle, high)
    return high


class Two(NamedTuple):
    """Two models alike, their prompts and comparisons a prompt, and how many tables are asked: fewer where all say
    nearly the same."""

    design: Design
    sizes: dict[str, int]
    per: int
    tables: int


TWO_MODELS = {  # the t test of `compare` each time
    "RM-Bench, 36 cells": Two(Design(), designs.SIZES, 9, 60),
    "120 prompts, 3 comparisons": Two(Design((0.8,)), {"all": 120}, 3, 300),
    "40 prompts, 3 comparisons": Two(Design((1.6,)), {"all": 40}, 3, 400),
}
_ROUNDS = 3


def from_designs(draws: int, seed: int) -> list[Row]:
    """How often `compare` finds a difference that is as large as tables of the same two models call detectable.

    Nothing is tilted or resampled here: the second model's right answers score lower by what makes the true difference
    as large as `detectable`, and new prompts are drawn each time. As two models agree less often the further they are
    apart, both are sought together. Once at the mean `detectable` of the tables, once at each table's own. And how many
    of the tables have, between `detectable_low` and `detectable_high`, the difference that 80 % of new ones find.
    """
    rng, rows = np.random.default_rng(seed), []
    for name, world in TWO_MODELS.items():
        other = world.design
        for step in range(_ROUNDS):
            last = step == _ROUNDS - 1
            asked, low, high = detectables(world, other, world.tables if last else max(world.tables // 4, 5), rng)
            other = lowered(world.design, float(asked.mean()), world.sizes, world.per)
        each = [lowered(world.design, float(delta), world.sizes, world.per) for delta in asked]
        ways = {
            "at the mean detectable of tables": found(world, [other], draws, rng),
            "at each table's detectable, on average": found(world, each, draws // len(each), rng),
        }
        rows += [
            {"what": f"power of compare {way} (80 % asked)", "world": f"{name}: true difference {asked.mean():.4f}",
             "draws": len(p), "share": p.mean()}
            for way, p in ways.items()
        ]  # fmt: skip
        true = _found_in_80(world, asked.mean(), ways["at the mean detectable of tables"].mean(), draws, rng)
        rows.append({"what": "detectable_low to detectable_high hold the difference of 80 % power, t test",
                     "world": f"{name}: truly {true:.4f}", "draws": len(low),
                     "share": np.mean((low <= true) & (true <= high))})  # fmt: skip
    return rows


def _found_in_80(world: Two, at: float, power: float, draws: int, rng: np.random.Generator) -> float:
    """The difference that is found in 80 % of tables, from the power at one near it and at one a tenth larger."""
    beyond = found(world, [lowered(world.design, 1.1 * at, world.sizes, world.per)], draws, rng).mean()
    return float(at * (1 + 0.1 * (0.8 - power) / (beyond - power)))


def detectables(world: Two, other: Design, tables_drawn: int, rng: np.random.Generator) -> np.ndarray:
    """What `power` calls detectable in tables of the two models, and the range that it gives: (3, tables)."""
    asked = []
    for table in range(tables_drawn):
        pairs = as_pairs(two(world.design, other, 1, rng, world.sizes, world.per))
        said = stats.power(pairs, "row 0", "row 1", seed=table).iloc[0]
        asked.append(said[["detectable", "detectable_low", "detectable_high"]].astype(float))
    known = np.array(asked)
    return known[~np.isnan(known[:, 0])].T


def found(world: Two, others: list[Design], draws: int, rng: np.random.Generator) -> np.ndarray:
    """Whether `compare` finds the difference, in `draws` tables of the first model and each of the others."""
    parts = []
    for other in others:
        for start in range(0, draws, BATCH):
            reading = two(world.design, other, min(BATCH, draws - start), rng, world.sizes, world.per)
            one = estimate(reading.items, overall(reading))
            half = np.arange(len(one.value) // 2)
            parts.append(differences(one, half, half + len(half)).p < 0.05)
    return np.concatenate(parts)


def two(first: Design, second: Design, rows: int, rng: np.random.Generator, sizes: dict[str, int], per: int) -> Reading:
    """`rows` draws of one model, then as many of the other, on the same prompts."""
    common = designs.prompts_in_common(rows, rng, sizes)
    margin = np.concatenate([designs.margins(d, rows, common, rng, sizes) for d in (first, second)])
    return designs.reading(margin, sizes, per)


def as_pairs(reading: Reading) -> pd.DataFrame:
    """The table of pairs that would be read so."""
    items = reading.items
    parts = [
        items.frame.assign(model=name, outcome=np.where(row > 0, "win", "loss"))
        for name, row in zip(items.models, items.credit, strict=True)
    ]
    return tables.check_pairs(pd.concat(parts, ignore_index=True).assign(benchmark=reading.benchmark.name))


def lowered(design: Design, difference: float, sizes: dict[str, int], per: int) -> Design:
    """The design whose true overall is lower by `difference`: right answers score less, by the same in every domain."""

    def true(lower: float) -> tuple[Design, float]:
        other = design._replace(advantage=tuple(x - lower for x in design.advantage))
        return other, float(other.cells()[:, :per].mean())

    low, high = 0.0, 5.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if true(0.0)[1] - true(middle)[1] < difference else (low, middle)
    return true(high)[0]


def one_each(kinds: np.ndarray) -> pd.DataFrame:
    """Pairs of two models: only a wins (0), only b (1), both (2)."""
    parts = [
        pd.DataFrame({"model": name, "id": np.arange(len(kinds)).astype(str), "outcome": np.where(won, "win", "loss")})
        for name, won in (("a", kinds != 1), ("b", kinds != 0))
    ]
    frame = pd.concat(parts, ignore_index=True).assign(benchmark="own", domain="all", chosen_slot=0, rejected_slot=0)
    return tables.check_pairs(frame)
