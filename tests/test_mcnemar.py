"""McNemar's test and the melded interval: statsmodels, coherence on every table, exactness of the quadrature."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from rmlab.stats.mcnemar import mcnemar, melded_interval


@pytest.mark.parametrize("seed", range(3))
def test_p_equals_statsmodels(seed):
    from statsmodels.stats.contingency_tables import mcnemar as theirs

    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 40, (2, 50))
    expected = [theirs([[0, x], [y, 0]], exact=True).pvalue for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(mcnemar(a, b), expected, atol=1e-12)


def test_the_interval_excludes_zero_exactly_where_p_is_small_on_every_table_of_40_prompts():
    n = 40
    a, b = np.array([(x, y) for x in range(n + 1) for y in range(n + 1 - x)]).T
    for confidence in (0.9, 0.95, 0.99):
        low, high = melded_interval(a, b, np.full(len(a), n), confidence=confidence)
        np.testing.assert_array_equal(mcnemar(a, b) < 1 - confidence, (low > 0) | (high < 0))
        assert (low <= (a - b) / n).all()
        assert (high >= (a - b) / n).all()
        assert (low >= -1).all()
        assert (high <= 1).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 3000))
def test_swapping_the_models_mirrors_the_interval(a, b, rest):
    one, other = (
        np.array(melded_interval(np.array([x]), np.array([y]), np.array([a + b + rest]))) for x, y in ((a, b), (b, a))
    )
    np.testing.assert_allclose(one, -other[::-1], atol=1e-12)


@pytest.mark.parametrize(("a", "b", "n"), [(10, 1, 50), (4, 0, 1327), (30, 22, 1327), (3, 8, 12), (120, 90, 2985)])
def test_the_limits_are_quantiles_of_the_melded_distributions(a, b, n):
    """P(T (2 B - 1) <= limit) by adaptive integration over the share of differing prompts is the tail."""
    m = a + b
    (low,), (high,) = melded_interval(np.array([a]), np.array([b]), np.array([n]))

    def below(limit, share, wins):
        return integrate.quad(lambda u: wins.cdf((limit / share.ppf(u) + 1) / 2), 0, 1, limit=400, epsabs=1e-10)[0]

    shares = stats.beta(m, n - m + 1), stats.beta(m + 1, n - m)
    first, second = stats.beta(a, b + 1), stats.beta(a + 1, b) if b else None
    tails = [below(low, s, first) for s in shares]
    assert max(tails) == pytest.approx(0.025, abs=2e-4)
    if second is None:
        assert high == pytest.approx(shares[1].ppf(0.975), abs=1e-12)
    else:
        tails = [1 - below(high, s, second) for s in shares]
        assert max(tails) == pytest.approx(0.025, abs=2e-4)


@pytest.mark.parametrize(("b", "c"), [(0.003, 0.0), (0.02, 0.01), (0.1, 0.08)])
def test_the_interval_holds_the_true_difference(b, c):
    rng, n = np.random.default_rng(0), 400
    drawn = rng.multinomial(n, [b, c, 1 - b - c], 1500)
    low, high = melded_interval(drawn[:, 0], drawn[:, 1], np.full(len(drawn), n))
    assert ((low <= b - c) & (b - c <= high)).mean() > 0.94
