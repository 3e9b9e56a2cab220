"""What the requests to a server may cost, and when the next one may be sent."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rmlab.servers.http import Failure

# One for all clients: a client that holds no lock can be copied and pickled.
_CHANGED = threading.Condition()


class Stopped(Exception):
    """Nothing more is sent; the message says why."""


@dataclass
class Spent:
    """What a client has used so far.

    `requests`: every try that was sent. `tokens`: charged, or reserved in doubt.
    `open`: requests without an answer yet, whose tokens are the most that they can
    cost. `answered`: items with a value.
    """

    requests: int = 0
    tokens: int = 0
    answered: int = 0
    open: int = 0


@dataclass(frozen=True)
class Budget:
    """The requests and tokens that a stream may still spend.

    `reserve`: requests of the budget that the stream leaves for later.
    """

    spent: Spent
    max_requests: int | None
    max_tokens: int | None
    reserve: int

    def take(self, n_tokens: int, stop_reason: Callable[[], str]) -> None:
        """Take a request and its tokens out of the budget.

        Raises Stopped where the budget does not allow it, or for a `stop_reason`. Open
        requests reserve the most that they can cost, and may give tokens back: they are
        waited for.
        """
        with _CHANGED:
            _CHANGED.wait_for(
                lambda: not self.spent.open or not self._missing(n_tokens)
            )
            reason = stop_reason() or self._missing(n_tokens)
            if reason:
                raise Stopped(f"not sent: {reason}")
            self.spent.requests += 1
            self.spent.tokens += n_tokens
            self.spent.open += 1

    def settle(self, n_reserved: int, n_charged: int) -> None:
        """Count what an open request has cost."""
        with _CHANGED:
            self.spent.tokens += n_charged - n_reserved
            self.spent.open -= 1
            _CHANGED.notify_all()

    def count_answer(self) -> None:
        """Count an item with a value."""
        with _CHANGED:
            self.spent.answered += 1

    def _missing(self, n_tokens: int) -> str:
        """Why the budget is not enough; empty where it is."""
        n_requests = self.spent.requests + self.reserve
        if self.max_requests is not None and n_requests >= self.max_requests:
            return f"max_requests={self.max_requests} are spent"
        n_spent = self.spent.tokens
        if self.max_tokens is not None and n_spent + n_tokens > self.max_tokens:
            budget = f"{n_spent} of max_tokens={self.max_tokens} are spent"
            return f"{budget}, it may take {n_tokens}"
        return ""


@dataclass
class Pace:
    """When the next request may be sent.

    Requests are `interval` seconds apart. A server that refuses them may ask for a
    pause, but for none that is longer than an outage. After enough refusals in a row it
    counts as out of service since the first of them, at `refused_since`.
    """

    interval: float
    outage: float
    min_refusals: int
    n_refusals: int = 0
    refused_since: float = 0.0
    next_turn: float = 0.0
    paused_until: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def is_away(self) -> bool:
        """Whether the server counts as out of service."""
        return self.n_refusals >= self.min_refusals

    def wait_for_turn(self, stop: threading.Event) -> None:
        """Wait until the next request may be sent, or nobody waits for it."""
        with self.lock:
            turn = max(time.monotonic(), self.next_turn)
            self.next_turn = turn + self.interval
        while not stop.is_set():
            # A server may ask for more time while this request waits for its turn.
            seconds = max(turn, self.paused_until) - time.monotonic()
            if seconds <= 0:
                return
            stop.wait(seconds)

    def note_answer(self) -> None:
        """A request was answered: refusals are counted anew."""
        self.n_refusals = 0

    def note_failure(self, failure: Failure) -> None:
        """Count refusals in a row, and hold all requests for as long as the server
        asks.
        """
        now = time.monotonic()
        held_until = now + failure.wait
        with self.lock:
            if failure.away:
                self.n_refusals += 1
            else:
                self.n_refusals = 0
            if self.n_refusals == 1:
                self.refused_since = now
            if failure.away and self.outage:
                held_until = min(held_until, self.refused_since + self.outage)
            self.paused_until = max(self.paused_until, held_until)
