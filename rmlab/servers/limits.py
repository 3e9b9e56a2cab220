"""What holds requests back: a rate, a server that asks for time, a budget, a server that has gone."""

import time
from dataclasses import dataclass
from threading import Condition, Event, Lock

__all__ = ["Breaker", "Budget", "Pace", "Spent"]


@dataclass
class Spent:
    """What a client has used so far. `requests`: every try that was sent. `tokens`: charged, or reserved in doubt.

    `open`: requests without an answer yet, whose tokens are the most that they can cost.
    """

    requests: int = 0
    tokens: int = 0
    answered: int = 0
    failed: int = 0
    open: int = 0


class Pace:
    """At most `rate` requests in a second, evenly spread; none while the server has asked for time.

    `stop`: set when nobody waits for answers any more; it ends every pause.
    """

    def __init__(self, rate: float | None, stop: Event) -> None:
        self.stop = stop
        self._step = 1 / rate if rate else 0.0
        self._lock = Lock()
        self._next = self._held = 0.0

    def hold(self, seconds: float) -> None:
        """Send nothing for so long."""
        with self._lock:
            self._held = max(self._held, time.monotonic() + seconds)

    def turn(self) -> None:
        """Wait until one request may be sent."""
        with self._lock:
            turn = max(time.monotonic(), self._next)
            self._next = turn + self._step
        # A server may ask for more time while this request waits for its turn.
        while (wait := max(turn, self._held) - time.monotonic()) > 0 and not self.stop.wait(wait):
            pass


# One for all clients: a client that holds no lock can be copied and pickled.
_CHANGED = Condition()


class Budget:
    """Caps on requests and tokens; `spent` is shared by all streams of a client."""

    def __init__(self, spent: Spent, max_requests: int | None, max_tokens: int | None) -> None:
        self.spent, self.max_requests, self.max_tokens = spent, max_requests, max_tokens

    def reserve(self, tokens: int) -> str:
        """Take one request and its tokens out of the budget; the reason where they are not in it.

        Open requests may give tokens back, since they reserve the most that they can cost: they are waited for.
        """
        spent = self.spent
        with _CHANGED:
            while True:
                if self.max_requests is not None and spent.requests >= self.max_requests:
                    return f"not sent: max_requests={self.max_requests} are spent"
                if self.max_tokens is None or spent.tokens + tokens <= self.max_tokens:
                    break
                if not spent.open:
                    return f"not sent: {spent.tokens} of max_tokens={self.max_tokens} are spent, it may take {tokens}"
                _CHANGED.wait()
            spent.requests += 1
            spent.tokens += tokens
            spent.open += 1
        return ""

    def settle(self, reserved: int, charged: int) -> None:
        """An open request has ended; `charged` is what it cost."""
        with _CHANGED:
            self.spent.tokens += charged - reserved
            self.spent.open -= 1
            _CHANGED.notify_all()

    def note(self, *, answered: bool) -> None:
        """One item has ended."""
        with _CHANGED:
            self.spent.answered += answered
            self.spent.failed += not answered


class Breaker:
    """Stops sending when nothing is answered any more: `most` failures in a row."""

    def __init__(self, most: int) -> None:
        self._most, self._row, self._last = most, 0, ""

    def note(self, reason: str) -> None:
        """One item has ended; `reason` is empty where it was answered."""
        self._row, self._last = (self._row + 1 if reason else 0), reason

    @property
    def reason(self) -> str:
        """Why nothing is sent any more; empty while requests are sent."""
        if self._row < self._most:
            return ""
        return f"not sent: {self._row} requests in a row failed, the last one with: {self._last}"
