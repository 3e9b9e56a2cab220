"""Standings of many models at once: the same scores, ranks and letters as the statistics of two."""

import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import reward_bench_2_scores, reward_bench_pairs

from rmlab import benchmarks, metrics, report, scoring, stats, toy
from rmlab.report import standings


@pytest.fixture(scope="module")
def scores():
    mini = benchmarks.load("mini")
    models = [toy.scorer(mini, skill=k, style=s, name=f"toy {k} {s}") for k in (0.5, 2.0) for s in (0.0, 1.0)]
    return scoring.score(mini, models, progress=False)


def test_standings_hold_the_overall_score_of_every_benchmark(scores):
    pairs, own = metrics.pairs(scores), reward_bench_pairs(prior_sets=True, sizes=(6, 12))
    found = standings.from_pairs(pairs, "rm-bench")
    np.testing.assert_allclose(found.mean.value, metrics.rm_bench(pairs)["overall"])
    found = standings.from_pairs(own, "reward-bench")
    np.testing.assert_allclose(found.mean.value, metrics.reward_bench(own)["overall"])
    np.testing.assert_allclose(found.se, metrics.reward_bench(own)["se"])
    two = reward_bench_2_scores(seed=5, n=30)
    found, table = standings.from_scores(two), metrics.reward_bench_2(two)
    for column in ("overall", "se", "low", "high"):
        mine = found.mean.value if column == "overall" else getattr(found, column)
        np.testing.assert_allclose(mine, table[column], atol=2e-3)  # Ties' limits are the summary's own


def test_ranks_and_groups_are_those_of_the_resampling_statistics(scores):
    pairs = metrics.pairs(scores)
    board = report.leaderboard(pd.concat([scores, scores.iloc[:0]])).query("kind == 'model'").set_index("model")
    slow = stats.rank(pairs).set_index("model")
    for column in ("rank", "rank_low", "rank_high"):
        assert board[column].tolist() == slow.loc[board.index, column].tolist(), column
    contests = stats.compare_all(pairs)
    found = standings.from_pairs(pairs, "rm-bench")
    p = pd.DataFrame(standings.paired_p(found), index=found.models, columns=found.models)
    fast = [p.loc[a, b] for a, b in zip(contests["model_a"], contests["model_b"], strict=True)]
    np.testing.assert_allclose(np.sqrt(fast), np.sqrt(contests["p"]), atol=0.02)


def test_paired_p_is_students_t_on_one_stratum():
    from scipy.stats import ttest_rel

    rng = np.random.default_rng(0)
    rows = [("b", "d", str(i), 0, 0) for i in range(40)]
    key = ["benchmark", "domain", "id", "chosen_slot", "rejected_slot"]
    margins = {m: rng.normal(shift, 1, 40) for m, shift in (("a", 0.0), ("b", 0.4))}
    pairs = pd.concat([pd.DataFrame(rows, columns=key).assign(model=m, margin=x) for m, x in margins.items()])
    p = standings.paired_p(standings.from_pairs(pairs, "own"))
    expected = ttest_rel(*((margins[m] > 0).astype(float) for m in "ab")).pvalue
    assert p[0, 1] == pytest.approx(expected)
    assert p[0, 0] == p[1, 1] == 1


def test_identical_models_share_a_letter_and_few_prompts_never_differ(make_scores):
    one = make_scores(models=("a",))
    twins = pd.concat([one, one.assign(model="b")])
    board = report.leaderboard(twins).query("kind == 'model'")
    assert set(board["group"]) == {"a"}
    rows = [("m", "b", "d", str(i), 0, 0, 1.0) for i in range(3)]
    rows += [("n", "b", "d", str(i), 0, 0, -1.0) for i in range(3)]
    key = ["model", "benchmark", "domain", "id", "chosen_slot", "rejected_slot", "margin"]
    p = standings.paired_p(standings.from_pairs(pd.DataFrame(rows, columns=key), "own"))
    assert p[0, 1] == 0.25, "three prompts can give no smaller p"


def test_too_few_prompts_leave_a_rank_without_an_interval(make_scores):
    sizes = {"chat": 4, "math": 9, "code": 9, "safety-refuse": 9}
    board = report.leaderboard(make_scores(sizes, models=("a", "b"))).query("kind == 'model'")
    assert board["rank"].tolist() == [1, 2]
    assert board[["rank_low", "rank_high"]].isna().all(axis=None)
    assert "1 (" not in report.to_markdown(board)
    four, five = (report.leaderboard(reward_bench_2_scores(n=n)).query("kind == 'model'") for n in (4, 5))
    assert four["rank"].tolist() == five["rank"].tolist() == [1, 2]
    assert four["rank_low"].isna().all()
    assert five["rank_low"].notna().all()
