"""Figures on disk: every format, the numbers beside them, the same bytes twice, the sizes of print."""

import re

import matplotlib as mpl
import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

import rmlab
from rmlab import plots
from rmlab.plots.sizes import SMALLEST, resize
from rmlab.report import save_figure
from rmlab.tables import DataError


@pytest.fixture
def ax():
    ax = plt.subplots()[1]
    ax.set_title("a title")
    return ax


def test_formats_and_numbers_beside(ax, tmp_path):
    table = pd.DataFrame({"model": ["a"], "accuracy": [0.5]})
    files = save_figure(ax, tmp_path / "deep" / "one", table, formats=("png", "pdf", "svg"))
    assert [file.name for file in files] == ["one.png", "one.pdf", "one.svg", "one.csv"]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    pd.testing.assert_frame_equal(pd.read_csv(files[-1]), table)
    assert [file.name for file in save_figure(ax.figure, tmp_path / "two.svg")] == ["two.svg"]
    assert [file.name for file in save_figure(ax, tmp_path / "v1.5", formats="pdf")] == ["v1.5.pdf"]


def test_the_same_figure_gives_the_same_file_with_its_fonts(ax, tmp_path):
    for name in ("png", "pdf", "svg"):
        (first,), (second,) = (save_figure(ax, tmp_path / f"{n}.{name}") for n in "ab")
        assert first.read_bytes() == second.read_bytes()
    assert b"/FontFile2" in (tmp_path / "a.pdf").read_bytes(), "TrueType, whole"
    assert b"/Type3" not in (tmp_path / "a.pdf").read_bytes()
    assert "<text" not in (tmp_path / "a.svg").read_text(), "outlines need no font"
    assert mpl.rcParams["pdf.fonttype"] == 3


def test_other_arguments_are_refused_before_anything_is_written(ax, tmp_path):
    with pytest.raises(DataError, match="pngg"):
        save_figure(ax, tmp_path / "x", formats=["pngg"])
    for name in ("x.jpg", "x.eps", "x.SVG"):
        with pytest.raises(DataError, match=name):
            save_figure(ax, tmp_path / "new" / name, pd.DataFrame({"n": [1]}), formats="pdf")
    with pytest.raises(DataError, match="width: 'page'"):
        save_figure(ax, tmp_path / "x", width="page")
    with pytest.raises(TypeError, match="NoneType"):
        save_figure(None, tmp_path / "x")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("width", "inches"), [("column", 3.25), ("text", 6.75)])
def test_a_printed_width_is_the_width_of_every_file(ax, tmp_path, width, inches):
    png, pdf, svg = save_figure(ax, tmp_path / "one", formats=("png", "pdf", "svg"), width=width)
    assert matplotlib.image.imread(png).shape[1] == round(300 * inches)
    for path, pattern in ((pdf, rb"/MediaBox \[ 0 0 ([\d.]+) "), (svg, rb'width="([\d.]+)pt"')):
        assert float(re.search(pattern, path.read_bytes())[1]) == pytest.approx(72 * inches, abs=0.01)


@pytest.mark.parametrize("size", [(5, 3), (8.1, 3.45), (4.6, 9.7)])
def test_a_slide_is_1920_by_1080_dots(tmp_path, size):
    figure, ax = plt.subplots(figsize=size)
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:.0%}")  # a function of one's own does not hinder the copy
    (png,) = save_figure(figure, tmp_path / "one", width="slide")
    assert matplotlib.image.imread(png).shape[:2] == (1080, 1920)
    assert tuple(figure.get_size_inches()) == size


def drawn_texts(figure, monkeypatch):
    """Texts as they are drawn: ticks beyond the axis and hidden ones are not."""
    texts, draw = [], Text.draw
    with monkeypatch.context() as patch:
        patch.setattr(Text, "draw", lambda self, renderer: (texts.append(self), draw(self, renderer))[1])
        figure.draw_without_rendering()
    return [text for text in dict.fromkeys(texts) if text.get_visible() and text.get_text().strip()]


@pytest.fixture(scope="module")
def printed_plots():
    """Plots of all shapes, with names as long as real ones."""
    names = {"a": "Some-Owner/Some-Reward-Gemma-2-27B-v0.2", "b": "Some-Owner/Some-Reward-Llama-3.1-8B-v0.2"}
    scores = rmlab.papers.results("smollm2-mini")
    scores = scores.assign(model=scores["model"].map(dict(zip(scores["model"].unique(), names.values(), strict=True))))
    every = pd.concat([scores, rmlab.score(rmlab.load("mini"), ["longest", "random"], progress=False)])
    one = scores[scores["model"] == names["a"]]
    tokens = rmlab.papers.results("smollm2-tokens").query("label == 'chosen'")
    return [
        lambda: plots.plot_matrix(one),
        lambda: plots.plot_matrices(every),
        lambda: plots.plot_style_gap(every),
        lambda: plots.plot_effects(every),
        lambda: plots.plot_preference(every),
        lambda: plots.plot_rank(every),
        lambda: plots.plot_leaderboard(rmlab.leaderboard(every)),
        lambda: plots.plot_significance(every),
        lambda: plots.plot_forest(rmlab.compare(every, *names.values(), by="level")),
        lambda: plots.plot_margins(one),
        lambda: plots.plot_calibration(every),
        lambda: plots.plot_scatter(every, "easy", "hard"),
        lambda: plots.plot_token_rewards(tokens),
    ]


@pytest.mark.parametrize("i", range(13))
def test_print_can_be_read_and_leaves_the_figure_as_it_was(printed_plots, i, monkeypatch):
    result = printed_plots[i]()
    figure = result.get_figure() or result
    size, texts = tuple(figure.get_size_inches()), sorted(text.get_text() for text in drawn_texts(figure, monkeypatch))
    for width, inches in (("column", 3.25), ("text", 6.75)):
        n_open = len(plt.get_fignums())
        page = resize(figure, width)
        assert len(plt.get_fignums()) == n_open
        assert page.get_size_inches()[0] == inches
        printed = drawn_texts(page, monkeypatch)
        assert min(text.get_fontsize() for text in printed) >= SMALLEST
        boxes = np.array([text.get_window_extent().extents for text in printed])
        inside = (boxes[:, :2] > -2).all(axis=1) & (boxes[:, 2:] < page.bbox.max + 2).all(axis=1)
        assert inside.all(), [text.get_text() for text, fits in zip(printed, inside, strict=True) if not fits]
        overlap = np.minimum(boxes[:, None, 2:], boxes[None, :, 2:]) - np.maximum(boxes[:, None, :2], boxes[:, :2])
        clashes = np.argwhere(np.triu((overlap[..., 0] > 1.5) & (overlap[..., 1] > 3), 1))
        assert not len(clashes), [(printed[i].get_text(), printed[j].get_text()) for i, j in clashes]
    assert tuple(figure.get_size_inches()) == size
    assert sorted(text.get_text() for text in drawn_texts(figure, monkeypatch)) == texts
