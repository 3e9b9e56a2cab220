"""Accuracy at equal length: the planted logistic model comes back, separation is said, never hidden."""

import length_worlds
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from style_worlds import world

from rmlab import metrics
from rmlab.bias.controlled import length_controlled, style_controlled
from rmlab.tables import DataError, check_pairs


def _planted(n, at_zero, effect, seed=0, per_prompt=1, model="m", domain="chat", shift=400.0):
    """Pairs whose outcomes follow the logistic model, with longer chosen answers; n prompts, their features."""
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(n), per_prompt)
    slots = np.tile(np.arange(per_prompt), n)
    keys = pd.DataFrame({"benchmark": "b", "domain": domain, "id": ids.astype(str)})
    lengths = rng.normal(3000, 500, (2, len(keys))).round() + np.array([[shift], [0.0]])
    difference = lengths[0] - lengths[1]
    chance = expit(np.log(at_zero / (1 - at_zero)) + effect * np.tanh(difference / difference.std()))
    outcome = np.where(rng.random(len(keys)) < chance, "win", "loss")
    pairs = check_pairs(keys.assign(model=model, chosen_slot=slots, rejected_slot=slots, outcome=outcome))
    sides = [
        keys.assign(label=label, slot=slots, characters=side)
        for label, side in zip(("chosen", "rejected"), lengths, strict=True)
    ]
    return pairs, pd.concat(sides, ignore_index=True)


@pytest.mark.filterwarnings("ignore:form")
def test_planted_accuracy_at_equal_length_comes_back():
    made = [_planted(400, 0.7, 1.5, seed=seed, model=f"m{seed}", domain=f"d{seed}") for seed in range(100)]
    pairs, features = pd.concat(pairs for pairs, _ in made), pd.concat(features for _, features in made)
    for form in ("spline", "tanh"):
        table = length_controlled(pairs, features, form=form)
        assert table["controlled"].mean() == pytest.approx(0.7, rel=0.05)
        assert table["accuracy"].mean() > 0.75  # what length adds, as the chosen answers are longer
        inside = (table["low"] <= 0.7) & (table["high"] >= 0.7)
        assert inside.mean() >= 0.92
    # answers are 6,400 characters together: twice as long is a difference of 2,130, three standard deviations
    assert table["effect"].mean() == pytest.approx(1.5 * np.tanh(6400 / 3 / 707), rel=0.05)
    planted = table["effect_low"].le(1.5) & table["effect_high"].ge(1.5)
    assert planted.mean() >= 0.92
    assert (table["fit_p"] < 0.05).mean() <= 0.15
    assert (table["caveat"] == "").mean() >= 0.95


def test_equals_statsmodels_logit():
    import statsmodels.api as sm

    pairs, features = _planted(80, 0.6, 1.0, seed=1, per_prompt=3)
    row = length_controlled(pairs, features, form="tanh").iloc[0]
    sides = features.set_index(["label", "id", "slot"])["characters"]
    chosen, rejected = sides["chosen"].to_numpy(), sides["rejected"].to_numpy()
    spread = (chosen - rejected).std()
    x = np.column_stack([np.ones(240), np.tanh((chosen - rejected) / spread)])
    won = (pairs["outcome"] == "win").to_numpy(dtype=float)
    fit = sm.Logit(won, x).fit(disp=0, cov_type="cluster", cov_kwds={"groups": pairs["id"].astype(int).to_numpy()})
    together = np.exp(np.log(chosen + rejected + 2).mean()) - 2
    assert row["controlled"] == pytest.approx(expit(fit.params[0]), rel=1e-6)
    assert row["effect"] == pytest.approx(fit.params[1] * np.tanh(together / 3 / spread), rel=1e-6)
    assert row["se"] == pytest.approx(fit.bse[0] * row["controlled"] * (1 - row["controlled"]), rel=1e-6)
    assert row["accuracy"] == won.mean()
    assert (row["n_pairs"], row["n_prompts"]) == (240, 80)


def test_perfect_separation_is_said():
    scores, features = world(60, seed=3)
    longest = scores.assign(score=features["characters"])
    shortest = longest.assign(score=-longest["score"])
    for table in (longest, shortest):
        for form in ("spline", "tanh"):
            row = length_controlled(table, features, form=form).iloc[0]
            assert row["reason"].startswith("perfect separation")
            assert row[["controlled", "se", "low", "high", "effect", "fit_p"]].isna().all()
            assert row["accuracy"] > 0.4
        pair = style_controlled(table, features, controls=["characters", "markdown"]).iloc[0]
        assert pair["reason"].startswith("perfect separation")


def test_a_tail_that_is_decided_leaves_the_rest_of_the_curve():
    """Beyond a doubling the longer answer always wins: no finite slope there, yet a share at equal length."""
    lengths = length_worlds.drawn_lengths(500, np.random.default_rng(3))
    pairs, features = length_worlds.tables_of(
        length_worlds.margins("none", lengths, 1, np.random.default_rng(4)), lengths
    )
    apart = np.log2(lengths[:, 0] / lengths[:, 1])
    pairs = check_pairs(pairs.assign(margin=np.where(np.abs(apart) > 1, apart, pairs["margin"])))
    row = length_controlled(pairs, features).iloc[0]
    near = pairs["margin"][np.abs(apart) < 0.5].gt(0).mean()
    assert row["low"] < near < row["high"]
    assert row["high"] - row["low"] < 0.25


def test_style_control_takes_the_style_out():
    scores, features = world(400, style=2.0, skill=1.0, seed=5)
    pairs = metrics.pairs(scores)
    tilted = pairs[pairs["level"] != "hard"]  # fancier answers are mostly right here
    raw, level = style_controlled(tilted, controls=["style"]).iloc[0], style_controlled(pairs, controls="style").iloc[0]
    truth = (pairs["outcome"][pairs["level"] == "normal"] == "win").mean()
    assert raw["accuracy"] > truth + 0.08
    assert raw["controlled"] == pytest.approx(truth, abs=0.03)
    assert level["controlled"] == pytest.approx(truth, abs=0.03)
    twice = style_controlled(pairs, features.assign(words=features["characters"]), controls=["characters", "words"])
    assert np.isnan(twice["effect_words"].item())
    assert twice["reason"].item() == "words cannot be told from the terms before it"


def test_scores_and_pairs_give_the_same_and_families_widen_the_interval(make_scores):
    scores, features = world(60, seed=8)
    pd.testing.assert_frame_equal(
        length_controlled(scores, features), length_controlled(metrics.pairs(scores), features)
    )
    twins = pd.concat(
        [scores.assign(family=scores["id"]), scores.assign(id=scores["id"] + " again", family=scores["id"])]
    )
    apart, together = (style_controlled(twins, controls="style", cluster=c).iloc[0] for c in (None, "family"))
    assert apart["controlled"] == together["controlled"]
    assert together["se"] == pytest.approx(apart["se"] * np.sqrt(2), rel=0.02)


@pytest.mark.filterwarnings("ignore:form")
def test_preferences_of_any_shape_are_followed_and_the_tanh_is_caught_where_it_cannot():
    rng = np.random.default_rng(0)
    lengths = length_worlds.drawn_lengths(600, rng)
    for preference in length_worlds.PREFERENCES:
        pairs, features = length_worlds.tables_of(length_worlds.margins(preference, lengths, 40, rng), lengths)
        free = length_controlled(pairs, features)
        inside = (free["low"] <= length_worlds.TRUTH) & (free["high"] >= length_worlds.TRUTH)
        assert inside.mean() >= 0.85, preference
        assert (free["caveat"] == "").mean() >= 0.9, preference
        bent = length_controlled(pairs, features, form="tanh")
        if preference in ("middle length", "unlike lengths"):
            assert ((bent["low"] <= length_worlds.TRUTH) & (bent["high"] >= length_worlds.TRUTH)).mean() <= 0.6, (
                preference
            )
            assert bent["caveat"].str.contains("does not fit").mean() >= 0.8, preference
        if preference == "none":
            assert (bent["caveat"] == "").mean() >= 0.9


def test_quality_that_falls_with_length_is_in_the_number():
    # No preference for length: the model sees quality only, and short answers are better. Equal length is no cure.
    rng = np.random.default_rng(1)
    lengths = length_worlds.drawn_lengths(3000, rng)
    pairs, features = length_worlds.tables_of(length_worlds.margins("shorter is better", lengths, 1, rng), lengths)
    row = length_controlled(pairs, features).iloc[0]
    assert row["accuracy"] < length_worlds.TRUTH - 0.04
    assert row["low"] < length_worlds.TRUTH < row["high"]
    assert row["effect_high"] < 0


def test_a_style_that_is_worth_more_on_right_answers():
    rng = np.random.default_rng(2)
    n, models = 600, 10
    chosen, rejected = np.repeat(np.arange(3), 3), np.tile(np.arange(3), 3)
    margin = rng.normal(0, 1, (models, n, 9)) + 0.5 + 0.5 * (chosen - rejected) + 0.8 * chosen
    pairs, _ = length_worlds.tables_of(margin, np.ones((n, 6)))
    styles = np.array(["concise", "plain", "markdown"])
    pairs = pairs.assign(chosen_style=styles[pairs["chosen_slot"]], rejected_style=styles[pairs["rejected_slot"]]).pipe(
        check_pairs
    )
    free = style_controlled(pairs, controls="style")
    normal = metrics.accuracy(pairs[pairs["level"] == "normal"])
    np.testing.assert_allclose(free["controlled"], normal["accuracy"], atol=2e-3)
    np.testing.assert_allclose(free["se"], normal["se"], rtol=0.05)
    with pytest.warns(UserWarning, match="does not fit in 10 of 10 rows"):
        line = style_controlled(pairs, controls="style", form="linear")
    assert line["caveat"].str.contains("does not fit").all()
    assert (free["caveat"] == "").sum() >= 9


def test_what_cannot_be_fitted_has_its_reason():
    scores, features = world(30, seed=4)
    pairs = metrics.pairs(scores)
    right = scores.assign(score=(scores["label"] == "chosen").astype(float))
    for table, lengths, ties, reason in (
        (scores.assign(score=1.0), features, "loss", "every comparison is lost or tied"),
        (scores.assign(score=1.0), features, "half", "every comparison is a tie"),
        (scores.assign(score=1.0), features, "drop", "no outcome"),
        (right, features, "loss", "every comparison is won"),
        (scores, features.assign(characters=100), "loss", "characters does not vary"),
        (world(4, noise=3.0, seed=1)[0], features, "loss", "fewer than 5 prompts"),
        (*_planted(200, 0.7, 1.0, seed=4, shift=6000.0), "loss", "characters differs the same way"),
    ):
        row = length_controlled(table, lengths, ties=ties).iloc[0]
        assert reason in row["reason"]
        assert np.isnan(row["low"]) or "vary" in reason
    for error, message, options in (
        (DataError, "'character'", {"measure": "character"}),
        (ValueError, "confidence: 95", {"confidence": 95}),
    ):
        with pytest.raises(error, match=message):
            length_controlled(pairs, features, **options)
    for error, message, options in (
        (DataError, "'style'", {"controls": ["style"]}),
        (ValueError, "controls", {"controls": ["characters", "characters"]}),
    ):
        with pytest.raises(error, match=message):
            style_controlled(pairs.drop(columns=["chosen_style", "rejected_style"]), features, **options)
