"""Responses to scores: any scorer, each distinct text once, resumable with a store."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import baselines, scorers, tables
from rmlab.scoring import finished
from rmlab.scoring.run import run
from rmlab.scoring.texts import Shard, Texts, both_orders, comparisons, select_shard, unique_texts
from rmlab.store import Store, merge
from rmlab.tables import DataError

__all__ = ["merge", "prefer", "score"]


def score(
    responses: pd.DataFrame,
    model: Any,
    *,
    store: str | Path | None = None,
    shard: Shard | None = None,
    batch: int = 256,
    allow_missing: bool = False,
    progress: bool | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Score every response: a scores table in the row order of `responses`, models one after the other.

    `model`: a baseline's name ("longest"), a model id ("owner/name") or folder, a scorer, or a list of these. A scorer
    is a function of (prompts, responses), two lists, that returns one number per text, or an object with such a call
    and a `name`. `options` go to `rmlab.classifier` where a string names a model; `name` may be a list, one for each.
    Identical texts are scored once.

    With `store`, a folder, every batch is kept as it comes: an interrupted run goes on where it stopped, a rerun
    forwards nothing, and processes that share the folder share the work. A function needs an attribute `fingerprint`
    for that, and gets `batch` texts at a time. `shard="3/16"` scores, and returns, the third of sixteen parts.
    A run that ended leaves its table there as <model>.<benchmark>.csv, for `read_scores` and reports, and refuses to
    begin where that would replace the table of another model of the same name.
    `progress`: None shows a bar on a terminal only. `attrs["provenance"]` says per model what scored the texts.

    Raises DataError for an unknown name, for scores that are not one finite number per text (NaN is counted in the
    provenance with `allow_missing=True`) and for a damaged or foreign store; OSError where the disk is full.

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
    responses = select_shard(tables.check_responses(responses), shard)
    texts = unique_texts(responses[tables.KEY], responses["prompt"].tolist(), responses["response"].tolist())
    parts, provenance = [], {}
    named = _scorers(model, "classifier", options)
    if store is not None and shard is None:
        finished.check(store, named, responses["benchmark"].unique())
    for name, scorer in named.items():
        if not callable(scorer) and (hasattr(scorer, "prefer") or not hasattr(scorer, "stream")):
            raise TypeError(f"scorer {name!r} cannot be called with (prompts, responses){_hint(scorer, 'prefer')}")
        values, provenance[name] = run(
            name, scorer, scorer, texts,
            store=_store(store), batch=batch, allow_missing=allow_missing, progress=progress,
        )  # fmt: skip
        parts.append(responses.assign(model=name, score=values[texts.rows])[tables.SCORES])
    scores = tables.check_scores(pd.concat(parts, ignore_index=True), allow_missing=allow_missing)
    scores.attrs["provenance"] = provenance
    if store is not None and shard is None:
        finished.keep(scores, store)
    return scores


def prefer(
    responses: pd.DataFrame,
    model: Any,
    *,
    store: str | Path | None = None,
    shard: Shard | None = None,
    batch: int = 256,
    allow_missing: bool = False,
    progress: bool | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Compare every chosen with every rejected answer of a prompt by a model that sees two answers at once.

    A pairs table, models one after the other, rows as `rmlab.pairs` orders them; the margin is what the scorer's
    `prefer(prompts, first, second)` returns, with the chosen answer first. `model`: a model id or folder (for
    `rmlab.pairwise`, with `options`), a scorer with `prefer`, or a list of these. The rest as in `rmlab.score`.

    A scorer that streams and has `average(there, back)`, as those of `rmlab.pairwise`, is asked for each comparison in
    both orders, chosen first and rejected first; the margin is the average of the two. What is scored and stored, and
    counted in the provenance (`texts`, `scored`, `missing`, `truncated`), is then one order of a comparison.

    With `allow_missing=True` a comparison without a number, in either order, has a missing outcome. A run that ended
    leaves its table in `store` as <model>.<benchmark>.pairs.csv, for `read_pairs` and reports.
    """
    frame, texts = comparisons(select_shard(tables.check_responses(responses), shard))
    parts, provenance = [], {}
    named = _scorers(model, "pairwise", options)
    if store is not None and shard is None:
        finished.check(store, named, frame["benchmark"].unique(), pairs=True)
    for name, scorer in named.items():
        if not hasattr(scorer, "prefer"):
            raise TypeError(f"scorer {name!r} has no prefer(prompts, first, second); use rmlab.score for single texts")
        margin, provenance[name] = _margins(
            name, scorer, texts, store=_store(store), batch=batch, allow_missing=allow_missing, progress=progress
        )
        parts.append(frame.assign(model=name, margin=margin, outcome=tables.outcome(margin)))
    pairs = tables.check_pairs(pd.concat(parts, ignore_index=True))
    pairs.attrs["provenance"] = provenance
    if store is not None and shard is None:
        finished.keep(pairs, store)
    return pairs


def _margins(name: str, scorer: Any, asked: Texts, **how: Any) -> tuple[NDArray[np.float64], dict[str, Any]]:
    """Margin of each row of the comparisons asked for, and the provenance."""
    if not all(hasattr(scorer, part) for part in ("prepare", "stream", "average")):
        values, about = run(name, scorer, scorer.prefer, asked, **how)
        return values[asked.rows], about
    texts = both_orders(asked)
    values, about = run(name, scorer, scorer.prefer, texts, **how)
    there, back = values[texts.rows].reshape(2, -1)
    return scorer.average(there, back), about


def _store(folder: str | Path | None) -> Store | None:
    return None if folder is None else Store(folder)


def _scorers(model: Any, maker: str, options: dict[str, Any]) -> dict[str, Any]:
    """Name -> scorer, in the order given."""
    models: Sequence[Any] = model if isinstance(model, list | tuple) else [model]
    if not models:
        raise DataError("model: the list is empty; give at least one scorer, baseline name or model id")
    names = _names(options.get("name"), len(models))
    make = _maker(maker, options)
    if options and not any(isinstance(one, str | Path) and str(one) not in baselines.ALL for one in models):
        raise DataError(f"options {sorted(options)} are for models named by a string; give them to the scorer itself")
    named: dict[str, Any] = {}
    for one, given in zip(models, names, strict=True):
        scorer = make(one, given) if isinstance(one, str | Path) else one
        name = _name(scorer)
        if isinstance(options.get("name"), list | tuple) and given not in (None, name):
            raise DataError(f"name: {given!r} for {name!r}, which is no model id or folder and keeps its name")
        if name in named:
            raise DataError(f"model: two scorers are named {name!r}; give one of them another name (name=...)")
        named[name] = scorer
    return named


def _names(name: str | Sequence[str] | None, models: int) -> Sequence[str | None]:
    """The name to give each model, None for its own."""
    names: Sequence[str | None] = [name] * models if name is None or isinstance(name, str) else name
    if len(names) != models:
        raise DataError(f"name: {len(names)} names for {models} models; give one for each, in their order")
    return names


def _maker(maker: str, options: dict[str, Any]) -> Callable[[str | Path, str | None], Any]:
    """Scorer of a string and a name: a baseline, or a model made by `rmlab.classifier` or `rmlab.pairwise`."""

    def make(model: str | Path, name: str | None) -> Any:
        if maker == "classifier" and str(model) in baselines.ALL:
            return baselines.ALL[str(model)]
        if str(model) in baselines.ALL:
            raise DataError(f"model: {str(model)!r} scores single answers: use rmlab.pairs(rmlab.score(...))")
        if not _looks_like_model(model):
            raise DataError(
                f"model: unknown name {str(model)!r}; {tables.nearest(str(model), baselines.NAMES)}; "
                "or a model id ('owner/name'), a folder, or a scorer"
            )
        return getattr(scorers, maker)(model, **options | ({"name": name} if name is not None else {}))

    return make


def _looks_like_model(model: str | Path) -> bool:
    text = str(model)
    return isinstance(model, Path) or "/" in text or "\\" in text or text.startswith((".", "~")) or Path(text).is_dir()


def _name(scorer: Any) -> str:
    name = getattr(scorer, "name", None) or getattr(scorer, "__name__", None)
    if not isinstance(name, str):
        raise TypeError(
            f"model: {type(scorer).__name__} {scorer!r:.80} is not a scorer; allowed: a baseline's name, a model id, a "
            "folder, a function of (prompts, responses), or an object with a name and such a call"
        )
    return name


def _hint(scorer: Any, method: str) -> str:
    return "; it compares two answers: use rmlab.prefer" if hasattr(scorer, method) else ""
