"""RewardBench 2: best of four in five subsets, and Ties, where many right answers
should score alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.benchmarks.benchmark import Benchmark, Weights, own_domains
from rmlab.benchmarks.layout import Layout
from rmlab.estimation.best_of import SHARED_CREDIT, best_of
from rmlab.estimation.items import LOSS, MISSING, WIN, Items, build_items
from rmlab.estimation.ties import TIES, WEIGHTS, ties_score
from rmlab.tables import PROMPT, DataError

NAMES = {
    "Factuality": "factuality",
    "Precise IF": "precise_if",
    "Math": "math",
    "Safety": "safety",
    "Focus": "focus",
    TIES: "ties",
}
_ANSWERS = 4
_BEST_TIES = sum(WEIGHTS.values())  # the highest score of a pair of Ties prompts


def make_items(
    table: pd.DataFrame, ties: str, *, by: Sequence[str], cluster: Sequence[str]
) -> Items:
    """One item a prompt, best of four; in Ties one item a pair of prompts (ref:N,
    tied:N), from -0.01 to 1.01.
    """
    if "score" not in table.columns:
        problem = "table: RewardBench 2 is best of four, which pairs do not say"
        raise DataError(problem, "pass the scores")
    scores = tables.check_scores(table, allow_missing=True)
    is_ties = scores["domain"] == TIES
    parts = []
    if not is_ties.all():
        parts.append(_list_best_of_four(scores[~is_ties], ties))
    if is_ties.any():
        parts.append(_list_ties(scores[is_ties]))
    key = ["model", *PROMPT]
    credits = pd.concat(parts, ignore_index=True)[[*key, "credit", "outcome"]]

    # A pair of Ties prompts has the columns of its first prompt.
    pair = scores["id"].str.partition(":")[2]
    prompts = scores.assign(id=scores["id"].where(~is_ties, pair))
    rows = prompts.drop_duplicates(key).merge(credits, on=key)
    items = build_items(
        rows,
        key=PROMPT,
        outcome=rows["outcome"].to_numpy(np.int8),
        credit=rows["credit"].to_numpy(float),
        columns=["subset"],
        by=by,
        cluster=cluster,
    )
    in_ties = (items.frame["domain"] == TIES).to_numpy()
    bounds = np.where(in_ties[:, None], [-WEIGHTS["margin"], _BEST_TIES], [0.0, 1.0])
    return replace(items, bounds=bounds)


def weigh_subsets(options: Mapping[str, str]) -> Weights:
    """The six subsets alike."""
    weight = dict.fromkeys(NAMES, 1.0)
    if options["overall"] == "without-ties":
        weight[TIES] = 0.0
    return weight


def _list_best_of_four(scores: pd.DataFrame, ties: str) -> pd.DataFrame:
    """Credit and outcome of each prompt of one chosen and three rejected answers."""
    rows = best_of(scores, ties=ties)  # type: ignore[arg-type]
    is_wrong = (rows["n_answers"] != _ANSWERS) | (rows["n_chosen"] != 1)
    if is_wrong.any():
        first = rows.loc[is_wrong, ["model", *PROMPT]].iloc[0].to_dict()
        expected = "one chosen and three rejected answers"
        problem = f"scores: {is_wrong.sum()} prompts are not {expected}"
        raise DataError(f"{problem}, first {first}", "score all answers")
    return rows


def _list_ties(scores: pd.DataFrame) -> pd.DataFrame:
    """Credit and outcome of each pair of Ties prompts."""
    pairs = ties_score(scores)
    score = pairs["score"]
    has_won = score >= _BEST_TIES - WEIGHTS["margin"]
    outcome = np.select([score.isna(), has_won], [MISSING, WIN], LOSS)
    return pairs.assign(domain=TIES, id=pairs["number"], credit=score, outcome=outcome)


REWARD_BENCH_2 = Benchmark(
    name="reward-bench-2",
    title="RewardBench 2",
    source="arXiv 2506.01937, table 3; rewardbench/utils.py of its repository",
    needs="scores",
    subsets=own_domains(NAMES),
    columns=tuple(NAMES.values()),
    subset_names=NAMES,
    ties=SHARED_CREDIT,
    options={"overall": ("six-subsets", "without-ties")},
    chance={**dict.fromkeys(NAMES, 1 / _ANSWERS), TIES: float("nan")},
    layout=Layout(
        files=("*test-*",),
        hub=("allenai/reward-bench-2",),
        revision="7ff08853b0d5686e79b13fda8677024f566a104a",
        n_prompts=1865,
        result_fields={
            "id": "id",
            "subset": "subset",
            "scores": "scores",
            "num_correct": "num_correct",
        },
    ),
    weights=weigh_subsets,
    make_items=make_items,
)
