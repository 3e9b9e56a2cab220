"""RewardBench 2: best of four in five subsets, and Ties, where many right answers
should score alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.benchmarks.benchmark import Benchmark, Files, refuse_strange
from rmlab.benchmarks.hub import Source
from rmlab.benchmarks.rows import Record, read_answers
from rmlab.estimation.best_of_n import SHARED_CREDIT, best_of, best_of_outcome
from rmlab.estimation.items import LOSS, MISSING, WIN, Items, build_items
from rmlab.estimation.ties import TIES, WEIGHTS, ties_score
from rmlab.estimation.weights import Parts, weighted_parts
from rmlab.records import Row
from rmlab.tables import LABELS, PROMPT, DataError

NAMES = {
    name: name.lower().replace(" ", "_")
    for name in ("Factuality", "Precise IF", "Math", "Safety", "Focus", TIES)
}
_ANSWERS = 4


def read(files: Files) -> pd.DataFrame:
    """Responses of RewardBench 2 rows: lists of chosen and rejected answers; the subset
    is the domain.
    """
    return read_answers(files, REWARD_BENCH_2.name, _describe)


def _describe(record: Record) -> Row:
    """The domain of a row whose counts, where it has them, are those of its texts."""
    n_chosen, n_rejected = (len(record.read_texts(label, None)) for label in LABELS)
    counts = {"num_correct": n_chosen, "total_completions": n_chosen + n_rejected}
    for name, n_texts in counts.items():
        if record.row.get(name) not in (None, n_texts):
            record.refuse(name, f"{n_texts}, as many texts as are there")
    return {"domain": record.read_subset([*NAMES])}


def make_items(
    table: pd.DataFrame, ties: str, *, by: Sequence[str], cluster: Sequence[str]
) -> Items:
    """One item a prompt, best of four; in Ties one item a pair of prompts (ref:N,
    tied:N), from -0.01 to 1.01.
    """
    if "score" not in table.columns:
        raise DataError(
            "table: RewardBench 2 is best of four, which pairs do not say. Pass the scores."
        )
    scores = tables.check_scores(table, allow_missing=True)
    refuse_strange("subset", scores["subset"], NAMES, REWARD_BENCH_2.title)
    is_ties = scores["subset"] == TIES
    parts = [_list_best_of_four(scores[~is_ties], ties)] if not is_ties.all() else []
    parts += [_list_ties(scores[is_ties])] if is_ties.any() else []
    rows = pd.concat(
        [part[["model", *PROMPT, "subset", "credit", "outcome"]] for part in parts],
        ignore_index=True,
    )
    columns = [
        column
        for column in dict.fromkeys([*by, *cluster])
        if column not in rows and column in scores
    ]
    rows = _add_prompt_columns(rows, scores, columns)
    rows = rows.iloc[
        np.argsort(
            pd.Index(scores["model"].unique()).get_indexer(rows["model"]), kind="stable"
        )
    ]
    outcome, credit = rows["outcome"].to_numpy(np.int8), rows["credit"].to_numpy(float)
    items = build_items(
        rows,
        key=PROMPT,
        outcome=outcome,
        credit=credit,
        columns=["subset"],
        by=by,
        cluster=cluster,
    )
    in_ties = (items.cells["subset"] == TIES).to_numpy()
    bounds = np.where(
        in_ties[:, None], [-WEIGHTS["margin"], sum(WEIGHTS.values())], [0.0, 1.0]
    )
    return replace(items, bounds=bounds)


def make_parts(items: Items, options: Mapping[str, str]) -> Parts:
    """The six subsets alike."""
    weight = {
        name: 0.0 if name == TIES and options["overall"] == "without-ties" else 1.0
        for name in NAMES
    }
    return weighted_parts(items, items.cells["subset"].tolist(), weight)


def _list_best_of_four(scores: pd.DataFrame, ties: str) -> pd.DataFrame:
    """Credit and outcome of each prompt of one chosen and three rejected answers."""
    rows = best_of(scores, ties=ties)  # type: ignore[arg-type]
    is_chosen = (scores["label"] == "chosen").groupby(
        [scores[name] for name in ("model", *PROMPT)], sort=False
    )
    wrong = (rows["n_answers"].to_numpy() != _ANSWERS) | (
        is_chosen.sum().to_numpy() != 1
    )
    if wrong.any():
        first = (
            rows.loc[wrong, ["model", "domain", "id", "n_answers"]].iloc[0].to_dict()
        )
        raise DataError(
            f"scores: {int(wrong.sum())} prompts are not one chosen and three rejected answers, first {first}. "
            "Score all answers of the benchmark."
        )
    return rows.assign(outcome=best_of_outcome(rows))


def _list_ties(scores: pd.DataFrame) -> pd.DataFrame:
    """Credit and outcome of each pair of Ties prompts."""
    rows = ties_score(scores)
    score = rows["score"]
    outcome = np.where(
        score.isna(),
        MISSING,
        np.where(score >= sum(WEIGHTS.values()) - WEIGHTS["margin"], WIN, LOSS),
    )
    return rows.assign(
        domain=TIES,
        subset=TIES,
        id=rows["number"],
        credit=score,
        outcome=outcome.astype(np.int8),
    )


def _add_prompt_columns(
    rows: pd.DataFrame, scores: pd.DataFrame, columns: list[str]
) -> pd.DataFrame:
    """`rows` with columns of the scores; a pair of Ties prompts has those of its first
    prompt.
    """
    number = scores["id"].str.partition(":")[2]
    prompts = scores.assign(id=scores["id"].where(scores["domain"] != TIES, number))[
        ["domain", "id", *columns]
    ]
    return rows.merge(
        prompts.drop_duplicates(["domain", "id"]), on=["domain", "id"], how="left"
    )


REWARD_BENCH_2 = Benchmark(
    name="reward-bench-2",
    title="RewardBench 2",
    source="arXiv 2506.01937, table 3; rewardbench/utils.py of its repository",
    needs="scores",
    subsets={name: name for name in NAMES},
    columns=tuple(NAMES.values()),
    subset_names=NAMES,
    ties=SHARED_CREDIT,
    options={"overall": ("six-subsets", "without-ties")},
    chance={name: float("nan") if name == TIES else 1 / _ANSWERS for name in NAMES},
    read=read,
    hub=Source(
        "allenai/reward-bench-2",
        "7ff08853b0d5686e79b13fda8677024f566a104a",
        1865,
        "data/test-00000-of-00001.parquet",
        "c8ec60efbd75d2f9dcba4121e6101f7a6015abc38a34e034ae2c7ae886265958",
    ),
    result_fields={name: name for name in ("id", "subset", "scores", "num_correct")},
    make_items=make_items,
    make_parts=make_parts,
    published={
        "paper": ("reward_bench_2_paper.csv", [*NAMES.values(), "overall"]),
        "leaderboard": ("reward_bench_2_leaderboard.csv", ()),
        "ppo-bon": (
            "reward_bench_2_ppo_bon.csv",
            [
                "rb2_preprint",
                "ppo",
                "bon",
                "rb2_iclr",
                "rmbench",
                "ppe_human_pref",
                "ppe_correctness",
                "rewardbench1",
            ],
        ),
        "training": ("reward_bench_2_training.csv", [*NAMES.values(), "overall"]),
        "correlations": ("reward_bench_2_correlations.csv", ()),
        "between": ("reward_bench_2_between.csv", ()),
    },
    variants={
        "a shared best score is a loss": {"ties": "loss"},
        "a shared best score is a win": {"ties": "win"},
        "Ties left out of the overall score": {"overall": "without-ties"},
        "all prompts count alike, not all subsets": {"average": "prompts"},
    },
)
