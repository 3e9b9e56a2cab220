"""Columns of a regression: counts and steps of style of answers, the scores' spread."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab.benchmarks.registry import adopt_name
from rmlab.styles.counts import FEATURES, features
from rmlab.tables import (
    KEY,
    PROMPT,
    STYLE,
    DataError,
    FloatArray,
    IntArray,
    answer_index,
    nearest,
    refuse_repeats,
    require_columns,
)

# The step of style that a name asks for; 0: their mean.
STEPS = {"step": 0, "step_plain": 1, "step_markdown": 2}


class Spread(NamedTuple):
    """Standard deviation of a model's scores around their prompts' means, NaN where
    they do not vary, and what it is without each of `clusters`, as a share of it: NaN
    where scores vary in one cluster alone.
    """

    value: float
    without: FloatArray
    clusters: IntArray


def measure_spread(score: FloatArray, prompt: IntArray, cluster: IntArray) -> Spread:
    """The spread of scores within a prompt, pooled over prompts."""
    observed = ~np.isnan(score)
    score = score[observed]
    prompt = np.unique(prompt[observed], return_inverse=True)[1]
    clusters, cluster = np.unique(cluster[observed], return_inverse=True)

    deviation = demean(score, prompt)
    # Means of equal scores may miss them by a last digit.
    is_rounding = np.abs(deviation) <= 1e-12 * np.abs(score).max(initial=0.0)
    squares = np.bincount(cluster, np.where(is_rounding, 0.0, deviation**2))
    df = np.bincount(cluster, 1 - 1 / np.bincount(prompt)[prompt])
    total = squares.sum()
    rest = total - squares
    rest[rest <= 1e-12 * total] = np.nan
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = total / df.sum()
        without = rest / (df.sum() - df) / variance
    return Spread(np.sqrt(variance) or np.nan, np.sqrt(without), clusters)


def demean(values: FloatArray, prompt: IntArray) -> FloatArray:
    """Values (rows, or rows by columns) less the mean of their prompt."""
    groups = pd.DataFrame(values).groupby(prompt)
    means: FloatArray = groups.transform("mean").to_numpy()
    return values - means.reshape(values.shape)


def read_counts(table: pd.DataFrame | None, keys: pd.DataFrame) -> pd.DataFrame:
    """Counts of each answer, by its key: `table` holds features, or responses, whose
    features are then counted. Without a table there are none.
    """
    if table is None:
        return pd.DataFrame()
    require_columns(table, KEY, "features")
    if "response" in table and "characters" not in table:
        counts = features(table)[list(FEATURES)]
        table = pd.concat([table.reset_index(drop=True), counts], axis=1)
    table = adopt_name(table, keys)
    refuse_repeats(table, KEY, "features")
    numeric = table.select_dtypes("number").columns
    names = [name for name in numeric if name not in KEY]
    return table[names].set_axis(answer_index(table))


def look_up(counts: pd.DataFrame, keys: pd.DataFrame, name: str) -> FloatArray:
    """A count of the answers in `keys`, (rows,); DataError where it is not there."""
    if name not in counts:
        problem = f"features: no counts {name!r}"
        if not counts.columns.empty:
            problem = f"{problem}; {nearest(name, [*map(str, counts)])}"
        raise DataError(problem, "pass rmlab.styles.features(responses)")
    wanted = answer_index(keys)
    row = counts.index.get_indexer(wanted)
    values = counts[name].to_numpy(np.float64)[row]
    is_absent = (row < 0) | ~np.isfinite(values)
    if is_absent.any():
        first = wanted[int(is_absent.argmax())]
        some = f"{is_absent.sum()} of {len(keys)} texts, first {first}"
        problem = f"features: no finite {name} for {some}"
        raise DataError(problem, "count the responses that were scored")
    return values


def look_up_sides(counts: pd.DataFrame, pairs: pd.DataFrame, name: str) -> FloatArray:
    """A count of the chosen and of the rejected answers of pairs, (rows, 2)."""
    sides = []
    for label in ("chosen", "rejected"):
        keys = pairs[PROMPT].assign(label=label, slot=pairs[f"{label}_slot"])
        sides.append(look_up(counts, keys, name))
    return np.column_stack(sides)


def answer_column(scores: pd.DataFrame, counts: pd.DataFrame, name: str) -> FloatArray:
    """Regressor of each answer: a step of style, or log2 of a count."""
    if name in STEPS:
        steps = style_steps(scores["style"])
        # One step each, not one style each: Markdown has taken both, so that
        # "step_markdown" is what it adds to plain.
        at_least = STEPS[name]
        return (steps >= at_least).astype(np.float64) if at_least else steps
    count = look_up(counts, scores, name)
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
