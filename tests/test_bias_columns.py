"""What all measures of bias share: any backend of columns, scores of any size, and one word for each thing."""

import warnings

import numpy as np
import pandas as pd
import pytest
from style_worlds import world

from rmlab import bias, metrics, stats
from rmlab.bias.prompts import spread, unit_scores
from rmlab.tables import DataError

CONTROLS = ["characters", "style"]
OF_SCORES = {
    "style_effects": bias.style_effects,
    "exchange_rate": bias.exchange_rate,
    "style_preference": lambda scores, features: bias.style_preference(scores),
    "debias": bias.debias,
    "debias lowess": lambda scores, features: bias.debias(scores, features, method="lowess"),
    "debias_change": lambda scores, features: bias.debias_change(scores, bias.debias(scores, features)),
}
OF_PAIRS = {
    "length_controlled": bias.length_controlled,
    "style_controlled": lambda pairs, features: bias.style_controlled(
        pairs, features, controls=["characters", "style"]
    ),
    "calibration": lambda pairs, features: stats.calibration(pairs),
    "calibration_error": lambda pairs, features: stats.calibration_error(pairs),
    "margins": lambda pairs, features: stats.margins(pairs),
}


def arrow(frame):
    plain = {c: "str" for c in frame.columns if isinstance(frame[c].dtype, pd.CategoricalDtype)}
    return frame.astype(plain).convert_dtypes(dtype_backend="pyarrow")


@pytest.fixture(scope="module")
def tables():
    scores, features = world(40, seed=1)
    return scores, metrics.pairs(scores), features


@pytest.mark.parametrize("name", [*OF_SCORES, *OF_PAIRS])
def test_columns_of_pyarrow_give_the_same_numbers(name, tables):
    pytest.importorskip("pyarrow")
    scores, pairs, features = tables
    made, data = (OF_SCORES[name], scores) if name in OF_SCORES else (OF_PAIRS[name], pairs)
    pd.testing.assert_frame_equal(made(arrow(data), arrow(features)), made(data, features), check_dtype=False)


@pytest.mark.parametrize("size", [1e300, 1e-300, 7e306])  # the last one brings the largest score to 1.7e308
@pytest.mark.parametrize("name", OF_SCORES)
def test_scores_of_any_size_give_the_same_numbers(name, size, tables):
    scores, _, features = tables
    size = min(size, 1.7e308 / scores["score"].abs().max())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        large, usual = (OF_SCORES[name](scores.assign(score=scores["score"] * k), features) for k in (size, 1.0))
    own = ["score", "removed"]  # in the scores' own unit
    pd.testing.assert_frame_equal(
        large.drop(columns=own, errors="ignore"), usual.drop(columns=own, errors="ignore"), rtol=1e-6
    )


def test_scores_at_both_ends_of_the_floats_do_vary():
    scores, features = world(20, seed=2)
    ends = scores.assign(score=np.where(scores["label"] == "chosen", 1.7e308, -1.7e308))
    effects = bias.style_effects(ends, features, terms=["correct", "step"]).set_index("term")
    assert effects.loc["correct", "reason"] == ""
    assert effects.loc["correct", "effect"] > 1
    assert bias.style_preference(ends)["difference"].eq(0).all()
    units = unit_scores(ends["score"].to_numpy(), np.repeat(np.arange(20), 6))
    assert np.ptp(units) == pytest.approx(2 / np.sqrt(6 / 5))
    assert spread(np.array([1e300, -1e300]), np.zeros(2, np.intp)) == pytest.approx(np.sqrt(2) * 1e300)
    long = features["characters"] > features["characters"].median()
    wild = ends.assign(score=np.where(long, -1.79e308, 1.79e308))
    with pytest.raises(DataError, match="'m' less their effect are beyond the floats; divide its scores"):
        bias.debias(wild, features.assign(characters=np.where(long, 2.0, 4.0)))


def test_words_are_the_same_everywhere(tables):
    scores, pairs, features = tables
    made = [f(scores, features) for name, f in OF_SCORES.items() if not name.startswith("debias ") and name != "debias"]
    made += [OF_PAIRS[name](pairs, features) for name in ("length_controlled", "style_controlled", "calibration_error")]
    for table in made:
        assert table.columns[-1] == "reason"
        assert not {"note", "ties"} & set(table.columns)
