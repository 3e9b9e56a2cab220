"""The doctor of a model on this machine: its weights, its texts as tokens, and its scores, alone and together."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.checks import scores, texts
from rmlab.checks.findings import Finding, check_rate, model_findings, refusal
from rmlab.scorers.base import fill
from rmlab.scorers.local import LocalScorer
from rmlab.scorers.pairwise import Pairwise
from rmlab.scoring.run import tolerance
from rmlab.scoring.texts import comparisons
from rmlab.tables import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rmlab.inference.template import Encoded

Floats = NDArray[np.float64]
Ids = NDArray[np.int32]
Ints = NDArray[np.intp]
Columns = list[list[str]]
"""The answers of each text: one column, or two that are compared."""


def local_findings(scorer: LocalScorer | Pairwise, responses: pd.DataFrame, size: int) -> Iterator[Finding]:
    """The rows of a model on this machine; checks that a failed one makes impossible are left out."""
    rows, prompts, answers = _list_texts(scorer, responses)
    findings = model_findings(scorer)
    yield from findings
    if findings[0].status == "fail":
        return
    try:
        orders = _encode_uncut(scorer, prompts, answers)
    except DataError as error:
        yield refusal("template", error)
        return
    yield Finding("template", "pass", scorer.asked) if isinstance(scorer, Pairwise) else texts.template(orders[0])
    lengths = np.max([[len(ids) for ids in encoded.ids] for encoded in orders], axis=0)
    is_cut = np.any([encoded.truncated for encoded in orders], axis=0)
    unit = "comparisons" if isinstance(scorer, Pairwise) else "texts"
    yield texts.length(lengths, is_cut, scorer.longest, scorer.encode_options["truncate"], unit)
    fitting = np.flatnonzero((lengths <= (scorer.longest or lengths.max())) & ~is_cut)
    if len(fitting):
        chosen = fitting[texts.spread(lengths[fitting], orders[0].groups[fitting], size)]
        prompts, answers = [prompts[i] for i in chosen], [[column[i] for i in chosen] for column in answers]
        yield from _sample_findings(scorer, rows.iloc[chosen].reset_index(drop=True), prompts, answers)


def _list_texts(
    scorer: LocalScorer | Pairwise, responses: pd.DataFrame
) -> tuple[pd.DataFrame, list[texts.Prompt], Columns]:
    """Rows of responses, or of the comparisons that they make, and their texts."""
    if not isinstance(scorer, Pairwise):
        return responses, responses["prompt"].tolist(), [responses["response"].tolist()]
    pairs, asked = comparisons(responses)
    pair_texts = [asked.distinct[number] for number in asked.rows]
    answers = [[text.answers[place] for text in pair_texts] for place in (0, 1)]
    return pairs, [text.prompt for text in pair_texts], answers


def _encode_uncut(scorer: LocalScorer | Pairwise, prompts: list[texts.Prompt], answers: Columns) -> "list[Encoded]":
    """The texts as tokens, however long; comparisons in both orders."""
    if isinstance(scorer, Pairwise):
        return [scorer.encode(prompts, *columns) for columns in (answers, answers[::-1])]
    from rmlab.inference.template import encode

    uncut = scorer.encode_options | {"max_length": None, "truncate": None}
    return [encode(scorer.tokenizer, prompts, answers[0], **uncut)]


def _sample_findings(
    scorer: LocalScorer | Pairwise, rows: pd.DataFrame, prompts: list[texts.Prompt], answers: Columns
) -> Iterator[Finding]:
    """The checks of tokens and of scores, on the sample."""
    if isinstance(scorer, Pairwise):  # all comparisons in the order given, then all with the answers exchanged
        first, second = answers
        prompts, answers = prompts * 2, [first + second, second + first]
    prepared, every = scorer.prepare(prompts, *answers), np.arange(len(prompts))
    yield from _token_findings(scorer, *scorer.places(prepared, every))
    alone, together = scorer.alone(prepared, every), fill(scorer.forward(prepared, every), len(every))
    sample = scores.Sample(rows, _finish(scorer, alone), _finish(scorer, together))
    finding = scores.finite(sample)
    yield finding
    if finding.status == "fail":
        return
    dtype = str(scorer.dtype).removeprefix("torch.")  # the provenance says it too, but hashes all weights
    yield scores.packing(sample, tolerance(dtype))
    yield _precision(scorer, dtype, sample, prepared)
    if isinstance(scorer, Pairwise):
        yield position(*alone.reshape(2, -1))
    yield scores.saturation(sample, prepared.keys[: len(rows)])


def _token_findings(scorer: LocalScorer | Pairwise, ids: list[Ids], reads: list[Ints]) -> Iterator[Finding]:
    tokenizer = scorer.tokenizer
    if isinstance(scorer, Pairwise) and scorer.markers:
        yield markers(tokenizer, ids, reads)
        return
    if isinstance(scorer, Pairwise) or scorer.sums_answer:  # the end is scored, not read
        reads = [np.array([len(text) - 1]) for text in ids]
    for finding in (texts.beginning(tokenizer, ids), texts.end(tokenizer, ids, reads)):
        if finding.status == "fail" and scorer.encode_options["convention"] is not None:
            remedy = "as convention='reward-bench' asks; leave convention out for the model's own tokens"
            yield finding._replace(status="warn", remedy=remedy)
        elif finding.check == "read" and finding.remedy and isinstance(scorer, Pairwise):
            yield finding._replace(remedy="look at the tokenizer and its template")
        else:
            yield finding
    if not isinstance(scorer, Pairwise):
        yield texts.pad(tokenizer, ids)


def _precision(scorer: LocalScorer | Pairwise, dtype: str, sample: scores.Sample, prepared: "Encoded") -> Finding:
    """The check of precision for a scorer in half precision, where a float32 copy fits."""
    from rmlab.scorers.models.backbone import fits

    if dtype == "float32":
        return Finding("dtype", "pass", "float32: there is nothing more exact to compare with")
    exact = scorer.in_float32()
    if not all(fits(checkpoint, exact.device, exact.dtype) for checkpoint in exact.checkpoints):
        detail = f"{dtype} not compared: a float32 copy does not fit on {exact.device} beside it"
        return Finding("dtype", "warn", detail, "compare on a machine with more memory, or on a smaller sister model")
    outputs = exact.alone(prepared, np.arange(len(prepared.ids)))
    return scores.precision(sample, _finish(exact, outputs), dtype)


def _finish(scorer: LocalScorer | Pairwise, outputs: Floats) -> Floats:
    """Scores; or margins from the logits of all comparisons in one order, then of all exchanged, NaN where infinite."""
    if not isinstance(scorer, Pairwise):
        return outputs
    forth, back = outputs.reshape(2, -1)
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(forth) & np.isfinite(back), scorer.average(forth, back), np.nan)


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
    description += f"written first wins {first_wins:.0%}"
    remedy = "both orders are averaged, which removes it: report the share, and never ask this model in one order only"
    return check_rate("position", n_changed, n, description, remedy, warn=0.1, fail=0.5)
