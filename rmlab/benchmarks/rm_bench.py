"""RM-Bench: three right and three wrong answers to a prompt, each in three styles; nine
comparisons, a 3x3 matrix.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from rmlab.benchmarks.benchmark import (
    Benchmark,
    name_absent_subsets,
    refuse_strange,
)
from rmlab.benchmarks.layout import JsonRow, Layout
from rmlab.estimation.items import NO_ROW, Items, Parts
from rmlab.estimation.weights import weighted_parts
from rmlab.records import Row
from rmlab.tables import LABELS, LEVELS, PROMPT, STYLES, DataError

_SAFETY = ("safety-refuse", "safety-response")
SUBSETS = {
    "chat": "chat",
    "math": "math",
    "code": "code",
    **dict.fromkeys(_SAFETY, "safety"),
}
DOMAINS = tuple(dict.fromkeys(SUBSETS.values()))

_NOTES = ("note", "error", "error_key")
# The runner names a file after data, model and time:
# chat_filtered_<model>_<reference>_<time>.json.
_FILE = re.compile(
    rf"({'|'.join(SUBSETS)}|total_dataset)(?:_filtered)?(?:_(.+?))??"
    r"(?:_[A-Z]+_?MODEL)?(?:_\d{8}_\d{6})?$"
)
_CELLS = len(STYLES) ** 2


def read_row(row: JsonRow, file: Path) -> Iterator[Row]:
    """The prompt of a row, three chosen and three rejected answers in the order of the
    styles.

    A row without a field `domain` is of the domain that its file is named after
    (`chat_filtered.json`); with it, the id begins with the domain.
    """
    of_file = _FILE.match(file.stem)
    if "domain" in row:
        subset = row["domain"]
        item = str(row["id"]).split("/", 1)[-1]
    elif of_file is not None:
        subset = of_file[1]
        item = row["id"]
    else:
        raise ValueError("no field 'domain', nor a file name like chat_filtered.json")
    prompt: Row = {
        "id": item,
        "subset": subset,
        "prompt": row["prompt"],
        "source": row.get("subset"),
    }
    for name in _NOTES:
        if row.get(name) is not None:
            prompt[name] = str(row[name])
    yield prompt | {label: row[label] for label in LABELS}


def adapt_results(path: Path, prompts: pd.DataFrame) -> pd.DataFrame:
    """Rows of the runner's result files, with the domain and the model that the file's
    name says.
    """
    of_file = _FILE.match(path.stem)
    if of_file is not None:
        prompts = prompts.assign(model=of_file[2] or path.parent.name)
    if "subset" in prompts:
        prompts["id"] = prompts["id"].astype("str").str.split("/", n=1).str[-1]
    else:
        prompts["subset"] = path.stem if of_file is None else of_file[1]
    return prompts.assign(domain=prompts["subset"].map(SUBSETS.__getitem__))


def make_parts(items: Items, options: Mapping[str, str]) -> Parts:
    """The four domains alike; safety as one pool, or (`safety="split"`) as the mean of
    its two files.
    """
    if options["safety"] == "split":
        return _split_safety(items.frame)

    parts = weighted_parts(items.frame["domain"], dict.fromkeys(DOMAINS, 1.0))
    return name_absent_subsets(items, parts, {"safety": _SAFETY})


def _split_safety(frame: pd.DataFrame) -> Parts:
    """The two files of safety with half the weight of a domain each."""
    files = frame["domain"].where(frame["domain"] != "safety", frame["subset"])
    refuse_strange("subset", files.unique(), SUBSETS, "RM-Bench")
    weight = dict.fromkeys(SUBSETS, 1.0)
    for file in _SAFETY:
        weight[file] = 1 / len(_SAFETY)
    return weighted_parts(files, weight)


def check_nine_comparisons(items: Items) -> None:
    """Refuse prompts that have only some of their nine comparisons: an answer without a
    row would count in nothing.
    """
    has_row = items.outcome != NO_ROW
    n_rows = np.stack([np.bincount(items.prompt, weights=row) for row in has_row])
    incomplete = (n_rows > 0) & (n_rows != _CELLS)
    if not incomplete.any():
        return
    model, prompt = np.argwhere(incomplete)[0]
    first = items.frame.loc[items.prompt == prompt, PROMPT].iloc[0].to_dict()
    counts = f"{int(incomplete.sum())} prompts are not the nine comparisons"
    place = f"first {first} of {items.models[model]!r}"
    problem = f"pairs: {counts} of RM-Bench's 3x3, {place}"
    remedy = "score all six answers of a prompt, or use accuracy(pairs, by=...)"
    raise DataError(problem, remedy)


_LAYOUT = Layout(
    read_row=read_row,
    files=("*total_dataset.json", "*_filtered.json"),
    hub=("THU-KEG/RM-Bench",),
    revision="a0f737936b99411e96d891699349a9570b39c82e",
    n_prompts=1327,
    result_fields={
        "id": "id",
        "chosen_score": "score_chosen",
        "rejected_score": "score_rejected",
    },
    adapt_results=adapt_results,
)
RM_BENCH = Benchmark(
    name="rm-bench",
    title="RM-Bench",
    source="arXiv 2410.16184, section 3; scripts/utils.py of its repository",
    subsets=SUBSETS,
    columns=(*DOMAINS, *LEVELS),
    options={"safety": ("pooled", "split")},
    styles=STYLES,
    layout=_LAYOUT,
    make_parts=make_parts,
    check_complete=check_nine_comparisons,
)

MINI = replace(
    RM_BENCH,
    name="mini",
    title="mini",
    source="written for this project",
    layout=replace(_LAYOUT, hub=(), shipped="mini"),
)
"""The small benchmark that ships with rmlab, in RM-Bench's file format and with its
rules.
"""
