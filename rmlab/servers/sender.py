"""The threads that send a stream's requests: tries, pauses, the budget, and the wait
for a server that is away.
"""

import math
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Generic, TypeVar

from rmlab.servers.http import (
    Connection,
    Failure,
    Reply,
    Request,
    find_proxy,
    read_key,
    ssl_context,
)

if TYPE_CHECKING:
    import tenacity

    from rmlab.servers.client import Client

K = TypeVar("K")
T = TypeVar("T")

_KEY_MARK = "[key]"
# A shorter key, such as "EMPTY", may be a part of an ordinary reply, which must stay as
# it is.
_MIN_KEY_IN_REPLY = 16
# Seconds that a server may ask for; more than this is a refusal for the day.
_LONGEST_RETRY_AFTER = 600.0
_SHOWN_CHARACTERS = 300
_WATCH_SECONDS = 0.1
# Items that fail in a row, each after all its tries, before the rest is not sent any
# more.
MAX_FAILURES = 32
# Seconds between two tries.
_LONGEST_PAUSE = 10.0
# Tries of one request after which the screen says that the server is away: a busy one
# refuses now and then.
_TRIES_BEFORE_NOTICE = 4
# Statuses after which another try may succeed, beside 5xx.
_TRY_AGAIN = (408, 425, 429)
# What `read` may raise for a reply that is not an answer.
_NO_ANSWER = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
# One for all clients: a client that holds no lock can be copied and pickled.
_CHANGED = threading.Condition()


@dataclass(frozen=True)
class Answer(Generic[T]):
    """The outcome of one request.

    `value`: what `read` made of the reply. `reason`: why there is no value, empty where
    there is one. `stopped`: nothing more is sent, now or later in this stream.
    """

    value: T | None
    reason: str = ""
    stopped: bool = False


@dataclass
class Spent:
    """What a client has used so far.

    `requests`: every try that was sent to a server in service. `tokens`: charged, or
    reserved in doubt. `open`: requests without an answer yet, whose tokens are the most
    that they can cost. `answered`: items with a value.
    """

    requests: int = 0
    tokens: int = 0
    answered: int = 0
    open: int = 0


class Stopped(Exception):
    """Nothing more is sent; the message says why."""


class Sender(Generic[K, T]):
    """The threads of one stream, each with a connection of its own.

    Pools of many connections look through all of them for every request, and
    asynchronous clients cost two to three times the processor time.
    """

    def __init__(
        self,
        client: "Client",
        read: Callable[[K, Reply], T],
        reserve: int,
        may_refuse_all: bool,
    ) -> None:
        import tenacity

        self._client = client
        self._read = read
        self._reserve = reserve
        # Statuses of servers that work and refuse one request, whose text is too long.
        self._refused = (400, 413, 422) if may_refuse_all else (413, 422)
        self._key = ""
        if client.key is not None:
            self._key = read_key(client.key)
        self._proxy = find_proxy(client.url)
        self._interval = 1 / client.rate if client.rate else 0.0
        self._next_turn = 0.0
        self._paused_until = 0.0
        self._n_failures = 0
        self._has_noted_outage = False
        # Why nothing more is sent.
        self._over = ""
        # Set when nobody waits for answers any more, and when the threads have ended.
        self._stop = threading.Event()
        self._closed = threading.Event()
        pause = tenacity.wait_random_exponential(client.backoff, max=_LONGEST_PAUSE)
        sleep = tenacity.sleep_using_event(self._stop)
        is_stopped = tenacity.stop_when_event_set(self._stop)
        # A server that is away is waited for; other failures have a number of tries.
        self._retry_away = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_away),
            stop=tenacity.stop_after_delay(client.outage) | is_stopped,
            wait=pause,
            sleep=sleep,
            before_sleep=self._note_outage,
            reraise=True,
        )
        self._retry = tenacity.Retrying(
            retry=tenacity.retry_if_exception(self._may_succeed),
            stop=tenacity.stop_after_attempt(client.retries + 1) | is_stopped,
            wait=pause,
            sleep=sleep,
            reraise=True,
        )

        # 64 threads that read the certificates at once take seconds.
        ssl_context()
        # By the thread that uses it.
        self._connections: dict[int, Connection] = {}
        self.threads = ThreadPoolExecutor(
            client.concurrency, "rmlab-requests", initializer=self._connect
        )
        self._watch = threading.Thread(
            target=self._cut_overdue, name="rmlab-deadlines", daemon=True
        )
        self._watch.start()

    def _connect(self) -> None:
        """Make this thread's connection."""
        client = self._client
        connection = Connection(client.url, self._key, client.timeout, self._proxy)
        self._connections[threading.get_ident()] = connection

    def close(self) -> None:
        """Send nothing more, and let go of replies that are on their way."""
        self._stop.set()
        with _CHANGED:
            _CHANGED.notify_all()
        self.threads.shutdown(cancel_futures=True)
        self._closed.set()
        self._watch.join()
        for connection in self._connections.values():
            connection.transport.close()

    def answer(self, key: K, request: Request) -> tuple[K, Answer[T]]:
        """Send one request until it is answered or has failed."""
        spent = self._client.spent
        try:
            value = self._retry(self._retry_away, self._try, key, request)
        except Stopped as error:
            return key, Answer(None, f"not sent: {error}", stopped=True)
        except Failure as failure:
            reason = self._describe(failure)
            if failure.away and self._client.outage:
                seconds = self._client.outage
                self._over = f"the server was away for {seconds:g} seconds: {reason}"
                return key, Answer(None, f"not sent: {self._over}", stopped=True)
            # Once the server has answered, refusals say nothing of other requests.
            if not (failure.refused and spent.answered):
                self._n_failures += 1
            if self._n_failures >= max(MAX_FAILURES, self._client.concurrency):
                failed = f"{self._n_failures} requests in a row failed"
                self._over = f"{failed}, the last one with: {reason}"
            return key, Answer(None, reason)
        self._n_failures = 0
        with _CHANGED:
            spent.answered += 1
        return key, Answer(value)

    def _try(self, key: K, request: Request) -> T:
        """Send a request once, and read its reply; raise Failure without a value."""
        connection = self._connections[threading.get_ident()]
        self._wait_for_turn()
        self._take(request.tokens)
        # A try without a reply may have been charged.
        n_charged = request.tokens
        is_away = False
        try:
            reply = connection.send(request)
            if len(self._key) >= _MIN_KEY_IN_REPLY:
                content = reply.content.replace(self._key.encode(), _KEY_MARK.encode())
                reply = replace(reply, content=content)
            self._require_success(reply)
            if request.tokens:
                n_charged = _count_charged(reply, request.tokens)
            return self._read_value(key, reply)
        except Failure as failure:
            if not failure.charged:
                n_charged = 0
            # A server that cannot be reached from the start is more likely a wrong
            # address than an outage.
            if failure.unreached and not self._client.spent.answered:
                failure.away = False
            is_away = failure.away
            self._hold(failure)
            raise
        finally:
            spent = self._client.spent
            with _CHANGED:
                spent.open -= 1
                spent.requests -= is_away
                spent.tokens += n_charged - request.tokens
                _CHANGED.notify_all()

    def _take(self, n_tokens: int) -> None:
        """Count a request that is about to be sent; raise Stopped where none may be.

        Open requests reserve the most that they can cost, and may give tokens back:
        they are waited for.
        """
        spent = self._client.spent
        with _CHANGED:
            _CHANGED.wait_for(
                lambda: (
                    self._stop.is_set() or not spent.open or not self._missing(n_tokens)
                )
            )
            reason = self._over or self._missing(n_tokens)
            if self._stop.is_set():
                reason = "nobody waits for it"
            if reason:
                raise Stopped(reason)
            spent.open += 1
            spent.requests += 1
            spent.tokens += n_tokens

    def _missing(self, n_tokens: int) -> str:
        """Why the budget is not enough; empty where it is."""
        client = self._client
        n_requests = client.spent.requests + self._reserve
        if client.max_requests is not None and n_requests >= client.max_requests:
            return f"max_requests={client.max_requests} are spent"
        n_spent = client.spent.tokens
        if client.max_tokens is not None and n_spent + n_tokens > client.max_tokens:
            return f"{n_spent} of max_tokens={client.max_tokens} are spent"
        return ""

    def _wait_for_turn(self) -> None:
        """Wait until the next request may be sent, or nobody waits for it."""
        with _CHANGED:
            turn = max(time.monotonic(), self._next_turn)
            self._next_turn = turn + self._interval
        while not self._stop.is_set():
            # A server may ask for more time while this request waits for its turn.
            seconds = max(turn, self._paused_until) - time.monotonic()
            if seconds <= 0:
                return
            self._stop.wait(seconds)

    def _hold(self, failure: Failure) -> None:
        """Send nothing for as long as the server asks, and no longer than an outage."""
        seconds = failure.wait
        if failure.away and self._client.outage:
            seconds = min(seconds, self._client.outage)
        with _CHANGED:
            now = time.monotonic()
            self._paused_until = max(self._paused_until, now + seconds)

    def _may_succeed(self, error: BaseException) -> bool:
        """Whether another try may succeed; a server that is away has had its time."""
        is_late = _is_away(error) and self._client.outage > 0
        return isinstance(error, Failure) and error.again and not is_late

    def _note_outage(self, state: "tenacity.RetryCallState") -> None:
        """Say on the screen, once, that the server is away."""
        if state.attempt_number < _TRIES_BEFORE_NOTICE:
            return
        with _CHANGED:
            is_first = not self._has_noted_outage
            self._has_noted_outage = True
        if is_first:
            from tqdm import tqdm

            wait = f"waiting up to {self._client.outage:g} seconds (outage=)"
            # A line beside progress bars.
            tqdm.write(f"{self._client.url} is away; {wait}", file=sys.stderr)

    def _cut_overdue(self) -> None:
        """Cut connections whose deadline has passed, and after the stop all on which a
        thread waits.
        """
        while not self._closed.wait(_WATCH_SECONDS):
            latest = math.inf if self._stop.is_set() else time.monotonic()
            for connection in list(self._connections.values()):
                if connection.deadline < latest:
                    connection.cut()

    def _require_success(self, reply: Reply) -> None:
        """Raise Failure for a status other than success."""
        status = reply.status
        if 200 <= status < 300:
            return
        message = " ".join(reply.text().split())
        if 300 <= status < 400:
            target = reply.headers.get("location", "nowhere").split("?")[0]
            message = f"redirected to {target}, which is not followed; give that as url"

        again = status in _TRY_AGAIN or status >= 500
        seconds = _read_seconds(reply.headers.get("retry-after", "0"))
        if again and seconds > _LONGEST_RETRY_AFTER:
            again = False
            message = f"asks to wait {seconds:.0f} seconds. {message}"
        raise Failure(
            f"status {status}: {message}",
            again=again,
            away=again and status == 503,
            refused=status in self._refused,
            charged=False,
            wait=seconds if again else 0.0,
        )

    def _read_value(self, key: K, reply: Reply) -> T:
        try:
            return self._read(key, reply)
        except _NO_ANSWER as error:
            cause = f"{type(error).__name__}: {error}"
            form = f"the answer is not in the form that was asked for ({cause})"
            raise Failure(f"{form}: {reply.text()}", again=True) from None

    def _describe(self, failure: Failure) -> str:
        """The beginning of the reason, which a server may have written: without the
        key.
        """
        reason = failure.reason.replace(self._key or _KEY_MARK, _KEY_MARK)
        return reason[:_SHOWN_CHARACTERS]


def _is_away(error: BaseException) -> bool:
    return isinstance(error, Failure) and error.away


def _read_seconds(retry_after: str) -> float:
    """The seconds of a Retry-After header, a number or a date; 0 for anything else."""
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        date = parsedate_to_datetime(retry_after)
    except ValueError:
        return 0.0
    # A date without a zone is UTC.
    seconds = date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)
    return max(0.0, seconds.total_seconds())


def _count_charged(reply: Reply, n_reserved: int) -> int:
    """The tokens that an OpenAI-compatible server says it charged, otherwise those
    reserved.
    """
    try:
        return int(reply.json()["usage"]["total_tokens"])
    except _NO_ANSWER:
        return n_reserved
