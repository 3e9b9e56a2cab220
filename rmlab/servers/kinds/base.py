"""What a kind of server is: a request for the raw scores of some texts, and the reading
of its reply.

Servers differ in what they do by default: a sigmoid, a softmax, a second BOS
token, silent truncation. The request of each kind is right by the server's documents or
by measurement; `rmlab.remote` tests what a server really does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from rmlab.records import install_command
from rmlab.scorers.base import Prompt
from rmlab.servers.http import Json, Reply, Request
from rmlab.tables import DataError, nearest

Payload = str | list[int] | dict[str, object]
"""One conversation as a server takes it: text, token ids, or its parts by name."""

Payloads = Sequence[Payload]

KINDS: dict[str, "ServerKind"] = {}
"""All kinds by name."""


@dataclass(frozen=True)
class Scored:
    """A server's outputs for the texts of one request: a number, or a list of numbers,
    for each text in their order; once checked an array, texts x outputs.

    `tokens`: how many tokens it has read in all of them, 0 where it does not say.
    `model`: the model that it names.
    """

    values: Any
    tokens: int = 0
    model: str = ""

    def check(self, n_texts: int) -> "Scored":
        """Return the same with values of shape (texts, outputs); raise ValueError if
        they are not whole.
        """
        values = np.array(self.values)
        if values.ndim == 1:
            values = values[:, np.newaxis]
        is_whole = values.ndim == 2 and len(values) == n_texts and values.size
        if not (is_whole and values.dtype.kind in "if" and np.isfinite(values).all()):
            raise ValueError(f"no finite outputs for each of {n_texts} texts")
        return replace(self, values=values.astype(float))


class ServerKind:
    """One kind of server: a class that inherits from this one, whose `name` is the
    `kind` of `rmlab.remote`. It needs `name`, `path`, `body` and `read`.

    Attributes
    ----------
    name : str
        Its name in `rmlab.remote(kind=)`.
    path : str
        Where scores are asked for.
    takes_ids : bool
        Whether texts go as token ids.
    adds_special : bool
        Whether the server writes the tokenizer's special tokens around a text.
    length_option : str
        The server's option for the length at which it cuts texts silently, so that
        `max_length` has to be given; empty where it does not cut them.
    form : str
        The name of the server's own form of conversations, which `write` writes. Empty:
        the model's template writes them here, so that `tokenizer` has to be given.
    weights : mapping
        Names of the outputs, in their order, and their usual weights, where all servers
        of this kind have the same outputs.
    model_path, model_keys : str, tuple
        Where the server names its model, and the keys that lead to the name; empty
        where it does not.
    usual_model : str
        The model's name at the server where none is given.
    sorts_outputs : bool
        Whether `read` returns the outputs sorted by their names.
    package : str
        A package that asking needs, in an extra that is called as the kind.
    """

    name: ClassVar[str]
    path: ClassVar[str]
    takes_ids = False
    adds_special = False
    length_option = ""
    form = ""
    weights: Mapping[str, float] = {}
    model_path = ""
    model_keys: tuple[str | int, ...] = ()
    usual_model = ""
    sorts_outputs = False
    package = "httpx"

    def __init_subclass__(cls) -> None:
        KINDS[cls.name] = cls()

    def body(self, texts: Payloads, model: str | None) -> Json:
        """Return the JSON that is posted; it asks for values before the activation."""
        raise NotImplementedError

    def request(self, texts: Payloads, model: str | None) -> Request:
        """Return the request for the outputs of some texts, before the activation."""
        return Request(self.path, self.body(texts, model))

    def read(self, reply: Reply) -> Scored:
        """Return the outputs in a reply; raise an exception if it is not whole."""
        raise NotImplementedError

    def read_model(self, reply: Reply) -> str:
        """Return the model's name in the reply from `model_path`."""
        value = reply.json()
        for key in self.model_keys:
            value = value[key]
        return str(value)

    def write(self, prompt: Prompt, response: str) -> Payload:
        """Return one conversation in the server's own form."""
        raise NotImplementedError


def find_kind(name: str) -> ServerKind:
    """Return the kind of a server; raise DataError for an unknown one."""
    if name not in KINDS:
        raise DataError(f"kind={name!r}", nearest(name, list(KINDS)))
    kind = KINDS[name]
    if find_spec(kind.package) is None:
        command = install_command(name)
        raise ImportError(f"kind={name!r} needs {kind.package}: run {command}")
    return kind
