"""Responses to scores: any scorer, each distinct text once, resumable with a store."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from rmlab import baselines, tables
from rmlab.scorers.base import Judge, PairScorer
from rmlab.scoring.cluster import Engine, Ray, find_engine
from rmlab.scoring.finished import check_tables, write_tables
from rmlab.scoring.judged import judge_pairs, judge_scores
from rmlab.scoring.merging import merge
from rmlab.scoring.models import Model, open_models
from rmlab.scoring.run import RunOptions, score_texts
from rmlab.scoring.texts import Shard, both_orders, comparisons, select_shard, unique_texts
from rmlab.store import Store
from rmlab.tables import DataError

__all__ = ["Ray", "merge", "prefer", "score"]


def score(
    responses: pd.DataFrame,
    model: Model | Sequence[Model],
    *,
    store: str | Path | None = None,
    shard: Shard | None = None,
    cluster: str | Engine | None = None,
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
    model : str, Path, scorer, or list of these
        A baseline's name ("longest"), a model id ("owner/name") or folder, or a scorer: a function of (prompts,
        responses), two lists, that returns one number per text, or an object with such a call and a `name`. A judge
        (`rmlab.judge`) is a scorer, too.
    store : str or Path, optional
        A folder, or a URL that fsspec knows ("s3://bucket/scores"). Every batch is kept there as it comes, so that an
        interrupted run resumes and a rerun forwards nothing. A function needs an attribute `fingerprint` for that. A
        run that ended leaves its table there as well. Processes that run at the same time each need a `shard`:
        without it they score the same texts.
    shard : str or tuple of int, optional
        "3/16" scores, and returns, the third of sixteen parts of whole prompts.
    cluster : str or Ray, optional
        "ray", "ray://host:port" or a `rmlab.scoring.Ray`: score on a Ray cluster, one worker for each GPU or CPU.
    batch : int
        Texts of a call of a function, where there is a store.
    allow_missing : bool
        Whether a text may be without a score. It is counted in the provenance.
    progress : bool, optional
        Whether to show a bar; by default on a terminal only.
    **options
        Go to `rmlab.classifier` where a string names a model; `name` may be a list, one for each.

    Returns
    -------
    DataFrame
        A scores table in the row order of `responses`, models one after the other. Behind the score follow attributes
        that a scorer rates, the column `verdict` of a judge, and further columns of `responses` that are constant
        within a prompt. `attrs["provenance"]` says per model what scored the texts.

    Raises
    ------
    DataError
        For an unknown name, scores that are not one finite number per text, and a store that cannot be used.
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
    run = _run_options(store, batch, allow_missing, progress, cluster)
    responses = tables.check_responses(responses)
    extra = tables.prompt_columns(responses, tables.SCORES)
    responses = select_shard(responses[[*tables.RESPONSES, *extra]], shard)
    texts = unique_texts(responses[tables.KEY], responses["prompt"].tolist(), responses["response"].tolist())
    named = open_models(model, options, run, pairwise=False)
    finished = run.store if shard is None else None
    check_tables(finished, named, responses["benchmark"].unique(), pairs=False)
    parts, provenance = [], {}
    for name, scorer in named.items():
        if isinstance(scorer, Judge):
            columns, provenance[name] = judge_scores(scorer, responses, run)
        else:
            # A baseline costs nothing: it is computed anew, and here.
            here = replace(run, store=None, engine=None) if baselines.is_baseline(name) else run
            rows, provenance[name] = score_texts(scorer, texts, here)
            columns = dict(zip(("score", *scorer.columns), rows[texts.rows].T, strict=True))
        names = [*tables.SCORES, *(column for column in columns if column != "score")]
        scored = responses.assign(model=name, **columns)
        parts.append(scored[[*names, *(column for column in extra if column not in names)]])
    scores = tables.check_scores(pd.concat(parts, ignore_index=True), allow_missing=allow_missing)
    scores.attrs["provenance"] = provenance
    write_tables(scores, finished)
    return scores


def prefer(
    responses: pd.DataFrame,
    model: Model | Sequence[Model],
    *,
    store: str | Path | None = None,
    shard: Shard | None = None,
    cluster: str | Engine | None = None,
    batch: int = 256,
    allow_missing: bool = False,
    progress: bool | None = None,
    **options: object,
) -> pd.DataFrame:
    """Compare every chosen with every rejected answer of a prompt by a model that sees two answers at once.

    Parameters
    ----------
    responses : DataFrame
        A table of responses.
    model : str, Path, scorer, or list of these
        A model id or folder, a scorer with `prefer(prompts, first, second)`, or a judge. Models of `rmlab.pairwise`
        are asked for each comparison in both orders, and the margin is the average of the two; what is scored, stored
        and counted is then one order of a comparison.
    store, shard, cluster, batch, progress
        As in `rmlab.score`.
    allow_missing : bool
        Whether a comparison may be without a number, in either order; its outcome is missing.
    **options
        Go to `rmlab.pairwise` where a string names a model.

    Returns
    -------
    DataFrame
        A pairs table, models one after the other, rows as `rmlab.pairs` orders them. The margin is above 0 where the
        chosen answer is preferred. A judge adds `verdict` (win, tie, loss, flip, unparsable, failed), `vote_first` and
        `vote_second` (the mean vote for the chosen answer where it is shown first and second, -1 to 1); its margin is
        missing, unless it reads log-probabilities. Further columns of `responses` that are constant within a prompt
        follow.

    Raises
    ------
    DataError, OSError
        As in `rmlab.score`.
    """
    run = _run_options(store, batch, allow_missing, progress, cluster)
    frame, texts = comparisons(select_shard(tables.check_responses(responses), shard))
    named = open_models(model, options, run, pairwise=True)
    finished = run.store if shard is None else None
    check_tables(finished, named, frame["benchmark"].unique(), pairs=True)
    parts, provenance = [], {}
    for name, scorer in named.items():
        if isinstance(scorer, Judge):
            columns, provenance[name] = judge_pairs(scorer, texts, run)
            parts.append(pd.concat([frame.drop(columns=["margin", "outcome"]).assign(model=name), columns], axis=1))
            continue
        assert isinstance(scorer, PairScorer)
        asked = both_orders(texts) if scorer.both_orders else texts
        rows, provenance[name] = score_texts(scorer, asked, run)
        margin = rows[asked.rows, 0]
        if scorer.both_orders:
            margin = scorer.average(*margin.reshape(2, -1))
        parts.append(frame.assign(model=name, margin=margin, outcome=tables.outcome(margin)))
    pairs = tables.check_pairs(pd.concat(parts, ignore_index=True))
    pairs.attrs["provenance"] = provenance
    write_tables(pairs, finished)
    return pairs


def _run_options(
    store: str | Path | None, batch: int, allow_missing: bool, progress: bool | None, cluster: str | Engine | None
) -> RunOptions:
    if not isinstance(batch, int) or batch < 1:
        raise DataError(f"batch: {batch!r} is not allowed. Give the number of texts of a call, 1 or more.")
    # Without a store a function gets all texts at once.
    batch_size = None if store is None else batch
    return RunOptions(
        None if store is None else Store(store), allow_missing, progress, find_engine(cluster), batch_size
    )
