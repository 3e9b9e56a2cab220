"""Comparisons, ranks, power, calibration: formulas by hand, oracles, laws."""

from itertools import combinations

import designs
import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import reward_bench_pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, multinomial, t
from statsmodels.stats.multitest import multipletests

import rmlab
from rmlab import metrics, stats, tables
from rmlab.benchmarks.reward_bench import PRIOR_SETS
from rmlab.stats.ranking import group_letters
from rmlab.stats.study_size import exact_power
from rmlab.tables import DataError


def one_each(margins, per_prompt=1):
    """Pairs from the margins of each model, `per_prompt` of them to a prompt; NaN is a
    missing one.
    """
    parts = []
    for model, margin in (
        margins if isinstance(margins, dict) else {"m": margins}
    ).items():
        places = np.arange(len(margin))
        frame = pd.DataFrame(
            {
                "id": (places // per_prompt).astype(str),
                "rejected_slot": places % per_prompt,
            }
        )
        parts.append(frame.assign(model=model, margin=np.asarray(margin, float)))
    return tables.check_pairs(
        pd.concat(parts).assign(benchmark="own", domain="all", chosen_slot=0)
    )


def random_pairs(n, models="ab", seed=0, missing=0.0):
    rng = np.random.default_rng(seed)
    chances = [*np.array([0.6, 0.3, 0.1]) * (1 - missing), missing]
    return one_each(
        {model: rng.choice([1.0, -1.0, 0.0, np.nan], n, p=chances) for model in models}
    )


@pytest.fixture
def pairs(make_scores):
    sizes = {"chat": 9, "math": 12, "code": 7, "safety-refuse": 8, "safety-response": 6}
    return metrics.pairs(make_scores(sizes, models=("a", "b", "c", "d"), seed=1))


@pytest.mark.parametrize("seed", range(6))
def test_one_comparison_a_prompt_is_the_paired_t_of_the_prompts_and_two_more(seed):
    """One more prompt that only the first model wins, one that only the second wins;
    the error is of the others.
    """
    pairs = random_pairs(5 + 40 * seed, seed=seed)
    row = stats.compare(pairs, "a", "b").iloc[0]
    won = pairs.pivot(index="id", columns="model", values="outcome") == "win"
    gap = won["a"].astype(float) - won["b"].astype(float)
    n = len(gap)
    assert row["difference"] == pytest.approx(gap.mean(), abs=1e-14)
    assert row["se"] == pytest.approx(gap.std(ddof=1) / np.sqrt(n))
    center = gap.sum() / (n + 2)
    added = (1 - center) ** 2 + (-1 - center) ** 2
    se = np.sqrt(n**2 * row["se"] ** 2 + added) / (n + 2)
    assert row["p"] == pytest.approx(2 * t.sf(abs(center) / se, n - 1))
    half = t.ppf(0.975, n - 1) * se
    assert row["low"] == pytest.approx(max(center - half, -1))
    assert row["high"] == pytest.approx(min(center + half, 1))


def test_swapping_the_models_mirrors_the_row(pairs):
    for by in (None, "domain", ["level"]):
        row, mirrored = (
            stats.compare(pairs, "a", "b", by=by),
            stats.compare(pairs, "b", "a", by=by),
        )
        np.testing.assert_allclose(
            row["difference"], -mirrored["difference"], atol=1e-15
        )
        np.testing.assert_allclose(row["low"], -mirrored["high"], atol=1e-15)
        np.testing.assert_allclose(
            row[["p", "agreement"]], mirrored[["p", "agreement"]], atol=1e-12
        )


def test_a_comparison_has_the_reported_accuracies_and_counts(pairs):
    summary = metrics.summary(pairs).set_index("model")
    row = stats.compare(pairs, "a", "b").iloc[0]
    assert [row["value_a"], row["value_b"]] == pytest.approx(
        summary.loc[["a", "b"], "overall"].tolist()
    )
    for by, names in (
        ("domain", ["chat", "math", "code", "safety"]),
        ("level", ["easy", "normal", "hard"]),
    ):
        rows = stats.compare(pairs, "a", "b", by=by)
        assert rows[by].tolist() == names
        for model in "ab":
            assert rows[f"value_{model}"].tolist() == pytest.approx(
                summary.loc[model, names].tolist()
            )
        assert rows["p_holm"].tolist() == pytest.approx(
            multipletests(rows["p"], method="holm")[1].tolist()
        )
    assert rows["level"].dtype == tables.LEVEL
    assert (
        len(
            stats.compare(
                pairs, "a", "b", by=["domain", "chosen_style", "rejected_style"]
            )
        )
        == 4 * 9
    )
    flipped = stats.flips(pairs, "a", "b")
    assert (flipped["outcome_a"].astype(str) != flipped["outcome_b"].astype(str)).all()
    assert len(flipped) == round((1 - row["agreement"]) * 378)
    assert row["n_pairs"] == 378
    assert (
        row["n_ties_a"] == ((pairs["model"] == "a") & (pairs["outcome"] == "tie")).sum()
    )
    key = ["domain", "id", "chosen_slot", "rejected_slot"]
    original = pairs[
        (pairs["model"] == "b") & (pairs[key] == flipped.iloc[0][key]).all(axis=1)
    ]
    assert original["margin"].item() == flipped.iloc[0]["margin_b"]


def test_models_are_compared_on_what_both_have_answered():
    """One of two equal models lacks the hardest prompts: it led on its own ones."""
    won = np.arange(200) >= 40
    margin = np.where(won, 1.0, -1.0)
    lacking = np.where(np.arange(200) < 10, np.nan, margin)
    third = np.where(np.arange(200) % 7 == 0, np.nan, margin)
    pairs = one_each({"a": margin, "b": lacking, "c": third})
    for names, n_left_out in (("ab", 10), ("ac", 29), ("bc", 37)):
        row = stats.compare(pairs, *names).iloc[0]
        assert row["value_a"] == row["value_b"]
        assert [row["difference"], row["p"]] == [0, 1]
        assert [row["n_pairs"], row["missing"]] == [200 - n_left_out, n_left_out]
        same = stats.equivalence(pairs, *names, margin=0.1).iloc[0]
        assert [same["difference"], same["missing"]] == [0, n_left_out]
    ranks = stats.rank(pairs)
    assert ranks["rank_low"].tolist() == [1, 1, 1]
    assert ranks["group"].tolist() == ["a", "a", "a"]
    common = rmlab.summary(pairs, common=True)
    assert (common["n_prompts"] == 200 - 37).all()
    np.testing.assert_array_equal(common["overall"], common["overall"].iloc[0])


def test_with_dropped_ties_models_are_compared_where_neither_ties():
    """One of two equal models ties on hard prompts, and led on the others alone."""
    margin = np.where(np.arange(200) >= 40, 1.0, -1.0)
    tying = np.where(np.arange(200) < 30, 0.0, margin)
    table = one_each({"a": margin, "b": tying, "c": margin})
    row = stats.compare(table, "a", "b", ties="drop").iloc[0]
    assert [row["difference"], row["p"], row["agreement"]] == [0, 1, 1]
    assert [row["n_pairs"], row["missing"]] == [170, 30]
    same = stats.equivalence(table, "a", "b", ties="drop", margin=0.1).iloc[0]
    assert [same["difference"], same["missing"]] == [0, 30]
    assert stats.rank(table, ties="drop")["rank_low"].tolist() == [1, 1, 1]

    table = random_pairs(150, "ab", seed=3)
    neither = table.groupby("id")["margin"].transform(
        lambda margin: (margin != 0).all()
    )
    dropped = stats.compare(table, "a", "b", ties="drop")
    expected = stats.compare(table[neither], "a", "b")
    left_out = ["n_ties_a", "n_ties_b", "missing"]
    pd.testing.assert_frame_equal(
        dropped.drop(columns=left_out), expected.drop(columns=left_out)
    )
    assert dropped["missing"].item() == 150 - expected["n_pairs"].item()


def test_prior_sets_of_one_model_alone_are_not_compared():
    """The limits and p were missing without a word."""
    table = reward_bench_pairs(models=("a", "b", "c"), prior_sets=True, sizes=(8, 12))
    is_prior = table["subset"].isin(PRIOR_SETS)
    of_one = table[~is_prior | (table["model"] == "b")]
    of_none = table[~is_prior]
    for pair in ("ab", "bc"):
        row = stats.compare(of_one, *pair)
        expected = stats.compare(of_none, *pair)
        pd.testing.assert_frame_equal(
            row.drop(columns="missing"), expected.drop(columns="missing")
        )
        assert row["p"].notna().all()
        assert row["missing"].item() == is_prior.sum() / 3
    pd.testing.assert_frame_equal(
        stats.rank(of_one)[["model", "group"]].sort_values("model", ignore_index=True),
        stats.rank(of_none)[["model", "group"]].sort_values("model", ignore_index=True),
    )
    same = stats.equivalence(of_one, "a", "b", margin=0.2)
    assert same["smallest_margin"].notna().all()
    assert stats.power(of_one, "a")["detectable"].notna().all()


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_two_models_share_a_letter_exactly_where_holm_finds_no_difference(missing):
    """Holm of statsmodels over the p of `compare`, baselines left out."""
    rng = np.random.default_rng(5)
    strength = np.linspace(0, 2.5, 6)[:, None]
    margin = rng.normal(strength, 2, (6, 120)) + rng.normal(0, 1, 120)
    margin[rng.random(margin.shape) < missing] = np.nan
    pairs = one_each(dict(zip("abcdef", margin, strict=True)))
    blind = pairs[pairs["model"] == "a"].assign(model="random")
    names = [*combinations("abcdef", 2)]
    p = [stats.compare(pairs, *pair)["p"].item() for pair in names]
    is_clear = multipletests(p, method="holm")[0]
    assert 2 <= is_clear.sum() <= 13
    ranks = stats.rank(pd.concat([pairs, blind])).set_index("model")
    for (a, b), clear in zip(names, is_clear, strict=True):
        shared = set(ranks.loc[a, "group"]) & set(ranks.loc[b, "group"])
        assert bool(shared) == (not clear)
    assert ranks.loc["random", "group"] == ""


def test_a_missing_domain_leaves_no_difference_and_names_the_way_out(pairs):
    partial = pairs[pairs["domain"] != "safety"]
    row = stats.compare(partial, "a", "b").iloc[0]
    assert np.isnan(row[["difference", "p"]].astype(float)).all()
    assert "safety" in row["reason"]
    assert "by='domain'" in row["reason"]
    assert stats.compare(partial, "a", "b", by="domain")["difference"].notna().all()


def test_models_on_different_comparisons_are_refused_unless_asked(pairs):
    gaps = pairs[(pairs["model"] != "b") | (pairs["domain"] != "code")]
    for function in (
        stats.rank,
        lambda table: stats.compare(table, "a", "b"),
    ):
        with pytest.raises(DataError, match=r"'b' .*63 of 378.*'domain': 'code'"):
            function(gaps)
    assert (
        stats.compare(gaps, "a", "b", common=True, average="domains")["n_pairs"].item()
        == 315
    )
    with pytest.raises(DataError, match=r"table: .*'a'"):
        stats.rank(pairs[pairs["model"] == "a"])
    for argument, names in (("b: .*'x'", "ax"), ("a, b: .*'a'", "aa")):
        with pytest.raises(DataError, match=argument):
            stats.compare(pairs, *names)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(0, 10_000), st.floats(0, 1))
def test_two_share_a_letter_exactly_if_they_do_not_differ(n, seed, chance):
    upper = np.triu(np.random.default_rng(seed).random((n, n)) < chance, 1)
    differ = upper | upper.T
    letters = group_letters(differ)
    assert all(letters)
    for i in range(n):
        for j in range(i):
            assert bool(set(letters[i]) & set(letters[j])) == (not differ[i, j])
    assert group_letters(~np.eye(60, dtype=bool))[51:54] == ["Z", "a2", "b2"]


def test_ranks_have_no_range_beyond_many_models(pairs, monkeypatch):
    table = stats.rank(pairs)
    assert table["rank"].tolist() == [1, 2, 3, 4]
    assert table["rank"].dtype == "Int64"
    assert (
        (table["rank_low"] <= table["rank"]) & (table["rank"] <= table["rank_high"])
    ).all()
    pd.testing.assert_frame_equal(
        stats.rank(pairs.sample(frac=1, random_state=0)), table
    )
    monkeypatch.setattr("rmlab.stats.ranking.MOST_MODELS", 2)
    short, left_out = stats.rank(pairs), ["rank_low", "rank_high", "group", "reason"]
    pd.testing.assert_frame_equal(
        short.drop(columns=left_out), table.drop(columns=left_out)
    )
    assert short["rank_low"].isna().all()
    assert (short["reason"] != "").all()


def test_a_model_with_a_blank_domain_stands_last_without_a_rank(pairs):
    gap = (pairs["model"] == "a") & (pairs["domain"] == "code")
    gaps = pairs.assign(
        outcome=pairs["outcome"].where(~gap), margin=pairs["margin"].where(~gap)
    )
    last = stats.rank(gaps).iloc[-1]
    assert last["model"] == "a"
    assert pd.isna(last["rank"])
    assert [last["group"], last["missing"]] == ["", 63]
    assert "code" in last["reason"]
    assert stats.rank(gaps, average="prompts")["rank"].notna().all()
    nobody = stats.rank(
        pairs.assign(outcome=pairs["outcome"].where(pairs["domain"] != "code"))
    )
    assert nobody["rank"].isna().all()


def test_equal_models_share_all_their_places(pairs):
    names = [f"model {place * 7 % 20}" for place in range(20)]
    table = stats.rank(
        pd.concat([pairs[pairs["model"] == "a"].assign(model=name) for name in names])
    )
    assert table["model"].tolist() == names
    assert (table[["rank", "rank_low", "rank_high"]] == [1, 1, 20]).all(axis=None)


def two_models(only_a, only_b, both, more=()):
    """Two models that win these numbers of prompts alone and together; `more` win
    everything.
    """
    n, place = only_a + only_b + both, np.arange(only_a + only_b + both)
    won = {"a": place >= only_b, "b": (place < only_b) | (place >= only_a + only_b)}
    return one_each(
        {
            name: 2.0 * row - 1
            for name, row in (won | {name: np.ones(n) for name in more}).items()
        }
    )


def p_of_compare(n):
    """The p of `compare` by how many of n prompts only the first and only the second of
    two models wins, (n, n).
    """
    p = np.ones((n + 1, n + 1))
    for only_a in range(n + 1):
        for only_b in range(min(only_a, n - only_a) + 1):
            p[only_a, only_b] = stats.compare(
                two_models(only_a, only_b, n - only_a - only_b), "a", "b"
            )["p"].item()
            p[only_b, only_a] = p[only_a, only_b]
    return p


@pytest.mark.parametrize("n", [5, 8])
def test_exact_power_is_that_of_compare_over_all_tables(n):
    p = p_of_compare(n)
    for delta, agreement, alpha in (
        (0.1, 0.8, 0.05),
        (0.5, 0.3, 0.01),
        (0.3, 0.7, 0.05),
        (0.2, 0.2, 0.2),
    ):
        only_a, only_b = (1 - agreement + delta) / 2, (1 - agreement - delta) / 2
        shares = np.clip([only_a, only_b, agreement], 0, 1)
        total = 0.0
        for a in range(n + 1):
            for b in range(n + 1 - a):
                if p[a, b] < alpha:
                    total += multinomial.pmf(
                        [a, b, n - a - b], n, shares / shares.sum()
                    )
        assert exact_power(n, delta, agreement, alpha) == pytest.approx(total, abs=1e-9)


def test_equal_models_are_told_apart_in_at_most_six_per_cent_of_tables():
    agreements = np.arange(0.005, 1, 0.015)
    for n in (6, 9, 20, 100, 300):
        assert (
            max(exact_power(n, 0.0, agreement, 0.05) for agreement in agreements) < 0.06
        )


@pytest.mark.parametrize("n", [30, 200])
def test_equivalence_keeps_its_level_where_one_model_alone_is_ahead(n):
    """Tables in which only A wins prompts alone, enumerated: true differences at the
    margins from which on one more table is called equivalent.
    """
    margins = []
    for only_a in range(8):
        table = two_models(only_a, 0, n - only_a)
        row = stats.equivalence(table, "a", "b", margin=0.5).iloc[0]
        margins.append(row["smallest_margin"])
    false_alarms = binom.cdf(np.arange(8), n, margins)
    assert false_alarms.max() < 0.06
    assert false_alarms.max() > 0.02


def test_a_sample_size_has_the_power_asked_for_and_no_prompt_too_many():
    table = stats.sample_size([0.02, 0.05, 0.15], agreement=[0.8, 0.9, 0.95])
    impossible = table["difference"] > 1 - table["agreement"] + 1e-12
    assert (table["n_prompts"].isna() == impossible).all()
    for row in table[~impossible].itertuples():
        assert 0.8 <= row.power < 0.83
        assert (
            exact_power(int(row.n_prompts) - 1, row.difference, row.agreement, 0.05)
            < 0.8
        )


@pytest.mark.parametrize(
    ("difference", "agreement"), [(0.1, 0.9), (0.2, 0.8), (-0.3, 0.7), (0.05, 0.95)]
)
def test_a_sample_size_reaches_the_largest_difference(difference, agreement):
    """1 - 0.9 is a little less than 0.1."""
    assert stats.sample_size(difference, agreement=agreement)["power"].item() >= 0.8


@pytest.mark.parametrize(
    ("difference", "agreement", "power"),
    [(0.437, 0.563, 0.654), (0.3, 0.5, 0.8), (0.1, 0.9, 0.8)],
)
def test_from_the_planned_number_on_the_power_is_reached(difference, agreement, power):
    """In the first case 12 prompts have it and 14 do not."""
    n = stats.sample_size(difference, agreement=agreement, power=power, alpha=0.0554)[
        "n_prompts"
    ].item()
    later = [exact_power(k, difference, agreement, 0.0554) for k in range(n - 1, 4 * n)]
    assert later[0] < power <= min(later[1:])


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("power", 1.0),
        ("alpha", 0.0),
        ("agreement", 1.0),
    ],
)
def test_a_sample_size_refuses_what_no_plan_can_be_made_for(option, value):
    with pytest.raises(ValueError, match=f"{option}.*{value!r}"):
        stats.sample_size(0.05, **{option: value})


@pytest.mark.parametrize(
    ("n", "only_a", "only_b", "alpha", "power"),
    [
        (40, 8, 8, 0.05, 0.8),
        (60, 10, 10, 0.05, 0.8),
        (60, 10, 10, 0.001, 0.8),
        (60, 15, 5, 0.05, 0.5),
        (60, 16, 4, 0.05, 0.5),
        (60, 15, 5, 0.001, 0.5),
        (300, 10, 10, 0.05, 0.8),
        (300, 60, 60, 0.05, 0.95),
        (300, 12, 28, 0.001, 0.95),
        (1000, 30, 30, 0.05, 0.8),
        (1327, 100, 100, 0.05, 0.8),
        (1327, 100, 100, 0.001, 0.5),
    ],
)
def test_detectable_has_the_exact_power(n, only_a, only_b, alpha, power):
    """Also where one of the two models is far ahead in the table."""
    table = two_models(only_a, only_b, n - only_a - only_b)
    row = stats.power(table, "a", "b", alpha=alpha, power=power).iloc[0]
    exact = exact_power(n, row["detectable"], row["agreement"], alpha)
    assert exact == pytest.approx(power, abs=0.05)


def test_a_power_below_the_level_is_no_plan():
    """It gave a detectable difference below zero."""
    table = two_models(12, 12, 36)
    for alpha, power in ((0.5, 0.2), (0.05, 0.05)):
        with pytest.raises(ValueError, match=f"power={power}.*{alpha}"):
            stats.power(table, "a", "b", alpha=alpha, power=power)
        with pytest.raises(ValueError, match=f"power={power}.*{alpha}"):
            stats.sample_size(0.02, agreement=0.9, alpha=alpha, power=power)


def test_the_detectable_difference_is_found_with_the_power_over_domains(make_scores):
    """By simulation with the test of `compare`."""
    share = 1 / 50  # of prompts that differ
    subsets = {"chat": 129, "math": 529, "code": 228}
    subsets |= {"safety-refuse": 284, "safety-response": 157}
    scores = make_scores(subsets, models=("a", "b"))
    prompt = scores.groupby(["domain", "id"], sort=False).ngroup()
    is_chosen = scores["label"] == "chosen"
    lost_by = np.where(prompt % 100 == 0, "a", np.where(prompt % 100 == 50, "b", ""))
    is_lost = is_chosen & (scores["model"] == lost_by)
    scores["score"] = np.where(is_lost, -1.0, is_chosen.astype(float))
    delta = stats.power(scores, "a", "b")["detectable"].item()

    draws = 1000
    rng = np.random.default_rng(0)
    kind = rng.random((draws, sum(designs.SIZES.values())))
    for_a = kind < (share + delta) / 2
    won = np.concatenate([for_a | (kind >= share), ~for_a])
    margins = np.repeat(2.0 * won - 1, 9, axis=1)
    items = designs.prepare_margins(margins)
    p = designs.compare_rows(items, np.arange(draws), np.arange(draws) + draws).p
    assert 0.78 < (p < 0.05).mean() < 0.88


def test_a_detectable_difference_beyond_the_possible_is_missing_with_the_reason():
    """Of 60 prompts each model alone wins 3: they can differ by at most 0.1."""
    row = stats.power(two_models(3, 3, 54), "a", "b").iloc[0]
    assert np.isnan(row["detectable"])
    assert row["reason"]
    assert stats.power(two_models(5, 5, 50), "a", "b")["detectable"].item() < 10 / 60


def test_few_prompts_and_few_differences_are_refused_with_the_reason():
    for counts, few in (
        ((5, 5, 19), "30"),
        ((5, 5, 20), ""),
        ((3, 2, 200), "6"),
        ((5, 5, 200), ""),
    ):
        row = stats.power(two_models(*counts), "a", "b").iloc[0]
        assert few in row["reason"]
        assert np.isnan(row["detectable"]) == bool(few) == bool(row["reason"])


def test_families_widen_what_rests_on_margins_and_outcomes():
    rng = np.random.default_rng(4)
    n_families, size = 150, 4
    strength = np.repeat(rng.normal(1, 1, (2, n_families)), size, axis=1)
    table = one_each({"a": strength[0], "b": strength[1]})
    table = table.assign(template=table["id"].astype(int) // size)
    functions = {
        stats.calibration: ("low", "high"),
        stats.calibration_error: ("brier_low", "brier_high"),
    }
    for function, (low, high) in functions.items():
        apart, together = (
            function(table, cluster=cluster) for cluster in (None, "template")
        )
        widths = [(frame[high] - frame[low]).mean() for frame in (apart, together)]
        assert widths[1] > 1.3 * widths[0]
        with pytest.raises(DataError, match="famly"):
            function(table, cluster="famly")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_calibration_equals_plain_loops():
    margin = np.random.default_rng(0).normal(0.7, 1.5, 500).round(1)
    table = stats.calibration(one_each(margin), bins=5)
    error = 0
    chance = sigmoid(np.abs(margin))
    for row in table.itertuples():
        members = [i for i, p in enumerate(chance) if row.left <= p < row.right]
        right = [
            1.0 if margin[i] > 0 else 0.5 if margin[i] == 0 else 0.0 for i in members
        ]
        assert row.n_pairs == len(members)
        assert row.predicted == pytest.approx(np.mean(chance[members]))
        assert row.accuracy == pytest.approx(np.mean(right))
        error += abs(row.predicted - row.accuracy) * len(members) / 500
    assert table["ece"].iloc[0] == pytest.approx(error)
    assert (
        stats.calibration_error(one_each(margin), bins=5)["ece"].item()
        == table["ece"].iloc[0]
    )


def draw_margins(rng, n, *, models=1, factor=1.0):
    """Margins that are log-odds times a factor; outcomes follow the log-odds."""
    odds = np.abs(rng.normal(0, 1.5, (models, n)))
    margin = factor * np.where(rng.random(odds.shape) < sigmoid(odds), odds, -odds)
    return one_each({f"m{i}": row for i, row in enumerate(margin)})


def test_bradley_terry_margins_are_calibrated_and_scaled_ones_are_not():
    honest, loud = (
        draw_margins(np.random.default_rng(2), 20_000, factor=factor)
        for factor in (1, 3)
    )
    table = stats.calibration(honest)
    assert table["ece"].iloc[0] < 0.01
    assert stats.calibration(loud)["ece"].iloc[0] > 0.08
    assert stats.calibration(loud, temperature=3)["ece"].iloc[0] == pytest.approx(
        table["ece"].iloc[0]
    )
    assert (
        (table["low"] <= table["predicted"]) & (table["predicted"] <= table["high"])
    ).mean() >= 0.8
    table = stats.calibration_error(
        draw_margins(np.random.default_rng(0), 100, models=200)
    )
    assert table["ece"].mean() > 0.08  # what chance alone makes of ten bins
    assert (table["ece_low"] == 0).mean() >= 0.93


def test_empty_bins_and_missing_margins_are_shown():
    table = stats.calibration(one_each([0.0, 0.0, 9.0, np.nan]))
    assert table["n_pairs"].tolist() == [2, *[0] * 8, 1]
    assert table["accuracy"].isna().sum() == 8
    assert table.loc[0, ["predicted", "accuracy"]].tolist() == [0.5, 0.5]
    assert (table["missing"] == 1).all()
    assert stats.calibration(one_each(np.full(6, 0.1)))["n_pairs"].tolist() == [
        6,
        *[0] * 9,
    ]
    sure = stats.calibration_error(one_each(np.repeat([-50.0, 50.0], [9, 1]))).iloc[0]
    assert [sure["ece"], sure["ece_high"]] == pytest.approx([0.9, 1])


def test_brier_and_log_loss_are_those_of_the_margins():
    margin = np.random.default_rng(4).normal(0.7, 1.5, 300).round(1)
    margin[:7] = 0
    row = stats.calibration_error(one_each(margin), temperature=2.0).iloc[0]
    promised = sigmoid(margin / 2)  # that the chosen answer is better; it is
    losses = {
        "brier": np.where(margin == 0, 0.25, (1 - promised) ** 2),
        "log_loss": -np.log(promised),
    }
    assert row["n_ties"] == (margin == 0).sum()
    for name, loss in losses.items():
        assert row[name] == pytest.approx(loss.mean())
        half = 1.968 * loss.std(ddof=1) / np.sqrt(300)
        assert row[f"{name}_high"] - row[f"{name}_low"] == pytest.approx(
            2 * half, rel=0.05
        )
        assert row[f"{name}_low"] < row[name] < row[f"{name}_high"]
    assert (
        row["brier_high"] - row["brier"] > row["brier"] - row["brier_low"]
    )  # a few large losses: skewed upwards


def test_calibration_refuses_and_withholds_with_the_reason(pairs):
    for error, message, function, table, options in (
        (DataError, "margin", stats.calibration, pairs.assign(margin=np.nan), {}),
        (ValueError, "temperature", stats.calibration, pairs, {"temperature": 0}),
    ):
        with pytest.raises(error, match=message):
            function(table, **options)
    few = pairs[
        (pairs["domain"] == "chat") & pairs["id"].isin([f"chat/{i}" for i in range(4)])
    ]
    table = stats.calibration_error(
        few.assign(margin=few["margin"].where(few["model"] == "a"))
    )
    assert table["reason"].tolist() == ["fewer than 5 prompts", *["no margins"] * 3]
    assert (
        table[["ece_low", "ece_high", "brier_low", "log_loss_high"]]
        .isna()
        .all(axis=None)
    )
    assert np.isfinite(table.loc[0, ["ece", "brier", "log_loss"]].astype(float)).all()


def test_common_counts_what_it_leaves_out_as_missing():
    table = random_pairs(60, "abc", missing=0.1)
    common = rmlab.rank(table, common=True)
    outcomes = table.pivot(index="id", columns="model", values="outcome")
    n_lacking = outcomes.isna().any(axis=1).sum()
    assert n_lacking > 0
    assert common["missing"].tolist() == [n_lacking] * 3
    assert common["n_prompts"].tolist() == [60 - n_lacking] * 3


def test_power_of_each_pair_is_on_what_both_answered():
    table = random_pairs(200, "abc", seed=4)
    table.loc[table.query("model == 'b'").index[:90], ["margin", "outcome"]] = [
        np.nan,
        None,
    ]
    together = stats.power(table, "a")
    assert together["n_prompts"].tolist() == [110, 200]
    alone = [stats.power(table, "a", other) for other in "bc"]
    pd.testing.assert_frame_equal(together, pd.concat(alone, ignore_index=True))


def test_ranks_are_counts_of_clear_leads_also_of_a_model_without_errors():
    """By brute force: every pair by `compare`, Holm's p over all pairs."""
    rng = np.random.default_rng(0)
    shares = {"perfect": 1.0, "good": 0.97, "fair": 0.8, "poor": 0.4}
    frames = []
    for model, share in shares.items():
        ids = [str(number) for number in range(120)]
        outcome = np.where(rng.random(120) < share, "win", "loss")
        frame = pd.DataFrame({"model": model, "id": ids, "outcome": outcome})
        frames.append(frame)
    keys = {"benchmark": "own", "domain": "d", "chosen_slot": 0, "rejected_slot": 0}
    pairs = pd.concat(frames, ignore_index=True).assign(**keys)

    compared = [rmlab.compare(pairs, *two) for two in combinations(shares, 2)]
    table = pd.concat(compared, ignore_index=True)
    is_clear = multipletests(table["p"], method="holm")[0]
    leads = table[is_clear]
    ahead = leads["model_a"].where(leads["difference"] > 0, leads["model_b"])
    behind = leads["model_b"].where(leads["difference"] > 0, leads["model_a"])
    assert 0 < is_clear.sum() < len(table)

    ranks = rmlab.rank(pairs).set_index("model")
    for model in shares:
        assert ranks.loc[model, "rank_low"] == 1 + (behind == model).sum()
        assert ranks.loc[model, "rank_high"] == len(shares) - (ahead == model).sum()
