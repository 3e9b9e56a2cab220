"""A reward model behind a server, as a streaming scorer."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from rmlab.scorers.served.asking import Ask
from rmlab.scorers.served.payloads import Payloads, Writer
from rmlab.scorers.streaming import Stream, fingerprint, gather
from rmlab.scorers.types import Prompt
from rmlab.servers import Answer, Client, Reply, Request
from rmlab.servers.dialects import Scored
from rmlab.tables import DataError

__all__ = ["Remote"]

Ints = NDArray[np.intp]
Floats = NDArray[np.float64]


class Remote:
    """A served reward model; made by `rmlab.remote`, which has tested the server. Call it, or prepare and stream.

    `outputs`: the names of the server's outputs. `mix`: their weights in the score. With several outputs the stream
    gives the score first and then each output, and `rmlab.score` keeps them as columns.
    """

    def __init__(
        self,
        client: Client,
        ask: Ask,
        writer: Writer,
        *,
        name: str,
        version: str | None,
        outputs: Sequence[str],
        mix: Floats,
        batch: int,
    ) -> None:
        self.client, self.ask, self.writer, self.name, self.version = client, ask, writer, name, version
        self.outputs, self.mix, self.batch = tuple(outputs), mix, batch
        self.failed: dict[str, int] = {}

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of what the stream gives beside the score: the outputs, where there are several."""
        return self.outputs if len(self.outputs) > 1 else ()

    @property
    def fingerprint(self) -> str:
        """Hash of all that decides a score: what is asked, how texts are written, and the version of the weights.

        Without `version` the address stands for the weights: a score is then found again only under that address.
        """
        weights = {"version": self.version} if self.version is not None else {"url": self.client.url}
        return fingerprint(weights | {"mix": self.mix.tolist()} | self.ask.identity | self.writer.identity)

    def __call__(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Floats:
        """Scores of `responses` to `prompts`, one each, shape (n,)."""
        prepared = self.prepare(prompts, responses)
        stream = ((texts, values[:, 0]) for texts, values in self._rows(prepared, np.arange(len(responses))))
        return gather(stream, responses, self.name)

    def prepare(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Payloads:
        """The texts as they will be sent, and their content keys; asks nothing."""
        return self.writer.write(prompts, responses)

    def stream(self, prepared: Payloads, wanted: Ints) -> Stream:
        """Scores of the texts numbered `wanted` as the replies come, NaN for texts that the server refuses.

        Shape (texts,), or (texts, 1 + outputs) where there are several outputs: the score, then the outputs.
        """
        for texts, values in self._rows(prepared, wanted):
            yield texts, values if self.columns else values[:, 0]

    def provenance(self) -> dict[str, object]:
        """Where the scores come from, as plain values; never a key."""
        spent = self.client.spent
        return {
            "url": self.client.url,
            "version": self.version,
            "outputs": list(self.outputs),
            "weights": self.mix.tolist() if self.columns else None,
            "requests": spent.requests,
            "failed": dict(self.failed),
        } | {key: value for key, value in (self.ask.identity | self.writer.identity).items() if key != "chat_template"}

    def ask_all(
        self, prepared: Payloads, wanted: Ints, *, ask: Ask | None = None, batch: int | None = None
    ) -> tuple[Floats, int | None]:
        """The server's outputs for the texts as they come, shape (n, outputs), and how many tokens it says it read.

        Nothing is checked but that they are whole: this is for looking at a server. DataError where a reply is missing.
        """
        rows, tokens = dict[int, list[float]](), list[int | None]()
        parts = _parts(wanted, batch or self.batch)
        for part, answer in self._answers(ask or self.ask, prepared, parts, checked=False):
            if answer.value is None:
                raise DataError(f"{self.client.url}: {answer.reason}")
            rows.update(zip(part.tolist(), answer.value.values, strict=True))
            tokens.append(answer.value.tokens)
        widths = {len(row) for row in rows.values()}
        if len(widths) > 1:
            raise DataError(f"{self.client.url}: {sorted(widths)} values for different texts of one model")
        known = [count for count in tokens if count is not None]
        values = np.array([rows[int(text)] for text in wanted], np.float64)
        return values, sum(known) if len(known) == len(tokens) else None

    def _rows(self, prepared: Payloads, wanted: Ints) -> Stream:
        """Text numbers and (score, outputs...) of each; a request that fails is asked again text by text.

        Texts without a score come last: whoever stops at the first of them has kept the others.
        """
        refused: dict[int, str] = {}
        parts = _parts(wanted, self.batch)
        while parts:
            again: list[Ints] = []
            for part, answer in self._answers(self.ask, prepared, parts):
                if answer.value is not None:
                    values = np.array(answer.value.values, np.float64)
                    yield part, np.column_stack([values @ self.mix, values])
                elif len(part) > 1:
                    again += [part[i : i + 1] for i in range(len(part))]
                else:
                    refused[int(part[0])] = answer.reason
            parts = again
        if refused:
            yield self._without(refused)

    def _without(self, refused: dict[int, str]) -> tuple[Ints, Floats]:
        """The rows of texts without a score, which is warned of."""
        for reason in refused.values():
            self.failed[reason] = self.failed.get(reason, 0) + 1
        text, reason = next(iter(refused.items()))
        warnings.warn(f"{self.name}: no score for {len(refused)} texts, first text {text}: {reason}", stacklevel=4)
        return np.array(list(refused), np.intp), np.full((len(refused), 1 + len(self.outputs)), np.nan)

    def _answers(
        self, ask: Ask, prepared: Payloads, parts: Iterable[Ints], *, checked: bool = True
    ) -> Iterator[tuple[Ints, Answer[Scored]]]:
        """Each part with its answer, in the order of arrival; DataError when nothing more is sent."""
        asked: dict[int, Ints] = {}

        def requests() -> Iterator[Request]:
            for number, part in enumerate(parts):
                asked[number] = part
                yield ask.request(number, [prepared.texts[text] for text in part])

        def read(reply: Reply) -> Scored:
            part = asked[reply.index]
            scored = ask.read(reply, len(part))
            if checked:
                self._require_as_sent(scored, int(prepared.lengths[part].sum()))
            return scored

        unsent = ""
        with closing(self.client.stream(requests(), read)) as answers:
            for answer in answers:
                part = asked.pop(answer.index)
                if answer.reason and not answer.tries:
                    unsent = answer.reason
                else:  # what was sent before is still answered, and kept
                    yield part, answer
        if unsent:
            raise DataError(f"{self.client.url}: {unsent}; run again to go on from what a store= kept")

    def _require_as_sent(self, scored: Scored, tokens: int) -> None:
        """Raise ValueError where the server read other tokens than were sent, or gave other outputs than it did."""
        if scored.tokens is not None and tokens and scored.tokens != tokens:
            raise ValueError(f"{scored.tokens} tokens were read where {tokens} were sent")
        if any(len(row) != len(self.outputs) for row in scored.values):
            raise ValueError(f"not {len(self.outputs)} values for each text")


def _parts(wanted: Ints, size: int) -> list[Ints]:
    return [wanted[start : start + size] for start in range(0, len(wanted), size)]
