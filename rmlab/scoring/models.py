"""From the argument `model` of `rmlab.score` and `rmlab.prefer` to scorers by name."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from rmlab import baselines, scorers, tables
from rmlab.scorers.base import Judge, PlainScorer, Scorer, as_pair_scorer, as_scorer
from rmlab.scoring.run import RunOptions
from rmlab.tables import DataError

Model = str | Path | PlainScorer | Scorer | Judge
"""A model by its name, or a scorer."""


def open_models(
    model: Model | Sequence[Model],
    options: Mapping[str, object],
    run: RunOptions,
    *,
    pairwise: bool,
) -> dict[str, Scorer | Judge]:
    """Name -> scorer, in the order given; of comparisons where `pairwise`."""
    models: Sequence[Model] = model if isinstance(model, list | tuple) else [model]  # type: ignore[list-item]
    if not models:
        raise DataError("model: the list is empty. Give at least one scorer, baseline name or model id.")
    if options and not any(isinstance(item, str | Path) and str(item) not in baselines.ALL for item in models):
        raise DataError(f"options {sorted(options)} are for models named by a string. Give them to the scorer itself.")
    name = options.get("name")
    names = name if isinstance(name, list | tuple) else [name] * len(models)
    if len(names) != len(models):
        raise DataError(f"name: {len(names)} names for {len(models)} models. Give one for each, in their order.")
    named: dict[str, Scorer | Judge] = {}
    for item, wanted_name in zip(models, names, strict=True):
        item_options = {**options, "name": wanted_name} if wanted_name is not None else options
        scorer: object = item
        if isinstance(item, str | Path):
            scorer = _make_scorer(item, item_options, pairwise=pairwise, on_cluster=run.engine is not None)
        if not isinstance(scorer, Judge) or pairwise != (scorer.takes == "pair"):
            scorer = as_pair_scorer(scorer, run.batch) if pairwise else as_scorer(scorer, run.batch)
        if isinstance(name, list | tuple) and wanted_name not in (None, scorer.name):
            raise DataError(
                f"name: {wanted_name!r} for {scorer.name!r}, which is no model id or folder and keeps its name."
            )
        if scorer.name in named:
            raise DataError(f"model: two scorers are named {scorer.name!r}. Give one of them another name (name=...).")
        named[scorer.name] = scorer
    if len(named) > 1:
        _warn_of_twins(named)
    return named


def _make_scorer(item: str | Path, options: Mapping[str, object], *, pairwise: bool, on_cluster: bool) -> object:
    """The baseline of that name, or the model that `rmlab.classifier` or `rmlab.pairwise` makes."""
    model = str(item)
    if model in baselines.ALL:
        if pairwise:
            raise DataError(f"model: {model!r} scores single answers: use rmlab.pairs(rmlab.score(...))")
        return baselines.ALL[model]
    is_path = isinstance(item, Path) or any(mark in model for mark in "/\\") or model.startswith((".", "~"))
    if not is_path and not Path(model).is_dir():
        raise DataError(
            f"model: unknown name {model!r}; {tables.nearest(model, baselines.NAMES)}; or a model id ('owner/name'), a "
            "folder, or a scorer"
        )
    make: Callable[..., Scorer] = scorers.pairwise if pairwise else scorers.classifier
    if not on_cluster:
        return make(item, **options)
    # The options for the device are for the workers: this machine may have none.
    scorer = make(item, **{name: value for name, value in options.items() if name not in ("device", "dtype")})
    scorer.remake = partial(make, item, **options)  # type: ignore[attr-defined]
    return scorer


def _warn_of_twins(named: Mapping[str, Scorer | Judge]) -> None:
    """Warn where scorers of different names share a fingerprint: one model, scored and ranked as if it were two."""
    first: dict[str, str] = {}
    for name, scorer in named.items():
        if scorer.fingerprint and first.setdefault(scorer.fingerprint, name) != name:
            warnings.warn(
                f"scorers {first[scorer.fingerprint]!r} and {name!r} have the same fingerprint, so they are the same "
                "model; leave one of them out, or give a changed version a fingerprint of its own",
                stacklevel=4,
            )
