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
from scipy.stats import t

import rmlab
from rmlab import metrics
from rmlab.benchmarks.rm_bench import RM_BENCH
from rmlab.estimation.clustered import group_means
from rmlab.estimation.estimate import estimate, sum_number
from rmlab.metrics.prepare import list_numbers, overall_number, prepare
from rmlab.tables import DataError


@pytest.fixture
def pairs(make_scores):
    sizes = {"chat": 9, "math": 12, "code": 7, "safety-refuse": 8, "safety-response": 6}
    return metrics.pairs(make_scores(sizes, models=("a", "b", "c"), seed=1))


def test_counts_of_prompts_and_comparisons(pairs):
    table = rmlab.estimates(pairs).set_index(["model", "quantity", "name"])
    assert table.loc[
        ("a", "overall", "overall"), ["n_prompts", "n_pairs"]
    ].tolist() == [42, 378]
    assert table.loc[("a", "domain", "safety"), ["n_prompts", "n_pairs"]].tolist() == [
        14,
        126,
    ]
    assert table.loc[("b", "level", "hard"), ["n_prompts", "n_pairs"]].tolist() == [
        42,
        126,
    ]
    ties = (pairs["outcome"] == "tie").groupby(pairs["model"]).sum()
    assert (
        table.xs("overall", level="quantity")["n_ties"].droplevel("name").to_dict()
        == ties.to_dict()
    )


@pytest.mark.parametrize("outcome", ["win", "loss"])
def test_all_or_none_right_never_gives_zero_width(pairs, outcome):
    table = rmlab.estimates(pairs.assign(outcome=outcome, margin=np.nan))
    np.testing.assert_allclose(table["value"], outcome == "win", atol=1e-14)
    assert (table["high"] - table["low"] > 0.01).all()
    assert table["high"].max() <= 1
    assert table["low"].min() >= 0


def test_few_prompts_have_no_interval_and_the_reason(make_scores):
    sizes = {"chat": 4, "math": 12, "code": 7, "safety-refuse": 8, "safety-response": 5}
    table = rmlab.estimates(metrics.pairs(make_scores(sizes, models=("a",)))).set_index(
        ["quantity", "name"]
    )
    chat, overall = table.loc[("domain", "chat")], table.loc[("overall", "overall")]
    assert chat["reason"] == "fewer than 5 prompts"
    assert overall["reason"] == "chat: fewer than 5 prompts"
    assert np.isnan(chat[["se", "low", "high"]].astype(float)).all()
    assert np.isfinite([chat["value"], overall["value"]]).all()
    assert table.loc[("domain", "math"), "reason"] == ""
    assert np.isfinite(table.loc[("domain", "math"), "low"])


def test_an_absent_domain_leaves_no_overall(make_scores):
    pairs = metrics.pairs(make_scores({"chat": 6, "math": 6}, models=("a",)))
    table = rmlab.estimates(pairs).set_index(["quantity", "name"])
    assert np.isnan(table.loc[("overall", "overall"), "value"])
    assert table.loc[("overall", "overall"), "reason"] == "nothing in code, safety"
    assert np.isfinite(table.loc[("domain", "chat"), "low"])
    there = rmlab.estimates(pairs, average="domains").set_index(["quantity", "name"])[
        "value"
    ]
    assert there["overall", "overall"] == pytest.approx(
        (there["domain", "chat"] + there["domain", "math"]) / 2
    )
    pooled = rmlab.estimates(pairs, average="prompts").set_index(["quantity", "name"])[
        "value"
    ]
    assert pooled["overall", "overall"] == pytest.approx(
        metrics.accuracy(pairs, average="prompts")["accuracy"].iloc[0]
    )


def test_weights_of_domains(pairs):
    weights = {"chat": 3, "math": 1, "code": 0, "safety": 0}
    table = rmlab.estimates(pairs, average=weights).set_index(
        ["model", "quantity", "name"]
    )["value"]
    expected = (3 * table["a", "domain", "chat"] + table["a", "domain", "math"]) / 4
    assert table["a", "overall", "overall"] == pytest.approx(expected)
    with pytest.raises(DataError, match="no weight for domain 'code'"):
        rmlab.estimates(pairs, average={"chat": 1, "math": 1})
    with pytest.raises(ValueError, match="'benchmark', 'domains', 'prompts'"):
        rmlab.estimates(pairs, average="domain")
    for bad in (-1, np.nan, np.inf):
        with pytest.raises(ValueError, match="average: weights"):
            rmlab.estimates(pairs, average=weights | {"code": bad})
    with pytest.raises(ValueError, match="average: weights"):
        rmlab.estimates(pairs, average=dict.fromkeys(weights, 0))


def test_missing_outcomes_are_counted_and_never_losses(pairs):
    gap = (
        (pairs["model"] == "a")
        & (pairs["domain"] == "math")
        & (pairs["id"] == pairs["id"].iloc[9 * 9])
    )
    gaps = pairs.assign(
        outcome=pairs["outcome"].where(~gap), margin=pairs["margin"].where(~gap)
    )
    table = rmlab.estimates(gaps).set_index(["model", "quantity", "name"])
    rest = rmlab.estimates(pairs[~gap & (pairs["model"] == "a")]).set_index(
        ["model", "quantity", "name"]
    )
    assert gap.sum() == 9
    assert table.loc[("a", "overall", "overall"), "missing"] == 9
    assert table.loc[("b", "overall", "overall"), "missing"] == 0
    assert table.loc[("a", "overall", "overall"), "n_prompts"] == 41
    for name in ("value", "se", "low", "high"):
        np.testing.assert_allclose(table.xs("a")[name], rest.xs("a")[name], atol=1e-14)


def by_loops(values, domain, cluster, weights):
    """Value, CR2 error and degrees of freedom of a weighted mean of domain means, one
    prompt at a time.
    """
    value, variance, spent = 0.0, 0.0, 0.0
    for name, weight in weights.items():
        inside = [
            i
            for i in range(len(values))
            if domain[i] == name and not np.isnan(values[i])
        ]
        mean = sum(values[i] for i in inside) / len(inside)
        shares, own = [], 0.0
        for c in sorted({cluster[i] for i in inside}):
            members = [i for i in inside if cluster[i] == c]
            h = len(members) / len(inside)
            own += (
                weight * sum(values[i] - mean for i in members) / len(inside)
            ) ** 2 / (1 - h)
            shares.append(h)
        inverse = sum(h**2 for h in shares) + sum(
            (a * b) ** 2 / (1 - a) / (1 - b)
            for i, a in enumerate(shares)
            for j, b in enumerate(shares)
            if i != j
        )
        value, variance, spent = (
            value + weight * mean,
            variance + own,
            spent + own**2 * inverse,
        )
    return value, np.sqrt(variance), variance**2 / spent if spent else np.nan


@pytest.mark.parametrize("seed", range(4))
def test_value_error_and_freedom_equal_plain_loops(seed):
    rng = np.random.default_rng(seed)
    per = rng.integers(1, 7, 30)
    prompt = np.repeat(np.arange(30), per)
    domain = np.where(prompt < 11, "x", "y")
    margin = rng.normal(0.3, 1, len(prompt))
    margin[rng.random(len(prompt)) < 0.1] = np.nan
    frame = pd.DataFrame(
        {"model": "m", "benchmark": "own", "domain": domain, "id": prompt.astype(str)}
    )
    frame = frame.assign(
        margin=margin, chosen_slot=0, rejected_slot=frame.groupby("id").cumcount()
    )
    weights = {"x": 0.3, "y": 0.7}
    _, items = prepare(rmlab.tables.check_pairs(frame), weights)
    result = designs.estimate_overall(items)
    credit = np.where(np.isnan(margin), np.nan, margin > 0)
    expected = by_loops(credit, domain, prompt, weights)
    np.testing.assert_allclose(
        [result.value[0, 0], result.se[0, 0], result.df[0, 0]], expected, rtol=1e-10
    )
    sums = sum_number(items, overall_number(items))
    assert sums.influence.sum() == pytest.approx(0, abs=0.1)
    assert sums.contribution.sum() == pytest.approx(result.value[0, 0], abs=1e-14)


def interval_by_loops(values, domain, cluster, weights, confidence):
    """Limits of a weighted mean of domain means: a won and a lost cluster beside K
    equal ones (Kish), plain loops.

    Each domain has a won and a lost one of its own for its variance.
    """
    value, _, _ = by_loops(values, domain, cluster, weights)
    squares, by_domain, spent = 0.0, 0.0, 0.0
    for name, weight in weights.items():
        inside = [
            i
            for i in range(len(values))
            if domain[i] == name and not np.isnan(values[i])
        ]
        shares = [
            sum(cluster[i] == c for i in inside) / len(inside)
            for c in sorted({cluster[i] for i in inside})
        ]
        squares += sum((weight * h) ** 2 for h in shares)
        mean, error, _ = by_loops(values, domain, cluster, {name: 1.0})
        variance, k = error**2, 1 / sum(h**2 for h in shares)
        center = (k * mean + 1) / (k + 2)
        variance = (k**2 * error**2 + center**2 + (1 - center) ** 2) / (k + 2) ** 2
        pairs = [(a, b) for i, a in enumerate(shares) for b in shares[:i]]
        df = 1 / (1 / k + 2 * sum((a * b) ** 2 / (1 - a) / (1 - b) for a, b in pairs))
        by_domain += weight**2 * variance
        spent += (weight**2 * variance) ** 2 / df
    k = 1 / squares
    center = (k * value + 1) / (k + 2)
    half = t.ppf(0.5 + confidence / 2, by_domain**2 / spent) * np.sqrt(by_domain)
    return max(min(center - half, value), 0), min(max(center + half, value), 1)


@pytest.mark.parametrize("confidence", [0.05, 0.8, 0.95, 0.999])
@pytest.mark.parametrize(
    "weights",
    [{"x": 1.0}, {"y": 1.0}, {"x": 0.3, "y": 0.7}, {"x": 0.5, "y": 0.2, "z": 0.3}],
)
@pytest.mark.parametrize("share", [0.7, 0.97, 1.0, 0.0])
def test_the_interval_equals_plain_loops(confidence, weights, share):
    """One domain of many prompts, one of few, and several with a small one."""
    rng = np.random.default_rng(int(100 * share) + len(weights))
    sizes = {
        name: n for name, n in {"x": 60, "y": 7, "z": 35}.items() if name in weights
    }
    names, n_items = (
        np.repeat(list(sizes), list(sizes.values())),
        rng.integers(1, 7, sum(sizes.values())),
    )
    domain, prompt = (
        np.repeat(names, n_items),
        np.repeat(np.arange(len(names)), n_items),
    )
    frame = pd.DataFrame(
        {"model": "m", "benchmark": "own", "domain": domain, "id": prompt.astype(str)}
    )
    won = rng.random(len(prompt)) < share
    frame = frame.assign(
        chosen_slot=0,
        rejected_slot=frame.groupby("id").cumcount(),
        margin=np.where(won, 1.0, -1.0),
    )
    row = rmlab.summary(
        rmlab.tables.check_pairs(frame), average=weights, confidence=confidence
    ).iloc[0]
    expected = interval_by_loops(won.astype(float), domain, prompt, weights, confidence)
    assert [row["low"], row["high"]] == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert row["low"] <= row["overall"] <= row["high"]
    assert row["high"] - row["low"] > 0
    if confidence >= 0.8:
        assert row["high"] - row["low"] > 0.02


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
    means = group_means(y, np.zeros(n, np.intp), cluster, 1)
    assert means.se.item() == pytest.approx(np.sqrt(total) / n, rel=1e-10)


def test_coverage_at_the_real_sizes_and_naive_intervals_fail():
    design, rng, draws = designs.Design(), np.random.default_rng(5), 150
    items = designs.prepare_margins(
        designs.margins(design, draws, designs.prompts_in_common(draws, rng), rng)
    )
    names, numbers = list_numbers(RM_BENCH, items)
    result = estimate(items, numbers)
    held, naive = {}, {}
    half = 1.96 * np.sqrt(result.value * (1 - result.value) / result.n_pairs)
    for place, (quantity, name) in enumerate(names.itertuples(index=False)):
        true = designs.truth(design, quantity, name)
        held.setdefault(quantity, []).append(
            (result.low[:, place] <= true) & (true <= result.high[:, place])
        )
        naive.setdefault(quantity, []).append(
            np.abs(result.value[:, place] - true) <= half[:, place]
        )
    for quantity, inside in held.items():
        slack = 3 * np.sqrt(0.95 * 0.05 / draws) / (1 if quantity == "overall" else 1.5)
        assert np.mean(inside) == pytest.approx(0.95, abs=slack), quantity
    assert np.mean(naive["overall"]) < 0.8


def test_a_prompt_in_two_subsets_is_one_cluster():
    """RewardBench's hep tasks: the error is of tasks, not of rows, and equals that of
    their sums by hand.
    """
    rng = np.random.default_rng(0)
    words = [f"hep-{w}" for w in ("cpp", "go")]
    rows = [
        ("m", "reward-bench", w, f"{w}-{i}", float(rng.normal(0.5)))
        for w in words
        for i in range(20)
    ]
    frame = pd.DataFrame(rows, columns=["model", "benchmark", "domain", "id", "margin"])
    _, items = prepare(
        rmlab.tables.check_pairs(frame.assign(chosen_slot=0, rejected_slot=0)),
        "domains",
    )
    linked = replace(items, cluster=np.tile(np.arange(20), 2))
    credit = linked.credit[0].reshape(2, 20)
    result = designs.estimate_overall(linked)
    task_sums = (credit - credit.mean(axis=1, keepdims=True)).sum(axis=0) / 40
    assert result.se.item() == pytest.approx(np.sqrt((task_sums**2).sum() * 20 / 19))
    assert len(set(sum_number(linked, overall_number(linked)).stratum)) == 1
    assert result.df.item() == pytest.approx(19)


def many_domains(count):
    """Pairs of one model, four to a domain."""
    rng, prompts = np.random.default_rng(0), 4 * count
    keys = {"model": "m", "benchmark": "own", "id": [str(i) for i in range(prompts)]}
    frame = pd.DataFrame(
        keys | {"domain": [f"d{i // 4}" for i in range(prompts)], "slot": 0}
    )
    sides = [
        frame.assign(label=label, score=rng.normal(size=prompts))
        for label in ("chosen", "rejected")
    ]
    return metrics.pairs(pd.concat(sides, ignore_index=True))


@pytest.mark.parametrize("make", [rmlab.leaderboard, rmlab.estimates, rmlab.summary])
def test_twice_as_many_domains_are_at_most_twice_the_work(make):
    """Counted in calls, which no other load on the machine changes."""
    counts = []
    for domains in (40, 80, 160):
        table, profile = many_domains(domains), cProfile.Profile()
        make(table)
        profile.runcall(make, table)
        counts.append(pstats.Stats(profile).total_calls)
    first, second = np.diff(counts)
    assert second <= 2.2 * first


@pytest.mark.parametrize("make", [rmlab.leaderboard, rmlab.estimates, rmlab.summary])
def test_memory_grows_with_the_domains_and_not_with_their_square(make):
    """Of two models: an array of prompts by domains would take four times as much each
    time.
    """
    peaks = []
    for domains in (200, 400, 800):
        one = many_domains(domains)
        flip = (
            one["outcome"]
            .map({"win": "loss", "loss": "win"})
            .fillna(one["outcome"].astype(str))
        )
        table = pd.concat(
            [one, one.assign(model="n", margin=-one["margin"], outcome=flip)],
            ignore_index=True,
        )
        make(table)
        gc.collect()
        tracemalloc.start()
        try:
            make(table)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    steps = np.diff(peaks)
    assert (steps[1:] <= 2.6 * steps[:-1]).all(), peaks
