"""Real results that ship: the same as the published files, the same numbers as the printed ones."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import rmlab
from rmlab import papers, tables
from rmlab.tables import DataError

SECTIONS = ["chat", "chat_hard", "safety", "reasoning"]


@pytest.fixture(scope="module")
def outcomes():
    return papers.results("reward-bench")


@pytest.fixture(scope="module")
def scores():
    return papers.results("math-prm")


def test_a_table_of_pairs_and_one_of_scores(outcomes, scores):
    assert outcomes.groupby("model")["id"].nunique().tolist() == [2985] * 149
    assert outcomes["margin"].isna().all()
    blank = outcomes[outcomes["outcome"].isna()]
    assert set(blank["subset"]) == {"math-prm"}
    assert blank["model"].nunique() == 16
    assert scores.groupby("model").size().tolist() == [2 * 447] * 9
    tables.check_pairs(outcomes)
    tables.check_scores(scores)


def test_each_says_where_it_comes_from(outcomes, scores):
    for table in (outcomes, scores):
        source = table.attrs["source"]
        assert source["licence"] == "MIT"
        assert source["link"].startswith("https://github.com/")
        assert all(source[column] for column in ("source", "commit", "date", "command", "note"))


def test_sections_are_those_of_the_printed_table(outcomes):
    """Items of the public results against the sections that table 9 prints, with the counts of that time."""
    computed = rmlab.summary(outcomes, weights="published-before-2024-09").set_index("model")[SECTIONS]
    printed = papers.published("reward-bench").set_index("model")[SECTIONS]
    both = computed.join(printed.add_suffix("_printed"), how="inner").dropna()
    assert len(both) >= 40
    difference = (both[SECTIONS].to_numpy() - both[[f"{s}_printed" for s in SECTIONS]].to_numpy()).round(6)
    close = (np.abs(difference) <= 0.0005001).all(axis=1)
    assert close.sum() >= len(both) - 2, both[~close]


def test_the_scores_agree_with_the_outcomes_where_both_are_of_one_run(outcomes, scores):
    made = rmlab.pairs(scores)
    same = made.merge(outcomes, on=["model", "id"], suffixes=("", "_there"), how="inner")
    share = (same["outcome"].astype("str") == same["outcome_there"].astype("str")).groupby(same["model"]).sum()
    assert (share == 447).sum() == 4
    assert share["internlm/internlm2-7b-reward"] == 432


def test_results_rank_like_any_table(scores):
    ranks = rmlab.rank(scores, average="prompts")
    assert ranks["model"].iloc[0] == "Skywork/Skywork-Reward-Llama-3.1-8B"
    assert ranks["rank"].dropna().tolist() == sorted(ranks["rank"].dropna())


def test_another_name_is_an_error():
    with pytest.raises(DataError, match=r"name: no results 'rewardbench'.*reward-bench"):
        papers.results("rewardbench")


def test_small():
    folder = Path(__file__).parents[1] / "data" / "results"
    assert sum(file.stat().st_size for file in folder.iterdir()) < 2_000_000


def test_equal_to_the_published_matrix(outcomes, shared_data):
    read = rmlab.read_pairs(shared_data / "rewardbench" / "response_matrix.torch_measure.csv")
    keys = ["model", "domain", "id", "chosen_slot", "rejected_slot"]
    first, second = (table.sort_values(keys, ignore_index=True) for table in (outcomes, read))
    first.attrs = {}
    pd.testing.assert_frame_equal(first[tables.PAIRS], second[tables.PAIRS])
