"""Themis-CodeRewardBench: which of two programs is the better one, in one of five
aspects?
"""

import pandas as pd

from rmlab.benchmarks.benchmark import Benchmark, own_domains
from rmlab.benchmarks.hub import HubPlace
from rmlab.benchmarks.layout import Files, Layout
from rmlab.benchmarks.rows import FileRow, read_answers
from rmlab.records import Row

ASPECTS = (
    "Functional_Correctness",
    "Memory_Efficiency",
    "Readability_Maintainability",
    "Runtime_Efficiency",
    "Security_Hardness",
)


def read(files: Files) -> pd.DataFrame:
    """Responses of rows with a chosen and a rejected program; the aspect is the domain,
    `source` the file's own subset.
    """
    return read_answers(files, "code-reward-bench", _rename, 1, names_question=True)


def _rename(row: FileRow) -> Row:
    return {
        "domain": row.read_subset(ASPECTS, "aspect"),
        "language": row.read_name("language"),
        "source": row.read_name("subset"),
    }


CODE_REWARD_BENCH = Benchmark(
    name="code-reward-bench",
    title="Themis-CodeRewardBench",
    source="arXiv 2605.00754",
    cluster=("question",),
    subsets=own_domains(ASPECTS),
    columns=ASPECTS,
    layout=Layout(
        read=read,
        hub=HubPlace("project-themis/Themis-CodeRewardBench", "main", 8866, "*Full*"),
    ),
    variants={"all aspects count alike, not all pairs": {"average": "domains"}},
)
"""The overall score is the share of all pairs. The printed table counts a reply that
could not be read as lost; here it is missing.
"""
