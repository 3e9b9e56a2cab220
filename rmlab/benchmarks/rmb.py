"""RMB: helpfulness and harmlessness, each as pairs and as best of n, where the best
answer must beat every loser.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from rmlab import tables
from rmlab.benchmarks.benchmark import Benchmark, own_domains
from rmlab.benchmarks.layout import JsonRow, Layout
from rmlab.estimation.items import Items, comparison_items
from rmlab.records import Row
from rmlab.tables import PROMPT

_DOMAIN_OF = {
    ("Pairwise_set", "Helpfulness"): "helpfulness_pairs",
    ("BoN_set", "Helpfulness"): "helpfulness_best_of_n",
    ("Pairwise_set", "Harmlessness"): "harmlessness_pairs",
    ("BoN_set", "Harmlessness"): "harmlessness_best_of_n",
}
DOMAINS = tuple(_DOMAIN_OF.values())

_PAIR_FIELDS = ("pair_uid", "chosen", "reject")
_LIST_FIELDS = ("bon_uid", "bon_best", "loser_list")


def read_row(row: JsonRow, file: Path) -> Iterator[Row]:
    """A pair, or the best answer to a prompt and its losers; `scenario` is the place in
    the set.
    """
    folder, goal, scenario = str(row["category_path"]).split("/", 2)
    item, chosen, rejected = _PAIR_FIELDS
    if "bon_uid" in row:
        item, chosen, rejected = _LIST_FIELDS
    yield {
        "id": row[item],
        "subset": _DOMAIN_OF[folder, goal],
        "prompt": row["conversation_input"],
        "chosen": _list_texts(row[chosen]),
        "rejected": _list_texts(row[rejected]),
        "scenario": scenario,
    }


def _list_texts(answers: JsonRow | list[JsonRow]) -> list[object]:
    listed = answers if isinstance(answers, list) else [answers]
    return [answer["answer"] for answer in listed]


def make_items(
    table: pd.DataFrame, ties: str, *, by: Sequence[str], cluster: Sequence[str]
) -> Items:
    """One item an id, as good as the worst of its comparisons; prompts that stand in
    both sets are one cluster.
    """
    key = ["model", *PROMPT]
    # A missing outcome has the lowest code.
    codes = table.assign(code=table["outcome"].cat.codes)
    worst = codes.groupby(key, sort=False)["code"].transform("min")
    outcome = pd.Categorical.from_codes(worst, dtype=tables.OUTCOME)
    rows = table.assign(outcome=outcome, rejected_slot=0)
    return comparison_items(rows.drop_duplicates(key), ties, by=by, cluster=cluster)


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
        "helpfulness_best_of_n": float("nan"),
        "harmlessness_best_of_n": float("nan"),
    },
    layout=Layout(
        read_row=read_row,
    ),
    make_items=make_items,
)
