"""One HTTP exchange by httpx: what is sent, what comes back, and the limits that httpx
does not set.
"""

import json
import os
import re
import socket
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rmlab.records import unique_fields
from rmlab.tables import DataError

if TYPE_CHECKING:
    from ssl import SSLContext

    import httpx

Json = Any
"""A value that JSON can hold."""

MAX_BYTES = 64 << 20
"""A reply with more bytes is refused. httpx limits headers and trailers itself."""

_HEADERS = {
    "content-type": "application/json",
    "accept-encoding": "identity",
    "user-agent": "rmlab",
}
_CONNECT_SECONDS = 10.0


@dataclass(eq=False)
class Failure(Exception):
    """A try failed.

    `again`: another may succeed. `away`: the server is out of service. `refused`: the
    server works, and refuses this request alone. `wait`: seconds for which the server
    asks to be left alone.
    """

    reason: str
    again: bool = True
    away: bool = False
    refused: bool = False
    wait: float = 0.0


@dataclass(frozen=True)
class Request:
    """One request.

    Parameters
    ----------
    path
        Path below the client's address.
    body
        A JSON value, bytes as they are, or None for GET.
    headers
        Headers of this request.
    """

    path: str
    body: Json | bytes | None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """A server's reply; names in `headers` are in small letters."""

    content: bytes
    headers: Mapping[str, str]
    status: int = 200

    def json(self) -> Json:
        """Return the content as JSON; raise ValueError or RecursionError where it is
        not JSON, or names a field twice.
        """
        return json.loads(self.content, object_pairs_hook=unique_fields)

    def text(self) -> str:
        """Return the content as it is, as text."""
        return self.content.decode("utf-8", "replace")


def check_url(url: str) -> str:
    """Return an address without a slash at its end; a message never repeats one that
    may hold a password.
    """
    is_server = url.startswith(("http://", "https://"))
    if not is_server or set("@?#") & set(url):
        raise DataError(
            "url: not the address of a server alone, like 'http://127.0.0.1:8000'",
            "pass a key by key=",
        )
    return url.rstrip("/")


def read_key(name: str) -> str:
    """Return the key in the environment variable of this name."""
    key = os.environ.get(name, "").strip()
    if not re.fullmatch("[!-~]+", key):
        raise DataError(
            f"key: the environment variable {name} holds no key, or one that no HTTP "
            "header can carry",
            "export it, or leave key= (--key) out",
        )
    return key


def build_message(
    request: Request, url: str, key: str, timeout: float
) -> "httpx.Request":
    """Return a request as httpx sends it; `timeout` is that of every read."""
    import httpx

    headers = {**_HEADERS, **request.headers}
    if key:
        headers["authorization"] = f"Bearer {key}"
    content = request.body
    if content is not None and not isinstance(content, bytes):
        content = json.dumps(content, separators=(",", ":")).encode()
    timeouts = httpx.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS))
    return httpx.Request(
        "GET" if content is None else "POST",
        f"{url}/{request.path.lstrip('/')}",
        headers=headers,
        content=content,
        extensions={"timeout": timeouts.as_dict()},
    )


class Exchange:
    """One request and its reply, on a connection of its own.

    A connection that is kept may hold a second copy of a reply, which would be taken
    for the next reply and shift all answers after it. A new one costs no more time: the
    pool of an httpx client looks through all its connections for every request.

    httpx limits the time of every read, not of the whole reply: another thread calls
    `cut` when `deadline` has passed.
    """

    def __init__(
        self, message: "httpx.Request", timeout: float, proxy: str | None
    ) -> None:
        self.deadline = time.monotonic() + timeout
        self._message = message
        self._timeout = timeout
        self._proxy = proxy
        self._socket: socket.socket | None = None

    def send(self) -> Reply:
        """Return the whole reply; raise Failure where none comes."""
        import httpx

        self._message.extensions["trace"] = self._note_socket
        try:
            with (
                httpx.HTTPTransport(verify=_ssl_context(), proxy=self._proxy) as server,
                closing(server.handle_request(self._message)) as response,
            ):
                content = _read_body(response)
        except Failure:
            raise
        # h11 and ssl raise errors of their own, which httpx does not translate.
        except Exception as error:
            reason = f"the connection failed ({type(error).__name__}: {error})"
            is_late = time.monotonic() >= self.deadline
            if is_late or isinstance(error, httpx.TimeoutException):
                reason = f"no answer within {self._timeout:g} seconds"
            is_away = isinstance(error, httpx.ConnectError)
            raise Failure(reason, away=is_away) from None
        return Reply(content, dict(response.headers), response.status_code)

    def cut(self) -> None:
        """End a request that another thread waits for."""
        if self._socket is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _note_socket(self, event: str, details: Mapping[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._socket = details["return_value"].get_extra_info("socket")


def _read_body(response: "httpx.Response") -> bytes:
    """Return the content, unpacked; raise Failure beyond the limit."""
    body = bytearray()
    for piece in response.iter_bytes():
        body += piece
        if len(body) > MAX_BYTES:
            limit = f"an answer of more than {MAX_BYTES >> 20} MiB"
            raise Failure(limit, again=False)
    return bytes(body)


@cache
def _ssl_context() -> "SSLContext":
    """Return the trusted certificates, read once: reading them takes longer than a
    request.
    """
    import httpx

    return httpx.create_ssl_context()


def find_proxy(url: str) -> str | None:
    """Return the environment's proxy (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY) for
    an address.
    """
    from urllib.request import getproxies, proxy_bypass

    address = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(address.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(address.hostname or ""):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
