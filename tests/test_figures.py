"""Figures on disk: every format, the numbers beside them, the same bytes twice."""

import re

import pandas as pd
import pytest

from rmlab.report import save_figure
from rmlab.tables import DataError


@pytest.fixture
def ax():
    import matplotlib.pyplot as plt

    return plt.subplots()[1]


def test_formats_and_numbers_beside(ax, tmp_path):
    table = pd.DataFrame({"model": ["a"], "accuracy": [0.5]})
    files = save_figure(ax, tmp_path / "deep" / "one", table, formats=("png", "pdf", "svg"))
    assert [file.name for file in files] == ["one.png", "one.pdf", "one.svg", "one.csv"]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    pd.testing.assert_frame_equal(pd.read_csv(files[-1]), table)
    assert [file.name for file in save_figure(ax.figure, tmp_path / "two.svg")] == ["two.svg"]
    assert [file.name for file in save_figure(ax, tmp_path / "v1.5", formats="pdf")] == ["v1.5.pdf"]


def test_the_same_figure_gives_the_same_file(ax, tmp_path):
    for name in ("png", "pdf", "svg"):
        (one,), (two,) = (save_figure(ax, tmp_path / f"{n}.{name}") for n in "ab")
        assert one.read_bytes() == two.read_bytes()


def test_other_things_are_refused(ax, tmp_path):
    with pytest.raises(DataError, match="did you mean 'png'"):
        save_figure(ax, tmp_path / "x", formats=["pngg"])
    for name in ("x.jpg", "x.eps", "x.SVG"):
        with pytest.raises(DataError, match=rf"path: '{name}' ends in .*; allowed: 'png', 'pdf', 'svg'"):
            save_figure(ax, tmp_path / "new" / name, pd.DataFrame({"n": [1]}), formats="pdf")
    assert not list(tmp_path.iterdir())
    with pytest.raises(TypeError, match="NoneType"):
        save_figure(None, tmp_path / "x")


@pytest.mark.parametrize(("width", "inches"), [("column", 3.25), ("text", 6.75)])
def test_a_printed_width_is_the_width_of_every_file(ax, tmp_path, width, inches):
    import matplotlib.image

    ax.set_title("a title")
    size = tuple(ax.figure.get_size_inches())
    png, pdf, svg = save_figure(ax, tmp_path / "one", formats=("png", "pdf", "svg"), width=width)
    assert matplotlib.image.imread(png).shape[1] == round(300 * inches)
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ", pdf.read_bytes())
    assert float(box[1]) == pytest.approx(72 * inches, abs=0.01)
    assert float(re.search(r'width="([\d.]+)pt"', svg.read_text())[1]) == pytest.approx(72 * inches, abs=0.01)
    assert tuple(ax.figure.get_size_inches()) == size


@pytest.mark.parametrize("size", [(5, 3), (8.1, 3.45), (4.6, 9.7)])
def test_a_slide_is_1920_by_1080_dots(tmp_path, size):
    import matplotlib.image
    import matplotlib.pyplot as plt

    figure = plt.subplots(figsize=size)[0]
    (png,) = save_figure(figure, tmp_path / "one", width="slide")
    assert matplotlib.image.imread(png).shape[:2] == (1080, 1920)
    assert tuple(figure.get_size_inches()) == size


def test_fonts_are_in_the_files(ax, tmp_path):
    ax.set_title("a title")
    pdf, svg = save_figure(ax, tmp_path / "one", formats=("pdf", "svg"))
    assert b"/FontFile2" in pdf.read_bytes(), "TrueType, whole"
    assert b"/Type3" not in pdf.read_bytes()
    assert "<text" not in svg.read_text(), "outlines need no font"
    import matplotlib as mpl

    assert mpl.rcParams["pdf.fonttype"] == 3
