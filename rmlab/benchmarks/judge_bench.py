"""JudgeBench: which of two answers to a hard question is right? Four domains; LLM
judges are asked in both orders.
"""

import math
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.benchmarks.benchmark import Benchmark, Files, all_files, refuse_strange
from rmlab.benchmarks.hub import Source
from rmlab.benchmarks.rows import Record, hash_prompt, read_renamed
from rmlab.estimation.items import Items, comparison_items
from rmlab.records import Row, refuse_rows

_DOMAIN_OF_SOURCE = {
    "mmlu-pro": "knowledge",
    "livebench-reasoning": "reasoning",
    "livebench-math": "math",
    "livecodebench": "coding",
}
DOMAINS = tuple(_DOMAIN_OF_SOURCE.values())
_SIGN = {"A>B": 1.0, "B>A": -1.0}
_SIDES = {"A>B": ("response_A", "response_B"), "B>A": ("response_B", "response_A")}
_RESULT_FILE = re.compile(r"judge_name=([^,]+),judge_model=(.+)$")


def read(files: Files) -> pd.DataFrame:
    """Responses of JudgeBench rows; `question` is the same for the rows of one
    question, also of both splits.
    """
    return read_renamed(files, "judgebench", _rename, 1)


def _rename(record: Record) -> Row:
    source, label = str(record.row.get("source")), str(record.row.get("label"))
    if _find_domain(source) is None:
        record.refuse("source", f"one that begins with {', '.join(_DOMAIN_OF_SOURCE)}")
    if label not in _SIDES:
        record.refuse("label", "'A>B' or 'B>A'")
    chosen, rejected = (record.read_texts(side, 1) for side in _SIDES[label])
    return {
        "id": record.read_id("pair_id"),
        "domain": _find_domain(source),
        "prompt": record.read_prompt("question"),
        "chosen": chosen,
        "rejected": rejected,
        "source": source,
        "response_model": record.read_name("response_model"),
    }


def _find_domain(source: str) -> str | None:
    return next(
        (
            domain
            for prefix, domain in _DOMAIN_OF_SOURCE.items()
            if source.startswith(prefix)
        ),
        None,
    )


def adapt_results(path: Path, prompts: pd.DataFrame) -> pd.DataFrame:
    """Comparisons of a result file: the judge's decisions in both orders, or a reward
    model's two scores.

    Each decision counts +1 for the right answer and -1 for the wrong one; a tie and an
    unreadable decision count 0. The sum decides, as in `utils/metrics.py` of the
    repository. Two equal scores are a tie, whatever the file's decision.
    """
    sign = prompts["label"].map(lambda label: _SIGN.get(str(label), np.nan))
    domain = prompts["source"].map(lambda source: _find_domain(str(source)))
    refuse_rows(path, prompts["label"], sign.isna(), "'A>B' or 'B>A'")
    refuse_rows(
        path,
        prompts["source"],
        domain.isna(),
        f"one that begins with {', '.join(_DOMAIN_OF_SOURCE)}",
    )
    is_read = prompts["judgments"].map(_are_judgments)
    allowed = "a list of one or two judgments, the second in exchanged order, whose scores are numbers"
    refuse_rows(path, prompts["judgments"], ~is_read, allowed)
    votes = sign * prompts["judgments"].map(
        lambda orders: _sum_orders(map(_read_decision, orders))
    )
    margin = sign * prompts["judgments"].map(
        lambda orders: _sum_orders(map(_read_scores, orders)) / len(orders)
    )
    if match := _RESULT_FILE.search(path.stem):
        judge, model = match.groups()
        prompts = prompts.assign(
            model=model if judge == "reward_model" else f"{model} ({judge})"
        )
    return prompts.drop(columns=["judgments", "label"]).assign(
        question=prompts["question"].map(hash_prompt),
        domain=domain,
        subset=domain,
        chosen_slot=0,
        rejected_slot=0,
        margin=margin,
        outcome=tables.outcome(margin.fillna(votes).to_numpy(float)),
    )


def _sum_orders(preferences: Iterable[float]) -> float:
    """Sum of the preferences for answer A; in the second order the answers are
    exchanged.
    """
    return sum(-value if order else value for order, value in enumerate(preferences))


def _read_decision(judgment: object) -> float:
    return (
        _SIGN.get(str(judgment.get("decision")), 0.0)
        if isinstance(judgment, dict)
        else 0.0
    )


def _list_scores(judgment: object) -> list[float]:
    """Scores of the answers in the order shown, none where a judgment has none."""
    inner = judgment.get("judgment") if isinstance(judgment, dict) else None
    scores = inner.get("scores") if isinstance(inner, dict) else None
    return scores if isinstance(scores, list) and len(scores) == 2 else []


def _are_judgments(value: object) -> bool:
    if not isinstance(value, list) or len(value) not in (1, 2):
        return False
    scores = chain.from_iterable(map(_list_scores, value))
    return all(
        isinstance(score, int | float) and abs(score) < math.inf for score in scores
    )


def _read_scores(judgment: object) -> float:
    """Margin of the answer shown first, NaN where a judgment has no scores."""
    scores = _list_scores(judgment)
    return float(scores[0]) - float(scores[1]) if scores else np.nan


def make_items(
    table: pd.DataFrame, ties: str, *, by: Sequence[str], cluster: Sequence[str]
) -> Items:
    """One comparison a pair; a question that stands in both splits is one cluster."""
    items = comparison_items(table, ties, by=by, cluster=cluster)
    refuse_strange("domain", items.cells["domain"], DOMAINS, JUDGE_BENCH.title)
    return items


JUDGE_BENCH = Benchmark(
    name="judgebench",
    title="JudgeBench",
    source="arXiv 2410.12784; utils/metrics.py of its repository",
    cluster=("question",),
    subsets={name: name for name in DOMAINS},
    columns=DOMAINS,
    folder_files=all_files,
    read=read,
    hub=Source("ScalerLab/JudgeBench", "main", 620),
    result_fields={name: name for name in ("judgments", "label", "question", "source")}
    | {"id": "pair_id"},
    adapt_results=adapt_results,
    make_items=make_items,
    published={"skywork-v2": ("judgebench.csv", ["overall"])},
    variants={"all domains count alike, not all pairs": {"average": "domains"}},
)
"""The overall score is the share of all pairs; with `average="domains"` it is the mean
of the four domains.
"""
