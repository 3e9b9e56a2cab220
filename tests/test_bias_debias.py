"""Calibration: takes off what was planted, never reads a label, never judges a prompt by itself."""

import numpy as np
import pandas as pd
import pytest
from style_worlds import world

from rmlab import metrics
from rmlab.bias.debias import debias, debias_change
from rmlab.tables import DataError


def _slope(scores, features):
    """Least-squares slope of what was removed on log2(characters), inside prompts."""
    frame = scores.assign(x=np.log2(features["characters"].to_numpy()))
    inside = frame[["removed", "x"]] - frame.groupby("id")[["removed", "x"]].transform("mean")
    return (inside["removed"] * inside["x"]).sum() / (inside["x"] ** 2).sum()


def test_planted_length_effect_is_taken_off():
    slopes = []
    for seed in range(10):
        scores, features = world(300, style=0.0, length=0.5, seed=seed)
        slopes.append(_slope(debias(scores, features), features))
    assert np.mean(slopes) == pytest.approx(0.5, rel=0.05)


def test_style_steps_can_be_taken_off_without_features():
    scores, _ = world(400, style=0.7, seed=3)
    change = debias_change(scores, on="step").set_index("level")
    assert change.loc["easy", "before"] - change.loc["hard", "before"] > 0.3
    assert abs(change.loc["easy", "after"] - change.loc["hard", "after"]) < 0.06
    assert change.loc["normal", "change"] == 0
    assert change.loc["normal", ["flipped", "se"]].tolist() == [0, 0]
    assert change.loc["normal", "low"] < 0 < change.loc["normal", "high"]  # not known for sure


@pytest.mark.parametrize("within", [True, False])
def test_labels_are_never_read(within):
    scores, features = world(40, length=0.5, seed=4)
    swap = {"chosen": "rejected", "rejected": "chosen"}
    swapped = [frame.assign(label=frame["label"].map(swap)) for frame in (scores, features)]
    turned = debias(*swapped, within=within)
    np.testing.assert_array_equal(turned["score"], debias(scores, features, within=within)["score"])


def test_a_prompts_own_scores_never_calibrate_it():
    scores, features = world(40, length=0.5, seed=5)
    wild = scores.assign(score=scores["score"].where(scores["id"] != "7", 1e4 * scores["slot"]))
    tame, wild = debias(scores, features), debias(wild, features)
    is_wild = (scores["id"] == "7").to_numpy()
    np.testing.assert_allclose(tame["removed"][is_wild], wild["removed"][is_wild], rtol=1e-9)
    assert not np.allclose(tame["removed"][~is_wild], wild["removed"][~is_wild])


def test_change_equals_two_accuracies():
    scores, features = world(30, length=0.6, seed=9)
    old, new = metrics.pairs(scores), metrics.pairs(debias(scores, features))
    table = debias_change(scores, features).set_index("level")
    assert table.index.tolist() == ["easy", "normal", "hard", "all"]
    for level, row in table.iterrows():
        rows = (old["level"] == level) | (level == "all")
        before, after = metrics.credit(old[rows]).mean(), metrics.credit(new[rows]).mean()
        np.testing.assert_allclose(row[["before", "after", "change"]].astype(float), [before, after, after - before])
        assert row["flipped"] == pytest.approx((old["outcome"] != new["outcome"])[rows].mean())
        assert row["low"] < row["change"] < row["high"]


@pytest.mark.parametrize("length", [0.0, 0.8])
def test_the_interval_holds_where_length_tells_the_label(length):
    """Wrong answers are four times as long: the fit takes merit off, and is the larger part of the error."""

    def draw_scores(n, seed):
        scores, features = world(n, skill=1.5, style=0.0, length=length, seed=seed)
        is_wrong = (features["label"] == "rejected").to_numpy()
        longer = features.assign(characters=features["characters"] * np.where(is_wrong, 4, 1))
        return scores.assign(score=scores["score"] + 2 * length * is_wrong), longer

    truth = debias_change(*draw_scores(4000, 999)).set_index("level")["change"]
    tables = [debias_change(*draw_scores(40, seed)).set_index("level") for seed in range(60)]
    for level in truth.index:
        held = np.mean([t.loc[level, "low"] <= truth[level] <= t.loc[level, "high"] for t in tables])
        assert held >= 0.9, level


def test_a_model_without_scores_stays_without_scores():
    scores, features = world(20)
    silent = scores.assign(model="silent", score=np.nan)
    both = debias(pd.concat([scores, silent]), features)
    assert both.loc[both["model"] == "silent debiased", "score"].isna().all()
    pd.testing.assert_frame_equal(both[both["model"] == "m debiased"], debias(scores, features))
    change = debias_change(silent, features)
    assert change["n_pairs"].eq(0).all()
    assert change["change"].isna().all()
    for function in (debias, debias_change):
        with pytest.raises(DataError):
            function(scores.iloc[:0], features)


def test_bad_input_is_named():
    scores, features = world(20, length=0.5, seed=10)
    for message, table, counts, options in (
        ("4 prompts", *world(4), {}),
        ("20 prompts", scores, features, {"folds": 30}),
        ("'characters'", scores, features.assign(characters=10), {}),
        ("6 of 120", scores, features[features["id"] != "3"], {}),
        ("features: None", scores, None, {}),
        ("'step'", scores.drop(columns="style"), None, {"on": "step"}),
    ):
        with pytest.raises(DataError, match=message):
            debias(table, counts, **options)
    with pytest.raises(ValueError, match="folds: 1"):
        debias(scores, features, folds=1)
    with pytest.raises(DataError, match=r"by: .*'model'"):
        debias_change(pd.concat([scores, scores.assign(model="second")]), features, by="domain")
