"""Effects of style on scores, and their exchange rate: planted values come back, bad input is named."""

import numpy as np
import pandas as pd
import pytest
from style_worlds import world

from rmlab.bias import exchange_rate, style_effects
from rmlab.bias.effects import fieller
from rmlab.tables import DataError


def value_of(table, term, column="effect"):
    return table.set_index("term").loc[term, column]


def many_worlds(count, n, **settings):
    """Many models in one table, each with lengths of its own, so one domain per model."""
    parts = [world(n, seed=seed, model=f"m{seed}", domain=f"d{seed}", **settings) for seed in range(count)]
    return [pd.concat(frames) for frames in zip(*parts, strict=True)]


def test_planted_effects_come_back():
    planted = {"correct": 1.0, "step_plain": 0.5, "step_markdown": 0.5, "characters": 0.3}
    scores, features = many_worlds(40, 300, length=0.3)
    effect = style_effects(scores, features).groupby("term")["effect"].mean()
    rate = exchange_rate(scores, features).groupby("term")["rate"].mean()
    for term, value in planted.items():
        assert effect[term] / effect["correct"] == pytest.approx(value, rel=0.05), term
        assert term == "correct" or rate[term] == pytest.approx(value, rel=0.05), term
    assert abs(effect["markdown"]) < 0.02


def test_effects_are_in_units_of_the_spread_within_a_prompt():
    scores, _ = world(4000, skill=1.0, style=0.5, noise=1.0, seed=3)
    # variance within a prompt: right or wrong 1/4, steps (0, 1, 2) / 2 gives 1/6, noise 1; times 6/5 but for the noise
    unit = np.sqrt(1 + 6 / 5 * (1 / 4 + 1 / 6))
    assert value_of(style_effects(scores), "correct") == pytest.approx(1 / unit, rel=0.03)
    assert value_of(style_effects(scores, terms=["step"]), "step") == pytest.approx(0.5 / unit, rel=0.03)


def test_effects_equal_a_regression_with_one_dummy_per_prompt():
    import statsmodels.formula.api as smf

    scores, features = world(30, length=0.3, seed=5)
    table = style_effects(scores, features, terms=["correct", "step", "characters"])
    data = scores.assign(right=(scores["label"] == "chosen").astype(float), long=np.log2(features["characters"]))
    inside = data["score"] - data.groupby("id")["score"].transform("mean")
    data["y"] = data["score"] / np.sqrt((inside**2).sum() / (len(data) - 30))
    codes, names = data["id"].astype(int).to_numpy(), ["right", "slot", "long"]
    model = smf.ols("y ~ right + slot + long + C(id)", data)
    fit = model.fit(cov_type="cluster", cov_kwds={"groups": codes}, use_t=True)
    np.testing.assert_allclose(table["effect"], fit.params[names], rtol=1e-9)
    # the dummies cost degrees of freedom there, and none here, as they lie inside the clusters
    n, k = len(data), 3
    np.testing.assert_allclose(table["se"], fit.bse[names] * np.sqrt((n - k - 30) / (n - k)), rtol=1e-9)


def test_effects_know_neither_row_order_nor_scale_nor_level_nor_backend():
    scores, features = world(40, seed=6)
    expected = style_effects(scores, features)
    mixed = style_effects(scores.sample(frac=1, random_state=0), features.sample(frac=1, random_state=1))
    pd.testing.assert_frame_equal(mixed, expected)
    moved = scores.assign(score=3 * scores["score"] + 50 * scores["id"].astype(int))
    pd.testing.assert_frame_equal(style_effects(moved, features), expected)
    arrow = [frame.convert_dtypes(dtype_backend="pyarrow") for frame in (scores, features)]
    pd.testing.assert_frame_equal(style_effects(*arrow), expected, check_dtype=False)


def test_intervals_cover():
    terms = ["correct", "step"]
    rates = exchange_rate(many_worlds(400, 60, skill=0.5, style=0.5, noise=1.5)[0], terms=terms)
    assert 0.92 <= ((rates["low"] <= 1) & (rates["high"] >= 1)).mean() <= 0.98
    null = style_effects(many_worlds(400, 60, style=0.0)[0], terms=terms)
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
        low, high, reason = fieller(estimates, covariance, quantile)
        kinds.add(("excluded" in reason) if reason else "bounded")
        if reason:
            assert (low, high) == (-np.inf, np.inf)
            assert accepted[0] or accepted[-1]
        else:
            assert (accepted == ((grid >= low) & (grid <= high))).mean() > 0.9999
    assert kinds == {"bounded", True, False}


def test_no_estimate_comes_with_its_reason():
    scores, features = world(30, seed=7)
    flat = style_effects(scores.assign(score=scores["id"].astype(float) / 3), features)
    assert flat["effect"].isna().all()
    assert flat["reason"].str.contains("do not vary").all()
    still = style_effects(scores, features.assign(markdown=4)).set_index("term")
    assert "markdown does not vary" in still.loc["markdown", "reason"]
    assert still.drop("markdown")["effect"].notna().all()
    doubled = style_effects(scores, features.assign(words=features["characters"] * 2), terms=["characters", "words"])
    assert [bool(reason) for reason in doubled["reason"]] == [False, True]
    is_missing = (scores["id"] == "3") | ((scores["id"] == "5") & (scores["slot"] > 0))
    gaps = style_effects(scores.assign(score=scores["score"].where(~is_missing)))
    assert (gaps[["missing", "n_prompts", "n"]] == [10, 29, 170]).all(axis=None)
    few = style_effects(world(4)[0])
    assert few["effect"].notna().all()
    assert few[["se", "low", "high", "p"]].isna().all(axis=None)
    assert few["reason"].str.contains("fewer than 5 prompts").all()
    assert exchange_rate(world(4)[0])["low"].isna().all()
    ignorant = exchange_rate(world(50, skill=0.0, style=1.0, seed=2)[0], terms=["correct", "step"]).iloc[0]
    assert (ignorant["low"], ignorant["high"]) == (-np.inf, np.inf)


def test_correct_holds_the_price_of_length_where_a_caveat_says_so():
    scores, features = world(500, skill=0.0, style=0.0, length=1.0, seed=9)
    wrong = (features["label"] == "rejected").to_numpy()
    scores = scores.assign(score=scores["score"] + wrong)  # wrong answers are twice as long, and longer is better here
    features = features.assign(characters=features["characters"] * np.where(wrong, 2, 1))
    with_length, without = style_effects(scores, features), style_effects(scores)
    assert value_of(with_length, "correct") == pytest.approx(0, abs=0.06)
    assert with_length["caveat"].eq("").all()
    assert value_of(without, "correct") < -0.3
    assert (without["caveat"] != "").tolist() == [True, False, False]


def test_wrong_features_and_terms_are_named():
    scores, features = world(10)
    for match, counts, terms in (
        ("6 of 60", features[features["id"] != "3"], None),
        ("'charcters'", features, ["correct", "charcters"]),
        ("'characters'", features.assign(characters=np.nan), None),
        ("repeat a key", pd.concat([features, features]), None),
        ("'slot'", features.drop(columns="slot"), None),
    ):
        with pytest.raises(DataError, match=match):
            style_effects(scores, counts, terms=terms)
    with pytest.raises(ValueError, match="terms"):
        exchange_rate(scores, terms=["step"])
    assert set(style_effects(scores.drop(columns="style"))["term"]) == {"correct"}
