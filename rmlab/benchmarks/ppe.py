"""PPE, Preference Proxy Evaluations: votes of people between two answers, and right
answers against wrong ones on five sets of questions.
"""

from collections.abc import Iterator
from pathlib import Path

from rmlab import records
from rmlab.benchmarks import hub
from rmlab.benchmarks.benchmark import Benchmark, own_domains
from rmlab.benchmarks.layout import JsonRow, Layout
from rmlab.records import Row

_SIDES = {
    "model_a": ("response_1", "response_2"),
    "model_b": ("response_2", "response_1"),
}
_TIES = ("tie", "tie (bothbad)")
# The six with most votes.
LANGUAGES = ("English", "Chinese", "Russian", "German", "Korean", "Japanese", "other")
_SETS = ("MMLU-Pro", "MATH", "GPQA", "MBPP-Plus", "IFEval")
SETS = tuple(map(str.lower, _SETS))


def read_vote(row: JsonRow, file: Path) -> Iterator[Row]:
    """A vote that has a winner; the domain is the language, or "other"."""
    if row["winner"] in _TIES:
        return
    better, worse = _SIDES[str(row["winner"])]
    language = row["language"]
    yield {
        "id": row["question_id"],
        "subset": language if language in LANGUAGES else "other",
        "prompt": row["prompt"],
        "chosen": row[better],
        "rejected": row[worse],
        "language": language,
    }


def read_sampled_pairs(row: JsonRow, file: Path) -> Iterator[Row]:
    """The sampled pairs of a right and a wrong answer, an item each."""
    shared = _describe(row, file)
    for number, pair in enumerate(row["sampled_conflict_pairs"]):
        right, wrong = pair
        if row["scores"][wrong]:
            right, wrong = wrong, right
        if not row["scores"][right] or row["scores"][wrong]:
            raise ValueError(f"{pair} is not a right and a wrong answer")
        yield {
            **shared,
            "id": f"{shared['id']}/{number}",
            "chosen": row[f"response_{right + 1}"],
            "rejected": row[f"response_{wrong + 1}"],
        }


def fetch_candidates() -> list[Row]:
    """All candidates, a row each, from the hub."""
    candidates: list[Row] = []
    for file in hub.fetch_benchmark(PPE_CORRECTNESS.layout):
        rows: list[JsonRow] = records.read_rows(file)
        for row in rows:
            shared = _describe(row, file)
            shared |= {"benchmark": "ppe-correctness", "domain": shared["subset"]}
            for number, is_right in enumerate(row["scores"], 1):
                text = row[f"response_{number}"]
                candidates.append({**shared, "response": text, "correct": is_right})
    return candidates


def _describe(row: JsonRow, file: Path) -> Row:
    """What all candidates of a row share: one question, answered by one model."""
    model = row["model_name"]
    return {
        "id": f"{row['question_id']}/{model}",
        "subset": _find_set(file),
        "prompt": row["prompt"],
        "response_model": model,
    }


def _find_set(file: Path) -> str:
    """The set of questions that a file's name says, or else the nearest folder's."""
    for part in reversed(file.parts):
        for name in SETS:
            if name in part.lower():
                return name
    raise ValueError(f"none of {', '.join(SETS)} in the file's path")


PPE_PREFERENCE = Benchmark(
    name="ppe-preference",
    title="PPE Preference",
    source="arXiv 2410.14872",
    cluster=("question",),
    subsets=own_domains(LANGUAGES),
    columns=LANGUAGES,
    layout=Layout(read_row=read_vote, hub=("lmarena-ai/PPE-Human-Preference-V1",)),
)
"""The overall score is the share of all votes with a winner."""

PPE_CORRECTNESS = Benchmark(
    name="ppe-correctness",
    title="PPE Correctness",
    source="arXiv 2410.14872",
    cluster=("question",),
    subsets=own_domains(SETS),
    weights=dict.fromkeys(SETS, 1.0),
    columns=SETS,
    layout=Layout(
        read_row=read_sampled_pairs,
        hub=[f"lmarena-ai/PPE-{name}-Best-of-K" for name in _SETS],
    ),
)
"""The overall score is the mean of the five sets."""
