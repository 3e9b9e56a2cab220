"""EvalBiasBench: 80 hand-written pairs that tempt a judge with one of six biases; a
file of it ships with rmlab.
"""

from collections.abc import Iterator
from pathlib import Path

from rmlab.benchmarks.benchmark import Benchmark, own_domains
from rmlab.benchmarks.layout import JsonRow, Layout
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


def read_row(kinds: JsonRow, file: Path) -> Iterator[Row]:
    """The pairs of an object of six lists; the kind of bias is the domain."""
    for rows in kinds.values():
        for number, row in enumerate(rows):
            better, worse = _SIDES[str(row["label"])]
            yield {
                "id": number,
                "subset": row["bias"].replace("_", " "),
                "prompt": row["instruction"],
                "chosen": row[better],
                "rejected": row[worse],
            }


EVAL_BIAS_BENCH = Benchmark(
    name="evalbiasbench",
    title="EvalBiasBench",
    source="arXiv 2407.06551, section 4",
    cluster=("question",),
    subsets=own_domains(KINDS),
    columns=KINDS,
    layout=Layout(read_row=read_row, shipped="evalbiasbench"),
)
"""The overall score is the share of all pairs; with `average="domains"` it is the mean
of the six kinds.
"""
