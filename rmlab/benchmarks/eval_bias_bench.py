"""EvalBiasBench: 80 hand-written pairs that tempt a judge with one of six biases; a
file of it ships with rmlab.
"""

import pandas as pd

from rmlab.benchmarks.benchmark import Benchmark, Files
from rmlab.benchmarks.rows import Record, read_renamed
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
    lists = [
        (file, part)
        for file, objects in files
        for kinds in objects
        for part in kinds.values()
    ]
    return read_renamed(
        [(file, rows) for file, rows in lists if isinstance(rows, list)],
        "evalbiasbench",
        _rename,
        1,
    )


def _rename(record: Record) -> Row:
    kind = str(record.row.get("bias")).replace("_", " ")
    if kind not in KINDS:
        record.refuse("bias", f"one of {', '.join(KINDS)}")
    sides = (
        _SIDES.get(label) if isinstance(label := record.row.get("label"), int) else None
    )
    if sides is None:
        record.refuse("label", "1 or 2, the number of the better response")
    return {
        "id": str(record.number),
        "domain": kind,
        "prompt": record.read_prompt("instruction"),
        "chosen": record.read_texts(sides[0], 1),
        "rejected": record.read_texts(sides[1], 1),
    }


EVAL_BIAS_BENCH = Benchmark(
    name="evalbiasbench",
    title="EvalBiasBench",
    source="arXiv 2407.06551, section 4",
    cluster=("question",),
    subsets={name: name for name in KINDS},
    columns=KINDS,
    read=read,
    shipped="evalbiasbench",
    variants={"all kinds count alike, not all pairs": {"average": "domains"}},
)
"""The overall score is the share of all pairs; with `average="domains"` it is the mean
of the six kinds.
"""
