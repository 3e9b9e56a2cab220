"""The checks of a model on this machine: its weights, its texts as tokens, and its
scores, alone and together.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rmlab.findings import Check, Checks, Finding, grade, run_checks
from rmlab.inference.planning import count_tokens
from rmlab.scorers.base import Floats, Ids, Ints, Text, list_columns
from rmlab.scorers.score_checks import (
    SCORE_CHECKS,
    Sample,
    list_orders,
    measure,
    spread,
)

if TYPE_CHECKING:
    from rmlab.inference.encoding import Encoded
    from rmlab.scorers.local import LocalScorer


@dataclass
class Examined:
    """A model, and the texts that it is examined with: `orders`, of the `rows` as they
    stand and, of comparisons, exchanged.
    """

    scorer: "LocalScorer[Any]"
    rows: pd.DataFrame
    orders: list[list[Text]]
    size: int

    @cached_property
    def encoded(self) -> "Encoded":
        """All texts of the first order as tokens, however long."""
        return self.scorer.encoder.encode_uncut(*list_columns(self.orders[0]))

    @cached_property
    def lengths(self) -> Ints:
        """Tokens of each row."""
        return count_tokens(self.encoded.ids)

    @cached_property
    def is_long(self) -> np.ndarray:
        """Whether a row is longer than the model reads."""
        longest = self.scorer.encoder.longest or np.inf
        return self.encoded.truncated | (self.lengths > longest)

    @cached_property
    def sampled(self) -> Ints:
        """About `size` rows that fit."""
        fitting = np.flatnonzero(~self.is_long)
        prompts = self.encoded.groups[fitting]
        return fitting[spread(self.lengths[fitting], prompts, self.size)]

    @cached_property
    def texts(self) -> list[Text]:
        """The texts of the sampled rows, order by order."""
        return [order[row] for order in self.orders for row in self.sampled]

    @cached_property
    def tokens(self) -> tuple[list[Ids], list[int]]:
        """Token ids of the sampled texts, and the last position that is read in each,
        which is the last of all where logits are read.
        """
        prepared = self.scorer.prepare(*list_columns(self.texts))
        ids, reads = self.scorer.places(prepared, np.arange(len(self.texts)))
        if self.scorer.read_at in ("answer", "end"):
            return ids, [len(text_ids) - 1 for text_ids in ids]
        return ids, [int(positions[-1]) for positions in reads]

    def name_token(self, token: int) -> str:
        """The token and its number, for people."""
        name = self.scorer.tokenizer.convert_ids_to_tokens(int(token))
        return f"{name!r} ({int(token)})"

    def refuse(self, detail: str, remedy: str) -> Finding:
        """A failure; a warning where a convention asks for the fault."""
        if self.scorer.encoder.options["convention"] is None:
            return Finding("fail", detail, remedy)
        otherwise = "leave convention out for the model's own tokens"
        remedy = f"as convention='reward-bench' asks; {otherwise}"
        return Finding("warn", detail, remedy)


def _check_head(examined: Examined) -> Finding:
    _ = examined.scorer.backbone  # loads the weights
    return Finding("pass", examined.scorer.head_title)


def _check_template(examined: Examined) -> Finding:
    """Where the chat template comes from."""
    encoded = examined.encoded
    origins = {
        "form": "the words of its form, as its authors wrote them",
        "tokenizer": "the tokenizer's own",
    }
    origin = origins.get(encoded.source, f"{encoded.source!r}, as you asked")
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
    window = "positions are relative, without an end"
    if encoder.longest is not None:
        window = f"the window {encoder.longest}"
    longest = f"the longest of {len(is_long)} texts has {examined.lengths.max()} tokens"
    if not is_long.any():
        return Finding("pass", f"none; {longest}, {window}")

    share = f"{is_long.sum()} of {len(is_long)} ({is_long.mean():.1%})"
    detail = f"{share} are longer than the model takes; {longest}, {window}"
    side = encoder.options["truncate"]
    if side is not None:
        detail += f"; cut at the {side}"
        return Finding("warn", detail, "report the share with the results")
    side = "left" if encoder.n_answers == 1 else "right"
    return Finding("fail", detail, f"pass truncate={side!r}, or max_length=")


def _check_bos(examined: Examined) -> Finding | None:
    """The BOS token stands once before each text, or before none; an encoder's
    `[CLS]` before each.
    """
    from rmlab.inference.tokenised import special_tokens

    if examined.scorer.read_at == "markers":
        return None
    tokenizer = examined.scorer.tokenizer
    bos = tokenizer.bos_token_id
    is_encoder = bos is None
    if is_encoder:
        bos = next(iter(special_tokens(tokenizer).opening), None)
    if bos is None:
        return Finding("pass", "the tokenizer has no BOS token")

    ids, _ = examined.tokens
    counts = [count_leading(text_ids, bos) for text_ids in ids]
    fewest = min(counts)
    most = max(counts)
    name = examined.name_token(bos)
    times = f"{fewest} to {most}" if most > fewest else f"{most}"
    detail = f"{times} {name} at the beginning of each of {len(ids)} texts"
    if fewest != most or most > 1 or (is_encoder and most == 0):
        remedy = "pass bos=True, which writes it once, or bos=False"
        return examined.refuse(detail, remedy)
    return Finding("pass", detail)


def _check_read(examined: Examined) -> Finding | None:
    """The head reads the same token of every text, behind at most one EOS token.

    An implicit reward reads all tokens of the answer: the last is the same.
    """
    if examined.scorer.read_at == "markers":
        return None
    ids, reads = examined.tokens
    eos = examined.scorer.tokenizer.eos_token_id
    n_ends = [count_leading(text_ids[::-1], eos) for text_ids in ids]
    if max(n_ends) > 1:
        name = examined.name_token(eos)
        detail = f"{name} stands up to {max(n_ends)} times at the end of texts"
        return examined.refuse(detail, "pass eos=True, which writes it once")

    tokens = set()
    is_early = []
    for text_ids, position in zip(ids, reads, strict=True):
        tokens.add(int(text_ids[position]))
        is_early.append(position < len(text_ids) - 1)
    if len(tokens) > 1 and all(n_ends) and all(is_early):
        return Finding("pass", "the token before the EOS token")
    if len(tokens) > 1:
        detail = (
            f"{len(tokens)} different tokens are read last in {len(ids)} texts: the "
            "template writes no EOS token"
        )
        remedy = "if the model was trained with one, pass eos=True; the model card says"
        return Finding("warn", detail, remedy)

    detail = f"{examined.name_token(*tokens)} is read last in all {len(ids)} texts"
    if examined.scorer.read_at == "answer":
        detail += ", behind every other token of the answer"
    return Finding("pass", detail)


def _check_pad(examined: Examined) -> Finding | None:
    """Does the pad token end texts, so that some programs read the last token and some
    the one before it?
    """
    if examined.scorer.read_at != "head":
        return None
    ids, reads = examined.tokens
    encoder = examined.scorer.encoder
    token = encoder.padding
    if token is None:
        token = encoder.tokenizer.pad_token_id
    n_padded = sum(count_leading(text_ids[::-1], token) > 0 for text_ids in ids)
    name = "none" if token is None else examined.name_token(token)
    detail = f"{n_padded} of {len(ids)} texts end with the pad token {name}"
    if not n_padded:
        return Finding("pass", detail)

    lengths = [len(text_ids) for text_ids in ids]
    is_early = any(np.array(reads) < np.array(lengths) - 1)
    status = "warn"
    effect = "the last token is read; transformers' classes read before it"
    other = "before_pad"
    if is_early:
        status = grade(False, encoder.pooling is not None)
        effect = "the token before it is read; vLLM and others read the last one"
        other = "last"
    remedy = f"pass pooling={other!r} if the model was trained to be read there"
    return Finding(status, f"{detail}: {effect}", remedy)


def count_leading(ids: Ids, token: int | None) -> int:
    """How many times a token stands at the beginning."""
    if token is None:
        return 0
    return int((np.append(ids, -1) != token).argmax())


def _check_precision(scorer: "LocalScorer[Any]", sample: Sample) -> Finding:
    """How far half precision is from float32, and how many comparisons it turns."""
    if sample.dtype == "float32":
        return Finding("pass", "float32: there is nothing more exact to compare with")
    if not scorer.travels:
        detail = f"{sample.dtype} not compared: the model is in memory"
        return Finding("warn", detail, "save it and examine the folder")
    # A copy that does not fit beside it waits in host memory.
    exact = scorer.remake(dtype="float32").score_alone(sample.texts)
    return grade_precision(sample, exact)


def grade_precision(sample: Sample, exact: Floats) -> Finding:
    """The finding on scores in half precision, beside those in float32."""
    distance = measure(sample, exact)
    is_right = distance.n_flips == 0 and distance.apart <= 0.2
    is_near = distance.n_flips <= max(0.1 * distance.n, 1) and distance.apart <= 1
    remedy = "score with dtype='float32', or report this noise with the results"
    detail = f"{sample.dtype} beside float32: {distance.detail}"
    return Finding(grade(is_right, is_near), detail, remedy)


_TEXT_CHECKS: Checks[Examined] = {
    "head": Check(_check_head, is_needed=True),
    "template": Check(_check_template, is_needed=True),
    "truncated": Check(_check_length),
}
_TOKEN_CHECKS: Checks[Examined] = {
    "bos": Check(_check_bos),
    "read": Check(_check_read),
    "pad": Check(_check_pad),
}


def examine_model(
    scorer: "LocalScorer[Any]", responses: pd.DataFrame, size: int
) -> Iterator[tuple[str, Finding]]:
    """Yield the findings on a model; about `size` of the texts that it can read are
    scored.
    """
    rows, orders = list_orders(scorer, responses)
    examined = Examined(scorer, rows, orders, size)
    can_score = yield from run_checks(_TEXT_CHECKS, examined)
    if not can_score or examined.is_long.all():
        return
    yield from run_checks(_TOKEN_CHECKS, examined)

    # The provenance has it too, but hashes all weights.
    dtype = str(scorer.dtype).removeprefix("torch.")
    sampled_rows = rows.iloc[examined.sampled]
    sample = Sample(scorer, sampled_rows, examined.texts, dtype)
    if (yield from run_checks(SCORE_CHECKS, sample)):
        yield "dtype", _check_precision(scorer, sample)
