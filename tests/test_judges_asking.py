"""Runs against servers and stores: every question once, on bad days and after kill -9 too; budgets; no key anywhere."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from faulty_server import FaultyServer
from judge_fakes import Respondent, completion, longer, pair_judge, responses

import rmlab
from rmlab.judges import asking, estimate, judge
from rmlab.judges.modes import PairJudge
from rmlab.judges.questions import load_template
from rmlab.store import Store
from rmlab.tables import DataError

KEY = "sk-planted-4f2a9c7e"


def shown(body):
    """The two answers that a request shows."""
    text = body["messages"][-1]["content"]
    return [text.split(f"<answer_{side}>\n")[1].split(f"\n</answer_{side}>")[0] for side in "ab"]


def respond(path, body, headers):
    """The longer answer is better; every third prompt gets an answer without a verdict."""
    first, second = shown(body)
    number = int(first.split(" to ")[1].split()[0])
    return completion("Hard to say." if number % 3 == 0 else longer(first, second))


@pytest.mark.usefixtures("no_waiting")
def test_two_thousand_questions_on_a_bad_day(tmp_path):
    faults = {"429": 0.05, "500": 0.05, "timeout": 0.005, "cut": 0.05, "garbage": 0.05, "slow": 0.02, "hangup": 0.02}
    table = responses(1000)
    with FaultyServer(respond, faults=faults, patience=1.0) as server:
        one = judge("m", server.url, concurrency=64, retries=3, timeout=0.8, name="one")
        pairs = rmlab.prefer(table, one, store=tmp_path, allow_missing=True, progress=False)
    about = pairs.attrs["provenance"]["one"]
    assert len(pairs) == 1000
    unreadable = pairs["id"].astype(int) % 3 == 0
    read = pairs["verdict"] != "failed"
    assert set(pairs.loc[read & unreadable, "verdict"]) == {"unparsable"}
    assert set(pairs.loc[read & ~unreadable, "verdict"]) == {"win"}, "never a wrong row"
    assert about["asked"] + about["failed"] == about["questions"] == 2000
    assert (~read).sum() <= about["failed"] <= 100
    arrived = Counter(json.dumps(body["messages"]) for body in server.bodies())
    assert max(arrived.values()) <= 4
    stored = [json.loads(line) for file in tmp_path.glob("*/*.records") for line in file.read_text().splitlines()[1:]]
    assert len(stored) == len({record["key"] for record in stored}) == about["asked"]
    with FaultyServer(respond, port=server.port) as server:
        again = judge("m", server.url, concurrency=8, name="one")
        whole = rmlab.prefer(table, again, store=tmp_path, allow_missing=True, progress=False)
    assert len(server.log) == about["failed"], "what was answered is not asked again"
    assert (whole["verdict"] == "failed").sum() == 0
    assert (whole["verdict"] == "unparsable").sum() == unreadable.sum()


@pytest.fixture
def no_waiting(monkeypatch):
    """Pauses between tries as short as the server of the test is fast."""
    from rmlab.servers import Client

    made = Client.__init__
    monkeypatch.setattr(Client, "__init__", lambda self, *a, **k: made(self, *a, **{"backoff": 0.01} | k))


def test_answers_are_kept_as_they_came_and_read_again(tmp_path):
    first = pair_judge(lambda *_: "<think>hm [[B]]</think>é 🙂\tTab\n[[A]]")
    rmlab.prefer(responses(3), first, store=tmp_path, progress=False)
    texts = {answer["text"] for answer in Store(tmp_path).read(first.respondent.fingerprint).values()}
    assert texts == {"<think>hm [[B]]</think>é 🙂\tTab\n[[A]]"}
    again = pair_judge(longer)
    assert set(rmlab.prefer(responses(4), again, store=tmp_path, progress=False)["verdict"]) == {"flip", "win"}
    assert len(again.respondent.asked) == 2, "only the new prompt is asked"
    more = pair_judge(longer, samples=2)
    rmlab.prefer(responses(4), more, store=tmp_path, progress=False)
    assert len(more.respondent.asked) == 8, "the first sample is there"


def test_what_failed_is_asked_again_and_what_could_not_be_read_is_not(tmp_path):
    answers = iter(["[[A]]", None, "huh", "[[B]]"])
    once = pair_judge(lambda *_: next(answers))
    pairs = rmlab.prefer(responses(2), once, store=tmp_path, allow_missing=True, progress=False)
    assert pairs["verdict"].tolist() == ["failed", "unparsable"]
    again = pair_judge(longer)
    pairs = rmlab.prefer(responses(2), again, store=tmp_path, allow_missing=True, progress=False)
    assert len(again.respondent.asked) == 1
    assert pairs["verdict"].tolist() == ["win", "unparsable"]


DRIVER = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import rmlab
from judge_fakes import responses
from rmlab.judges import judge
one = judge("m", sys.argv[1], concurrency=16, name="one")
rmlab.prefer(responses(400), one, store=sys.argv[2], progress=False)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_kill_9_and_resume(tmp_path):
    table, kills = responses(400), 3
    with FaultyServer(lambda path, body, headers: completion(longer(*shown(body))), delay=0.01) as server:
        command = [sys.executable, "-c", DRIVER, server.url, str(tmp_path)]
        stored = [set()]
        for _ in range(kills):
            before = len(server.log)
            child = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"})
            last = time.monotonic() + 60
            while len(server.log) < before + 60 and time.monotonic() < last:
                time.sleep(0.002)
            child.kill()
            assert child.wait() == -signal.SIGKILL
            stored.append(_keys(tmp_path))
        one = judge("m", server.url, concurrency=16, name="one")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="store: .* is damaged")
            pairs = rmlab.prefer(table, one, store=tmp_path, progress=False)
    assert set(pairs["verdict"]) == {"win"}
    assert [len(keys) for keys in stored] == sorted(len(keys) for keys in stored)
    assert len(stored[-1]) > 3 * 20, "answers survive the kill"
    arrived = Counter(json.dumps(body["messages"]) for body in server.bodies())
    assert len(arrived) == 800
    # Asked twice is at most what was open when a process was killed: sent, or answered and not read yet.
    assert sum(n - 1 for n in arrived.values()) <= kills * 2 * 16
    assert 800 - len(stored[-1]) == pairs.attrs["provenance"]["one"]["asked"]


def _keys(folder):
    lines = (line for file in folder.glob("*/*.records") for line in file.read_bytes().split(b"\n")[1:-1])
    return {json.loads(line)["key"] for line in lines}


def test_two_processes_without_shards_may_both_ask_everything(tmp_path):
    with FaultyServer(lambda path, body, headers: completion(longer(*shown(body))), delay=0.02) as server:
        command = [sys.executable, "-c", DRIVER, server.url, str(tmp_path)]
        children = [subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}) for _ in range(2)]
        assert [child.wait(60) for child in children] == [0, 0]
    assert 800 <= len(server.log) <= 1600
    assert len(_keys(tmp_path)) == 800
    whole = judge("m", server.url, concurrency=16, name="one")
    pairs = rmlab.prefer(responses(400), whole, store=tmp_path, progress=False)
    assert pairs.attrs["provenance"]["one"]["asked"] == 0, "the server is gone, and nothing is asked"
    assert set(pairs["verdict"]) == {"win"}


def test_the_budget_is_known_before_the_first_question(tmp_path):
    table = responses(10)
    with FaultyServer(respond) as server:
        one = judge("m", server.url, max_requests=12, answer_tokens=50)
        row = estimate(one, table, store=tmp_path).iloc[0]
        assert row[["questions", "answered", "to_ask", "answer_tokens"]].tolist() == [20, 0, 20, 1000]
        assert row["prompt_tokens"] > 20 * 200
        with pytest.raises(DataError, match=r"max_requests=12: .*20.*12 are left"):
            rmlab.prefer(table, one, store=tmp_path, progress=False)
        with pytest.raises(DataError, match="max_tokens=100"):
            rmlab.prefer(table, judge("m", server.url, max_tokens=100), progress=False)
        assert server.log == []
        few = judge("m", server.url, max_requests=12)
        rmlab.prefer(responses(5), few, store=tmp_path, allow_missing=True, progress=False)
        assert estimate(one, table, store=tmp_path)["answered"].tolist() == [0], "other limits are other answers"
        assert estimate(few, table, store=tmp_path)[["answered", "to_ask"]].to_numpy().tolist() == [[10, 10]]
        with pytest.raises(DataError, match="2 are left"):
            rmlab.prefer(table, few, store=tmp_path, progress=False)


def test_a_budget_of_tokens_ends_a_run_without_wrong_rows(tmp_path):
    costly = lambda path, body, headers: completion("[[A]]") | {"usage": {"total_tokens": 3000}}  # noqa: E731
    with FaultyServer(costly) as server:
        one = judge("m", server.url, max_tokens=40_000, answer_tokens=10, concurrency=1, name="one")
        pairs = rmlab.prefer(responses(20), one, store=tmp_path, allow_missing=True, progress=False)
    about = pairs.attrs["provenance"]["one"]
    assert 0 < about["asked"] < 20
    assert about["asked"] + about["failed"] == 40
    assert set(pairs["verdict"]) <= {"flip", "failed"}
    assert any("max_tokens" in reason or "budget" in reason for reason in about["failures"])


@pytest.mark.parametrize("script", ["\u4f60", "\u3042", "a", "\U0001f642", "ж"])
def test_a_budget_of_tokens_holds_in_every_script(script):
    """Chinese has about a token a character, English a quarter: both are charged by what the server says."""
    charged = []

    def respond(path, body, headers):
        text = "".join(part["content"] for part in body["messages"])
        n_tokens = sum(0.25 if sign.isascii() else 1.3 for sign in text)
        charged.append(int(n_tokens) + 4)
        usage = {"prompt_tokens": int(n_tokens), "completion_tokens": 4, "total_tokens": charged[-1]}
        time.sleep(0.01)
        return completion("[[A]]") | {"usage": usage}

    table = responses(60)
    table["response"] += script * 700
    with FaultyServer(respond) as server:
        one = judge("m", server.url, answer_tokens=4, concurrency=16, name="one")
        budget = int(1.1 * estimate(one, table)["prompt_tokens"].iloc[0])
        limited = judge("m", server.url, answer_tokens=4, concurrency=16, name="one", max_tokens=budget)
        pairs = rmlab.prefer(table, limited, allow_missing=True, progress=False)
    about = pairs.attrs["provenance"]["one"]
    assert sum(charged) <= budget
    assert about["failed"] == 0 or sum(charged) > budget - 2 * max(charged), "the budget is spent"
    assert about["failed"] == 0 or not script.isascii()


def test_a_budget_of_tokens_holds_where_a_run_in_english_goes_on_in_chinese():
    charged = []

    def respond(path, body, headers):
        text = "".join(part["content"] for part in body["messages"])
        charged.append(int(sum(0.25 if sign.isascii() else 1.3 for sign in text)) + 4)
        time.sleep(0.01)
        usage = {"prompt_tokens": charged[-1] - 4, "completion_tokens": 4, "total_tokens": charged[-1]}
        return completion("[[A]]") | {"usage": usage}

    table = responses(40)
    table.loc[10:, "response"] += "\u4f60" * 700
    with FaultyServer(respond) as server:
        limited = judge("m", server.url, answer_tokens=4, concurrency=16, name="one", max_tokens=95_000)
        rmlab.prefer(table, limited, allow_missing=True, progress=False)
    assert 85_000 < sum(charged) <= 95_000


@pytest.mark.usefixtures("no_waiting")
def test_a_key_is_nowhere(tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    caplog.set_level(0)
    echo = lambda path, body, headers: (  # noqa: E731
        completion(f"{headers['authorization']} [[A]]") if "chosen 0 to 1 " in json.dumps(body) else (401, {}, headers)
    )
    with FaultyServer(echo) as server:
        one = judge("m", server.url, key="JUDGE_KEY", retries=0, name="one")
        pairs = rmlab.prefer(responses(3), one, store=tmp_path / "store", allow_missing=True, progress=False)
        assert all(KEY in seen.headers["authorization"] for seen in server.log)
        with pytest.raises(DataError) as caught:
            rmlab.prefer(responses(3), one, store=tmp_path / "store", progress=False)
    rmlab.judges.write_requests(one, responses(3), tmp_path / "requests.jsonl")
    rmlab.write_pairs(pairs, tmp_path / "pairs.csv")
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    said = "".join([*capsys.readouterr(), caplog.text, repr(one), str(caught.value), repr(pairs.attrs), pairs.to_csv()])
    assert b"[key]" in written, "the server's echo was kept, without the key"
    assert KEY.encode() not in written
    assert KEY not in said


def test_memory_holds_verdicts_not_answers(tmp_path):
    long = pair_judge(lambda *_: "word " * 4000 + "[[A]]")
    rmlab.prefer(responses(30), long, store=tmp_path, progress=False)
    answers = Store(tmp_path).read(long.respondent.fingerprint).values()
    assert min(len(answer["text"]) for answer in answers) > 20_000
    again = PairJudge("judge", Respondent(lambda _: None), load_template("five", "pair"))
    questions = again.questions(*_items(responses(30)))
    store, read = Store(tmp_path), again.read_answer
    replies = asking.ask("judge", again.respondent, questions, read, store=store, progress=False)
    assert len(replies.values) == 60
    assert {type(value) for value in replies.values.values()} == {int}


def _items(table: pd.DataFrame):
    wide = table.pivot_table(index=["id", "prompt"], columns="label", values="response", aggfunc="first").reset_index()
    return wide["prompt"].tolist(), list(zip(wide["chosen"], wide["rejected"], strict=True))
