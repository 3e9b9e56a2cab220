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
    adapt_results : callable, optional
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
    adapt_results: Callable[[Path, pd.DataFrame], pd.DataFrame] | None = None


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
    """The file itself, or the files of a folder (`match_files`)."""
    return match_files(place, patterns) if place.is_dir() else [place]


def match_files(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """The data files of a folder and of those inside: those that match the first
    pattern that any matches, else all; DataError where there is none.
    """
    names = []
    for path in sorted(folder.rglob("*")):
        if path.name.lower().endswith(SUFFIXES) and path.name != "dataset_infos.json":
            names.append(path.relative_to(folder).as_posix())
    if not names:
        problem = f"{folder}: no file ending in {', '.join(SUFFIXES)}"
        raise DataError(problem, "name a folder or dataset with one")
    for pattern in patterns:
        matching = fnmatch.filter(names, pattern)
        if matching:
            names = matching
            break
    return [folder / name for name in names]
