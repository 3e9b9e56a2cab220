"""Items and errors in common: plain loops, correlations that accuracy does not cap, errors clustered by prompt."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal, norm

from rmlab import metrics, stats, tables
from rmlab.stats.item_analysis import normal_below


def responses_of(won):
    """Pairs from a square of outcomes (models, items): 1 won, 0 lost, NaN missing."""
    models, items = won.shape
    frame = pd.DataFrame({"model": np.repeat([f"m{i:02d}" for i in range(models)], items)}).assign(
        benchmark="own", domain="all", id=np.tile(np.arange(items).astype(str), models), chosen_slot=0, rejected_slot=0
    )
    outcome = np.where(won.ravel() == 1, "win", "loss").astype(object)
    return tables.check_pairs(frame.assign(outcome=np.where(np.isnan(won.ravel()), None, outcome)))


def latent(correlation, accuracies, n, seed=0):
    """Outcomes of models whose strengths on each comparison are normal with the given correlations."""
    rng = np.random.default_rng(seed)
    strength = rng.multivariate_normal(np.zeros(len(correlation)), correlation, n).T
    return (strength < norm.ppf(accuracies)[:, None]).astype(float)


def in_prompts(won, size):
    """The same comparisons, `size` of them to a prompt."""
    pairs = responses_of(won)
    place = pairs["id"].astype(int)
    return pairs.assign(id=(place // size).astype(str), rejected_slot=place % size)


def test_the_planted_correlation_comes_back_whatever_the_accuracies():
    for rho in (-0.5, 0.0, 0.3, 0.8):
        won = latent([[1, rho], [rho, 1]], np.array([0.95, 0.55]), 10_000)
        assert stats.error_correlation(responses_of(won)).iloc[0, 1] == pytest.approx(rho, abs=0.06)


def test_nested_errors_are_alike_at_any_accuracy():
    hard = np.random.default_rng(1).random(447)
    won = np.stack([hard < 0.95, hard < 0.55]).astype(float)
    assert np.corrcoef(won)[0, 1] < 0.3  # what the plain correlation makes of it
    assert stats.error_correlation(responses_of(won)).iloc[0, 1] > 0.95
    assert stats.error_correlation(responses_of(1 - won[::-1])).iloc[0, 1] > 0.95
    apart = np.stack([hard < 0.5, hard > 0.5]).astype(float)
    assert stats.error_correlation(responses_of(apart)).iloc[0, 1] < -0.95


def test_one_error_in_common_is_no_perfect_correlation():
    won = np.ones((2, 400))
    won[:, 0] = 0
    won[1, 1:80] = 0
    assert 0 < stats.error_correlation(responses_of(won)).iloc[0, 1] < 0.9


def test_the_normal_integral_is_that_of_scipy():
    rng = np.random.default_rng(2)
    h, k, rho = rng.normal(size=20), rng.normal(size=20), rng.uniform(-0.95, 0.95, 20)
    h[:2], k[1:3] = 0, 0  # a model that wins half
    expected = [multivariate_normal([0, 0], [[1, r], [r, 1]]).cdf([a, b]) for a, b, r in zip(h, k, rho, strict=True)]
    np.testing.assert_allclose(normal_below(h, k, rho), expected, atol=1e-6)


@pytest.mark.parametrize("size", [1, 5])
def test_the_error_is_the_spread_over_tables(size):
    """Of 60 tables of 1,000 comparisons; with several comparisons to a prompt these share half of their variance."""
    rng, rho = np.random.default_rng(3), 0.5
    correlations, errors = [], []
    root = np.linalg.cholesky([[1, rho], [rho, 1]])
    for _ in range(60):
        shared, single = (root @ rng.standard_normal((2, m)) for m in (1000 // size, 1000))
        strength = (np.repeat(shared, size, axis=1) + single) / np.sqrt(2) if size > 1 else single
        won = (strength < norm.ppf([0.8, 0.65])[:, None]).astype(float)
        table = stats.error_correlation(in_prompts(won, size))
        correlations.append(table.iloc[0, 1])
        errors.append(table.attrs["se"].iloc[0, 1])
    assert np.mean(correlations) == pytest.approx(rho, abs=0.06)
    assert np.mean(errors) == pytest.approx(np.std(correlations, ddof=1), rel=0.25)


def test_below_400_comparisons_a_correlation_is_missing_with_the_reason():
    won = latent([[1, 0.5], [0.5, 1]], np.array([0.7, 0.6]), 400)
    enough, few = stats.error_correlation(responses_of(won)), stats.error_correlation(responses_of(won[:, 1:]))
    assert np.isfinite(enough.iloc[0, 1])
    assert enough.attrs["se"].iloc[0, 1] > 0
    assert enough.attrs["reason"] == ""
    assert few.isna().all(axis=None)
    assert few.attrs["se"].isna().all(axis=None)
    assert (few.attrs["n_pairs"] == 399).all(axis=None)
    assert "400" in few.attrs["reason"]


def test_only_common_answers_count_and_a_model_without_spread_correlates_with_none():
    won = latent(np.full((3, 3), 0.6) + 0.4 * np.eye(3), np.array([0.5, 0.6, 0.7]), 700)
    won[0, :100] = np.nan
    square = stats.error_correlation(responses_of(won))
    alone = stats.error_correlation(responses_of(won[:2, 100:]))
    assert square.iloc[0, 1] == pytest.approx(alone.iloc[0, 1])
    assert square.attrs["se"].iloc[0, 1] == pytest.approx(alone.attrs["se"].iloc[0, 1])
    won[2] = 0
    flat = stats.error_correlation(responses_of(won))
    assert flat.loc["m02"].isna().all()
    assert flat.attrs["reason"] != ""
    assert flat.loc["m00", "m01"] == pytest.approx(alone.iloc[0, 1])


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
    with pytest.raises(ValueError, match="unit: 'prompts'"):
        stats.item_difficulty(pairs, unit="prompts")
