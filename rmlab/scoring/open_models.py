"""What people give as `model=` of `rmlab.score` and `rmlab.prefer`, as scorers by
name.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rmlab import baselines, scorers
from rmlab.scorers.base import (
    Judge,
    PlainScorer,
    Scorer,
    as_pair_scorer,
    as_scorer,
)
from rmlab.scoring.installed import has_name, installed_scorers
from rmlab.scoring.run import RunOptions
from rmlab.tables import DataError, nearest

# A model by its name, or a scorer.
Model = str | Path | PlainScorer | Scorer | Judge
Models = Model | Sequence[Model] | Mapping[str, Model]


def open_models(
    model: Models,
    options: Mapping[str, object],
    run: RunOptions,
    *,
    pairwise: bool,
) -> dict[str, Scorer | Judge]:
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

    models: dict[str, Scorer | Judge] = {}
    for item, name in zip(items, names, strict=True):
        scorer: Any = item
        if isinstance(item, str | Path):
            item_options = options if name is None else {**options, "name": name}
            scorer = _open_named(item, item_options, pairwise=pairwise)
        is_judge = isinstance(scorer, Judge) and pairwise == (scorer.takes == "pair")
        if not is_judge:
            wrap = as_pair_scorer if pairwise else as_scorer
            scorer = wrap(scorer, batch)

        key = scorer.name if name is None else str(name)
        if key in models:
            problem = f"model: two scorers are named {key!r}"
            raise DataError(problem, "give one of them another name (name=...)")
        if models:
            _warn_of_twin(models, key, scorer)
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


def _warn_of_twin(
    models: Mapping[str, Scorer | Judge], name: str, scorer: Scorer | Judge
) -> None:
    """Warn where an earlier scorer has the same fingerprint."""
    if not scorer.fingerprint:
        return
    for other, model in models.items():
        if model.fingerprint == scorer.fingerprint:
            pair = f"scorers {other!r} and {name!r} have the same fingerprint"
            remedy = "leave one out, or change the fingerprint of a changed version"
            warnings.warn(f"{pair}: they are the same model; {remedy}", stacklevel=5)
            return
