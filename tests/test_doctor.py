"""Each check of the doctor made to pass and to fail: on tiny reward models, pairwise
models and judges.
"""

import hashlib
from copy import copy

import numpy as np
import pandas as pd
import pytest
import torch
from fakes import toy_responses
from judge_fakes import longer, pair_judge
from judge_fakes import responses as judge_responses
from pairwise_models import save
from safetensors.torch import load_file, save_file
from test_template import encoder_words

from rmlab import toy
from rmlab.checks import doctor
from rmlab.findings import STATUS
from rmlab.judges.questions import Completion
from rmlab.scorers.base import PairScorer, Scorer, Text, as_scorer
from rmlab.scorers.classifier import classifier
from rmlab.scorers.implicit import implicit_reward
from rmlab.scorers.model_checks import grade_precision
from rmlab.scorers.pairwise import pairwise
from rmlab.scorers.score_checks import SCORE_CHECKS, Sample

TEXT_CHECKS = ["template", "truncated", "bos", "read", "pad"]
CHECKS = [
    "head",
    *TEXT_CHECKS,
    "nan",
    "alone",
    "saturation",
    "dtype",
]
RESPONSES = toy_responses(prompts=8, slots=3)


def examine(*arguments, **options):
    return doctor(*arguments, **options).set_index("check")


@pytest.fixture
def healthy(zoo):
    return zoo(name="healthy")


def test_a_healthy_model_passes_everything_and_no_file_is_read_to_be_hashed(
    healthy, main, monkeypatch
):
    """The doctor is there before a long run; the hash of the weights takes minutes
    where they are large.
    """
    monkeypatch.setattr(hashlib, "file_digest", None)
    report = doctor(healthy, RESPONSES)
    assert report.columns.tolist() == ["check", "status", "found", "remedy"]
    assert report["check"].tolist() == CHECKS
    assert report["status"].dtype == STATUS
    assert report["status"].max() == "pass", report[report["status"] > "pass"].to_dict(
        "records"
    )
    assert (report["remedy"] == "").all()
    detail = report.set_index("check")["found"]
    for check, word in [
        ("head", "score.weight"),
        ("read", "<|eot_id|>"),
        ("dtype", "float32"),
    ]:
        assert word in detail[check]
    pd.testing.assert_frame_equal(report, doctor(classifier(healthy), RESPONSES))
    code, out, _ = main("doctor", healthy)
    assert (code, [line.split()[:2] for line in out.splitlines()]) == (
        0,
        [["pass", check] for check in CHECKS],
    )


OPEN_END = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{% endfor %}"
TWO_ENDS = toy.models.CHAT_TEMPLATES["llama3"] + "{{ eos_token }}"
SHORT = {"max_position_embeddings": 60}
# The model, the doctor's options, the check, its status, words of what is found and of
# the remedy, and whether it ends.
FAULTS = {
    "no head": (
        {"task": "causal"},
        {},
        "head",
        "fail",
        "score.weight",
        "trained reward model",
        True,
    ),
    "no template": ({"template": None}, {}, "template", "fail", "", "'zephyr'", True),
    "no end": (
        {"template": OPEN_END},
        {},
        "read",
        "warn",
        "different tokens",
        "eos=True",
        False,
    ),
    "two ends": (
        {"template": TWO_ENDS},
        {},
        "read",
        "fail",
        "2 times",
        "eos=True",
        False,
    ),
    "pad is end": (
        {"pad": "<|eot_id|>"},
        {},
        "pad",
        "fail",
        "24 of 24 texts",
        "pooling='last'",
        False,
    ),
    "pad is end, as chosen": (
        {"pad": "<|eot_id|>"},
        {"pooling": "last"},
        "pad",
        "warn",
        "24 of 24 texts",
        "pooling='before_pad'",
        False,
    ),
    "too long": (
        SHORT,
        {},
        "truncated",
        "fail",
        "the window 60",
        "truncate='left'",
        False,
    ),
    "cut": (
        SHORT,
        {"max_length": 60, "truncate": "left"},
        "truncated",
        "warn",
        "cut at the left",
        "",
        False,
    ),
    "all too long": (
        {"max_position_embeddings": 4},
        {},
        "truncated",
        "fail",
        "",
        "",
        True,
    ),
    "nan": ({"nan": True}, {}, "nan", "fail", "24 of 24", "float32", True),
    "an encoder": (
        {"architecture": "bert", "template": "chatml"},
        {},
        "read",
        "pass",
        "[CLS]",
        "",
        False,
    ),
    "bfloat16": (
        {},
        {"dtype": "bfloat16"},
        "dtype",
        "pass",
        "0 of 36 comparisons flip",
        "",
        False,
    ),
}


def save_model(
    folder, *, template="llama3", pad=None, nan=False, architecture="llama", **config
):
    """A tiny reward model with another tokenizer, or with weights that are not
    numbers.
    """
    words = (
        encoder_words(chat_template=template)
        if architecture == "bert"
        else toy.tokenizer(chat_template=template)
    )
    if pad:
        words.pad_token = pad
    toy.save_model(folder, architecture, words=words, **config)
    if nan:
        path = folder / "model.safetensors"
        weights = load_file(path) | {
            "model.norm.weight": torch.full((32,), float("nan"))
        }
        save_file(weights, path, metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named_with_what_to_do(tmp_path, main, fault):
    config, options, check, status, detail, remedy, ends = FAULTS[fault]
    folder = save_model(tmp_path / "m", **config)
    report = examine(folder, RESPONSES, **options)
    assert report.loc[check, "status"] == status
    assert detail in report.loc[check, "found"]
    assert remedy in report.loc[check, "remedy"]
    assert ("saturation" not in report.index) == ends
    if not ends:
        assert report.loc["alone", "status"] == "pass", (
            "the texts that fit are examined all the same"
        )
    if fault == "no head":
        assert main("doctor", folder, "mini")[0] == 1


LINE_AFTER_END = toy.models.CHAT_TEMPLATES["llama3"] + "{{ '\\n' }}"


def test_an_implicit_reward_is_read_at_every_token_of_the_answer(tmp_path):
    """Its EOS tokens are inside the answer, so a text need not end with one."""
    words = toy.tokenizer(chat_template=LINE_AFTER_END)
    words.pad_token = words.eos_token
    folder = toy.save_model(tmp_path / "m", words=words, task="causal")
    report = examine(implicit_reward(folder), RESPONSES)
    assert report.loc["read", "status"] == "pass"
    assert "every other token of the answer" in report.loc["read", "found"]
    assert "pad" not in report.index


def test_a_template_may_open_every_turn_with_the_beginning_token(tmp_path):
    """SmolLM2's does, as ChatML without a BOS token of its own."""
    tokenizer = toy.tokenizer(chat_template="chatml")
    tokenizer.bos_token = "<|im_start|>"
    folder = toy.save_model(tmp_path / "m", words=tokenizer)
    report = examine(folder, RESPONSES)
    assert report.loc["bos", "status"] == "pass", report.loc["bos", "found"]


def test_any_scorer_is_examined_by_its_scores():
    """A function, a scorer that is in doubt alone, one of comparisons."""

    def count(prompts, responses):
        return [len(response) for response in responses]

    assert examine(count, RESPONSES).index.tolist() == ["nan", "saturation"]
    # A baseline's name was looked up on the hub.
    assert examine("longest", RESPONSES).index.tolist() == ["nan", "saturation"]

    class Doubtful(Scorer):
        name = "doubtful"

        def stream(self, texts):
            yield np.arange(len(texts)), np.arange(len(texts), dtype=float)

        def score_alone(self, texts):
            return np.zeros(len(texts))

    report = examine(Doubtful(), RESPONSES)
    assert report["status"].tolist() == ["pass", "fail", "pass"]

    class First(PairScorer):
        name = "first"

        def stream(self, texts):
            yield np.arange(len(texts)), np.ones(len(texts))

    assert examine(First(), RESPONSES).loc["position", "status"] == "fail"
    with pytest.raises(TypeError, match="not a scorer"):
        doctor(3, RESPONSES)


def sample(*scores):
    """Scores of two prompts, half of each prompt's chosen, and the same in company."""
    n = len(scores) // 2
    rows = toy_responses(prompts=2, slots=n // 2)
    texts = [Text("Question", (f"answer {i}",)) for i in range(2 * n)]
    scores = np.array(scores, float)
    made = Sample(as_scorer(longer), rows, texts, "float32")
    made.together = made.alone = scores
    return made


def rescored(sample, together):
    """The sample with other scores in company."""
    other = copy(sample)
    other.together = together
    return other


def test_flips_ties_and_distances():
    same = sample(4, 3, 2, 1, 8, 7, 6, 5)
    near = rescored(same, same.alone + np.linspace(0, 0.001, 8))
    turned = rescored(same, -same.alone)
    tied = sample(1, 1, 1, 2, 3, 4, 5, 6)
    constant = sample(*[1] * 8)
    one_text = copy(constant)
    one_text.texts = constant.texts[:1] * 8
    one_flip = same.alone + np.array([0, -1.5, 0, 0, 0, 0, 0, 0])
    alone, saturation = (SCORE_CHECKS[name].examine for name in ("alone", "saturation"))
    for finding, status in [
        (alone(near), "warn"),
        (alone(turned), "fail"),
        (grade_precision(same, one_flip), "warn"),
        (grade_precision(same, -same.alone), "fail"),
        (saturation(tied), "warn"),
        (saturation(constant), "fail"),
        (saturation(one_text), "pass"),
    ]:
        assert finding.status == status
    assert "1 of 8" in grade_precision(same, one_flip).detail
    assert "2 tied comparisons" in saturation(tied).detail


# Pairwise models.

PAIRS = toy_responses(prompts=6, slots=2)
TOKENS = {
    "pairrm": [],
    "letters": ["bos", "read"],
}


@pytest.fixture(scope="module")
def pairwise_models(tmp_path_factory):
    torch.manual_seed(0)
    return {
        kind: save(kind, tmp_path_factory.mktemp("models") / kind) for kind in TOKENS
    }


@pytest.mark.parametrize("kind", TOKENS)
def test_a_sound_pairwise_model_and_its_position_bias(pairwise_models, kind):
    """Against an oracle that swaps the answers by hand."""
    model = pairwise(pairwise_models[kind])
    report = examine(model, PAIRS)
    checks = ["head", "template", "truncated", *TOKENS[kind]]
    assert report.index.tolist() == [
        *checks,
        "nan",
        "alone",
        "position",
        "saturation",
        "dtype",
    ]
    # Random weights prefer a place.
    sound = report.drop("position")
    assert set(sound["status"]) == {"pass"}
    assert set(sound["remedy"]) == {""}
    assert report.loc["alone", "status"] != "fail"
    assert "on 24 comparisons; 0 of 24 comparisons flip" in report.loc["alone", "found"]
    sides = dict(iter(PAIRS.groupby("label")))
    pairs = sides["chosen"].merge(sides["rejected"], on=["id", "prompt"])
    asked = [pairs[name].tolist() for name in ("prompt", "response_x", "response_y")]
    exchanged = [asked[0], asked[2], asked[1]]
    left, right = (
        model.forward_alone(model.prepare(*texts), np.arange(24))
        for texts in (asked, exchanged)
    )
    changed = ((left > 0) == (right > 0)).sum()
    assert report.loc["position", "found"].startswith(f"{changed} of 24 comparisons")


@pytest.mark.parametrize(
    ("change", "check", "detail"),
    [(1e3, "position", "24 of 24"), (np.inf, "nan", "24 of 24"), (0, "alone", "")],
)
def test_margins_that_cannot_be_right_fail(pairwise_models, change, check, detail):
    """A place that always wins; infinite logits, which an average would hide; a forward
    pass that mixes texts up.
    """
    model = pairwise(pairwise_models["letters"])
    if change:
        head = model.readout.head
        model.readout.head = lambda states: head(states) + change
    else:
        alone = model.forward_alone
        model.forward_alone = lambda prepared, wanted: alone(prepared, wanted)[::-1]
    row = examine(model, PAIRS).loc[check]
    assert row["status"] == "fail"
    assert detail in row["found"]


# Judges.


def some(share, bad):
    """A rule that answers in the `bad` way to a share of the questions."""
    return lambda first, second, question: (
        bad if question.seed // 7 % 100 < 100 * share else longer(first, second)
    )


@pytest.mark.parametrize(
    ("choose", "check", "status"),
    [
        (longer, "repeat", "pass"),
        (some(0.2, None), "answers", "warn"),
        (some(0.95, None), "answers", "fail"),
        (some(0.95, "hm"), "verdict", "fail"),
        (lambda *_: "[[A]]", "position", "fail"),
        (some(0.4, Completion("[[A>B]]", "length")), "length", "warn"),
        (
            lambda first, second, question: (
                "[[A=B]]" if question.base_seed else longer(first, second)
            ),
            "repeat",
            "warn",
        ),
    ],
)
def test_each_fault_of_a_judge_is_named(choose, check, status):
    questions = []
    judge = pair_judge(
        lambda first, second, question: (
            questions.append((first, second)) or choose(first, second, question)
        )
    )
    report = examine(judge, judge_responses(20), sample=20)
    assert report.loc[check, "status"] == status
    assert bool(report.loc[check, "remedy"]) == (status != "pass")
    if status == "pass":
        assert report.index.tolist() == [
            "answers",
            "verdict",
            "length",
            "repeat",
            "position",
        ]
        assert set(report["status"]) == {"pass"}
        assert len(questions) == 2 * len(set(questions)) == 40, (
            "ten of twenty prompts, both orders, each twice"
        )


def test_a_server_that_cuts_long_questions_is_named():
    """It reads short and long ones as equally many tokens."""
    table = judge_responses(20)
    is_long = table["id"].astype(int) % 2 == 1
    table["prompt"] += np.where(is_long, " and so on" * 400, "")
    judge = pair_judge(lambda *_: Completion("[[A]]", prompt_tokens=900))
    assert examine(judge, table).loc["truncated", "status"] == "warn"
    assert examine(judge, table[is_long]).loc["truncated", "status"] == "pass"
