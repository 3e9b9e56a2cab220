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
    assert shown["model"].tolist() == ["longest", "random"]
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
    code, out, err = main("score", "mini", "longest", "-q")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "KeyError" in err
    assert "--traceback" in err
    with pytest.raises(KeyError):
        main("score", "mini", "longest", "-q", "--traceback")


def test_a_place_that_nothing_can_be_written_to_is_refused_before_the_run(
    main, classifier
):
    for place in ("/proc/none.csv", "/proc/none/of.csv"):
        code, _, err = main("score", "mini", "owner/name", "-q", "-o", place)
        assert (code, err.count("\n")) == (1, 1)
        assert "free the disk" not in err
    classifier.assert_not_called()


def test_an_interrupt_of_the_first_imports_is_quiet(tmp_path):
    (tmp_path / "pandas.py").write_text("raise KeyboardInterrupt")
    paths = os.pathsep.join([str(tmp_path), str(Path(rmlab.__file__).parents[1])])
    program = "from rmlab_command import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 130
    assert "Traceback" not in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_pipe_gets_utf_8_whatever_the_systems_encoding_is(tmp_path, make_scores):
    """On Windows a pipe had an encoding without most letters: UnicodeEncodeError."""
    scores = make_scores(models=["ラーメン"])
    file = rmlab.write_scores(scores, tmp_path / "scores.csv")
    program = "from rmlab_command import main; main()"
    settings = {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    settings["PYTHONPATH"] = str(Path(rmlab.__file__).parents[1])
    result = subprocess.run(
        [sys.executable, "-c", program, "gate", str(file), "--min", "overall=0"],
        env=os.environ | settings,
        capture_output=True,
    )
    assert "ラーメン" in (result.stdout + result.stderr).decode("utf-8")


BAD_DATA = {
    "longst": "score mini longst",
    "9/4": "score mini longest --shard 9/4",
    "taken": "score mini owner/name -o taken/x.csv",
    "nowhere": "merge nowhere --into all",
    "key": "judge mini m --url http://127.0.0.1:9 --key sk-1234",
    "overal": "gate longest.csv --min overal=0.5",
    "1 names": "score mini a/b c/d --name one",
}
WRONG_USAGE = {
    "scor": "scor",
    "models": "score mini",
    "--column": "score x.csv longest --column chosen",
    "--kind": "score mini a/b --url http://127.0.0.1:9",
    "--device": "judge mini m --url http://127.0.0.1:9 --device cpu",
    "--url": "score mini a/b --implicit sum --url http://127.0.0.1:9 --kind vllm",
    "--tokenizer": "score mini a/b --tokenizer c/d",
    "--min": "gate longest.csv --min overall",
}


USAGES = [(1, *usage) for usage in BAD_DATA.items()] + [
    (2, *usage) for usage in WRONG_USAGE.items()
]


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
    assert (exit_code, out) == (code, "")
    assert named in err
    assert "Traceback" not in err
    assert code == 2 or (err.startswith("rmlab: error: ") and err.count("\n") == 1)


def test_policies_are_scored_as_implicit_rewards(main, zoo, tmp_path):
    policy, sft = (
        zoo(task="causal", name=name, seed=i)
        for i, name in enumerate(("policy", "reference"))
    )
    (tmp_path / "mine.jsonl").write_text(
        '{"prompt": "Two and two?", "chosen": "Four.", "rejected": "Five."}'
    )
    words = ["--reference", sft, "--name", "mine", "-q", "-o", tmp_path / "scores.csv"]
    assert main("score", tmp_path / "mine.jsonl", policy, *words)[0] == 0
    expected = rmlab.score(
        rmlab.load_preferences(tmp_path / "mine.jsonl"),
        rmlab.implicit_reward(policy, sft, name="mine"),
    )
    pd.testing.assert_frame_equal(rmlab.read_scores(tmp_path / "scores.csv"), expected)


def test_a_dry_run_takes_a_served_models_tokenizer_and_counts_texts_without_one(
    main, zoo
):
    """A baseline's name was looked up on the hub."""
    served = ["--url", "http://127.0.0.1:9", "--kind", "vllm", "--tokenizer", zoo()]
    code, out, err = main("score", "mini", "my-rm", "--dry-run", *served)
    assert code == 0, err
    local = main("score", "mini", zoo(), "longest", "--dry-run")[1].split()
    assert out.split()[-1].split(",")[1:] == local[1].split(",")[1:]
    assert local[2] == "longest,384,,"


def test_a_dry_run_reads_the_revision(main, zoo, monkeypatch):
    folder, revisions = zoo(), []

    def find_local(model, *, revision, **options):
        revisions.append(revision)
        return find(folder, **options)

    monkeypatch.setattr("rmlab.scorers.checkpoints.checkpoint.find", find_local)
    words = ["--dry-run", "--revision", "step-100"]
    assert main("score", "mini", "owner/name", *words)[0] == 0
    assert revisions == ["step-100"]


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
    _, out, _ = main("demo", program=place)
    name = "rmlab" if on_path else place
    assert out.splitlines()[-1] == f"  {name} score --help"
    (row,) = [line.split() for line in out.splitlines() if line.startswith("longest")]
    assert row[-4:] == ["0.50", "0.45", "0.55", "2"]


def test_the_explorer_is_one_file(main, tmp_path):
    scores, page = write_baseline(tmp_path / "scores.csv"), tmp_path / "e.html"
    assert main("explore", scores, "-o", page)[:2] == (0, "")
    assert "With the texts of all 64 prompts" in page.read_text()


def test_own_pairs_are_explored_with_their_own_columns(main, tmp_path):
    """Failed: the benchmark of own data was looked up among the published."""
    pairs = {"question": ["a?", "b?"], "better": ["x1", "y1"], "worse": ["x22", "y22"]}
    file = tmp_path / "mine.csv"
    pd.DataFrame(pairs).to_csv(file, index=False)
    words = ["--column", "chosen=better", "--column", "rejected=worse"]
    scores, page = tmp_path / "scores.csv", tmp_path / "page.html"
    assert main("score", file, "longest", *words, "-o", scores)[0] == 0

    there = ["-o", page]
    assert main("explore", scores, "--responses", file, *words, *there)[0] == 0
    assert "x22" in page.read_text()
    assert main("report", scores, "--texts", file, *words, "-o", page)[0] == 0
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
    ],
)
def test_the_gate_says_which_bounds_hold_and_which_the_interval_leaves_open(
    main, tmp_path, options, code, verdict
):
    exit_code, out, _ = main(
        "gate", write_baseline(tmp_path / "longest.csv"), *options.split()
    )
    (line,) = out.splitlines()
    assert (exit_code, line.partition(":")[0]) == (code, verdict)
    assert "64 prompts" in line


def test_a_missing_number_fails_the_gate(main, tmp_path):
    scores = score_mini("longest")
    part = rmlab.write_scores(scores[scores["domain"] != "math"], tmp_path / "part.csv")
    code, out, _ = main("gate", part, "--min", "overall=0.1")
    assert code == 3
    assert "math" in out


def test_a_drop_is_judged_by_the_paired_interval(main, tmp_path):
    """Two models with the same outcomes on nearly all prompts: unpaired intervals would
    leave the drop open.
    """
    worse = score_mini("longest").copy()
    words = ["--baseline", write_baseline(tmp_path / "old.csv"), "--max-drop", "0.05"]
    worse["score"] += 1e-3 * np.random.default_rng(0).normal(size=len(worse))
    assert main("gate", rmlab.write_scores(worse, tmp_path / "new.csv"), *words)[0] == 0
    code, out, _ = main(
        "gate", write_baseline(tmp_path / "other.csv", "shortest"), *words
    )
    assert (code, out.partition(":")[0]) == (0, "cannot be decided")


def test_a_file_passes_against_itself_and_a_missing_one_is_named(main, tmp_path):
    file = write_baseline(tmp_path / "longest.csv")
    words = ["--max-drop", "0", "--strict"]
    assert main("gate", file, "--baseline", file, *words)[0] == 0
    code, _, error = main("gate", file, "--baseline", tmp_path / "gone.csv", *words)
    assert (code, "no such file" in error) == (1, True)
