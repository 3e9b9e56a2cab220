"""The one walk behind `rmlab.score`, `rmlab.prefer` and `rmlab.rewards`: the models
that people give, each over the rows of a table.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rmlab import baselines, scorers, tables
from rmlab.scorers.base import (
    PairScorer,
    PlainScorer,
    Provenance,
    Scorer,
    as_pair_scorer,
    as_scorer,
)
from rmlab.scoring.cluster import Ray, find_engine
from rmlab.scoring.run import Counts, RunOptions, add_counts, score_texts
from rmlab.scoring.stores import READING, check_tables, write_tables
from rmlab.scoring.texts import Shard, comparisons, list_texts, select_shard
from rmlab.store import Store
from rmlab.tables import DataError, nearest

# A model by its name, or a scorer.
Model = str | Path | PlainScorer | Scorer
Models = Model | Sequence[Model] | Mapping[str, Model]


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


def split_subsets(
    scorer: Scorer, responses: pd.DataFrame
) -> list[tuple[Scorer, pd.DataFrame]]:
    """The scorer with its responses, then those of subsets with theirs."""
    subset = responses["subset"]
    parts = [(scorer, responses[~subset.isin(list(scorer.by_subset))])]
    for name, part_scorer in scorer.by_subset.items():
        parts.append((part_scorer, responses[subset == name]))
    return parts


def score_answers(
    scorer: Scorer,
    responses: pd.DataFrame,
    run: RunOptions,
    key_columns: Sequence[str] = tuple(tables.KEY),
) -> tuple[pd.DataFrame, Provenance]:
    """The responses with the scores of one model, and their provenance.

    Behind the score follow the scorer's columns, then those of the prompt.
    `key_columns`: what messages call a row by.
    """
    if isinstance(getattr(scorer, "model", None), baselines.Baseline):
        # It costs nothing: it is computed anew, and here.
        run = replace(run, store=None, engine=None)
    taken = [name for name in scorer.columns if name in tables.SCORES]
    if taken:
        problem = f"scorer {scorer.name!r}: columns {taken} are of every table"
        raise DataError(problem, "give its columns other names")

    responses = responses.reset_index(drop=True)
    values = []
    descriptions = []
    counts: Counts = {}
    for part_scorer, part in split_subsets(scorer, responses):
        texts = list_texts(part, key_columns, lists=part_scorer.lists_answers)
        rows, described, part_counts = score_texts(part_scorer, texts, run)
        columns = ["score", *part_scorer.columns]
        values.append(pd.DataFrame(rows[texts.numbers[0]], part.index, columns))
        descriptions.append(described)
        add_counts(counts, part_counts)

    provenance = descriptions[0]
    if scorer.by_subset:
        readings = [{name: d.get(name) for name in READING} for d in descriptions[1:]]
        provenance["subsets"] = dict(zip(scorer.by_subset, readings, strict=True))
    scores = pd.concat(values).infer_objects().astype({"score": np.float64})
    further = tables.prompt_columns(responses, tables.SCORES)
    order = dict.fromkeys([*tables.SCORES, *scores, *further])
    table = responses.assign(model="", **scores)
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
    names = options.get("name")
    given = {
        key: value
        for key, value in options.items()
        if key != "name" and value is not None
    }
    wrap: Callable[..., Scorer] = as_pair_scorer if pairwise else as_scorer
    models: dict[str, Scorer] = {}
    takes_options = False
    for item, name in _name_items(model, names):
        scorer: Any = item
        if isinstance(item, str | Path):
            named = given | ({"name": name} if name is not None else {})
            scorer = _open_named(item, named, pairwise=pairwise)
            takes_options |= str(item) not in baselines.ALL
        scorer = wrap(scorer, batch)

        key = str(name or scorer.name)
        if key in models:
            problem = f"model: two scorers are named {key!r}"
            raise DataError(problem, "give one of them another name (name=...)")
        models[key] = scorer
    if given and not takes_options:
        problem = f"options {sorted(given)} are for models named by a string"
        raise DataError(problem, "give them to the scorer itself")
    return models


def _name_items(model: Models, names: object) -> list[tuple[Model, object]]:
    """The models, each with a name or None."""
    items: list[Any] = [model]
    if isinstance(model, Mapping):
        items = list(model.values())
        names = list(model)
    elif isinstance(model, list | tuple):
        items = list(model)
    if not isinstance(names, list | tuple):
        names = [names] * len(items)
    if not items or len(names) != len(items):
        problem = f"model: {len(items)} models, and {len(names)} names"
        raise DataError(problem, "give one model at least, and a name for each or none")
    return list(zip(items, names, strict=True))


def _open_named(
    item: str | Path, options: Mapping[str, Any], *, pairwise: bool
) -> object:
    """The baseline of that name, or the model that `rmlab.classifier` or
    `rmlab.pairwise` makes.
    """
    name = str(item)
    if name in baselines.ALL:
        if pairwise:
            problem = f"model: {name!r} scores single answers"
            raise DataError(problem, "use rmlab.pairs(rmlab.score(...))")
        return baselines.ALL[name]

    has_separator = "/" in name or "\\" in name
    is_path = has_separator or name.startswith((".", "~")) or Path(name).is_dir()
    if isinstance(item, str) and not is_path:
        models = "or a model id ('owner/name'), a folder, or a scorer"
        allowed = f"{nearest(name, list(baselines.ALL))}; {models}"
        raise DataError(f"model: unknown name {name!r}", allowed)
    if "batch_size" in options:
        problem = "batch_size: texts are packed by their tokens, not counted."
        raise TypeError(f"{problem} Pass max_batch_tokens=8192, for example")

    make: Callable[..., Scorer] = scorers.pairwise if pairwise else scorers.classifier
    return make(item, **options)
