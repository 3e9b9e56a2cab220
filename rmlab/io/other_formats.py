"""Files of other projects: results of the benchmarks' own runners, response matrices,
and fields of any name.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks import benchmarks_by_name
from rmlab.benchmarks.own_columns import NAMES, SCORE_COLUMNS, OwnColumns
from rmlab.benchmarks.own_pairs import flatten, load_scores
from rmlab.benchmarks.reward_bench import subset_of_item
from rmlab.benchmarks.rows import first_rows
from rmlab.records import Row, refuse_rows
from rmlab.tables import DataError, nearest
from rmlab.text import short

FieldNames = Mapping[str, str]
"""Our names to theirs; a dot leads into a nested object: {"score": "output.reward"}."""

# One of these is in every file of scores: a row per answer, pair or prompt.
_SCORE_FIELDS = ("score", "chosen_score", "scores")
_SHARED = (
    "model",
    "benchmark",
    "domain",
    "id",
    "family",
    "subset",
    "label",
    "slot",
    "style",
)
_KNOWN_FIELDS = (*_SHARED, *_SCORE_FIELDS, "rejected_score", "num_correct")
# A matrix names its items in these columns.
_NO_ITEMS = {"id", "prompt"} | SCORE_COLUMNS
_ITEM_COLUMNS = ("item", "id", "item_id", "prompt_id", "prompt")
_OUTCOMES = {
    "1": "win",
    "1.0": "win",
    "0.5": "tie",
    "0": "loss",
    "0.0": "loss",
    "": None,
}

POOL_PROMPTS = ("id", "prompt", "question", "problem")
"""Usual names of the column that tells the prompts of a pool apart."""


def find_table_format(header: list[str]) -> str:
    """The format of a CSV or Parquet file, from the names of its columns."""
    names = set(header)
    is_key = {"benchmark", "label"} <= names or {"model", "label", "id"} <= names
    # Our tables of scores hold no texts.
    is_scores = is_key and not {"prompt", "response"} & names
    if is_scores or "chosen_slot" in names:
        return "rmlab"
    if {"score", "correct"} <= names and not names.isdisjoint(POOL_PROMPTS):
        return "pool"
    if header[:1] == ["model"] and _could_be_items(header):
        return "response-matrix"
    return "own"


def _could_be_items(names: Sequence[str]) -> bool:
    return not _NO_ITEMS.intersection(name.lower() for name in names)


def is_turned_matrix(rows: Sequence[Row]) -> bool:
    """Whether a table has one row per item, and the outcomes of one model in each
    further column.
    """
    names = list(rows[0]) if rows else []
    if len(names) < 2 or names[0] not in _ITEM_COLUMNS:
        return False
    if not _could_be_items(names[1:]):
        return False
    for row in rows:
        for value in list(row.values())[1:]:
            if value is not None and str(value) not in _OUTCOMES:
                return False
    return True


def find_row_format(row: Row) -> str:
    """The format of a JSON file of results, from the fields of its first object."""
    format_of_table = find_table_format(list(row))
    if format_of_table in ("rmlab", "pool"):
        return format_of_table
    has_texts = "chosen" in row or "responses" in row
    is_own_list = has_texts and "scores" in row and "num_correct" not in row
    has_scores_by_label = isinstance(row.get("scores"), dict)
    has_one_chosen = isinstance(row.get("score_chosen"), int | float)
    if is_own_list or has_scores_by_label or has_one_chosen:
        return "own"
    for name, fields in runner_fields().items():
        for ours in ("chosen_score", "scores", "judgments"):
            if fields.get(ours) in row:
                return name
    return "own"


def runner_fields() -> dict[str, Mapping[str, str]]:
    """Our names to the fields of result files, by the benchmark whose runner writes
    them.
    """
    fields = {}
    for name, benchmark in benchmarks_by_name().items():
        if benchmark.layout is not None and benchmark.layout.result_fields:
            fields[name] = benchmark.layout.result_fields
    return fields


def read_runner_results(
    path: Path, rows: list[Row], name: str, model: str | None
) -> pd.DataFrame:
    """Results in the file format of a benchmark's own runner, not checked yet."""
    benchmark = benchmarks_by_name()[name]
    assert benchmark.layout is not None
    fields = dict(benchmark.layout.result_fields)
    for ours, theirs in (("model", "model"), ("subset", "domain")):
        if theirs in rows[0]:
            fields[ours] = theirs
    prompts = _select_fields(path, rows, fields)
    prompts = benchmark.layout.adapt_results(path, prompts)
    prompts = prompts.assign(benchmark=name)
    if "subset" in prompts:
        spelling = {subset.lower(): subset for subset in benchmark.subsets}
        prompts["subset"] = [
            spelling.get(str(subset).lower(), subset) for subset in prompts["subset"]
        ]

    answers = prompts
    if "outcome" not in prompts:
        answers = _expand_answers(path, prompts, fields)
    if benchmark.styles:
        style_of_slot = dict(enumerate(benchmark.styles))
        answers = answers.assign(style=answers["slot"].map(style_of_slot))
    return _fill_names(path, answers, model)


def read_mapped_scores(
    path: Path, columns: OwnColumns, model: str | None, **_: object
) -> pd.DataFrame:
    """Scores of a file whose fields have other names, not checked yet; see
    `read_scores` for what a row may be.
    """
    rows = records.read_rows(path)
    if _holds_pairs(rows[0], columns):
        return load_scores(path, columns, model)

    fields = {}
    for ours, theirs in columns.items():
        if theirs is not None:
            fields[ours] = str(theirs)
    _check_names(fields, _KNOWN_FIELDS)
    n_score_fields = sum(name in fields for name in _SCORE_FIELDS)
    is_half_pair = ("chosen_score" in fields) != ("rejected_score" in fields)
    if n_score_fields != 1 or is_half_pair:
        problem = f"columns: {short(sorted(fields))} do not say where the scores are"
        pair = "'chosen_score' with 'rejected_score'"
        remedy = (
            f"name 'score' (a row per answer), {pair}, or 'scores' (a row per prompt)"
        )
        raise DataError(problem, remedy)
    prompts = _select_fields(path, rows, fields)
    return _fill_names(path, _expand_answers(path, prompts, fields), model)


def _holds_pairs(row: Row, columns: OwnColumns) -> bool:
    """Whether a file is one of pairs under other names: none of them leads into a
    nested object.
    """
    for theirs in columns.values():
        if isinstance(theirs, str) and isinstance(row.get(theirs, {}), dict):
            return False
    return columns.keys() <= set(NAMES)


def read_mapped_pairs(path: Path, columns: FieldNames, **_: object) -> pd.DataFrame:
    """Comparisons of a file whose fields have other names, not checked yet."""
    _check_names(columns, tables.PAIRS)
    frame = _select_fields(path, records.read_rows(path), columns)
    for name in ("chosen_slot", "rejected_slot"):
        if name not in frame:
            frame[name] = 0
    return _fill_names(path, frame, None)


def read_matrix(
    path: Path, benchmark: str, subsets: Mapping[str, str] | None
) -> pd.DataFrame:
    """Comparisons of a response matrix, not checked yet: model by model, items in the
    order of the file.
    """
    matrix = _read_models_by_items(path)
    items = list(matrix.columns[1:])
    if subsets is None:
        subset_by_item = {item: subset_of_item(item) for item in items}
    else:
        subset_by_item = {item: subsets.get(item) for item in items}
    if subsets is None and not any(subset_by_item.values()):
        # Items of custom data.
        benchmark = path.stem
        subset_by_item = dict.fromkeys(items, path.stem)
    without_subset = [item for item in items if subset_by_item[item] is None]
    if without_subset:
        counts = f"{len(without_subset)} of {len(items)} items have no subset"
        problem = f"{path}: {counts}, first {short(without_subset[0])}"
        averages = "compare a leaderboard of averages with rmlab.summary"
        raise DataError(problem, f"pass subsets={{item: subset}}, or {averages}")

    scores = "(or name the columns of scores: columns={'chosen_score': ...})"
    for item in items:
        is_wrong = ~matrix[item].isin(list(_OUTCOMES))
        refuse_rows(
            path, matrix[item], is_wrong, f"1, 0.5, 0 or an empty cell {scores}"
        )
    pairs = matrix.melt("model", var_name="id", ignore_index=False)
    pairs = pairs.sort_index(kind="stable", ignore_index=True)
    outcome = pairs.pop("value").map(_OUTCOMES)
    return pairs.assign(
        model=pairs["model"].replace("", None),
        benchmark=benchmark,
        domain=pairs["id"].map(subset_by_item),
        chosen_slot=0,
        rejected_slot=0,
        outcome=outcome,
    )


def _read_models_by_items(path: Path) -> pd.DataFrame:
    """The cells of a response matrix, one row per model."""
    header, lines = records.read_csv_lines(path)
    rows: list[Row] = [dict(zip(header, line, strict=True)) for line in lines]
    if is_turned_matrix(rows):
        columns = list(zip(header, *lines, strict=True))
        items = columns[0][1:]
        models = [list(column) for column in columns[1:]]
        return pd.DataFrame(models, columns=["model", *items])
    if header[0] != "model" or len(header) < 2:
        problem = f"{path}: not a matrix of models by items; found: {short(header)}"
        raise DataError(problem, "name the first column 'model', the others items")
    return pd.DataFrame(lines, columns=header)


def rename_columns(
    frame: pd.DataFrame, columns: FieldNames, allowed: Sequence[str]
) -> pd.DataFrame:
    """A frame of the columns named, under our names; of all of them where `columns`
    names none.
    """
    _check_names(columns, allowed)
    for ours, theirs in columns.items():
        if theirs not in frame.columns:
            fields = short(list(frame.columns), 200)
            problem = f"no field {theirs!r} for {ours!r}; found: {fields}"
            raise DataError(problem, "nested ones are named 'output.reward'")
    if not columns:
        return frame
    return pd.DataFrame({ours: frame[theirs] for ours, theirs in columns.items()})


def _check_names(columns: FieldNames, allowed: Sequence[str]) -> None:
    for name in columns:
        if name not in allowed:
            problem = f"columns: {name!r} is not a name of rmlab"
            raise DataError(problem, nearest(name, allowed))


def _select_fields(path: Path, rows: list[Row], columns: FieldNames) -> pd.DataFrame:
    """A frame with our names for the fields of each row.

    Where no field is named for `id` it is the row's number, or that of the first row
    with its prompt and its place among a model's rows of that prompt.
    """
    flat = pd.json_normalize(rows)
    if len(flat) == 1:
        flat = _unfold_object(path, flat, columns)
    frame = rename_columns(flat, columns, list(columns))
    if "id" in frame:
        return frame
    models = frame.get("model", flat.index * 0)
    prompts = [repr(prompt) for prompt in flat.get("prompt", flat.index * 0)]
    return frame.assign(id=[str(row) for row in first_rows(prompts, models)])


def _unfold_object(path: Path, flat: pd.DataFrame, columns: FieldNames) -> pd.DataFrame:
    """The rows that lie inside one object: under a name that all paths begin with, or
    as lists side by side.
    """
    paths = list(dict.fromkeys(columns.values()))
    for name, value in flat.iloc[0].items():
        prefix = f"{name}."
        if isinstance(value, list) and _all_begin(paths, prefix):
            return pd.json_normalize(value).add_prefix(prefix)

    flat = flat[[theirs for theirs in paths if theirs in flat]]
    lists = [theirs for theirs in flat if isinstance(flat[theirs][0], list)]
    if not lists or columns.get("id", lists[0]) not in lists:
        return flat
    try:
        return flat.explode(lists, ignore_index=True)
    except ValueError:
        problem = f"{path}: the lists {short(lists)} differ in length"
        raise DataError(problem, "the file may be cut off") from None


def _all_begin(paths: Sequence[str], prefix: str) -> bool:
    return all(path.startswith(prefix) for path in paths)


def _expand_answers(
    path: Path, frame: pd.DataFrame, columns: FieldNames
) -> pd.DataFrame:
    """A row per answer from a row per answer, per pair or per prompt."""
    if "score" in frame:
        return frame.assign(score=frame["score"].map(flatten)).explode("score")
    if "scores" in frame:
        frame = _split_scores(path, frame, columns)
    score_fields = ["scores", "num_correct", "chosen_score", "rejected_score"]
    shared = frame.drop(columns=score_fields, errors="ignore")
    sides = []
    for label in tables.LABELS:
        scores = frame[f"{label}_score"].map(flatten)
        sides.append(shared.assign(label=label, score=scores))
    answers = pd.concat(sides).explode("score").sort_index(kind="stable")
    slot = answers.groupby([answers.index, "label"]).cumcount()
    return answers.assign(slot=slot).reset_index(drop=True)


def _split_scores(path: Path, frame: pd.DataFrame, columns: FieldNames) -> pd.DataFrame:
    """The list `scores` as chosen and rejected ones; the first `num_correct` are
    chosen, by default one.
    """
    scores = frame["scores"].map(flatten)
    n_scores = scores.map(len)
    n_chosen = pd.Series(1, index=frame.index)
    field = "scores"
    if "num_correct" in frame:
        field = "num_correct"
        numbers = frame["num_correct"].astype("str")
        n_chosen = pd.to_numeric(numbers, errors="coerce")
    is_count = (n_chosen > 0) & (n_chosen < n_scores) & (n_chosen % 1 == 0)
    allowed = (
        "at least 1 and less than there are scores (the chosen answers come first)"
    )
    refuse_rows(path, frame[field].rename(columns[field]), ~is_count, allowed)

    chosen = []
    rejected = []
    for values, n in zip(scores, n_chosen.astype(int), strict=True):
        chosen.append(values[:n])
        rejected.append(values[n:])
    return frame.assign(chosen_score=chosen, rejected_score=rejected)


def _fill_names(path: Path, frame: pd.DataFrame, model: str | None) -> pd.DataFrame:
    """With the columns that a file about one model and one data set leaves out: both
    are named after the file.
    """
    filled = frame.copy()
    for name in ("model", "benchmark"):
        if name not in filled:
            filled[name] = path.stem
    if model is not None:
        filled["model"] = model
    if "domain" not in filled:
        filled["domain"] = filled["subset" if "subset" in filled else "benchmark"]
    if "slot" not in filled and "label" in filled:
        key = filled[["model", *tables.PROMPT, "label"]].astype("str")
        filled["slot"] = key.groupby(list(key)).cumcount()
    return filled
