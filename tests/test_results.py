"""Real results that ship: the same as the published files, the same numbers as the printed ones."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import rmlab
from rmlab import papers, tables

README = Path(__file__).parents[1] / "README.md"
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


def test_the_readme_says_what_the_tables_say(outcomes):
    readme = " ".join(README.read_text(encoding="utf-8").split())
    real = papers.results("smollm2-rm-bench").query("domain == 'chat' and model == 'SmolLM2-135M mean'")
    levels = rmlab.accuracy(real, by=["domain", "level"]).set_index("level")
    easy, hard = (
        f"{row['accuracy']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
        for row in (levels.loc["easy"], levels.loc["hard"])
    )
    grid = papers.published("rm-bench", "matrix")[list(tables.STYLES)].to_numpy()
    longest = papers.published("rm-bench", "length-only").query("domain == 'chat'").iloc[0]
    lower, upper = grid[np.tril_indices(3, -1)].mean(), grid[np.triu_indices(3, 1)].mean()
    rows = (f"{lower:.2f} | {upper:.2f}", f"{easy} | {hard}", f"{longest['easy']:.2f} | {longest['hard']:.2f}")
    for name, numbers in zip(("FsfairX", "SmolLM2", "`longest`"), rows, strict=True):
        assert re.search(rf"\| {name}, [^|]+ \| {re.escape(numbers)} \|", readme), name
    assert f"outcomes of {outcomes['model'].nunique()} models" in readme
    assert f"{['no', 'nine'][papers.results('math-prm')['model'].nunique() == 9]} models' scores" in readme
