"""The commands as the shell sees them: exit codes, what is named, what is written."""

import io
import json
import os
import subprocess
import sys
import warnings

import pandas as pd
import pytest
from fakes import Streaming

import rmlab
from rmlab import toy
from rmlab.benchmarks import load
from rmlab.scoring import score
from rmlab.tables import DataError


@pytest.fixture
def fake_model(monkeypatch):
    """What `owner/name` becomes, and the options it was given."""
    made = {}

    def classifier(model, **options):
        made.update(options=options, scorer=Streaming(model))
        return made["scorer"]

    monkeypatch.setattr("rmlab.scorers.classifier", classifier)
    return made


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


def test_a_file_of_pairs_and_a_shard(main, tmp_path):
    rows = [{"prompt": f"p{i}", "chosen": "good", "rejected": "bad one"} for i in range(10)]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ["--shard", "2/5", "-q", "-o", tmp_path / "scores.csv"]
    assert main("score", tmp_path / "own.jsonl", "longest", *words)[0] == 0
    assert len(rmlab.read_scores(tmp_path / "scores.csv")) == 2 * 2


def test_shards_merge_and_the_whole_forwards_nothing(main, fake_model, tmp_path):
    for i in (1, 2):
        assert main("score", "mini", "owner/name", "-q", "--store", tmp_path / f"s{i}", "--shard", f"{i}/2")[0] == 0
    code, out, _ = main("merge", tmp_path / "s1", tmp_path / "s2", "--into", tmp_path / "all")
    table = pd.read_csv(io.StringIO(out))
    assert code == 0
    assert table["model"].tolist() == ["owner/name"] * 2
    assert table["added"].sum() == load("mini")[["prompt", "response"]].drop_duplicates().shape[0]
    assert main("score", "mini", "owner/name", "-q", "--store", tmp_path / "all")[0] == 0
    assert fake_model["scorer"].forwarded == []


def test_options_reach_the_model(main, fake_model):
    words = ["--device", "cpu", "--dtype", "float32", "--weight", "a=0.5", "--weight", "b=-1", "--allow-pickle"]
    assert main("score", "mini", "owner/name", "-q", *words)[0] == 0
    weights = {"a": 0.5, "b": -1.0}
    assert fake_model["options"] == {"device": "cpu", "dtype": "float32", "weights": weights, "allow_pickle": True}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["score", "mini", "longst"], "longst"),
        (["score", "mimi", "longest"], "mimi"),
        (["score", "mini", "longest", "--shard", "9/4"], "9/4"),
        (["score", "mini", "longest", "--dtype", "float32"], "dtype"),
        (["score", "mini", "longest", "--store", ""], "store"),
        (["score", "rm-bench", "longest", "--path", "nowhere"], "nowhere"),
        (["score", "mini", "owner/name", "-o", "x.txt"], "x.txt"),
        (["score", "mini", "owner/name", "-o", "x.json"], "x.json"),
        (["score", "mini", "owner/name", "-o", "taken/x.csv"], "taken"),
        (["score", "nowhere.jsonl", "longest"], "nowhere.jsonl"),
        (["merge", "nowhere", "--into", "all"], "nowhere"),
    ],
)
def test_bad_data_is_one_line_and_exit_code_1(main, monkeypatch, tmp_path, words, named):
    """What is wrong is said before anything is scored, also of the file to write."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("a file, not a folder")
    monkeypatch.setattr("rmlab.baselines.Baseline.__call__", lambda *_: pytest.fail("it was scored"))
    code, out, err = main(*words)
    assert (code, out) == (1, "")
    assert named in err
    assert err.startswith("rmlab: error: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["scor"], "scor"),
        (["--strange"], "--strange"),
        (["score", "mini"], "models"),
        (["merge", "a"], "--into"),
        (["score", "mini", "a/b", "--weight", "x"], "--weight"),
        (["score", "mini", "longest", "--cpus", "2"], "--cluster"),
        (["score", "mini", "longest", "--column", "chosen=x"], "--column"),
        (["score", "x.csv", "longest", "--column", "chosen"], "--column"),
        (["score", "mini", "a/b", "c/d", "--name", "one"], "--name"),
        (["score", "mini", "a/b", "--url", "http://127.0.0.1:9"], "--kind"),
        (["score", "mini", "a/b", "--kind", "vllm"], "--url"),
        (["score", "mini", "a/b", "--url", "http://127.0.0.1:9", "--kind", "vllm", "--dtype", "float32"], "--dtype"),
        (["score", "mini", "a/b", "c/d", "--url", "http://127.0.0.1:9", "--kind", "vllm"], "--url"),
        (["score", "mini", "a/b", "--implicit", "sum", "--head", "labels"], "--head"),
        (["score", "mini", "a/b", "--reference", "c/d", "--weight", "x=1"], "--weight"),
        (["doctor", "a/b", "--form", "letters"], "--pairwise"),
        (["doctor", "a/b", "--pairwise", "--head", "labels"], "--head"),
        (["judge", "mini", "a/b", "--results", "x.jsonl"], "--store"),
        (["judge", "mini", "a/b", "--cluster", "ray", "--check"], "--check"),
        (["report", "x", "--path", "y"], "--texts"),
        (["report", "x", "--include-texts"], "--texts"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_names_the_option(main, words, named):
    code, out, err = main(*words)
    assert (code, out) == (2, "")
    assert named in err
    assert "Traceback" not in err


def test_a_message_is_printed_as_it_is(main, monkeypatch):
    message = "rows of 'device=5' and name='x': give --store, or store= with allow_missing=True"

    def refuse(*args, **options):
        raise DataError(message)

    monkeypatch.setattr("rmlab.benchmarks.load", refuse)
    assert main("score", "mini", "longest") == (1, "", f"rmlab: error: {message}\n")


def test_bugs_keep_their_traceback(main, monkeypatch):
    monkeypatch.setattr("rmlab.scoring.score", lambda *args, **options: int("x"))
    code, _, err = main("score", "mini", "longest", "-q")
    assert code == 1
    assert "Traceback" in err


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
    def interrupted(prompts, responses):
        raise KeyboardInterrupt

    monkeypatch.setattr("rmlab.baselines.Baseline.__call__", lambda *_: interrupted(None, None))
    code, _, err = main("score", "mini", "longest", "-q", "--store", tmp_path)
    assert code == 130
    assert f"in {tmp_path}: run the same command again" in err


@pytest.mark.skipif(os.name == "nt", reason="needs a shell pipe")
def test_runs_as_a_program_and_survives_a_closed_pipe():
    program = "from rmlab.cli import main; main()"
    command = f'"{sys.executable}" -c "{program}" score mini longest -q | head -2'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[0].split()[:2] == ["model", "chat"]
    assert "Traceback" not in done.stderr


def test_policies_are_scored_as_implicit_rewards(main, tmp_path):
    policy, sft = (toy.save_model(tmp_path / n, task="causal", seed=s) for s, n in enumerate(("policy", "sft")))
    words = ["--reference", sft, "--name", "mine", "-q", "-o", tmp_path / "scores.csv"]
    assert main("score", "mini", policy, *words)[0] == 0
    scores = rmlab.read_scores(tmp_path / "scores.csv")
    responses = rmlab.load("mini").head(6)
    expected = rmlab.implicit_reward(policy, sft)(responses["prompt"].tolist(), responses["response"].tolist())
    assert scores["score"].head(6).tolist() == pytest.approx(expected.tolist(), abs=1e-3)
    assert set(scores["model"]) == {"mine"}


@pytest.mark.parametrize(
    ("option", "value"),
    [("--template", "foo"), ("--truncate", "up"), ("--convention", "rewardbench"), ("--device", "tpu9")],
)
def test_a_wrong_value_is_named_and_never_a_traceback(main, tmp_path, option, value):
    model = toy.save_model(tmp_path / "m")
    (tmp_path / "own.jsonl").write_text(json.dumps({"prompt": "p", "chosen": "good", "rejected": "bad one"}))
    code, out, err = main("score", tmp_path / "own.jsonl", model, option, value, "--max-length", "50")
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert value in err
    assert option.removeprefix("--") in err


def test_options_of_texts_reach_the_model(main, tmp_path):
    model = toy.save_model(tmp_path / "m", words=toy.tokenizer(chat_template=None))
    jinja = tmp_path / "mine.jinja"
    jinja.write_text("{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}")
    file = tmp_path / "own.jsonl"
    file.write_text(json.dumps({"prompt": "Two and two?", "chosen": "Four.", "rejected": "Five."}))
    words = ["--template", jinja, "--convention", "reward-bench", "-q", "-o", tmp_path / "scores.csv"]
    assert main("score", file, model, *words)[0] == 0
    responses = rmlab.load_pairs(file)
    expected = rmlab.classifier(model, template=jinja)(responses["prompt"].tolist(), responses["response"].tolist())
    assert rmlab.read_scores(tmp_path / "scores.csv")["score"].tolist() == pytest.approx(expected.tolist(), abs=1e-4)


BLOCKED = """
import sys
from rmlab.cli import main
sys.modules[{name!r}] = None  # as if it were not installed
sys.argv = ["rmlab", *{words!r}]
main()
"""


@pytest.mark.parametrize(
    ("name", "extra"), [("torch", "score"), ("nh3", "lab"), ("httpx", "judge"), ("tritonclient", "triton")]
)
def test_without_a_package_of_an_extra_one_line_says_what_to_install(name, extra, tmp_path):
    address = ["--url", "http://127.0.0.1:9", "-q"]
    words = {
        "score": ["score", "mini", str(tmp_path), "-q"],
        "judge": ["judge", "mini", "a/b", *address],
        "triton": ["score", "mini", "a/b", "--kind", "triton", *address],
        "lab": ["explore", "--no-open", rmlab.write_scores(score(load("mini"), "longest"), tmp_path / "scores.csv")],
    }[extra]
    code = BLOCKED.format(name=name, words=list(map(str, words)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"pip install -e '.[{extra}]' in the clone" in done.stderr.splitlines()[-1], done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("quiet", [[], ["-q"]])
def test_rows_without_a_winner_are_counted_aloud_also_where_progress_is_not_shown(tmp_path, quiet):
    rows = {"prompt": list("pqrs"), "a": list("wxyz"), "b": list("1234"), "who": ["a", "tie", "b", "neither"]}
    pd.DataFrame(rows).to_csv(tmp_path / "x.csv", index=False)
    words = ["score", str(tmp_path / "x.csv"), "longest", "--column", "a=a", "--column", "b=b", "--winner", "who"]
    program = [sys.executable, "-c", "from rmlab.cli import main; main()"]
    done = subprocess.run([*program, *words, *quiet], capture_output=True, text=True, check=True)
    warned = [line for line in done.stderr.splitlines() if line.startswith("rmlab: warning: ")]
    assert len(warned) == 1
    assert "4 rows" in warned[0]
    assert "1 ties" in warned[0]


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
