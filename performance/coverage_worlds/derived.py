"""Effects of style and exchange rates."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd
from style_worlds import world as draw_scores

from coverage_worlds import (
    DERIVED_FLOOR,
    GIVEN_FLOOR,
    Measure,
    coverage,
    false_alarms,
    given,
    world,
)
from rmlab import exchange_rate, style_effects

Draw = Callable[[int], tuple[pd.DataFrame, pd.DataFrame]]

ANSWERS = 6  # of a prompt
TERMS = ["correct", "step"]


def fit_draws(
    draws: int, draw: Draw, terms: Sequence[str], *, cluster: str | None = None
) -> pd.DataFrame:
    """The rows of `style_effects` of all draws."""
    tables = []
    for seed in range(draws):
        scores, features = draw(seed)
        tables.append(style_effects(scores, features, terms=terms, cluster=cluster))
    return pd.concat(tables, ignore_index=True)


def null_effect(table: pd.DataFrame, term: str) -> Iterator[Measure]:
    """How often the interval of a term without effect holds zero, and its test
    rejects.
    """
    rows = table[table["term"] == term]
    low, high = rows["low"].to_numpy(), rows["high"].to_numpy()
    yield coverage(f"effect of {term}", low, high, 0.0, at_least=DERIVED_FLOOR)
    yield given(f"an interval for {term}", low, at_least=GIVEN_FLOOR)
    yield false_alarms(f"{term} is significant", rows["p"].to_numpy() < 0.05)


def few_marked_prompts(prompts: int) -> Draw:
    """100 prompts, of which this many differ in Markdown, which earns nothing."""

    def draw(seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        scores, features = draw_scores(100, style=0.3, seed=seed)
        varies = features["id"].astype(int) < prompts
        return scores, features.assign(markdown=features["markdown"].where(varies, 0))

    return draw


@world("style_effects: a count that varies in 6 of 100 prompts")
def six_vary(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
    """Markdown differs in six prompts only."""
    table = fit_draws(draws, few_marked_prompts(6), ["correct", "step", "markdown"])
    yield from null_effect(table, "markdown")


@world("style_effects: a count that varies in 12 of 100 prompts")
def twelve_vary(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
    """Markdown differs in twelve prompts only."""
    table = fit_draws(draws, few_marked_prompts(12), ["correct", "step", "markdown"])
    yield from null_effect(table, "markdown")


@world("style_effects: 12 prompts in all")
def twelve_prompts(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
    """Twelve prompts of six answers."""
    terms = ["correct", "step_plain", "step_markdown", "characters"]
    table = fit_draws(
        draws, lambda seed: draw_scores(12, style=0.0, length=0.3, seed=seed), terms
    )
    yield from null_effect(table, "step_plain")
    yield from null_effect(table, "step_markdown")


def families_of_five(seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """100 prompts in families of five that share a taste for style, of mean zero."""
    scores, features = draw_scores(100, style=0.0, seed=seed)
    family = scores["id"].astype(int) // 5
    taste = np.random.default_rng([seed, 1]).normal(0, 1, 20)
    score = scores["score"] + taste[family] * scores["slot"]
    return scores.assign(score=score, family=family.astype(str)), features


@world("style_effects: families of five, cluster='family'")
def families(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
    """Style is worth the same within a family and nothing on average."""
    table = fit_draws(draws, families_of_five, ["correct", "step"], cluster="family")
    yield from null_effect(table, "step")


Noise = Callable[[np.random.Generator, pd.DataFrame], np.ndarray]


def heavy_tailed(rng: np.random.Generator, features: pd.DataFrame) -> np.ndarray:
    """Student's t with three degrees of freedom, of variance one."""
    return rng.standard_t(3, len(features)) / np.sqrt(3)


def unlike_prompts(rng: np.random.Generator, features: pd.DataFrame) -> np.ndarray:
    """The logarithm of a prompt's standard deviation has one of 0.8."""
    size = np.exp(rng.normal(-0.64, 0.8, len(features) // ANSWERS))
    return np.repeat(size, ANSWERS) * rng.standard_normal(len(features))


def growing(rng: np.random.Generator, features: pd.DataFrame) -> np.ndarray:
    """The variance grows as the number of characters."""
    # Its logarithm is normal: 8 and half a step of style, with a variance of two.
    steps = np.arange(3)
    mean = np.exp(np.log(2) * (8 + 0.5 * steps) + np.log(2) ** 2).mean()
    size = np.sqrt(features["characters"].to_numpy() / mean)
    return size * rng.standard_normal(len(features))


def spread_of(scores: pd.DataFrame) -> float:
    """Standard deviation within a prompt of scores that all prompts share, with noise
    of variance one.
    """
    first = scores["score"].to_numpy()[:ANSWERS]
    return float(np.sqrt(first.var(ddof=1) + 1))


def _add_noise_world(name: str, noise: Noise, n: int) -> None:
    @world(f"style_effects: {name}, {n:,} prompts")
    def run(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
        worth = 0.5
        tables = []
        for seed in range(draws):
            scores, features = draw_scores(n, style=worth, noise=0.0, seed=seed)
            spread = spread_of(scores)
            noisy = scores["score"] + noise(rng, features)
            table = style_effects(scores.assign(score=noisy), features, terms=TERMS)
            tables.append(table)
        rows = pd.concat(tables).query("term == 'step'")
        low, high = rows["low"].to_numpy(), rows["high"].to_numpy()
        true = worth / spread
        yield coverage("effect of step", low, high, true, at_least=DERIVED_FLOOR)
        yield given("an interval for step", low, at_least=GIVEN_FLOOR)


for n_prompts in (50, 300, 1300):
    _add_noise_world("heavy-tailed noise", heavy_tailed, n_prompts)
    _add_noise_world("noise that differs by prompt", unlike_prompts, n_prompts)
    _add_noise_world("noise that grows with length", growing, n_prompts)


@world("style_effects: a preference for the logarithm")
def straight_length(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
    """The form that is fitted."""
    terms = ["correct", "step_plain", "step_markdown", "characters"]
    table = fit_draws(
        draws, lambda seed: draw_scores(200, style=0.0, length=0.3, seed=seed), terms
    )
    yield from null_effect(table, "step_plain")


@world("exchange_rate: 12 prompts, a rate of 0.5")
def few_rates(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
    """Twice the effect of a step is that of being right."""
    tables = []
    for seed in range(draws):
        scores, features = draw_scores(12, skill=1.0, style=0.5, seed=seed)
        tables.append(exchange_rate(scores, features, terms=["correct", "step"]))
    table = pd.concat(tables)
    low, high = table["low"].to_numpy(), table["high"].to_numpy()
    yield Measure(
        "rate of a step",
        float(((low <= 0.5) & (high >= 0.5)).mean()),
        len(table),
        at_least=DERIVED_FLOOR,
    )
    yield Measure(
        "its interval is bounded", float(np.isfinite(high).mean()), len(table)
    )
