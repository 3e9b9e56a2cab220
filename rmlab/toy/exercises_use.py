"""Exercises of labs 4 to 6, which remove and exploit: what they accept, and what they say of the usual mistakes."""

import numpy as np
import pandas as pd

from rmlab.toy.exercises import asks
from rmlab.toy.exercises_measure import FUNCTION, Of1, Of2, same
from rmlab.toy.preferences import preferences


@asks(
    "4.1",
    FUNCTION,
    "a function of a table of preferences",
    "Between answers of one style a taste for style explains nothing.",
    arguments=1,
)
def _balanced(answer: Of1) -> str | None:
    given = preferences(60, markdown=1.0)
    found = answer(given.copy())
    if not isinstance(found, pd.DataFrame) or not set(given.columns) <= set(found.columns):
        return "Give back a table with the same columns."
    if not (found.groupby("id").size() == 2).all():
        return "Some comparisons have lost one of their answers: keep or drop both rows of an id."
    styles = found.groupby("id")["style"].nunique()
    if len(found) == len(given):
        return "Nothing was left out."
    if (styles == 2).all():
        return "These are the comparisons of different styles, in which style can decide."
    if (styles == 2).any():
        return "Some comparisons of different styles are still there."
    expected = sum(len(set(both)) == 1 for _, both in given.groupby("id")["style"])
    return None if len(styles) == expected else f"{expected} comparisons have one style; you keep {len(styles)}."


@asks(
    "4.2",
    FUNCTION,
    "a function of scores and lengths",
    "What is left has no straight-line relation to length; a bent one can remain.",
    arguments=2,
)
def _residual(answer: Of2) -> str | None:
    random = np.random.default_rng(0)
    length = random.uniform(5, 60, 200)
    scores = 1.5 + 0.08 * length + random.standard_normal(200)
    found = np.asarray(answer(scores, length), dtype=float)
    if found.shape != scores.shape:
        return "Give one number for each score."
    left = float(np.corrcoef(found, length)[0, 1])
    if abs(left) > 1e-6:
        return f"Your result still goes with length (correlation {left:.2f}): subtract what a straight line predicts."
    slope = np.polyfit(length, scores, 1)[0]
    expected = scores - slope * length
    apart = np.ptp(found - expected)
    return None if apart < 1e-6 else "Length is gone, but so is more: subtract the line's prediction and nothing else."


@asks(
    "4.3",
    str,
    'one of "bias", "signal", "both"',
    "A regression on scores cannot tell a taste for length from length that comes with quality: both go.",
)
def _what_goes(answer: str) -> str | None:
    if answer not in ("bias", "signal", "both"):
        return 'Answer "bias", "signal" or "both".'
    if answer == "bias":
        return "Where right answers really are longer, part of the score's rise with length is earned. Does it stay?"
    return None if answer == "both" else "The model's taste for length is in that slope as well."


@asks(
    "5.1",
    FUNCTION,
    "a function of n",
    "Best-of-n costs few nats: at n = 64 at most 3.2.",
    arguments=1,
)
def _nats(answer: Of1) -> str | None:
    n = np.array([1.0, 4.0, 64.0])
    found = np.array([float(np.asarray(answer(one))) for one in n])
    if same(found, np.log(n)):
        return "The logarithm alone is too much: at n = 4 the bound is 0.636."
    if same(found, (n - 1) / n):
        return "This is the part that is taken off. From what?"
    if found[0] != 0:
        return "Best of one changes nothing: at n = 1 the divergence is 0."
    return None if same(found, np.log(n) - (n - 1) / n) else "From log(n) something below 1 is taken off."


@asks(
    "5.2",
    FUNCTION,
    "a function of rewards (questions, candidates)",
    "One candidate per question: the one that the reward likes best, whatever it is worth.",
    arguments=1,
)
def _best(answer: Of1) -> str | None:
    rewards = np.array([[0.1, 0.9, 0.3], [2.0, -1.0, 0.0]])
    found = np.asarray(answer(rewards))
    if found.shape == (3,):
        return "You chose among questions; choose among the candidates of each question (axis=1)."
    if same(found, rewards.max(1)):
        return "These are the best rewards; say which candidate has them."
    if same(found, rewards.argmin(1)):
        return "These are the candidates that the reward likes least."
    return None if same(found, rewards.argmax(1)) else "Give the places, from 0, of the best candidates."


@asks(
    "5.3",
    FUNCTION,
    "a function of the table of toy.optimize",
    "The proxy never says when to stop; only a look at the truth does.",
    arguments=1,
)
def _when_to_stop(answer: Of1) -> str | None:
    table = pd.DataFrame({"step": [0, 50, 100, 150], "proxy": [0.0, 0.9, 0.7, 0.8], "true": [0.6, 0.55, 0.65, 0.4]})
    found = answer(table)
    if found == 50:
        return "At this step the proxy is highest, which is what the policy chases anyway."
    if found == 150:
        return "This is the last step: the truth has fallen by then."
    if found == 2:
        return "This is the row; give the step."
    return None if found == 100 else "Look for the step with the largest share of right claims."


@asks(
    "6.1",
    FUNCTION,
    "a function of the published table",
    "Chance is one half: below it style decides against the truth.",
    arguments=1,
)
def _below_chance(answer: Of1) -> str | None:
    table = pd.DataFrame({"easy": [0.9, 0.4, 0.8], "normal": [0.7, 0.5, 0.6], "hard": [0.3, 0.45, 0.5]})
    found = answer(table.assign(model=["x", "y", "z"], overall=table.mean(axis=1)))
    if same(found, 2 / 3):
        return "This is their share; how many are they?"
    if same(found, 3):
        return "A model at exactly one half is not below chance."
    if same(found, 1):
        return "Which column holds the comparisons where style speaks for the wrong answer?"
    return None if same(found, 2) else "Count the rows whose hard accuracy is below one half."


@asks(
    "6.2",
    FUNCTION,
    "a function of the table of rmlab.rank",
    "One row is printed first; the data leave open which of these is.",
    arguments=1,
)
def _could_be_first(answer: Of1) -> str | None:
    table = pd.DataFrame(
        {"model": list("wxyz"), "rank": [1, 2, 3, 4], "rank_low": [1, 1, 1, 3], "rank_high": [2, 3, 4, 4]}
    )
    found = answer(table)
    if same(found, 1):
        return "The printed first is one of them; whose set of ranks reaches to 1 as well?"
    if same(found, 0):
        return "rank_high is the worst rank that fits the data; the best is in another column."
    if same(found, 4):
        return "Not all of them: the last cannot be better than third."
    return None if same(found, 3) else "Count the models whose ranks reach from 1."


@asks(
    "6.3",
    str,
    'one of "short", "long", "markdown"',
    "Each further token multiplies by a probability below one: a sum can only fall with length.",
)
def _sum_prefers(answer: str) -> str | None:
    if answer not in ("short", "long", "markdown"):
        return 'Answer "short", "long" or "markdown".'
    return None if answer == "short" else "Each token adds a negative number."
