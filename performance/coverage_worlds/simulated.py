"""Credits of two models on common prompts, drawn many times, and what each credit is on
average.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import designs
import numpy as np
import pandas as pd
from designs import CHOSEN, REJECTED, SIZES, Design
from scipy.special import stdtrit

from coverage_worlds import MEAN_FLOOR, WORST_FLOOR, Measure
from rmlab.benchmarks.registry import OWN
from rmlab.estimation.clustered import Estimate
from rmlab.estimation.difference import smallest_margins
from rmlab.estimation.estimate import estimate, sum_number
from rmlab.estimation.items import LOSS, MISSING, TIE, WIN, Items
from rmlab.estimation.weights import Average, domain_parts
from rmlab.metrics.prepare import list_numbers, overall_number
from rmlab.stats.ranking import rank_columns
from rmlab.tables import LEVEL, STYLE

BATCH = 100
LEVELS = np.array(["hard", "normal", "easy"])[1 + np.sign(CHOSEN - REJECTED)]
Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]
Sizes = dict[str, int]


class Layout(NamedTuple):
    """Domain, prompt and place within the prompt of every item."""

    domain: np.ndarray
    prompt: np.ndarray
    comparison: np.ndarray


class Simulated(NamedTuple):
    """Two models on common prompts.

    `draw(rng, rows)` gives the credits of each (rows, items), `expected` (2, items)
    their means; `average` combines the domains, `styled` says whether there are cells.
    """

    draw: Draw
    layout: Layout
    expected: np.ndarray
    average: Average = "domains"
    styled: bool = False


def lay_out(sizes: Sizes, per: np.ndarray | int = 1) -> Layout:
    """Prompts of each domain with `per` items each."""
    domain = np.repeat(np.array(list(sizes), object), list(sizes.values()))
    n_items = np.broadcast_to(per, len(domain))
    prompt = np.repeat(np.arange(len(domain)), n_items)
    first_item = np.cumsum(n_items) - n_items
    comparison = np.arange(len(prompt)) - np.repeat(first_item, n_items)
    return Layout(domain[prompt], prompt, comparison)


def credit_of(margin: np.ndarray, tie: float) -> np.ndarray:
    """1 for a positive margin, 0 for a negative one, `tie` for 0, NaN for NaN."""
    return np.where(np.isnan(margin), np.nan, np.where(margin == 0, tie, margin > 0))


def normal_models(
    first: Design,
    second: Design,
    sizes: Sizes = SIZES,
    styled: bool = True,
    per: np.ndarray | int = 9,
    average: Average = "domains",
) -> Simulated:
    """Prompts of `per` comparisons whose answers have normal scores, with effects of
    prompts.
    """
    both = (first, second)
    every = lay_out(sizes, 9)
    is_kept = every.comparison < np.broadcast_to(per, sum(sizes.values()))[every.prompt]
    layout = Layout(*(column[is_kept] for column in every))

    def draw(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        common = designs.prompts_in_common(rows, rng, sizes)
        credits = []
        for design in both:
            margin = designs.margins(design, rows, common, rng, sizes)
            credits.append(credit_of(margin[:, is_kept], design.tie))
        return credits[0], credits[1]

    domain = np.repeat(np.arange(len(sizes)), list(sizes.values()))[layout.prompt]
    expected = np.stack([design.cells()[domain, layout.comparison] for design in both])
    return Simulated(draw, layout, expected, average, styled)


def failing_models(
    sizes: Sizes, per: np.ndarray | int, whole: float, isolated: float, mixed: float
) -> Simulated:
    """Prompts fail whole with one probability, comparisons fail by themselves with
    another.

    A share `mixed` of the prompts win each comparison with a probability of their own.
    The second model fails on other prompts three times of ten.
    """
    layout = lay_out(sizes, per)
    n_prompts = sum(sizes.values())

    def draw(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        kind = rng.random((rows, n_prompts))
        own_chance = rng.beta(1.5, 1.0, (rows, n_prompts))
        credits = []
        for share_moved in (0.0, 0.3):
            is_moved = rng.random(kind.shape) < share_moved
            model_kind = np.where(is_moved, rng.random(kind.shape), kind)
            chance = np.where(model_kind < whole + mixed, own_chance, 1 - isolated)
            chance = np.where(model_kind < whole, 0.0, chance)
            won = rng.random((rows, len(layout.prompt))) < chance[:, layout.prompt]
            credits.append(won.astype(float))
        return credits[0], credits[1]

    mean = mixed * 1.5 / 2.5 + (1 - whole - mixed) * (1 - isolated)
    return Simulated(draw, layout, np.full((2, len(layout.prompt)), mean))


def shared_credits(wrong: float, shared: float) -> Simulated:
    """RewardBench 2's subsets, one item a prompt: 0, a part where places are shared, or
    1; few Ties pairs.
    """
    layout = lay_out(designs.BEST_OF_FOUR | {"Ties": 51})
    parts = np.array([0.5, 1 / 3, 0.6, 0.8])

    def draw(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        effect = rng.random((rows, len(layout.prompt)))
        credits = []
        for _ in range(2):
            kind = np.where(
                rng.random(effect.shape) < 0.6, effect, rng.random(effect.shape)
            )
            part = rng.choice(parts, effect.shape)
            credits.append(
                np.where(kind < wrong, 0.0, np.where(kind < wrong + shared, part, 1.0))
            )
        return credits[0], credits[1]

    mean = shared * parts.mean() + 1 - wrong - shared
    return Simulated(draw, layout, np.full((2, len(layout.prompt)), mean))


class Outcomes(NamedTuple):
    """Shares of a domain's prompts, one comparison each, that both models win, only the
    first, only the second.
    """

    both: float
    only_a: float
    only_b: float


def paired_outcomes(
    sizes: Sizes, outcomes: dict[str, Outcomes], average: Average = "domains"
) -> Simulated:
    """One comparison a prompt; each domain has its own shares of prompts on which two
    models differ.
    """
    layout = lay_out(sizes)
    shares = np.array([outcomes[name] for name in layout.domain])
    both, only_a, only_b = shares.T

    def draw(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        kind = rng.random((rows, len(layout.prompt)))
        first = kind < both + only_a
        second = (kind < both) | (
            (kind >= both + only_a) & (kind < both + only_a + only_b)
        )
        return first.astype(float), second.astype(float)

    return Simulated(draw, layout, np.stack([both + only_a, both + only_b]), average)


def items_of(world: Simulated, credit: np.ndarray) -> Items:
    """Draws (rows, items) as the models of one table."""
    layout = world.layout
    frame = pd.DataFrame({"domain": layout.domain, "subset": layout.domain})
    if world.styled:
        for name, codes in (("chosen_style", CHOSEN), ("rejected_style", REJECTED)):
            style = codes[layout.comparison]
            frame[name] = pd.Categorical.from_codes(style, dtype=STYLE)
        level = pd.Categorical(LEVELS[layout.comparison], dtype=LEVEL)
        frame["level"] = level
    outcome = np.where(credit == 1, WIN, np.where(credit == 0, LOSS, TIE))
    outcome = np.where(np.isnan(credit), MISSING, outcome).astype(np.int8)
    names = [f"draw {row}" for row in range(len(credit))]
    prompt = layout.prompt.astype(np.intp)
    return Items(
        models=names,
        frame=frame,
        credit=credit,
        outcome=outcome,
        prompt=prompt,
        cluster=prompt,
        bounds=np.tile([0.0, 1.0], (len(frame), 1)),
        parts=domain_parts(frame, world.average),
    )


def overall(world: Simulated, *credits: np.ndarray) -> Estimate:
    """The overall score of the draws of several models, one after the other."""
    items = items_of(world, np.concatenate(credits))
    return estimate(items, [overall_number(items)])


def subtract_draws(world: Simulated, *credits: np.ndarray) -> Items:
    """Each draw of one model less that of another, on each item."""
    items = items_of(world, np.concatenate(credits))
    first = np.arange(len(credits[0]))
    return items.subtract(first, first + len(first))


def compare_draws(
    world: Simulated, *credits: np.ndarray, confidence: float = 0.95
) -> Estimate:
    """The overall score of each draw of one model less that of another, (draws, 1)."""
    pairs = subtract_draws(world, *credits)
    return estimate(pairs, [overall_number(pairs)], confidence)


def margins_of_draws(world: Simulated, *credits: np.ndarray) -> np.ndarray:
    """The margin from which on `equivalence` calls each two draws equal."""
    pairs = subtract_draws(world, *credits)
    return smallest_margins(sum_number(pairs, overall_number(pairs)), 0.9)


def rank_draws(world: Simulated, *credits: np.ndarray) -> dict[str, pd.Series]:
    """The ranks of the draws of several models, one after the other."""
    items = items_of(world, np.concatenate(credits))
    return rank_columns(items, estimate(items, [overall_number(items)]))


def true_numbers(world: Simulated) -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers of the two models' expected credits, with their names."""
    items = items_of(world, world.expected)
    names, numbers = list_numbers(OWN, items)
    return names, estimate(items, numbers).value


class Coverage:
    """Which intervals held the truth, by kind of number and by single number, and how
    wide they were.
    """

    def __init__(self) -> None:
        self.rows: list[pd.DataFrame] = []

    def add(
        self, kind: str, name: str, low: np.ndarray, high: np.ndarray, true: float
    ) -> None:
        inside = (low <= true + 1e-12) & (true - 1e-12 <= high)
        row = {
            "kind": kind,
            "name": name,
            "share": inside.mean(),
            "width": np.nanmean(high - low),
            "draws": len(low),
        }
        self.rows.append(pd.DataFrame([row]))

    def table(self) -> pd.DataFrame:
        """Mean and worst coverage, mean width and draws of each kind; batches weigh by
        their draws.
        """
        rows = pd.concat(self.rows, ignore_index=True)
        weighted = (
            rows[["share", "width"]]
            .mul(rows["draws"], axis=0)
            .assign(draws=rows["draws"])
        )
        sums = weighted.groupby([rows["kind"], rows["name"]], sort=False).sum()
        numbers = (
            sums[["share", "width"]]
            .div(sums["draws"], axis=0)
            .assign(draws=sums["draws"])
        )
        by_kind = numbers.groupby("kind", sort=False)
        return by_kind.agg(
            share=("share", "mean"),
            worst=("share", "min"),
            width=("width", "mean"),
            draws=("draws", "min"),
        )


def cover(world: Simulated, draws: int, rng: np.random.Generator) -> Iterator[Measure]:
    """Coverage of every number of a model and of the differences of two, with the plain
    clustered t beside.
    """
    _, true = true_numbers(world)
    n_domains = len(set(world.layout.domain))
    intervals, plain = Coverage(), Coverage()
    for start in range(0, draws, BATCH):
        rows = min(BATCH, draws - start)
        items = items_of(world, np.concatenate(world.draw(rng, rows)))
        names, numbers = list_numbers(OWN, items)
        result = estimate(items, numbers)
        first = np.arange(rows)
        difference = estimate(items.subtract(first, first + rows), numbers)

        for number, (kind, name) in enumerate(names.itertuples(index=False)):
            if kind in ("domain", "subset") and n_domains == 1:
                continue
            value = result.value[first, number]
            half = (
                stdtrit(np.maximum(result.df[first, number], 1), 0.975)
                * result.se[first, number]
            )
            intervals.add(
                kind,
                name,
                result.low[first, number],
                result.high[first, number],
                true[0, number],
            )
            plain.add(kind, name, value - half, value + half, true[0, number])
            if kind != "cell":
                intervals.add(
                    f"difference, {kind}",
                    name,
                    difference.low[:, number],
                    difference.high[:, number],
                    true[0, number] - true[1, number],
                )

    beside = plain.table().reindex(intervals.table().index)
    for kind, row in intervals.table().iterrows():
        yield Measure(
            what=str(kind),
            share=row["share"],
            draws=int(row["draws"]),
            at_least=MEAN_FLOOR,
            worst=row["worst"],
            worst_at_least=WORST_FLOOR,
            width=row["width"],
            plain=beside.loc[kind, "share"],
            plain_width=beside.loc[kind, "width"],
        )
