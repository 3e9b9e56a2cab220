"""Published numbers beside computed ones: every rule found where it is planted, and the real leaderboard."""

import json

import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import reward_bench_2_scores, reward_bench_pairs

from rmlab import metrics, tables
from rmlab.benchmarks import known
from rmlab.io import read_pairs
from rmlab.papers import agreement, reproduce
from rmlab.papers.printed import published
from rmlab.papers.reproduction import counted
from rmlab.tables import DataError


def printed(table, digits=4):
    """A leaderboard: some columns, rounded."""
    return table.drop(
        columns=["se", "low", "high", "n_prompts", "n_ties", "missing", "average", "reason"], errors="ignore"
    ).round(digits)


def by_number(frame, model="a"):
    return frame[frame["model"] == model].set_index("quantity")


def test_equal_and_rounded_numbers_are_named_as_such(make_scores):
    pairs = metrics.pairs(make_scores())
    exact = reproduce(pairs, metrics.rm_bench(pairs)[["model", "chat", "hard", "overall"]])
    assert (exact["rule"] == "equal").all()
    assert (exact["difference"] == 0).all()
    rough = reproduce(pairs, printed(metrics.rm_bench(pairs), 3))
    assert set(rough["rule"]) <= {"equal", "rounding"}
    assert rough["difference"].abs().max() <= 0.0005
    assert len(rough) == 2 * 8


def test_numbers_cut_off_instead_of_rounded(make_scores):
    pairs = metrics.pairs(make_scores({"chat": 7, "math": 7, "code": 7, "safety-refuse": 7, "safety-response": 4}))
    table = metrics.rm_bench(pairs)[["model", *tables.LEVELS, "overall"]].set_index("model")
    cut = (np.floor(table * 1000) / 1000).reset_index()
    found = reproduce(pairs, cut)
    assert set(found["rule"]) <= {"cut off", "rounding", "equal"}
    assert "cut off" in set(found["rule"])


@pytest.mark.parametrize("words", known()["rm-bench"].variants)
def test_a_planted_rule_of_rm_bench_is_found(make_scores, words):
    scores = make_scores({"chat": 9, "math": 8, "code": 7, "safety-refuse": 9, "safety-response": 4}, seed=4)
    benchmark = known()["rm-bench"]
    made = counted(scores, benchmark, benchmark.variants[words])
    numbers = made.dropna(axis=1, how="all").reset_index()
    found = reproduce(scores, numbers, decimals=9)
    differs = found["rule"] != "equal"
    assert set(found.loc[differs, "rule"]) == {words}
    np.testing.assert_allclose(found.loc[differs, "by_rule"], found.loc[differs, "published"])


@pytest.mark.parametrize("words", known()["reward-bench"].variants)
def test_a_planted_rule_of_reward_bench_is_found(words):
    pairs = reward_bench_pairs(seed=1, prior_sets=True)
    benchmark = known()["reward-bench"]
    made = counted(pairs, benchmark, benchmark.variants[words])
    numbers = made.dropna(axis=1, how="all").reset_index()
    found = reproduce(pairs, numbers, decimals=9)
    assert set(found.loc[found["rule"] != "equal", "rule"]) == {words}


@pytest.mark.parametrize("words", known()["reward-bench-2"].variants)
def test_a_planted_rule_of_reward_bench_2_is_found(words):
    scores = reward_bench_2_scores(seed=1)
    benchmark = known()["reward-bench-2"]
    made = counted(scores, benchmark, benchmark.variants[words])
    numbers = made.dropna(axis=1, how="all").reset_index()
    found = reproduce(scores, numbers, decimals=9)
    assert set(found.loc[found["rule"] != "equal", "rule"]) == {words}


def test_strict_best_of_four_is_what_a_plain_loop_says():
    scores = reward_bench_2_scores(seed=2)
    strict = counted(
        scores, known()["reward-bench-2"], known()["reward-bench-2"].variants["a shared best score is a loss"]
    )
    won = []
    for _, prompt in scores[(scores["domain"] == "Math") & (scores["model"] == "a")].groupby("id"):
        chosen = prompt.loc[prompt["label"] == "chosen", "score"].item()
        won.append(chosen > prompt.loc[prompt["label"] == "rejected", "score"].max())
    assert strict.loc["a", "math"] == pytest.approx(np.mean(won))


def test_swapped_columns_and_unexplained_numbers(make_scores):
    pairs = metrics.pairs(
        make_scores({"chat": 9, "math": 8, "code": 7, "safety-refuse": 9, "safety-response": 4}, seed=4)
    )
    table = metrics.rm_bench(pairs)[["model", "chat", "math", "code", "overall"]]
    swapped = table.assign(math=table["code"], code=table["math"], overall=table["overall"] + 0.2)
    found = by_number(reproduce(pairs, swapped, decimals=9))
    assert found.loc[["math", "code"], "rule"].tolist() == ["math and code are swapped"] * 2
    assert found.loc["math", "by_rule"] == found.loc["math", "published"]
    assert found.loc["overall", "rule"] == ""
    assert np.isnan(found.loc["overall", "by_rule"])


def test_somebody_elses_items_are_compared_one_by_one(make_scores):
    ours, theirs = make_scores(seed=0), make_scores(seed=1)
    found = by_number(reproduce(ours, theirs))
    a, b = metrics.pairs(ours), metrics.pairs(theirs)
    same = (a["outcome"].to_numpy() == b["outcome"].to_numpy()) & (a["model"] == "a").to_numpy()
    mine = (a["model"] == "a").to_numpy()
    assert found.loc["overall", "agreement"] == pytest.approx(same[mine].mean())
    hard = mine & (a["level"] == "hard").to_numpy()
    assert found.loc["hard", "agreement"] == pytest.approx(same[hard].mean())
    assert found.loc["chat", "n_pairs"] == 45
    assert found.loc["overall", "published"] == pytest.approx(
        metrics.rm_bench(b).set_index("model").loc["a", "overall"]
    )
    assert reproduce(ours, published("rm-bench").assign(model="a").head(1))["agreement"].isna().all()


def test_agreement_counts_every_kind_of_pair(make_scores):
    a, b = metrics.pairs(make_scores(seed=0)), metrics.pairs(make_scores(seed=1))
    b.loc[b.index[3], "outcome"] = None
    table = agreement(a, b.iloc[:-2], by=["model", "domain"])
    assert table["n_pairs"].sum() + table["missing"].sum() == len(a) - 2
    assert table.attrs == {"only_in_a": 2, "only_in_b": 0}
    assert table["missing"].sum() == 1
    few = table["n_prompts"] < 5
    assert 0 < few.sum() < len(table)
    assert table.loc[few, ["low", "high"]].isna().all(axis=None)
    assert table.loc[~few, "agreement"].between(table.loc[~few, "low"], table.loc[~few, "high"]).all()
    itself = agreement(a, a)
    assert itself["agreement"].tolist() == [1.0, 1.0]
    assert itself[["only_a", "only_b"]].to_numpy().sum() == 0
    merged = a.merge(b.iloc[:-2], on=["model", "benchmark", "domain", "id", "chosen_slot", "rejected_slot"])
    won = (merged["outcome_x"] == "win") & merged["outcome_y"].isin(["loss", "tie"])
    assert table["only_a"].sum() == won.sum()


def test_models_are_matched_by_name_and_the_others_named(make_scores):
    pairs = metrics.pairs(make_scores(models=("a", "b", "c")))
    table = metrics.rm_bench(pairs)[["model", "overall"]].replace({"model": {"b": "owner/b", "c": "other"}})
    found = reproduce(pairs, table, names={"b": "owner/b"})
    assert found["model"].tolist() == ["a", "b"]
    assert found.attrs == {"only_ours": ["c"], "only_published": ["other"]}


def test_a_domain_that_is_not_there_is_not_computed(make_scores):
    pairs = metrics.pairs(make_scores({"chat": 5, "math": 4}))
    found = by_number(reproduce(pairs, pd.DataFrame({"model": ["a"], "chat": [0.123], "code": [0.5]})))
    assert found.loc["code", "rule"] == "not computed: items are missing"
    assert np.isnan(found.loc["code", "computed"])


def test_headers_of_leaderboards_are_understood():
    scores = reward_bench_2_scores(seed=1)
    table = metrics.reward_bench_2(scores)
    board = pd.DataFrame({"model": table["model"], "Score": table["overall"], "Precise IF": table["precise_if"]})
    assert set(reproduce(scores, board)["quantity"]) == {"overall", "precise_if"}


def test_bad_input_says_what_it_is(make_scores):
    pairs = metrics.pairs(make_scores())
    table = metrics.rm_bench(pairs)[["model", "overall"]]
    with pytest.raises(DataError, match="not a share; divide the numbers by 100"):
        reproduce(pairs, table.assign(overall=71.2))
    with pytest.raises(DataError, match="no column 'model'"):
        reproduce(pairs, table.rename(columns={"overall": "points"}))
    with pytest.raises(DataError, match="has several rows"):
        reproduce(pairs, pd.concat([table, table]))
    with pytest.raises(DataError, match="none of our models"):
        reproduce(pairs, table.assign(model=["x", "y"]))
    with pytest.raises(DataError, match="not all cells are numbers"):
        reproduce(pairs, table.assign(overall="n/a"))
    with pytest.raises(DataError, match="looks like a table of reward-bench-2, ours are results of rm-bench"):
        reproduce(pairs, published("reward-bench-2"))
    with pytest.raises(DataError, match="results of reward-bench-2, ours of rm-bench"):
        reproduce(pairs, reward_bench_2_scores(seed=0))
    with pytest.raises(DataError, match="best of four, which pairs do not say"):
        reproduce(metrics.pairs(reward_bench_2_scores(seed=0)), table)
    with pytest.raises(DataError, match="nothing is published; pass the scores or pairs of one of RM-Bench"):
        reproduce(pairs.assign(benchmark="mine", subset="mine"), table)
    with pytest.raises(TypeError, match="a table such as"):
        reproduce(pairs, "rm-bench")
    with pytest.raises(DataError, match="no comparison stands in both"):
        agreement(pairs, pairs.assign(benchmark="mini"))
    with pytest.raises(DataError, match="by: 'levle' is not a column"):
        agreement(pairs, pairs, by="levle")


@pytest.fixture(scope="module")
def board(shared_data):
    pairs = read_pairs(shared_data / "rewardbench" / "response_matrix.torch_measure.csv")
    table = pd.read_csv(shared_data / "rewardbench" / "leaderboard.every_eval_ever.csv").drop_duplicates("model")
    return reproduce(pairs, table)


def test_the_real_leaderboard_comes_out_for_all_99_models(board):
    sections = board[board["quantity"].isin(["chat", "chat_hard", "safety", "reasoning"])]
    assert board["model"].nunique() == 99
    assert len(sections) == 4 * 99
    assert sections["difference"].abs().max() <= 5e-5 + 1e-12
    assert set(sections["rule"]) <= {"equal", "rounding"}


def test_every_overall_of_the_real_leaderboard_is_explained(board):
    overall = board[board["quantity"] == "overall"]
    assert set(overall["rule"]) <= {"equal", "rounding", "with the prior sets as printed"}
    prior = overall[overall["rule"] == "with the prior sets as printed"]
    assert (prior["by_rule"] - prior["published"]).abs().max() < 1e-4
    assert set(board.loc[board["quantity"] == "prior_sets", "rule"]) == {"not computed: items are missing"}


def test_real_scalar_scores_agree_with_the_matrix_item_by_item(shared_data):
    """Four of the nine models of the file agree on all 447 items, and internlm2-7b on 432."""
    with (shared_data / "rewardbench" / "math_prm_447.scores.rewardmath.jsonl").open() as file:
        rows = [json.loads(line) for line in file]
    scores = pd.DataFrame(
        [
            (model, "reward-bench", "math-prm", row["id"], label, 0, sides[label])
            for row in rows
            for model, sides in row["scores"].items()
            for label in tables.LABELS
        ],
        columns=["model", *tables.KEY, "score"],
    )
    matrix = read_pairs(shared_data / "rewardbench" / "response_matrix.torch_measure.csv")
    table = agreement(metrics.pairs(scores), matrix).set_index("model")
    whole = table.index[table["agreement"] == 1]
    assert {"Ray2333/GRM-Gemma-2B-rewardmodel-ft", "Skywork/Skywork-Reward-Llama-3.1-8B"} <= set(whole)
    assert len(whole) == 4
    assert (table["n_pairs"] == 447).all()
    assert round(table.loc["internlm/internlm2-7b-reward", "agreement"] * 447) == 432
