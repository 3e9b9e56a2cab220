"""JudgeBench: which of two answers to a hard question is right? Four domains; LLM
judges are asked in both orders.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from rmlab import tables
from rmlab.benchmarks.benchmark import Benchmark, own_domains, refuse_strange
from rmlab.benchmarks.conversations import hash_prompt
from rmlab.benchmarks.hub import HubPlace
from rmlab.benchmarks.layout import Files, Layout, all_files
from rmlab.benchmarks.rows import FileRow, read_answers
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
_SOURCES = f"one that begins with {', '.join(_DOMAIN_OF_SOURCE)}"
_LABELS = "'A>B' or 'B>A'"
# In the second judgment of a pair the answers are exchanged.
_ORDER_SIGN = (1.0, -1.0)
_RESULT_FILE = re.compile(r"judge_name=([^,]+),judge_model=(.+)$")


def read(files: Files) -> pd.DataFrame:
    """Responses of JudgeBench rows; `question` is the same for the rows of one
    question, also of both splits.
    """
    return read_answers(files, "judgebench", _rename, 1, names_question=True)


def _rename(row: FileRow) -> Row:
    source = str(row.cells.get("source"))
    domain = _find_domain(source)
    if domain is None:
        row.refuse("source", _SOURCES)
    return {
        **row.read_sides("label", _SIDES),
        "id": row.read_id("pair_id"),
        "domain": domain,
        "prompt": row.read_prompt("question"),
        "source": source,
        "response_model": row.read_name("response_model"),
    }


def _find_domain(source: object) -> str | None:
    for prefix, domain in _DOMAIN_OF_SOURCE.items():
        if str(source).startswith(prefix):
            return domain
    return None


def adapt_results(path: Path, prompts: pd.DataFrame) -> pd.DataFrame:
    """Comparisons of a result file: the judge's decisions in both orders, or a reward
    model's two scores.

    Each decision counts +1 for the right answer and -1 for the wrong one; a tie and an
    unreadable decision count 0. The sum decides, as in `utils/metrics.py` of the
    repository. Two equal scores are a tie, whatever the file's decision.
    """
    sign = prompts["label"].astype("str").map(_SIGN)
    refuse_rows(path, prompts["label"], sign.isna(), _LABELS)
    domain = prompts["source"].map(_find_domain)
    refuse_rows(path, prompts["source"], domain.isna(), _SOURCES)
    is_read = prompts["judgments"].map(_are_judgments)
    scores_allowed = "the second in exchanged order, whose scores are numbers"
    allowed = f"a list of one or two judgments, {scores_allowed}"
    refuse_rows(path, prompts["judgments"], ~is_read, allowed)

    votes = sign * prompts["judgments"].map(_sum_decisions)
    margin = sign * prompts["judgments"].map(_mean_margin)
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


def _sum_decisions(judgments: Sequence[object]) -> float:
    """Decisions for answer A minus those for answer B."""
    total = 0.0
    for sign, judgment in zip(_ORDER_SIGN, judgments, strict=False):
        if isinstance(judgment, dict):
            total += sign * _SIGN.get(str(judgment.get("decision")), 0.0)
    return total


def _mean_margin(judgments: Sequence[object]) -> float:
    """Mean of answer A's score minus answer B's, NaN where a judgment has no scores."""
    total = 0.0
    for sign, judgment in zip(_ORDER_SIGN, judgments, strict=False):
        scores = _list_scores(judgment)
        if not scores:
            return math.nan
        total += sign * (float(scores[0]) - float(scores[1]))
    return total / len(judgments)


def _list_scores(judgment: object) -> list[float]:
    """Scores of the answers in the order shown, none where a judgment has none."""
    try:
        scores = judgment["judgment"]["scores"]  # type: ignore[index]
    except (TypeError, KeyError):
        return []
    return scores if isinstance(scores, list) and len(scores) == 2 else []


def _are_judgments(value: object) -> bool:
    if not isinstance(value, list) or len(value) not in (1, 2):
        return False
    for judgment in value:
        for score in _list_scores(judgment):
            if not isinstance(score, int | float) or not abs(score) < math.inf:
                return False
    return True


def make_items(
    table: pd.DataFrame, ties: str, *, by: Sequence[str], cluster: Sequence[str]
) -> Items:
    """One comparison a pair; a question that stands in both splits is one cluster."""
    items = comparison_items(table, ties, by=by, cluster=cluster)
    refuse_strange("domain", items.frame["domain"].unique(), DOMAINS, JUDGE_BENCH.title)
    return items


JUDGE_BENCH = Benchmark(
    name="judgebench",
    title="JudgeBench",
    source="arXiv 2410.12784; utils/metrics.py of its repository",
    cluster=("question",),
    subsets=own_domains(DOMAINS),
    columns=DOMAINS,
    layout=Layout(
        read=read,
        folder_files=all_files,
        hub=HubPlace("ScalerLab/JudgeBench", "main", 620),
        result_fields={
            "judgments": "judgments",
            "label": "label",
            "question": "question",
            "source": "source",
            "id": "pair_id",
        },
        adapt_results=adapt_results,
    ),
    make_items=make_items,
    variants={"all domains count alike, not all pairs": {"average": "domains"}},
)
"""The overall score is the share of all pairs; with `average="domains"` it is the mean
of the four domains.
"""
