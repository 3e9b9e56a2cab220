"""One p and one interval: coherent on every kind of table, honest where nothing or
everything differs.
"""

from dataclasses import replace

import designs
import numpy as np
import pytest
from designs import compare_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from rmlab.estimation.weights import domain_parts


def two_models(won, per=1):
    """Two models from their wins (2, prompts): `per` equal comparisons a prompt."""
    margin = np.repeat(np.where(won, 1.0, -1.0), 9, axis=1)
    return designs.prepare_margins(margin, {"all": won.shape[1]}, per)


def check_one_decision(difference, confidence):
    """The interval excludes zero exactly where p < 1 - confidence, and it holds the
    difference.
    """
    known = ~np.isnan(difference.p)
    excludes_zero = (difference.low > 0) | (difference.high < 0)
    np.testing.assert_array_equal(
        excludes_zero[known], (difference.p < 1 - confidence)[known]
    )
    assert (
        (difference.low <= difference.value) & (difference.value <= difference.high)
    )[known].all()
    assert ((difference.p >= 0) & (difference.p <= 1))[known].all()
    return known


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
    up = rng.normal(1, 1.5, 2)
    common = designs.prompts_in_common(10, rng, sizes)
    gaps = missing if seed % 2 else 0.0
    margin = np.concatenate(
        [
            designs.margins(designs.Design((x,), missing=gaps), 10, common, rng, sizes)
            for x in up
        ]
    )
    items = designs.prepare_margins(margin, sizes, per or rng.integers(1, 10, n))
    difference = compare_rows(items, np.arange(10), np.arange(10) + 10, confidence)
    check_one_decision(difference, confidence)


@pytest.mark.parametrize("k", [4, 5, 6, 7])
def test_a_few_equal_steps_count_as_a_few(k):
    """About what flipping their signs gives; and what is significant there is so
    here.
    """
    won = np.ones((2, 800), bool)
    won[1, :k] = False
    difference = compare_rows(two_models(won, per=3), np.array([0]), np.array([1]))
    sign_flips = 2.0 ** (1 - k)
    assert 0.8 * sign_flips < difference.p.item() < 1.3 * sign_flips
    assert (difference.p.item() < 0.05) == (sign_flips < 0.05)


def test_nothing_at_all_is_no_difference_and_its_interval_has_a_width():
    first, second = np.array([0]), np.array([1])
    for n in (5, 12, 40):
        equal = compare_rows(two_models(np.ones((2, n), bool), per=3), first, second)
        assert equal.p.item() == 1
        assert equal.se.item() == 0
        assert -equal.low.item() == equal.high.item() > 2 / n
    one_differs = np.stack([np.arange(40) > 0, np.ones(40, bool)])
    assert compare_rows(two_models(one_differs, per=3), first, second).p.item() > 0.4


def two_domains(won, n_small):
    """Models from their wins (models, prompts); the first prompts are a domain, each
    weighs a half.
    """
    margin = np.repeat(np.where(won, 1.0, -1.0), 9, axis=1)
    sizes = {"small": n_small, "large": won.shape[1] - n_small}
    items = designs.prepare_margins(margin, sizes, 1)
    return replace(items, parts=domain_parts(items.frame, "domains"))


def test_a_domain_in_which_no_two_models_differ_is_not_certain():
    """25 and 1,000 prompts; one opposite flip among the 25 would undo the 20 of the
    1,000.
    """
    first, second = np.array([0]), np.array([1])
    won = np.ones((2, 1025), bool)
    won[1, 25:45] = False
    unseen = compare_rows(two_domains(won, 25), first, second)
    assert unseen.value.item() == pytest.approx(0.01)
    assert unseen.low.item() < -0.02
    assert unseen.p.item() > 0.5
    won[0, 0] = False
    seen = compare_rows(two_domains(won, 25), first, second)
    assert seen.value.item() == pytest.approx(-0.01)
    width = unseen.high.item() - unseen.low.item()
    assert width < seen.high.item() - seen.low.item() < 1.5 * width


@pytest.mark.parametrize("n_small", [10, 25, 129])
def test_opposite_one_way_effects_are_no_difference(n_small):
    """A alone wins a fiftieth of a small domain and B alone of a large one: the true
    difference is zero.
    """
    rng = np.random.default_rng(n_small)
    is_small = np.arange(n_small + 1000) < n_small
    fails = rng.random((400, len(is_small))) < 0.02
    fails[:200, is_small] = False
    fails[200:, ~is_small] = False
    p = compare_rows(
        two_domains(~fails, n_small), np.arange(200), np.arange(200) + 200
    ).p
    assert (p < 0.05).mean() < 0.06
