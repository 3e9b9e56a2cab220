"""The numbers of a model as a file of results for its repository on the hub."""

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from rmlab.benchmarks.prepare import prepare
from rmlab.benchmarks.registry import benchmark_of
from rmlab.estimation.estimate import estimate
from rmlab.metrics.summaries import estimate_frame
from rmlab.records import expand_path, write_file
from rmlab.tables import DataError
from rmlab.text import short
from rmlab.version import __version__

_OLDEST_CLIENT = "1.4"


class _DataSet(NamedTuple):
    """A data set on the hub, and the commit where it is known."""

    name: str
    revision: str | None


def to_hub(
    table: pd.DataFrame,
    path: str | Path | None = None,
    *,
    dataset: str | None = None,
    source: str | None = None,
    confidence: float = 0.95,
) -> str:
    """Write a model's results as the hub reads them in `.eval_results/*.yaml` of its
    repository; nothing is uploaded.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs of one model on one benchmark.
    path : path, optional
        A file to write, such as ".eval_results/rm-bench.yaml" in a clone of the model's
        repository.
    dataset : str, optional
        The data set on the hub, "owner/name"; by default the benchmark's own.
    source : str, optional
        URL of what the results can be checked with, such as the scores.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    str
        The text: an entry for `overall` and one for each other number of
        `rmlab.summary`, by the benchmark's own rules and from 0 to 1. `task_id` is the
        number's name, `notes` has its interval and its number of prompts. Numbers that
        are missing are left out.

    Raises
    ------
    DataError
        For several models, a benchmark that is not on the hub, no number at all, and
        a huggingface_hub before 1.4.

    Notes
    -----
    The hub shows an entry on the leaderboard of a data set whose `eval.yaml` names the
    same task.

    Examples
    --------
    >>> import rmlab
    >>> scores = rmlab.score(rmlab.load("mini"), "longest")
    >>> for line in to_hub(scores, dataset="owner/name").splitlines()[:5]:
    ...     print(line)
    - dataset:
        id: owner/name
        task_id: overall
      value: 0.4995
      notes: 95 % interval 0.4488 to 0.5503, clustered by prompt; 64 prompts; ...
    """
    numbers = _list_numbers(table, confidence)
    place = _find_dataset(table, dataset)
    text = _format_entries(numbers, place, source, confidence)
    if path is not None:
        write_file(expand_path(path), text)
    return text


def _list_numbers(table: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """The numbers of the summary of one model that are there, with their intervals."""
    prepared = prepare(table)
    models = prepared.items.models
    if len(models) != 1:
        problem = f"table: {len(models)} models, and a file is about one"
        remedy = f"pass table[table['model'] == {short(models[0])}]"
        raise DataError(problem, remedy)
    result = estimate(prepared.items, prepared.weights(of_summary=True), confidence)
    numbers = estimate_frame(result, "value")
    is_there = numbers["value"].notna()
    if not is_there.any():
        problem = f"table: no number of {models[0]!r} could be computed"
        raise DataError(problem, f"the reason is: {numbers['reason'].iloc[0]}")
    return numbers[is_there]


def _find_dataset(table: pd.DataFrame, dataset: str | None) -> _DataSet:
    """The data set that was given, or the benchmark's own at its pinned commit."""
    if dataset is not None:
        return _DataSet(dataset, None)
    benchmark = benchmark_of(table)
    place = None if benchmark.layout is None else benchmark.layout.hub
    if place is None:
        problem = f"table: {benchmark.title} has no data set on the hub"
        raise DataError(problem, "name one: dataset='owner/name'")
    revision = None if place.revision == "main" else place.revision
    return _DataSet(place.repo, revision)


def _format_entries(
    numbers: pd.DataFrame, place: _DataSet, source: str | None, confidence: float
) -> str:
    """The file's text, by the hub's own client."""
    import huggingface_hub

    try:
        from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml
    except ImportError:
        version = huggingface_hub.__version__
        problem = f"huggingface_hub {version} does not write files of results"
        remedy = f"pip install 'huggingface_hub>={_OLDEST_CLIENT}'"
        raise DataError(problem, remedy) from None
    # A dependency of the client.
    import yaml

    entries = []
    for number in numbers.to_dict("records"):
        entry = EvalResultEntry(
            dataset_id=place.name,
            dataset_revision=place.revision,
            task_id=str(number["name"]),
            value=round(number["value"], 4),
            source_url=source,
            notes=_describe_number(number, confidence),
        )
        entries.append(entry)
    content = eval_result_entries_to_yaml(entries)
    text: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000)
    return text


def _describe_number(number: Mapping[Hashable, object], confidence: float) -> str:
    """The interval, or why there is none, and how many prompts were counted."""
    uncertainty = str(number["reason"])
    if not uncertainty:
        limits = f"{number['low']:.4f} to {number['high']:.4f}"
        percent = f"{100 * confidence:.4g} %"
        uncertainty = f"{percent} interval {limits}, clustered by prompt"
    return f"{uncertainty}; {number['n_prompts']} prompts; rmlab {__version__}"
