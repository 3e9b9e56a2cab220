"""The one walk behind `rmlab.score`, `rmlab.prefer` and `rmlab.rewards`: the models
that people give, each over the rows of a table.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rmlab import baselines, scorers, tables
from rmlab.plug_ins import load_plug_ins
from rmlab.scorers.base import (
    PairScorer,
    PlainScorer,
    Provenance,
    Scorer,
    as_pair_scorer,
    as_scorer,
)
from rmlab.scoring.cluster import Ray, find_engine
from rmlab.scoring.run import Counts, RunOptions, add_counts, empty_rows, score_texts
from rmlab.scoring.stores import READING, check_tables, write_tables
from rmlab.scoring.texts import Shard, Texts, comparisons, list_texts, select_shard
from rmlab.store import Store
from rmlab.tables import DataError, nearest

# A model by its name, or a scorer.
Model = str | Path | PlainScorer | Scorer
Models = Model | Sequence[Model] | Mapping[str, Model]

GROUP = "rmlab.scorers"
"""Entry points of this group are scorers from other packages: what `rmlab.score` or
`rmlab.prefer` takes.
"""


def score_table(
    responses: pd.DataFrame,
    model: Models,
    options: Mapping[str, object],
    run: RunOptions,
    *,
    shard: Shard | None,
    pairwise: bool,
) -> pd.DataFrame:
    """The scores or pairs of all models, one after the other; a store gets them too,
    where they are not of a shard.

    `options`: of models that a string names.
    """
    responses = tables.check_responses(responses)
    if shard is not None:
        responses = select_shard(responses, shard)
    models = open_models(model, options, run, pairwise=pairwise)
    store = run.store if shard is None else None
    if store is not None:
        names = responses["benchmark"].unique()
        check_tables(store, models, names, pairs=pairwise)

    by_model = []
    provenance = {}
    for name, scorer in models.items():
        if isinstance(scorer, PairScorer):
            rows, provenance[name] = _compare_answers(scorer, responses, run)
        else:
            rows, provenance[name] = score_answers(scorer, responses, run)
        by_model.append(rows.assign(model=name))
        if "verdict" in rows:
            counts = rows["verdict"].value_counts(sort=False)
            provenance[name]["verdicts"] = counts.to_dict()
        if len(models) > 1:
            scorer.free_memory()

    table = pd.concat(by_model, ignore_index=True)
    # Scorers of others bring columns of their own.
    if pairwise:
        table = tables.check_pairs(table)
    else:
        table = tables.check_scores(table, allow_missing=run.allow_missing)
    table.attrs["provenance"] = provenance
    if store is not None:
        write_tables(table, store)
    return table


def make_run_options(
    store: str | Path | None,
    cluster: str | Ray | None,
    batch: int,
    allow_missing: bool,
    progress: bool | None,
) -> RunOptions:
    """Options from what people give; DataError for what is not allowed."""
    if not isinstance(batch, int) or batch < 1:
        allowed = "give the number of texts of a call, 1 or more"
        raise DataError(f"batch: {batch!r} is not allowed", allowed)
    opened_store = None
    if store is not None:
        opened_store = Store(store)
    return RunOptions(
        opened_store, find_engine(cluster), batch, allow_missing, progress
    )


class Part(NamedTuple):
    """The texts of a subset that has a scorer of its own, or of all other subsets.

    `is_shown`: whether each row of the responses is one of it.
    """

    scorer: Scorer
    subset: str | None
    is_shown: np.ndarray
    texts: Texts


def list_parts(
    scorer: Scorer,
    responses: pd.DataFrame,
    key_columns: Sequence[str] = tuple(tables.KEY),
) -> list[Part]:
    """The texts of a scorer, then of those of single subsets.

    `key_columns`: what messages call a row by.
    """
    subset = responses["subset"]
    parts = []
    for name, part_scorer in [(None, scorer), *scorer.by_subset.items()]:
        if name is None:
            is_shown = ~subset.isin(list(scorer.by_subset)).to_numpy()
        else:
            is_shown = (subset == name).to_numpy()
        lists = part_scorer.lists_answers
        texts = list_texts(responses[is_shown], key_columns, lists=lists)
        parts.append(Part(part_scorer, name, is_shown, texts))
    return parts


def score_answers(
    scorer: Scorer,
    responses: pd.DataFrame,
    run: RunOptions,
    key_columns: Sequence[str] = tuple(tables.KEY),
) -> tuple[pd.DataFrame, Provenance]:
    """The responses with the scores of one model, and their provenance.

    Behind the score follow the scorer's columns, then those of the prompt.
    """
    if isinstance(getattr(scorer, "model", None), baselines.Baseline):
        # It costs nothing: it is computed anew, and here.
        run = replace(run, store=None, engine=None)
    taken = [name for name in scorer.columns if name in tables.SCORES]
    if taken:
        problem = f"scorer {scorer.name!r}: columns {taken} are of every table"
        raise DataError(problem, "give its columns other names")

    values = empty_rows(scorer, len(responses))
    provenance: Provenance = {}
    counts: Counts = {}
    readings = {}
    for part in list_parts(scorer, responses, key_columns):
        scores, described, part_counts = score_texts(part.scorer, part.texts, run)
        values[part.is_shown] = scores[part.texts.numbers[0]]
        provenance = provenance or described
        add_counts(counts, part_counts)
        if part.subset is not None:
            readings[part.subset] = {name: described.get(name) for name in READING}
    if readings:
        provenance["subsets"] = readings

    columns = pd.DataFrame(values, columns=["score", *scorer.columns])
    columns = columns.infer_objects().astype({"score": np.float64})
    further = tables.prompt_columns(responses, tables.SCORES)
    order = dict.fromkeys([*tables.SCORES, *columns, *further])
    table = responses.assign(model="", **columns.set_index(responses.index))
    return table[[*order]], _with_counts(provenance, counts)


def _compare_answers(
    scorer: PairScorer, responses: pd.DataFrame, run: RunOptions
) -> tuple[pd.DataFrame, Provenance]:
    """Every chosen with every rejected answer of a prompt, with margin and outcome, and
    their provenance.
    """
    rows, texts = comparisons(responses, both_orders=scorer.both_orders)
    scores, provenance, counts = score_texts(scorer, texts, run)
    forward, *exchanged = scores[texts.numbers]
    columns = scorer.compare(forward, *exchanged or [None])
    table = rows.assign(**pd.DataFrame(columns, index=rows.index))
    return table, _with_counts(provenance, counts)


def _with_counts(provenance: Provenance, counts: Counts) -> Provenance:
    """The provenance with the counts of a run in plain values; empty ones are left
    out.
    """
    plain: Provenance = {"seconds": round(counts["seconds"], 3)}
    for name, value in counts.items():
        if isinstance(value, int | list):
            plain[name] = value
        elif value and isinstance(value, Counter):
            plain[name] = dict(value)
    return provenance | plain


def open_models(
    model: Models,
    options: Mapping[str, object],
    run: RunOptions,
    *,
    pairwise: bool,
) -> dict[str, Scorer]:
    """Name -> scorer, in the order given.

    `options`: of models that a string names. `pairwise`: whether the scorers compare
    two answers.
    """
    # Without a store a function gets all texts at once.
    batch = None if run.store is None else run.batch
    model_options = {key: value for key, value in options.items() if key != "name"}
    wrap: Callable[..., Scorer] = as_pair_scorer if pairwise else as_scorer
    models: dict[str, Scorer] = {}
    takes_options = False
    for item, name in _name_items(model, options.get("name")):
        scorer: Any = item
        if isinstance(item, str | Path):
            item_options = dict(model_options)
            if name is not None:
                item_options["name"] = name
            scorer = _open_named(item, item_options, pairwise=pairwise)
            takes_options |= str(item) not in ready_scorers()
        scorer = wrap(scorer, batch)

        key = str(name or scorer.name)
        if key in models:
            problem = f"model: two scorers are named {key!r}"
            raise DataError(problem, "give one of them another name (name=...)")
        models[key] = scorer
    if model_options and not takes_options:
        problem = f"options {sorted(model_options)} are for models named by a string"
        raise DataError(problem, "give them to the scorer itself")
    return models


def _name_items(model: Models, name: object) -> list[tuple[Model, object]]:
    """The models, each with a name or None."""
    items: list[Any] = [model]
    if isinstance(model, Mapping):
        items = list(model.values())
        name = list(model)
    elif isinstance(model, list | tuple):
        items = list(model)
    if not items:
        remedy = "give at least one scorer, baseline name or model id"
        raise DataError("model: the list is empty", remedy)

    names = name if isinstance(name, list | tuple) else [name] * len(items)
    if len(names) != len(items):
        problem = f"name: {len(names)} names for {len(items)} models"
        raise DataError(problem, "give one for each, in their order")
    return list(zip(items, names, strict=True))


def _open_named(
    item: str | Path, options: Mapping[str, Any], *, pairwise: bool
) -> object:
    """The baseline or the installed scorer of that name, or the model that
    `rmlab.classifier` or `rmlab.pairwise` makes.
    """
    name = str(item)
    if pairwise and name in baselines.ALL:
        problem = f"model: {name!r} scores single answers"
        raise DataError(problem, "use rmlab.pairs(rmlab.score(...))")
    if name in ready_scorers():
        return ready_scorers()[name]

    has_separator = "/" in name or "\\" in name
    is_path = has_separator or name.startswith((".", "~")) or Path(name).is_dir()
    if isinstance(item, str) and not is_path:
        models = "or a model id ('owner/name'), a folder, or a scorer"
        allowed = f"{nearest(name, list(ready_scorers()))}; {models}"
        raise DataError(f"model: unknown name {name!r}", allowed)

    make: Callable[..., Scorer] = scorers.pairwise if pairwise else scorers.classifier
    return make(item, **options)


@cache
def ready_scorers() -> dict[str, Any]:
    """The scorers that take no options, by name: baselines, and those of installed
    packages by their entry points.
    """
    ready: dict[str, Any] = dict(baselines.ALL)

    def add(name: str, scorer: object) -> None:
        is_scorer = callable(scorer) or hasattr(scorer, "prefer")
        if not is_scorer or name in baselines.ALL or "/" in name:
            raise TypeError("no scorer, or its name is taken or has a slash")
        ready[name] = scorer

    load_plug_ins(GROUP, add)
    return ready
