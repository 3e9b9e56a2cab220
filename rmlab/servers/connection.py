"""One connection to a server: a request is written, and its whole reply is read before a deadline."""

import io
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from ssl import SSLContext
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

__all__ = ["LARGEST", "Broken", "Connection", "Received", "connect"]

LARGEST = 64 << 20
"""Bytes of a reply after which no more is read; a server that sends more is not answering the question."""

PIECE = 1 << 20
_URL = "!#$%&'()*+,/:;=?@[]~"  # what an address keeps as it is


class Broken(Exception):
    """The connection failed; the message says how."""


class Received(NamedTuple):
    """What a server sent. Names in `headers` are in small letters."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Connection(Protocol):
    """One request at a time. Redirects are not followed, cookies not kept."""

    def send(
        self, method: str, url: str, content: bytes | None, headers: Mapping[str, str], *, until: float
    ) -> Received:
        """The reply, whole, or its first bytes beyond `LARGEST`. `until`: of `time.monotonic`.

        Raises TimeoutError where it is not there by then, Broken where the connection failed.
        """

    def cut(self) -> None:
        """End a request that another thread waits for, and all after it."""

    def close(self) -> None:
        """Let go of the server; called by the thread that sends."""


def connect(url: str, timeout: float) -> Connection:
    """A connection to the server of this address; nothing is sent yet.

    The environment's proxies (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY) are gone through.
    """
    parts = urlsplit(url)
    if {parts.scheme, "all"} & getproxies().keys() and not proxy_bypass(parts.hostname or ""):
        return _Proxied(timeout)
    return _Straight(url)


class _Straight:
    """The standard library's connection: a sixth of the processor time that httpx takes for a request."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        host = parts.hostname or ""
        self._http: HTTPConnection = (
            HTTPSConnection(host, parts.port, context=trust())
            if parts.scheme == "https"
            else HTTPConnection(host, parts.port)
        )
        self._line: _Line | None = None
        self._cut = False

    def send(
        self, method: str, url: str, content: bytes | None, headers: Mapping[str, str], *, until: float
    ) -> Received:
        """As of `Connection`."""
        try:
            self._open(until)
            self._http.request(method, _target(url), content, dict(headers))
            with self._http.getresponse() as response:
                named = {name.lower(): value for name, value in response.getheaders()}
                return Received(response.status, named, self._content(response))
        except BaseException as error:
            self.close()
            if isinstance(error, OSError | HTTPException | UnicodeError) and not isinstance(error, TimeoutError):
                raise Broken(_said(error)) from None
            raise

    def cut(self) -> None:
        """As of `Connection`."""
        self._cut = True
        if self._line:
            self._line.cut()

    def close(self) -> None:
        """As of `Connection`."""
        self._http.close()
        self._line = None

    def _open(self, until: float) -> None:
        """Be connected: a server may have closed the connection since the last reply."""
        if self._http.sock is None or self._line is None or self._line.has_ended():
            self.close()
            self._http.timeout = _left(until)
            self._http.connect()
            self._http.sock = self._line = _Line(self._http.sock)
        self._line.until = until
        # After the line is there for `cut` to find: one of both threads sees what the other has done.
        if self._cut:
            raise Broken("it was cut")

    def _content(self, response: HTTPResponse) -> bytes:
        content = bytearray()
        while piece := response.read(PIECE):
            content += piece
            if len(content) > LARGEST:
                self.close()  # the rest is not waited for
                return bytes(content)
        if response.length:
            raise IncompleteRead(bytes(content), response.length)
        return bytes(content)


class _Line:
    """A socket that gives up at a moment; a socket's own timeout begins anew with every byte that comes."""

    def __init__(self, one: socket.socket) -> None:
        self._socket = one
        self.until = 0.0

    def sendall(self, data: "ReadableBuffer") -> None:
        """As of a socket."""
        self._socket.settimeout(_left(self.until))
        self._socket.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """As of a socket."""
        return io.BufferedReader(_Timed(self, self._socket.makefile(mode, buffering=0)))  # type: ignore[call-overload]

    def wait(self) -> None:
        """The next read gives up at the moment."""
        self._socket.settimeout(_left(self.until))

    def has_ended(self) -> bool:
        """Whether there is anything to read between two requests: the end, or what nobody asked for."""
        self._socket.settimeout(0)
        try:
            socket.socket.recv(self._socket, 1, socket.MSG_PEEK)  # below TLS, which does not peek
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def cut(self) -> None:
        """End what another thread reads."""
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """As of a socket."""
        self._socket.close()


class _Timed(io.RawIOBase):
    """What a line reads from."""

    def __init__(self, line: _Line, raw: io.RawIOBase) -> None:
        self._line, self._raw = line, raw

    def readable(self) -> bool:
        """As of a file."""
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int | None:
        """As of a file."""
        self._line.wait()
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """As of a file."""
        self._raw.close()
        super().close()


class _Proxied:
    """httpx's connection, which knows every kind of proxy."""

    def __init__(self, timeout: float) -> None:
        import httpx

        self._http = httpx.Client(timeout=timeout, verify=trust())
        self._cut = False

    def send(
        self, method: str, url: str, content: bytes | None, headers: Mapping[str, str], *, until: float
    ) -> Received:
        """As of `Connection`."""
        import httpx

        if self._cut:
            raise Broken("it was cut")
        self._http.cookies.clear()
        try:
            with self._http.stream(method, url, content=content, headers=dict(headers)) as response:
                body = bytearray()
                for piece in response.iter_bytes():
                    body += piece
                    _left(until)
                    if len(body) > LARGEST:
                        break
                return Received(response.status_code, dict(response.headers), bytes(body))
        except httpx.TimeoutException:
            raise TimeoutError from None
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise Broken(_said(error)) from None

    def cut(self) -> None:
        """As of `Connection`; a reply that is on its way is waited for."""
        self._cut = True

    def close(self) -> None:
        """As of `Connection`."""
        self._http.close()


@cache
def trust() -> SSLContext:
    """The certificates that are believed: reading them takes longer than a request does."""
    import httpx

    context = httpx.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _target(url: str) -> str:
    """The path of an address, as a request names it."""
    parts = urlsplit(url)
    return quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=_URL)


def _left(until: float) -> float:
    """Seconds to a moment; TimeoutError where it has gone."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _said(error: Exception) -> str:
    text = str(error)
    return f"{type(error).__name__}{': ' if text else ''}{text}"
