"""Easy minus hard, and preferences at equal correctness: oracles, laws, edges."""

import numpy as np
import pandas as pd
import pytest
from style_worlds import world

from rmlab import metrics
from rmlab.bias import style_gap, style_preference
from rmlab.tables import DataError


def test_gap_is_easy_minus_hard_of_the_accuracies_and_of_the_summary(make_scores):
    pairs = metrics.pairs(make_scores(seed=2))
    for ties in ("loss", "half", "drop"):
        for by in (["model"], ["model", "domain"]):
            table = style_gap(pairs, by, ties=ties).set_index(by)
            levels = metrics.accuracy(pairs, [*by, "level"], ties=ties).set_index([*by, "level"])["accuracy"].unstack()
            expected = levels["easy"] - levels["hard"]
            pd.testing.assert_series_equal(table["gap"], expected.loc[table.index], check_names=False)
    summary, table = (function(pairs).set_index("model") for function in (metrics.summary, style_gap))
    np.testing.assert_allclose(table["gap"], (summary["easy"] - summary["hard"])[table.index], atol=1e-15)
    partial = style_gap(pairs[~((pairs["model"] == "a") & (pairs["domain"] == "math"))]).set_index("model")
    assert np.isnan(partial.loc["a", "gap"])
    assert "math" in partial.loc["a", "reason"]
    assert partial.loc["b", "gap"] == pytest.approx(table.loc["b", "gap"])


def test_error_of_the_gap_is_that_of_the_prompts_differences():
    scores, _ = world(40, seed=1)
    pairs = metrics.pairs(scores)
    won = pairs.assign(won=metrics.credit(pairs)).groupby(["id", "level"], observed=True)["won"].mean().unstack()
    difference = won["easy"] - won["hard"]
    row = style_gap(pairs).iloc[0]
    np.testing.assert_allclose([row["gap"], row["se"]], [difference.mean(), difference.sem()], rtol=1e-12)
    # One prompt that gains everything and one that loses everything, then Student's t with 39 degrees of freedom.
    center = (40 * (row["gap"] + 1) / 2 + 1) / 42
    error = np.sqrt((40 * row["se"] / 2) ** 2 + center**2 + (1 - center) ** 2) / 42
    limits = [2 * (center + sign * 2.022691 * error) - 1 for sign in (-1, 1)]
    np.testing.assert_allclose([row["low"], row["high"]], limits, atol=1e-6)


def test_gap_interval_covers():
    truth = style_gap(metrics.pairs(world(20_000, style=1.0, seed=99)[0]))["gap"].item()
    table = style_gap(metrics.pairs(pd.concat([world(60, style=1.0, seed=s, model=f"m{s}")[0] for s in range(300)])))
    assert 0.92 <= ((table["low"] <= truth) & (truth <= table["high"])).mean() <= 0.98


def test_families_of_prompts_widen_the_interval():
    scores, _ = world(60, seed=3)
    family = scores["id"].astype(int) // 4
    shift = np.random.default_rng(0).normal(0, 2, 15)[family] * scores["slot"]  # style is worth the same in a family
    scores = scores.assign(score=scores["score"] + shift, family=family.astype(str))
    for function in (style_gap, style_preference):
        apart, together = function(scores, "model"), function(scores, "model", cluster="family")
        assert together["se"].item() > 1.3 * apart["se"].item()
        with pytest.raises(DataError, match="families"):
            function(scores, cluster="families")


def test_preference_equals_the_nested_loops(make_scores):
    scores = make_scores(seed=6)
    score = scores.set_index(["model", "domain", "id", "label", "style"])["score"]
    table = style_preference(scores, ["model", "label", "plainer", "fancier"])
    assert len(table) == 2 * 2 * 3
    prompts = [*scores[["domain", "id"]].drop_duplicates().itertuples(index=False, name=None)]
    for row in table.itertuples():
        names = [[(row.model, d, i, row.label, style) for style in (row.plainer, row.fancier)] for d, i in prompts]
        sides = [(score[plainer], score[fancier]) for plainer, fancier in names]
        assert row.preference == pytest.approx(np.mean([(b > a) + 0.5 * (b == a) for a, b in sides]))
        assert row.n_ties == sum(a == b for a, b in sides)
        assert row.n_pairs == row.n_prompts == len(prompts)


def test_preference_forgets_correctness_prompt_levels_and_scale():
    scores, _ = world(50, seed=7)
    expected, score = style_preference(scores), scores["score"]
    moved = style_preference(scores.assign(score=score + 100 * (scores["label"] == "chosen")))
    pd.testing.assert_series_equal(expected["preference"], moved["preference"])
    pd.testing.assert_frame_equal(
        expected, style_preference(scores.assign(score=2 * score + 7.0 * scores["id"].astype(int)))
    )
    turned = style_preference(scores.assign(score=-score))
    np.testing.assert_allclose(turned["preference"], 1 - expected["preference"])
    np.testing.assert_allclose(turned["low"], 1 - expected["high"])


def test_few_prompts_and_ties_have_a_reason_and_missing_styles_are_refused():
    few, flat = world(4)[0], world(20)[0].assign(score=1.0)
    assert style_gap(few)["reason"].item() == "fewer than 5 prompts"
    assert style_preference(few)[["se", "low", "high"]].isna().all(axis=None)
    table = style_preference(flat)
    assert (table["preference"] == 0.5).all()
    assert (table["high"] > table["low"]).all()
    assert table["reason"].str.contains("do not vary").all()
    for function in (style_gap, style_preference):
        with pytest.raises(DataError, match="style"):
            function(few.drop(columns="style"))
    alone = style_gap(world(30)[0].assign(score=lambda frame: frame["slot"].astype(float))).iloc[0]
    assert (alone["gap"], alone["se"], alone["high"]) == (1, 0, 1)
    assert alone["low"] < 0.95
