"""Figures of effects: every number of the table is drawn, and what is missing or unbounded is said."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from style_worlds import world

from rmlab.bias.effects import exchange_rate, style_effects
from rmlab.bias.gap import style_preference
from rmlab.plots.effects import plot_effects, plot_preference
from rmlab.tables import DataError


@pytest.fixture(scope="module")
def scores():
    worlds = [world(40, style=0.5 * i, seed=i, model=m)[0] for i, m in enumerate(("a", "b"))]
    return pd.concat([*worlds, worlds[0].assign(model="flat", score=1.0)], ignore_index=True)


def _dots(ax):
    return [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "o"]


def _ticks(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def test_effects_are_drawn_by_term_and_model(scores):
    table = style_effects(scores)
    ax = plot_effects(table)
    assert _ticks(ax) == [
        "right instead of wrong", "a", "b", "flat",
        "plain instead of concise", "a", "b", "flat",
        "Markdown instead of plain", "a", "b", "flat",
    ]  # fmt: skip
    expected = pd.concat([table[table["term"] == term] for term in table["term"].unique()])["effect"].dropna()
    np.testing.assert_allclose(_dots(ax), expected)
    spans = [segment[:, 0] for c in ax.collections for segment in c.get_segments()]
    ordered = pd.concat([table[table["term"] == term] for term in table["term"].unique()]).dropna(subset=["low"])
    np.testing.assert_allclose(spans, ordered[["low", "high"]])
    assert sum("do not vary" in text.get_text().replace("\n", " ") for text in ax.texts) == 3
    assert ax.yaxis_inverted()


def test_one_model_has_terms_as_rows(scores):
    ax = plot_effects(style_effects(scores[scores["model"] == "b"]))
    assert _ticks(ax) == ["right instead of wrong", "plain instead of concise", "Markdown instead of plain"]
    assert ax.get_title() == "b"


def test_unbounded_rates_are_said_and_do_not_stretch_the_axis(scores):
    table = exchange_rate(scores[scores["model"] != "flat"], terms=["correct", "step"])
    table.loc[0, ["rate", "low", "high"]] = [500.0, -np.inf, np.inf]
    ax = plot_effects(table)
    assert any("unbounded" in text.get_text() for text in ax.texts)
    assert not any("500" in text.get_text() for text in ax.texts)  # a number without meaning is not written
    assert ax.get_xlim()[1] < 5
    assert "correctness" in ax.get_xlabel()


def test_draws_into_the_axes_given_and_returns_it(scores):
    _, axes = plt.subplots(1, 2)
    assert plot_effects(style_effects(scores), ax=axes[0]) is axes[0]
    assert plot_preference(style_preference(scores), ax=axes[1]) is axes[1]


def test_preferences_by_pair_of_styles_and_in_one_number(scores):
    table = style_preference(scores)
    ax = plot_preference(table)
    assert _ticks(ax)[::4] == ["plain over concise", "markdown over concise", "markdown over plain"]
    assert sorted(_dots(ax)) == pytest.approx(sorted(table["preference"]))
    assert ax.get_xlim() == (-0.02, 1.02)
    assert _ticks(plot_preference(style_preference(scores, "model"))) == ["a", "b", "flat"]


def test_ties_are_counted_and_mostly_ties_are_hollow(scores):
    table = style_preference(scores)
    ax = plot_preference(table)
    flat = table[table["model"] == "flat"]
    assert (flat["n_ties"] == flat["n_pairs"]).all()
    written = [text.get_text() for text in ax.texts]
    assert written == ["ties", *(f"{n:,}" for n in table[table["n_ties"] > 0]["n_ties"]), "no preference (0.5)"]
    hollow = [line for line in ax.lines if line.get_marker() == "o" and line.get_markerfacecolor() == "white"]
    assert len(hollow) == len(flat)
    assert {line.get_xdata()[0] for line in hollow} == {0.5}


def test_another_table_is_refused():
    frame = pd.DataFrame({"model": ["a"]})
    with pytest.raises(DataError, match="style_effects"):
        plot_effects(frame)
    with pytest.raises(DataError, match="style_preference"):
        plot_preference(frame)


def test_the_number_of_an_arrow_stands_above_its_interval():
    rates = pd.DataFrame({"model": ["a"], "term": "step", "rate": [4.62], "low": [2.7], "high": [6.4], "reason": ""})
    ax = plot_effects(rates)
    ax.figure.canvas.draw()
    number = next(text for text in ax.texts if text.get_text() == "4.62").get_window_extent()
    line = ax.transData.transform((0, 0))[1]
    assert number.y0 > line


def test_a_rate_beyond_the_axis_is_an_arrow_with_its_number(scores):
    table = exchange_rate(scores[scores["model"] != "flat"], terms=["correct", "step"])
    table.loc[0, ["rate", "low", "high"]] = [-46.6, -980.0, -24.0]
    ax = plot_effects(table)
    assert [line.get_marker() for line in ax.lines if line.get_marker() in "<>"] == ["<"]
    assert any(text.get_text().strip() == "-46.6" for text in ax.texts)
    assert -5 < ax.get_xlim()[0] < -4
