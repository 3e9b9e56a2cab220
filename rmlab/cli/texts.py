"""The benchmark's texts that a command names."""

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["load_texts"]


def load_texts(
    benchmark: str, path: Path | None, column: list[str] | None = None, winner: str | None = None
) -> "pd.DataFrame":
    """Responses of a benchmark by its name, or of a file of pairs, with its columns mapped."""
    from rmlab.benchmarks import known, load, load_pairs
    from rmlab.records import SUFFIXES
    from rmlab.tables import DataError

    if path is None and (Path(benchmark).is_file() or Path(benchmark).suffix.lower() in SUFFIXES):
        return load_pairs(benchmark, columns=_columns(column), winner=winner)
    if column or winner:
        raise typer.BadParameter("is for a file of pairs", param_hint="--column, --winner")
    if benchmark not in known():
        _refuse_path(benchmark)
        names = list(known())
        close = get_close_matches(benchmark, names, n=1)
        meant = f" Did you mean {close[0]!r}?" if close else ""
        raise DataError(
            f"Unknown benchmark {benchmark!r}.{meant} Choose {', '.join(names[:-1])} or {names[-1]}, "
            "or give a file of pairs."
        )
    return load(benchmark, path=path)


def _refuse_path(benchmark: str) -> None:
    """Where a benchmark's name is a path, the fault is in the path."""
    from rmlab.tables import DataError

    if Path(benchmark).is_dir():
        raise DataError(f"{benchmark}: a folder; name the benchmark that it holds, as in rm-bench --path {benchmark}")
    if "/" in benchmark or "\\" in benchmark:
        raise DataError(f"{benchmark}: no such file; give a file of pairs, or the name of a benchmark")


def _columns(column: list[str] | None) -> dict[str, str | list[str]] | None:
    """chosen=better, rejected=worse_1, rejected=worse_2 as a mapping: a name given again has several columns."""
    if not column:
        return None
    columns: dict[str, list[str]] = {}
    for text in column:
        ours, equals, theirs = text.partition("=")
        if not (ours and equals and theirs):
            raise typer.BadParameter(f"{text!r}; write name=column, for example chosen=better", param_hint="--column")
        columns.setdefault(ours, []).append(theirs)
    return {ours: theirs[0] if len(theirs) == 1 else theirs for ours, theirs in columns.items()}
