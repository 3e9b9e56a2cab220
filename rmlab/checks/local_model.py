"""The doctor of a model on this machine: its weights, its texts as tokens, and its
scores, alone and together.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from rmlab.checks import sampled_scores, token_ids
from rmlab.checks.sampled_scores import Sample
from rmlab.findings import Check, Checks, Finding, run_checks
from rmlab.scorers.base import Floats, Ints, Text, fill, list_columns
from rmlab.scorers.checkpoints.adapters import Adapted
from rmlab.scorers.implicit import ImplicitReward
from rmlab.scorers.in_memory import ModelInMemory
from rmlab.scorers.local import LocalScorer
from rmlab.scorers.pairwise import Pairwise
from rmlab.scoring.run import tolerance
from rmlab.scoring.texts import comparisons

if TYPE_CHECKING:
    from rmlab.inference.encoding import Encoded


class Tokens(NamedTuple):
    """Token ids of texts, and the positions that are read in each."""

    ids: list[np.ndarray]
    reads: list[Ints]


class Examined:
    """A model, and the texts that it is examined with.

    `rows`: the responses, or the comparisons that they make. `orders`: their texts; of
    comparisons in both orders.
    """

    def __init__(self, scorer: LocalScorer, responses: pd.DataFrame, size: int) -> None:
        self.scorer = scorer
        self.size = size
        self.is_pair = isinstance(scorer, Pairwise)
        self.is_implicit = isinstance(scorer, ImplicitReward)
        self.has_markers = isinstance(scorer, Pairwise) and scorer.form.markers
        # The provenance has it too, but hashes all weights.
        self.dtype = str(scorer.dtype).removeprefix("torch.")

        if self.is_pair:
            self.rows, texts = comparisons(responses, both_orders=True)
            self.orders = []
            for numbers in texts.numbers:
                self.orders.append([texts.distinct[number] for number in numbers])
        else:
            self.rows = responses
            columns = zip(responses["prompt"], responses["response"], strict=True)
            self.orders = [[Text(prompt, (response,)) for prompt, response in columns]]

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

    @property
    def longest(self) -> int | None:
        """The longest text, in tokens, that the model takes; None without a limit."""
        return self.scorer.encoder.longest

    @cached_property
    def is_long(self) -> np.ndarray:
        """Whether a row is longer than the window, or than its form writes without a
        cut.
        """
        is_long = np.any([encoded.truncated for encoded in self.encoded], axis=0)
        if self.longest is not None:
            is_long = is_long | (self.lengths > self.longest)
        return np.asarray(is_long)

    @cached_property
    def sampled(self) -> Ints:
        """About `size` rows that fit."""
        fitting = np.flatnonzero(~self.is_long)
        lengths = self.lengths[fitting]
        groups = self.encoded[0].groups[fitting]
        return fitting[sampled_scores.spread(lengths, groups, self.size)]

    @cached_property
    def prepared(self) -> "Encoded":
        """The sampled rows as the model reads them: all in the order given, then all
        exchanged.
        """
        texts: list[Text] = []
        for order in self.orders:
            texts += [order[row] for row in self.sampled]
        return self.scorer.prepare(*list_columns(texts))

    @property
    def numbers(self) -> Ints:
        """The numbers of the prepared texts."""
        return np.arange(len(self.prepared.ids))

    @cached_property
    def tokens(self) -> Tokens:
        """Token ids of the sampled rows, and the positions that are read in each."""
        ids, reads = self.scorer.places(self.prepared, self.numbers)
        if self.is_implicit or (self.is_pair and not self.has_markers):
            # Logits are read where the text ends.
            reads = [np.array([len(text) - 1]) for text in ids]
        return Tokens(ids, reads)

    @cached_property
    def outputs(self) -> Floats:
        """The score of each text, forwarded by itself."""
        return self.scorer.forward_alone(self.prepared, self.numbers)

    @cached_property
    def sample(self) -> Sample:
        """The sampled rows with their scores or margins."""
        batches = self.scorer.forward(self.prepared, self.numbers)
        together = fill(batches, len(self.numbers))
        rows = self.rows.iloc[self.sampled].reset_index(drop=True)
        return Sample(rows, self.score_rows(self.outputs), self.score_rows(together))

    def score_rows(self, outputs: Floats) -> Floats:
        """Scores; or the margins of both orders, NaN where one is infinite."""
        if not isinstance(self.scorer, Pairwise):
            return outputs
        forth, back = outputs.reshape(2, -1)
        is_finite = np.isfinite(forth) & np.isfinite(back)
        with np.errstate(invalid="ignore"):
            margins = self.scorer.average(forth, back)
        return np.where(is_finite, margins, np.nan)


def _check_adapter(examined: Examined) -> Finding | None:
    """Which base an adapter changes, and whether its head was trained with it."""
    checkpoint = examined.scorer.checkpoint
    if not isinstance(checkpoint, Adapted):
        return None
    return Finding("pass", checkpoint.describe())


def _check_head(examined: Examined) -> Finding:
    _ = examined.scorer.backbone  # loads the weights
    return Finding("pass", examined.scorer.head_title)


def _check_packs(examined: Examined) -> Finding:
    return check_packs(examined.scorer)


def check_packs(scorer: LocalScorer) -> Finding:
    """How texts go through the scorer's model together, and why not in a faster way."""
    packing = scorer.backbone.packing
    if packing.refused:
        detail = f"batches of similar length, no packs: {packing.refused}"
        return Finding("pass", detail)

    packs, trouble = scorer.backbone.how_packed()
    if not trouble:
        return Finding("pass", str(packs))
    faster = "for more speed install a C compiler and the triton of this torch"
    return Finding("warn", str(packs), f"scores are right either way; {faster}")


def _check_tokenizer(examined: Examined) -> Finding:
    """Whether the class that transformers takes for this architecture writes the tokens
    of the tokenizer's file.
    """
    from rmlab.scorers.checkpoints.tokenizer_file import (
        PROBES,
        class_tokenizer,
        count_deviations,
    )

    checkpoint = examined.scorer.checkpoint
    if isinstance(checkpoint, ModelInMemory):
        return Finding("pass", f"{type(checkpoint.tokenizer).__name__} in memory")
    tokenizer = class_tokenizer(checkpoint)
    n_different = count_deviations(tokenizer, checkpoint)
    name = f"{type(tokenizer).__name__} of transformers"
    if not n_different:
        detail = f"{name} writes {len(PROBES)} texts as tokenizer.json does"
        return Finding("pass", detail)
    file = "tokenizer.json, which is followed"
    count = f"{n_different} of {len(PROBES)} texts"
    return Finding("warn", f"{name} differs from {file}, on {count}")


def _check_template(examined: Examined) -> Finding:
    """Where the chat template comes from."""
    encoded = examined.encoded[0]
    if isinstance(examined.scorer, Pairwise):
        models = examined.scorer.form.models
        return Finding("pass", f"the words of {models}, as its authors wrote them")

    origin = f"{encoded.source!r}, as you asked"
    if encoded.source == "tokenizer":
        origin = "the tokenizer's own"
    detail = f"{origin} (hash {encoded.template_hash[:8]})"
    if encoded.date is not None:
        detail += f", with the date {encoded.date} instead of today's"
    return Finding("pass", detail)


def _check_length(examined: Examined) -> Finding:
    """The share of texts that are longer than the model's window, or that the form of
    comparisons has to cut.
    """
    is_long = examined.is_long
    window = examined.longest
    largest = examined.lengths.max()
    unit = "comparisons" if examined.is_pair else "texts"
    longest = f"the longest of {len(is_long)} {unit} has {largest} tokens"
    if not is_long.any():
        limit = f"the window {window}"
        if window is None:
            limit = "positions are relative, without an end"
        return Finding("pass", f"none; {longest}, {limit}")

    count = f"{is_long.sum()} of {len(is_long)} {unit} ({is_long.mean():.1%})"
    detail = f"{count} are longer than the model takes"
    is_beyond_window = window is not None and largest > window
    if is_beyond_window:
        detail += f" ({window} tokens); {longest}"
    if examined.is_pair and is_beyond_window:
        remedy = "raise max_length= where the model can read more"
        return Finding("fail", detail, remedy)
    side = examined.scorer.encoder.options["truncate"]
    if side is not None:
        detail += f"; cut at the {side}"
        return Finding("warn", detail, "report the share with the results")
    remedy = "pass max_length= and truncate='left'"
    if examined.is_pair:
        remedy = "pass truncate='right', which cuts as its authors do"
    return Finding("fail", detail, remedy)


def _check_markers(examined: Examined) -> Finding | None:
    if not examined.has_markers:
        return None
    tokens = examined.tokens
    return token_ids.check_markers(examined.scorer.tokenizer, tokens.ids, tokens.reads)


def _check_bos(examined: Examined) -> Finding | None:
    if examined.has_markers:
        return None
    finding = token_ids.check_bos(examined.scorer.tokenizer, examined.tokens.ids)
    return _accept_convention(examined, finding)


def _check_read(examined: Examined) -> Finding | None:
    if examined.has_markers:
        return None
    tokens = examined.tokens
    finding = token_ids.check_read(
        examined.scorer.tokenizer,
        tokens.ids,
        tokens.reads,
        is_implicit=examined.is_implicit,
    )
    return _accept_convention(examined, finding)


def _accept_convention(examined: Examined, finding: Finding) -> Finding:
    """The finding; a warning where a convention asks for the fault."""
    convention = examined.scorer.encoder.options["convention"]
    if finding.status != "fail" or convention is None:
        return finding
    otherwise = "leave convention out for the model's own tokens"
    remedy = f"as convention='reward-bench' asks; {otherwise}"
    return finding._replace(status="warn", remedy=remedy)


def _check_pad(examined: Examined) -> Finding | None:
    if examined.is_pair:
        return None
    encoder = examined.scorer.encoder
    return token_ids.check_pad(
        encoder.tokenizer,
        examined.tokens.ids,
        examined.tokens.reads,
        padding=encoder.padding,
        pooling=encoder.pooling,
        is_implicit=examined.is_implicit,
    )


def _check_finite(examined: Examined) -> Finding:
    return sampled_scores.check_finite(examined.sample)


def _check_company(examined: Examined) -> Finding:
    return sampled_scores.check_company(examined.sample, tolerance(examined.dtype))


def _check_precision(examined: Examined) -> Finding:
    """The check of precision for a scorer in half precision, where a float32 copy
    fits.
    """
    import torch

    from rmlab.scorers.models.loading import fits

    dtype = examined.dtype
    if dtype == "float32":
        return Finding("pass", "float32: there is nothing more exact to compare with")

    device = examined.scorer.device
    for source in examined.scorer.encoder.readers:
        if isinstance(source, ModelInMemory):
            detail = f"{dtype} not compared: the model is in memory"
            return Finding("warn", detail, "save it and examine the folder")
        if not fits(source, device, torch.float32):
            copy = f"a float32 copy does not fit on {device} beside it"
            larger = "compare on a machine with more memory"
            remedy = f"{larger}, or on a smaller sister model"
            return Finding("warn", f"{dtype} not compared: {copy}", remedy)

    exact = examined.scorer.in_float32()
    outputs = exact.forward_alone(examined.prepared, examined.numbers)
    scores = examined.score_rows(outputs)
    return sampled_scores.check_precision(examined.sample, scores, dtype)


def _check_position(examined: Examined) -> Finding | None:
    if not examined.is_pair:
        return None
    forth, back = examined.outputs.reshape(2, -1)
    return sampled_scores.check_position(forth, back)


def _check_saturation(examined: Examined) -> Finding:
    keys = examined.prepared.keys[: len(examined.sampled)]
    return sampled_scores.check_saturation(examined.sample, keys)


_TEXT_CHECKS: Checks[Examined] = {
    "adapter": Check(_check_adapter),
    "head": Check(_check_head, is_needed=True),
    "packs": Check(_check_packs),
    "tokenizer": Check(_check_tokenizer, "other runners follow the class: compare ids"),
    "template": Check(_check_template, is_needed=True),
    "truncated": Check(_check_length),
}
_SAMPLE_CHECKS: Checks[Examined] = {
    "markers": Check(_check_markers),
    "bos": Check(_check_bos),
    "read": Check(_check_read),
    "pad": Check(_check_pad),
    "nan": Check(_check_finite, is_needed=True),
    "alone": Check(_check_company),
    "dtype": Check(
        _check_precision,
        "score with dtype='float32', or report this noise with the results",
    ),
    "position": Check(
        _check_position,
        "both orders are averaged: report the share, and never ask in one order only",
    ),
    "saturation": Check(_check_saturation),
}


def examine_model(
    scorer: LocalScorer, responses: pd.DataFrame, size: int
) -> Iterator[tuple[str, Finding]]:
    """Yield the findings on a model on this machine; about `size` of the texts that it
    can read are scored.
    """
    examined = Examined(scorer, responses, size)
    can_score = yield from run_checks(_TEXT_CHECKS, examined)
    if can_score and not examined.is_long.all():
        yield from run_checks(_SAMPLE_CHECKS, examined)
