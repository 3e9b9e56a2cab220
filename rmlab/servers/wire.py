"""One request and one reply."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

__all__ = ["Json", "Reply", "Request"]

Json = Any
"""A value that JSON can hold; what a server sends has no other type."""


@dataclass(frozen=True)
class Request:
    """One request. `index`: the number that its answer carries. `path`: below the client's address.

    `body`: a JSON value, bytes as they are, or None for GET. `tokens`: the most tokens that its answer may be charged
    for, counted against `max_tokens` until the server has said how many they were.
    """

    index: int
    path: str
    body: Json | bytes | None
    tokens: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)

    def content(self) -> bytes | None:
        """What is sent."""
        if self.body is None or isinstance(self.body, bytes):
            return self.body
        return json.dumps(self.body, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Reply:
    """What a server sent with a status of success. `index`: that of the request."""

    content: bytes
    headers: Mapping[str, str]
    index: int = 0

    def json(self) -> Json:
        """The content as JSON, parsed once; raises ValueError where it is not JSON."""
        return self._parsed

    def charged(self) -> int | None:
        """The tokens that an OpenAI-compatible server says it charged, None where it says nothing."""
        try:
            usage = self.json()["usage"]["total_tokens"]
        except (ValueError, KeyError, TypeError, IndexError):
            return None
        return usage if isinstance(usage, int) and usage >= 0 else None

    @cached_property
    def _parsed(self) -> Json:
        return json.loads(self.content)
