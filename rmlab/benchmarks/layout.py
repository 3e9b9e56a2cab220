"""How the files of a benchmark look, and how their rows become responses."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from rmlab.benchmarks.hub import HubPlace
from rmlab.records import SUFFIXES, Row
from rmlab.tables import DataError

Files = Sequence[tuple[Path, list[Row]]]
"""Files that were read: the path, for messages, and the rows."""


def one_file(path: Path) -> list[Path]:
    """The file itself, or the only data file of a folder."""
    if not path.is_dir():
        return [path]
    files = _data_files(path.iterdir())
    if len(files) != 1:
        problem = f"{path}: expected one data file in this folder, found {len(files)}"
        raise DataError(problem, "name it: path='<file>'")
    return files


def all_files(path: Path) -> list[Path]:
    """The file itself, or all data files of a folder and of those inside."""
    if not path.is_dir():
        return [path]
    files = _data_files(path.rglob("*"))
    if not files:
        problem = f"{path}: no data file in this folder"
        raise DataError(problem, "name it: path='<file>'")
    return files


def _data_files(paths: Iterable[Path]) -> list[Path]:
    return sorted(path for path in paths if path.suffix.lower() in SUFFIXES)


def keep_results(path: Path, prompts: pd.DataFrame) -> pd.DataFrame:
    """Result files whose columns mean what their names say."""
    return prompts


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How the files of a benchmark look: its texts, and the results of its runner.

    Parameters
    ----------
    read : callable
        Rows of files to responses.
    read_variant : callable, optional
        Rows that list wordings of their prompt, and the number of one, to responses.
    folder_files : callable
        Which files of a folder are its own; default: the only data file.
    hub : HubPlace, optional
        Its place on the hub.
    shipped : str, optional
        The folder of data that ships with rmlab.
    result_fields : mapping
        Our names (id, subset, chosen_score and rejected_score, or scores and
        num_correct) to the fields of its runner's result files.
    adapt_results : callable
        The path and a frame of these fields, a row per prompt, to a frame in which the
        columns mean what they should.
    """

    read: Callable[[Files], pd.DataFrame]
    read_variant: Callable[[Files, int], pd.DataFrame] | None = None
    folder_files: Callable[[Path], list[Path]] = one_file
    hub: HubPlace | None = None
    shipped: str | None = None
    result_fields: Mapping[str, str] = field(default_factory=dict)
    adapt_results: Callable[[Path, pd.DataFrame], pd.DataFrame] = keep_results
