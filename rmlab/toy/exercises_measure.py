"""Exercises of labs 1 to 3, which train and measure: what they accept, and what they say of the usual mistakes."""

from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from rmlab.tables import STYLES
from rmlab.toy.exercises import asks
from rmlab.toy.preferences import FULL

__all__ = ["FUNCTION", "Of1", "Of2", "same"]

Floats = NDArray[np.float64]
Of1 = Callable[[object], ArrayLike]
Of2 = Callable[[object, object], ArrayLike]

FUNCTION = (type(lambda: None), type(len), np.ufunc)
_NUMBER = (int, float, np.integer, np.floating)
_A, _B = np.array([2.0, 0.5, -1.0]), np.array([1.0, 0.5, 3.0])


def same(found: ArrayLike, expected: float | Floats) -> bool:
    """Whether `found` has the shape and the values of `expected`."""
    return np.shape(found) == np.shape(expected) and bool(
        np.allclose(np.asarray(found, dtype=float), expected, atol=1e-6)
    )


def _sigmoid(x: Floats) -> Floats:
    found: Floats = 1 / (1 + np.exp(-x))
    return found


@asks(
    "1.1",
    FUNCTION,
    "a function of two rewards",
    "Only their difference counts; equal rewards are a coin toss.",
    arguments=2,
)
def _preference(answer: Of2) -> str | None:
    found = np.asarray(answer(_A, _B), dtype=float)
    if found.shape != _A.shape:
        return f"Three pairs of rewards should give three probabilities; you give an array of shape {found.shape}."
    if (found < 0).any() or (found > 1).any():
        return f"A probability lies between 0 and 1; for the rewards 2 and 1 yours is {found[0]:.3g}."
    if not np.allclose(found, np.asarray(answer(_A + 10, _B + 10), dtype=float)):
        return "Adding 10 to both rewards changes your probability, but only their difference may matter."
    if found[0] < 0.5:
        return "The answer of reward 2 loses to that of reward 1: which of them do you subtract?"
    return None if same(found, _sigmoid(_A - _B)) else "The direction is right, the curve is not."


@asks(
    "1.2",
    FUNCTION,
    "a function of the chosen and the rejected rewards",
    "The mean of -log sigmoid(chosen - rejected): sure and wrong costs most.",
    arguments=2,
)
def _loss(answer: Of2) -> str | None:
    each = -np.log(_sigmoid(_A - _B))
    found = answer(_A, _B)
    if np.shape(found) != ():
        return "A loss is one number: average over the comparisons."
    if same(found, float(each.sum())):
        return "This grows with the number of comparisons: average instead of adding up."
    if same(found, -float(each.mean())):
        return "Your loss gets smaller the worse the model is: mind the sign."
    if same(found, float((1 - _sigmoid(_A - _B)).mean())):
        return "This is the mean chance of an error. A likelihood takes the logarithm of each probability first."
    return None if same(found, float(each.mean())) else "Of each probability of 1.1 the log, then the mean."


@asks(
    "1.3",
    FUNCTION,
    "a function of the chosen and the rejected rewards",
    "RM-Bench counts an answer as right only where it scores strictly higher.",
    arguments=2,
)
def _accuracy(answer: Of2) -> str | None:
    found = answer(_A, _B)
    if same(found, 2 / 3):
        return "The second pair is a tie. RM-Bench wants the right answer strictly above the wrong one."
    if same(found, 1.0) or same(found, 1):
        return "This is how many are right; give their share."
    return None if same(found, 1 / 3) else "Of three pairs with rewards (2, 1), (0.5, 0.5), (-1, 3) one is right."


_MATRIX = pd.DataFrame(
    [[0.50, 0.40, 0.30], [0.70, 0.60, 0.20], [0.95, 0.90, 0.65]], index=list(STYLES), columns=list(STYLES)
)


@asks(
    "2.1",
    FUNCTION,
    "a function of a 3x3 matrix",
    "Hard: plain and right against fancy and wrong.",
    arguments=1,
)
def _hard(answer: Of1) -> str | None:
    found, cells = answer(_MATRIX.copy()), _MATRIX.to_numpy()
    for mistaken, hint in (
        (cells[np.tril_indices(3, -1)].mean(), "These cells are easy: the right answer is the fancier one."),
        (cells[np.triu_indices(3)].mean(), "The diagonal is normal: both answers have the same style. Leave it out."),
        (cells[np.triu_indices(3, 1)].sum(), "Average the cells instead of adding them up."),
        (np.trace(cells) / 3, "This is the diagonal, where both answers have the same style."),
    ):
        if same(found, float(mistaken)):
            return hint
    hard = float(cells[np.triu_indices(3, 1)].mean())
    return None if same(found, hard) else "Rows are right answers, columns wrong ones, both from concise to Markdown."


@asks(
    "2.2",
    tuple,
    "a tuple of two styles, the right answer's and the wrong one's",
    "A taste for Markdown is decided where only the wrong answer has it.",
)
def _falls_first(answer: tuple[object, ...]) -> str | None:
    if len(answer) != 2 or any(style not in STYLES for style in answer):
        return f"Name two of the styles {', '.join(STYLES)}: first the right answer's, then the wrong one's."
    chosen, rejected = answer
    if chosen == rejected:
        return "Both answers have the same style here: the dial favours neither."
    if chosen == "markdown":
        return "Here the right answer is in Markdown: the dial helps it."
    return None if rejected == "markdown" else "Neither answer is in Markdown here, and only that dial is turned."


@asks("2.3", _NUMBER, "a number from 0 to 1", "At 0.5 Markdown is worth as much as the truth.")
def _tipping_point(answer: float) -> str | None:
    if not 0 <= answer <= 1:
        return "A dial goes from 0 to 1."
    if np.isclose(answer, 1 / FULL):
        return None
    who = "right" if answer < 1 / FULL else "wrong"
    still = "still wins" if answer < 1 / FULL else "already wins"
    return f"At {answer:g} Markdown is worth {FULL * answer:g} of being right: the {who} answer {still}."


_OUTCOMES = np.array([[1, 1, 1], [0, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]], dtype=float)


@asks(
    "3.1",
    FUNCTION,
    "a function of an array of outcomes (prompts, comparisons)",
    "Comparisons of one prompt rise and fall together: the prompt is the independent unit.",
    arguments=1,
)
def _standard_error(answer: Of1) -> str | None:
    found, means = answer(_OUTCOMES.copy()), _OUTCOMES.mean(1)
    root = np.sqrt(len(means))
    for mistaken, hint in (
        (
            _OUTCOMES.std(ddof=1) / np.sqrt(_OUTCOMES.size),
            "This takes 15 comparisons for independent; they are 5 prompts.",
        ),
        (
            _OUTCOMES.std() / np.sqrt(_OUTCOMES.size),
            "This takes 15 comparisons for independent; they are 5 prompts.",
        ),
        (means.std() / root, "Nearly: with so few prompts divide the squares by n - 1 (ddof=1)."),
        (means.std(ddof=1), "This is how far prompts spread; how far does their mean?"),
    ):
        if same(found, float(mistaken)):
            return hint
    expected = float(means.std(ddof=1) / root)
    return None if same(found, expected) else "Take each prompt's mean first, then the standard error of these means."


@asks(
    "3.2",
    FUNCTION,
    "a function of the limits low and high of the difference a - b",
    "An interval that holds zero leaves open who is better; it does not show that both are equal.",
    arguments=2,
)
def _conclusion(answer: Of2) -> str | None:
    for limits, expected in (
        ((0.01, 0.05), "a"),
        ((-0.05, -0.01), "b"),
        ((-0.02, 0.06), "open"),
        ((-0.06, 0.02), "open"),
    ):
        found = answer(*limits)
        if found not in ("a", "b", "open"):
            return f"Answer 'a', 'b' or 'open'; for the interval {limits} you say {found!r}."
        if found != expected and expected == "open":
            return f"The interval {limits} holds zero: either sign fits the data, and you say {found!r}."
        if found != expected:
            return f"The interval {limits} of a - b lies on one side of zero, and you say {found!r}."
    return None


@asks(
    "3.3",
    _NUMBER,
    "a number",
    "Markdown is then worth one truth: the rate finds what the dial put in.",
)
def _exchange_rate(answer: float) -> str | None:
    if np.isclose(answer, 0.5):
        return "0.5 is the setting of the dial. What is an answer's Markdown worth at that setting?"
    if np.isclose(answer, FULL):
        return "This is the worth at the full setting; the dial stands in the middle."
    return None if np.isclose(answer, 1.0) else "The worth is FULL times the setting, in units of being right."
