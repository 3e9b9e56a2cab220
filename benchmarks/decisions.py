"""Whether p and interval say the same, and whether power is what it says. Run by `benchmarks/coverage.py`."""

import designs
import numpy as np
import pandas as pd
from designs import Design

from rmlab import stats, tables
from rmlab.metrics.estimate import estimate
from rmlab.metrics.numbers import Reading, overall
from rmlab.stats.difference import differences
from rmlab.stats.mcnemar import mcnemar
from rmlab.stats.power import exact_power

Row = dict[str, object]
BATCH = 50


def coherence(draws: int, seed: int) -> list[Row]:
    """Tables of two models, of random size, tilt, ties, blanks, comparisons a prompt: do p and interval agree?"""
    rng = np.random.default_rng(seed)
    agree = {"mcnemar": [], "t": []}
    for batch in range(draws // BATCH):
        sizes = (
            {"all": int(rng.integers(6, 80))}
            if batch % 3
            else {"x": int(rng.integers(6, 40)), "y": int(rng.integers(6, 40))}
        )
        design = Design(tuple(rng.normal(0.8, 1.0, len(sizes))), shared=rng.random(), ties=0.1 * (batch % 2),
                        blanks=0.05 * (batch % 4 == 3))  # fmt: skip
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


def from_tables(draws: int, seed: int) -> list[Row]:
    """True power at the difference that `power` calls detectable, from tables of equal models: mean and spread."""
    rng, rows = np.random.default_rng(seed), []
    for n, agreement in ((60, 0.8), (200, 0.85), (1327, 0.915)):
        reached = []
        for table in range(draws):
            kinds = rng.choice(3, n, p=[(1 - agreement) / 2, (1 - agreement) / 2, agreement])
            found = stats.power(one_each(kinds), "a", "b", seed=table)["detectable"].item()
            if found == found:
                reached.append(exact_power(n, found, agreement, 0.05) if found < 1 - agreement else 1.0)
        low, high = np.quantile(reached, [0.025, 0.975])
        rows.append({"what": "true power at power's detectable (80 % asked): mean over tables", "draws": len(reached),
                     "world": f"{n} prompts, agreement {agreement:g}: 95 % of tables {low:.2f} to {high:.2f}",
                     "share": np.mean(reached)})  # fmt: skip
    return rows


TWO_MODELS = {  # sizes and comparisons a prompt; the t test of `compare` each time
    "RM-Bench, 36 cells": (Design(), designs.SIZES, 9),
    "120 prompts, 3 comparisons": (Design((0.8,)), {"all": 120}, 3),
    "40 prompts, 3 comparisons": (Design((1.6,)), {"all": 40}, 3),
}


_ROUNDS = 4


def from_designs(tables_each: int, draws: int, seed: int) -> list[Row]:
    """How often `compare` finds a difference that is as large as tables of the same two models call detectable.

    Nothing is tilted or resampled here: the second model's right answers score lower by what makes the true
    difference as large as the mean `detectable`, and new prompts are drawn each time. As two models agree less often
    the further they are apart, both are sought together.
    """
    rng, rows = np.random.default_rng(seed), []
    for name, (design, sizes, per) in TWO_MODELS.items():
        other, delta = design, 0.0
        for _ in range(_ROUNDS):
            asked = []
            for table in range(tables_each):
                pairs = as_pairs(two(design, other, 1, rng, sizes, per))
                asked.append(stats.power(pairs, "row 0", "row 1", seed=table)["detectable"].item())
            delta = float(np.nanmean(asked))
            other = lowered(design, delta, sizes, per)
        found = []
        for start in range(0, draws, BATCH):
            reading = two(design, other, min(BATCH, draws - start), rng, sizes, per)
            one = estimate(reading.items, overall(reading))
            half = np.arange(len(one.value) // 2)
            found.append(differences(one, half, half + len(half)).p < 0.05)
        rows.append({"what": "power of compare at the mean detectable of tables (80 % asked)", "draws": draws,
                     "world": f"{name}: a true difference of {delta:.4f}",
                     "share": np.concatenate(found).mean()})  # fmt: skip
    return rows


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
