"""Intervals: equal to the metrics they belong to, exact against loops, honest at the
edges and in simulation.
"""

import cProfile
import gc
import pstats
import tracemalloc
from dataclasses import replace

import designs
import numpy as np
import pandas as pd
import pytest
from designs import own_pairs
from scipy.stats import t

import rmlab
from rmlab import metrics
from rmlab.benchmarks.rm_bench import RM_BENCH
from rmlab.estimation.clustered import estimate_mean
from rmlab.estimation.estimate import estimate, sum_number
from rmlab.metrics.prepare import list_numbers, overall_number, prepare
from rmlab.tables import DataError

NAMES = ["model", "quantity", "name"]


@pytest.fixture
def pairs(make_scores):
    sizes = {"chat": 9, "math": 12, "code": 7, "safety-refuse": 8, "safety-response": 6}
    return metrics.pairs(make_scores(sizes, models=("a", "b", "c"), seed=1))


def test_counts_of_prompts_and_comparisons(pairs):
    table = rmlab.estimates(pairs).query("model == 'a'").set_index("name")
    counts = table.loc[["overall", "safety", "hard"], ["n_prompts", "n_pairs"]]
    assert counts.to_numpy().tolist() == [[42, 378], [14, 126], [42, 126]]
    is_tie = (pairs["model"] == "a") & (pairs["outcome"] == "tie")
    assert table.loc["overall", "n_ties"] == is_tie.sum()


@pytest.mark.parametrize("outcome", ["win", "loss"])
def test_all_or_none_right_never_gives_zero_width(pairs, outcome):
    table = rmlab.estimates(pairs.assign(outcome=outcome, margin=np.nan))
    np.testing.assert_allclose(table["value"], outcome == "win", atol=1e-14)
    assert (table["high"] - table["low"] > 0.01).all()
    assert table["high"].max() <= 1
    assert table["low"].min() >= 0


def test_few_prompts_and_absent_domains_have_the_reason(make_scores):
    sizes = {"chat": 4, "math": 12, "code": 7, "safety-refuse": 8, "safety-response": 5}
    table = rmlab.estimates(make_scores(sizes, models=("a",))).set_index("name")
    for name, reason in (
        ("chat", "fewer than 5 prompts"),
        ("overall", "chat: fewer than 5 prompts"),
        ("math", ""),
    ):
        row = table.loc[name]
        assert row["reason"] == reason
        assert np.isfinite(row["value"])
        limits = row[["se", "low", "high"]].astype(float)
        assert (np.isnan(limits) == bool(reason)).all()

    scores = make_scores({"chat": 6, "math": 8}, models=("a",))
    table = rmlab.estimates(scores).set_index("name")
    assert np.isnan(table.loc["overall", "value"])
    assert table.loc["overall", "reason"] == "nothing in code, safety"
    assert np.isfinite(table.loc["chat", "low"])


def test_weights_of_domains(pairs):
    weights = {"chat": 3, "math": 1, "code": 0, "safety": 0}
    table = rmlab.estimates(pairs, average=weights).query("model == 'a'")
    value = table.set_index("name")["value"]
    assert value["overall"] == pytest.approx((3 * value["chat"] + value["math"]) / 4)
    for average, error, message in (
        ({"chat": 1, "math": 1}, DataError, "no weight for domain 'code'"),
        ("domain", ValueError, "'benchmark', 'domains', 'prompts'"),
        (weights | {"code": -1}, ValueError, "average: weights"),
        (weights | {"code": np.nan}, ValueError, "average: weights"),
        (dict.fromkeys(weights, 0), ValueError, "average: weights"),
    ):
        with pytest.raises(error, match=message):
            rmlab.estimates(pairs, average=average)


def test_missing_outcomes_are_counted_and_never_losses(pairs):
    is_gone = (pairs["model"] == "a") & (pairs["id"] == "math/2")
    gaps = pairs.assign(outcome=pairs["outcome"].mask(is_gone))
    table = rmlab.estimates(gaps).set_index(NAMES)
    overall = table.xs("overall", level="quantity").droplevel("name")
    assert overall["missing"].tolist() == [9, 0, 0]
    assert overall["n_prompts"].tolist() == [41, 42, 42]
    rest = rmlab.estimates(pairs[~is_gone & (pairs["model"] == "a")])
    numbers = ["value", "se", "low", "high"]
    np.testing.assert_allclose(table.xs("a")[numbers], rest[numbers], atol=1e-14)


def by_loops(values, domain, cluster, weights, confidence=0.95):
    """Value, CR2 error, degrees of freedom and limits of a weighted mean of domain
    means, one prompt at a time.

    The limits have a won and a lost cluster beside K equal ones (Kish); each domain has
    a won and a lost one of its own for its variance.
    """
    value = variance = spent = squares = adjusted = adjusted_spent = 0.0
    for name, weight in weights.items():
        inside = [i for i in range(len(values)) if domain[i] == name]
        inside = [i for i in inside if not np.isnan(values[i])]
        mean = sum(values[i] for i in inside) / len(inside)
        shares = []
        own = 0.0
        for c in sorted({cluster[i] for i in inside}):
            members = [i for i in inside if cluster[i] == c]
            h = len(members) / len(inside)
            residual = sum(values[i] - mean for i in members) / len(inside)
            own += residual**2 / (1 - h)
            shares.append(h)
        inverse = sum(h**2 for h in shares)
        k = 1 / inverse
        for i, a in enumerate(shares):
            for j, b in enumerate(shares):
                if i != j:
                    inverse += (a * b) ** 2 / (1 - a) / (1 - b)
        value += weight * mean
        variance += weight**2 * own
        spent += (weight**2 * own) ** 2 * inverse

        squares += weight**2 / k
        p = (k * mean + 1) / (k + 2)
        with_two = weight**2 * (k**2 * own + p**2 + (1 - p) ** 2) / (k + 2) ** 2
        adjusted += with_two
        adjusted_spent += with_two**2 * inverse
    df = variance**2 / spent if spent else np.nan
    k = 1 / squares
    center = (k * value + 1) / (k + 2)
    quantile = t.ppf(0.5 + confidence / 2, adjusted**2 / adjusted_spent)
    half = quantile * np.sqrt(adjusted)
    low = max(min(center - half, value), 0)
    high = min(max(center + half, value), 1)
    return value, np.sqrt(variance), df, low, high


@pytest.mark.parametrize("confidence", [0.05, 0.8, 0.95, 0.999])
@pytest.mark.parametrize(
    "weights",
    [{"x": 1.0}, {"y": 1.0}, {"x": 0.3, "y": 0.7}, {"x": 0.5, "y": 0.2, "z": 0.3}],
)
@pytest.mark.parametrize("share", [0.7, 0.97, 1.0, 0.0])
def test_value_error_and_limits_equal_plain_loops(confidence, weights, share):
    """One domain of many prompts, one of few, and several with a small one."""
    rng = np.random.default_rng(int(100 * share) + len(weights))
    sizes = {name: {"x": 60, "y": 7, "z": 35}[name] for name in weights}
    n_items = rng.integers(1, 7, sum(sizes.values()))
    domain = np.repeat(np.repeat(list(sizes), list(sizes.values())), n_items)
    prompt = np.repeat(np.arange(len(n_items)), n_items)
    won = np.where(rng.random(len(prompt)) < share, 1.0, 0.0)
    won[rng.random(len(prompt)) < 0.05] = np.nan
    pairs = own_pairs(2 * won - 1, prompt, domain)
    expected = by_loops(won, domain, prompt, weights, confidence)

    row = rmlab.summary(pairs, average=weights, confidence=confidence).iloc[0]
    numbers = ["overall", "se", "low", "high"]
    value, se, df, low, high = expected
    assert row[numbers].tolist() == pytest.approx([value, se, low, high], abs=1e-12)
    assert row["low"] <= row["overall"] <= row["high"]
    assert row["high"] - row["low"] > (0.02 if confidence >= 0.8 else 0)
    _, items = prepare(pairs, weights)
    if se > 0:
        assert designs.estimate_overall(items).df.item() == pytest.approx(df)
    sums = sum_number(items, overall_number(items))
    assert sums.contribution.sum() == pytest.approx(value, abs=1e-14)


def test_the_error_is_cr2_of_the_regression_of_the_items_on_one():
    """CR2 written out with matrices: A = (I - H)^(-1/2) of each cluster, by
    eigenvalues.
    """
    rng = np.random.default_rng(3)
    cluster = np.repeat(np.arange(14), rng.integers(1, 8, 14))
    y = (rng.random(len(cluster)) < 0.7).astype(float)
    n, total = len(y), 0.0
    for c in range(14):
        inside = cluster == c
        size = inside.sum()
        values, vectors = np.linalg.eigh(np.eye(size) - np.ones((size, size)) / n)
        root = vectors @ np.diag(values**-0.5) @ vectors.T
        total += (np.ones(size) @ root @ (y[inside] - y.mean())) ** 2
    means = estimate_mean(y, cluster, 0.95)
    assert means.se.item() == pytest.approx(np.sqrt(total) / n, rel=1e-10)


def test_a_prompt_in_two_subsets_is_one_cluster():
    """RewardBench's hep tasks: the error is of tasks, not of rows, and equals that of
    their sums by hand.
    """
    margin = np.random.default_rng(0).normal(0.5, 1, 40)
    domain = np.repeat(["hep-cpp", "hep-go"], 20)
    pairs = own_pairs(margin, np.arange(40), domain)
    _, items = prepare(pairs, "domains")
    linked = replace(items, cluster=np.tile(np.arange(20), 2))
    credit = linked.credit[0].reshape(2, 20)
    result = designs.estimate_overall(linked)
    task_sums = (credit - credit.mean(axis=1, keepdims=True)).sum(axis=0) / 40
    assert result.se.item() == pytest.approx(np.sqrt((task_sums**2).sum() * 20 / 19))
    assert result.df.item() == pytest.approx(19)


def many_domains(count):
    """Pairs of two models, four prompts to a domain."""
    prompt = np.arange(4 * count)
    margin = np.random.default_rng(0).normal(size=4 * count)
    domain = np.char.add("d", (prompt // 4).astype(str))
    models = [
        own_pairs(sign * margin, prompt, domain).assign(model=f"m{sign}")
        for sign in (1, -1)
    ]
    return pd.concat(models, ignore_index=True)


@pytest.mark.parametrize("make", [rmlab.leaderboard, rmlab.estimates, rmlab.summary])
def test_work_and_memory_grow_with_the_domains_and_not_with_their_square(make):
    """Work is counted in calls, which no other load on the machine changes."""
    calls = []
    peaks = []
    for domains in (60, 120, 240):
        table, profile = many_domains(domains), cProfile.Profile()
        make(table)
        profile.runcall(make, table)
        calls.append(pstats.Stats(profile).total_calls)
        gc.collect()
        tracemalloc.start()
        try:
            make(table)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    for counts, limit in ((calls, 2.2), (peaks, 2.6)):
        first, second = np.diff(counts)
        assert second <= limit * first, counts


def test_coverage_at_the_real_sizes_and_naive_intervals_fail():
    design = designs.Design()
    rng = np.random.default_rng(5)
    n_draws = 150
    common = designs.prompts_in_common(n_draws, rng)
    items = designs.prepare_margins(designs.margins(design, n_draws, common, rng))
    names, numbers = list_numbers(RM_BENCH, items)
    result = estimate(items, numbers)
    half = 1.96 * np.sqrt(result.value * (1 - result.value) / result.n_pairs)
    held = {}
    naive = []
    for place, (quantity, name) in enumerate(names.itertuples(index=False)):
        true = designs.truth(design, quantity, name)
        is_inside = (result.low[:, place] <= true) & (true <= result.high[:, place])
        held.setdefault(quantity, []).append(is_inside)
        if quantity == "overall":
            naive.append(np.abs(result.value[:, place] - true) <= half[:, place])
    for quantity, inside in held.items():
        slack = 3 * np.sqrt(0.95 * 0.05 / n_draws)
        slack /= 1 if quantity == "overall" else 1.5
        assert np.mean(inside) == pytest.approx(0.95, abs=slack), quantity
    assert np.mean(naive) < 0.8
