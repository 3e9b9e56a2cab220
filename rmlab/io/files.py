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
from rmlab.io import matrix, native, results
from rmlab.tables import DataError
from rmlab.text import short

_PROMPTS = {"id", "prompt", "question", "problem"}

Paths = str | PathLike[str] | Iterable[str | PathLike[str]]
"""A file, a folder, a glob, or several of them."""


def read_scores(
    source: Paths,
    *,
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
        models by the part of the path that differs. The content says what a file is:

        - a scores table as `write_scores` writes it;
        - a result file of the runner of RM-Bench, RewardBench 1 or 2, or JudgeBench;
        - a pool, which `rmlab.load_pool` takes as well: a row per candidate with
          `score`, `correct` and `prompt`, `id`, `question` or `problem`;
        - people's own data as `load_preferences` reads them, under the same ids, with
          scores: `chosen_score` and `rejected_score` (also score_chosen, chosen_reward,
          reward_chosen, or an object or list `scores`); `score_a`, `score_b` and
          `winner`; `score` and `label` of one response a row; lists `scores` and
          `labels`. Texts are not needed.

        A response matrix holds outcomes and no scores: `read_pairs` reads it.
    columns
        Names of `load_preferences`, and `chosen_score`, `rejected_score`, `score` and
        `scores`, to the names in the file. A dot leads into a nested object ({"score":
        "output.reward"}), and lists around one number are taken off. A list `scores`
        without labels starts with those of the chosen answers: as many as there are
        texts or as `num_correct` says, else one. {"model": None} ignores a column.

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
    files = _find_files(source, pairs=False)
    model_of = _name_models(files)

    def read_file(path: Path, sidecar: _Sidecar) -> pd.DataFrame:
        name = model_of.get(path)
        if columns is not None:
            frame = load_scores(read_source(path), columns, model, name)
        else:
            frame = _read_file(path, sidecar, model, name)
        if "outcome" in frame:
            problem = f"{path}: holds outcomes and no scores"
            raise DataError(problem, f"use read_pairs({str(path)!r})")
        return tables.check_scores(frame, allow_missing=allow_missing)

    return _read_files(files, "scores", read_file, ["model", *tables.KEY])


def read_pairs(
    source: Paths,
    *,
    benchmark: str = "reward-bench",
    columns: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Read comparisons from a file, a store's folder, a glob or a list of them.

    Parameters
    ----------
    source
        What to read: a pairs table as `write_pairs` writes it, a runner's result file
        with outcomes, or a response matrix. That is a CSV with one row per model and
        one column per item (or the other way round), 1 for a win of the chosen answer,
        0.5 for a tie, 0 for a loss, empty where missing. Scores are no comparisons:
        `rmlab.pairs(read_scores(...))`.
    benchmark
        Name of the benchmark of a response matrix. Items 0 to 2984 have the subsets of
        RewardBench 1; where there are others, all have the file's name as benchmark
        and subset.
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

    def read_file(path: Path, sidecar: _Sidecar) -> pd.DataFrame:
        if columns is not None:
            data = read_source(path)
            return tables.check_pairs(results.read_mapped_pairs(data, columns))
        is_csv = records.file_suffix(path) in records.CSV
        if is_csv and matrix.is_matrix(records.read_header(path)):
            frame = matrix.read_matrix(path, benchmark)
        else:
            frame = _read_file(path, sidecar, None, None)
        if "score" in frame:
            problem = f"{path}: holds scores and no comparisons"
            raise DataError(problem, "use pairs(read_scores(...))")
        return tables.check_pairs(frame)

    files = _find_files(source, pairs=True)
    return _read_files(files, "pairs", read_file, tables.PAIR_KEY)


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
    checked = tables.check_scores(scores, allow_missing=True)
    return native.write_frame(checked, records.expand_path(path))


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
    path: Path, sidecar: _Sidecar, model: str | None, name: str | None
) -> pd.DataFrame:
    """The scores or pairs of a file, not checked yet.

    `name`: the model where the file does not say one.
    """
    header = native.read_header(path)
    if _is_native(header):
        frame = native.read_frame(path, sidecar)
        if model is not None:
            frame["model"] = model
        return frame

    names = {*map(spell, header)}
    if {"score", "correct"} <= names and not _PROMPTS.isdisjoint(names):
        frame = native.read_frame(path, sidecar)
        is_named = "model" in names or model is not None
        benchmark = name_benchmark(path, None if is_named else name)
        if not is_named:
            model = name or path.stem
        return read_pool(frame, name=benchmark, model=model)
    data = read_source(path)
    runner = results.find_runner(data)
    if runner is not None:
        return results.read_results(data, runner, model)
    return load_scores(data, {}, model, name)


def _is_native(header: Sequence[str]) -> bool:
    """Whether a file has the columns of our own tables, which hold no texts."""
    names = set(header)
    is_key = {"benchmark", "label"} <= names
    is_key = is_key or {"model", "label", "id", "slot"} <= names
    return (is_key and not {"prompt", "response"} & names) or "chosen_slot" in names


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
