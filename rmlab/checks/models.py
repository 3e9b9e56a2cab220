"""The doctor of a model on this machine: its weights, its texts as tokens, and its scores, alone and together."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab.checks import findings
from rmlab.checks.findings import Finding, refusal
from rmlab.scorers.base import Floats, Ints, Prompt, fill
from rmlab.scorers.local import LocalScorer
from rmlab.scorers.pairwise import Pairwise
from rmlab.scoring.run import tolerance
from rmlab.scoring.texts import comparisons
from rmlab.tables import DataError

if TYPE_CHECKING:
    import torch

    from rmlab.inference.template import Encoded

Columns = list[list[str]]
"""The answers of each text: one column, or two that are compared."""


def examine_model(scorer: LocalScorer, responses: pd.DataFrame, size: int) -> Iterator[Finding]:
    """The rows of a model on this machine; checks that a failed one makes impossible are left out."""
    try:
        _ = scorer.backbone
    except DataError as error:
        yield refusal("head", error)
        return
    yield Finding("head", "pass", scorer.head_title)
    yield check_memory(scorer)
    yield check_packs(scorer)
    yield _check_tokenizer(scorer)
    rows, prompts, answers = _list_texts(scorer, responses)
    try:
        orders = _encode_uncut(scorer, prompts, answers)
    except DataError as error:
        yield refusal("template", error)
        return
    yield _check_template(scorer, orders[0])
    lengths = np.max([[len(ids) for ids in encoded.ids] for encoded in orders], axis=0)
    is_cut = np.any([encoded.truncated for encoded in orders], axis=0)
    unit = "comparisons" if isinstance(scorer, Pairwise) else "texts"
    yield findings.check_length(lengths, is_cut, scorer.longest, scorer.encode_options["truncate"], unit)
    fitting = np.flatnonzero((lengths <= (scorer.longest or lengths.max())) & ~is_cut)
    if len(fitting):
        chosen = fitting[findings.spread(lengths[fitting], orders[0].groups[fitting], size)]
        prompts, answers = [prompts[i] for i in chosen], [[column[i] for i in chosen] for column in answers]
        yield from _examine_sample(scorer, rows.iloc[chosen].reset_index(drop=True), prompts, answers)


def _list_texts(scorer: LocalScorer, responses: pd.DataFrame) -> tuple[pd.DataFrame, list[Prompt], Columns]:
    """Rows of responses, or of the comparisons that they make, and their texts."""
    if not isinstance(scorer, Pairwise):
        return responses, responses["prompt"].tolist(), [responses["response"].tolist()]
    pairs, compared = comparisons(responses)
    texts = [compared.distinct[number] for number in compared.rows]
    return pairs, [text.prompt for text in texts], [[text.answers[place] for text in texts] for place in (0, 1)]


def _encode_uncut(scorer: LocalScorer, prompts: list[Prompt], answers: Columns) -> "list[Encoded]":
    """The texts as tokens, however long; comparisons in both orders."""
    if isinstance(scorer, Pairwise):
        return [scorer.encode(prompts, *columns) for columns in (answers, answers[::-1])]
    from rmlab.inference.template import encode

    uncut = scorer.encode_options | {"max_length": None, "truncate": None}
    return [encode(scorer.tokenizer, prompts, answers[0], **uncut)]


def _examine_sample(
    scorer: LocalScorer, rows: pd.DataFrame, prompts: list[Prompt], answers: Columns
) -> Iterator[Finding]:
    """The checks of tokens and of scores."""
    if isinstance(scorer, Pairwise):  # all comparisons in the order given, then all with the answers exchanged
        first, second = answers
        prompts, answers = prompts * 2, [first + second, second + first]
    prepared, numbers = scorer.prepare(prompts, *answers), np.arange(len(prompts))
    yield from _check_tokens(scorer, *scorer.places(prepared, numbers))
    outputs, together = scorer.forward_alone(prepared, numbers), fill(scorer.forward(prepared, numbers), len(numbers))
    sample = findings.Sample(rows, _finish(scorer, outputs), _finish(scorer, together))
    finite = findings.check_finite(sample)
    yield finite
    if finite.status == "fail":
        return
    dtype = str(scorer.dtype).removeprefix("torch.")  # the provenance says it too, but hashes all weights
    yield findings.check_company(sample, tolerance(dtype))
    yield _check_precision(scorer, dtype, sample, prepared)
    if isinstance(scorer, Pairwise):
        yield findings.check_position(*outputs.reshape(2, -1))
    yield findings.check_saturation(sample, prepared.keys[: len(rows)])


def _check_tokens(scorer: LocalScorer, ids: list[np.ndarray], reads: list[Ints]) -> Iterator[Finding]:
    tokenizer = scorer.tokenizer
    if isinstance(scorer, Pairwise) and scorer.form.markers:
        yield findings.check_markers(tokenizer, ids, reads)
        return
    if isinstance(scorer, Pairwise) or scorer.sums_answer:  # the end is scored, not read
        reads = [np.array([len(text) - 1]) for text in ids]
    for finding in (findings.check_bos(tokenizer, ids), findings.check_read(tokenizer, ids, reads)):
        if finding.status == "fail" and scorer.encode_options["convention"] is not None:
            remedy = "as convention='reward-bench' asks; leave convention out for the model's own tokens"
            yield finding._replace(status="warn", remedy=remedy)
        else:
            yield finding
    if not isinstance(scorer, Pairwise):
        yield findings.check_pad(tokenizer, ids)


def _finish(scorer: LocalScorer, outputs: Floats) -> Floats:
    """Scores; or margins from the logits of all comparisons in one order, then of all exchanged, NaN where infinite."""
    if not isinstance(scorer, Pairwise):
        return outputs
    forth, back = outputs.reshape(2, -1)
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(forth) & np.isfinite(back), scorer.average(forth, back), np.nan)


def check_memory(scorer: LocalScorer) -> Finding:
    """Weights and activations at the scorer's budget against the device's memory."""
    weights, activations = memory_need(scorer)
    size = memory_size(scorer.device)
    detail = f"about {weights / 2**30:.2g} GiB of weights and {activations / 2**30:.2g} GiB of activations"
    if size is None:
        return Finding("memory", "warn", f"{detail}; this system does not tell its memory", "compare by hand")
    share = (weights + activations) / size
    status = "pass" if share <= 0.85 else "warn" if share <= 1 else "fail"
    remedy = "use dtype='bfloat16', lower budget=, or several GPUs: weights are spread over them"
    return Finding("memory", status, f"{detail}, {size / 2**30:.3g} GiB on {scorer.device}", remedy)


def memory_need(scorer: LocalScorer) -> tuple[float, float]:
    """Bytes of the weights and of the activations of one forward pass.

    An implicit reward adds its chunk of logits, and its second model if both stay.
    """
    from rmlab.inference.memory import activation_bytes, default_budget, free_memory

    config = scorer.checkpoints[0].config
    budget = scorer.budget
    budget = budget or default_budget(config, scorer.dtype, scorer.device, free=free_memory(scorer.device))
    weights = sum(checkpoint.n_weights for checkpoint in scorer.resident) * scorer.dtype.itemsize
    logits = 2.0**29 if scorer.sums_answer and scorer.device.type == "cuda" else 0.0
    return float(weights), budget * activation_bytes(config, scorer.dtype) + logits


def memory_size(device: "torch.device") -> float | None:
    """Bytes that the device can give: free memory and this process's share of a GPU, all memory of a CPU."""
    if device.type == "cuda":
        import torch

        devices = range(torch.cuda.device_count())
        return float(sum(torch.cuda.mem_get_info(i)[0] + torch.cuda.memory_reserved(i) for i in devices))
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError):  # Windows
        return None


def check_packs(scorer: LocalScorer) -> Finding:
    """How texts go through the scorer's model together, and why not in a faster way."""
    from rmlab.inference.passes import how_packed, packing_support

    packing = packing_support(scorer.backbone)
    if not packing.packed:
        return Finding("packs", "pass", f"batches of similar length, no packs: {packing.refused}")
    detail, trouble = how_packed(scorer.backbone)
    if not trouble:
        return Finding("packs", "pass", str(detail))
    remedy = "scores are right either way. For more speed install a C compiler and the triton of this torch"
    return Finding("packs", "warn", str(detail), remedy)


def _check_tokenizer(scorer: LocalScorer) -> Finding:
    """Whether the class that transformers takes for this architecture writes the tokens of the tokenizer's file."""
    from rmlab.scorers.checkpoints.tokenizer_file import PROBES, class_tokenizer, count_deviations

    tokenizer = class_tokenizer(scorer.checkpoints[0])
    n_different = count_deviations(tokenizer, scorer.checkpoints[0])
    detail = f"{type(tokenizer).__name__} of transformers differs from tokenizer.json, which is followed, on "
    detail += f"{n_different} of {len(PROBES)} texts"
    return Finding(
        "tokenizer", "warn" if n_different else "pass", detail, "other runners follow the class: compare ids"
    )


def _check_template(scorer: LocalScorer, encoded: "Encoded") -> Finding:
    """Where the chat template comes from."""
    if isinstance(scorer, Pairwise):
        return Finding("template", "pass", f"the words of {scorer.form.models}, as its authors wrote them")
    origin = "the tokenizer's own" if encoded.source == "tokenizer" else f"{encoded.source!r}, as you asked"
    date = "" if encoded.date is None else f", with the date {encoded.date} instead of today's"
    return Finding("template", "pass", f"{origin} (hash {encoded.template_hash[:8]}){date}")


def _check_precision(scorer: LocalScorer, dtype: str, sample: findings.Sample, prepared: "Encoded") -> Finding:
    """The check of precision for a scorer in half precision, where a float32 copy fits."""
    from rmlab.scorers.models.backbone import fits

    if dtype == "float32":
        return Finding("dtype", "pass", "float32: there is nothing more exact to compare with")
    exact = scorer.in_float32()
    if not all(fits(checkpoint, exact.device, exact.dtype) for checkpoint in exact.checkpoints):
        detail = f"{dtype} not compared: a float32 copy does not fit on {exact.device} beside it"
        return Finding("dtype", "warn", detail, "compare on a machine with more memory, or on a smaller sister model")
    outputs = exact.forward_alone(prepared, np.arange(len(prepared.ids)))
    return findings.check_precision(sample, _finish(exact, outputs), dtype)
