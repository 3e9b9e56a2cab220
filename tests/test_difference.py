"""One p and one interval: coherent on every kind of table, honest where nothing or
everything differs.
"""

from dataclasses import replace

import designs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmlab.estimation.weights import domain_parts


def compare_models(first, second, sizes=None, per=1):
    """Differences of rows of wins (rows, prompts) in domains of these sizes, which all
    weigh the same; `per` equal comparisons a prompt.
    """
    won = np.concatenate([first, second])
    margin = np.repeat(np.where(won, 1.0, -1.0), 9, axis=1)
    items = designs.prepare_margins(margin, sizes or {"all": won.shape[1]}, per)
    items = replace(items, parts=domain_parts(items.frame, "domains"))
    rows = np.arange(len(first))
    return designs.compare_rows(items, rows, rows + len(first))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(5, 60),
    st.sampled_from([1, 3, 0]),
    st.floats(0, 0.3),
    st.sampled_from([0.9, 0.95, 0.99]),
)
def test_the_interval_excludes_zero_exactly_where_p_is_small(
    seed, n, per, missing, confidence
):
    rng, sizes = np.random.default_rng(seed), {"all": n}
    common = designs.prompts_in_common(10, rng, sizes)
    margins = []
    for advantage in rng.normal(1, 1.5, 2):
        design = designs.Design((advantage,), missing=missing if seed % 2 else 0.0)
        margins.append(designs.margins(design, 10, common, rng, sizes))
    per = per or rng.integers(1, 10, n)
    items = designs.prepare_margins(np.concatenate(margins), sizes, per)
    result = designs.compare_rows(items, np.arange(10), np.arange(10) + 10, confidence)
    known = ~np.isnan(result.p)
    value, low, high, p = (
        each[known] for each in (result.value, result.low, result.high, result.p)
    )
    np.testing.assert_array_equal((low > 0) | (high < 0), p < 1 - confidence)
    assert ((low <= value) & (value <= high)).all()
    assert ((p >= 0) & (p <= 1)).all()


@pytest.mark.parametrize("k", [4, 5, 6, 7])
def test_a_few_equal_steps_count_as_a_few(k):
    """About what flipping their signs gives; and what is significant there is so
    here.
    """
    all_won = np.ones((1, 800), bool)
    p = compare_models(all_won, np.arange(800)[None] >= k, per=3).p.item()
    sign_flips = 2.0 ** (1 - k)
    assert 0.8 * sign_flips < p < 1.3 * sign_flips
    assert (p < 0.05) == (sign_flips < 0.05)


@pytest.mark.parametrize("n", [5, 12, 40])
def test_nothing_at_all_is_no_difference_and_its_interval_has_a_width(n):
    all_won = np.ones((1, n), bool)
    equal = compare_models(all_won, all_won, per=3)
    assert (equal.p.item(), equal.se.item()) == (1, 0)
    assert -equal.low.item() == equal.high.item() > 2 / n
    one_differs = np.arange(n)[None] > 0
    assert compare_models(all_won, one_differs, per=3).p.item() > 0.3


def test_a_domain_in_which_no_two_models_differ_is_not_certain():
    """25 and 1,000 prompts; one opposite flip among the 25 would undo the 20 of the
    1,000.
    """
    sizes = {"small": 25, "large": 1000}
    place = np.arange(1025)[None]
    second = (place < 25) | (place >= 45)
    unseen = compare_models(place >= 0, second, sizes)
    assert unseen.value.item() == pytest.approx(0.01)
    assert unseen.low.item() < -0.02
    assert unseen.p.item() > 0.5
    seen = compare_models(place > 0, second, sizes)
    assert seen.value.item() == pytest.approx(-0.01)
    width = unseen.high.item() - unseen.low.item()
    assert width < seen.high.item() - seen.low.item() < 1.5 * width


@pytest.mark.parametrize("n_small", [10, 25, 129])
def test_opposite_one_way_effects_are_no_difference(n_small):
    """A alone fails in a fiftieth of a large domain and B alone of a small one: the
    true difference is zero.
    """
    rng = np.random.default_rng(n_small)
    is_small = np.arange(n_small + 1000) < n_small
    fails = rng.random((400, len(is_small))) < 0.02
    fails[:200, is_small] = False
    fails[200:, ~is_small] = False
    sizes = {"small": n_small, "large": 1000}
    p = compare_models(~fails[:200], ~fails[200:], sizes).p
    assert (p < 0.05).mean() < 0.06
