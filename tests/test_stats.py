"""Comparisons, ranks, power, calibration: formulas by hand, oracles, laws."""

import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import reward_bench_pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import binom, multinomial, t
from statsmodels.stats.multitest import multipletests

from rmlab import metrics, stats, tables
from rmlab.benchmarks.reward_bench import PRIOR_SETS
from rmlab.stats.ranking import group_letters
from rmlab.stats.study_size import exact_power
from rmlab.tables import DataError


def one_each(**margins):
    """Pairs from the margins of each model, one to a prompt; NaN is a missing one."""
    keys = {"benchmark": "own", "domain": "all", "chosen_slot": 0, "rejected_slot": 0}
    parts = []
    for model, margin in margins.items():
        ids = np.arange(len(margin)).astype(str)
        margin = np.asarray(margin, float)
        parts.append(pd.DataFrame({"model": model, "id": ids, "margin": margin}))
    return tables.check_pairs(pd.concat(parts).assign(**keys))


def random_pairs(n, models="ab", seed=0, missing=0.0):
    rng = np.random.default_rng(seed)
    chances = [*np.array([0.6, 0.3, 0.1]) * (1 - missing), missing]
    outcomes = [1.0, -1.0, 0.0, np.nan]
    return one_each(**{m: rng.choice(outcomes, n, p=chances) for m in models})


def two_models(only_a, only_b, both):
    """Two models that win these numbers of prompts alone and together."""
    n = only_a + only_b + both
    place = np.arange(n)
    a = np.where(place >= only_b, 1, -1)
    b = np.where((place < only_b) | (place >= only_a + only_b), 1, -1)
    return one_each(a=a, b=b)


@pytest.fixture
def pairs(make_scores):
    sizes = {"chat": 9, "math": 12, "code": 7, "safety-refuse": 8, "safety-response": 6}
    return metrics.pairs(make_scores(sizes, models=("a", "b", "c", "d"), seed=1))


# Two models.


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


@pytest.mark.parametrize(
    ("by", "names"),
    [
        (None, ["overall"]),
        ("domain", ["chat", "math", "code", "safety"]),
        ("level", ["easy", "normal", "hard"]),
    ],
)
def test_a_comparison_has_the_reported_accuracies_and_a_mirror(pairs, by, names):
    rows = stats.compare(pairs, "a", "b", by=by)
    assert by is None or rows[by].tolist() == names
    summary = metrics.summary(pairs).set_index("model")[names]
    for model in "ab":
        np.testing.assert_allclose(rows[f"value_{model}"], summary.loc[model])
    holm = multipletests(rows["p"], method="holm")[1]
    np.testing.assert_allclose(rows["p_holm"], holm)
    mirrored = stats.compare(pairs, "b", "a", by=by)
    turned = -mirrored[["difference", "high", "low"]].to_numpy()
    limits = rows[["difference", "low", "high"]]
    np.testing.assert_allclose(limits, turned, atol=1e-15)
    same = ["p", "agreement"]
    np.testing.assert_allclose(rows[same], mirrored[same], atol=1e-12)


def test_counts_and_flips_of_a_comparison(pairs):
    row = stats.compare(pairs, "a", "b").iloc[0]
    assert row["n_pairs"] == 378
    is_tie = (pairs["model"] == "a") & (pairs["outcome"] == "tie")
    assert row["n_ties_a"] == is_tie.sum()
    flipped = stats.flips(pairs, "a", "b")
    assert (flipped["outcome_a"].astype(str) != flipped["outcome_b"].astype(str)).all()
    assert len(flipped) == round((1 - row["agreement"]) * 378)
    margins = pairs[pairs["model"] == "b"].set_index(tables.ITEM)["margin"]
    keys = pd.MultiIndex.from_frame(flipped[tables.ITEM])
    np.testing.assert_array_equal(flipped["margin_b"], margins[keys])


@pytest.mark.parametrize(("value", "ties"), [(np.nan, "loss"), (0.0, "drop")])
def test_models_are_compared_on_what_both_have(value, ties):
    """One of two equal models lacks, or ties on, the hardest prompts: it led on its
    own ones.
    """
    margin = np.where(np.arange(200) >= 40, 1.0, -1.0)
    place = np.arange(200)
    b = np.where(place < 10, value, margin)
    c = np.where(place % 7 == 0, value, margin)
    pairs = one_each(a=margin, b=b, c=c)
    for names, n_left_out in (("ab", 10), ("ac", 29), ("bc", 37)):
        row = stats.compare(pairs, *names, ties=ties).iloc[0]
        assert row["value_a"] == row["value_b"]
        assert row[["difference", "p", "agreement"]].tolist() == [0, 1, 1]
        assert [row["n_pairs"], row["missing"]] == [200 - n_left_out, n_left_out]
        same = stats.equivalence(pairs, *names, ties=ties, margin=0.1).iloc[0]
        assert [same["difference"], same["missing"]] == [0, n_left_out]
    ranks = stats.rank(pairs, ties=ties)
    assert ranks["rank_low"].tolist() == [1, 1, 1]
    assert ranks["group"].tolist() == ["a", "a", "a"]
    power = stats.power(pairs, "a", ties=ties)
    assert power["n_prompts"].tolist() == [190, 171]
    if ties == "loss":
        for common in (
            metrics.summary(pairs, common=True),
            stats.rank(pairs, common=True),
        ):
            assert (common["n_prompts"] == 200 - 37).all()
            assert (common["missing"] == 37).all()


def test_prior_sets_of_one_model_alone_are_not_compared():
    """The limits and p were missing without a word."""
    table = reward_bench_pairs(models=("a", "b", "c"), prior_sets=True, sizes=(8, 12))
    is_prior = table["subset"].isin(PRIOR_SETS)
    of_one = table[~is_prior | (table["model"] == "b")]
    of_none = table[~is_prior]
    for pair in ("ab", "bc"):
        row = stats.compare(of_one, *pair)
        assert row["missing"].item() == is_prior.sum() / 3
        row["missing"] = 0
        pd.testing.assert_frame_equal(row, stats.compare(of_none, *pair))
    groups = [
        stats.rank(each).set_index("model")["group"] for each in (of_one, of_none)
    ]
    assert groups[0].to_dict() == groups[1].to_dict()
    same = stats.equivalence(of_one, "a", "b", margin=0.2)
    assert same["smallest_margin"].notna().all()
    assert stats.power(of_one, "a")["detectable"].notna().all()


def test_what_cannot_be_compared_is_missing_with_the_remedy_or_refused(pairs):
    partial = pairs[pairs["domain"] != "safety"]
    row = stats.compare(partial, "a", "b").iloc[0]
    assert np.isnan(row[["difference", "p"]].astype(float)).all()
    assert "safety" in row["reason"]
    assert "by='domain'" in row["reason"]
    assert stats.compare(partial, "a", "b", by="domain")["difference"].notna().all()

    gaps = pairs[(pairs["model"] != "b") | (pairs["domain"] != "code")]
    common = stats.compare(gaps, "a", "b", common=True, average="domains")
    assert common["n_pairs"].item() == 315
    for table, models, message in (
        (gaps, "ab", r"'b' .*63 of 378.*'domain': 'code'"),
        (pairs, "ax", "b: .*'x'"),
        (pairs, "aa", "a, b: .*'a'"),
    ):
        with pytest.raises(DataError, match=message):
            stats.compare(table, *models)
    for table, message in ((gaps, "63 of 378"), (pairs.query("model == 'a'"), "'a'")):
        with pytest.raises(DataError, match=message):
            stats.rank(table)


# Many models.


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
    shuffled = stats.rank(pairs.sample(frac=1, random_state=0))
    pd.testing.assert_frame_equal(shuffled, table)
    monkeypatch.setattr("rmlab.stats.ranking.MOST_MODELS", 2)
    short = stats.rank(pairs)
    assert short["rank"].tolist() == [1, 2, 3, 4]
    assert short["rank_low"].isna().all()
    assert (short["reason"] != "").all()


def test_a_model_with_a_blank_domain_stands_last_without_a_rank(pairs):
    is_gone = (pairs["model"] == "a") & (pairs["domain"] == "code")
    gaps = pairs.assign(outcome=pairs["outcome"].mask(is_gone))
    last = stats.rank(gaps).iloc[-1]
    assert [last["model"], last["group"], last["missing"]] == ["a", "", 63]
    assert pd.isna(last["rank"])
    assert "code" in last["reason"]
    assert stats.rank(gaps, average="prompts")["rank"].notna().all()


# Power and sizes.


@pytest.mark.parametrize("n", [5, 8])
def test_exact_power_is_that_of_compare_over_all_tables(n):
    tables_of = {}
    for only_a in range(n + 1):
        for only_b in range(n + 1 - only_a):
            both = n - only_a - only_b
            table = two_models(only_a, only_b, both)
            p = stats.compare(table, "a", "b")["p"].item()
            tables_of[only_a, only_b, both] = p
    for delta, agreement, alpha in (
        (0.1, 0.8, 0.05),
        (0.5, 0.3, 0.01),
        (0.2, 0.2, 0.2),
    ):
        shares = [(1 - agreement + delta) / 2, (1 - agreement - delta) / 2, agreement]
        rejected = [counts for counts, p in tables_of.items() if p < alpha]
        expected = multinomial.pmf(rejected, n, shares).sum() if rejected else 0
        assert exact_power(n, delta, agreement, alpha) == pytest.approx(expected)


@pytest.mark.parametrize("n", [6, 9, 20, 100, 300])
def test_equal_models_are_told_apart_in_at_most_six_per_cent_of_tables(n):
    agreements = np.arange(0.005, 1, 0.015)
    assert max(exact_power(n, 0.0, each, 0.05) for each in agreements) < 0.06


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
    assert 0.02 < false_alarms.max() < 0.06


@pytest.mark.parametrize(
    ("difference", "agreement", "power", "alpha"),
    [
        (0.02, 0.8, 0.8, 0.05),
        (0.05, 0.95, 0.8, 0.05),  # the largest that can be
        (0.1, 0.9, 0.8, 0.05),  # 1 - 0.9 is a little less
        (-0.3, 0.7, 0.8, 0.05),
        (0.437, 0.563, 0.654, 0.0554),  # 12 prompts have it and 14 do not
        (0.3, 0.5, 0.8, 0.0554),
    ],
)
def test_from_the_planned_number_on_the_power_is_reached(
    difference, agreement, power, alpha
):
    row = stats.sample_size(difference, agreement=agreement, power=power, alpha=alpha)
    n = row["n_prompts"].item()
    later = range(n - 1, n + 60)
    reached = [exact_power(k, abs(difference), agreement, alpha) for k in later]
    assert reached[0] < power <= min(reached[1:])
    assert row["power"].item() == reached[1]
    impossible = stats.sample_size(1.001 - agreement, agreement=agreement)
    assert impossible["n_prompts"].isna().all()


@pytest.mark.parametrize(
    ("n", "only_a", "only_b", "alpha", "power"),
    [
        (40, 8, 8, 0.05, 0.8),
        (60, 10, 10, 0.001, 0.8),
        (60, 16, 4, 0.05, 0.5),
        (300, 10, 10, 0.05, 0.8),
        (300, 12, 28, 0.001, 0.95),
        (1327, 100, 100, 0.05, 0.8),
    ],
)
def test_detectable_has_the_exact_power(n, only_a, only_b, alpha, power):
    """Also where one of the two models is far ahead in the table."""
    table = two_models(only_a, only_b, n - only_a - only_b)
    row = stats.power(table, "a", "b", alpha=alpha, power=power).iloc[0]
    exact = exact_power(n, row["detectable"], row["agreement"], alpha)
    assert exact == pytest.approx(power, abs=0.05)


def test_detectable_over_domains_is_that_of_all_their_prompts():
    """Four equal domains have the errors of one with as many prompts."""
    table = two_models(20, 20, 360)
    whole = stats.power(table, "a", "b")["detectable"].item()
    domain = "d" + (table["id"].astype(int) % 4).astype(str)
    parts = stats.power(table.assign(domain=domain), "a", "b", average="domains")
    assert parts["detectable"].item() == pytest.approx(whole, rel=0.05)


@pytest.mark.parametrize(
    ("counts", "few"),
    [
        ((5, 5, 19), "30"),
        ((5, 5, 20), ""),
        ((3, 2, 200), "6"),
        ((5, 5, 200), ""),
        ((3, 3, 54), "differ by"),  # they can differ by at most 0.1
        ((5, 5, 50), ""),
    ],
)
def test_a_detectable_difference_is_missing_with_the_reason(counts, few):
    row = stats.power(two_models(*counts), "a", "b").iloc[0]
    assert few in row["reason"]
    assert np.isnan(row["detectable"]) == bool(few) == bool(row["reason"])


@pytest.mark.parametrize(
    "option",
    [
        {"power": 1.0},
        {"alpha": 0.0},
        {"agreement": 1.0},
        {"power": 0.2, "alpha": 0.5},  # it gave a difference below zero
        {"power": 0.05, "alpha": 0.05},
    ],
)
def test_a_plan_that_cannot_be_made_is_refused(option):
    name, value = next(iter(option.items()))
    with pytest.raises(ValueError, match=f"{name}.*{value!r}"):
        stats.sample_size(0.05, **option)
    if name != "agreement":
        with pytest.raises(ValueError, match=f"{name}.*{value!r}"):
            stats.power(two_models(12, 12, 36), "a", "b", **option)


# Calibration.


def test_calibration_equals_plain_loops():
    margin = np.random.default_rng(0).normal(0.7, 1.5, 500).round(1)
    table = stats.calibration(one_each(m=margin), bins=5)
    error = 0
    chance = expit(np.abs(margin))
    for row in table.itertuples():
        members = [i for i, p in enumerate(chance) if row.left <= p < row.right]
        right = [(margin[i] > 0) + 0.5 * (margin[i] == 0) for i in members]
        assert row.n_pairs == len(members)
        assert row.predicted == pytest.approx(np.mean(chance[members]))
        assert row.accuracy == pytest.approx(np.mean(right))
        error += abs(row.predicted - row.accuracy) * len(members) / 500
    assert table["ece"].iloc[0] == pytest.approx(error)
    row = stats.calibration_error(one_each(m=margin), bins=5)
    assert row["ece"].item() == table["ece"].iloc[0]


def draw_margins(seed, n, *, models=1):
    """Margins that are log-odds; outcomes follow them."""
    rng = np.random.default_rng(seed)
    odds = np.abs(rng.normal(0, 1.5, (models, n)))
    margin = np.where(rng.random(odds.shape) < expit(odds), odds, -odds)
    return one_each(**{f"m{i}": row for i, row in enumerate(margin)})


def test_bradley_terry_margins_are_calibrated():
    table = stats.calibration(draw_margins(2, 20_000))
    assert table["ece"].iloc[0] < 0.01
    table = stats.calibration_error(draw_margins(0, 100, models=200))
    assert table["ece"].mean() > 0.08  # what chance alone makes of ten bins
    assert (table["ece_low"] == 0).mean() >= 0.93


def test_empty_bins_and_missing_margins_are_shown():
    table = stats.calibration(one_each(m=[0.0, 0.0, 9.0, np.nan]))
    assert table["n_pairs"].tolist() == [2, *[0] * 8, 1]
    assert table["accuracy"].isna().sum() == 8
    assert table.loc[0, ["predicted", "accuracy"]].tolist() == [0.5, 0.5]
    assert (table["missing"] == 1).all()
    sure = one_each(m=np.repeat([-50.0, 50.0], [9, 1]))
    row = stats.calibration_error(sure).iloc[0]
    assert [row["ece"], row["ece_high"]] == pytest.approx([0.9, 1])


def test_brier_and_log_loss_are_those_of_the_margins():
    margin = np.random.default_rng(4).normal(0.7, 1.5, 300).round(1)
    margin[:7] = 0
    row = stats.calibration_error(one_each(m=margin), temperature=2.0).iloc[0]
    promised = expit(margin / 2)  # that the chosen answer is better; it is
    losses = {
        "brier": np.where(margin == 0, 0.25, (1 - promised) ** 2),
        "log_loss": -np.log(promised),
    }
    assert row["n_ties"] == (margin == 0).sum()
    for name, loss in losses.items():
        low, high = row[f"{name}_low"], row[f"{name}_high"]
        assert row[name] == pytest.approx(loss.mean())
        half = t.ppf(0.975, 299) * loss.std(ddof=1) / np.sqrt(300)
        assert high - low == pytest.approx(2 * half, rel=0.05)
        assert low < row[name] < high


def test_calibration_refuses_and_withholds_with_the_reason(pairs):
    with pytest.raises(DataError, match="margin"):
        stats.calibration(pairs.assign(margin=np.nan))
    with pytest.raises(ValueError, match="temperature"):
        stats.calibration(pairs, temperature=0)
    few = pairs[pairs["id"].isin([f"chat/{i}" for i in range(4)])]
    few = few.assign(margin=few["margin"].where(few["model"] == "a"))
    table = stats.calibration_error(few)
    assert table["reason"].tolist() == ["fewer than 5 prompts", *["no margins"] * 3]
    assert table.filter(regex="low|high").isna().all(axis=None)
    assert np.isfinite(table.loc[0, ["ece", "brier", "log_loss"]].astype(float)).all()
