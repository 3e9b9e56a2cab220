"""One HTTP exchange by httpx: what is sent, what comes back, and the limits that httpx
does not set.
"""

import json
import math
import os
import secrets
import socket
import time
import zlib
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from operator import attrgetter
from ssl import SSLContext
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from rmlab.tables import DataError

if TYPE_CHECKING:
    import httpx

Json = Any
"""A value that JSON can hold."""

MAX_BYTES = 64 << 20
"""A reply with more bytes is refused, as it is sent and as it is unpacked. httpx limits
headers and trailers itself.
"""

_HEADERS = {
    "content-type": "application/json",
    "accept-encoding": "identity",
    "user-agent": "rmlab",
}
_CONNECT_SECONDS = 10.0
# Begins the name that each request carries; vLLM repeats the name in its reply.
_REQUEST_MARK = b"rmlab-request-"
# The bytes that h11 has read behind a reply. httpx 0.28 has no public way to them.
_find_leftover = attrgetter(
    "stream._httpcore_stream._stream._connection._h11_state.trailing_data"
)
# Window bits by which zlib recognises both gzip's and its own header.
_ANY_HEADER = zlib.MAX_WBITS | 32


class Failure(Exception):
    """A try failed.

    `again`: another may succeed. `away`: the server is out of service. `refused`: it
    works, and refuses this request alone. `charged`: it may cost. `wait`: seconds for
    which the server asks to be left alone.
    """

    def __init__(
        self,
        reason: str,
        *,
        again: bool,
        away: bool = False,
        refused: bool = False,
        charged: bool = True,
        wait: float = 0.0,
    ) -> None:
        super().__init__(reason)
        self.again = again
        self.away = away
        self.refused = refused
        self.charged = charged
        self.wait = wait


@dataclass(frozen=True)
class Request:
    """One request.

    Parameters
    ----------
    path
        Path below the client's address.
    body
        A JSON value, bytes as they are, or None for GET.
    tokens
        The most tokens that its answer may be charged for, until the server says how
        many they were.
    headers
        Headers of this request.
    """

    path: str
    body: Json | bytes | None
    tokens: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """A server's reply; names in `headers` are in small letters."""

    content: bytes
    headers: Mapping[str, str]
    status: int = 200

    def json(self) -> Json:
        """Return the content as JSON; raise ValueError or RecursionError where it is
        not JSON.
        """
        return json.loads(self.content)

    def text(self) -> str:
        """Return the content as it is, as text."""
        return self.content.decode("utf-8", "replace")


def check_url(url: str) -> str:
    """Return an address without a slash at its end; a message never repeats one that
    may hold a password.
    """
    import httpx

    address = httpx.URL()
    host = ""
    with suppress(httpx.InvalidURL, TypeError, ValueError):
        address = httpx.URL(url)
        host = address.host
    is_server = address.scheme in ("http", "https") and host and " " not in url
    if not is_server or address.userinfo or address.query or address.fragment:
        raise DataError(
            "url: not the address of a server alone, like 'http://127.0.0.1:8000'",
            "give a key by key=",
        )
    return url.rstrip("/")


def read_key(name: str) -> str:
    """Return the key in the environment variable of this name."""
    key = os.environ.get(name, "").strip()
    variable = f"key: the environment variable {name}"
    if not key:
        remedy = "export it, or leave key= (--key) out"
        raise DataError(f"{variable} is not set", remedy)
    if not all("!" <= character <= "~" for character in key):
        raise DataError(f"{variable} holds characters that no HTTP header can carry")
    return key


class Connection:
    """One thread's connection to a server, kept between requests.

    A transport of httpx without its client: no cookies, no redirects, and a third less
    processor time. httpx limits the time of every read, not of the whole reply: another
    thread calls `cut` when `deadline` has passed. Bytes that lie behind a reply would
    be taken as the reply to the next request: `transport` is closed, and connects anew.
    """

    def __init__(self, url: str, key: str, timeout: float) -> None:
        import httpx

        self.deadline = math.inf
        self._url = url
        self._timeout = timeout
        # Parsing takes a tenth of a request's processor time.
        self._parse_url = lru_cache(httpx.URL)
        self._socket: socket.socket | None = None
        self._headers = dict(_HEADERS)
        if key:
            self._headers["authorization"] = f"Bearer {key}"
        timeouts = httpx.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS))
        self._extensions = {"timeout": timeouts.as_dict(), "trace": self._note_socket}
        self.transport = httpx.HTTPTransport(verify=ssl_context(), proxy=_proxy(url))

    def send(self, request: Request) -> Reply:
        """Return the whole reply; raise Failure where none comes."""
        self.deadline = time.monotonic() + self._timeout
        mark = _REQUEST_MARK + secrets.token_hex(12).encode()
        is_reusable = False
        try:
            message = self._message(request, mark)
            with closing(self.transport.handle_request(message)) as response:
                body = _read_body(response)
                has_leftover = _has_leftover(response)
            reply = Reply(body, dict(response.headers), response.status_code)
            _require_own_mark(reply, mark)
            is_reusable = not has_leftover
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

    def _message(self, request: Request, mark: bytes) -> "httpx.Request":
        import httpx

        content = request.body
        if content is not None and not isinstance(content, bytes):
            content = json.dumps(content, separators=(",", ":")).encode()
        method = "GET" if content is None else "POST"
        return httpx.Request(
            method,
            self._parse_url(f"{self._url}/{request.path.lstrip('/')}"),
            headers={
                **self._headers,
                "x-request-id": mark.decode(),
                **request.headers,
            },
            content=content,
            extensions=self._extensions,
        )

    def _failure(self, error: Exception) -> Failure:
        """What an error of a connection means."""
        import httpx

        is_late = time.monotonic() >= self.deadline
        if is_late or isinstance(error, httpx.TimeoutException):
            return Failure(f"no answer within {self._timeout:g} seconds", again=True)
        was_sent = not isinstance(error, httpx.ConnectError)
        reason = f"the connection failed ({type(error).__name__}: {error})"
        return Failure(reason, again=True, away=not was_sent, charged=was_sent)

    def cut(self) -> None:
        """End a request that another thread waits for."""
        if self._socket is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _note_socket(self, event: str, details: Mapping[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._socket = details["return_value"].get_extra_info("socket")


def _require_own_mark(reply: Reply, mark: bytes) -> None:
    """Raise Failure where a reply carries the mark of another request."""
    header = reply.headers.get("x-request-id", "").encode()
    for text in (reply.content, header):
        if _REQUEST_MARK in text and mark not in text:
            raise Failure("the reply is to another request", again=True)


def _read_body(response: "httpx.Response") -> bytes:
    """Return the content, unpacked; raise Failure beyond the limit, and for more than
    one coding.
    """
    body = bytearray()
    for piece in response.iter_raw():
        body += piece
        _check_size(len(body))
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if coding in ("identity", ""):
        return bytes(body)
    if coding not in ("gzip", "deflate"):
        raise Failure(f"content-encoding: {coding:.100} was not asked for", again=False)
    unpacker = zlib.decompressobj(_ANY_HEADER)
    content = unpacker.decompress(body, MAX_BYTES + 1)
    _check_size(len(content))
    if not unpacker.eof:
        raise Failure("the reply is not whole", again=True)
    return content


def _check_size(n_bytes: int) -> None:
    if n_bytes > MAX_BYTES:
        raise Failure(f"an answer of more than {MAX_BYTES >> 20} MiB", again=False)


def _has_leftover(response: "httpx.Response") -> bool:
    """Whether bytes lie behind the reply; true where a release of httpx hides them."""
    try:
        leftover, _ = _find_leftover(response)
    except AttributeError:
        return True
    return bool(leftover)


@cache
def ssl_context() -> SSLContext:
    """Return the trusted certificates, read once: reading them takes longer than a
    request.
    """
    import httpx

    return httpx.create_ssl_context()


def _proxy(url: str) -> str | None:
    """Return the environment's proxy (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY) for
    an address.

    A message about it never repeats the address, which may hold a password.
    """
    import httpx

    address = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(address.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(address.hostname or ""):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    try:
        httpx.Proxy(proxy)
    except (httpx.InvalidURL, ValueError):
        variables = "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY"
        example = "'http://127.0.0.1:3128'"
        problem = f"{variables}: not the address of a proxy, like {example}"
        raise DataError(problem, "correct it") from None
    return proxy
