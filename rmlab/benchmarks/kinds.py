"""Which benchmark a row of a file looks like, and the checks that all benchmarks share."""

from pathlib import Path
from typing import Any

from rmlab import records
from rmlab.subsets import PRIOR_SETS, REWARD_BENCH, REWARD_BENCH_2
from rmlab.tables import DataError

__all__ = ["HINT", "check_answers", "looks_like", "messages", "refuse_other", "row_id", "row_prompt"]

_SCORES = ("score_chosen", "score_rejected", "scores_chosen", "scores_rejected", "scores", "text_chosen")
HINT = {
    "rm-bench": 'an RM-Bench file: load("rm-bench", path=...)',
    "reward-bench": 'a RewardBench 1 file: load("reward-bench", path=...)',
    "reward-bench-2": 'a RewardBench 2 file: load("reward-bench-2", path=...)',
    "scores": "a file of scores: read_scores(...)",
    "pairs": "preference pairs of your own: load_pairs(...)",
}


def looks_like(row: dict[str, Any]) -> str | None:
    """Kind of file that a row comes from: a benchmark's name, "scores", "pairs", or None where it is like none.

    >>> looks_like({"id": "ref:1", "subset": "Ties", "chosen": ["a"], "rejected": ["b"], "num_correct": 1})
    'reward-bench-2'
    """
    if any(name in row for name in _SCORES) or {"model", "score"} <= row.keys() or {"model", "0"} <= row.keys():
        return "scores"
    if not {"chosen", "rejected"} <= row.keys():
        return None
    chosen, rejected, subset = row["chosen"], row["rejected"], row.get("subset")
    if "num_correct" in row or "total_completions" in row:
        return "reward-bench-2"
    texts = [*chosen, *rejected] if isinstance(chosen, list) and isinstance(rejected, list) else []
    if texts and all(isinstance(text, str) for text in texts):
        known = subset in REWARD_BENCH_2
        return "reward-bench-2" if known else "rm-bench" if len(chosen) == len(rejected) == 3 else "pairs"
    if isinstance(chosen, str) and isinstance(rejected, str) and subset in (*REWARD_BENCH, *PRIOR_SETS):
        return "reward-bench"
    return "pairs"


def refuse_other(file: Path, row: dict[str, Any], wanted: str) -> None:
    """Raise DataError where a row clearly comes from another kind of file than the one asked for."""
    kind = looks_like(row)
    clear = {"rm-bench": ("reward-bench", "reward-bench-2"), "reward-bench": ("rm-bench", "reward-bench-2"),
             "reward-bench-2": ("rm-bench", "reward-bench")}[wanted]  # fmt: skip
    has_text = {"chosen", "rejected"} <= row.keys()
    if kind in clear or (kind == "scores" and not has_text):
        raise DataError(f"{file}: not a file of {wanted}; it looks like {HINT[str(kind)]}")


def row_id(file: Path, number: int, row: dict[str, Any]) -> str:
    """The row's `id` as a string; whole numbers and non-empty strings are allowed."""
    value = row.get("id")
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        records.fail(file, number, row, "id", "a whole number or a non-empty string", "number the rows")
    return str(value)


def check_answers(file: Path, number: int, row: dict[str, Any], label: str, answers: list[Any]) -> None:
    """Raise DataError unless every answer of one label is a non-empty string."""
    for slot, answer in enumerate(answers):
        if not isinstance(answer, str) or answer == "":
            allowed = f"a list of non-empty strings (answer {slot} is {records.short(answer)})"
            records.fail(file, number, row, label, allowed, "fill in the text or drop the row")


def row_prompt(file: Path, number: int, row: dict[str, Any], column: str = "prompt") -> str | list[dict[str, str]]:
    """The row's prompt: a string, or its messages as plain role and content."""
    value = row.get(column)
    if isinstance(value, str):
        return value
    found = messages(value)
    if not found:
        allowed = "a string, or a list of {'role': ..., 'content': ...} messages"
        records.fail(file, number, row, column, allowed, "repair the row or drop it")
    return found


def messages(value: object) -> list[dict[str, str]] | None:
    """The value as messages with role and content only, or None where it is not a list of messages."""
    if not isinstance(value, list | tuple):
        return None
    for item in value:
        if not (isinstance(item, dict) and isinstance(item.get("role"), str) and isinstance(item.get("content"), str)):
            return None
    return [{"role": item["role"], "content": item["content"]} for item in value]
