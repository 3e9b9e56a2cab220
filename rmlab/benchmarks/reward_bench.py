"""RewardBench 1: one right and one wrong answer to a prompt, 23 subsets in four
sections, and the prior sets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd

from rmlab import records
from rmlab.benchmarks.benchmark import Benchmark, own_domains, refuse_strange
from rmlab.benchmarks.hub import HubPlace
from rmlab.benchmarks.layout import Files, Layout
from rmlab.benchmarks.rows import FileRow, read_answers
from rmlab.estimation.items import Items, Parts, comparison_items
from rmlab.records import Row
from rmlab.tables import PROMPT, BoolArray, FloatArray, IntArray

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
ITEMS = 2985

_SECTION_OF: dict[str, str] = {}
for _section, _counts in SECTIONS.items():
    _SECTION_OF |= dict.fromkeys(_counts, _section)
SUBSETS = (*_SECTION_OF, *PRIOR_SETS)

_PRIOR_WEIGHT = {"half": 0.5, "none": 0.0, "full": 1.0}


def subset_of_item(item: str) -> str | None:
    """Subset of a RewardBench 1 item (split `filtered`, ids 0 to 2984), or None where
    the id is not one of them.

    >>> subset_of_item("2538"), subset_of_item("2985")
    ('math-prm', None)
    """
    return _released_items()["subset"].get(item)


def find_task(item: str, subset: str) -> str:
    """The released task of an item, or the item alone where the subset has no such id.

    >>> find_task("1719", "hep-go"), find_task("1719", "hep-js")
    ('task 1555', 'hep-js/1719')
    """
    if subset_of_item(item) != subset:
        return f"{subset}/{item}"
    task = _released_items()["task"][item]
    return f"task {task}"


@cache
def _released_items() -> pd.DataFrame:
    """Subset and task of each released item, by id; a task is named by the lowest id
    with the same prompt.
    """
    path = records.shipped("reward_bench_items.csv")
    return pd.read_csv(path, dtype="str").set_index("id")


def read(files: Files) -> pd.DataFrame:
    """Responses of RewardBench 1 rows: one chosen and one rejected answer (strings);
    the subset is the domain.
    """
    return read_answers(files, REWARD_BENCH.name, _describe, 1)


def _describe(row: FileRow) -> Row:
    return {"domain": row.read_subset(list(REWARD_BENCH.subsets))}


def make_items(
    table: pd.DataFrame, ties: str, *, by: Sequence[str], cluster: Sequence[str]
) -> Items:
    """One comparison a prompt; a task in several subsets (hep-*, alpacaeval-*,
    mt-bench-*) is one cluster.
    """
    items = comparison_items(table, ties, by=by, cluster=cluster)
    known = REWARD_BENCH.subsets
    refuse_strange("subset", items.frame["subset"].unique(), known, REWARD_BENCH.title)
    if list(cluster) == PROMPT:
        return replace(items, cluster=_task_codes(items.frame))
    return items


def make_parts(items: Items, options: Mapping[str, str]) -> Parts:
    """Sections alike, subsets inside them by published counts; prior sets at half
    weight where a model has them all.

    With weights="counts", sections are pools of their prompts. A section without one of
    its subsets is then incomplete.
    """
    is_pooled = options["weights"] == "counts"
    if is_pooled:
        weight_of_part = dict.fromkeys(SECTIONS, 1.0)
    else:
        weight_of_part = _weigh_subsets(options["weights"])
    has_subset = _find_answered(items)
    has_prior_sets = np.all([has_subset[name] for name in PRIOR_SETS], axis=0)
    prior_weight = _PRIOR_WEIGHT[options["prior_sets"]] / len(PRIOR_SETS)

    names = [*weight_of_part, *PRIOR_SETS, *UNCOUNTED]
    first_prior_set = len(weight_of_part)
    first_uncounted = first_prior_set + len(PRIOR_SETS)
    weights: FloatArray = np.zeros((len(items.models), len(names)))
    weights[:, :first_prior_set] = list(weight_of_part.values())
    weights[has_prior_sets, first_prior_set:first_uncounted] = prior_weight

    part = items.frame["subset"]
    reasons = {}
    if is_pooled:
        part = part.replace(_SECTION_OF)
        reasons = _name_absent_subsets(has_subset)
    of_item = pd.Index(names).get_indexer(pd.Index(part))
    return Parts(names, of_item, weights, reasons=reasons)


def _find_answered(items: Items) -> dict[str, BoolArray]:
    """Which models have an answered comparison of each subset."""
    subset_of_item = items.frame["subset"].to_numpy(object)
    is_answered = ~np.isnan(items.credit)
    has_subset: dict[str, BoolArray] = {}
    for subset in SUBSETS:
        of_subset = is_answered[:, subset_of_item == subset]
        has_subset[subset] = np.any(of_subset, axis=1)
    return has_subset


def _name_absent_subsets(
    has_subset: Mapping[str, BoolArray],
) -> dict[tuple[int, int], str]:
    """Why a section is missing, for each model that lacks one of its subsets."""
    reasons = {}
    for place, section in enumerate(SECTIONS.values()):
        lacks = np.array([~has_subset[subset] for subset in section])
        for model in np.flatnonzero(lacks.any(axis=0)):
            absent = np.array(list(section))[lacks[:, model]]
            reasons[int(model), place] = f"nothing in {', '.join(absent)}"
    return reasons


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


def _task_codes(frame: pd.DataFrame) -> IntArray:
    """Cluster of each item: its task, where the item is one of the released ones, else
    its prompt.
    """
    key = ["id", "subset"]
    released = frame[key].merge(_released_items(), how="left", on=key)
    prompts = frame["subset"] + "/" + frame["id"]
    clusters = ("task " + released["task"]).fillna(prompts)
    return pd.factorize(clusters)[0].astype(np.intp)


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
        read=read,
        hub=HubPlace(
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
    ),
    make_items=make_items,
    make_parts=make_parts,
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
