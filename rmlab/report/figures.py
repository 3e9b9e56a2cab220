"""Figures to files, each with its numbers beside it."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pandas as pd

from rmlab.plots.print_sizes import Width, resize
from rmlab.records import write_file
from rmlab.tables import DataError, nearest
from rmlab.text import format_csv

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType

AnyFigure: TypeAlias = "Axes | Figure"
_FORMATS = ("png", "pdf", "svg")
_OTHER_IMAGES = ("jpg", "jpeg", "tif", "tiff", "webp", "gif", "eps", "ps")
_UNDATED: dict[str, dict[str, str | None]] = {
    "png": {},
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
}
# Fonts go into PDF whole, as publishers ask, and into SVG as outlines; ids of SVG are
# the same each time.
_EMBEDDED: "dict[RcKeyType, object]" = {
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "rmlab",
}
# Per inch, of PNG.
_DOTS = 150
_PRINT_DOTS = 300
# Across a slide; matplotlib 3.10 cuts the fraction of a dot off.
_SLIDE_DOTS = 1920.000001


def save_figure(
    figure: AnyFigure,
    path: str | Path,
    table: pd.DataFrame | None = None,
    *,
    formats: str | Sequence[str] = ("png",),
    width: Width | None = None,
) -> list[Path]:
    """Write a figure, and its numbers beside it as CSV.

    The same figure gives the same file: PDF and SVG carry no date and bring their
    fonts.

    Parameters
    ----------
    figure : Axes or Figure
        What a plot returned.
    path : path
        The file without suffix; folders are created. A suffix that is one of the
        formats stands for `formats`.
    table : DataFrame, optional
        The numbers that the figure draws.
    formats : str or sequence of str
        Of "png", "pdf" and "svg".
    width : {"column", "text", "slide"}, optional
        Size in print: 3.25 in, or 6.75 in (two columns), with texts of 6 to 7.5 points.
        "slide": sixteen by nine, a PNG of 1920 x 1080 dots.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    DataError
        For a suffix of another kind of image, before anything is written.
    """
    stem, format_names = _split_formats(Path(path), formats)
    root = root_figure(figure)
    page = root if width is None else resize(root, width)
    dots = _dots_per_inch(page, width)

    contents: dict[str, str | bytes] = {}
    for name in format_names:
        contents[name] = draw_figure(page, name, dots)
    if table is not None:
        has_labels = not isinstance(table.index, pd.RangeIndex)
        contents["csv"] = format_csv(table, index=has_labels)

    files = []
    for name, content in contents.items():
        file = stem.with_name(f"{stem.name}.{name}")
        files.append(write_file(file, content))
    return files


def _split_formats(path: Path, formats: str | Sequence[str]) -> tuple[Path, list[str]]:
    """The path without the suffix of a format, and the formats to write."""
    names = [formats] if isinstance(formats, str) else list(formats)
    suffix = path.suffix.removeprefix(".").lower()
    if suffix in (*_FORMATS, *_OTHER_IMAGES):  # not of "gemma-2.5"
        path = path.with_suffix("")
        names = [suffix]
    for name in names:
        if name not in _FORMATS:
            raise DataError(f"formats: {name!r}", nearest(name, _FORMATS))
    return path, names


def _dots_per_inch(page: "Figure", width: Width | None) -> float:
    if width is None:
        return _DOTS
    if width == "slide":
        return _SLIDE_DOTS / float(page.get_size_inches()[0])
    return _PRINT_DOTS


def root_figure(figure: AnyFigure) -> "Figure":
    """The figure that an Axes stands in, or the figure itself."""
    root = figure.get_figure(root=True)
    assert root is not None, "the Axes was taken out of its figure"
    return root


def draw_figure(figure: "Figure", name: str, dots: float) -> bytes:
    """A figure in the format `name`, without its date."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context(_EMBEDDED):
        figure.savefig(buffer, format=name, dpi=dots, metadata=_UNDATED[name])
    return buffer.getvalue()
