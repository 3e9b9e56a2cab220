"""Ranks and letters: laws, and equality with the comparisons that they count."""

import designs
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rmlab
from rmlab import metrics, stats
from rmlab.stats.ranking import group_letters, rank_columns


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
    assert last["reason"].startswith("nothing in code; compare the parts with by='domain'")
    assert stats.rank(gaps, average="prompts")["rank"].notna().all()
    nobody = stats.rank(pairs.assign(outcome=pairs["outcome"].where(pairs["domain"] != "code")))
    assert nobody["rank"].isna().all()
    assert nobody["reason"].str.startswith("nothing in code").all()


def test_equal_models_share_all_their_places(pairs):
    twins = pd.concat([pairs[pairs["model"] == "a"].assign(model=name) for name in "xyz"])
    table = stats.rank(twins)
    assert table["rank"].tolist() == [1, 1, 1]
    assert table["rank_low"].tolist() == [1, 1, 1]
    assert table["rank_high"].tolist() == [3, 3, 3]


def names(field):
    return {m: set(g) for m, g in zip(field["model"], field["group"], strict=True)}


def test_sets_letters_and_p_values_are_one_decision(pairs):
    stronger = [pairs.assign(model=pairs["model"] + f"+{k}", outcome=pairs["outcome"].where(
        np.random.default_rng(k).random(len(pairs)) > 0.2 * k, "win"), margin=np.nan) for k in range(4)]  # fmt: skip
    field = pd.concat(stronger)
    ranks, table = stats.rank(field).set_index("model"), stats.compare_all(field)
    shown = names(ranks.reset_index())
    better = dict.fromkeys(ranks.index, 0)
    for row in table.itertuples():
        apart = row.p_holm < 0.05
        assert apart == (not shown[row.model_a] & shown[row.model_b])
        assert not apart or row.p < 0.05
        assert (row.p < 0.05) == (row.low > 0 or row.high < 0)
        if apart:
            better[row.model_b if row.difference > 0 else row.model_a] += 1
    assert max(better.values()) > 0
    for model, n in better.items():
        assert ranks.loc[model, "rank_low"] == 1 + n


def test_three_of_many_prompts_do_not_order_two_models():
    n = 1327
    rows = [(m, "own", "all", str(i), 0, 0, "loss" if m == "b" and i < 3 else "win") for m in "ab" for i in range(n)]
    columns = ["model", "benchmark", "domain", "id", "chosen_slot", "rejected_slot", "outcome"]
    table = rmlab.tables.check_pairs(pd.DataFrame(rows, columns=columns))
    row = stats.compare(table, "a", "b").iloc[0]
    assert row["p"] == pytest.approx(0.225, abs=0.003)
    assert row["low"] < 0 < row["high"]
    ranks = stats.rank(table)
    assert ranks["rank_low"].tolist() == [1, 1]
    assert ranks["rank_high"].tolist() == [2, 2]
    assert ranks["group"].tolist() == ["a", "a"]


def test_sets_of_equal_models_hold_all_places():
    design, sizes, models, rng = designs.Design(advantage=(0.6,)), {"all": 80}, 6, np.random.default_rng(2)
    held = []
    for _ in range(60):
        margin = designs.margins(design, models, designs.prompts_in_common(1, rng, sizes), rng, sizes)
        ranks = rank_columns(designs.estimate_overall(designs.prepare_margins(margin, sizes, per=3)))
        held.append(((ranks["rank_low"] == 1) & (ranks["rank_high"] == models)).all())
    assert np.mean(held) == pytest.approx(0.95, abs=0.08)


def test_beyond_many_models_places_have_no_range_and_the_reason_says_so(pairs, monkeypatch):
    full = stats.rank(pairs)
    monkeypatch.setattr("rmlab.stats.ranking.MOST_MODELS", 2)
    short = stats.rank(pairs)
    left_out = ["rank_low", "rank_high", "group", "reason"]
    pd.testing.assert_frame_equal(short.drop(columns=left_out), full.drop(columns=left_out))
    assert short["rank_low"].isna().all()
    assert short["reason"].str.contains("at most 2 models").all()
