"""Calibration: takes off what was planted, never reads a label, never judges a prompt by itself."""

import numpy as np
import pandas as pd
import pytest
from style_worlds import world

from rmlab import metrics
from rmlab.bias.debias import debias, debias_change
from rmlab.tables import LABELS, DataError


def _slope(scores, features):
    """Least-squares slope of what was removed on log2(characters), inside prompts."""
    frame = scores.assign(x=np.log2(features["characters"].to_numpy()))
    inside = frame[["removed", "x"]] - frame.groupby("id")[["removed", "x"]].transform("mean")
    return (inside["removed"] * inside["x"]).sum() / (inside["x"] ** 2).sum()


def test_planted_length_effect_is_taken_off():
    found = []
    for seed in range(10):
        scores, features = world(300, style=0.0, length=0.5, seed=seed)
        found.append(_slope(debias(scores, features), features))
    assert np.mean(found) == pytest.approx(0.5, rel=0.05)


def test_a_taste_for_markdown_alone_bends_at_plain_which_steps_do_not_follow():
    import course

    from rmlab import score, styles, toy

    questions = course.world(300, seed=3)
    features = styles.features(questions)
    clean = score(questions, toy.scorer(questions, style=0.0, noise=0.8, seed=1), progress=False)
    fancy = clean.assign(score=clean["score"] + 1.0 * (clean["style"] == "markdown"))
    wanted = metrics.matrix(clean).to_numpy()

    def off(**how):
        return metrics.matrix(debias(fancy, features, **how)).to_numpy() - wanted

    steps, headings = off(on="step"), off(on="headings")
    assert np.abs(headings).max() < 0.05
    assert abs(steps[np.tril_indices(3, -1)].mean() - steps[np.triu_indices(3, 1)].mean()) < 0.05
    assert steps[1, 0] < -0.1 < 0.1 < steps[0, 1]


def test_style_steps_can_be_taken_off_without_features():
    scores, _ = world(400, style=0.7, seed=3)
    change = debias_change(scores, on="step").set_index("level")
    assert change.loc["easy", "before"] - change.loc["hard", "before"] > 0.3
    assert abs(change.loc["easy", "after"] - change.loc["hard", "after"]) < 0.06
    assert change.loc["normal", "change"] == 0
    assert change.loc["normal", "flipped"] == 0


@pytest.mark.parametrize("within", [True, False])
def test_labels_are_never_read(within):
    scores, features = world(40, length=0.5, seed=4)
    swap = {"chosen": "rejected", "rejected": "chosen"}
    turned = debias(
        scores.assign(label=scores["label"].map(swap)),
        features.assign(label=features["label"].map(swap)),
        within=within,
    )
    np.testing.assert_array_equal(turned["score"], debias(scores, features, within=within)["score"])


def test_a_prompts_own_scores_never_calibrate_it():
    scores, features = world(40, length=0.5, seed=5)
    wild = scores.assign(score=scores["score"].where(scores["id"] != "7", 1e4 * scores["slot"]))
    one, other = debias(scores, features), debias(wild, features)
    own = (scores["id"] == "7").to_numpy()
    np.testing.assert_allclose(one["removed"][own], other["removed"][own], rtol=1e-9)
    assert not np.allclose(one["removed"][~own], other["removed"][~own])


def test_change_equals_two_accuracies_and_its_error_that_of_fits_to_resampled_prompts():
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
    # The same by hand: copies of a prompt stay in its fold, so that no copy is calibrated on itself.
    ids = np.array(sorted(scores["id"].unique()))
    fold = np.empty(30, int)
    fold[np.random.default_rng(0).permutation(30)] = np.arange(30) % 5
    x = pd.Series(np.log2(features["characters"].to_numpy()), index=scores.set_index(["id", "label", "slot"]).index)
    number = old["id"].map({name: place for place, name in enumerate(ids)}).to_numpy()
    sides = [x.loc[list(zip(old["id"], [side] * len(old), old[f"{side}_slot"], strict=True))] for side in LABELS]
    longer = sides[0].to_numpy() - sides[1].to_numpy()
    inside = [x.loc[name] - x.loc[name].mean() for name in ids]
    score = scores.set_index(["id", "label", "slot"])["score"]
    square, product = np.array(
        [[(v**2).sum(), (v * score.loc[name]).sum()] for name, v in zip(ids, inside, strict=True)]
    ).T
    rng, changes = np.random.default_rng(1), []
    for _ in range(300):
        drawn = np.bincount(rng.integers(0, 30, 30), minlength=30)
        slopes = [(product * drawn)[fold != k].sum() / (square * drawn)[fold != k].sum() for k in range(5)]
        margin = old["margin"].to_numpy() - np.array(slopes)[fold[number]] * longer
        changes.append((((margin > 0) * 1.0 - (old["margin"] > 0)) * drawn[number]).sum() / (9 * 30))
    assert table.loc["all", "se"] == pytest.approx(np.std(changes), rel=0.15)


@pytest.mark.parametrize("length", [0.0, 0.8])
def test_the_interval_holds_where_length_tells_the_label(length):
    """Wrong answers are four times as long: the fit takes merit off, and is the larger part of the error."""

    def told(n, seed):
        scores, features = world(n, skill=1.5, style=0.0, length=length, seed=seed)
        is_wrong = (features["label"] == "rejected").to_numpy()
        longer = features.assign(characters=features["characters"] * np.where(is_wrong, 4, 1))
        return scores.assign(score=scores["score"] + 2 * length * is_wrong), longer

    truth = debias_change(*told(4000, 999)).set_index("level")["change"]
    tables = [debias_change(*told(40, seed)).set_index("level") for seed in range(60)]
    for level in truth.index:
        held = np.mean([t.loc[level, "low"] <= truth[level] <= t.loc[level, "high"] for t in tables])
        assert held >= 0.9, level


def test_a_change_of_nothing_is_not_known_for_sure():
    scores, _ = world(40, seed=9)
    row = debias_change(scores, on="step").set_index("level").loc["normal"]
    assert row["change"] == row["se"] == 0
    assert row["low"] < 0 < row["high"]


def test_a_model_without_scores_stays_without_scores():
    scores, features = world(20)
    silent = scores.assign(model="silent", score=np.nan)
    both = debias(pd.concat([scores, silent]), features)
    assert both.loc[both["model"] == "silent debiased", "score"].isna().all()
    pd.testing.assert_frame_equal(both[both["model"] == "m debiased"], debias(scores, features))
    change = debias_change(silent, features)
    assert change["n_pairs"].eq(0).all()
    assert change["change"].isna().all()
    with pytest.raises(DataError, match="no rows"):
        debias_change(scores.iloc[:0], features)


def test_bad_input_is_named():
    scores, features = world(20, length=0.5, seed=10)
    for message, table, counts, options in (
        ("4 prompts", *world(4), {}),
        ("20 prompts", scores, features, {"folds": 30}),
        ("'characters' does not vary", scores, features.assign(characters=10), {}),
        ("6 of 120 texts", scores, features[features["id"] != "3"], {}),
        ("features: None", scores, None, {}),
        ("'step'", scores.drop(columns="style"), None, {"on": "step"}),
    ):
        with pytest.raises(DataError, match=message):
            debias(table, counts, **options)
    with pytest.raises(ValueError, match="folds: 1"):
        debias(scores, features, folds=1)
    with pytest.raises(DataError, match=r"by: .*'model'"):
        debias_change(pd.concat([scores, scores.assign(model="second")]), features, by="domain")
