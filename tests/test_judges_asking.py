"""Runs against servers and stores: every question once, on bad days and after kill -9 too; budgets; no key anywhere."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from faulty_server import FaultyServer
from judge_fakes import completion, longer, pair_judge, responses

import rmlab
from rmlab.judges import estimate, judge
from rmlab.store import Store
from rmlab.tables import DataError

KEY = "sk-planted-4f2a9c7e"


def read_answers(body):
    """The two answers that a request shows."""
    text = body["messages"][-1]["content"]
    return [text.split(f"<answer_{side}>\n")[1].split(f"\n</answer_{side}>")[0] for side in "ab"]


def respond(path, body, headers):
    """The longer answer is better; every third prompt gets an answer without a verdict."""
    first, second = read_answers(body)
    number = int(first.split(" to ")[1].split()[0])
    return completion("Hard to say." if number % 3 == 0 else longer(first, second))


def test_a_thousand_questions_on_a_bad_day(tmp_path):
    faults = {"429": 0.05, "500": 0.05, "timeout": 0.005, "cut": 0.05, "garbage": 0.05, "slow": 0.02, "hangup": 0.02}
    table = responses(500)
    with FaultyServer(respond, faults=faults) as server:
        hasty = judge("m", server.url, concurrency=64, retries=3, backoff=0.01, timeout=0.8, name="hasty")
        pairs = rmlab.prefer(table, hasty, store=tmp_path, allow_missing=True, progress=False)
    provenance = pairs.attrs["provenance"]["hasty"]
    assert len(pairs) == 500
    unreadable = pairs["id"].astype(int) % 3 == 0
    answered = pairs["verdict"] != "failed"
    assert set(pairs.loc[answered & unreadable, "verdict"]) == {"unparsable"}
    assert set(pairs.loc[answered & ~unreadable, "verdict"]) == {"win"}, "never a wrong row"
    assert provenance["asked"] + provenance["failed"] == provenance["questions"] == 1000
    assert (~answered).sum() <= provenance["failed"] <= 50
    assert max(count_questions(server).values()) <= 4
    stored = [json.loads(line) for file in tmp_path.glob("*/*.records") for line in file.read_text().splitlines()[1:]]
    assert len(stored) == len({record["key"] for record in stored}) == provenance["asked"]
    with FaultyServer(respond, port=server.port) as server:
        again = judge("m", server.url, concurrency=8, name="hasty")
        pairs = rmlab.prefer(table, again, store=tmp_path, allow_missing=True, progress=False)
    assert len(server.log) == provenance["failed"], "what was answered is not asked again"
    assert pairs["verdict"].value_counts().to_dict() == {"win": 500 - unreadable.sum(), "unparsable": unreadable.sum()}


def count_questions(server):
    return Counter(json.dumps(body["messages"]) for body in server.bodies())


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


def count_stored(folder):
    lines = (line for file in folder.glob("*/*.records") for line in file.read_bytes().split(b"\n")[1:-1])
    return len({json.loads(line)["key"] for line in lines})


DRIVER = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import rmlab
from judge_fakes import responses
from rmlab.judges import judge
rmlab.prefer(responses(400), judge("m", sys.argv[1], concurrency=16), store=sys.argv[2], progress=False)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
@pytest.mark.filterwarnings("ignore:store. .* is damaged")
def test_kill_9_and_resume(tmp_path):
    with FaultyServer(lambda path, body, headers: completion(longer(*read_answers(body))), delay=0.01) as server:
        command = [sys.executable, "-c", DRIVER, server.url, str(tmp_path)]
        n_stored = [0]
        for _ in range(2):
            n_before = len(server.log)
            child = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"})
            last = time.monotonic() + 60
            while len(server.log) < n_before + 60 and time.monotonic() < last:
                time.sleep(0.002)
            child.kill()
            assert child.wait() == -signal.SIGKILL
            n_stored.append(count_stored(tmp_path))
        pairs = rmlab.prefer(responses(400), judge("m", server.url), store=tmp_path, progress=False)
    assert set(pairs["verdict"]) == {"win"}
    assert n_stored == sorted(n_stored)
    assert n_stored[-1] > 2 * 20, "answers survive the kill"
    assert 800 - n_stored[-1] == pairs.attrs["provenance"]["m"]["asked"]
    counts = count_questions(server).values()
    assert len(counts) == 800
    # Asked twice is at most what was open when a process was killed: sent, or answered and not read yet.
    assert sum(counts) - 800 <= 2 * 2 * 16


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


N_TOKENS = {"a": 0.25, "ж": 1.3, "\u4f60": 1.3, "\U0001f642": 1.3}
"""Tokens of a character: Chinese has about one, English a quarter."""


@pytest.mark.parametrize(("character", "first"), [("\u4f60", 0), ("a", 0), ("\U0001f642", 0), ("\u4f60", 10)])
def test_a_budget_of_tokens_holds_in_every_script(character, first):
    """Also where a run in English goes on in Chinese: both are charged by what the server says."""
    charged, n_bytes = [], []

    def respond(path, body, headers):
        text = "".join(part["content"] for part in body["messages"])
        n_bytes.append(len(text.encode()))
        charged.append(int(sum(N_TOKENS.get(sign, 0.25) for sign in text)) + 4)
        usage = {"prompt_tokens": charged[-1] - 4, "completion_tokens": 4, "total_tokens": charged[-1]}
        return completion("[[A]]") | {"usage": usage}

    table = responses(40)
    table.loc[first:, "response"] += character * 700
    with FaultyServer(respond, delay=0.01) as server:
        budget = 95_000 if first else int(1.1 * estimate(judge("m", server.url), table)["prompt_tokens"].iloc[0])
        limited = judge("m", server.url, answer_tokens=4, concurrency=16, max_tokens=budget)
        pairs = rmlab.prefer(table, limited, allow_missing=True, progress=False)
    provenance = pairs.attrs["provenance"]["m"]
    assert sum(charged) <= budget
    assert provenance["asked"] + provenance["failed"] == 80
    assert set(pairs["verdict"]) <= {"flip", "failed"}
    if provenance["failed"]:
        assert character != "a"
        assert sum(charged) > budget - max(n_bytes) - 4, "no further question fits into the budget"
        assert any("max_tokens" in reason for reason in provenance["failures"])


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
