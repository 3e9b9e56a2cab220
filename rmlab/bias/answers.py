"""Columns of a regression: features and steps of style of answers, the scores' unit."""

import numpy as np
import pandas as pd

from rmlab.benchmarks.registry import adopt_name
from rmlab.bias.groups import split_rows
from rmlab.tables import (
    KEY,
    PROMPT,
    STYLE,
    DataError,
    FloatArray,
    IntArray,
    answer_index,
    group_codes,
    nearest,
    refuse_repeats,
    require_columns,
)


def demean(values: FloatArray, prompt: IntArray) -> FloatArray:
    """Values (rows, or rows by columns) less the mean of their prompt."""
    groups = pd.DataFrame(values).groupby(prompt)
    means: FloatArray = groups.transform("mean").to_numpy()
    return values - means.reshape(values.shape)


def within_spread(score: FloatArray, prompt: IntArray) -> float:
    """Standard deviation of scores around their prompt's mean: the unit of effects.

    Pooled over prompts. Zero where scores differ in no prompt, NaN without a prompt
    that has two scores.
    """
    observed = ~np.isnan(score)
    score = score[observed]
    prompt = prompt[observed]

    df = len(score) - len(np.unique(prompt))
    if df == 0:
        return float("nan")
    deviation = demean(score, prompt)
    # Means of equal scores may miss them by a last digit.
    if np.abs(deviation).max() <= 1e-12 * np.abs(score).max():
        return 0.0
    return float(np.sqrt((deviation**2).sum() / df))


def standardize_models(scores: pd.DataFrame) -> FloatArray:
    """Scores in units of their model's `within_spread`; NaN where there is none."""
    score = scores["score"].to_numpy()
    prompt = group_codes(scores, PROMPT)[0]
    units = np.full(len(score), np.nan)
    for rows in split_rows(scores, ["model"]):
        spread = within_spread(score[rows], prompt[rows])
        units[rows] = score[rows] / (spread or np.nan)
    return units


def count_columns(features: pd.DataFrame) -> list[str]:
    """Columns of `features` with numbers that are not part of the key."""
    numeric = features.select_dtypes("number").columns
    return [column for column in numeric if column not in KEY]


def answer_column(
    scores: pd.DataFrame, features: pd.DataFrame | None, name: str
) -> FloatArray:
    """Regressor of each answer.

    "step" (concise 0, plain 1, markdown 2), or log2 of a column of `features`.
    """
    if name == "step":
        return style_steps(scores["style"])
    count = look_up(scores, features, name)
    # One rule for the whole column, or equal counts would differ.
    if count.min(initial=1.0) < 1:
        count = 1 + count
    return np.log2(count)


def style_steps(style: pd.Series) -> FloatArray:
    """Concise 0, plain 1, markdown 2; DataError where one is missing."""
    steps = pd.Categorical(style, dtype=STYLE).codes.astype(np.float64)
    if steps.min(initial=0) < 0:
        problem = "steps of style need styles, but some answers have none"
        raise DataError(problem, "name columns of features")
    return steps


def look_up_sides(
    pairs: pd.DataFrame, features: pd.DataFrame | None, name: str
) -> FloatArray:
    """A feature of the chosen and the rejected answer of each pair, (rows, 2)."""
    sides = []
    for label in ("chosen", "rejected"):
        keys = pairs[PROMPT].assign(label=label, slot=pairs[f"{label}_slot"])
        sides.append(look_up(keys, features, name))
    return np.column_stack(sides)


def look_up(keys: pd.DataFrame, features: pd.DataFrame | None, name: str) -> FloatArray:
    """A feature of the answers in `keys`, (rows,).

    Raises DataError where an answer or the column is not there.
    """
    if features is None:
        problem = f"features: None, but {name!r} needs them"
        raise DataError(problem, "pass rmlab.styles.features(responses)")
    require_columns(features, KEY, "features")
    counts = count_columns(features)
    if name not in counts:
        problem = f"features: no counts {name!r}"
        if counts:
            problem = f"{problem}; {nearest(name, counts)}"
        raise DataError(problem, "use rmlab.styles.features(responses)")
    features = adopt_name(features, keys)
    refuse_repeats(features, KEY, "features")

    wanted = answer_index(keys)
    row = answer_index(features).get_indexer(wanted)
    values = features[name].to_numpy(dtype=np.float64)[row]
    is_absent = (row < 0) | ~np.isfinite(values)
    if is_absent.any():
        first_absent = wanted[int(is_absent.argmax())]
        n_absent = f"{is_absent.sum()} of {len(keys)} texts"
        problem = f"features: no finite {name!r} for {n_absent}, first {first_absent}"
        raise DataError(problem, "count the responses that were scored")
    return values
