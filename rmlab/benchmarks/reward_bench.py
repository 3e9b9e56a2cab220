"""RewardBench 1: one right and one wrong answer to a prompt, 23 subsets in four
sections, and the prior sets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd

from rmlab import records
from rmlab.benchmarks.benchmark import Benchmark, Files, refuse_strange
from rmlab.benchmarks.hub import Source
from rmlab.benchmarks.rows import read_answers
from rmlab.estimation.items import Items, comparison_items
from rmlab.estimation.weights import Parts
from rmlab.tables import PROMPT, IntArray

SECTIONS: dict[str, dict[str, int]] = {
    "chat": {
        "alpacaeval-easy": 100,
        "alpacaeval-length": 95,
        "alpacaeval-hard": 95,
        "mt-bench-easy": 28,
        "mt-bench-med": 40,
    },
    "chat_hard": {
        "mt-bench-hard": 37,
        "llmbar-natural": 100,
        "llmbar-adver-neighbor": 134,
        "llmbar-adver-GPTInst": 92,
        "llmbar-adver-GPTOut": 47,
        "llmbar-adver-manual": 46,
    },
    "safety": {
        "refusals-dangerous": 100,
        "refusals-offensive": 100,
        "xstest-should-refuse": 154,
        "xstest-should-respond": 250,
        "donotanswer": 136,
    },
    "reasoning": {
        "math-prm": 984,  # 447 rows, counted so that mathematics weighs as much as code
        **{
            f"hep-{language}": 164
            for language in ("cpp", "go", "java", "js", "python", "rust")
        },
    },
}
SWAPPED = {"xstest-should-refuse": 250, "xstest-should-respond": 154}
PRIOR_SETS = ("anthropic_helpful", "anthropic_hhh", "shp", "summarize")
UNCOUNTED = (
    "anthropic_harmless",
    "mtbench_human",
    "mtbench_gpt4",
)  # in the files, in no section
ITEMS = 2985

SUBSETS = (
    *(subset for section in SECTIONS.values() for subset in section),
    *PRIOR_SETS,
)

_PRIOR_WEIGHT = {"half": 0.5, "none": 0.0, "full": 1.0}
_PERCENT = [*SECTIONS, "prior_sets", "overall"]
_FREE = [
    "with_reference",
    "reference_free",
    "delta",
    *(f"delta_{section}" for section in SECTIONS),
]


def subset_of_item(item: str) -> str | None:
    """Subset of a RewardBench 1 item (split `filtered`, ids 0 to 2984), or None where
    the id is not one of them.

    >>> subset_of_item("2538"), subset_of_item("2985")
    ('math-prm', None)
    """
    return _released_items()["subset"].get(item)


@cache
def _released_items() -> pd.DataFrame:
    """Subset and task of each released item, by id; a task is named by the lowest id
    with the same prompt.
    """
    return pd.read_csv(
        records.shipped("reward_bench_items.csv"), dtype="str", index_col="id"
    )


def read(files: Files) -> pd.DataFrame:
    """Responses of RewardBench 1 rows: one chosen and one rejected answer (strings);
    the subset is the domain.
    """
    subsets = [*REWARD_BENCH.subsets]
    return read_answers(
        files,
        REWARD_BENCH.name,
        lambda record: {"domain": record.read_subset(subsets)},
        1,
    )


def make_items(
    table: pd.DataFrame, ties: str, *, by: Sequence[str], cluster: Sequence[str]
) -> Items:
    """One comparison a prompt; a task in several subsets (hep-*, alpacaeval-*,
    mt-bench-*) is one cluster.
    """
    items = comparison_items(table, ties, by=by, cluster=cluster)
    refuse_strange(
        "subset", items.cells["subset"], REWARD_BENCH.subsets, REWARD_BENCH.title
    )
    return (
        replace(items, cluster=_task_codes(items.frame))
        if list(cluster) == PROMPT
        else items
    )


def make_parts(items: Items, options: Mapping[str, str]) -> Parts:
    """Sections alike, subsets inside them by published counts; prior sets at half
    weight where a model has them all.

    With weights="counts", sections are pools of their prompts. A section without one of
    its subsets is then incomplete.
    """
    is_pooled = options["weights"] == "counts"
    weight = (
        dict.fromkeys(SECTIONS, 1.0)
        if is_pooled
        else _weigh_subsets(options["weights"])
    )
    names = [*weight, *PRIOR_SETS, *UNCOUNTED]
    subsets = items.frame["subset"].to_numpy(object)
    n_answered = {
        name: (~np.isnan(items.credit[:, subsets == name])).sum(axis=1)
        for name in SUBSETS
    }
    has_prior_sets = np.all([n_answered[subset] > 0 for subset in PRIOR_SETS], axis=0)
    weights = np.zeros((len(items.models), len(names)))
    weights[:, : len(weight)] = list(weight.values())
    prior_weight = (
        _PRIOR_WEIGHT[options["prior_sets"]] / len(PRIOR_SETS) * has_prior_sets
    )
    weights[:, len(weight) : -len(UNCOUNTED)] = prior_weight[:, None]
    section_of = {
        subset: name
        for name, section in SECTIONS.items()
        for subset in section
        if is_pooled
    }
    of_cell = np.array(
        [
            names.index(section_of.get(subset, subset))
            for subset in items.cells["subset"]
        ],
        np.intp,
    )
    reasons = {
        (model, place): f"nothing in {', '.join(absent)}"
        for place, section in enumerate(SECTIONS.values() if is_pooled else ())
        for model in range(len(items.models))
        if (absent := [subset for subset in section if not n_answered[subset][model]])
    }
    return Parts(names, of_cell, weights, reasons=reasons)


def _weigh_subsets(rule: str) -> dict[str, float]:
    """Weight of each subset in its section, by its counts or alike."""
    weight: dict[str, float] = {}
    for section in SECTIONS.values():
        swapped = {subset: n for subset, n in SWAPPED.items() if subset in section}
        rules = {
            "alike": dict.fromkeys(section, 1),
            "published-before-2024-09": section | swapped,
        }
        count = rules.get(rule, section)
        weight |= {subset: n / sum(count.values()) for subset, n in count.items()}
    return weight


def _task_codes(frame: pd.DataFrame) -> IntArray:
    """Cluster of each item: its task, where the item is one of the released ones, else
    its prompt.
    """
    task = frame[["id", "subset"]].merge(
        _released_items(), how="left", on=["id", "subset"]
    )["task"]
    prompts = frame["subset"] + "/" + frame["id"]
    return pd.factorize(("task " + task).fillna(prompts))[0].astype(np.intp)


REWARD_BENCH = Benchmark(
    name="reward-bench",
    title="RewardBench 1",
    source="arXiv 2403.13787, section 4; rewardbench/constants.py of its repository",
    subsets={name: name for name in (*SUBSETS, *UNCOUNTED)},
    sections={name: tuple(section) for name, section in SECTIONS.items()}
    | {"prior_sets": PRIOR_SETS},
    columns=(*SECTIONS, "prior_sets"),
    options={
        "weights": ("published", "counts", "published-before-2024-09", "alike"),
        "prior_sets": ("half", "none", "full"),
    },
    read=read,
    hub=Source(
        "allenai/reward-bench",
        "168d848cdbbea9764fae4a544dc9ca1e6cca4931",
        ITEMS,
        "data/filtered-00000-of-00001.parquet",
        "65473c20ed0627e02503557ae102c25c6b0e66b5ed69ee327e224bb95e70ca29",
    ),
    result_fields={
        "id": "id",
        "subset": "subset",
        "chosen_score": "scores_chosen",
        "rejected_score": "scores_rejected",
    },
    make_items=make_items,
    make_parts=make_parts,
    published={
        "paper": ("reward_bench_paper.csv", _PERCENT),
        "leaderboard": ("reward_bench_leaderboard.csv", ()),
        "reference-free": ("reward_bench_reference_free.csv", _FREE),
        "subsets": ("reward_bench_subsets.csv", ()),
    },
    variants={
        "xstest counts swapped (before September 2024)": {
            "weights": "published-before-2024-09"
        },
        "weighted by the prompts there are (math-prm 447, not 984)": {
            "weights": "counts"
        },
        "ties count half": {"ties": "half"},
        "ties are left out": {"ties": "drop"},
        "prior sets left out": {"prior_sets": "none"},
        "prior sets at full weight": {"prior_sets": "full"},
        "all subsets of a section count alike": {"weights": "alike"},
    },
)
