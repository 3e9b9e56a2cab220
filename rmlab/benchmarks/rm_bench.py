"""RM-Bench: three right and three wrong answers to a prompt, each in three styles; nine
comparisons, a 3x3 matrix.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from rmlab.benchmarks.benchmark import Benchmark, Weights
from rmlab.benchmarks.layout import JsonRow, Layout
from rmlab.records import Row
from rmlab.tables import LEVELS, STYLES

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
    notes = {name: row[name] for name in _NOTES if name in row}
    yield notes | {
        "id": item,
        "subset": subset,
        "prompt": row["prompt"],
        "chosen": row["chosen"],
        "rejected": row["rejected"],
        "source": row.get("subset"),
    }


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


def weigh_domains(options: Mapping[str, str]) -> Weights:
    """The four domains alike; safety as one pool, or (`safety="split"`) as the mean of
    its two files.
    """
    weight = dict.fromkeys(DOMAINS, 1.0)
    if options["safety"] == "split":
        del weight["safety"]
        weight |= dict.fromkeys(_SAFETY, 1 / len(_SAFETY))
    return weight


_LAYOUT = Layout(
    read_row=read_row,
    files=("*total_dataset.json", "*_filtered.json", "*.json"),
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
    weights=weigh_domains,
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
