"""`rmlab judge` as the shell sees it: tables, estimates, batches, reports, and no key anywhere."""

import io
import json

import pandas as pd
import pytest
from fakes import Here
from faulty_server import FaultyServer
from judge_fakes import completion, longer, responses

from rmlab import toy

KEY = "sk-planted-51aa"


def respond(path, body, headers):
    text = body["messages"][-1]["content"]
    if "<answer>" in text:
        return completion("[[9]]" if "<answer>\nchosen" in text else "[[3]]")
    sides = [text.split(f"<answer_{side}>\n")[1].split(f"\n</answer_{side}>")[0] for side in "ab"]
    return completion(longer(*sides))


@pytest.fixture
def pairs_file(tmp_path):
    wide = responses(6).pivot_table(index=["id", "prompt"], columns="label", values="response", aggfunc="first")
    path = tmp_path / "mine.jsonl"
    wide.reset_index()[["prompt", "chosen", "rejected"]].to_json(path, orient="records", lines=True)
    return path


def table(text):
    return pd.read_csv(io.StringIO(text))


def test_comparisons_and_ratings(main, pairs_file, tmp_path):
    with FaultyServer(respond) as server:
        code, out, err = main("judge", pairs_file, "m", "--url", server.url, "--store", tmp_path / "s", "-q")
        assert code == 0, err
        assert table(out)["verdict"].tolist() == ["win"] * 6
        assert "m: 12 questions, 12 asked now: 6 win" in err
        code, out, err = main("judge", pairs_file, "m", "--url", server.url, "--mode", "rating", "-q", "--name", "r")
        assert sorted(set(table(out)["score"])) == [3.0, 9.0]
        before = len(server.log)
        main("judge", pairs_file, "m", "--url", server.url, "--store", tmp_path / "s", "-q", "-o", tmp_path / "p.csv")
        assert len(server.log) == before
    assert pd.read_csv(tmp_path / "p.csv")["outcome"].tolist() == ["win"] * 6


@pytest.mark.usefixtures("one_thread")
def test_a_model_of_its_own_is_asked_on_a_cluster(main, pairs_file, tmp_path, monkeypatch):
    toy.save_model(tmp_path / "m", task="causal", max_position_embeddings=1024)
    here, asked = Here(), ("judge", pairs_file, tmp_path / "m", "--mode", "logprob", "--device", "cpu", "-q")
    monkeypatch.setattr("rmlab.scoring.cluster.find_engine", lambda word: {"ray": here}[word])
    code, plain, err = main(*asked)
    assert code == 0, err
    code, out, said = main(*asked, "--cluster", "ray")
    assert (code, out, said) == (0, plain, err)
    assert here.given
    for words, says in [(("--cpus", 2), "--cluster"), (("--cluster", "ray", "--check"), "--check")]:
        code, _, err = main(*asked, *words)
        assert code == 2
        assert says in err


def test_estimate_check_and_report(main, pairs_file, tmp_path):
    with FaultyServer(respond) as server:
        code, out, _ = main("judge", pairs_file, "m", "--url", server.url, "--estimate", "--answer-tokens", 10)
        assert (code, table(out)[["questions", "answer_tokens"]].to_numpy().tolist()) == (0, [[12, 120]])
        assert server.log == []
        code, out, _ = main("judge", pairs_file, "m", "--url", server.url, "--check")
        assert "pass  verdict" in out
        assert "warn  model" in out, "the fake says that it is called 'served'"
        code, _, err = main("judge", pairs_file, "m", "--url", server.url, "--mode", "ranking", "--report")
        assert code == 2
        assert "--report" in err
        code, out, _ = main(
            "judge",
            pairs_file,
            "m",
            "--url",
            server.url,
            "--report",
            "--template",
            "five",
            "-q",
            "-o",
            tmp_path / "r.csv",
        )
    assert (code, out) == (0, "")
    assert pd.read_csv(tmp_path / "r.csv")["probe"].tolist()[0] == "position"


def test_a_batch_there_and_back(main, pairs_file, tmp_path):
    asked = ("judge", pairs_file, "m", "--url", "http://127.0.0.1:9/v1", "--store", tmp_path / "s", "-q")
    code, _, err = main(*asked, "--requests", tmp_path / "r.jsonl")
    assert code == 0, err
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    results = [
        {"custom_id": line["custom_id"], "response": {"status_code": 200, "body": respond("", line["body"], {})}}
        for line in lines
    ]
    (tmp_path / "out.jsonl").write_text("\n".join(map(json.dumps, results)))
    code, out, err = main(*asked, "--results", tmp_path / "out.jsonl")
    assert code == 0, err
    assert "read: 12, known: 0, failed: 0, strange: 0, missing: 0" in err
    assert table(out)["verdict"].tolist() == ["win"] * 6
    code, _, err = main(*asked[:5], "--results", tmp_path / "out.jsonl")
    assert code == 2
    assert "--store" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("gpt-x",), "gpt-x"), (("m", "--url", "ftp://x"), "url"),
        (("m", "--url", "http://127.0.0.1:9", "--key", "sk-1234"), "key"),
        (("m", "--url", "http://127.0.0.1:9", "--template", "fiv"), "fiv"),
        (("m", "--url", "http://127.0.0.1:9", "--max-requests", "3", "-q"), "max_requests=3"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_named(main, pairs_file, words, says):
    code, _, err = main("judge", pairs_file, *words)
    assert code == 1
    assert says in err
    assert "sk-1234" not in err


@pytest.mark.parametrize(
    ("words", "n"), [((), 12), (("--mode", "rating"), 12), (("--check",), 12), (("--report",), 108)]
)
def test_the_cost_is_said_before_the_first_question(main, pairs_file, words, n):
    refuse = lambda path, body, headers: (400, {}, {"error": "no such model"})  # noqa: E731
    with FaultyServer(refuse) as server:
        _, _, err = main("judge", pairs_file, "m", "--url", server.url, "-q", *words)
    first = err.splitlines()[0]
    assert f"{n} questions" in first
    assert "tokens to read" in first


def test_a_served_judge_takes_a_convention_and_no_device(main, pairs_file):
    asked = ("judge", pairs_file, "m", "--url", "http://127.0.0.1:9", "--estimate")
    code, out, err = main(*asked, "--convention", "reward-bench")
    assert code == 0, err
    assert table(out)["questions"].tolist() == [6]
    code, _, err = main(*asked, "--device", "cpu")
    assert code == 2
    assert "--device" in err


def test_a_key_is_never_shown(main, pairs_file, monkeypatch, tmp_path):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    echo = lambda path, body, headers: (401, {}, f"bad key {headers['authorization']}")  # noqa: E731
    with FaultyServer(echo) as server:
        asked = ("judge", pairs_file, "m", "--url", server.url, "--key", "JUDGE_KEY", "--store", tmp_path / "s")
        code, out, err = main(*asked)
        assert KEY in server.log[0].headers["authorization"]
    assert code == 0
    assert "[key]" in err
    assert KEY not in out + err
    assert all(KEY.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
