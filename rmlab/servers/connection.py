"""One connection to a server: a request is written, and its whole reply is read before a deadline."""

import select
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, lru_cache
from ssl import SSLContext
from typing import NamedTuple, Protocol
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

__all__ = ["LARGEST", "Broken", "Connection", "Received", "connect"]

LARGEST = 64 << 20
"""Bytes of a reply after which no more is read; a server that sends more is not answering the question."""

PIECE = 1 << 16
_LONGEST_HEAD = 1 << 16
_SLACK = 1.01  # a socket waits up to the square of this, times the seconds left
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
    """A socket of its own and a parser in C: half the processor time of `http.client`, a tenth of that of httpx."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._secure = parts.scheme == "https"
        self._at = parts.hostname or "", parts.port or (443 if self._secure else 80)
        self._named = parts.netloc
        self._line: _Line | None = None
        self._cut = False

    def send(
        self, method: str, url: str, content: bytes | None, headers: Mapping[str, str], *, until: float
    ) -> Received:
        """As of `Connection`."""
        from httptools import HttpParserError

        try:
            line = self._open(until)
            line.send(_head(method, url, self._named, content, headers) + (content or b""))
            reply = _Incoming()
            while not reply.whole and len(reply.content) <= LARGEST:
                reply.take(line.receive())
            if not reply.stays_open:
                self.close()
            return Received(reply.status, reply.headers, bytes(reply.content))
        except BaseException as error:
            self.close()
            if isinstance(error, OSError | HttpParserError | UnicodeError) and not isinstance(error, TimeoutError):
                raise Broken(_said(error)) from None
            raise

    def cut(self) -> None:
        """As of `Connection`."""
        self._cut = True
        if line := self._line:
            line.cut()

    def close(self) -> None:
        """As of `Connection`."""
        if self._line:
            self._line.close()
        self._line = None

    def _open(self, until: float) -> "_Line":
        """Be connected: a server may have closed the connection since the last reply."""
        line = self._line
        if line is None or line.has_ended():
            self.close()
            line = self._line = _Line(self._connect(_left(until)))
        line.until = until
        # After the line is there for `cut` to find: one of both threads sees what the other has done.
        if self._cut:
            raise Broken("it was cut")
        return line

    def _connect(self, seconds: float) -> socket.socket:
        made = socket.create_connection(self._at, seconds)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return trust().wrap_socket(made, server_hostname=self._at[0]) if self._secure else made
        except BaseException:
            made.close()
            raise


class _Line:
    """A socket that gives up at a moment; a socket's own timeout begins anew with every byte that comes.

    Every call to the system lets another thread take the interpreter, and with 64 threads it takes longer to get it
    back than the call itself: there are as few as can be.
    """

    def __init__(self, one: socket.socket) -> None:
        self._socket = one
        self.until = 0.0

    def send(self, data: bytes) -> None:
        """All of it."""
        self._limit()
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """What has come, as soon as there is any; empty at the end."""
        self._limit()
        return self._socket.recv(PIECE)

    def has_ended(self) -> bool:
        """Whether there is anything to read between two requests: the end, or what nobody asked for."""
        try:
            return _readable(self._socket)
        except (OSError, ValueError):
            return True

    def cut(self) -> None:
        """End what another thread reads."""
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """As of a socket."""
        self._socket.close()

    def _limit(self) -> None:
        """Renew the socket's timeout where it would give up too early, or too late."""
        left, now = _left(self.until), self._socket.gettimeout()
        if now is None or not left <= now <= left * _SLACK**2:
            self._socket.settimeout(left * _SLACK)


class _Incoming:
    """A reply on its way. Its methods `on_...` are called by the parser."""

    def __init__(self) -> None:
        from httptools import HttpResponseParser

        self.status = 0
        self.headers: dict[str, str] = {}
        self.content = bytearray()
        self.whole = self.stays_open = False
        self._parser = HttpResponseParser(self)
        self._read = 0

    def take(self, data: bytes) -> None:
        """Parse what has come; raises Broken where that is the end, and the reply is not whole."""
        from httptools import HttpParserError

        if not data:
            self._end()
            return
        self._read += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserError:
            # What stands behind a whole reply is nobody's.
            self.stays_open = False
            if not self.whole:
                raise
        if not self.status and self._read > _LONGEST_HEAD:
            raise Broken(f"got more than {_LONGEST_HEAD} bytes of headers")

    def _end(self) -> None:
        """The connection has ended; without a length, so has the reply."""
        length = self.headers.get("content-length")
        if not self.status or length is not None or "transfer-encoding" in self.headers:
            of = f" of {length}" if length is not None else ""
            raise Broken(f"the connection ended after {len(self.content)} bytes{of}, before the reply was whole")
        self.whole = True

    def on_message_begin(self) -> None:
        """A reply begins; a second one was not asked for."""
        if self.whole:
            self.stays_open = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or one of those behind a reply in chunks."""
        if not self.whole:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The headers have ended: of the reply, or of a word before it ("100 Continue")."""
        if self.whole:
            return
        self.status = int(self._parser.get_status_code())
        if self.status < 200:
            self.status = 0
            self.headers.clear()

    def on_body(self, data: bytes) -> None:
        """A piece of the content."""
        if not self.whole:
            self.content += data

    def on_message_complete(self) -> None:
        """The reply is whole, and another request may follow where the server says so."""
        if self.status and not self.whole:
            self.whole, self.stays_open = True, bool(self._parser.should_keep_alive())


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


def _readable(one: socket.socket) -> bool:
    """Whether something has come, or the end; asks the system below TLS, which may hold nothing of it yet."""
    if not hasattr(select, "poll"):
        return bool(select.select([one], [], [], 0)[0])
    asked = select.poll()
    asked.register(one, select.POLLIN)
    return bool(asked.poll(0))


def _head(method: str, url: str, host: str, content: bytes | None, headers: Mapping[str, str]) -> bytes:
    """The head of a request; UnicodeError where a header cannot be sent."""
    length = {} if content is None else {"content-length": str(len(content))}
    named = {"host": host} | length | dict(headers)
    lines = [f"{method} {_target(url)} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
    if not all(map(str.isprintable, lines)):
        raise UnicodeError("a header holds characters that no header can carry")
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1")


@lru_cache(maxsize=64)
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
