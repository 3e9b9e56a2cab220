"""The doctor on pairwise models: sound ones, against an oracle that swaps the answers by hand, and each fault."""

import numpy as np
import pytest
import torch
from fakes import toy_responses
from pairwise_models import MARKS, save

from rmlab.checks import doctor
from rmlab.scorers.pairwise import pairwise

SCORES = ["nan", "alone", "dtype", "position", "saturation"]
TOKENS = {"pairrm": ["markers"], "steamshp": ["bos", "read"], "letters": ["bos", "read"]}


@pytest.fixture(scope="module")
def responses():
    return toy_responses(prompts=6, slots=2)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return {kind: save(kind, tmp_path_factory.mktemp("models") / kind) for kind in TOKENS}


@pytest.mark.parametrize("kind", TOKENS)
def test_a_sound_model_and_its_position_bias(models, responses, kind):
    model = pairwise(models[kind])
    report = doctor(model, responses).set_index("check")
    checks = ["head", "packs", "tokenizer", "template", "truncated", *TOKENS[kind], *SCORES]
    assert report.index.tolist() == checks
    # Random weights prefer a place. The tiny T5's preference is a thousand times its margins, which shows in rounding.
    known = ["position", "alone"] if kind == "steamshp" else ["position"]
    assert set(report.drop(known)["status"]) == {"pass"}
    assert set(report.drop(known)["remedy"]) == {""}
    assert report.loc["alone", "status"] != "fail"
    assert "on 24 comparisons; 0 of 24 comparisons flip" in report.loc["alone", "found"]
    sides = dict(iter(responses.groupby("label")))
    pairs = sides["chosen"].merge(sides["rejected"], on=["id", "prompt"], suffixes=("_chosen", "_rejected"))
    prompts, first, second = (pairs[name].tolist() for name in ("prompt", "response_chosen", "response_rejected"))
    orders = ((first, second), (second, first))
    left, right = (model.forward_alone(model.prepare(prompts, *texts), np.arange(24)) for texts in orders)
    changed = sum((a > 0) == (b > 0) for a, b in zip(left, right, strict=True))
    assert report.loc["position", "found"].startswith(f"{changed} of 24 comparisons ({changed / 24:.0%})")
    assert f"{np.mean(np.r_[left, right] > 0):.0%}" in report.loc["position", "found"].split(";")[1]


@pytest.mark.parametrize(
    ("change", "check", "detail"), [(1e3, "position", "24 of 24"), (np.inf, "nan", "24 of 24"), (0, "alone", "")]
)
def test_scores_that_cannot_be_right_fail(models, responses, change, check, detail):
    """A place that always wins; infinite logits, which an average would hide; a forward pass that mixes texts up."""
    model = pairwise(models["letters"])
    if change:
        backbone, head = model.parts
        model.__dict__["parts"] = backbone, lambda states: head(states) + change
    else:
        alone = model.forward_alone
        model.forward_alone = lambda prepared, wanted: alone(prepared, wanted)[::-1]
    row = doctor(model, responses).set_index("check").loc[check]
    assert row["status"] == "fail"
    assert detail in row["found"]


def test_comparisons_that_are_too_long(models, responses):
    long = responses["response"].where(responses["id"] != "5", "Paris is a city. " * 1500 + responses["response"])
    for kind, options, status, detail, remedy in [
        ("pairrm", {}, "fail", "4 of 24 comparisons (16.7%)", "truncate='right'"),
        ("pairrm", {"truncate": "right"}, "warn", "4 of 24", ""),
        ("steamshp", {}, "fail", "(512 tokens)", ""),
        ("letters", {"max_length": 8}, "fail", "24 of 24", ""),
    ]:
        report = doctor(pairwise(models[kind], **options), responses.assign(response=long)).set_index("check")
        assert report.loc["truncated", "status"] == status
        assert detail in report.loc["truncated", "found"]
        assert remedy in report.loc["truncated", "remedy"]
        if kind == "letters":
            assert report.index[-1] == "truncated"
        else:
            assert "on 20 comparisons" in report.loc["alone", "found"], "the texts that fit are examined all the same"


def test_markers_inside_an_answer_are_a_warning(models, responses):
    spoiled = responses.assign(response=responses["response"] + f" {MARKS[1]} again")
    row = doctor(pairwise(models["pairrm"]), spoiled).set_index("check").loc["markers"]
    assert row["status"] == "warn"
    assert "48 of 48" in row["found"]
