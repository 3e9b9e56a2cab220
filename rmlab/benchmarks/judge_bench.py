"""JudgeBench: which of two answers to a hard question is right? Four domains; LLM
judges are asked in both orders.
"""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from rmlab import tables
from rmlab.benchmarks.benchmark import Benchmark, own_domains
from rmlab.benchmarks.conversations import hash_prompt
from rmlab.benchmarks.layout import JsonRow, Layout
from rmlab.records import Row

_DOMAIN_OF_SOURCE = {
    "mmlu-pro": "knowledge",
    "livebench-reasoning": "reasoning",
    "livebench-math": "math",
    "livecodebench": "coding",
}
DOMAINS = tuple(_DOMAIN_OF_SOURCE.values())
_SIGN = {"A>B": 1.0, "B>A": -1.0}
_SIDES = {"A>B": ("response_A", "response_B"), "B>A": ("response_B", "response_A")}
# In the second judgment of a pair the answers are exchanged.
_ORDER_SIGN = (1.0, -1.0)
_RESULT_FILE = re.compile(r"judge_name=([^,]+),judge_model=(.+)$")


def read_row(row: JsonRow, file: Path) -> Iterator[Row]:
    """A pair whose label names the right answer."""
    right, wrong = _SIDES[str(row["label"])]
    yield {
        "id": row["pair_id"],
        "subset": _find_domain(row["source"]),
        "prompt": row["question"],
        "chosen": row[right],
        "rejected": row[wrong],
        "source": row["source"],
        "response_model": row.get("response_model"),
    }


def _find_domain(source: object) -> str:
    for prefix, domain in _DOMAIN_OF_SOURCE.items():
        if str(source).startswith(prefix):
            return domain
    raise ValueError(f"source {source!r}")


def adapt_results(path: Path, prompts: pd.DataFrame) -> pd.DataFrame:
    """Comparisons of a result file: the judge's decisions in both orders, or a reward
    model's two scores.

    Each decision counts +1 for the right answer and -1 for the wrong one; a tie and an
    unreadable decision count 0. The sum decides, as in `utils/metrics.py` of the
    repository. Two equal scores are a tie, whatever the file's decision.
    """
    sign = prompts["label"].map(_SIGN.__getitem__)
    domain = prompts["source"].map(_find_domain)
    read = prompts["judgments"].map(_read_judgments)
    votes = sign * read.str[0]
    margin = sign * read.str[1]
    adapted = prompts.drop(columns=["judgments", "label"])
    named = _RESULT_FILE.search(path.stem)
    if named:
        judge, model = named.groups()
        adapted["model"] = model if judge == "reward_model" else f"{model} ({judge})"
    return adapted.assign(
        question=prompts["question"].map(hash_prompt),
        domain=domain,
        subset=domain,
        chosen_slot=0,
        rejected_slot=0,
        margin=margin,
        outcome=tables.outcome(margin.fillna(votes).to_numpy(float)),
    )


def _read_judgments(judgments: Sequence[JsonRow | None]) -> tuple[float, float]:
    """Decisions for answer A minus those for answer B, and the mean of A's score minus
    B's: NaN where a judgment has no scores.
    """
    votes = 0.0
    margin = 0.0
    for sign, judgment in zip(_ORDER_SIGN, judgments, strict=False):
        judged = judgment or {"decision": None}
        votes += sign * _SIGN.get(str(judged["decision"]), 0.0)
        verdict = judged.get("judgment") or {}
        first, second = verdict.get("scores", (math.nan, math.nan))
        margin += sign * (first - second)
    return votes, margin / len(judgments)


JUDGE_BENCH = Benchmark(
    name="judgebench",
    title="JudgeBench",
    source="arXiv 2410.12784; utils/metrics.py of its repository",
    cluster=("question",),
    subsets=own_domains(DOMAINS),
    columns=DOMAINS,
    layout=Layout(
        read_row=read_row,
        hub=("ScalerLab/JudgeBench",),
        n_prompts=620,
        result_fields={
            "judgments": "judgments",
            "label": "label",
            "question": "question",
            "source": "source",
            "id": "pair_id",
        },
        adapt_results=adapt_results,
    ),
)
"""The overall score is the share of all pairs; with `average="domains"` it is the mean
of the four domains.
"""
