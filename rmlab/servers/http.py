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
    from httpx import Response

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

    `again`: another may succeed. `away`: the server is out of service. `charged`: it
    may cost. `wait`: seconds for which the server asks to be left alone.
    """

    def __init__(
        self,
        reason: str,
        *,
        again: bool,
        away: bool = False,
        charged: bool = True,
        wait: float = 0.0,
    ) -> None:
        super().__init__(reason)
        self.again, self.away, self.charged, self.wait = again, away, charged, wait


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


def check_url(url: str) -> str:
    """Return an address without a slash at its end; a message never repeats one that
    may hold a password.
    """
    import httpx

    address, host = httpx.URL(), ""
    with suppress(httpx.InvalidURL, TypeError, ValueError):
        address = httpx.URL(url)
        host = address.host
    is_server = address.scheme in ("http", "https") and host and " " not in url
    if not is_server or address.userinfo or address.query or address.fragment:
        raise DataError(
            "url: not the address of a server alone, like 'http://127.0.0.1:8000'; give a key by key="
        )
    return url.rstrip("/")


def read_key(name: str | None) -> str:
    """Return the key in the environment variable of this name, empty without a name."""
    key = os.environ.get(name, "").strip() if name else ""
    if name and not key:
        raise DataError(
            f"key: the environment variable {name} is not set; export it, or leave key= (--key) out"
        )
    if not all("!" <= character <= "~" for character in key):
        raise DataError(
            f"key: the environment variable {name} holds characters that no HTTP header can carry"
        )
    return key


class Connection:
    """One thread's connection to a server, kept between requests.

    A transport of httpx without its client: no cookies, no redirects, and a third less
    processor time. httpx limits the time of every read, not of the whole reply: another
    thread calls `cut` when `deadline` has passed. Bytes that lie behind a reply would
    be taken as the reply to the next request: the connection is closed.
    """

    def __init__(self, url: str, key: str, timeout: float) -> None:
        import httpx

        self.deadline = math.inf
        self._url, self._timeout = url, timeout
        self._parse_url = lru_cache(
            httpx.URL
        )  # parsing takes a tenth of a request's processor time
        self._socket: socket.socket | None = None
        self._headers = _HEADERS | ({"authorization": f"Bearer {key}"} if key else {})
        timeouts = httpx.Timeout(
            timeout, connect=min(timeout, _CONNECT_SECONDS)
        ).as_dict()
        self._extensions = {"timeout": timeouts, "trace": self._note_socket}
        self._transport = httpx.HTTPTransport(verify=ssl_context(), proxy=_proxy(url))

    def send(self, request: Request) -> Reply:
        """Return the whole reply; raise Failure where none comes."""
        import httpx

        self.deadline = time.monotonic() + self._timeout
        content = request.body
        if content is not None and not isinstance(content, bytes):
            content = json.dumps(content, separators=(",", ":")).encode()
        method, url = (
            "GET" if content is None else "POST",
            f"{self._url}/{request.path.lstrip('/')}",
        )
        name = _REQUEST_MARK + secrets.token_hex(12).encode()
        headers = (
            self._headers | {"x-request-id": name.decode()} | dict(request.headers)
        )
        options, is_reusable = self._extensions, False
        try:
            message = httpx.Request(
                method,
                self._parse_url(url),
                headers=headers,
                content=content,
                extensions=options,
            )
            with closing(self._transport.handle_request(message)) as response:
                body = _read_body(response)
                is_clean = _has_no_leftover(response)
            reply = Reply(body, dict(response.headers), response.status_code)
            for text in (body, reply.headers.get("x-request-id", "").encode()):
                if _REQUEST_MARK in text and name not in text:
                    raise Failure("the reply is to another request", again=True)
            is_reusable = is_clean
            return reply
        except Failure:
            raise
        # h11 and ssl raise errors of their own, which httpx does not translate
        except Exception as error:
            if (
                isinstance(error, httpx.TimeoutException)
                or time.monotonic() >= self.deadline
            ):
                raise Failure(
                    f"no answer within {self._timeout:g} seconds", again=True
                ) from None
            was_sent = not isinstance(error, httpx.ConnectError)
            reason = f"the connection failed ({type(error).__name__}: {error})"
            raise Failure(
                reason, again=True, away=not was_sent, charged=was_sent
            ) from None
        finally:
            self.deadline = math.inf
            if not is_reusable:
                self._transport.close()  # the next request opens a new connection

    def cut(self) -> None:
        """End a request that another thread waits for."""
        if self._socket is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of the server."""
        self._transport.close()

    def _note_socket(self, event: str, details: Mapping[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._socket = details["return_value"].get_extra_info("socket")


def _read_body(response: "Response") -> bytes:
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


def _has_no_leftover(response: "Response") -> bool:
    """Whether a connection can be used again; where a release of httpx hides the bytes,
    it is used once.
    """
    try:
        leftover, _ = _find_leftover(response)
    except AttributeError:
        return False
    return not leftover


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

    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.hostname or ""):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    try:
        httpx.Proxy(proxy)
    except (httpx.InvalidURL, ValueError):
        variables = "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY"
        raise DataError(
            f"{variables}: not the address of a proxy, like 'http://127.0.0.1:3128'; correct it"
        ) from None
    return proxy
