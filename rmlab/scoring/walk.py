"""The one walk behind `rmlab.score`, `rmlab.prefer` and `rmlab.rewards`: the models
that people give, each over the rows of a table.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rmlab import baselines, scorers, tables
from rmlab.plug_ins import load_plug_ins
from rmlab.scorers.base import (
    PairScorer,
    PlainScorer,
    Provenance,
    Rows,
    Scorer,
    as_pair_scorer,
    as_scorer,
)
from rmlab.scoring.cluster import Ray, find_engine, spread_scorer
from rmlab.scoring.run import RunOptions, empty_rows, score_texts
from rmlab.scoring.stores import check_tables, write_tables
from rmlab.scoring.texts import (
    Shard,
    Texts,
    both_orders,
    comparisons,
    list_texts,
    select_shard,
)
from rmlab.store import Store, open_store
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
    *,
    store: str | Path | Store | None,
    cluster: str | Ray | None,
    batch: int,
    allow_missing: bool,
    progress: bool | None,
) -> RunOptions:
    """Options from what people give; DataError for what is not allowed."""
    if not isinstance(batch, int) or batch < 1:
        allowed = "give the number of texts of a call, 1 or more"
        raise DataError(f"batch: {batch!r} is not allowed", allowed)
    opened_store = None if store is None else open_store(store)
    engine = find_engine(cluster) if isinstance(cluster, str) else cluster
    return RunOptions(opened_store, engine, batch, allow_missing, progress)


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

    names = ["score", *scorer.columns]
    values = empty_rows(scorer, len(responses))
    provenance: Provenance = {}
    for part_scorer, is_shown in split_subsets(scorer, responses):
        part = responses[is_shown]
        texts = list_texts(part, key_columns, lists=part_scorer.lists_answers)
        scores, counts = _score_texts(part_scorer, texts, run)
        values[is_shown] = scores[texts.rows]
        provenance = _add_counts(provenance, counts)

    columns = _frame(names, values)
    further = tables.prompt_columns(responses, tables.SCORES)
    order = dict.fromkeys([*tables.SCORES, *columns, *further])
    return responses.assign(model="", **columns)[[*order]], provenance


def split_subsets(
    scorer: Scorer, responses: pd.DataFrame
) -> list[tuple[Scorer, np.ndarray]]:
    """The scorers of the subsets that the table has, and whether each row is theirs."""
    subset = responses["subset"].to_numpy()
    parts = [(scorer, ~np.isin(subset, list(scorer.by_subset)))]
    for name, other in scorer.by_subset.items():
        parts.append((other, subset == name))
    return [(part, is_shown) for part, is_shown in parts if is_shown.any()]


def _score_texts(
    scorer: Scorer, texts: Texts, run: RunOptions
) -> tuple[Rows, Provenance]:
    """Score distinct texts here or on the cluster."""
    if run.engine is not None and scorer.travels:
        scorer = spread_scorer(scorer, run.engine, run.store)
    return score_texts(scorer, texts, run)


def _frame(names: Sequence[str], values: Rows) -> pd.DataFrame:
    """Columns of values, in the types that they have."""
    columns = {}
    for name, column in zip(names, values.T, strict=True):
        columns[name] = pd.Series(column).infer_objects()
    columns["score"] = columns["score"].astype(np.float64)
    return pd.DataFrame(columns)


def _add_counts(first: Provenance, second: Provenance) -> Provenance:
    """The first provenance with the counts of the second added."""
    if not first:
        return second
    added = {}
    for name in ("seconds", "texts", "scored", "missing"):
        added[name] = first[name] + second[name]  # type: ignore[operator]
    return first | added


def _compare_answers(
    scorer: PairScorer, responses: pd.DataFrame, run: RunOptions
) -> tuple[pd.DataFrame, Provenance]:
    """Every chosen with every rejected answer of a prompt, with margin and outcome, and
    their provenance.
    """
    rows, texts = comparisons(responses)
    if scorer.both_orders:
        texts = both_orders(texts)
    scores, provenance = _score_texts(scorer, texts, run)
    forward = scores[texts.rows[: len(rows)]]
    exchanged = None
    if scorer.both_orders:
        exchanged = scores[texts.rows[len(rows) :]]
    columns = pd.DataFrame(scorer.compare(forward, exchanged), index=rows.index)
    return rows.assign(**columns), provenance


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
    items, names = _list_items(model, options.get("name"))
    model_options = sorted(set(options) - {"name"})
    if model_options:
        _require_names(items, model_options)

    models: dict[str, Scorer] = {}
    for item, name in zip(items, names, strict=True):
        scorer: Any = item
        if isinstance(item, str | Path):
            item_options = options if name is None else {**options, "name": name}
            scorer = _open_named(item, item_options, pairwise=pairwise)
        wrap = as_pair_scorer if pairwise else as_scorer
        scorer = wrap(scorer, batch)

        key = scorer.name if name is None else str(name)
        if key in models:
            problem = f"model: two scorers are named {key!r}"
            raise DataError(problem, "give one of them another name (name=...)")
        models[key] = scorer
    return models


def _list_items(
    model: Models, name: object
) -> tuple[Sequence[Model], Sequence[object]]:
    """The models, and a name or None for each."""
    items: Sequence[Model]
    if isinstance(model, Mapping):
        items = list(model.values())
        name = list(model)
    elif isinstance(model, list | tuple):
        items = model
    else:
        items = [model]  # type: ignore[list-item]
    if not items:
        remedy = "give at least one scorer, baseline name or model id"
        raise DataError("model: the list is empty", remedy)

    names = name if isinstance(name, list | tuple) else [name] * len(items)
    if len(names) != len(items):
        problem = f"name: {len(names)} names for {len(items)} models"
        raise DataError(problem, "give one for each, in their order")
    return items, names


def _require_names(items: Sequence[Model], model_options: Sequence[str]) -> None:
    """Raise DataError for options where no string names a model that takes them."""
    for item in items:
        if isinstance(item, str | Path) and not has_name(str(item)):
            return
    problem = f"options {model_options} are for models named by a string"
    raise DataError(problem, "give them to the scorer itself")


def _open_named(
    item: str | Path, options: Mapping[str, object], *, pairwise: bool
) -> object:
    """The baseline or the installed scorer of that name, or the model that
    `rmlab.classifier` or `rmlab.pairwise` makes.
    """
    name = str(item)
    if name in baselines.ALL:
        if pairwise:
            problem = f"model: {name!r} scores single answers"
            raise DataError(problem, "use rmlab.pairs(rmlab.score(...))")
        return baselines.ALL[name]
    if name in installed_scorers():
        return installed_scorers()[name]

    has_separator = "/" in name or "\\" in name
    is_path = has_separator or name.startswith((".", "~")) or Path(name).is_dir()
    if isinstance(item, str) and not is_path:
        models = "or a model id ('owner/name'), a folder, or a scorer"
        allowed = f"{nearest(name, [*baselines.NAMES, *installed_scorers()])}; {models}"
        raise DataError(f"model: unknown name {name!r}", allowed)

    make: Callable[..., Scorer] = scorers.pairwise if pairwise else scorers.classifier
    return make(item, **options)


@cache
def installed_scorers() -> dict[str, Any]:
    """The scorers of installed packages by the names of their entry points."""
    scorers: dict[str, Any] = {}

    def add(name: str, scorer: object) -> None:
        is_scorer = callable(scorer) or hasattr(scorer, "prefer")
        if not is_scorer or name in baselines.ALL or "/" in name:
            raise TypeError("no scorer, or its name is taken or has a slash")
        scorers[name] = scorer

    load_plug_ins(GROUP, add)
    return scorers


def has_name(model: str) -> bool:
    """Whether a string names a scorer that takes no options, and not a folder or a
    model on the hub.
    """
    return model in baselines.ALL or model in installed_scorers()
