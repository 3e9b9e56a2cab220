"""Checks of a model before a long run: what would spoil its scores silently, found in seconds on a small sample."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rmlab import scorers, tables
from rmlab.checks import comparisons, memory, numbers, packing, texts
from rmlab.checks.report import STATUS, Row, refusal, table
from rmlab.scoring.check import alone_and_together
from rmlab.tables import DataError

__all__ = ["STATUS", "doctor"]


def doctor(scorer: Any, responses: pd.DataFrame, *, sample: int = 24, **options: Any) -> pd.DataFrame:
    """Examine a model before it scores `responses`: one row per check, with columns check, status, found, remedy.

    `scorer`: a model id or folder (for `rmlab.classifier`, with `options`), or what `rmlab.classifier`,
    `rmlab.implicit_reward` or `rmlab.pairwise` made. `status` is an ordered categorical, pass < warn < fail, so that
    `.max()` sums it up. All texts are tokenised; about `sample` texts, whole prompts from short to long, are scored:
    alone, together and, for a model in half precision, in float32. The checks: `head` (its weights are in the
    checkpoint), `memory` (an estimate), `packs` (how texts go together, and why not in a faster way), `template`,
    `truncated`, `bos` (once), `read` (the token that the head reads), `pad` (not the end token), `nan`, `alone` (texts
    alone come out as packed), `dtype` (noise against float32, and the comparisons it flips) and `saturation` (distinct
    scores, ties). Checks that a failed one makes impossible are left out.

    Of a pairwise model about `sample` comparisons are made, and `position` is one check more: in how many the winner
    changes with the order of the answers, which averaging both orders removes. PairRM's `markers` take the place of
    `bos` and `read`; `pad` is left out.

    Raises DataError for a model that cannot be had, TypeError for a scorer without tokens and weights to look at.
    """
    responses = tables.check_responses(responses)
    if sample < 1:
        raise ValueError(f"sample={sample}; allowed: 1 text or more")
    if not isinstance(scorer, str | Path):
        _require_model(scorer, options)
        examine = comparisons.examine if hasattr(scorer, "prefer") else _examine
        return table(examine(scorer, responses, sample))
    _find(scorer, options)
    try:
        made = scorers.classifier(scorer, **options)
    except DataError as error:
        if not str(error).startswith("model="):
            raise
        return table([refusal("head", error)])
    return table(_examine(made, responses, sample))


def _find(model: str | Path, options: dict[str, Any]) -> None:
    """Raise DataError where there is no such model, or one that needs more trust: nothing to examine."""
    from rmlab.scorers.checkpoint import find

    known = ("base", "revision", "allow_pickle", "trust_remote_code")
    _ = find(model, **{name: options[name] for name in known if name in options}).config


def _require_model(scorer: Any, options: dict[str, Any]) -> None:
    if not all(hasattr(scorer, name) for name in ("alone", "stream", "places", "in_float32")):
        raise TypeError(
            f"scorer: {scorer!r:.80} has no tokens and weights to look at; allowed: a model id, a folder, or what "
            "rmlab.classifier, rmlab.implicit_reward or rmlab.pairwise returns"
        )
    if options:
        raise DataError(f"options {sorted(options)} are for a model named by a string; give them to the scorer itself")


def _examine(scorer: Any, responses: pd.DataFrame, sample: int) -> Iterator[Row]:
    try:
        _ = scorer.backbone
    except DataError as error:
        yield refusal("head", error)
        return
    yield Row("head", "pass", _head(scorer))
    yield memory.row(scorer)
    yield packing.row(scorer)
    try:
        encoded = _encode(scorer, responses)
    except DataError as error:
        yield refusal("template", error)
        return
    yield texts.template(encoded)
    lengths = np.array([len(ids) for ids in encoded.ids], np.intp)
    window = _window(scorer)
    yield texts.length(lengths, window, scorer.reading["truncate"])
    fitting = np.flatnonzero(lengths <= (window or lengths.max()))
    if len(fitting):
        rows = fitting[texts.spread(lengths[fitting], encoded.groups[fitting], sample)]
        yield from _on_sample(scorer, responses.iloc[rows].reset_index(drop=True))


def _on_sample(scorer: Any, rows: pd.DataFrame) -> Iterator[Row]:
    """The checks for which texts are scored."""
    prepared = scorer.prepare(rows["prompt"].tolist(), rows["response"].tolist())
    every = np.arange(len(rows))
    ids, reads = scorer.places(prepared, every)
    if hasattr(scorer, "checkpoints"):
        reads = [np.array([len(text) - 1]) for text in ids]  # what the answer ends with is scored, not read
    yield texts.beginning(scorer.tokenizer, ids)
    yield texts.end(scorer.tokenizer, ids, reads)
    yield texts.pad(scorer.tokenizer, ids)
    sample = numbers.Sample(rows, *alone_and_together(scorer, prepared, every))
    yield from numbers.examine(scorer, sample, prepared.keys, lambda other: other.alone(prepared, every))


def _encode(scorer: Any, responses: pd.DataFrame) -> Any:
    """All texts as token ids, however long."""
    from rmlab.inference.template import encode

    whole = scorer.reading | {"max_length": None, "truncate": None}
    return encode(scorer.tokenizer, responses["prompt"].tolist(), responses["response"].tolist(), **whole)


def _window(scorer: Any) -> int | None:
    """The longest text, in tokens, that the scorer takes."""
    from rmlab.scorers.backbone import window

    if scorer.reading["max_length"]:
        return int(scorer.reading["max_length"])
    every = getattr(scorer, "checkpoints", None) or [scorer.checkpoint]
    found = [longest for checkpoint in every if (longest := window(checkpoint.config)) is not None]
    # A classifier may append the token that its head reads.
    return min(found) - (getattr(scorer, "end", None) is not None) if found else None


def _head(scorer: Any) -> str:
    if hasattr(scorer, "checkpoints"):
        both = "policy and reference" if len(scorer.checkpoints) > 1 else "policy alone"
        return f"log-probabilities of the answer, {both}, {scorer.mode}"
    from rmlab.scorers.labels import head_keys

    head, checkpoint = scorer.head, scorer.checkpoint
    keys = head_keys(checkpoint) if head.make is None else head.keys(checkpoint.files)
    return f"{head.name}: {', '.join(keys[:3])}{' ...' if len(keys) > 3 else ''} in the checkpoint"
