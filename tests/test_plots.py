"""Figures show the numbers of their tables, read back from the artists and never from
pixels; they can be printed.
"""

import re

import matplotlib as mpl
import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import reward_bench_2_scores
from matplotlib.collections import PathCollection
from matplotlib.patches import Polygon, Rectangle
from matplotlib.text import Text
from style_worlds import world

import rmlab
from rmlab import (
    metrics,
    plots,
    save_figure,
    score,
    stats,
    tables,
    toy,
)
from rmlab.papers import published, results
from rmlab.plots.print_sizes import SMALLEST, resize
from rmlab.tables import DataError

CELL = ["chosen_style", "rejected_style"]
PLOTS = [name for name in plots.__all__ if name.startswith("plot_")]
LONG = {
    name: f"Owner/Some-Reward-Gemma-2-27B-v0.{k % 2} a$_{{$b"
    for k, name in enumerate(("good", "fair", "a", "b"))
}


@pytest.fixture(scope="module")
def scores(mini):
    """Three models, from no skill to much."""
    skills = {"weak": 0.0, "fair": 0.05, "good": 5.0}
    return score(
        mini,
        [toy.scorer(mini, skill=skill, name=name) for name, skill in skills.items()],
        progress=False,
    )


@pytest.fixture(scope="module")
def pairs(scores):
    return metrics.pairs(scores)


@pytest.fixture(scope="module")
def good(pairs):
    return pairs[pairs["model"] == "good"]


@pytest.fixture
def tied(make_scores):
    """Pairs of two models, some of them ties."""
    return metrics.pairs(make_scores(seed=5))


@pytest.fixture(scope="module")
def four():
    return reward_bench_2_scores(seed=3, n=8, models=("a", "b"))


@pytest.fixture(scope="module")
def responses(mini):
    lengths = 3 + 2 * mini["slot"] + (mini["label"] == "chosen")
    return mini.assign(response=["x" * n for n in lengths])


@pytest.fixture(scope="module")
def styled():
    worlds = [
        world(40, style=0.5 * i, seed=i, model=m)[0] for i, m in enumerate(("a", "b"))
    ]
    return pd.concat(
        [*worlds, worlds[0].assign(model="flat", score=1.0)], ignore_index=True
    )


@pytest.fixture(scope="module")
def drawings(scores, pairs, good, four, responses):
    """Every plot, the table that it draws, and scores and pairs that are drawn like
    their table.
    """
    good_scores = scores[scores["model"] == "good"]
    steps = {"weak": "step 0", "fair": "step 10", "good": "step 20"}
    run = scores.assign(model=scores["model"].astype(str).map(steps))
    return {
        "plot_matrix": (metrics.matrix(good), good_scores, good),
        "plot_matrices": (pairs, scores),
        "plot_style_gap": (
            metrics.accuracy(pairs, by=["model", "level"]),
            scores,
            pairs,
        ),
        "plot_effects": (rmlab.style_effects(scores), scores),
        "plot_lengths": (responses,),
        "plot_forest": (metrics.accuracy(pairs), scores, pairs),
        "plot_leaderboard": (metrics.summary(pairs), scores, pairs),
        "plot_rank": (stats.rank(pairs), scores, pairs),
        "plot_margins": (good, good_scores),
        "plot_calibration": (stats.calibration(pairs), scores, pairs),
        "plot_training": (run, metrics.pairs(run)),
        "plot_scatter": (metrics.summary(pairs), scores, pairs),
        "plot_best_of": (metrics.best_of_curve(four), four),
        "plot_token_rewards": (results("smollm2-tokens").query("label == 'chosen'"),),
    }


def draw(name, table, **options):
    axes = {"x": "easy", "y": "hard"} if name == "plot_scatter" else {}
    return getattr(plots, name)(table, **(axes | options))


def marks(ax):
    return [
        c
        for c in ax.collections
        if isinstance(c, PathCollection) and len(c.get_offsets())
    ]


def points(ax):
    places = np.concatenate([c.get_offsets() for c in marks(ax)])
    return places[~np.isnan(places[:, 0])]  # marks without a number are not drawn


def hollow_points(ax):
    rows = [
        row
        for c in marks(ax)
        for row in zip(c.get_offsets(), c.get_facecolors(), strict=True)
    ]
    return [tuple(at) for at, face in rows if face[:3].min() == 1]


def segments(ax):
    lines = [
        line
        for c in ax.collections
        if hasattr(c, "get_segments")
        for line in c.get_segments()
    ]
    return np.array([line for line in lines if len(line) == 2])


def texts_of(artists):
    return [text.get_text() for text in artists]


def row_names(ax):
    return texts_of(ax.get_yticklabels())


def legend(ax):
    return texts_of(ax.get_legend().get_texts()) if ax.get_legend() else []


# Laws of all plots


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_draws_scores_pairs_and_their_table_alike_and_touches_nothing_else(
    drawings, name
):
    table, *sources = drawings[name]
    copy, before, current = table.copy(), dict(mpl.rcParams), plt.figure().add_subplot()
    result = draw(name, table)
    assert result is not current
    assert not current.has_data()
    assert dict(mpl.rcParams) == before
    pd.testing.assert_frame_equal(table, copy)
    if isinstance(result, plt.Axes):
        ax = plt.figure().add_subplot()
        assert draw(name, table, ax=ax) is ax
    assert all(read_back(draw(name, source)) == read_back(result) for source in sources)
    for other in (table.head(0), pd.DataFrame({"model": ["a"]})):
        with pytest.raises(DataError):
            draw(name, other)


def read_back(figure):
    figure = figure.get_figure() or figure
    figure.canvas.draw()
    places = [
        np.asarray(c.get_offsets()).tolist()
        for ax in figure.axes
        for c in ax.collections
    ]
    return places, [texts_of((*ax.texts, *ax.get_yticklabels())) for ax in figure.axes]


@pytest.mark.parametrize("name", PLOTS)
def test_print_can_be_read(drawings, name, monkeypatch):
    table = drawings[name][0]
    names = [column for column in table if str(column).startswith("model")]
    result = draw(name, table.assign(**table[names].replace(LONG)))
    for width in ("column", "text"):
        page = resize(result.get_figure() or result, width)
        printed = drawn_texts(page, monkeypatch)
        assert min(text.get_fontsize() for text in printed) >= SMALLEST
        boxes = np.array([text.get_window_extent().extents for text in printed])
        low, high = boxes[:, :2], boxes[:, 2:]
        is_inside = (low > -2).all(axis=1) & (high < page.bbox.max + 2).all(axis=1)
        assert [printed[i].get_text() for i in np.flatnonzero(~is_inside)] == []
        overlap = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)
        clashes = np.triu((overlap > (1.5, 3)).all(axis=2), 1)
        assert [printed[i].get_text() for i in np.argwhere(clashes).ravel()] == []


def drawn_texts(figure, monkeypatch):
    """Texts as they are drawn: ticks beyond the axis and hidden ones are not."""
    texts, draw_text = [], Text.draw

    def listen(text, renderer):
        texts.append(text)
        draw_text(text, renderer)

    with monkeypatch.context() as patch:
        patch.setattr(Text, "draw", listen)
        figure.draw_without_rendering()
    distinct = dict.fromkeys(texts)
    return [text for text in distinct if text.get_visible() and text.get_text().strip()]


def test_every_row_is_drawn_with_its_interval_and_the_line_of_chance_or_nothing(
    pairs, good, styled
):
    scores, features = world(30)
    estimates, ranks = metrics.estimates(good), stats.rank(pairs)
    estimates.loc[3, ["low", "high"]] = np.nan
    ranks = ranks.assign(low=ranks["rank_low"], high=ranks["rank_high"])
    for plot, table, value, label, line in (
        ("plot_forest", estimates, "value", ["name"], 0.5),
        (
            "plot_forest",
            stats.compare(pairs, "weak", "good", by=["domain", "level"]),
            "difference",
            ["domain", "level"],
            0,
        ),
        ("plot_forest", rmlab.style_gap(pairs), "gap", ["model"], 0),
        ("plot_forest", rmlab.style_effects(scores, features), "effect", ["term"], 0),
        ("plot_leaderboard", metrics.summary(pairs), "overall", ["model"], 0.5),
        ("plot_rank", ranks, "rank", ["model"], None),
        ("plot_effects", rmlab.style_effects(styled), "effect", ["model"], 0),
    ):
        ax, table = draw(plot, table), table.dropna(subset=[value])
        names = [name.lower().replace(" ", "_") for name in row_names(ax)]
        rows = [(names[round(y)], round(x, 9)) for x, y in points(ax)]
        labels = table[label].astype(str).agg("_·_".join, axis=1).str.replace(" ", "_")
        values = table[value].astype(float).round(9)
        assert sorted(rows) == sorted(zip(labels, values, strict=True))
        intervals = table[["low", "high"]].dropna().astype(float).round(9)
        drawn = {tuple(row) for row in segments(ax)[:, :, 0].round(9)}
        assert {*intervals.itertuples(index=False, name=None)} <= drawn
        assert line is None or ax.lines[0].get_xdata()[0] == line
        n_open = len(table) - len(intervals)
        assert plot != "plot_forest" or len(hollow_points(ax)) == n_open


def test_what_is_missing_is_refused_with_the_reason_and_the_way_out():
    """Found on SmolLM2's scores, which have no mathematics: empty panels, without a
    word.
    """
    scores = results("smollm2-rm-bench")
    one = scores[scores["model"] == "SmolLM2-135M sum"]
    gaps = rmlab.style_gap(scores)
    for plot, table in (
        (plots.plot_matrix, one),
        (plots.plot_matrix, metrics.estimates(one)),
        (plots.plot_style_gap, gaps),
        (plots.plot_forest, gaps),
        (plots.plot_matrices, scores),
        (plots.plot_style_gap, scores),
        (plots.plot_rank, scores),
        (plots.plot_leaderboard, scores),
    ):
        with pytest.raises(DataError, match=r"math.*average=.domains"):
            plot(table)
    assert plots.plot_matrices(scores, average="domains").axes[0].texts


def test_other_tables_and_options_are_refused(drawings, pairs, good):
    many = pd.concat([good.assign(model=f"m{i}") for i in range(9)])
    for plot, table, options, message in (
        ("plot_matrices", pairs, {"by": "modle"}, "modle"),
        ("plot_scatter", drawings["plot_scatter"][0], {"x": "esay"}, "esay"),
        ("plot_matrix", drawings["plot_matrix"][0] * 100, {}, "share"),
        ("plot_matrix", pairs, {}, "one model.*plot_matrices"),
        ("plot_margins", good.assign(margin=np.nan), {}, "margin"),
        ("plot_calibration", many, {}, "'m8'"),
    ):
        with pytest.raises(DataError, match=message):
            draw(plot, table, **options)


# Heatmaps


@pytest.fixture
def lopsided():
    """Pairs of two models whose nine shares all differ."""
    frames = []
    for model, first in (("a", 1), ("b", 10)):
        pairs = metrics.pairs(world(40, seed=first, model=model)[0])
        cell = pairs.groupby(CELL, observed=True).ngroup()
        won = pairs["id"].astype(int) < first + 2 * cell
        frames.append(pairs.assign(margin=np.where(won, 1.0, -1.0), outcome=None))
    return tables.check_pairs(pd.concat(frames).drop(columns="outcome"))


def test_colours_and_texts_are_those_of_each_cell(lopsided):
    """A transposed matrix looks as good: rows are chosen, columns rejected."""
    grid = plots.plot_matrices(lopsided).axes[:2]
    for model, panel in zip(("a", "b"), grid, strict=True):
        one = lopsided[lopsided["model"] == model]
        matrix = metrics.matrix(one)
        assert len(set(matrix.to_numpy().ravel())) == 9
        cells = metrics.estimates(one).query("quantity == 'cell'")
        by_name = plots.plot_matrices({model: matrix}).axes[0]
        assert panel.get_title() == by_name.get_title() == model
        alone = map(plots.plot_matrix, (matrix, one, cells))
        for ax in (panel, by_name, *alone):
            ax.figure.canvas.draw()
            assert ax.yaxis_inverted()
            for names in (row_names(ax), texts_of(ax.get_xticklabels())):
                assert names in (list(tables.STYLES), [])  # none inside a grid
            mesh = ax.collections[0]
            faces = mpl.colormaps["RdBu"](matrix.to_numpy())
            np.testing.assert_allclose(mesh.get_facecolors(), faces.reshape(9, 4))
            corners = mesh.get_coordinates()[:-1, :-1].reshape(9, 2) + 0.5
            written = {text.get_position(): text.get_text()[:4] for text in ax.texts}
            shares = [f"{share:.2f}" for share in matrix.to_numpy().ravel()]
            assert [written[tuple(corner)] for corner in corners] == shares
            cut = [p.get_xy()[1] for p in ax.patches if isinstance(p, Polygon)]
            below = np.argwhere(matrix.to_numpy().round(2) < 0.5)[:, ::-1]
            np.testing.assert_allclose(cut, np.add(below, [1, 0]))


def test_matrix_writes_the_level_and_the_ties_of_every_cell(tied, good):
    model = tied[tied["model"] == "a"]
    table = metrics.accuracy(model, by=CELL)
    assert table["n_ties"].sum() > 0
    for source in (model, table, metrics.estimates(model)):
        ax = plots.plot_matrix(source)
        hatched = {
            (round(p.get_y() + p.get_height()) - 1, p.get_x()): p.get_height()
            for p in ax.patches
            if isinstance(p, Rectangle)
        }
        for place, row in enumerate(table.itertuples()):
            cell = divmod(place, 3)
            _, level, *rest = ax.texts[place].get_text().split("\n")
            assert level == ("normal", "hard", "easy")[np.sign(cell[1] - cell[0])]
            assert hatched.get(cell, 0) == pytest.approx(row.n_ties / row.n_pairs)
            assert any(f"{row.n_ties} tie" in text for text in rest) == (row.n_ties > 0)
    intervals = plots.plot_matrix(metrics.estimates(good), intervals=True)
    assert all("–" in text for text in texts_of(intervals.texts))


# Rows, rewards, best of n, and models against models


def test_models_without_a_score_are_counted_below_and_not_drawn_as_equal(pairs):
    """Sixteen models of RewardBench without an overall score stood in the triangle as
    not clearly different.
    """
    lacking = pairs[pairs["model"] == "good"].assign(model="lacking")
    lacking.loc[lacking["domain"] == "math", ["margin", "outcome"]] = np.nan
    table = pd.concat([pairs, lacking])
    assert stats.rank(table).set_index("model")["rank"].isna().sum() == 1
    for plot in (plots.plot_rank, plots.plot_leaderboard):
        ax = plot(table)
        assert "1 model " in ax.get_xlabel()
        assert not any("lacking" in name for name in row_names(ax))


def test_every_kind_of_a_published_board_is_drawn():
    """Kinds such as "Scalar RM" had a row and no mark."""
    board = published("rm-bench").dropna(subset="overall")
    ax = plots.plot_leaderboard(board, most=100)
    assert sorted(points(ax)[:, 0]) == sorted(board["overall"])


def test_a_leaderboard_has_no_chance_line_of_another_benchmark():
    """Random scores earn 1/4 in RewardBench 2, also in some of its subsets."""
    board = pd.DataFrame({"model": ["m0", "m1"], "overall": [0.9, 0.8]})
    for columns, lines in (
        (["math", "safety"], []),
        (["factuality", "focus"], []),
        (["chat", "code", "easy", "hard"], ["chance (0.5)"]),
        ([], ["chance (0.5)"]),
    ):
        ax = plots.plot_leaderboard(board.assign(**dict.fromkeys(columns, 0.5)))
        assert legend(ax) == lines


def test_ties_and_baselines_can_be_seen(pairs, good):
    blind = pairs[pairs["model"] == "weak"].assign(
        model="constant", margin=0.0, outcome="tie"
    )
    ax = plots.plot_style_gap(pd.concat([good, blind]))
    row = row_names(ax).index("constant")
    assert f"{len(blind):,}" in beside(ax)
    assert [round(y) for _, y in hollow_points(ax)] == [row] * 3
    board = pd.DataFrame(
        {"model": ["m0", "m1", "m2", "longest"], "overall": [0.9, 0.8, 0.7, 0.4]}
    )
    ax = plots.plot_leaderboard(board, most=2)
    assert row_names(ax) == ["longest", "m1", "m0"]
    assert "1 model" in ax.get_xlabel()


def beside(ax):
    """Texts at the right of the rows."""
    return texts_of(ax.child_axes[0].get_yticklabels())


def test_lengths_are_means_per_subset_and_style(responses):
    ax = plots.plot_lengths(responses)
    chosen, rejected = marks(ax)
    assert sorted(set(chosen.get_offsets()[:, 0])) == [4, 6, 8]
    assert sorted(set(rejected.get_offsets()[:, 0])) == [3, 5, 7]


def test_models_are_marks_in_the_row_of_a_subset_and_chance_is_the_tables(four):
    subsets = metrics.estimates(four).query("quantity == 'subset'")
    ax = plots.plot_forest(subsets, series="model")
    assert legend(ax) == ["a", "b"]
    for dots, (_, rows) in zip(marks(ax), subsets.groupby("model"), strict=True):
        places = dots.get_offsets()
        drawn = [row_names(ax)[round(y)] for y in places[:, 1]]
        shares = dict(zip(drawn, places[:, 0], strict=True))
        assert shares == pytest.approx(rows.set_index("name")["value"].to_dict())
    assert ax.lines[0].get_xdata()[0] == 0.25


def test_an_unbounded_or_far_rate_is_no_mark(styled):
    table = rmlab.exchange_rate(
        styled[styled["model"] != "flat"], terms=["correct", "step"]
    )
    table.loc[0, ["rate", "low", "high"]] = [0.5, -np.inf, np.inf]
    table.loc[1, ["rate", "low", "high"]] = [7.25, 5.0, 9.0]
    table = pd.concat([table, table.assign(model="c", rate=1.5, low=1.0, high=2.0)])
    ax = plots.plot_effects(table)
    assert "unbounded" in ax.get_xlabel()
    assert set(points(ax)[:, 0]) == {1.5}, "a number without meaning is not drawn"
    assert any("7.25" in text for text in beside(ax))
    assert ax.get_xlim()[1] < 4.5


def test_margins_have_their_win_rates_and_zero_on_the_edge_of_a_bin(good):
    ax = plots.plot_margins(good)
    for level, text in zip(tables.LEVELS, legend(ax), strict=True):
        margin = good.loc[good["level"] == level, "margin"].dropna()
        assert f"{(margin > 0).mean():.2f} won of {len(margin):,}" in text
    edges = ax.patches[0].get_data().edges
    assert np.abs(edges).min() < 1e-12
    low, high = ax.get_xlim()
    outside = ((good["margin"] < low) | (good["margin"] > high)).sum()
    assert f"{outside} of {len(good)} lie outside" in ax.get_xlabel()


def test_calibration_joins_full_bins_and_sets_each_on_its_own_interval(pairs):
    is_weak = pairs["model"] == "weak"
    table = stats.calibration(pairs.assign(margin=pairs["margin"].mask(is_weak)))
    good = table[table["model"] == "good"]
    full = good[good["n_pairs"] >= 10]
    lines = plots.plot_calibration(good).lines
    drawn = [line.get_xydata().round(9).tolist() for line in lines]
    assert full[["predicted", "accuracy"]].round(9).to_numpy().tolist() in drawn
    ax = plots.plot_calibration(table)
    assert any("weak" in text and "no margins" in text for text in legend(ax))
    ax = plots.plot_calibration(pairs)
    np.testing.assert_array_equal(points(ax)[:, 0], segments(ax)[:, 0, 0])
    assert len(points(ax)) > 10


def test_best_of_n_its_bands_and_its_chance(four):
    curve = metrics.best_of_curve(four)
    for ax in plots.plot_best_of(curve).axes:
        panel = curve[curve["domain"] == ax.get_title()].sort_values(["model", "n"])
        lines = {line.get_label(): line.get_ydata() for line in ax.lines}
        np.testing.assert_allclose([*lines["a"], *lines["b"]], panel["accuracy"])
        np.testing.assert_allclose(lines["random (chance)"], [1 / 2, 1 / 3, 1 / 4])
        assert_bands(ax, panel.groupby("model"), "n")


def test_training_has_the_band_of_every_level_and_of_the_gap(scores):
    steps = {"weak": "step 0", "fair": "step 10", "good": "step 20"}
    run = scores.assign(model=scores["model"].astype(str).map(steps))
    ax = plots.plot_training(run)
    assert legend(ax) == ["easy", "normal", "hard", "easy minus hard"]
    table = metrics.estimates(run).query("quantity == 'level'")
    table = table.assign(n=table["model"].str.split().str[1].astype(int))
    assert_bands(ax, table.groupby("name", sort=False), "n")
    gap = rmlab.style_gap(run)
    np.testing.assert_allclose(ax.lines[-1].get_ydata(), gap["gap"])
    for name in ("run", "step 1 of 2"):
        with pytest.raises(DataError, match=r"step|runs"):
            plots.plot_training(scores.assign(model=scores["model"] + name + "3"))


def assert_bands(ax, groups, x):
    for band, (_, rows) in zip(ax.collections, groups, strict=False):
        corners = band.get_paths()[0].vertices
        for column in ("low", "high"):
            for corner in rows[[x, column]].dropna().to_numpy():
                assert np.isclose(corners, corner).all(axis=1).any()


def test_scatter_draws_groups_and_names_the_outliers():
    easy = np.linspace(0.5, 1, 20)
    hard = easy - 0.2 + 0.01 * np.random.default_rng(0).normal(size=20)
    hard[[3, 7]] = 0.95, 0.02
    names = [f"owner/model-{i}" for i in range(20)]
    table = pd.DataFrame({"model": names, "easy": easy, "hard": hard})
    table["kind"] = ["old", "new"] * 10
    ax = plots.plot_scatter(table, "easy", "hard", group="kind", named=2)
    for dots in marks(ax):
        rows = table.loc[table["kind"] == dots.get_label(), ["easy", "hard"]]
        np.testing.assert_allclose(dots.get_offsets(), rows)
    *numbers, names = ax.texts
    lines = names.get_text().splitlines()
    assert {line.split()[1] for line in lines} == {"model-3", "model-7"}
    for number, line in zip(numbers, lines, strict=True):
        position, name = line.split()
        assert number.get_text() == position
        place = table.set_index("model").loc[f"owner/{name}", ["easy", "hard"]]
        assert number.xy == tuple(place)
    lacking = table.assign(hard=[np.nan] * 5 + [*hard[5:]])
    assert "5 models" in plots.plot_scatter(lacking, "easy", "hard").get_xlabel()


# Files


@pytest.fixture
def ax():
    return plt.subplots()[1]


def test_formats_fonts_and_numbers_beside_the_same_each_time(ax, tmp_path):
    table = pd.DataFrame({"model": ["a"], "accuracy": [0.5]})
    files = [
        save_figure(ax, tmp_path / name / "x", table, formats=("png", "pdf", "svg"))
        for name in ("one", "two")
    ]
    assert [file.name for file in files[0]] == ["x.png", "x.pdf", "x.svg", "x.csv"]
    _, pdf, svg, csv = contents = [file.read_bytes() for file in files[0]]
    assert contents == [file.read_bytes() for file in files[1]]
    assert (b"/FontFile2" in pdf, b"/Type3" in pdf) == (True, False), "TrueType, whole"
    assert b"<text" not in svg, "outlines need no font"
    assert csv == b"model,accuracy\na,0.5\n"
    assert [
        file.name for file in save_figure(ax, tmp_path / "v1.5", formats="pdf")
    ] == ["v1.5.pdf"]


def test_other_arguments_are_refused_before_anything_is_written(ax, tmp_path):
    for name, options in (
        ("x", {"formats": ["page"]}),
        ("new/x.jpg", {"formats": "pdf"}),
        ("x", {"width": "page"}),
    ):
        with pytest.raises(DataError, match=r"page|jpg"):
            save_figure(ax, tmp_path / name, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("width", "inches", "size"), [("column", 3.25, (5, 3)), ("text", 6.75, (8.1, 3.45))]
)
def test_a_printed_width_is_the_width_of_every_file(tmp_path, width, inches, size):
    figure, _ = plt.subplots(figsize=size)
    png, pdf, svg = save_figure(
        figure, tmp_path / "one", formats=("png", "pdf", "svg"), width=width
    )
    assert matplotlib.image.imread(png).shape[1] == round(300 * inches)
    for path, pattern in (
        (pdf, rb"/MediaBox \[ 0 0 ([\d.]+) "),
        (svg, rb'width="([\d.]+)pt"'),
    ):
        assert float(re.search(pattern, path.read_bytes())[1]) == pytest.approx(
            72 * inches, abs=0.01
        )
    (png,) = save_figure(figure, tmp_path / "one", width="slide")
    assert matplotlib.image.imread(png).shape[:2] == (1080, 1920)
    assert tuple(figure.get_size_inches()) == size


def test_a_column_stacks_wide_panels_and_shrinks_marks_with_their_text():
    """Two panels of 4 in stood side by side at 1.2 in, with their legends and titles
    over one another.
    """
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
    for ax in axes:
        ax.scatter([0, 1], [0, 1], s=26, label="a group with a long name")
        ax.legend()
        ax.set_xlabel("accuracy of a model minus that of " + 5 * "another long name ")
    page = resize(figure, "column")
    above, below = (ax.get_tightbbox() for ax in page.axes)
    assert above.y0 > below.y1, "one below the other"
    assert -2 < below.x0 < below.x1 < page.bbox.x1 + 2, "a long label is wrapped"
    for before, after in zip(axes, page.axes, strict=True):
        ratio = after.title.get_fontsize() / before.title.get_fontsize()
        assert after.collections[0].get_sizes() == pytest.approx(
            before.collections[0].get_sizes() * ratio**2
        )
