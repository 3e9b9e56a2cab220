"""Figures to files, each with its numbers beside it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from matplotlib.artist import Artist

__all__ = ["save_figure"]

FORMATS = ("png", "pdf", "svg")


def save_figure(
    figure: "Artist", path: str | Path, table: pd.DataFrame | None = None, *, formats: str | Sequence[str] = ("png",)
) -> list[Path]:
    """Write a figure, or the figure of an Axes, as `path` in each of `formats` (png, pdf, svg).

    `table`, the numbers that it draws, is written beside it as CSV. A suffix of `path` that is one of the formats is
    taken as the only one; of another kind of image DataError is raised, before anything is written. Returns the files
    written. PDF and SVG carry no date, so the same figure gives the same file. Folders are made as needed.
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
    path.parent.mkdir(parents=True, exist_ok=True)
    files = [path.with_name(f"{path.name}.{name}") for name in formats]
    for file, name in zip(files, formats, strict=True):
        whole.savefig(file, dpi=150, metadata=_UNDATED[name])
    if table is not None:
        files.append(path.with_name(f"{path.name}.csv"))
        table.to_csv(files[-1], index=not isinstance(table.index, pd.RangeIndex))
    return files


_UNDATED: dict[str, dict[str, str | None]] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
