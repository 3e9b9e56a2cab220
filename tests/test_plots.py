"""Figures show the numbers of their tables: read back from the artists, never from pixels."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from rmlab import metrics, plots, tables
from rmlab.tables import DataError


@pytest.fixture
def pairs(make_scores):
    return metrics.pairs(make_scores(seed=5))


@pytest.fixture
def responses(make_scores):
    scores = make_scores(models=("one",))
    text = [
        "x" * (3 + 2 * slot + (label == "chosen")) for slot, label in zip(scores["slot"], scores["label"], strict=True)
    ]
    return tables.check_responses(scores.drop(columns=["model", "score"]).assign(prompt="Why?", response=text))


def test_matrix_writes_every_share_and_its_level(pairs):
    matrix = metrics.matrix(pairs[pairs["model"] == "a"])
    ax = plots.plot_matrix(matrix)
    texts = np.array([text.get_text() for text in ax.texts]).reshape(3, 3)
    for i in range(3):
        for j in range(3):
            level = "normal" if i == j else "hard" if i < j else "easy"
            assert texts[i, j] == f"{matrix.iloc[i, j]:.2f}\n{level}"
    assert [t.get_text() for t in ax.get_yticklabels()] == ["concise", "plain", "markdown"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("style of the rejected answer", "style of the chosen answer")
    mesh = ax.collections[0]
    assert (mesh.norm.vmin, mesh.norm.vcenter, mesh.norm.vmax) == (0, 0.5, 1)


def test_chance_is_the_neutral_colour(pairs):
    matrix = metrics.matrix(pairs[pairs["model"] == "a"])
    for chance in (0.25, 0.5):
        mesh = plots.plot_matrix(matrix * 0 + chance, chance=chance).collections[0]
        assert min(mesh.to_rgba([chance])[0][:3]) > 0.95


def test_an_empty_cell_stays_empty(pairs):
    hole = pairs[
        (pairs["model"] == "a") & ~((pairs["chosen_style"] == "concise") & (pairs["rejected_style"] == "plain"))
    ]
    ax = plots.plot_matrix(metrics.matrix(hole))
    assert not any(text.get_text().startswith("nan") for text in ax.texts)


def test_matrices_make_one_panel_per_value_and_one_colour_bar(pairs):
    figure = plots.plot_matrices(pairs, by="model")
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    assert titles == ["a", "b"]
    assert len(figure.axes) == 3
    domains = plots.plot_matrices(pairs[pairs["model"] == "a"], by="domain", columns=3)
    assert [ax.get_title() for ax in domains.axes if ax.get_title()] == ["chat", "math", "code", "safety"]
    with pytest.raises(DataError, match="did you mean 'model'"):
        plots.plot_matrices(pairs, by="modle")


def test_dollars_in_names_are_no_formulas(pairs):
    figure = plots.plot_matrices(pairs[pairs["model"] == "a"].assign(model=r"a $\x{$"), by="model")
    figure.canvas.draw()
    assert figure.axes[0].get_title().replace(r"\$", "$") == r"a $\x{$"


def test_style_gap_takes_both_tables_and_sorts_by_hard(pairs):
    wide = metrics.rm_bench(pairs)
    ax = plots.plot_style_gap(wide)
    expected = wide.sort_values("hard", kind="stable")
    assert [t.get_text() for t in ax.get_yticklabels()] == list(expected["model"])
    drawn = {
        c.get_label(): c.get_offsets()[:, 0] for c in ax.collections if c.get_label() in ("easy", "normal", "hard")
    }
    for level, values in drawn.items():
        np.testing.assert_allclose(values, expected[level])
    long = plots.plot_style_gap(metrics.accuracy(pairs, by=["model", "level"]))
    assert len(long.collections) == len(ax.collections) + 3
    with pytest.raises(DataError, match=r"rmlab\.summary"):
        plots.plot_style_gap(pd.DataFrame({"model": ["a"]}))


def test_lengths_are_means_per_subset_and_style(responses):
    ax = plots.plot_lengths(responses)
    assert [t.get_text() for t in ax.get_yticklabels()][:2] == ["chat concise", "chat plain"]
    from rmlab.plots.style import lengths

    table = lengths(responses)
    assert table.loc[("chat", "concise"), ["chosen", "rejected"]].tolist() == [4, 3]
    assert table.loc[("chat", "markdown"), ["chosen", "rejected"]].tolist() == [8, 7]
    bare = plots.plot_lengths(responses.assign(style=pd.Series(pd.NA, index=responses.index).astype(tables.STYLE)))
    assert bare.get_yticklabels()[0].get_text() == "chat"


def test_plots_draw_where_told_and_leave_the_world_alone(pairs, responses):
    before = dict(mpl.rcParams)
    _, ax = plt.subplots()
    assert plots.plot_matrix(metrics.matrix(pairs[pairs["model"] == "a"]), ax=ax) is ax
    _, ax = plt.subplots()
    assert plots.plot_style_gap(metrics.rm_bench(pairs), ax=ax) is ax
    assert plots.plot_lengths(responses) is not ax
    assert dict(mpl.rcParams) == before


def test_what_cannot_be_drawn_is_named(pairs, responses):
    matrix = metrics.matrix(pairs[pairs["model"] == "a"])
    levels = metrics.accuracy(pairs, by=["model", "level"])
    with pytest.raises(TypeError, match="matrix: expected the DataFrame"):
        plots.plot_matrix(matrix.to_numpy())
    with pytest.raises(DataError, match=r"is no share.*divide percentages by 100"):
        plots.plot_matrix(matrix * 100)
    with pytest.raises(DataError, match=r"make it with rmlab.matrix\(pairs\)") as caught:
        plots.plot_matrix(pairs)
    assert len(str(caught.value)) < 300
    with pytest.raises(DataError, match=r"'subst' is not a column of responses; .*did you mean 'subset'"):
        plots.plot_lengths(responses, by="subst")
    with pytest.raises(DataError, match=r"missing columns .*'prompt'"):
        plots.plot_lengths(pairs)
    for plot, table in (
        (plots.plot_matrices, pairs),
        (plots.plot_style_gap, levels),
        (plots.plot_style_gap, metrics.rm_bench(pairs)),
        (plots.plot_lengths, responses),
    ):
        with pytest.raises(DataError, match="no rows"):
            plot(table.head(0))
    with pytest.raises(DataError, match=r"comes from rmlab.pairs\(scores\)"):
        plots.plot_matrices(responses, by="domain")
