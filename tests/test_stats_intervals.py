"""Intervals: equal to the metrics they belong to, exact against loops, honest at the edges and in simulation."""

import designs
import numpy as np
import pandas as pd
import pytest
from rmlab.stats.grid import credit

from rmlab import intervals, metrics, stats
from rmlab.stats import grid as grids
from rmlab.stats import reported, targets
from rmlab.tables import DataError


@pytest.fixture
def pairs(make_scores):
    sizes = {"chat": 9, "math": 12, "code": 7, "safety-refuse": 8, "safety-response": 6}
    return metrics.pairs(make_scores(sizes, models=("a", "b", "c"), seed=1))


def test_every_number_is_the_metrics_number(pairs):
    table = stats.intervals(pairs).set_index(["model", "quantity", "name"])
    summary = metrics.rm_bench(pairs).set_index("model")
    for model, row in summary.iterrows():
        for quantity, names in {
            "domain": ["chat", "math", "code", "safety"],
            "level": ["easy", "normal", "hard"],
        }.items():
            for name in names:
                assert table.loc[(model, quantity, name), "value"] == pytest.approx(row[name], abs=1e-14)
        overall = table.loc[(model, "overall", "overall")]
        assert overall["value"] == pytest.approx(row["overall"], abs=1e-14)
        assert overall["se"] == pytest.approx(row["se"], abs=1e-14)
        cells = metrics.matrix(pairs[pairs["model"] == model], average="domains")
        for chosen in cells.index:
            for rejected in cells.columns:
                found = table.loc[(model, "cell", f"{chosen} > {rejected}"), "value"]
                assert found == pytest.approx(cells.loc[chosen, rejected], abs=1e-14)
    assert (table["low"] <= table["value"]).all()
    assert (table["value"] <= table["high"]).all()


def test_counts_of_prompts_and_comparisons(pairs):
    table = stats.intervals(pairs).set_index(["model", "quantity", "name"])
    assert table.loc[("a", "overall", "overall"), ["n_prompts", "n_pairs"]].tolist() == [42, 378]
    assert table.loc[("a", "domain", "safety"), ["n_prompts", "n_pairs"]].tolist() == [14, 126]
    assert table.loc[("b", "level", "hard"), ["n_prompts", "n_pairs"]].tolist() == [42, 126]
    ties = (pairs["outcome"] == "tie").groupby(pairs["model"]).sum()
    assert table.xs("overall", level="quantity")["ties"].droplevel("name").to_dict() == ties.to_dict()


def test_a_domains_interval_is_the_accuracys_interval(pairs):
    table = stats.intervals(pairs).query("quantity == 'domain'").reset_index(drop=True)
    accuracy = metrics.accuracy(pairs, by=["model", "domain"])
    both = table.merge(accuracy, left_on=["model", "name"], right_on=["model", "domain"], suffixes=("", "_accuracy"))
    for column in ("se", "low", "high"):
        np.testing.assert_allclose(both[column], both[f"{column}_accuracy"], atol=1e-14)


def test_order_of_rows_changes_nothing(pairs):
    shuffled = stats.intervals(pairs.sample(frac=1, random_state=0))
    key = ["model", "quantity", "name"]
    one, other = (t.set_index(key).sort_index() for t in (stats.intervals(pairs), shuffled))
    pd.testing.assert_frame_equal(one, other)


def test_resampled_values_equal_the_metric_of_the_resampled_prompts(pairs):
    one = pairs[pairs["model"] == "a"]
    table = grids.grid(one)
    target = targets.overall(table, "benchmark")
    mean = reported.estimate(credit(table.outcome, "loss"), table, target).mean
    drawn = intervals.bootstrap(mean, target.strata, resamples=20, seed=3)[:, 0]
    counts = np.concatenate(list(intervals.resample_counts(target.strata, resamples=20, seed=3)))
    assert (counts @ (target.strata[:, None] == np.arange(4)) == np.bincount(target.strata)).all()
    first = np.concatenate([[0], np.flatnonzero(np.diff(table.prompt)) + 1])
    keys = table.items.iloc[first][["domain", "id"]].reset_index(drop=True)
    for value, times in zip(drawn, counts, strict=True):
        repeated = keys.loc[keys.index.repeat(times.astype(int))]
        copies = repeated.assign(copy=np.arange(len(repeated))).merge(one, on=["domain", "id"])
        again = metrics.rm_bench(copies.assign(id=copies["copy"].astype(str)))
        assert value == pytest.approx(again["overall"].iloc[0], abs=1e-6)


def test_bootstrap_and_analytic_errors_agree():
    rng = np.random.default_rng(0)
    table = designs.grid(designs.margins(designs.Design(), 2, designs.prompts_in_common(2, rng), rng))
    worth = credit(table.outcome, "loss")
    for quantity, name, target, chosen in reported.quantities(table, "benchmark"):
        one = reported.estimate(worth, table, target, chosen=chosen)
        drawn = intervals.bootstrap(one.mean, target.strata, resamples=4000, seed=1)
        np.testing.assert_allclose(drawn.std(axis=0), one.se, rtol=0.06, err_msg=f"{quantity} {name}")
        low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
        np.testing.assert_allclose([low, high], [one.low, one.high], atol=0.25 * one.se.max(), err_msg=name)


@pytest.mark.parametrize("method", ["analytic", "bootstrap"])
@pytest.mark.parametrize("outcome", ["win", "loss"])
def test_all_or_none_right_never_gives_zero_width(pairs, method, outcome):
    table = stats.intervals(pairs.assign(outcome=outcome, margin=np.nan), method=method, resamples=50)
    np.testing.assert_allclose(table["value"], outcome == "win", atol=1e-14)
    assert (table["high"] - table["low"] > 0.01).all()
    assert table["high"].max() <= 1
    assert table["low"].min() >= 0


def test_few_prompts_have_no_interval_and_the_reason(make_scores):
    sizes = {"chat": 4, "math": 12, "code": 7, "safety-refuse": 8}
    table = stats.intervals(metrics.pairs(make_scores(sizes, models=("a",)))).set_index(["quantity", "name"])
    chat, overall = table.loc[("domain", "chat")], table.loc[("overall", "overall")]
    assert chat["reason"] == overall["reason"] == "chat: fewer than 5 prompts"
    assert np.isnan(chat[["se", "low", "high"]].astype(float)).all()
    assert np.isfinite([chat["value"], overall["value"]]).all()
    assert table.loc[("domain", "math"), "reason"] == ""
    assert np.isfinite(table.loc[("domain", "math"), "low"])


def test_an_absent_domain_leaves_no_overall(make_scores):
    pairs = metrics.pairs(make_scores({"chat": 6, "math": 6}, models=("a",)))
    table = stats.intervals(pairs).set_index(["quantity", "name"])
    assert np.isnan(table.loc[("overall", "overall"), "value"])
    assert table.loc[("overall", "overall"), "reason"] == "no comparisons in code, safety"
    assert np.isfinite(table.loc[("domain", "chat"), "low"])
    there = stats.intervals(pairs, average="domains").set_index(["quantity", "name"])["value"]
    assert there["overall", "overall"] == pytest.approx((there["domain", "chat"] + there["domain", "math"]) / 2)
    pooled = stats.intervals(pairs, average="prompts").set_index(["quantity", "name"])["value"]
    assert pooled["overall", "overall"] == pytest.approx(metrics.accuracy(pairs)["accuracy"].iloc[0])


def test_weights_of_domains(pairs):
    weights = {"chat": 3, "math": 1, "code": 0, "safety": 0}
    table = stats.intervals(pairs, average=weights).set_index(["model", "quantity", "name"])["value"]
    expected = (3 * table["a", "domain", "chat"] + table["a", "domain", "math"]) / 4
    assert table["a", "overall", "overall"] == pytest.approx(expected)
    with pytest.raises(DataError, match="no weight for domain 'code'"):
        stats.intervals(pairs, average={"chat": 1, "math": 1})
    with pytest.raises(ValueError, match="'benchmark', 'domains', 'prompts'"):
        stats.intervals(pairs, average="domain")


def test_missing_outcomes_are_counted_and_never_losses(pairs):
    gap = (pairs["model"] == "a") & (pairs["domain"] == "math") & (pairs["id"] == pairs["id"].iloc[9 * 9])
    blank = pairs.assign(outcome=pairs["outcome"].where(~gap), margin=pairs["margin"].where(~gap))
    table = stats.intervals(blank).set_index(["model", "quantity", "name"])
    rest = stats.intervals(pairs[~gap & (pairs["model"] == "a")]).set_index(["model", "quantity", "name"])
    assert gap.sum() == 9
    assert table.loc[("a", "overall", "overall"), "missing"] == 9
    assert table.loc[("b", "overall", "overall"), "missing"] == 0
    assert table.loc[("a", "overall", "overall"), "n_prompts"] == 41
    for name in ("value", "se", "low", "high"):
        np.testing.assert_allclose(table.xs("a")[name], rest.xs("a")[name], atol=1e-14)


def test_ties_dropped_everywhere_leave_nothing(make_scores):
    pairs = metrics.pairs(make_scores(models=("a",)).assign(score=0.0))
    table = stats.intervals(pairs, ties="drop")
    assert table["value"].isna().all()
    assert (table["n_pairs"] == 0).all()
    assert (table["ties"] > 0).all()
    half = stats.intervals(pairs, ties="half")
    assert (half["value"] == 0.5).all()


def test_one_stratum_is_the_wilson_interval_and_halves_add_like_errors():
    rng = np.random.default_rng(4)
    values = (rng.random((3, 60)) < 0.8).astype(float)
    one = np.zeros(60, np.intp)
    mean = intervals.weighted_mean(values, one, np.ones(1), np.arange(60), 60)
    se, freedom = intervals.stratified_error(mean.influence, one)
    np.testing.assert_allclose(se, values.std(axis=1, ddof=1) / np.sqrt(60))
    assert (freedom == 59).all()
    wilson = intervals.share_interval(mean.value, se, np.full(3, 60.0))
    np.testing.assert_allclose(intervals.stratified_interval(mean, one), wilson)
    two = np.repeat([0, 1], 30)
    split = intervals.weighted_mean(values, two, np.array([0.5, 0.5]), np.arange(60), 60)
    ends = [
        intervals.stratified_interval(
            intervals.weighted_mean(values[:, two == s], one[:30], np.ones(1), np.arange(30), 30), one[:30]
        )
        for s in (0, 1)
    ]
    means = [values[:, two == s].mean(axis=1) for s in (0, 1)]
    down = np.sqrt(sum((m - low) ** 2 for m, (low, _) in zip(means, ends, strict=True))) / 2
    np.testing.assert_allclose(intervals.stratified_interval(split, two)[0], split.value - down)


def test_coverage_at_the_real_sizes_and_naive_intervals_fail():
    design, rng, draws = designs.Design(), np.random.default_rng(5), 150
    table = designs.grid(designs.margins(design, draws, designs.prompts_in_common(draws, rng), rng))
    worth = credit(table.outcome, "loss")
    held, naive = {}, {}
    for quantity, name, target, chosen in reported.quantities(table, "benchmark"):
        one = reported.estimate(worth, table, target, chosen=chosen)
        true = designs.truth(design, quantity, name)
        held.setdefault(quantity, []).append((one.low <= true) & (true <= one.high))
        half = 1.96 * np.sqrt(one.value * (1 - one.value) / chosen.sum())
        naive.setdefault(quantity, []).append(np.abs(one.value - true) <= half)
    for quantity, inside in held.items():
        slack = 3 * np.sqrt(0.95 * 0.05 / draws) / (1 if quantity == "overall" else 1.5)
        assert np.mean(inside) == pytest.approx(0.95, abs=slack), quantity
    assert np.mean(naive["overall"]) < 0.8
    assert np.mean(naive["domain"]) < 0.8


def test_unknown_method_is_refused(pairs):
    with pytest.raises(ValueError, match="method: 'boot'; allowed: 'analytic', 'bootstrap'"):
        stats.intervals(pairs, method="boot")
