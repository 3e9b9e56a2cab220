"""The doctor of a model on this machine: its weights, its texts as tokens, and its
scores, alone and together.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab.checks import findings
from rmlab.checks.findings import Sample
from rmlab.scorers.base import Floats, Ints, Text, fill, list_columns
from rmlab.scorers.implicit import ImplicitReward
from rmlab.scorers.local import LocalScorer
from rmlab.scorers.pairwise import Pairwise
from rmlab.scoring.run import tolerance
from rmlab.scoring.texts import comparisons
from rmlab.servers import Checks, Finding, grade, run_checks

if TYPE_CHECKING:
    from rmlab.inference.template import Encoded


class Examined:
    """A model, and the texts that it is examined with.

    `rows`: the responses, or the comparisons that they make. `orders`: their texts; of
    comparisons in both orders.
    """

    def __init__(self, scorer: LocalScorer, responses: pd.DataFrame, size: int) -> None:
        self.scorer, self.size, self.rows = scorer, size, responses
        self.dtype = str(scorer.dtype).removeprefix(
            "torch."
        )  # the provenance says it too, but hashes all weights
        self.is_pair, self.is_marked = (
            isinstance(scorer, Pairwise),
            isinstance(scorer, Pairwise) and scorer.form.markers,
        )
        if isinstance(scorer, Pairwise):
            self.rows, compared = comparisons(responses)
            texts = [compared.distinct[number] for number in compared.rows]
            self.orders = [
                texts,
                [Text(text.prompt, text.answers[::-1]) for text in texts],
            ]
        else:
            columns = responses["prompt"], responses["response"]
            self.orders = [
                [
                    Text(prompt, (response,))
                    for prompt, response in zip(*columns, strict=True)
                ]
            ]

    @cached_property
    def encoded(self) -> "list[Encoded]":
        """All texts as tokens, however long."""
        encode = self.scorer.encoder.encode_uncut
        return [encode(*list_columns(texts)) for texts in self.orders]

    @cached_property
    def lengths(self) -> Ints:
        """Tokens of each row, in the longer order."""
        return np.asarray(
            np.max([[*map(len, encoded.ids)] for encoded in self.encoded], axis=0),
            np.intp,
        )

    @cached_property
    def is_long(self) -> np.ndarray:
        """Whether a row is longer than the window, or than its form writes without a
        cut.
        """
        is_cut = np.any([encoded.truncated for encoded in self.encoded], axis=0)
        return np.asarray(
            is_cut
            | (self.lengths > (self.scorer.encoder.longest or self.lengths.max()))
        )

    @cached_property
    def picked(self) -> Ints:
        """About `size` rows that fit."""
        fitting = np.flatnonzero(~self.is_long)
        return fitting[
            findings.spread(
                self.lengths[fitting], self.encoded[0].groups[fitting], self.size
            )
        ]

    @cached_property
    def prepared(self) -> "Encoded":
        """The picked rows as the model reads them: all in the order given, then all
        exchanged.
        """
        return self.scorer.prepare(
            *list_columns([texts[i] for texts in self.orders for i in self.picked])
        )

    @cached_property
    def tokens(self) -> tuple[list[np.ndarray], list[Ints]]:
        """Token ids of the picked rows, and the positions that are read in each."""
        ids, reads = self.scorer.places(
            self.prepared, np.arange(len(self.prepared.ids))
        )
        is_scored = isinstance(self.scorer, ImplicitReward) or (
            self.is_pair and not self.is_marked
        )
        return ids, [np.array([len(text) - 1]) for text in ids] if is_scored else reads

    @cached_property
    def outputs(self) -> Floats:
        """What the head says of each text, forwarded by itself."""
        return self.scorer.forward_alone(
            self.prepared, np.arange(len(self.prepared.ids))
        )

    @cached_property
    def sample(self) -> Sample:
        """The picked rows with their scores or margins."""
        n = len(self.prepared.ids)
        together = fill(self.scorer.forward(self.prepared, np.arange(n)), n)
        rows = self.rows.iloc[self.picked].reset_index(drop=True)
        return Sample(rows, self.finish(self.outputs), self.finish(together))

    def finish(self, outputs: Floats) -> Floats:
        """Scores; or the margins of both orders, NaN where one is infinite."""
        if not isinstance(self.scorer, Pairwise):
            return outputs
        forth, back = outputs.reshape(2, -1)
        with np.errstate(invalid="ignore"):
            return np.where(
                np.isfinite(forth) & np.isfinite(back),
                self.scorer.average(forth, back),
                np.nan,
            )


def _check_head(examined: Examined) -> Finding:
    _ = examined.scorer.backbone
    return Finding("pass", examined.scorer.head_title)


def check_packs(scorer: LocalScorer) -> Finding:
    """How texts go through the scorer's model together, and why not in a faster way."""
    backbone = scorer.backbone
    packing = backbone.packing
    if not packing.packed:
        return Finding(
            "pass", f"batches of similar length, no packs: {packing.refused}"
        )
    detail, trouble = backbone.how_packed()
    remedy = "scores are right either way. For more speed install a C compiler and the triton of this torch"
    return (
        Finding("warn", str(detail), remedy)
        if trouble
        else Finding("pass", str(detail))
    )


def _check_tokenizer(examined: Examined) -> Finding:
    """Whether the class that transformers takes for this architecture writes the tokens
    of the tokenizer's file.
    """
    from rmlab.scorers.checkpoints.tokenizer_file import (
        PROBES,
        class_tokenizer,
        count_deviations,
    )

    tokenizer = class_tokenizer(examined.scorer.checkpoint)
    n_different = count_deviations(tokenizer, examined.scorer.checkpoint)
    name = f"{type(tokenizer).__name__} of transformers"
    detail = f"{name} writes {len(PROBES)} texts as tokenizer.json does"
    if n_different:
        detail = f"{name} differs from tokenizer.json, which is followed, on {n_different} of {len(PROBES)} texts"
    return Finding(grade(not n_different, True), detail)


def _check_template(examined: Examined) -> Finding:
    """Where the chat template comes from."""
    encoded = examined.encoded[0]
    if isinstance(examined.scorer, Pairwise):
        return Finding(
            "pass",
            f"the words of {examined.scorer.form.models}, as its authors wrote them",
        )
    origin = (
        "the tokenizer's own"
        if encoded.source == "tokenizer"
        else f"{encoded.source!r}, as you asked"
    )
    date = (
        ""
        if encoded.date is None
        else f", with the date {encoded.date} instead of today's"
    )
    return Finding("pass", f"{origin} (hash {encoded.template_hash[:8]}){date}")


def _check_length(examined: Examined) -> Finding:
    """The share of texts that are longer than the model's window, or that the form of
    comparisons has to cut.
    """
    is_long, window, largest = (
        examined.is_long,
        examined.scorer.encoder.longest,
        examined.lengths.max(),
    )
    unit, truncate = (
        "comparisons" if examined.is_pair else "texts",
        examined.scorer.encoder.options["truncate"],
    )
    longest = f"the longest of {len(is_long)} {unit} has {largest} tokens"
    if not is_long.any():
        limit = (
            "positions are relative, without an end"
            if window is None
            else f"the window {window}"
        )
        return Finding("pass", f"none; {longest}, {limit}")
    detail = f"{is_long.sum()} of {len(is_long)} {unit} ({is_long.mean():.1%}) are longer than the model takes"
    detail += f" ({window} tokens); {longest}" if largest > (window or largest) else ""
    if examined.is_pair and largest > (window or largest):
        return Finding(
            "fail", detail, "raise max_length= where the model can read more"
        )
    if truncate is not None:
        return Finding(
            "warn",
            f"{detail}; cut at the {truncate}",
            "report the share with the results",
        )
    cut = (
        "truncate='right', which cuts as its authors do"
        if examined.is_pair
        else "max_length= and truncate='left'"
    )
    return Finding("fail", detail, f"pass {cut}")


def _accept(examined: Examined, finding: Finding) -> Finding:
    """The finding; a warning where a convention asks for the fault."""
    if (
        finding.status != "fail"
        or examined.scorer.encoder.options["convention"] is None
    ):
        return finding
    remedy = "as convention='reward-bench' asks; leave convention out for the model's own tokens"
    return finding._replace(status="warn", remedy=remedy)


def _check_precision(examined: Examined) -> Finding:
    """The check of precision for a scorer in half precision, where a float32 copy fits."""
    from rmlab.scorers.models.backbone import fits

    dtype, exact = examined.dtype, examined.scorer.in_float32()
    if dtype == "float32":
        return Finding("pass", "float32: there is nothing more exact to compare with")
    if not all(
        fits(checkpoint, exact.device, exact.dtype)
        for checkpoint in exact.encoder.readers
    ):
        detail = f"{dtype} not compared: a float32 copy does not fit on {exact.device} beside it"
        return Finding(
            "warn",
            detail,
            "compare on a machine with more memory, or on a smaller sister model",
        )
    outputs = exact.forward_alone(
        examined.prepared, np.arange(len(examined.prepared.ids))
    )
    return findings.check_precision(examined.sample, examined.finish(outputs), dtype)


def _check_position(examined: Examined) -> Finding | None:
    return (
        findings.check_position(*examined.outputs.reshape(2, -1))
        if examined.is_pair
        else None
    )


_TEXT_CHECKS: Checks[Examined] = {
    "head": (_check_head, ""),
    "packs": (lambda x: check_packs(x.scorer), ""),
    "tokenizer": (_check_tokenizer, "other runners follow the class: compare ids"),
    "template": (_check_template, ""),
    "truncated": (_check_length, ""),
}
_SAMPLE_CHECKS: Checks[Examined] = {
    "markers": (
        lambda x: (
            findings.check_markers(x.scorer.tokenizer, *x.tokens)
            if x.is_marked
            else None
        ),
        "",
    ),
    "bos": (
        lambda x: (
            None
            if x.is_marked
            else _accept(x, findings.check_bos(x.scorer.tokenizer, x.tokens[0]))
        ),
        "",
    ),
    "read": (
        lambda x: (
            None
            if x.is_marked
            else _accept(x, findings.check_read(x.scorer.tokenizer, *x.tokens))
        ),
        "",
    ),
    "pad": (
        lambda x: (
            None if x.is_pair else findings.check_pad(x.scorer.tokenizer, x.tokens[0])
        ),
        "",
    ),
    "nan": (lambda x: findings.check_finite(x.sample), ""),
    "alone": (lambda x: findings.check_company(x.sample, tolerance(x.dtype)), ""),
    "dtype": (
        _check_precision,
        "score with dtype='float32', or report this noise with the results",
    ),
    "position": (
        _check_position,
        "both orders are averaged: report the share, and never ask in one order only",
    ),
    "saturation": (
        lambda x: findings.check_saturation(x.sample, x.prepared.keys[: len(x.picked)]),
        "",
    ),
}


def examine_model(
    scorer: LocalScorer, responses: pd.DataFrame, size: int
) -> Iterator[tuple[str, Finding]]:
    """Yield the findings on a model on this machine; about `size` of the texts that it
    can read are scored.
    """
    examined = Examined(scorer, responses, size)
    if (yield from run_checks(_TEXT_CHECKS, examined)) and not examined.is_long.all():
        yield from run_checks(_SAMPLE_CHECKS, examined)
