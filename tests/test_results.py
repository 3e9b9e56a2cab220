"""Real results that ship: the same as the published files, the same numbers as the printed ones."""

import numpy as np
import pandas as pd
import pytest

import rmlab
from rmlab import papers, tables

SECTIONS = ["chat", "chat_hard", "safety", "reasoning"]


@pytest.fixture(scope="module")
def outcomes():
    return papers.results("reward-bench")


def test_sections_are_those_of_the_printed_table(outcomes):
    """Items of the public results against the sections that table 9 prints, with the counts of that time."""
    computed = rmlab.summary(outcomes, weights="published-before-2024-09").set_index("model")[SECTIONS]
    printed = papers.published("reward-bench").set_index("model")[SECTIONS]
    both = computed.join(printed.add_suffix("_printed"), how="inner").dropna()
    assert len(both) >= 40
    difference = (both[SECTIONS].to_numpy() - both[[f"{s}_printed" for s in SECTIONS]].to_numpy()).round(6)
    close = (np.abs(difference) <= 0.0005001).all(axis=1)
    assert close.sum() >= len(both) - 2, both[~close]


def test_equal_to_the_published_matrix(outcomes, shared_data):
    read = rmlab.read_pairs(shared_data / "rewardbench" / "response_matrix.torch_measure.csv")
    keys = ["model", "domain", "id", "chosen_slot", "rejected_slot"]
    first, second = (table.sort_values(keys, ignore_index=True) for table in (outcomes, read))
    first.attrs = {}
    pd.testing.assert_frame_equal(first[tables.PAIRS], second[tables.PAIRS])


@pytest.mark.parametrize("name", ["smollm2-mini", "smollm2-rm-bench", "smollm2-math"])
def test_likelihoods_are_scores_of_two_ways(name):
    table = tables.check_scores(papers.results(name))
    total, mean = (table[table["model"] == f"SmolLM2-135M {way}"]["score"].to_numpy() for way in ("sum", "mean"))
    tokens = total / mean
    np.testing.assert_allclose(tokens, tokens.round(), rtol=1e-9)
    assert total.max() < 0
    assert tokens.min() >= 2
