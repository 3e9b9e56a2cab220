"""An HTTP client for thousands of requests: each is answered exactly once, or reported
failed.
"""

import math
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from queue import SimpleQueue
from typing import Generic, TypeVar

from rmlab.records import install_command
from rmlab.servers.http import (
    Connection,
    Failure,
    Json,
    Reply,
    Request,
    check_url,
    read_key,
)
from rmlab.tables import DataError

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
# Seconds between two tries of a server that is away: the first pause, and the longest
# one.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
# Refusals in a row from which on the server counts as away: a busy one refuses now and
# then.
_MIN_REFUSALS = 4
# What `read` may raise for a reply that is not an answer.
_NO_ANSWER = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
_NOT_NEGATIVE = ("retries", "backoff", "max_requests", "max_tokens", "outage")
_MINIMUM = dict.fromkeys(_NOT_NEGATIVE, 0.0) | {
    "concurrency": 1.0,
    "rate": 0.001,
    "timeout": 0.001,
}
# One for all clients: a client that holds no lock can be copied and pickled.
_CHANGED = threading.Condition()


class _Stopped(Exception):
    """Nothing more is sent; the message says why."""


@dataclass(frozen=True)
class Answer(Generic[T]):
    """What became of one request.

    `value`: what `read` made of the reply. `reason`: why there is no value, empty where
    there is one. `stopped`: nothing more is sent, now or later in this stream.
    """

    value: T | None
    reason: str = ""
    stopped: bool = False


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
class Client:
    """Asks one server. Holds no connection between streams, so it can be copied and
    pickled.

    Parameters
    ----------
    url
        The server's address, without credentials or query.
    key
        Name of the environment variable that holds the server's key, sent to `url` and
        nowhere else (redirects are not followed); None sends none.
    concurrency, rate
        Requests at once, and in a second.
    retries, backoff, timeout
        Tries after the first one, for statuses 408, 425, 429 and 5xx, for timeouts, cut
        connections and replies that `read` refuses. Pauses grow from `backoff` seconds;
        a Retry-After header is honoured. `timeout`: seconds for a whole try.
    max_requests, max_tokens
        Budget over all streams of the client, tries included; `spent` says how much of
        it is used.
    outage
        Seconds for which all requests wait for a server that answers 503 several times
        in a row, or that cannot be reached after it had answered. 0 waits for nothing
        but the retries.

    Raises
    ------
    DataError
        For values that are not allowed; the message never repeats a key.
    """

    url: str
    key: str | None = None
    concurrency: int = 32
    rate: float | None = None
    retries: int = 5
    backoff: float = 0.5
    timeout: float = 120.0
    max_requests: int | None = None
    max_tokens: int | None = None
    outage: float = 600.0
    spent: Spent = field(default_factory=Spent, repr=False, compare=False)

    def __post_init__(self) -> None:
        if missing := [
            name for name in ("httpx", "tenacity") if find_spec(name) is None
        ]:
            raise ImportError(
                f"asking a server needs {', '.join(missing)}: run {install_command('judge')}"
            )
        object.__setattr__(self, "url", check_url(self.url))
        if self.key is not None and not self.key.isidentifier():
            raise DataError(
                "key: not the name of an environment variable; give a name such as 'OPENAI_API_KEY'"
            )
        for name, minimum in _MINIMUM.items():
            value = getattr(self, name)
            if value is not None and not value >= minimum:
                raise DataError(f"{name}={value!r}; allowed: {minimum:g} or more")

    def stream(
        self,
        items: Iterable[tuple[K, Request]],
        read: Callable[[K, Reply], T],
        *,
        reserve: int = 0,
    ) -> Generator[tuple[K, Answer[T]], None, None]:
        """Yield each item with its answer, as they arrive: a value or a reason, exactly
        once.

        `items` is iterated in the caller's thread, and no further than twice
        `concurrency` ahead of the answers that were taken: memory stays flat. The
        requests are sent by threads, so that a running event loop, as JupyterLab's,
        does not matter. Leaving early sends nothing more and closes connections whose
        replies are on their way.

        Parameters
        ----------
        items
            What each request is about, and the request.
        read
            Makes a value of an item's reply. Where it raises ValueError, LookupError or
            TypeError the reply is not an answer, and the request is tried again.
        reserve
            Requests of the budget that this stream leaves for later.
        """
        pending, n_open = iter(items), 0
        finished: SimpleQueue[Future[tuple[K, Answer[T]]]] = SimpleQueue()
        with closing(_Sender(self, read, reserve)) as sender:
            while True:
                while (
                    n_open < 2 * self.concurrency
                    and (item := next(pending, None)) is not None
                ):
                    sender.threads.submit(sender.answer, *item).add_done_callback(
                        finished.put
                    )
                    n_open += 1
                if not n_open:
                    return
                yield finished.get().result()
                n_open -= 1

    def ask(
        self, path: str, body: Json | bytes | None, read: Callable[[Reply], T]
    ) -> T:
        """Return the value of one request's reply; raise DataError with the reason
        where there is none.
        """
        with closing(
            self.stream([(None, Request(path, body))], lambda _, reply: read(reply))
        ) as answers:
            _, answer = next(answers)
        if answer.reason:
            raise DataError(f"{self.url}: {path} failed: {answer.reason}")
        return answer.value  # type: ignore[return-value]


class _Sender(Generic[K, T]):
    """The threads of one stream, each with a connection of its own.

    Pools of many connections look through all of them for every request, and
    asynchronous clients cost two to three times the processor time.
    """

    def __init__(
        self, client: Client, read: Callable[[K, Reply], T], reserve: int
    ) -> None:
        import tenacity

        self._client, self._read, self._reserve, self._key = (
            client,
            read,
            reserve,
            read_key(client.key),
        )
        # `_stop` is set when nobody waits for answers any more. `_over` says why
        # nothing more is sent.
        self._stop, self._closed, self._over = threading.Event(), threading.Event(), ""
        self._pace, self._next_turn, self._paused_until = threading.Lock(), 0.0, 0.0
        self._outage, self._n_failures = threading.Lock(), 0
        # Refusals in a row, and when the first of them came.
        self._n_refusals, self._refused_since = 0, 0.0
        self._min_refusals = min(_MIN_REFUSALS, client.retries + 1)
        self._retry = tenacity.Retrying(
            retry=tenacity.retry_if_exception(
                lambda error: isinstance(error, Failure) and error.again
            ),
            stop=tenacity.stop_after_attempt(client.retries + 1)
            | tenacity.stop_when_event_set(self._stop),
            wait=tenacity.wait_random_exponential(
                client.backoff, max=60 * client.backoff
            ),
            sleep=tenacity.sleep_using_event(self._stop),
            reraise=True,
        )
        # The first one is made here: 64 threads that import httpx at once take half a
        # second.
        self._local, self._connections = threading.local(), [self._connect()]
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
        for connection in self._connections:
            connection.close()

    def answer(self, key: K, request: Request) -> tuple[K, Answer[T]]:
        """Send one request until it is answered or has failed."""
        try:
            value = self._retry(self._outlast, key, request)
        except (Failure, _Stopped) as error:
            reason, is_stopped = str(error), isinstance(error, _Stopped)
            reason = reason.replace(self._key, _KEY_MARK) if self._key else reason
            if not is_stopped:
                self._n_failures += 1
                if self._n_failures >= max(_MAX_FAILURES, self._client.concurrency):
                    self._over = f"{self._n_failures} requests in a row failed, the last one with: {reason}"
            return key, Answer(None, reason, is_stopped)
        self._n_failures = 0
        with _CHANGED:
            self._client.spent.answered += 1
        return key, Answer(value)

    def _connect(self) -> Connection:
        return Connection(self._client.url, self._key, self._client.timeout)

    def _cut_overdue(self) -> None:
        """Cut connections whose deadline has passed, and after the stop all on which a
        thread waits.
        """
        while not self._closed.wait(_WATCH_SECONDS):
            latest = math.inf if self._stop.is_set() else time.monotonic()
            for connection in list(self._connections):
                if connection.deadline < latest:
                    connection.cut()

    def _outlast(self, key: K, request: Request) -> T:
        """Try once; while the server is away, one sender asks it again and the others
        wait.
        """
        while True:
            with self._outage:
                pass
            try:
                return self._try(key, request)
            except Failure as failure:
                if (
                    not failure.away
                    or not self._client.outage
                    or self._n_refusals < self._min_refusals
                ):
                    raise
                if self._outage.acquire(blocking=False):
                    try:
                        return self._ask_until_back(key, request, failure)
                    finally:
                        self._outage.release()

    def _ask_until_back(self, key: K, request: Request, failure: Failure) -> T:
        began, pause, seconds = self._refused_since, _FIRST_PAUSE, self._client.outage
        if began + seconds > time.monotonic():
            _tell(
                f"{self._client.url} is away ({failure}); waiting for it up to {seconds:g} seconds (outage=)"
            )
        while (left := began + seconds - time.monotonic()) > 0:
            self._stop.wait(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                value = self._try(key, request)
            except Failure as error:
                if not error.away:
                    raise
                failure = error
            else:
                _tell(
                    f"{self._client.url} answers again after {time.monotonic() - began:.0f} seconds"
                )
                return value
        self._over = f"the server was away for {seconds:g} seconds: {failure}"
        raise _Stopped(f"not sent: {self._over}")

    def _try(self, key: K, request: Request) -> T:
        self._acquire(request.tokens)
        charged, reply = (
            request.tokens,
            None,
        )  # a try without a reply may have been charged
        try:
            reply = self._exchange(request)
            if not 200 <= reply.status < 300:
                raise self._refusal(reply)
            if request.tokens:
                charged = _count_charged(reply, charged)
            value = self._read(key, reply)
            self._n_refusals = 0
            return value
        except Failure as failure:
            charged = charged if failure.charged else 0
            # A server that cannot be reached from the start is more likely a wrong
            # address than an outage.
            failure.away &= reply is not None or self._client.spent.answered > 0
            self._note_failure(failure)
            raise
        except _NO_ANSWER as error:
            start = (
                reply.content[:_SHOWN_CHARACTERS].decode("utf-8", "replace")
                if reply
                else ""
            )
            reason = f"the answer is not in the form that was asked for ({type(error).__name__}: {error}): {start!r}"
            raise Failure(reason, again=True) from None
        finally:
            with _CHANGED:
                self._client.spent.tokens += charged - request.tokens
                self._client.spent.open -= 1
                _CHANGED.notify_all()

    def _note_failure(self, failure: Failure) -> None:
        """Count refusals in a row, and hold all requests for as long as the server
        asks, but no outage for longer.
        """
        now = time.monotonic()
        held_until = now + failure.wait
        with self._pace:
            if not failure.away:
                self._n_refusals = 0
            else:
                self._n_refusals += 1
                if self._n_refusals == 1:
                    self._refused_since = now
                if self._client.outage:
                    held_until = min(
                        held_until, self._refused_since + self._client.outage
                    )
            self._paused_until = max(self._paused_until, held_until)

    def _acquire(self, tokens: int) -> None:
        """Wait until one request may be sent, and take it and its tokens out of the
        budget; raise if never.
        """
        with self._pace:
            turn = max(time.monotonic(), self._next_turn)
            self._next_turn = turn + (
                1 / self._client.rate if self._client.rate else 0.0
            )
        # A server may ask for more time while this request waits for its turn.
        while (
            wait := max(turn, self._paused_until) - time.monotonic()
        ) > 0 and not self._stop.wait(wait):
            pass
        spent = self._client.spent
        with _CHANGED:
            # Open requests reserve the most that they can cost, and may give tokens
            # back.
            _CHANGED.wait_for(
                lambda: not spent.open or not self._missing_budget(tokens)
            )
            over = (
                "nobody waits for it"
                if self._stop.is_set()
                else self._over or self._missing_budget(tokens)
            )
            if over:
                raise _Stopped(f"not sent: {over}")
            spent.requests += 1
            spent.tokens += tokens
            spent.open += 1

    def _missing_budget(self, tokens: int) -> str:
        client, spent = self._client, self._client.spent
        if (
            client.max_requests is not None
            and spent.requests + self._reserve >= client.max_requests
        ):
            return f"max_requests={client.max_requests} are spent"
        if client.max_tokens is not None and spent.tokens + tokens > client.max_tokens:
            return f"{spent.tokens} of max_tokens={client.max_tokens} are spent, it may take {tokens}"
        return ""

    def _exchange(self, request: Request) -> Reply:
        if not hasattr(self._local, "connection"):
            self._local.connection = self._connect()
            self._connections.append(self._local.connection)
        reply: Reply = self._local.connection.send(request)
        if len(self._key) < _MIN_KEY_IN_REPLY:
            return reply
        return replace(
            reply, content=reply.content.replace(self._key.encode(), _KEY_MARK.encode())
        )

    def _refusal(self, reply: Reply) -> Failure:
        """Return what a status other than success means."""
        message = " ".join(reply.content.decode("utf-8", "replace").split())[
            :_SHOWN_CHARACTERS
        ]
        if 300 <= reply.status < 400:
            target = reply.headers.get("location", "nowhere").split("?")[0]
            message = f"redirected to {target}, which is not followed; give that as url"
        again = reply.status in (408, 425, 429) or reply.status >= 500
        try:
            seconds = max(0.0, float(reply.headers.get("retry-after", "0")))
        except ValueError:  # a date
            seconds = 0.0
        if again and seconds > _LONGEST_RETRY_AFTER:
            again, message = False, f"{message} (asks to wait {seconds:.0f} seconds)"
        reason = f"status {reply.status}: {message}".removesuffix(": ")
        wait = seconds if again else 0.0
        return Failure(
            reason,
            again=again,
            away=again and reply.status == 503,
            charged=False,
            wait=wait,
        )


def _count_charged(reply: Reply, reserved: int) -> int:
    """Return the tokens that an OpenAI-compatible server says it charged, otherwise
    those reserved.
    """
    try:
        return int(reply.json()["usage"]["total_tokens"])
    except _NO_ANSWER:
        return reserved


def _tell(message: str) -> None:
    """Show a line beside progress bars."""
    from tqdm import tqdm

    tqdm.write(message, file=sys.stderr)
