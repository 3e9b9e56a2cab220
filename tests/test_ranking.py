"""Ranks and letters: laws, and equality with the comparisons that they count."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmlab import metrics, stats
from rmlab.stats.ranking import group_letters


@pytest.fixture
def pairs(make_scores):
    sizes = {"chat": 9, "math": 12, "code": 7, "safety-refuse": 8, "safety-response": 6}
    return metrics.pairs(make_scores(sizes, models=("a", "b", "c", "d"), seed=1))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(0, 10_000), st.floats(0, 1))
def test_two_share_a_letter_exactly_if_they_do_not_differ(n, seed, chance):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((n, n)) < chance, 1)
    differ = upper | upper.T
    shown = group_letters(differ)
    assert all(shown)
    for i in range(n):
        for j in range(i):
            assert bool(set(shown[i]) & set(shown[j])) == (not differ[i, j])


def test_letters_go_on_after_the_alphabet():
    shown = group_letters(~np.eye(60, dtype=bool))
    assert len(set(shown)) == 60
    assert shown[51:54] == ["Z", "a2", "b2"]


def test_ranks_follow_the_overall_score(pairs):
    table = stats.rank(pairs)
    summary = metrics.summary(pairs).set_index("model")["overall"]
    assert table["value"].tolist() == pytest.approx(summary.sort_values(ascending=False).tolist())
    assert table["rank"].tolist() == [1, 2, 3, 4]
    assert table["rank"].dtype == "Int64"
    assert (table["rank_low"] <= table["rank"]).all()
    assert (table["rank"] <= table["rank_high"]).all()
    again = stats.rank(pairs.sample(frac=1, random_state=0).sort_values("model", kind="stable"))
    assert again["model"].tolist() == table["model"].tolist()
    assert again["rank"].tolist() == table["rank"].tolist()


def test_a_model_with_a_blank_domain_stands_last_without_a_rank(pairs):
    gap = (pairs["model"] == "a") & (pairs["domain"] == "code")
    gaps = pairs.assign(outcome=pairs["outcome"].where(~gap), margin=pairs["margin"].where(~gap))
    last = stats.rank(gaps).iloc[-1]
    assert last["model"] == "a"
    assert pd.isna(last["rank"])
    assert [last["group"], last["missing"]] == ["", 63]
    assert "code" in last["reason"]
    assert stats.rank(gaps, average="prompts")["rank"].notna().all()
    nobody = stats.rank(pairs.assign(outcome=pairs["outcome"].where(pairs["domain"] != "code")))
    assert nobody["rank"].isna().all()


def test_equal_models_share_all_their_places(pairs):
    names = [f"model {place * 7 % 20}" for place in range(20)]
    twins = pd.concat([pairs[pairs["model"] == "a"].assign(model=name) for name in names])
    table = stats.rank(twins)
    assert table["model"].tolist() == names
    assert (table[["rank", "rank_low", "rank_high"]] == [1, 1, 20]).all(axis=None)


def test_places_leave_out_those_who_are_clearly_better_or_worse(pairs):
    rng, strength = np.random.default_rng(0), pairs["model"].map({"a": 0.0, "b": 0.0, "c": 0.5, "d": 0.9})
    field = pairs.assign(outcome=pairs["outcome"].where(rng.random(len(pairs)) > strength, "win"), margin=np.nan)
    ranks, table = stats.rank(field).set_index("model"), stats.compare_all(field)
    is_clear, leads = table["p_holm"] < 0.05, table["difference"] > 0
    winners = table["model_a"].where(leads, table["model_b"])[is_clear]
    losers = table["model_b"].where(leads, table["model_a"])[is_clear]
    assert 0 < len(winners) < 6
    for model, row in ranks.iterrows():
        assert [row["rank_low"], row["rank_high"]] == [1 + (losers == model).sum(), 4 - (winners == model).sum()]


def test_beyond_many_models_places_have_no_range_and_the_reason_says_so(pairs, monkeypatch):
    full = stats.rank(pairs)
    monkeypatch.setattr("rmlab.stats.ranking.MOST_MODELS", 2)
    short = stats.rank(pairs)
    left_out = ["rank_low", "rank_high", "group", "reason"]
    pd.testing.assert_frame_equal(short.drop(columns=left_out), full.drop(columns=left_out))
    assert short["rank_low"].isna().all()
    assert (short["reason"] != "").all()
