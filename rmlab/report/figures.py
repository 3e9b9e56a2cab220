"""Figures to files, each with its numbers beside it."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pandas as pd

from rmlab.plots.canvas import Width, resize
from rmlab.records import write_file
from rmlab.tables import DataError, nearest
from rmlab.text import format_csv

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType

AnyFigure: TypeAlias = "Axes | Figure"
FORMATS = ("png", "pdf", "svg")
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
_DOTS, _PRINT_DOTS = 150, 300  # per inch, of PNG
_SLIDE_DOTS = (
    1920.000001  # across a slide; matplotlib 3.10 cuts the fraction of a dot off
)


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
    path, root = Path(path), root_figure(figure)
    formats = [formats] if isinstance(formats, str) else list(formats)
    suffix = path.suffix.lstrip(".")
    if suffix in FORMATS:
        path, formats, suffix = path.with_suffix(""), [suffix], ""
    for name in formats:
        if name not in FORMATS:
            raise DataError(f"formats: {name!r}; {nearest(name, FORMATS)}")
    if suffix.lower() in root.canvas.get_supported_filetypes():  # not of "gemma-2.5"
        raise DataError(
            f"path: {path.name!r} ends in {path.suffix!r}; {nearest(suffix, FORMATS)}, or no suffix at all"
        )
    page = root if width is None else resize(root, width)
    dots = (
        _SLIDE_DOTS / page.get_size_inches()[0]
        if width == "slide"
        else _DOTS
        if width is None
        else _PRINT_DOTS
    )
    contents: dict[str, str | bytes] = {
        name: draw_figure(page, name, dots) for name in formats
    }
    if table is not None:
        contents["csv"] = format_csv(
            table, index=not isinstance(table.index, pd.RangeIndex)
        )
    return [
        write_file(path.with_name(f"{path.name}.{name}"), content)
        for name, content in contents.items()
    ]


def root_figure(figure: AnyFigure) -> "Figure":
    """The figure that an Axes stands in, or the figure itself."""
    root = figure.get_figure(root=True) if hasattr(figure, "get_figure") else None
    if root is None:
        raise TypeError(
            f"figure: {type(figure).__name__} without a figure. Pass what a plot returned."
        )
    return root


def draw_figure(figure: "Figure", name: str, dots: float) -> bytes:
    """A figure in the format `name`, without its date."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context(_EMBEDDED):
        figure.savefig(buffer, format=name, dpi=dots, metadata=_UNDATED[name])
    return buffer.getvalue()
