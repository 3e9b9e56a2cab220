"""RewardBench 1 and 2 rows to a responses table."""

from pathlib import Path
from typing import Any

import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks import kinds
from rmlab.subsets import PRIOR_SETS, REWARD_BENCH, REWARD_BENCH_2
from rmlab.tables import DataError, nearest

__all__ = ["from_rows", "load_path"]

_SUBSETS = {"reward-bench": (*REWARD_BENCH, *PRIOR_SETS), "reward-bench-2": REWARD_BENCH_2}


def load_path(path: Path, benchmark: str) -> pd.DataFrame:
    """Responses of one file (JSON, JSON lines or Parquet), or of the only such file in a folder."""
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.suffix.lower() in records.SUFFIXES and p.is_file())
        if len(found) != 1:
            names = ", ".join(p.name for p in found[:10]) or "none"
            raise DataError(
                f"{path}: expected one data file ({', '.join(records.SUFFIXES)}) in this folder, found {len(found)}: "
                f"{names}; pass path='{path / '<file>'}'"
            )
        path = found[0]
    return from_rows(path, records.read_rows(path), benchmark)


def from_rows(file: Path, rows: list[records.Row], benchmark: str) -> pd.DataFrame:
    """Responses of RewardBench rows. `domain` and `subset` are both the subset's name; there are no styles.

    Version 1 has one chosen and one rejected answer (strings), version 2 lists of any length from one.
    """
    answers: list[dict[str, Any]] = []
    seen: dict[tuple[str, str], int] = {}
    for number, row in enumerate(rows):
        kinds.refuse_other(file, row, benchmark)
        subset, name = _subset(file, number, row, benchmark), kinds.row_id(file, number, row)
        if (subset, name) in seen:
            records.fail(
                file, number, row, "id", f"unique within subset {subset!r}",
                f"row {seen[subset, name]} has it already: drop one of them",
            )  # fmt: skip
        seen[subset, name] = number
        prompt = kinds.row_prompt(file, number, row)
        shared = {"benchmark": benchmark, "domain": subset, "id": name}
        for label in tables.LABELS:
            texts = _texts(file, number, row, label, benchmark)
            answers += [
                {**shared, "label": label, "slot": slot, "prompt": prompt, "response": text}
                for slot, text in enumerate(texts)
            ]
        _check_counts(file, number, row)
    return tables.check_responses(pd.DataFrame(answers))


def _check_counts(file: Path, number: int, row: records.Row) -> None:
    counts = {"num_correct": len(row["chosen"]), "total_completions": len(row["chosen"]) + len(row["rejected"])}
    for column, count in counts.items():
        if row.get(column) not in (None, count):
            records.fail(file, number, row, column, f"{count}, as many texts as are there", "repair the row or drop it")


def _subset(file: Path, number: int, row: records.Row, benchmark: str) -> str:
    allowed = _SUBSETS[benchmark]
    value = row.get("subset")
    found = {name.lower(): name for name in allowed}.get(str(value).lower())
    if found is None:
        records.fail(file, number, row, "subset", f"a subset of {benchmark}", nearest(str(value), allowed))
    return found


def _texts(file: Path, number: int, row: records.Row, label: str, benchmark: str) -> list[str]:
    value = row.get(label)
    if benchmark == "reward-bench":
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if not isinstance(value, str) or value == "":
            records.fail(file, number, row, label, "one non-empty string", "fill in the text or drop the row")
        return [value]
    if not isinstance(value, list) or not value:
        records.fail(file, number, row, label, "a list of at least one string", "fill in the texts or drop the row")
    kinds.check_answers(file, number, row, label, value)
    return list(value)
