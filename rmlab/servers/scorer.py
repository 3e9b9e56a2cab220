"""A reward model behind a server, as a scorer that keeps checking its server."""

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from rmlab.findings import Finding, run_checks
from rmlab.scorers.base import (
    SCORING_VERSION,
    Floats,
    Ids,
    Ints,
    Provenance,
    Scorer,
    Stream,
    Text,
    hash_parts,
    list_columns,
)
from rmlab.servers.client import MAX_FAILURES, Answer, Client
from rmlab.servers.examination import (
    CHECKS,
    KNOWN,
    LONG_LINES,
    NEAR,
    Trial,
    distance,
    known_texts,
)
from rmlab.servers.http import Failure, Reply, Request
from rmlab.servers.kinds.base import Scored, ServerKind
from rmlab.servers.payloads import Prepared, Writer
from rmlab.tables import DataError

# Rows of a request's texts, and its answer.
Answers = Generator[tuple[Ints, Answer[Scored]], None, None]

# A server is checked again after so many requests and seconds.
RECHECK_REQUESTS = 100
RECHECK_SECONDS = 10.0


@dataclass(eq=False, repr=False, kw_only=True)
class Remote(Scorer):
    """A served reward model, made by `rmlab.remote`, which has tested the server.

    With several outputs the stream yields the score first and then each output, and
    `rmlab.score` keeps them as columns.

    Parameters
    ----------
    client, kind, model
        The server, the form of its requests, and the model's name there.
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
    bounded
        Whether the model's own scores may lie between 0 and 1.
    known
        The known texts and their outputs. None: the server has not been accepted, and
        nothing is checked.
    models
        Names of the model in the replies for which the server was accepted.
    unscored
        Why texts of the last stream got no score, by their positions.
    """

    client: Client
    kind: ServerKind
    model: str | None
    writer: Writer
    version: str | None
    batch: int
    name: str = ""
    outputs: tuple[str, ...] = ()
    mix: Floats = field(default_factory=lambda: np.zeros(0))
    bounded: bool = False
    known: Trial | None = None
    models: set[str] = field(default_factory=set)
    unscored: dict[int, str] = field(default_factory=dict)

    # A budget is one client's: copies would each spend all of it.
    travels: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of what the stream yields beside the score: the outputs, where there
        are several.
        """
        return self.outputs if len(self.outputs) > 1 else ()

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that decides a score: what is asked, how texts are written, and
        the version of the weights.
        """
        parts: dict[str, object] = {
            "scoring": SCORING_VERSION,
            "kind": self.kind.name,
            "model": self.model,
            "texts": self.writer.fingerprint,
            "mix": self.mix.tolist(),
            "version": self.version,
        }
        if self.version is None:
            parts["url"] = self.client.url
        return hash_parts(parts)

    def stream(self, texts: Sequence[Text], /) -> Stream:
        """Yield positions of texts and their scores, NaN for texts that the server
        refuses.

        Shape (texts,), or (texts, 1 + outputs) where there are several outputs: the
        score, then the outputs. Scores are held back until the server has passed its
        next check: where it is found changed, or the run ends in any other way, none of
        them reaches a store.
        """
        self.unscored = {}
        if texts:
            prepared = self.writer.write(*list_columns(texts))
            with closing(self._ask_twice(prepared)) as answers:
                yield from self._confirm(answers)

    def _confirm(self, answers: Answers) -> Stream:
        """Yield rows and their scores once a check of the server has passed."""
        unconfirmed: list[tuple[Ints, Floats]] = []
        n_unchecked = 0
        n_refused = 0
        last_check = time.monotonic()
        for rows, answer in answers:
            if answer.stopped:
                problem = f"{self.client.url}: {answer.reason}"
                raise DataError(problem, "run again: store= keeps what is confirmed")
            n_unchecked += 1
            if answer.value is None:
                n_refused += 1
                self.unscored[int(rows[0])] = answer.reason
                outputs = np.full((1, len(self.outputs)), np.nan)
            else:
                n_refused = 0
                outputs = answer.value.values
            unconfirmed.append((rows, self._scores(outputs)))

            is_late = time.monotonic() - last_check >= RECHECK_SECONDS
            is_due = is_late and n_unchecked >= RECHECK_REQUESTS
            # A server that has changed may refuse all texts.
            if is_due or n_refused == MAX_FAILURES:
                self._recheck()
                yield from unconfirmed
                unconfirmed = []
                n_unchecked = 0
                last_check = time.monotonic()

        if unconfirmed:
            self._recheck()
            yield from unconfirmed

    def _scores(self, outputs: Floats) -> Floats:
        """The scores of texts, with their outputs where there are several."""
        scores: Floats = outputs @ self.mix
        if self.columns:
            scores = np.column_stack([scores, outputs])
        return scores

    def provenance(self) -> Provenance:
        """Return where the scores come from, as plain values; never a key."""
        encoder = self.writer.encoder
        texts: Provenance = {"template": self.kind.form}
        if encoder is not None:
            texts = encoder.provenance()
        return {
            **texts,
            "kind": self.kind.name,
            "model": self.model,
            "url": self.client.url,
            "version": self.version,
            "requests": self.client.spent.requests,
            "outputs": list(self.outputs),
            "weights": self.mix.tolist(),
            "known_outputs": self._known_outputs(),
        }

    def require_like(self, runs: Iterable[Mapping[str, Any]], /) -> None:
        """Raise DataError where the server gave the known texts other outputs in an
        earlier run.
        """
        if self.known is None:
            return
        known = self._known_outputs()
        for run in runs:
            earlier = run.get("known_outputs") or known
            apart = distance(np.array(earlier), np.array(known))
            if not apart <= NEAR:
                problem = (
                    f"{self.client.url}: another model: known texts are {apart:.2g} "
                    "standard deviations from those of the scores in the store"
                )
                remedy = "name each by version=, or change store="
                raise DataError(problem, remedy)

    def _known_outputs(self) -> list[list[float]]:
        """Return the outputs of the short known texts."""
        if self.known is None:
            return []
        outputs: list[list[float]] = self.known.outputs[: len(KNOWN)].tolist()
        return outputs

    def examine(self) -> Iterator[tuple[str, Finding]]:
        """Yield the checks of the server one after the other.

        Where all pass that others need, the scorer remembers the outputs of the known
        texts, to check the server again. Raises DataError for faults on this machine: a
        tokenizer or options with which the known texts cannot be written.
        """
        self.known = None
        self.writer.write(*known_texts(0))
        try:
            trial = self._ask_known()
        except DataError as error:
            detail = str(error).removeprefix(f"{self.client.url}: ")
            remedy = "look at the server's log, kind= and model="
            yield "answers", Finding("fail", detail, remedy)
            return
        detail = f"{len(trial.outputs)} known texts, together and one by one"
        yield "answers", Finding("pass", detail)
        if (yield from run_checks(CHECKS, trial)):
            self.known = trial

    def checks(
        self, responses: pd.DataFrame, sample: int = 24, /
    ) -> Iterator[tuple[str, Finding]]:
        """Yield the checks of the server, then those of about `sample` responses."""
        yield from self.examine()
        if self.known is not None:
            yield from super().checks(responses, sample)

    def token_ids(self, texts: Sequence[Text], /) -> list[Ids] | None:
        """Return the token ids of the texts, where they are written here."""
        encoder = self.writer.encoder
        return None if encoder is None else encoder.encode(*list_columns(texts)).ids

    def _ask_known(self) -> Trial:
        """Ask for the known texts; the longest is the longest that the server and the
        model's window take.
        """
        # A server that does not answer is asked no more.
        self.ask_all(self.writer.write(*known_texts(0)))
        for n_lines in LONG_LINES:
            try:
                prepared = self.writer.write(*known_texts(n_lines))
                scored = self.ask_all(prepared)
                return Trial(
                    prepared=prepared,
                    outputs=scored.values,
                    n_read=scored.tokens,
                    alone=self.ask_all(prepared, batch=1).values,
                    names=self.outputs,
                    mix=self.mix,
                    bounded=self.bounded,
                )
            except DataError as error:
                refused = error
        raise refused

    def ask_all(self, prepared: Prepared, batch: int | None = None) -> Scored:
        """Return the server's outputs for all texts; raise DataError if a reply is
        missing.
        """
        parts = {}
        with closing(self._ask(prepared, batch or self.batch)) as answers:
            for rows, answer in answers:
                if answer.value is None:
                    raise DataError(f"{self.client.url}: {answer.reason}")
                parts[rows[0]] = answer.value

        # The rows of a request follow one another.
        scored = [parts[row] for row in sorted(parts)]
        values = np.concatenate([part.values for part in scored])
        return Scored(values, sum(part.tokens for part in scored))

    def _recheck(self) -> None:
        """Ask for the known texts again; raise DataError where the server gives them
        other outputs.
        """
        if self.known is None:
            return
        for batch in (self.batch, 1):
            outputs = self.ask_all(self.known.prepared, batch).values
            apart = distance(self.known.outputs, outputs)
            if not apart <= NEAR:
                known = f"known texts are up to {apart:.2g} standard deviations off"
                problem = f"{self.client.url}: the server has changed: {known}"
                raise DataError(problem, "look at its replicas and run again")

    def _ask_twice(self, prepared: Prepared) -> Answers:
        """Yield each batch with its answer; the texts of a request that fails are asked
        one by one.
        """
        singles: list[Ints] = []
        with closing(self._ask(prepared, self.batch)) as answers:
            for rows, answer in answers:
                if answer.value is None and not answer.stopped and len(rows) > 1:
                    singles.append(rows)
                else:
                    yield rows, answer
        if singles:
            yield from self._ask(prepared, 1, np.concatenate(singles))

    def _ask(self, prepared: Prepared, batch: int, rows: Ints | None = None) -> Answers:
        """Yield the rows of each request with its answer, in the order of arrival."""
        if rows is None:
            rows = np.arange(len(prepared.texts))
        batches = np.split(rows, range(batch, len(rows), batch))

        def requests() -> Iterator[tuple[Ints, Request]]:
            for rows in batches:
                texts = [prepared.texts[row] for row in rows]
                yield rows, self.kind.request(texts, self.model)

        def read(rows: Ints, reply: Reply) -> Scored:
            scored = self.kind.read(reply).check(len(rows))
            if self.known is None:
                self.models.add(scored.model)
            else:
                self._check_reply(scored, prepared, rows, self.known)
            return scored

        return self.client.stream(requests(), read, refusals=(400, 413, 422))

    def _check_reply(
        self, scored: Scored, prepared: Prepared, rows: Ints, known: Trial
    ) -> None:
        """Raise where a reply is not as those for which the server was accepted."""
        n_sent = int(prepared.lengths[rows].sum())
        if scored.tokens and n_sent and scored.tokens != n_sent:
            raise ValueError(
                f"{scored.tokens} tokens were read where {n_sent} were sent"
            )
        if scored.model not in self.models:
            raise ValueError(f"model {scored.model!r} has answered")
        if scored.values.shape[1] != len(self.outputs):
            raise ValueError(f"not {len(self.outputs)} values for each text")

        is_alike = all(prepared.texts[row] == prepared.texts[rows[0]] for row in rows)
        is_constant = (scored.values == scored.values[0]).all()
        if is_constant and not is_alike and prepared is not known.prepared:
            # Each is asked alone.
            raise Failure(f"the same values for {len(rows)} texts", again=False)
