"""Self-checks of the course: each takes the solution and tells three mistakes apart without naming the answer."""

import course
import numpy as np
import pytest

import rmlab


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def one_style(pairs):
    return pairs.groupby("id").filter(lambda both: both["style"].nunique() == 1)


def two_styles(pairs):
    return pairs.groupby("id").filter(lambda both: both["style"].nunique() == 2)


def upper(matrix, k=1):
    return matrix.to_numpy()[np.triu_indices(3, k)]


def means(outcomes):
    return outcomes.mean(1)


SOLUTIONS = {
    "1.1": lambda a, b: sigmoid(a - b),
    "1.2": lambda a, b: np.mean(np.log1p(np.exp(b - a))),
    "1.3": lambda a, b: np.mean(a > b),
    "2.1": 0.5,
    "2.2": lambda matrix: upper(matrix).mean(),
    "2.3": ("concise", "markdown"),
    "3.1": lambda outcomes: means(outcomes).std(ddof=1) / np.sqrt(len(outcomes)),
    "3.2": lambda low, high: "a" if low > 0 else "b" if high < 0 else "open",
    "3.3": 1.0,
    "4.1": one_style,
    "4.2": lambda scores, length: scores - np.polyfit(length, scores, 1)[0] * (length - length.mean()),
    "4.3": "both",
    "5.1": lambda n: np.log(n) - (n - 1) / n,
    "5.2": lambda rewards: rewards.argmax(axis=1),
    "5.3": lambda table: table.loc[table["true"].idxmax(), "step"],
    "6.1": lambda table: (table["hard"] < 0.5).sum(),
    "6.2": lambda table: (table["rank_low"] == 1).sum(),
    "6.3": "short",
}

MISTAKES = {
    "1.1": [lambda a, b: sigmoid(b - a), lambda a, b: a - b, lambda a, b: np.clip(a, 0, None) / (abs(a) + abs(b))],
    "1.2": [
        lambda a, b: np.sum(np.log1p(np.exp(b - a))),
        lambda a, b: np.mean(np.log(sigmoid(a - b))),
        lambda a, b: np.mean(1 - sigmoid(a - b)),
    ],
    "1.3": [lambda a, b: np.mean(a >= b), lambda a, b: np.sum(a > b), lambda a, b: np.mean(a > 0)],
    "2.1": [1.0, 0.25, 2],
    "2.2": [
        lambda matrix: matrix.to_numpy()[np.tril_indices(3, -1)].mean(),
        lambda matrix: upper(matrix, 0).mean(),
        lambda matrix: upper(matrix).sum(),
    ],
    "2.3": [("markdown", "concise"), ("markdown", "markdown"), ("concise", "plain")],
    "3.1": [
        lambda outcomes: outcomes.std(ddof=1) / np.sqrt(outcomes.size),
        lambda outcomes: means(outcomes).std() / np.sqrt(len(outcomes)),
        lambda outcomes: means(outcomes).std(ddof=1),
    ],
    "3.2": [
        lambda low, high: "a" if low + high > 0 else "b",
        lambda low, high: "b" if low > 0 else "a" if high < 0 else "open",
        lambda low, high: "open",
    ],
    "3.3": [0.5, 2.0, 0.25],
    "4.1": [lambda pairs: pairs, two_styles, lambda pairs: pairs[pairs["style"] == "plain"]],
    "4.2": [
        lambda scores, length: scores - length,
        lambda scores, length: scores / length,
        lambda scores, length: (scores - scores.mean()) / scores.std(),
    ],
    "4.3": ["bias", "signal", "nothing"],
    "5.1": [np.log, lambda n: (n - 1) / n, lambda n: n * np.log(n)],
    "5.2": [lambda r: r.max(axis=1), lambda r: r.argmax(axis=0), lambda r: r.argmin(axis=1)],
    "5.3": [
        lambda table: table.loc[table["proxy"].idxmax(), "step"],
        lambda table: table["step"].iloc[-1],
        lambda table: table["true"].idxmax(),
    ],
    "6.1": [
        lambda table: (table["hard"] < 0.5).mean(),
        lambda table: (table["hard"] <= 0.5).sum(),
        lambda table: (table["easy"] < 0.5).sum(),
    ],
    "6.2": [
        lambda table: (table["rank"] == 1).sum(),
        lambda table: (table["rank_high"] == 1).sum(),
        len,
    ],
    "6.3": ["long", "markdown", "Short"],
}


def test_each_check_takes_the_solution_and_refuses_three_mistakes():
    assert list(course.EXERCISES) == list(SOLUTIONS) == list(MISTAKES)
    for number, solution in SOLUTIONS.items():
        verdict = course.check(number, solution)
        assert verdict.right, verdict
        assert verdict.why == course.EXERCISES[number].lesson
        refused = [course.check(number, mistake) for mistake in MISTAKES[number]]
        assert not any(verdict.right for verdict in refused), refused
        assert len({verdict.why for verdict in refused}) >= 2
        assert not any("stopped with" in verdict.why for verdict in refused), refused
        for answer in (None, [1, 2], {"a": 1}, True):
            assert course.EXERCISES[number].wants in course.check(number, answer).why


def test_stubs_and_errors_are_reported_not_raised():
    def stub(a, b):
        course.todo("write the probability")

    assert "write the probability" in course.check("1.1", stub).why
    assert "ZeroDivisionError" in course.check("1.1", lambda a, b: 1 / 0).why
    with pytest.raises(NotImplementedError):
        course.todo("anything")
    with pytest.raises(rmlab.DataError, match=r"1\.9"):
        course.check("1.9", 0)
