"""Sensitivity: every variant is the summary by other rules, and noise moves only what margins leave open."""

import numpy as np
import pandas as pd
import pytest

import rmlab
from rmlab import metrics, stats


@pytest.fixture
def pairs(make_scores):
    sizes = {"chat": 9, "math": 12, "code": 7, "safety-refuse": 8, "safety-response": 6}
    return metrics.pairs(make_scores(sizes, models=("a", "b", "c", "d"), seed=1))


def test_every_variant_is_the_summary_with_its_options(pairs):
    from rmlab.benchmarks.rm_bench import RM_BENCH

    table = stats.sensitivity(pairs, repeats=5).set_index(["variant", "model"])["value"]
    assert len(RM_BENCH.variants) >= 3
    for variant, options in {"as reported": {}, **RM_BENCH.variants}.items():
        expected = rmlab.summary(pairs, **options).set_index("model")["overall"]
        np.testing.assert_allclose(table[variant][expected.index], expected, atol=1e-14, err_msg=variant)


def test_noise_flips_more_the_larger_it_is_and_never_a_tie(pairs):
    table = {n: stats.sensitivity(pairs, noise=n, repeats=5).query("variant == 'bf16 noise'") for n in (0, 0.05, 0.5)}
    assert (table[0]["flipped"] == 0).all()
    assert (table[0]["shift"] == 0).all()
    assert table[0.5]["flipped"].sum() > table[0.05]["flipped"].sum()
    flat = stats.sensitivity(pairs.assign(margin=0.0, outcome="tie"), repeats=2).query("variant == 'bf16 noise'")
    assert (flat["flipped"] == 0).all()
    assert "bf16 noise" not in set(stats.sensitivity(pairs.assign(margin=np.nan))["variant"])


def test_a_scorer_that_ties_falls_when_ties_lose(make_scores):
    sizes = dict.fromkeys(("chat", "math", "code", "safety-refuse", "safety-response"), 8)
    scores = make_scores(sizes, seed=3, levels=1000)
    flat = scores[scores["model"] == "a"].assign(model="flat", score=0.0)
    table = stats.sensitivity(metrics.pairs(pd.concat([scores, flat])), repeats=2).set_index(["variant", "model"])
    assert table.loc[("as reported", "flat"), ["value", "rank"]].tolist() == [0, 3]
    assert table.loc[("ties count half", "flat"), "value"] == pytest.approx(0.5)
    assert table.loc[("ties count half", "flat"), "flipped"] == 40 * 9


def test_neither_the_order_of_the_rows_nor_wrong_options_pass(pairs):
    shuffled = pairs.sample(frac=1, random_state=0)
    one, other = (stats.sensitivity(p, repeats=3).sort_values(["variant", "model"]) for p in (pairs, shuffled))
    pd.testing.assert_frame_equal(one.reset_index(drop=True), other.reset_index(drop=True))
    with pytest.raises(ValueError, match="noise, repeats"):
        stats.sensitivity(pairs, noise=-1)
