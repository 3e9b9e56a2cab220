"""Each benchmark written once: what it says of itself agrees with its files, and nobody else knows its names."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import reward_bench_2_scores, reward_bench_pairs

from rmlab import benchmarks, metrics
from rmlab.benchmarks.registry import benchmark_of, known
from rmlab.report import leaderboard
from rmlab.tables import DataError

PACKAGE = Path(__file__).parents[1] / "rmlab"


def test_a_table_is_found_by_its_name_first_and_by_what_it_holds_else(make_scores):
    scores = make_scores()
    assert benchmark_of(scores).name == "rm-bench"
    assert benchmark_of(scores.assign(benchmark="mini")).name == "mini"
    assert benchmark_of(scores.assign(benchmark="a copy")).name == "rm-bench"
    assert benchmark_of(scores.assign(benchmark="a copy", style=pd.NA)).name == "own"
    assert benchmark_of(scores.assign(benchmark="mine", domain="poems", subset="poems")).name == "own"
    assert benchmark_of(reward_bench_pairs().assign(benchmark="x")).name == "reward-bench"
    assert benchmark_of(reward_bench_2_scores().assign(benchmark="x")).name == "reward-bench-2"
    with pytest.raises(DataError, match="2 benchmarks"):
        benchmark_of(pd.concat([scores, scores.assign(benchmark="mini")]))
    with pytest.raises(TypeError, match="got dict"):
        benchmark_of({})


def test_every_field_of_a_benchmark_fits_the_others():
    for benchmark in known().values():
        names = {*benchmark.subsets.values(), *benchmark.subset_names.values(), *benchmark.sections}
        levels = {"easy", "normal", "hard"} if benchmark.styles else set()
        assert set(benchmark.columns) <= names | levels, benchmark.name
        assert {s for section in benchmark.sections.values() for s in section} <= set(benchmark.subsets)
        for options in benchmark.variants.values():
            for name, value in options.items():
                allowed = {"ties": benchmark.ties, "average": ("prompts", "domains")}.get(name)
                assert value in (allowed or benchmark.options[name])
        for file, _ in benchmark.published.values():
            assert (PACKAGE.parent / "data" / "published" / file).is_file()


def test_options_are_the_benchmarks_and_others_are_refused(make_scores):
    scores = make_scores()
    assert metrics.summary(scores, safety="split")["average"].iloc[0] == "benchmark, safety=split"
    with pytest.raises(TypeError, match="weights='counts': no option of RM-Bench; allowed: 'safety'"):
        metrics.summary(scores, weights="counts")
    with pytest.raises(ValueError, match="did you mean 'split'"):
        metrics.summary(scores, safety="splitt")
    with pytest.raises(ValueError, match="ties: 'half'; allowed: 'share', 'loss', 'win'"):
        metrics.summary(reward_bench_2_scores(), ties="half")


def test_tasks_in_several_subsets_are_one_cluster():
    ids = ["1554", "1718", "0", "195", "900"]
    subsets = ["hep-python", "hep-go", "alpacaeval-easy", "alpacaeval-length", "refusals-dangerous"]
    rows = [("m", "reward-bench", s, i, 0, 0, 1.0) for i, s in zip(ids, subsets, strict=True)]
    columns = ["model", "benchmark", "domain", "id", "chosen_slot", "rejected_slot", "margin"]
    items = benchmarks.known()["reward-bench"].items(pd.DataFrame(rows, columns=columns))
    cluster = dict(zip(items.frame["id"], items.cluster, strict=True))
    assert cluster["1554"] == cluster["1718"]
    assert len(set(cluster.values())) == len(np.unique(items.cluster))
    elsewhere = pd.DataFrame([(*row[:3], f"x{row[3]}", *row[4:]) for row in rows], columns=columns)
    assert len(np.unique(benchmarks.known()["reward-bench"].items(elsewhere).cluster)) == 5


def test_subsets_that_count_in_no_section_do_no_harm():
    pairs = reward_bench_pairs(seed=2)
    more = pairs.head(6).assign(domain="mtbench_gpt4", subset="mtbench_gpt4", id=[f"x{i}" for i in range(6)])
    whole = metrics.summary(pd.concat([pairs, more], ignore_index=True))
    pd.testing.assert_frame_equal(whole, metrics.summary(pairs))
    board = leaderboard(pd.concat([pairs, more], ignore_index=True))
    assert board["rank"].notna().sum() == 2


def test_chance_is_the_benchmarks():
    found = metrics.estimates(reward_bench_2_scores()).drop_duplicates(["quantity", "name"]).set_index("name")["chance"]
    assert found["factuality"] == 0.25
    assert np.isnan(found["ties"])
    assert np.isnan(found["overall"])
    assert (metrics.estimates(reward_bench_pairs())["chance"].dropna() == 0.5).all()


def test_a_section_without_items_is_missing_by_any_average():
    pairs = reward_bench_pairs(seed=3)
    math = pairs[pairs["subset"] == "math-prm"]
    for average in ("benchmark", "domains", "prompts"):
        table = metrics.summary(math, average=average)
        assert table[["chat", "chat_hard", "safety", "prior_sets"]].isna().all(axis=None), average
        found = metrics.estimates(math, average=average).set_index("name")
        assert (found.loc["chat", "reason"].str.startswith("nothing")).all()
    assert metrics.summary(math, average="prompts")["overall"].notna().all()
