"""RewardBench `eval-set-scores` files, versions 1 and 2: one object, its fields are columns (lists)."""

from pathlib import Path

import numpy as np
import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks.reward_bench_2 import REWARD_BENCH_2
from rmlab.tables import DataError

__all__ = ["content", "read"]

Columns = dict[str, list[object]]

_COLUMNS = {
    "reward-bench": ("id", "subset", "scores_chosen", "scores_rejected"),
    "reward-bench-2": ("id", "subset", "scores", "num_correct"),
}


def read(path: Path, kind: str, model: str | None) -> pd.DataFrame:
    """Scores of one file. `kind` is "reward-bench" or "reward-bench-2"; the model is the file's unless given."""
    content = records.read_json(path)
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected one object with {', '.join(_COLUMNS[kind])}; found {type(content).__name__}")
    columns = _columns(path, content, kind)
    name = content.get("model", path.stem) if model is None else model
    if not isinstance(name, str) or not name:
        raise DataError(f"{path}: 'model' must be a name; it has {records.short(name)}; repair it, or pass model='...'")
    made: list[records.Row] = []
    for number, entries in enumerate(zip(*columns.values(), strict=True)):
        row = dict(zip(columns, entries, strict=True))
        made += _version_2(path, number, row) if kind == "reward-bench-2" else _version_1(path, number, row)
    return pd.DataFrame(made).assign(model=name, benchmark=kind)


def content(scores: pd.DataFrame, kind: str, responses: pd.DataFrame | None) -> dict[str, object]:
    """The object of one file for one model's scores; with `responses` it holds the texts, too."""
    made: Columns = {column: [] for column in (*_COLUMNS[kind], "results")}
    texts = (
        None if responses is None else responses.set_index(["subset", "id", "label", "slot"])["response"].sort_index()
    )
    for key, group in scores.groupby(["subset", "id"], sort=False):
        subset, name = map(str, key)
        group = group.sort_values(["label", "slot"])
        values = {label: group.loc[group["label"] == label, "score"].tolist() for label in tables.LABELS}
        made["id"].append(int(name) if kind == "reward-bench" and name.isdecimal() else name)
        made["subset"].append(subset)
        if kind == "reward-bench":
            _add_version_1(made, subset, name, values)
        else:
            _add_version_2(made, subset, name, values)
        if texts is not None:
            _add_texts(made, kind, texts, group)
    return {**made, "model": scores["model"].iloc[0]}


def _columns(path: Path, content: dict[str, object], kind: str) -> Columns:
    columns: Columns = {}
    for column in _COLUMNS[kind]:
        entries = content.get(column)
        if not isinstance(entries, list):
            found = ", ".join(content)
            raise DataError(f"{path}: {column!r} must be a list with one entry per prompt; fields found: {found}")
        columns[column] = entries
    lengths = {column: len(entries) for column, entries in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{path}: the columns differ in length: {lengths}; the file may be cut off")
    if not columns["id"]:
        raise DataError(f"{path}: no prompts in it; write the file again")
    return columns


def _shared(path: Path, number: int, row: records.Row) -> dict[str, object]:
    for column in ("id", "subset"):
        if isinstance(row[column], bool) or not isinstance(row[column], int | str) or row[column] == "":
            records.fail(path, number, row, column, "a whole number or a non-empty string", "repair the file")
    subset = {name.lower(): name for name in REWARD_BENCH_2.subsets}.get(str(row["subset"]).lower(), str(row["subset"]))
    return {"domain": subset, "id": str(row["id"]), "subset": subset}


def _version_1(path: Path, number: int, row: records.Row) -> list[records.Row]:
    shared = _shared(path, number, row)
    return [
        {**shared, "label": label, "slot": 0, "score": records.number(path, number, row, f"scores_{label}")}
        for label in tables.LABELS
    ]


def _version_2(path: Path, number: int, row: records.Row) -> list[records.Row]:
    shared = _shared(path, number, row)
    values, correct = row["scores"], row["num_correct"]
    if not isinstance(values, list) or len(values) < 2:
        records.fail(path, number, row, "scores", "a list of at least two numbers", "score the prompt again")
    if not isinstance(correct, int) or not 0 < correct < len(values):
        allowed = f"a whole number from 1 to {len(values) - 1} (chosen answers come first)"
        records.fail(path, number, row, "num_correct", allowed, "repair the file")
    return [
        {
            **shared,
            "label": "chosen" if place < correct else "rejected",
            "slot": place if place < correct else place - correct,
            "score": records.number(path, number, row, "scores", value),
        }
        for place, value in enumerate(values)
    ]


def _add_version_1(made: Columns, subset: str, name: str, values: dict[str, list[float]]) -> None:
    if [len(values[label]) for label in tables.LABELS] != [1, 1]:
        raise DataError(
            f"scores: prompt {subset}/{name} has {len(values['chosen'])} chosen and {len(values['rejected'])} rejected "
            "answers; a RewardBench 1 file holds one of each; use format='reward-bench-2'"
        )
    chosen, rejected = values["chosen"][0], values["rejected"][0]
    made["scores_chosen"].append(_or_null(chosen))
    made["scores_rejected"].append(_or_null(rejected))
    made["results"].append(int(chosen > rejected))


def _add_version_2(made: Columns, subset: str, name: str, values: dict[str, list[float]]) -> None:
    if not values["chosen"] or not values["rejected"]:
        raise DataError(f"scores: prompt {subset}/{name} needs at least one chosen and one rejected answer")
    scores = [*values["chosen"], *values["rejected"]]
    made["scores"].append([_or_null(score) for score in scores])
    made["num_correct"].append(len(values["chosen"]))
    top = max(scores)
    made["results"].append(1 / scores.count(top) if scores[0] == top else 0)


def _add_texts(made: Columns, kind: str, texts: pd.Series, group: pd.DataFrame) -> None:
    keys = list(zip(group["subset"], group["id"], group["label"].astype("str"), group["slot"], strict=True))
    found = [texts.loc[key] for key in keys]
    if kind == "reward-bench":
        made.setdefault("text_chosen", []).append(found[0])
        made.setdefault("text_rejected", []).append(found[1])
    else:
        made.setdefault("text", []).append(found)


def _or_null(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
