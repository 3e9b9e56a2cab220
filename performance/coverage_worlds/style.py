"""Style: accuracies at equal style and length."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import length_worlds
import numpy as np
import pandas as pd
from scipy.special import expit, logit, ndtr

from coverage_worlds import (
    DERIVED_FLOOR,
    GIVEN_FLOOR,
    Measure,
    coverage,
    false_alarms,
    given,
    world,
)
from rmlab.bias import length_controlled, style_controlled

BATCH = 20  # draws on the same texts
CHOSEN = np.repeat(np.arange(3), 3)
REJECTED = 3 + np.tile(np.arange(3), 3)


class Drawn(NamedTuple):
    """Pairs of a batch of models, features of their texts, the controls, and the true
    accuracy where these are equal.
    """

    pairs: pd.DataFrame
    features: pd.DataFrame
    controls: list[str]
    true: float


def relative(chosen: np.ndarray, rejected: np.ndarray) -> np.ndarray:
    return (chosen - rejected) / (chosen + rejected + 1)


def tabulate(
    margin: np.ndarray, **counts: np.ndarray
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Pairs of margins (rows, prompts, comparisons), and features of counts (prompts,
    answers).
    """
    tables = {
        name: length_worlds.tables_of(margin[:1], count)[1]
        for name, count in counts.items()
    }
    pairs, features = length_worlds.tables_of(margin, next(iter(counts.values())))
    for name, table in tables.items():
        features[name] = table["characters"]
    return pairs, features


def single_pairs(
    n: int,
    share: float,
    at_zero: float,
    headings: float,
    characters: float,
    rows: int,
    rng: np.random.Generator,
) -> Drawn:
    """Single comparisons; a share of the pairs has headings on one side. The log-odds
    are linear in the controls.
    """
    lengths = np.round(2 ** (rng.normal(9, 0.8, (n, 1)) + rng.normal(0, 0.6, (n, 2))))
    n_headings = np.zeros((n, 2))
    has = np.flatnonzero(rng.permutation(n) < share * n)
    n_headings[has, rng.integers(0, 2, len(has))] = 1 + rng.poisson(2, len(has))

    difference = {
        "headings": relative(*n_headings.T),
        "characters": relative(*lengths.T),
    }
    slopes = {"headings": headings, "characters": characters}
    log_odds = logit(at_zero) + sum(
        slope * difference[name] for name, slope in slopes.items()
    )
    is_won = rng.random((rows, n)) < expit(log_odds)
    pairs, features = tabulate(
        np.where(is_won, 1.0, -1.0)[..., None], characters=lengths, headings=n_headings
    )
    return Drawn(pairs, features, list(slopes), at_zero)


def nine_pairs(
    n: int, share: float, skill: float, rows: int, rng: np.random.Generator
) -> Drawn:
    """Nine comparisons a prompt, by a model that ignores style; a share of the prompts
    has Markdown in its styles.
    """
    has = rng.random((n, 1)) < share
    lengths = np.round(
        2
        ** (rng.normal(9, 0.8, (n, 1)) + [0, 0.8, 1.0] * 2 + rng.normal(0, 0.4, (n, 6)))
    )
    styled = np.where(np.arange(6) % 3 == 2, 1.0, 0.0) * has
    counts = {
        name: styled * rng.poisson(mean, (n, 6))
        for name, mean in (("headings", 2), ("bold", 3), ("list_items", 4))
    }

    score = 0.7 * rng.standard_normal((rows, n, 6))
    margin = (
        score[..., CHOSEN]
        - score[..., REJECTED]
        + skill
        + 0.5 * rng.standard_normal((rows, n, 1))
    )
    pairs, features = tabulate(margin, characters=lengths, **counts)
    true = float(ndtr(skill / np.sqrt(2 * 0.49 + 0.25)))
    return Drawn(pairs, features, ["characters", *counts], true)


def measure(
    draw: Callable[[int, np.random.Generator], Drawn],
    draws: int,
    rng: np.random.Generator,
    **options: object,
) -> pd.DataFrame:
    """Rows of `style_controlled` or `length_controlled` with a column `true`."""
    tables = []
    for start in range(0, draws, BATCH):
        drawn = draw(min(BATCH, draws - start), rng)
        if "measure" in options:
            table = length_controlled(drawn.pairs, drawn.features, **options)
        else:
            table = style_controlled(
                drawn.pairs, drawn.features, controls=drawn.controls, **options
            )
        tables.append(table.assign(true=drawn.true))
    return pd.concat(tables, ignore_index=True)


def count_held(table: pd.DataFrame, *, is_ordinary: bool) -> Iterator[Measure]:
    floor = GIVEN_FLOOR if is_ordinary else float("nan")
    low, high, true = table[["low", "high", "true"]].to_numpy().T
    yield given("controlled is given", low, at_least=floor)
    yield coverage("controlled", low, high, true, at_least=DERIVED_FLOOR)


# Name, the draw, whether a user would call it ordinary, options.
STYLE_WORLDS = [
    (
        "headings in 3 % of 300 pairs",
        partial(single_pairs, 300, 0.03, 0.5, 0.0, 0.0),
        False,
        {},
    ),
    (
        "headings in 3 % of 300 pairs, right in 80 %",
        partial(single_pairs, 300, 0.03, 0.8, 0.0, 0.0),
        False,
        {},
    ),
    (
        "headings in 10 % of 200 pairs, right in 90 %",
        partial(single_pairs, 200, 0.1, 0.9, 0.0, 0.0),
        True,
        {},
    ),
    (
        "headings in 10 % of 200 pairs, one slope",
        partial(single_pairs, 200, 0.1, 0.9, 0.0, 0.0),
        True,
        {"form": "linear"},
    ),
    (
        "headings in 10 % of 200 pairs are liked",
        partial(single_pairs, 200, 0.1, 0.9, 2.0, 1.0),
        True,
        {},
    ),
    (
        "headings in 10 % of 200 pairs decide them",
        partial(single_pairs, 200, 0.1, 0.6, 6.0, 0.0),
        True,
        {},
    ),
    (
        "headings in 30 % of 400 pairs are liked",
        partial(single_pairs, 400, 0.3, 0.7, 3.0, 2.0),
        True,
        {},
    ),
    (
        "nine comparisons, Markdown in 10 % of 200 prompts",
        partial(nine_pairs, 200, 0.1, 0.6),
        True,
        {},
    ),
    ("nine comparisons, 129 prompts", partial(nine_pairs, 129, 1.0, 0.6), True, {}),
    ("nine comparisons, 20 prompts", partial(nine_pairs, 20, 1.0, 0.6), False, {}),
]


def _add_style_world(
    name: str,
    draw: Callable[[int, np.random.Generator], Drawn],
    is_ordinary: bool,
    options: dict[str, object],
) -> None:
    @world(f"style_controlled: {name}")
    def run(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
        table = measure(draw, draws, rng, **options)
        yield from count_held(table, is_ordinary=is_ordinary)


for style_world in STYLE_WORLDS:
    _add_style_world(*style_world)


def two_kinds(n: int, rows: int, rng: np.random.Generator) -> Drawn:
    """Hard prompts, whose answers differ more in length, and easy ones. The truth is
    that of pairs of equal length.
    """
    is_hard = np.arange(n) < n // 2
    spread = np.where(is_hard, 1.5, 0.5)
    at_zero = np.where(is_hard, 0.6, 0.9)
    log_ratio = spread * rng.standard_normal(n)
    typical = rng.normal(9, 0.8, n)
    lengths = np.round(
        2 ** np.column_stack([typical + log_ratio / 2, typical - log_ratio / 2])
    )
    is_won = rng.random((rows, n)) < at_zero
    pairs, features = length_worlds.tables_of(
        np.where(is_won, 1.0, -1.0)[..., None], lengths
    )
    true = float(np.average(at_zero, weights=1 / spread))
    return Drawn(pairs, features, ["characters"], true)


@world("length_controlled: hard prompts differ more in length")
def hard_prompts(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
    """Half of 800 prompts are hard."""
    yield from count_held(
        measure(partial(two_kinds, 800), draws, rng, measure="characters"),
        is_ordinary=True,
    )


def count_equal_length(
    preference: str, n: int, draws: int, rng: np.random.Generator
) -> Iterator[Measure]:
    """The accuracy at equal length of models that like lengths in a planted way."""
    tables = []
    for start in range(0, draws, BATCH):
        lengths = length_worlds.drawn_lengths(n, rng)
        n_models = min(BATCH, draws - start)
        margins = length_worlds.margins(preference, lengths, n_models, rng)
        pairs, features = length_worlds.tables_of(margins, lengths)
        tables.append(length_controlled(pairs, features))
    table = pd.concat(tables, ignore_index=True)
    low, high = table["low"].to_numpy(), table["high"].to_numpy()
    yield given("an interval", low)
    # With 60 prompts a preference for unlike lengths has no point at equal length.
    floor = DERIVED_FLOOR if n >= 400 else float("nan")
    yield coverage("controlled", low, high, length_worlds.TRUTH, at_least=floor)
    disagrees = table["reason"].str.contains("disagree").to_numpy()
    yield false_alarms("disagrees with near", disagrees, at_most=float("nan"))


def _add_length_world(preference: str, n: int) -> None:
    @world(f"length_controlled: {preference}, {n} prompts")
    def run(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
        yield from count_equal_length(preference, n, draws, rng)


for preference in length_worlds.PREFERENCES + length_worlds.HELD_OUT:
    for n_prompts in (16, 60, 400, 1327):
        _add_length_world(preference, n_prompts)
