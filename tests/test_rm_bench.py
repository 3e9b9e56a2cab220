"""RM-Bench's summary: nested loops as oracle, what is missing, what is refused."""

import numpy as np
import oracles
import pandas as pd
import pytest

from rmlab import metrics, report
from rmlab.tables import DataError

ENOUGH = dict.fromkeys(("chat", "math", "code", "safety-refuse", "safety-response"), 6)
DOMAINS = ["chat", "math", "code", "safety"]
LEVELS = ["easy", "normal", "hard"]


def summary_of(table, **options):
    return metrics.summary(table, **options).set_index("model")


@pytest.mark.parametrize("seed", range(5))
def test_rm_bench_equals_the_nested_loops(make_scores, seed):
    scores = make_scores(seed=seed)
    table = summary_of(metrics.pairs(scores))
    for model in ("a", "b"):
        expected = oracles.rm_bench(oracles.rows_of(scores, model))
        found = table.loc[model, [*expected]].to_dict()
        assert found == pytest.approx(expected, abs=1e-14)
    for columns in (DOMAINS, LEVELS):
        mean = table[columns].mean(axis=1)
        np.testing.assert_allclose(mean, table["overall"], atol=1e-15)


def test_overall_error_is_the_stratified_formula(make_scores):
    pairs = metrics.pairs(make_scores(ENOUGH, seed=11))
    wins = pairs.assign(win=(pairs["outcome"] == "win").astype(float))
    prompt = wins[wins["model"] == "a"].groupby(["domain", "id"])["win"].mean()
    variance = sum(s.var(ddof=1) / len(s) for _, s in prompt.groupby("domain"))
    assert summary_of(pairs).loc["a", "se"] == pytest.approx(np.sqrt(variance) / 4)


def test_a_prompt_with_absent_scores_is_refused_not_averaged(make_scores):
    scores = make_scores(ENOUGH)
    of_prompt = (scores["model"] == "b") & (scores["id"] == "math/1")
    unscored = of_prompt & (scores["style"] == "plain")
    pairs = metrics.pairs(scores[~(unscored & (scores["label"] == "rejected"))])
    plain = metrics.pairs(scores[scores["style"] == "plain"])
    twice = pd.concat([metrics.pairs(scores), metrics.pairs(scores).iloc[:2]])
    without_styles = pairs.drop(columns=["chosen_style", "rejected_style"])
    one_model = pairs[pairs["model"] == "b"]
    for function, table, message in [
        (metrics.summary, pairs, r"1 prompts are not the 9 .*'math/1'.*'b'"),
        (report.leaderboard, one_model, "are not the 9 comparisons"),
        (metrics.summary, plain, "60 prompts are not the 9"),
        (metrics.summary, twice, "2 rows repeat a key"),
        (metrics.summary, without_styles, "1 prompts"),
    ]:
        with pytest.raises(DataError, match=message):
            function(table)
    # Other tables take prompts of any size, and a prompt that a model lacks altogether
    # is no hole in it.
    assert metrics.accuracy(pairs)["n_pairs"].tolist() == [270, 267]
    assert (metrics.accuracy(plain)["n_pairs"] == 30).all()
    shard = summary_of(metrics.pairs(scores[~of_prompt]))
    assert shard["n_prompts"].tolist() == [30, 29]
    whole = summary_of(metrics.pairs(scores))
    pd.testing.assert_frame_equal(shard.head(1), whole.head(1))
    # A missing score is a row: counted as missing, in a table of its own column.
    gaps = scores.assign(score=scores["score"].mask(unscored))
    assert summary_of(metrics.pairs(gaps))["missing"].tolist() == [0, 5]


def test_an_absent_domain_makes_the_summary_missing_not_smaller(make_scores):
    scores = make_scores()
    table = metrics.summary(metrics.pairs(scores[scores["domain"] != "math"]))
    assert table[["math", *LEVELS, "overall", "se"]].isna().all(axis=None)
    assert table[["chat", "code", "safety"]].notna().all(axis=None)


@pytest.mark.parametrize("safety", ["pooled", "split"])
def test_half_of_safety_is_not_safety(make_scores, safety):
    scores = make_scores(seed=1)
    half = scores[(scores["model"] == "a") | (scores["subset"] != "safety-response")]
    table = summary_of(metrics.pairs(half), safety=safety)
    whole = summary_of(metrics.pairs(scores), safety=safety)
    assert table.loc["b", ["safety", *LEVELS, "overall", "se"]].isna().all()
    assert "safety-response" in table.loc["b", "reason"]
    pd.testing.assert_series_equal(table.loc["a"], whole.loc["a"])


def test_safety_pools_prompts_unless_split(make_scores):
    pairs = metrics.pairs(make_scores(seed=1))
    pooled = summary_of(pairs)["safety"]
    table = summary_of(pairs, safety="split")
    np.testing.assert_allclose(table["overall"], table[DOMAINS].mean(axis=1))
    split = table["safety"]
    wins = pairs.assign(win=pairs["outcome"] == "win")
    part = wins.groupby(["model", "subset"])["win"].mean().unstack()
    refuse, response = part["safety-refuse"], part["safety-response"]
    np.testing.assert_allclose(split, (refuse + response) / 2)
    np.testing.assert_allclose(pooled, (4 * refuse + 2 * response) / 6)


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
    is_known = pairs["subset"] != "safety-refuse"
    with pytest.raises(DataError, match=r"subset .*108 of 540 "):
        metrics.summary(pairs.assign(subset=pairs["subset"].where(is_known)))
    without = pairs.drop(columns="subset")
    pd.testing.assert_frame_equal(metrics.summary(without), metrics.summary(pairs))
    with pytest.raises(DataError, match="safety"):
        metrics.summary(without, safety="split")
