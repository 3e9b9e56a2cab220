"""Checks of a model that sees two answers at once: what it is asked, in which order, and what that changes."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.checks import scores, texts
from rmlab.checks.findings import Finding, check_rate, model_findings, refusal
from rmlab.scorers.base import fill
from rmlab.scorers.pairwise import Pairwise
from rmlab.scoring.texts import comparisons
from rmlab.tables import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rmlab.inference.template import Encoded

Floats = NDArray[np.float64]
Ids = NDArray[np.int32]
Ints = NDArray[np.intp]


def pairwise_findings(scorer: Pairwise, responses: pd.DataFrame, sample: int) -> Iterator[Finding]:
    """The rows of a pairwise model's table; a check that a failed one makes impossible is left out."""
    pairs, asked = comparisons(responses)
    findings = model_findings(scorer)
    yield from findings
    if findings[0].status == "fail":
        return
    prompts, first, second = asked.prompts, [a for a, _ in asked.answers], [b for _, b in asked.answers]
    try:
        forth, back = scorer.encode(prompts, first, second), scorer.encode(prompts, second, first)
    except DataError as error:
        yield refusal("template", error)
        return
    yield Finding("template", "pass", scorer.asked)
    lengths = np.maximum([len(ids) for ids in forth.ids], [len(ids) for ids in back.ids])
    is_cut = forth.truncated | back.truncated
    yield texts.length(lengths, scorer.longest, scorer.encode_options["truncate"], is_cut)
    fitting = np.flatnonzero((lengths <= (scorer.longest or lengths.max())) & ~is_cut)
    if len(fitting):
        chosen = fitting[texts.spread(lengths[fitting], forth.groups[fitting], sample)]
        rows = pairs.iloc[np.unique(asked.rows, return_index=True)[1][chosen]].reset_index(drop=True)
        prompts, first, second = ([column[i] for i in chosen] for column in (prompts, first, second))
        # All comparisons in the order given, then all with the answers exchanged.
        prepared = scorer.prepare(prompts * 2, first + second, second + first)
        yield from _sample_findings(scorer, prepared, rows)


def _sample_findings(scorer: Pairwise, prepared: "Encoded", rows: pd.DataFrame) -> Iterator[Finding]:
    every = np.arange(2 * len(rows))
    ids, reads = scorer.places(prepared, every)
    if scorer.markers:
        yield markers(scorer.tokenizer, ids, reads)
    else:
        yield texts.beginning(scorer.tokenizer, ids)
        end = texts.end(scorer.tokenizer, ids, [np.array([len(text) - 1]) for text in ids])
        yield end if end.status == "pass" else end._replace(remedy="look at the tokenizer and its template")
    alone, together = scorer.alone(prepared, every), fill(scorer.forward(prepared, every), len(every))
    sample = scores.Sample(rows, _margins(scorer, alone), _margins(scorer, together))
    for finding in scores.score_findings(
        scorer, sample, prepared.keys[: len(rows)], lambda exact: _margins(exact, exact.alone(prepared, every))
    ):
        if finding.check == "saturation":
            yield position(*alone.reshape(2, -1))
        yield finding


def markers(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[Ids], reads: Sequence[Ints]) -> Finding:
    """PairRM's markers, where its head reads, stand once in each text."""
    marks = [text[positions] for text, positions in zip(ids, reads, strict=True)]
    names = " ".join(map(str, tokenizer.convert_ids_to_tokens(marks[0].tolist())))
    n_again = sum(int(np.isin(text, mark).sum()) > len(mark) for text, mark in zip(ids, marks, strict=True))
    if not n_again:
        return Finding("markers", "pass", f"{names}, once each in all {len(ids)} texts")
    remedy = "look for the markers' names in prompts and answers; the head reads the first of each"
    return Finding("markers", "warn", f"{names}; again inside {n_again} of {len(ids)} texts", remedy)


def position(forth: Floats, back: Floats) -> Finding:
    """How many winners change when the answers change places.

    Up to a tenth passes. From one half on the place decides more often than the answers do: that fails.
    """
    n, n_changed = len(forth), int((np.sign(forth) != -np.sign(back)).sum())
    first_wins = float(np.mean(np.concatenate([forth, back]) > 0))
    description = f"comparisons ({n_changed / n:.0%}) change their winner with the order of the answers; the one "
    remedy = "both orders are averaged, which removes it: report the share, and never ask this model in one order only"
    description += f"written first wins {first_wins:.0%}"
    return check_rate("position", n_changed, n, description, remedy, warn=0.1, fail=0.5)


def _margins(scorer: Pairwise, logits: Floats) -> Floats:
    """Margins from the logits of all comparisons in one order, then of all exchanged; NaN where one is not finite."""
    forth, back = logits.reshape(2, -1)
    is_finite = np.isfinite(forth) & np.isfinite(back)
    margins = np.full(len(forth), np.nan)
    margins[is_finite] = scorer.average(forth[is_finite], back[is_finite])
    return margins
