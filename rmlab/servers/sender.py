"""The threads that send a stream's requests: tries, pauses, and the wait for a server
that is away.
"""

import math
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from rmlab.servers.http import (
    Connection,
    Failure,
    Reply,
    Request,
    read_key,
    ssl_context,
)
from rmlab.servers.limits import Budget, Pace, Stopped

if TYPE_CHECKING:
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
_MAX_FAILURES = 32
# Seconds between two tries of a server that is away.
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 10.0
# Refusals in a row from which on the server counts as away: a busy one refuses now and
# then.
_MIN_REFUSALS = 4
# Statuses after which another try may succeed, beside 5xx.
_TRY_AGAIN = (408, 425, 429)
# Statuses of servers that work and refuse one request, of texts that are too long say.
_REFUSED = (400, 413, 422)
# What `read` may raise for a reply that is not an answer.
_NO_ANSWER = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


@dataclass(frozen=True)
class Answer(Generic[T]):
    """What became of one request.

    `value`: what `read` made of the reply. `reason`: why there is no value, empty where
    there is one. `stopped`: nothing more is sent, now or later in this stream.
    """

    value: T | None
    reason: str = ""
    stopped: bool = False


class Sender(Generic[K, T]):
    """The threads of one stream, each with a connection of its own.

    Pools of many connections look through all of them for every request, and
    asynchronous clients cost two to three times the processor time.
    """

    def __init__(
        self,
        client: "Client",
        read: Callable[[K, Reply], T],
        explain: Callable[[Reply], str],
        reserve: int,
    ) -> None:
        import tenacity

        self._client = client
        self._read = read
        self._explain = explain
        self._key = ""
        if client.key is not None:
            self._key = read_key(client.key)
        self._budget = Budget(
            client.spent, client.max_requests, client.max_tokens, reserve
        )
        interval = 1 / client.rate if client.rate else 0.0
        self._pace = Pace(
            interval=interval,
            outage=client.outage,
            min_refusals=min(_MIN_REFUSALS, client.retries + 1),
        )
        self._n_failures = 0
        # Set when nobody waits for answers any more, and when the threads have ended.
        self._stop = threading.Event()
        self._closed = threading.Event()
        # Why nothing more is sent.
        self._over = ""
        # Held by the one thread that asks a server that is away.
        self._outage = threading.Lock()
        is_last = tenacity.stop_after_attempt(client.retries + 1)
        self._retry = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_may_succeed),
            stop=is_last | tenacity.stop_when_event_set(self._stop),
            wait=tenacity.wait_random_exponential(
                client.backoff, max=60 * client.backoff
            ),
            sleep=tenacity.sleep_using_event(self._stop),
            reraise=True,
        )

        # 64 threads that read the certificates at once take seconds.
        ssl_context()
        # By the thread that uses it.
        self._connections: dict[int, Connection] = {}
        self.threads = ThreadPoolExecutor(client.concurrency, "rmlab-requests")
        self._watch = threading.Thread(
            target=self._cut_overdue, name="rmlab-deadlines", daemon=True
        )
        self._watch.start()

    def close(self) -> None:
        """Send nothing more, and let go of replies that are on their way."""
        self._stop.set()
        self.threads.shutdown(cancel_futures=True)
        self._closed.set()
        self._watch.join()
        for connection in self._connections.values():
            connection.transport.close()

    def answer(self, key: K, request: Request) -> tuple[K, Answer[T]]:
        """Send one request until it is answered or has failed."""
        try:
            value = self._retry(self._try_through_outage, key, request)
        except Stopped as error:
            return key, Answer(None, self._hide_key(str(error)), stopped=True)
        except Failure as error:
            reason = self._hide_key(str(error))
            # Once the server has answered, refusals say nothing of other requests.
            if not (error.refused and self._client.spent.answered):
                self._count_failure(reason)
            return key, Answer(None, reason)
        self._n_failures = 0
        self._budget.count_answer()
        return key, Answer(value)

    def _count_failure(self, reason: str) -> None:
        """Send nothing more after many failures in a row."""
        self._n_failures += 1
        if self._n_failures >= max(_MAX_FAILURES, self._client.concurrency):
            failed = f"{self._n_failures} requests in a row failed"
            self._over = f"{failed}, the last one with: {reason}"

    def _stop_reason(self) -> str:
        if self._stop.is_set():
            return "nobody waits for it"
        return self._over

    def _cut_overdue(self) -> None:
        """Cut connections whose deadline has passed, and after the stop all on which a
        thread waits.
        """
        while not self._closed.wait(_WATCH_SECONDS):
            latest = math.inf if self._stop.is_set() else time.monotonic()
            for connection in list(self._connections.values()):
                if connection.deadline < latest:
                    connection.cut()

    def _try_through_outage(self, key: K, request: Request) -> T:
        """Try once; while the server is away, one thread asks it again and the others
        wait.
        """
        while True:
            with self._outage:
                pass
            try:
                return self._try(key, request)
            except Failure as failure:
                is_outage = failure.away and self._pace.is_away
                if not is_outage or not self._client.outage:
                    raise
                if self._outage.acquire(blocking=False):
                    try:
                        return self._ask_until_back(key, request, failure)
                    finally:
                        self._outage.release()

    def _ask_until_back(self, key: K, request: Request, failure: Failure) -> T:
        """Try until the server answers; raise Stopped at the end of the outage."""
        url = self._client.url
        began = self._pace.refused_since
        seconds = self._client.outage
        left = began + seconds - time.monotonic()
        if left > 0:
            wait = f"waiting for it up to {seconds:g} seconds (outage=)"
            _print_line(f"{url} is away ({failure}); {wait}")
        pause = _FIRST_PAUSE
        while left > 0:
            self._stop.wait(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                value = self._try(key, request)
            except Failure as error:
                if not error.away:
                    raise
                failure = error
            else:
                passed = time.monotonic() - began
                _print_line(f"{url} answers again after {passed:.0f} seconds")
                return value
            left = began + seconds - time.monotonic()
        self._over = f"the server was away for {seconds:g} seconds: {failure}"
        raise Stopped(f"not sent: {self._over}")

    def _try(self, key: K, request: Request) -> T:
        """Send a request once, and read its reply; raise Failure without a value."""
        connection = self._own_connection()
        self._pace.wait_for_turn(self._stop)
        self._budget.take(request.tokens, self._stop_reason)
        # A try without a reply may have been charged.
        n_charged = request.tokens
        reply = None
        try:
            reply = self._hide_key_in(connection.send(request))
            self._require_success(reply)
            if request.tokens:
                n_charged = _count_charged(reply, request.tokens)
            value = self._read_value(key, reply)
            self._pace.note_answer()
            return value
        except Failure as failure:
            if not failure.charged:
                n_charged = 0
            # A server that cannot be reached from the start is more likely a wrong
            # address than an outage.
            if reply is None and not self._client.spent.answered:
                failure.away = False
            self._pace.note_failure(failure)
            raise
        finally:
            self._budget.settle(request.tokens, n_charged)

    def _require_success(self, reply: Reply) -> None:
        """Raise Failure for a status other than success."""
        status = reply.status
        if 200 <= status < 300:
            return
        message = self._read_refusal(reply)
        if 300 <= status < 400:
            target = reply.headers.get("location", "nowhere").split("?")[0]
            message = f"redirected to {target}, which is not followed; give that as url"

        again = status in _TRY_AGAIN or status >= 500
        seconds = _read_seconds(reply.headers.get("retry-after", "0"))
        if again and seconds > _LONGEST_RETRY_AFTER:
            again = False
            message += f" (asks to wait {seconds:.0f} seconds)"
        wait = seconds if again else 0.0
        raise Failure(
            f"status {status}: {message}".removesuffix(": "),
            again=again,
            away=again and status == 503,
            refused=status in _REFUSED,
            charged=False,
            wait=wait,
        )

    def _read_refusal(self, reply: Reply) -> str:
        """The beginning of the reason, on one line; a proxy's reply is not in the
        server's form.
        """
        try:
            words = self._explain(reply).split()
        except _NO_ANSWER:
            words = reply.text().split()
        # What was read may hold a key that stood there in another form.
        text = self._hide_key(" ".join(words))
        return text[:_SHOWN_CHARACTERS]

    def _read_value(self, key: K, reply: Reply) -> T:
        try:
            return self._read(key, reply)
        except _NO_ANSWER as error:
            cause = f"{type(error).__name__}: {error}"
            form = f"the answer is not in the form that was asked for ({cause})"
            start = reply.content[:_SHOWN_CHARACTERS].decode("utf-8", "replace")
            raise Failure(f"{form}: {start!r}", again=True) from None

    def _own_connection(self) -> Connection:
        """This thread's connection."""
        thread = threading.get_ident()
        if thread not in self._connections:
            client = self._client
            connection = Connection(client.url, self._key, client.timeout)
            self._connections[thread] = connection
        return self._connections[thread]

    def _hide_key_in(self, reply: Reply) -> Reply:
        """The reply, which may repeat the key, without it."""
        if len(self._key) < _MIN_KEY_IN_REPLY:
            return reply
        content = reply.content.replace(self._key.encode(), _KEY_MARK.encode())
        return replace(reply, content=content)

    def _hide_key(self, message: str) -> str:
        return message.replace(self._key, _KEY_MARK) if self._key else message


def _may_succeed(error: BaseException) -> bool:
    """Whether another try may succeed."""
    return isinstance(error, Failure) and error.again


def _read_seconds(retry_after: str) -> float:
    """The seconds of a Retry-After header; 0 where it is a date."""
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        return 0.0


def _count_charged(reply: Reply, n_reserved: int) -> int:
    """The tokens that an OpenAI-compatible server says it charged, otherwise those
    reserved.
    """
    try:
        return int(reply.json()["usage"]["total_tokens"])
    except _NO_ANSWER:
        return n_reserved


def _print_line(message: str) -> None:
    """Show a line beside progress bars."""
    from tqdm import tqdm

    tqdm.write(message, file=sys.stderr)
