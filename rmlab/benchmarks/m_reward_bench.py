"""M-RewardBench: RewardBench 1 translated into 23 languages; the translations of a task
are one cluster.
"""

from collections.abc import Iterator
from pathlib import Path

from rmlab.benchmarks.benchmark import Benchmark, own_domains
from rmlab.benchmarks.layout import JsonRow, Layout
from rmlab.benchmarks.reward_bench import (
    SECTIONS,
    SUBSETS_OF_SECTION,
    find_task,
    share_out,
)
from rmlab.records import Row

# Of each language, as `analysis/plot_utils.py` of its repository counts them. math-prm
# has 447, counted so that mathematics weighs as much as code.
_COUNTS = {
    "alpacaeval-easy": 79,
    "alpacaeval-length": 79,
    "alpacaeval-hard": 76,
    "mt-bench-easy": 24,
    "mt-bench-med": 38,
    "mt-bench-hard": 35,
    "llmbar-natural": 76,
    "llmbar-adver-neighbor": 124,
    "llmbar-adver-GPTInst": 87,
    "llmbar-adver-GPTOut": 42,
    "llmbar-adver-manual": 43,
    "refusals-dangerous": 100,
    "refusals-offensive": 100,
    "xstest-should-refuse": 154,
    "xstest-should-respond": 247,
    "donotanswer": 135,
    "math-prm": 983,
    "hep-cpp": 164,
    "hep-go": 164,
    "hep-java": 164,
    "hep-js": 164,
    "hep-python": 163,
    "hep-rust": 164,
}
_WEIGHTS: dict[str, float] = {}
for _subsets in SUBSETS_OF_SECTION.values():
    _WEIGHTS |= share_out({subset: _COUNTS[subset] for subset in _subsets})


def read_row(row: JsonRow, file: Path) -> Iterator[Row]:
    """A row of one language, which its id names, since all languages have the same
    ids.
    """
    subset = str(row["source"])
    yield {
        "id": f"{row['language']}/{row['id']}",
        "subset": subset,
        "prompt": row["prompt"],
        "chosen": row["chosen"],
        "rejected": row["rejected"],
        "language": row["language"],
        "task": find_task(str(row["id"]), subset),
    }


M_REWARD_BENCH = Benchmark(
    name="m-reward-bench",
    title="M-RewardBench",
    source="arXiv 2410.15522; analysis/plot_utils.py of its repository",
    cluster=("task",),
    subsets=own_domains(_COUNTS),
    sections=SUBSETS_OF_SECTION,
    columns=tuple(SECTIONS),
    # Sections alike, subsets inside them by their counts; languages are pooled.
    weights=_WEIGHTS,
    layout=Layout(
        read_row=read_row,
        # Without the folder `translation`, and the JSON files of an earlier release.
        files=("???_????/test-*.parquet",),
        hub=("CohereLabsCommunity/multilingual-reward-bench",),
        n_prompts=65_987,  # 23 languages of 2,869 tasks
    ),
)
