"""How one request for the scores of some texts is made, and its reply read, per protocol."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rmlab.servers import Reply, Request, steerlm
from rmlab.servers.dialects import Dialect, Payload, Scored

__all__ = ["Ask", "AskJson", "AskTriton"]


class Ask(Protocol):
    """Makes requests and reads replies."""

    @property
    def identity(self) -> dict[str, object]:
        """What is asked, as plain values."""

    def request(self, index: int, texts: Sequence[Payload], /) -> Request:
        """The request for the scores of some texts."""

    def read(self, reply: Reply, n: int, /) -> Scored:
        """What the reply says of `n` texts; ValueError or LookupError where the answer is incomplete."""


@dataclass(frozen=True)
class AskJson:
    """A server that speaks JSON. `activated`: ask for values behind the activation, to compare."""

    dialect: Dialect
    model: str | None
    activated: bool = False

    @property
    def identity(self) -> dict[str, object]:
        """Kind and model."""
        return {"kind": self.dialect.kind, "model": self.model}

    def request(self, index: int, texts: Sequence[Payload]) -> Request:
        """The request for the scores of some texts."""
        body = self.dialect.activated if self.activated and self.dialect.activated else self.dialect.body
        return Request(index, self.dialect.path, body(texts, self.model))

    def read(self, reply: Reply, n: int) -> Scored:
        """What the reply says of `n` texts."""
        return self.dialect.read(reply.json(), n)


@dataclass(frozen=True)
class AskTriton:
    """NeMo's reward server, by Triton's protocol. `add_eos`: let the server append its end token."""

    model: str
    add_eos: bool

    @property
    def identity(self) -> dict[str, object]:
        """Kind, model and end token."""
        return {"kind": "triton", "model": self.model, "add_eos": self.add_eos}

    def request(self, index: int, texts: Sequence[Payload]) -> Request:
        """The request for the scores of some texts."""
        body, headers = steerlm.body([str(text) for text in texts], add_eos=self.add_eos)
        return Request(index, steerlm.path(self.model), body, headers=headers)

    def read(self, reply: Reply, n: int) -> Scored:
        """What the reply says of `n` texts."""
        return steerlm.read(reply, n)
