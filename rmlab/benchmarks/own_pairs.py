"""Preference pairs of one's own to a responses table: frames, files and hub datasets in
the usual layouts.
"""

import logging
import re
from dataclasses import replace
from functools import cache
from itertools import chain
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks import hub
from rmlab.benchmarks.layouts import SCORES, Columns, Matched, name_column, read_layout
from rmlab.benchmarks.registry import looks_like
from rmlab.benchmarks.rows import (
    Answer,
    Record,
    first_rows,
    list_answers,
    name_family,
    parse_messages,
    split_prompt,
)
from rmlab.tables import DataError
from rmlab.text import short

_log = logging.getLogger(__name__)

_RESERVED = {
    *SCORES,
    "scores",
    "family",
    *tables.RESPONSES,
    *tables.SCORES,
    *tables.PAIRS,
    *tables.LABELS,
    "is_split",
}
_LONGEST_EXTRA = (
    200  # characters: a longer cell is a text, and texts stay in prompt and response
)


def load_pairs(
    source: pd.DataFrame | str | PathLike[str],
    *,
    name: str | None = None,
    columns: Columns | None = None,
    winner: str | None = None,
    split: str | None = None,
    revision: str | None = None,
) -> pd.DataFrame:
    """Load preference pairs as a responses table.

    One row of the source is one prompt with its better and worse answers:

    - `chosen` and `rejected`: a string, a list of strings (several answers), or a
      conversation as a list of messages that ends with the answer;
    - the prompt: `prompt`, `question`, `input`, `messages` or `instruction`, a string
      or messages. Where chosen and rejected repeat the prompt (conversations, "Human:
      ... Assistant: ..." or ChatML transcripts, or the plain text) it is split off;
    - optional: `id` (default: the row's number), `domain` (default: the subset, or else
      `name`), `subset`, `benchmark` (default: `name`), `family` (what stands or falls
      together; see Notes), and with scores `model`: rows of several models that say the
      same are one pair.

    Further columns of short texts or numbers, such as a source, stay as extra columns.

    Parameters
    ----------
    source : DataFrame, str or Path
        A DataFrame, a JSON, JSON-lines, CSV or Parquet file, or a hub dataset
        "owner/name".
    name : str, optional
        Name of the benchmark (default: the file's name).
    columns : mapping, optional
        The names above to the names in the data, for example `{"chosen": "better",
        "rejected": ["worse_1", "worse_2"]}`. None as a value ignores a column. Of
        several columns an empty cell means one answer fewer.
    winner : str, optional
        The column of side-by-side data that says which of two answers won: a or b, 1 or
        2, `A>B` or `B>A`, the name of an answer's column, or a tie; in a column
        `label`, 1 or 0 says whether the first answer is better. The answers are
        `response_a` and `response_b`, or the columns that `columns` gives for "a" and
        "b". Ties and rows without a winner are left out, counted in
        `attrs["understood"]["without_winner"]` and named in a warning.
    split, revision : str, optional
        Part and version of a hub dataset.

    Returns
    -------
    DataFrame
        One row per answer. Styles are missing: RM-Bench's own files need `load`.
        `attrs["understood"]` says which columns were read as what, and which ignored.

    Raises
    ------
    DataError
        If a column is missing or a row cannot be read, for example because its answers
        have different prompts.

    Notes
    -----
    Where prompts repeat, the column `family` is the same for equal prompts. It is the
    default cluster of intervals, and `n_prompts` counts families. Exact copies of rows
    are counted too, both once on the screen and in `attrs["understood"]`.

    Examples
    --------
    >>> pairs = pd.DataFrame({"question": ["2 + 2?"], "chosen": ["4"], "rejected": [["5", "22"]]})
    >>> load_pairs(pairs, name="sums")[["id", "label", "slot", "prompt", "response"]]
      id     label  slot  prompt response
    0  0    chosen     0  2 + 2?        4
    1  0  rejected     0  2 + 2?        5
    2  0  rejected     1  2 + 2?       22
    """
    place = (
        Path("frame")
        if isinstance(source, pd.DataFrame)
        else records.expand_path(source)
    )
    benchmark = place.stem if name is None else name
    tables.require_text("name", benchmark)
    mapping = {**(columns or {})} | ({} if winner is None else {"winner": winner})
    records_read = _read_rows(source, place, split, revision)
    names = _column_names(records_read)
    rows, matched, left_out = read_layout(place, records_read, mapping)
    for like in looks_like(place, records_read[0].row):
        _warn_once(
            f"{place}: may be a file of {like.title}; load({like.name!r}, path=...) knows its rules"
        )
    if missing := [
        label
        for label in tables.LABELS
        if not any(label in record.row for record in rows)
    ]:
        remedy = f"{name_column(missing[0])}, or winner='<column>' (--winner) for two answers side by side"
        raise DataError(
            f"{place}: no column for {' and '.join(missing)}; found: {short(names, 400)}; pass {remedy}"
        )
    extra = _extra_columns(rows, names, matched)
    answers = _list_rows(place, rows, benchmark, matched, extra)
    repeats = _note_repeats(place, rows, answers)
    answers = answers.drop(columns="model").drop_duplicates([*tables.KEY, "response"])
    responses = tables.check_responses(answers)
    understood: dict[str, object] = {
        "columns": {ours: theirs for ours, theirs in matched.items() if theirs}
    }
    if left_out:
        understood["without_winner"] = left_out
    used = {*extra, *chain(*matched.values())}
    ignored = [column for column in names if column not in used]
    responses.attrs["understood"] = (
        understood | {"extra": extra, "ignored": ignored} | repeats
    )
    return responses


def load_scores(
    place: Path, columns: Columns, model: str | None = None
) -> pd.DataFrame:
    """Scores of a file of pairs, under the ids that `load_pairs` gives the same file;
    not checked yet.

    Benchmark and model are called after the file, where neither a column nor `model`
    says otherwise.

    A file without texts, only ids and scores, is read as well.
    """
    records_read = _read_rows(place, place, None, None)
    names = _column_names(records_read)
    rows, matched, _ = read_layout(place, records_read, columns)
    if not all({*SCORES} <= record.row.keys() for record in rows):
        problem = f"no column for chosen_score and rejected_score; columns: {short(names, 200)}"
        remedy = f"Pass {name_column('chosen_score')}, or score the texts: rmlab score {place} MODEL"
        raise DataError(f"{place}: {problem}. {remedy}.")
    comma = "," if records.has_decimal_commas(place) else "."
    scores = [
        {
            label: _list_scores(record, f"{label}_score", comma)
            for label in tables.LABELS
        }
        for record in rows
    ]
    if not {*tables.LABELS} <= rows[0].row.keys():
        texts = [
            {label: ["?"] * len(values) for label, values in by_label.items()}
            for by_label in scores
        ]
        if not matched["prompt"]:
            matched["prompt"] = ["prompt"]
            rows = [
                replace(record, row=record.row | {"prompt": f"row {record.number}"})
                for record in rows
            ]
        rows = [
            replace(record, row=record.row | row)
            for record, row in zip(rows, texts, strict=True)
        ]
    extra = _extra_columns(rows, names, matched)
    answers = _list_rows(place, rows, place.stem, matched, extra)
    values = [
        value
        for by_label in scores
        for label in tables.LABELS
        for value in by_label[label]
    ]
    if len(values) != len(answers):
        raise DataError(
            f"{place}: {len(values)} scores for {len(answers)} answers; give each answer one score"
        )
    _note_repeats(place, rows, answers)
    models = answers["model"].fillna(place.stem) if model is None else model
    return answers.drop(columns=["prompt", "response"]).assign(
        model=models, score=values
    )


def _list_scores(record: Record, column: str, comma: str) -> list[float]:
    """The scores of one label, NaN where a cell is empty."""
    cells = flatten(record.row[column])
    try:
        return [
            float("nan") if cell in (None, "") else float(str(cell).replace(comma, "."))
            for cell in cells
        ]
    except ValueError:
        record.refuse(column, "a number (0.5, not 0,5)")


def flatten(value: object) -> list[object]:
    """Scores without the lists around them."""
    scores = []
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending += reversed(part)
        else:
            scores.append(part)
    return scores


def _list_rows(
    place: Path, rows: list[Record], benchmark: str, columns: Matched, extra: list[str]
) -> pd.DataFrame:
    """Answers of rows with `chosen` and `rejected`, and the model that scored them; not
    checked yet.
    """
    names = _name_rows(rows, columns)
    lists = [
        _list_row(record, name, columns, extra)
        for record, name in zip(rows, names, strict=True)
    ]
    frame = pd.DataFrame([*chain(*lists)])
    frame["benchmark"] = frame["benchmark"].fillna(benchmark)
    frame["domain"] = frame["domain"].fillna(frame["subset"]).fillna(frame["benchmark"])
    frame["subset"] = frame["subset"].fillna(frame["domain"])
    if not frame.pop("is_split").any():
        frame["response"] = _strip_prompts(
            frame["prompt"].tolist(), frame["response"].tolist()
        )

    repeated = frame.loc[frame.duplicated(["model", *tables.KEY]), "id"].tolist()
    if repeated:
        problem = f"'id' {short(repeated[0])} occurs twice in a domain"
        remedy = name_column("family", columns["id"][0])
        raise DataError(
            f"{place}: {problem}. Repair the ids, or take them for families of prompts: {remedy}"
        )

    n_prompts = len(frame.drop_duplicates(tables.PROMPT))
    if not columns["family"] and frame["family"].nunique() >= n_prompts:
        return frame.drop(columns="family")
    return frame


def _name_rows(rows: list[Record], columns: Matched) -> list[str]:
    """The id of every row: what its column says, or its number.

    Rows in which several models scored the same answers have the number of the first of
    them.
    """
    if columns["id"]:
        return [record.read_id(columns["id"][0]) for record in rows]
    if not columns["model"]:
        return [str(record.number) for record in rows]
    shared = [
        *columns["benchmark"],
        *columns["domain"],
        *columns["prompt"],
        *tables.LABELS,
    ]
    contents = [repr([record.row.get(name) for name in shared]) for record in rows]
    models = [record.read_name(columns["model"][0]) for record in rows]
    return [str(rows[row].number) for row in first_rows(contents, models)]


def _note_repeats(
    place: Path, rows: list[Record], answers: pd.DataFrame
) -> dict[str, object]:
    """Say how many rows repeat a prompt, and how many are exact copies; empty where
    none does.
    """
    if "family" not in answers:
        return {}
    n_prompts = len(answers.drop_duplicates(tables.PROMPT))
    n_families = answers["family"].nunique()
    contents = pd.Series([repr(record.row) for record in rows])
    is_copy = contents.duplicated()
    message = f"{place}: {n_prompts} prompts are {n_families} families, which intervals and n_prompts count"
    if is_copy.any():
        first = rows[int(is_copy.argmax())].number
        message = f"{message}; {is_copy.sum()} rows are exact copies of others, first row {first}"
    _warn_once(message)
    return {"families": n_families, "copies": int(is_copy.sum())}


@cache
def _warn_once(message: str) -> None:
    """Log a warning; a report reads the same file for its scores and for its texts."""
    _log.warning(message)


def _read_rows(
    source: pd.DataFrame | str | PathLike[str],
    place: Path,
    split: str | None,
    revision: str | None,
) -> list[Record]:
    """The rows of a frame, a file or a hub dataset."""
    if isinstance(source, pd.DataFrame):
        rows = [
            {str(name): _strip_numpy(cell) for name, cell in row.items()}
            for row in source.to_dict("records")
        ]
        for number, row in enumerate(rows):
            tables.require_text(f"frame: row {number}", row)
    else:
        is_file = place.exists() or place.suffix.lower() in records.SUFFIXES
        is_dataset = not is_file and re.fullmatch(r"[\w.-]+/[\w.-]+", str(source))
        files = hub.fetch_pairs(str(source), split, revision) if is_dataset else [place]
        rows = [row for file in files for row in records.read_rows(file)]
    if not rows:
        raise DataError("load_pairs: the frame has no rows")
    return [Record(place, number, row) for number, row in enumerate(rows)]


def _strip_numpy(cell: object) -> object:
    """A cell without NumPy around it, as frames hold it; None where it is missing."""
    if isinstance(cell, np.ndarray | np.generic):
        cell = cell.tolist()
    if isinstance(cell, list | tuple):
        return [_strip_numpy(part) for part in cell]
    return None if cell is pd.NA or cell is pd.NaT or cell != cell else cell


def _column_names(rows: list[Record]) -> list[str]:
    return list(dict.fromkeys(name for record in rows for name in record.row))


def _extra_columns(rows: list[Record], names: list[str], matched: Matched) -> list[str]:
    """Columns that nothing is read from, of short texts or numbers."""
    unused = set(names).difference(*matched.values(), _RESERVED)
    return [column for column in names if column in unused and _is_extra(column, rows)]


def _is_extra(column: str, rows: list[Record]) -> bool:
    cells = (record.row.get(column) for record in rows)
    return not any(
        isinstance(cell, list | dict) or len(str(cell)) > _LONGEST_EXTRA
        for cell in cells
    )


def _list_row(
    record: Record, name: str, columns: Matched, extra: list[str]
) -> list[records.Row]:
    """The answers of one prompt. `is_split`: the prompt was split off them."""
    chosen, rejected = (
        _list_answers(record, label, (columns.get(label) or [label])[0])
        for label in tables.LABELS
    )
    column = {ours: theirs[0] if theirs else None for ours, theirs in columns.items()}
    prompt_column = column["prompt"] or "prompt"
    prompt = (
        None
        if record.row.get(prompt_column) is None
        else record.read_prompt(prompt_column)
    )
    parts = split_prompt(chosen + rejected, has_prompt=prompt is not None)
    if parts is None:
        record.refuse(
            "rejected",
            "conversations with one prompt, each ending with an answer of the role 'assistant'",
        )
    split_off, texts = parts
    if prompt is None and split_off is None:
        remedy = (
            "fill it in"
            if prompt_column in record.row
            else f"name its column: {name_column('prompt')}"
        )
        record.refuse(prompt_column, "given, or begin the answers", remedy)
    prompt = prompt if split_off is None else split_off
    assert prompt is not None
    shared = {column_name: record.row.get(column_name) for column_name in extra} | {
        "model": record.read_name(column["model"]),
        "benchmark": record.read_name(column["benchmark"]),
        "id": name,
        "domain": record.read_name(column["domain"]),
        "subset": record.read_name(column["subset"]),
        "family": record.read_name(column["family"]) or name_family(prompt),
        "prompt": prompt,
        "is_split": split_off is not None,
    }
    return list_answers(
        shared, {"chosen": texts[: len(chosen)], "rejected": texts[len(chosen) :]}
    )


def _list_answers(record: Record, label: str, column: str) -> list[Answer]:
    """The answers of one label; `column` is the file's name for it, for messages."""
    cell = record.row.get(label)
    parts = cell if isinstance(cell, list) and not parse_messages(cell) else [cell]
    answers = [
        part if isinstance(part, str) else parse_messages(part)
        for part in parts or [None]
    ]
    filled = [answer for answer in answers if answer]
    if len(filled) < len(answers):
        allowed = "a non-empty string, a list of {'role': ..., 'content': ...} messages, or a list of these"
        record.refuse(column, allowed, "fill in the text")
    return filled


def _strip_prompts(prompts: list[object], texts: list[str]) -> list[str]:
    """Cut the prompt off the answers if every answer of every row begins with it."""
    endings = [
        text.removeprefix(prompt).lstrip()
        for prompt, text in zip(prompts, texts, strict=True)
        if isinstance(prompt, str) and prompt.strip() and text.startswith(prompt)
    ]
    return endings if len(endings) == len(texts) and all(endings) else texts
