"""Preference pairs of one's own to a responses table: frames, files and hub datasets in the usual layouts."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks import hub
from rmlab.benchmarks.layouts import LAYOUT_NAMES, usual_rows
from rmlab.benchmarks.rows import Answer, Record, list_answers, parse_messages, split_prompt
from rmlab.benchmarks.winners import SIDES, choose_sides
from rmlab.tables import DataError, nearest
from rmlab.text import short

_USUAL = {
    "prompt": ("prompt", "question", "input", "messages", "instruction"),
    "id": ("id", "item_id", "prompt_id"),
    "domain": ("domain", "subset", "category"),
    "subset": ("subset",),
}
_LABELS = {label: (label,) for label in tables.LABELS}
_GROUPS = ("id", "item_id", "prompt_id", "prompt", "question", "input", "instruction")
SCORES = ("chosen_score", "rejected_score")
_RESERVED = {*SCORES, "scores", *tables.RESPONSES, *tables.SCORES, *tables.PAIRS, *tables.LABELS, "is_split"}
_LONGEST_EXTRA = 200  # characters: a longer cell is a text, and texts stay in prompt and response

Columns = Mapping[str, str | Sequence[str] | None]


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

    - `chosen` and `rejected`: a string, a list of strings (several answers), or a conversation as a list of messages
      that ends with the answer;
    - the prompt: `prompt`, `question`, `input`, `messages` or `instruction`, a string or messages. Where chosen and
      rejected repeat the prompt (conversations, "Human: ... Assistant: ..." or ChatML transcripts, or the plain text)
      it is split off;
    - optional: `id` (default: the row's number), `domain` (default: the subset, or else `name`) and `subset`.

    Further columns of short texts or numbers, such as a source, stay as extra columns.

    Parameters
    ----------
    source : DataFrame, str or Path
        A DataFrame, a JSON, JSON-lines, CSV or Parquet file, or a hub dataset "owner/name".
    name : str, optional
        Name of the benchmark (default: the file's name).
    columns : mapping, optional
        The names above to the names in the data, for example `{"chosen": "better", "rejected": ["worse_1",
        "worse_2"]}`. None as a value ignores a column. Of several columns an empty cell means one answer fewer.
    winner : str, optional
        The column of side-by-side data that says which of two answers won: a or b, 1 or 2, `A>B` or `B>A`, the name of
        an answer's column, or a tie; in a column `label`, 1 or 0 says whether the first answer is better. The answers
        are `response_a` and `response_b`, or the columns that `columns` gives for "a" and "b". Ties and rows without a
        winner are left out, counted in `attrs["understood"]["without_winner"]` and named in a warning.
    split, revision : str, optional
        Part and version of a hub dataset.

    Returns
    -------
    DataFrame
        One row per answer. Styles are missing: RM-Bench's own files need `load`. `attrs["understood"]` says
        which columns were read as what, and which ignored.

    Raises
    ------
    DataError
        If a column is missing or a row cannot be read, for example because its answers have different prompts.

    Examples
    --------
    >>> pairs = pd.DataFrame({"question": ["2 + 2?"], "chosen": ["4"], "rejected": [["5", "22"]]})
    >>> load_pairs(pairs, name="sums")[["id", "label", "slot", "prompt", "response"]]
      id     label  slot  prompt response
    0  0    chosen     0  2 + 2?        4
    1  0  rejected     0  2 + 2?        5
    2  0  rejected     1  2 + 2?       22
    """
    place = Path("frame") if isinstance(source, pd.DataFrame) else Path(source).expanduser()
    benchmark = place.stem if name is None else name
    tables.require_text("name", benchmark)
    rows = _read_rows(source, place, split, revision)
    return _load(place, rows, benchmark, columns or {}, winner)


def load_scores(source: pd.DataFrame | Path, name: str, columns: Columns) -> pd.DataFrame:
    """Scores of a file of pairs, under the ids that `load_pairs` gives the same file; not checked yet, no model.

    A file without texts, only ids and scores, is read as well.
    """
    place = Path("frame") if isinstance(source, pd.DataFrame) else source
    rows, _ = usual_rows(place, _read_rows(source, place, None, None), columns, _GROUPS)
    if not all({*SCORES} <= record.row.keys() for record in rows):
        names = list(dict.fromkeys(name for record in rows for name in record.row))
        if {*tables.LABELS} <= {*names}:
            raise DataError(f"{place}: pairs without scores. Score them: rmlab score {place} MODEL")
        raise DataError(
            f"{place}: no column for chosen_score and rejected_score; columns: {short(names, 200)}. Pass "
            "columns={'chosen_score': '<column>', ...} (in the shell: --column chosen_score=<column>)."
        )
    scores = {label: [_list_scores(record, f"{label}_score") for record in rows] for label in tables.LABELS}
    if not {*tables.LABELS} <= rows[0].row.keys():
        rows = [
            replace(
                record, row=record.row | {"prompt": "?"} | {label: ["?"] * len(scores[label][i]) for label in scores}
            )
            for i, record in enumerate(rows)
        ]
    layout_free = {ours: theirs for ours, theirs in columns.items() if ours not in LAYOUT_NAMES}
    responses = _load(place, rows, name, layout_free, None)
    values = [
        value for record_scores in zip(*scores.values(), strict=True) for label in record_scores for value in label
    ]
    if len(values) != len(responses):
        raise DataError(f"{place}: {len(values)} scores for {len(responses)} answers; give each answer one score")
    return responses.drop(columns=["prompt", "response"]).assign(score=values)


def _list_scores(record: Record, column: str) -> list[float]:
    value = record.row[column]
    scores = [_as_number(part) for part in (value if isinstance(value, list) else [value])]
    if None in scores:
        record.refuse(column, "a number")
    return [float("nan") if score is None else score for score in scores]


def _as_number(value: object) -> float | None:
    """A number, NaN where the cell is empty, None for anything else."""
    try:
        return float("nan") if value in (None, "") else float(str(value))
    except ValueError:
        return None


def _load(place: Path, rows: list[Record], benchmark: str, columns: Columns, winner: str | None) -> pd.DataFrame:
    """Responses of rows that were read."""
    left_out: dict[str, object] = {}
    if winner is None:
        rows, left_out = usual_rows(place, rows, columns, _GROUPS)
        columns = {ours: theirs for ours, theirs in columns.items() if ours not in LAYOUT_NAMES}
    names = list(dict.fromkeys(name for record in rows for name in record.row))
    matched = _match_columns(place, names, columns, winner)
    understood: dict[str, object] = {"columns": {ours: theirs for ours, theirs in matched.items() if theirs}}
    if winner is not None:
        rows, left_out = choose_sides(place, rows, matched)
    if left_out:
        understood["without_winner"] = left_out
    unused = set(names).difference(*matched.values(), _RESERVED)
    understood["extra"] = extra = [column for column in names if column in unused and _is_extra(column, rows)]
    understood["ignored"] = [column for column in names if column not in {*extra, *chain(*matched.values())}]
    frame = pd.DataFrame([answer for record in rows for answer in _list_row(record, matched, extra)])
    frame = frame.assign(benchmark=benchmark, domain=frame["domain"].fillna(frame["subset"]).fillna(benchmark))
    frame["subset"] = frame["subset"].fillna(frame["domain"])
    if not frame.pop("is_split").any():
        frame["response"] = _strip_prompts(frame["prompt"].tolist(), frame["response"].tolist())
    repeated = frame.loc[frame.duplicated(["domain", "id", "label", "slot"]), "id"].tolist()
    if repeated:
        problem = f"'id' {short(repeated[0])} occurs twice in a domain"
        raise DataError(f"{place}: {problem}; repair the ids, or number the rows with columns={{'id': None}}")
    responses = tables.check_responses(frame)
    responses.attrs["understood"] = understood
    return responses


def _read_rows(
    source: pd.DataFrame | str | PathLike[str], place: Path, split: str | None, revision: str | None
) -> list[Record]:
    """The rows of a frame, a file or a hub dataset."""
    if isinstance(source, pd.DataFrame):
        rows = [{str(name): _strip_numpy(cell) for name, cell in row.items()} for row in source.to_dict("records")]
        for number, row in enumerate(rows):
            tables.require_text(f"{place}: row {number}", row)
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


def _match_columns(place: Path, names: list[str], mapping: Columns, winner: str | None) -> dict[str, list[str]]:
    """Our names to the columns of the data that hold them."""
    usual: dict[str, tuple[str, ...]] = _USUAL | (_LABELS if winner is None else {**SIDES, "winner": ()})
    mapping = mapping if winner is None else {**mapping, "winner": winner}
    columns = {ours: [column for column in candidates if column in names][:1] for ours, candidates in usual.items()}
    for ours, theirs in mapping.items():
        if ours not in usual:
            raise DataError(f"columns: unknown name {short(ours)}; {nearest(ours, list(usual))}")
        columns[ours] = [theirs] if isinstance(theirs, str) else [*(theirs or ())]
        if unknown := [column for column in columns[ours] if column not in names]:
            raise DataError(f"{place}: columns[{ours!r}]: no column {short(unknown[0])}; {nearest(unknown[0], names)}")
    if "prompt" not in mapping and columns["prompt"] == ["input"] and "instruction" in names:
        problem = "the prompt may be 'instruction', 'input', or both"
        raise DataError(f"{place}: {problem}; name one with columns={{'prompt': ...}}, or join them in a column first")
    if missing := [ours for ours in (*_LABELS, *SIDES) if ours in usual and not columns[ours]]:
        problem = f"no column for {' and '.join(missing)}; found: {short(names, 400)}"
        remedy = f"columns={{{missing[0]!r}: '<column>'}}, or winner='<column>' for two answers side by side"
        raise DataError(f"{place}: {problem}; say which: {remedy}")
    return columns


def _is_extra(column: str, rows: list[Record]) -> bool:
    cells = (record.row.get(column) for record in rows)
    return not any(isinstance(cell, list | dict) or len(str(cell)) > _LONGEST_EXTRA for cell in cells)


def _list_row(record: Record, columns: dict[str, list[str]], extra: list[str]) -> list[records.Row]:
    """The answers of one prompt. `is_split`: the prompt was split off them."""
    chosen, rejected = (_list_answers(record, columns.get(label, [label])) for label in tables.LABELS)
    column = {ours: theirs[0] if theirs else None for ours, theirs in columns.items()}
    prompt_column = column["prompt"] or "prompt"
    prompt = None if record.row.get(prompt_column) is None else record.read_prompt(prompt_column)
    parts = split_prompt(chosen + rejected, has_prompt=prompt is not None)
    if parts is None:
        allowed = "conversations with one prompt, each ending with an answer of the role 'assistant'"
        record.refuse(column.get("rejected") or "rejected", allowed)
    split_off, texts = parts
    if prompt is None and split_off is None:
        record.refuse(prompt_column, "given, or begin the answers", "name its column: columns={'prompt': ...}")
    shared = {name: record.row.get(name) for name in extra} | {
        "id": record.read_id(column["id"]) if column["id"] else str(record.number),
        "domain": record.read_name(column["domain"]),
        "subset": record.read_name(column["subset"]),
        "prompt": prompt if split_off is None else split_off,
        "is_split": split_off is not None,
    }
    return list_answers(shared, {"chosen": texts[: len(chosen)], "rejected": texts[len(chosen) :]})


def _list_answers(record: Record, columns: list[str]) -> list[Answer]:
    """The answers of one label. Of several columns, an empty one means one answer fewer."""
    answers: list[Answer] = []
    for column in [column for column in columns if record.row.get(column) not in (None, "")] or columns[:1]:
        cell = record.row.get(column)
        parts = cell if isinstance(cell, list) and not parse_messages(cell) else [cell]
        for part in parts or [None]:
            answer = part if isinstance(part, str) else parse_messages(part)
            if not answer:
                allowed = "a non-empty string, a list of {'role': ..., 'content': ...} messages, or a list of these"
                record.refuse(column, allowed, "fill in the text")
            answers.append(answer)
    return answers


def _strip_prompts(prompts: list[object], texts: list[str]) -> list[str]:
    """Cut the prompt off the answers if every answer of every row begins with it."""
    endings = [
        text.removeprefix(prompt).lstrip()
        for prompt, text in zip(prompts, texts, strict=True)
        if isinstance(prompt, str) and prompt.strip() and text.startswith(prompt)
    ]
    return endings if len(endings) == len(texts) and all(endings) else texts
