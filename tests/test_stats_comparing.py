"""Comparisons of models: paired t by hand, Holm against statsmodels, paired laws, bad input, error rates."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t
from statsmodels.stats.multitest import multipletests

import rmlab
from rmlab import metrics, stats, tables
from rmlab.tables import DataError


def random_pairs(n, models=("a", "b"), seed=0, missing=0.0):
    """Pairs with one comparison a prompt."""
    rng, keys = np.random.default_rng(seed), pd.DataFrame({"id": np.arange(n).astype(str)})
    chances = np.array([0.6, 0.3, 0.1]) * (1 - missing)
    words = np.array(["win", "loss", "tie", None], object)
    parts = [keys.assign(model=model, outcome=words[rng.choice(4, n, p=[*chances, missing])]) for model in models]
    return tables.check_pairs(pd.concat(parts).assign(benchmark="own", domain="all", chosen_slot=0, rejected_slot=0))


@pytest.fixture
def pairs(make_scores):
    sizes = {"chat": 9, "math": 12, "code": 7, "safety-refuse": 8, "safety-response": 6}
    return metrics.pairs(make_scores(sizes, models=("a", "b", "c"), seed=1))


@pytest.mark.parametrize("seed", range(6))
def test_one_comparison_a_prompt_is_the_paired_t(seed):
    """The only difference: prompts on which the models agree say nothing of the error of those on which they differ."""
    pairs = random_pairs(5 + 40 * seed, seed=seed)
    row = stats.compare(pairs, "a", "b").iloc[0]
    won = pairs.pivot(index="id", columns="model", values="outcome") == "win"
    gap = won["a"].astype(float) - won["b"].astype(float)
    n, n_differing = len(gap), int((gap != 0).sum())
    assert row["difference"] == pytest.approx(gap.mean(), abs=1e-14)
    assert row["se"] == pytest.approx(gap.std(ddof=1) / np.sqrt(n))
    df = min(n - 1, n_differing - 1)
    if df > 0:
        assert row["p"] == pytest.approx(2 * t.sf(abs(row["difference"]) / row["se"], df))
        half = t.ppf(0.975, df) * row["se"]
        assert row["low"] == pytest.approx(max(row["difference"] - half, -1))
        assert row["high"] == pytest.approx(min(row["difference"] + half, 1))


def test_swapping_the_models_mirrors_the_row(pairs):
    for by in (None, "domain", ["level"]):
        one, other = stats.compare(pairs, "a", "b", by=by), stats.compare(pairs, "b", "a", by=by)
        np.testing.assert_allclose(one["difference"], -other["difference"], atol=1e-15)
        np.testing.assert_allclose(one["low"], -other["high"], atol=1e-15)
        np.testing.assert_allclose(one["p"], other["p"], atol=1e-12)
        np.testing.assert_allclose(one["agreement"], other["agreement"])


def test_accuracies_are_the_reported_ones(pairs):
    summary = metrics.summary(pairs).set_index("model")
    row = stats.compare(pairs, "a", "b").iloc[0]
    assert [row["value_a"], row["value_b"]] == pytest.approx(summary.loc[["a", "b"], "overall"].tolist())
    by_domain = stats.compare(pairs, "a", "b", by="domain").set_index("domain")
    for domain in ("chat", "math", "code", "safety"):
        assert by_domain.loc[domain, "value_b"] == pytest.approx(summary.loc["b", domain])
    by_level = stats.compare(pairs, "a", "b", by="level")
    assert list(by_level["level"]) == ["easy", "normal", "hard"]
    assert by_level["level"].dtype == tables.LEVEL
    assert by_level["value_a"].tolist() == pytest.approx(summary.loc["a", ["easy", "normal", "hard"]].tolist())
    cells = stats.compare(pairs, "a", "b", by=["domain", "chosen_style", "rejected_style"])
    assert len(cells) == 4 * 9


def test_agreement_flips_and_counts(pairs):
    row = stats.compare(pairs, "a", "b").iloc[0]
    flipped = stats.flips(pairs, "a", "b")
    assert (flipped["outcome_a"].astype(str) != flipped["outcome_b"].astype(str)).all()
    assert len(flipped) == round((1 - row["agreement"]) * 378)
    assert row["n_pairs"] == 378
    assert row["n_ties_a"] == ((pairs["model"] == "a") & (pairs["outcome"] == "tie")).sum()
    some = flipped.iloc[0]
    key = ["domain", "id", "chosen_slot", "rejected_slot"]
    original = pairs[(pairs["model"] == "b") & (pairs[key] == some[key]).all(axis=1)]
    assert original["margin"].item() == some["margin_b"]


def test_the_error_of_a_difference_is_that_of_paired_prompt_means(pairs):
    chat = pairs[(pairs["domain"] == "chat") & pairs["model"].isin(["a", "b"])]
    won = chat.assign(won=chat["outcome"] == "win").groupby(["model", "id"])["won"].mean().unstack("model")
    gap = won["a"] - won["b"]
    row = stats.compare(pairs, "a", "b", by="domain").set_index("domain").loc["chat"]
    assert row["difference"] == pytest.approx(gap.mean())
    assert row["se"] == pytest.approx(gap.std(ddof=1) / np.sqrt(len(gap)))


def test_a_missing_outcome_is_left_out_of_its_own_model_only():
    pairs = random_pairs(200, models=("a", "b", "c"), seed=3, missing=0.2)
    wide = pairs.pivot(index="id", columns="model", values="outcome")
    table = stats.compare_all(pairs)
    for row in table.itertuples():
        own = {m: wide[m].dropna() == "win" for m in (row.model_a, row.model_b)}
        assert row.difference == pytest.approx(own[row.model_a].mean() - own[row.model_b].mean(), abs=1e-14)
        both = wide[[row.model_a, row.model_b]].dropna()
        assert [row.n_pairs, row.missing] == [len(both), 200 - len(both)]
        assert row.agreement == pytest.approx((both[row.model_a] == both[row.model_b]).mean())


def test_a_missing_domain_leaves_no_difference_and_names_the_way_out(pairs):
    row = stats.compare(pairs[pairs["domain"] != "safety"], "a", "b").iloc[0]
    assert np.isnan(row[["difference", "p"]].astype(float)).all()
    assert "safety" in row["reason"]
    assert "by='domain'" in row["reason"]
    parts = stats.compare(pairs[pairs["domain"] != "safety"], "a", "b", by="domain")
    assert parts["difference"].notna().all()


def test_p_holm_is_holm_over_the_pairs_of_models(pairs):
    """With statsmodels; pairs with a content-blind baseline move none of them, and are adjusted over all pairs."""
    better = np.random.default_rng(0).random(len(pairs)) < 0.4
    strong = pairs.assign(outcome=pairs["outcome"].where(~better, "win"), margin=np.nan, model=pairs["model"] + "+")
    field = pd.concat([pairs, strong])
    blind = pairs[pairs["model"] == "c"].assign(model="random")
    key = ["model_a", "model_b"]
    alone, with_blind = (stats.compare_all(table).set_index(key) for table in (field, pd.concat([field, blind])))
    assert [len(alone), len(with_blind)] == [15, 21]
    assert 2 <= (alone["p_holm"] < 0.05).sum() <= 13
    np.testing.assert_allclose(alone["p_holm"], multipletests(alone["p"], method="holm")[1], rtol=1e-12)
    np.testing.assert_array_equal(with_blind.loc[alone.index, "p_holm"], alone["p_holm"])
    is_blind = ~with_blind.index.isin(alone.index)
    over_all = multipletests(with_blind["p"], method="holm")[1]
    np.testing.assert_allclose(with_blind["p_holm"][is_blind], over_all[is_blind], rtol=1e-12)
    assert rmlab.rank(pd.concat([field, blind])).set_index("model").loc["random", "group"] == ""


def test_p_holm_of_compare_is_holm_over_its_rows(pairs):
    table = stats.compare(pairs, "a", "b", by=["domain", "level"])
    np.testing.assert_allclose(table["p_holm"], multipletests(table["p"], method="holm")[1], rtol=1e-12)


def test_models_on_different_comparisons_are_refused_unless_asked(pairs):
    is_gap = (pairs["model"] == "b") & (pairs["domain"] == "code")
    for function in (stats.compare_all, stats.rank, lambda table: stats.compare(table, "a", "b")):
        with pytest.raises(DataError, match=r"'b' .*63 of 378.*'domain': 'code'"):
            function(pairs[~is_gap])
    shared = stats.compare(pairs[~is_gap], "a", "b", common=True, average="domains")
    assert shared["n_pairs"].item() == 315
    with pytest.raises(DataError, match=r"table: .*'a'"):
        stats.rank(pairs[pairs["model"] == "a"])
    for argument, names in (("b: .*'d'", ("a", "d")), ("a, b: .*'a'", ("a", "a"))):
        with pytest.raises(DataError, match=argument):
            stats.compare(pairs, *names)
