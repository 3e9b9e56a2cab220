"""The doctor on pairwise models: each check made to pass and to fail."""

import numpy as np
import pytest
import torch
from fakes import toy_responses
from pairwise_models import MARKS, save

from rmlab.checks import doctor
from rmlab.scorers.pairwise import pairwise

COMMON = ["nan", "alone", "dtype", "position", "saturation"]
CHECKS = {
    "pairrm": ["head", "memory", "packs", "tokenizer", "template", "truncated", "markers", *COMMON],
    "steamshp": ["head", "memory", "packs", "tokenizer", "template", "truncated", "bos", "read", *COMMON],
    "letters": ["head", "memory", "packs", "tokenizer", "template", "truncated", "bos", "read", *COMMON],
}
LABELS = ("chosen", "rejected")


@pytest.fixture(scope="module")
def responses():
    return toy_responses(prompts=6, slots=2)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return {kind: save(kind, tmp_path_factory.mktemp("models") / kind) for kind in CHECKS}


def found(report, check):
    return report.set_index("check").loc[check]


@pytest.mark.parametrize("kind", CHECKS)
def test_a_sound_model(models, responses, kind):
    report = doctor(pairwise(models[kind]), responses)
    assert report.columns.tolist() == ["check", "status", "found", "remedy"]
    assert report["check"].tolist() == CHECKS[kind]
    # Random weights prefer a place. The tiny T5's preference is a thousand times its margins, which shows in rounding.
    known = ["position", "alone"] if kind == "steamshp" else ["position"]
    others = report[~report["check"].isin(known)]
    assert found(report, "alone")["status"] != "fail"
    assert others["status"].max() == "pass", others[others["status"] > "pass"].to_dict("records")
    assert (others["remedy"] == "").all()
    assert "on 24 comparisons; 0 of 24 comparisons flip" in found(report, "alone")["found"]
    assert kind in found(report, "head")["found"]


@pytest.mark.parametrize("kind", CHECKS)
def test_position_bias_is_the_share_of_winners_that_change_sides(models, responses, kind):
    """The oracle swaps the answers by hand, and asks in one order at a time."""
    model = pairwise(models[kind])
    row = found(doctor(model, responses), "position")
    sides = dict(iter(responses.groupby("label")))
    both = sides["chosen"].merge(sides["rejected"], on=["id", "prompt"], suffixes=("_chosen", "_rejected"))
    prompts, first, second = (both[name].tolist() for name in ("prompt", "response_chosen", "response_rejected"))
    left, right = (
        model.forward_alone(model.prepare(prompts, *pair), np.arange(24)) for pair in ((first, second), (second, first))
    )
    changed = sum((a > 0) == (b > 0) for a, b in zip(left, right, strict=True))
    assert row["found"].startswith(f"{changed} of 24 comparisons ({changed / 24:.0%}) change their winner")
    assert f"written first wins {np.mean(np.r_[left, right] > 0):.0%}" in row["found"]


def test_a_place_that_always_wins_fails(models, responses):
    model = pairwise(models["letters"])
    backbone, head = model.parts
    model.__dict__["parts"] = backbone, lambda states: head(states) + 1e3
    report = doctor(model, responses)
    assert found(report, "position")["status"] == "fail"
    assert "24 of 24" in found(report, "position")["found"]
    assert "wins 100%" in found(report, "position")["found"]


def test_comparisons_that_are_too_long(models, responses):
    long = responses.assign(
        response=responses["response"].where(responses["id"] != "5", "Paris is a city. " * 1500 + responses["response"])
    )
    row = found(doctor(pairwise(models["pairrm"]), long), "truncated")
    assert row["status"] == "fail"
    assert row["found"].startswith("4 of 24 comparisons (16.7%) are longer")
    assert "truncate='right'" in row["remedy"]
    cutting = doctor(pairwise(models["pairrm"], truncate="right"), long)
    assert found(cutting, "truncated")["status"] == "warn"
    assert "on 20 comparisons" in found(cutting, "alone")["found"]  # the texts that fit are examined all the same
    row = found(doctor(pairwise(models["steamshp"]), long), "truncated")
    assert row["status"] == "fail"
    assert "(512 tokens)" in row["found"]
    tiny = doctor(pairwise(models["letters"], max_length=8), responses)
    assert tiny["check"].tolist()[-1] == "truncated"
    assert "24 of 24" in found(tiny, "truncated")["found"]


def test_markers_inside_an_answer_are_a_warning(models, responses):
    spoiled = responses.assign(response=responses["response"] + f" {MARKS[1]} again")
    row = found(doctor(pairwise(models["pairrm"]), spoiled), "markers")
    assert row["status"] == "warn"
    assert "again inside 48 of 48 texts" in row["found"]


def test_an_infinite_logit_is_not_averaged_away(models, responses):
    scorer = pairwise(models["letters"])
    backbone, head = scorer.parts
    scorer.__dict__["parts"] = backbone, lambda states: head(states) * 0 + torch.inf
    assert scorer.average(np.full(1, np.inf), np.full(1, np.inf)) == 0
    report = doctor(scorer, responses)
    assert report["check"].tolist()[-1] == "nan"
    assert found(report, "nan")["found"].startswith("24 of 24 scores are not finite")
