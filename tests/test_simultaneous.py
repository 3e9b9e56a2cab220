"""Max-t: adjusted p against plain loops over the draws, families inside families, and the familywise error."""

import numpy as np
import pytest

from rmlab.stats.simultaneous import (
    DRAWS,
    adjusted_p,
    best_p,
    chance_of,
    largest_quantile,
    lead_quantile,
    marginal_p,
    signed_z,
)


def family(seed, models=6, clusters=80, spread=0.0):
    """Influences of models, their differences, two-sided p and z, as triangles and squares."""
    from scipy.special import ndtr

    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(models, clusters)) + rng.normal(size=clusters)
    influence = (noise - noise.mean(axis=1, keepdims=True)) / clusters
    value = noise.mean(axis=1) + spread * np.arange(models)
    a, b = np.triu_indices(models, 1)
    se = np.sqrt(((influence[a] - influence[b]) ** 2).sum(axis=1))
    difference = value[a] - value[b]
    p = 2 * ndtr(-np.abs(difference) / se)
    z = np.zeros((models, models))
    z[a, b], z[b, a] = signed_z(difference, p), -signed_z(difference, p)
    square = np.ones((models, models))
    square[a, b] = square[b, a] = p
    return influence, difference, p, a, b, z, square


@pytest.mark.parametrize("seed", range(4))
def test_the_adjusted_p_is_the_step_down_over_the_draws(seed):
    influence, difference, p, a, b, z, _ = family(seed, spread=0.08)
    chance = chance_of(influence)
    found = adjusted_p(chance, p, difference, a, b)
    drawn = np.abs(chance.drawn[:, a] - chance.drawn[:, b]) / chance.se[a, b]
    order, running = np.argsort(-np.abs(z[a, b])), 0.0
    for place, pair in enumerate(order):
        rest = drawn[:, order[place:]].max(axis=1)
        share = (1 + (rest >= np.float32(abs(z[a[pair], b[pair]]))).sum()) / (1 + DRAWS)
        running = max(running, share)
        assert found[pair] == pytest.approx(max(running, p[pair]))


@pytest.mark.parametrize("seed", range(6))
def test_a_models_own_family_is_never_stricter_and_never_below_the_plain_p(seed):
    influence, difference, p, a, b, z, square = family(seed, spread=0.05)
    chance = chance_of(influence)
    all_pairs, own = adjusted_p(chance, p, difference, a, b), marginal_p(chance, square, z)
    assert (own[a, b] <= all_pairs + 1e-12).all()
    assert (own[b, a] <= all_pairs + 1e-12).all()
    assert (own[a, b] >= p - 1e-12).all()
    out = best_p(chance, square, z) < 0.05
    clear = (own < 0.05) & (z < 0)
    assert (out | ~clear.any(axis=1)).all()
    first = np.flatnonzero((z >= 0).all(axis=1))
    assert (best_p(chance, square, z)[first] == 1).all()


def test_two_models_are_the_plain_test_and_the_draws_have_the_influences_error():
    influence, difference, p, a, b, *_ = family(0, models=2, spread=0.2)
    chance = chance_of(influence)
    assert adjusted_p(chance, p, difference, a, b)[0] == pytest.approx(p[0], abs=0.01)
    assert largest_quantile(chance, 0.95) == pytest.approx(1.96, abs=0.08)
    assert lead_quantile(chance, 0, level=0.95) == pytest.approx(1.645, abs=0.08)
    gap = chance.drawn[:, 0] - chance.drawn[:, 1]
    assert gap.std() == pytest.approx(chance.se[0, 1], rel=0.05)


def test_twins_are_never_apart():
    influence, *_ = family(1)
    chance = chance_of(np.concatenate([influence, influence[:1]]))
    assert np.isinf(chance.se[0, -1])
    p = adjusted_p(chance, np.array([1.0]), np.array([0.0]), np.array([0]), np.array([6]))
    assert p[0] == 1


def test_the_familywise_error_of_equal_models_is_the_level():
    from scipy.special import stdtr

    wrong, n = [], 60
    for seed in range(250):
        influence, difference, _, a, b, *_ = family(5000 + seed, models=5, clusters=n)
        influence = influence * np.sqrt(n / (n - 1))
        se = np.sqrt(((influence[a] - influence[b]) ** 2).sum(axis=1))
        p = 2 * stdtr(n - 1, -np.abs(difference) / se)
        wrong.append((adjusted_p(chance_of(influence), p, difference, a, b) < 0.05).any())
    assert np.mean(wrong) == pytest.approx(0.05, abs=0.042)
