"""RM-Bench's summary: nested loops as oracle, what is missing, what is refused."""

import numpy as np
import oracles
import pandas as pd
import pytest

from rmlab import metrics, report
from rmlab.tables import DataError

ENOUGH = dict.fromkeys(("chat", "math", "code", "safety-refuse", "safety-response"), 6)


@pytest.mark.parametrize("seed", range(5))
def test_rm_bench_equals_the_nested_loops(make_scores, seed):
    scores = make_scores(seed=seed)
    table = metrics.summary(metrics.pairs(scores)).set_index("model")
    for model in ("a", "b"):
        for column, expected in oracles.rm_bench(
            oracles.rows_of(scores, model)
        ).items():
            assert table.loc[model, column] == pytest.approx(expected, abs=1e-14), (
                column
            )


def test_domain_mean_equals_level_mean_equals_overall(make_scores):
    table = metrics.summary(metrics.pairs(make_scores(seed=7)))
    np.testing.assert_allclose(
        table[["chat", "math", "code", "safety"]].mean(axis=1),
        table["overall"],
        atol=1e-15,
    )
    np.testing.assert_allclose(
        table[["easy", "normal", "hard"]].mean(axis=1), table["overall"], atol=1e-15
    )


def test_overall_error_is_the_stratified_formula(make_scores):
    scores = make_scores(ENOUGH, seed=11)
    pairs = metrics.pairs(scores).assign(
        win=lambda f: (f["outcome"] == "win").astype(float)
    )
    prompt = pairs[pairs["model"] == "a"].groupby(["domain", "id"])["win"].mean()
    variance = sum(s.var(ddof=1) / len(s) for _, s in prompt.groupby("domain"))
    table = metrics.summary(pairs.drop(columns="win")).set_index("model")
    assert table.loc["a", "se"] == pytest.approx(np.sqrt(variance) / 4)


def test_a_prompt_with_absent_scores_is_refused_not_averaged(make_scores):
    scores = make_scores(ENOUGH)
    whole = metrics.summary(metrics.pairs(scores))
    unscored = (
        (scores["model"] == "b")
        & (scores["id"] == "math/1")
        & (scores["style"] == "plain")
    )
    pairs = metrics.pairs(scores[~(unscored & (scores["label"] == "rejected"))])
    with pytest.raises(DataError) as refused:
        metrics.summary(pairs)
    for part in ("1 prompts", "'b'", "'math/1'"):
        assert part in str(refused.value)
    with pytest.raises(DataError, match="are not the 9 comparisons"):
        report.leaderboard(pairs[pairs["model"] == "b"])
    # Other tables take prompts of any size, and a prompt that a model lacks altogether
    # is no hole in it.
    assert metrics.accuracy(pairs).set_index("model")["n_pairs"].to_dict() == {
        "a": 270,
        "b": 267,
    }
    plain = metrics.pairs(scores[scores["style"] == "plain"])
    assert (metrics.accuracy(plain)["n_pairs"] == 30).all()
    with pytest.raises(DataError, match="60 prompts are not the 9"):
        metrics.summary(plain)
    shard = metrics.summary(
        metrics.pairs(scores[~((scores["model"] == "b") & (scores["id"] == "math/1"))])
    )
    assert shard["n_prompts"].tolist() == [30, 29]
    pd.testing.assert_frame_equal(shard.head(1), whole.head(1))
    # A missing score is a row: counted as missing, in a table of its own column.
    gaps = metrics.summary(
        metrics.pairs(scores.assign(score=scores["score"].mask(unscored)))
    )
    assert gaps["missing"].tolist() == [0, 5]
    twice = pd.concat([metrics.pairs(scores), metrics.pairs(scores).iloc[:2]])
    with pytest.raises(DataError, match="2 rows repeat a key"):
        metrics.summary(twice)
    with pytest.raises(DataError, match="1 prompts"):
        metrics.summary(pairs.drop(columns=["chosen_style", "rejected_style"]))


def test_an_absent_domain_makes_the_summary_missing_not_smaller(make_scores):
    scores = make_scores()
    table = metrics.summary(metrics.pairs(scores[scores["domain"] != "math"]))
    assert (
        table[["math", "easy", "normal", "hard", "overall", "se"]].isna().all(axis=None)
    )
    assert table[["chat", "code", "safety"]].notna().all(axis=None)


def test_half_of_safety_is_not_safety(make_scores):
    scores = make_scores(seed=1)
    half = scores[(scores["model"] == "a") | (scores["subset"] != "safety-response")]
    for safety in ("pooled", "split"):
        table = metrics.summary(metrics.pairs(half), safety=safety).set_index("model")
        whole = metrics.summary(metrics.pairs(scores), safety=safety).set_index("model")
        assert (
            table.loc["b", ["safety", "easy", "normal", "hard", "overall", "se"]]
            .isna()
            .all()
        )
        pd.testing.assert_series_equal(table.loc["a"], whole.loc["a"])
    unnamed = metrics.summary(metrics.pairs(scores.assign(subset=scores["domain"])))
    assert unnamed["overall"].notna().all()


def test_safety_pools_prompts_unless_split(make_scores):
    scores = make_scores(seed=1)
    pairs = metrics.pairs(scores)
    pooled = metrics.summary(pairs).set_index("model")["safety"]
    split = metrics.summary(pairs, safety="split").set_index("model")["safety"]
    parts = metrics.accuracy(
        pairs[pairs["domain"] == "safety"], by=["model", "subset"]
    ).set_index(["model", "subset"])
    for model in ("a", "b"):
        refuse, response = (
            parts.loc[(model, "safety-refuse"), "accuracy"],
            parts.loc[(model, "safety-response"), "accuracy"],
        )
        assert split[model] == pytest.approx((refuse + response) / 2)
        assert pooled[model] == pytest.approx((4 * refuse + 2 * response) / 6)


@pytest.mark.parametrize("column", ["model", "benchmark", "domain", "id"])
def test_a_prompt_or_model_without_a_name_is_refused(make_scores, column):
    pairs = metrics.pairs(make_scores(ENOUGH))
    for kind in ("str", "object", "category"):
        some = pairs.astype({column: kind})
        some.loc[some.index[9:18], column] = None
        with pytest.raises(DataError, match=rf"{column} .*\b9 of 540\b"):
            metrics.summary(some)


def test_safety_without_its_files_is_one_pool(make_scores):
    pairs = metrics.pairs(make_scores(ENOUGH))
    gaps = pairs.assign(
        subset=pairs["subset"].where(pairs["subset"] != "safety-refuse")
    )
    with pytest.raises(DataError, match=r"subset .*108 of 540 "):
        metrics.summary(gaps)
    without = pairs.drop(columns="subset")
    pd.testing.assert_frame_equal(metrics.summary(without), metrics.summary(pairs))
    with pytest.raises(DataError, match="safety"):
        metrics.summary(without, safety="split")
