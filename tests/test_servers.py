"""A thousand requests to a server that fails: each answered once or reported, and no key where it may be read."""

import gc
import gzip
import pickle
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import pytest
from faulty_server import FAULTS, FaultyServer

from rmlab.servers import Client, Reply, Request, http
from rmlab.servers import client as client_module
from rmlab.tables import DataError

KEY = "sk-planted-0123456789abcdef"
SHARES = {"429": 0.08, "500": 0.08, "timeout": 0.004, "cut": 0.06, "garbage": 0.06, "slow": 0.02, "hangup": 0.05}


def double(path, body, headers):
    """A server that doubles numbers, and one time in twenty leaves some out or puts them in another order."""
    numbers = [{"index": i, "value": 2 * n} for i, n in enumerate(body["numbers"])]
    luck = hash((tuple(body["numbers"]), time.monotonic_ns())) % 20
    return {"data": {0: numbers[1:], 1: numbers[::-1]}.get(luck, numbers)}


def read_doubled(key, reply):
    data = sorted(reply.json()["data"], key=lambda row: row["index"])
    if [row["index"] for row in data] != [0, 1, 2]:
        raise ValueError(f"{len(data)} values for 3 numbers")
    return [row["value"] for row in data]


def read_json(key, reply):
    return reply.json()


def requests(n):
    """Requests of three numbers each; the index is what they are about."""
    return ((i, Request("/double", {"numbers": [3 * i, 3 * i + 1, 3 * i + 2]})) for i in range(n))


def client(server, **options):
    return Client(server.url, **({"concurrency": 32, "backoff": 0.001, "timeout": 1.0, "outage": 0} | options))


def stream(client, n):
    return client.stream(requests(n), read_doubled)


def ask(server, **options):
    """The one answer to one request, which by default is not tried again."""
    ((_, answer),) = client(server, **({"retries": 0} | options)).stream([(0, Request("/", {}))], read_json)
    return answer


def test_a_thousand_requests_to_a_faulty_server_are_answered_once_or_reported():
    with FaultyServer(double, faults=SHARES) as server:
        hasty = client(server, retries=3)
        answers = list(stream(hasty, 1000))
        assert server.most_open <= 32
    assert sorted(index for index, _ in answers) == list(range(1000))
    for index, answer in answers:
        assert answer.reason or answer.value == [2 * (index * 3 + j) for j in range(3)], "never a wrong row"
        assert (answer.value is None) == bool(answer.reason)
    n_failed = sum(bool(answer.reason) for _, answer in answers)
    assert 0 < n_failed < 50, "each of four tries fails one time in three"
    assert (hasty.spent.answered, hasty.spent.open) == (1000 - n_failed, 0)
    assert hasty.spent.requests == len(server.log)
    assert {request.fault for request in server.log} == {*FAULTS, ""}


def test_requests_are_drawn_no_faster_than_answers_are_taken():
    drawn = []
    with FaultyServer(double) as server:
        items = (drawn.append(item) or item for item in requests(500))
        for n_taken, _ in enumerate(client(server, concurrency=8).stream(items, read_json), start=1):
            assert len(drawn) <= n_taken + 2 * 8


def test_a_rate_is_kept_over_all_tries_and_the_time_that_a_server_asks_for_is_given():
    with FaultyServer(double, faults={"500": 0.3}) as server:
        start = time.monotonic()
        assert all(answer.value for _, answer in stream(client(server, rate=200.0, retries=20), 40))
        assert time.monotonic() - start >= (len(server.log) - 1) / 200
    arrivals = []

    def busy(path, body, headers):
        arrivals.append(time.monotonic())
        return (429, {"retry-after": "0.3"}, {}) if len(arrivals) == 1 else {}

    with FaultyServer(busy) as server:
        assert ask(server, retries=9).reason == ""
    assert arrivals[1] - arrivals[0] >= 0.29


@pytest.mark.parametrize(
    ("outcome", "tries", "named"),
    [
        ((400, {}, {"error": "use use_activation"}), 1, "use_activation"),
        ((302, {"location": "https://elsewhere.example/x?y=1"}, {}), 1, "https://elsewhere.example/x,"),
        ((429, {"retry-after": "86400"}, b""), 1, "86400"),
        ((429, {"retry-after": "nan"}, b""), 3, "429"),
        ((200, {}, b"<html>proxy</html>"), 3, "<html>proxy"),
        ((200, {}, b"[" * 100_000), 3, "[[["),
        ((200, {"content-length": 10**9}, b"x" * 200_001), 1, "MiB"),
        ((200, {"content-encoding": "gzip"}, gzip.compress(b"x" * 200_001)), 1, "MiB"),
    ],
)
def test_a_failure_names_what_the_server_said(monkeypatch, outcome, tries, named):
    monkeypatch.setattr(http, "MAX_BYTES", 200_000)
    with FaultyServer(lambda *_: outcome) as server:
        answer = ask(server, retries=2)
        assert answer.value is None
        assert len(server.log) == tries
        with pytest.raises(DataError) as caught:
            client(server, retries=0).ask("/", {}, Reply.json)
    assert named in answer.reason
    assert named in str(caught.value)


def test_after_many_failures_in_a_row_the_rest_is_not_sent():
    with FaultyServer(lambda *_: (401, {}, b"who are you?")) as server:
        answers = [answer for _, answer in stream(client(server, concurrency=4), 500)]
        assert len(server.log) < 32 + 8
    assert len(answers) == 500
    assert all("who are you?" in answer.reason for answer in answers)
    assert sum(answer.stopped for answer in answers) > 450


def test_no_more_requests_are_sent_than_the_budget_has():
    with FaultyServer(double, faults={"500": 0.4}) as server:
        capped = client(server, max_requests=50, retries=9)
        n_answers = [len(list(stream(capped, n))) for n in (30, 200)]
        assert len(server.log) == capped.spent.requests == 50
    assert n_answers == [30, 200]


def test_leaving_early_ends_the_threads_sends_nothing_more_and_closes_every_socket(monkeypatch):
    # A socket that nobody closed is warned about when it is collected, which may be in any later test.
    unclosed = []
    monkeypatch.setattr(sys, "unraisablehook", unclosed.append)
    for concurrency, n_taken in ((4, 1), (32, 3), (1, 0)):
        with FaultyServer(double, faults={"timeout": 0.4, "cut": 0.05, "hangup": 0.05}, delay=0.02) as server:
            answers = stream(client(server, concurrency=concurrency, timeout=600), 100)
            for _ in range(n_taken):
                next(answers)
            start = time.monotonic()
            answers.close()
            assert time.monotonic() - start < 5
            assert len(server.log) <= n_taken + 2 * concurrency
        gc.collect()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rmlab-")]
    assert not [error.exc_value for error in unclosed]


# Keys.

SECRET_PLACES = ("https://user:{}@x.org", "https://x.org/v1?key={}", "https://x.org#{}", "https://[::1{}", "{}")
VALUES = [("key", KEY), ("concurrency", 0), ("rate", 0), ("timeout", float("nan")), ("max_tokens", -1)]


@pytest.mark.parametrize(("argument", "value"), [*(("url", place.format(KEY)) for place in SECRET_PLACES), *VALUES])
def test_options_that_cannot_be_right_are_named_and_a_key_is_never_repeated(argument, value):
    with pytest.raises(DataError, match=argument) as caught:
        Client(**{"url": "https://example.org"} | {argument: value})
    assert KEY not in str(caught.value)


def test_the_key_goes_to_its_server_and_nowhere_else(monkeypatch, caplog, capsys):
    monkeypatch.setenv("PLANTED_KEY", KEY)
    caplog.set_level(1)

    def repeat_key(path, body, headers):
        assert headers["authorization"] == f"Bearer {KEY}"
        echo = 200, {}, {"you sent": headers["authorization"]}
        wrong = 401, {}, {"error": f"Incorrect API key provided: {KEY}"}
        return {"/away": (307, {"location": f"{elsewhere.url}/double"}, {}), "/wrong": wrong}.get(path, echo)

    def read(path, reply):
        return reply.json() if path == "/echo" else reply.json()["no such"]

    with FaultyServer(double) as elsewhere, FaultyServer(repeat_key) as server:
        trusting = client(server, key="PLANTED_KEY", retries=1)
        paths = ["/away", "/wrong", "/echo", "/garbled"]
        answers = list(trusting.stream([(path, Request(path, {})) for path in paths], read))
        with pytest.raises(DataError) as caught:
            trusting.ask("/wrong", {}, Reply.json)
    assert not elsewhere.log
    pickled = pickle.dumps(trusting)
    assert pickle.loads(pickled) == trusting
    texts = [repr(answers), repr(trusting), str(vars(trusting)), repr(pickled), str(caught.value)]
    texts += [repr(caught.value.__context__), caplog.text, *capsys.readouterr()]
    assert not [text for text in texts if KEY in text]
    assert "[key]" in repr(answers)


@pytest.mark.parametrize("name", [None, "UNSET_KEY", "1", "EMPTY", "data"])
def test_without_a_key_nothing_is_sent_and_a_short_one_leaves_replies_as_they_are(monkeypatch, name):
    """A short key was replaced in every reply."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("UNSET_KEY", raising=False)
    monkeypatch.setenv("SHORT_KEY", name or "")
    key = name if name in (None, "UNSET_KEY") else "SHORT_KEY"
    with FaultyServer(lambda *_: {"data": ["EMPTY", 1, 11]}) as server:
        assert client(server, key=key).ask("/", {}, Reply.json) == {"data": ["EMPTY", 1, 11]}
    assert server.log[0].headers.get("authorization") == (f"Bearer {name}" if key == "SHORT_KEY" else None)
    monkeypatch.setenv("SHORT_KEY", KEY + "\nx-other: 1")
    with FaultyServer(double) as server, pytest.raises(DataError, match="SHORT_KEY") as caught:
        client(server, key="SHORT_KEY").ask("/", {}, Reply.json)
    assert KEY not in str(caught.value)
    assert not server.log, "no header can carry it"


# Outages.


class Restarting:
    """Answers; from its `after`-th request on it is away for `seconds`."""

    def __init__(self, after, seconds):
        self.after, self.seconds, self.n_requests, self.began, self.n_refused = after, seconds, 0, None, 0

    def __call__(self, path, body, headers):
        self.n_requests += 1
        if self.n_requests >= self.after and self.began is None:
            self.began = time.monotonic()
        if self.began is not None and time.monotonic() - self.began < self.seconds:
            self.n_refused += 1
            return 503, {}, b"restarting"
        return double(path, body, headers)


def test_a_server_that_is_away_holds_all_senders_and_is_waited_for(monkeypatch, capsys):
    monkeypatch.setattr(client_module, "_FIRST_PAUSE", 0.05)
    with FaultyServer(Restarting(20, 0.1)) as first:
        patient = client(first, retries=2, outage=60, concurrency=16)
        answers = patient.stream(requests(200), read_json)
        received = [next(answers) for _ in range(100)]
        assert 0 < first.respond.n_refused < 16 + 5, "one asks again, the others wait"
    second = FaultyServer(double, port=first.port)
    starting = threading.Timer(0.1, second.__enter__)
    starting.start()
    received += answers
    starting.join()
    second.__exit__()
    assert sorted(index for index, _ in received) == list(range(200))
    assert not [answer.reason for _, answer in received if answer.reason]
    screen = capsys.readouterr().err
    assert all(part in screen for part in ("503", "the connection failed", "outage="))


def test_a_server_that_stays_away_ends_the_run():
    with FaultyServer(Restarting(5, 60)) as server:
        answers = list(client(server, retries=0, outage=0.2, concurrency=4).stream(requests(100), read_json))
    assert len(answers) == 100
    unsent = [answer for _, answer in answers if answer.reason]
    assert len(unsent) >= 90
    assert all(answer.stopped and "503" in answer.reason for answer in unsent)
    ((_, answer),) = stream(Client("http://127.0.0.1:9", retries=1, backoff=0.001), 1)
    assert "the connection failed" in answer.reason, "an address that never answered is not waited for"


# One exchange.


@contextmanager
def raw_server(reply, drip=b""):
    """The address of a server that sends these bytes to every request, then drips, or closes the connection."""
    gone = threading.Event()

    def serve(listening):
        with suppress(OSError):
            while True:
                with listening.accept()[0] as connection:
                    connection.recv(65536)
                    connection.sendall(reply)
                    while drip and not gone.wait(0.1):
                        connection.sendall(drip)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=serve, args=[listening])
        serving.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        gone.set()
        listening.shutdown(socket.SHUT_RDWR)
        serving.join()


TOP = b"HTTP/1.1 200 OK\r\n"
CHUNKED = TOP + b"transfer-encoding: chunked\r\n\r\n"
PACKED = gzip.compress(b'{"x": 7}', mtime=0)  # the time would stand in the test's name


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        (TOP + b'\r\n{"x": 7}', 7),
        (CHUNKED + b'3\r\n{"x\r\n5;y=z\r\n": 7}\r\n0\r\n\r\n', 7),
        (TOP + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(PACKED) + PACKED, 7),
        (TOP + b'content-length: 20\r\n\r\n{"x": 7}', None),
        (CHUNKED + b'8\r\n{"x": 7}', None),
        (CHUNKED + b"2\r\n{}\r\n0\r\nx: " + b"y" * 200_000, None),
        (TOP + b"x: " + b"y" * 200_000 + b'\r\n\r\n{"x": 7}', None),
        (TOP + b"content-encoding: gzip\r\ncontent-length: 2\r\n\r\nxx", None),
        (TOP + b"content-length: -1\r\n\r\n", None),
        (TOP + b"content-length: 10000\r\n\r\n" + b"[" * 10000, None),
        (TOP + b'content-length: 400\r\n\r\n{"x": ' + b"9" * 393 + b"}", None),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n", None),
        (b"HTTP/1.1 302 Found\r\nlocation: http://[::1\r\ncontent-length: 0\r\n\r\n", None),
        (b"\x00\x01\x02 nothing\r\n\r\n", None),
        (b"", None),
    ],
)
def test_a_reply_comes_whole_or_as_a_reason_and_no_raw_error_ends_a_run(reply, value):
    with raw_server(reply) as url:
        hasty = Client(url, retries=1, backoff=0.001, concurrency=2, max_tokens=100, timeout=2.0)
        items = [(i, Request("/", {"i": i}, tokens=1)) for i in range(3)]
        answers = list(hasty.stream(items, lambda _, reply: float(reply.json()["x"])))
    assert sorted(index for index, _ in answers) == [0, 1, 2]
    assert [answer.value for _, answer in answers] == [value] * 3
    assert [not answer.reason for _, answer in answers] == [value is not None] * 3


@pytest.mark.parametrize("end_of_headers", [b"", b"content-length: 99\r\n\r\n"])
def test_a_reply_in_drips_ends_with_the_deadline_in_its_headers_too(end_of_headers):
    start = time.monotonic()
    with raw_server(TOP + end_of_headers, b"x") as url, pytest.raises(DataError, match=r"0\.2 seconds"):
        Client(url, retries=0, timeout=0.2).ask("/", {}, Reply.json)
    assert time.monotonic() - start < 5


@pytest.mark.skipif(shutil.which("openssl") is None, reason="making a certificate needs openssl")
def test_a_server_is_believed_by_its_certificate_alone(tmp_path, monkeypatch):
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run([*shlex.split(command), "-out", certificate, "-keyout", key], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def reason(host):
        http.ssl_context.cache_clear()
        ((_, answer),) = Client(f"https://{host}:{server.port}", retries=0).stream([(0, Request("/", {}))], read_json)
        return answer.reason

    with FaultyServer(lambda *_: {}, tls=context) as server:
        assert "CERTIFICATE_VERIFY_FAILED" in reason("localhost"), "nobody trusts it"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert "CERTIFICATE_VERIFY_FAILED" in reason("127.0.0.1"), "it is another host's"
        assert not server.log
        assert reason("localhost") == ""
    http.ssl_context.cache_clear()


def test_a_proxy_of_the_environment_is_used_and_sees_no_key_of_a_server_behind_tls(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("PLANTED_KEY", KEY)

    def forward(path, body, headers):
        return {"path": path} if path.startswith("http") else (502, {}, b"no way")

    with FaultyServer(forward) as proxy, FaultyServer(lambda *_: {}) as server:
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert Client("http://nowhere.example/v1").ask("/x", {}, Reply.json) == {"path": "http://nowhere.example/v1/x"}
        assert client(server).ask("/", {}, Reply.json) == {}
        with pytest.raises(DataError, match="ProxyError"):
            Client("https://nowhere.example", key="PLANTED_KEY", retries=0).ask("/", {}, Reply.json)
    assert [request.method for request in proxy.log] == ["POST", "CONNECT"]
    assert KEY not in repr(proxy.log)
