"""An HTTP client for thousands of requests: each is answered exactly once, or reported
failed.
"""

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import islice
from queue import SimpleQueue
from typing import TypedDict, TypeVar

from rmlab.records import install_command
from rmlab.servers.http import Json, Reply, Request, check_url
from rmlab.servers.sender import Answer, Sender, Spent
from rmlab.tables import DataError

K = TypeVar("K")
T = TypeVar("T")

_LEAST = {
    "retries": 0.0,
    "backoff": 0.0,
    "max_requests": 0.0,
    "max_tokens": 0.0,
    "outage": 0.0,
    "concurrency": 1.0,
    "rate": 0.001,
    "timeout": 0.001,
}


class ClientOptions(TypedDict, total=False):
    """The options of `Client`, which `rmlab.remote` and `rmlab.judge` take as well."""

    key: str | None
    concurrency: int
    rate: float | None
    retries: int
    backoff: float
    timeout: float
    max_requests: int | None
    max_tokens: int | None
    outage: float


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
    rate: float | None = None
    retries: int = 5
    backoff: float = 0.5
    timeout: float = 120.0
    max_requests: int | None = None
    max_tokens: int | None = None
    outage: float = 600.0
    spent: Spent = field(default_factory=Spent, repr=False, compare=False)

    def __post_init__(self) -> None:
        if find_spec("httpx") is None or find_spec("tenacity") is None:
            command = install_command("judge")
            raise ImportError(
                f"asking a server needs httpx and tenacity: run {command}"
            )
        object.__setattr__(self, "url", check_url(self.url))
        if self.key is not None and not self.key.isidentifier():
            raise DataError(
                "key: not the name of an environment variable",
                "give a name such as 'OPENAI_API_KEY'",
            )
        for name, minimum in _LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= minimum:
                problem = f"{name}={value!r}"
                raise DataError(problem, f"allowed: {minimum:g} or more")

    def stream(
        self,
        items: Iterable[tuple[K, Request]],
        read: Callable[[K, Reply], T],
        *,
        reserve: int = 0,
        may_refuse_all: bool = False,
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
        may_refuse_all
            Whether status 400 is about one text, so that any number of them in a row
            does not end the stream, as 32 other failures do.
        """
        pending = iter(items)
        finished: SimpleQueue[Future[tuple[K, Answer[T]]]] = SimpleQueue()
        n_open = 0
        sender = Sender(self, read, reserve, may_refuse_all)
        with closing(sender):
            while True:
                for key, request in islice(pending, 2 * self.concurrency - n_open):
                    future = sender.threads.submit(sender.answer, key, request)
                    future.add_done_callback(finished.put)
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
        items = [(None, Request(path, body))]
        ((_, answer),) = self.stream(items, lambda _, reply: read(reply))
        if answer.reason:
            raise DataError(f"{self.url}: {path} failed: {answer.reason}")
        return answer.value  # type: ignore[return-value]
