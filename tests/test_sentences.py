"""Findings as sentences: none without a difference, and no rounding that contradicts its interval."""

import numpy as np
import pandas as pd
import pytest

import rmlab
from rmlab.report.sentences import format_interval, format_p


def unlabelled(n, p_longer, p_shorter, seed=0):
    """Pairs of one prompt each whose chosen answer is longer or shorter, with such chances of winning."""
    rng = np.random.default_rng(seed)
    is_longer = rng.random(n) < 0.5
    win = rng.random(n) < np.where(is_longer, p_longer, p_shorter)
    lengths = np.where(is_longer[:, None], [200, 80], [80, 200]).ravel()
    rows = pd.DataFrame({"id": np.arange(n).astype(str).repeat(2), "label": ["chosen", "rejected"] * n, "slot": 0})
    rows = rows.assign(benchmark="own", domain="own", prompt="?", response=["x" * length for length in lengths])
    scores = rows.assign(score=np.column_stack([win, ~win]).astype(float).ravel())
    responses = rmlab.tables.check_responses(rows)
    return responses, rmlab.io.join(responses, scores, model="m")


def test_planted_length_bias_is_said_and_none_where_there_is_none():
    for chances, expected in (((0.9, 0.5), 1), ((0.7, 0.7), 0)):
        responses, scores = unlabelled(400, *chances)
        findings = rmlab.report.sentences(rmlab.bias.style_differences(scores, responses))
        assert sum("longer minus shorter" in sentence for sentence in findings) == expected


@pytest.mark.parametrize(
    ("ratio", "length"), [(1.2, "equal"), (1.3, "longer"), (1 / 1.2, "equal"), (1 / 1.3, "shorter")]
)
def test_equal_means_within_a_quarter(ratio, length):
    responses, scores = unlabelled(1, 1, 1)
    texts = ["x" * round(1000 * ratio), "x" * 1000]
    pairs = rmlab.bias.style_differences(scores, responses.assign(response=texts))
    assert pairs["length"].tolist() == [length]
    assert pairs[["chosen_characters", "rejected_characters"]].to_numpy().tolist() == [[round(1000 * ratio), 1000]]


def test_the_order_of_findings():
    mini = rmlab.load("mini")
    scores = rmlab.score(mini, [rmlab.toy.scorer(mini, skill=3, style=1, name="m"), "longest"])
    findings = "".join(rmlab.report.sentences(scores))
    assert 0 <= findings.index("m scores") < findings.index("easy minus hard")


@pytest.mark.parametrize(
    ("low", "high", "p"),
    [(0.0002, 0.0218, 0.0461), (-0.0004, 0.02, 0.0504), (0.00002, 0.02, 0.04996), (-0.3, -0.00001, 0.0499)],
)
def test_rounding_never_contradicts(low, high, p):
    text = format_interval((low + high) / 2, low, high)
    printed = [float(word) for word in text.removeprefix(text.split(" (95 % CI ")[0] + " (95 % CI ").split(" to ")]
    assert [(x > 0) - (x < 0) for x in printed] == [(x > 0) - (x < 0) for x in (low, high)]
    assert (float(format_p(p).split()[-1]) < 0.05) == (p < 0.05)


def test_a_comparison_is_a_sentence_of_a_paper():
    scores = rmlab.score(rmlab.load("mini"), ["longest", "shortest"])
    rows = rmlab.compare(scores, "shortest", "longest", by="level")
    first, second, third = rmlab.report.sentences(rows)
    assert first.startswith("longest leads shortest on easy by")
    assert "do not differ clearly" in second
    assert third.startswith("shortest leads longest on hard by")
