"""One request until it is answered or has failed: tries, pauses, and what each outcome means."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

from rmlab.servers.address import Address
from rmlab.servers.connection import LARGEST, Broken, Connection
from rmlab.servers.limits import Breaker, Budget, Pace
from rmlab.servers.wire import Reply, Request

if TYPE_CHECKING:
    from tenacity import Retrying

__all__ = ["Answer", "Sender"]

T = TypeVar("T")

_LATER = (408, 425, 429)
# Seconds that a server may ask for; more than this is a refusal for the day.
_PATIENCE = 600.0
_SHOWN = 300
_ALWAYS = {"content-type": "application/json", "accept": "*/*", "user-agent": "rmlab"}


@dataclass(frozen=True)
class Answer(Generic[T]):
    """What became of one request. `index`: that of the request. `value`: what `read` made of the reply.

    `reason`: why there is no value, empty where there is one. `tries`: how often it was sent, 0 for never.
    """

    index: int
    value: T | None
    reason: str
    tries: int


class _Again(Exception):
    """This try failed; another may succeed."""


class _Failed(Exception):
    """No further try can succeed."""


class _Refused(Exception):
    """The server refused the request, and so has not charged for it."""

    def __init__(self, outcome: _Again | _Failed) -> None:
        self.outcome = outcome


@dataclass(frozen=True)
class Sender(Generic[T]):
    """Sends the requests of one stream. `read` makes a value of a reply and raises ValueError where it is none."""

    address: Address
    read: Callable[[Reply], T]
    pace: Pace
    budget: Budget
    breaker: Breaker
    retries: int
    backoff: float
    timeout: float

    def __call__(self, line: Connection, request: Request) -> Answer[T]:
        """The answer to one request, whatever happens to it."""
        tries = 0

        def once() -> T:
            nonlocal tries
            self._require_turn(request)
            tries += 1
            return self._try(line, request)

        try:
            value = self._until_answered(once)
        except (_Again, _Failed) as error:
            return self._ended(Answer(request.index, None, str(error), tries))
        return self._ended(Answer(request.index, value, "", tries))

    def _until_answered(self, once: Callable[[], T]) -> T:
        """What `once` returns, called again after pauses; raises the last failure."""
        # Nearly all requests are answered at once, and tenacity's loop takes a quarter of a request's processor time.
        try:
            return once()
        except _Again as error:
            first = [error]

        def again() -> T:
            if first:
                raise first.pop()
            return once()

        return self._attempts(again)

    @cached_property
    def _attempts(self) -> "Retrying":
        """Tries and pauses; each thread that goes through them has its own count."""
        from tenacity import (
            Retrying,
            retry_if_exception_type,
            sleep_using_event,
            stop_after_attempt,
            stop_when_event_set,
        )
        from tenacity import wait_random_exponential as wait

        return Retrying(
            retry=retry_if_exception_type(_Again),
            stop=stop_after_attempt(self.retries + 1) | stop_when_event_set(self.pace.stop),
            wait=wait(multiplier=self.backoff, max=60 * self.backoff),
            sleep=sleep_using_event(self.pace.stop),
            reraise=True,
        )

    def _ended(self, answer: Answer[T]) -> Answer[T]:
        if answer.tries:
            self.breaker.note(answer.reason)
        self.budget.note(answered=not answer.reason)
        return answer

    def _require_turn(self, request: Request) -> None:
        """Wait for the request's turn; raises where it may not be sent at all."""
        if self.breaker.reason:
            raise _Failed(self.breaker.reason)
        self.pace.turn()
        reason = "not sent: nobody waits for it" if self.pace.stop.is_set() else self.budget.reserve(request.tokens)
        if reason:
            raise _Failed(reason)

    def _try(self, line: Connection, request: Request) -> T:
        # A try without a reply may have been charged all the same.
        charged = request.tokens
        try:
            reply = self._reply(line, request)
            found = reply.charged() if request.tokens or self.budget.max_tokens is not None else None
            charged = request.tokens if found is None else found
            return self._value(reply)
        except _Refused as refused:
            charged = 0
            raise refused.outcome from None
        finally:
            self.budget.settle(request.tokens, charged)

    def _value(self, reply: Reply) -> T:
        try:
            return self.read(reply)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            start = reply.content[:_SHOWN].decode("utf-8", "replace")
            said = f"{type(error).__name__}: {error}"
            raise _Again(f"the answer is not in the form that was asked for ({said}): {start!r}") from None

    def _reply(self, line: Connection, request: Request) -> Reply:
        content = request.content()
        headers = {**_ALWAYS, **request.headers, **self.address.headers()}
        method = "GET" if content is None else "POST"
        until = time.monotonic() + self.timeout
        try:
            found = line.send(method, self.address.at(request.path), content, headers, until=until)
        except TimeoutError:
            raise _Again(f"no answer within {self.timeout:g} seconds") from None
        except Broken as error:
            raise _Again(f"the connection failed ({self.address.blot(str(error))})") from None
        if len(found.content) > LARGEST:
            raise _Failed(f"an answer of more than {LARGEST >> 20} MiB")
        reply = Reply(self.address.blot_bytes(found.content), found.headers, request.index)
        if not 200 <= found.status < 300:
            self._refuse(found.status, reply)
        return reply

    def _refuse(self, status: int, reply: Reply) -> NoReturn:
        """Raise what a status other than success means."""
        said = " ".join(reply.content.decode("utf-8", "replace").split())[:_SHOWN]
        reason = f"status {status}{': ' if said else ''}{said}"
        if 300 <= status < 400:
            to = self.address.blot(reply.headers.get("location", "nowhere")).split("?")[0]
            raise _Refused(_Failed(f"status {status}: redirected to {to}, which is not followed; give that as url"))
        if status not in _LATER and status < 500:
            raise _Refused(_Failed(reason))
        seconds = _retry_after(reply.headers.get("retry-after", ""))
        if seconds > _PATIENCE:
            raise _Refused(_Failed(f"{reason} (asks to wait {seconds:.0f} seconds)"))
        self.pace.hold(seconds)
        raise _Refused(_Again(reason))


def _retry_after(value: str) -> float:
    """Seconds that a Retry-After header asks for: a number, or a date; 0 where it holds neither.

    >>> _retry_after("1.5"), _retry_after("soon"), _retry_after("Wed, 21 Oct 2015 07:28:00 GMT")
    (1.5, 0.0, 0.0)
    """
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return 0.0
    return max(seconds, 0.0) if seconds == seconds else 0.0
