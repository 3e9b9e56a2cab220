"""Files of scores and pairs as tables of one benchmark each, with what their provenance says of the models."""

from collections.abc import Sequence
from glob import glob
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from rmlab import io, metrics
from rmlab.io.native import SIDECAR
from rmlab.records import SUFFIXES
from rmlab.scorers.base import Provenance
from rmlab.tables import DataError, check_pairs, check_scores

__all__ = ["Paths", "Results", "read_results", "versions_of"]

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


class Results(NamedTuple):
    """Scores (pairs, where a file has no scores) by benchmark, files read, and provenance by benchmark and model."""

    tables: dict[str, pd.DataFrame]
    files: list[Path]
    provenance: dict[str, dict[str, Provenance]]


def read_results(source: Paths | pd.DataFrame) -> Results:
    """All results in `source`: a folder, a glob, a list of files, or a table of scores or pairs."""
    files = [] if isinstance(source, pd.DataFrame) else _files(source)
    frames = [_checked(source)] if isinstance(source, pd.DataFrame) else [_read(path) for path in files]
    about: dict[str, dict[str, Provenance]] = {}
    for frame in frames:
        known = frame.attrs.get("provenance", {})
        for name, model in frame[["benchmark", "model"]].drop_duplicates().itertuples(index=False):
            about.setdefault(str(name), {}).update({model: known[model]} if model in known else {})
    return Results(_by_benchmark(frames), files, about)


def _checked(table: pd.DataFrame) -> pd.DataFrame:
    checked = check_scores(table, allow_missing=True) if "score" in table.columns else check_pairs(table)
    own = checked.copy(deep=False)
    own.attrs = dict(table.attrs)
    return own


def _files(source: Paths) -> list[Path]:
    if not isinstance(source, str | PathLike):
        return [path for one in source for path in _files(one)]
    path = Path(source).expanduser()
    if path.is_file():
        return [path]
    folder = path.is_dir()
    candidates = path.rglob("*") if folder else map(Path, glob(str(path), recursive=True))
    files = sorted(candidate for candidate in candidates if _is_result(candidate))
    if not files:
        hint = (
            "it looks like a store whose runs have not ended: run rmlab score ... --store THIS to the end"
            if folder and any(path.glob("*/*.records"))
            else f"expected {', '.join(SUFFIXES)}, such as rmlab score ... -o writes"
        )
        raise DataError(f"{path}: no result files there; {hint}")
    return files


def _is_result(path: Path) -> bool:
    named = path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and not path.name.endswith(SIDECAR)
    return named and path.is_file() and not any(path.parent.glob("*.records"))


def _read(path: Path) -> pd.DataFrame:
    try:
        return io.read_scores(path, allow_missing=True)
    except DataError as error:
        try:
            return io.read_pairs(path)
        except DataError:
            raise error from None


def _by_benchmark(frames: list[pd.DataFrame]) -> dict[str, pd.DataFrame]:
    found: dict[str, list[pd.DataFrame]] = {}
    for frame in frames:
        names = frame["benchmark"].unique()
        for name in names:
            part = frame if len(names) == 1 else frame[frame["benchmark"] == name]
            found.setdefault(str(name), []).append(part)
    return {name: _one_table(parts) for name, parts in found.items()}


def _one_table(parts: list[pd.DataFrame]) -> pd.DataFrame:
    for part in parts:
        part.attrs = {}
    scored = ["score" in part.columns for part in parts]
    if not all(scored) and any(scored):
        parts = [metrics.pairs(part) if has else part for part, has in zip(parts, scored, strict=True)]
    return pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0].reset_index(drop=True)


def versions_of(about: Provenance) -> dict[str, str]:
    """The packages that a provenance names, and their versions."""
    found = about.get("versions")
    named = {str(package): str(version) for package, version in found.items()} if isinstance(found, dict) else {}
    return named | ({"rmlab": str(about["rmlab"])} if "rmlab" in about else {})
