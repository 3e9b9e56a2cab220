"""Item analysis and calibration against plain loops, and what they must find in planted data."""

import numpy as np
import pandas as pd
import pytest

from rmlab import metrics, stats, tables
from rmlab.tables import DataError


def responses_of(won):
    """Pairs from a square of outcomes (models, items): 1 won, 0 lost, NaN blank."""
    models, items = won.shape
    frame = pd.DataFrame({"model": np.repeat([f"m{i:02d}" for i in range(models)], items)}).assign(
        benchmark="own", domain="all", id=np.tile(np.arange(items).astype(str), models), chosen_slot=0, rejected_slot=0
    )
    outcome = np.where(won.ravel() == 1, "win", "loss").astype(object)
    return tables.check_pairs(frame.assign(outcome=np.where(np.isnan(won.ravel()), None, outcome)))


@pytest.fixture
def won():
    rng = np.random.default_rng(0)
    square = (rng.random((12, 40)) < np.linspace(0.3, 0.9, 12)[:, None]).astype(float)
    square[:, 0], square[:, 1] = 0, 1
    square[3, 5] = square[4, 5] = square[3, 6] = np.nan
    return square


def test_items_equal_plain_loops(won):
    table = stats.item_difficulty(responses_of(won))
    assert list(table["id"]) == [str(i) for i in range(40)]
    for item, row in table.iterrows():
        answered = [m for m in range(12) if not np.isnan(won[m, item])]
        earned = [won[m, item] for m in answered]
        rest = [np.nanmean(np.delete(won[m], item)) for m in answered]
        assert row["n_models"] == len(answered)
        assert row["missing"] == 12 - len(answered)
        assert row["difficulty"] == pytest.approx(1 - np.mean(earned))
        if np.std(earned) == 0:
            assert np.isnan(row["discrimination"])
        else:
            assert row["discrimination"] == pytest.approx(np.corrcoef(earned, rest)[0, 1])
    assert table.query("none_right")["id"].tolist() == ["0"]
    assert "1" in table.query("all_right")["id"].tolist()


def test_items_of_prompts_are_means_of_their_comparisons(make_scores):
    pairs = metrics.pairs(make_scores(models=("a", "b", "c")))
    whole, parts = stats.item_difficulty(pairs, unit="prompt"), stats.item_difficulty(pairs)
    assert len(whole) == 18
    mean = parts.groupby(["domain", "id"])["difficulty"].mean()
    np.testing.assert_allclose(
        whole.set_index(["domain", "id"])["difficulty"], mean[whole.set_index(["domain", "id"]).index]
    )
    with pytest.raises(ValueError, match="unit: 'prompts'; allowed: 'comparison', 'prompt'; did you mean 'prompt'"):
        stats.item_difficulty(pairs, unit="prompts")


def test_error_correlation_is_the_correlation_of_common_answers(won):
    square = stats.error_correlation(responses_of(won)).to_numpy()
    for i in range(12):
        for j in range(12):
            both = ~np.isnan(won[i]) & ~np.isnan(won[j])
            assert square[i, j] == pytest.approx(np.corrcoef(won[i, both], won[j, both])[0, 1])


def test_families_of_models_are_found_by_their_errors():
    rng = np.random.default_rng(1)
    bases = (rng.random((3, 200)) < 0.6).astype(float)
    family = np.array([0, 1, 2, 0, 1, 2, 0, 1, 0])
    noise = rng.random((9, 200)) < 0.1
    table = stats.error_clusters(responses_of(np.abs(bases[family] - noise)), n_clusters=3)
    found = table.set_index("model")["cluster"]
    assert [found[f"m{i:02d}"] for i in range(9)] == [1 + f for f in family]
    nearest = table.set_index("model")["nearest"]
    assert all(found[nearest[name]] == found[name] for name in found.index)
    with pytest.raises(ValueError, match="n_clusters: 0"):
        stats.error_clusters(responses_of(bases), n_clusters=0)


def test_a_model_without_spread_correlates_with_none(won):
    won[0] = 0
    pairs = responses_of(won)
    square = stats.error_correlation(pairs)
    assert square.loc["m00"].isna().all()
    assert len(stats.error_clusters(pairs)) == 12


def margins_as_pairs(margin, model="m"):
    frame = pd.DataFrame(
        {"model": model, "benchmark": "own", "domain": "all", "id": np.arange(len(margin)).astype(str)}
    )
    return tables.check_pairs(frame.assign(chosen_slot=0, rejected_slot=0, margin=margin))


def test_calibration_equals_plain_loops():
    margin = np.random.default_rng(0).normal(0.7, 1.5, 500).round(1)
    table = stats.calibration(margins_as_pairs(margin), bins=5)
    error = 0
    for row in table.itertuples():
        chance = [1 / (1 + np.exp(-abs(m))) for m in margin]
        members = [i for i, p in enumerate(chance) if row.left <= p < row.right]
        right = [1.0 if margin[i] > 0 else 0.5 if margin[i] == 0 else 0.0 for i in members]
        assert row.n_pairs == len(members)
        assert row.predicted == pytest.approx(np.mean([chance[i] for i in members]))
        assert row.accuracy == pytest.approx(np.mean(right))
        error += abs(row.predicted - row.accuracy) * len(members) / 500
    assert table["ece"].iloc[0] == pytest.approx(error)


def test_a_bin_of_fewer_than_five_prompts_has_no_interval():
    table = stats.calibration(margins_as_pairs(np.array([0.1, 0.2, -0.1, 0.3, 4.0, 5.0, 6.0, -4.0, 5.5])), bins=2)
    assert table["n_prompts"].tolist() == [4, 5]
    assert table["accuracy"].tolist() == [0.75, 0.8]
    assert table.loc[0, ["se", "low", "high"]].isna().all()
    assert table.loc[1, ["se", "low", "high"]].notna().all()


def test_bradley_terry_margins_are_calibrated_and_scaled_ones_are_not():
    rng = np.random.default_rng(2)
    logit = rng.normal(0, 2, 20_000)
    margin = np.where(rng.random(20_000) < 1 / (1 + np.exp(-np.abs(logit))), np.abs(logit), -np.abs(logit))
    honest = stats.calibration(margins_as_pairs(margin))
    loud = stats.calibration(margins_as_pairs(3 * margin))
    assert honest["ece"].iloc[0] < 0.01
    assert loud["ece"].iloc[0] > 0.08
    assert stats.calibration(margins_as_pairs(3 * margin), temperature=3)["ece"].iloc[0] == pytest.approx(
        honest["ece"].iloc[0]
    )
    inside = (honest["low"] <= honest["predicted"]) & (honest["predicted"] <= honest["high"])
    assert inside.mean() >= 0.8


def test_empty_bins_and_blanks_are_shown():
    table = stats.calibration(margins_as_pairs(np.array([0.0, 0.0, 9.0, np.nan])))
    assert table["n_pairs"].tolist() == [2, *[0] * 8, 1]
    assert table["accuracy"].isna().sum() == 8
    assert table.loc[0, ["predicted", "accuracy"]].tolist() == [0.5, 0.5]
    assert (table["missing"] == 1).all()


def test_margins_summarise_every_level(make_scores):
    pairs = metrics.pairs(make_scores())
    table = stats.margins(pairs)
    assert list(table["model"]) == ["a"] * 3 + ["b"] * 3
    assert list(table["level"]) == ["easy", "normal", "hard"] * 2
    one = pairs[(pairs["model"] == "b") & (pairs["level"] == "hard")]["margin"]
    row = table.iloc[5]
    assert [row["q50"], row["mean"], row["n_pairs"]] == pytest.approx([one.median(), one.mean(), len(one)])
    assert row["positive"] == pytest.approx((one > 0).mean())


def test_judges_have_no_margins_and_bad_options_are_refused(make_scores):
    pairs = metrics.pairs(make_scores())
    judged = pairs.assign(margin=np.nan)
    for function in (stats.calibration, stats.margins):
        with pytest.raises(DataError, match="no margin in any"):
            function(judged)
    with pytest.raises(ValueError, match="a temperature above 0"):
        stats.calibration(pairs, temperature=0)
    with pytest.raises(DataError, match="did you mean 'level'"):
        stats.margins(pairs, by="levels")
    with pytest.raises(DataError, match="by='domain'"):
        stats.margins(margins_as_pairs(np.array([1.0])), by="level")


def test_a_model_without_margins_has_an_empty_calibration(make_scores):
    pairs = metrics.pairs(make_scores({"chat": 8}, models=("a", "b")))
    table = stats.calibration(pairs.assign(margin=pairs["margin"].where(pairs["model"] == "a")))
    blank = table[table["model"] == "b"]
    assert blank["ece"].isna().all()
    assert (blank["n_pairs"] == 0).all()
    assert (blank["missing"] == 72).all()
