"""Effects of style on scores, and their exchange rate: planted values come back, bad input is named."""

import numpy as np
import pandas as pd
import pytest
from style_worlds import world

from rmlab.bias.effects import exchange_rate, fieller, style_effects
from rmlab.tables import DataError


def _one(table, term, column="effect"):
    return table.set_index("term").loc[term, column]


def _worlds(count, n, **settings):
    """Many models in one table, each with lengths of its own, so one domain per model."""
    made = [world(n, seed=seed, model=f"m{seed}", domain=f"d{seed}", **settings) for seed in range(count)]
    return pd.concat([scores for scores, _ in made]), pd.concat([features for _, features in made])


def test_planted_effects_come_back():
    planted = {"correct": 1.0, "step_plain": 0.5, "step_markdown": 0.5, "characters": 0.3}
    scores, features = _worlds(40, 300, length=0.3)
    effect = style_effects(scores, features).groupby("term")["effect"].mean()
    rate = exchange_rate(scores, features).groupby("term")["rate"].mean()
    for term, value in planted.items():
        assert effect[term] / effect["correct"] == pytest.approx(value, rel=0.05), term
        assert term == "correct" or rate[term] == pytest.approx(value, rel=0.05), term
    assert abs(effect["markdown"]) < 0.02


def test_effects_are_in_units_of_the_spread_within_a_prompt():
    scores, features = world(4000, skill=1.0, style=0.5, noise=1.0, seed=3)
    # variance within a prompt: right or wrong 1/4, steps (0, 1, 2) / 2 gives 1/6, noise 1; times 6/5 but for the noise
    unit = np.sqrt(1 + 6 / 5 * (1 / 4 + 1 / 6))
    table = style_effects(scores)
    assert _one(table, "correct") == pytest.approx(1 / unit, rel=0.03)
    assert _one(style_effects(scores, terms=["step"]), "step") == pytest.approx(0.5 / unit, rel=0.03)
    assert set(style_effects(scores, features)["term"]) == {
        "correct", "step_plain", "step_markdown", "characters", "markdown",
    }  # fmt: skip


def test_without_features_a_step_has_its_whole_price():
    scores, features = world(2000, style=0.2, length=0.6, seed=4)
    whole, left = exchange_rate(scores), exchange_rate(scores, features)
    assert _one(whole, "step_plain", "rate") == pytest.approx(0.2 + 0.5 * 0.6, rel=0.1)  # a step adds half a doubling
    assert _one(left, "step_plain", "rate") == pytest.approx(0.2, abs=0.05)


def test_effects_equal_a_regression_with_one_dummy_per_prompt():
    import statsmodels.formula.api as smf

    scores, features = world(30, length=0.3, seed=5)
    found = style_effects(scores, features, terms=["correct", "step", "characters"])
    data = scores.assign(right=(scores["label"] == "chosen").astype(float), long=np.log2(features["characters"]))
    inside = data["score"] - data.groupby("id")["score"].transform("mean")
    data["y"] = data["score"] / np.sqrt((inside**2).sum() / (len(data) - 30))
    codes = data["id"].astype(int).to_numpy()
    fit = smf.ols("y ~ right + slot + long + C(id)", data).fit(
        cov_type="cluster", cov_kwds={"groups": codes}, use_t=True
    )
    names = ["right", "slot", "long"]
    np.testing.assert_allclose(found["effect"], fit.params[names], rtol=1e-9)
    # the dummies cost degrees of freedom there, and none here, as they lie inside the clusters
    n, k = len(data), 3
    np.testing.assert_allclose(found["se"], fit.bse[names] * np.sqrt((n - k - 30) / (n - k)), rtol=1e-9)


def test_effects_know_neither_row_order_nor_scale_nor_level():
    scores, features = world(40, seed=6)
    expected = style_effects(scores, features)
    mixed = style_effects(scores.sample(frac=1, random_state=0), features.sample(frac=1, random_state=1))
    pd.testing.assert_frame_equal(mixed, expected)
    moved = scores.assign(score=3 * scores["score"] + 50 * scores["id"].astype(int))
    pd.testing.assert_frame_equal(style_effects(moved, features), expected)


def test_intervals_cover():
    terms = ["correct", "step"]
    rates = exchange_rate(_worlds(400, 60, skill=0.5, style=0.5, noise=1.5)[0], terms=terms)
    assert 0.92 <= ((rates["low"] <= 1) & (rates["high"] >= 1)).mean() <= 0.98
    null = style_effects(_worlds(400, 60, style=0.0)[0], terms=terms)
    assert 0.025 <= (null.loc[null["term"] == "step", "p"] < 0.05).mean() <= 0.08


def test_fieller_is_where_the_test_of_the_ratio_accepts():
    rng = np.random.default_rng(0)
    grid = np.linspace(-40, 40, 80_001)
    kinds = set()
    for _ in range(200):
        root = rng.normal(size=(2, 2))
        covariance, estimates, quantile = root @ root.T, rng.normal(0, 3, 2), 2.0
        variance = covariance[1, 1] - 2 * grid * covariance[0, 1] + grid**2 * covariance[0, 0]
        accepted = (estimates[1] - grid * estimates[0]) ** 2 <= quantile**2 * variance
        low, high, note = fieller(estimates, covariance, quantile)
        if note:
            assert (low, high) == (-np.inf, np.inf)
            assert note.startswith("unbounded")
            assert accepted[0] or accepted[-1]
            kinds.add("excluded" in note)
        else:
            inside = (grid >= low) & (grid <= high)
            assert (accepted == inside).mean() > 0.9999
            kinds.add("bounded")
    assert kinds == {"bounded", True, False}


def test_a_model_that_knows_nothing_has_no_bounded_rate():
    scores, _ = world(50, skill=0.0, style=1.0, seed=2)
    row = exchange_rate(scores, terms=["correct", "step"]).iloc[0]
    assert (row["low"], row["high"]) == (-np.inf, np.inf)
    assert "may be zero" in row["reason"]


def test_no_estimate_comes_with_its_reason():
    scores, features = world(30, seed=7)
    flat = style_effects(scores.assign(score=scores["id"].astype(float) / 3), features)
    assert flat["effect"].isna().all()
    assert (flat["reason"] == "scores do not vary within a prompt").all()
    still = style_effects(scores, features.assign(markdown=4)).set_index("term")
    assert still.loc["markdown", "reason"] == "markdown does not vary within a prompt"
    assert still.drop("markdown")["effect"].notna().all()
    twice = style_effects(scores, features.assign(words=features["characters"] * 2), terms=["characters", "words"])
    assert twice["reason"].tolist() == ["", "words cannot be told from the terms before it"]
    few = style_effects(world(4)[0])
    assert few["effect"].notna().all()
    assert few[["se", "low", "high", "p"]].isna().all(axis=None)
    assert few["reason"].str.contains("fewer than 5 prompts").all()
    assert exchange_rate(world(4)[0])["low"].isna().all()
    one = style_effects(world(1)[0])
    assert one["se"].isna().all()


def test_missing_scores_are_counted_and_left_out():
    scores, _ = world(40, seed=8)
    is_missing = (scores["id"] == "3") | ((scores["id"] == "5") & (scores["slot"] > 0))
    table = style_effects(scores.assign(score=scores["score"].where(~is_missing)))
    assert (table[["missing", "n_prompts", "n"]] == [10, 39, 230]).all(axis=None)
    assert style_effects(scores.assign(score=np.nan))["reason"].eq("no prompt with two scores").all()


def test_correct_holds_the_price_of_length_where_a_caveat_says_so():
    scores, features = world(500, skill=0.0, style=0.0, length=1.0, seed=9)
    wrong = (features["label"] == "rejected").to_numpy()
    scores = scores.assign(score=scores["score"] + wrong)  # wrong answers are twice as long, and longer is better here
    features = features.assign(characters=features["characters"] * np.where(wrong, 2, 1))
    with_length, without = style_effects(scores, features), style_effects(scores)
    assert _one(with_length, "correct") == pytest.approx(0, abs=0.06)
    assert with_length["caveat"].eq("").all()
    assert _one(without, "correct") < -0.3
    assert without["caveat"].str.contains("length is not in the fit").tolist() == [True, False, False]


def test_wrong_features_and_terms_are_named():
    scores, features = world(10)
    for message, counts, terms in (
        ("6 of 60 texts of scores", features[features["id"] != "3"], None),
        ("'charcters'", features, ["correct", "charcters"]),
        ("'characters'", features.assign(characters=np.nan), None),
        ("repeat a key", pd.concat([features, features]), None),
        ("'slot'", features.drop(columns="slot"), None),
    ):
        with pytest.raises(DataError, match=message):
            style_effects(scores, counts, terms=terms)
    with pytest.raises(ValueError, match="terms"):
        exchange_rate(scores, terms=["step"])
    assert set(style_effects(scores.drop(columns="style"))["term"]) == {"correct"}
