"""RewardBench 1: one right and one wrong answer to a prompt, 23 subsets in four
sections, and the prior sets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab import records
from rmlab.benchmarks.benchmark import Benchmark, Weights, own_domains
from rmlab.benchmarks.layout import Layout
from rmlab.estimation.items import Items, comparison_items
from rmlab.tables import PROMPT

_LANGUAGES = ("cpp", "go", "java", "js", "python", "rust")
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
    # math-prm has 447 rows, counted so that mathematics weighs as much as code.
    "reasoning": {
        "math-prm": 984,
        **dict.fromkeys([f"hep-{language}" for language in _LANGUAGES], 164),
    },
}
SUBSETS_OF_SECTION = {name: tuple(subsets) for name, subsets in SECTIONS.items()}
SWAPPED = {"xstest-should-refuse": 250, "xstest-should-respond": 154}
PRIOR_SETS = ("anthropic_helpful", "anthropic_hhh", "shp", "summarize")
# In the files, in no section.
UNCOUNTED = ("anthropic_harmless", "mtbench_human", "mtbench_gpt4")


_PRIOR_WEIGHT = {"half": 0.5, "none": 0.0}


class _Released(NamedTuple):
    """Subset and task of a released item; a task is named by the lowest id with the
    same prompt.
    """

    subset: str
    task: str


def subset_of_item(item: str) -> str | None:
    """Subset of a RewardBench 1 item (split `filtered`, ids 0 to 2984), or None where
    the id is not one of them.

    >>> subset_of_item("2538"), subset_of_item("2985")
    ('math-prm', None)
    """
    released = _released_items().get(item)
    return None if released is None else released.subset


def find_task(item: str, subset: str) -> str:
    """The released task of an item, or the item alone where the subset has no such id.

    >>> find_task("1719", "hep-go"), find_task("1719", "hep-js")
    ('task 1555', 'hep-js/1719')
    """
    released = _released_items().get(item)
    if released is None or released.subset != subset:
        return f"{subset}/{item}"
    return f"task {released.task}"


@cache
def _released_items() -> dict[str, _Released]:
    items = pd.read_csv(records.shipped("reward_bench_items.csv"), dtype="str")
    released = map(_Released, items["subset"], items["task"])
    return dict(zip(items["id"], released, strict=True))


def make_items(
    table: pd.DataFrame, ties: str, *, by: Sequence[str], cluster: Sequence[str]
) -> Items:
    """One comparison a prompt; a task in several subsets (hep-*, alpacaeval-*,
    mt-bench-*) is one cluster.
    """
    items = comparison_items(table, ties, by=by, cluster=cluster)
    if list(cluster) == PROMPT:
        tasks = list(map(find_task, items.frame["id"], items.frame["subset"]))
        return replace(items, cluster=pd.factorize(np.array(tasks, object))[0])
    return items


def weigh_subsets(options: Mapping[str, str]) -> Weights:
    """Sections alike, subsets inside them by published counts; prior sets at half
    weight. With weights="counts", sections are pools of their prompts.
    """
    rule = options["weights"]
    prior_weight = _PRIOR_WEIGHT[options["prior_sets"]] / len(PRIOR_SETS)
    weight = dict.fromkeys(PRIOR_SETS, prior_weight)
    weight |= dict.fromkeys(UNCOUNTED, 0.0)
    if rule == "counts":
        return dict.fromkeys(SECTIONS, 1.0) | weight
    for section in SECTIONS.values():
        count = dict(section)
        if rule == "alike":
            count = dict.fromkeys(section, 1)
        elif rule == "published-before-2024-09" and SWAPPED.keys() <= section.keys():
            count |= SWAPPED
        weight |= share_out(count)
    return weight


def share_out(count: Mapping[str, int]) -> dict[str, float]:
    """The share of each subset in its section."""
    total = sum(count.values())
    return {subset: n / total for subset, n in count.items()}


REWARD_BENCH = Benchmark(
    name="reward-bench",
    title="RewardBench 1",
    source="arXiv 2403.13787, section 4; rewardbench/constants.py of its repository",
    subsets=own_domains([*chain(*SECTIONS.values()), *PRIOR_SETS, *UNCOUNTED]),
    sections={**SUBSETS_OF_SECTION, "prior_sets": PRIOR_SETS},
    columns=(*SECTIONS, "prior_sets"),
    options={
        "weights": ("published", "counts", "published-before-2024-09", "alike"),
        "prior_sets": ("half", "none"),
    },
    layout=Layout(
        files=("*filtered-*",),
        hub=("allenai/reward-bench",),
        revision="168d848cdbbea9764fae4a544dc9ca1e6cca4931",
        n_prompts=2985,
        result_fields={
            "id": "id",
            "subset": "subset",
            "chosen_score": "scores_chosen",
            "rejected_score": "scores_rejected",
        },
    ),
    weights=weigh_subsets,
    optional=PRIOR_SETS,
    make_items=make_items,
)
