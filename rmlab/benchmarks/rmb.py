"""RMB: helpfulness and harmlessness, each as pairs and as best of n, where the best
answer must beat every loser.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.benchmarks.benchmark import Benchmark, own_domains
from rmlab.benchmarks.layout import JsonRow, Layout
from rmlab.estimation.items import CREDIT_OF_OUTCOME, WIN, Items, build_items
from rmlab.records import Row
from rmlab.tables import PROMPT, group_codes

_DOMAIN_OF = {
    ("Pairwise_set", "Helpfulness"): "helpfulness_pairs",
    ("BoN_set", "Helpfulness"): "helpfulness_best_of_n",
    ("Pairwise_set", "Harmlessness"): "harmlessness_pairs",
    ("BoN_set", "Harmlessness"): "harmlessness_best_of_n",
}
DOMAINS = tuple(_DOMAIN_OF.values())

_log = logging.getLogger(__name__)


def read_row(row: JsonRow, file: Path) -> Iterator[Row]:
    """A pair, or the best answer to a prompt and its losers; `scenario` is the place in
    the set.
    """
    domain, scenario = _split_category(row["category_path"])
    prompt = {
        "subset": domain,
        "prompt": row["conversation_input"],
        "scenario": scenario,
    }
    if "bon_uid" in row:
        prompt["id"] = row["bon_uid"]
        prompt["chosen"] = _list_texts(row["bon_best"])
        prompt["rejected"] = _list_texts(row["loser_list"])
    else:
        prompt["id"] = row["pair_uid"]
        prompt["chosen"] = _list_texts(row["chosen"])
        prompt["rejected"] = _list_texts(row["reject"])
    yield prompt


def _split_category(path: object) -> tuple[str, str]:
    """Domain and scenario of `<set>/<goal>/<scenario>`."""
    folder, goal, scenario = str(path).split("/", 2)
    return _DOMAIN_OF[folder, goal], scenario


def _list_texts(answers: JsonRow | list[JsonRow]) -> list[object]:
    listed = answers if isinstance(answers, list) else [answers]
    return [answer["answer"] for answer in listed]


def adapt_results(path: Path, prompts: pd.DataFrame) -> pd.DataFrame:
    """Rows of the runner's result files. They hold no prompts: a pair is a cluster of
    its own.
    """
    _log.warning(
        "%s: no prompts in this file, so pairs of one prompt count as independent; "
        "to mend it, merge the column 'question' of rmlab.load('rmb', path=...)",
        path,
    )
    places = prompts.pop("category_path").map(_split_category)
    return prompts.assign(
        domain=places.str[0],
        subset=places.str[0],
        scenario=places.str[1],
        question=prompts["id"].astype("str"),
    )


def make_items(
    table: pd.DataFrame, ties: str, *, by: Sequence[str], cluster: Sequence[str]
) -> Items:
    """One item an id, as good as the worst of its comparisons; prompts that stand in
    both sets are one cluster.
    """
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


RMB = Benchmark(
    name="rmb",
    title="RMB",
    source="arXiv 2410.09893, table 3",
    cluster=("question",),
    subsets=own_domains(DOMAINS),
    # How the paper weighs scenarios is not stated: ids of a domain count alike.
    weights=dict.fromkeys(DOMAINS, 1.0),
    columns=DOMAINS,
    chance={
        "helpfulness_pairs": 0.5,
        "helpfulness_best_of_n": float("nan"),
        "harmlessness_pairs": 0.5,
        "harmlessness_best_of_n": float("nan"),
    },
    layout=Layout(
        read_row=read_row,
        result_fields={
            "id": "pair_uid",
            "category_path": "category_path",
            "chosen_score": "chosen_reward",
            "rejected_score": "reject_reward",
        },
        adapt_results=adapt_results,
    ),
    make_items=make_items,
)
