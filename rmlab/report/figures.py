"""Figures to files, each with its numbers beside it."""

import io
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from rmlab.plots.sizes import Width, sized
from rmlab.records import write_file
from rmlab.tables import DataError, nearest
from rmlab.text import format_csv

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType

__all__ = ["save_figure"]

FORMATS = ("png", "pdf", "svg")
_UNDATED: dict[str, dict[str, str | None]] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
# Fonts go into PDF whole, as publishers ask, and into SVG as outlines; ids of SVG are the same each time.
_EMBEDDED: "dict[RcKeyType, object]" = {"pdf.fonttype": 42, "svg.fonttype": "path", "svg.hashsalt": "rmlab"}
_DOTS, _PRINT_DOTS = 150, 300  # per inch, of PNG
_SLIDE_DOTS = 1920  # across a slide


def save_figure(
    figure: "Axes | Figure",
    path: str | Path,
    table: pd.DataFrame | None = None,
    *,
    formats: str | Sequence[str] = ("png",),
    width: Width | None = None,
) -> list[Path]:
    """Write a figure, or the figure of an Axes, as `path` in each of `formats` (png, pdf, svg).

    `width` lays it out for print: "column" (3.25 in) or "text" (6.75 in, two columns), with texts of 7.5 points and
    none below 6, so that it goes into a paper at its own size; "slide" makes it a slide of sixteen by nine, a PNG of
    1920 x 1080 dots. PDF and SVG bring their fonts.
    `table`, the numbers that it draws, is written beside it as CSV. A suffix of `path` that
    is one of the formats is taken as the only one; of another kind of image DataError is raised, before anything is
    written. Returns the files written. PDF and SVG carry no date, so the same figure gives the same file.
    Folders are made as needed. A file is written whole or not at all: on a full disk the old one stays.
    """
    path = Path(path)
    formats = [formats] if isinstance(formats, str) else list(formats)
    if path.suffix.lstrip(".") in FORMATS:
        path, formats = path.with_suffix(""), [path.suffix.lstrip(".")]
    strange = [f for f in formats if f not in FORMATS]
    if strange:
        raise DataError(f"formats: {strange[0]!r}; {nearest(strange[0], FORMATS)}")
    whole = whole_figure(figure)
    suffix = path.suffix.lstrip(".").lower()
    if suffix in whole.canvas.get_supported_filetypes():  # not of "gemma-2.5"
        raise DataError(f"path: {path.name!r} ends in {path.suffix!r}; {nearest(suffix, FORMATS)}, or no suffix at all")
    with nullcontext(whole) if width is None else sized(whole, width) as laid_out:
        made: dict[str, str | bytes] = {f: _drawn(laid_out, f, _dots(laid_out, width)) for f in formats}
    if table is not None:
        made["csv"] = format_csv(table, index=not isinstance(table.index, pd.RangeIndex))
    return [write_file(path.with_name(f"{path.name}.{name}"), content) for name, content in made.items()]


def whole_figure(figure: "Axes | Figure") -> "Figure":
    """The figure that an Axes stands in, or the figure itself."""
    if not hasattr(figure, "get_figure"):
        raise TypeError(f"figure: {type(figure).__name__}; pass the Axes or Figure that a plot returned")
    whole = figure.get_figure(root=True)
    if whole is None:
        raise TypeError("figure: this Axes was removed from its figure; draw it again")
    return whole


def _dots(figure: "Figure", width: Width | None) -> float:
    """Dots per inch of PNG."""
    if width == "slide":
        return _SLIDE_DOTS / float(figure.get_size_inches()[0])
    return _DOTS if width is None else _PRINT_DOTS


def _drawn(figure: "Figure", name: str, dots: float) -> bytes:
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context(_EMBEDDED):
        figure.savefig(buffer, format=name, dpi=dots, metadata=_UNDATED[name])
    return buffer.getvalue()
