"""A server on loopback that answers as it is told, and now and then does what servers do on bad days."""

import asyncio
import hashlib
import json
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
    seconds that a "timeout" lasts.
    """

    def __init__(self, respond, *, faults=None, seed=0, delay=0.0, patience=2.0):
        assert set(faults or {}) <= set(FAULTS)
        self.respond, self.faults, self.seed = respond, faults or {}, seed
        self.delay, self.patience = delay, patience
        self.log, self.open, self.most_open = [], 0, 0
        self._arrivals = {}

    def __enter__(self):
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        self._thread.start()
        assert ready.wait(10)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    @property
    def url(self):
        return f"http://127.0.0.1:{self._port}"

    def bodies(self, path=None):
        """Bodies that arrived, in order."""
        return [seen.body for seen in self.log if path in (None, seen.path)]

    async def _serve(self, ready):
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        tasks = set()

        async def connected(reader, writer):
            tasks.add(task := asyncio.current_task())
            try:
                await self._connection(reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                pass
            finally:
                writer.close()
                tasks.discard(task)

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        ready.set()
        await self._stop.wait()
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Closed sockets are let go in a later turn of the loop.
        await asyncio.sleep(0.01)

    async def _connection(self, reader, writer):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = head[0].split(" ")
            headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
            raw = await reader.readexactly(int(headers.get("content-length", 0)))
            self.open += 1
            self.most_open = max(self.most_open, self.open)
            try:
                if not await self._answer(writer, method, path, headers, raw):
                    return
            finally:
                self.open -= 1

    async def _answer(self, writer, method, path, headers, raw):
        """Whether the connection stays."""
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = raw
        fault = self._fault(raw)
        self.log.append(Seen(method, path, body, headers, fault))
        await asyncio.sleep(self.delay + 0.2 * (fault == "slow"))
        if fault == "timeout":
            # The client gives up long before and asks something else, so this one is no longer one of those at once.
            self.open -= 1
            await asyncio.sleep(self.patience)
            self.open += 1
        if fault in ("timeout", "hangup"):
            return False
        status, extra, value = self._outcome(fault, path, body, headers)
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        if fault == "garbage":
            content = content[: len(content) // 2]
        lines = {"content-type": "application/json", "content-length": len(content)} | extra
        top = f"HTTP/1.1 {status} X\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items()) + "\r\n"
        writer.write(top.encode() + content[: len(content) // 2 if fault == "cut" else None])
        await writer.drain()
        return fault != "cut"

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
