"""Responses to scores: any scorer, each distinct text once, resumable with a store."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from rmlab import baselines, scorers, tables
from rmlab.scorers.base import (
    Judge,
    PairScorer,
    PlainScorer,
    Scorer,
    as_pair_scorer,
    as_scorer,
)
from rmlab.scoring.cluster import Ray, find_engine
from rmlab.scoring.judged import judge_pairs, judge_scores
from rmlab.scoring.run import RunOptions, score_texts
from rmlab.scoring.stores import check_tables, merge, write_tables
from rmlab.scoring.texts import (
    Shard,
    both_orders,
    comparisons,
    select_shard,
    unique_texts,
)
from rmlab.store import Store
from rmlab.tables import DataError

__all__ = ["Ray", "merge", "prefer", "score"]

# A model by its name, or a scorer.
Model = str | Path | PlainScorer | Scorer | Judge


def score(
    responses: pd.DataFrame,
    model: Model | Sequence[Model] | Mapping[str, Model],
    *,
    store: str | Path | None = None,
    shard: Shard | None = None,
    cluster: str | Ray | None = None,
    batch: int = 256,
    allow_missing: bool = False,
    progress: bool | None = None,
    **options: object,
) -> pd.DataFrame:
    """Score every response. Identical texts are scored once.

    Parameters
    ----------
    responses : DataFrame
        A table of responses.
    model : str, Path, scorer, list of these, or mapping from names to these
        A baseline's name ("longest"), a model id ("owner/name") or folder, or a scorer:
        a function of (prompts, responses), two lists, that returns one number per text,
        or an object with such a call and a `name`. A judge (`rmlab.judge`) is a scorer,
        too.
    store : str or Path, optional
        A folder, or a URL that fsspec knows ("s3://bucket/scores"). Every batch is kept
        there as it comes, so that an interrupted run resumes and a rerun forwards
        nothing. A function needs an attribute `fingerprint` for that. A run that ended
        leaves its table there as well. Processes that run at the same time each need a
        `shard`: without it they score the same texts.
    shard : str or tuple of int, optional
        "3/16" scores, and returns, the third of sixteen parts of whole prompts.
    cluster : str or Ray, optional
        "ray", "ray://host:port" or a `rmlab.scoring.Ray`: score on a Ray cluster, one
        worker for each GPU or CPU.
    batch : int
        Texts of a call of a function, where there is a store.
    allow_missing : bool
        Whether a text may be without a score. It is counted in the provenance.
    progress : bool, optional
        Whether to show a bar; by default on a terminal only.
    **options
        Go to `rmlab.classifier` where a string names a model. `name` names any model;
        it may be a list, one for each.

    Returns
    -------
    DataFrame
        A scores table in the row order of `responses`, models one after the other.
        Behind the score follow attributes that a scorer rates, the column `verdict` of
        a judge, and further columns of `responses` that are constant within a prompt.
        `attrs["provenance"]` says per model what scored the texts.

    Raises
    ------
    DataError
        For an unknown name, scores that are not one finite number per text, and a store
        that cannot be used.
    OSError
        Where the disk is full.

    Examples
    --------
    >>> import pandas as pd
    >>> responses = pd.DataFrame({"benchmark": "b", "domain": "chat", "id": "0", "label": ["chosen", "rejected"],
    ...     "slot": 0, "prompt": "Hi", "response": ["Hello there.", "No."]})
    >>> def characters(prompts, responses):
    ...     return [len(response) for response in responses]
    >>> score(responses, characters)[["model", "label", "score"]]
            model     label  score
    0  characters    chosen   12.0
    1  characters  rejected    3.0
    """
    engine = find_engine(cluster) if isinstance(cluster, str) else cluster
    run = RunOptions(
        None if store is None else Store(store), engine, batch, allow_missing, progress
    )
    responses = tables.check_responses(responses)
    extra = tables.prompt_columns(responses, tables.SCORES)
    responses = responses[[*tables.RESPONSES, *extra]]
    if shard is not None:
        responses = select_shard(responses, shard)
    texts = unique_texts(
        responses[tables.KEY],
        responses["prompt"].tolist(),
        responses["response"].tolist(),
    )
    models = _open_models(model, options, run, pairwise=False)
    if run.store is not None and shard is None:
        check_tables(run.store, models, responses["benchmark"].unique(), pairs=False)
    parts, provenance = [], {}
    for name, scorer in models.items():
        if isinstance(scorer, Judge):
            columns, provenance[name] = judge_scores(scorer, responses, run)
        else:
            # A baseline costs nothing: it is computed anew, and here.
            is_free = isinstance(getattr(scorer, "model", None), baselines.Baseline)
            model_run = replace(run, store=None, engine=None) if is_free else run
            rows, provenance[name] = score_texts(scorer, texts, model_run)
            columns = dict(
                zip(("score", *scorer.columns), rows[texts.rows].T, strict=True)
            )
            if len(models) > 1:
                scorer.free_memory()
        names = [*tables.SCORES, *(column for column in columns if column != "score")]
        scored = responses.assign(model=name, **columns)
        parts.append(
            scored[[*names, *(column for column in extra if column not in names)]]
        )
    scores = tables.check_scores(
        pd.concat(parts, ignore_index=True), allow_missing=allow_missing
    )
    scores.attrs["provenance"] = provenance
    if run.store is not None and shard is None:
        write_tables(scores, run.store)
    return scores


def prefer(
    responses: pd.DataFrame,
    model: Model | Sequence[Model] | Mapping[str, Model],
    *,
    store: str | Path | None = None,
    shard: Shard | None = None,
    cluster: str | Ray | None = None,
    batch: int = 256,
    allow_missing: bool = False,
    progress: bool | None = None,
    **options: object,
) -> pd.DataFrame:
    """Compare every chosen with every rejected answer of a prompt by a model that sees
    two answers at once.

    Parameters
    ----------
    responses : DataFrame
        A table of responses.
    model : str, Path, scorer, list of these, or mapping from names to these
        A model id or folder, a scorer with `prefer(prompts, first, second)`, or a
        judge. Models of `rmlab.pairwise` are asked for each comparison in both orders,
        and the margin is the average of the two; what is scored, stored and counted is
        then one order of a comparison.
    store, shard, cluster, batch, progress
        As in `rmlab.score`.
    allow_missing : bool
        Whether a comparison may be without a number, in either order; its outcome is
        missing.
    **options
        Go to `rmlab.pairwise` where a string names a model.

    Returns
    -------
    DataFrame
        A pairs table, models one after the other, rows as `rmlab.pairs` orders them.
        The margin is above 0 where the chosen answer is preferred. A judge adds
        `verdict` (win, tie, loss, flip, unparsable, failed), `vote_first` and
        `vote_second` (the mean vote for the chosen answer where it is shown first and
        second, -1 to 1); its margin is missing, unless it reads log-probabilities.
        Further columns of `responses` that are constant within a prompt follow.

    Raises
    ------
    DataError, OSError
        As in `rmlab.score`.
    """
    engine = find_engine(cluster) if isinstance(cluster, str) else cluster
    run = RunOptions(
        None if store is None else Store(store), engine, batch, allow_missing, progress
    )
    responses = tables.check_responses(responses)
    frame, texts = comparisons(
        responses if shard is None else select_shard(responses, shard)
    )
    models = _open_models(model, options, run, pairwise=True)
    if run.store is not None and shard is None:
        check_tables(run.store, models, frame["benchmark"].unique(), pairs=True)
    parts, provenance = [], {}
    for name, scorer in models.items():
        if isinstance(scorer, Judge):
            columns, provenance[name] = judge_pairs(scorer, texts, run)
            parts.append(
                pd.concat(
                    [
                        frame.drop(columns=["margin", "outcome"]).assign(model=name),
                        columns,
                    ],
                    axis=1,
                )
            )
            continue
        assert isinstance(scorer, PairScorer)
        ordered = both_orders(texts) if scorer.both_orders else texts
        rows, provenance[name] = score_texts(scorer, ordered, run)
        margin = rows[ordered.rows, 0]
        if scorer.both_orders:
            margin = scorer.average(*margin.reshape(2, -1))
        if len(models) > 1:
            scorer.free_memory()
        parts.append(
            frame.assign(model=name, margin=margin, outcome=tables.outcome(margin))
        )
    pairs = tables.check_pairs(pd.concat(parts, ignore_index=True))
    pairs.attrs["provenance"] = provenance
    if run.store is not None and shard is None:
        write_tables(pairs, run.store)
    return pairs


def _open_models(
    model: Model | Sequence[Model] | Mapping[str, Model],
    options: Mapping[str, object],
    run: RunOptions,
    *,
    pairwise: bool,
) -> dict[str, Scorer | Judge]:
    """Name -> scorer, in the order given; of comparisons where `pairwise`."""
    name = options.get("name")
    if isinstance(model, Mapping):
        name = list(model)
        model = list(model.values())
    items: Sequence[Model] = model if isinstance(model, list | tuple) else [model]  # type: ignore[list-item]
    if not items:
        raise DataError(
            "model: the list is empty. Give at least one scorer, baseline name or model id."
        )
    others = sorted({*options} - {"name"})
    if others and not any(
        isinstance(item, str | Path) and str(item) not in baselines.ALL
        for item in items
    ):
        raise DataError(
            f"options {others} are for models named by a string. Give them to the scorer itself."
        )
    names = name if isinstance(name, list | tuple) else [name] * len(items)
    if len(names) != len(items):
        raise DataError(
            f"name: {len(names)} names for {len(items)} models. Give one for each, in their order."
        )
    if not isinstance(run.batch, int) or run.batch < 1:
        raise DataError(
            f"batch: {run.batch!r} is not allowed. Give the number of texts of a call, 1 or more."
        )
    # Without a store a function gets all texts at once.
    batch = None if run.store is None else run.batch
    models: dict[str, Scorer | Judge] = {}
    for item, title in zip(items, names, strict=True):
        scorer: object = item
        if isinstance(item, str | Path):
            item_options = {**options, "name": title} if title is not None else options
            scorer = _open_model(item, item_options, pairwise=pairwise)
        if not isinstance(scorer, Judge) or pairwise != (scorer.takes == "pair"):
            scorer = (
                as_pair_scorer(scorer, batch) if pairwise else as_scorer(scorer, batch)
            )
        key = scorer.name if title is None else str(title)
        if key in models:
            raise DataError(
                f"model: two scorers are named {key!r}. Give one of them another name (name=...)."
            )
        twin = next(
            (
                name
                for name, model in models.items()
                if model.fingerprint == scorer.fingerprint
            ),
            None,
        )
        if twin is not None and scorer.fingerprint:
            message = f"scorers {twin!r} and {key!r} have the same fingerprint: they are the same model"
            warnings.warn(
                f"{message}. Leave one out, or change the fingerprint of a changed version.",
                stacklevel=3,
            )
        models[key] = scorer
    return models


def _open_model(
    item: str | Path, options: Mapping[str, object], *, pairwise: bool
) -> object:
    """The baseline of that name, or the model that `rmlab.classifier` or
    `rmlab.pairwise` makes.
    """
    model = str(item)
    if model in baselines.ALL:
        if pairwise:
            raise DataError(
                f"model: {model!r} scores single answers: use rmlab.pairs(rmlab.score(...))"
            )
        return baselines.ALL[model]
    if (
        isinstance(item, str)
        and not set(model) & set("/\\")
        and model[:1] not in ".~"
        and not Path(model).is_dir()
    ):
        allowed = f"{tables.nearest(model, baselines.NAMES)}; or a model id ('owner/name'), a folder, or a scorer"
        raise DataError(f"model: unknown name {model!r}; {allowed}")
    make: Callable[..., Scorer] = scorers.pairwise if pairwise else scorers.classifier
    return make(item, **options)
