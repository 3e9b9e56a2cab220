"""The commands as the shell sees them: exit codes, what is named, what is written."""

import json
import subprocess
import sys
import warnings
from unittest.mock import Mock

import pandas as pd
import pytest
from fakes import Streaming

import rmlab
from rmlab import toy
from rmlab.benchmarks import load
from rmlab.scoring import score


@pytest.fixture
def fake_model(monkeypatch):
    """The scorer that `owner/name` becomes, and the options that it gets."""
    call = {}

    def classifier(model, **options):
        call.update(options=options, scorer=Streaming(model))
        return call["scorer"]

    monkeypatch.setattr("rmlab.scorers.classifier", classifier)
    return call


def test_without_out_the_summary_is_printed(main):
    code, out, err = main("score", "mini", "longest", "random", "--quiet")
    assert (code, err) == (0, "")
    header, *rows = (row.split() for row in out.splitlines())
    table = rmlab.summary(score(load("mini"), ["longest", "random"]))
    assert [row[0] for row in rows] == ["longest", "random"]
    for column in ("chat", "hard", "overall", "low", "n_ties"):
        shown = [float(row[header.index(column)]) for row in rows]
        assert shown == pytest.approx(table[column].tolist(), abs=5e-4)


def test_scores_in_a_file_read_back_exactly(main, tmp_path):
    code, out, err = main("score", "mini", "longest", "random", "-q", "-o", tmp_path / "scores.csv")
    assert (code, out, err.count("\n")) == (0, "", 1)
    expected = score(load("mini"), ["longest", "random"])
    pd.testing.assert_frame_equal(rmlab.read_scores(tmp_path / "scores.csv"), expected, check_exact=True)


def test_options_reach_the_model(main, fake_model):
    words = ["--device", "cpu", "--dtype", "float32", "--weight", "a=0.5", "--weight", "b=-1", "--allow-pickle"]
    assert main("score", "mini", "owner/name", "-q", *words)[0] == 0
    weights = {"a": 0.5, "b": -1.0}
    assert fake_model["options"] == {"device": "cpu", "dtype": "float32", "weights": weights, "allow_pickle": True}


BAD_DATA = {
    "longst": "score mini longst",
    "mimi": "score mimi longest",
    "9/4": "score mini longest --shard 9/4",
    "dask": "score mini longest --cluster dask",
    "dtype": "score mini longest --dtype float32",
    "nowhere": "score rm-bench longest --path nowhere",
    "x.txt": "score mini owner/name -o x.txt",
    "taken": "score mini owner/name -o taken/x.csv",
    "nowhere.jsonl": "score nowhere.jsonl longest",
    "merge: nowhere": "merge nowhere --into all",
    "empty: ": "explore empty",
    "'empty'": "score empty longest",
    "no such folder": "doctor ./nowhere",
    "gpt-x": "judge mini gpt-x",
    "url": "judge mini m --url ftp://x",
    "key": "judge mini m --url http://127.0.0.1:9 --key sk-1234",
    "fiv": "judge mini m --url http://127.0.0.1:9 --template fiv",
}
WRONG_USAGE = {
    "scor": "scor",
    "--strange": "--strange",
    "models": "score mini",
    "--into": "merge a",
    "--weight": "score mini a/b --weight x",
    "--cluster": "score mini longest --cpus 2",
    "--column": "score x.csv longest --column chosen",
    "--name": "score mini a/b c/d --name one",
    "--kind": "score mini a/b --url http://127.0.0.1:9",
    "--url": "score mini a/b --kind vllm",
    "--dtype": "score mini a/b --url http://127.0.0.1:9 --kind vllm --dtype float32",
    "--head": "score mini a/b --implicit sum --head labels",
    "--pairwise": "doctor a/b --form letters",
    "--store": "judge mini a/b --results x.jsonl",
    "--check": "judge mini a/b --cluster ray --check",
    "--texts": "report x --include-texts",
}


@pytest.mark.parametrize("named", BAD_DATA)
def test_bad_data_is_one_line_and_exit_code_1(main, monkeypatch, tmp_path, named):
    """What is wrong is said before anything is scored, also of the file to write."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "taken").write_text("a file, not a folder")
    monkeypatch.setattr("rmlab.baselines.Baseline.__call__", lambda *_: pytest.fail("it was scored"))
    code, out, err = main(*BAD_DATA[named].split())
    assert (code, out) == (1, "")
    assert named in err
    assert err.startswith("rmlab: error: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("option", WRONG_USAGE)
def test_wrong_usage_is_exit_code_2_and_names_the_option(main, option):
    code, out, err = main(*WRONG_USAGE[option].split())
    assert (code, out) == (2, "")
    assert option in err
    assert "Traceback" not in err


def test_damage_is_a_warning_line(main, fake_model, tmp_path):
    main("score", "mini", "owner/name", "-q", "--store", tmp_path)
    path = next(tmp_path.glob("*/*.records"))
    path.write_bytes(path.read_bytes()[:-3])
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, _, err = main("score", "mini", "owner/name", "-q", "--store", tmp_path)
    assert code == 0
    assert err.startswith(f"rmlab: warning: store: {path} is damaged")
    assert err.count("\n") == 1


def test_interrupt_says_how_to_go_on(main, monkeypatch, tmp_path):
    monkeypatch.setattr("rmlab.baselines.Baseline.__call__", Mock(side_effect=KeyboardInterrupt))
    code, _, err = main("score", "mini", "longest", "-q", "--store", tmp_path)
    assert code == 130
    assert "--store" in err


@pytest.fixture
def pairs_file(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"prompt": "Two and two?", "chosen": "Four.", "rejected": "Five."}))
    return path


def test_policies_are_scored_as_implicit_rewards(main, pairs_file, tmp_path):
    policy, sft = (toy.save_model(tmp_path / name, task="causal", seed=i) for i, name in enumerate(("policy", "sft")))
    words = ["--reference", sft, "--name", "mine", "-q", "-o", tmp_path / "scores.csv"]
    assert main("score", pairs_file, policy, *words)[0] == 0
    expected = score(rmlab.load_pairs(pairs_file), rmlab.implicit_reward(policy, sft, name="mine"))
    pd.testing.assert_frame_equal(rmlab.read_scores(tmp_path / "scores.csv"), expected)


BLOCKED = """
import sys
from rmlab.cli import main
sys.modules[{name!r}] = None  # as if it were not installed
sys.argv = ["rmlab", *{words!r}]
main()
"""


@pytest.mark.parametrize(("name", "extra"), [("nh3", "lab"), ("tritonclient", "triton")])
def test_without_a_package_of_an_extra_one_line_says_what_to_install(name, extra, tmp_path):
    scores = rmlab.write_scores(score(load("mini"), "longest"), tmp_path / "scores.csv")
    words = {
        "triton": ["score", "mini", "a/b", "--kind", "triton", "--url", "http://127.0.0.1:9", "-q"],
        "lab": ["explore", "--no-open", scores, "-o", tmp_path / "explorer.html"],
    }[extra]
    code = BLOCKED.format(name=name, words=list(map(str, words)))
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert f"'.[{extra}]'" in process.stderr.splitlines()[-1], process.stderr
    assert "Traceback" not in process.stderr


def test_columns_and_winners_of_a_file_of_pairs(main, tmp_path):
    frame = pd.DataFrame({"q": ["1", "2"], "left": ["aa", "b"], "right": ["a", "bb"], "who": ["b", "left"]})
    frame.to_csv(tmp_path / "x.csv", index=False, sep=";")
    out = ["-q", "-o", tmp_path / "scores.csv"]
    words = ["--column", "a=left", "--column", "b=right", "--column", "prompt=q", "--winner", "who"]
    assert main("score", tmp_path / "x.csv", "longest", *words, *out)[0] == 0
    assert rmlab.read_scores(tmp_path / "scores.csv")["score"].tolist() == [1.0, 2.0, 1.0, 2.0]
    words = ["prompt=q", "chosen=left", "rejected=right", "rejected=who"]
    words = [word for mapping in words for word in ("--column", mapping)]
    assert main("score", tmp_path / "x.csv", "longest", *words, *out)[0] == 0
    assert len(rmlab.read_scores(tmp_path / "scores.csv")) == 6


def test_the_demo_has_the_numbers_of_the_baselines(main, tmp_path):
    code, out, _ = main("demo", "--out", tmp_path)
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert (code, rows["longest"][-4:]) == (0, ["0.50", "0.45", "0.55", "2"])


def test_the_explorer_is_one_file(main, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    rmlab.write_scores(rmlab.score(rmlab.load("mini"), "longest"), tmp_path / "scores.csv")
    code, out, _ = main("explore", tmp_path / "scores.csv", "-o", tmp_path / "e.html")
    assert (code, out) == (0, "")
    assert opened == [(tmp_path / "e.html").as_uri()]
    assert "With the texts of all 64 prompts" in (tmp_path / "e.html").read_text()
    assert main("explore", tmp_path / "scores.csv", "-o", tmp_path / "e.html", "--no-open")[0] == 0
    assert len(opened) == 1
