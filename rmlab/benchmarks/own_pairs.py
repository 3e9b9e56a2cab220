"""Preference pairs of one's own to a responses table: frames, files and hub datasets in the usual layouts."""

import re
from os import PathLike
from pathlib import Path

import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks import hub, winners
from rmlab.benchmarks import rows as checks
from rmlab.benchmarks.registry import known, likeness, looks_like
from rmlab.benchmarks.transcripts import Answer, Asked, common_prompt, strip_prompt
from rmlab.benchmarks.winners import Columns
from rmlab.tables import DataError, nearest

__all__ = ["load_pairs"]

_NAMES: dict[str, tuple[str, ...]] = {
    "prompt": ("prompt", "question", "input", "messages", "instruction"),
    "chosen": ("chosen", "chosen_steps"),
    "rejected": ("rejected", "rejected_steps"),
    "id": ("id", "item_id", "prompt_id"),
    "domain": ("domain", "subset", "category"),
    "subset": ("subset",),
}
_NEEDED = ("chosen", "rejected")


def load_pairs(
    source: pd.DataFrame | str | PathLike[str],
    *,
    name: str | None = None,
    columns: Columns | None = None,
    winner: str | None = None,
    split: str | None = None,
    revision: str | None = None,
) -> pd.DataFrame:
    """Load preference pairs as a responses table: one row per answer text, styles missing.

    `source` is a DataFrame, a JSON, JSON-lines, CSV or Parquet file, or a hub dataset "owner/name" (with `split` and
    `revision`). One row of it is one prompt, with

    - `chosen` and `rejected`: a string, a list of strings (several answers), or a conversation as a list of messages
      that ends with the answer; `chosen_steps` and `rejected_steps` are lists of lines that make up one answer;
    - the prompt: `prompt`, `question`, `input`, `messages` or `instruction`, a string or messages. Where chosen and
      rejected repeat the prompt (conversations, "Human: ... Assistant: ..." or ChatML transcripts, or the plain text)
      the shared prefix is split off. A row whose chosen and rejected answer different prompts raises DataError.
      `instruction` beside `input` is one prompt in two columns: join them first (DataError says how);
    - if there are any: `id` (default: the row's number), `domain` (default: the subset, or else `name`) and `subset`.

    `columns` maps these names to yours, for example `{"chosen": "better", "rejected": ["worse_1", "worse_2"]}`; None
    as a value ignores a column. Where several columns hold the rejected answers, an empty cell means one fewer.
    `winner` names the column of side-by-side data that says which of two answers won: "a", "b" or a tie. The answers
    are `response_a` and `response_b`, or what `columns` calls "a" and "b". Ties and rows without a known winner have no
    right answer; they are left out, counted in `attrs["understood"]["without_winner"]` and said in a warning.
    `name` is the benchmark's name (default: the file's name).
    `attrs["understood"]` says what was read from where, which columns were ignored, what kind of file it looks like
    (three chosen and three rejected answers may be an RM-Bench file, whose styles only `load` knows), and shows the
    first row.

    >>> pairs = pd.DataFrame({"question": ["2 + 2?"], "chosen": ["4"], "rejected": [["5", "22"]]})
    >>> load_pairs(pairs, name="sums")[["id", "label", "slot", "prompt", "response"]]
      id     label  slot  prompt response
    0  0    chosen     0  2 + 2?        4
    1  0  rejected     0  2 + 2?        5
    2  0  rejected     1  2 + 2?       22
    """
    place, rows = _rows(source, split, revision)
    benchmark = name if name is not None else place.stem
    tables.require_text("name", benchmark)
    mapped: Columns = columns or {}
    without: winners.Undecided | None = None
    if winner is None:
        winners.ignored(mapped)
    else:
        rows, mapped, without = winners.by_winner(place, rows, winner, mapped)
    found = _columns(place, rows, mapped)
    prompts = [_prompt(place, number, row, found) for number, row in enumerate(rows)]
    stripped = strip_prompt(prompts)
    _refuse_repeats(place, prompts)
    frame = pd.DataFrame([answer for prompt in prompts for answer in _answers(prompt, benchmark)])
    frame = tables.check_responses(frame)
    frame.attrs["understood"] = _understood(rows, found, prompts, stripped)
    if without is not None:
        frame.attrs["understood"]["without_winner"] = without
    return frame


def _rows(
    source: str | PathLike[str] | pd.DataFrame, split: str | None, revision: str | None
) -> tuple[Path, list[records.Row]]:
    if isinstance(source, pd.DataFrame):
        if source.empty:
            raise DataError("load_pairs: the frame has no rows")
        rows = [{str(name): value for name, value in row.items()} for row in source.to_dict("records")]
        records.refuse_cut("frame", rows)
        return Path("frame"), rows
    path = Path(source).expanduser()
    is_file = path.exists() or path.suffix.lower() in records.SUFFIXES
    if is_file or not re.fullmatch(r"[\w.-]+/[\w.-]+", str(source)):
        return path, records.read_rows(path)
    files = hub.fetch_pairs(str(source), split, revision)
    return path, [row for file in files for row in records.read_rows(file)]


def _columns(place: Path, rows: list[records.Row], given: Columns) -> dict[str, list[str]]:
    """Our names to the names in the data; those that are not there are left out."""
    there = records.columns_of(rows)
    for name in given:
        if name not in _NAMES:
            raise DataError(f"columns: {name!r} is not a name that load_pairs knows; {nearest(name, list(_NAMES))}")
    found: dict[str, list[str]] = {}
    for name, usual in _NAMES.items():
        if name in given:
            value = given[name]
            asked = [] if value is None else [value] if isinstance(value, str) else list(value)
            missing = [column for column in asked if column not in there]
            if missing:
                raise DataError(f"{place}: columns[{name!r}]: no column {missing[0]!r}; {nearest(missing[0], there)}")
        else:
            asked = [column for column in usual if column in there][:1]
        if asked:
            found[name] = asked
    if "prompt" not in given and found.get("prompt") == ["input"] and "instruction" in there:
        raise DataError(
            f"{place}: the prompt may be 'instruction', 'input', or both; name one with columns={{'prompt': ...}}, or "
            "join them first: frame.assign(prompt=frame['instruction'] + '\\n\\n' + frame['input'])"
        )
    missing = [name for name in _NEEDED if name not in found]
    if missing:
        kind = looks_like(rows[0])
        looks = f"; it looks like {likeness(kind)}" if kind not in (None, "pairs") else ""
        way = f"columns={{{missing[0]!r}: '<column>'}}"
        if winners.side_by_side(there):
            looks, way = "; it looks like side-by-side data", "winner='<column>'"
        raise DataError(
            f"{place}: no column for {' and '.join(missing)}; found: {', '.join(there[:12])}{looks}; "
            f"say which: load_pairs(..., {way})"
        )
    return found


def _prompt(place: Path, number: int, row: records.Row, found: dict[str, list[str]]) -> Asked:
    """One row: id, domain, subset, prompt and the lists of chosen and rejected texts."""
    sides = {
        label: [value for column in _filled(row, found[label]) for value in _values(place, number, row, column)]
        for label in _NEEDED
    }
    prompt = _given_prompt(place, number, row, found)
    answers = sides["chosen"] + sides["rejected"]
    shared, split = common_prompt(place, number, row, answers, known=prompt is not None)
    prompt = shared if shared is not None else prompt
    if prompt is None:
        records.fail(
            place, number, row, found.get("prompt", ["prompt"])[0], "a prompt (a string or messages)",
            "name its column with columns={'prompt': ...}; none could be found at the start of the answers, either",
        )  # fmt: skip
    texts = {"chosen": split[: len(sides["chosen"])], "rejected": split[len(sides["chosen"]) :]}
    for label, parts in texts.items():
        checks.check_answers(place, number, row, found[label][0], parts)
    domain = _cell(row, found, "domain")
    subset = _cell(row, found, "subset")
    return Asked(number, _id(place, number, row, found), domain, subset, prompt, shared is not None, texts)


def _filled(row: records.Row, columns: list[str]) -> list[str]:
    """The columns that hold an answer: of several, empty ones mean that there are fewer; one alone must be there."""
    there = [column for column in columns if not _is_missing(row.get(column)) and row[column] != ""]
    return there or columns[:1]


def _values(place: Path, number: int, row: records.Row, column: str) -> list[Answer]:
    """The answers in one cell: strings or conversations."""
    value = _python(row.get(column))
    conversation = checks.messages(value)
    if conversation:
        return [conversation]
    cells: list[object] = [*value] if isinstance(value, list | tuple) else [value]
    lines = [cell for cell in cells if isinstance(cell, str)]
    if column.endswith("_steps") and len(lines) == len(cells):
        cells = ["\n".join(lines)] if lines else []
    given = [cell if isinstance(cell, str) else checks.messages(cell) for cell in cells]
    made = [answer for answer in given if answer]
    if not made or len(made) < len(given):
        allowed = "a non-empty string, a list of such strings, or a list of {'role': ..., 'content': ...} messages"
        records.fail(place, number, row, column, allowed, "fill in the text")
    return made


def _python(value: object) -> object:
    """The value without NumPy around it, as frames read from Parquet hold it."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    return [_python(item) for item in value] if isinstance(value, list) else value


def _given_prompt(place: Path, number: int, row: records.Row, found: dict[str, list[str]]) -> Answer | None:
    if "prompt" not in found or _is_missing(row.get(found["prompt"][0])):
        return None
    column = found["prompt"][0]
    return checks.row_prompt(place, number, {**row, column: _python(row[column])}, column)


def _id(place: Path, number: int, row: records.Row, found: dict[str, list[str]]) -> str:
    if "id" not in found:
        return str(number)
    value = _python(row.get(found["id"][0]))
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    return checks.row_id(place, number, {**row, "id": value})


def _cell(row: records.Row, found: dict[str, list[str]], name: str) -> str | None:
    value = row.get(found[name][0]) if name in found else None
    return None if _is_missing(value) or value == "" else str(value)


def _is_missing(value: object) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and value != value)


def _refuse_repeats(place: Path, prompts: list[Asked]) -> None:
    seen: dict[tuple[str | None, str], int] = {}
    for prompt in prompts:
        key = (prompt.domain, prompt.id)
        if key in seen:
            raise DataError(
                f"{place}: row {prompt.number}: 'id' {prompt.id!r} is already row {seen[key]}; ids must be "
                "unique within a domain: repair them, or number the rows with columns={'id': None}"
            )
        seen[key] = prompt.number


def _answers(prompt: Asked, benchmark: str) -> list[records.Row]:
    domain = prompt.domain or prompt.subset or benchmark
    shared = {"benchmark": benchmark, "domain": domain, "id": prompt.id, "subset": prompt.subset or domain}
    return [
        {**shared, "label": label, "slot": slot, "prompt": prompt.prompt, "response": text}
        for label in tables.LABELS
        for slot, text in enumerate(prompt.answers[label])
    ]


def _understood(
    rows: list[records.Row], found: dict[str, list[str]], prompts: list[Asked], stripped: bool
) -> dict[str, object]:
    first, used = prompts[0], {column for columns in found.values() for column in columns}
    kind = looks_like(rows[0])
    split = sum(prompt.shared for prompt in prompts)
    where = f"column {found['prompt'][0]!r}" if "prompt" in found else "the start of chosen and rejected"
    if split and "prompt" in found:
        where += f"; in {split} rows the start that chosen and rejected share"
    if stripped:
        where += "; also at the start of every answer, split off there"
    return {
        "prompts": len(prompts),
        "chosen": f"{', '.join(found['chosen'])}: {_counts(prompts, 'chosen')} a prompt",
        "rejected": f"{', '.join(found['rejected'])}: {_counts(prompts, 'rejected')} a prompt",
        "prompt": where,
        "id": found["id"][0] if "id" in found else "row number",
        "domain": found["domain"][0] if "domain" in found else "name",
        "looks_like": likeness(kind if kind in known() else "pairs"),
        "ignored": [column for column in records.columns_of(rows) if column not in used],
        "first": {
            name: records.short(value, 200)
            for name, value in ({"id": first.id, "prompt": first.prompt} | first.answers).items()
        },
    }


def _counts(prompts: list[Asked], label: str) -> str:
    counts = sorted({len(prompt.answers[label]) for prompt in prompts})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
