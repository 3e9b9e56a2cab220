"""Style taken off the scores: what `compare` by level says of the scores before and
after, with the subtracted effect taken as known.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pandas as pd
from style_worlds import world as style_world

from coverage_worlds import (
    DERIVED_FLOOR,
    GIVEN_FLOOR,
    Measure,
    coverage,
    given,
    world,
)
from rmlab import compare
from rmlab.bias import debias
from rmlab.tables import check_scores

Tables = tuple[pd.DataFrame, pd.DataFrame]
N_TRUE = 3000  # prompts of the table that gives the true changes


def integer_ratings(n: int, seed: int, liked: float = 0.0) -> Tables:
    """Ratings from 1 to 5 that know the right answer; `liked`: worth of a doubling of
    the length.
    """
    scores, features = style_world(n, seed=seed)
    noise = 0.9 * np.random.default_rng(seed).standard_normal(len(scores))
    rating = (
        3
        + 0.7 * (scores["label"] == "chosen")
        + liked * (np.log2(features["characters"]) - 8)
        + noise
    )
    return scores.assign(score=rating.round().clip(1, 5)), features


def continuous_scores(n: int, seed: int, liked: float = 0.5) -> Tables:
    """Scores that like length; wrong answers are four times as long."""
    scores, features = style_world(n, skill=1.0, style=0.0, length=liked, seed=seed)
    is_wrong = (scores["label"] == "rejected").to_numpy()
    features = features.assign(
        characters=features["characters"] * np.where(is_wrong, 4, 1)
    )
    return scores.assign(score=scores["score"] + 2 * liked * is_wrong), features


def compare_levels(scores: pd.DataFrame, features: pd.DataFrame) -> pd.DataFrame:
    scores = check_scores(scores)
    both = pd.concat([scores, debias(scores, features)[scores.columns]])
    options = {"ties": "half", "average": "prompts"}
    by_level = compare(both, "m debiased", "m", by="level", **options)
    overall = compare(both, "m debiased", "m", **options).assign(level="all")
    columns = ["level", "difference", "low", "high"]
    return pd.concat([by_level[columns], overall[columns]]).astype({"level": "str"})


def _add(
    name: str, draw: Callable[[int, int], Tables], n: int, has_effect: bool
) -> None:
    @world(f"debias, then compare: {name}, {n} prompts")
    def run(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
        seeds = rng.integers(0, 2**31, draws)
        tables = [compare_levels(*draw(n, int(seed))) for seed in seeds]
        table = pd.concat(tables, ignore_index=True)
        truth = pd.Series(0.0, table["level"].unique())
        if has_effect:
            truth = compare_levels(*draw(N_TRUE, 1)).set_index("level")["difference"]
        for level, rows in table.groupby("level", sort=False):
            low, high = rows["low"].to_numpy(), rows["high"].to_numpy()
            yield given(f"{level} is given", low, at_least=GIVEN_FLOOR)
            # Without an effect the sign of an estimated slope breaks all ties of a
            # level: what that costs is measured and not bounded.
            floor = DERIVED_FLOOR if has_effect or level == "all" else float("nan")
            yield coverage(level, low, high, truth[level], at_least=floor)


_add("integer ratings", integer_ratings, 40, False)
_add("integer ratings", integer_ratings, 200, False)
_add("integer ratings like length", partial(integer_ratings, liked=0.3), 100, True)
_add("length is liked and tells the label", continuous_scores, 40, True)
_add("length is liked and tells the label", continuous_scores, 100, True)
