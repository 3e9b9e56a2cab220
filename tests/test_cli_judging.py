"""`rmlab judge` as the shell sees it: tables, estimates, batches, reports, and no key anywhere."""

import io

import pandas as pd
import pytest
from faulty_server import FaultyServer
from judge_fakes import completion, longer, responses

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
        words = ("judge", pairs_file, "m", "--url", server.url, "-q")
        code, out, err = main(*words, "--store", tmp_path / "s")
        assert code == 0, err
        assert table(out)["verdict"].tolist() == ["win"] * 6
        assert "12 questions" in err
        code, out, err = main(*words, "--mode", "rating", "--name", "r")
        assert sorted(set(table(out)["score"])) == [3.0, 9.0]
        n_before = len(server.log)
        main(*words, "--store", tmp_path / "s", "-o", tmp_path / "p.csv")
        assert len(server.log) == n_before
    assert pd.read_csv(tmp_path / "p.csv")["outcome"].tolist() == ["win"] * 6


def test_estimate_check_and_report(main, pairs_file, tmp_path):
    with FaultyServer(respond) as server:
        words = ("judge", pairs_file, "m", "--url", server.url)
        code, out, _ = main(*words, "--estimate", "--answer-tokens", 10)
        assert (code, table(out)[["questions", "answer_tokens"]].to_numpy().tolist()) == (0, [[12, 120]])
        code, out, _ = main(*words, "--estimate", "--convention", "reward-bench")
        assert (code, table(out)["questions"].tolist()) == (0, [6])
        assert server.log == []
        code, out, _ = main(*words, "--check")
        assert "pass  verdict" in out
        assert "warn  model" in out, "the fake says that it is called 'served'"
        for option, options in (("--report", ("--mode", "ranking", "--report")), ("--device", ("--device", "cpu"))):
            code, _, err = main(*words, *options)
            assert code == 2
            assert option in err
        code, out, _ = main(*words, "--report", "--template", "five", "-q", "-o", tmp_path / "r.csv")
    assert (code, out) == (0, "")
    assert pd.read_csv(tmp_path / "r.csv")["probe"].tolist()[0] == "position"


@pytest.mark.parametrize(("options", "n"), [("", 12), ("--mode rating", 12), ("--check", 12), ("--report", 108)])
def test_the_cost_is_said_before_the_first_question_and_the_key_is_never_shown(
    main, pairs_file, monkeypatch, tmp_path, options, n
):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    with FaultyServer(lambda path, body, headers: (401, {}, f"bad key {headers['authorization']}")) as server:
        words = ("judge", pairs_file, "m", "--url", server.url, "--key", "JUDGE_KEY", "-q", *options.split())
        _, out, err = main(*words, *([] if options else ["--store", tmp_path / "s"]))
        assert KEY in server.log[0].headers["authorization"]
    assert f"{n} questions" in err.splitlines()[0]
    assert "[key]" in out + err or options == "--report"
    assert KEY not in out + err
    assert all(KEY.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
