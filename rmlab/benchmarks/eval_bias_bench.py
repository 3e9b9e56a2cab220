"""EvalBiasBench: 80 hand-written pairs that tempt a judge with one of six biases; a
file of it ships with rmlab.
"""

import pandas as pd

from rmlab.benchmarks.benchmark import Benchmark
from rmlab.benchmarks.layout import Files, Layout
from rmlab.benchmarks.rows import FileRow, read_renamed
from rmlab.records import Row

KINDS = (
    "length bias",
    "concreteness",
    "empty reference",
    "content continuation",
    "nested instruction",
    "familiar knowledge preference bias",
)
_SIDES = {1: ("response1", "response2"), 2: ("response2", "response1")}


def read(files: Files) -> pd.DataFrame:
    """Responses of an object of six lists of rows; the kind of bias is the domain."""
    lists = []
    for file, objects in files:
        for kinds in objects:
            for rows in kinds.values():
                if isinstance(rows, list):
                    lists.append((file, rows))
    return read_renamed(lists, "evalbiasbench", _rename, 1)


def _rename(row: FileRow) -> Row:
    kind = str(row.cells.get("bias")).replace("_", " ")
    if kind not in KINDS:
        row.refuse("bias", f"one of {', '.join(KINDS)}")
    label = row.cells.get("label")
    if not isinstance(label, int) or label not in _SIDES:
        row.refuse("label", "1 or 2, the number of the better response")
    better, worse = _SIDES[label]
    return {
        "id": str(row.number),
        "domain": kind,
        "prompt": row.read_prompt("instruction"),
        "chosen": row.read_texts(better, 1),
        "rejected": row.read_texts(worse, 1),
    }


EVAL_BIAS_BENCH = Benchmark(
    name="evalbiasbench",
    title="EvalBiasBench",
    source="arXiv 2407.06551, section 4",
    cluster=("question",),
    subsets={name: name for name in KINDS},
    columns=KINDS,
    layout=Layout(read=read, shipped="evalbiasbench"),
    variants={"all kinds count alike, not all pairs": {"average": "domains"}},
)
"""The overall score is the share of all pairs; with `average="domains"` it is the mean
of the six kinds.
"""
