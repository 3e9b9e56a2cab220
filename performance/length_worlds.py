"""Comparisons whose probability of a win at equal length is known, under preferences
for length of several shapes.
"""

import numpy as np
import pandas as pd
from scipy.special import ndtr

PREFERENCES = (
    "none",
    "characters",
    "log length",
    "middle length",
    "shorter is better",
    "unlike lengths",
)
HELD_OUT = ("long enough",)  # not looked at when the form and the penalty were chosen
SKILL, PROMPTS, NOISE = (
    0.8,
    0.5,
    np.sqrt(0.5),
)  # advantage of right answers, its spread over prompts, each score's
TRUTH = float(
    ndtr(SKILL / np.sqrt(1 + PROMPTS**2))
)  # P(win) where a preference for length has nothing to bite on


def drawn_lengths(n, rng):
    """Lengths (n, 2) of one right and one wrong answer a prompt, the right ones a third
    longer, in whole characters.
    """
    size = rng.normal(9.5, 0.8, (n, 1))
    return np.round(2 ** (size + rng.normal(0, 0.7, (n, 2)) + np.array([0.4, 0.0])))


def merit(preference, lengths, strength=1.0):
    """What each answer's length (n, answers) adds to its score."""
    doublings = np.log2(lengths)
    if preference == "characters":
        return (
            strength * lengths / (lengths - lengths.mean(axis=1, keepdims=True)).std()
        )
    if preference == "log length":
        return 0.5 * strength * doublings
    if preference == "middle length":
        return 0.4 * strength * (doublings - 9.5) ** 2
    if preference == "long enough":  # what is beyond the middle adds little more
        return 1.2 * strength * np.tanh(doublings - 9.5)
    return (
        -0.5 * strength * doublings
        if preference == "shorter is better"
        else np.zeros_like(lengths)
    )


def margins(preference, lengths, rows, rng, strength=1.0):
    """Margins (rows, n, comparisons) of so many models: every right answer against
    every wrong one.
    """
    n, answers = lengths.shape
    score = merit(preference, lengths, strength) + NOISE * rng.standard_normal(
        (rows, n, answers)
    )
    right, wrong = np.indices((answers // 2, answers // 2)).reshape(2, -1)
    margin = score[..., right] - score[..., answers // 2 + wrong]
    if (
        preference == "unlike lengths"
    ):  # the more they differ, the more wins, whichever is longer
        apart = lengths[:, right] - lengths[:, answers // 2 + wrong]
        square = (apart / apart.std()) ** 2
        margin = margin + 0.6 * strength * square / (1 + 0.2 * square)
    return margin + SKILL + PROMPTS * rng.standard_normal((rows, n, 1))


def tables_of(margin, lengths):
    """Pairs of all models (rows of `margin`) and the features of their answers."""
    rows, n, per = margin.shape
    half = lengths.shape[1] // 2
    right, wrong = np.indices((half, half)).reshape(2, -1)
    index = [
        np.repeat(np.arange(rows), n * per),
        np.tile(np.repeat(np.arange(n), per), rows),
    ]
    pairs = pd.DataFrame(
        {
            "model": np.char.add("draw ", index[0].astype(str)),
            "benchmark": "b",
            "domain": "d",
        }
    )
    pairs = pairs.assign(
        id=index[1].astype(str),
        chosen_slot=np.tile(right, rows * n),
        rejected_slot=np.tile(wrong, rows * n),
        margin=margin.ravel(),
    )
    sides = [
        pd.DataFrame(
            {
                "benchmark": "b",
                "domain": "d",
                "id": np.repeat(np.arange(n).astype(str), half),
            }
        ).assign(
            label=label,
            slot=np.tile(np.arange(half), n),
            characters=lengths[:, columns].ravel(),
        )
        for label, columns in (
            ("chosen", slice(0, half)),
            ("rejected", slice(half, None)),
        )
    ]
    return pairs, pd.concat(sides, ignore_index=True)
