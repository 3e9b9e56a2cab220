"""Scores and comparisons from files, folders and globs, and to files."""

import glob
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path

import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks.own_files import TEXTS, load_scores, name_benchmark, name_model
from rmlab.benchmarks.pools import read_pool
from rmlab.benchmarks.roles import OwnColumns, spell
from rmlab.benchmarks.sources import read_source
from rmlab.io import matrix, native, results, runners
from rmlab.tables import DataError, check_option, nearest
from rmlab.text import short

Paths = str | PathLike[str] | Iterable[str | PathLike[str]]
"""A file, a folder, a glob, or several of them."""


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
        of comparisons (`*.pairs.csv`). Files of one name ("runs/*/scores.parquet") are
        models by the part of the path that differs.
    format
        Recognised from the content unless given:

        - "rmlab": CSV, Parquet or JSON lines with the columns of a scores table, as
          `write_scores` makes them;
        - "rm-bench", "reward-bench", "reward-bench-2", "judgebench": the result
          files of the benchmarks' own runners;
        - "pool": a row per candidate with `score`, `correct` and `prompt`, `id`,
          `question` or `problem`, as `rmlab.load_pool` takes them.

        A response matrix holds outcomes and no scores: `read_pairs` reads it. Any other
        file is read as `load_preferences` reads it, under the same ids, with scores:
        `chosen_score` and `rejected_score` (also score_chosen, chosen_reward,
        reward_chosen, or an object or list `scores`); `score_a`, `score_b` and
        `winner`; `score` and `label` of one response a row; lists `scores` and
        `labels`. Texts are not needed.
    columns
        Names of `load_preferences`, and `chosen_score`, `rejected_score`, `score` and
        `scores`, to the names in the file. A dot leads into a nested object ({"score":
        "output.reward"}), and lists around one number are taken off. In a list `scores`
        without texts and labels the first is that of the chosen answer. {"model": None}
        ignores a column.

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
    if columns is not None and format is not None:
        raise TypeError(
            "columns: they name the columns of custom data; leave format out"
        )
    files = _find_files(source, pairs=False)
    model_of = _name_models(files)

    def read_file(path: Path, sidecar: _Sidecar) -> pd.DataFrame:
        name = model_of.get(path)
        if columns is not None:
            frame = load_scores(read_source(path), columns, model, name)
        else:
            frame = _read_file(path, sidecar, format, model, name)
        if "outcome" in frame:
            problem = f"{path}: holds outcomes and no scores"
            raise DataError(problem, f"use read_pairs({str(path)!r})")
        return tables.check_scores(frame, allow_missing=allow_missing)

    return _read_files(files, "scores", read_file, ["model", *tables.KEY])


def read_pairs(
    source: Paths,
    *,
    format: str | None = None,
    benchmark: str = "reward-bench",
    subsets: Mapping[str, str] | None = None,
    columns: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Read comparisons from a file, a store's folder, a glob or a list of them.

    Parameters
    ----------
    source
        What to read. Scores are no comparisons: `rmlab.pairs(read_scores(...))`.
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
    for name in columns or ():
        if name not in tables.PAIRS:
            problem = f"columns: {name!r} is not a name of rmlab"
            raise DataError(problem, nearest(name, tables.PAIRS))

    def read_file(path: Path, sidecar: _Sidecar) -> pd.DataFrame:
        if columns is not None:
            data = read_source(path)
            return tables.check_pairs(results.read_mapped_pairs(data, columns))
        is_matrix = format == "response-matrix"
        if format is None and records.file_suffix(path) in records.CSV:
            is_matrix = matrix.is_matrix(records.read_header(path))
        if is_matrix:
            frame = matrix.read_matrix(path, benchmark, subsets)
        else:
            frame = _read_file(path, sidecar, format, None, None)
        if "score" in frame:
            problem = f"{path}: holds scores and no comparisons"
            raise DataError(problem, "use pairs(read_scores(...))")
        return tables.check_pairs(frame)

    files = _find_files(source, pairs=True)
    return _read_files(files, "pairs", read_file, tables.PAIR_KEY)


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


_Sidecar = Mapping[str, object]


def _read_files(
    files: list[Path],
    table: str,
    read_file: Callable[[Path, _Sidecar], pd.DataFrame],
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
            frames.append(read_file(path, sidecar))
        except DataError as error:
            if error.problem.startswith(str(path)):
                raise
            raise DataError(f"{path}: {error.problem}", error.remedy) from None

    merged = pd.concat(frames, ignore_index=True)
    if len(frames) > 1:
        tables.refuse_repeats(merged, key, table)
        _refuse_other_texts(merged)
    merged = merged.drop(columns=TEXTS, errors="ignore")
    if len(frames) == 1 and provenance:
        (merged.attrs["provenance"],) = provenance.values()
    elif provenance:
        merged.attrs["provenance"] = {"files": provenance}
    return merged


def _refuse_other_texts(scores: pd.DataFrame) -> None:
    """Raise DataError where files have other texts under one key, as they do where
    their rows are numbered and have different orders.
    """
    if TEXTS not in scores:
        return
    n_texts = scores.groupby(tables.KEY, observed=True)[TEXTS].transform("nunique")
    if (n_texts > 1).any():
        row = scores[n_texts > 1].iloc[0]
        problem = f"files have different texts as {row['label']} {row['slot']}"
        remedy = "give each row an id and keep the order of a prompt's answers"
        remedy = f"{remedy}, or join the files as one with a column 'model'"
        raise DataError(f"{problem} of {short(row['id'])}", remedy)


def _read_file(
    path: Path,
    sidecar: _Sidecar,
    format: str | None,
    model: str | None,
    name: str | None,
) -> pd.DataFrame:
    """The scores or pairs of a file in one of the known formats, not checked yet.

    `name`: the model where the file does not say one.
    """
    runners = results.runner_fields()
    if format is not None:
        check_option("format", format, ["rmlab", "pool", *runners])
    header = native.read_header(path)
    if format == "rmlab" or (format is None and _is_native(header)):
        frame = native.read_frame(path, sidecar)
        if model is not None:
            frame["model"] = model
        return frame

    data = read_source(path)
    if format == "pool" or (format is None and _is_pool(header)):
        frame = native.read_frame(path, sidecar)
        has_model = "model" in map(spell, header)
        named = model if has_model else model or name or path.stem
        benchmark = name_benchmark(path, None if has_model or model else name)
        return read_pool(frame, name=benchmark, model=named)
    format = format or results.find_runner(data)
    if format is not None:
        return results.read_results(data, format, model)
    return load_scores(data, {}, model, name)


def _is_native(header: Sequence[str]) -> bool:
    """Whether a file has the columns of our own tables, which hold no texts."""
    names = set(header)
    is_key = {"benchmark", "label"} <= names
    is_key = is_key or {"model", "label", "id", "slot"} <= names
    return (is_key and not {"prompt", "response"} & names) or "chosen_slot" in names


def _is_pool(header: Sequence[str]) -> bool:
    names = {*map(spell, header)}
    prompts = {"id", "prompt", "question", "problem"}
    return {"score", "correct"} <= names and not prompts.isdisjoint(names)


def _name_models(files: Sequence[Path]) -> dict[Path, str]:
    """The models of several files: the part of their paths that differs."""
    if len(files) == 1:
        return {}
    parts = [(*path.parts[:-1], name_model(path)) for path in files]
    shortest = min(map(len, parts))
    for place in range(1, shortest + 1):
        names = [path[-place] for path in parts]
        if len({*names}) == len(files):
            return dict(zip(files, names, strict=True))
    return {path: "/".join(part) for path, part in zip(files, parts, strict=True)}


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
        problem = f"source: no file of scores or pairs in {source!r}"
        raise DataError(problem, "name the files")
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
