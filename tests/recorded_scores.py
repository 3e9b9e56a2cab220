"""Scores of tiny models of every head, kind, form and template, as they were when
SCORING_VERSION was last raised.

    python tests/recorded_scores.py      # writes tests/recorded/scores.json

The table depends on no machine: weights are the numbers of a generator that NumPy has
frozen, tokens are bytes, and backbones compute in float64, so that scores differ by
less than 6e-6 standard deviations between processors.
"""

import json
import sys
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
from faulty_server import FaultyServer
from pairwise_models import save_pairrm
from safetensors.torch import load_file, save_file
from served_models import Vllm, oracle
from test_template import CLOCK, R1

import rmlab
from rmlab import toy
from rmlab.inference.templates import FORMATS
from rmlab.scorers.base import SCORING_VERSION
from rmlab.scorers.implicit import MODES
from rmlab.scorers.models.heads import HEADS
from rmlab.scorers.pairwise import FORMS

TABLE = Path(__file__).parent / "recorded" / "scores.json"
TOLERANCE = 1e-5  # standard deviations

TURNS = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Two and two?"},
    {"role": "assistant", "content": "Four."},
    {"role": "user", "content": "Why?"},
]
PROMPTS = ["Capital of France?", "Capital of France?", TURNS, TURNS[1:]]
RESPONSES = [
    "Paris, on the Seine.",
    "Rome.",
    "Because I counted.",
    "**No** idea, d'accord? 7 + 8 = 15 \N{BICYCLE}",
]
OTHERS = ["Lyon.", "Paris is the capital of France.", "I cannot say.", "It is so."]

# The largest weights of architectures that give all texts about the same score with
# smaller ones.
SIZES = {"bert": 1.0, "deberta-v2": 1.0, "gpt_neox": 1.0, "gpt2": 1.0}

# The weights of each head by their shape, and its settings.
GATING = {"regression_layer.weight": (5, 32), "reward_transform_matrix": (5, 5)}
NORMS = {
    f"gating.layers.2.{part}": (24,)
    for part in ("weight", "bias", "running_mean", "running_var")
}


def linear(name, inputs, outputs):
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def stack(prefix, *widths):
    """Linear layers of these widths with an activation between them."""
    pairs = enumerate(pairwise(widths))
    return {
        key: shape
        for i, pair in pairs
        for key, shape in linear(f"{prefix}.{2 * i}", *pair).items()
    }


HEAD_WEIGHTS = {
    "quantiles": (
        GATING
        | {"regression_layer.weight": (20, 32), "gating.layers.0.weight": (24, 32)}
        | NORMS
        | linear("gating.layers.3", 24, 5),
        {"num_objectives": 5, "num_quantiles": 4},
    ),
    "gating": (
        GATING | {"gating.logit_scale": (1,)} | stack("gating.layers", 32, 24, 5),
        {"num_objectives": 5},
    ),
    "attributes": (linear("score", 32, 10) | stack("weights.fc", 32, 32, 5), {}),
    "attribute_means": (linear("score", 32, 10), {}),
    "value_stack": (stack("v_head.summary", 32, 16, 1), {}),
    "value": ({"v_head.weight": (1, 32)}, {}),
    "regression": ({"regression_head.weight": (1, 32)}, {}),
    "value_head": ({"value_head.weight": (1, 32)}, {}),
    "reward_head": ({"reward_head.weight": (1, 32)}, {}),
    "token": (
        linear("score", 32, 1),
        {"architectures": ["Qwen2ForTokenClassification"]},
    ),
    "token_classifier": (
        linear("classifier", 32, 1),
        {"architectures": ["Qwen2ForTokenClassification"]},
    ),
    "score_head": (linear("score_head", 32, 1), {"score_type": "reward"}),
    "score_stack": (stack("score", 32, 32, 1), {}),
}
# Heads with settings that change what they compute.
SETTINGS = {
    "value, reward token": (
        "value",
        {"architectures": ["InternLM2ForRewardModel"], "reward_token_id": 5},
    ),
    "score_head, reward": (
        "score_head",
        {"score_type": "reward", "do_normalize": True, "mean": [0.2], "var": [4.0]},
    ),
    "score_head, cost": (
        "score_head",
        {"score_type": "cost", "do_normalize": True, "mean": [0.2], "var": [4.0]},
    ),
}


def byte_tokenizer(*args, make=toy.tokenizer, **options):
    """The tokenizer of toy models with no piece longer than a byte."""
    return make(*args, **{"vocab_size": 264} | options)


def fill(folder, head=None, size=0.3):
    """Other weights, up to `size`, for the model in a folder, and more: those of a
    `head`, given by their shapes.
    """
    path = folder / "model.safetensors"
    shapes = {key: tuple(tensor.shape) for key, tensor in load_file(path).items()} | (
        head or {}
    )
    numbers = np.random.RandomState(0)  # its numbers never change
    weights = {}
    for key in sorted(shapes):
        most = 0.3 if "pooler" in key else size  # its tanh would saturate
        low, high = (0.5, 1.5) if len(shapes[key]) == 1 else (-most, most)
        weights[key] = torch.tensor(
            numbers.uniform(low, high, shapes[key]), dtype=torch.float32
        )
    save_file(weights, path, metadata={"format": "pt"})
    return folder


def save(folder, architecture="llama", *, chat_template="llama3", **options):
    folder = toy.save_model(
        folder,
        architecture,
        words=byte_tokenizer(chat_template=chat_template),
        **options,
    )
    return fill(folder, size=SIZES.get(architecture, 0.3))


def save_head(folder, name, settings):
    """A Llama backbone under `model.` and the weights of a head."""
    shapes, defaults = HEAD_WEIGHTS[name]
    toy.save_model(folder, task="backbone", words=byte_tokenizer())
    path = folder / "model.safetensors"
    save_file(
        {f"model.{key}": tensor for key, tensor in load_file(path).items()},
        path,
        metadata={"format": "pt"},
    )
    config = (
        json.loads((folder / "config.json").read_text())
        | {"architectures": None}
        | defaults
        | settings
    )
    (folder / "config.json").write_text(json.dumps(config))
    return fill(folder, shapes)


def score(scorer):
    return scorer(PROMPTS, RESPONSES)


def score_head(folder, name, settings, **options):
    return score(rmlab.classifier(save_head(folder, name, settings), **options))


def score_labels(folder, architecture, **config):
    return score(rmlab.classifier(save(folder, architecture, **config)))


def score_first_logit(folder):
    return score(
        rmlab.classifier(
            save(folder, task="causal", tie_word_embeddings=False), head="first_logit"
        )
    )


def score_several_labels(folder):
    save(folder, num_labels=3)
    return score(rmlab.classifier(folder, weights=[0.6, 0.0, -0.4]))


def score_template(folder, *, task="classifier", chat_template=None, **options):
    make = rmlab.classifier if task == "classifier" else rmlab.implicit_reward
    return score(make(save(folder, task=task, chat_template=chat_template), **options))


def score_segments(folder):
    """An encoder's two segments."""
    words = byte_tokenizer(chat_template=None)
    words.cls_token, words.sep_token = words.bos_token, words.eos_token
    fill(toy.save_model(folder, "bert", words=words), size=3.0)
    return score(rmlab.classifier(folder, template="raw"))


def score_reference(folder):
    policy, reference = (
        save(folder / name, task="causal") for name in ("policy", "reference")
    )
    path = reference / "model.safetensors"
    save_file(
        {key: tensor.flip(0) for key, tensor in load_file(path).items()},
        path,
        metadata={"format": "pt"},
    )
    return score(rmlab.implicit_reward(policy, reference))


def score_implicit(folder, architecture="llama", cap=None, **options):
    settings = {} if cap is None else {"final_logit_softcapping": cap}
    return score(
        rmlab.implicit_reward(
            save(folder, architecture, task="causal", **settings), **options
        )
    )


def score_pairs(folder, form, **options):
    if form == "letters":
        save(folder, task="causal")
    else:
        save_pairrm(folder)
        fill(folder, size=1.0)
    return rmlab.pairwise(folder, form=form, **options).prefer(
        PROMPTS, RESPONSES, OTHERS
    )


def score_judge(folder):
    """Log-odds of the letters A and B, in both orders."""
    names = {"benchmark": "own", "domain": "d", "subset": "d"}
    answers = [("chosen", text) for text in RESPONSES] + [
        ("rejected", text) for text in OTHERS
    ]
    rows = [
        {
            **names,
            "id": str(i % 4),
            "label": label,
            "slot": 0,
            "prompt": PROMPTS[i % 4],
            "response": text,
        }
        for i, (label, text) in enumerate(answers)
    ]
    judge = rmlab.judge(
        save(folder, task="causal", max_position_embeddings=8192),
        mode="logprob",
        name="j",
    )
    return rmlab.prefer(pd.DataFrame(rows), judge, progress=False)["margin"].to_numpy()


def score_served(folder):
    save(folder)
    with FaultyServer(Vllm(oracle(folder, "float64"), None)) as server:
        return score(
            rmlab.remote(server.url, kind="vllm", tokenizer=folder, examine=False)
        )


def list_cases():
    """What is scored, by name: functions of an empty folder."""
    cases = {}
    for head in HEADS:
        if head.name in HEAD_WEIGHTS:
            option = {"head": head.name} if head.explicit_only else {}
            cases[f"head {head.name}"] = partial(
                score_head, name=head.name, settings={}, **option
            )
    for title, (name, settings) in SETTINGS.items():
        cases[f"head {title}"] = partial(score_head, name=name, settings=settings)
    runner = {"convention": "reward-bench"}
    cases["head value, of the runner"] = partial(
        score_head, name="value", settings={}, **runner
    )
    cases["head first_logit"] = score_first_logit
    cases["head labels"] = score_several_labels
    for architecture in toy.models.ARCHITECTURES:
        cases[f"labels of {architecture}"] = partial(
            score_labels, architecture=architecture
        )

    for name in FORMATS:
        cases[f"template {name}"] = partial(score_template, template=name)
    for name, jinja in (
        toy.models.CHAT_TEMPLATES
        | {"clock": CLOCK + toy.models.CHAT_TEMPLATES["chatml"]}
    ).items():
        cases[f"template of the tokenizer, {name}"] = partial(
            score_template, chat_template=jinja
        )
    cases["template of the tokenizer, thought"] = partial(
        score_template, chat_template=R1, task="causal"
    )
    cases["template raw, two segments"] = score_segments
    end = byte_tokenizer().eos_token_id
    cases["labels before the pad token"] = partial(
        score_labels, architecture="llama", pad_token_id=end
    )
    options = {
        "without a beginning": {"bos": False},
        "with a system message": {"system": "Be kind."},
        "with an end": {"eos": True},
        "without an end": {"eos": False},
        "cut on the left": {"max_length": 90, "truncate": "left"},
        "cut on the right": {"max_length": 108, "truncate": "right"},
        "of the runner": runner,
    }
    for title, option in options.items():
        cases[f"text {title}"] = partial(
            score_template, chat_template="chatml", **option
        )

    for mode in MODES:
        cases[f"implicit {mode}"] = partial(score_implicit, mode=mode)
    cases["implicit with a reference"] = score_reference
    cases["implicit of the runner"] = partial(score_implicit, **runner)
    cases["implicit with a cap"] = partial(
        score_implicit, architecture="gemma2", cap=3.0, mode="sum"
    )
    for form in FORMS:
        cases[f"pairwise {form}"] = partial(score_pairs, form=form)
    cases["judge"] = score_judge
    cases["remote"] = score_served
    return cases


@contextmanager
def exact():
    """Backbones of float64, tokens of one byte, one thread."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    double = patch("rmlab.scorers.models.loading.dtype", lambda *_: torch.float64)
    try:
        with (
            double,
            patch("rmlab.toy.tokenizer", byte_tokenizer),
            torch.random.fork_rng(devices=[]),
        ):
            torch.manual_seed(0)
            yield
    finally:
        torch.set_num_threads(n_threads)


def score_case(name, folder):
    """The four scores of a case."""
    with exact():
        return np.asarray(list_cases()[name](folder))


def difference(scores, recorded):
    """By how many standard deviations the scores have moved."""
    return float(np.abs(np.asarray(scores) - recorded).max() / np.std(recorded))


def record():
    """Write the table; refuse a score that has moved while SCORING_VERSION has not."""
    table = (
        json.loads(TABLE.read_text())
        if TABLE.is_file()
        else {"version": None, "scores": {}}
    )
    is_same_version = table["version"] == SCORING_VERSION
    scores = {}
    for name in list_cases():
        with TemporaryDirectory() as folder:
            scores[name] = score_case(name, Path(folder) / "m").tolist()
        if is_same_version and name in table["scores"]:
            moved = difference(scores[name], table["scores"][name])
            if not moved <= TOLERANCE:
                sys.exit(
                    f"{name}: moved by {moved:.2g} standard deviations; raise "
                    "SCORING_VERSION and record anew"
                )
            scores[name] = table["scores"][name]
    TABLE.write_text(
        json.dumps({"version": SCORING_VERSION, "scores": scores}, indent=1) + "\n"
    )


if __name__ == "__main__":
    record()
