"""Served reward models: every server that is not what it seems is refused, and no row
is ever wrong.
"""

import base64
import collections
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
from safetensors.torch import load_file, save_file
from served_models import OpenRlhf, Sglang, Tei, Triton, Vllm, number, oracle, sigmoid

import rmlab
from rmlab import scorers
from rmlab.servers import Scored, ServerKind, scorer
from rmlab.servers.kinds import base, triton
from rmlab.tables import DataError

HERE = Path(__file__).parent
RECORDED = json.loads((HERE / "recorded" / "vllm_0.32.json").read_text())


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
        server.vllm, server.connect = server.respond, connect
        yield server


def failing(server, **options):
    """The checks that a server fails."""
    hasty = {"kind": "vllm", "retries": 1, "backoff": 0.001, "outage": 0}
    scorer = rmlab.remote(server.url, **(hasty | options), examine=False)
    findings = list(scorer.examine())
    return [check for check, finding in findings if finding.status == "fail"]


def unchecked(url, **options):
    """The scorer of a server that is not tried."""
    return rmlab.remote(
        url, **({"kind": "vllm", "model": "m"} | options), examine=False
    )


def numbers_of(remote, frame):
    """What a server that answers by `number` gives for the texts of a table."""
    sent = remote.writer.write(frame["prompt"].tolist(), frame["response"].tolist())
    return [number(tuple(ids)) for ids in sent.texts]


def check_scores(remote, frame, **options):
    """Score a table; every score is right."""
    table = rmlab.score(frame, remote, **options)
    np.testing.assert_array_equal(table["score"], numbers_of(remote, frame))
    return table


def rounded(answer, keys):
    """The parts of an answer that another one has, in single precision; `keys`: the
    other one.
    """
    if isinstance(answer, dict):
        return {key: rounded(answer[key], keys[key]) for key in keys}
    if isinstance(answer, list):
        return [rounded(*pair) for pair in zip(answer, keys, strict=True)]
    return pytest.approx(answer, abs=1e-5) if isinstance(answer, float) else answer


def test_the_server_of_these_tests_answers_as_vllm_did_when_it_was_measured(zoo):
    folder = zoo(**RECORDED["model"])
    server = Vllm(oracle(folder), scorers.classifier(folder, device="cpu").tokenizer)
    for exchange in RECORDED["exchanges"].values():
        if exchange["status"] == 200 and "input" in exchange["body"]:
            answer = server(exchange["path"], exchange["body"], {})
            assert answer == rounded(exchange["answer"], answer)


# Servers that are what they should be.


def attributes(text, add_eos=False, n=5):
    return [2 + number((i, add_eos, *text.encode())) / 3 for i in range(n)]


def kinds(score, words):
    """Each kind's server and options."""
    return {
        "vllm": (Vllm(score, words), {}),
        "vllm-pooling": (Vllm(score, words), {}),
        "sglang": (Sglang(score), {}),
        "tei": (Tei(score, words), {}),
        "openrlhf": (OpenRlhf(score, words), {"max_length": 2048}),
        "triton": (
            Triton(attributes),
            {"label_weights": [0, 1, 0, 0, 0], "name": "tiny"},
        ),
    }


KINDS = list(kinds(None, None))


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_a_right_server_of_each_kind_gives_the_local_scores(folder, words, texts, kind):
    local = rmlab.score(texts, rmlab.classifier(folder, device="cpu"))["score"]
    respond, options = kinds(oracle(folder), words)[kind]
    with FaultyServer(respond) as server:
        options |= {"kind": kind, "weights": folder, "batch": 3}
        table = rmlab.score(texts, rmlab.remote(server.url, **options))
    assert (table["score"] - local).abs().max() <= 1e-5 * local.std()
    assert table["model"].unique().tolist() == [
        "openrlhf" if kind == "openrlhf" else "tiny"
    ]
    assert list(table.columns) == rmlab.tables.SCORES


@pytest.mark.parametrize("server_class", [Vllm, Tei])
def test_several_outputs_are_columns_in_the_order_of_the_labels_and_need_weights(
    zoo, texts, server_class
):
    folder, kind = zoo(num_labels=3), server_class.__name__.lower()
    weights = {"LABEL_0": 1.0, "LABEL_2": -0.5}
    local = rmlab.classifier(folder, weights=weights, device="cpu")
    expected = rmlab.score(texts, local)["score"]
    with FaultyServer(server_class(oracle(folder), local.tokenizer)) as server:
        table = rmlab.score(
            texts,
            rmlab.remote(server.url, kind=kind, weights=folder, label_weights=weights),
        )
        with pytest.raises(DataError, match="label_weights"):
            rmlab.remote(server.url, kind=kind, tokenizer=folder)
    assert (table["score"] - expected).abs().max() <= 1e-5 * expected.std()
    np.testing.assert_allclose(
        table["score"], table["LABEL_0"] - 0.5 * table["LABEL_2"]
    )


# Servers that are not.


@pytest.mark.parametrize(
    ("fault", "options", "named"),
    [
        ("no template", {}, "template="),
        ("", {"max_length": 3}, "max_length=3"),
        ("other weights", {}, "up_proj"),
    ],
)
def test_a_fault_on_this_machine_is_not_the_server_s(
    served, folder, tmp_path, fault, options, named
):
    home = tmp_path / "m"
    shutil.copytree(folder, home)
    if fault == "no template":
        (home / "chat_template.jinja").unlink()
    if fault == "other weights":
        weights = load_file(home / "model.safetensors")
        del weights["model.layers.1.mlp.up_proj.weight"]
        save_file(weights, home / "model.safetensors")
        options = {"weights": home}
    with pytest.raises(DataError, match=named) as caught:
        served.connect(**({"tokenizer": home} | options))
    assert "log" not in str(caught.value)


def test_servers_are_refused_by_the_check_that_finds_them(zoo, folder, words):
    right, other = oracle(folder), oracle(zoo(seed=1, initializer_range=0.5))
    local, tokenizer = {"weights": folder}, {"tokenizer": folder}
    openrlhf = {"kind": "openrlhf", "max_length": 99} | tokenizer
    long = {"max_length": 2048}
    pooling = {"kind": "vllm-pooling", "model": "m", "retries": 0} | tokenizer
    two_outputs = Vllm(lambda ids: [number(ids), number(ids[1:])], words, softmax=True)
    per_token = Vllm(
        number, words
    )  # /pooling gives values of every token for another task
    per_token.change = lambda rows: [row | {"data": [row["data"]] * 3} for row in rows]
    for name, respond, options, checks in [
        (
            "an ignored switch",
            Vllm(number, words, ignores=True),
            tokenizer,
            ["activation"],
        ),
        (
            "a softmax",
            two_outputs,
            {"tokenizer": words, "label_weights": [1, 0]},
            ["activation"],
        ),
        (
            "bounded scores",
            OpenRlhf(lambda ids: (number(ids) + 6) / 12, words),
            openrlhf,
            ["activation"],
        ),
        (
            "a second beginning token",
            Vllm(right, words, bos=True),
            tokenizer,
            ["tokens"],
        ),
        (
            "the same, not counted",
            Vllm(right, words, bos=True, counts=False),
            local,
            ["weights"],
        ),
        ("other weights", Vllm(other, words), local, ["weights"]),
        (
            "wrong for long texts",
            Vllm(lambda ids: right(ids if len(ids) < 1000 else ids[1000:]), words),
            local,
            ["weights"],
        ),
        ("values of every token", per_token, pooling, ["answers"]),
        # All of 384 scores were wrong: the check of tokens warned, and nobody saw it.
        ("cut", Vllm(cut(number), words), tokenizer, ["tokens"]),
        ("cut", Vllm(cut(number), words, counts=False), tokenizer, ["tokens"]),
        ("cut", Sglang(cut(number)), {"kind": "sglang"} | tokenizer, ["tokens"]),
        ("cut", Tei(cut(number), words), {"kind": "tei"} | tokenizer, ["tokens"]),
        ("cut", OpenRlhf(cut(number), words), openrlhf | long, ["tokens"]),
    ]:
        with FaultyServer(respond) as server:
            assert failing(server, **options) == checks, name


def test_options_that_cannot_be_right_are_named(folder):
    for path, options, named in [
        ("/v1", {}, "url="),
        ("", {"kind": "infinity"}, "kind='infinity'"),
        ("", {"kind": "openrlhf"}, "max_length"),
        ("", {"tokenizer": "/nowhere"}, "nowhere"),
        ("", {}, "the connection failed"),
    ]:
        with pytest.raises(DataError, match=named):
            rmlab.remote(
                f"http://127.0.0.1:9{path}",
                retries=0,
                **({"kind": "vllm", "tokenizer": folder} | options),
            )


def test_text_that_the_server_would_read_as_other_tokens_is_refused(words, monkeypatch):
    decode = type(words).decode

    def write_wrong(*args, **options):
        return decode(*args, **options).replace("Question", "question")

    monkeypatch.setattr(type(words), "decode", write_wrong)
    served = unchecked("http://127.0.0.1:9", kind="tei", tokenizer=words)
    with pytest.raises(DataError, match=r"text 0 .*other tokens"):
        served.writer.write(["Question 1?"], ["The capital"])


def cut(score, longest=64):
    """A server's score of the first tokens of a text alone."""
    return lambda ids: score(ids[:longest])


def test_a_server_that_counts_no_tokens_is_warned_of_and_one_that_cannot_is_not(
    served, folder, words
):
    served.vllm.counts = False
    with pytest.warns(UserWarning, match="tokens"):
        served.connect()
    with FaultyServer(Tei(number, words)) as server:
        rmlab.remote(server.url, kind="tei", tokenizer=folder)


# Answers that are not whole, or not in order.


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_not_whole_or_in_order_are_never_a_wrong_score(
    folder, words, texts, kind
):
    respond, options = kinds(number, words)[kind]
    options |= {"kind": kind, "batch": 3, "backoff": 0.001, "retries": 1}
    options |= {} if kind == "triton" else {"tokenizer": folder}
    key = {"vllm": "probs", "vllm-pooling": "data"}.get(kind)
    damages = [
        {"index": 1},
        {"index": 5},
        {"index": None},
        {key: [float("nan")]},
        {key: []},
        {key: ["0.5"]},
    ]
    changes = [lambda rows: rows[:-1], lambda rows: [*rows, rows[0]]]
    changes += [
        lambda rows, damage=damage: [rows[0] | damage, *rows[1:]]
        for damage in damages
        if key
    ]
    with FaultyServer(respond) as server:
        served = rmlab.remote(server.url, **options)
        right = rmlab.score(texts, served)["score"]
        for change in changes:
            arrived = collections.Counter()

            def change_once(rows, change=change, arrived=arrived):
                arrived[repr(rows)] += 1
                return change(rows) if arrived[repr(rows)] == 1 else rows

            respond.change = change_once
            np.testing.assert_array_equal(rmlab.score(texts, served)["score"], right)
            assert set(arrived.values()) <= {2, 4}, "each request twice"
            respond.change = change
            silent = rmlab.score(texts, served, allow_missing=True)
            assert silent["score"].isna().all()
        respond.change = lambda rows: rows[::-1]
        if key:  # rows are numbered
            np.testing.assert_array_equal(
                rmlab.score(texts, rmlab.remote(server.url, **options))["score"], right
            )
        else:
            assert failing(server, **options) == ["alone"]


# Long runs.


def test_a_run_of_mostly_refused_texts_keeps_the_scores_of_the_others(served):
    frame = fake_responses(60)
    is_refused = np.arange(len(frame)) % 5 != 0
    remote = served.connect(concurrency=4)
    sent = remote.writer.write(frame["prompt"].tolist(), frame["response"].tolist())
    too_long = {tuple(sent.texts[row]) for row in np.flatnonzero(is_refused)}

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
    for run in (
        lambda: rmlab.score(frame, remote),
        lambda: remote(frame["prompt"].tolist(), frame["response"].tolist()),
    ):
        with pytest.raises(DataError, match="far too long") as caught:
            run()
        assert f"{is_refused.sum()} of {len(frame)}" in str(caught.value)
    served.vllm.bos = True
    with pytest.raises(DataError, match="tokens were read where"):
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
        remote = unchecked(url, **({"tokenizer": folder, "version": "1"} | options))
        json.dumps(remote.provenance())
        return remote.fingerprint

    same = print_of("http://127.0.0.1:9000", batch=1, concurrency=2, key="SOME_KEY")
    changes = [
        {"version": "2"},
        {"model": "n"},
        {"eos": True},
        {"template": "raw"},
        {"kind": "sglang"},
        {"version": None},
        {"version": None, "url": "http://127.0.0.1:9000"},
    ]
    fingerprints = [same, *(print_of(**options) for options in changes)]
    # A template file's name was its identity.
    file = tmp_path / "chat.jinja"
    for end in ("", "!"):
        file.write_text("{% for m in messages %}{{ m['content'] }}{% endfor %}" + end)
        fingerprints.append(print_of(template=file))
    assert print_of() == same
    assert print_of(template=str(file)) == fingerprints[-1]
    assert len({*fingerprints}) == len(fingerprints)


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
    return lambda answer: (
        answer | {"data": [row | change(answer["data"], row) for row in answer["data"]]}
    )


A_SIGMOID = with_rows(lambda rows, row: {"probs": [sigmoid(row["probs"][0])]})
CONSTANTS = with_rows(lambda rows, row: {"probs": [0.5]})
ANOTHER_ORDER = with_rows(lambda rows, row: {"index": len(rows) - 1 - row["index"]})


@pytest.mark.parametrize(
    ("change", "first", "last"),
    [
        (A_SIGMOID, 30, np.inf),
        (CONSTANTS, 30, np.inf),
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
    frame, half = fake_responses(24), fake_responses(12)
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
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, RuntimeError])
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
    """The caller cuts them to the same tokens."""
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


# SteerLM over Triton.


@pytest.mark.parametrize(
    ("form", "weights"), [(5, "Nemotron-4-340B-Reward"), (9, "Llama3-70B-SteerLM-RM")]
)
def test_steerlm_ratings_over_triton_become_a_weighted_sum_and_columns(
    texts, tmp_path, form, weights
):
    options = {
        "label_weights": weights,
        "batch": 3,
        "name": "nemotron",
        "backoff": 0.001,
        "retries": 9,
    }
    respond = Triton(lambda text, eos: attributes(text, eos, form))
    with FaultyServer(respond, faults={"500": 0.1, "cut": 0.1}) as server:
        remote = rmlab.remote(server.url, kind="triton", **options)
        table = rmlab.score(texts, remote, store=tmp_path)
        n_asked = len(server.log)
        assert rmlab.score(texts, remote, store=tmp_path).equals(table)
        assert len(server.log) == n_asked
    names = [*(triton.FIRST_FOUR if form == 9 else ()), *triton.ATTRIBUTES]
    assert list(remote.columns) == names
    conversations = [
        triton.conversation(p, r)
        for p, r in zip(texts["prompt"], texts["response"], strict=True)
    ]
    rated = np.array(
        [attributes(text, False, form) for text in conversations], np.float32
    )
    np.testing.assert_array_equal(table[names], rated)
    np.testing.assert_allclose(
        table["score"],
        rated[:, -5:] @ np.array([*triton.WEIGHTS[weights].values()]),
        rtol=1e-6,
    )
    rmlab.summary(table.assign(benchmark="toy"))


def test_triton_is_sent_the_published_form_and_a_text_that_it_cut_is_missing(texts):
    with FaultyServer(Triton(attributes)) as server:
        remote = rmlab.remote(
            server.url,
            kind="triton",
            label_weights=[0, 1, 0, 0, 0],
            eos=True,
            retries=0,
        )
        sent = (
            "<extra_id_0>System\nA chat between a curious user and an artificial "
            "intelligence assistant. The assistant "
            "gives helpful, detailed, and polite answers to the user's questions.\n"
            "<extra_id_1>User\nHi\n"
            "<extra_id_1>Assistant\nHello\n<extra_id_2>"
        )
        assert remote(["Hi"], ["Hello"]) == np.float32(attributes(sent, True)[1])
        server.respond.longest = 100
        for table in (texts, fake_responses(12, slots=1)):
            cut = rmlab.score(table, remote, allow_missing=True)
            assert cut["score"].isna().all()
            assert "exceeded" in str(cut.attrs["provenance"])


def test_the_triton_of_these_tests_answers_as_a_real_one_did_with_nemo_s_tensors():
    recorded = json.loads((HERE / "recorded" / "triton_0.7.json").read_text())
    for exchange in recorded["exchanges"]:

        def rate(text, eos, n=exchange["n"]):
            return [
                zlib.crc32(f"{i} {eos} {text}".encode()) % 4001 / 1000 for i in range(n)
            ]

        request, reply = (
            base64.b64decode(exchange[name]) for name in ("body", "reply")
        )
        headers = {"inference-header-content-length": exchange["length"]}
        _, headers, answer = Triton(rate, longest=recorded["longest"])(
            exchange["path"], request, headers
        )
        lengths = headers["inference-header-content-length"], exchange["reply_length"]
        heads = [
            json.loads(text[:length])
            for text, length in zip((answer, reply), lengths, strict=True)
        ]
        assert heads[0] == heads[1]
        assert answer[lengths[0] :] == reply[lengths[1] :], "the tensors"


# A further kind of server.


class Rank(ServerKind):
    """A server with a form of its own."""

    name = "rank"
    path = "/v2/rank"
    form = "question"

    def body(self, texts, model):
        return {"items": list(texts)}

    def read(self, reply):
        return Scored(reply.json()["ranks"])

    def write(self, prompt, response, options):
        return prompt + response


def test_a_kind_with_a_form_of_its_own_is_one_class(texts, monkeypatch):
    monkeypatch.setitem(base.KINDS, "rank", Rank())

    def rank(path, body, headers):
        return {"ranks": [number(tuple(text.encode())) for text in body["items"]]}

    with FaultyServer(rank) as server:
        table = rmlab.score(texts, rmlab.remote(server.url, kind="rank"))
        for option in ({"tokenizer": "x"}, {"max_length": 9}, {"eos": True}):
            with pytest.raises(DataError, match=f"{next(iter(option))}.*rank"):
                rmlab.remote(server.url, kind="rank", **option)
    written = texts["prompt"] + texts["response"]
    expected = [number(tuple(text.encode())) for text in written]
    np.testing.assert_array_equal(table["score"], expected)


# The shell and the doctor.


def test_the_doctor_and_the_shell_on_a_served_model(
    folder, words, texts, main, tmp_path
):
    file, out = tmp_path / "mine.jsonl", tmp_path / "scores.csv"
    file.write_text(
        json.dumps(
            {"prompt": "Question 1?", "chosen": "The capital", "rejected": "No."}
        )
    )
    with FaultyServer(Vllm(oracle(folder), words)) as server:
        rows = rmlab.doctor(server.url, texts, kind="vllm", weights=folder)
        options = (
            "org/tiny",
            "--url",
            server.url,
            "--kind",
            "vllm",
            "--tokenizer",
            folder,
        )
        code, _, err = main("score", file, *options, "-q", "-o", out)
        assert code == 0, err
    names = [
        "answers",
        "labels",
        "tokens",
        "spread",
        "activation",
        "alone",
        "weights",
        "texts",
        "nan",
        "saturation",
    ]
    assert rows["check"].tolist() == names
    assert set(rows["status"]) == {"pass"}
    local = rmlab.score(
        rmlab.load_preferences(file),
        rmlab.classifier(folder, device="cpu", name="tiny"),
    )
    pd.testing.assert_frame_equal(rmlab.read_scores(out), local, rtol=1e-5)


def test_weights_by_name_of_outputs_without_names_are_refused():
    """The names were sorted, and could get each other's outputs."""
    options = {"kind": "vllm", "model": "m", "examine": False}
    options |= {"tokenizer": rmlab.toy.tokenizer(chat_template="chatml")}
    weights = {"good": 1.0, "bad": 0.0}
    with pytest.raises(DataError, match="label_weights"):
        rmlab.remote("http://127.0.0.1:9", label_weights=weights, **options)
