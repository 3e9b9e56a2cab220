"""Ranks, letters, power and sensitivity: laws, and equality with the metrics they vary."""

import designs
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rmlab.stats.grid import credit

from rmlab import metrics, stats
from rmlab.plots import plot_rank
from rmlab.stats import comparing, ranking, targets
from rmlab.tables import DataError


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
    shown = stats.letters([str(i) for i in range(n)], differ)
    assert all(shown)
    for i in range(n):
        for j in range(i):
            assert bool(set(shown[i]) & set(shown[j])) == (not differ[i, j])


def test_letters_go_on_after_the_alphabet():
    shown = stats.letters([str(i) for i in range(60)], ~np.eye(60, dtype=bool))
    assert len(set(shown)) == 60
    assert shown[51:54] == ["Z", "a2", "b2"]


def test_ranks_follow_the_overall_score(pairs):
    table = stats.rank(pairs, resamples=500)
    summary = metrics.rm_bench(pairs).set_index("model")["overall"]
    assert table["value"].tolist() == pytest.approx(summary.sort_values(ascending=False).tolist())
    assert table["rank"].tolist() == [1, 2, 3, 4]
    assert table["rank"].dtype == "Int64"
    assert (table["rank_low"] <= table["rank"]).all()
    assert (table["rank"] <= table["rank_high"]).all()
    again = stats.rank(pairs.sample(frac=1, random_state=0).sort_values("model", kind="stable"), resamples=500)
    assert again["model"].tolist() == table["model"].tolist()
    assert again["rank"].tolist() == table["rank"].tolist()


def test_a_far_better_model_is_first_for_sure(pairs):
    star = pairs[pairs["model"] == "a"].assign(model="star", outcome="win", margin=9.0)
    table = stats.rank(pd.concat([pairs, star]), resamples=500)
    assert table.loc[0, ["model", "rank_low", "rank_high"]].tolist() == ["star", 1, 1]
    assert not set(table.loc[0, "group"]) & set("".join(table.loc[1:, "group"]))


def test_twins_share_rank_interval_and_group(pairs):
    twin = pd.concat([pairs, pairs[pairs["model"] == "b"].assign(model="twin")])
    table = stats.rank(twin, resamples=500).set_index("model")
    for column in ("value", "rank", "rank_low", "rank_high"):
        assert table.loc["b", column] == table.loc["twin", column], column
    assert set(table.loc["b", "group"]) & set(table.loc["twin", "group"])


def test_a_model_with_a_blank_domain_stands_last_without_a_rank(pairs):
    gap = (pairs["model"] == "a") & (pairs["domain"] == "code")
    blank = pairs.assign(outcome=pairs["outcome"].where(~gap), margin=pairs["margin"].where(~gap))
    last = stats.rank(blank, resamples=200).iloc[-1]
    assert last["model"] == "a"
    assert pd.isna(last["rank"])
    assert [last["group"], last["missing"], last["reason"]] == ["", 63, "a domain is blank"]
    assert stats.rank(blank, average="prompts", resamples=200)["rank"].notna().all()
    nobody = pairs.assign(outcome=pairs["outcome"].where(pairs["domain"] != "code"))
    with pytest.raises(DataError, match="no model has an overall score"):
        stats.rank(nobody, resamples=200)


def covered(gap, models=8, draws=300, confidence=0.95):
    """Share of true ranks in their intervals; neighbours lie `gap` standard errors of a difference apart."""
    sizes, rng = {"chat": 400}, np.random.default_rng(5)
    step = gap * 0.025 / 0.28  # error of a difference here; slope of accuracy by advantage
    ladder = [designs.Design(advantage=(0.3 + step * m,)) for m in range(models)]
    a, b = np.triu_indices(models, 1)
    everything, true, held = np.ones(sizes["chat"], bool), models - np.arange(models), []
    for _ in range(draws):
        common = designs.prompts_in_common(1, rng, sizes)
        margin = np.concatenate([designs.margins(d, 1, common, rng, sizes)[:, ::9] for d in ladder])
        table = designs.grid(margin, sizes)
        worth = credit(table.outcome, "loss")
        options = comparing.Options(confidence, 1, 0, False)
        found = comparing.paired(table, worth, targets.overall(table, "prompts"), everything, a, b, options)
        difference, least = np.full((2, models, models), np.nan)
        difference[a, b], difference[b, a] = found["difference"], -found["difference"]
        least[a, b], least[b, a] = found["low"], -found["high"]
        ranks = ranking.rank_columns(worth.mean(axis=1), difference, least, np.ones(models, bool))
        held.append((ranks["rank_low"] <= true) & (true <= ranks["rank_high"]))
    return np.mean(held)


def test_rank_intervals_hold_the_true_rank_as_often_as_they_say():
    assert 0.92 < covered(0.1) < 0.96
    assert 0.93 < covered(0.3) < 0.975  # 0.985 with whole half-widths, 0.90 with three fifths
    assert 0.86 < covered(0.3, confidence=0.9) < 0.95


def test_a_rank_interval_leaves_out_the_places_of_models_clearly_better_or_worse():
    value = np.array([0.9, 0.5, 0.6, np.nan])
    difference = value[:, None] - value
    sure = np.array([True, True, True, False])
    for half, low, high in ((0.1, [1, 3, 2], [1, 3, 2]), (0.2, [1, 2, 2], [1, 3, 3]), (0.6, [1, 1, 1], [3, 3, 3])):
        found = ranking.rank_columns(value, difference, difference - half, sure)
        assert found["rank"].tolist() == [1, 3, 2, pd.NA]
        assert found["rank_low"].tolist() == [*low, pd.NA]
        assert found["rank_high"].tolist() == [*high, pd.NA]
    found = ranking.rank_columns(value, difference, np.full((4, 4), np.nan), np.zeros(4, bool))
    assert found["rank"].tolist() == [1, 3, 2, pd.NA]
    assert found["rank_low"].isna().all()
    assert found["rank_high"].isna().all()


def test_equal_models_share_all_their_places(pairs):
    twins = pd.concat([pairs[pairs["model"] == "a"].assign(model=name) for name in "xyz"])
    table = stats.rank(twins, resamples=100)
    assert table["rank"].tolist() == [1, 1, 1]
    assert table["rank_low"].tolist() == [1, 1, 1]
    assert table["rank_high"].tolist() == [3, 3, 3]


def test_a_rank_has_no_interval_where_the_score_has_none(make_scores):
    table = stats.rank(metrics.pairs(make_scores({"chat": 4, "math": 12}, models=("a", "b"))), average="domains")
    assert (table["reason"] == "chat: fewer than 5 prompts").all()
    assert table["rank"].tolist() == [1, 2]
    assert table[["low", "high", "rank_low", "rank_high"]].isna().all(axis=None)
    assert len(plot_rank(table).collections) == 2


def test_power_is_the_error_of_compare_times_the_reach(pairs):
    two = pairs[pairs["model"].isin(["a", "b"])]
    for by in (None, "domain", ["level"]):
        table, rows = stats.power(two, by=by), stats.compare(two, "a", "b", by=by)
        np.testing.assert_allclose(table["se"], rows["se"], atol=1e-14)
        np.testing.assert_allclose(table["detectable"], 2.8015852 * rows["se"], rtol=1e-6)
        assert (table["n_prompts"] == rows["n_prompts"]).all()
    assert (stats.power(pairs, power=0.95)["detectable"] > stats.power(pairs)["detectable"]).all()
    with pytest.raises(ValueError, match=r"power: 80; allowed"):
        stats.power(pairs, power=80)


def test_sensitivity_varies_one_choice_at_a_time(pairs):
    table = stats.sensitivity(pairs, repeats=5).set_index(["variant", "model"])["value"]
    for variant, options in {
        "as reported": {},
        "ties half": {"ties": "half"},
        "ties dropped": {"ties": "drop"},
        "safety split": {"safety": "split"},
    }.items():
        expected = metrics.rm_bench(pairs, **options).set_index("model")["overall"]
        np.testing.assert_allclose(table[variant][expected.index], expected, atol=1e-14, err_msg=variant)


def test_noise_flips_more_the_larger_it_is_and_never_a_tie(pairs):
    table = {n: stats.sensitivity(pairs, noise=n, repeats=5).query("variant == 'bf16 noise'") for n in (0, 0.05, 0.5)}
    assert (table[0]["flipped"] == 0).all()
    assert (table[0]["shift"] == 0).all()
    assert table[0.5]["flipped"].sum() > table[0.05]["flipped"].sum()
    flat = pairs.assign(margin=0.0, outcome="tie")
    flat = stats.sensitivity(flat, repeats=2).query("variant == 'bf16 noise'")
    assert (flat["flipped"] == 0).all()
    judged = stats.sensitivity(pairs.assign(margin=np.nan))
    assert "bf16 noise" not in set(judged["variant"])


def test_a_scorer_that_ties_falls_when_ties_lose(make_scores):
    scores = make_scores(dict.fromkeys(("chat", "math", "code", "safety-refuse"), 8), seed=3, levels=1000)
    flat = scores[scores["model"] == "a"].assign(model="flat", score=0.0)
    table = stats.sensitivity(metrics.pairs(pd.concat([scores, flat])), repeats=2).set_index(["variant", "model"])
    assert table.loc[("as reported", "flat"), ["value", "rank"]].tolist() == [0, 3]
    assert table.loc[("ties half", "flat"), "value"] == pytest.approx(0.5)
    assert table.loc[("ties half", "flat"), "flipped"] == 32 * 9
    assert np.isnan(table.loc[("ties dropped", "flat"), "value"])


def test_power_says_why_it_has_no_number(make_scores):
    scores = make_scores({"chat": 4, "math": 12, "code": 7, "safety-refuse": 8})
    table = stats.power(metrics.pairs(scores)).set_index("domain")
    assert table.loc["chat", "reason"] == "fewer than 5 prompts"
    assert np.isnan(table.loc["chat", "detectable"])
    assert table.loc["math", "reason"] == ""
    assert table.loc["math", "detectable"] > 0
    twins = pd.concat([scores[scores["model"] == "a"].assign(model=name) for name in "ab"])
    alike = stats.power(metrics.pairs(twins)).set_index("domain").loc["math"]
    assert alike["reason"] == "the models' results do not differ"
    assert np.isnan(alike["detectable"])


def test_options_out_of_range_are_refused(pairs):
    for options, message in (({"alpha": 5}, "alpha: 5"), ({"resamples": 0}, "resamples: 0")):
        with pytest.raises(ValueError, match=message):
            stats.rank(pairs, **options)
    with pytest.raises(ValueError, match="resamples: 0"):
        stats.compare(pairs, "a", "b", resamples=0)
