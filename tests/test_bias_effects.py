"""Effects of style on scores, and their exchange rate: planted values come back, bad input is named."""

import json

import numpy as np
import pandas as pd
import pytest
from style_worlds import world

from rmlab.bias.effects import exchange_rate, fieller, style_effects
from rmlab.tables import KEY, DataError


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


def test_by_model_and_domain():
    scores = pd.concat(
        [world(50, style=style, model=model, domain=domain, seed=1)[0]
         for model, domain, style in [("a", "chat", 0.0), ("a", "code", 1.0), ("b", "chat", 1.0), ("b", "code", 0.0)]]
    )  # fmt: skip
    rates = exchange_rate(scores, terms=["correct", "step"], by=["model", "domain"])
    assert list(rates.columns[:3]) == ["model", "domain", "term"]
    assert (rates["n_prompts"] == 50).all()
    assert (rates.set_index(["model", "domain"])["rate"] > 0.5).to_dict() == {
        ("a", "chat"): False, ("a", "code"): True, ("b", "chat"): True, ("b", "code"): False,
    }  # fmt: skip


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
    holes = scores.assign(
        score=scores["score"].where((scores["id"] != "3") & ~((scores["id"] == "5") & (scores["slot"] > 0)))
    )
    table = style_effects(holes)
    assert (table["missing"] == 6 + 4).all()
    assert (table["n_prompts"] == 39).all()
    assert (table["n"] == 240 - 10).all()
    alone = scores.assign(score=scores["score"].where((scores["id"] != "5") | (scores.index == 30)))
    assert (style_effects(alone)["n_prompts"] == 39).all()
    nothing = style_effects(scores.assign(score=np.nan))
    assert nothing["reason"].eq("no prompt with two scores").all()


def test_wrong_features_and_terms_are_named():
    scores, features = world(10)
    with pytest.raises(DataError, match=r"6 of 60 texts of scores have no row, first .*'id': '3'"):
        style_effects(scores, features[features["id"] != "3"])
    with pytest.raises(DataError, match="did you mean 'characters'"):
        style_effects(scores, features, terms=["correct", "charcters"])
    with pytest.raises(DataError, match="needs styles"):
        style_effects(scores.drop(columns="style"), terms=["step"])
    with pytest.raises(DataError, match="not a finite number"):
        style_effects(scores, features.assign(characters=np.nan))
    with pytest.raises(DataError, match="repeat a key"):
        style_effects(scores, pd.concat([features, features]))
    with pytest.raises(DataError, match=r"styles\.features"):
        style_effects(scores, features.drop(columns="slot"))
    with pytest.raises(ValueError, match="unit of the rate"):
        exchange_rate(scores, terms=["step"])
    assert set(style_effects(scores.drop(columns="style"))["term"]) == {"correct"}


def test_correct_holds_the_price_of_length_only_where_a_caveat_says_so():
    scores, features = world(500, skill=0.0, style=0.0, length=1.0, seed=9)
    wrong = (features["label"] == "rejected").to_numpy()
    scores = scores.assign(score=scores["score"] + wrong)  # wrong answers are twice as long, and longer is better here
    features = features.assign(characters=features["characters"] * np.where(wrong, 2, 1))
    assert _one(style_effects(scores, features), "correct") == pytest.approx(0, abs=0.06)
    assert style_effects(scores, features)["caveat"].eq("").all()
    for rows, said in (
        (style_effects(scores), "length is not in the fit"),
        (style_effects(scores, features, terms=["correct", "step"]), r"0\.[45]\d times as long as wrong ones"),
    ):
        assert _one(rows, "correct") < -0.3
        assert rows["caveat"].str.contains(said).tolist() == [True] + [False] * (len(rows) - 1)
    assert exchange_rate(scores)["caveat"].str.contains("length is not in the fit").all()
    same = world(500, seed=9)[1]  # lengths that do not depend on the label
    assert style_effects(scores, same, terms=["correct", "step"])["caveat"].eq("").all()
    assert style_effects(scores, terms=["step"])["caveat"].eq("").all()


def test_counting_characters_is_no_knowledge_on_the_real_texts(shared_data):
    rows = [
        ("rm-bench", name, str(item["id"]), label, slot, style, len(item[label][slot]))
        for name in ("chat", "code", "safety-refuse", "safety-response")
        for item in json.loads((shared_data / "rm-bench" / f"{name}_filtered.json").read_text(encoding="utf-8"))
        for label in ("chosen", "rejected")
        for slot, style in enumerate(("concise", "plain", "markdown"))
    ]
    features = pd.DataFrame(rows, columns=[*KEY, "style", "characters"])
    scores = features.drop(columns="characters").assign(model="longest", score=features["characters"].astype(float))
    without = style_effects(scores).iloc[0]
    assert without["effect"] < -0.05
    assert without["p"] < 0.01
    assert without["caveat"]
    assert round(style_effects(scores, features)["effect"].iloc[0], 3) == 0.005
    left_out = style_effects(scores, features, terms=["correct", "step"], by="domain").set_index(["domain", "term"])
    told = left_out["effect"].xs("correct", level="term").round(2)
    assert (round(without["effect"], 2), told["safety-refuse"], told["safety-response"]) == (-0.09, -0.53, 0.73)
    said = left_out["caveat"].xs("correct", level="term")
    assert said["safety-refuse"].startswith("right answers are 0.49 times as long")
    assert said["safety-response"].startswith("right answers are 2.12 times as long")
    assert said["code"] == ""


def test_real_scores_give_finite_effects(shared_data):
    lines = (
        (shared_data / "rewardbench" / "math_prm_447.scores.rewardmath.jsonl").read_text(encoding="utf-8").splitlines()
    )
    items = [json.loads(line) for line in lines]
    keys = [("rb", "math-prm", str(i["id"]), label, 0) for i in items for label in ("chosen", "rejected")]
    columns = ["benchmark", "domain", "id", "label", "slot"]
    texts = ["\n\n".join(item[f"{label}_steps"]) for item in items for label in ("chosen", "rejected")]
    features = pd.DataFrame(keys, columns=columns).assign(characters=[len(text) for text in texts])
    scores = pd.concat(
        features[columns].assign(
            model=model, score=[item["scores"][model][label] for item in items for label in ("chosen", "rejected")]
        )
        for model in items[0]["scores"]
    )
    table = style_effects(scores, features, terms=["correct", "characters"])
    assert len(table) == 9 * 2
    assert np.isfinite(table[["effect", "se", "low", "high", "p"]].to_numpy()).all()
    assert (table["n_prompts"] == 447).all()


def test_default_terms_are_the_counts_that_features_have():
    scores, features = world(40)
    has = {("characters",): ["characters"], ("characters", "markdown"): ["characters", "markdown"]}
    for columns, terms in has.items():
        table = style_effects(scores, features[[*KEY, *columns]])
        assert table["term"].tolist() == ["correct", "step_plain", "step_markdown", *terms]
    table = style_effects(scores, features[[*KEY, "characters"]].rename(columns={"characters": "tokens"}))
    assert table["term"].iloc[-1] == "tokens"
    with pytest.raises(ValueError, match=r"by: \[\]; name at least one column"):
        style_effects(scores, features, by=[])
