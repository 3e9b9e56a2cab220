"""Runs against servers and stores: every question once, on bad days too; budgets; no key anywhere."""

import json
from collections import Counter

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


def test_answers_are_kept_as_they_came_and_only_new_questions_are_asked(tmp_path):
    answers = iter(["<think>hm [[B]]</think>é 🙂\tTab\n[[A]]", None, "huh", "[[B]]"])

    def ask(judge, n):
        return rmlab.prefer(responses(n), judge, store=tmp_path, allow_missing=True, progress=False)["verdict"].tolist()

    once, again, more = pair_judge(lambda *_: next(answers)), pair_judge(longer), pair_judge(longer, samples=2)
    assert ask(once, 2) == ["failed", "unparsable"]
    texts = {answer["text"] for answer in Store(tmp_path).read(once.respondent.fingerprint).values()}
    assert texts == {"<think>hm [[B]]</think>é 🙂\tTab\n[[A]]", "huh", "[[B]]"}
    assert ask(again, 3) == ["win", "unparsable", "win"]
    assert len(again.respondent.asked) == 1 + 2, "a failure and the new prompt"
    ask(more, 3)
    assert len(more.respondent.asked) == 6, "the first sample is there"


def test_answers_are_stored_as_they_come(tmp_path):
    """A run that is ended asks again at most what was open."""
    asked = []

    def end(first, second, question):
        asked.append(question)
        if len(asked) == 600:
            raise KeyboardInterrupt
        return longer(first, second)

    with pytest.raises(KeyboardInterrupt):
        rmlab.prefer(responses(400), pair_judge(end), store=tmp_path, progress=False)
    again = pair_judge(longer)
    pairs = rmlab.prefer(responses(400), again, store=tmp_path, progress=False)
    assert set(pairs["verdict"]) == {"win"}
    assert 201 <= len(again.respondent.asked) <= 201 + 256


def test_the_budget_is_known_before_the_first_question(tmp_path):
    table = responses(10)
    with FaultyServer(respond) as server:
        capped = judge("m", server.url, max_requests=12, answer_tokens=50)
        row = estimate(capped, table, store=tmp_path).iloc[0]
        assert row[["questions", "answered", "to_ask", "answer_tokens"]].tolist() == [20, 0, 20, 1000]
        assert row["prompt_tokens"] > 20 * 200
        with pytest.raises(DataError, match=r"max_requests=12: .*20.*12 are left"):
            rmlab.prefer(table, capped, store=tmp_path, progress=False)
        with pytest.raises(DataError, match="max_tokens=100"):
            rmlab.prefer(table, judge("m", server.url, max_tokens=100), progress=False)
        assert server.log == []
        rmlab.prefer(responses(5), capped, store=tmp_path, allow_missing=True, progress=False)
        assert estimate(capped, table, store=tmp_path)[["answered", "to_ask"]].to_numpy().tolist() == [[10, 10]]
        with pytest.raises(DataError, match="2 are left"):
            rmlab.prefer(table, capped, store=tmp_path, progress=False)


@pytest.mark.parametrize(("sign", "first"), [("\u4f60", 0), ("a", 0), ("\U0001f642", 0), ("\u4f60", 10)])
def test_a_budget_of_tokens_holds_in_every_script(sign, first):
    """Also where a run in English goes on in Chinese: both are charged by what the server says.

    Chinese has about one token for a character, English a quarter.
    """
    charged, n_bytes = [], []

    def respond(path, body, headers):
        text = "".join(part["content"] for part in body["messages"])
        n_bytes.append(len(text.encode()))
        charged.append(int(sum(0.25 if character < "\x80" else 1.3 for character in text)) + 4)
        return completion("[[A]]") | {"usage": {"total_tokens": charged[-1]}}

    table = responses(40)
    table.loc[first:, "response"] += sign * 700
    with FaultyServer(respond, delay=0.01) as server:
        budget = 95_000 if first else int(1.1 * estimate(judge("m", server.url), table)["prompt_tokens"].iloc[0])
        limited = judge("m", server.url, answer_tokens=4, concurrency=16, max_tokens=budget)
        pairs = rmlab.prefer(table, limited, allow_missing=True, progress=False)
    provenance = pairs.attrs["provenance"]["m"]
    assert sum(charged) <= budget
    assert provenance["asked"] + provenance["failed"] == 80
    assert set(pairs["verdict"]) <= {"flip", "failed"}
    if provenance["failed"]:
        assert sign != "a"
        assert sum(charged) > budget - max(n_bytes) - 4, "no further question fits into the budget"
        assert any("max_tokens" in reason for reason in provenance["failures"])


def test_a_key_is_nowhere(tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    caplog.set_level(0)

    def echo(path, body, headers):
        is_first = "chosen 0 to 1 " in json.dumps(body)
        return completion(f"{headers['authorization']} [[A]]") if is_first else (401, {}, headers)

    with FaultyServer(echo) as server:
        with_key = judge("m", server.url, key="JUDGE_KEY", retries=0, name="one")
        pairs = rmlab.prefer(responses(3), with_key, store=tmp_path / "store", allow_missing=True, progress=False)
        assert all(KEY in seen.headers["authorization"] for seen in server.log)
        with pytest.raises(DataError) as caught:
            rmlab.prefer(responses(3), with_key, store=tmp_path / "store", progress=False)
    rmlab.judges.write_requests(with_key, responses(3), tmp_path / "requests.jsonl")
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"[key]" in written, "the server's echo was kept, without the key"
    texts = [*capsys.readouterr(), caplog.text, repr(with_key), str(caught.value), repr(pairs.attrs), pairs.to_csv()]
    assert not [text for text in [*texts, written.decode()] if KEY in text]
