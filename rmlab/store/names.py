"""Names of a store's files: who wrote them and when, and, of a part, what it holds."""

import os
import re
import secrets
import socket
import time
from hashlib import blake2b

__all__ = ["digest", "digest_in", "part", "writer"]

_PART = re.compile(r"\.\d{6}\.([0-9a-f]{16})\.[a-z]+")


def writer() -> str:
    """A name for this process's files, which sort by the start of their writers."""
    host = re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname())[:40]
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{host}-{os.getpid()}-{secrets.token_hex(3)}"


def part(writer: str, number: int, content: bytes, suffix: str) -> str:
    """The name of a part: those of one writer sort by their number."""
    return f"{writer}.{number:06d}.{digest(content)}{suffix}"


def digest_in(name: str) -> str | None:
    """The digest in a part's name; None for files that grow.

    >>> digest_in(part("w", 3, b"text", ".scores")) == digest(b"text"), digest_in("w.scores")
    (True, None)
    """
    found = _PART.search(name)
    return found[1] if found else None


def digest(content: bytes) -> str:
    """What tells a part's content: 16 hexadecimal digits."""
    return blake2b(content, digest_size=8).hexdigest()
