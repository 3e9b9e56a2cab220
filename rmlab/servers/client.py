"""An HTTP client for thousands of requests: each is answered exactly once, or reported
failed.
"""

import math
import sys
import threading
import time
from collections.abc import Callable, Container, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Generic, TypedDict, TypeVar

from rmlab.records import install_command
from rmlab.servers.http import (
    Exchange,
    Failure,
    Json,
    Reply,
    Request,
    build_message,
    check_url,
    find_proxy,
    read_key,
)
from rmlab.tables import DataError

if TYPE_CHECKING:
    import tenacity

K = TypeVar("K")
T = TypeVar("T")

# Seconds that a server may ask for; more than this is a refusal for the day.
_LONGEST_RETRY_AFTER = 600.0
_SHOWN_CHARACTERS = 300
# A shorter key, such as "EMPTY", may be a part of an ordinary reply, which must stay as
# it is.
_MIN_KEY_IN_REPLY = 16
# Seconds between two looks at the deadlines.
_LOOK_SECONDS = 0.1
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
# One for all clients: a client that holds no lock can be copied and pickled.
_LOCK = threading.Lock()


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

    `requests`: every try that was sent to a server in service. `answered`: items with a
    value.
    """

    requests: int = 0
    answered: int = 0


class ClientOptions(TypedDict, total=False):
    """The options of `Client`, which `rmlab.remote` and `rmlab.judge` take as well."""

    key: str | None
    concurrency: int
    retries: int
    backoff: float
    timeout: float
    max_requests: int | None
    outage: float


@dataclass
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
    concurrency
        Requests at once.
    retries, backoff, timeout
        Tries after the first one, for statuses 408, 425, 429 and 5xx, for timeouts, cut
        connections and replies that `read` refuses. Pauses grow from `backoff` seconds;
        a Retry-After header is honoured. `timeout`: seconds for a whole try.
    max_requests
        Budget over all streams of the client, tries included; `spent` says how much of
        it is used.
    outage
        Seconds for which a request is tried again while the server answers 503, or
        cannot be reached after it had answered. 0 waits for nothing but the retries.

    Raises
    ------
    DataError
        For values that are not allowed; the message never repeats a key.
    """

    url: str
    key: str | None = None
    concurrency: int = 32
    retries: int = 5
    backoff: float = 0.5
    timeout: float = 120.0
    max_requests: int | None = None
    outage: float = 600.0
    spent: Spent = field(default_factory=Spent, repr=False, compare=False)

    def __post_init__(self) -> None:
        if find_spec("httpx") is None or find_spec("tenacity") is None:
            command = install_command("judge")
            raise ImportError(
                f"asking a server needs httpx and tenacity: run {command}"
            )
        self.url = check_url(self.url)
        if self.key and not self.key.isidentifier():
            raise DataError(
                "key: not the name of an environment variable",
                "pass a name such as 'OPENAI_API_KEY'",
            )
        for name in ("concurrency", "timeout"):
            value = getattr(self, name)
            if not value > 0:
                raise DataError(f"{name}={value!r}", "allowed: more than 0")

    def stream(
        self,
        items: Iterable[tuple[K, Request]],
        read: Callable[[K, Reply], T],
        *,
        refusals: Container[int] = (413, 422),
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
            A key for each request, and the request.
        read
            Makes a value of an item's reply. Where it raises an exception the reply is
            not an answer, and the request is tried again.
        refusals
            Statuses that concern one request, such as that its text is too long: once
            the server has answered, any number of them in a row does not end the
            stream, as 32 other failures do.
        """
        pending = iter(items)
        with closing(Sender(self, read, refusals)) as sender:
            while True:
                n_free = 2 * self.concurrency - sender.n_open
                for key, request in islice(pending, n_free):
                    sender.submit(key, request)
                if not sender.n_open:
                    return
                yield sender.next_finished().result()

    def ask(
        self, path: str, body: Json | bytes | None, read: Callable[[Reply], T]
    ) -> T:
        """Return the value of one request's reply; raise DataError with the reason
        where there is none.
        """
        items = [(None, Request(path, body))]
        ((_, answer),) = self.stream(items, lambda _, reply: read(reply))
        if answer.reason:
            raise DataError(f"{self.url}: {path} failed: {answer.reason}")
        return answer.value  # type: ignore[return-value]


class Sender(Generic[K, T]):
    """The threads of one stream.

    Asynchronous clients cost two to three times the processor time.
    """

    def __init__(
        self, client: Client, read: Callable[[K, Reply], T], refusals: Container[int]
    ) -> None:
        import tenacity

        self._client = client
        self._read = read
        self._refusals = refusals
        self._key = read_key(client.key) if client.key else ""
        # Nothing is sent before this time.
        self._quiet_until = 0.0
        self._n_failures = 0
        # Why nothing more is sent.
        self._over = ""
        # Set when nobody waits for answers any more.
        self._stop = threading.Event()
        # Held once the screen says that the server is away.
        self._notice = threading.Lock()
        self._retry = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda e: getattr(e, "again", False)),
            stop=self._is_last_try,
            wait=tenacity.wait_random_exponential(client.backoff, max=_LONGEST_PAUSE),
            sleep=tenacity.sleep_using_event(self._stop),
            reraise=True,
        )

        self._proxy = find_proxy(client.url)
        self._open: set[Exchange] = set()
        self._threads = ThreadPoolExecutor(client.concurrency, "rmlab-requests")
        self.n_open = 0
        self._finished: SimpleQueue[Future[tuple[K, Answer[T]]]] = SimpleQueue()

    def submit(self, key: K, request: Request) -> None:
        """Send a request as soon as a thread is free."""
        future = self._threads.submit(self._answer, key, request)
        future.add_done_callback(self._finished.put)
        self.n_open += 1

    def next_finished(self) -> "Future[tuple[K, Answer[T]]]":
        """Wait for a request to end; cut connections whose deadline has passed, and
        after the stop all on which a thread waits.
        """
        while True:
            with suppress(Empty):
                future = self._finished.get(timeout=_LOOK_SECONDS)
                self.n_open -= 1
                return future
            latest = math.inf if self._stop.is_set() else time.monotonic()
            for exchange in self._open.copy():
                if exchange.deadline < latest:
                    exchange.cut()

    def close(self) -> None:
        """Send nothing more, and let go of replies that are on their way."""
        self._stop.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        while self.n_open:
            self.next_finished()
        self._threads.shutdown()

    def _answer(self, key: K, request: Request) -> tuple[K, Answer[T]]:
        """Send one request until it is answered or has failed."""
        try:
            value = self._retry(self._try, key, request)
        except Failure as failure:
            return key, self._give_up(failure)
        self._n_failures = 0
        return key, Answer(value)

    def _give_up(self, failure: Failure) -> Answer[T]:
        """Count a request that has failed after all its tries."""
        client = self._client
        reason = failure.reason[:_SHOWN_CHARACTERS]
        if failure.away:
            self._over = f"the server was away for {client.outage:g} seconds: {reason}"
        # Once the server has answered, refusals say nothing of other requests.
        elif not (self._over or (failure.refused and client.spent.answered)):
            self._n_failures += 1
            if self._n_failures >= max(MAX_FAILURES, client.concurrency):
                failed = f"{self._n_failures} requests in a row failed"
                self._over = f"{failed}, the last one with: {reason}"
        if self._over:
            return Answer(None, f"not sent: {self._over}", stopped=True)
        return Answer(None, reason)

    def _try(self, key: K, request: Request) -> T:
        """Send a request once, and read its reply; raise Failure without a value."""
        self._take_turn()
        client = self._client
        message = build_message(request, client.url, self._key, client.timeout)
        exchange = Exchange(message, client.timeout, self._proxy)
        self._open.add(exchange)
        is_reached = False
        try:
            reply = exchange.send()
            is_reached = True
            if len(self._key) >= _MIN_KEY_IN_REPLY:
                content = reply.content.replace(self._key.encode(), b"[key]")
                reply = replace(reply, content=content)
            self._require_success(reply)
            value = self._read_value(key, reply)
            with _LOCK:
                client.spent.answered += 1
            return value
        except Failure as failure:
            self._note_failure(failure, is_reached)
            raise
        finally:
            self._open.remove(exchange)

    def _take_turn(self) -> None:
        """Wait until a request may be sent, and count it; raise Failure where none may
        be sent any more.
        """
        client = self._client
        self._stop.wait(max(0.0, self._quiet_until - time.monotonic()))
        with _LOCK:
            n_requests = client.spent.requests
            if client.max_requests is not None and n_requests >= client.max_requests:
                self._over = self._over or f"max_requests={n_requests} are spent"
            if self._over or self._stop.is_set():
                raise Failure(self._over, again=False)
            client.spent.requests += 1

    def _note_failure(self, failure: Failure, is_reached: bool) -> None:
        """Leave the server alone for as long as it asks.

        One that cannot be reached from the start is more likely a wrong address than an
        outage.
        """
        spent = self._client.spent
        outage = self._client.outage
        failure.away &= outage > 0 and (is_reached or spent.answered > 0)
        if failure.away:
            failure.wait = min(failure.wait, outage)
        with _LOCK:
            spent.requests -= failure.away
            end = time.monotonic() + failure.wait
            self._quiet_until = max(self._quiet_until, end)

    def _is_last_try(self, state: "tenacity.RetryCallState") -> bool:
        """Whether a request that has failed is not sent again.

        A server that is away is waited for; other failures have a number of tries.
        """
        n_tries = state.attempt_number
        failure = state.outcome.exception()  # type: ignore[union-attr]
        if self._stop.is_set() or not getattr(failure, "away", False):
            return self._stop.is_set() or n_tries > self._client.retries
        is_due = n_tries >= _TRIES_BEFORE_NOTICE
        if is_due and self._notice.acquire(blocking=False):
            from tqdm import tqdm

            wait = f"waiting up to {self._client.outage:g} seconds (outage=)"
            # A line beside progress bars.
            tqdm.write(f"{self._client.url} is away; {wait}", file=sys.stderr)
        return (state.seconds_since_start or 0.0) > self._client.outage

    def _require_success(self, reply: Reply) -> None:
        """Raise Failure for a status other than success."""
        status = reply.status
        if 200 <= status < 300:
            return
        message = " ".join(reply.text().split())
        if 300 <= status < 400:
            target = reply.headers.get("location", "").partition("?")[0]
            message = f"redirects to {target!r} are not followed; pass that as url"
        again = status in _TRY_AGAIN or status >= 500
        seconds = _read_seconds(reply.headers.get("retry-after", "0"))
        if seconds > _LONGEST_RETRY_AFTER:
            message = f"asks to wait {seconds:.0f} seconds. {message}"
            again = False
        raise Failure(
            f"status {status}: {message}",
            again=again,
            away=again and status == 503,
            refused=status in self._refusals,
            wait=seconds * again,
        )

    def _read_value(self, key: K, reply: Reply) -> T:
        try:
            return self._read(key, reply)
        except Failure:
            raise
        # A kind of server, or a judge, may meet anything in a reply.
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
            form = f"the answer is not in the form that was asked for ({cause})"
            raise Failure(f"{form}: {reply.text()}") from None


def _read_seconds(retry_after: str) -> float:
    """The seconds of a Retry-After header, a number or a date; 0 for anything else."""
    with suppress(ValueError):
        return max(0.0, float(retry_after))
    with suppress(ValueError):
        date = parsedate_to_datetime(retry_after)
        return max(0.0, date.timestamp() - time.time())
    return 0.0
