"""Figures on disk: every format, the numbers beside them, the same bytes twice."""

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
    for name in ("png", "pdf"):
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
