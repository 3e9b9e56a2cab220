"""Scores and comparisons from files, folders and globs, and to files."""

import glob
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from os import PathLike
from pathlib import Path

import pandas as pd

from rmlab import metrics, records, tables
from rmlab.benchmarks.own_columns import OwnColumns
from rmlab.benchmarks.own_pairs import load_scores
from rmlab.benchmarks.pools import load_pool
from rmlab.io import native, other_formats, runners
from rmlab.tables import DataError, check_option

Paths = str | PathLike[str] | Iterable[str | PathLike[str]]
"""A file, a folder, a glob, or several of them."""

_log = logging.getLogger(__name__)


def read_scores(
    source: Paths,
    *,
    format: str | None = None,
    columns: OwnColumns | None = None,
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
          first, `num_correct`);
        - "pool": a row per candidate with `score`, `correct` and `prompt`, `id`,
          `question` or `problem`, as `rmlab.load_pool` takes them.

        A response matrix holds outcomes and no scores: `read_pairs` reads it. Any other
        file is read as custom pairs, under the ids that `load_preferences` gives it, if
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
        of `load_preferences` may be given; {"model": None} ignores a column.

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
    read_file: Callable[..., pd.DataFrame]
    if columns is None:
        read_file = partial(_read_file, format=format, model=model)
    else:
        read_file = partial(
            other_formats.read_mapped_scores, columns=columns, model=model
        )
    check = partial(tables.check_scores, allow_missing=allow_missing)
    files = _find_files(source, pairs=False)
    key = ["model", *tables.KEY]
    return _read_files(files, "scores", read_file, _require_scores, check, key)


def read_pairs(
    source: Paths,
    *,
    format: str | None = None,
    benchmark: str = "reward-bench",
    subsets: Mapping[str, str] | None = None,
    columns: other_formats.FieldNames | None = None,
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
    read_file: Callable[..., pd.DataFrame]
    if columns is None:
        read_file = partial(
            _read_file, format=format, benchmark=benchmark, subsets=subsets
        )
    else:
        read_file = partial(other_formats.read_mapped_pairs, columns=columns)
    files = _find_files(source, pairs=True)
    return _read_files(
        files, "pairs", read_file, _compare_scores, tables.check_pairs, tables.PAIR_KEY
    )


def write_scores(
    scores: pd.DataFrame,
    path: str | PathLike[str],
    *,
    format: str = "rmlab",
    responses: pd.DataFrame | None = None,
) -> Path:
    """Write scores to one file; `read_scores` gives the same table back, float for
    float.

    A file is written whole or not at all.

    Parameters
    ----------
    scores
        A scores table. Missing scores are empty cells in CSV and null in JSON. Extra
        columns are written as they are.
    path
        A file ending in .csv, .parquet or .jsonl; of a runner, in .json.
        `<path>.provenance.json` beside it holds `scores.attrs["provenance"]` and says
        which extra columns of a CSV are text.
    format : {"rmlab", "rm-bench", "reward-bench-2"}
        "rm-bench" and "reward-bench-2" are the result files of the benchmarks' own
        runners, which their leaderboards take: all scores of one model, with the texts.
        RM-Bench's has no field for the model, and the reader finds it in a file's name
        such as "total_dataset_my-rm.json".
    responses : DataFrame, optional
        The responses that were scored; needed for a runner's file.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    DataError
        For a bad table, another suffix, and a runner's file that would not be complete.
    """
    place = records.expand_path(path)
    if format != "rmlab":
        if responses is None:
            problem = f"responses: a file of format={format!r} holds the texts"
            raise TypeError(f"{problem}; pass responses=")
        complete = tables.check_scores(scores)
        return runners.write_runner_results(complete, place, format, responses)
    if responses is not None:
        raise TypeError("responses: only a runner's file holds them; pass format=")
    checked = tables.check_scores(scores, allow_missing=True)
    return native.write_frame(checked, place)


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


_Change = Callable[[Path, pd.DataFrame], pd.DataFrame]
_Check = Callable[[pd.DataFrame], pd.DataFrame]


def _read_files(
    files: list[Path],
    table: str,
    read_file: Callable[..., pd.DataFrame],
    adapt: _Change,
    check: _Check,
    key: list[str],
) -> pd.DataFrame:
    """One table of all files, with what their sidecars say; an error names its file."""
    frames = []
    provenance = {}
    for path in files:
        sidecar = native.read_sidecar(path)
        if "provenance" in sidecar:
            provenance[str(path)] = sidecar["provenance"]
        try:
            frame = adapt(path, read_file(path, sidecar=sidecar))
            frames.append(check(frame))
        except DataError as error:
            if error.problem.startswith(str(path)):
                raise
            raise DataError(f"{path}: {error.problem}", error.remedy) from None

    merged = pd.concat(frames, ignore_index=True)
    if len(frames) > 1:
        tables.refuse_repeats(merged, key, table)
    if len(frames) == 1 and provenance:
        (merged.attrs["provenance"],) = provenance.values()
    elif provenance:
        merged.attrs["provenance"] = {"files": provenance}
    return merged


def _require_scores(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """The frame; DataError where it holds outcomes."""
    if "outcome" in frame:
        problem = "holds outcomes and no scores"
        raise DataError(problem, f"use read_pairs({str(path)!r})")
    return frame


def _compare_scores(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """Comparisons as they are, or of the scores of one answer each."""
    if "score" not in frame:
        return frame
    scores = tables.check_scores(frame, allow_missing=True)
    if scores["slot"].any():
        problem = "holds scores and no comparisons"
        raise DataError(problem, "use pairs(read_scores(...))")
    _log.warning(
        "%s: holds scores of pairs; they are compared as rmlab.pairs does", path
    )
    return metrics.pairs(scores)


def _read_file(
    path: Path,
    *,
    sidecar: Mapping[str, object],
    format: str | None,
    model: str | None = None,
    benchmark: str = "",
    subsets: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """The columns of a file in one of the known formats, not checked yet."""
    if format is None:
        format = _find_format_of_table(path)
    else:
        runners = other_formats.runner_fields()
        formats = ["rmlab", "pool", "response-matrix", *runners]
        check_option("format", format, formats)
    if format == "response-matrix":
        return other_formats.read_matrix(path, benchmark, subsets)

    rows: list[records.Row] = []
    if format != "rmlab":
        rows = records.read_rows(path)
    if format is None:
        format = other_formats.find_row_format(rows[0])
    if format == "rmlab":
        frame = native.read_frame(path, rows, sidecar)
        return frame if model is None else frame.assign(model=model)
    if format == "pool":
        return _read_pool(path, native.read_frame(path, rows, sidecar), model)
    if format != "own":
        return other_formats.read_runner_results(path, rows, format, model)
    if path.suffix.lower() in records.CSV and other_formats.is_turned_matrix(rows):
        return other_formats.read_matrix(path, benchmark, subsets)
    return load_scores(path, {}, model)


def _read_pool(path: Path, frame: pd.DataFrame, model: str | None) -> pd.DataFrame:
    """Scores of candidates, by the first usual name of the prompt."""
    if model is not None:
        frame["model"] = model
    elif "model" not in frame:
        frame["model"] = path.stem
    names = (name for name in other_formats.POOL_PROMPTS if name in frame)
    prompt = next(names, "prompt")
    return load_pool(frame, prompt=prompt, name=path.stem, allow_missing=True)


def _find_format_of_table(path: Path) -> str | None:
    """The format of a CSV or Parquet file; None for others."""
    suffix = path.suffix.lower()
    if suffix in records.CSV:
        return other_formats.find_table_format(records.read_header(path))
    if suffix == ".parquet":
        header = records.read_parquet(path, lambda file: file.schema_arrow.names)
        return other_formats.find_table_format(header)
    return None


def _find_files(source: Paths, *, pairs: bool) -> list[Path]:
    """The files that a path, a folder, a glob or a list of them names."""
    if isinstance(source, pd.DataFrame):
        remedy = "write it to a file first, or check it with rmlab.tables.check_scores"
        raise TypeError(f"source: a DataFrame; {remedy}")
    places = [source] if isinstance(source, str | PathLike) else list(source)
    paths: list[Path] = []
    for place in places:
        path = records.expand_path(place)
        if path.is_dir():
            paths += _list_store_tables(path, pairs=pairs)
        elif path.exists() or not glob.has_magic(str(path)):
            paths.append(path)
        else:
            paths += _match_files(str(path))
    if not paths:
        table = "pairs" if pairs else "scores"
        raise DataError(f"source: no file of {table} in {source!r}", "name the files")
    return list(dict.fromkeys(paths))


def _list_store_tables(folder: Path, *, pairs: bool) -> list[Path]:
    """The tables of a store's folder: of comparisons, or of scores."""
    tables_of_store = []
    for file in sorted(folder.iterdir()):
        is_table = file.suffix in (".csv", ".parquet", ".jsonl")
        if is_table and native.holds_pairs(file) == pairs:
            tables_of_store.append(file)
    return tables_of_store


def _match_files(pattern: str) -> list[Path]:
    """The files that a glob matches, without those of provenance."""
    files = []
    for match in sorted(glob.glob(pattern, recursive=True)):
        file = Path(match)
        if file.is_file() and not file.name.endswith(native.SIDECAR):
            files.append(file)
    return files
