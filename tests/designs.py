"""Simulated reward models with known true accuracies, at the sizes of the real
benchmarks.

A prompt has six answers: chosen and rejected in three styles. The score of an answer is
its quality plus what its style is worth plus noise; how much better the chosen answers
are differs between prompts, partly in the same way for all models. So the nine
comparisons of a prompt are dependent, and the true accuracy of each is an average of
normal probabilities over the prompts' effects. Many draws of one model are the rows of
one table of items.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri, stdtrit

from rmlab.benchmarks.registry import OWN
from rmlab.benchmarks.rm_bench import RM_BENCH
from rmlab.estimation.estimate import estimate
from rmlab.estimation.items import LOSS, MISSING, TIE, WIN, build_items
from rmlab.metrics.prepare import overall_number
from rmlab.tables import ITEM, LEVEL, STYLE, check_pairs

SIZES = {"chat": 129, "math": 529, "code": 228, "safety": 441}  # RM-Bench's prompts
BEST_OF_FOUR = {
    "Factuality": 475,
    "Precise IF": 160,
    "Math": 183,
    "Safety": 450,
    "Focus": 495,
}  # RewardBench 2
CHOSEN, REJECTED = np.repeat(np.arange(3), 3), np.tile(np.arange(3), 3)
_POINTS = ndtri(
    (np.arange(4001) + 0.5) / 4001
)  # of the prompts' effects, for the true accuracies


class Design(NamedTuple):
    """How a model scores: advantage of the chosen answers per domain, worth of a style,
    spreads.
    """

    advantage: tuple[float, ...] = (0.3, 0.1, 0.0, 1.2)
    style: float = 0.4
    prompts: float = 1.0  # spread of the advantage between prompts
    noise: float = 0.7  # spread of each answer's score
    shared: float = 0.5  # share of the prompts' variance that all models have in common
    # effects of prompts with the tails of Student's t with 3 degrees of freedom
    heavy: bool = False
    slope: float = 0.0  # how much more a style is worth on an easier prompt
    ties: float = 0.0  # share of comparisons that tie, and that are missing, at random
    missing: float = 0.0
    tie: float = 0.0  # what a tie earns

    def effect(self, normal):
        return self.prompts * (
            stdtrit(3, ndtr(normal)) / np.sqrt(3) if self.heavy else normal
        )

    def gap(self, normal):
        """Mean margin of the nine comparisons of prompts with these effects, before the
        domain's advantage.
        """
        worth = self.style + self.slope * normal
        return self.effect(normal)[..., None] + worth[..., None] * (CHOSEN - REJECTED)

    def cells(self):
        """True accuracy of each domain and comparison, (domains, 9)."""
        gap = self.gap(_POINTS)
        shares = [
            ndtr((up + gap) / (np.sqrt(2) * self.noise)).mean(axis=0)
            for up in self.advantage
        ]
        return (1 - self.ties) * np.array(shares) + self.ties * self.tie

    def overall(self):
        return float(self.cells().mean())


def margins(design, rows, common, rng, sizes=SIZES):
    """Margins (rows, prompts * 9) of `rows` draws; `common` (rows, prompts) is the
    shared part of the prompts.

    A tie is 0 and a missing one is NaN.
    """
    domain = np.repeat(np.arange(len(sizes)), list(sizes.values()))
    own = rng.standard_normal((rows, len(domain)))
    normal = np.sqrt(design.shared) * common + np.sqrt(1 - design.shared) * own
    score = design.noise * rng.standard_normal((rows, len(domain), 6))
    margin = np.array(design.advantage)[domain][:, None] + design.gap(normal)
    margin = (margin + score[..., CHOSEN] - score[..., 3 + REJECTED]).reshape(rows, -1)
    if design.ties:
        margin[rng.random(margin.shape) < design.ties] = 0.0
    if design.missing:
        margin[rng.random(margin.shape) < design.missing] = np.nan
    return margin


def prompts_in_common(rows, rng, sizes=SIZES):
    return rng.standard_normal((rows, sum(sizes.values())))


def prepare_margins(margin, sizes=SIZES, per=9, tie=0.0):
    """Margins (rows, prompts * 9) as RM-Bench counts them; `per=1`: one comparison a
    prompt, as data of one's own.

    `per` may be the number of comparisons of each prompt: their first ones, without
    styles. `tie`: what one earns.
    """
    domain = np.repeat(np.arange(len(sizes)), list(sizes.values()))
    is_counted = np.tile(np.arange(9), len(domain)) < np.repeat(
        np.broadcast_to(per, domain.shape), 9
    )
    is_styled = bool(np.all(per == 9))
    prompt = np.repeat(np.arange(len(domain)), 9)[is_counted]
    chosen, rejected = (
        np.tile(side, len(domain))[is_counted] for side in (CHOSEN, REJECTED)
    )
    frame = pd.DataFrame(
        {
            "domain": np.array(list(sizes))[domain[prompt]],
            "id": np.char.zfill(prompt.astype(str), 5),
        }
    )
    frame = frame.assign(
        model="row",
        benchmark="rm-bench" if is_styled else "own",
        subset=frame["domain"],
    )
    frame = frame.assign(chosen_slot=chosen, rejected_slot=rejected)
    if is_styled:
        for name, codes in (("chosen_style", chosen), ("rejected_style", rejected)):
            frame[name] = pd.Categorical.from_codes(codes, dtype=STYLE)
        frame["level"] = pd.Categorical.from_codes(
            1 + np.sign(rejected - chosen), dtype=LEVEL
        )
    columns = [
        c for c in ("subset", "chosen_style", "rejected_style", "level") if c in frame
    ]
    zeros = np.zeros(len(frame))
    items = build_items(
        frame, key=ITEM, outcome=zeros.astype(np.int8), credit=zeros, columns=columns
    )
    margin = margin[:, is_counted]
    outcome = np.where(
        np.isnan(margin),
        MISSING,
        np.where(margin > 0, WIN, np.where(margin == 0, TIE, LOSS)),
    )
    credit = np.where(np.isnan(margin), np.nan, np.where(margin == 0, tie, margin > 0))
    models = [f"row {i}" for i in range(len(margin))]
    items = replace(
        items, models=models, outcome=outcome.astype(np.int8), credit=credit
    )
    benchmark = RM_BENCH if is_styled and set(sizes) == set(SIZES) else OWN
    return replace(items, parts=benchmark.parts(items))


def own_pairs(margin, prompt, domain):
    """Pairs of one model from margins, with the prompt and domain of each; NaN is a
    missing one.
    """
    keys = {"model": "m", "benchmark": "own", "domain": domain, "chosen_slot": 0}
    frame = pd.DataFrame(keys | {"id": prompt.astype(str), "margin": margin})
    return check_pairs(frame.assign(rejected_slot=frame.groupby("id").cumcount()))


def estimate_overall(items, confidence=0.95):
    """Overall score of every row."""
    return estimate(items, [overall_number(items)], confidence)


def compare_rows(items, first, second, confidence=0.95):
    """Differences of the overall scores of pairs of rows, (pairs, 1)."""
    return estimate_overall(items.subtract(first, second), confidence)


def truth(design, quantity, name, sizes=SIZES):
    """True value of a number that `estimates` reports."""
    cells = design.cells()
    if quantity in ("domain", "subset"):
        return cells[list(sizes).index(name)].mean()
    level = np.array(["hard", "normal", "easy"])[1 + np.sign(CHOSEN - REJECTED)]
    if quantity == "level":
        return cells[:, level == name].mean()
    if quantity == "cell":
        one, other = (
            ["concise", "plain", "markdown"].index(style) for style in name.split(" > ")
        )
        return cells[:, 3 * one + other].mean()
    return cells.mean()
