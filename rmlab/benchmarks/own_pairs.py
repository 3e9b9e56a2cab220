"""Custom preference pairs to a responses table: frames, files and hub datasets."""

import logging
import math
import re
from functools import cache
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks import hub
from rmlab.benchmarks.own_columns import (
    SCORES_OF_LABELS,
    Matched,
    OwnColumns,
    column_names,
    match_columns,
    name_column,
)
from rmlab.benchmarks.registry import looks_like
from rmlab.benchmarks.rows import (
    FileRow,
    RawAnswer,
    first_rows,
    list_answers,
    name_family,
    parse_messages,
    split_prompt,
)
from rmlab.tables import LABELS, DataError
from rmlab.text import short

_log = logging.getLogger(__name__)

_RESERVED = {
    *SCORES_OF_LABELS,
    "scores",
    "family",
    *tables.RESPONSES,
    *tables.SCORES,
    *tables.PAIRS,
    *LABELS,
    "is_split",
}
# Characters; a longer cell is a text, and texts stay in prompt and response.
_LONGEST_EXTRA = 200


def load_preferences(
    source: pd.DataFrame | str | PathLike[str],
    *,
    name: str | None = None,
    columns: OwnColumns | None = None,
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
      `name`), `subset`, `benchmark` (default: `name`), `family` (the cluster; see
      Notes), and with scores `model`: rows of several models that say the same are one
      pair.

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
    >>> row = {"question": "2 + 2?", "chosen": "4", "rejected": ["5", "22"]}
    >>> responses = load_preferences(pd.DataFrame([row]), name="sums")
    >>> responses[["id", "label", "slot", "prompt", "response"]]
      id     label  slot  prompt response
    0  0    chosen     0  2 + 2?        4
    1  0  rejected     0  2 + 2?        5
    2  0  rejected     1  2 + 2?       22
    """
    place = Path("frame")
    if not isinstance(source, pd.DataFrame):
        place = records.expand_path(source)
    benchmark = place.stem if name is None else name
    tables.require_text("name", benchmark)
    mapping = dict(columns or {})
    if winner is not None:
        mapping["winner"] = winner

    source_rows = _read_rows(source, place, split, revision)
    names = column_names(source_rows)
    pairs = match_columns(place, source_rows, mapping)
    for like in looks_like(place, source_rows[0].cells):
        message = f"{place}: may be a file of {like.title}"
        _warn_once(f"{message}; load({like.name!r}, path=...) knows its rules")
    _require_labels(place, pairs.rows, names)

    extra = _extra_columns(pairs.rows, names, pairs.columns)
    answers = _list_rows(place, pairs.rows, benchmark, pairs.columns, extra)
    repeats = _note_repeats(place, pairs.rows, answers)
    answers = answers.drop(columns="model").drop_duplicates([*tables.KEY, "response"])
    responses = tables.check_responses(answers)

    matched = {ours: theirs for ours, theirs in pairs.columns.items() if theirs}
    understood: dict[str, object] = {"columns": matched}
    if pairs.without_winner:
        understood["without_winner"] = pairs.without_winner
    used = set(extra).union(*matched.values())
    understood["extra"] = extra
    understood["ignored"] = [column for column in names if column not in used]
    understood |= repeats
    responses.attrs["understood"] = understood
    return responses


def _require_labels(place: Path, rows: list[FileRow], names: list[str]) -> None:
    """Raise DataError where no row has a chosen, or no row a rejected answer."""
    present = set(column_names(rows))
    missing = [label for label in LABELS if label not in present]
    if missing:
        problem = f"{place}: no column for {' and '.join(missing)}"
        side_by_side = "winner='<column>' (--winner) for two answers side by side"
        remedy = f"pass {name_column(missing[0])}, or {side_by_side}"
        raise DataError(f"{problem}; found: {short(names, 400)}", remedy)


def load_scores(
    place: Path, columns: OwnColumns, model: str | None = None
) -> pd.DataFrame:
    """Scores of a file of pairs, under the ids that `load_preferences` gives the same
    file; not checked yet.

    Benchmark and model are called after the file, where neither a column nor `model`
    says otherwise.

    A file without texts, only ids and scores, is read as well.
    """
    source_rows = _read_rows(place, place, None, None)
    names = column_names(source_rows)
    pairs = match_columns(place, source_rows, columns)
    rows = pairs.rows
    if not all(set(SCORES_OF_LABELS) <= row.cells.keys() for row in rows):
        problem = f"{place}: no column for chosen_score and rejected_score"
        column = name_column("chosen_score")
        remedy = f"pass {column}, or score the texts: rmlab score {place} MODEL"
        raise DataError(f"{problem}; columns: {short(names, 200)}", remedy)

    scores = _list_scores(rows, "," if records.has_decimal_commas(place) else ".")
    if not set(LABELS) <= rows[0].cells.keys():
        has_prompts = bool(pairs.columns["prompt"])
        rows = _invent_texts(rows, scores, has_prompts=has_prompts)
        if not has_prompts:
            pairs.columns["prompt"] = ["prompt"]
    extra = _extra_columns(rows, names, pairs.columns)
    answers = _list_rows(place, rows, place.stem, pairs.columns, extra)
    values: list[float] = []
    for of_row in scores:
        values += of_row.chosen
        values += of_row.rejected
    if len(values) != len(answers):
        problem = f"{place}: {len(values)} scores for {len(answers)} answers"
        raise DataError(problem, "give each answer one score")

    _note_repeats(place, rows, answers)
    scored = answers.drop(columns=["prompt", "response"])
    if model is None:
        scored["model"] = scored["model"].fillna(place.stem)
    else:
        scored["model"] = model
    scored["score"] = values
    return scored


class _RowScores(NamedTuple):
    """The scores of a row's answers, NaN where a cell is empty."""

    chosen: list[float]
    rejected: list[float]


def _list_scores(rows: list[FileRow], comma: str) -> list[_RowScores]:
    scores = []
    for row in rows:
        chosen = _read_scores(row, "chosen_score", comma)
        rejected = _read_scores(row, "rejected_score", comma)
        scores.append(_RowScores(chosen, rejected))
    return scores


def _read_scores(row: FileRow, column: str, comma: str) -> list[float]:
    scores = []
    for cell in flatten(row.cells[column]):
        if cell in (None, ""):
            scores.append(math.nan)
            continue
        try:
            scores.append(float(str(cell).replace(comma, ".")))
        except ValueError:
            row.refuse(column, "a number (0.5, not 0,5)")
    return scores


def _invent_texts(
    rows: list[FileRow], scores: list[_RowScores], *, has_prompts: bool
) -> list[FileRow]:
    """The rows of a file without texts, with a text for every score."""
    filled = []
    for row, of_row in zip(rows, scores, strict=True):
        cells: records.Row = {
            "chosen": ["?"] * len(of_row.chosen),
            "rejected": ["?"] * len(of_row.rejected),
        }
        if not has_prompts:
            cells["prompt"] = f"row {row.number}"
        filled.append(row.fill(cells))
    return filled


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
    place: Path, rows: list[FileRow], benchmark: str, columns: Matched, extra: list[str]
) -> pd.DataFrame:
    """Answers of rows with `chosen` and `rejected`, and the model that scored them; not
    checked yet.
    """
    answers: list[records.Row] = []
    for row, name in zip(rows, _name_rows(rows, columns), strict=True):
        answers += _list_row(row, name, columns, extra)
    frame = pd.DataFrame(answers)
    frame["benchmark"] = frame["benchmark"].fillna(benchmark)
    frame["domain"] = frame["domain"].fillna(frame["subset"]).fillna(frame["benchmark"])
    frame["subset"] = frame["subset"].fillna(frame["domain"])
    if not frame.pop("is_split").any():
        texts = frame["response"].tolist()
        frame["response"] = _strip_prompts(frame["prompt"].tolist(), texts)

    repeated = frame.loc[frame.duplicated(["model", *tables.KEY]), "id"].tolist()
    if repeated:
        problem = f"{place}: 'id' {short(repeated[0])} occurs twice in a domain"
        family = name_column("family", columns["id"][0])
        remedy = f"repair the ids, or take them for families of prompts: {family}"
        raise DataError(problem, remedy)

    n_prompts = len(frame.drop_duplicates(tables.PROMPT))
    if not columns["family"] and frame["family"].nunique() >= n_prompts:
        return frame.drop(columns="family")
    return frame


def _name_rows(rows: list[FileRow], columns: Matched) -> list[str]:
    """The id of every row: the cell of its column, or its number.

    Rows in which several models scored the same answers have the number of the first of
    them.
    """
    if columns["id"]:
        return [row.read_id(columns["id"][0]) for row in rows]
    if not columns["model"]:
        return [str(row.number) for row in rows]
    shared = [
        *columns["benchmark"],
        *columns["domain"],
        *columns["prompt"],
        *LABELS,
    ]
    contents = []
    models = []
    for row in rows:
        contents.append(repr([row.cells.get(name) for name in shared]))
        models.append(row.read_name(columns["model"][0]))
    return [str(rows[place].number) for place in first_rows(contents, models)]


def _note_repeats(
    place: Path, rows: list[FileRow], answers: pd.DataFrame
) -> dict[str, object]:
    """Say how many rows repeat a prompt, and how many are exact copies; empty where
    none does.
    """
    if "family" not in answers:
        return {}
    n_prompts = len(answers.drop_duplicates(tables.PROMPT))
    n_families = answers["family"].nunique()
    counts = f"{n_prompts} prompts are {n_families} families"
    message = f"{place}: {counts}, which intervals and n_prompts count"

    contents = pd.Series([repr(row.cells) for row in rows])
    is_copy = contents.duplicated()
    n_copies = int(is_copy.sum())
    if n_copies:
        first = rows[int(is_copy.argmax())].number
        copies = f"{n_copies} rows are exact copies of others"
        message = f"{message}; {copies}, first row {first}"
    _warn_once(message)
    return {"families": n_families, "copies": n_copies}


@cache
def _warn_once(message: str) -> None:
    """Log a warning; a report reads the same file for its scores and for its texts."""
    _log.warning(message)


def _read_rows(
    source: pd.DataFrame | str | PathLike[str],
    place: Path,
    split: str | None,
    revision: str | None,
) -> list[FileRow]:
    """The rows of a frame, a file or a hub dataset."""
    if isinstance(source, pd.DataFrame):
        rows = _frame_rows(source)
    else:
        is_file = place.exists() or place.suffix.lower() in records.SUFFIXES
        files = [place]
        if not is_file and re.fullmatch(r"[\w.-]+/[\w.-]+", str(source)):
            files = hub.fetch_pairs(str(source), split, revision)
        rows = []
        for file in files:
            rows += records.read_rows(file)
    if not rows:
        raise DataError(
            "load_preferences: the frame has no rows", "pass a frame with rows"
        )
    return [FileRow(place, number, cells) for number, cells in enumerate(rows)]


def _frame_rows(frame: pd.DataFrame) -> list[records.Row]:
    rows = []
    for cells in frame.to_dict("records"):
        rows.append({str(name): _strip_numpy(cell) for name, cell in cells.items()})
    for number, row in enumerate(rows):
        tables.require_text(f"frame: row {number}", row)
    return rows


def _strip_numpy(cell: object) -> object:
    """A cell without NumPy around it, as frames hold it; None where it is missing."""
    if isinstance(cell, np.ndarray | np.generic):
        cell = cell.tolist()
    if isinstance(cell, list | tuple):
        return [_strip_numpy(part) for part in cell]
    if cell is pd.NA or cell is pd.NaT or cell != cell:
        return None
    return cell


def _extra_columns(
    rows: list[FileRow], names: list[str], matched: Matched
) -> list[str]:
    """Columns that nothing is read from, of short texts or numbers."""
    unused = set(names).difference(*matched.values(), _RESERVED)
    return [column for column in names if column in unused and _is_extra(column, rows)]


def _is_extra(column: str, rows: list[FileRow]) -> bool:
    for row in rows:
        cell = row.cells.get(column)
        if isinstance(cell, list | dict) or len(str(cell)) > _LONGEST_EXTRA:
            return False
    return True


def _list_row(
    row: FileRow, name: str, columns: Matched, extra: list[str]
) -> list[records.Row]:
    """The answers of one prompt. `is_split`: the prompt was split off them."""
    chosen = _read_answers(row, "chosen", columns)
    rejected = _read_answers(row, "rejected", columns)
    prompt_column = _first_column(columns, "prompt") or "prompt"
    prompt = None
    if row.cells.get(prompt_column) is not None:
        prompt = row.read_prompt(prompt_column)

    answers = split_prompt(chosen + rejected, has_prompt=prompt is not None)
    if answers is None:
        endings = "each ending with an answer of the role 'assistant'"
        row.refuse("rejected", f"conversations with one prompt, {endings}")
    is_split = answers.prompt is not None
    if is_split:
        prompt = answers.prompt
    if prompt is None:
        remedy = f"name its column: {name_column('prompt')}"
        if prompt_column in row.cells:
            remedy = "fill it in"
        row.refuse(prompt_column, "given, or begin the answers", remedy)

    shared: records.Row = {column: row.cells.get(column) for column in extra}
    for ours in ("model", "benchmark", "domain", "subset", "family"):
        shared[ours] = row.read_name(_first_column(columns, ours))
    shared["id"] = name
    shared["family"] = shared["family"] or name_family(prompt)
    shared["prompt"] = prompt
    shared["is_split"] = is_split
    texts = {
        "chosen": answers.texts[: len(chosen)],
        "rejected": answers.texts[len(chosen) :],
    }
    return list_answers(shared, texts)


def _first_column(columns: Matched, ours: str) -> str | None:
    return columns[ours][0] if columns[ours] else None


def _read_answers(row: FileRow, label: str, columns: Matched) -> list[RawAnswer]:
    """The answers of one label; a message names the file's own column."""
    cell = row.cells.get(label)
    parts: list[object] = [cell]
    if isinstance(cell, list) and cell and not parse_messages(cell):
        parts = cell
    answers: list[RawAnswer] = []
    for part in parts:
        answer = part if isinstance(part, str) else parse_messages(part)
        if not answer:
            column = (columns.get(label) or [label])[0]
            messages = "a list of {'role': ..., 'content': ...} messages"
            allowed = f"a non-empty string, {messages}, or a list of these"
            row.refuse(column, allowed, "fill in the text")
        answers.append(answer)
    return answers


def _strip_prompts(prompts: list[object], texts: list[str]) -> list[str]:
    """Cut the prompt off the answers if every answer of every row begins with it."""
    endings = []
    for prompt, text in zip(prompts, texts, strict=True):
        if not isinstance(prompt, str) or not prompt.strip():
            return texts
        ending = text.removeprefix(prompt).lstrip()
        if not text.startswith(prompt) or not ending:
            return texts
        endings.append(ending)
    return endings
