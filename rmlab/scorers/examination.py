"""The checks of a model on this machine: its weights, its texts as tokens, and its
scores, alone and together.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab.findings import Check, Checks, Finding, grade, run_checks
from rmlab.scorers import token_checks
from rmlab.scorers.base import Floats, Ints, Text, list_columns
from rmlab.scorers.score_checks import (
    SCORE_CHECKS,
    Sample,
    apart,
    count_flips,
    list_orders,
    spread,
    take_sample,
)

if TYPE_CHECKING:
    from rmlab.inference.backbone import Backbone
    from rmlab.inference.encoding import Encoded
    from rmlab.scorers.local import LocalScorer


@dataclass
class Examined:
    """A model, and the texts that it is examined with: `orders`, of the `rows` as they
    stand and, of comparisons, exchanged.
    """

    scorer: "LocalScorer"
    rows: pd.DataFrame
    orders: list[list[Text]]
    size: int

    @property
    def is_pair(self) -> bool:
        """Whether the rows are comparisons."""
        return len(self.orders) > 1

    @cached_property
    def encoded(self) -> "list[Encoded]":
        """All texts as tokens, however long."""
        encode = self.scorer.encoder.encode_uncut
        return [encode(*list_columns(texts)) for texts in self.orders]

    @cached_property
    def lengths(self) -> Ints:
        """Tokens of each row, in the longer order."""
        by_order = []
        for encoded in self.encoded:
            by_order.append([len(ids) for ids in encoded.ids])
        lengths: Ints = np.array(by_order, np.intp).max(axis=0)
        return lengths

    @cached_property
    def is_long(self) -> np.ndarray:
        """Whether a row is longer than the window, or than its form writes without a
        cut.
        """
        is_long = np.any([encoded.truncated for encoded in self.encoded], axis=0)
        longest = self.scorer.encoder.longest
        if longest is not None:
            is_long = is_long | (self.lengths > longest)
        return np.asarray(is_long)

    @cached_property
    def sampled(self) -> Ints:
        """About `size` rows that fit."""
        fitting = np.flatnonzero(~self.is_long)
        groups = self.encoded[0].groups[fitting]
        return fitting[spread(self.lengths[fitting], groups, self.size)]

    @cached_property
    def texts(self) -> list[Text]:
        """The texts of the sampled rows, order by order."""
        return [order[row] for order in self.orders for row in self.sampled]

    @cached_property
    def tokens(self) -> tuple[list[np.ndarray], list[Ints]]:
        """Token ids of the sampled texts, and the positions that are read in each."""
        prepared = self.scorer.prepare(*list_columns(self.texts))
        ids, reads = self.scorer.places(prepared, np.arange(len(self.texts)))
        if self.scorer.read_at in ("answer", "end"):
            # Logits are read where the text ends.
            reads = [np.array([len(text) - 1]) for text in ids]
        return list(ids), reads

    def accept_convention(self, finding: Finding) -> Finding:
        """The finding; a warning where a convention asks for the fault."""
        convention = self.scorer.encoder.options["convention"]
        if finding.status != "fail" or convention is None:
            return finding
        otherwise = "leave convention out for the model's own tokens"
        remedy = f"as convention='reward-bench' asks; {otherwise}"
        return finding._replace(status="warn", remedy=remedy)


def _check_adapter(examined: Examined) -> Finding | None:
    """Which base an adapter changes, and whether its head was trained with it."""
    description = examined.scorer.checkpoint.describe()
    return Finding("pass", description) if description else None


def _check_head(examined: Examined) -> Finding:
    _ = examined.scorer.backbone  # loads the weights
    return Finding("pass", examined.scorer.head_title)


def _check_packs(examined: Examined) -> Finding:
    return check_packs(examined.scorer.backbone)


def check_packs(backbone: "Backbone") -> Finding:
    """How texts go through a model together, and why not in a faster way."""
    packing = backbone.packing
    if packing.refused:
        detail = f"batches of similar length, no packs: {packing.refused}"
        return Finding("pass", detail)

    faster = "for more speed install a C compiler and the triton of this torch"
    remedy = f"scores are right either way; {faster}"
    is_slow = bool(backbone.passes.kernels.trouble)
    return Finding(grade(not is_slow, True), str(backbone.way), remedy)


def _check_tokenizer(examined: Examined) -> Finding | None:
    """Whether the class that transformers takes for this architecture writes the tokens
    of the tokenizer's file.
    """
    from rmlab.scorers.checkpoints.checkpoint import Checkpoint
    from rmlab.scorers.checkpoints.tokenizer_file import (
        PROBES,
        class_tokenizer,
        count_deviations,
    )

    checkpoint = examined.scorer.checkpoint
    if not isinstance(checkpoint, Checkpoint):
        return None  # in memory: there is no file
    tokenizer = class_tokenizer(checkpoint)
    n_different = count_deviations(tokenizer, checkpoint)
    name = f"{type(tokenizer).__name__} of transformers"
    if not n_different:
        detail = f"{name} writes {len(PROBES)} texts as tokenizer.json does"
        return Finding("pass", detail)
    count = f"{n_different} of {len(PROBES)} texts"
    detail = f"{name} differs from tokenizer.json, which is followed, on {count}"
    return Finding("warn", detail, "other runners follow the class: compare ids")


def _check_template(examined: Examined) -> Finding:
    """Where the chat template comes from."""
    encoded = examined.encoded[0]
    origin = f"{encoded.source!r}, as you asked"
    if examined.is_pair:
        origin = "the words of its form, as its authors wrote them"
    elif encoded.source == "tokenizer":
        origin = "the tokenizer's own"
    if encoded.template_hash:
        origin += f" (hash {encoded.template_hash[:8]})"
    if encoded.date is not None:
        origin += f", with the date {encoded.date} instead of today's"
    return Finding("pass", origin)


def _check_length(examined: Examined) -> Finding:
    """The share of texts that are longer than the model's window, or that the form of
    comparisons has to cut.
    """
    encoder = examined.scorer.encoder
    is_long = examined.is_long
    largest = examined.lengths.max()
    unit = "comparisons" if examined.is_pair else "texts"
    longest = f"the longest of {len(is_long)} {unit} has {largest} tokens"
    window = f"the window {encoder.longest}"
    if encoder.longest is None:
        window = "positions are relative, without an end"
    if not is_long.any():
        return Finding("pass", f"none; {longest}, {window}")

    share = f"{is_long.sum()} of {len(is_long)} {unit} ({is_long.mean():.1%})"
    detail = f"{share} are longer than the model takes; {longest}, {window}"
    is_beyond_window = encoder.longest is not None and largest > encoder.longest
    side = encoder.options["truncate"]
    if side is not None and not (examined.is_pair and is_beyond_window):
        detail += f"; cut at the {side}"
        return Finding("warn", detail, "report the share with the results")
    remedy = "pass max_length= and truncate='left'"
    if examined.is_pair:
        remedy = "pass truncate='right', which cuts as its authors do"
        if is_beyond_window:
            remedy = "raise max_length= where the model can read more"
    return Finding("fail", detail, remedy)


def _check_markers(examined: Examined) -> Finding:
    ids, reads = examined.tokens
    return token_checks.check_markers(examined.scorer.tokenizer, ids, reads)


def _check_bos(examined: Examined) -> Finding:
    ids, _ = examined.tokens
    finding = token_checks.check_bos(examined.scorer.tokenizer, ids, examined.texts)
    return examined.accept_convention(finding)


def _check_read(examined: Examined) -> Finding:
    ids, reads = examined.tokens
    is_implicit = examined.scorer.read_at == "answer"
    finding = token_checks.check_read(
        examined.scorer.tokenizer, ids, reads, is_implicit=is_implicit
    )
    return examined.accept_convention(finding)


def _check_pad(examined: Examined) -> Finding | None:
    if examined.is_pair:
        return None
    ids, reads = examined.tokens
    encoder = examined.scorer.encoder
    return token_checks.check_pad(
        encoder.tokenizer,
        ids,
        reads,
        padding=encoder.padding,
        pooling=encoder.pooling,
        is_implicit=examined.scorer.read_at == "answer",
    )


def _check_precision(scorer: "LocalScorer", sample: Sample) -> Finding:
    """How far half precision is from float32, and how many comparisons it turns."""
    dtype = sample.dtype
    if dtype == "float32":
        return Finding("pass", "float32: there is nothing more exact to compare with")
    if not scorer.travels:
        detail = f"{dtype} not compared: the model is in memory"
        return Finding("warn", detail, "save it and examine the folder")
    # A copy that does not fit beside it waits in host memory.
    exact = scorer.in_float32().score_alone(sample.texts)
    return grade_precision(sample, exact)


def grade_precision(sample: Sample, exact: Floats) -> Finding:
    """The finding on scores in half precision, beside those in float32."""
    distance = apart(sample.row_scores(exact), sample.row_scores(sample.together))
    n_changed, flips = count_flips(sample, exact, sample.together)
    n = len(sample.margins(exact))
    is_right = n_changed == 0 and distance <= 0.2
    is_near = n_changed <= max(0.1 * n, 1) and distance <= 1
    deviation = f"at most {distance:.2g} standard deviations from float32"
    remedy = "score with dtype='float32', or report this noise with the results"
    detail = f"{sample.dtype} is {deviation} {flips}"
    return Finding(grade(is_right, is_near), detail, remedy)


_TEXT_CHECKS: Checks[Examined] = {
    "adapter": Check(_check_adapter),
    "head": Check(_check_head, is_needed=True),
    "packs": Check(_check_packs),
    "tokenizer": Check(_check_tokenizer),
    "template": Check(_check_template, is_needed=True),
    "truncated": Check(_check_length),
}
_MARKER_CHECKS: Checks[Examined] = {"markers": Check(_check_markers)}
_TOKEN_CHECKS: Checks[Examined] = {
    "bos": Check(_check_bos),
    "read": Check(_check_read),
    "pad": Check(_check_pad),
}


def examine_model(
    scorer: "LocalScorer", responses: pd.DataFrame, size: int
) -> Iterator[tuple[str, Finding]]:
    """Yield the findings on a model on this machine; about `size` of the texts that it
    can read are scored.
    """
    rows, orders = list_orders(scorer, responses)
    examined = Examined(scorer, rows, orders, size)
    can_score = yield from run_checks(_TEXT_CHECKS, examined)
    if not can_score or examined.is_long.all():
        return
    has_markers = scorer.read_at == "markers"
    yield from run_checks(_MARKER_CHECKS if has_markers else _TOKEN_CHECKS, examined)

    # The provenance has it too, but hashes all weights.
    dtype = str(scorer.dtype).removeprefix("torch.")
    sampled_rows = rows.iloc[examined.sampled]
    sample = take_sample(scorer, sampled_rows, examined.texts, dtype)
    if (yield from run_checks(SCORE_CHECKS, sample)):
        yield "dtype", _check_precision(scorer, sample)
