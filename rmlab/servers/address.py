"""A server's address, and the key that belongs to it: what may be shown, and what must never be."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from rmlab.tables import DataError

__all__ = ["Address"]

_BLOT = "[key]"


@dataclass(frozen=True)
class Address:
    """Where a server is, and the name of the environment variable that holds its key (None for a server without one).

    The key's value is in no field: it is read from the environment when a request is sent.
    """

    url: str
    key: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", _checked(self.url))
        if self.key is not None and not self.key.isidentifier():
            raise DataError(
                "key: is not the name of an environment variable; give the name, such as 'OPENAI_API_KEY', never the "
                "key itself"
            )

    def at(self, path: str) -> str:
        """The address of a path below this one.

        >>> Address("http://127.0.0.1:8000/v1/").at("/models")
        'http://127.0.0.1:8000/v1/models'
        """
        return f"{self.url}/{path.lstrip('/')}"

    def headers(self) -> Mapping[str, str]:
        """The header that carries the key; nothing where the variable is not set."""
        secret = self._secret()
        return {"authorization": f"Bearer {secret}"} if secret else {}

    def blot(self, text: str) -> str:
        """The text without the key, which some servers repeat in their messages."""
        secret = self._secret()
        return text.replace(secret, _BLOT) if secret else text

    def blot_bytes(self, data: bytes) -> bytes:
        """As `blot`, for what a server sent."""
        secret = self._secret()
        return data.replace(secret.encode(), _BLOT.encode()) if secret else data

    def _secret(self) -> str:
        secret = os.environ.get(self.key, "").strip() if self.key else ""
        if not all("!" <= character <= "~" for character in secret):
            raise DataError(f"key: the environment variable {self.key} holds characters that no HTTP header can carry")
        return secret


def _checked(url: str) -> str:
    """The address without a slash at its end; messages never repeat one that may hold a password."""
    parts = _split(url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise DataError("url: is not the address of a server; give one like 'http://127.0.0.1:8000'")
    if parts.username is not None or parts.password is not None:
        raise DataError("url: holds a user name or password; put the key into an environment variable (key=its name)")
    if parts.query or parts.fragment:
        raise DataError(f"url: 'http...{parts.path}?...' has a query or fragment; give the address before the '?'")
    return url.rstrip("/")


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for a port that is not a number
    except ValueError:
        return None
    return parts if url.isprintable() and " " not in url else None
