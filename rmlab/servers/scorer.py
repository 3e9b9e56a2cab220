"""A reward model behind a server, as a streaming scorer that looks at its server again
and again.
"""

import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rmlab.scorers.base import SCORING_VERSION, Prompt, Scorer, Stream, Text, hash_parts
from rmlab.servers.client import Answer, Client
from rmlab.servers.dialects import Dialect, Payloads, Scored, TokenWriter
from rmlab.servers.http import Failure, Reply
from rmlab.servers.steerlm import Triton
from rmlab.tables import DataError

Ints = NDArray[np.intp]
Floats = NDArray[np.float64]

NEAR = 0.1
"""Standard deviations within which two scores count as the same: servers compute in
half precision.
"""

# A server is looked at again after so many requests and seconds, and at the latest
# after so many requests.
LOOK_REQUESTS, LOOK_SECONDS, MOST_REQUESTS = 100, 10.0, 2000


@dataclass(eq=False, repr=False, kw_only=True)
class Remote(Scorer):
    """A served reward model, made by `rmlab.remote`, which has tested the server.

    With several outputs the stream gives the score first and then each output, and
    `rmlab.score` keeps them as columns.

    Parameters
    ----------
    client, dialect, model
        Who is asked, how, and for which model.
    writer
        Writes the conversations.
    name
        What tables call the model.
    version
        Names the weights; without it their address stands for them.
    outputs, mix
        Names of the server's outputs, and their weights in the score.
    batch
        Texts in a request.
    known
        Texts, and the outputs that the accepted server gave them, shape (texts,
        outputs). None: not accepted yet, so that nothing is checked.
    models
        Names of the model in the replies for which the server was accepted.
    failed
        Why texts got no score, and how many.
    withdrawn
        Positions of scores that the last stream gave before it found that the server
        had changed.
    """

    client: Client
    dialect: Dialect
    model: str | None
    writer: TokenWriter | Triton
    version: str | None
    batch: int
    name: str = ""
    outputs: tuple[str, ...] = ()
    mix: Floats = field(default_factory=lambda: np.zeros(0))
    known: tuple[Payloads, Floats] | None = None
    models: set[str] = field(default_factory=set)
    failed: Counter[str] = field(default_factory=Counter)
    withdrawn: Sequence[int] = ()

    travels: ClassVar[bool] = (
        False  # a budget is one client's: copies would each spend all of it
    )

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of what the stream gives beside the score: the outputs, where there are
        several.
        """
        return self.outputs if len(self.outputs) > 1 else ()

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that decides a score: what is asked, how texts are written, and
        the version of the weights.
        """
        weights = (
            {"version": self.version}
            if self.version is not None
            else {"url": self.client.url}
        )
        return hash_parts(
            {"scoring": SCORING_VERSION, "mix": self.mix.tolist()}
            | weights
            | self._identity
        )

    def prepare(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Payloads:
        """Return the texts as they will be sent; ask nothing."""
        return self.writer.write(prompts, responses)

    def stream(self, texts: Sequence[Text], /) -> Stream:
        """Yield positions of texts and their scores, NaN for texts that the server
        refuses.

        Shape (texts,), or (texts, 1 + outputs) where there are several outputs: the
        score, then the outputs. Texts without a score come last. Where a look at the
        server finds it changed, the scores since the look before it are `withdrawn`.
        """
        prepared = self.prepare(
            [text.prompt for text in texts], [text.answers[0] for text in texts]
        )
        unconfirmed, last_look = list[Ints](), time.monotonic()
        refused, stop = dict[int, str](), ""
        self.withdrawn = ()
        for part, answer in self._ask_twice(prepared):
            if answer.value is not None:
                values = np.array(answer.value.values, np.float64)
                scores = values @ self.mix
                unconfirmed.append(part)
                yield (
                    part,
                    np.column_stack([scores, values]) if self.columns else scores,
                )
            elif answer.stopped:
                stop = answer.reason
            else:
                refused[int(part[0])] = answer.reason
            is_late = time.monotonic() - last_look >= LOOK_SECONDS
            if len(unconfirmed) >= (LOOK_REQUESTS if is_late else MOST_REQUESTS):
                self._confirm(unconfirmed)
                unconfirmed, last_look = [], time.monotonic()
        if unconfirmed:
            self._confirm(unconfirmed, has_stopped=bool(stop))
        if stop:
            raise DataError(
                f"{self.client.url}: {stop}; run again to go on from what a store= kept"
            )
        if refused:
            self.failed.update(refused.values())
            text, reason = next(iter(refused.items()))
            warnings.warn(
                f"{self.name}: no score for {len(refused)} texts, first text {text}: {reason}",
                stacklevel=3,
            )
            shape = (
                (len(refused), 1 + len(self.columns)) if self.columns else len(refused)
            )
            yield np.array(list(refused), np.intp), np.full(shape, np.nan)

    def provenance(self) -> dict[str, object]:
        """Return where the scores come from, as plain values; never a key."""
        run = {
            "url": self.client.url,
            "version": self.version,
            "requests": self.client.spent.requests,
        }
        weights = self.mix.tolist() if self.columns else None
        details = {
            "outputs": list(self.outputs),
            "weights": weights,
            "failed": dict(self.failed),
        }
        return run | details | {"known_outputs": self._known_outputs()} | self._identity

    def require_like(self, runs: Iterable[Mapping[str, Any]], /) -> None:
        """Raise DataError where the server gave the known texts other outputs in an
        earlier run.
        """
        known = self._known_outputs()
        for run in runs:
            earlier = run.get("known_outputs") or {}
            keys = [key for key in known if key in earlier]
            before, now = (
                np.array([outputs[key] for key in keys]) for outputs in (earlier, known)
            )
            apart = _distance(before, now) if keys else 0.0
            if not apart <= NEAR:
                where = f"known texts are {apart:.2g} standard deviations from those of the scores in the store"
                raise DataError(
                    f"{self.client.url}: another model: {where}; name each by version=, or change store="
                )

    def _known_outputs(self) -> dict[str, list[float]]:
        """Return the outputs of the known texts, by a hash of what is sent."""
        if self.known is None:
            return {}
        prepared, outputs = self.known
        return {
            hash_parts({"text": text}): row
            for text, row in zip(prepared.texts, outputs.tolist(), strict=True)
        }

    def ask_all(
        self, prepared: Payloads, batch: int | None = None
    ) -> tuple[Floats, int | None]:
        """Return the server's outputs for all texts, shape (n, outputs), and how many
        tokens it says it read.

        Raises
        ------
        DataError
            If a reply is missing.
        """
        scored_by_start = dict[int, Scored]()
        parts = _split(np.arange(len(prepared.texts)), batch or self.batch)
        for part, answer in self._ask(prepared, parts):
            if answer.value is None:
                raise DataError(f"{self.client.url}: {answer.reason}")
            scored_by_start[int(part[0])] = answer.value
        scored = [scored_by_start[start] for start in sorted(scored_by_start)]
        rows = [row for part_scored in scored for row in part_scored.values]
        if len(widths := {len(row) for row in rows}) > 1:
            raise DataError(
                f"{self.client.url}: {sorted(widths)} values for different texts of one model"
            )
        counts = [
            part_scored.tokens
            for part_scored in scored
            if part_scored.tokens is not None
        ]
        return np.array(rows, np.float64), sum(counts) if len(counts) == len(
            scored
        ) else None

    def _confirm(self, parts: Sequence[Ints], has_stopped: bool = False) -> None:
        """Look at the server; raise DataError and withdraw the parts where it gives the
        known texts other outputs.

        `has_stopped`: nothing more is sent, maybe since the server is away. It is not
        waited for again, and the parts stay: the next run begins with a look.
        """
        if self.known is None:
            return
        prepared, before = self.known
        client = (
            replace(self.client, retries=0, outage=0.0) if has_stopped else self.client
        )
        looking = replace(self, client=client)
        for batch in (self.batch, 1):
            try:
                outputs, _ = looking.ask_all(prepared, batch=batch)
            except DataError:
                if has_stopped:
                    return
                raise
            apart = _distance(before, outputs)
            if not apart <= NEAR:
                self.withdrawn = np.concatenate(parts).tolist()
                where = f"known texts are up to {apart:.2g} standard deviations off; look at its replicas and run again"
                raise DataError(f"{self.client.url}: the server has changed: {where}")

    @property
    def _identity(self) -> dict[str, object]:
        server = {
            "kind": self.dialect.kind,
            "model": self.model,
            "add_eos": getattr(self.dialect, "add_eos", None),
        }
        return server | dict(self.writer.identity)

    def _ask_twice(self, prepared: Payloads) -> Iterator[tuple[Ints, Answer[Scored]]]:
        """Yield each part with its answer; the texts of a request that fails are asked
        one by one.
        """
        singles = list[Ints]()
        # Answers to one prompt beside each other: servers reuse what they share.
        order = np.argsort(prepared.groups, kind="stable")
        for part, answer in self._ask(prepared, _split(order, self.batch)):
            if answer.value is None and not answer.stopped and len(part) > 1:
                singles += _split(part, 1)
            else:
                yield part, answer
        yield from self._ask(prepared, singles)

    def _ask(
        self, prepared: Payloads, parts: Sequence[Ints]
    ) -> Iterator[tuple[Ints, Answer[Scored]]]:
        """Yield each part with its answer, in the order of arrival."""

        def read(part: Ints, reply: Reply) -> Scored:
            scored = self.dialect.read(reply, len(part))
            if self.known is None:
                self.models.add(scored.model)
            else:
                self._check_reply(scored, prepared, part)
            return scored

        # The budget must be enough for the last look: the known texts together, and one
        # by one.
        n_known = (
            0
            if self.known is None or prepared is self.known[0]
            else len(self.known[0].texts)
        )
        items = (
            (part, self.dialect.request([prepared.texts[i] for i in part], self.model))
            for part in parts
        )
        with closing(
            self.client.stream(items, read, reserve=n_known + -(-n_known // self.batch))
        ) as answers:
            yield from answers

    def _check_reply(self, scored: Scored, prepared: Payloads, part: Ints) -> None:
        """Raise where a reply is not as those for which the server was accepted."""
        n_tokens = int(prepared.lengths[part].sum())
        if scored.tokens is not None and n_tokens and scored.tokens != n_tokens:
            raise ValueError(
                f"{scored.tokens} tokens were read where {n_tokens} were sent"
            )
        if scored.model not in self.models:
            raise ValueError(f"model {scored.model!r} has answered")
        if any(len(row) != len(self.outputs) for row in scored.values):
            raise ValueError(f"not {len(self.outputs)} values for each text")

        is_look = self.known is not None and prepared is self.known[0]
        texts = [prepared.texts[i] for i in part]
        is_constant = all(row == scored.values[0] for row in scored.values)
        if is_constant and any(text != texts[0] for text in texts) and not is_look:
            raise Failure(
                f"the same values for {len(part)} texts", again=False
            )  # each is asked alone


def _distance(before: Floats, now: Floats) -> float:
    """Return the largest difference of outputs in standard deviations of `before`."""
    if now.shape != before.shape:
        return np.inf
    return float((np.abs(now - before) / np.maximum(before.std(axis=0), 1e-12)).max())


def _split(selected: Ints, size: int) -> list[Ints]:
    return [selected[start : start + size] for start in range(0, len(selected), size)]
