"""M-RewardBench: RewardBench 1 translated into 23 languages; the translations of a task
are one cluster.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from rmlab.benchmarks.benchmark import Benchmark, own_domains, refuse_strange
from rmlab.benchmarks.hub import HubPlace
from rmlab.benchmarks.layout import Files, Layout, all_files
from rmlab.benchmarks.reward_bench import SECTIONS, SUBSETS_OF_SECTION, find_task
from rmlab.benchmarks.rows import FileRow, read_answers
from rmlab.estimation.items import Items, Parts, comparison_items
from rmlab.estimation.weights import weighted_parts
from rmlab.records import Row

_N_LANGUAGES = 23
_N_TASKS = 2869
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
# Without the folder `translation`, and the JSON files of an earlier release.
_FILES = "???_????/test-*.parquet"


def list_files(path: Path) -> list[Path]:
    """The file itself; of a folder those of the languages, otherwise all data files."""
    return sorted(path.glob(_FILES)) or all_files(path)


def read(files: Files) -> pd.DataFrame:
    """Responses of M-RewardBench rows, with the columns language and task; the subset
    (in the files: `source`) is the domain.
    """
    return read_answers(files, M_REWARD_BENCH.name, _describe, 1)


def _describe(row: FileRow) -> Row:
    """Its id names the language, since all languages have the same ids."""
    column = "source" if "source" in row.cells else "subset"
    subset = row.read_subset(list(_COUNTS), column)
    language = row.read_name("language")
    if language is None:
        row.refuse("language", "the name of a language", "fill it in")
    item = row.read_id()
    return {
        "id": f"{language}/{item}",
        "domain": subset,
        "language": language,
        "task": find_task(item, subset),
    }


def make_items(
    table: pd.DataFrame, ties: str, *, by: Sequence[str], cluster: Sequence[str]
) -> Items:
    """One comparison a prompt and language."""
    items = comparison_items(table, ties, by=by, cluster=cluster)
    refuse_strange(
        "subset", items.frame["subset"].unique(), _COUNTS, M_REWARD_BENCH.title
    )
    return items


def make_parts(items: Items, options: Mapping[str, str]) -> Parts:
    """Sections alike, subsets inside them by their counts; languages are pooled."""
    weight = {}
    for section in SECTIONS.values():
        total = sum(_COUNTS[subset] for subset in section)
        for subset in section:
            weight[subset] = _COUNTS[subset] / total
    return weighted_parts(items.frame["subset"], weight)


M_REWARD_BENCH = Benchmark(
    name="m-reward-bench",
    title="M-RewardBench",
    source="arXiv 2410.15522; analysis/plot_utils.py of its repository",
    cluster=("task",),
    subsets=own_domains(_COUNTS),
    sections=SUBSETS_OF_SECTION,
    columns=tuple(SECTIONS),
    layout=Layout(
        read=read,
        folder_files=list_files,
        hub=HubPlace(
            "CohereLabsCommunity/multilingual-reward-bench",
            "main",
            _N_LANGUAGES * _N_TASKS,
            _FILES,
        ),
    ),
    make_items=make_items,
    make_parts=make_parts,
)
