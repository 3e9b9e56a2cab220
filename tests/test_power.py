"""Power and planning: the error that a comparison has, the power that was asked for, and refusals."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, binomtest, norm

from rmlab import stats, tables
from rmlab.stats.planning import exact_power
from rmlab.tables import DataError


def one_each(only_a, only_b, both, more=()):
    """Pairs of two models and one comparison a prompt; `more` are further models that win everything."""
    n = only_a + only_b + both
    won = {"a": np.arange(n) >= only_b, "b": (np.arange(n) < only_b) | (np.arange(n) >= only_a + only_b)}
    won |= {name: np.ones(n, bool) for name in more}
    parts = [
        pd.DataFrame({"model": m, "id": np.arange(n).astype(str), "outcome": np.where(w, "win", "loss")})
        for m, w in won.items()
    ]
    frame = pd.concat(parts, ignore_index=True).assign(benchmark="own", domain="all", chosen_slot=0, rejected_slot=0)
    return tables.check_pairs(frame)


@pytest.mark.parametrize(("n", "delta", "agreement"), [(60, 0.1, 0.8), (300, 0.05, 0.9)])
def test_exact_power_is_the_sum_over_all_tables(n, delta, agreement):
    """Of McNemar's exact test, which is a binomial test of the prompts that differ."""
    apart = 1 - agreement
    total = 0.0
    for m in range(n + 1):
        probability = binom.pmf(m, n, apart)
        if m == 0 or probability < 1e-13:
            continue
        b = np.arange(m + 1)
        rejected = np.minimum(2 * binom.cdf(np.minimum(b, m - b), m, 0.5), 1) < 0.05
        assert rejected[0] == (binomtest(0, m).pvalue < 0.05)
        total += probability * binom.pmf(b, m, (apart + delta) / 2 / apart)[rejected].sum()
    assert exact_power(n, delta, agreement, 0.05) == pytest.approx(total, abs=1e-9)


def test_plan_has_the_power_asked_for_and_no_prompt_too_many():
    table = stats.plan([0.02, 0.05, 0.15], agreement=[0.8, 0.9, 0.95])
    impossible = table["difference"] > 1 - table["agreement"] + 1e-12
    assert (table["n_prompts"].isna() == impossible).all()
    for row in table[~impossible].itertuples():
        assert 0.8 <= row.power < 0.83
        assert exact_power(int(row.n_prompts) - 1, row.difference, row.agreement, 0.05) < 0.8
    more = stats.plan(0.02, agreement=0.9, comparisons=10)
    assert more["n_prompts"].item() > stats.plan(0.02, agreement=0.9)["n_prompts"].item()
    assert more["alpha"].item() == pytest.approx(0.005)


@pytest.mark.parametrize(("only_a", "only_b", "both"), [(60, 50, 800), (12, 0, 48), (7, 30, 300), (20, 20, 20)])
def test_detectable_is_the_error_of_the_difference_and_has_no_order(only_a, only_b, both):
    table = one_each(only_a, only_b, both)
    row, mirrored = (stats.power(table, *names).iloc[0] for names in ("ab", "ba"))
    se = stats.compare(table, "a", "b")["se"].item()
    assert row["detectable"] == pytest.approx((norm.ppf(0.975) + norm.ppf(0.8)) * se)
    assert row["detectable"] > 0
    assert mirrored["detectable"] == pytest.approx(row["detectable"], rel=1e-12)
    assert mirrored["difference"] == -row["difference"]
    planned = stats.power(table, "a", "b", power=0.9, alpha=0.01).iloc[0]
    assert planned["detectable"] == pytest.approx((norm.ppf(0.995) + norm.ppf(0.9)) * se)


def test_detectable_is_never_negative_on_random_tables():
    rng = np.random.default_rng(0)
    for _ in range(30):
        counts = rng.integers(0, [40, 40, 200])
        if counts.sum() == 0:
            continue
        row = stats.power(one_each(*counts), "a", "b").iloc[0]
        is_enough = counts.sum() >= 30 and counts[:2].sum() >= 6
        assert (row["reason"] == "") == is_enough
        assert row["detectable"] > 0 if is_enough else np.isnan(row["detectable"])


def test_detectable_grows_with_the_number_of_models_and_with_the_power():
    table = one_each(60, 50, 800, more=["c", "d"])
    plain, holm = (stats.power(table, "a", "b", adjust=adjust) for adjust in ("none", "holm"))
    assert plain["detectable"].item() < holm["detectable"].item()
    assert holm["alpha"].item() == pytest.approx(0.05 / 6)
    assert stats.power(table, "a", "b", power=0.95)["detectable"].item() > plain["detectable"].item()
    assert stats.power(table, "a")["model_b"].tolist() == ["b", "c", "d"]
    blind = pd.concat([table, table[table["model"] == "b"].assign(model="random")])
    assert stats.power(blind, "a", adjust="holm")["alpha"].tolist() == pytest.approx([0.05 / 6] * 3 + [0.05 / 10])


def test_few_prompts_and_few_differences_are_refused_with_the_reason():
    row = stats.power(one_each(5, 5, 15), "a", "b").iloc[0]
    assert row["reason"].startswith("fewer than 30 prompts")
    assert np.isnan(row["detectable"])
    alike = stats.power(one_each(3, 2, 200), "a", "b").iloc[0]
    assert "fewer than 6" in alike["reason"]
    assert np.isnan(alike["detectable"])
    with pytest.raises(DataError, match=r"b: .*'x'"):
        stats.power(one_each(30, 30, 100), "a", "x")
    with pytest.raises(ValueError, match="power: 80"):
        stats.power(one_each(30, 30, 100), "a", "b", power=80)
    with pytest.raises(ValueError, match="adjust: 'all pairs'"):
        stats.power(one_each(30, 30, 100), "a", "b", adjust="all pairs")
