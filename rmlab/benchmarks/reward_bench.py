"""RewardBench 1: one right and one wrong answer to a prompt, 23 subsets in four
sections, and the prior sets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab import records
from rmlab.benchmarks.benchmark import (
    Benchmark,
    has_answers,
    name_absent_subsets,
    own_domains,
)
from rmlab.benchmarks.layout import Layout
from rmlab.estimation.items import Items, Parts, comparison_items
from rmlab.estimation.weights import weighted_parts
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

_SECTION_OF: dict[str, str] = {}
for _section, _counts in SECTIONS.items():
    _SECTION_OF |= dict.fromkeys(_counts, _section)
SUBSETS = (*_SECTION_OF, *PRIOR_SETS)

_PRIOR_WEIGHT = {"half": 0.5, "none": 0.0, "full": 1.0}


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


def make_parts(items: Items, options: Mapping[str, str]) -> Parts:
    """Sections alike, subsets inside them by published counts; prior sets at half
    weight where a model has them all.

    With weights="counts", sections are pools of their prompts. A section without one of
    its subsets is then incomplete.
    """
    is_pooled = options["weights"] == "counts"
    if is_pooled:
        weight = dict.fromkeys(SECTIONS, 1.0)
        part = items.frame["subset"].replace(_SECTION_OF)
    else:
        weight = _weigh_subsets(options["weights"])
        part = items.frame["subset"]
    prior_weight = _PRIOR_WEIGHT[options["prior_sets"]] / len(PRIOR_SETS)
    weight |= dict.fromkeys(PRIOR_SETS, prior_weight)
    weight |= dict.fromkeys(UNCOUNTED, 0.0)
    parts = weighted_parts(part, weight)

    has_prior_set = has_answers(items, PRIOR_SETS)
    is_prior_set = np.isin(parts.names, PRIOR_SETS)
    is_left_out = np.outer(~has_prior_set.all(axis=0), is_prior_set)
    parts = replace(parts, weight=np.where(is_left_out, 0.0, parts.weight))
    if is_pooled:
        return name_absent_subsets(items, parts, SUBSETS_OF_SECTION)
    return parts


def _weigh_subsets(rule: str) -> dict[str, float]:
    """Weight of each subset in its section, by its counts or alike."""
    weight: dict[str, float] = {}
    for section in SECTIONS.values():
        count = dict(section)
        if rule == "alike":
            count = dict.fromkeys(section, 1)
        elif rule == "published-before-2024-09":
            for name in SWAPPED.keys() & section:
                count[name] = SWAPPED[name]
        total = sum(count.values())
        for subset, n in count.items():
            weight[subset] = n / total
    return weight


REWARD_BENCH = Benchmark(
    name="reward-bench",
    title="RewardBench 1",
    source="arXiv 2403.13787, section 4; rewardbench/constants.py of its repository",
    subsets=own_domains((*SUBSETS, *UNCOUNTED)),
    sections={**SUBSETS_OF_SECTION, "prior_sets": PRIOR_SETS},
    columns=(*SECTIONS, "prior_sets"),
    options={
        "weights": ("published", "counts", "published-before-2024-09", "alike"),
        "prior_sets": ("half", "none", "full"),
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
    make_items=make_items,
    make_parts=make_parts,
)
