"""Rows of a benchmark's files as responses."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks.benchmark import Benchmark
from rmlab.benchmarks.conversations import hash_prompt, read_messages
from rmlab.benchmarks.layout import refuse_unlike
from rmlab.records import Row


def read_responses(benchmark: Benchmark, files: Iterable[Path]) -> pd.DataFrame:
    """Responses of a benchmark's files, subset by subset.

    An id that different prompts of a domain share is numbered. The column `question` is
    the same for equal prompts, where it defines a cluster.
    """
    answers: list[Row] = []
    prompts_of_key: dict[tuple[object, object], list[object]] = defaultdict(list)
    for file in files:
        for number, cells in enumerate(records.read_rows(file)):
            for described in describe_row(benchmark, file, number, cells):
                prompts = prompts_of_key[described["domain"], described["id"]]
                if described["prompt"] in prompts:
                    allowed = "unique within its domain"
                    remedy = "give each row an id of its own"
                    records.fail(file, number, described, "id", allowed, remedy)
                prompts.append(described["prompt"])
                if len(prompts) > 1:
                    described["id"] = f"{described['id']}#{len(prompts)}"
                answers += _list_answers(described)

    frame = pd.DataFrame(answers).assign(benchmark=benchmark.name)
    if "question" in benchmark.cluster:
        frame["question"] = frame["prompt"].map(hash_prompt)
    if benchmark.styles:
        frame["style"] = pd.Categorical.from_codes(frame["slot"], dtype=tables.STYLE)
    place_of_subset = {name: place for place, name in enumerate(benchmark.subsets)}
    order = frame["subset"].map(place_of_subset).sort_values(kind="stable").index
    return tables.check_responses(frame.loc[order])


def describe_row(
    benchmark: Benchmark, file: Path, number: int, cells: Row
) -> list[Row]:
    """The prompts of a row, checked, with their answers as lists; DataError naming file
    and row.
    """
    with refuse_unlike(f"{file}: row {number}", benchmark.title):
        prompts = list(benchmark.layout.read_row(cells, file))
    return [_check_prompt(benchmark, file, number, prompt) for prompt in prompts]


def _check_prompt(benchmark: Benchmark, file: Path, number: int, prompt: Row) -> Row:
    def require(is_right: bool, column: str, allowed: str) -> None:
        if not is_right:
            records.fail(file, number, prompt, column, allowed, "repair the row")

    item = prompt["id"]
    is_id = isinstance(item, int | str) and not isinstance(item, bool) and item != ""
    require(is_id, "id", "a whole number or a non-empty string")
    subset = str(prompt["subset"])
    is_known = not benchmark.subsets or subset in benchmark.subsets
    require(is_known, "subset", f"a subset of {benchmark.title}")
    asked = prompt["prompt"]
    if not isinstance(asked, str):
        asked = read_messages(asked)
    require(asked is not None, "prompt", "a string or a list of messages")
    checked = {
        **prompt,
        "domain": benchmark.subsets.get(subset, subset),
        "subset": subset,
        "id": str(item),
        "prompt": asked,
    }
    for label in tables.LABELS:
        texts = prompt[label]
        if not isinstance(texts, list):
            texts = [texts]
        is_text = [isinstance(text, str) and text != "" for text in texts]
        n_expected = len(benchmark.styles) or len(texts)
        is_whole = len(texts) == n_expected > 0 and all(is_text)
        require(is_whole, label, f"non-empty strings, {n_expected or 1} of them")
        checked[label] = texts
    return checked


def _list_answers(prompt: Row) -> list[Row]:
    """A row per answer, with the columns of its prompt."""
    shared = {name: cell for name, cell in prompt.items() if name not in tables.LABELS}
    answers = []
    for label in tables.LABELS:
        texts = prompt[label]
        assert isinstance(texts, list)
        for slot, text in enumerate(texts):
            answers.append({**shared, "label": label, "slot": slot, "response": text})
    return answers
