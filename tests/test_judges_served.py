"""Judges behind servers: requests and replies, conventions, stores, budgets,
and `rmlab judge`.
"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pandas as pd
import pytest
from crashes import list_stored
from faulty_server import FaultyServer
from judge_fakes import (
    completion,
    longer,
    pair_judge,
    respond,
    responses,
    shown_answers,
)

import rmlab
from rmlab.judges import cost, judge, load_template
from rmlab.judges.questions import shipped
from rmlab.judges.readers import Reader
from rmlab.store import Store
from rmlab.tables import DataError

KEY = "sk-planted-4f2a9c7e"
URL = "http://127.0.0.1:9/v1"
SHOWS = {"ranking": "list"} | {
    name: "answer" for name in shipped() if name.startswith("rating")
}
prefer, score = (
    partial(ask, allow_missing=True, progress=False)
    for ask in (rmlab.prefer, rmlab.score)
)


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_question_shows_what_it_asks_about_as_it_is(name):
    """What a text holds is no place of the template."""
    shows = SHOWS.get(name, "pair")
    texts = ["{answer_b} and {x}", "{prompt}", r"\1 {answer_a}"]
    if shows == "answer":
        texts.pop()
    messages = load_template(name, shows).messages(texts[0], texts[1:])
    asked = "\n".join(part["content"] for part in messages)
    for text in texts:
        assert asked.count(text) == 1
        asked = asked.replace(text, "")
    assert "{" not in asked.replace(r"\boxed{", "")


def ask(answer, path="", table=None, **options):
    """The table and the first request of a judge who is always answered the same."""
    with FaultyServer(lambda *_: answer) as server:
        one = judge("m", server.url + path, **options)
        table = (prefer if one.mode == "pairwise" else score)(
            responses(1) if table is None else table, one
        )
    assert {request.path for request in server.log} == {f"{path}/chat/completions"}
    return table, server.log[0].body


def test_what_a_request_says():
    options = {
        "answer_tokens": 99,
        "seed": 3,
        "extra": {"top_p": 0.9, "temperature": None},
    }
    body = ask(completion("[[A]]"), "/v1", **options)[1]
    assert [body[name] for name in ("model", "max_tokens", "top_p")] == ["m", 99, 0.9]
    assert not {"temperature", "logprobs"} & set(body)
    assert isinstance(body["seed"], int)
    assert ask(completion("[[4]]"), mode="rating")[1]["temperature"] == 0.0
    assert ask(completion("[[4]]"), mode="rating", samples=2)[1]["temperature"] == 0.7
    openai = judge("gpt", "https://api.openai.com/v1").respondent
    assert openai.client.key == "OPENAI_API_KEY"
    assert "max_completion_tokens" in openai.fields
    assert judge("gpt", URL).respondent.client.key is None, "none is named"


def letter(*alternatives, **fields):
    """A completion of one token, with its log-probability and those of others."""
    tokens = [{"token": token, "logprob": logprob} for token, logprob in alternatives]
    choice = tokens[0] | {"top_logprobs": tokens}
    return completion(tokens[0]["token"], logprobs={"content": [choice]}) | fields


A = ("A", -0.1)
B = ("B", -2.0)
LETTERLESS = {
    "no log-probabilities": completion("A"),
    "no alternatives": completion(
        "A", logprobs={"content": [{"token": "A", "logprob": -0.1}]}
    ),
    "one alternative": letter(A),
}
ODD = LETTERLESS | {
    "NaN": letter(A, ("B", float("nan"))),
    "infinity": letter(A, ("B", float("inf"))),
    "a number for a token": letter(A, (7, -1.0), B),
    "too large a number": letter(A, B, usage={"prompt_tokens": float("inf")}),
}


@pytest.mark.parametrize("reply", LETTERLESS)
def test_a_server_without_log_probabilities_is_asked_a_few_questions(reply):
    with FaultyServer(lambda *_: LETTERLESS[reply]) as server:
        one = judge("m", server.url, mode="logprob", concurrency=1)
        with pytest.raises(DataError, match="top_logprobs"):
            prefer(responses(100), one)
        assert len(server.log) < 16


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("n", [0, 39])
def test_one_odd_reply_is_one_missing_answer(tmp_path, odd, n):
    """It ended the run: of 24 answers 16 were stored."""
    requests = count(0)

    def reply(*_):
        return ODD[odd] if next(requests) == n else letter(A, B)

    with FaultyServer(reply) as server:
        options = {"name": "one", "retries": 0, "concurrency": 1}
        one = judge("m", server.url, mode="logprob", **options)
        pairs = prefer(responses(20), one, store=tmp_path)
        n_failed = 0 if odd == "a number for a token" else 1
        assert len(list_stored(tmp_path)) == 40 - n_failed
        assert Counter(pairs["verdict"]) == Counter(flip=20 - n_failed, failed=n_failed)
        server.respond = lambda *_: ODD[odd]
        assert len(prefer(responses(20), one, store=tmp_path)) == 20, (
            "also where only the odd one is left"
        )


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (
            completion(
                [{"type": "text", "text": "[[A"}, {"type": "text", "text": ">B]]"}]
            ),
            "flip",
        ),
        (completion(None, reasoning_content="I think [[A]]"), "unparsable"),
        (completion(None, refusal="I cannot do that."), "unparsable"),
        (completion("[[A]]") | {"usage": {"prompt_tokens": "many"}}, "failed"),
        (completion({"text": "[[A]]"}), "failed"),
    ],
)
def test_replies_that_are_unlike_the_others(answer, verdict):
    assert ask(answer, retries=0)[0]["verdict"].tolist() == [verdict]


URLS = [
    "http://127.0.0.1:9/other/v1",
    "http://127.0.0.1:10/v1",
    "https://127.0.0.1:9/v1",
]
SAME = [
    {"key": "SOME_KEY"},
    {"concurrency": 1, "retries": 0, "max_requests": 5},
    # How replies are read changes no question.
    {"reader": "strength"},
]
CHANGED = [
    *({"url": url} for url in URLS),
    {"model": "n"},
    {"version": "2"},
    {"answer_tokens": 5},
    {"samples": 2},
    {"temperature": 0.1},
    {"extra": {"top_p": 1}},
    {"mode": "rating"},
    {"template": "three"},
    {"seed": 1},
    {"system": "Be strict."},
    {"template_options": {"enable_thinking": False}},
    {"convention": "reward-bench"},
]


def test_the_fingerprint_knows_model_address_and_sampling():
    """Two servers of one model name share no answers in a store."""

    def fingerprints(changes):
        plain = {"model": "m", "url": URL}
        return {judge(**plain | change).fingerprint for change in changes}

    assert len(fingerprints([{}, *SAME])) == 1
    assert len(fingerprints([{}, *CHANGED])) == 1 + len(CHANGED)


@pytest.mark.parametrize(
    ("url", "options", "allowed"),
    [
        (URL, {"revision": "abc"}, "'version'"),
        (URL, {"concurency": 2}, "'concurrency'"),
        (None, {"key": "K"}, "'batch'"),
    ],
)
def test_an_option_of_the_other_kind_of_judge_is_named(url, options, allowed):
    """A bare TypeError of another function."""
    with pytest.raises(ValueError, match=f"{next(iter(options))}.*{allowed}"):
        judge("m", url, **options)


def count_questions(server):
    return Counter(json.dumps(body["messages"]) for body in server.bodies())


def test_a_thousand_questions_on_a_bad_day(tmp_path):
    """Every third prompt gets an answer without a verdict."""

    def vague(path, body, headers):
        number = int(shown_answers(body["messages"])[0].split()[3])
        if number % 3:
            return respond(path, body, headers)
        return completion("Hard to say.")

    faults = dict.fromkeys(["429", "500", "cut", "garbage"], 0.05)
    faults |= {"timeout": 0.005, "slow": 0.02, "hangup": 0.02}
    options = {"name": "one", "concurrency": 64, "retries": 3, "backoff": 0.01}
    table = responses(500)
    with FaultyServer(vague, faults=faults) as server:
        hasty = judge("m", server.url, timeout=0.8, **options)
        pairs = prefer(table, hasty, store=tmp_path)
    counts = pairs.attrs["provenance"]["one"]
    is_vague = pairs["id"].astype(int) % 3 == 0
    is_answered = pairs["verdict"] != "failed"
    assert len(pairs) == 500
    assert set(pairs.loc[is_answered & is_vague, "verdict"]) == {"unparsable"}
    assert set(pairs.loc[is_answered & ~is_vague, "verdict"]) == {"win"}
    assert counts["asked"] + counts["failed"] == counts["questions"] == 1000
    assert (~is_answered).sum() <= counts["failed"] <= 50
    assert max(count_questions(server).values()) <= 4
    keys = list_stored(tmp_path)
    assert len(keys) == len(set(keys)) == counts["asked"]
    with FaultyServer(vague, port=server.port) as server:
        again = judge("m", server.url, concurrency=8, name="one")
        pairs = prefer(table, again, store=tmp_path)
    assert len(server.log) == counts["failed"], "what was answered is not asked again"
    n_vague = is_vague.sum()
    expected = {"win": 500 - n_vague, "unparsable": n_vague}
    assert pairs["verdict"].value_counts().to_dict() == expected


RUN = """
import sys, rmlab
from judge_fakes import responses
judge = rmlab.judge("m", sys.argv[1], concurrency=8)
rmlab.prefer(responses(200), judge, store=sys.argv[2], progress=False)
"""


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_a_run_that_is_killed_asks_again_at_most_what_was_open(tmp_path):
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])
    }
    with FaultyServer(respond, delay=0.02) as server:
        run = subprocess.Popen(
            [sys.executable, "-c", RUN, server.url, str(tmp_path)], env=env
        )
        server.wait_for(150, run)
        run.kill()
        assert run.wait() == -signal.SIGKILL
        n_kept = len(list_stored(tmp_path))
        pairs = prefer(responses(200), judge("m", server.url), store=tmp_path)
    assert set(pairs["verdict"]) == {"win"}
    assert pairs.attrs["provenance"]["m"]["asked"] == 400 - n_kept, (
        "nothing that was kept is asked again"
    )
    assert len(server.log) - 400 <= 2 * 8 + 8, (
        "handed to eight senders, or of the eight answers stored at once"
    )


def test_replies_are_kept_as_they_came_and_read_again(tmp_path):
    answers = iter(["<think>hm [[B]]</think>é 🙂\tTab\n[[A]]", None, "huh", "[[B]]"])

    def verdicts(judge, n):
        return prefer(responses(n), judge, store=tmp_path)["verdict"].tolist()

    once = pair_judge(lambda *_: next(answers))
    again = pair_judge(longer)
    assert verdicts(once, 2) == ["failed", "unparsable"]
    records = Store(tmp_path).read(once.fingerprint).values()
    texts = {reply["text"] for record in records for reply in record[-1]}
    assert texts == {"<think>hm [[B]]</think>é 🙂\tTab\n[[A]]", "huh", "[[B]]"}
    assert verdicts(again, 3) == ["win", "unparsable", "win"]
    assert len(again.respondent.asked) == 1 + 2, "a failure and the new prompt"
    vague = replace(again, reader=Reader("huh", lambda text: "A"))
    assert verdicts(vague, 3)[1] == "flip", "replies are read anew, not asked for"
    assert len(again.respondent.asked) == 1 + 2


def test_the_budget_is_known_before_the_first_question(tmp_path):
    table = responses(10)
    with FaultyServer(respond) as server:
        capped = judge("m", server.url, max_requests=12, answer_tokens=50)
        with pytest.raises(DataError, match=r"max_requests=12: .*20.*12 are left"):
            prefer(table, capped, store=tmp_path)
        assert server.log == []
        prefer(responses(5), capped, store=tmp_path)
        (row,) = cost(capped, table, store=tmp_path).itertuples()
        assert (row.questions, row.answered, row.to_ask) == (20, 10, 10)
        assert row.answer_tokens == 10 * 50
        assert row.prompt_tokens > 10 * 200
        with pytest.raises(DataError, match="2 are left"):
            prefer(table, capped, store=tmp_path)


def test_a_key_is_nowhere(tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    caplog.set_level(0)

    def echo(path, body, headers):
        if "chosen 0 to 1 " in json.dumps(body):
            return completion(f"{headers['authorization']} [[A]]")
        return (401, {}, headers)

    with FaultyServer(echo) as server:
        one = judge("m", server.url, key="JUDGE_KEY", retries=0)
        pairs = prefer(responses(3), one, store=tmp_path)
        assert all(KEY in seen.headers["authorization"] for seen in server.log)
        with pytest.raises(DataError) as caught:
            prefer(responses(3), one, store=tmp_path, allow_missing=False)
    files = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert "[key]" in "".join(files), "the server's echo was kept, without the key"
    shown = [*capsys.readouterr(), caplog.text, repr(one), str(caught.value)]
    assert KEY not in "".join([*files, *shown, repr(pairs.attrs), pairs.to_csv()])


@pytest.fixture
def command(main, tmp_path):
    """`rmlab judge` on a file of six pairs."""
    answers = {"chosen": ["a longer answer"] * 6, "rejected": ["an answer"] * 6}
    wide = pd.DataFrame({"prompt": [*"abcdef"]} | answers)
    file = tmp_path / "mine.csv"
    wide.to_csv(file, index=False)
    return lambda server, *words: main("judge", file, "m", "--url", server.url, *words)


def test_the_command_counts_the_cost_and_compares(command, tmp_path):
    with FaultyServer(respond) as server:
        words = ("--dry-run", "--convention", "reward-bench")
        assert "questions" in command(server, *words)[1]
        assert server.log == []
        assert "12 questions" in command(server, "-q")[2].splitlines()[0]
        server.log.clear()
        for _ in range(2):
            command(server, "-q", "--store", tmp_path / "s", "-o", tmp_path / "p.csv")
            assert len(server.log) == 12
        assert pd.read_csv(tmp_path / "p.csv")["outcome"].tolist() == ["win"] * 6


def test_a_key_that_is_not_set_is_named_and_a_run_that_asks_nothing_needs_none(
    command, monkeypatch, tmp_path
):
    """A local server's refusals said nothing of the variable."""
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    words = ("--key", "JUDGE_KEY", "-q", "--store", tmp_path / "s")
    with FaultyServer(respond) as server:
        code, _, err = command(server, *words)
        assert (code, server.log) == (1, [])
        assert "JUDGE_KEY" in err
        assert command(server, *words[2:])[0] == 0
        assert command(server, *words)[0] == 0, "all answers are in the store"


@pytest.mark.parametrize("mode", ["pairwise", "rating"])
def test_a_run_without_an_answer_is_an_error_and_leaves_the_file_as_it_was(
    command, tmp_path, mode
):
    """It was replaced by empty rows, and the exit code was 0."""
    out = tmp_path / "good.csv"
    out.write_text("kept\n")
    with FaultyServer(lambda *_: (401, {}, b"who are you?")) as server:
        code, _, _ = command(server, "-q", "-o", out, "--mode", mode)
    assert (code, out.read_text()) == (1, "kept\n")
