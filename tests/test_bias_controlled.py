"""Accuracy at equal length: the planted logistic model comes back, separation is said, never hidden."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, ndtr
from style_worlds import world

from rmlab import metrics
from rmlab.bias import length_controlled, style_controlled
from rmlab.tables import DataError, check_pairs


def pairs_and_features(margin, lengths, *, model="m", domain="chat"):
    """Margins (prompts, comparisons) as pairs, and lengths (2, prompts, comparisons) as their features."""
    n, per_prompt = margin.shape
    keys = pd.DataFrame({"benchmark": "b", "domain": domain, "id": np.repeat(np.arange(n), per_prompt).astype(str)})
    slots = np.tile(np.arange(per_prompt), n)
    pairs = check_pairs(keys.assign(model=model, chosen_slot=slots, rejected_slot=slots, margin=margin.ravel()))
    sides = zip(("chosen", "rejected"), lengths, strict=True)
    return pairs, pd.concat([keys.assign(label=label, slot=slots, characters=side.ravel()) for label, side in sides])


def planted(n, at_zero, effect, seed=0, per_prompt=1, shift=400.0, **names):
    """Outcomes that follow the logistic model with a tanh of the difference, with longer chosen answers."""
    rng = np.random.default_rng(seed)
    lengths = rng.normal(3000, 500, (2, n, per_prompt)).round() + np.array([shift, 0.0])[:, None, None]
    difference = lengths[0] - lengths[1]
    chance = expit(np.log(at_zero / (1 - at_zero)) + effect * np.tanh(difference / difference.std()))
    return pairs_and_features(np.where(rng.random(chance.shape) < chance, 1.0, -1.0), lengths, **names)


@pytest.mark.filterwarnings("ignore:form")
def test_planted_accuracy_at_equal_length_comes_back():
    parts = [planted(400, 0.7, 1.5, seed=seed, model=f"m{seed}", domain=f"d{seed}") for seed in range(100)]
    pairs, features = (pd.concat(frames) for frames in zip(*parts, strict=True))
    for form in ("spline", "tanh"):
        table = length_controlled(pairs, features, form=form)
        assert table["controlled"].mean() == pytest.approx(0.7, rel=0.05)
        assert table["accuracy"].mean() > 0.75  # what length adds, as the chosen answers are longer
        assert ((table["low"] <= 0.7) & (table["high"] >= 0.7)).mean() >= 0.92
    # answers are 6,400 characters together: twice as long is a difference of 2,130, three standard deviations
    assert table["effect"].mean() == pytest.approx(1.5 * np.tanh(6400 / 3 / 707), rel=0.05)
    assert (table["effect_low"].le(1.5) & table["effect_high"].ge(1.5)).mean() >= 0.92
    assert (table["fit_p"] < 0.05).mean() <= 0.15
    assert (table["caveat"] == "").mean() >= 0.95


def test_equals_statsmodels_logit():
    import statsmodels.api as sm

    pairs, features = planted(80, 0.6, 1.0, seed=1, per_prompt=3)
    row = length_controlled(pairs, features, form="tanh").iloc[0]
    chosen, rejected = (features.loc[features["label"] == label, "characters"] for label in ("chosen", "rejected"))
    chosen, rejected = chosen.to_numpy(), rejected.to_numpy()
    spread = (chosen - rejected).std()
    x = np.column_stack([np.ones(240), np.tanh((chosen - rejected) / spread)])
    won = (pairs["outcome"] == "win").to_numpy(dtype=float)
    fit = sm.Logit(won, x).fit(disp=0, cov_type="cluster", cov_kwds={"groups": pairs["id"].astype(int).to_numpy()})
    total = np.exp(np.log(chosen + rejected + 2).mean()) - 2
    assert row["controlled"] == pytest.approx(expit(fit.params[0]), rel=1e-6)
    assert row["effect"] == pytest.approx(fit.params[1] * np.tanh(total / 3 / spread), rel=1e-6)
    assert row["se"] == pytest.approx(fit.bse[0] * row["controlled"] * (1 - row["controlled"]), rel=1e-6)
    assert row["accuracy"] == won.mean()
    assert (row["n_pairs"], row["n_prompts"]) == (240, 80)


def test_perfect_separation_is_said():
    scores, features = world(60, seed=3)
    for sign in (1, -1):
        table = scores.assign(score=sign * features["characters"])
        rows = [length_controlled(table, features, form=form).iloc[0] for form in ("spline", "tanh")]
        rows.append(style_controlled(table, features, controls=["characters", "markdown"]).iloc[0])
        for row in rows:
            assert "separation" in row["reason"]
            assert row[["controlled", "se", "low", "high", "fit_p"]].isna().all()
            assert row["accuracy"] > 0.4


def test_a_liking_of_any_shape_is_followed_and_the_tanh_is_caught_where_it_cannot():
    """Right answers are a third longer; a middle length is liked best. Beyond a doubling, the longer one may decide."""
    rng, n = np.random.default_rng(3), 600
    lengths = np.round(2 ** (rng.normal(9.5, 0.8, n) + rng.normal(0, 0.7, (2, n)) + np.array([[0.4], [0.0]])))
    apart, truth = np.log2(lengths[0] / lengths[1]), ndtr(0.8)
    middle = 0.4 * np.subtract(*(np.log2(lengths) - 9.5) ** 2)
    held, caught = [], []
    for _ in range(20):
        pairs, features = pairs_and_features((0.8 + middle + rng.normal(0, 1, n))[:, None], lengths[..., None])
        row = length_controlled(pairs, features).iloc[0]
        held.append(row["low"] <= truth <= row["high"])
        with pytest.warns(UserWarning, match="form"):
            caught.append(length_controlled(pairs, features, form="tanh")["caveat"].item() != "")
    assert np.mean(held) >= 0.8
    assert np.mean(caught) >= 0.8
    decided = np.where(np.abs(apart) > 1, apart, 0.8 + rng.normal(0, 1, n))
    row = length_controlled(*pairs_and_features(decided[:, None], lengths[..., None])).iloc[0]
    assert row["low"] < (decided[np.abs(apart) < 0.5] > 0).mean() < row["high"] < row["low"] + 0.25


def test_style_control_takes_the_style_out():
    scores, features = world(400, style=2.0, skill=1.0, seed=5)
    pairs = metrics.pairs(scores)
    tilted = pairs[pairs["level"] != "hard"]  # fancier answers are mostly right here
    raw, level = style_controlled(tilted, controls=["style"]).iloc[0], style_controlled(pairs, controls="style").iloc[0]
    normal = metrics.accuracy(pairs[pairs["level"] == "normal"])["accuracy"].item()
    assert raw["accuracy"] > normal + 0.08
    assert [raw["controlled"], level["controlled"]] == pytest.approx([normal, normal], abs=0.03)
    doubled = style_controlled(pairs, features.assign(words=features["characters"]), controls=["characters", "words"])
    assert np.isnan(doubled["effect_words"].item())
    assert "words" in doubled["reason"].item()


def test_scores_and_pairs_give_the_same_and_families_widen_the_interval():
    scores, features = world(60, seed=8)
    by_pairs = length_controlled(metrics.pairs(scores), features)
    pd.testing.assert_frame_equal(length_controlled(scores, features), by_pairs)
    twins = pd.concat([scores.assign(id=scores["id"] + end, family=scores["id"]) for end in ("", " again")])
    apart, together = (style_controlled(twins, controls="style", cluster=c).iloc[0] for c in (None, "family"))
    assert apart["controlled"] == together["controlled"]
    assert together["se"] == pytest.approx(apart["se"] * np.sqrt(2), rel=0.02)


def test_what_cannot_be_fitted_has_its_reason():
    scores, features = world(30, seed=4)
    right = scores.assign(score=(scores["label"] == "chosen").astype(float))
    for table, lengths, ties, reason in (
        (scores.assign(score=1.0), features, "loss", "lost or tied"),
        (scores.assign(score=1.0), features, "half", "a tie"),
        (scores.assign(score=1.0), features, "drop", "no outcome"),
        (right, features, "loss", "won"),
        (scores, features.assign(characters=100), "loss", "characters does not vary"),
        (world(4, noise=3.0, seed=1)[0], features, "loss", "fewer than 5 prompts"),
        (*planted(200, 0.7, 1.0, seed=4, shift=6000.0), "loss", "characters differs"),
    ):
        row = length_controlled(table, lengths, ties=ties).iloc[0]
        assert reason in row["reason"]
        assert np.isnan(row["low"]) or "vary" in reason
    plain = metrics.pairs(scores).drop(columns=["chosen_style", "rejected_style"])
    for function, error, match, options in (
        (length_controlled, DataError, "'character'", {"measure": "character"}),
        (length_controlled, ValueError, "confidence: 95", {"confidence": 95}),
        (style_controlled, DataError, "'style'", {"controls": ["style"]}),
        (style_controlled, ValueError, "controls", {"controls": ["characters", "characters"]}),
    ):
        with pytest.raises(error, match=match):
            function(plain, features, **options)
