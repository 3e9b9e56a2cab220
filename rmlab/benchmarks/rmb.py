"""RMB: helpfulness and harmlessness, each as pairs and as best of n, where the best
answer must beat every loser.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.benchmarks.benchmark import Benchmark, own_domains, refuse_strange
from rmlab.benchmarks.layout import Files, Layout, all_files
from rmlab.benchmarks.rows import FileRow, as_list, read_answers
from rmlab.estimation.items import (
    CREDIT_OF_OUTCOME,
    WIN,
    Items,
    Parts,
    build_items,
)
from rmlab.estimation.weights import weighted_parts
from rmlab.records import Row, refuse_rows
from rmlab.tables import PROMPT, group_codes

_DOMAIN_OF = {
    ("Pairwise_set", "Helpfulness"): "helpfulness_pairs",
    ("BoN_set", "Helpfulness"): "helpfulness_best_of_n",
    ("Pairwise_set", "Harmlessness"): "harmlessness_pairs",
    ("BoN_set", "Harmlessness"): "harmlessness_best_of_n",
}
DOMAINS = tuple(_DOMAIN_OF.values())
_ALLOWED = "'<Pairwise_set or BoN_set>/<Helpfulness or Harmlessness>/<scenario>'"

_log = logging.getLogger(__name__)


def read(files: Files) -> pd.DataFrame:
    """Responses of RMB rows; `scenario` is the place in the set, `question` the same
    for all rows of a prompt.

    A scenario that one of the two sets has and the other lacks is named in a warning.
    """
    responses = read_answers(files, "rmb", _rename, names_question=True)
    places = responses[["domain", "scenario"]].drop_duplicates().astype("str")
    places["name"] = places["domain"].str.split("_").str[0] + "/" + places["scenario"]
    in_one_set = ~places.duplicated("name", keep=False)
    lacking = places.loc[in_one_set, "name"].tolist()
    if lacking:
        _log.warning(
            "rmb: %d scenarios are in one set only, first %s",
            len(lacking),
            ", ".join(lacking[:5]),
        )
    present = set(responses["domain"])
    missing = [domain for domain in DOMAINS if domain not in present]
    responses.attrs["missing_domains"] = missing
    return responses


def _rename(row: FileRow) -> Row:
    domain, scenario = _split_category(row.cells.get("category_path"))
    if domain is None:
        row.refuse("category_path", _ALLOWED)
    cells: Row = {
        "domain": domain,
        "prompt": row.read_prompt("conversation_input"),
        "scenario": scenario,
    }
    if "bon_uid" in row.cells:
        cells["id"] = row.read_id("bon_uid")
        cells["chosen"] = _list_texts(row, "bon_best")
        cells["rejected"] = _list_texts(row, "loser_list")
    else:
        cells["id"] = row.read_id("pair_uid")
        cells["chosen"] = _list_texts(row, "chosen")
        cells["rejected"] = _list_texts(row, "reject")
    return cells


def _split_category(path: object) -> tuple[str | None, str]:
    """Domain and scenario of a category path; None for an unknown one."""
    folder, _, goal_and_scenario = str(path).partition("/")
    goal, _, scenario = goal_and_scenario.partition("/")
    domain = _DOMAIN_OF.get((folder, goal)) if scenario else None
    return domain, scenario


def _list_texts(row: FileRow, column: str) -> list[object]:
    answers = as_list(row.cells.get(column))
    texts = []
    for answer in answers:
        if isinstance(answer, dict) and answer.get("answer"):
            texts.append(answer["answer"])
    if not answers or len(texts) < len(answers):
        row.refuse(column, "an object with 'answer', or a list of these")
    return texts


def adapt_results(path: Path, prompts: pd.DataFrame) -> pd.DataFrame:
    """Rows of the runner's result files. They hold no prompts: a pair is a cluster of
    its own.
    """
    places = prompts["category_path"].map(_split_category)
    domain = places.str[0]
    refuse_rows(path, prompts["category_path"], domain.isna(), _ALLOWED)
    _log.warning(
        "%s: no prompts in this file, so pairs of one prompt count as independent; "
        "to mend it, merge the column 'question' of rmlab.load('rmb', path=...)",
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
    refuse_strange("domain", table["domain"].unique(), DOMAINS, RMB.title)
    group, first_rows = group_codes(table, ["model", *PROMPT])
    of_comparison = pd.Categorical(table["outcome"], dtype=tables.OUTCOME)
    outcome = np.full(len(first_rows), WIN, np.int8)
    np.minimum.at(outcome, group, of_comparison.codes)
    # The code of a missing outcome is -1, the last entry.
    credit = CREDIT_OF_OUTCOME[ties][outcome]
    rows = table.iloc[first_rows]
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
    return weighted_parts(items.frame["domain"], dict.fromkeys(DOMAINS, 1.0))


RMB = Benchmark(
    name="rmb",
    title="RMB",
    source="arXiv 2410.09893, table 3",
    cluster=("question",),
    subsets=own_domains(DOMAINS),
    columns=DOMAINS,
    chance={
        "helpfulness_pairs": 0.5,
        "helpfulness_best_of_n": float("nan"),
        "harmlessness_pairs": 0.5,
        "harmlessness_best_of_n": float("nan"),
    },
    layout=Layout(
        read=read,
        folder_files=all_files,
        result_fields={
            "id": "pair_uid",
            "category_path": "category_path",
            "chosen_score": "chosen_reward",
            "rejected_score": "reject_reward",
        },
        adapt_results=adapt_results,
    ),
    make_items=make_items,
    make_parts=make_parts,
    variants={"all ids count alike, not all domains": {"average": "prompts"}},
)
