"""How the files of a benchmark look."""

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from rmlab.records import SUFFIXES, Row
from rmlab.tables import DataError
from rmlab.text import short

JsonRow = dict[str, Any]
"""A row as its file has it. Readers take its shape for granted (`refuse_unlike`)."""

_FIELDS = ("id", "subset", "prompt", "chosen", "rejected")


def read_named_fields(row: JsonRow, file: Path) -> Iterator[Row]:
    """A row whose fields have our names."""
    yield {name: row.get(name) for name in _FIELDS}


def keep_results(path: Path, prompts: pd.DataFrame) -> pd.DataFrame:
    """Result files whose columns mean what their names say."""
    return prompts


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How the files of a benchmark look: its texts, and the results of its runner.

    Parameters
    ----------
    read_row : callable
        A row and its file's path to any number of prompts: dicts of id, subset, prompt,
        chosen and rejected (a text or several), and further columns; default: the row's
        fields of these names.
    files : sequence of str
        Patterns of its files, on the hub and in a folder; the first that a name
        matches, else all data files.
    hub : sequence of str
        Its datasets on the hub.
    revision : str
        Their commit; "main" where none is known to be right.
    n_prompts : int, optional
        How many prompts these datasets hold.
    shipped : str, optional
        The folder of data that ships with rmlab.
    result_fields : mapping
        Our names (id, subset, chosen_score and rejected_score, or scores and
        num_correct) to the fields of its runner's result files.
    adapt_results : callable
        The path and a frame of these fields, a row per prompt, to a frame in which the
        columns mean what they should.
    """

    read_row: Callable[[JsonRow, Path], Iterable[Row]] = read_named_fields
    files: Sequence[str] = ()
    hub: Sequence[str] = ()
    revision: str = "main"
    n_prompts: int | None = None
    shipped: str | None = None
    result_fields: Mapping[str, str] = field(default_factory=dict)
    adapt_results: Callable[[Path, pd.DataFrame], pd.DataFrame] = keep_results


@contextmanager
def refuse_unlike(place: str, title: str) -> Iterator[None]:
    """DataError in place of the errors that rows of another shape cause."""
    try:
        yield
    except DataError:
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        reason = short(f"{type(error).__name__}: {error}", 200)
        problem = f"{place} is not as {title} has it ({reason})"
        raise DataError(problem, "repair or leave out the row") from error


def list_files(place: Path, patterns: Sequence[str]) -> list[Path]:
    """The file itself, or the files of a folder and of those inside that match the
    first pattern.
    """
    if not place.is_dir():
        return [place]
    names = match_files(place, list_names(place), patterns)
    return [place / name for name in names]


def list_names(folder: Path) -> list[str]:
    """Files of a folder and of those inside, as paths in it."""
    paths = filter(Path.is_file, folder.rglob("*"))
    return [path.relative_to(folder).as_posix() for path in paths]


def match_files(
    place: object, names: Iterable[str], patterns: Sequence[str] = ()
) -> list[str]:
    """The data files that match the first pattern that any matches, else all of them;
    DataError where there is none.
    """
    data_files = []
    for name in sorted(names):
        if name.lower().endswith(SUFFIXES) and "dataset_infos" not in name:
            data_files.append(name)
    if not data_files:
        problem = f"{place}: no file ending in {', '.join(SUFFIXES)}"
        raise DataError(problem, "name a folder or dataset with one")
    for pattern in patterns:
        matching = fnmatch.filter(data_files, pattern)
        if matching:
            return matching
    return data_files
