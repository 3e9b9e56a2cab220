"""Served reward models: every server that is not what it seems is refused, and no row is ever wrong."""

import collections
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fakes import responses as fake_responses
from fakes import toy_responses
from faulty_server import FaultyServer
from served_models import OpenRlhf, Sglang, Tei, Triton, Vllm, number, oracle, reply

import rmlab
from rmlab import scorers, toy
from rmlab.scorers import Text
from rmlab.servers import scorer, steerlm
from rmlab.servers.connect import LONG_LINES, connect, examine, known_texts
from rmlab.servers.dialects import find_dialect
from rmlab.tables import DataError

RECORDED = json.loads((Path(__file__).parent / "recorded" / "vllm_0.32.json").read_text())
KEY = "sk-planted-abcdef-0123456789"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, one_thread):
    return toy.save_model(tmp_path_factory.mktemp("served"), words=toy.tokenizer(), initializer_range=0.5)


@pytest.fixture(scope="module")
def words(folder):
    return scorers.classifier(folder, device="cpu").tokenizer


@pytest.fixture(scope="module")
def texts():
    return toy_responses(prompts=5, slots=2)


def findings(server, **options):
    trial = connect(server.url, **({"kind": "vllm", "retries": 1, "backoff": 0.001, "outage": 0} | options))
    return {finding.check: finding for finding in examine(trial)}


def failing(server, **options):
    return [check for check, finding in findings(server, **options).items() if finding.status == "fail"]


# What vLLM answered when it was measured.


@pytest.fixture(scope="module")
def recorded_model(tmp_path_factory):
    return toy.save_model(tmp_path_factory.mktemp("recorded"), **RECORDED["model"])


def replay(path, body, headers):
    """The recorded answer to just this request; for token ids `add_special_tokens` says nothing."""
    if path == "/v1/models":
        return {"data": [{"id": "tiny"}]}
    if not isinstance(body["input"][0], str):
        body = {key: value for key, value in body.items() if key != "add_special_tokens"}
    for exchange in RECORDED["exchanges"].values():
        if exchange["path"] == path and exchange["body"] == body:
            return exchange["status"], {}, exchange["answer"]
    return 404, {}, {"error": f"not recorded: {body}"}


def recorded_scores(name):
    exchange = RECORDED["exchanges"][name]
    return [row.get("probs", row.get("data"))[0] for row in exchange["answer"]["data"]]


def test_recorded_answers_are_the_local_scores_a_sigmoid_a_double_bos_and_an_ignored_flag(recorded_model):
    prompts, answers = [RECORDED["prompt"]] * 3, RECORDED["exchanges"]
    local = rmlab.classifier(recorded_model, device="cpu")
    scores = local(prompts, RECORDED["responses"])
    for right in ("raw ids", "raw text no special", "pooling classify ids", "messages"):
        recorded = recorded_scores(right)
        np.testing.assert_allclose(recorded, scores[: len(recorded)], atol=6e-6 * scores.std())
    for wrong in ("default ids", "softmax false"):
        np.testing.assert_allclose(recorded_scores(wrong), 1 / (1 + np.exp(-scores)), atol=1e-6)
    assert np.abs(np.array(recorded_scores("raw text")) - scores).max() > 0.05 * scores.std()
    read = {name: exchange["answer"].get("usage", {}).get("prompt_tokens") for name, exchange in answers.items()}
    assert read["raw text"] == read["default text"] == read["raw ids"] + 3, "one beginning token more for each text"
    assert answers["normalize"]["status"] == answers["pooling token_classify"]["status"] == 400


@pytest.mark.parametrize(("kind", "exchange"), [("vllm", "raw ids"), ("vllm-pooling", "pooling classify ids")])
def test_recorded_answers_replayed_give_the_local_scores(recorded_model, kind, exchange):
    prompts = [RECORDED["prompt"]] * 3
    local = rmlab.classifier(recorded_model, device="cpu")(prompts, RECORDED["responses"])
    with FaultyServer(replay) as server:
        remote = connect(server.url, kind=kind, tokenizer=recorded_model).remote
        np.testing.assert_allclose(remote(prompts, RECORDED["responses"]), local, atol=6e-6 * local.std())
    assert remote.name == "tiny"
    asked = RECORDED["exchanges"][exchange]
    assert server.bodies(asked["path"]) == [asked["body"] | {"add_special_tokens": False}]


def assert_within(found, recorded):
    """Everything in `found` is in `recorded` as well: numbers to single precision, all else exactly."""
    if isinstance(found, dict):
        assert set(found) <= set(recorded)
        for key, value in found.items():
            assert_within(value, recorded[key])
    elif isinstance(found, list) and isinstance(recorded, list):
        assert len(found) == len(recorded)
        for one, other in zip(found, recorded, strict=True):
            assert_within(one, other)
    else:
        assert found == (pytest.approx(recorded, abs=1e-5) if isinstance(recorded, float) else recorded)


@pytest.mark.parametrize("name", RECORDED["exchanges"])
def test_the_server_of_these_tests_answers_as_vllm_did(recorded_model, name):
    exchange = RECORDED["exchanges"][name]
    words = scorers.classifier(recorded_model, device="cpu").tokenizer
    found = Vllm(oracle(recorded_model), words)(exchange["path"], exchange["body"], {})
    status, _, answer = found if isinstance(found, tuple) else (200, {}, found)
    assert status == exchange["status"]
    assert_within(answer, exchange["answer"])


# Servers that are what they should be.


def test_a_right_server_of_each_kind_gives_the_local_scores(folder, words, texts):
    score = oracle(folder)
    local = rmlab.score(texts, rmlab.classifier(folder, device="cpu"))["score"]
    servers = {
        "vllm": (Vllm(score, words), {}),
        "vllm as text": (Vllm(score, words), {"send": "text"}),
        "vllm-pooling": (Vllm(score, words), {}),
        "sglang": (Sglang(score), {}),
        "tei": (Tei(score, words), {}),
        "openrlhf": (OpenRlhf(score, words), {"max_length": 2048}),
    }
    for kind, (respond, options) in servers.items():
        with FaultyServer(respond) as server:
            remote = rmlab.remote(server.url, kind=kind.split()[0], weights=folder, batch=3, **options)
            table = rmlab.score(texts, remote)
        assert (table["score"] - local).abs().max() <= 1e-5 * local.std(), kind
        assert table["model"].unique().tolist() == ["openrlhf" if kind == "openrlhf" else "tiny"]
        assert list(table.columns) == rmlab.tables.SCORES


def test_token_ids_are_sent_where_the_server_takes_them(folder, words, texts):
    with FaultyServer(Vllm(number, words)) as server:
        remote = rmlab.remote(server.url, kind="vllm", tokenizer=folder, eos=True)
        rmlab.score(texts, remote)
    bodies = server.bodies("/classify")
    assert all(isinstance(ids, list) for body in bodies for ids in body["input"])
    assert {ids[-1] for body in bodies for ids in body["input"]} == {words.eos_token_id}
    assert {sum(token == words.bos_token_id for token in ids) for body in bodies for ids in body["input"]} == {1}
    assert {body["use_activation"] for body in bodies} == {False}
    assert {body["model"] for body in bodies} == {"org/tiny"}


def test_the_answers_columns_are_kept_where_a_model_has_several_outputs(tmp_path, texts):
    folder = toy.save_model(tmp_path / "model", num_labels=3)
    weights = {"LABEL_0": 1.0, "LABEL_2": -0.5}
    local = rmlab.score(texts, rmlab.classifier(folder, weights=weights, device="cpu"))["score"]
    tokenizer = rmlab.classifier(folder, weights=weights).tokenizer
    for respond in (Vllm(oracle(folder), tokenizer), Tei(oracle(folder), tokenizer)):
        kind = type(respond).__name__.lower()
        with FaultyServer(respond) as server:
            remote = rmlab.remote(server.url, kind=kind, weights=folder, label_weights=weights)
            table = rmlab.score(texts, remote, store=tmp_path / kind)
            again = rmlab.score(texts, remote, store=tmp_path / kind)
        pd.testing.assert_frame_equal(table, again)
        assert (table["score"] - local).abs().max() <= 1e-5 * local.std()
        np.testing.assert_allclose(table["score"], table["LABEL_0"] - 0.5 * table["LABEL_2"])
    with (
        FaultyServer(Vllm(oracle(folder), tokenizer)) as server,
        pytest.raises(DataError, match="label_weights=None"),
    ):
        rmlab.remote(server.url, kind="vllm", tokenizer=folder)


# Servers that are not.


def test_a_sigmoid_an_ignored_flag_and_a_softmax_are_refused(folder, words):
    with FaultyServer(Vllm(number, words, ignores=True)) as server:
        assert failing(server, tokenizer=folder) == ["activation"]
        with pytest.raises(DataError, match=r"not accepted \(activation\): .*may be a sigmoid"):
            rmlab.remote(server.url, kind="vllm", tokenizer=folder)
        assert failing(server, tokenizer=folder, bounded=True) == []
    with FaultyServer(Vllm(number, words, softmax=True)) as server:
        assert failing(server, tokenizer=folder) == ["spread"]
    with FaultyServer(Vllm(lambda ids: [number(ids), number(ids[1:])], words, softmax=True)) as server:
        assert failing(server, tokenizer=folder, label_weights=[1, 0]) == ["activation"]


def test_a_model_whose_own_scores_lie_in_the_unit_interval_is_accepted_by_what_its_switch_does(folder, words):
    def small(ids):
        return (number(ids) + 6) / 12

    with FaultyServer(Vllm(small, words)) as server:
        found = findings(server, tokenizer=folder)
    assert found["activation"].status == "pass"
    assert "sigmoid of them by its default" in found["activation"].detail
    with FaultyServer(OpenRlhf(small, words)) as server:
        assert failing(server, kind="openrlhf", tokenizer=folder, max_length=99) == ["activation"]


def test_a_second_beginning_token_is_refused(folder, words):
    score = oracle(folder)
    with FaultyServer(Vllm(score, words, bos=True)) as server:
        assert failing(server, tokenizer=folder) == ["tokens"]
        assert "a second beginning token" in findings(server, tokenizer=folder)["tokens"].detail
    with FaultyServer(Vllm(score, words, bos=True, counts=False)) as server:
        assert failing(server, tokenizer=folder) == []
        assert findings(server, tokenizer=folder)["tokens"].status == "warn"
        found = findings(server, weights=folder)
        assert found["weights"].status == "fail"


def test_other_weights_padding_and_a_hidden_state_are_refused(folder, words, tmp_path):
    other = toy.save_model(tmp_path / "other", seed=1, initializer_range=0.5)
    with FaultyServer(Vllm(oracle(other), words)) as server:
        assert failing(server, weights=folder) == ["weights"]
    with FaultyServer(Vllm(number, words, padded=True, counts=False)) as server:
        assert failing(server, tokenizer=folder) == ["alone"]
    with FaultyServer(Sglang(number, hidden=True)) as server:
        assert failing(server, kind="sglang", tokenizer=folder) == ["labels"]
        assert "embedding" in findings(server, kind="sglang", tokenizer=folder)["labels"].remedy


def test_options_that_cannot_be_right_are_named(folder):
    url = "http://127.0.0.1:9"
    right = {"kind": "vllm", "tokenizer": folder}
    for path, options, named in [
        ("/v1", {"kind": "sglang"}, "url="),
        ("/v1/classify", {"kind": "sglang"}, "url="),
        ("/v1", {}, "url="),
        ("", {"kind": "infinity"}, "kind='infinity'"),
        ("", {"kind": "vlm"}, "kind='vlm'"),
        ("", {"kind": "openrlhf"}, "max_length"),
        ("", {"tokenizer": None}, "tokenizer"),
        ("", {"tokenizer": folder / "nowhere"}, "nowhere"),
        ("", {"send": "words"}, "send='words'"),
        ("", {"batch": 0}, "batch=0"),
        ("", {"label_weights": "Nemotron"}, "label_weights='Nemotron'"),
        ("", {"kind": "triton"}, "tokenizer"),
        ("", {}, "the connection failed"),
    ]:
        with pytest.raises(DataError, match=named):
            rmlab.remote(url + path, retries=0, **(right | options))


def test_text_that_the_server_would_read_as_other_tokens_is_refused(folder, words):
    class Lossy:
        """A tokenizer that cannot write its tokens down."""

        def __getattr__(self, name):
            return getattr(words, name)

        def __call__(self, *args, **kwargs):
            return words(*args, **kwargs)

        def decode(self, ids, **kwargs):
            return words.decode(ids, **kwargs).replace("Question", "question")

    with FaultyServer(Vllm(number, words)) as server:
        remote = connect(server.url, kind="vllm", tokenizer=Lossy(), send="text", model="m").remote
        with pytest.raises(DataError, match=r"text 0 .*other tokens"):
            remote.prepare(["Question 1?"], ["The capital"])


def test_values_of_every_token_are_refused(folder, words):
    def per_token(path, body, headers):
        answer = Vllm(number, words)(path, body, headers)
        return answer | {"data": [row | {"data": [row.get("data")] * 3} for row in answer["data"]]}

    with FaultyServer(per_token) as server:
        assert failing(server, kind="vllm-pooling", tokenizer=folder, model="m", retries=0) == ["answers"]
    assert {body["task"] for body in server.bodies("/pooling")} == {"classify"}


# Answers that are not whole, or not in order.


def attributes(text, add_eos=False, n=5):
    return [2 + number((i, add_eos, *text.encode())) / 3 for i in range(n)]


def kinds(words):
    """Each kind's server and options, and the truth that its scores are."""
    ratings = {"label_weights": [0, 1, 0, 0, 0], "name": "tiny"}
    return {
        "vllm": (Vllm(number, words), {}),
        "vllm-pooling": (Vllm(number, words), {}),
        "sglang": (Sglang(number), {}),
        "tei": (Tei(number, words), {}),
        "openrlhf": (OpenRlhf(number, words), {"max_length": 2048}),
        "triton": (Triton(attributes), ratings),
    }


KINDS = list(kinds(None))


def rearranged(answer, order):
    """A server's answer with its rows as `order(rows)` has them, whatever they lie in."""
    if isinstance(answer, tuple):
        from tritonclient.http import InferenceServerClient

        _, headers, content = answer
        held = InferenceServerClient.parse_response_body(
            content, header_length=headers["inference-header-content-length"]
        )
        types = {"rewards": "FP32", "exceeded": "BOOL"}
        return reply({name: (kind, np.array(order(list(held.as_numpy(name))))) for name, kind in types.items()})
    if isinstance(answer, list):
        return order(answer)
    key = "rewards" if "rewards" in answer else "data"
    return answer | {key: order(answer[key])}


class Rearranging:
    """A server whose rows are rearranged at the first `times` arrivals of each request, once `starts` is true."""

    def __init__(self, respond, order, times=1, starts=True):
        self.respond, self.order, self.times, self.starts = respond, order, times, starts
        self.arrived = collections.Counter()

    def __call__(self, path, body, headers):
        answer = self.respond(path, body, headers)
        asked = repr(body)
        if body is None or not self.starts or self.arrived[asked] >= self.times:
            return answer
        self.arrived[asked] += 1
        return rearranged(answer, self.order)


WRONG = {"one too few": lambda rows: rows[:-1], "one too many": lambda rows: [*rows, rows[0]]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_count_is_asked_again_and_never_a_row(folder, words, texts, kind, wrong):
    respond, options = kinds(words)[kind]
    where = {"kind": kind, "batch": 3, "backoff": 0.001} | options | ({} if kind == "triton" else {"tokenizer": folder})
    with FaultyServer(Rearranging(respond, WRONG[wrong], starts=False)) as server:
        served = rmlab.remote(server.url, **where, retries=1)
        right = rmlab.score(texts, served)
        n = len(server.log)
        server.respond.starts = True
        table = rmlab.score(texts, served)
        assert len(server.log) - n == 2 * len(server.respond.arrived), "each request twice"
        server.respond.times = 99
        with pytest.warns(UserWarning, match="no score for"):
            none = rmlab.score(texts, served, allow_missing=True)
    np.testing.assert_array_equal(table["score"], right["score"])
    assert none["score"].isna().all()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_out_of_order_are_sorted_where_they_are_numbered_and_refused_elsewhere(folder, words, texts, kind):
    respond, options = kinds(words)[kind]
    where = {"kind": kind} | options | ({} if kind == "triton" else {"tokenizer": folder})
    with FaultyServer(respond) as server:
        right = rmlab.score(texts, rmlab.remote(server.url, **where))["score"]
    with FaultyServer(Rearranging(respond, lambda rows: rows[::-1], times=99)) as server:
        if kind.startswith("vllm"):
            np.testing.assert_array_equal(rmlab.score(texts, rmlab.remote(server.url, **where))["score"], right)
        else:
            assert failing(server, **where) == ["alone"]


def test_rows_with_a_number_twice_or_another_text_s_are_no_answer():
    for kind, key in (("vllm", "probs"), ("vllm-pooling", "data")):
        read = find_dialect(kind, "http://127.0.0.1:9").read
        rows = [{"index": i, key: [float(i)]} for i in (1, 0)]
        assert read({"data": rows}, 2).values == [[0.0], [1.0]]
        for wrong in ([rows[0], rows[0]], [rows[0], rows[1] | {"index": 2}], [rows[0], rows[1] | {"index": None}],
                      [rows[0], {key: [0.0]}], [rows[0], {"index": 0}], [rows[0], rows[1] | {key: [float("nan")]}],
                      [rows[0], rows[1] | {key: []}], [rows[0], rows[1] | {key: ["0.5"]}]):  # fmt: skip
            with pytest.raises((ValueError, LookupError, TypeError)):
                read({"data": wrong}, 2)


# Long runs.


def test_no_row_is_wrong_however_the_server_fails(folder, words):
    frame = fake_responses(250)
    faults = {"429": 0.1, "500": 0.1, "cut": 0.08, "garbage": 0.08, "hangup": 0.05}
    with FaultyServer(Vllm(number, words), faults=faults) as server:
        remote = rmlab.remote(
            server.url, kind="vllm", tokenizer=folder, batch=2, backoff=0.001, retries=9, concurrency=32
        )
        table = rmlab.score(frame, remote)
    prepared = remote.prepare(frame["prompt"].tolist(), frame["response"].tolist())
    np.testing.assert_array_equal(table["score"], [number(tuple(ids)) for ids in prepared.texts])
    assert len(server.log) > len(frame) / 2


def test_a_text_that_the_server_refuses_is_missing_and_named_the_others_are_not(folder, words, texts):
    texts = texts.copy()
    longest = int(texts["response"].str.len().idxmax())
    texts.loc[longest, "response"] *= 3
    lengths = (
        connect("http://127.0.0.1:9", kind="vllm", tokenizer=folder, model="m")
        .remote.prepare(texts["prompt"].tolist(), texts["response"].tolist())
        .lengths
    )
    with FaultyServer(Vllm(number, words, window=int(lengths.max()) - 1)) as server:
        remote = rmlab.remote(server.url, kind="vllm", tokenizer=folder, batch=4)
        with pytest.warns(UserWarning, match="maximum context length"):
            table = rmlab.score(texts, remote, allow_missing=True)
        with pytest.warns(UserWarning, match="maximum context"), pytest.raises(DataError, match="not finite"):
            rmlab.score(texts, remote)
    assert table["score"].isna().tolist() == [i == longest for i in range(len(texts))]
    about = table.attrs["provenance"]["tiny"]
    assert about["missing"] == 1
    assert sum(about["failed"].values()) == 1


def test_a_server_that_reads_other_tokens_later_gives_no_scores(folder, words, texts):
    with FaultyServer(Vllm(number, words)) as server:
        remote = rmlab.remote(server.url, kind="vllm", tokenizer=folder, retries=0)
        server.respond.bos = True
        with pytest.warns(UserWarning, match="tokens were read where"), pytest.raises(DataError, match="not finite"):
            rmlab.score(texts, remote)


def test_a_budget_ends_the_run_and_a_store_resumes_it(folder, words, tmp_path):
    frame = fake_responses(40)
    with FaultyServer(Vllm(number, words)) as server:
        options = {"kind": "vllm", "tokenizer": folder, "version": "v1", "batch": 4}
        capped = rmlab.remote(server.url, max_requests=30, **options)
        with pytest.raises(DataError, match=r"max_requests=30 are spent.*run again"):
            rmlab.score(frame, capped, store=tmp_path)
        asked = len(server.log)
        whole = rmlab.score(frame, rmlab.remote(server.url, **options), store=tmp_path)
    assert asked == 30
    assert whole["score"].notna().all()
    sent = {ids: n for ids, n in asked_of(server).items() if ids not in known_ids(folder)}
    assert set(sent.values()) == {1}, "nothing is asked twice"
    assert len(sent) == len(frame)


def test_the_fingerprint_follows_what_decides_a_score_and_not_how_it_is_asked(folder):
    def print_of(**options):
        options = {"kind": "vllm", "tokenizer": folder, "model": "m", "version": "1"} | options
        return connect(options.pop("url", "http://127.0.0.1:8000"), **options).remote.fingerprint

    assert print_of() == print_of(batch=1, concurrency=2, key="SOME_KEY") == print_of(url="http://127.0.0.1:9000")
    different = [{}, {"version": "2"}, {"model": "n"}, {"eos": True}, {"template": "raw"}, {"kind": "sglang"},
                 {"version": None}, {"version": None, "url": "http://127.0.0.1:9000"}]  # fmt: skip
    assert len({print_of(**options) for options in different}) == len(different)


# Children are forked from a process that has imported everything, so that they are killed while they score.
KILLED = """
import os, random, signal, sys, time
sys.path.insert(0, {tests!r})
from fakes import responses
import rmlab
from rmlab.servers.connect import connect, require_accepted
options = dict(kind="vllm", tokenizer={folder!r}, version="1", model="m", batch=2, concurrency=4)
trial = connect({url!r}, **options)
chance, killed = random.Random(0), 0
for _ in range(6):
    child = os.fork()
    if not child:
        rmlab.score(responses(60), trial.remote, store={store!r})
        os._exit(0)
    time.sleep(chance.uniform(0.1, 0.6))
    os.kill(child, signal.SIGKILL)
    killed += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
require_accepted(trial)
rmlab.score(responses(60), trial.remote, store={store!r})
print(killed)
"""


def asked_of(server):
    """How often each text was asked for."""
    sent = collections.Counter(tuple(ids) for seen in server.log for ids in (seen.body or {}).get("input", []))
    return dict(sent)


def known_ids(folder):
    remote = connect("http://127.0.0.1:9", kind="vllm", tokenizer=folder, model="m").remote
    return {tuple(ids) for lines in LONG_LINES for ids in remote.prepare(*known_texts(lines)).texts}


def test_kill_9_and_resume_asks_nothing_twice_that_was_answered(folder, words, tmp_path):
    store = tmp_path / "store"
    with FaultyServer(Vllm(number, words), delay=0.02) as server:
        code = KILLED.format(tests=str(Path(__file__).parent), url=server.url, folder=str(folder), store=str(store))
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    killed = int(done.stdout)
    assert killed
    sent = {ids: n for ids, n in asked_of(server).items() if ids not in known_ids(folder)}
    assert len(sent) == 60 * 6
    # At a kill at most two windows of four requests of two texts are open, or answered and on their way to the disk.
    assert sum(n - 1 for n in sent.values()) <= killed * 2 * 4 * 2
    lines = [line for path in store.glob("*/*.records") for line in path.read_text().splitlines()[1:]]
    keys = [json.loads(line)["key"] for line in lines]
    assert len(keys) == len(set(keys)) == 60 * 6


def test_the_key_is_in_no_table_store_or_provenance(folder, words, texts, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PLANTED", KEY)
    with FaultyServer(Vllm(number, words)) as server:
        remote = rmlab.remote(server.url, kind="vllm", tokenizer=folder, key="PLANTED")
        table = rmlab.score(texts, remote, store=tmp_path)
        rmlab.write_scores(table, tmp_path / "scores.csv")
        seen = [one.headers.get("authorization") for one in server.log]
    assert set(seen) == {f"Bearer {KEY}"}
    shown = [repr(remote), str(vars(remote)), str(table.attrs), table.to_csv(), *capsys.readouterr()]
    shown += [path.read_text("utf-8", "replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert len(shown) > 6
    assert not [text for text in shown if KEY in text]


# Servers that change.


class Changing:
    """A server that answers otherwise from its `after`-th request for scores on."""

    def __init__(self, respond, later, after):
        self.respond, self.later, self.after, self.seen = respond, later, after, 0

    def __call__(self, path, body, headers):
        self.seen += path in ("/classify", "/pooling")
        return (self.later if self.seen > self.after else self.respond)(path, body, headers)


def constant(path, body, headers):
    return {"data": [{"index": i, "probs": [0.5]} for i in range(len(body["input"]))]}


def swapped(words):
    def respond(path, body, headers):
        answer = Vllm(number, words)(path, body, headers)
        for row, index in zip(answer["data"], reversed(range(len(answer["data"]))), strict=True):
            row["index"] = index
        return answer

    return respond


@pytest.mark.parametrize("later", ["constants", "a sigmoid", "another order"])
def test_scores_of_a_server_that_changes_are_not_kept(folder, words, tmp_path, later):
    changed = {"constants": constant, "a sigmoid": Vllm(number, words, ignores=True), "another order": swapped(words)}
    frame = fake_responses(64)
    with FaultyServer(Changing(Vllm(number, words), changed[later], after=40)) as server:
        options = {"kind": "vllm", "tokenizer": folder, "version": "1"}
        with pytest.raises(DataError, match="the server has changed"):
            rmlab.score(frame, rmlab.remote(server.url, **options), store=tmp_path)
        server.respond.after = 10**9
        remote = rmlab.remote(server.url, **options)
        table = rmlab.score(frame, remote, store=tmp_path)
    texts = remote.prepare(frame["prompt"].tolist(), frame["response"].tolist()).texts
    np.testing.assert_array_equal(table["score"], [number(tuple(ids)) for ids in texts])


def test_a_server_is_looked_at_during_a_long_run(folder, words, monkeypatch):
    monkeypatch.setattr(scorer, "LOOK_REQUESTS", 10)
    with FaultyServer(Changing(Vllm(number, words), constant, after=70)) as server:
        remote = rmlab.remote(server.url, kind="vllm", tokenizer=folder, batch=2, concurrency=1)
        listed = [Text(f"q {i}", (f"a {i}",)) for i in range(200)]
        prepared = remote.prepare([text.prompt for text in listed], [text.answers[0] for text in listed])
        kept = {}

        def keep():
            for texts, scores in remote.stream(listed):
                kept.update(zip(texts.tolist(), scores.tolist(), strict=True))

        with pytest.raises(DataError, match="the server has changed"):
            keep()
    assert 20 <= len(kept) < 100
    assert kept == {text: number(tuple(prepared.texts[text])) for text in kept}


def test_a_server_that_is_wrong_for_long_texts_alone_is_refused(folder, words):
    right = oracle(folder)

    def forgets_the_first_chunk(ids):
        return right(ids if len(ids) < 1000 else ids[1000:])

    with FaultyServer(Vllm(forgets_the_first_chunk, words)) as server:
        assert failing(server, weights=folder) == ["weights"]


# SteerLM over Triton.


def test_steerlm_ratings_over_triton_become_a_weighted_sum_and_columns(texts, tmp_path):
    for form, weights in ((5, "Nemotron-4-340B-Reward"), (9, "Llama3-70B-SteerLM-RM")):
        respond = Triton(lambda text, eos, form=form: attributes(text, eos, form))
        with FaultyServer(respond, faults={"500": 0.1, "cut": 0.1}) as server:
            remote = rmlab.remote(
                server.url, kind="triton", label_weights=weights, batch=3, name="nemotron", backoff=0.001, retries=9
            )
            table = rmlab.score(texts, remote, store=tmp_path / str(form))
            asked = len(server.log)
            assert rmlab.score(texts, remote, store=tmp_path / str(form)).equals(table)
            assert len(server.log) == asked
        names = list(remote.columns)
        assert names == [*(steerlm.FIRST_FOUR if form == 9 else ()), *steerlm.ATTRIBUTES]
        sent = [steerlm.conversation(p, r) for p, r in zip(texts["prompt"], texts["response"], strict=True)]
        rated = np.array([attributes(text, False, form) for text in sent], np.float32)
        np.testing.assert_array_equal(table[names], rated)
        np.testing.assert_allclose(table["score"], rated[:, -5:] @ np.array(steerlm.WEIGHTS[weights]), rtol=1e-6)
        rmlab.summary(table.assign(benchmark="toy"))


def test_the_steerlm_conversation_has_the_published_form():
    assert steerlm.conversation("What is 2 + 2?", "4") == (
        "<extra_id_0>System\nA chat between a curious user and an artificial intelligence assistant. The assistant "
        "gives helpful, detailed, and polite answers to the user's questions.\n<extra_id_1>User\nWhat is 2 + 2?\n"
        "<extra_id_1>Assistant\n4\n<extra_id_2>"
    )
    with pytest.raises(DataError, match="a turn of 'tool'"):
        steerlm.conversation([{"role": "tool", "content": "x"}], "r")


def test_triton_options_and_texts_that_were_cut(texts):
    respond = Triton(attributes)
    with FaultyServer(respond) as server:
        with pytest.raises(DataError, match="Nemotron-4-340B-Reward"):
            rmlab.remote(server.url, kind="triton")
        with pytest.raises(DataError, match="no label 'humour'"):
            rmlab.remote(server.url, kind="triton", label_weights={"humour": 1})
        remote = rmlab.remote(server.url, kind="triton", label_weights=[0, 1, 0, 0, 0], add_eos=True, retries=0)
        one = remote(["Hi"], ["Hello"])
        assert one[0] == np.float32(attributes(steerlm.conversation("Hi", "Hello"), True)[1])
        respond.longest = 100
        with pytest.warns(UserWarning, match="exceeded"):
            assert rmlab.score(texts, remote, allow_missing=True)["score"].isna().all()
    refusing = FaultyServer(lambda *_: (400, {}, {"error": "Request for unknown model"}))
    with refusing, pytest.raises(DataError, match="unknown model"):
        rmlab.remote(refusing.url, kind="triton", label_weights=[1] * 5)


# The shell and the doctor.


def test_the_doctor_shows_all_checks_of_a_server_and_of_the_texts(folder, words, texts):
    with FaultyServer(Vllm(oracle(folder), words)) as server:
        rows = rmlab.doctor(server.url, texts, kind="vllm", weights=folder)
        made = rmlab.doctor(rmlab.remote(server.url, kind="vllm", weights=folder), texts)
    names = ["answers", "labels", "tokens", "spread", "activation", "alone", "weights", "texts", "nan", "saturation"]
    assert rows["check"].tolist() == names
    assert set(rows["status"]) == {"pass"}
    assert made["check"].tolist() == [name for name in names if name != "weights"]
    with FaultyServer(Vllm(number, words, ignores=True)) as server:
        rows = rmlab.doctor(server.url, texts, kind="vllm", tokenizer=folder)
    assert rows.loc[rows["status"] == "fail", "check"].tolist() == ["activation"]
    with FaultyServer(lambda *_: (404, {}, {"detail": "Not Found"})) as server:
        rows = rmlab.doctor(server.url, texts, kind="vllm", tokenizer=folder, model="m", retries=0)
    assert rows["check"].tolist() == ["answers"]
    assert "404" in rows["found"][0]


def test_the_shell_scores_and_examines_a_served_model(folder, words, main, tmp_path):
    out = tmp_path / "scores.csv"
    with FaultyServer(Vllm(oracle(folder), words)) as server:
        where = ("--url", server.url, "--kind", "vllm")
        code, _, err = main("score", "mini", "org/tiny", *where, "--tokenizer", folder, "-q", "-o", out)
        assert code == 0, err
        code, text, _ = main("doctor", "org/tiny", *where, "--local-weights", folder)
        assert code == 0, text
        assert "weights" in text
    table = rmlab.read_scores(out)
    local = rmlab.score(rmlab.load("mini"), rmlab.classifier(folder, device="cpu"))
    assert table["model"].unique().tolist() == ["tiny"]
    assert (table["score"] - local["score"]).abs().max() <= 1e-5 * local["score"].std()
