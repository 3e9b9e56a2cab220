"""EvalBiasBench: 80 hand-written pairs that tempt a judge with one of six biases; a
file of it ships with rmlab.
"""

import pandas as pd

from rmlab.benchmarks.benchmark import Benchmark, own_domains
from rmlab.benchmarks.layout import Files, Layout
from rmlab.benchmarks.rows import FileRow, read_answers
from rmlab.records import Row

KINDS = (
    "length bias",
    "concreteness",
    "empty reference",
    "content continuation",
    "nested instruction",
    "familiar knowledge preference bias",
)
_SIDES = {"1": ("response1", "response2"), "2": ("response2", "response1")}


def read(files: Files) -> pd.DataFrame:
    """Responses of an object of six lists of rows; the kind of bias is the domain."""
    lists = []
    for file, objects in files:
        for kinds in objects:
            for rows in kinds.values():
                if isinstance(rows, list):
                    lists.append((file, rows))
    return read_answers(lists, "evalbiasbench", _rename, 1, names_question=True)


def _rename(row: FileRow) -> Row:
    kind = str(row.cells.get("bias")).replace("_", " ")
    if kind not in KINDS:
        row.refuse("bias", f"one of {', '.join(KINDS)}")
    return {
        **row.read_sides("label", _SIDES),
        "id": str(row.number),
        "domain": kind,
        "prompt": row.read_prompt("instruction"),
    }


EVAL_BIAS_BENCH = Benchmark(
    name="evalbiasbench",
    title="EvalBiasBench",
    source="arXiv 2407.06551, section 4",
    cluster=("question",),
    subsets=own_domains(KINDS),
    columns=KINDS,
    layout=Layout(read=read, shipped="evalbiasbench"),
    variants={"all kinds count alike, not all pairs": {"average": "domains"}},
)
"""The overall score is the share of all pairs; with `average="domains"` it is the mean
of the six kinds.
"""
