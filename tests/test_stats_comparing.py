"""Comparisons of models: tests against statsmodels and full enumeration, paired laws, bad input, error rates."""

from itertools import product

import designs
import numpy as np
import pandas as pd
import pytest
from rmlab.stats.grid import credit

from rmlab import metrics, stats, tables
from rmlab.stats import comparing, permutation, targets
from rmlab.tables import DataError


def single(outcomes, domains=None, margin=np.nan):
    """Pairs with one comparison a prompt, from {model: outcomes}."""
    parts = [
        pd.DataFrame({"model": model, "id": [str(i) for i in range(len(values))], "outcome": values, "margin": margin})
        for model, values in outcomes.items()
    ]
    frame = pd.concat(parts, ignore_index=True)
    domain = domains or ["all"] * len(next(iter(outcomes.values())))
    frame["domain"] = domain * len(outcomes)
    return tables.check_pairs(frame.assign(benchmark="own", chosen_slot=0, rejected_slot=0))


def random_outcomes(n, models=("a", "b"), seed=0, missing=0.0):
    rng = np.random.default_rng(seed)
    words = ["win", "loss", "tie", None]
    chances = [0.6 * (1 - missing), 0.3 * (1 - missing), 0.1 * (1 - missing), missing]
    return {m: [words[k] for k in rng.choice(4, n, p=chances)] for m in models}


@pytest.fixture
def pairs(make_scores):
    sizes = {"chat": 9, "math": 12, "code": 7, "safety-refuse": 8, "safety-response": 6}
    return metrics.pairs(make_scores(sizes, models=("a", "b", "c"), seed=1))


@pytest.mark.parametrize("seed", range(6))
def test_mcnemar_equals_statsmodels(seed):
    from statsmodels.stats.contingency_tables import mcnemar

    pairs = single(random_outcomes(5 + 40 * seed, seed=seed, missing=0.1 * (seed % 2)))
    found = stats.compare(pairs, "a", "b")
    wide = pairs.pivot(index="id", columns="model", values="outcome").dropna() == "win"
    table = pd.crosstab(wide["a"], wide["b"]).reindex(index=[True, False], columns=[True, False], fill_value=0)
    assert found["test"].item() == "mcnemar"
    assert found["p"].item() == pytest.approx(mcnemar(table.to_numpy(), exact=True).pvalue, abs=1e-12)
    assert found["difference"].item() == pytest.approx(wide["a"].mean() - wide["b"].mean(), abs=1e-14)


def test_mcnemar_on_the_real_response_matrix(shared_data):
    from statsmodels.stats.contingency_tables import mcnemar

    wide = pd.read_csv(shared_data / "rewardbench/response_matrix.torch_measure.csv", index_col="model")
    blank = wide.isna().sum(axis=1)
    chosen = [*wide.index[blank == 0][:5], *wide.index[blank > 0][:2]]
    long = wide.loc[chosen].copy().reset_index().melt("model", var_name="id", value_name="won")
    long = long.assign(benchmark="reward-bench", domain="all", chosen_slot=0, rejected_slot=0)
    pairs = tables.check_pairs(long.assign(outcome=long["won"].map({1.0: "win", 0.0: "loss"})).drop(columns="won"))
    by_model = dict(zip(chosen, wide.loc[chosen].to_numpy(), strict=True))
    table = stats.compare_all(pairs)
    assert (table["test"] == "mcnemar").all()
    for row in table.itertuples():
        values = np.array([by_model[row.model_a], by_model[row.model_b]])
        both = values[:, ~np.isnan(values).any(axis=0)] == 1
        square = [[(both[0] & both[1]).sum(), (both[0] & ~both[1]).sum()],
                  [(~both[0] & both[1]).sum(), (~both[0] & ~both[1]).sum()]]  # fmt: skip
        assert row.p == pytest.approx(mcnemar(square, exact=True).pvalue, abs=1e-12)
        assert row.n_pairs == both.shape[1]
        assert row.missing == wide.shape[1] - both.shape[1]
        assert row.accuracy_a == pytest.approx(both[0].mean(), abs=1e-14)
    assert table["missing"].max() == blank.max() > 0
    ranks = stats.rank(pairs, resamples=200).set_index("model")
    for name in chosen:
        assert ranks.loc[name, "missing"] == blank[name]
        assert ranks.loc[name, "value"] == pytest.approx(wide.loc[name].mean(), abs=1e-14)


def test_sign_flip_equals_all_flips_enumerated():
    rng = np.random.default_rng(0)
    strata = np.array([0, 0, 0, 0, 1, 1, 1, 1, 1])
    rows = rng.normal(0.3, 1, (4, 9)).round(2)

    def student(values):
        variance = sum((strata == s).sum() * values[strata == s].var(ddof=1) for s in (0, 1))
        return abs(values.sum()) / np.sqrt(variance)

    found = permutation.sign_flip(rows, strata, resamples=20_000)
    for row, p in zip(rows, found, strict=True):
        every = [student(row * np.array(signs)) for signs in product((1, -1), repeat=9)]
        assert p == pytest.approx(np.mean(np.array(every) >= student(row) - 1e-9), abs=0.012)


def test_small_p_values_follow_students_tail_but_never_pass_what_the_prompts_can_give():
    rng = np.random.default_rng(1)
    one = np.zeros(400, np.intp)
    strong = permutation.sign_flip(rng.normal(0.5, 1, (1, 400)), one, resamples=500)
    assert 0 < strong[0] < 1e-12
    few = permutation.sign_flip(np.full((1, 8), 0.5), one[:8], resamples=500)
    assert few[0] == pytest.approx(2.0**-7, rel=0.6)
    assert few[0] >= 2.0**-7


def test_swapping_the_models_mirrors_the_row(pairs):
    for by in (None, "domain", ["level"]):
        one, other = stats.compare(pairs, "a", "b", by=by), stats.compare(pairs, "b", "a", by=by)
        np.testing.assert_allclose(one["difference"], -other["difference"], atol=1e-15)
        np.testing.assert_allclose(one["low"], -other["high"], atol=1e-15)
        np.testing.assert_allclose(one["p"], other["p"], atol=1e-12)
        np.testing.assert_allclose(one["agreement"], other["agreement"])


def test_accuracies_are_the_reported_ones(pairs):
    summary = metrics.rm_bench(pairs).set_index("model")
    row = stats.compare(pairs, "a", "b").iloc[0]
    assert [row["accuracy_a"], row["accuracy_b"]] == pytest.approx(summary.loc[["a", "b"], "overall"].tolist())
    by_domain = stats.compare(pairs, "a", "b", by="domain").set_index("domain")
    for domain in ("chat", "math", "code", "safety"):
        assert by_domain.loc[domain, "accuracy_b"] == pytest.approx(summary.loc["b", domain])
    by_level = stats.compare(pairs, "a", "b", by="level")
    assert list(by_level["level"]) == ["easy", "normal", "hard"]
    assert by_level["level"].dtype == tables.LEVEL
    assert by_level["accuracy_a"].tolist() == pytest.approx(summary.loc["a", ["easy", "normal", "hard"]].tolist())
    cells = stats.compare(pairs, "a", "b", by=["domain", "chosen_style", "rejected_style"])
    assert len(cells) == 4 * 9
    assert (cells["test"] == "mcnemar").all()


def test_the_error_of_a_difference_is_that_of_paired_prompt_means(pairs):
    chat = pairs[(pairs["domain"] == "chat") & pairs["model"].isin(["a", "b"])]
    won = chat.assign(won=chat["outcome"] == "win").groupby(["model", "id"])["won"].mean().unstack("model")
    gap = won["a"] - won["b"]
    row = stats.compare(pairs, "a", "b", by="domain").set_index("domain").loc["chat"]
    assert row["difference"] == pytest.approx(gap.mean())
    assert row["se"] == pytest.approx(gap.std(ddof=1) / np.sqrt(len(gap)))


def test_agreement_flips_and_counts(pairs):
    row = stats.compare(pairs, "a", "b").iloc[0]
    flipped = stats.flips(pairs, "a", "b")
    assert (flipped["outcome_a"].astype(str) != flipped["outcome_b"].astype(str)).all()
    assert len(flipped) == round((1 - row["agreement"]) * 378)
    assert row["n_pairs"] == 378
    assert row["ties_a"] == ((pairs["model"] == "a") & (pairs["outcome"] == "tie")).sum()
    some = flipped.iloc[0]
    key = ["domain", "id", "chosen_slot", "rejected_slot"]
    original = pairs[(pairs["model"] == "b") & (pairs[key] == some[key]).all(axis=1)]
    assert original["margin"].item() == some["margin_b"]


def test_blank_outcomes_are_counted_and_left_out_for_both():
    pairs = single(random_outcomes(200, models=("a", "b", "c"), seed=3, missing=0.2))
    wide = pairs.pivot(index="id", columns="model", values="outcome")
    table = stats.compare_all(pairs)
    assert list(zip(table["model_a"], table["model_b"], strict=True)) == [("a", "b"), ("a", "c"), ("b", "c")]
    for row in table.itertuples():
        both = wide[[row.model_a, row.model_b]].dropna()
        assert row.missing == 200 - len(both)
        assert row.n_pairs == row.n_prompts == len(both)
        assert row.accuracy_a == pytest.approx((both[row.model_a] == "win").mean())
        assert row.agreement == pytest.approx((both[row.model_a] == both[row.model_b]).mean())
    answered = wide[["a", "b"]].dropna()
    assert len(stats.flips(pairs, "a", "b")) == (answered["a"] != answered["b"]).sum()


def test_compare_all_holds_the_rows_of_compare(pairs):
    table = stats.compare_all(pairs).set_index(["model_a", "model_b"])
    row = stats.compare(pairs, "a", "c").iloc[0]
    for column in ("difference", "se", "low", "high", "p", "agreement", "n_pairs"):
        assert table.loc[("a", "c"), column] == pytest.approx(row[column]), column


def test_holm_equals_statsmodels():
    from statsmodels.stats.multitest import multipletests

    p = np.random.default_rng(0).random(40) ** 3
    np.testing.assert_allclose(permutation.holm(p), multipletests(p, method="holm")[1], atol=1e-15)


def test_identical_models_do_not_differ(pairs):
    twin = pd.concat([pairs[pairs["model"] == "a"], pairs[pairs["model"] == "a"].assign(model="twin")])
    for by in (None, "domain", ["chosen_style", "rejected_style"]):
        table = stats.compare(twin, "a", "twin", by=by)
        assert (table["difference"] == 0).all()
        assert (table["p"] == 1).all()
        assert (table["agreement"] == 1).all()
        assert (table["low"] < 0).all()
        assert (table["high"] > 0).all()


def test_all_ties(make_scores):
    flat = metrics.pairs(make_scores(dict.fromkeys(("chat", "math", "code", "safety-refuse"), 6)).assign(score=1.0))
    row = stats.compare(flat, "a", "b").iloc[0]
    assert [row["difference"], row["p"], row["ties_a"]] == [0, 1, 24 * 9]
    dropped = stats.compare(flat, "a", "b", ties="drop").iloc[0]
    assert np.isnan(dropped["p"])
    assert [dropped["n_pairs"], dropped["reason"]] == [0, "no comparisons"]


def test_half_credit_is_tested_by_sign_flips():
    row = stats.compare(single(random_outcomes(60, seed=2)), "a", "b", ties="half").iloc[0]
    assert row["test"] == "sign-flip"


def test_a_small_domain_has_a_p_but_no_interval():
    pairs = single(random_outcomes(40), domains=["tiny"] * 4 + ["large"] * 36)
    table = stats.compare(pairs, "a", "b", by="domain").set_index("domain")
    assert table.loc["tiny", "reason"] == "fewer than 5 prompts"
    assert np.isnan(table.loc["tiny", ["se", "low", "high"]].astype(float)).all()
    assert np.isfinite(table.loc["tiny", "p"])
    assert table.loc["large", "reason"] == ""


def test_models_on_different_comparisons_are_refused_unless_asked(pairs):
    gap = (pairs["model"] == "b") & (pairs["domain"] == "code")
    with pytest.raises(
        DataError, match=r"1 of 2 models lack some, most of all 'b' with 63 of 378.*common=True"
    ) as error:
        stats.compare(pairs[~gap], "a", "b")
    assert "'domain': 'code'" in str(error.value)
    assert "315 comparisons" in str(error.value)
    for function in (stats.compare_all, stats.rank, stats.power, stats.item_difficulty, stats.sensitivity):
        with pytest.raises(DataError, match="common=True"):
            function(pairs[~gap])
    shared = stats.compare(pairs[~gap], "a", "b", common=True, average="domains")
    assert shared["n_pairs"].item() == 315
    nothing = pairs[(pairs["model"] == "a") & (pairs["domain"] == "chat") | gap]
    with pytest.raises(DataError, match="no comparison is shared"):
        stats.compare(nothing, "a", "b", common=True)


def test_one_model_is_refused_and_wrong_names_are_told(pairs):
    one = pairs[pairs["model"] == "a"]
    for function in (
        stats.compare_all,
        stats.rank,
        stats.power,
        stats.item_difficulty,
        stats.sensitivity,
        stats.error_clusters,
    ):
        with pytest.raises(DataError, match="a comparison needs 2"):
            function(one)
    with pytest.raises(DataError, match="b: no model 'd' in pairs; allowed: 'a', 'b', 'c'"):
        stats.compare(pairs, "a", "d")
    with pytest.raises(DataError, match="needs two models"):
        stats.compare(pairs, "a", "a")
    with pytest.raises(DataError, match=r"by: 'domian'; .*did you mean 'domain'"):
        stats.compare(pairs, "a", "b", by="domian")
    with pytest.raises(DataError, match="'level' is missing in some comparisons"):
        stats.compare(single(random_outcomes(20)), "a", "b", by="level")
    with pytest.raises(DataError, match="2 benchmarks"):
        stats.compare_all(pd.concat([pairs, pairs.assign(benchmark="other")]))
    with pytest.raises(DataError, match=r"no comparisons in safety.*average='domains'"):
        stats.compare(pairs[pairs["domain"] != "safety"], "a", "b")


def test_type_one_error_and_family_wise_error_hold():
    same, rng = designs.Design(advantage=(0.3, 0.1, 0.0, 0.2)), np.random.default_rng(8)
    draws, sizes = 400, {"chat": 26, "math": 106, "code": 46, "safety": 88}  # a fifth of the real prompts
    common = designs.prompts_in_common(draws, rng, sizes)
    table = designs.grid(np.concatenate([designs.margins(same, draws, common, rng, sizes) for _ in "ab"]), sizes)
    worth, everything = credit(table.outcome, "loss"), np.ones(len(table.prompt), bool)
    options = comparing.Options(0.95, 2000, 0, True)
    a, b = np.arange(draws), np.arange(draws) + draws
    found = comparing.paired(table, worth, targets.overall(table, "benchmark"), everything, a, b, options)
    assert 0.02 < (found["p"] < 0.05).mean() < 0.08
    covered = (found["low"] <= 0) & (found["high"] >= 0)
    assert covered.mean() == pytest.approx(0.95, abs=0.035)
    # independent prompts in each draw, so four draws in a row are a family of four true hypotheses
    families = found["p"].reshape(-1, 4)
    rejected = [(permutation.holm(p) < 0.05).any() for p in families]
    assert np.mean(rejected) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(families))
    assert (families < 0.05).any(axis=1).mean() > np.mean(rejected)


def test_neither_the_order_of_the_rows_nor_plain_strings_change_a_number(pairs):
    words = ("chosen_style", "rejected_style", "level", "outcome")
    shuffled = pairs.sample(frac=1, random_state=0).astype(dict.fromkeys(words, object))
    for by in (None, "domain", ["subset", "level"]):
        keys = [by] if isinstance(by, str) else by or []
        one, other = (stats.compare(p, "a", "b", by=by, resamples=500) for p in (pairs, shuffled))
        pd.testing.assert_frame_equal(*(t.sort_values(keys, ignore_index=True) if keys else t for t in (one, other)))
    one, other = (stats.rank(p, resamples=500) for p in (pairs, shuffled))
    pd.testing.assert_frame_equal(one, other)
    one, other = (stats.sensitivity(p, repeats=3).sort_values(["variant", "model"]) for p in (pairs, shuffled))
    pd.testing.assert_frame_equal(one.reset_index(drop=True), other.reset_index(drop=True))


def test_one_domain_is_compared_on_itself_and_own_domains_count_all_prompts_alike(pairs):
    chat = pairs[pairs["domain"] == "chat"]
    here = stats.compare(pairs, "a", "b", by="domain").query("domain == 'chat'")["difference"].item()
    assert stats.compare(chat, "a", "b")["difference"].item() == pytest.approx(here)
    assert stats.compare_all(chat)["difference"].iloc[0] == pytest.approx(here)
    value = metrics.accuracy(chat).set_index("model")["accuracy"]
    ranks = stats.rank(chat).set_index("model")
    np.testing.assert_allclose(ranks["value"], value[ranks.index])
    assert len(stats.sensitivity(chat, repeats=2))
    own = pairs.assign(domain=pairs["domain"] + " of mine")
    whole = stats.compare(own, "a", "b")
    assert whole["accuracy_a"].item() == pytest.approx(metrics.accuracy(own).set_index("model").loc["a", "accuracy"])
    with pytest.raises(DataError, match="no comparisons in code, safety, so the overall score does not exist"):
        stats.compare(pairs[pairs["domain"].isin(["chat", "math"])], "a", "b")
