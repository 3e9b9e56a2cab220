"""A thousand requests to a server that fails: each answered once or reported, and no
key where it may be read.
"""

import gc
import gzip
import itertools
import pickle
import re
import socket
import ssl
import sys
import threading
import time
from contextlib import contextmanager, suppress
from email.utils import formatdate

import pytest
from faulty_server import FAULTS, FaultyServer

from rmlab.servers import Client, Reply, Request, http
from rmlab.tables import DataError

KEY = "sk-planted-0123456789abcdef"
SHARES = {
    "429": 0.08,
    "500": 0.08,
    "timeout": 0.004,
    "cut": 0.06,
    "garbage": 0.06,
    "slow": 0.02,
    "hangup": 0.05,
}


def right(path, body, headers):
    """A server that doubles numbers."""
    numbers = enumerate(body["numbers"])
    return {"data": [{"index": i, "value": 2 * n} for i, n in numbers]}


def double(path, body, headers):
    """One that now and then leaves some out or puts them in another order."""
    numbers = right(path, body, headers)["data"]
    luck = hash((tuple(body["numbers"]), time.monotonic_ns())) % 20
    return {"data": {0: numbers[1:], 1: numbers[::-1]}.get(luck, numbers)}


def read_doubled(key, reply):
    data = sorted(reply.json()["data"], key=lambda row: row["index"])
    if [row["index"] for row in data] != [0, 1, 2]:
        raise ValueError(f"{len(data)} values for 3 numbers")
    return [row["value"] for row in data]


def client(url, **options):
    return Client(
        url,
        **(
            {"concurrency": 32, "backoff": 0.001, "timeout": 1.0, "outage": 0} | options
        ),
    )


def stream(client, n):
    """Answers to requests of three numbers each."""
    items = (
        (i, Request("/double", {"numbers": [3 * i, 3 * i + 1, 3 * i + 2]}))
        for i in range(n)
    )
    return client.stream(items, read_doubled)


def ask(client, read=lambda _, reply: reply.json(), **request):
    """The answer to one request."""
    ((_, answer),) = client.stream([(0, Request("/", {}, **request))], read)
    return answer


def test_a_thousand_requests_to_a_faulty_server_are_answered_once_or_reported():
    with FaultyServer(double, faults=SHARES) as server:
        hasty = client(server.url, retries=3)
        answers = list(stream(hasty, 1000))
        assert server.most_open <= 32
    assert sorted(index for index, _ in answers) == list(range(1000))
    for index, answer in answers:
        assert answer.reason or answer.value == [
            2 * (index * 3 + j) for j in range(3)
        ], "never a wrong row"
        assert (answer.value is None) == bool(answer.reason)
    n_failed = sum(bool(answer.reason) for _, answer in answers)
    assert 0 < n_failed < 50, "each of four tries fails one time in three"
    assert hasty.spent.answered == 1000 - n_failed
    assert hasty.spent.requests == len(server.log)
    assert {request.fault for request in server.log} == {*FAULTS, ""}


def test_a_rate_is_kept_over_all_tries_and_the_time_that_a_server_asks_for_is_given():
    with FaultyServer(double, faults={"500": 0.3}) as server:
        start = time.monotonic()
        assert all(
            answer.value
            for _, answer in stream(client(server.url, rate=200.0, retries=20), 40)
        )
        assert time.monotonic() - start >= (len(server.log) - 1) / 200


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
    with FaultyServer(lambda *_: (429, {"retry-after": date}, {})) as server:
        reason = ask(client(server.url)).reason
    (seconds,) = re.findall(r"wait (\d+) seconds", reason)
    assert 1000 < int(seconds) <= 1200


@pytest.mark.parametrize(("status", "n_answered"), [(400, 20), (401, 0), (404, 20)])
def test_after_many_failures_in_a_row_the_rest_is_not_sent(status, n_answered):
    """An account that was exhausted after answers, status 400, was asked to the end."""
    arrivals = itertools.count()

    def respond(path, body, headers):
        is_served = next(arrivals) < n_answered
        return right(path, body, headers) if is_served else (status, {}, b"who?")

    with FaultyServer(respond) as server:
        answers = [
            answer for _, answer in stream(client(server.url, concurrency=4), 500)
        ]
        # An answer that is counted late, by each of the others, begins the row anew.
        assert len(server.log) < n_answered + 4 * 32 + 8
    reasons = [answer.reason for answer in answers if answer.value is None]
    assert len(answers) == 500
    assert len(reasons) == 500 - n_answered
    assert all("who?" in reason for reason in reasons)
    assert sum(answer.stopped for answer in answers) > 330


@pytest.mark.parametrize("status", [413, 422])
@pytest.mark.parametrize("has_faults", [False, True])
def test_refusals_of_single_requests_neither_end_a_run_nor_hide_faults(
    status, has_faults
):
    arrivals = itertools.count()

    def choosy(path, body, headers):
        n = next(arrivals)
        if n == 0:
            return right(path, body, headers)
        return (500 if has_faults and n % 2 else status), {}, b"too long"

    with FaultyServer(choosy) as server:
        alone = client(server.url, concurrency=1, retries=0)
        answers = [a for _, a in stream(alone, 150)]
    assert answers[-1].stopped == has_faults
    assert all("too long" in answer.reason for answer in answers[1:])


def test_no_more_requests_are_sent_than_the_budget_has():
    with FaultyServer(double, faults={"500": 0.4}) as server:
        capped = client(server.url, max_requests=50, retries=9)
        assert [len(list(stream(capped, n))) for n in (30, 200)] == [30, 200]
        assert len(server.log) == capped.spent.requests == 50


def test_leaving_early_ends_the_threads_sends_nothing_more_and_closes_every_socket(
    monkeypatch,
):
    # A socket that nobody closed is warned about when it is collected, which may be in
    # any later test.
    unclosed = []
    monkeypatch.setattr(sys, "unraisablehook", unclosed.append)
    for concurrency, n_taken in ((4, 1), (32, 3), (1, 0)):
        with FaultyServer(
            double, faults={"timeout": 0.4, "cut": 0.05, "hangup": 0.05}, delay=0.02
        ) as server:
            answers = stream(
                client(server.url, concurrency=concurrency, timeout=60), 100
            )
            for _ in range(n_taken):
                next(answers)
            start = time.monotonic()
            answers.close()
            assert time.monotonic() - start < 60
            assert len(server.log) <= n_taken + 2 * concurrency
        gc.collect()
    assert not [
        thread for thread in threading.enumerate() if thread.name.startswith("rmlab-")
    ]
    assert not [error.exc_value for error in unclosed]


# Extra replies.


def echo(path, body, headers):
    """A server that says what it was sent, and which request that was."""
    return {"id": f"chatcmpl-{headers['x-request-id']}", "value": body}


def list_wrong(server, read=lambda _, reply: reply.json()["value"], **options):
    """Numbers of the requests that were answered with something else than they sent."""
    items = ((i, Request("/", i)) for i in range(60))
    answers = list(
        client(server.url, **({"concurrency": 1} | options)).stream(items, read)
    )
    return [i for i, answer in answers if answer.value != i]


def answer_value(path, body, headers):
    return {"value": body}


@pytest.mark.parametrize("delay", [0, 0.001, 0.05])
@pytest.mark.parametrize("respond", [answer_value, echo])
def test_a_second_copy_of_a_reply_is_no_answer_to_the_next_request(respond, delay):
    """All later answers were those of the request before, where the copy came while the
    next request was open.
    """
    repeats = dict.fromkeys(range(3, 90, 4), delay)
    with FaultyServer(respond, delay=0.002, repeats=repeats) as server:
        assert list_wrong(server, concurrency=2) == []


def test_a_connection_serves_again_only_where_replies_name_their_request():
    for respond, n_connections in ((answer_value, 60), (echo, 1)):
        with FaultyServer(respond) as server:
            assert list_wrong(server) == []
            assert len(server.connections) == n_connections


def test_a_reply_that_names_another_request_is_refused():
    """It came while the next request was open, so that nothing was left on the
    connection.
    """
    with FaultyServer(echo, delay=0.02, repeats={5: 0.01, 20: 0.01}) as server:
        assert list_wrong(server) == []
        assert len(server.log) == 62, (
            "the two that an extra reply came to were sent again"
        )


# Keys.

SECRET_PLACES = (
    "https://user:{}@x.org",
    "https://x.org/v1?key={}",
    "https://x.org#{}",
    "https://[::1{}",
    "{}",
)
SECRET_PLACES += ("http://xn--a.{}", "http://[::1/{}")
VALUES = [
    ("key", KEY),
    ("concurrency", 0),
    ("rate", 0),
    ("timeout", float("nan")),
    ("max_tokens", -1),
]


@pytest.mark.parametrize(
    ("argument", "value"),
    [*(("url", place.format(KEY)) for place in SECRET_PLACES), *VALUES],
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
        wrong = 401, {}, {"error": f"Incorrect API key provided: {KEY}"}
        answers = {
            "/away": (307, {"location": f"{elsewhere.url}/double"}, {}),
            "/wrong": wrong,
        }
        return answers.get(path, {"you sent": headers["authorization"]})

    def read(path, reply):
        return reply.json()["no such"]

    with FaultyServer(double) as elsewhere, FaultyServer(repeat_key) as server:
        trusting = client(server.url, key="PLANTED_KEY", retries=1)
        paths = ["/away", "/wrong", "/garbled"]
        answers = list(
            trusting.stream([(path, Request(path, {})) for path in paths], read)
        )
        with pytest.raises(DataError) as caught:
            trusting.ask("/wrong", {}, Reply.json)
    assert not elsewhere.log
    assert pickle.loads(pickle.dumps(trusting)) == trusting
    texts = [
        repr(answers),
        repr(trusting),
        str(vars(trusting)),
        repr(pickle.dumps(trusting)),
        str(caught.value),
    ]
    texts += [repr(caught.value.__context__), caplog.text, *capsys.readouterr()]
    assert not [text for text in texts if KEY in text]
    assert "[key]" in repr(answers)


@pytest.mark.parametrize("value", ["", " ", KEY + "\nx-other: 1"])
def test_a_key_that_cannot_be_sent_is_said_before_anything_is_asked(monkeypatch, value):
    """Requests went without it, and the server's refusals said nothing of the
    variable.
    """
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("MY_KEY", value)
    with (
        FaultyServer(double) as server,
        pytest.raises(DataError, match="MY_KEY") as caught,
    ):
        ask(client(server.url, key="MY_KEY"))
    assert KEY not in str(caught.value)
    assert server.log == []


@pytest.mark.parametrize("value", ["1", "EMPTY", "data"])
def test_a_short_key_leaves_replies_as_they_are(monkeypatch, value):
    """It was replaced in every reply."""
    monkeypatch.setenv("MY_KEY", value)
    with FaultyServer(lambda *_: {"data": ["EMPTY", 1, 11]}) as server:
        assert ask(client(server.url, key="MY_KEY")).value == {"data": ["EMPTY", 1, 11]}
    assert server.log[0].headers.get("authorization") == f"Bearer {value}"


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
    # Connections that the first server cut may have been charged.
    assert waiting.spent.requests <= 200 + 16, "tries of a server that was away"
    assert len(second.log) == 100
    assert capsys.readouterr().err.count("outage=") <= 1


@pytest.mark.parametrize("retries", [0, 5])
def test_an_outage_lasts_no_longer_than_is_allowed_whatever_the_server_asks_for(
    retries,
):
    """Three seconds became forty where the server asked for twenty."""

    def away(path, body, headers):
        return (503, {"retry-after": "60"}, {})

    with FaultyServer(away) as server:
        start = time.monotonic()
        answers = [
            answer
            for _, answer in stream(
                client(server.url, outage=0.5, retries=retries, concurrency=2), 9
            )
        ]
        assert 0.5 <= time.monotonic() - start < 60
    assert all(answer.stopped and "503" in answer.reason for answer in answers)


# One exchange.


@contextmanager
def raw_server(reply, drip=b""):
    """The address of a server that sends these bytes to every request, then drips, or
    closes; its connections.
    """
    gone, connections = threading.Event(), []

    def serve(listening):
        with suppress(OSError):
            while True:
                with listening.accept()[0] as connection:
                    connection.settimeout(60)
                    connections.append(connection)
                    while (data := connection.recv(65536)) and not data.endswith(
                        b"{}"
                    ):  # bytes left unread would reset the connection
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
ZIPPED = TOP + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n"
PACKED = gzip.compress(b'{"x": 7}', mtime=0)
# the reply, the number of times it is asked for, the value or what the reason names
REPLIES = [
    (CHUNKED + b'3\r\n{"x\r\n5;y=z\r\n": 7}\r\n0\r\n\r\n', 1, 7),
    (ZIPPED % len(PACKED) + PACKED, 1, "gzip"),
    (TOP + b'content-length: 16\r\n\r\n{"x": 7, "x": 7}', 2, "twice"),
    (TOP + b"content-length: 1000000000\r\n\r\n" + b"x" * 200_001, 1, "MiB"),
    (CHUNKED + b'8\r\n{"x": 7}', 2, ""),
    (CHUNKED + b"2\r\n{}\r\n0\r\nx: " + b"y" * 200_000, 2, ""),
    (TOP + b"x: " + b"y" * 200_000 + b'\r\n\r\n{"x": 7}', 2, ""),
    (TOP + b"content-length: 100000\r\n\r\n" + b"[" * 100_000, 2, "[[["),
    (TOP + b'content-length: 400\r\n\r\n{"x": ' + b"9" * 393 + b"}", 2, ""),
    (b'HTTP/1.1 400 X\r\n\r\n{"error": "use use_activation"}', 1, "use_activation"),
    (b"HTTP/1.1 302 X\r\nlocation: http://[::1\r\ncontent-length: 0\r\n\r\n", 1, ""),
    (b"HTTP/1.1 429 X\r\nretry-after: 86400\r\n\r\n", 1, "86400"),
    (
        (
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: "
            b"upgrade\r\n\r\n"
        ),
        2,
        "",
    ),
    (b"", 2, ""),
]


@pytest.mark.parametrize("number", range(len(REPLIES)))
def test_a_reply_comes_whole_or_as_a_reason_and_no_raw_error_ends_a_run(
    monkeypatch, number
):
    monkeypatch.setattr(http, "MAX_BYTES", 200_000)
    reply, n_tries, outcome = REPLIES[number]
    with raw_server(reply) as (url, connections):
        hasty = client(url, retries=1, max_tokens=100, timeout=2.0)
        answer = ask(hasty, lambda _, reply: float(reply.json()["x"]), tokens=1)
        assert len(connections) == n_tries
        if outcome == 7:
            assert (answer.value, answer.reason) == (7, "")
            return
        with pytest.raises(DataError) as caught:
            hasty.ask("/", {}, lambda reply: float(reply.json()["x"]))
    assert answer.value is None
    assert outcome in answer.reason
    assert outcome in str(caught.value)


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
    context = http.Connection(
        "https://nowhere.example", "", 1.0, None
    ).transport._pool._ssl_context
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname


@pytest.mark.parametrize("proxy", ["foo://x:{}@y", "http://[::1:{}", "http://x:port{}"])
def test_a_proxy_that_cannot_be_one_is_named_by_its_variable_and_not_repeated(
    monkeypatch, proxy
):
    """It was a ValueError of httpx."""
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", proxy.format(KEY))
    misled = client("http://nowhere.example")
    with pytest.raises(DataError, match="HTTP_PROXY") as caught:
        ask(misled)
    assert KEY not in str(caught.value)
    assert misled.spent.requests == 0


def test_a_proxy_of_the_environment_is_used_and_sees_no_key_of_a_server_behind_tls(
    monkeypatch,
):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("PLANTED_KEY", KEY)

    def forward(path, body, headers):
        return {"path": path} if path.startswith("http") else (502, {}, b"no way")

    with FaultyServer(forward) as proxy, FaultyServer(lambda *_: {}) as server:
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert ask(Client("http://nowhere.example/v1")).value == {
            "path": "http://nowhere.example/v1/"
        }
        assert ask(client(server.url)).value == {}
        assert (
            "ProxyError"
            in ask(
                client("https://nowhere.example", key="PLANTED_KEY", retries=0)
            ).reason
        )
    assert [request.method for request in proxy.log] == ["POST", "CONNECT"]
    assert KEY not in repr(proxy.log)
