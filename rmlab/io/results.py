"""Result files of other projects: the benchmarks' own runners, response matrices, and
fields of any name.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks import benchmarks_by_name, layouts
from rmlab.benchmarks.own_pairs import flatten, load_scores
from rmlab.benchmarks.reward_bench import subset_of_item
from rmlab.benchmarks.rows import first_rows
from rmlab.records import refuse_rows
from rmlab.tables import DataError, nearest
from rmlab.text import short

Columns = Mapping[str, str]
"""Our names to theirs; a dot leads into a nested object: {"score": "output.reward"}."""

_LAYOUTS = ("score", "chosen_score", "scores")
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
_NO_ITEMS = {
    "id",
    "prompt",
} | layouts.SCORE_COLUMNS  # a matrix names its items in these
_OUTCOMES = {
    "1": "win",
    "1.0": "win",
    "0.5": "tie",
    "0": "loss",
    "0.0": "loss",
    "": None,
}


def find_table_layout(header: list[str]) -> str:
    """The format of a CSV or Parquet file, from the names of its columns."""
    names = {*header}
    is_key = {"benchmark", "label"} <= names or {"model", "label", "id"} <= names
    # Our tables of scores hold no texts.
    if "chosen_slot" in names or (is_key and not {"prompt", "response"} & names):
        return "rmlab"
    is_matrix = header[:1] == ["model"] and not _NO_ITEMS & {
        name.lower() for name in names
    }
    return "response-matrix" if is_matrix else "own"


def is_turned_matrix(rows: Sequence[records.Row]) -> bool:
    """Whether a table has one row per item, and the outcomes of one model in each
    further column.
    """
    cells = [value for row in rows for value in [*row.values()][1:]]
    is_matrix = bool(cells) and not _NO_ITEMS & {
        name.lower() for name in [*rows[0]][1:]
    }
    is_matrix = is_matrix and all(
        value is None or str(value) in _OUTCOMES for value in cells
    )
    return is_matrix and next(iter(rows[0])) in (
        "item",
        "id",
        "item_id",
        "prompt_id",
        "prompt",
    )


def find_layout(row: records.Row) -> str:
    """The format of a JSON file of results, from the fields of its first object."""
    if find_table_layout([*row]) == "rmlab":
        return "rmlab"
    has_texts = (
        bool({"chosen", "responses"} & row.keys())
        and "scores" in row
        and "num_correct" not in row
    )
    if (
        has_texts
        or isinstance(row.get("scores"), dict)
        or isinstance(row.get("score_chosen"), int | float)
    ):
        return "own"
    for benchmark in benchmarks_by_name().values():
        if any(
            benchmark.result_fields.get(name) in row
            for name in ("chosen_score", "scores", "judgments")
        ):
            return benchmark.name
    return "own"


def read_published(
    path: Path, rows: list[records.Row], layout: str, model: str | None
) -> pd.DataFrame:
    """Results in the file format of a benchmark's own runner, not checked yet."""
    benchmark = benchmarks_by_name()[layout]
    optional = {"model": "model", "subset": "domain"}
    columns = {**benchmark.result_fields} | {
        ours: theirs for ours, theirs in optional.items() if theirs in rows[0]
    }
    prompts = benchmark.adapt_results(path, _select_fields(path, rows, columns)).assign(
        benchmark=layout
    )
    if "subset" in prompts:
        spelling = {name.lower(): name for name in benchmark.subsets}
        prompts["subset"] = prompts["subset"].map(
            lambda name: spelling.get(str(name).lower(), name)
        )
    answers = (
        prompts if "outcome" in prompts else _expand_answers(path, prompts, columns)
    )
    if benchmark.styles:
        answers = answers.assign(
            style=answers["slot"].map(dict(enumerate(benchmark.styles)))
        )
    return _fill_names(path, answers, model)


def read_mapped_scores(
    path: Path, columns: layouts.Columns, model: str | None, **_: object
) -> pd.DataFrame:
    """Scores of a file whose fields have other names, not checked yet; see
    `read_scores` for the three layouts.
    """
    rows = records.read_rows(path)
    if _is_own_layout(rows[0], columns):
        return load_scores(path, columns, model)

    fields = {
        ours: str(theirs) for ours, theirs in columns.items() if theirs is not None
    }
    _check_names(fields, (*_SHARED, *_LAYOUTS, "rejected_score", "num_correct"))
    if len({*_LAYOUTS} & {*fields}) != 1 or ("chosen_score" in fields) != (
        "rejected_score" in fields
    ):
        layouts = "'score' (a row per answer), 'chosen_score' with 'rejected_score', or 'scores' (a row per prompt)"
        raise DataError(f"columns: name one of {layouts}; got {short(sorted(fields))}")
    prompts = _select_fields(path, rows, fields)
    return _fill_names(path, _expand_answers(path, prompts, fields), model)


def _is_own_layout(row: records.Row, columns: layouts.Columns) -> bool:
    """Whether a file is one of pairs under other names: none of them leads into a
    nested object.
    """
    names = [theirs for theirs in columns.values() if isinstance(theirs, str)]
    is_nested = any(isinstance(row.get(name, {}), dict) for name in names)
    return columns.keys() <= {*layouts.NAMES} and not is_nested


def read_mapped_pairs(path: Path, columns: Columns, **_: object) -> pd.DataFrame:
    """Comparisons of a file whose fields have other names, not checked yet."""
    _check_names(columns, tables.PAIRS)
    frame = _select_fields(path, records.read_rows(path), columns)
    slots = {name: 0 for name in ("chosen_slot", "rejected_slot") if name not in frame}
    return _fill_names(path, frame.assign(**slots), None)


def read_matrix(
    path: Path, benchmark: str, subsets: Mapping[str, str] | None
) -> pd.DataFrame:
    """Comparisons of a response matrix, not checked yet: model by model, items in the
    order of the file.
    """
    header, lines = records.read_table(path)
    if is_turned_matrix([dict(zip(header, line, strict=True)) for line in lines]):
        columns = [*zip(header, *lines, strict=True)]
        header, lines = (
            ["model", *columns[0][1:]],
            [list(column) for column in columns[1:]],
        )
    if header[0] != "model" or len(header) < 2:
        raise DataError(
            f"{path}: the first column must be 'model', the others items; found: {short(header)}"
        )
    domain = {
        item: subset_of_item(item) if subsets is None else subsets.get(item)
        for item in header[1:]
    }
    if subsets is None and not any(domain.values()):  # items of one's own
        benchmark, domain = path.stem, dict.fromkeys(domain, path.stem)
    if without_subset := [item for item, subset in domain.items() if subset is None]:
        problem = f"{len(without_subset)} of {len(domain)} items have no subset, first {short(without_subset[0])}"
        remedy = "pass subsets={item: subset}, or a leaderboard of averages to rmlab.papers.reproduce"
        raise DataError(f"{path}: {problem}; {remedy}")
    matrix = pd.DataFrame(lines, columns=header)
    for item in domain:
        allowed = "1, 0.5, 0 or an empty cell (or name the columns of scores: columns={'chosen_score': ...})"
        refuse_rows(path, matrix[item], ~matrix[item].isin([*_OUTCOMES]), allowed)
    pairs = matrix.melt("model", var_name="id", ignore_index=False).sort_index(
        kind="stable", ignore_index=True
    )
    outcome, domains = pairs.pop("value").map(_OUTCOMES), pairs["id"].map(domain)
    pairs = pairs.assign(
        model=pairs["model"].replace("", None), benchmark=benchmark, domain=domains
    )
    return pairs.assign(chosen_slot=0, rejected_slot=0, outcome=outcome)


def rename_columns(
    frame: pd.DataFrame, columns: Columns, allowed: Sequence[str]
) -> pd.DataFrame:
    """A frame of the columns named, under our names; of all of them where `columns`
    names none.
    """
    _check_names(columns, allowed)
    for ours, theirs in columns.items():
        if theirs not in frame.columns:
            fields = short([*frame.columns], 200)
            raise DataError(
                f"no field {theirs!r} for {ours!r}; found: {fields}; nested ones are named 'output.reward'"
            )
    return (
        pd.DataFrame({ours: frame[theirs] for ours, theirs in columns.items()})
        if columns
        else frame
    )


def _check_names(columns: Columns, allowed: Sequence[str]) -> None:
    for name in columns:
        if name not in allowed:
            raise DataError(
                f"columns: {name!r} is not a name of rmlab; {nearest(name, allowed)}"
            )


def _select_fields(
    path: Path, rows: list[records.Row], columns: Columns
) -> pd.DataFrame:
    """A row per record with our names for its fields.

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
    prompts = flat.get("prompt", flat.index * 0)
    return frame.assign(id=[*map(str, first_rows(map(repr, prompts), models))])


def _unfold_object(path: Path, flat: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """The records that lie inside one object: under a name that all paths begin with,
    or as lists side by side.
    """
    for name, value in flat.iloc[0].items():
        if isinstance(value, list) and all(
            theirs.startswith(f"{name}.") for theirs in columns.values()
        ):
            return pd.json_normalize(value).add_prefix(f"{name}.")
    flat = flat[
        [theirs for theirs in dict.fromkeys(columns.values()) if theirs in flat]
    ]
    lists = [theirs for theirs in flat if isinstance(flat[theirs][0], list)]
    if not lists or columns.get("id", lists[0]) not in lists:
        return flat
    try:
        return flat.explode(lists, ignore_index=True)
    except ValueError:
        raise DataError(
            f"{path}: the lists {short(lists)} differ in length; the file may be cut off"
        ) from None


def _expand_answers(path: Path, frame: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """A row per answer from a row per answer, per pair or per prompt."""
    if "score" in frame:
        return frame.assign(score=frame["score"].map(flatten)).explode("score")
    if "scores" in frame:
        scores = frame["scores"].map(flatten)
        field = "num_correct" if "num_correct" in frame else "scores"
        n_chosen = pd.to_numeric(
            frame.get("num_correct", scores.map(lambda _: 1)).astype("str"),
            errors="coerce",
        )
        wrong = ~((n_chosen > 0) & (n_chosen < scores.map(len)) & (n_chosen % 1 == 0))
        allowed = (
            "at least 1 and less than there are scores (the chosen answers come first)"
        )
        refuse_rows(path, frame[field].rename(columns[field]), wrong, allowed)
        counted_scores = [*zip(scores, n_chosen.astype(int), strict=True)]
        frame = frame.assign(chosen_score=[values[:n] for values, n in counted_scores])
        frame = frame.assign(
            rejected_score=[values[n:] for values, n in counted_scores]
        )
    shared = frame.drop(
        columns=["scores", "num_correct", "chosen_score", "rejected_score"],
        errors="ignore",
    )
    sides = [
        shared.assign(label=label, score=frame[f"{label}_score"].map(flatten))
        for label in tables.LABELS
    ]
    answers = pd.concat(sides).explode("score").sort_index(kind="stable")
    slot = answers.groupby([answers.index, "label"]).cumcount()
    return answers.assign(slot=slot).reset_index(drop=True)


def _fill_names(path: Path, frame: pd.DataFrame, model: str | None) -> pd.DataFrame:
    """With the columns that a file about one model and one data set leaves out: both
    are named after the file.
    """
    frame = frame.assign(
        **{name: path.stem for name in ("model", "benchmark") if name not in frame}
    )
    frame = frame if model is None else frame.assign(model=model)
    if "domain" not in frame:
        frame = frame.assign(
            domain=frame["subset" if "subset" in frame else "benchmark"]
        )
    if "slot" not in frame and "label" in frame:
        key = frame[["model", *tables.PROMPT, "label"]].astype("str")
        frame = frame.assign(slot=key.groupby([*key]).cumcount())
    return frame
