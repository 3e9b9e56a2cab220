"""Figures of one number against another: every model a point, and the ones that stand out are named."""

import numpy as np
import pandas as pd
import pytest

from rmlab.papers import published
from rmlab.plots.scatter import outliers, plot_scatter
from rmlab.tables import DataError


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    easy = np.linspace(0.5, 1, 20)
    hard = easy - 0.2 + 0.01 * rng.normal(size=20)
    hard[[3, 7]] = 0.95, 0.02
    names = [f"owner/model-{i}" for i in range(20)]
    return pd.DataFrame({"model": names, "easy": easy, "hard": hard, "kind": ["old", "new"] * 10})


def test_every_model_is_a_point_of_its_group(table):
    ax = plot_scatter(table, "easy", "hard", group="kind")
    drawn = {c.get_label(): c.get_offsets() for c in ax.collections}
    for kind, part in table.groupby("kind"):
        np.testing.assert_allclose(drawn[kind], part[["easy", "hard"]])
    assert not any(ax.spines[side].get_visible() for side in ("top", "right"))


def test_the_ones_that_stand_out_are_named(table):
    found = outliers(table, "easy", "hard", most=2)
    assert set(found["model"]) == {"owner/model-3", "owner/model-7"}
    ax = plot_scatter(table, "easy", "hard", named=2)
    assert {text.get_text() for text in ax.texts} == {"model-3", "model-7"}
    assert not plot_scatter(table.head(2), "easy", "hard").texts
    assert len(plot_scatter(published("rm-bench"), "easy", "hard", named=3).texts) == 3


def test_rows_without_a_number_are_counted_and_wrong_columns_named(table):
    ax = plot_scatter(table.assign(hard=table["hard"].where(table.index > 4)), "easy", "hard")
    assert "5 models without both are left out" in ax.get_xlabel()
    assert sum(len(c.get_offsets()) for c in ax.collections) == 15
    with pytest.raises(DataError, match=r"no column 'esay'.*did you mean 'easy'"):
        plot_scatter(table, "esay", "hard")
    with pytest.raises(DataError, match="20 values; at most 8"):
        plot_scatter(table, "easy", "hard", group="model")
