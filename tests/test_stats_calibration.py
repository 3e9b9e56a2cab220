"""Calibration against plain loops, and an error that is nil where margins are log-odds."""

import numpy as np
import pandas as pd
import pytest

from rmlab import metrics, stats, tables
from rmlab.tables import DataError


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
    assert stats.calibration_error(margins_as_pairs(margin), bins=5)["ece"].item() == table["ece"].iloc[0]


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


def test_empty_bins_and_missing_margins_are_shown():
    table = stats.calibration(margins_as_pairs(np.array([0.0, 0.0, 9.0, np.nan])))
    assert table["n_pairs"].tolist() == [2, *[0] * 8, 1]
    assert table["accuracy"].isna().sum() == 8
    assert table.loc[0, ["predicted", "accuracy"]].tolist() == [0.5, 0.5]
    assert (table["missing"] == 1).all()
    assert stats.calibration(margins_as_pairs(np.full(6, 0.1)))["n_pairs"].tolist() == [6, *[0] * 9]
    sure = stats.calibration_error(margins_as_pairs(np.repeat([-50.0, 50.0], [9, 1]))).iloc[0]
    assert sure["ece"] == pytest.approx(0.9)
    assert sure["ece_high"] == 1


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
        with pytest.raises(DataError, match="margin"):
            function(judged)
    with pytest.raises(ValueError, match="temperature"):
        stats.calibration(pairs, temperature=0)
    with pytest.raises(DataError, match="by: 'levels'"):
        stats.margins(pairs, by="levels")
    with pytest.raises(DataError, match="by: 'level'"):
        stats.margins(margins_as_pairs(np.array([1.0])), by="level")


def drawn(rng, n, *, models=1, factor=1.0):
    """Margins that are log-odds times a factor; outcomes follow the log-odds."""
    odds = np.abs(rng.normal(0, 1.5, (models, n)))
    margin = factor * np.where(rng.random(odds.shape) < 1 / (1 + np.exp(-odds)), odds, -odds)
    keys = {"model": np.repeat([f"m{i}" for i in range(models)], n), "id": np.tile(np.arange(n), models).astype(str)}
    return margins_as_pairs(margin.ravel()).assign(**keys)


def test_the_interval_is_zero_for_calibrated_models_and_holds_the_truth_of_others():
    table = stats.calibration_error(drawn(np.random.default_rng(0), 100, models=200))
    assert table["ece"].mean() > 0.08  # what chance alone makes of ten bins
    assert (table["ece_low"] == 0).mean() >= 0.93
    for factor in (0.6, 2.0):
        truth = stats.calibration_error(drawn(np.random.default_rng(1), 50_000, factor=factor))["ece"].item()
        table = stats.calibration_error(drawn(np.random.default_rng(2), 400, models=100, factor=factor))
        assert ((table["ece_low"] <= truth) & (truth <= table["ece_high"])).mean() >= 0.9
        assert (table["ece_low"] > 0).mean() > 0.4, "calibration is rejected"


def test_brier_and_log_loss_are_those_of_the_margins():
    margin = np.random.default_rng(4).normal(0.7, 1.5, 300).round(1)
    margin[:7] = 0
    row = stats.calibration_error(margins_as_pairs(margin), temperature=2.0).iloc[0]
    promised = 1 / (1 + np.exp(-margin / 2))  # that the chosen answer is better; it is
    squared = np.where(margin == 0, 0.25, (1 - promised) ** 2)
    assert row["brier"] == pytest.approx(squared.mean())
    assert row["log_loss"] == pytest.approx(-np.log(promised).mean())
    assert row["n_ties"] == (margin == 0).sum()
    for name, value in (("brier", squared), ("log_loss", -np.log(promised))):
        half = 1.968 * value.std(ddof=1) / np.sqrt(300)
        assert row[f"{name}_high"] - row[f"{name}_low"] == pytest.approx(2 * half, rel=0.05)
        assert row[f"{name}_low"] < row[name] < row[f"{name}_high"]
    assert row["brier_high"] - row["brier"] > row["brier"] - row["brier_low"]  # a few large losses: skewed upwards


def test_few_prompts_and_no_margins_have_their_reason(make_scores):
    pairs = metrics.pairs(make_scores({"chat": 4}, models=("a", "b")))
    table = stats.calibration_error(pairs.assign(margin=pairs["margin"].where(pairs["model"] == "a")))
    assert table["reason"].tolist() == ["fewer than 5 prompts", "no margins"]
    assert table[["ece_low", "ece_high", "brier_low", "log_loss_high"]].isna().all(axis=None)
    assert np.isfinite(table.loc[0, ["ece", "brier", "log_loss"]].astype(float)).all()
