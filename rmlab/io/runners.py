"""Scores as the result files of the benchmarks' own runners, which their leaderboards
take.
"""

import json
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from rmlab import records
from rmlab.tables import (
    KEY,
    LABELS,
    PROMPT,
    STYLES,
    DataError,
    check_option,
    check_responses,
)
from rmlab.text import short

# Columns of RM-Bench's responses, and their fields in its files.
_NOTES = {
    "source": "subset",
    "note": "note",
    "error": "error",
    "error_key": "error_key",
}


class _Prompt(NamedTuple):
    """A prompt with its answers and their scores, by label and in order."""

    cells: Mapping[Hashable, object]
    answers: dict[str, list[str]]
    scores: dict[str, list[float]]


def write_runner_results(
    scores: pd.DataFrame, path: Path, format: str, responses: pd.DataFrame
) -> Path:
    """Write checked scores of one model with the texts that were scored, in the format
    of a benchmark's runner.
    """
    check_option("format", format, ["rmlab", *_WRITERS])
    if path.suffix.lower() != ".json":
        problem = f"{path}: the runner of {format} writes JSON"
        raise DataError(problem, f"name it {path.with_suffix('.json').name!r}")
    models = scores["model"].unique()
    if len(models) != 1:
        problem = f"scores: {len(models)} models, and a file is about one"
        remedy = f"write scores[scores['model'] == {short(models[0])}]"
        raise DataError(problem, remedy)

    for name in ("scores", "responses"):
        table = scores if name == "scores" else responses
        others = sorted({*table["benchmark"]} - {format})
        if others:
            problem = f"{name}: of {short(others[0])}, which is not {format!r}"
            raise DataError(problem, f"pass those of load({format!r})")
    prompts = _collect_prompts(scores, check_responses(responses))
    content = _WRITERS[format](prompts, scores)
    text = json.dumps(content, indent=4, ensure_ascii=False, allow_nan=False)
    return records.write_file(path, text)


def _collect_prompts(scores: pd.DataFrame, responses: pd.DataFrame) -> list[_Prompt]:
    """The prompts in the order of `responses`; DataError where the two tables do not
    have the same answers.
    """
    answers = responses.merge(scores[[*KEY, "score"]], on=KEY, how="left")
    _refuse_answers(answers, answers["score"].isna(), "score")
    known = scores.merge(responses[KEY], on=KEY, how="left", indicator="side")
    _refuse_answers(known, known["side"] != "both", "response")

    prompts = []
    for _, rows in answers.groupby(PROMPT, sort=False):
        rows = rows.sort_values("slot")
        cells = rows.iloc[0].dropna().to_dict()
        texts = {}
        values = {}
        for label in LABELS:
            side = rows[rows["label"] == label]
            texts[label] = side["response"].tolist()
            values[label] = side["score"].tolist()
        prompts.append(_Prompt(cells, texts, values))
    return prompts


def _refuse_answers(rows: pd.DataFrame, is_alone: pd.Series, missing: str) -> None:
    """Raise DataError naming the first answer that lacks its score or its text."""
    if is_alone.any():
        first = rows.loc[is_alone, KEY].iloc[0].to_dict()
        problem = f"scores: {int(is_alone.sum())} answers have no {missing}"
        raise DataError(f"{problem}, first {first}", "pass all that were scored")


def _write_rm_bench(prompts: list[_Prompt], scores: pd.DataFrame) -> object:
    """The rows of the file of all domains, each with three scores a side."""
    rows = []
    for cells, answers, values in prompts:
        subset = cells["subset"]
        row = {
            "id": f"{subset}/{cells['id']}",
            "prompt": cells["prompt"],
            **answers,
            "domain": subset,
        }
        for name in _NOTES:
            if name in cells:
                row[_NOTES[name]] = cells[name]
        for label in LABELS:
            if len(values[label]) != len(STYLES):
                counts = f"{len(values[label])} {label} answers, not {len(STYLES)}"
                problem = f"scores: {subset} {short(cells['id'])} has {counts}"
                raise DataError(problem, "score all answers of the benchmark")
            row[f"score_{label}"] = values[label]
        rows.append(row)
    return rows


def _write_reward_bench_2(prompts: list[_Prompt], scores: pd.DataFrame) -> object:
    """Columns of lists, the chosen answers of a prompt first, and what is true of the
    whole run.
    """
    columns: dict[str, list[object]] = {
        "id": [],
        "num_correct": [],
        "results": [],
        "scores": [],
        "subset": [],
        "text": [],
    }
    for cells, answers, values in prompts:
        all_scores = [*values["chosen"], *values["rejected"]]
        all_answers = [*answers["chosen"], *answers["rejected"]]
        columns["id"].append(cells["id"])
        columns["num_correct"].append(len(values["chosen"]))
        columns["results"].append(_share_of_first(all_scores))
        columns["scores"].append(all_scores)
        columns["subset"].append(cells["subset"])
        turns = [_add_answer(cells["prompt"], answer) for answer in all_answers]
        columns["text"].append(turns)

    model = scores["model"].iloc[0]
    run = {
        "chat_template": "tokenizer",
        "model": model,
        "model_type": _model_type(scores, model),
    }
    return columns | run


def _share_of_first(scores: list[float]) -> float:
    """What the first answer earns, as the runner counts it in every subset: its share
    of the highest score.
    """
    best = max(scores)
    return 1 / scores.count(best) if scores[0] == best else 0.0


def _add_answer(prompt: object, answer: str) -> list[object]:
    """The conversation as messages."""
    turns = [{"role": "user", "content": prompt}]
    if isinstance(prompt, list):
        turns = prompt
    return [*turns, {"role": "assistant", "content": answer}]


def _model_type(scores: pd.DataFrame, model: str) -> str:
    """The kind of model in the leaderboard's words."""
    provenance = scores.attrs.get("provenance", {}).get(model, {})
    if "verdict" in scores:
        return "Generative"
    if "reference" in provenance:
        return "DPO"
    return "Seq. Classifier"


_WRITERS: dict[str, Callable[[list[_Prompt], pd.DataFrame], object]] = {
    "rm-bench": _write_rm_bench,
    "reward-bench-2": _write_reward_bench_2,
}
