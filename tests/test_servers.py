"""Requests to a server that fails: each answered once or reported, and no key where it
may be read.
"""

import gc
import itertools
import pickle
import socket
import ssl
import sys
import threading
import time
from contextlib import contextmanager, suppress
from email.utils import formatdate

import pytest
from faulty_server import FAULTS, FaultyServer

from rmlab.servers import Client, http
from rmlab.servers import client as client_module
from rmlab.servers.http import Reply, Request
from rmlab.tables import DataError

KEY = "sk-planted-0123456789abcdef"


def right(path, body, headers):
    """A server that doubles numbers."""
    return {"data": [[i, 2 * number] for i, number in enumerate(body)]}


def double(path, body, headers):
    """One that now and then leaves some out or puts them in another order."""
    data = right(path, body, headers)["data"]
    luck = hash((tuple(body), time.monotonic_ns())) % 20
    return {"data": {0: data[1:], 1: data[::-1]}.get(luck, data)}


def read_doubled(key, reply):
    data = sorted(reply.json()["data"])
    if [i for i, _ in data] != [0, 1, 2]:
        raise ValueError(f"{len(data)} values for 3 numbers")
    return [value for _, value in data]


def client(url, **options):
    hasty = {"concurrency": 32, "backoff": 0.001, "timeout": 1.0, "outage": 0}
    return Client(url, **(hasty | options))


def stream(client, n):
    """Answers to requests of three numbers each."""
    items = ((i, Request("/double", [3 * i, 3 * i + 1, 3 * i + 2])) for i in range(n))
    return client.stream(items, read_doubled)


def ask(client):
    """The answer to one request."""
    ((_, answer),) = client.stream([(0, Request("/", {}))], lambda _, r: r.json())
    return answer


def test_requests_to_a_faulty_server_are_answered_once_or_reported():
    shares = {"429": 0.08, "500": 0.08, "timeout": 0.004, "cut": 0.06, "garbage": 0.06}
    shares |= {"slow": 0.02, "hangup": 0.05}
    with FaultyServer(double, faults=shares) as server:
        hasty = client(server.url, retries=3, timeout=2.0)
        answers = list(stream(hasty, 600))
        assert server.most_open <= 32
    assert sorted(index for index, _ in answers) == list(range(600))
    for index, answer in answers:
        expected = [6 * index, 6 * index + 2, 6 * index + 4]
        assert answer.value == (None if answer.reason else expected), "never wrong"
    n_failed = sum(bool(answer.reason) for _, answer in answers)
    assert 0 < n_failed < 40, "each of four tries fails one time in three"
    assert hasty.spent.answered == 600 - n_failed
    assert len(server.log) <= hasty.spent.requests < len(server.log) + 10
    assert {request.fault for request in server.log} == {*FAULTS, ""}


def test_a_budget_counts_all_tries():
    with FaultyServer(double, faults={"500": 0.3}) as server:
        capped = client(server.url, retries=20, max_requests=100)
        answers = [answer for n in (40, 90) for _, answer in stream(capped, n)]
        assert len(server.log) == capped.spent.requests == 100
    assert len(answers) == 130
    assert sum(bool(answer.value) for answer in answers) > 40
    # Those on their way may come after those that are not sent any more.
    is_stopped = [answer.stopped for answer in answers]
    assert any(is_stopped)
    assert is_stopped == [answer.value is None for answer in answers]


def test_a_server_is_left_alone_for_as_long_as_it_asks():
    arrivals = []

    def busy(path, body, headers):
        arrivals.append(time.monotonic())
        return (429, {"retry-after": "0.3"}, {}) if len(arrivals) == 1 else {}

    with FaultyServer(busy) as server:
        assert ask(client(server.url)).reason == ""
    assert arrivals[1] >= arrivals[0] + 0.29


def test_a_date_in_retry_after_is_understood():
    """A date was taken for no pause."""
    date = formatdate(time.time() + 1200, usegmt=True)
    assert 1190 < client_module._read_seconds(date) <= 1200
    assert client_module._read_seconds("soon") == 0
    with FaultyServer(lambda *_: (429, {"retry-after": date}, {})) as server:
        assert "asks to wait 1" in ask(client(server.url)).reason
        assert len(server.log) == 1


@pytest.mark.parametrize(("status", "n_answered"), [(400, 20), (401, 0), (404, 20)])
def test_after_many_failures_in_a_row_the_rest_is_not_sent(status, n_answered):
    """An account that was exhausted after answers, status 400, was asked to the end."""
    arrivals = itertools.count()

    def respond(path, body, headers):
        is_served = next(arrivals) < n_answered
        return right(path, body, headers) if is_served else (status, {}, b"who?")

    with FaultyServer(respond) as server:
        few = client(server.url, concurrency=4)
        answers = [answer for _, answer in stream(few, 500)]
        # An answer that is counted late, by each of the others, begins the row anew.
        assert len(server.log) < n_answered + 4 * 32 + 8
    reasons = [answer.reason for answer in answers if answer.value is None]
    assert len(answers) == 500
    assert len(reasons) == 500 - n_answered
    assert all("who?" in reason for reason in reasons)
    assert sum(answer.stopped for answer in answers) > 330


@pytest.mark.parametrize("has_faults", [False, True])
def test_refusals_of_single_requests_neither_end_a_run_nor_hide_faults(has_faults):
    arrivals = itertools.count()

    def choosy(path, body, headers):
        n = next(arrivals)
        if n == 0:
            return right(path, body, headers)
        return (500 if has_faults and n % 2 else 413), {}, b"too long"

    with FaultyServer(choosy) as server:
        alone = client(server.url, concurrency=1, retries=0)
        answers = [a for _, a in stream(alone, 150)]
    assert answers[-1].stopped == has_faults
    assert all("too long" in answer.reason for answer in answers[1:])


def test_leaving_early_ends_the_threads_sends_nothing_more_and_closes_every_socket(
    monkeypatch,
):
    # A socket that nobody closed is warned about when it is collected, which may be in
    # any later test.
    unclosed = []
    monkeypatch.setattr(sys, "unraisablehook", unclosed.append)
    faults = {"timeout": 0.4, "cut": 0.05, "hangup": 0.05}
    for concurrency, n_taken in ((4, 1), (32, 3), (1, 0)):
        with FaultyServer(double, faults=faults, delay=0.02) as server:
            patient = client(server.url, concurrency=concurrency, timeout=60)
            answers = stream(patient, 100)
            for _ in range(n_taken):
                next(answers)
            start = time.monotonic()
            answers.close()
            assert time.monotonic() - start < 60
            assert len(server.log) <= n_taken + 2 * concurrency
        gc.collect()
    assert not [t for t in threading.enumerate() if t.name.startswith("rmlab-")]
    assert not [error.exc_value for error in unclosed]


# Extra replies.


def answer_value(path, body, headers):
    return {"value": body}


@pytest.mark.parametrize("delay", [0, 0.001, 0.05])
def test_a_second_copy_of_a_reply_is_no_answer_to_the_next_request(delay):
    """All later answers were those of the request before, where the copy came while the
    next request was open.
    """
    repeats = dict.fromkeys(range(3, 90, 4), delay)
    items = ((i, Request("/", i)) for i in range(60))
    with FaultyServer(answer_value, delay=0.002, repeats=repeats) as server:
        asking = client(server.url, concurrency=2)
        answers = dict(asking.stream(items, lambda _, reply: reply.json()["value"]))
        wrong = [i for i, answer in answers.items() if answer.value != i]
        assert wrong == []
        assert len(server.connections) == 60, "one a request"


# Keys.


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("url", f"https://user:{KEY}@x.org"),
        ("url", f"https://x.org/v1?key={KEY}"),
        ("url", KEY),
        ("key", KEY),
        ("concurrency", 0),
        ("timeout", float("nan")),
    ],
)
def test_options_that_cannot_be_right_are_named_and_a_key_is_never_repeated(
    argument, value
):
    with pytest.raises(DataError, match=argument) as caught:
        Client(**{"url": "https://example.org"} | {argument: value})
    assert KEY not in str(caught.value)


def test_the_key_goes_to_its_server_and_nowhere_else(monkeypatch, caplog, capsys):
    monkeypatch.setenv("PLANTED_KEY", KEY)
    caplog.set_level(1)

    def repeat_key(path, body, headers):
        assert headers["authorization"] == f"Bearer {KEY}"
        if path == "/away":
            return 307, {"location": f"{elsewhere.url}/double"}, {}
        return 401 if path == "/wrong" else 200, {}, {"sent": headers["authorization"]}

    def read(path, reply):
        return reply.json()["no such"]

    with FaultyServer(double) as elsewhere, FaultyServer(repeat_key) as server:
        trusting = client(server.url, key="PLANTED_KEY", retries=1)
        items = [(path, Request(path, {})) for path in ("/away", "/wrong", "/garbled")]
        answers = list(trusting.stream(items, read))
        with pytest.raises(DataError) as caught:
            trusting.ask("/wrong", {}, Reply.json)
    assert not elsewhere.log
    assert pickle.loads(pickle.dumps(trusting)) == trusting
    texts = [repr(answers), str(vars(trusting)), repr(pickle.dumps(trusting))]
    texts += [str(caught.value), repr(caught.value.__context__), caplog.text]
    assert not [text for text in [*texts, *capsys.readouterr()] if KEY in text]
    assert "[key]" in repr(answers)


@pytest.mark.parametrize("value", ["", KEY + "\nx-other: 1"])
def test_a_key_that_cannot_be_sent_is_said_before_anything_is_asked(monkeypatch, value):
    """Requests went without it, and the server's refusals said nothing of the
    variable.
    """
    monkeypatch.setenv("MY_KEY", value)
    with (
        FaultyServer(double) as server,
        pytest.raises(DataError, match="MY_KEY") as caught,
    ):
        ask(client(server.url, key="MY_KEY"))
    assert KEY not in str(caught.value)
    assert server.log == []


# Outages.


def test_a_server_that_is_away_is_waited_for_and_costs_nothing(capsys):
    arrivals = itertools.count()

    def leave(path, body, headers):
        is_away = next(arrivals) >= 100
        return (503, {}, b"restarting") if is_away else right(path, body, headers)

    with FaultyServer(leave) as first:
        waiting = client(first.url, outage=60, concurrency=16)
        answers = stream(waiting, 200)
        received = [next(answers) for _ in range(100)]
    with FaultyServer(right, port=first.port) as second:
        received += answers
    assert sorted(index for index, _ in received) == list(range(200))
    assert not [answer.reason for _, answer in received if answer.reason]
    # Requests on connections that the first server cut may have arrived.
    assert waiting.spent.requests <= 200 + 16, "tries of a server that was away"
    assert len(second.log) == 100
    assert capsys.readouterr().err.count("outage=") <= 1


@pytest.mark.parametrize("retries", [0, 5])
def test_an_outage_lasts_no_longer_than_is_allowed_whatever_the_server_asks_for(
    retries,
):
    """Three seconds became forty where the server asked for twenty."""
    with FaultyServer(lambda *_: (503, {"retry-after": "60"}, {})) as server:
        start = time.monotonic()
        patient = client(server.url, outage=0.5, retries=retries, concurrency=2)
        answers = [answer for _, answer in stream(patient, 9)]
        assert 0.5 <= time.monotonic() - start < 60
    assert all(answer.stopped and "503" in answer.reason for answer in answers)


# One exchange.


@contextmanager
def raw_server(reply, drip=b""):
    """The address of a server that sends these bytes to every request, then drips, or
    closes; its connections.
    """
    gone = threading.Event()
    connections = []

    def serve(listening):
        with suppress(OSError):
            while True:
                with listening.accept()[0] as connection:
                    connection.settimeout(60)
                    connections.append(connection)
                    # Bytes left unread would reset the connection.
                    while (data := connection.recv(65536)) and data[-2:] != b"{}":
                        pass
                    connection.sendall(reply)
                    while drip and not gone.wait(0.1):
                        connection.sendall(drip)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        serving = threading.Thread(target=serve, args=[listening])
        serving.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", connections
        finally:
            gone.set()
            listening.shutdown(socket.SHUT_RDWR)
            serving.join()


TOP = b"HTTP/1.1 200 OK\r\n"
CHUNKED = TOP + b"transfer-encoding: chunked\r\n\r\n"
LENGTH = TOP + b"content-length: %d\r\n\r\n"
TWICE = b'{"x": 7, "x": 7}'


@pytest.mark.parametrize(
    ("reply", "n_tries", "outcome"),
    [
        (CHUNKED + b'3\r\n{"x\r\n5;y=z\r\n": 7}\r\n0\r\n\r\n', 1, 7),
        (LENGTH % len(TWICE) + TWICE, 2, "twice"),
        (LENGTH % 10**9 + b"x" * 200_001, 1, "MiB"),
        (CHUNKED + b'8\r\n{"x": 7}', 2, ""),
        (TOP + b"x: " + b"y" * 200_000 + b'\r\n\r\n{"x": 7}', 2, ""),
        (LENGTH % 100_000 + b"[" * 100_000, 2, "[[["),
        (b'HTTP/1.1 400 X\r\n\r\n{"error": "use this"}', 1, "use this"),
        (b"HTTP/1.1 302 X\r\nlocation: //[::1\r\ncontent-length: 0\r\n\r\n", 1, ""),
        (b"HTTP/1.1 429 X\r\nretry-after: 86400\r\n\r\n", 1, "86400"),
        (b"", 2, ""),
    ],
)
def test_a_reply_comes_whole_or_as_a_reason_and_no_raw_error_ends_a_run(
    monkeypatch, reply, n_tries, outcome
):
    monkeypatch.setattr(http, "MAX_BYTES", 200_000)
    with raw_server(reply) as (url, connections):
        answer = ask(client(url, retries=1, timeout=2.0))
        assert len(connections) == n_tries
    if outcome == 7:
        assert (answer.value, answer.reason) == ({"x": 7}, "")
    else:
        assert answer.value is None
        assert outcome in answer.reason


@pytest.mark.parametrize("end_of_headers", [b"", b"content-length: 99\r\n\r\n"])
def test_a_reply_in_drips_ends_with_the_deadline_in_its_headers_too(end_of_headers):
    start = time.monotonic()
    with (
        raw_server(TOP + end_of_headers, b"x") as (url, _),
        pytest.raises(DataError, match=r"0\.2 seconds"),
    ):
        client(url, retries=0, timeout=0.2).ask("/", {}, Reply.json)
    assert time.monotonic() - start < 60


def test_a_server_is_believed_by_its_certificate_alone():
    context = http._ssl_context()
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname


def test_a_proxy_of_the_environment_is_used_and_sees_no_key_of_a_server_behind_tls(
    monkeypatch,
):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("PLANTED_KEY", KEY)

    def forward(path, body, headers):
        return {"path": path} if path.startswith("http") else (502, {}, b"no way")

    with FaultyServer(forward) as proxy:
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        forwarded = ask(Client("http://nowhere.example/v1")).value
        assert forwarded == {"path": "http://nowhere.example/v1/"}
        assert http.find_proxy("http://127.0.0.1:8000") is None
        hidden = client("https://nowhere.example", key="PLANTED_KEY", retries=0)
        assert "ProxyError" in ask(hidden).reason
    assert [request.method for request in proxy.log] == ["POST", "CONNECT"]
    assert KEY not in repr(proxy.log)
