"""Themis-CodeRewardBench: which of two programs is the better one, in one of five
aspects?
"""

from collections.abc import Iterator
from pathlib import Path

from rmlab.benchmarks.benchmark import Benchmark, own_domains
from rmlab.benchmarks.layout import JsonRow, Layout, read_named_fields
from rmlab.records import Row

ASPECTS = (
    "Functional_Correctness",
    "Memory_Efficiency",
    "Readability_Maintainability",
    "Runtime_Efficiency",
    "Security_Hardness",
)


def read_row(row: JsonRow, file: Path) -> Iterator[Row]:
    """A chosen and a rejected program; the aspect is the domain, `source` the file's
    own subset.
    """
    for prompt in read_named_fields(row, file):
        yield {
            **prompt,
            "subset": row["aspect"],
            "language": row["language"],
            "source": row["subset"],
        }


CODE_REWARD_BENCH = Benchmark(
    name="code-reward-bench",
    title="Themis-CodeRewardBench",
    source="arXiv 2605.00754",
    cluster=("question",),
    subsets=own_domains(ASPECTS),
    columns=ASPECTS,
    layout=Layout(
        read_row=read_row,
        files=("*Full*",),
        hub=("project-themis/Themis-CodeRewardBench",),
        n_prompts=8866,
    ),
)
"""The overall score is the share of all pairs. The printed table counts a reply that
could not be read as lost; here it is missing.
"""
