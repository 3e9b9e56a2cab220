"""The commands as the shell sees them: exit codes, what is named, what is written."""

import io
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from fakes import Streaming

import rmlab
from rmlab.scorers.checkpoints.checkpoint import find


@cache
def score_mini(*models):
    return rmlab.score(rmlab.load("mini"), list(models))


def write_baseline(path, model="longest"):
    return rmlab.write_scores(score_mini(model), path)


@pytest.fixture
def classifier(monkeypatch):
    """What `owner/name` becomes, which notes its options."""
    fake = Mock(side_effect=lambda model, **options: Streaming(model))
    monkeypatch.setattr("rmlab.scorers.classifier", fake)
    return fake


def test_the_summary_is_for_people_and_scores_go_into_a_pipe(
    main, monkeypatch, tmp_path
):
    words = ("score", "mini", "longest", "random", "--quiet")
    scores = score_mini("longest", "random")
    code, out, err = main(*words)
    assert (code, err) == (0, "")
    (tmp_path / "s.csv").write_text(out)
    pd.testing.assert_frame_equal(rmlab.read_scores(tmp_path / "s.csv"), scores)

    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    shown = pd.read_csv(io.StringIO(main(*words)[1]), sep=r"\s+")
    columns = ["chat", "hard", "overall", "low", "n_ties"]
    summary = rmlab.summary(scores)[columns]
    np.testing.assert_allclose(shown[columns], summary, atol=5e-4)


def test_options_reach_the_model(main, classifier):
    words = ["--device", "cpu", "--dtype", "float32"]
    words += ["--allow-pickle", "--max-length", "64"]
    assert main("score", "mini", "owner/name", "-q", *words)[0] == 0
    options = {"device": "cpu", "dtype": "float32", "allow_pickle": True}
    assert classifier.call_args.kwargs == options | {"max_length": 64}


def test_an_error_that_nobody_foresaw_is_one_line_and_traceback_shows_all(
    main, monkeypatch
):
    monkeypatch.setattr("rmlab.scoring.score", Mock(side_effect=KeyError("x")))
    words = ("score", "mini", "longest", "-q")
    code, out, err = main(*words)
    assert (code, out, err.count("\n"), "KeyError" in err) == (1, "", 1, True)
    with pytest.raises(KeyError):
        main(*words, "--traceback")


def test_a_place_that_nothing_can_be_written_to_is_refused_before_the_run(
    main, classifier
):
    code, _, err = main("score", "mini", "owner/name", "-q", "-o", "/proc/none.csv")
    assert (code, err.count("\n")) == (1, 1)
    classifier.assert_not_called()


def run_apart(*arguments, folder="", **settings):
    """The command in a process of its own, where modules in `folder` come first."""
    paths = os.pathsep.join([str(folder), str(Path(rmlab.__file__).parents[1])])
    program = "from rmlab_command import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | {"PYTHONPATH": paths} | settings,
        capture_output=True,
    )


def test_an_interrupt_of_the_first_imports_is_quiet(tmp_path):
    (tmp_path / "pandas.py").write_text("raise KeyboardInterrupt")
    result = run_apart(folder=tmp_path)
    assert (result.returncode, result.stderr.count(b"\n")) == (130, 1)


def test_a_pipe_gets_utf_8_whatever_the_systems_encoding_is(tmp_path, make_scores):
    """On Windows a pipe had an encoding without most letters: UnicodeEncodeError."""
    scores = make_scores(models=["ラーメン"])
    file = rmlab.write_scores(scores, tmp_path / "scores.csv")
    settings = {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    result = run_apart("gate", str(file), "--min", "overall=0", **settings)
    assert "ラーメン" in result.stdout.decode("utf-8")


SERVED = "--url http://127.0.0.1:9"
BAD_DATA = {
    "longst": "score mini longst",
    "9/4": "score mini longest --shard 9/4",
    "taken": "score mini owner/name -o taken/x.csv",
    "nowhere": "merge nowhere --into all",
    "key": f"judge mini m {SERVED} --key sk-1234",
    "overal": "gate longest.csv --min overal=0.5",
    "gone.csv": "gate longest.csv --max-drop 0 --baseline gone.csv",
    "1 names": "score mini a/b c/d --name one",
}
WRONG_USAGE = {
    "scor": "scor",
    "models": "score mini",
    "--column": "score x.csv longest --column chosen",
    "--kind": f"score mini a/b {SERVED}",
    "--device": f"judge mini m {SERVED} --device cpu",
    "--url": f"score mini a/b --implicit sum {SERVED} --kind vllm",
    "--tokenizer": "score mini a/b --tokenizer c/d",
    "--min": "gate longest.csv --min overall",
}
USAGES = [(1, *usage) for usage in BAD_DATA.items()]
USAGES += [(2, *usage) for usage in WRONG_USAGE.items()]


@pytest.mark.parametrize(("code", "named", "words"), USAGES)
def test_bad_data_is_one_line_and_wrong_usage_names_the_option(
    main, monkeypatch, tmp_path, code, named, words
):
    """What is wrong is said before anything is scored, also of the file to write."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("a file, not a folder")
    write_baseline(tmp_path / "longest.csv")
    monkeypatch.setattr(
        "rmlab.baselines.Baseline.__call__", lambda *_: pytest.fail("it was scored")
    )
    exit_code, out, err = main(*words.split())
    assert (exit_code, out, named in err) == (code, "", True)
    assert code == 2 or (err.startswith("rmlab: error: ") and err.count("\n") == 1)


def test_policies_are_scored_as_implicit_rewards(main, zoo, tmp_path):
    policy, sft = (zoo(task="causal", seed=seed) for seed in range(2))
    file, out = tmp_path / "mine.jsonl", tmp_path / "scores.csv"
    file.write_text('{"prompt": "Two?", "chosen": "Four.", "rejected": "Five."}')
    words = ["--reference", sft, "--name", "mine", "-q", "-o", out]
    assert main("score", file, policy, *words)[0] == 0
    reward = rmlab.implicit_reward(policy, sft, name="mine")
    expected = rmlab.score(rmlab.load_preferences(file), reward)
    pd.testing.assert_frame_equal(rmlab.read_scores(out), expected)


def test_a_dry_run_takes_the_tokenizer_of_a_server_and_counts_texts_without_one(
    main, zoo
):
    """A baseline's name was looked up on the hub."""
    served = [*SERVED.split(), "--kind", "vllm", "--tokenizer", zoo()]
    code, out, err = main("score", "mini", "my-rm", "--dry-run", *served)
    assert code == 0, err
    local = main("score", "mini", zoo(), "longest", "--dry-run")[1].split()
    assert out.split()[-1].split(",")[1:] == local[1].split(",")[1:]
    assert local[2] == "longest,384,"


def test_a_dry_run_reads_the_revision(main, zoo, monkeypatch):
    fake = Mock(side_effect=lambda model, revision, **options: find(zoo(), **options))
    monkeypatch.setattr("rmlab.scorers.checkpoints.checkpoint.find", fake)
    words = ["--dry-run", "--revision", "step-100"]
    assert main("score", "mini", "owner/name", *words)[0] == 0
    assert fake.call_args.kwargs["revision"] == "step-100"


@pytest.mark.parametrize("on_path", [True, False])
def test_the_demo_has_numbers_and_its_last_line_is_a_command_that_can_be_typed(
    main, tmp_path, monkeypatch, on_path
):
    place = tmp_path / "bin" / "rmlab"
    place.parent.mkdir()
    place.touch(0o755)
    summary = rmlab.summary(score_mini("longest"))
    monkeypatch.setattr("rmlab.demo.demo", lambda folder: (summary, []))
    monkeypatch.setenv("PATH", str(place.parent if on_path else tmp_path))
    *lines, last = main("demo", program=place)[1].splitlines()
    assert last == f"  {'rmlab' if on_path else place} score --help"
    (row,) = [line.split() for line in lines if line.startswith("longest")]
    assert row[-4:] == ["0.500", "0.449", "0.550", "2"]


def test_own_pairs_are_explored_with_their_own_columns(main, tmp_path):
    """Failed: the benchmark of own data was looked up among the published."""
    pairs = {"question": ["a?", "b?"], "better": ["x1", "y1"], "worse": ["x22", "y22"]}
    file, scores, page = (tmp_path / name for name in ("mine.csv", "s.csv", "p.html"))
    pd.DataFrame(pairs).to_csv(file, index=False)
    words = ["--column", "chosen=better", "--column", "rejected=worse"]
    assert main("score", file, "longest", *words, "-o", scores)[0] == 0

    there = ["-o", page]
    assert main("explore", scores, "--responses", file, *words, *there)[:2] == (0, "")
    assert "x22" in page.read_text()
    assert main("report", scores, "--texts", file, *words, *there)[0] == 0
    code, _, error = main("explore", scores, *there)
    assert (code, "--responses" in error) == (1, True)


@pytest.mark.parametrize(
    ("options", "code", "verdict"),
    [
        ("--min overall=0.4", 0, "passes"),
        ("--min overall=0.5", 0, "cannot be decided"),
        ("--min overall=0.5 --strict", 3, "cannot be decided"),
        ("--min overall=0.6", 3, "fails"),
        ("--max gap=0.3", 3, "fails"),
        ("--max gap=0.7", 0, "passes"),
        ("--max-drop 0 --strict --baseline longest.csv", 0, "passes"),
    ],
)
def test_the_gate_says_which_bounds_hold_and_which_the_interval_leaves_open(
    main, monkeypatch, tmp_path, options, code, verdict
):
    monkeypatch.chdir(tmp_path)
    write_baseline(tmp_path / "longest.csv")
    exit_code, out, _ = main("gate", "longest.csv", *options.split())
    (line,) = out.splitlines()
    assert (exit_code, line.partition(":")[0]) == (code, verdict)
    assert "64 prompts" in line


def test_a_missing_number_fails_the_gate(main, tmp_path):
    scores = score_mini("longest")
    part = rmlab.write_scores(scores[scores["domain"] != "math"], tmp_path / "part.csv")
    code, out, _ = main("gate", part, "--min", "overall=0.1")
    assert (code, "math" in out) == (3, True)


def test_a_drop_is_judged_by_the_paired_interval(main, tmp_path):
    """Two models with the same outcomes on nearly all prompts: unpaired intervals would
    leave the drop open.
    """
    worse = score_mini("longest").copy()
    worse["score"] += 1e-3 * np.random.default_rng(0).normal(size=len(worse))
    words = ["--baseline", write_baseline(tmp_path / "old.csv"), "--max-drop"]
    new = rmlab.write_scores(worse, tmp_path / "new.csv")
    other = write_baseline(tmp_path / "other.csv", "shortest")
    for file, limit, verdict in (
        (new, 0.06, "passes"),
        (other, 0.06, "cannot be decided"),
    ):
        code, out, _ = main("gate", file, *words, limit)
        assert (code, out.partition(":")[0]) == (0, verdict), out
