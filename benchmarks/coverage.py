"""How often the intervals hold the truth and the tests cry wolf, by simulation, in worlds of several kinds.

Scores come from tests/designs.py: six answers a prompt, effects of prompts, true accuracies known in closed form. Every
interval and test is the one of `summary`, `estimates`, `compare` and `rank`, run on many draws at once.

    python benchmarks/coverage.py [--draws 2000] [--out benchmarks/results/coverage.csv]
    python benchmarks/coverage.py --part held-out [--draws 2000] [--out benchmarks/results/coverage_held_out.csv]
    python benchmarks/coverage.py --part tests [--draws 2000] [--out benchmarks/results/decisions.csv]
    python benchmarks/coverage.py --part power [--draws 2000] [--out benchmarks/results/power.csv]
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import decisions
import designs
import ranks
from designs import SIZES, Design
from kept import keep

import rmlab
from rmlab.metrics.estimate import estimate
from rmlab.metrics.numbers import numbers
from rmlab.stats.difference import differences

BATCH = 100
Row = dict[str, object]
NEAR = (3.0, 3.4, 2.8, 3.8)


class World(NamedTuple):
    """A model, the one it is compared with, and the prompts; `per` comparisons a prompt, 0: unequally many, 1 to 9."""

    design: Design
    other: Design
    sizes: dict[str, int] = SIZES
    per: int = 9

    def comparisons(self, rng: np.random.Generator) -> np.ndarray | int:
        return self.per or np.minimum(9, rng.geometric(0.3, sum(self.sizes.values())))


SECOND = Design(advantage=(0.5, 0.1, 0.2, 1.0), style=0.6)
GAPS = {"ties": 0.1, "missing": 0.05}
HALVES = GAPS | {"tie": 0.5}
RARELY = {"ties": 0.02, "tie": 0.5}
STUBBORN = Design((1.2,) * 4, style=3.0, prompts=0.3, noise=0.25)
WORLDS = {
    "typical": World(Design(), SECOND),
    "heavy-tailed difficulty": World(Design(heavy=True), SECOND._replace(heavy=True)),
    "style goes with difficulty": World(Design(slope=0.6), SECOND._replace(slope=0.3)),
    "near-perfect": World(Design(advantage=NEAR), Design(advantage=tuple(x - 0.3 for x in NEAR))),
    "domains of 8 prompts": World(Design(), SECOND, dict.fromkeys(SIZES, 8)),
    "ties and missing outcomes at random": World(
        Design(**GAPS), SECOND._replace(**GAPS), {k: n // 4 for k, n in SIZES.items()}
    ),
    **{f"{n} prompts, 1 to 9 comparisons": World(Design((1.0,)), Design((0.7,)), {"all": n}, 0) for n in (12, 40, 130)},
    "40 nearly perfect, 1 to 9 comparisons": World(Design((3.0,)), Design((2.7,)), {"all": 40}, 0),
    "1,327 prompts, one comparison": World(Design((0.6,)), Design((0.65,)), {"all": 1327}, 1),
    "1,327 nearly equal, one comparison": World(
        Design((3.5,), shared=1.0), Design((3.6,), shared=1.0), {"all": 1327}, 1
    ),
    # Style decides: every prompt wins the same comparisons, and hardly one of them ever turns out otherwise.
    "a constant share, rarely off": World(STUBBORN, STUBBORN._replace(advantage=(1.1,) * 4)),
    "a constant share, rarely off, 200 prompts of three": World(
        STUBBORN._replace(advantage=(1.2,)), STUBBORN._replace(advantage=(1.1,)), {"all": 200}, 3
    ),
    "ties at random, worth a half": World(
        Design(**HALVES), SECOND._replace(**HALVES), {k: n // 4 for k, n in SIZES.items()}
    ),
    "40 prompts, 1 to 9 comparisons, ties worth a half": World(
        Design((1.0,), **HALVES), Design((0.7,), **HALVES), {"all": 40}, 0
    ),
    "130 nearly perfect, 1 to 9 comparisons, ties worth a half": World(
        Design((3.0,), **RARELY), Design((2.7,), **RARELY), {"all": 130}, 0
    ),
}

FAR = (4.2, 3.4, 4.8, 3.0)
HELD_OUT = {  # near 0 and 1, not looked at when the constants of the rule there were chosen
    "near-perfect, heavy tails": World(Design(FAR, heavy=True), Design((3.9, 3.4, 4.1, 2.6), heavy=True)),
    "near-perfect, prompts fail whole": World(
        Design((3.6, 4.4, 3.0, 5.0), prompts=2.0, noise=0.3), Design((3.3, 4.4, 3.2, 4.4), prompts=2.0, noise=0.3)
    ),
    "near zero": World(Design((-2.6, -3.4, -3.0, -2.2), style=0.2), Design((-2.4, -3.4, -2.7, -2.0), style=0.2)),
    "one domain near-perfect": World(Design((0.2, 4.0, -0.4, 0.9)), Design((0.5, 3.7, -0.4, 1.1))),
    "near-perfect, style decides the rest": World(Design(FAR, style=1.2), Design((4.0, 3.0, 4.2, 2.8), style=1.6)),
    "near-perfect, 15 to 50 prompts a domain": World(
        Design((2.6, 3.2, 2.2, 3.6)), Design((2.4, 3.0, 2.4, 3.2)), dict(zip(SIZES, (20, 35, 50, 15), strict=True))
    ),
    "60 prompts near zero, 1 to 9 comparisons": World(Design((-2.6,)), Design((-2.2,)), {"all": 60}, 0),
    "25 nearly perfect, 1 to 9 comparisons": World(Design((2.2,)), Design((2.5,)), {"all": 25}, 0),
    "200 nearly perfect, one comparison": World(Design((3.0,)), Design((2.6,)), {"all": 200}, 1),
}

TIES_PAIRS = 51  # of prompts
RIGHT_BY_HELD_OUT = {"RewardBench 2, easy for it": (2.6, 3.4, 2.8, 4.2, 3.0, 3.2)}
RIGHT_BY = {  # how much better right answers score: Factuality, Precise IF, Math, Safety, Focus, Ties
    "RewardBench 2, typical": (1.5, 0.6, 1.8, 3.5, 2.2, 2.0),
    "RewardBench 2, near-perfect": (4.0, 4.5, 5.0, 5.5, 5.0, 5.0),
}


class Held:
    """Which intervals held the truth, by kind of number and by single number, and how wide they were."""

    def __init__(self) -> None:
        self.inside: dict[tuple[str, str], list[np.ndarray]] = {}
        self.width: dict[str, list[np.ndarray]] = {}

    def add(self, kind: str, name: str, low: np.ndarray, high: np.ndarray, true: float) -> None:
        self.inside.setdefault((kind, name), []).append((low <= true + 1e-12) & (true - 1e-12 <= high))
        self.width.setdefault(kind, []).append(high - low)

    def rows(self, world: str) -> list[Row]:
        found = []
        for kind in self.width:
            each = [np.concatenate(v) for (k, _), v in self.inside.items() if k == kind]
            shares = [inside.mean() for inside in each]
            found.append({"what": f"coverage: {kind}", "world": world, "share": np.mean(shares), "worst": min(shares),
                          "width": np.mean(np.concatenate(self.width[kind])), "draws": len(each[0])})  # fmt: skip
        return found


def batches(draws: int) -> Iterator[int]:
    for start in range(0, draws, BATCH):
        yield min(BATCH, draws - start)


def true_value(design: Design, world: World, quantity: str, name: str, per: np.ndarray | int) -> float:
    if len(world.sizes) > 1:
        return designs.truth(design, quantity, name, world.sizes)
    weight = [(np.broadcast_to(per, (1,)) > k).sum() if np.isscalar(per) else (per > k).sum() for k in range(9)]
    return float(np.average(design.cells()[0], weights=weight))


def covered(name: str, world: World, draws: int, seed: int) -> list[Row]:
    """Coverage of every number of a model, of the differences of two, and of plain binomial intervals beside."""
    rng, held = np.random.default_rng(seed), Held()
    for rows in batches(draws):
        common, per = designs.prompts_in_common(rows, rng, world.sizes), world.comparisons(rng)
        both = [designs.margins(d, rows, common, rng, world.sizes) for d in (world.design, world.other)]
        reading = designs.reading(np.concatenate(both), world.sizes, per, world.design.tie)
        first, second = np.arange(rows), np.arange(rows) + rows
        for quantity, label, number in numbers(reading):
            if quantity == "domain" and len(world.sizes) == 1:
                continue
            one = estimate(reading.items, number)
            true, other = (true_value(d, world, quantity, label, per) for d in (world.design, world.other))
            held.add(quantity, label, one.low[first], one.high[first], true)
            share = one.value[first]
            half = 1.96 * np.sqrt(share * (1 - share) / one.n_pairs[first])
            held.add(f"{quantity}, every comparison by itself", label, share - half, share + half, true)
            if quantity != "cell":
                gap = differences(one, first, second)
                held.add(f"difference, {quantity}", label, gap.low, gap.high, true - other)
    return held.rows(name)


def reward_bench_2(name: str, advantages: tuple[float, ...], draws: int, seed: int) -> list[Row]:
    """Coverage of what `reward_bench_2` reports: best-of-four subsets, Ties, overall.

    Scores lie on a grid of halves, so that they tie: 1/k credit. A Ties pair has one right answer in the one prompt,
    eight in the other, eight wrong ones in both, and a level of difficulty in common.
    """
    rng = np.random.default_rng(seed)
    subsets = dict(zip([*designs.BEST_OF_FOUR, "Ties"], advantages, strict=True))
    sizes = designs.BEST_OF_FOUR | {"Ties": TIES_PAIRS}
    keys = reward_bench_2_keys(sizes)

    def value(of: pd.DataFrame, rows: int) -> pd.DataFrame:
        scores = []
        for row in range(rows):
            for subset, part in of.groupby("domain", sort=False):
                common = rng.standard_normal(part["prompt"].max() + 1)[part["prompt"]]
                right = (part["label"] == "chosen").to_numpy()
                spread = np.where((subset == "Ties") & right, 0.25, 1.0)  # answers that are equally right score alike
                score = right * (subsets[subset] + common) + spread * rng.standard_normal(len(part))
                scores.append(part.assign(score=np.round(2 * score) / 2, model=f"draw {row}"))
        return pd.concat(scores, ignore_index=True).drop(columns="prompt")

    true = rmlab.summary(value(reward_bench_2_keys(dict.fromkeys(sizes, 40_000)), 1)).iloc[0]
    held = Held()
    for start in range(0, draws, 20):
        for row in rmlab.estimates(value(keys, min(20, draws - start))).itertuples():
            kind = "Ties" if row.name == "ties" else "best of four" if row.quantity == "subset" else "overall"
            held.add(kind, row.name, np.array([row.low]), np.array([row.high]), true[row.name])
    return held.rows(name)


def reward_bench_2_keys(sizes: dict[str, int]) -> pd.DataFrame:
    """Keys of a scores table of RewardBench 2 with so many prompts (Ties: pairs of prompts), and their number."""
    parts = []
    for subset, n in sizes.items():
        for kind, right in (("ref", 1), ("tied", 8)) if subset == "Ties" else (("", 1),):
            wrong = 8 if kind else 3
            number = np.repeat(np.arange(n), right + wrong)
            ids = number.astype(str)
            parts.append(
                pd.DataFrame(
                    {
                        "benchmark": "reward-bench-2",
                        "domain": subset,
                        "id": np.char.add(f"{kind}:", ids) if kind else ids,
                        "label": np.tile(["chosen"] * right + ["rejected"] * wrong, n),
                        "slot": np.tile(np.r_[np.arange(right), np.arange(wrong)], n),
                        "prompt": number,
                    }
                )
            )
    return pd.concat(parts, ignore_index=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["intervals", "held-out", "tests", "power"], default="intervals")
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--only", default="", help="only worlds (of tests and power: questions) whose name holds this")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    draws, start = options.draws, time.perf_counter()
    if options.part == "intervals":
        rows = intervals(WORLDS, RIGHT_BY, draws, seed=0, only=options.only)
    elif options.part == "held-out":
        rows = intervals(HELD_OUT, RIGHT_BY_HELD_OUT, draws, seed=1000, only=options.only)
    else:
        rows = (tests if options.part == "tests" else power)(draws, options.only)
    table = pd.DataFrame({"draws": pd.NA} | row for row in rows).astype({"draws": "Int64"})
    table["error"] = np.sqrt(table["share"] * (1 - table["share"]) / table["draws"].astype(float))
    table = table.round(4).assign(date=date.today().isoformat(), machine="2 CPU cores, shared")
    print(f"{time.perf_counter() - start:.0f} s")
    if options.out:
        keep(table, options.out, ["what", "world"])


def intervals(
    worlds: dict[str, World], right_by: dict[str, tuple[float, ...]], draws: int, seed: int, only: str = ""
) -> list[Row]:
    rows: list[Row] = []
    for number, (name, world) in enumerate(worlds.items()):
        if only in name:
            rows += show(covered(name, world, draws, seed=seed + number))
    for number, (name, advantages) in enumerate(right_by.items()):
        if only in name:
            rows += show(reward_bench_2(name, advantages, draws, seed=seed + 30 + number))
    return rows


def tests(draws: int, only: str) -> list[Row]:
    many = max(draws // 4, 10)
    questions = {
        "coherence": lambda: decisions.coherence(5 * draws, seed=40),
        **{f"{n} equal models": lambda n=n: ranks.equal(n, many, seed=60 + n) for n in (2, 5, 20, 50)},
        "models some errors apart": lambda: ranks.spaced(10, 1.0, many, seed=70),
        **{f"bounds: {name}": lambda name=name: ranks.bounds(name, draws, seed=80) for name in ranks.LADDERS},
    }
    return answered(questions, only)


def power(draws: int, only: str) -> list[Row]:
    questions = {
        "planned": lambda: decisions.planned(10 * draws, seed=50),
        "designs": lambda: decisions.from_designs(draws, seed=52),
        "tables": lambda: decisions.from_tables(),
    }
    return answered(questions, only)


def answered(questions: dict[str, Callable[[], list[Row]]], only: str) -> list[Row]:
    return [row for name, rows in questions.items() if only in name for row in show(rows())]


def show(rows: list[Row]) -> list[Row]:
    print(pd.DataFrame(rows).round(4).to_string(index=False, header=False), flush=True)
    return rows


if __name__ == "__main__":
    main()
