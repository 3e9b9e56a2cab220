"""Served reward models: every server that is not what it seems is refused, and no row
is ever wrong.
"""

import base64
import itertools
import json
import shutil
import time
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from crashes import list_stored
from fakes import responses as fake_responses
from fakes import toy_responses
from faulty_server import FaultyServer
from served_models import OpenRlhf, Sglang, Tei, Triton, Vllm, number, oracle, sigmoid

import rmlab
from rmlab import scorers, toy
from rmlab.servers import scorer
from rmlab.servers.kinds import base, triton
from rmlab.tables import DataError

RECORDED = Path(__file__).parent / "recorded"


@pytest.fixture
def folder(zoo):
    return zoo(initializer_range=0.5)


@pytest.fixture(scope="module")
def words(zoo):
    return scorers.classifier(zoo(initializer_range=0.5), device="cpu").tokenizer


@pytest.fixture(scope="module")
def texts():
    return toy_responses(prompts=5, slots=2)


@pytest.fixture
def served(folder, words):
    """A right vLLM, and a scorer of it with some options by `connect`."""

    def connect(**options):
        usual = {"kind": "vllm", "tokenizer": folder, "backoff": 0.001}
        return rmlab.remote(server.url, **(usual | options))

    with FaultyServer(Vllm(number, words)) as server:
        server.vllm = server.respond
        server.connect = connect
        yield server


def failing(server, **options):
    """The checks that a server fails."""
    hasty = {"kind": "vllm", "retries": 1, "backoff": 0.001, "outage": 0}
    remote = rmlab.remote(server.url, **(hasty | options), examine=False)
    findings = list(remote.examine())
    return [check for check, finding in findings if finding.status == "fail"]


def write(remote, frame):
    """The texts of a table as a server gets them."""
    return remote.writer.write(frame["prompt"].tolist(), frame["response"].tolist())


def check_scores(remote, frame, **options):
    """Score a table by a server that answers by `number`; every score is right."""
    table = rmlab.score(frame, remote, **options)
    expected = [number(tuple(ids)) for ids in write(remote, frame).texts]
    np.testing.assert_array_equal(table["score"], expected)
    return table


# The servers of these tests answer as real ones did.


def near(answer, recorded):
    """The parts of a recorded answer that this one has, in single precision."""
    if isinstance(recorded, dict):
        return {key: near(answer[key], recorded[key]) for key in answer}
    if isinstance(recorded, list):
        return list(map(near, answer, recorded))
    is_number = isinstance(recorded, float)
    return pytest.approx(recorded, abs=1e-5) if is_number else recorded


def test_vllm_as_it_was_measured(zoo):
    recorded = json.loads((RECORDED / "vllm_0.32.json").read_text())
    folder = zoo(**recorded["model"])
    server = Vllm(oracle(folder), scorers.classifier(folder, device="cpu").tokenizer)
    for exchange in recorded["exchanges"].values():
        if exchange["status"] == 200 and "input" in exchange["body"]:
            answer = server(exchange["path"], exchange["body"], {})
            assert answer == near(answer, exchange["answer"])


def test_triton_with_nemo_s_tensors_as_it_was_measured():
    recorded = json.loads((RECORDED / "triton_0.7.json").read_text())
    for exchange in recorded["exchanges"]:

        def rate(text, eos, n=exchange["n"]):
            names = [f"{i} {eos} {text}".encode() for i in range(n)]
            return [zlib.crc32(name) % 4001 / 1000 for name in names]

        request = base64.b64decode(exchange["body"])
        reply = base64.b64decode(exchange["reply"])
        length = exchange["reply_length"]
        sent = {"inference-header-content-length": exchange["length"]}
        server = Triton(rate, longest=recorded["longest"])
        _, headers, answer = server(exchange["path"], request, sent)
        size = headers["inference-header-content-length"]
        assert json.loads(answer[:size]) == json.loads(reply[:length])
        assert answer[size:] == reply[length:], "the tensors"


# Servers that are what they should be.


def attributes(text, add_eos=False):
    return [2 + number((i, add_eos, *text.encode())) / 3 for i in range(5)]


def make_kind(kind, score, words):
    """A server of a kind, and options of its scorer."""
    return {
        "vllm": (Vllm(score, words), {}),
        "vllm-pooling": (Vllm(score, words), {}),
        "sglang": (Sglang(score), {}),
        "tei": (Tei(score, words), {}),
        "openrlhf": (OpenRlhf(score, words), {"max_length": 2048}),
        "triton": (Triton(attributes), {"label_weights": [0, 1, 0, 0, 0]}),
    }[kind]


KINDS = ["vllm", "vllm-pooling", "sglang", "tei", "openrlhf", "triton"]


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_a_right_server_of_each_kind_gives_the_local_scores(folder, words, texts, kind):
    local = rmlab.score(texts, rmlab.classifier(folder, device="cpu"))["score"]
    respond, options = make_kind(kind, oracle(folder), words)
    with FaultyServer(respond) as server:
        options |= {"kind": kind, "tokenizer": folder, "batch": 3}
        table = rmlab.score(texts, rmlab.remote(server.url, **options))
    assert (table["score"] - local).abs().max() <= 1e-5 * local.std()
    name = "openrlhf" if kind == "openrlhf" else "tiny"
    assert table["model"].unique().tolist() == [name]
    assert list(table.columns) == rmlab.tables.SCORES


@pytest.mark.parametrize("server_class", [Vllm, Tei])
def test_several_outputs_are_columns_in_the_order_of_the_labels_and_need_weights(
    zoo, texts, server_class
):
    folder = zoo(num_labels=3)
    kind = server_class.__name__.lower()
    weights = {"LABEL_0": 1.0, "LABEL_2": -0.5}
    local = rmlab.classifier(folder, weights=weights, device="cpu")
    expected = rmlab.score(texts, local)["score"]
    with FaultyServer(server_class(oracle(folder), local.tokenizer)) as server:
        remote = rmlab.remote(
            server.url, kind=kind, tokenizer=folder, label_weights=weights
        )
        table = rmlab.score(texts, remote)
        for wrong in (None, {"good": 1.0}, [1.0]):
            with pytest.raises(DataError, match="label_weights"):
                rmlab.remote(
                    server.url, kind=kind, tokenizer=folder, label_weights=wrong
                )
    assert (table["score"] - expected).abs().max() <= 1e-5 * expected.std()
    np.testing.assert_allclose(
        table["score"], table["LABEL_0"] - 0.5 * table["LABEL_2"]
    )


def test_steerlm_ratings_over_triton_are_columns_and_become_a_weighted_sum(
    texts, tmp_path
):
    respond = Triton(attributes)
    with FaultyServer(respond) as server:
        remote = rmlab.remote(server.url, kind="triton", batch=3)
        table = rmlab.score(texts, remote, store=tmp_path)
        assert rmlab.score(texts, remote, store=tmp_path).equals(table)
        too_long = texts.assign(response=5000 * texts["response"].str[:9])
        respond.longest = 30_000
        cut = rmlab.score(too_long, remote, allow_missing=True)
        assert cut["score"].isna().all()
        assert "exceeded" in str(cut.attrs["provenance"])
    rated = np.array(list(map(attributes, write(remote, texts).texts)), np.float32)
    weights = triton.WEIGHTS
    np.testing.assert_array_equal(table[[*weights]], rated)
    expected = rated @ np.array([*weights.values()])
    np.testing.assert_allclose(table["score"], expected, rtol=1e-6)


# Servers and options that are not.


def test_a_fault_on_this_machine_is_not_the_server_s(served, folder, tmp_path):
    home = tmp_path / "m"
    shutil.copytree(folder, home)
    (home / "chat_template.jinja").unlink()
    with pytest.raises(DataError, match="template=") as caught:
        served.connect(tokenizer=home)
    assert "log" not in str(caught.value)


PER_TOKEN = Vllm(number)  # /pooling gives values of every token for another task
PER_TOKEN.change = lambda rows: [row | {"data": [row["data"]] * 3} for row in rows]
OPENRLHF = {"kind": "openrlhf", "max_length": 2048}


@pytest.mark.parametrize(
    ("server", "options", "check"),
    [
        (Vllm(number, ignores=True), {}, "activation"),
        (OpenRlhf(lambda ids: (number(ids) + 6) / 12), OPENRLHF, "activation"),
        (Vllm(number, bos=True), {}, "tokens"),
        (Vllm(lambda ids: 3.0), {}, "spread"),
        (Vllm(lambda ids: [*range(64)]), {}, "labels"),
        (PER_TOKEN, {"kind": "vllm-pooling", "model": "m"}, "answers"),
        # All of 384 scores were wrong: the check of tokens warned, and nobody saw it.
        (Vllm(number, longest=64), {}, "tokens"),
        (OpenRlhf(number, longest=64), OPENRLHF, "tokens"),
    ],
)
def test_a_server_is_refused_by_the_check_that_finds_it(
    folder, words, server, options, check
):
    server.tokenizer = words
    with FaultyServer(server) as running:
        assert failing(running, **{"tokenizer": folder} | options) == [check]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kind": "infinity"}, "kind='infinity'"),
        ({"kind": "openrlhf"}, "max_length"),
        ({"tokenizer": None}, "tokenizer"),
        ({"tokenizer": "/nowhere"}, "nowhere"),
        ({}, "the connection failed"),
    ],
)
def test_options_that_cannot_be_right_are_named(folder, options, named):
    usual = {"kind": "vllm", "tokenizer": folder, "retries": 0}
    with pytest.raises(DataError, match=named):
        rmlab.remote("http://127.0.0.1:9", **(usual | options))


def test_text_that_the_server_would_read_as_other_tokens_is_refused(
    folder, words, monkeypatch
):
    decode = type(words).decode
    monkeypatch.setattr(type(words), "decode", lambda *a, **o: decode(*a, **o).lower())
    options = {"kind": "tei", "model": "m", "tokenizer": folder, "examine": False}
    remote = rmlab.remote("http://127.0.0.1:9", **options)
    with pytest.raises(DataError, match=r"text 0 .*other tokens"):
        remote.writer.write(["Question 1?"], ["The capital"])


def test_a_server_that_counts_no_tokens_is_warned_of_and_one_that_cannot_is_not(
    served, folder, words
):
    served.vllm.counts = False
    with pytest.warns(UserWarning, match="tokens"):
        served.connect()
    with FaultyServer(Tei(number, words)) as server:
        rmlab.remote(server.url, kind="tei", tokenizer=folder)


# Answers that are not whole, or not in order.


@pytest.mark.parametrize("kind", ["vllm", "tei", "triton"])
def test_rows_that_are_not_whole_or_in_order_are_never_a_wrong_score(
    folder, words, texts, kind
):
    respond, options = make_kind(kind, number, words)
    if kind != "triton":
        options["tokenizer"] = folder
    options |= {"kind": kind, "batch": 3, "backoff": 0.001, "retries": 1}
    changes = [lambda rows: rows[:-1], lambda rows: [*rows, rows[0]]]
    if kind == "vllm":  # rows are numbered
        changes.append(lambda rows: rows[::-1])
        for damage in ({"index": 1}, {"index": None}, {"probs": [np.nan]}):
            changes.append(lambda rows, d=damage: [rows[0] | d, *rows[1:]])
    with FaultyServer(respond) as server:
        remote = rmlab.remote(server.url, **options)
        right = rmlab.score(texts, remote)["score"]
        for change in changes:
            n_arrived = itertools.count()
            respond.change = lambda rows, change=change, n=n_arrived: (
                rows if next(n) % 2 else change(rows)
            )
            remote = rmlab.remote(server.url, **options, concurrency=1)
            np.testing.assert_array_equal(rmlab.score(texts, remote)["score"], right)
        respond.change = changes[0]
        with pytest.raises(DataError, match="answer is not in the form"):
            rmlab.score(texts, remote, allow_missing=True)
        if kind != "vllm":
            respond.change = lambda rows: rows[::-1]
            assert failing(server, **options) == ["alone"]


# Long runs.


def test_a_run_of_mostly_refused_texts_keeps_the_scores_of_the_others(served):
    frame = fake_responses(40)
    is_refused = np.arange(len(frame)) % 5 != 0
    remote = served.connect(concurrency=4)
    sent = write(remote, frame).texts
    too_long = {tuple(sent[row]) for row in np.flatnonzero(is_refused)}

    def refuse(path, body, headers):
        if too_long.intersection(map(tuple, body["input"])):
            return 400, {}, {"error": {"message": "far too long"}}
        return served.vllm(path, body, headers)

    served.respond = refuse
    table = rmlab.score(frame, remote, allow_missing=True)
    assert table["score"].isna().tolist() == is_refused.tolist()
    provenance = table.attrs["provenance"]["tiny"]
    assert provenance["missing"] == is_refused.sum()
    assert "far too long" in str(provenance["unscored"])
    with pytest.raises(DataError, match=f"{is_refused.sum()} of {len(frame)}.*too lon"):
        rmlab.score(frame, remote)


def test_a_server_that_refuses_all_texts_is_found_by_the_known_ones(served):
    """An account that is exhausted, say: after 32 refusals in a row."""
    remote = served.connect(batch=1, concurrency=1)
    served.respond = lambda *_: (400, {}, {"error": {"message": "far too long"}})
    n_before = len(served.log)
    with pytest.raises(DataError, match="far too long"):
        rmlab.score(fake_responses(100), remote, allow_missing=True)
    assert len(served.log) - n_before < 32 + 10


def test_the_fingerprint_follows_what_decides_a_score_and_not_how_it_is_asked(
    folder, tmp_path
):
    def print_of(url="http://127.0.0.1:8000", **options):
        usual = {"kind": "vllm", "model": "m", "tokenizer": folder, "version": "1"}
        return rmlab.remote(url, **(usual | options), examine=False).fingerprint

    same = print_of("http://127.0.0.1:9000", batch=1, concurrency=2, key="SOME_KEY")
    assert print_of() == same
    template = tmp_path / "chat.jinja"
    fingerprints = {same}
    for options in (
        {"version": "2"},
        {"model": "n"},
        {"eos": True},
        {"kind": "sglang"},
        {"version": None},
        {"version": None, "url": "http://127.0.0.1:9000"},
        # A template file's name was its identity.
        {"template": template},
        {"template": template, "system": "Be strict."},
    ):
        end = str(len(fingerprints))
        template.write_text(
            "{% for m in messages %}{{ m['content'] }}{% endfor %}" + end
        )
        fingerprints.add(print_of(**options))
    assert len(fingerprints) == 9


# Servers that change.


def misbehave(respond, change, first, last=np.inf):
    """A server with other answers from one request for scores to another."""
    requests = itertools.count(1)

    def answer(path, body, headers):
        reply = respond(path, body, headers)
        is_wrong = path == "/classify" and first <= next(requests) <= last
        return change(reply) if is_wrong else reply

    return answer


def with_rows(change):
    def change_rows(answer):
        rows = answer["data"]
        return answer | {"data": [row | change(rows, row) for row in rows]}

    return change_rows


A_SIGMOID = with_rows(lambda rows, row: {"probs": [sigmoid(row["probs"][0])]})
CONSTANTS = with_rows(lambda rows, row: {"probs": [0.5]})
ANOTHER_ORDER = with_rows(lambda rows, row: {"index": len(rows) - 1 - row["index"]})


@pytest.mark.parametrize(
    ("change", "first", "last"),
    [
        (A_SIGMOID, 30, np.inf),
        (ANOTHER_ORDER, 30, np.inf),
        # Right again when it was looked at: of 384 scores 152 were wrong.
        (CONSTANTS, 20, 40),
        (lambda answer: A_SIGMOID(answer) | {"model": "other"}, 20, 40),
    ],
)
def test_scores_of_a_server_that_changes_are_not_kept(
    served, tmp_path, change, first, last
):
    frame = fake_responses(64)
    remote = served.connect(version="1", concurrency=4)
    served.respond = misbehave(served.vllm, change, first, last)
    if last < np.inf:
        check_scores(remote, frame, store=tmp_path)
    else:
        with pytest.raises(DataError, match="the server has changed"):
            rmlab.score(frame, remote, store=tmp_path)
    served.respond = served.vllm
    check_scores(served.connect(version="1"), frame, store=tmp_path)


def test_a_resumed_run_never_mixes_two_models_behind_one_address_and_name(
    served, tmp_path
):
    """Half of the rows were of either, without a warning."""
    frame = fake_responses(24)
    half = fake_responses(12)
    first = check_scores(served.connect(), half, store=tmp_path)
    served.vllm.score = lambda ids: -number(ids)
    for table in (half, frame):
        with pytest.raises(DataError, match="version="):
            rmlab.score(table, served.connect(name="another"), store=tmp_path)
    other = rmlab.score(half, served.connect(version="2"), store=tmp_path)
    np.testing.assert_array_equal(other["score"], -first["score"])
    served.vllm.score = number
    check_scores(served.connect(), frame, store=tmp_path)


@pytest.fixture
def frequent_checks(monkeypatch):
    """A check of the server after every ten requests."""
    monkeypatch.setattr(scorer, "RECHECK_SECONDS", 0)
    monkeypatch.setattr(scorer, "RECHECK_REQUESTS", 10)


@pytest.mark.usefixtures("frequent_checks")
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_scores_of_a_faulty_server_do_not_outlive_a_run_that_is_stopped(
    served, tmp_path, monkeypatch, error
):
    """Of 384 scores 88 were wrong after the server was mended and the run resumed."""
    frame = fake_responses(64)
    read_scores = scorer.Remote._scores
    n_read = itertools.count(1)

    def falter(self, scored):
        n = next(n_read)
        if n == 12:
            served.respond = misbehave(served.vllm, A_SIGMOID, 1)
        if n == 18:
            raise error
        return read_scores(self, scored)

    remote = served.connect(concurrency=1)
    with monkeypatch.context() as patch:
        patch.setattr(scorer.Remote, "_scores", falter)
        with pytest.raises(error):
            rmlab.score(frame, remote, store=tmp_path)
    served.respond = served.vllm
    assert len(list_stored(tmp_path)) == 80, "confirmed ones are kept"
    check_scores(served.connect(), frame, store=tmp_path)


def test_equal_scores_of_texts_that_are_sent_alike_are_right(served):
    """They are cut to the same tokens."""
    frame = fake_responses(2)
    long = 99 * "The capital " + frame["response"]
    alike = frame.assign(prompt="Question 1?", response=long)
    remote = served.connect(max_length=99, truncate="right")
    n_known = len(served.log)
    assert len({*rmlab.score(alike, remote)["score"]}) == 1
    assert len(served.log) - n_known == 2 + 11, "no text alone"


@pytest.mark.usefixtures("frequent_checks")
def test_confirmed_scores_of_a_server_that_stays_away_are_kept(served, tmp_path):
    remote = served.connect(outage=0.2, concurrency=1)
    away = 503, {"retry-after": "60"}, {}
    served.respond = misbehave(served.vllm, lambda answer: away, 35)
    start = time.monotonic()
    with pytest.raises(DataError, match="away"):
        rmlab.score(fake_responses(64), remote, store=tmp_path)
    assert time.monotonic() - start < 60
    assert len(list_stored(tmp_path)) == 10 * 8


# A further kind of server.


def test_a_kind_with_a_form_of_its_own_is_one_class(texts, monkeypatch):
    monkeypatch.setattr(base, "KINDS", {})

    class Rank(base.ServerKind):
        name = "rank"
        path = "/v2/rank"
        form = "question"

        def write(self, prompt, response):
            return prompt + response

        def body(self, texts, model):
            return {"items": list(texts)}

        def read(self, reply):
            return base.Scored(reply.json()["ranks"])

    def rank(path, body, headers):
        return {"ranks": [number(text.encode()) for text in body["items"]]}

    with FaultyServer(rank) as server:
        table = rmlab.score(texts, rmlab.remote(server.url, kind="rank"))
        with pytest.raises(DataError, match=r"tokenizer.*rank"):
            rmlab.remote(server.url, kind="rank", tokenizer="x")
    written = texts["prompt"] + texts["response"]
    expected = [number(text.encode()) for text in written]
    np.testing.assert_array_equal(table["score"], expected)


# The shell and the doctor.


def test_the_doctor_and_the_shell_on_a_served_model(
    folder, words, texts, main, tmp_path
):
    file = tmp_path / "mine.jsonl"
    out = tmp_path / "scores.csv"
    row = {"prompt": "Question 1?", "chosen": "The capital", "rejected": "No."}
    file.write_text(json.dumps(row))
    with FaultyServer(Vllm(oracle(folder), words)) as server:
        rows = rmlab.doctor(server.url, texts, kind="vllm", tokenizer=folder)
        options = ["--url", server.url, "--kind", "vllm", "--tokenizer", folder]
        code, _, err = main("score", file, "org/tiny", *options, "-q", "-o", out)
        assert code == 0, err
    assert {"answers", "tokens", "activation", "nan"} < {*rows["check"]}
    assert set(rows["status"]) == {"pass"}
    model = rmlab.classifier(folder, device="cpu", name="tiny")
    local = rmlab.score(rmlab.load_preferences(file), model)
    pd.testing.assert_frame_equal(rmlab.read_scores(out), local, rtol=1e-5)


def test_a_tokenizer_that_is_no_folder_is_refused_by_name():
    options = {"kind": "vllm", "model": "m", "tokenizer": toy.tokenizer()}
    with pytest.raises(TypeError, match=r"tokenizer: .*save_pretrained"):
        rmlab.remote("http://127.0.0.1:8000", **options, examine=False)
