"""RMB: helpfulness and harmlessness, each as pairs and as best of n, where the best
answer must beat every loser.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.benchmarks.benchmark import Benchmark, Files, all_files, refuse_strange
from rmlab.benchmarks.rows import Record, read_renamed
from rmlab.estimation.items import CREDIT_OF_OUTCOME, WIN, Items, as_pairs, build_items
from rmlab.estimation.weights import Parts, weighted_parts
from rmlab.records import Row, refuse_rows
from rmlab.tables import PROMPT, group_codes

_SETS = {"Pairwise_set": "pairs", "BoN_set": "best_of_n"}
_GOALS = {"Helpfulness": "helpfulness", "Harmlessness": "harmlessness"}
_DOMAIN_OF = {
    (folder, goal): f"{_GOALS[goal]}_{_SETS[folder]}"
    for goal in _GOALS
    for folder in _SETS
}
DOMAINS = tuple(_DOMAIN_OF.values())
_ALLOWED = "'<Pairwise_set or BoN_set>/<Helpfulness or Harmlessness>/<scenario>'"

_log = logging.getLogger(__name__)


def read(files: Files) -> pd.DataFrame:
    """Responses of RMB rows; `scenario` is the place in the set, `question` the same
    for all rows of a prompt.

    A scenario that one of the two sets has and the other lacks is named in a warning.
    """
    responses = read_renamed(files, "rmb", _rename)
    places = responses[["domain", "scenario"]].drop_duplicates().astype("str")
    places["name"] = places["domain"].str.split("_").str[0] + "/" + places["scenario"]
    if lacking := places.loc[~places.duplicated("name", keep=False), "name"].tolist():
        _log.warning(
            "rmb: %d scenarios are in one set only, first %s",
            len(lacking),
            ", ".join(lacking[:5]),
        )
    responses.attrs["missing_domains"] = [
        domain for domain in DOMAINS if domain not in {*responses["domain"]}
    ]
    return responses


def _rename(record: Record) -> Row:
    row = record.row
    domain, scenario = _split_category(row.get("category_path"))
    if domain is None:
        record.refuse("category_path", _ALLOWED)
    is_list = "bon_uid" in row
    chosen, rejected = ("bon_best", "loser_list") if is_list else ("chosen", "reject")
    return {
        "id": record.read_id("bon_uid" if is_list else "pair_uid"),
        "domain": domain,
        "prompt": record.read_prompt("conversation_input"),
        "chosen": _list_texts(record, chosen),
        "rejected": _list_texts(record, rejected),
        "scenario": scenario,
    }


def _split_category(path: object) -> tuple[str | None, str]:
    """Domain and scenario of a category path; None for an unknown one."""
    folder, goal, scenario = [*str(path).split("/", 2), "", ""][:3]
    return (_DOMAIN_OF.get((folder, goal)) if scenario else None), scenario


def _list_texts(record: Record, column: str) -> list[object]:
    value = record.row.get(column)
    answers = value if isinstance(value, list) else [value]
    if not answers or not all(
        isinstance(answer, dict) and answer.get("answer") for answer in answers
    ):
        record.refuse(column, "an object with 'answer', or a list of these")
    return [answer["answer"] for answer in answers if isinstance(answer, dict)]


def adapt_results(path: Path, prompts: pd.DataFrame) -> pd.DataFrame:
    """Rows of the runner's result files. They hold no prompts: a pair is a cluster of
    its own.
    """
    places = prompts["category_path"].map(_split_category)
    domain = places.str[0]
    refuse_rows(path, prompts["category_path"], domain.isna(), _ALLOWED)
    _log.warning(
        "%s: no prompts in this file, so pairs of one prompt count as independent; to mend it, merge the "
        "column 'question' of rmlab.load('rmb', path=...)",
        path,
    )
    prompts = prompts.drop(columns="category_path")
    return prompts.assign(
        domain=domain,
        subset=domain,
        scenario=places.str[1],
        question=prompts["id"].astype("str"),
    )


def make_items(
    table: pd.DataFrame, ties: str, *, by: Sequence[str], cluster: Sequence[str]
) -> Items:
    """One item an id, as good as the worst of its comparisons; prompts that stand in
    both sets are one cluster.
    """
    comparisons = as_pairs(table)
    refuse_strange("domain", comparisons["domain"].unique(), DOMAINS, RMB.title)
    group, first_rows = group_codes(comparisons, ["model", *PROMPT])
    outcome = np.full(len(first_rows), WIN, np.int8)
    np.minimum.at(
        outcome,
        group,
        pd.Categorical(comparisons["outcome"], dtype=tables.OUTCOME).codes,
    )  # missing: -1
    credit = CREDIT_OF_OUTCOME[ties][outcome]
    rows = comparisons.iloc[first_rows]
    return build_items(
        rows,
        key=PROMPT,
        outcome=outcome,
        credit=credit,
        columns=["subset"],
        by=by,
        cluster=cluster,
    )


def make_parts(items: Items, options: Mapping[str, str]) -> Parts:
    """The four domains alike. How the paper weighs scenarios is not stated: here all
    ids of a domain count alike.
    """
    return weighted_parts(
        items, items.cells["domain"].tolist(), dict.fromkeys(DOMAINS, 1.0)
    )


RMB = Benchmark(
    name="rmb",
    title="RMB",
    source="arXiv 2410.09893, table 3",
    cluster=("question",),
    subsets={name: name for name in DOMAINS},
    columns=DOMAINS,
    chance={name: 0.5 if name.endswith("pairs") else float("nan") for name in DOMAINS},
    folder_files=all_files,
    read=read,
    result_fields={
        "id": "pair_uid",
        "category_path": "category_path",
        "chosen_score": "chosen_reward",
        "rejected_score": "reject_reward",
    },
    adapt_results=adapt_results,
    make_items=make_items,
    make_parts=make_parts,
    published={"skywork-v2": ("rmb.csv", ["overall"])},
    variants={"all ids count alike, not all domains": {"average": "prompts"}},
)
