"""How often the intervals contain the true value and the tests give false alarms, in simulations of several kinds.

Every interval, test and rank is the one of `summary`, `estimates`, `compare` and `rank`, run on many draws at once; the
true values are known or come from many draws. Beside each interval stands the plain clustered t on the same
draws (`plain`, `plain_width`).

    python benchmarks/coverage.py [--draws 2000] [--only WORLD] [--out benchmarks/results/coverage.csv]
    python benchmarks/coverage.py --part tests [--draws 2000] [--out benchmarks/results/tests.csv]
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from keep_rows import keep_rows
from scipy.special import ndtr, stdtrit

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import designs
from designs import CHOSEN, REJECTED, SIZES, Design

from rmlab import stats
from rmlab.benchmarks.registry import OWN
from rmlab.metrics.estimate import Estimate, estimate
from rmlab.metrics.items import LOSS, MISSING, NO_STYLE, TIE, WIN, Items
from rmlab.metrics.weights import Prepared, Weights, domain_parts, overall_weights
from rmlab.stats.difference import differences
from rmlab.stats.ranking import rank_columns

BATCH = 100
LEVELS = np.array(["hard", "normal", "easy"])[1 + np.sign(CHOSEN - REJECTED)]
Row = dict[str, object]
Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


class World(NamedTuple):
    """Credits of two models on common prompts. `draw(rng, rows)` gives two arrays (rows, items); `domain`, `prompt` and
    `comparison` (items,) describe the items; `average` combines the domains, `styled` says whether there are cells."""

    draw: Draw
    domain: np.ndarray
    prompt: np.ndarray
    comparison: np.ndarray
    average: str = "domains"
    styled: bool = False


def normal_world(first: Design, second: Design, sizes: dict[str, int] = SIZES, styled: bool = True) -> World:
    """Prompts of nine comparisons whose answers have normal scores, with effects of prompts."""

    def draw(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        common = designs.prompts_in_common(rows, rng, sizes)
        return tuple(credit_of(designs.margins(d, rows, common, rng, sizes), d.tie) for d in (first, second))

    domain, prompt, comparison = layout(sizes, 9)
    return World(draw, domain, prompt, comparison, "domains", styled)


def ragged_world(first: Design, second: Design, per: np.ndarray, sizes: dict[str, int]) -> World:
    """The same with `per` comparisons a prompt, pooled."""
    domain, prompt, comparison = layout(sizes, 9)
    kept = comparison < per[prompt]

    def draw(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        common = designs.prompts_in_common(rows, rng, sizes)
        margins = (designs.margins(d, rows, common, rng, sizes)[:, kept] for d in (first, second))
        return tuple(credit_of(m, d.tie) for m, d in zip(margins, (first, second), strict=True))

    return World(draw, domain[kept], prompt[kept], comparison[kept], "prompts")


def failing_world(sizes: dict[str, int], per: np.ndarray | int, whole: float, isolated: float, mixed: float) -> World:
    """Prompts fail whole with one probability, comparisons fail by themselves with another; the rest of the prompts, a
    share `mixed`, win each comparison with a probability of their own."""
    domain, prompt, comparison = layout(sizes, per)
    n_prompts = int(prompt.max()) + 1

    def draw(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        kind, own = rng.random((rows, n_prompts)), rng.beta(1.5, 1.0, (rows, n_prompts))
        credits = []
        for shift in (0.0, 0.3):  # the second model fails on other prompts three times of ten
            moved = rng.random(kind.shape) < shift
            here = np.where(moved, rng.random(kind.shape), kind)
            chance = np.where(here < whole, 0.0, np.where(here < whole + mixed, own, 1 - isolated))
            credits.append((rng.random((rows, len(prompt))) < chance[:, prompt]).astype(float))
        return credits[0], credits[1]

    return World(draw, domain, prompt, comparison)


def shared_credit_world(wrong: float, shared: float) -> World:
    """RewardBench 2's subsets, one item a prompt: 0, a part where places are shared, or 1; few Ties pairs."""
    sizes = designs.BEST_OF_FOUR | {"Ties": 51}
    domain, prompt, comparison = layout(sizes, 1)

    def draw(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        effect = rng.random((rows, len(prompt)))
        credits = []
        for _ in range(2):
            kind = np.where(rng.random(effect.shape) < 0.6, effect, rng.random(effect.shape))
            parts = rng.choice([0.5, 1 / 3, 0.6, 0.8], effect.shape)
            credits.append(np.where(kind < wrong, 0.0, np.where(kind < wrong + shared, parts, 1.0)))
        return credits[0], credits[1]

    return World(draw, domain, prompt, comparison)


def layout(sizes: dict[str, int], per: np.ndarray | int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Domain, prompt and comparison of every item."""
    domain = np.repeat(np.array(list(sizes), object), list(sizes.values()))
    counts = np.broadcast_to(per, len(domain))
    prompt = np.repeat(np.arange(len(domain)), counts)
    comparison = np.arange(len(prompt)) - np.repeat(np.cumsum(counts) - counts, counts)
    return domain[prompt], prompt, comparison


def credit_of(margin: np.ndarray, tie: float) -> np.ndarray:
    return np.where(np.isnan(margin), np.nan, np.where(margin == 0, tie, margin > 0))


def items_of(world: World, credit: np.ndarray) -> Items:
    """Draws as models of one table."""
    style = world.comparison if world.styled else np.full(len(world.prompt), NO_STYLE)
    frame = pd.DataFrame({"domain": world.domain, "subset": world.domain, "style_code": style})
    cell = frame.groupby(list(frame), sort=False).ngroup().to_numpy().astype(np.intp)
    cells = frame.drop_duplicates().reset_index(drop=True)
    if world.styled:
        cells["level"] = LEVELS[cells["style_code"]]
    outcome = np.where(np.isnan(credit), MISSING, np.where(credit == 1, WIN, np.where(credit == 0, LOSS, TIE)))
    bounds = np.tile([0.0, 1.0], (len(cells), 1))
    names, prompt = [f"draw {row}" for row in range(len(credit))], world.prompt.astype(np.intp)
    return Items(names, frame, credit, outcome.astype(np.int8), prompt, prompt, cell, cells, bounds)


def weights_of(world: World, items: Items) -> Weights:
    parts = domain_parts(items, world.average)
    return Prepared(OWN, items, parts).weights()


def sizes(**prompts: int) -> dict[str, int]:
    return prompts


def worlds() -> dict[str, World]:
    rng = np.random.default_rng(7)
    second = Design(advantage=(0.5, 0.1, 0.2, 1.0), style=0.6)
    near, far = (3.0, 3.4, 2.8, 3.8), (4.2, 3.4, 4.8, 3.0)
    gaps = {"ties": 0.1, "missing": 0.05}
    quarter = {name: n // 4 for name, n in SIZES.items()}
    ragged = {n: np.minimum(9, rng.geometric(0.3, n)) for n in (12, 40, 130)}
    heavy = np.minimum(60, np.ceil(rng.pareto(1.1, 100)) + 1).astype(int)
    few_heavy = np.minimum(40, np.ceil(rng.pareto(1.0, 20)) + 1).astype(int)
    stubborn = Design((1.2,) * 4, style=3.0, prompts=0.3, noise=0.25)
    return {
        "RM-Bench": normal_world(Design(), second),
        "RM-Bench, a quarter": normal_world(Design(), second, quarter),
        "heavy-tailed difficulty": normal_world(Design(heavy=True), second._replace(heavy=True)),
        "style goes with difficulty": normal_world(Design(slope=0.6), second._replace(slope=0.3)),
        "near-perfect": normal_world(Design(near), Design(tuple(x - 0.3 for x in near))),
        "near-perfect, heavy tails": normal_world(Design(far, heavy=True), Design((3.9, 3.4, 4.1, 2.6), heavy=True)),
        "near-perfect, prompts fail whole": normal_world(
            Design((3.6, 4.4, 3.0, 5.0), prompts=2.0, noise=0.3), Design((3.3, 4.4, 3.2, 4.4), prompts=2.0, noise=0.3)
        ),
        "near zero": normal_world(Design((-2.6, -3.4, -3.0, -2.2), style=0.2), Design((-2.4, -3.4, -2.7, -2.0))),
        "one domain near-perfect": normal_world(Design((0.2, 4.0, -0.4, 0.9)), Design((0.5, 3.7, -0.4, 1.1))),
        "ties and gaps at random": normal_world(Design(**gaps), second._replace(**gaps), quarter),
        "ties worth a half": normal_world(Design(ties=0.1, tie=0.5), second._replace(ties=0.1, tie=0.5), quarter),
        "a constant share, rarely off": normal_world(stubborn, stubborn._replace(advantage=(1.1,) * 4)),
        "domains of 8 prompts": normal_world(Design(), second, dict.fromkeys(SIZES, 8)),
        "domains of 8, 5 and 1,000": normal_world(
            Design((1.0, 0.5, 0.2, 0.6)), Design((0.8, 0.5, 0.4, 0.6)), sizes(a=8, b=5, c=1000, d=100), styled=False
        ),
        "five and 1,000 prompts": normal_world(
            Design((1.0, 0.5)), Design((0.8, 0.4)), sizes(a=5, b=1000), styled=False
        ),
        "six domains of 5": normal_world(
            Design((1.0, 0.5, 0.2, 0.6, 0.0, 1.4)), Design((0.8,) * 6), dict.fromkeys("abcdef", 5), styled=False
        ),
        "near-perfect, 5 to 50 prompts": normal_world(
            Design((2.6, 3.2, 2.2, 3.6)), Design((2.4, 3.0, 2.4, 3.2)), sizes(a=20, b=5, c=50, d=15), styled=False
        ),
        **{
            f"{n} prompts, one domain": normal_world(Design((0.6,)), Design((0.3,)), {"all": n}, styled=False)
            for n in (5, 8, 12, 20)
        },
        **{
            f"{n} prompts, 1 to 9 comparisons": ragged_world(Design((1.0,)), Design((0.7,)), per, {"all": n})
            for n, per in ragged.items()
        },
        "40 nearly perfect, 1 to 9 comparisons": ragged_world(Design((3.0,)), Design((2.7,)), ragged[40], {"all": 40}),
        "1,327 prompts, one comparison": ragged_world(
            Design((0.6,)), Design((0.65,)), np.ones(1327, int), {"all": 1327}
        ),
        "200 nearly perfect, one comparison": ragged_world(
            Design((3.0,)), Design((2.6,)), np.ones(200, int), {"all": 200}
        ),
        "shared places": shared_credit_world(0.25, 0.15),
        "shared places, near-perfect": shared_credit_world(0.01, 0.02),
        "mixture: 2 % whole, 1.5 % isolated": failing_world({"all": 100}, 9, 0.02, 0.015, 0.0),
        "mixture: 1 % whole, 3 % isolated": failing_world({"all": 100}, 9, 0.01, 0.03, 0.0),
        "mixture: 3 % whole, a tenth in between": failing_world({"all": 100}, 9, 0.03, 0.01, 0.1),
        "mixture in 4 uneven domains": failing_world(sizes(a=5, b=30, c=120, d=400), 9, 0.03, 0.02, 0.1),
        "mixture, 20 prompts": failing_world({"all": 20}, 9, 0.05, 0.03, 0.2),
        "heavy-tailed clusters": failing_world({"all": 100}, heavy, 0.1, 0.1, 0.6),
        "heavy-tailed clusters, 20 prompts": failing_world({"all": 20}, few_heavy, 0.1, 0.1, 0.6),
    }


class Coverage:
    """Which intervals held the truth, by kind of number and by single number, and how wide they were."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, np.ndarray, np.ndarray]] = []

    def add(self, kind: str, name: str, low: np.ndarray, high: np.ndarray, true: float) -> None:
        self.rows.append((kind, name, (low <= true + 1e-12) & (true - 1e-12 <= high), high - low))

    def table(self) -> pd.DataFrame:
        """Mean and worst coverage, mean width and draws of each kind."""
        single: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]] = {}
        for kind, name, inside, width in self.rows:
            single.setdefault((kind, name), []).append((inside, width))
        joined = {key: [np.concatenate(part) for part in zip(*batches, strict=True)] for key, batches in single.items()}
        frame = pd.DataFrame(
            [(kind, inside.mean(), np.nanmean(width), len(inside)) for (kind, _), (inside, width) in joined.items()],
            columns=["kind", "share", "width", "draws"],
        )
        grouped = frame.groupby("kind", sort=False)
        return grouped.agg(
            share=("share", "mean"), worst=("share", "min"), width=("width", "mean"), draws=("draws", "min")
        )


def cover(name: str, world: World, draws: int, seed: int) -> list[Row]:
    """Coverage of every number of a model and of the differences of two, with the plain clustered t beside."""
    rng = np.random.default_rng(seed)
    truth = true_values(world, np.random.default_rng(seed + 10_000))
    intervals, plain = Coverage(), Coverage()
    for start in range(0, draws, BATCH):
        rows = min(BATCH, draws - start)
        credit = np.concatenate(world.draw(rng, rows))
        items = items_of(world, credit)
        weights = weights_of(world, items)
        result = estimate(items, weights, contrasts=range(len(weights.means)))
        first, second = np.arange(rows), np.arange(rows) + rows
        for number, (quantity, label) in enumerate(weights.numbers.itertuples(index=False)):
            if quantity in ("domain", "subset") and len(set(world.domain)) == 1:
                continue
            true = truth.value[:, number]
            value, se, df = (getattr(result, key)[first, number] for key in ("value", "se", "df"))
            half = stdtrit(np.maximum(df, 1), 0.975) * se
            intervals.add(quantity, label, result.low[first, number], result.high[first, number], true[0])
            plain.add(quantity, label, value - half, value + half, true[0])
            if quantity != "cell":
                gap = differences(result, first, second, number=number)
                intervals.add(f"difference, {quantity}", label, gap.low, gap.high, true[0] - true[1])
    beside = plain.table()
    return [
        {
            "world": name,
            "kind": kind,
            **row,
            "plain": beside["share"].get(kind),
            "plain_width": beside["width"].get(kind),
        }
        for kind, row in intervals.table().to_dict("index").items()
    ]


def true_values(world: World, rng: np.random.Generator, draws: int = 4000) -> Estimate:
    """Numbers of the two models' expected credits: the mean of many draws, item by item."""
    totals = np.zeros((2, len(world.prompt)))
    counts = np.zeros((2, len(world.prompt)))
    for _ in range(draws // 500):
        for model, credit in enumerate(world.draw(rng, 500)):
            totals[model] += np.nansum(credit, axis=0)
            counts[model] += (~np.isnan(credit)).sum(axis=0)
    # Comparisons of one kind have the same expectation in every prompt of a domain, unless prompts are ragged.
    frame = pd.DataFrame({"domain": world.domain, "comparison": world.comparison})
    kind = frame.groupby(
        ["domain", "comparison"] if world.styled or world.average == "prompts" else "domain", sort=False
    ).ngroup()
    means = np.stack([(np.bincount(kind, t) / np.bincount(kind, c))[kind] for t, c in zip(totals, counts, strict=True)])
    items = items_of(world, means)
    return estimate(items, weights_of(world, items))


def coherence(draws: int, rng: np.random.Generator) -> list[Row]:
    """Tables of two models of random size and tilt: does the interval exclude zero exactly where p < alpha?"""
    same, total = 0, 0
    for _ in range(draws // 50):
        prompts = {"x": int(rng.integers(6, 60)), "y": int(rng.integers(6, 60))}
        up = rng.normal(1, 1.5, 2)
        world = normal_world(Design((up[0],) * 2, missing=0.05), Design((up[1],) * 2), prompts, styled=False)
        items = items_of(world, np.concatenate(world.draw(rng, 50)))
        result = estimate(items, overall_weights(items, domain_parts(items, "domains")), contrasts=[0])
        for alpha in (0.1, 0.05, 0.01):
            gap = differences(result, np.arange(50), np.arange(50) + 50, confidence=1 - alpha)
            same += int((((gap.low > 0) | (gap.high < 0)) == (gap.p < alpha)).sum())
            total += 50
    return [{"what": "interval excludes 0 exactly where p < alpha", "share": same / total, "draws": total}]


def equal_ranks(draws: int, rng: np.random.Generator) -> list[Row]:
    """Equal models: how often all sets of ranks hold all places."""
    rows = []
    for models in (2, 5, 20):
        world = ragged_world(Design((0.6,)), Design((0.6,)), np.full(300, 3), {"all": 300})
        n_draws, held = draws // 4, 0
        for _ in range(n_draws):
            common = designs.prompts_in_common(1, rng, {"all": 300})
            margin = np.concatenate(
                [designs.margins(Design((0.6,)), 1, common, rng, {"all": 300}) for _ in range(models)]
            )
            items = items_of(world, credit_of(margin[:, np.tile(np.arange(9), 300) < 3], 0.0))
            result = estimate(items, overall_weights(items, domain_parts(items, "domains")), contrasts=[0])
            columns = rank_columns(result)
            held += bool(((columns["rank_low"] == 1) & (columns["rank_high"] == models)).all())
        rows.append(
            {"what": f"{models} equal models: all sets hold all places", "share": held / n_draws, "draws": n_draws}
        )
    return rows


def families(draws: int, rng: np.random.Generator) -> list[Row]:
    """Families of four prompts that stand or fall together for the most part: clustered by prompt and by family."""
    n, held = 120, np.zeros(2)
    domain, prompt, comparison = layout({"all": n}, 9)
    world = World(lambda rng, rows: (np.empty(0), np.empty(0)), domain, prompt, comparison)
    for start in range(0, draws, BATCH):
        rows = min(BATCH, draws - start)
        effect = np.repeat(rng.standard_normal((rows, n // 4)), 4, axis=1) + 0.5 * rng.standard_normal((rows, n))
        margin = (0.5 + effect)[:, prompt] + 0.7 * rng.standard_normal((rows, len(prompt)))
        items = items_of(world, (margin > 0).astype(float))
        true = ndtr(0.5 / np.sqrt(1 + 0.25 + 0.49))
        for place, cluster in enumerate((items.cluster, items.cluster // 4)):
            grouped = replace(items, cluster=cluster)
            result = estimate(grouped, overall_weights(grouped, domain_parts(grouped, "domains")))
            held[place] += ((result.low <= true) & (true <= result.high)).sum()
    names = ("clustered by prompt", "clustered by family")
    return [
        {"what": f"families of four prompts, {name}", "share": h / draws, "draws": draws}
        for name, h in zip(names, held, strict=True)
    ]


def planned_power(draws: int, rng: np.random.Generator) -> list[Row]:
    """The share of tables in which `compare`'s test finds the difference that `plan` was made for."""
    rows = []
    for difference, agreement in ((0.02, 0.92), (0.05, 0.8), (0.05, 0.92), (0.15, 0.8)):
        n = int(stats.plan(difference, agreement=agreement)["n_prompts"].item())
        world = World(
            lambda rng, rows: (np.empty(0), np.empty(0)), np.full(n, "all", object), np.arange(n), np.zeros(n, int)
        )
        found = 0
        for start in range(0, draws, BATCH):
            batch = min(BATCH, draws - start)
            kind = rng.random((batch, n))
            only_a = (1 - agreement + difference) / 2
            first, second = kind < agreement / 2 + only_a, (kind < agreement / 2) | (kind >= agreement + only_a)
            items = items_of(world, np.concatenate([first, second]).astype(float))
            result = estimate(items, overall_weights(items, domain_parts(items, "domains")), contrasts=[0])
            gap = differences(result, np.arange(batch), np.arange(batch) + batch)
            found += int((gap.p < 0.05).sum())
        what = f"power of {difference} at agreement {agreement}, {n} prompts (80 % asked)"
        rows.append({"what": what, "share": found / draws, "draws": draws})
    return rows


def run_worlds(draws: int, only: str) -> Iterator[Row]:
    for number, (name, world) in enumerate(worlds().items()):
        if only in name:
            rows = cover(name, world, draws, seed=number)
            print(pd.DataFrame(rows).round(4).to_string(index=False, header=number == 0), flush=True)
            yield from rows


def run_tests(draws: int, only: str) -> Iterator[Row]:
    parts = {
        "coherence": (coherence, 5),
        "ranks": (equal_ranks, 1),
        "families": (families, 1),
        "power": (planned_power, 1),
    }
    for number, (name, (part, factor)) in enumerate(parts.items()):
        if only in name:
            rows = part(factor * draws, np.random.default_rng(40 + number))
            print(pd.DataFrame(rows).round(4).to_string(index=False, header=False), flush=True)
            yield from rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["intervals", "tests"], default="intervals")
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--only", default="", help="only worlds (of tests: questions) whose name holds this")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    start = time.perf_counter()
    rows = list((run_worlds if options.part == "intervals" else run_tests)(options.draws, options.only))
    table = pd.DataFrame(rows)
    table["error"] = np.sqrt(table["share"] * (1 - table["share"]) / table["draws"])
    print(f"{time.perf_counter() - start:.0f} s")
    if options.out:
        keep_rows(table.round(4), options.out, ["world", "kind"] if options.part == "intervals" else ["what"])


if __name__ == "__main__":
    main()
