"""One HTTP exchange by httpx: what is sent, what comes back, and the limits that httpx
does not set.
"""

import json
import math
import os
import re
import secrets
import socket
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
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
# A shorter key, such as "EMPTY", may be a part of an ordinary reply, which must stay as
# it is.
_MIN_KEY_IN_REPLY = 16
# Begins the name that each request carries; vLLM repeats the name in its reply.
_REQUEST_MARK = b"rmlab-request-"


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
            "give a key by key=",
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


class Connection:
    """One thread's connection to a server.

    A connection is kept for the next request only if the reply has named its own
    request. Otherwise a second copy of a reply, however late, would be taken for the
    next reply, and shift all answers after it.

    A transport of httpx without its client: no cookies, no redirects, and a third less
    processor time. httpx limits the time of every read, not of the whole reply: another
    thread calls `cut` when `deadline` has passed.
    """

    def __init__(self, url: str, key: str, timeout: float, proxy: str | None) -> None:
        import httpx

        self.deadline = math.inf
        self._url = url
        self._timeout = timeout
        # Parsing takes a tenth of a request's processor time.
        self._parse_url = lru_cache(httpx.URL)
        self._socket: socket.socket | None = None
        self._key = key.encode()
        self._headers = dict(_HEADERS)
        if key:
            self._headers["authorization"] = f"Bearer {key}"
        timeouts = httpx.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS))
        self._extensions = {"timeout": timeouts.as_dict(), "trace": self._note_socket}
        self.transport = httpx.HTTPTransport(verify=_ssl_context(), proxy=proxy)

    def send(self, request: Request) -> Reply:
        """Return the whole reply; raise Failure where none comes."""
        self.deadline = time.monotonic() + self._timeout
        mark = _REQUEST_MARK + secrets.token_hex(12).encode()
        is_reusable = False
        try:
            message = self._message(request, mark.decode())
            with closing(self.transport.handle_request(message)) as response:
                content = _read_body(response)
            if len(self._key) >= _MIN_KEY_IN_REPLY:
                content = content.replace(self._key, b"[key]")
            reply = Reply(content, dict(response.headers), response.status_code)
            marked = reply.headers.get("x-request-id", "").encode() + content
            is_reusable = mark in marked
            if _REQUEST_MARK in marked and not is_reusable:
                raise Failure("the reply is to another request")
            return reply
        except Failure:
            raise
        except Exception as error:
            # h11 and ssl raise errors of their own, which httpx does not translate.
            raise self._failure(error) from None
        finally:
            self.deadline = math.inf
            if not is_reusable:
                # The next request opens a new connection.
                self.transport.close()

    def _message(self, request: Request, mark: str) -> "httpx.Request":
        import httpx

        content = request.body
        if content is not None and not isinstance(content, bytes):
            content = json.dumps(content, separators=(",", ":")).encode()
        return httpx.Request(
            "GET" if content is None else "POST",
            self._parse_url(f"{self._url}/{request.path.lstrip('/')}"),
            headers={**self._headers, "x-request-id": mark, **request.headers},
            content=content,
            extensions=self._extensions,
        )

    def _failure(self, error: Exception) -> Failure:
        """What an error of a connection means."""
        import httpx

        is_late = time.monotonic() >= self.deadline
        if is_late or isinstance(error, httpx.TimeoutException):
            return Failure(f"no answer within {self._timeout:g} seconds")
        return Failure(
            f"the connection failed ({type(error).__name__}: {error})",
            away=isinstance(error, httpx.ConnectError),
        )

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
