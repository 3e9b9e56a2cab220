"""Published numbers beside computed ones: every rule found where it is planted, and the
real leaderboard.
"""

import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import reward_bench_2_scores, reward_bench_pairs

from rmlab import metrics, tables
from rmlab.benchmarks import benchmarks_by_name
from rmlab.io import read_pairs
from rmlab.papers import audit_leaderboard, published, reproduce
from rmlab.tables import DataError


def printed(table, digits=4):
    """A leaderboard: some columns, rounded."""
    return table.drop(
        columns=[
            "se",
            "low",
            "high",
            "n_prompts",
            "n_ties",
            "missing",
            "average",
            "reason",
        ],
        errors="ignore",
    ).round(digits)


def rules(benchmark):
    return benchmarks_by_name()[benchmark].variants


def counted(table, benchmark, rule):
    """The benchmark's numbers by another rule of counting; a mean of RM-Bench also
    under its other two names.
    """
    table = metrics.summary(table, **rules(benchmark)[rule])
    if benchmark == "rm-bench":
        table = table.assign(
            domain_avg=table["overall"], difficulty_avg=table["overall"]
        )
    return table.dropna(axis=1, how="all")


def test_the_audit_finds_the_known_contradictions_and_no_others():
    """The sources of two rows print other numbers; the rest is a plain loop over the
    board.
    """
    expected = {
        ("DeepSeek R1", "contradicts its source", name)
        for name in ("math", "code", "difficulty_avg")
    }
    expected |= {
        ("RM-R1-Qwen-Instruct-32B", "contradicts its source", name)
        for name in ("math", "code")
    }
    board = published("rm-bench")
    for row in board.itertuples():
        domains = (row.chat + row.math + row.code + row.safety) / 4
        levels = (row.easy + row.normal + row.hard) / 3
        if abs(domains - levels) > 0.0015:
            expected.add((row.model, "domain mean is not the level mean", "domain_avg"))
        if abs(row.overall - domains) > 0.0015 and abs(row.overall - levels) > 0.0015:
            expected.add((row.model, "overall is neither mean", "overall"))
    findings = audit_leaderboard(board)
    found = set(
        findings[["model", "check", "quantity"]].itertuples(index=False, name=None)
    )
    assert found == expected
    assert len({check for _, check, _ in found}) == 3


def by_number(frame, model="a"):
    return frame[frame["model"] == model].set_index("quantity")


def test_equal_and_rounded_numbers_are_named_as_such(make_scores):
    pairs = metrics.pairs(make_scores())
    exact = reproduce(
        pairs, metrics.summary(pairs)[["model", "chat", "hard", "overall"]]
    )
    assert (exact["rule"] == "equal").all()
    assert (exact["difference"] == 0).all()
    rough = reproduce(pairs, printed(metrics.summary(pairs), 3))
    assert set(rough["rule"]) <= {"equal", "rounding"}
    assert rough["difference"].abs().max() <= 0.0005
    assert len(rough) == 2 * 8


def test_numbers_cut_off_instead_of_rounded(make_scores):
    pairs = metrics.pairs(
        make_scores(
            {"chat": 7, "math": 7, "code": 7, "safety-refuse": 7, "safety-response": 4}
        )
    )
    table = metrics.summary(pairs)[["model", *tables.LEVELS, "overall"]].set_index(
        "model"
    )
    cut = (np.floor(table * 1000) / 1000).reset_index()
    found = reproduce(pairs, cut)
    assert set(found["rule"]) <= {"cut off", "rounding", "equal"}
    assert "cut off" in set(found["rule"])


VARIANTS = [
    (name, rule)
    for name in ("rm-bench", "reward-bench", "reward-bench-2")
    for rule in rules(name)
]
SIZES = {"chat": 9, "math": 8, "code": 7, "safety-refuse": 9, "safety-response": 4}


@pytest.mark.parametrize(("benchmark", "rule"), VARIANTS)
def test_a_planted_rule_is_found(make_scores, benchmark, rule):
    table = {
        "rm-bench": lambda: make_scores(SIZES, seed=4),
        "reward-bench": lambda: reward_bench_pairs(seed=1, prior_sets=True),
        "reward-bench-2": lambda: reward_bench_2_scores(seed=1),
    }[benchmark]()
    found = reproduce(table, counted(table, benchmark, rule), decimals=9)
    differs = found["rule"] != "equal"
    assert set(found.loc[differs, "rule"]) == {rule}
    np.testing.assert_allclose(
        found.loc[differs, "by_rule"], found.loc[differs, "published"]
    )


def test_strict_best_of_four_is_what_a_plain_loop_says():
    scores = reward_bench_2_scores(seed=2)
    strict = counted(
        scores, "reward-bench-2", "a shared best score is a loss"
    ).set_index("model")
    won = []
    for _, prompt in scores[
        (scores["domain"] == "Math") & (scores["model"] == "a")
    ].groupby("id"):
        chosen = prompt.loc[prompt["label"] == "chosen", "score"].item()
        won.append(chosen > prompt.loc[prompt["label"] == "rejected", "score"].max())
    assert strict.loc["a", "math"] == pytest.approx(np.mean(won))


def test_swapped_columns_and_unexplained_numbers(make_scores):
    pairs = metrics.pairs(make_scores(SIZES, seed=4))
    table = metrics.summary(pairs)[["model", "chat", "math", "code", "overall"]]
    swapped = table.assign(
        math=table["code"], code=table["math"], overall=table["overall"] + 0.2
    )
    found = by_number(reproduce(pairs, swapped, decimals=9))
    assert (
        found.loc[["math", "code"], "rule"].tolist()
        == ["math and code are swapped"] * 2
    )
    assert found.loc["math", "by_rule"] == found.loc["math", "published"]
    assert found.loc["overall", "rule"] == ""
    assert np.isnan(found.loc["overall", "by_rule"])


def test_somebody_elses_items_are_compared_one_by_one(make_scores):
    ours, theirs = make_scores(seed=0), make_scores(seed=1)
    found = by_number(reproduce(ours, theirs))
    a, b = metrics.pairs(ours), metrics.pairs(theirs)
    same = (a["outcome"].to_numpy() == b["outcome"].to_numpy()) & (
        a["model"] == "a"
    ).to_numpy()
    mine = (a["model"] == "a").to_numpy()
    assert found.loc["overall", "agreement"] == pytest.approx(same[mine].mean())
    hard = mine & (a["level"] == "hard").to_numpy()
    assert found.loc["hard", "agreement"] == pytest.approx(same[hard].mean())
    assert found.loc["chat", "n_pairs"] == 45
    assert found.loc["overall", "published"] == pytest.approx(
        metrics.summary(b).set_index("model").loc["a", "overall"]
    )
    assert (
        reproduce(ours, published("rm-bench").assign(model="a").head(1))["agreement"]
        .isna()
        .all()
    )


def test_models_are_matched_by_name_and_the_others_named(make_scores):
    pairs = metrics.pairs(make_scores(models=("a", "b", "c")))
    table = metrics.summary(pairs)[["model", "overall"]].replace(
        {"model": {"b": "owner/b", "c": "other"}}
    )
    found = reproduce(pairs, table, names={"b": "owner/b"})
    assert found["model"].tolist() == ["a", "b"]
    assert found.attrs == {"only_ours": ["c"], "only_published": ["other"]}


def test_a_domain_that_is_not_there_is_not_computed(make_scores):
    pairs = metrics.pairs(make_scores({"chat": 5, "math": 4}))
    found = by_number(
        reproduce(pairs, pd.DataFrame({"model": ["a"], "chat": [0.123], "code": [0.5]}))
    )
    assert found.loc["code", "rule"] == "not computed: items are missing"
    assert np.isnan(found.loc["code", "computed"])


def test_headers_of_leaderboards_are_understood():
    scores = reward_bench_2_scores(seed=1)
    table = metrics.summary(scores)
    board = pd.DataFrame(
        {
            "model": table["model"],
            "Score": table["overall"],
            "Precise IF": table["precise_if"],
        }
    )
    assert set(reproduce(scores, board)["quantity"]) == {"overall", "precise_if"}


def test_bad_input_says_what_it_is(make_scores):
    pairs = metrics.pairs(make_scores())
    table, two = (
        metrics.summary(pairs)[["model", "overall"]],
        reward_bench_2_scores(seed=0),
    )
    for ours, theirs, message in (
        (pairs, table.assign(overall=71.2), r"71.2 in column 'overall' is not a share"),
        (
            pairs,
            table.rename(columns={"overall": "points"}),
            r"published: no column 'model'",
        ),
        (pairs, pd.concat([table, table]), r"published: 'a'"),
        (pairs, table.assign(model=["x", "y"]), r"published: .*theirs: x, y"),
        (pairs, table.assign(overall="n/a"), r"published: .*n/a"),
        (pairs, published("reward-bench-2"), r"published: .*reward-bench-2.*rm-bench"),
        (pairs, two, r"published: .*reward-bench-2.*rm-bench"),
        (metrics.pairs(two), table, "RewardBench 2"),
        (pairs.assign(benchmark="mine", subset="mine"), table, r"ours: .*RM-Bench"),
    ):
        with pytest.raises(DataError, match=message):
            reproduce(ours, theirs)
    with pytest.raises(TypeError, match=r"published: a str"):
        reproduce(pairs, "rm-bench")


@pytest.fixture(scope="module")
def board(shared_data):
    pairs = read_pairs(
        shared_data / "rewardbench" / "response_matrix.torch_measure.csv"
    )
    table = pd.read_csv(
        shared_data / "rewardbench" / "leaderboard.every_eval_ever.csv"
    ).drop_duplicates("model")
    return reproduce(pairs, table)


def test_the_real_leaderboard_comes_out_for_all_99_models(board):
    sections = board[
        board["quantity"].isin(["chat", "chat_hard", "safety", "reasoning"])
    ]
    assert board["model"].nunique() == 99
    assert len(sections) == 4 * 99
    assert sections["difference"].abs().max() <= 5e-5 + 1e-12
    assert set(sections["rule"]) <= {"equal", "rounding"}


def test_every_overall_of_the_real_leaderboard_is_explained(board):
    overall = board[board["quantity"] == "overall"]
    assert set(overall["rule"]) <= {
        "equal",
        "rounding",
        "with the prior sets as printed",
    }
    prior = overall[overall["rule"] == "with the prior sets as printed"]
    assert (prior["by_rule"] - prior["published"]).abs().max() < 1e-4
    assert set(board.loc[board["quantity"] == "prior_sets", "rule"]) == {
        "not computed: items are missing"
    }
