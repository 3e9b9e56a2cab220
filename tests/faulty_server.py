"""A server on loopback that answers as it is told, and now and then does what servers do on bad days."""

import asyncio
import hashlib
import json
import socket
import threading
from dataclasses import dataclass

FAULTS = ("429", "500", "timeout", "cut", "garbage", "slow", "hangup")


@dataclass(frozen=True)
class Seen:
    """One request as it arrived. `body`: parsed, or the bytes where it is not JSON. `fault`: what was done to it."""

    method: str
    path: str
    body: object
    headers: dict
    fault: str


class FaultyServer:
    """`respond(path, body, headers)` gives the JSON value of an answer, or (status, headers, JSON value or bytes).

    `faults`: how often each of FAULTS happens, as shares of 1. The n-th arrival of a body meets a fault that depends on
    the seed, the body and n alone, whatever else arrives when. `delay`: seconds before every answer. `patience`:
    seconds that a "timeout" lasts. `most_open`: the most requests whose clients waited at the same time; a client that
    has given one up has closed its connection, and the server learns of that before it learns of the next one. `tls`: a
    context with the server's certificate. `port`: 0 takes a free one.
    """

    def __init__(self, respond, *, faults=None, seed=0, delay=0.0, patience=2.0, tls=None, port=0):
        assert set(faults or {}) <= set(FAULTS)
        self.respond, self.faults, self.seed = respond, faults or {}, seed
        self.delay, self.patience, self.tls, self.port = delay, patience, tls, port
        self.log, self.waiting, self.most_open = [], set(), 0
        self.connections, self._accepted = set(), set()
        self._arrivals = {}

    def __enter__(self):
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        self._thread.start()
        assert ready.wait(60)
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        assert not self._thread.is_alive()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def bodies(self, path=None):
        """Bodies that arrived, in order."""
        return [seen.body for seen in self.log if path in (None, seen.path)]

    async def _serve(self, ready):
        # Not asyncio's own server: its `close` leaves a socket open that was accepted in the turn before.
        self.loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        with socket.create_server(("127.0.0.1", self.port), backlog=100) as listening:
            listening.setblocking(False)
            self.port = listening.getsockname()[1]
            self.loop.add_reader(listening, self._accept, listening)
            ready.set()
            await self._stop.wait()
            self.loop.remove_reader(listening)
        while self.connections or asyncio.all_tasks() != {asyncio.current_task()}:
            for connection in list(self.connections):
                connection.transport.abort()
            await asyncio.sleep(0)

    def _accept(self, listening):
        accepted, _ = listening.accept()
        connecting = self.loop.connect_accepted_socket(lambda: _Connection(self), accepted, ssl=self.tls)
        task = self.loop.create_task(connecting)
        self._accepted.add(task)
        task.add_done_callback(self._forget_task)

    def _forget_task(self, accepted):
        self._accepted.discard(accepted)
        accepted.exception()  # of a client that left at once, or did not believe the certificate

    async def answer(self, write, request):
        """Whether the connection stays."""
        method, path, headers, raw = request
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = raw
        fault = self._fault(raw)
        self.log.append(Seen(method, path, body, headers, fault))
        await asyncio.sleep(self.delay + 0.2 * (fault == "slow") + self.patience * (fault == "timeout"))
        if fault in ("timeout", "hangup"):
            return False
        status, extra, value = self._outcome(fault, path, body, headers)
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        if fault == "garbage":
            content = content[: len(content) // 2]
        length = {} if "transfer-encoding" in extra else {"content-length": len(content)}
        lines = {"content-type": "application/json"} | length | extra
        top = f"HTTP/1.1 {status} X\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items()) + "\r\n"
        end = 0 if method == "HEAD" else len(content) // 2 if fault == "cut" else len(content)
        write(top.encode() + content[:end])
        return fault != "cut" and extra.get("connection") != "close"

    def _outcome(self, fault, path, body, headers):
        if fault == "429":
            return 429, {"retry-after": "0.01"}, {"error": "too many requests"}
        if fault == "500":
            return 500, {}, b"Internal Server Error"
        outcome = self.respond(path, body, headers)
        return outcome if isinstance(outcome, tuple) else (200, {}, outcome)

    def _fault(self, raw):
        self._arrivals[raw] = number = self._arrivals.get(raw, -1) + 1
        digest = hashlib.sha256(f"{self.seed} {number} ".encode() + raw).digest()
        draw = int.from_bytes(digest[:6]) / 2**48
        for fault, share in self.faults.items():
            if draw < share:
                return fault
            draw -= share
        return ""


class _Connection(asyncio.Protocol):
    """One client's connection: a request at a time."""

    def __init__(self, server):
        self.server, self.data, self.task = server, bytearray(), None

    def connection_made(self, transport):
        self.transport = transport
        self.server.connections.add(self)

    def data_received(self, data):
        self.data += data
        self._begin()

    def eof_received(self):
        self.server.waiting.discard(self)

    def connection_lost(self, error):
        self.server.connections.discard(self)
        self.server.waiting.discard(self)
        if self.task:
            self.task.cancel()

    def _begin(self):
        request = None if self.task else self._request()
        if request:
            self.server.waiting.add(self)
            self.server.most_open = max(self.server.most_open, len(self.server.waiting))
            self.task = asyncio.ensure_future(self._answer(request))

    def _request(self):
        """Method, path, headers and content of the next request, once all of it is there."""
        top, blank, body = bytes(self.data).partition(b"\r\n\r\n")
        lines = top.decode("latin-1").split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines[1:])}
        size = int(headers.get("content-length", 0))
        if not blank or len(body) < size:
            return None
        del self.data[: len(top) + len(blank) + size]
        method, path, _ = lines[0].split(" ")
        return method, path, headers, body[:size]

    async def _answer(self, request):
        stays = False
        try:
            stays = await self.server.answer(self._write, request)
        finally:
            self.server.waiting.discard(self)
            self.task = None
            if not stays:
                self.transport.close()
        self._begin()

    def _write(self, content):
        if not self.transport.is_closing():
            self.transport.write(content)
