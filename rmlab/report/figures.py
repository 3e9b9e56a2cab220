"""Figures to files, each with its numbers beside it."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from rmlab import escapes, files
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from matplotlib.artist import Artist

__all__ = ["save_figure"]

FORMATS = ("png", "pdf", "svg")


def save_figure(
    figure: "Artist", path: str | Path, table: pd.DataFrame | None = None, *, formats: str | Sequence[str] = ("png",)
) -> list[Path]:
    """Write a figure, or the figure of an Axes, as `path` in each of `formats` (png, pdf, svg).

    `table`, the numbers that it draws, is written beside it as CSV (see `rmlab.escapes.cell`). A suffix of `path` that
    is one of the formats is taken as the only one; of another kind of image DataError is raised, before anything is
    written. Returns the files written. PDF and SVG carry no date, so the same figure gives the same file. Folders are
    made as needed. A file is written whole or not at all: on a full disk the old one stays.
    """
    path = Path(path)
    formats = [formats] if isinstance(formats, str) else list(formats)
    if path.suffix.lstrip(".") in FORMATS:
        path, formats = path.with_suffix(""), [path.suffix.lstrip(".")]
    strange = [f for f in formats if f not in FORMATS]
    if strange:
        raise DataError(f"formats: {strange[0]!r}; {nearest(strange[0], FORMATS)}")
    if not hasattr(figure, "get_figure"):
        raise TypeError(f"figure: {type(figure).__name__}; pass the Axes or Figure that a plot returned")
    whole: Any = figure.get_figure() or figure  # an Axes knows its figure, a Figure is its own
    suffix = path.suffix.lstrip(".").lower()
    if suffix in whole.canvas.get_supported_filetypes():  # not of "gemma-2.5"
        raise DataError(f"path: {path.name!r} ends in {path.suffix!r}; {nearest(suffix, FORMATS)}, or no suffix at all")
    made: dict[str, str | bytes] = {name: _drawn(whole, name) for name in formats}
    if table is not None:
        made["csv"] = escapes.csv(table, index=not isinstance(table.index, pd.RangeIndex))
    return [files.write(path.with_name(f"{path.name}.{name}"), content) for name, content in made.items()]


def _drawn(figure: Any, name: str) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=name, dpi=150, metadata=_UNDATED[name])
    return buffer.getvalue()


_UNDATED: dict[str, dict[str, str | None]] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
