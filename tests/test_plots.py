"""Figures show the numbers of their tables: read back from the artists, never from pixels."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import reward_bench_2_scores
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgb
from style_worlds import world

from rmlab import bias, load, metrics, plots, score, stats, tables, toy
from rmlab.papers import results
from rmlab.plots.canvas import shorten_names
from rmlab.tables import DataError

CELL = ["chosen_style", "rejected_style"]


@pytest.fixture(scope="module")
def scores():
    """Three models, from no skill to much."""
    mini, skills = load("mini"), {"weak": 0.0, "fair": 0.05, "good": 5.0}
    return score(mini, [toy.scorer(mini, skill=skill, name=name) for name, skill in skills.items()], progress=False)


@pytest.fixture(scope="module")
def pairs(scores):
    return metrics.pairs(scores)


@pytest.fixture
def tied(make_scores):
    """Pairs of two models, some of them ties."""
    return metrics.pairs(make_scores(seed=5))


@pytest.fixture(scope="module")
def four():
    return reward_bench_2_scores(seed=3, n=8, models=("a", "b"))


@pytest.fixture(scope="module")
def responses():
    mini = load("mini")
    lengths = 3 + 2 * mini["slot"] + (mini["label"] == "chosen")
    return mini.assign(response=["x" * n for n in lengths])


@pytest.fixture(scope="module")
def drawings(scores, pairs, four, responses):
    """Every plot, the table that it draws, and scores and pairs that are drawn like their table."""
    good, good_scores = pairs[pairs["model"] == "good"], scores[scores["model"] == "good"]
    return {
        "plot_matrix": (metrics.matrix(good), good_scores, good),
        "plot_matrices": (pairs, scores),
        "plot_style_gap": (metrics.accuracy(pairs, by=["model", "level"]), scores, pairs),
        "plot_effects": (bias.style_effects(scores), scores),
        "plot_preference": (bias.style_preference(scores), scores),
        "plot_lengths": (responses,),
        "plot_forest": (metrics.accuracy(pairs), scores, pairs),
        "plot_leaderboard": (metrics.summary(pairs), scores, pairs),
        "plot_rank": (stats.rank(pairs), scores, pairs),
        "plot_significance": (stats.compare_all(pairs), scores, pairs),
        "plot_margins": (good, good_scores),
        "plot_calibration": (stats.calibration(pairs), scores, pairs),
        "plot_scatter": (metrics.summary(pairs), scores, pairs),
        "plot_subsets": (metrics.estimates(four), four),
        "plot_best_of": (metrics.best_of_curve(four), four),
        "plot_ties": (metrics.ties_detail(four), four),
        "plot_token_rewards": (results("smollm2-tokens").query("label == 'chosen'"),),
    }


def draw(name, table, **options):
    axes = {"x": "easy", "y": "hard"} if name == "plot_scatter" else {}
    return getattr(plots, name)(table, **(axes | options))


def marks(ax):
    return [c for c in ax.collections if isinstance(c, PathCollection) and len(c.get_offsets())]


def points(ax):
    return np.concatenate([c.get_offsets() for c in marks(ax)])


def hollow_points(ax):
    rows = [row for c in marks(ax) for row in zip(c.get_offsets(), c.get_facecolors(), strict=True)]
    return [tuple(at) for at, face in rows if face[:3].min() == 1]


def segments(ax):
    lines = [line for c in ax.collections if hasattr(c, "get_segments") for line in c.get_segments()]
    return np.array([line for line in lines if len(line) == 2])


def texts_of(artists):
    return [text.get_text() for text in artists]


def row_names(ax):
    return texts_of(ax.get_yticklabels())


def legend(ax):
    return texts_of(ax.get_legend().get_texts()) if ax.get_legend() else []


# Laws of all plots


def test_plots_leave_tables_settings_and_the_current_figure_alone(drawings):
    assert {*drawings} == {name for name in plots.__all__ if name.startswith("plot_")}
    before, current = dict(mpl.rcParams), plt.figure().add_subplot()
    for name, (table, *_) in drawings.items():
        copy = table.copy()
        plt.close("all")
        result = draw(name, table)
        assert result is not current
        pd.testing.assert_frame_equal(table, copy)
        if isinstance(result, plt.Axes):
            ax = plt.figure().add_subplot()
            assert draw(name, table, ax=ax) is ax
    assert dict(mpl.rcParams) == before
    assert not current.has_data()


def test_scores_and_pairs_are_drawn_as_their_tables_are(drawings):
    def read_back(figure):
        figure = figure.get_figure() or figure
        figure.canvas.draw()
        places = [np.asarray(c.get_offsets()).tolist() for ax in figure.axes for c in ax.collections]
        return places, [texts_of((*ax.texts, *ax.get_yticklabels())) for ax in figure.axes]

    for name, (table, *sources) in drawings.items():
        plt.close("all")
        assert all(read_back(draw(name, source)) == read_back(draw(name, table)) for source in sources)


def test_what_is_missing_is_refused_with_the_reason_and_the_way_out():
    """Found on SmolLM2's scores, which have no mathematics: empty panels, without a word."""
    scores = results("smollm2-rm-bench")
    one = scores[scores["model"] == "SmolLM2-135M sum"]
    for plot, table in (
        (plots.plot_matrix, metrics.matrix(one)),
        (plots.plot_matrix, metrics.matrix(one) * np.nan),
        (plots.plot_matrices, scores),
        (plots.plot_style_gap, scores),
        (plots.plot_style_gap, metrics.summary(scores)),
        (plots.plot_style_gap, bias.style_gap(scores)),
        (plots.plot_rank, scores),
        (plots.plot_leaderboard, scores),
        (plots.plot_forest, bias.style_gap(scores)),
    ):
        with pytest.raises(DataError, match=r"math.*average=.domains"):
            plot(table)
    assert plots.plot_matrices(scores, average="domains").axes[0].texts
    assert row_names(plots.plot_style_gap(scores, average="domains")) == ["SmolLM2-135M mean", "SmolLM2-135M sum"]
    both = pd.concat([one, one[one["domain"] == "code"].assign(model="all", domain="math"), one.assign(model="all")])
    assert "math" in plots.plot_matrices(both).axes[0].texts[0].get_text()


def test_empty_tables_and_other_tables_are_refused(drawings, pairs):
    for name, (table, *_) in drawings.items():
        for other in (table.head(0), pd.DataFrame({"model": ["a"]})):
            with pytest.raises(DataError):
                draw(name, other)
    tables_ = {name: table for name, (table, *_) in drawings.items()}
    good, summary, subsets = tables_["plot_margins"], tables_["plot_scatter"], tables_["plot_subsets"]
    by_domain = stats.compare(pairs, "good", "weak", by="domain")
    for plot, table, options, message in (
        ("plot_matrices", pairs, {"by": "modle"}, "modle"),
        ("plot_forest", summary, {"label": "modle"}, "modle"),
        ("plot_forest", summary, {"value": "chta"}, "chta"),
        ("plot_lengths", tables_["plot_lengths"], {"by": "subst"}, "subst"),
        ("plot_scatter", summary, {"x": "esay"}, "esay"),
        ("plot_scatter", pd.concat([summary.assign(kind=i) for i in range(9)]), {"group": "kind"}, "kind"),
        ("plot_subsets", pd.concat([subsets.assign(model=str(i)) for i in range(9)]), {}, "9 models"),
        ("plot_ties", tables_["plot_ties"].query("kind == 'ref'"), {}, "several right answers"),
        ("plot_significance", by_domain, {}, "contests"),
        ("plot_matrix", tables_["plot_matrix"] * 100, {}, "is not a share"),
        ("plot_matrix", pairs, {}, "weak"),
        ("plot_matrix", metrics.accuracy(pairs, by=["model", *CELL]), {}, "several rows"),
        ("plot_margins", pairs, {}, "3 models"),
        ("plot_margins", good.assign(margin=np.nan), {}, "margin"),
        ("plot_margins", good, {"by": "levels"}, "levels"),
    ):
        with pytest.raises(DataError, match=message):
            draw(plot, table, **options)
    with pytest.raises(TypeError, match="matrix: ndarray"):
        plots.plot_matrix(tables_["plot_matrix"].to_numpy())


def test_dollars_in_names_are_not_formulas(scores):
    odd = scores.assign(model=scores["model"].astype("str").replace("good", r"a$_{$b\frac"))
    for plot in (plots.plot_style_gap, plots.plot_rank, plots.plot_significance, plots.plot_calibration):
        ax = plot(odd)
        ax.figure.canvas.draw()
        assert any("frac" in text for text in (*row_names(ax), *legend(ax)))
    plots.plot_matrices(odd).canvas.draw()


def test_shortened_names_still_differ():
    names = [name for name in results("reward-bench")["model"].unique() if "/" in name]
    for letters in (14, 20, 26, 40):
        cut = shorten_names(names, letters)
        assert len(set(cut)) == len(set(names))
    assert max(map(len, cut)) <= 42
    assert shorten_names(["owner/a", "b"], 26) == ["owner/a", "b"]


# Heatmaps


def test_matrix_writes_every_share_and_its_level(tied):
    matrix = metrics.matrix(tied[tied["model"] == "a"])
    ax = plots.plot_matrix(matrix)
    texts = np.array(texts_of(ax.texts)).reshape(3, 3)
    for i, j in np.ndindex(3, 3):
        level = "normal" if i == j else "hard" if i < j else "easy"
        assert texts[i, j].split("\n")[:2] == [f"{matrix.iloc[i, j]:.2f}", level]
    assert row_names(ax) == list(tables.STYLES)
    assert ax.yaxis_inverted()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("style of the rejected answer", "style of the chosen answer")
    mesh = ax.collections[0]
    assert (mesh.norm.vmin, mesh.norm.vcenter, mesh.norm.vmax) == (0, 0.5, 1)


def test_ties_are_hatched_and_counted_in_their_cell(tied):
    model = tied[tied["model"] == "a"]
    table = metrics.accuracy(model, by=CELL)
    assert table["n_ties"].sum() > 0
    for source in (metrics.matrix(model), metrics.matrix(model).round(2), table):
        ax = plots.plot_matrix(source)
        hatched = {(round(p.get_y() + p.get_height()) - 1, p.get_x()): p.get_height() for p in ax.patches}
        texts = {(t.get_position()[1] - 0.5, t.get_position()[0] - 0.5): t.get_text() for t in ax.texts}
        for row in table.itertuples():
            cell = tuple(tables.STYLES.index(style) for style in (row.chosen_style, row.rejected_style))
            assert hatched.get(cell, 0) == pytest.approx(row.n_ties / row.n_pairs)
            assert (f"{row.n_ties} tie" in texts[cell]) == (row.n_ties > 0)
    counts = metrics.accuracy(tied, by=["model", *CELL])
    assert sum(len(ax.patches) for ax in plots.plot_matrices(tied).axes[:2]) == (counts["n_ties"] > 0).sum()


def test_notes_of_another_matrix_are_not_drawn(tied):
    """pandas hands the notes of a frame on to what is computed from it."""
    mean = (metrics.matrix(tied[tied["model"] == "a"]) + metrics.matrix(tied[tied["model"] == "b"])) / 2
    assert "cells" in mean.attrs
    assert not plots.plot_matrix(mean).patches
    with pytest.raises(DataError, match="intervals"):
        plots.plot_matrix(mean, intervals=True)


def contrast(text, background):
    """As the W3C's accessibility guidelines count it."""
    linear = [((x + 0.055) / 1.055) ** 2.4 if x > 0.04045 else x / 12.92 for c in (text, background) for x in to_rgb(c)]
    dark, light = sorted(np.reshape(linear, (2, 3)) @ (0.2126, 0.7152, 0.0722))
    return (light + 0.05) / (dark + 0.05)


def test_every_number_of_a_heatmap_can_be_read_on_its_colour():
    for start in np.linspace(0, 1, 40):
        shares = (start + np.arange(9).reshape(3, 3) / 360) % 1
        ax = plots.plot_matrix(pd.DataFrame(shares, tables.STYLES, tables.STYLES), colorbar=False)
        for text, colour in zip(ax.texts, ax.collections[0].get_facecolors(), strict=True):
            assert contrast(text.get_color(), colour) >= 4.5
        plt.close("all")


def test_matrices_make_one_panel_per_value_and_one_colour_bar(pairs):
    figure = plots.plot_matrices(pairs, by="model")
    assert [ax.get_title() for ax in figure.axes] == ["weak", "fair", "good", ""]
    domains = plots.plot_matrices(pairs[pairs["model"] == "good"], by="domain", columns=3)
    assert [ax.get_title() for ax in domains.axes] == ["chat", "math", "code", "safety", ""]
    matrices = {name: metrics.matrix(pairs[pairs["model"] == name]) for name in ("weak", "good")}
    texts = [text.get_text() for text in plots.plot_matrices(matrices).axes[1].texts]
    assert texts == [f"{share:.2f}" for share in matrices["good"].to_numpy().ravel()]


def test_cells_that_do_not_survive_holm_are_grey(pairs):
    contests = stats.compare_all(pairs)
    square = plots.differences(contests)
    assert list(square.index) == list(square.columns) == ["good", "fair", "weak"]
    np.testing.assert_allclose(square, -square.T)
    assert square.loc["weak", "good"] < 0
    assert np.isnan(square.loc["weak", "fair"])
    ax = plots.plot_significance(contests)
    above = square.where(np.triu(np.ones(square.shape, bool), 1)).to_numpy().ravel()
    numbers = {text.get_text() for text in ax.texts if text.get_gid() == "cell"}
    assert numbers == {f"{x:.3f}".replace("0.", ".") for x in above if not np.isnan(x)}
    for text in (text for text in ax.texts if text.get_gid() == "cell"):
        colour = ax.collections[0].to_rgba([float(text.get_text())])[0]
        assert contrast(text.get_color(), colour) >= 4.5
    assert plots.differences(contests, alpha=1e-300).isna().all(axis=None)


# Rows with intervals


def test_style_gap_draws_levels_sorted_by_hard(pairs):
    wide = metrics.summary(pairs)
    ax = plots.plot_style_gap(wide)
    expected = wide.sort_values("hard", kind="stable")
    assert row_names(ax) == list(expected["model"])
    places = points(ax)
    np.testing.assert_allclose(places[:, 0], expected[["easy", "normal", "hard"]].to_numpy().T.ravel())
    assert len(set(np.round(places[:, 1] % 1, 6))) == 3, "no two levels lie on one line"
    assert legend(ax) == ["easy", "normal", "hard"]
    assert "chance (0.5)" in texts_of(ax.texts)
    gap = bias.style_gap(pairs, by=["model", "domain"])
    ax = plots.plot_style_gap(gap)
    np.testing.assert_allclose(sorted(points(ax)[:, 0]), sorted([*gap["easy"], *gap["hard"]]))
    assert "good · chat" in row_names(ax)


def test_ties_and_baselines_can_be_seen_in_the_style_gap(pairs):
    blind = pairs[pairs["model"] == "weak"].assign(model="constant", margin=0.0, outcome="tie")
    levels = metrics.accuracy(pd.concat([pairs[pairs["model"] == "good"], blind]), by=["model", "level"])
    ax = plots.plot_style_gap(levels)
    row = row_names(ax).index("constant")
    assert ax.get_yticklabels()[row].get_style() == "italic"
    ties = {text.xy[1]: text.get_text() for text in ax.texts if text.xy[0] == 1}
    assert ties[row] == f"{levels.groupby('model')['n_ties'].sum()['constant']:,}"
    assert [round(y) for _, y in hollow_points(ax)] == [row] * 3


def test_lengths_are_means_per_subset_and_style(responses):
    ax = plots.plot_lengths(responses)
    assert row_names(ax)[-2:] == ["chat plain", "chat concise"]
    table = plots.lengths(responses)
    assert table.loc[("chat", "concise"), ["chosen", "rejected"]].tolist() == [4, 3]
    assert table.loc[("chat", "markdown"), ["chosen", "rejected"]].tolist() == [8, 7]
    bare = plots.plot_lengths(responses.assign(style=pd.Series(pd.NA, index=responses.index).astype(tables.STYLE)))
    assert row_names(bare)[-1] == "chat"


def test_forest_draws_every_row_of_the_table(pairs):
    table = metrics.estimates(pairs[pairs["model"] == "good"])
    table.loc[3, ["low", "high"]] = np.nan
    ax = plots.plot_forest(table)
    assert row_names(ax) == table["name"].tolist()[::-1]
    np.testing.assert_allclose(segments(ax)[:, :, 0], table[["low", "high"]].dropna()[::-1])
    np.testing.assert_allclose(points(ax)[:, 0], table["value"][::-1])
    assert len(hollow_points(ax)) == 1
    ax = plots.plot_forest(stats.compare(pairs, "weak", "good", by=["domain", "level"]))
    assert row_names(ax)[-1] == "chat · easy"
    assert ax.get_xlabel().split("\n")[1:] == ["weak", "minus good"]
    assert row_names(plots.plot_forest(metrics.summary(pairs), sort=True))[-1] == "good"


def test_forest_draws_the_number_that_the_limits_belong_to(pairs):
    scores, features = world(30)
    for table, value, line in (
        (bias.style_gap(pairs), "gap", 0.0),
        (bias.style_preference(scores), "preference", 0.5),
        (bias.length_controlled(metrics.pairs(scores), features), "controlled", 0.5),
        (bias.debias_change(scores, features), "change", 0.0),
        (bias.style_effects(scores, features), "effect", 0.0),
    ):
        ax = plots.plot_forest(table)
        np.testing.assert_allclose(points(ax)[:, 0], table[value].to_numpy()[::-1])
        assert ax.lines[0].get_xdata()[0] == line
        assert len(set(row_names(ax))) == len(table)


def test_ranks_stand_best_on_top_with_their_letters(pairs):
    ranks = stats.rank(pairs)
    ax = plots.plot_rank(ranks)
    written = texts_of(ax.texts)
    assert written == ["score", *(f"{value:.3f}" for value in ranks["value"][::-1]), "group", *ranks["group"][::-1]]
    np.testing.assert_allclose(segments(ax)[:, 1, 0][::-1], ranks["rank_high"].astype(float))
    assert row_names(plots.plot_rank(ranks, most=1)) == ["good"]


def test_a_leaderboard_shows_the_best_and_all_baselines():
    board = pd.DataFrame({"model": [f"m{i}" for i in range(5)] + ["longest"], "overall": np.linspace(0.9, 0.4, 6)})
    ax = plots.plot_leaderboard(board.assign(kind=["model"] * 5 + ["baseline"]), most=2)
    assert row_names(ax) == ["longest", "m1", "m0"]
    assert "3 models" in ax.get_xlabel()
    assert [label.get_style() for label in ax.get_yticklabels()] == ["italic", "normal", "normal"]


# Effects


@pytest.fixture(scope="module")
def styled():
    worlds = [world(40, style=0.5 * i, seed=i, model=m)[0] for i, m in enumerate(("a", "b"))]
    return pd.concat([*worlds, worlds[0].assign(model="flat", score=1.0)], ignore_index=True)


def test_effects_have_a_row_per_model_and_a_mark_per_term(styled):
    table = bias.style_effects(styled)
    ax = plots.plot_effects(table)
    assert row_names(ax) == ["flat", "b", "a"]
    terms = pd.CategoricalDtype(table["term"].unique())
    known = table.dropna(subset=["effect"]).astype({"term": terms}).sort_values("term", kind="stable")
    np.testing.assert_allclose(points(ax)[:, 0], known["effect"])
    np.testing.assert_allclose(segments(ax)[:, :, 0], known[["low", "high"]])
    assert len(ax.get_legend().get_texts()) == 3
    assert sum("do not vary" in text.get_text() for text in ax.texts) == 1
    ax = plots.plot_effects(bias.style_effects(styled[styled["model"] == "b"]))
    assert row_names(ax) == ["Markdown instead of plain", "plain instead of concise", "right instead of wrong"]
    assert ax.get_title() == "b"


def test_unbounded_and_very_large_rates_do_not_stretch_the_axis(styled):
    table = bias.exchange_rate(styled[styled["model"] != "flat"], terms=["correct", "step"])
    table.loc[0, ["rate", "low", "high"]] = [0.5, -np.inf, np.inf]
    ax = plots.plot_effects(table)
    assert "unbounded" in texts_of(ax.texts)
    assert 0.5 not in points(ax)[:, 0], "a number without meaning is not drawn"
    assert ax.get_xlim()[1] < 5
    table.loc[0, ["rate", "low", "high"]] = [-46.6, -980.0, -24.0]
    ax = plots.plot_effects(table)
    assert [line.get_marker() for line in ax.lines if line.get_marker() in "<>"] == ["<"]
    assert "-46.6" in texts_of(ax.texts)
    assert -5 < ax.get_xlim()[0] < -4


def test_preferences_count_ties_and_are_hollow_where_most_are(styled):
    table = bias.style_preference(styled)
    ax = plots.plot_preference(table)
    assert sorted(points(ax)[:, 0]) == pytest.approx(sorted(table["preference"]))
    assert f"{table['n_ties'].sum():,}" in texts_of(ax.texts)
    assert [x for x, _ in hollow_points(ax)] == [0.5] * 3
    assert row_names(plots.plot_preference(bias.style_preference(styled, "model"))) == ["flat", "b", "a"]


# Rewards


def test_margins_are_densities_with_their_win_rates(pairs):
    model = pairs[pairs["model"] == "good"]
    ax = plots.plot_margins(model)
    table = stats.margins(model).set_index("level")
    rows = table.loc[list(tables.LEVELS)].iterrows()
    assert legend(ax) == [f"{level}: {row['positive']:.2f} won of {row['n_pairs']:,}" for level, row in rows]
    edges = ax.patches[0].get_data().edges
    assert np.abs(edges).min() < 1e-12, "zero is the edge of a bin"
    outside = ((model["margin"] < edges[0]) | (model["margin"] > edges[-1])).sum()
    assert f"{outside} of {len(model)} lie outside" in ax.get_xlabel()
    half = model.assign(margin=model["margin"].where(model.index % 5 > 0, 0.0))
    counts = half[half["margin"] == 0].groupby("level", observed=False).size()
    assert all(text.endswith(f", {counts[text.split(':')[0]]} ties") for text in legend(plots.plot_margins(half)))
    plots.plot_margins(model.assign(margin=0.0))
    plain = model.assign(chosen_style=None, rejected_style=None, level=None)
    assert len(plots.plot_margins(plain).get_legend().get_texts()) == 1


def test_calibration_joins_full_bins_only(pairs):
    gaps = pairs.assign(margin=pairs["margin"].where(pairs["model"] != "weak"))
    table = stats.calibration(gaps)
    ax = plots.plot_calibration(table)
    good = table[(table["model"] == "good") & (table["n_pairs"] > 0)]
    full = good[good["n_pairs"] >= 10]
    assert 0 < len(full) < len(good)
    line = next(line for line in ax.lines[1:] if len(line.get_xdata()) == len(full) and line.get_ydata()[-1] > 0.9)
    np.testing.assert_allclose(line.get_xydata(), full[["predicted", "accuracy"]])
    error, low, high = good[["ece", "ece_low", "ece_high"]].iloc[0]
    assert {f"good\nECE {error:.3f} ({low:.3f} to {high:.3f})", "weak\nno margins"} <= {*legend(ax)}


def test_token_rewards_show_every_piece(drawings):
    (table,) = drawings["plot_token_rewards"]
    ax = plots.plot_token_rewards(table)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), table["reward"])
    change = table["change"].fillna(0)
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], [*change[change >= 0], *change[change < 0]])


# Best of n, and models against models


def test_subsets_have_a_row_each_with_its_chance(four):
    table = metrics.estimates(four).query("quantity == 'subset'")
    ax = plots.plot_subsets(table)
    assert row_names(ax)[::-1] == ["Factuality", "Precise IF", "Math", "Safety", "Focus", "Ties"]
    np.testing.assert_allclose(points(ax)[:, 0], table["value"])
    solid = np.concatenate([c.get_segments() for c in ax.collections if hasattr(c, "get_segments")][:2])
    np.testing.assert_allclose(solid[:, :, 0], table[["low", "high"]])
    assert (segments(ax) == 0.25).all(axis=1)[:, 0].sum() == 5, "Ties has no chance line"


def test_curves_are_the_tables_numbers_and_chance_is_one_over_n(four):
    curve = metrics.best_of_curve(four)
    figure = plots.plot_best_of(curve)
    assert [ax.get_title() for ax in figure.axes] == list(dict.fromkeys(curve["domain"]))
    for ax in figure.axes:
        panel = curve[curve["domain"] == ax.get_title()]
        lines = {line.get_label(): line for line in ax.lines}
        for model in ("a", "b"):
            rows = panel[panel["model"] == model]
            np.testing.assert_allclose(lines[model].get_ydata(), rows["accuracy"])
            np.testing.assert_allclose(lines[model].get_xdata(), rows["n"], atol=0.25)
        assert lines["a"].get_xdata()[0] < lines["b"].get_xdata()[0], "intervals do not lie on each other"
        np.testing.assert_allclose(segments(ax)[:, :, 1], panel.sort_values(["model", "n"])[["low", "high"]])
        np.testing.assert_allclose(lines["chance"].get_ydata(), [1 / 2, 1 / 3, 1 / 4])


def test_every_tied_prompt_is_a_point_of_its_kind(four):
    detail = metrics.ties_detail(four)
    figure, table = plots.plot_ties(detail), plots.tie_points(detail)
    assert len({ax.get_xlim() + ax.get_ylim() for ax in figure.axes}) == 1, "all panels have the same axes"
    for ax, model in zip(figure.axes, ("a", "b"), strict=True):
        rows = detail[(detail["model"] == model) & (detail["kind"] == "tied")]
        shown = table[table["model"] == model]
        assert shown["spread"].mean() == pytest.approx(1)
        np.testing.assert_allclose(shown["gap"] / shown["spread"], rows["gap"] / rows["spread"])
        np.testing.assert_allclose(sorted(points(ax)[:, 1]), sorted(shown["gap"]))
        assert (shown["result"] == "wrong").sum() == (rows["gap"] <= 0).sum()


def test_scatter_draws_groups_and_names_the_outliers():
    rng = np.random.default_rng(0)
    easy = np.linspace(0.5, 1, 20)
    hard = easy - 0.2 + 0.01 * rng.normal(size=20)
    hard[[3, 7]] = 0.95, 0.02
    names = [f"owner/model-{i}" for i in range(20)]
    table = pd.DataFrame({"model": names, "easy": easy, "hard": hard, "kind": ["old", "new"] * 10})
    ax = plots.plot_scatter(table, "easy", "hard", group="kind", named=2)
    offsets = {c.get_label(): c.get_offsets() for c in ax.collections}
    for kind, rows in table.groupby("kind"):
        np.testing.assert_allclose(offsets[kind], rows[["easy", "hard"]])
    assert {text.get_text() for text in ax.texts} == {"model-3", "model-7"}
    gaps = table.assign(hard=table["hard"].where(table.index > 4))
    assert "5 models" in plots.plot_scatter(gaps, "easy", "hard").get_xlabel()
