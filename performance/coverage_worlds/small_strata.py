"""A small domain beside a large one of equal weight: single numbers, paired
differences, equivalence, ranks, gaps.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from designs import CHOSEN, REJECTED, Design
from scipy.special import stdtrit

import rmlab
from coverage_worlds import (
    MEAN_FLOOR,
    RANK_FLOOR,
    WORST_FLOOR,
    Measure,
    coverage,
    false_alarms,
    world,
)
from coverage_worlds.simulated import (
    Average,
    Outcomes,
    Simulated,
    compare_draws,
    lay_out,
    margins_of_draws,
    normal_models,
    overall,
    paired_outcomes,
    rank_draws,
    true_numbers,
)
from rmlab import tables

RARE = 0.02
N_EQUAL = 6  # models of equal merit


def floor_of(rows: list[Measure]) -> Iterator[Measure]:
    """The measures, and their mean and worst share against the floors."""
    yield from (row._replace(at_least=WORST_FLOOR) for row in rows)
    mean = float(np.mean([row.share for row in rows]))
    yield Measure(
        "mean of these", mean, sum(row.draws for row in rows), at_least=MEAN_FLOOR
    )


def single_numbers(name: str, sizes: list[int], average: Average) -> None:
    """Register a world of one model: shares won in a small domain, 0.8 in one of 1,000,
    one comparison a prompt.
    """

    @world(f"single number: {name}")
    def small_domain(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
        rows = []
        for n_small in sizes:
            for won in (0.8, 0.9, 0.95, 0.99):
                sides = {"small": Outcomes(won, 0, 0), "large": Outcomes(0.8, 0, 0)}
                model = paired_outcomes(
                    {"small": n_small, "large": 1000}, sides, average
                )
                true = true_overall(model)
                result = overall(model, model.draw(rng, draws)[0])
                what = f"{n_small} prompts, {won} won"
                rows.append(
                    coverage(what, result.low[:, 0], result.high[:, 0], true[0])
                )
        yield from floor_of(rows)


single_numbers(
    "a domain of 19 to 129 prompts beside 1,000", [19, 20, 25, 40, 129], "domains"
)
single_numbers(
    "a weight of 0.9 on 25 and 60 prompts", [25, 60], {"small": 0.9, "large": 0.1}
)


def true_overall(world: Simulated) -> np.ndarray:
    """The overall scores of the two models."""
    names, value = true_numbers(world)
    return value[:, list(names["quantity"]).index("overall")]


def one_way(n_small: int, n_large: int, small: float, large: float) -> Simulated:
    """Model A alone wins a share of the small domain, model B alone one of the
    large.
    """
    sides = {
        "small": Outcomes(0.8 - small, small, 0.0),
        "large": Outcomes(0.8 - large, 0.0, large),
    }
    return paired_outcomes({"small": n_small, "large": n_large}, sides)


def _add_opposite_effects(n_small: int) -> None:
    @world(f"opposite one-way effects: {n_small} and 1,000 prompts")
    def opposite_effects(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
        """A true difference of zero, and one of a half of what the small domain
        shows.
        """
        for share in (RARE, 0.05, 0.1, 0.2):
            pair = one_way(n_small, 1000, share, share)
            credits = pair.draw(rng, draws)
            difference = compare_draws(pair, *credits)
            yield false_alarms(f"compare, {share} each way", difference.p < 0.05)

            unequal = one_way(n_small, 1000, share, 0.0)
            credits = unequal.draw(rng, draws)
            difference = compare_draws(unequal, *credits)
            row = coverage(
                f"difference, {share} in the small",
                difference.low,
                difference.high,
                share / 2,
            )
            yield row._replace(at_least=WORST_FLOOR)

            is_inside = margins_of_draws(unequal, *credits) < share / 2
            yield false_alarms(f"equivalence at its margin, {share}", is_inside)


for n_small in (10, 25, 129):
    _add_opposite_effects(n_small)


@world("ranks of equal models with opposite effects")
def opposite_ranks(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
    """Half of the models lose 2 % of a small domain, the others 2 % of a large one,
    each other prompts.
    """
    for n_small in (25, 129):
        layout = lay_out({"small": n_small, "large": 1000})
        is_small = layout.domain == "small"
        n_held = 0
        tables_of = Simulated(None, layout, np.zeros((2, len(is_small))))
        for _ in range(draws):
            fails = rng.random((N_EQUAL, len(is_small))) < RARE
            fails[: N_EQUAL // 2, ~is_small] = False
            fails[N_EQUAL // 2 :, is_small] = False
            columns = rank_draws(tables_of, (~fails).astype(float))
            n_held += bool(
                ((columns["rank_low"] == 1) & (columns["rank_high"] == N_EQUAL)).all()
            )
        what = f"{n_small} and 1,000 prompts: all sets hold all places"
        yield Measure(what, n_held / draws, draws, at_least=RANK_FLOOR)


def styled_pairs(credit: np.ndarray, n_prompts: int) -> pd.DataFrame:
    """Draws (rows, prompts * 9) as the models of one table of pairs with styles."""
    prompt, place = np.divmod(np.arange(credit.shape[1]), 9)
    frame = pd.DataFrame(
        {
            "id": prompt.astype(str),
            "chosen_slot": CHOSEN[place],
            "rejected_slot": REJECTED[place],
        }
    )
    for side, slots in (("chosen", CHOSEN), ("rejected", REJECTED)):
        frame[f"{side}_style"] = pd.Categorical.from_codes(
            slots[place], dtype=tables.STYLE
        )
    frame = frame.assign(benchmark="own", domain="all", subset="all")
    every = pd.concat([frame] * len(credit), ignore_index=True)
    every["model"] = np.repeat(
        [f"draw {row}" for row in range(len(credit))], credit.shape[1]
    )
    every["margin"] = 2 * credit.ravel() - 1
    return tables.check_pairs(every)


@world("style_gap: size, power and coverage beside a paired t")
def gaps(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
    """Models that style does not move, and models that it moves; the same rows as a
    comparison of two models.
    """
    for n_prompts in (20, 60):
        for style, what in ((0.0, "no gap"), (0.12, "a gap")):
            design = Design((0.6,), style=style)
            model = normal_models(design, design, {"all": n_prompts})
            credit = model.draw(rng, draws)[0]
            gap = rmlab.style_gap(styled_pairs(credit, n_prompts))

            by_comparison = credit.reshape(draws, n_prompts, 9)
            easy = by_comparison[..., CHOSEN > REJECTED].mean(axis=2)
            hard = by_comparison[..., CHOSEN < REJECTED].mean(axis=2)
            paired = easy - hard
            t = paired.mean(axis=1) / (paired.std(axis=1, ddof=1) / np.sqrt(n_prompts))
            is_found = ((gap["low"] > 0) | (gap["high"] < 0)).to_numpy()
            is_found_by_t = np.abs(t) > stdtrit(n_prompts - 1, 0.975)
            row = Measure(
                f"{n_prompts} prompts, {what}: excludes 0",
                float(is_found.mean()),
                draws,
            )
            yield row._replace(
                at_most=0.06 if style == 0 else np.nan,
                plain=float(is_found_by_t.mean()),
            )

            cells = design.cells()[0]
            true = cells[CHOSEN > REJECTED].mean() - cells[CHOSEN < REJECTED].mean()
            what = f"{n_prompts} prompts, {what}: gap"
            yield coverage(what, gap["low"].to_numpy(), gap["high"].to_numpy(), true)
