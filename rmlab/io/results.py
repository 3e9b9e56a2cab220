"""Result files of the benchmarks' own runners, read as scores or comparisons."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from rmlab.benchmarks.benchmark import Benchmark
from rmlab.benchmarks.layout import refuse_unlike
from rmlab.benchmarks.own_files import TEXTS, load_scores
from rmlab.benchmarks.registry import benchmarks_by_name
from rmlab.benchmarks.reward_bench import REWARD_BENCH
from rmlab.benchmarks.sources import Source, read_source
from rmlab.records import refuse_rows
from rmlab.tables import DataError
from rmlab.text import short

# What a judge earns in RewardBench's files; an unreadable verdict is a tie.
_OUTCOMES = {1.0: "win", 0.5: "tie", 0.0: "loss"}
_JUDGED = {"id": "id", "subset": "subset", "outcome": "results"}


def find_runner(data: Source) -> Benchmark | None:
    """The benchmark whose runner wrote a file: all its fields are there."""
    # Columns of this name with one number are custom data.
    is_listed = isinstance(data.columns.get("score_chosen", [[]])[0], list)
    for benchmark in benchmarks_by_name().values():
        fields = benchmark.layout.result_fields
        if is_listed and fields and data.columns.keys() >= {*fields.values()}:
            return benchmark
    return REWARD_BENCH if data.columns.keys() >= {*_JUDGED.values()} else None


def read_results(data: Source, benchmark: Benchmark, model: str | None) -> pd.DataFrame:
    """The scores or comparisons of a runner's file, not checked yet."""
    fields = dict(benchmark.layout.result_fields)
    if not data.columns.keys() >= {*fields.values()}:
        fields = dict(_JUDGED)
    for ours, theirs in (("model", "model"), ("subset", "domain")):
        if theirs in data.columns:
            fields[ours] = theirs
    prompts = select_columns(data, fields)
    if len(prompts) == 1 and isinstance(prompts["id"][0], list):
        prompts = _unfold_lists(data.place, prompts)
    adapt_results = benchmark.layout.adapt_results
    if adapt_results is not None:
        with refuse_unlike(f"{data.place}: a row", benchmark.title):
            prompts = adapt_results(data.place, prompts)
    prompts = prompts.assign(benchmark=benchmark.name, id=_number_repeats(prompts))

    if "outcome" in prompts:
        return _read_outcomes(data.place, prompts, model)
    listed = replace(read_source(prompts), place=data.place)
    scores = load_scores(listed, {"prompt": None, "family": None}, model)
    scores = scores.drop(columns=TEXTS)
    if benchmark.styles:
        scores["style"] = scores["slot"].map(dict(enumerate(benchmark.styles)))
    return scores


def _unfold_lists(place: Path, prompts: pd.DataFrame) -> pd.DataFrame:
    """The rows of one object of lists side by side; other values are the same in each
    row.
    """
    is_list = prompts.iloc[0].map(lambda cell: isinstance(cell, list))
    lists = prompts.columns[is_list].tolist()
    try:
        return prompts.explode(lists, ignore_index=True)
    except ValueError:
        problem = f"{place}: the lists {short(lists)} differ in length"
        raise DataError(problem, "the file may be cut off") from None


def _read_outcomes(
    path: Path, prompts: pd.DataFrame, model: str | None
) -> pd.DataFrame:
    """Comparisons of one chosen and one rejected answer."""
    if "margin" not in prompts:
        outcome = pd.to_numeric(prompts["outcome"], errors="coerce").map(_OUTCOMES)
        allowed = "1, 0.5 or 0, for a pair"
        refuse_rows(path, prompts["outcome"].rename("results"), outcome.isna(), allowed)
        prompts["outcome"] = outcome
    return fill_names(path, prompts, model)


def _number_repeats(prompts: pd.DataFrame) -> pd.Series:
    """The ids, further ones of an id with a number: RewardBench 2 repeats some."""
    key = prompts.columns.intersection(["subset", "domain", "id"]).tolist()
    n_before = prompts[key].astype("str").groupby(key, sort=False).cumcount()
    repeated = prompts["id"].astype("str") + "#" + (n_before + 1).astype("str")
    return prompts["id"].where(n_before == 0, repeated)


def read_mapped_pairs(data: Source, columns: Mapping[str, str]) -> pd.DataFrame:
    """Comparisons of a file whose columns have other names, not checked yet."""
    frame = select_columns(data, columns)
    if "id" not in frame:
        frame["id"] = frame.index.astype("str")
    return fill_names(data.place, frame, None)


def select_columns(data: Source, columns: Mapping[str, str]) -> pd.DataFrame:
    """A frame with our names for some columns."""
    cells = {ours: data.find(theirs, ours) for ours, theirs in columns.items()}
    return pd.DataFrame(cells)


def fill_names(path: Path, pairs: pd.DataFrame, model: str | None) -> pd.DataFrame:
    """Comparisons with the columns that a file about one model and one data set leaves
    out: both are named after the file.
    """
    filled = pairs.copy()
    for name in ("model", "benchmark"):
        if name not in filled:
            filled[name] = path.stem
    if model is not None:
        filled["model"] = model
    if "domain" not in filled:
        filled["domain"] = filled["subset" if "subset" in filled else "benchmark"]
    for name in ("chosen_slot", "rejected_slot"):
        if name not in filled:
            filled[name] = 0
    return filled
