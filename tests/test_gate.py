"""`rmlab gate`: which bounds hold, which fail, which the interval leaves open."""

import numpy as np
import pytest

import rmlab


@pytest.fixture
def results(tmp_path):
    scores = rmlab.score(rmlab.load("mini"), ["longest"])
    rmlab.write_scores(scores, tmp_path / "longest.csv")
    return scores, tmp_path / "longest.csv"


@pytest.mark.parametrize(
    ("options", "code", "verdict"),
    [
        (["--min", "overall=0.4"], 0, "pass"),
        (["--min", "overall=0.5"], 0, "undecided"),
        (["--min", "overall=0.5", "--strict"], 3, "undecided"),
        (["--min", "overall=0.6"], 3, "fail"),
        (["--min", "overall=0.4", "--min", "level:hard=0.5"], 3, "fail"),
        (["--max", "gap=0.7"], 0, "pass"),
        (["--max", "gap=0.3"], 3, "fail"),
    ],
)
def test_bounds(results, main, options, code, verdict):
    got, out, _ = main("gate", results[1], *options)
    assert got == code
    assert out.splitlines()[1].split()[0] == verdict


def test_a_missing_number_fails(results, main, tmp_path):
    scores, _ = results
    rmlab.write_scores(scores[scores["domain"] != "math"], tmp_path / "part.csv")
    code, out, _ = main("gate", tmp_path / "part.csv", "--min", "overall=0.1")
    assert code == 3
    assert "math" in out


def test_a_drop_is_judged_by_the_paired_interval(results, main, tmp_path):
    """Two models with the same outcomes on nearly all prompts: unpaired intervals would leave the drop open."""
    scores, path = results
    worse = scores.copy()
    rng = np.random.default_rng(0)
    worse["score"] += 1e-3 * rng.normal(size=len(worse))
    rmlab.write_scores(worse, tmp_path / "new.csv")
    assert main("gate", tmp_path / "new.csv", "--baseline", path, "--max-drop", "0.05")[0] == 0
    rmlab.write_scores(rmlab.score(rmlab.load("mini"), "shortest"), tmp_path / "other.csv")
    code, out, _ = main("gate", tmp_path / "other.csv", "--baseline", path, "--max-drop", "0.05")
    assert (code, out.split()[9]) == (0, "undecided")


@pytest.mark.parametrize(
    ("options", "code"),
    [([], 2), (["--min", "overall"], 2), (["--max-drop", "0.1"], 2), (["--min", "overal=0.5"], 1)],
)
def test_wrong_usage_is_not_a_verdict(results, main, options, code):
    assert main("gate", results[1], *options)[0] == code
