"""Two runs of one reward model: how far apart they are, and in what they differ."""

import re

import numpy as np
import pytest
from fakes import toy_responses
from served_models import sigmoid

import rmlab
from rmlab import toy

TEXTS = toy_responses(prompts=12, slots=2)


def compare(*runs):
    return rmlab.parity(*runs, TEXTS).set_index("check")


@pytest.fixture(scope="module")
def folder(zoo):
    return zoo(initializer_range=0.4)


@pytest.fixture(scope="module")
def model(folder):
    return rmlab.classifier(folder, device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def right(model):
    return rmlab.score(TEXTS, model)


def rescored(table, scores):
    return table.assign(score=np.asarray(scores, np.float64))


def test_runs_that_agree_have_the_same_tokens_and_settings(model, right):
    for run in (model, right):
        rows = compare(model, run)
        assert set(rows["status"]) == {"pass"}
        assert "excluded" not in rows.index
    assert "ids" not in compare(model, right).index, "a table has no tokens"


@pytest.mark.parametrize(
    ("options", "setting", "has_other_ids"),
    [
        ({"template": "zephyr"}, "template_hash", True),
        ({"eos": False}, "eos False and None", True),
        ({"max_length": 64, "truncate": "left"}, "truncate 'left' and None", True),
        ({"dtype": "bfloat16"}, "dtype 'bfloat16' and 'float32'", False),
    ],
)
def test_other_options_are_named(folder, model, options, setting, has_other_ids):
    other = rmlab.classifier(folder, device="cpu", **options)
    rows = compare(other, model)
    assert rows.loc["error", "status"] != "pass"
    assert rows.loc["settings", "status"] == "fail"
    assert setting in rows.loc["settings", "found"].partition("the same")[0]
    assert (rows.loc["ids", "status"] == "fail") == has_other_ids
    assert "excluded" not in rows.index


def test_the_first_place_where_tokens_differ_is_shown(folder, model):
    shorter = rmlab.classifier(folder, device="cpu", eos=False)
    rows = compare(model, shorter)
    assert rows.loc["ids", "value"] == 24
    (place,) = re.findall(
        r"from token (\d+) of (\d+) and (\d+),", rows.loc["ids", "found"]
    )
    token, n_left, n_right = map(int, place)
    assert token == n_right == n_left - 1


def test_an_end_token_that_is_the_pad_token_is_read_in_two_places(tmp_path):
    """transformers reads the token before the EOS token, vLLM the EOS token."""
    tokenizer = toy.tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    folder = toy.save_model(tmp_path / "m", words=tokenizer, initializer_range=0.4)
    last = rmlab.classifier(folder, pooling="last")
    rows = compare(last, rmlab.classifier(folder))
    assert rows.loc["ids", "status"] == "pass"
    assert "pooling 'last' and None" in rows.loc["settings", "found"]


def test_what_is_the_same_is_excluded_where_scores_differ(zoo, model, right):
    """Another model of the same tokenizer; scores of no known origin."""
    rows = compare(model, rmlab.classifier(zoo(seed=1, initializer_range=0.4)))
    assert rows.loc[["ids", "settings"], "status"].tolist() == ["pass", "pass"]
    assert rows.loc["excluded", "status"] == "fail"
    for name in ("token ids of 24 texts", "template_hash", "dtype", "activation"):
        assert name in rows.loc["excluded", "found"]

    unknown = rescored(right, right["score"][::-1])
    unknown.attrs.clear()
    rows = rmlab.parity(right, unknown).set_index("check")
    assert "not known of both: template_hash" in rows.loc["excluded", "found"]


def test_an_activation_shows_in_the_scores(right):
    squashed = rescored(right, [*map(sigmoid, right["score"])])
    for runs, name in [((right, squashed), "b"), ((squashed, right), "a")]:
        found = compare(*runs).loc["settings", "found"]
        assert f"activation (all scores of {name} lie between 0 and 1)" in found


def test_errors_and_flips_are_counted(right):
    scores = right["score"].to_numpy()
    is_first = np.arange(len(scores)) == 0
    wrong = rescored(right, scores + 100 * scores.std() * is_first)
    rows = rmlab.parity(right, wrong).set_index("check")
    assert rows.loc["error", "value"] == pytest.approx(100)
    signs = [np.sign(rmlab.pairs(table)["margin"]) for table in (right, wrong)]
    assert rows.loc["flips", "value"] == (signs[0] != signs[1]).sum()

    line = rmlab.parity(right, rescored(right, 2 * scores + 3)).set_index("check")
    assert line.loc["line", "value"] == pytest.approx(2)
    assert "offset 3" in line.loc["line", "found"]
    few = np.round(scores / (5 * scores.std()))
    ties = rmlab.parity(right, rescored(right, few)).set_index("check")
    assert "become ties" in ties.loc["flips", "found"]
    texts = rmlab.parity(right, right.iloc[:-3]).iloc[0]
    assert texts["status"] == "warn"
    assert texts["value"] == len(scores) - 3


@pytest.mark.parametrize(
    "score", [1.0, 0.1]
)  # the mean of many 0.1 is not 0.1 to the last digit
@pytest.mark.parametrize("broken", ["a", "b", "both"])
def test_a_constant_run_never_agrees(right, broken, score):
    constant = rescored(right, np.full(len(right), score))
    runs = [constant if broken in (name, "both") else right for name in "ab"]
    rows = rmlab.parity(*runs).set_index("check")
    assert set(rows.loc[["error", "line"], "status"]) == {"fail"}
    assert rows.loc[["error", "line"], "found"].str.contains("the same score").all()
