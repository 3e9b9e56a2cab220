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
    keys = pd.DataFrame({"id": np.arange(n).astype(str), "benchmark": "own", "domain": "all", "chosen_slot": 0})
    parts = [keys.assign(model=m, rejected_slot=0, outcome=np.where(w, "win", "loss")) for m, w in won.items()]
    return tables.check_pairs(pd.concat(parts))


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
    for counts, few in (((5, 5, 19), "30"), ((5, 5, 20), ""), ((3, 2, 200), "6"), ((3, 3, 200), "")):
        row = stats.power(one_each(*counts), "a", "b").iloc[0]
        assert few in row["reason"]
        assert np.isnan(row["detectable"]) == bool(few) == bool(row["reason"])
    with pytest.raises(DataError, match=r"b: .*'x'"):
        stats.power(one_each(30, 30, 100), "a", "x")
    for option, value in (("power", 80), ("alpha", 0), ("adjust", "all pairs")):
        with pytest.raises(ValueError, match=f"{option}: {value!r}"):
            stats.power(one_each(30, 30, 100), "a", "b", **{option: value})
