"""How often each outcome occurs in each model, level and prompt of RM-Bench."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.extensions import ExtensionArray

from rmlab import tables
from rmlab.metrics.columns import codes, number
from rmlab.tables import LEVELS, OUTCOMES, PROMPT, STYLES, DataError

__all__ = ["Counts", "check_nine", "count"]

_PER_LEVEL = 3  # of a prompt's nine comparisons three are easy, three normal, three hard


class Counts(NamedTuple):
    """Numbers of comparisons, (models, levels, prompts) each: whose outcome is missing, a loss, a tie, a win."""

    models: ExtensionArray
    first: NDArray[np.intp]  # row of the pairs where each prompt first stands
    missing: NDArray[np.intp]
    loss: NDArray[np.intp]
    tie: NDArray[np.intp]
    win: NDArray[np.intp]


def count(pairs: pd.DataFrame) -> Counts:
    """Count the outcomes; models and prompts come in order of first appearance. DataError where one has no name."""
    (model, first), (prompt, prompts) = number(pairs, ["model"]), number(pairs, PROMPT)
    _check_named(pairs, {"model": first, **dict.fromkeys(PROMPT, prompts)})
    level, outcome = codes(pairs, "level", tables.LEVEL), codes(pairs, "outcome", tables.OUTCOME, allow_missing=True)
    shape = (1 + len(OUTCOMES), len(first), len(LEVELS), len(prompts))
    place = (((outcome + 1) * shape[1] + model) * shape[2] + level) * shape[3] + prompt
    found = np.bincount(place, minlength=int(np.prod(shape))).reshape(shape)
    return Counts(pairs["model"].array[first], prompts, *found)


def check_nine(pairs: pd.DataFrame, counts: Counts) -> NDArray[np.bool_]:
    """Which model has which prompt, (models, prompts); DataError where it has some of its nine comparisons only.

    An outcome that is missing is a row and counted; an answer without a row would count in nothing.
    """
    rows = counts.missing + counts.loss + counts.tie + counts.win
    there: NDArray[np.bool_] = np.asarray(rows.any(axis=1))
    wrong = there & (rows != _PER_LEVEL).any(axis=1)
    if not wrong.any():
        return there
    one, where = np.argwhere(wrong)[0]
    found = pairs[(number(pairs, ["model"])[0] == one) & (number(pairs, PROMPT)[0] == where)]
    key = found[["model", *PROMPT]].iloc[0].to_dict()
    raise DataError(
        f"pairs: {int(wrong.sum())} prompts are not the nine comparisons of RM-Bench's 3x3, first {key} with "
        f"{len(found)}: {_what(found)}; score all six answers of a prompt (rmlab.score goes on where it stopped) or "
        "drop the prompt; accuracy(pairs, by=...) takes prompts of any size"
    )


def _check_named(pairs: pd.DataFrame, first: dict[str, NDArray[np.intp]]) -> None:
    """Refuse missing values of a key; `first` has the rows of each column where its values first stand."""
    for column, rows in first.items():
        if pairs[column].array[rows].isna().any():
            missing = int(pairs[column].isna().sum())
            raise DataError(f"pairs: {column} is missing in {missing} of {len(pairs)} rows; fill it in or drop them")


def _what(found: pd.DataFrame) -> str:
    """Which of the nine comparisons (chosen > rejected) a prompt lacks, and which it has several times."""
    if {"chosen_style", "rejected_style"} - set(found.columns):
        return ", ".join(f"{n} {level}" for level, n in found["level"].value_counts(sort=False).items())
    have = list(zip(found["chosen_style"], found["rejected_style"], strict=True))
    times = {f"{chosen} > {rejected}": have.count((chosen, rejected)) for chosen in STYLES for rejected in STYLES}
    said = {
        "absent": [cell for cell, n in times.items() if n == 0],
        "repeated": [cell for cell, n in times.items() if n > 1],
    }
    return "; ".join(f"{word} {', '.join(cells)}" for word, cells in said.items() if cells)
