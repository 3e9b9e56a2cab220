"""A server on loopback that answers as it is told, and now and then does what servers
do on bad days.
"""

import hashlib
import json
import socket
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer

FAULTS = ("429", "500", "timeout", "cut", "garbage", "slow", "hangup")
REFUSALS = {
    "429": (429, {"retry-after": "0.01"}, {"error": "too many requests"}),
    "500": (500, {}, b"Internal error"),
}


WAIT = 300  # seconds, for anything


@dataclass(frozen=True)
class Seen:
    """One request as it arrived. `body`: parsed, or the bytes where it is not JSON.
    `fault`: what was done to it.
    """

    method: str
    path: str
    body: object
    headers: dict
    fault: str


class FaultyServer(ThreadingTCPServer):
    """`respond(path, body, headers)` gives the JSON value of an answer, or (status,
    headers, JSON value or bytes).

    `faults`: how often each of FAULTS happens, as shares of 1. The n-th arrival of a
    body meets a fault that depends on the body and n alone, whatever else arrives when;
    a "timeout" lasts until the client leaves. `delay`: seconds before every answer.
    `most_open`: the most requests that were worked on at once. `port`: 0 takes a free
    one. `repeats`: seconds after its answer at which the n-th request gets the same
    answer again.
    """

    allow_reuse_address = True
    request_queue_size = 100

    def __init__(self, respond, *, faults=None, delay=0.0, port=0, repeats=None):
        self.respond = respond
        self.faults = faults or {}
        self.delay = delay
        self.port = port
        self.repeats = repeats or {}
        self.log = []
        self.connections = []
        self.n_open = self.most_open = 0
        self.arrivals = Counter()
        self.lock = threading.Lock()

    def __enter__(self):
        super().__init__(("127.0.0.1", self.port), _Handler)
        # A client that has left between select and accept leaves nothing to accept.
        self.socket.settimeout(1)
        self.port = self.server_address[1]
        self.thread = threading.Thread(target=self.serve_forever, args=[0.01])
        self.thread.daemon = True
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        for connection in self.connections:
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        self.server_close()
        self.thread.join()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def wait_for(self, n_requests, run):
        """Wait until so many requests have come, or the process that asks has ended."""
        last = time.monotonic() + WAIT
        while len(self.log) < n_requests and run.poll() is None:
            if time.monotonic() > last:
                run.kill()
                raise TimeoutError(f"{len(self.log)} requests in {WAIT} seconds")
            time.sleep(0.001)

    def bodies(self, path=None):
        """Bodies that arrived, in order."""
        return [seen.body for seen in self.log if path in (None, seen.path)]

    def get_request(self):
        connection, address = super().get_request()
        self.connections.append(connection)
        return connection, address

    def handle_error(self, request, address):
        if not isinstance(sys.exception(), OSError):  # a client that left
            super().handle_error(request, address)

    def draw_fault(self, raw):
        digest = hashlib.sha256(f"{self.arrivals[raw]} ".encode() + raw).digest()
        self.arrivals[raw] += 1
        draw = int.from_bytes(digest[:6]) / 2**48
        for fault, share in self.faults.items():
            if draw < share:
                return fault
            draw -= share
        return ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = WAIT

    def answer(self):
        server = self.server
        length = int(self.headers.get("content-length", 0))
        raw = self.rfile.read(length)
        if len(raw) < length:
            raise ConnectionError("the client left")
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = raw or None
        with suppress(ValueError):
            body = json.loads(raw)
        with server.lock:
            fault = server.draw_fault(raw)
            server.log.append(Seen(self.command, self.path, body, headers, fault))
            pause = server.repeats.get(len(server.log))
            server.n_open += 1
            server.most_open = max(server.most_open, server.n_open)
        time.sleep(server.delay + 0.2 * (fault == "slow"))
        self.close_connection = fault in ("timeout", "hangup", "cut")
        with server.lock:
            server.n_open -= 1
            outcome = REFUSALS.get(fault) or server.respond(self.path, body, headers)
        if fault == "timeout":
            self.connection.recv(1)
        if fault in ("timeout", "hangup"):
            return

        if not isinstance(outcome, tuple):
            outcome = 200, {}, outcome
        reply = self.format_reply(fault, *outcome)
        self.wfile.write(2 * reply if pause == 0 else reply)
        if pause:
            time.sleep(pause)
            self.wfile.write(reply)

    do_GET = do_POST = do_HEAD = do_CONNECT = answer

    def format_reply(self, fault, status, extra, value):
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        half = len(content) // 2
        if fault == "garbage":
            content = content[:half]
        headers = {"content-type": "application/json", "content-length": len(content)}
        lines = [f"{name}: {text}" for name, text in (headers | extra).items()]
        if fault == "cut":
            content = content[:half]
        if self.command == "HEAD":
            content = b""
        return "\r\n".join([f"HTTP/1.1 {status} X", *lines, "\r\n"]).encode() + content
