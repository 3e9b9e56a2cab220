"""RM-Bench result files: the benchmark's rows with `score_chosen` and `score_rejected` added."""

import re
from pathlib import Path

import numpy as np
import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks.rm_bench import SUBSETS
from rmlab.tables import STYLES, DataError, nearest

__all__ = ["read", "rows"]

_NAME = re.compile(rf"({'|'.join(sorted(SUBSETS, key=len, reverse=True))}|total_dataset)(?:_filtered)?(?:_(.+))?$")
_RUN = re.compile(r"_[A-Z]+_?MODEL(_\d{8}_\d{6})?$|_\d{8}_\d{6}$")


def read(path: Path, model: str | None) -> pd.DataFrame:
    """Scores of one result file. The domain comes from the rows, or else from the file's name.

    The runner names a file after data, model and time (`chat_filtered_<model>_<reference>_<time>.json`): the model
    is taken from there, or from the folder where the file is only named after the data, or it is the file's name.
    """
    name = _model(path) if model is None else model
    made = [answer for number, row in enumerate(records.read_rows(path)) for answer in _answers(path, number, row)]
    return pd.DataFrame(made).assign(model=name, benchmark="rm-bench")


def rows(scores: pd.DataFrame, responses: pd.DataFrame | None) -> list[records.Row]:
    """Rows of a result file over all domains (ids such as `chat/100`) for one model's scores."""
    made = []
    for (subset, name), group in scores.groupby(["subset", "id"], sort=False):
        row: records.Row = {"id": f"{subset}/{name}", "domain": subset}
        for label in tables.LABELS:
            mine = group[group["label"] == label].sort_values("slot")
            if len(mine) != len(STYLES) or mine["style"].astype("str").tolist() != list(STYLES):
                raise DataError(
                    f"scores: prompt {subset}/{name} has {len(mine)} {label} answers in the styles "
                    f"{mine['style'].tolist()}; an RM-Bench file needs {list(STYLES)}; write another format"
                )
            row[f"score_{label}"] = [None if np.isnan(value) else float(value) for value in mine["score"]]
        made.append(row)
    if responses is not None:
        _add_texts(made, responses)
    return made


def _add_texts(rows: list[records.Row], responses: pd.DataFrame) -> None:
    texts = responses.set_index(["subset", "id", "label", "slot"]).sort_index()
    for row in rows:
        key = (str(row["domain"]), str(row["id"]).split("/", 1)[1])
        row["prompt"] = texts.loc[(*key, "chosen", 0), "prompt"]
        for label in tables.LABELS:
            row[label] = [texts.loc[(*key, label, slot), "response"] for slot in range(len(STYLES))]


def _model(path: Path) -> str:
    match = _NAME.match(path.stem)
    if match is None:
        return path.stem
    rest = _RUN.sub("", match[2] or "")
    return rest or path.parent.name or path.stem


def _answers(path: Path, number: int, row: records.Row) -> list[records.Row]:
    subset = _subset(path, number, row)
    if not isinstance(row.get("id"), int | str):
        records.fail(path, number, row, "id", "a whole number or a string", "add the benchmark's id")
    name = str(row["id"]).split("/", 1)[-1] if "domain" in row else str(row["id"])
    shared = {"domain": subset.split("-")[0], "id": name, "subset": subset}
    made = []
    for label in tables.LABELS:
        values = row.get(f"score_{label}")
        if not isinstance(values, list) or len(values) != len(STYLES):
            allowed = f"a list of three numbers ({', '.join(STYLES)})"
            records.fail(path, number, row, f"score_{label}", allowed, "score the prompt again")
        for slot, (style, value) in enumerate(zip(STYLES, values, strict=True)):
            score = records.number(path, number, row, f"score_{label}", value)
            made.append({**shared, "label": label, "slot": slot, "style": style, "score": score})
    return made


def _subset(path: Path, number: int, row: records.Row) -> str:
    if "domain" in row:
        if isinstance(row["domain"], str) and row["domain"] in SUBSETS:
            return str(row["domain"])
        records.fail(path, number, row, "domain", "a domain of RM-Bench", nearest(str(row["domain"]), list(SUBSETS)))
    match = _NAME.match(path.stem)
    if match is None or match[1] == "total_dataset":
        raise DataError(
            f"{path}: row {number}: neither a field 'domain' nor the file name says which domain this is; "
            f"start the file name with one of {', '.join(SUBSETS)}"
        )
    return match[1]
