"""A reward model behind a server, as a streaming scorer that keeps checking its
server.
"""

import math
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rmlab.scorers.base import (
    SCORING_VERSION,
    Floats,
    Ints,
    Prompt,
    Scorer,
    Stream,
    Text,
    hash_parts,
    list_columns,
)
from rmlab.servers.client import Client
from rmlab.servers.dialects import Dialect, Payloads, Scored, Writer
from rmlab.servers.http import Failure, Reply, Request
from rmlab.servers.sender import Answer
from rmlab.tables import DataError

NEAR = 0.1
"""Standard deviations within which two scores count as the same: servers compute in
half precision.
"""

# A server is checked again after so many requests and seconds.
RECHECK_REQUESTS = 100
RECHECK_SECONDS = 10.0
# It is checked again after so many requests at the latest.
MOST_REQUESTS = 2000


class Known(NamedTuple):
    """Known texts, and the outputs that the accepted server gave them, shape (texts,
    outputs).
    """

    prepared: Payloads
    outputs: Floats


class Outputs(NamedTuple):
    """Outputs for texts, shape (texts, outputs), and how many tokens the server says it
    read, None where it does not say.
    """

    outputs: Floats
    n_tokens: int | None


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
        The known texts. None: not accepted yet, so that nothing is checked.
    models
        Names of the model in the replies for which the server was accepted.
    failed
        Why texts got no score, and how many.
    unscored
        Why texts of the last stream got no score, by their positions.
    withdrawn
        Positions of scores that the last stream gave before it found that the server
        had changed.
    """

    client: Client
    dialect: Dialect
    model: str | None
    writer: Writer
    version: str | None
    batch: int
    name: str = ""
    outputs: tuple[str, ...] = ()
    mix: Floats = field(default_factory=lambda: np.zeros(0))
    known: Known | None = None
    models: set[str] = field(default_factory=set)
    failed: Counter[str] = field(default_factory=Counter)
    unscored: dict[int, str] = field(default_factory=dict)
    withdrawn: Sequence[int] = ()

    # A budget is one client's: copies would each spend all of it.
    travels: ClassVar[bool] = False

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
        weights = {"version": self.version}
        if self.version is None:
            weights = {"url": self.client.url}
        scoring = {"scoring": SCORING_VERSION, "mix": self.mix.tolist()}
        return hash_parts({**scoring, **weights, **self._identity})

    def prepare(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Payloads:
        """Return the texts as they will be sent; ask nothing."""
        return self.writer.write(prompts, responses)

    def stream(self, texts: Sequence[Text], /) -> Stream:
        """Yield positions of texts and their scores, NaN for texts that the server
        refuses.

        Shape (texts,), or (texts, 1 + outputs) where there are several outputs: the
        score, then the outputs. Texts without a score come last. Where the server is
        found changed, the scores since the check before are `withdrawn`.
        """
        self.withdrawn = ()
        self.unscored = {}
        if not texts:
            return
        prepared = self.prepare(*list_columns(texts))
        unconfirmed: list[Ints] = []
        n_unchecked = 0
        stop = ""
        last_check = time.monotonic()
        for rows, answer in self._ask_twice(prepared):
            if answer.stopped:
                stop = answer.reason
                continue
            # A server that has changed may refuse all texts: refusals count, too.
            n_unchecked += 1
            if answer.value is None:
                self.unscored[int(rows[0])] = answer.reason
            else:
                unconfirmed.append(rows)
                yield rows, self._scores(answer.value)

            is_late = time.monotonic() - last_check >= RECHECK_SECONDS
            n_allowed = RECHECK_REQUESTS if is_late else MOST_REQUESTS
            if n_unchecked >= n_allowed:
                self._recheck(unconfirmed)
                unconfirmed = []
                n_unchecked = 0
                last_check = time.monotonic()

        if unconfirmed:
            self._recheck(unconfirmed, has_stopped=bool(stop))
        if stop:
            problem = f"{self.client.url}: {stop}"
            raise DataError(problem, "run again to go on from what a store= kept")
        if self.unscored:
            self._report_unscored()
            n_unscored = len(self.unscored)
            missing = np.full(n_unscored, np.nan)
            if self.columns:
                missing = np.full((n_unscored, 1 + len(self.columns)), np.nan)
            yield np.array(list(self.unscored), np.intp), missing

    def _report_unscored(self) -> None:
        """Count the texts without a score, and warn of them."""
        self.failed.update(self.unscored.values())
        text, reason = next(iter(self.unscored.items()))
        first = f"first text {text}: {reason}"
        message = f"{self.name}: no score for {len(self.unscored)} texts, {first}"
        # Of whoever reads the stream.
        warnings.warn(message, stacklevel=4)

    def _scores(self, scored: Scored) -> Floats:
        """The scores of a request's texts, with the outputs where there are several."""
        values = np.array(scored.values, np.float64)
        scores = values @ self.mix
        return np.column_stack([scores, values]) if self.columns else scores

    def provenance(self) -> dict[str, object]:
        """Return where the scores come from, as plain values; never a key."""
        weights = self.mix.tolist() if self.columns else None
        return {
            "url": self.client.url,
            "version": self.version,
            "requests": self.client.spent.requests,
            "outputs": list(self.outputs),
            "weights": weights,
            "failed": dict(self.failed),
            "known_outputs": self._known_outputs(),
            **self._identity,
        }

    def require_like(self, runs: Iterable[Mapping[str, Any]], /) -> None:
        """Raise DataError where the server gave the known texts other outputs in an
        earlier run.
        """
        known = self._known_outputs()
        for run in runs:
            earlier = run.get("known_outputs") or {}
            keys = known.keys() & earlier.keys()
            if not keys:
                continue
            before = np.array([earlier[key] for key in keys])
            now = np.array([known[key] for key in keys])
            apart = distance(before, now)
            if not apart <= NEAR:
                problem = (
                    f"{self.client.url}: another model: known texts are {apart:.2g} "
                    "standard deviations from those of the scores in the store"
                )
                remedy = "name each by version=, or change store="
                raise DataError(problem, remedy)

    def _known_outputs(self) -> dict[str, list[float]]:
        """Return the outputs of the known texts, by a hash of what is sent."""
        if self.known is None:
            return {}
        keys = [hash_parts({"text": text}) for text in self.known.prepared.texts]
        return dict(zip(keys, self.known.outputs.tolist(), strict=True))

    def ask_all(self, prepared: Payloads, batch: int | None = None) -> Outputs:
        """Return the server's outputs for all texts.

        Raises
        ------
        DataError
            If a reply is missing.
        """
        scored_by_start: dict[int, Scored] = {}
        batches = _split(np.arange(len(prepared.texts)), batch or self.batch)
        for rows, answer in self._ask(prepared, batches):
            if answer.value is None:
                raise DataError(f"{self.client.url}: {answer.reason}")
            scored_by_start[int(rows[0])] = answer.value

        values: list[list[float]] = []
        counts: list[int | None] = []
        for _, scored in sorted(scored_by_start.items()):
            values += scored.values
            counts.append(scored.tokens)
        widths = sorted({len(row) for row in values})
        if len(widths) > 1:
            problem = f"{widths} values for different texts of one model"
            raise DataError(f"{self.client.url}: {problem}")
        n_tokens = None
        if None not in counts:
            n_tokens = sum(count for count in counts if count is not None)
        return Outputs(np.array(values, np.float64), n_tokens)

    def _recheck(self, batches: Sequence[Ints], has_stopped: bool = False) -> None:
        """Ask for the known texts again; raise DataError and withdraw the batches where
        the server gives them other outputs.

        `has_stopped`: nothing more is sent, maybe since the server is away. It is not
        waited for again, and the batches stay: the next run begins with a check.
        """
        if self.known is None:
            return
        client = self.client
        if has_stopped:
            client = replace(client, retries=0, outage=0.0)
        checking = replace(self, client=client)
        for batch in (self.batch, 1):
            try:
                outputs, _ = checking.ask_all(self.known.prepared, batch=batch)
            except DataError:
                if has_stopped:
                    return
                raise
            apart = distance(self.known.outputs, outputs)
            if not apart <= NEAR:
                none = np.zeros(0, np.intp)
                self.withdrawn = np.concatenate([none, *batches]).tolist()
                known = f"known texts are up to {apart:.2g} standard deviations off"
                problem = f"{self.client.url}: the server has changed: {known}"
                raise DataError(problem, "look at its replicas and run again")

    @property
    def _identity(self) -> dict[str, object]:
        return {
            "kind": self.dialect.kind,
            "model": self.model,
            "add_eos": self.dialect.add_eos,
            **self.writer.identity,
        }

    def _ask_twice(self, prepared: Payloads) -> Iterator[tuple[Ints, Answer[Scored]]]:
        """Yield each batch with its answer; the texts of a request that fails are asked
        one by one.
        """
        singles: list[Ints] = []
        # Answers to one prompt beside each other: servers reuse what they share.
        order = np.argsort(prepared.groups, kind="stable")
        for rows, answer in self._ask(prepared, _split(order, self.batch)):
            if answer.value is None and not answer.stopped and len(rows) > 1:
                singles += _split(rows, 1)
            else:
                yield rows, answer
        yield from self._ask(prepared, singles)

    def _ask(
        self, prepared: Payloads, batches: Sequence[Ints]
    ) -> Iterator[tuple[Ints, Answer[Scored]]]:
        """Yield each batch with its answer, in the order of arrival."""

        def requests() -> Iterator[tuple[Ints, Request]]:
            for rows in batches:
                texts = [prepared.texts[row] for row in rows]
                yield rows, self.dialect.request(texts, self.model)

        def read(rows: Ints, reply: Reply) -> Scored:
            scored = self.dialect.read(reply, len(rows))
            if self.known is None:
                self.models.add(scored.model)
            else:
                self._check_reply(scored, prepared, rows)
            return scored

        # The budget must be enough for the last check: the known texts together, and
        # one by one.
        reserve = 0
        if self.known is not None and prepared is not self.known.prepared:
            n_known = len(self.known.prepared.texts)
            reserve = n_known + math.ceil(n_known / self.batch)
        answers = self.client.stream(
            requests(), read, explain=self.dialect.read_refusal, reserve=reserve
        )
        with closing(answers):
            yield from answers

    def _check_reply(self, scored: Scored, prepared: Payloads, rows: Ints) -> None:
        """Raise where a reply is not as those for which the server was accepted."""
        n_sent = int(prepared.lengths[rows].sum())
        if scored.tokens is not None and n_sent and scored.tokens != n_sent:
            raise ValueError(
                f"{scored.tokens} tokens were read where {n_sent} were sent"
            )
        if scored.model not in self.models:
            raise ValueError(f"model {scored.model!r} has answered")
        if any(len(row) != len(self.outputs) for row in scored.values):
            raise ValueError(f"not {len(self.outputs)} values for each text")

        is_recheck = self.known is not None and prepared is self.known.prepared
        first = prepared.texts[rows[0]]
        has_different_texts = any(prepared.texts[row] != first for row in rows)
        is_constant = (np.array(scored.values) == scored.values[0]).all()
        if is_constant and has_different_texts and not is_recheck:
            # Each is asked alone.
            raise Failure(f"the same values for {len(rows)} texts", again=False)


def distance(before: Floats, now: Floats) -> float:
    """Return the largest difference of scores, or of outputs, in standard deviations of
    `before`.
    """
    if now.shape != before.shape:
        return np.inf
    scale = np.maximum(before.std(axis=0), 1e-12)
    return float((np.abs(now - before) / scale).max())


def _split(rows: Ints, size: int) -> list[Ints]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]
