"""Scores and comparisons from files, folders and globs, and to files."""

import glob
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from os import PathLike
from pathlib import Path

import pandas as pd

from rmlab import metrics, records, tables
from rmlab.benchmarks import benchmarks_by_name, layouts
from rmlab.benchmarks.own_pairs import load_scores
from rmlab.io import native, results
from rmlab.tables import DataError, check_option

Source = str | PathLike[str] | Iterable[str | PathLike[str]]

_log = logging.getLogger(__name__)


def read_scores(
    source: Source,
    *,
    format: str | None = None,
    columns: layouts.Columns | None = None,
    model: str | None = None,
    allow_missing: bool = False,
) -> pd.DataFrame:
    """Read scores from a file, a store's folder, a glob ("results/*.json") or a list of
    them.

    Parameters
    ----------
    source
        What to read. Of a store's folder only the tables of scores are read, not those
        of comparisons (`*.pairs.csv`).
    format
        Recognised from the content unless given:

        - "rmlab": CSV, Parquet or JSON lines with the columns of a scores table, as
          `write_scores` makes them;
        - "rm-bench": rows with `score_chosen` and `score_rejected` (three each), of one
          domain or of all;
        - "reward-bench": version 1 `eval-set-scores` (`scores_chosen`,
          `scores_rejected`, `subset`, `id`);
        - "reward-bench-2": version 2 `eval-set-scores` (`scores` per prompt, the chosen
          first, `num_correct`).

        A response matrix holds outcomes and no scores: `read_pairs` reads it. Any other
        file is read as pairs of one's own, under the ids that `load_pairs` gives it, if
        its columns have usual names: `chosen_score` and `rejected_score` (also
        score_chosen, chosen_reward, reward_chosen, or an object or list `scores`);
        `score_a`, `score_b` and `winner`; `score` and `label` of one response a row;
        lists `scores` and `labels`. Its columns `model`, `benchmark` and `family` are
        kept.
    columns
        Our names to those of a file of another project, with a dot into nested objects
        ({"score": "output.reward"}); lists around one number are taken off. One row is
        one of

        - an answer: `score` and `label`; `slot` is counted where it is not named;
        - a pair: `chosen_score` and `rejected_score`;
        - a prompt: `scores`, a list with the chosen first, `num_correct` of them
          (default 1).

        In a file of pairs only the names given differ from the usual ones, and any name
        of `load_pairs` may be given; {"model": None} ignores a column.

        Where a path has a dot, or `slot`, `style` or `num_correct` is named, nothing
        else is read than the names given. Further names are then `id` (default: the
        row's number within the model), `family`, `domain`, `subset`, `benchmark` and
        `model` (default: the file's name). Rows may lie inside one object, under a name
        that all paths begin with, or as lists.

        For a table that lacks what `responses` know, such as id, label and score alone,
        use `rmlab.io.join`.
    model
        Name of the model (default: from the file, its name or its folder's name).
    allow_missing
        Read missing scores as NaN, which later steps count and never score, instead of
        raising.

    Returns
    -------
    DataFrame
        One row per scored response; extra columns stay. `attrs["provenance"]` holds
        what the sidecar files say.

    Raises
    ------
    DataError
        For a file that cannot be read, and for missing or infinite scores; the message
        names file, row and value.
    TypeError
        For a DataFrame.
    """
    read_mapped = (
        None
        if columns is None
        else partial(results.read_mapped_scores, columns=columns, model=model)
    )
    read_layout = read_mapped or partial(_read_file, layout=format, model=model)
    return _read_files(
        "scores",
        source,
        read_layout,
        partial(tables.check_scores, allow_missing=allow_missing),
    )


def read_pairs(
    source: Source,
    *,
    format: str | None = None,
    benchmark: str = "reward-bench",
    subsets: Mapping[str, str] | None = None,
    columns: results.Columns | None = None,
) -> pd.DataFrame:
    """Read comparisons from a file, a store's folder, a glob or a list of them.

    Parameters
    ----------
    source
        What to read. Scores of one chosen and one rejected answer to each prompt, such
        as those of RMB's runner, are compared as `rmlab.pairs` does, and a warning says
        so.
    format
        Recognised from the content unless given: "rmlab" has the columns of a pairs
        table; "response-matrix" is a CSV with one row per model and one column per
        item, 1 for a win of the chosen answer, 0.5 for a tie, 0 for a loss, empty where
        missing.
    benchmark
        Name of the benchmark of a response matrix.
    subsets
        Subset of each item of a response matrix (default: RewardBench 1, items 0 to
        2984).
    columns
        Names of a pairs table to those of a file of another project, as in
        `read_scores`; `margin` or `outcome` is needed.

    Returns
    -------
    DataFrame
        One row per model, chosen and rejected answer; `attrs["provenance"]` as in
        `read_scores`.

    Raises
    ------
    DataError
        For a file that cannot be read; the message names file, row and value.
    """

    read_mapped = (
        None if columns is None else partial(results.read_mapped_pairs, columns=columns)
    )
    read_layout = read_mapped or partial(
        _read_file, layout=format, benchmark=benchmark, subsets=subsets
    )
    return _read_files("pairs", source, read_layout, tables.check_pairs)


def write_scores(scores: pd.DataFrame, path: str | PathLike[str]) -> Path:
    """Write scores to one file; `read_scores` gives the same table back, float for
    float.

    A file is written whole or not at all.

    Parameters
    ----------
    scores
        A scores table. Missing scores are empty cells in CSV and null in JSON. Extra
        columns are written as they are.
    path
        A file ending in .csv, .parquet or .jsonl. `<path>.provenance.json` beside it
        holds `scores.attrs["provenance"]` and says which extra columns of a CSV are
        text.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    DataError
        For a bad table, or another suffix.
    """
    return native.write_frame(
        tables.check_scores(scores, allow_missing=True), records.expand_path(path)
    )


def write_pairs(pairs: pd.DataFrame, path: str | PathLike[str]) -> Path:
    """Write comparisons to one file; `read_pairs` gives the same table back.

    Parameters
    ----------
    pairs
        A pairs table; extra columns are written as they are.
    path
        A file ending in .csv, .parquet or .jsonl, with provenance beside it as in
        `write_scores`.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    DataError
        For a bad table, or another suffix.
    """
    return native.write_frame(tables.check_pairs(pairs), records.expand_path(path))


def _read_files(
    table: str,
    source: Source,
    read_file: Callable[..., pd.DataFrame],
    check: Callable[[pd.DataFrame], pd.DataFrame],
) -> pd.DataFrame:
    """One table of all files, with what their sidecars say; an error names its file."""
    frames, provenance = [], {}
    for path in _find_files(source, pairs=table == "pairs"):
        sidecar = native.read_sidecar(path)
        if "provenance" in sidecar:
            provenance[str(path)] = sidecar["provenance"]
        try:
            frame = read_file(path, sidecar=sidecar)
            if table == "scores" and "outcome" in frame:
                raise DataError(
                    f"holds outcomes and no scores; use read_pairs({str(path)!r})"
                )
            if table == "pairs" and "score" in frame:
                scores = tables.check_scores(frame, allow_missing=True)
                if scores["slot"].any():
                    raise DataError(
                        "holds scores and no comparisons; use pairs(read_scores(...))"
                    )
                _log.warning(
                    "%s: holds scores of pairs; they are compared as rmlab.pairs does",
                    path,
                )
                frame = metrics.pairs(scores)
            frames.append(check(frame))
        except DataError as error:
            raise (
                error
                if str(error).startswith(str(path))
                else DataError(f"{path}: {error}")
            ) from None
    merged = pd.concat(frames, ignore_index=True)
    if len(frames) > 1:
        tables.refuse_repeats(
            merged,
            ["model", *tables.KEY] if table == "scores" else tables.PAIR_KEY,
            table,
        )
    if provenance:
        merged.attrs["provenance"] = (
            next(iter(provenance.values()))
            if len(frames) == 1
            else {"files": provenance}
        )
    return merged


def _read_file(
    path: Path,
    *,
    sidecar: Mapping[str, object],
    layout: str | None,
    model: str | None = None,
    benchmark: str = "",
    subsets: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """The columns of a file in one of the known formats, not checked yet."""
    runners = [
        name
        for name, benchmark in benchmarks_by_name().items()
        if benchmark.result_fields
    ]
    suffix = path.suffix.lower()
    if layout is not None:
        check_option("format", layout, ["rmlab", "response-matrix", *runners])
    elif suffix in records.CSV:
        layout = results.find_table_layout(records.read_header(path))
    elif suffix == ".parquet":
        layout = results.find_table_layout(
            records.read_parquet(path, lambda file: file.schema_arrow.names)
        )
    rows = [] if layout in ("rmlab", "response-matrix") else records.read_rows(path)
    layout = layout or results.find_layout(rows[0])
    if layout == "own" and suffix in records.CSV and results.is_turned_matrix(rows):
        layout = "response-matrix"
    if layout == "response-matrix":
        return results.read_matrix(path, benchmark, subsets)
    if layout == "own":
        return load_scores(path, {}, model)
    if layout != "rmlab":
        return results.read_published(path, rows, layout, model)
    frame = native.read_frame(path, rows, sidecar)
    return frame if model is None else frame.assign(model=model)


def _find_files(source: Source, *, pairs: bool) -> list[Path]:
    """The files that a path, a folder, a glob or a list of them names."""
    if isinstance(source, pd.DataFrame):
        raise TypeError(
            "source: a DataFrame; write it to a file first, or check it with rmlab.tables.check_scores"
        )
    paths: list[Path] = []
    for place in [source] if isinstance(source, str | PathLike) else source:
        path = records.expand_path(place)
        if path.is_dir():
            in_folder = [
                file
                for file in sorted(path.iterdir())
                if file.suffix in (".csv", ".parquet", ".jsonl")
            ]
            paths += [file for file in in_folder if native.holds_pairs(file) == pairs]
        elif path.exists() or not glob.has_magic(str(path)):
            paths.append(path)
        else:
            matches = map(Path, sorted(glob.glob(str(path), recursive=True)))
            paths += (
                match
                for match in matches
                if match.is_file() and not match.name.endswith(native.SIDECAR)
            )
    if not paths:
        raise DataError(
            f"source: no file of {'pairs' if pairs else 'scores'} in {source!r}; name the files"
        )
    return list(dict.fromkeys(paths))
